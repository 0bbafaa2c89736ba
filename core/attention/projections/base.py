"""What every projection is: from inputs to heads, and from heads back to one output."""

from __future__ import annotations

from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from core.entries import Area, Cost, Param
from core.layer_config import LayerConfig

Heads = tuple[Float[Tensor, "B Hs T D"], Float[Tensor, "B G S D"], Float[Tensor, "B Gv S E"]]


def split_heads(x: Float[Tensor, "B T C"], num_heads: int) -> Float[Tensor, "B H T D"]:
    return rearrange(x, "b t (h d) -> b h t d", h=num_heads)


def merge_heads(x: Float[Tensor, "B H T D"]) -> Float[Tensor, "B T C"]:
    return rearrange(x, "b h t d -> b t (h d)")


def linear(inputs: int, outputs: int, bias: bool = False) -> nn.Linear:
    """A learned map that starts at Glorot's uniform weights and no bias, as the Transformer's do."""
    layer = nn.Linear(inputs, outputs, bias)
    nn.init.xavier_uniform_(layer.weight)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def maps_cost(config: LayerConfig, area: Area, asked: int, kept: int) -> Cost:
    """Of learned maps: `asked` weights meet each query's token (W_o among them), `kept` each key's; fp32, one sequence.

    Alive at once are q, k, v and the output; what is done number by number is left out.
    """
    sizes = config.sizes
    stored = sizes.score_heads * sizes.qk_dim * area.queries + sizes.kv_heads * sizes.qk_dim * area.keys
    values = config.d_model * area.queries + min(sizes.kv_heads, config.num_heads) * sizes.v_dim * area.keys
    return Cost(2.0 * (asked * area.queries + kept * area.keys), 4 * (stored + values))


class Projection(nn.Module):
    """From inputs to heads and back. k and v may have fewer heads than q: the layer shares them."""

    def forward(self, x: Float[Tensor, "B T C"], context: Float[Tensor, "B S C"], offset: int = 0) -> Heads:
        """q, k and v; `offset` is the place of x's first token, for a projection with positions of its own."""
        raise NotImplementedError

    def combine_heads(self, weights: Float[Tensor, "B Hs T S"]) -> Float[Tensor, "B H T S"]:
        """The weights that meet the values, from those of all heads that met (trait "folds" where they differ)."""
        return weights

    def merge(self, out: Float[Tensor, "B H T E"], x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        """All heads' outputs as one; x is what asked."""
        raise NotImplementedError

    def cached(self, context: Float[Tensor, "B S C"]) -> tuple[Tensor, ...]:
        """What a decoder keeps of its context for the tokens to come: k and v, unless a projection keeps less."""
        _, k, v = self(context, context)
        return k, v


BIAS = Param("bias", "Bias", True, meaning="whether the four maps have a bias")
