"""The hybrid: a recurrent encoder with self-attention over its states."""

from __future__ import annotations

from dataclasses import replace

from jaxtyping import Bool, Int
from torch import Tensor, nn

from core.attention import Attention, AttentionConfig
from core.models.base import EncoderOutput, Shape
from core.models.blocks import cross_config, inner_config
from core.models.config import ModelConfig
from core.models.inputs import Positions
from core.models.recurrent import RecurrentSeq2Seq


class HybridSeq2Seq(RecurrentSeq2Seq):
    """A recurrent encoder (as a rule a BiLSTM) under norm(x + self-attention(x)), and a recurrent decoder with
    cross-attention.

    The config's mask and position apply to the self-attention; the decoder sees all of the source. Feeding and readout
    are those of the recurrent model.
    """

    def __init__(self, config: ModelConfig, shape: Shape) -> None:
        super().__init__(config, shape)
        self.places, self.norm = Positions(config, shape.longest), nn.LayerNorm(config.d_model)
        self.inner = Attention(inner_config(config.required_attention))

    def decoder_attention(self, config: ModelConfig) -> AttentionConfig | None:
        return cross_config(config.required_attention)

    def encode(
        self, source: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"], record: bool = False
    ) -> EncoderOutput:
        memory = super().encode(source, source_mask, record)
        masked = (
            self.config.required_attention.mask.key != "none"
        )  # such a mask may read which keys are real
        key_mask = source_mask if masked or not bool(source_mask.all()) else None
        steps = self.inner(self.places(memory.states), key_mask=key_mask, record=record)
        states = self.norm(memory.states + self.dropout(steps.merged))
        return replace(memory, states=states, steps=(steps,) if record else ())
