"""The same attention in small: few dimensions and heads, and windows of a few tokens."""

from __future__ import annotations

from core.attention import AttentionConfig, Choice

WINDOW = 8  # tokens, in place of hundreds or thousands
# A window of the last tokens is narrower. After five layers with windows of 8 each vector is a mixture of nearly all 19
# tokens of a recall text, in which the sixth layer finds no pair in 1,500 steps; with windows of 4 it does in 400.
LAST = WINDOW // 2
SMALL = {  # axis, choice → its parameters in small
    ("projection", "latent"): {"latent": 32, "rope": 4, "query_latent": 0},
    ("position", "learned"): {"max_len": 512},
    ("mask", "causal_local"): {"lookback": LAST - 1},
    ("mask", "local"): {"window": WINDOW // 2},
    ("mask", "chunked"): {"size": WINDOW},
    ("mask", "lightning"): {"keys": WINDOW, "heads": 2, "size": 8},
}


def shrink(config: AttentionConfig, d_model: int, num_heads: int) -> AttentionConfig:
    """The config at that size, with as many query heads to a key head as its heads allow; ConfigError where it cannot
    have it."""
    changes = {}
    for axis in ("projection", "position", "mask"):
        choice: Choice = getattr(config, axis)
        params = {**choice.kwargs, **SMALL.get((axis, choice.key), {})}
        if "head_dim" in params:
            params["head_dim"] = 0
        if "kv_heads" in params:
            params["kv_heads"] = shared_heads(config, num_heads)
        changes[axis] = Choice.of(choice.key, *choice.parts, **params)
    return config.with_(d_model=d_model, num_heads=num_heads, **changes)


def shared_heads(config: AttentionConfig, num_heads: int) -> int:
    """Key heads of so many query heads in the config's proportion, rounded down to a number that divides them."""
    fits = max(1, num_heads * config.kv_heads // config.num_heads)
    return max(heads for heads in range(1, fits + 1) if num_heads % heads == 0)
