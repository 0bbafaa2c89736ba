"""Projections: where q, k and v come from, and how the heads become one output again."""

from core.attention.projections import combined, multi_head
from core.entries import Axis

# build(config) -> Projection; `sizes` where its heads are not H of C / H.
PROJECTIONS = Axis(
    *multi_head.ENTRIES,
    *combined.ENTRIES,
    order="identity multi_head multi_query grouped_query latent grouped_tied tensor_product "
    "keys_as_values differential differential_v2 parallax gated exclusive value_residual "
    "short_conv compressed dynamic_conv",
)
