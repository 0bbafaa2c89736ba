"""The front door: attend is the function, Attention the layer, AttentionConfig the six choices."""

from core.attention.basics import Cache
from core.attention.config import AXES, AttentionConfig, check_sizes, entry, heads_that_divide
from core.attention.kernels.exact import LayerSteps, RecordedSteps, Steps
from core.attention.kernels.softmax import why_not_fused
from core.attention.layer import Attention, attend
from core.attention.presets import PRESETS, preset, preset_of
from core.attention.presets.base import Preset
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
    "preset_of",
    "register",
    "why_not_fused",
]
