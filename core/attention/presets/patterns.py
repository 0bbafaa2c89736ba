"""Small patterns of unlike layers, made of presets: which mechanisms the layers of a model take in turn."""

from dataclasses import dataclass

from core.attention.config import AttentionConfig
from core.attention.presets import preset
from core.entries import Choice


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
