"""Normalizers: how scores become weights, which are 0 wherever the mask lets nothing be seen."""

from core.attention.basics import Normalizer, Softmax
from core.attention.normalizers.hard import HARD, Hard
from core.attention.normalizers.soft import (
    SCALABLE_SOFTMAX,
    SIGMOID,
    SINK,
    SOFTCAP,
    SOFTMAX,
    SOFTMAX_ONE,
    Sigmoid,
    Softcap,
)
from core.attention.normalizers.softpick import SOFTPICK
from core.attention.normalizers.sparse import ENTMAX, ENTMAX15, SPARSEMAX, TOP_K, Entmax, TopK
from core.attention.normalizers.talking import TALKING_HEADS
from core.entries import Axis

__all__ = ["NORMALIZERS", "Entmax", "Hard", "Normalizer", "Sigmoid", "Softcap", "Softmax", "TopK"]

# build(config) -> Normalizer: module with forward(scores, mask) -> weights. Traits: "softmax" for the plain one, which
# fused and chunked kernels can compute; "sums to one" and "at most one" say what a row's weights add up to (neither:
# anything); "hard" where the gradient is not that of what was computed; "mixes heads" where a head's weights depend on
# those of other heads and may be negative. None reads more than the keys that may be seen,
# so a kernel may leave the others out.
NORMALIZERS = Axis(
    SOFTMAX,
    SOFTCAP,
    SCALABLE_SOFTMAX,
    SOFTMAX_ONE,
    SINK,
    SIGMOID,
    SOFTPICK,
    SPARSEMAX,
    ENTMAX15,
    ENTMAX,
    TOP_K,
    HARD,
    TALKING_HEADS,
)
