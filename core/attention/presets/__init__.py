"""Presets: published mechanisms in order of year, each a choice on all six axes; and patterns of unlike layers."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache

from core.attention.config import AXES, AttentionConfig, entry
from core.attention.presets.base import Preset
from core.attention.presets.early import EARLY
from core.attention.presets.recent import RECENT
from core.entries import Choice, ConfigError, complete, quote

PRESETS: tuple[Preset, ...] = tuple(sorted((*EARLY, *RECENT), key=lambda item: item.year))


def preset(key: str) -> Preset:
    """The preset of that key; ConfigError lists the keys there are."""
    for candidate in PRESETS:
        if candidate.key == key:
            return candidate
    raise ConfigError(
        f"preset = {quote(key)}; expected one of {', '.join(p.key for p in PRESETS)}."
    )


def preset_of(config: AttentionConfig | None) -> str | None:
    """The preset of a mechanism at its own size, whatever its dropout, or None."""
    if config is None:
        return None
    known = _presets_at(config.d_model, config.num_heads)
    return known.get(replace(config, dropout=0.0) if config.dropout else config)


@lru_cache(maxsize=32)
def _presets_at(d_model: int, num_heads: int) -> dict[AttentionConfig, str]:
    """Every preset that exists at a size, by its mechanism; the first of equal ones."""
    presets: dict[AttentionConfig, str] = {}
    for item in PRESETS:
        with suppress(ConfigError):  # one cannot be had at that size
            presets.setdefault(item.config(d_model, num_heads), item.key)
    return presets


# Choices and attentions in words: for lists, legends and the layers of a diagram.


# what distinguishes best, first
TELLING = ("kernel", "mask", "position", "normalizer", "score", "projection")
# what the choice "none" is, beside attentions with another
ABSENT = {"mask": "full", "position": "no positions"}


def choice_name(axis: str, choice: Choice) -> str:
    """An entry's name with its parts and its changed parameters: "Local window (window 3)"."""
    usual = dict(complete(Choice(choice.key), AXES[axis], axis).params)
    more = [choice_name(axis, part) for part in choice.parts]
    more += [f"{name} {value}" for name, value in choice.params if usual.get(name) != value]
    return entry(axis, choice.key).name + (f" ({', '.join(more)})" if more else "")


def attention_name(config: AttentionConfig) -> str:
    """The name of the equal preset, else of the choices that are not the defaults."""
    if key := preset_of(config):
        return preset(key).name
    plain = AttentionConfig(config.d_model, config.num_heads)
    names = [
        choice_name(axis, getattr(config, axis))
        for axis in AXES
        if getattr(config, axis) != getattr(plain, axis)
    ]
    return ", ".join(names) or entry("score", config.score.key).name


def distinct_names(configs: Sequence[AttentionConfig]) -> tuple[str, ...]:
    """Each attention in as few words as distinguish it from the others, such as "causal local" and "full".

    It is named on as few axes as it takes, those that change what attention sees first; "" where all are the same.
    """
    axes: list[str] = []
    for axis in TELLING:
        before, after = (
            len({tuple(getattr(config, name) for name in names) for config in configs})
            for names in (axes, [*axes, axis])
        )
        axes += [axis] * (after > before)
    return tuple(", ".join(_part(axis, config, configs) for axis in axes) for config in configs)


def _part(axis: str, config: AttentionConfig, configs: Sequence[AttentionConfig]) -> str:
    """A choice by its entry's name, with its parameters where another attention has the same entry."""
    choice: Choice = getattr(config, axis)
    if choice.key == "none":
        return ABSENT[axis]
    same = {other for one in configs if (other := getattr(one, axis)).key == choice.key}
    name = choice_name(axis, choice) if len(same) > 1 else entry(axis, choice.key).name
    word = name.split()[0]
    return name[0].lower() + name[1:] if word[1:].islower() else name  # RoPE and ALiBi stay


@dataclass(frozen=True)
class LayerPattern:
    """Presets that the layers of a model have in turn, each with the choices that are smaller here than in it."""

    key: str
    name: str
    layers: tuple[tuple[str, tuple[tuple[str, Choice], ...]], ...]

    def small(self, d_model: int, num_heads: int) -> tuple[AttentionConfig, ...]:
        """The attention of each layer; ConfigError where one cannot have that size."""
        return tuple(
            preset(key).config(d_model, num_heads).with_(**dict(changes))
            for key, changes in self.layers
        )


_BLOCKS = {"size": 2, "blocks": 4}
_WHOLE = (("mask", Choice("causal")),)
_NEAR = (
    ("mask", Choice.of("causal_local", lookback=3)),
    ("projection", Choice.of("dynamic_conv", kv_heads=1, taps="fixed")),
)

LAYER_PATTERNS: tuple[LayerPattern, ...] = (
    LayerPattern(
        "deepseek_v4_like",
        "DeepSeek-V4-like",
        (
            ("deepseek_v4_hca", (("kernel", Choice.of("hca", size=4, window=4)),)),
            ("deepseek_v4_csa", (("kernel", Choice.of("csa", **_BLOCKS, window=4)),)),
        ),
    ),
    LayerPattern(
        "glm53_like",
        "GLM-5.3-like",
        (
            *(("kimi_linear", ()),) * 3,
            ("glm53", (("mask", Choice.of("block_gated", **_BLOCKS)),)),
        ),
    ),
    LayerPattern(
        "qwen4_like",
        "Qwen4-like",
        (
            *(("gated_deltanet", ()),) * 3,
            ("qwen4", (("mask", Choice.of("block_mean", **_BLOCKS)),)),
        ),
    ),
    LayerPattern("inkling_like", "Inkling-like", ((("inkling", ()),) * 5 + (("inkling", _WHOLE),))),
    LayerPattern(
        "inkling2_like", "Inkling-2-like", ((("inkling2", _NEAR),) * 5 + (("inkling2", ()),))
    ),
)
