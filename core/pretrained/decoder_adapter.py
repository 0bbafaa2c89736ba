"""A pretrained model behind the decoder interface of `core.decoding`: encode a source, then feed one token a row."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from core.pretrained.base import Pretrained, text_config, wrap_errors
from core.pretrained.devices import to_device

# Families whose cache, in the installed transformers, does not give what the whole text gives: they run without it.
WRONG_CACHES = ("minimax", "moshi", "nemotron_h", "zamba2")


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
        if self.cache is not None and not torch.equal(
            rows, torch.arange(len(self.ids), device=rows.device)
        ):
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
        cached = text_config(pretrained.model).model_type not in WRONG_CACHES
        self.more: dict[str, Any] = {"use_cache": cached} | (
            {"logits_to_keep": 1} if "logits_to_keep" in taken else {}
        )
        self.encoder_output: type = dict
        self.positions = "position_ids" in taken

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
        with (
            wrap_errors(f"{self.pretrained.name} cannot read this"),
            self.pretrained.lock,
            torch.inference_mode(),
        ):
            output = model.get_encoder()(
                source.to(model.device), **to_device(model, mask), return_dict=True
            )
        states, self.encoder_output = output.last_hidden_state.cpu(), type(output)
        return EncodedSource(
            source,
            torch.ones(states.shape[:2], dtype=torch.bool) if not mask else source_mask,
            states,
        )

    def start(self, memory: EncodedSource) -> DecoderState:
        """The state before the first step; a prompt is fed together with the first token."""
        return DecoderState(
            memory.ids if memory.states is None else torch.tensor([self.before], dtype=torch.long)
        )

    def step(
        self, memory: EncodedSource, state: DecoderState, tokens: Int[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B V"], DecoderState, None]:
        """The logits of the next token of each row."""
        ids = torch.cat((state.ids, tokens[:, None]), dim=1)
        model, inputs = self.pretrained.model, {**self.more}
        if memory.states is not None:
            inputs["encoder_outputs"] = self.encoder_output(
                last_hidden_state=memory.states.to(model.device)
            )
            if self.pretrained.reads == "pair":
                inputs["attention_mask"] = memory.mask.long()
        elif self.positions:
            inputs["position_ids"] = torch.arange(ids.shape[1]).expand_as(ids)
        with (
            wrap_errors(f"{self.pretrained.name} cannot continue"),
            self.pretrained.lock,
            torch.inference_mode(),
        ):
            # The inputs that the library's own generate gives: a layer's cache need not count the tokens before.
            inputs = model.prepare_inputs_for_generation(
                ids.to(model.device),
                next_sequence_length=None if state.cache is None else 1,
                past_key_values=state.cache,
                is_first_iteration=state.cache is None,
                **to_device(model, inputs),
            )
            output = model(**inputs)
        return (
            output.logits[:, -1].cpu(),
            DecoderState(ids, getattr(output, "past_key_values", None)),
            None,
        )
