"""Decoder only (Radford 2018): a language model, and for pairs the source and its target in one sequence."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from core.attention import Cache, Steps
from core.models.base import EncoderOutput, ModelOutput, Seq2Seq, Shape, weights_of
from core.models.blocks import CausalLayer, final_norm, run_layer
from core.models.config import ModelConfig
from core.models.inputs import (
    Positions,
    TokenEmbedding,
    check_shape,
    concatenate,
    gather_positions,
    gather_rows,
    source_embedding,
)
from core.models.transformer import DecoderState


class Decoder(Seq2Seq):
    """A stack of causal layers over one sequence: the source, then the target from its start mark on.

    Without a target it predicts the next token of the source at every position. Source and target share an embedding
    where they share a vocabulary. Stepwise decoding takes a batch of sources of one length.
    """

    one_length = True

    def __init__(self, config: ModelConfig, shape: Shape) -> None:
        super().__init__()
        check_shape(config, shape, ("tokens", "patches"), ("tokens",))
        self.config = config
        self.target = TokenEmbedding(shape.target, config.d_model)
        self.source = self.target if shape.one_vocabulary else source_embedding(config, shape)
        self.places = Positions(config, 2 * shape.longest)
        self.layers = nn.ModuleList(CausalLayer(config, layer) for layer in range(config.layers))
        self.kv_sources = [config.kv_source(layer) for layer in range(config.layers)]
        self.norm = final_norm(config)
        self.output = nn.Linear(config.d_model, shape.target, bias=config.output_bias)
        if config.tied:
            self.target.tie(self.output)

    def forward(
        self,
        source: Tensor,
        source_mask: Bool[Tensor, "B S"],
        target_in: Int[Tensor, "B T"] | None = None,
        record: bool = False,
    ) -> ModelOutput:
        """Logits of the next token at each position of the target, or of the source where there is no target. Padding
        needs no mask: it stands at the end, hidden by the causal mask."""
        x = self.source(source)
        if target_in is None:
            positions = torch.arange(x.shape[1], device=x.device).expand(len(x), -1)
        else:
            x, positions = concatenate(x, source_mask, self.target(target_in))
        x, _, steps = self._run(x, self.start(None), record)
        maps = {"causal": steps} if record else {}
        attention = [gather_rows(weights, positions, source_mask) for weights in weights_of(steps)]
        return ModelOutput(
            self.output(gather_positions(x, positions)), maps, attention, positions + 1
        )

    def encode(
        self, source: Tensor, source_mask: Bool[Tensor, "B S"], record: bool = False
    ) -> EncoderOutput:
        """The sequence up to the end of the source; ValueError unless all sources have one length."""
        length = int(source_mask.sum(1).max())
        if not bool(source_mask[:, :length].all()):
            raise ValueError(
                "A decoder-only model decodes sources of one length together; group sources by length."
            )
        x, state, steps = self._run(self.source(source[:, :length]), self.start(None), record)
        return EncoderOutput(x, source_mask[:, :length], state, tuple(steps))

    def decode(
        self, memory: EncoderOutput, target_in: Int[Tensor, "B T"], record: bool = False
    ) -> ModelOutput:
        logits, _, maps = self.read(memory, memory.last, target_in, record)
        size = memory.states.shape[1]
        visible = (
            size
            + 1
            + torch.arange(target_in.shape[1], device=logits.device).expand(len(logits), -1)
        )
        attention = [weights[..., :size] for weights in weights_of(maps.get("causal", ()))]
        return ModelOutput(logits, maps, attention, visible)

    def start(self, memory: EncoderOutput | None) -> DecoderState:
        return DecoderState(0, (None,) * len(self.layers)) if memory is None else memory.last

    def read(
        self,
        memory: EncoderOutput | None,
        state: DecoderState,
        tokens: Int[Tensor, "B T"],
        record: bool,
    ) -> tuple[Float[Tensor, "B T V"], DecoderState, dict[str, list[Steps]]]:
        x, state, steps = self._run(self.target(tokens), state, record)
        return self.output(x), state, {"causal": steps} if record else {}

    def _run(
        self, x: Float[Tensor, "B T C"], state: DecoderState, record: bool
    ) -> tuple[Float[Tensor, "B T C"], DecoderState, list[Steps]]:
        """x after all layers and the last norm, the new state, and the Steps where recorded."""
        length, caches, recorded = state.length + x.shape[1], list[Cache](), []
        shared: dict[str, Tensor] = {}
        x = self.places(x, state.length)
        for layer, past, source in zip(self.layers, state.past, self.kv_sources, strict=True):
            kv = None if source is None else caches[source].heads
            x, cache, steps = run_layer(layer, self.checkpointing, x, past, record, kv, shared)
            caches.append(cache)
            if record:
                recorded.append(steps)
        return self.norm(x), DecoderState(length, tuple(caches)), recorded
