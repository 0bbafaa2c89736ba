"""A pretrained model behind the decoder interface of `core.decoding`: encode a source, then feed one token a row."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from core.pretrained.base import Pretrained, wrap_errors
from core.pretrained.devices import to_device


@dataclass(frozen=True)
class EncodedSource:
    """The encoder's states, or the ids themselves where there is no encoder; and the padding mask."""

    ids: Tensor
    mask: Bool[Tensor, "B S"]
    states: Float[Tensor, "B S C"] | None = None


@dataclass(frozen=True)
class DecoderState:
    """The ids that each row has been fed, and the model's key–value cache, if it has one."""

    ids: Int[Tensor, "B T"]
    cache: Any = None

    def pick(self, rows: Int[Tensor, " R"]) -> DecoderState:
        """Select rows; the cache belongs to this search alone, so it is reordered in place."""
        if self.cache is not None and not torch.equal(rows, torch.arange(len(self.ids), device=rows.device)):
            self.cache.reorder_cache(rows)
        return DecoderState(self.ids[rows], self.cache)


class DecoderAdapter:
    """The `Decoder` of core.decoding over a shared model: always in eval mode; each step holds the model's lock."""

    training = False

    def __init__(self, pretrained: Pretrained, before: Sequence[int] = ()) -> None:
        """`before` is the prefix of an encoder–decoder's decoder, before the search's first token."""
        self.pretrained, self.before = pretrained, list(before)
        taken = inspect.signature(pretrained.model.forward).parameters
        # Logits of the last position alone: those of a long prompt would take most of a step's memory.
        self.last = {"logits_to_keep": 1} if "logits_to_keep" in taken else {}

    def train(self, mode: bool = True) -> DecoderAdapter:
        """Does nothing: the shared model stays in eval mode."""
        return self

    def eval(self) -> DecoderAdapter:
        return self

    def encode(self, source: Tensor, source_mask: Bool[Tensor, "B S"]) -> EncodedSource:
        """Run the encoder, where there is one."""
        model = self.pretrained.model
        if not model.config.is_encoder_decoder:
            return EncodedSource(source, source_mask)
        mask = {"attention_mask": source_mask.long()} if self.pretrained.reads == "pair" else {}
        with wrap_errors(f"{self.pretrained.name} cannot read this"), self.pretrained.lock, torch.inference_mode():
            states = model.get_encoder()(source.to(model.device), **to_device(model, mask)).last_hidden_state.cpu()
        return EncodedSource(source, torch.ones(states.shape[:2], dtype=torch.bool) if not mask else source_mask,
                             states)

    def start(self, memory: EncodedSource) -> DecoderState:
        """The state before the first step; a prompt is fed together with the first token."""
        return DecoderState(memory.ids if memory.states is None else torch.tensor([self.before], dtype=torch.long))

    def step(self, memory: EncodedSource, state: DecoderState, tokens: Int[Tensor, " B"]
             ) -> tuple[Float[Tensor, "B V"], DecoderState, None]:
        """The logits of the next token of each row."""
        ids = torch.cat((state.ids, tokens[:, None]), dim=1)
        fed = ids if state.cache is None else tokens[:, None]
        inputs: dict[str, Any] = {"input_ids": fed}
        if memory.states is not None:
            inputs = {"encoder_outputs": (memory.states,), "decoder_input_ids": fed}
            if self.pretrained.reads == "pair":
                inputs["attention_mask"] = memory.mask.long()
        with wrap_errors(f"{self.pretrained.name} cannot continue"), self.pretrained.lock, torch.inference_mode():
            output = self.pretrained.model(**to_device(self.pretrained.model, inputs), **self.last,
                                           past_key_values=state.cache, use_cache=True)
        return output.logits[:, -1].cpu(), DecoderState(ids, getattr(output, "past_key_values", None)), None
