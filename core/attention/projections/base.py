"""What the entries of several projections share: the parameter `bias`, and the cost of linear maps."""

from __future__ import annotations

from core.entries import Area, Cost, Param
from core.layer_config import LayerConfig

BIAS = Param("bias", "Bias", True, meaning="whether the four maps have a bias")


def maps_cost(config: LayerConfig, area: Area, per_query: int, per_key: int) -> Cost:
    """The cost of linear maps for one sequence, fp32.

    `per_query` weights (W_o among them) multiply each query's token, `per_key` each key's.
    Alive at once are q, k, v and the output; elementwise operations are left out.
    """
    sizes = config.sizes
    stored = sizes.score_heads * sizes.qk_dim * area.queries + sizes.kv_heads * sizes.qk_dim * area.keys
    values = config.d_model * area.queries + min(sizes.kv_heads, config.num_heads) * sizes.v_dim * area.keys
    return Cost(2.0 * (per_query * area.queries + per_key * area.keys), 4 * (stored + values))
