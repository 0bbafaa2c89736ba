"""Each head with keys and values of its own: identity, multi-head (Vaswani 2017) and gated (Qiu 2025)."""

from __future__ import annotations

from einops import repeat
from jaxtyping import Float
from torch import Tensor

from core.attention.basics import Extended, Heads, MultiHead, Projection, linear, merge_heads, split_heads
from core.attention.cache import append
from core.entries import Entry, HeadSizes, LayerConfig, Param

BIAS = Param("bias", "Bias", True, meaning="whether the four projections have a bias")


class Identity(Projection):
    """q is x and k = v is the context, as in the recurrent models, where states are compared as they are."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads

    def forward(self, x: Float[Tensor, "B T C"], context: Float[Tensor, "B S C"], offset: int = 0) -> Heads:
        keys = split_heads(context, self.num_heads)
        return split_heads(x, self.num_heads), keys, keys

    def merge(self, out: Float[Tensor, "B H T D"], x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        return merge_heads(out)

    def cached(self, context: Float[Tensor, "B S C"], offset: int = 0) -> tuple[Tensor, ...]:
        return (split_heads(context, self.num_heads),)  # keys and values are one tensor

    def extend(self, x: Float[Tensor, "B T C"], stored: tuple[Tensor, ...], offset: int) -> Extended:
        both, = append(stored, self.cached(x))
        return split_heads(x, self.num_heads), both, both, (both,)


class Gated(MultiHead):
    """σ(W_g x) ⊙ out before W_o: the query's own token says how much of each head passes. Qiu 2025, section 2.2.

    `grain` is "elementwise" (a gate for each of the C numbers) or "headwise" (one for each head).
    """

    def __init__(self, d_model: int, num_heads: int, bias: bool, grain: str) -> None:
        super().__init__(d_model, num_heads, bias)
        self.gate = linear(d_model, d_model if grain == "elementwise" else num_heads)

    def merge(self, out: Float[Tensor, "B H T D"], x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        joined, gate = merge_heads(out), self.gate(x).sigmoid()
        if gate.shape[-1] != joined.shape[-1]:
            gate = repeat(gate, "b t h -> b t (h d)", d=out.shape[-1])
        return self.output(gate * joined)


def _identity_sizes(config: LayerConfig) -> HeadSizes:
    heads, size = config.num_heads, config.head_dim
    return HeadSizes(heads, size, size, heads, cached=config.d_model)  # keys and values are one


IDENTITY = Entry(
    "identity", "Identity", lambda config: Identity(config.d_model, config.num_heads),
    r"q_i = x_i,\quad k_j = v_j = c_j", "Queries, keys and values are the states themselves. Nothing is learned here.",
    "Bahdanau et al.", 2014, "https://arxiv.org/abs/1409.0473", short="q = x", sizes=_identity_sizes)
MULTI_HEAD = Entry(
    "multi_head", "Multi-head",
    lambda config: MultiHead(config.d_model, config.num_heads, **config.projection.kwargs),
    r"q_i = W_q x_i,\quad k_j = W_k c_j,\quad v_j = W_v c_j",
    "Learned projections give each head its queries, keys and values. The context c is x itself (self-attention) or "
    "another sequence (cross-attention).", "Vaswani et al.", 2017, "https://arxiv.org/abs/1706.03762",
    (BIAS,), "q = x W_q")
GATED = Entry(
    "gated", "Gated output", lambda config: Gated(config.d_model, config.num_heads, **config.projection.kwargs),
    r"W_o\,[\sigma(W_g x_i) \odot \mathrm{out}_i]",
    "A gate, computed from the query's token, multiplies the output of each head by numbers from 0 to 1.",
    "Qiu et al.", 2025,
    "https://arxiv.org/abs/2505.06708",
    (BIAS, Param("grain", "Gate", "elementwise", choices=("elementwise", "headwise"),
                 labels=("each number", "each head"), meaning="whether each number of the output has a gate, or each "
                                                              "head")),
    "q = x W_q, σ(W_g x) ⊙ out")
