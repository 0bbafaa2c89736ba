"""Sequence-to-sequence models around the attention layer: an encoder–decoder Transformer and a recurrent one."""

from core.models.base import Memory, ModelOutput, Seq2Seq
from core.models.config import ModelConfig
from core.models.recurrent import RecurrentSeq2Seq
from core.models.transformer import Encoder, TransformerSeq2Seq


def build_model(config: ModelConfig, source_vocab: int, target_vocab: int, max_length: int) -> Seq2Seq:
    """A fresh model; `max_length` is the longest source or target it will see. ConfigError if a table is too short.

    Its weights come from torch's global generator: seed it first.
    """
    kinds = {"transformer": TransformerSeq2Seq, "recurrent": RecurrentSeq2Seq}
    return kinds[config.kind](config, source_vocab, target_vocab, max_length)


__all__ = ["Encoder", "Memory", "ModelConfig", "ModelOutput", "RecurrentSeq2Seq", "Seq2Seq", "TransformerSeq2Seq",
           "build_model"]
