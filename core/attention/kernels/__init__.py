"""Kernels: how the weights, or an approximation, are computed. Exact returns every step; the others save memory."""

from core.attention.kernels.approximate import LINFORMER, NSA, NYSTROM, PERFORMER
from core.attention.kernels.costs import exact_cost
from core.attention.kernels.delta import DELTA, GATED_DELTA, LOG_LINEAR, SSD
from core.attention.kernels.exact import SAME, exact
from core.attention.kernels.gla import GLA, KDA
from core.attention.kernels.implied import LINEAR, RETENTION
from core.attention.kernels.softmax import BLOCK_SPARSE, CHUNKED, FUSED, LOCAL
from core.entries import Axis, Entry

EXACT = Entry(
    "exact",
    "Exact",
    lambda config: exact,
    r"O(T S D)\ \text{time},\ O(T S)\ \text{memory}",
    "Every step is computed as a whole matrix, so every step can be drawn.",
    "Vaswani et al.",
    2017,
    "https://arxiv.org/abs/1706.03762",
    short="every cell",
    traits=SAME,
    cost=exact_cost,
)

# build(config) -> function(AttentionInputs) -> Steps, a module where it has weights. Traits: "same" for a
# kernel with exact's weights, which exact then records; "implied" for one with other weights, in its Steps when
# recording; "own positions" where the kernel itself depends on positions; "reads mask" where it reads the mask's cells
# to skip hidden ones; "state" where a decoder can carry one state in place of keys (why_no_state);
# "layer only" where a layer alone knows its sizes or weights, so that `attend` refuses it.
KERNELS = Axis(
    EXACT,
    FUSED,
    CHUNKED,
    LOCAL,
    BLOCK_SPARSE,
    LINEAR,
    PERFORMER,
    LINFORMER,
    NYSTROM,
    RETENTION,
    DELTA,
    GLA,
    SSD,
    GATED_DELTA,
    LOG_LINEAR,
    NSA,
    KDA,
)
