"""The front door: attend is the function, Attention the layer, AttentionConfig the six choices."""

from core.attention.cache import Cache
from core.attention.config import AXES, AttentionConfig, check_sizes, entry, heads_that_divide
from core.attention.kernels import Steps, why_not_fused
from core.attention.kernels.exact import LayerSteps, RecordedSteps
from core.attention.layer import Attention, attend
from core.attention.presets import PRESETS, Preset, preset
from core.attention.register import register
from core.entries import Choice, ConfigError, Entry, Param

__all__ = [
    "AXES",
    "PRESETS",
    "Attention",
    "AttentionConfig",
    "Cache",
    "Choice",
    "ConfigError",
    "Entry",
    "LayerSteps",
    "Param",
    "Preset",
    "RecordedSteps",
    "Steps",
    "attend",
    "check_sizes",
    "entry",
    "heads_that_divide",
    "preset",
    "register",
    "why_not_fused",
]
