"""Kernels: how the weights, or an approximation, are computed. Exact returns every step; the others save memory."""

from core.attention.kernels import approximate, compressed, delta, implied, softmax, states
from core.attention.kernels.costs import exact_bytes, flops, kernel_cost
from core.attention.kernels.exact import exact
from core.entries import Axis, Entry

# build(config) -> function(AttentionInputs) -> Steps, a module where it has weights.
KERNELS = Axis(
    Entry(
        "exact",
        "Exact",
        build=lambda config: exact,
        latex=r"O(T S D)\ \text{time},\ O(T S)\ \text{memory}",
        meaning="Every step is computed as a whole matrix, so every step can be drawn.",
        paper="Vaswani et al.",
        year=2017,
        url="https://arxiv.org/abs/1706.03762",
        short="every cell",
        traits=frozenset({"same"}),
        cost=lambda config, area: kernel_cost(
            config, area, flops(config, area), exact_bytes(config, area)
        ),
    ),
    *softmax.ENTRIES,
    *implied.ENTRIES,
    *approximate.ENTRIES,
    *compressed.ENTRIES,
    *delta.ENTRIES,
    *states.ENTRIES,
    order="exact fused chunked local block_sparse linear performer linformer nystrom retention "
    "delta gla ssd gated_delta log_linear hgrn2 rwkv6 nsa hca csa delta_product rwkv7 comba kda gdn2 trapezoid",
)
