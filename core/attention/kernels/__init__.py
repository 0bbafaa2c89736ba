"""Kernels: how the weights, or an approximation, are computed. Exact returns every step; the others save memory."""

from core.attention.kernels import approximate, compressed, delta, implied, softmax, states
from core.attention.kernels.costs import exact_bytes, flops, kernel_cost
from core.attention.kernels.exact import exact
from core.entries import Axis, Entry

# build(config) -> function(AttentionInputs) -> Steps, a module where it has weights. Traits: "same" for a
# kernel with exact's weights, which exact then records; "implied" for one with other weights, in its Steps when
# recording; "pooled" for one that attends to vectors which stand for several tokens, so that the weights of tokens in
# its Steps do not give its output; "own positions" where the kernel itself depends on positions; "reads mask" where it
# reads the mask's cells to skip hidden ones; "state" where a decoder can carry one state in place of keys
# (why_no_state); "layer only" where a layer alone knows its sizes or weights, so that `attend` refuses it.
KERNELS = Axis(
    Entry(
        "exact",
        "Exact",
        lambda config: exact,
        r"O(T S D)\ \text{time},\ O(T S)\ \text{memory}",
        "Every step is computed as a whole matrix, so every step can be drawn.",
        "Vaswani et al.",
        2017,
        "https://arxiv.org/abs/1706.03762",
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
