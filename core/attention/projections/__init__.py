"""Projections: where q, k and v come from, and how the heads become one output again."""

from core.attention.basics import MultiHead
from core.attention.projections.convolved import SHORT_CONV
from core.attention.projections.differential import DIFFERENTIAL, Differential
from core.attention.projections.factored import GROUPED_TIED, TENSOR_PRODUCT
from core.attention.projections.gated import GATED
from core.attention.projections.grouped import GROUPED_QUERY, MULTI_QUERY, GroupedQuery
from core.attention.projections.latent import LATENT, Latent
from core.attention.projections.multi_head import IDENTITY, MULTI_HEAD
from core.attention.projections.values import EXCLUSIVE, KEYS_AS_VALUES
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

__all__ = ["PROJECTIONS", "Differential", "GroupedQuery", "Latent", "MultiHead"]
