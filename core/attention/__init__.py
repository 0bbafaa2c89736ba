"""The front door: attend is the function, Attention the layer, AttentionConfig the six choices."""

from core.attention.base import Absent, Normalizer, ScoreBlock, Steps
from core.attention.config import (
    AXES,
    AttentionConfig,
    check_sizes,
    entry,
    example,
    example_config,
    heads_that_divide,
    needs,
    refusals,
)
from core.attention.decoding import Cache
from core.attention.difference import first_difference
from core.attention.kernels.exact import OF_QUERIES, exact
from core.attention.kernels.softmax import why_not_fused
from core.attention.layer import Attention, attend
from core.attention.normalizers import Softmax
from core.attention.presets import (
    LAYER_PATTERNS,
    PRESETS,
    LayerPattern,
    attention_name,
    choice_name,
    distinct_names,
    preset,
    preset_of,
)
from core.attention.presets.base import Preset
from core.attention.probes import check
from core.attention.projections.multi_head import MultiHead
from core.attention.register import register
from core.entries import Choice, ConfigError, Entry, Param

__all__ = [
    "AXES",
    "LAYER_PATTERNS",
    "OF_QUERIES",
    "PRESETS",
    "Absent",
    "Attention",
    "AttentionConfig",
    "Cache",
    "Choice",
    "ConfigError",
    "Entry",
    "LayerPattern",
    "MultiHead",
    "Normalizer",
    "Param",
    "Preset",
    "ScoreBlock",
    "Softmax",
    "Steps",
    "attend",
    "attention_name",
    "check",
    "check_sizes",
    "choice_name",
    "distinct_names",
    "entry",
    "exact",
    "example",
    "example_config",
    "first_difference",
    "heads_that_divide",
    "needs",
    "preset",
    "preset_of",
    "refusals",
    "register",
    "why_not_fused",
]
