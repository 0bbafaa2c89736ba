"""Models around the attention layer: each takes any attention that makes sense in it."""

from functools import lru_cache

from core.attention.cost import ShapesOnly
from core.models.base import (
    BOUNDS,
    LONGEST,
    PATTERN_FIELDS,
    RECURRENT,
    STACKED,
    EncoderOutput,
    Model,
    ModelConfig,
    ModelOutput,
    Seq2Seq,
    Shape,
    hooked,
    map_tokens,
    sentence_spans,
)
from core.models.recurrent import Hierarchical, HybridSeq2Seq, Level, RecurrentSeq2Seq
from core.models.transformer import (
    Classifier,
    Decoder,
    DecoderLayer,
    DepthAttention,
    Encoder,
    EncoderLayer,
    Forecaster,
    OneToken,
    Residual,
    StreamMixing,
    TransformerSeq2Seq,
    encoder_masks,
    exact_fallbacks,
)

MODELS: dict[str, type[Model]] = {
    "transformer": TransformerSeq2Seq,
    "decoder": Decoder,
    "classifier": Classifier,
    "one_token": OneToken,
    "forecaster": Forecaster,
    "recurrent": RecurrentSeq2Seq,
    "hybrid": HybridSeq2Seq,
    "hierarchical": Hierarchical,
}


def build_model(config: ModelConfig, shape: Shape) -> Model:
    """A new model of that config for a task of that shape, its weights from torch's global generator; ConfigError where
    config and shape do not fit."""
    return MODELS[config.kind](config, shape)  # type: ignore[call-arg]


@lru_cache(maxsize=128)
def count_parameters(config: ModelConfig, shape: Shape) -> int:
    """The number of weights of a model, built without memory; ConfigError where it does not fit that shape."""
    with ShapesOnly():
        return sum(weight.numel() for weight in build_model(config, shape).parameters())


__all__ = [
    "BOUNDS",
    "LONGEST",
    "MODELS",
    "PATTERN_FIELDS",
    "RECURRENT",
    "STACKED",
    "Classifier",
    "Decoder",
    "DecoderLayer",
    "DepthAttention",
    "Encoder",
    "EncoderLayer",
    "EncoderOutput",
    "Forecaster",
    "Hierarchical",
    "HybridSeq2Seq",
    "Level",
    "Model",
    "ModelConfig",
    "ModelOutput",
    "OneToken",
    "RecurrentSeq2Seq",
    "Residual",
    "Seq2Seq",
    "Shape",
    "StreamMixing",
    "TransformerSeq2Seq",
    "build_model",
    "count_parameters",
    "encoder_masks",
    "exact_fallbacks",
    "hooked",
    "map_tokens",
    "sentence_spans",
]
