"""Presets: published mechanisms in order of year, each a choice on all six axes."""

from core.attention.presets.base import AXIS_NAMES, Preset
from core.attention.presets.early import RECURRENT, TRANSFORMERS
from core.attention.presets.long import LONG
from core.attention.presets.selective import SELECTIVE
from core.attention.presets.today import TODAY
from core.attention.presets.variants import VARIANTS
from core.entries import ConfigError, quote

PRESETS: tuple[Preset, ...] = tuple(
    sorted(
        (*RECURRENT, *TRANSFORMERS, *LONG, *TODAY, *VARIANTS, *SELECTIVE),
        key=lambda item: item.year,
    )
)

__all__ = ["AXIS_NAMES", "PRESETS", "Preset", "preset"]


def preset(key: str) -> Preset:
    """The preset of that key; ConfigError lists the keys there are."""
    for candidate in PRESETS:
        if candidate.key == key:
            return candidate
    raise ConfigError(
        f"preset = {quote(key)}; expected one of {', '.join(p.key for p in PRESETS)}."
    )
