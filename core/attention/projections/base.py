"""What the entries of several projections share: the parameter `bias`, and the cost of linear maps."""

from __future__ import annotations

from core.entries import Area, Cost, Param
from core.layer_config import LayerConfig

BIAS = Param("bias", "Bias", True, meaning="whether the four maps have a bias")


def maps_cost(config: LayerConfig, area: Area, asked: int, kept: int) -> Cost:
    """Of learned maps: `asked` weights meet each query's token (W_o among them), `kept` each key's; fp32, one sequence.

    Alive at once are q, k, v and the output; what is done number by number is left out.
    """
    sizes = config.sizes
    stored = sizes.score_heads * sizes.qk_dim * area.queries + sizes.kv_heads * sizes.qk_dim * area.keys
    values = config.d_model * area.queries + min(sizes.kv_heads, config.num_heads) * sizes.v_dim * area.keys
    return Cost(2.0 * (asked * area.queries + kept * area.keys), 4 * (stored + values))
