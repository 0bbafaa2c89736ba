"""Presets: a config with a name, a paper and a year, in the order in which they were published."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from core.attention.config import AttentionConfig
from core.entries import Choice, ConfigError


@dataclass(frozen=True)
class Preset:
    """A published mechanism: its six choices at any size, where it is from, and what it is for."""

    key: str
    name: str
    paper: str
    year: int
    url: str
    choices: tuple[tuple[str, str], ...]
    meaning: str

    def config(self, d_model: int = 64, num_heads: int = 1) -> AttentionConfig:
        """The preset at that size; ConfigError when the heads do not divide d_model."""
        choices: dict[str, Any] = {axis: Choice(key) for axis, key in self.choices}
        return AttentionConfig(d_model, num_heads, **choices)


def _recurrent(key: str, name: str, paper: str, year: int, url: str, score: str, meaning: str) -> Preset:
    return Preset(key, name, paper, year, url, (("projection", "identity"), ("score", score)), meaning)


_LUONG = ("Luong et al.", 2015, "https://arxiv.org/abs/1508.04025")
_VASWANI = ("Vaswani et al.", 2017, "https://arxiv.org/abs/1706.03762")

PRESETS: tuple[Preset, ...] = (
    _recurrent("bahdanau", "Bahdanau 2014", "Bahdanau et al.", 2014, "https://arxiv.org/abs/1409.0473", "additive",
               "A decoder state asks every encoder state through a small network."),
    _recurrent("luong_dot", "Luong 2015, dot", *_LUONG, "dot",
               "Decoder and encoder states are multiplied as they are."),
    _recurrent("luong_general", "Luong 2015, general", *_LUONG, "general",
               "A learned matrix stands between the two states."),
    _recurrent("luong_concat", "Luong 2015, concat", *_LUONG, "concat",
               "Both states are joined and read by a small network."),
    Preset("self_attention", "Self-attention", *_VASWANI, (("projection", "multi_head"), ("score", "scaled_dot")),
           "Every token asks every token of the same sequence."),
    Preset("causal", "Causal self-attention", *_VASWANI,
           (("projection", "multi_head"), ("score", "scaled_dot"), ("mask", "causal")),
           "A token asks itself and what came before."),
    Preset("vaswani", "Vaswani 2017", *_VASWANI,
           (("projection", "multi_head"), ("score", "scaled_dot"), ("position", "sinusoidal")),
           "The Transformer's encoder: several heads, sinusoidal positions added to the input."),
)


def preset(key: str) -> Preset:
    """The preset of that key; ConfigError lists the keys there are."""
    for candidate in PRESETS:
        if candidate.key == key:
            return candidate
    raise ConfigError(f"preset = {key!r}; expected one of {', '.join(p.key for p in PRESETS)}.")
