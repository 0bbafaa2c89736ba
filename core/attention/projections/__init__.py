"""Projections: where q, k and v come from, and how the heads become one output again."""

from core.attention.projections.combined import DIFFERENTIAL, GATED, SHORT_CONV
from core.attention.projections.low_rank import GROUPED_TIED, LATENT, TENSOR_PRODUCT
from core.attention.projections.multi_head import (
    EXCLUSIVE,
    GROUPED_QUERY,
    IDENTITY,
    KEYS_AS_VALUES,
    MULTI_HEAD,
    MULTI_QUERY,
)
from core.entries import Axis

# build(config) -> Projection; `sizes` where its heads are not H of C / H. Traits: "folds" where there are more score
# heads than value heads (and weights may be negative), "own positions" where it rotates q and k itself, "one sequence"
# where x and context must be one, "shares keys" where it can take another layer's keys and values.
PROJECTIONS = Axis(
    IDENTITY,
    MULTI_HEAD,
    MULTI_QUERY,
    GROUPED_QUERY,
    LATENT,
    GROUPED_TIED,
    TENSOR_PRODUCT,
    KEYS_AS_VALUES,
    DIFFERENTIAL,
    GATED,
    EXCLUSIVE,
    SHORT_CONV,
)
