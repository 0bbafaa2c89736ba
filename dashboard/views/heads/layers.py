"""What the controls ask for, of MiniLM's layer or of a random one; cached."""

from __future__ import annotations

import numpy as np

from core.attention import AttentionConfig
from core.studies import heads as compute
from core.studies.heads import CacheSize, Split, TwoMaps
from dashboard.server.cache import cached
from dashboard.views.heads import minilm
from dashboard.views.heads.controls import Controls


def split(controls: Controls, heads: int) -> Split:
    """The layer as that many heads."""
    if controls.layer is not None:
        return cached(minilm.split, controls.text, controls.layer, heads)
    return cached(compute.split, controls.tokens, controls.d_model, heads, controls.seed)


def lengths(controls: Controls) -> np.ndarray:
    """The length of what each head adds to each word's new vector, (H, T)."""
    if controls.layer is not None:
        return cached(minilm.lengths, controls.text, controls.layer)
    return cached(compute.lengths, controls.tokens, controls.d_model, controls.heads, controls.seed)


def cache_size(controls: Controls, config: AttentionConfig) -> CacheSize:
    """The maps and the cache of one way to store keys and values."""
    if controls.layer is not None:
        return cached(
            minilm.cache_size, config, controls.text, controls.layer, controls.seed, controls.length
        )
    return cached(compute.cache_size, config, controls.tokens, controls.seed, controls.length)


def two_maps(controls: Controls) -> TwoMaps:
    """The two maps of the head that is shown."""
    if controls.layer is not None:
        return cached(minilm.two_maps, controls.text, controls.layer, controls.head, controls.depth)
    return cached(
        compute.two_maps,
        controls.tokens,
        controls.d_model,
        controls.heads,
        controls.seed,
        controls.head,
        controls.depth,
    )
