"""Each head with keys and values of its own: identity, and multi-head (Vaswani 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from core.attention.basics import (
    Heads,
    MultiHead,
    Projection,
    StoresLess,
    linear,
    merge_heads,
    split_heads,
)
from core.entries import ConfigError, Entry, HeadSizes, LayerConfig, Param, refuse_if

BIAS = Param("bias", "Bias", True, meaning="whether the four projections have a bias")
HEAD_SIZE = Param(
    "head_dim",
    "Head size",
    0,
    0,
    1024,
    1,
    meaning="size D of each head; 0 divides d_model among the heads",
)


class Identity(StoresLess):
    """q is x and k = v is the context, as in the recurrent models, where states are compared as they are."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads

    def queries(self, x: Float[Tensor, "B T C"], offset: int = 0) -> Float[Tensor, "B H T D"]:
        return split_heads(x, self.num_heads)

    def keys_values(self, *stored: Tensor) -> tuple[Tensor, Tensor]:
        return stored[0], stored[0]

    def merge(
        self, out: Float[Tensor, "B H T D"], x: Float[Tensor, "B T C"]
    ) -> Float[Tensor, "B T C"]:
        return merge_heads(out)

    def cached(self, context: Float[Tensor, "B S C"], offset: int = 0) -> tuple[Tensor, ...]:
        return (split_heads(context, self.num_heads),)  # keys and values are one tensor


# Fewer key and value heads than query heads: grouped-query (Ainslie 2023) and multi-query (Shazeer 2019).


MAX_KV_HEADS = 256


class GroupedQuery(Projection):
    """H query heads and G key/value heads of D (C / H unless given); each of the G serves H / G neighbouring queries.

    Ainslie 2023, section 2.2; G = 1 is Shazeer's multi-query, G = H is multi-head.
    """

    def __init__(
        self, d_model: int, num_heads: int, kv_heads: int, bias: bool, head_dim: int = 0
    ) -> None:
        super().__init__()
        self.num_heads, self.kv_heads = num_heads, kv_heads
        size = head_dim or d_model // num_heads
        wide, narrow = num_heads * size, kv_heads * size
        self.query, self.output = linear(d_model, wide, bias), linear(wide, d_model, bias)
        self.key, self.value = linear(d_model, narrow, bias), linear(d_model, narrow, bias)

    @classmethod
    def pooled(cls, many: MultiHead, kv_heads: int) -> GroupedQuery:
        """A multi-head layer's maps, with each group's keys and values averaged into one. Ainslie 2023, section 2.1."""
        bias = many.query.bias is not None
        size = many.query.out_features // many.num_heads
        few = cls(many.query.in_features, many.num_heads, kv_heads, bias, size)
        few.load_state_dict(
            many.state_dict()
            | {
                f"{name}.{part}": rearrange(
                    weight, "(g n d) ... -> n g d ...", g=kv_heads, n=many.num_heads // kv_heads
                )
                .mean(0)
                .flatten(0, 1)
                for name in ("key", "value")
                for part, weight in getattr(many, name).state_dict().items()
            }
        )
        return few


def kv_sizes(config: LayerConfig) -> HeadSizes:
    """H heads of queries, and as many of keys and values as the parameter says; one without it, H for 0."""
    kv_heads = int(config.projection.kwargs.get("kv_heads", 1)) or config.num_heads
    return HeadSizes(config.num_heads, config.head_dim, config.head_dim, kv_heads)


def refuse_uneven(config: LayerConfig, shared: str, take: Sequence[int] = ()) -> None:
    """The `refuse` of query heads that cannot be divided evenly among the key heads; it says which numbers to take (all
    that divide them, unless given)."""
    heads = config.num_heads
    refuse_if(
        heads % config.kv_heads,
        f"projection = {config.projection.key} shares each {shared} among the same number of query heads, but "
        f"kv_heads = {config.kv_heads} does not divide num_heads = {heads}",
        axes=("projection",),
        kv_heads=take or [number for number in range(1, heads + 1) if heads % number == 0],
        projection="multi_query",
    )


# What is done to values: made of the keys (K = V, Gemma 4), or the own one left out of the output (Zhai 2026).


EPSILON = 1e-6  # of the norm of a value, as in Gemma's own code


class KeysAsValues(StoresLess):
    """v = k / RMS(k) in each of G heads, before positions rotate k: one map W_k serves keys and values. Gemma 4."""

    def __init__(
        self, d_model: int, num_heads: int, kv_heads: int, bias: bool, head_dim: int = 0
    ) -> None:
        super().__init__()
        self.num_heads, self.kv_heads = num_heads, kv_heads
        size = head_dim or d_model // num_heads
        wide = num_heads * size
        self.query, self.output = linear(d_model, wide, bias), linear(wide, d_model, bias)
        self.key = linear(d_model, kv_heads * size, bias)

    def keys_values(self, *stored: Tensor) -> tuple[Tensor, Tensor]:
        return stored[0], F.rms_norm(stored[0], stored[0].shape[-1:], eps=EPSILON)

    def cached(self, context: Float[Tensor, "B S C"], offset: int = 0) -> tuple[Tensor, ...]:
        return (split_heads(self.key(context), self.kv_heads),)


class Exclusive(MultiHead):
    """y − ⟨y, v̂⟩ v̂ before W_o, where v̂ is the token's own value over its length. Zhai 2026, section 3.

    The weights stay as they are; what remains of each head's output is orthogonal to what the token itself says. With
    `learned` a head leaves out a share of that part, tanh α with a learned α that starts at 0, as in NeoMME.
    """

    def __init__(self, d_model: int, num_heads: int, bias: bool, learned: bool) -> None:
        super().__init__(d_model, num_heads, bias)
        self.alpha = nn.Parameter(torch.zeros(num_heads)) if learned else None

    def forward(
        self, x: Float[Tensor, "B T C"], context: Float[Tensor, "B S C"], offset: int = 0
    ) -> Heads:
        """ConfigError for another sequence: x must be the context, or its last tokens from position `offset`."""
        queries, keys = x.shape[1], context.shape[1]
        if context is not x and 0 not in (x.shape[0], queries, keys) and offset + queries != keys:
            raise ConfigError(
                f"projection = exclusive leaves out each token's own value, and {queries} queries from "
                f"position {offset} have none among the {keys} keys of another sequence",
                "self-attention",
                projection="multi_head",
            )
        return super().forward(x, context, offset)

    def merge(
        self, out: Float[Tensor, "B H T D"], x: Float[Tensor, "B T C"]
    ) -> Float[Tensor, "B T C"]:
        own = F.normalize(split_heads(self.value(x), self.num_heads), dim=-1)
        part = (out * own).sum(-1, keepdim=True)
        if self.alpha is not None:
            part = part * self.alpha.tanh()[:, None, None]
        return super().merge(out - part * own, x)


class ValueResidual(GroupedQuery):
    """v = (1 − λ) x_n W_v + λ v¹: values are mixed with those of the first layer of the stack. Zhou 2024, section 3.

    The first layer, and one alone, has its own values. A decoder caches the mixed ones.
    """

    shares = True

    def __init__(
        self, d_model: int, num_heads: int, kv_heads: int, bias: bool, share: float
    ) -> None:
        super().__init__(d_model, num_heads, kv_heads, bias)
        self.share = share

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        context: Float[Tensor, "B S C"],
        offset: int = 0,
        shared: dict[str, Tensor] | None = None,
    ) -> Heads:
        """ConfigError where the first layer's values have another shape."""
        q, k, v = super().forward(x, context, offset)
        stored = {} if shared is None else shared
        layers = [int(name.removeprefix(VALUES)) for name in stored if name.startswith(VALUES)]
        first = min([*layers, self.layer])
        if first == self.layer:  # also where a checkpoint computes it again
            stored[f"{VALUES}{first}"] = v
            return q, k, v
        values = stored[f"{VALUES}{first}"]
        refuse_if(
            values.shape != v.shape,
            f"projection = value_residual mixes values of {tuple(v.shape)} with the first layer's, which are "
            f"{tuple(values.shape)}",
            "the same heads in each layer",
            axes=("projection",),
            projection="grouped_query",
        )
        return q, k, torch.lerp(v, values, self.share)


VALUES = "values of layer "  # what ValueResidual calls them in `shared`

ENTRIES: tuple[Entry, ...] = (
    Entry(
        "identity",
        "Identity",
        lambda config: Identity(config.d_model, config.num_heads),
        r"q_i = x_i,\quad k_j = v_j = c_j",
        "Queries, keys and values are the states themselves. Nothing is learned here.",
        "Bahdanau et al.",
        2014,
        "https://arxiv.org/abs/1409.0473",
        short="q = x",
        sizes=lambda config: HeadSizes(  # keys and values are one
            config.num_heads, config.head_dim, config.head_dim, config.num_heads, config.d_model
        ),
    ),
    Entry(
        "multi_head",
        "Multi-head",
        lambda config: MultiHead(config.d_model, config.num_heads, **config.projection.kwargs),
        r"q_i = x_i W_q,\quad k_j = c_j W_k,\quad v_j = c_j W_v",
        "Learned projections give each head its queries, keys and values. The context c is x itself (self-attention) or "
        "another sequence (cross-attention).",
        "Vaswani et al.",
        2017,
        "https://arxiv.org/abs/1706.03762",
        (BIAS, HEAD_SIZE),
        "q = x W_q",
        traits=frozenset({"shares keys"}),
    ),
    Entry(
        "grouped_query",
        "Grouped-query",
        lambda config: GroupedQuery(config.d_model, config.num_heads, **config.projection.kwargs),
        r"k^{(g)}_j = W^{(g)}_k c_j,\quad v^{(g)}_j = W^{(g)}_v c_j,\quad g = \lfloor h\,G / H \rfloor",
        "Neighbouring query heads share one head of keys and values, so a decoder caches fewer numbers for each token.",
        "Ainslie et al.",
        2023,
        "https://arxiv.org/abs/2305.13245",
        (
            Param(
                "kv_heads",
                "Key/value heads",
                2,
                1,
                MAX_KV_HEADS,
                1,
                meaning="number G of heads of keys and values; it divides the number of query heads",
            ),
            BIAS,
            HEAD_SIZE,
        ),
        "{kv_heads} heads of k, v",
        traits=frozenset({"shares keys"}),
        sizes=kv_sizes,
        refuse=lambda config: refuse_uneven(config, "key head"),
    ),
    Entry(
        "multi_query",
        "Multi-query",
        lambda config: GroupedQuery(
            config.d_model, config.num_heads, 1, **config.projection.kwargs
        ),
        r"k_j = c_j W_k,\quad v_j = c_j W_v\ \text{for all heads}",
        "All query heads share one head of keys and values.",
        "Shazeer",
        2019,
        "https://arxiv.org/abs/1911.02150",
        (BIAS, HEAD_SIZE),
        "one head of k, v",
        traits=frozenset({"shares keys"}),
        sizes=kv_sizes,
    ),
    Entry(
        "keys_as_values",
        "Keys as values (K = V)",
        lambda config: KeysAsValues(config.d_model, config.num_heads, **config.projection.kwargs),
        r"k_j = c_j W_k,\quad v_j = \frac{k_j}{\mathrm{RMS}(k_j)}",
        "Values are the normalized keys, so a layer has no map for values, and a decoder caches the keys alone. Layers of "
        "Gemma 4 that attend to all tokens do this.",
        "Gemma Team",
        2026,
        "https://huggingface.co/docs/transformers/model_doc/gemma4",
        (
            Param(
                "kv_heads",
                "Key/value heads",
                1,
                1,
                MAX_KV_HEADS,
                1,
                meaning="number G of heads of keys and values; it divides the number of query heads",
            ),
            BIAS,
            HEAD_SIZE,
        ),
        "v = norm(k), {kv_heads} heads",
        sizes=lambda config: replace(
            kv_sizes(config), cached=int(config.projection["kv_heads"]) * config.head_dim
        ),
        refuse=lambda config: refuse_uneven(config, "head of keys", (1,)),
    ),
    Entry(
        "exclusive",
        "Exclusive",
        lambda config: Exclusive(config.d_model, config.num_heads, **config.projection.kwargs),
        r"\big[y_i - \langle y_i, \hat{v}_i \rangle\, \hat{v}_i\big]\,W_o,\quad \hat{v}_i = v_i / \lVert v_i \rVert",
        "From each head's output the part along the token's own value is taken away, so that attention adds only what the "
        "token does not already have. It needs self-attention: cross-attention has no own value.",
        "Zhai",
        2026,
        "https://arxiv.org/abs/2603.09078",
        (
            BIAS,
            Param(
                "learned",
                "Learned share",
                False,
                meaning="whether each head learns how much of that part is taken away, as in NeoMME: tanh α, from 0",
            ),
        ),
        "out − its part along v of i",
        traits=frozenset({"one sequence"}),
    ),
    Entry(
        "value_residual",
        "Value residual",
        lambda config: ValueResidual(
            config.d_model,
            config.num_heads,
            **config.projection.kwargs | {"kv_heads": config.kv_heads},
        ),
        r"v_j = (1 - \lambda)\, x_j W_v + \lambda\, v^{1}_j",
        "In each layer after the first, values are mixed with those of the first layer, so that what a token itself is "
        "reaches deep layers. A layer alone has its own values.",
        "Zhou et al.",
        2024,
        "https://arxiv.org/abs/2410.17897",
        (
            BIAS,
            Param(
                "kv_heads",
                "Key/value heads",
                0,
                0,
                MAX_KV_HEADS,
                1,
                meaning="number G of heads of keys and values, which divides the number of query heads; 0 for as many",
            ),
            Param(
                "share",
                "Share λ",
                0.5,
                0.0,
                1.0,
                0.05,
                meaning="share λ of the first layer's values; 0 is multi-head attention, 1 takes them alone",
            ),
        ),
        "v + values of layer 1",
        traits=frozenset({"one sequence"}),
        sizes=kv_sizes,
        refuse=lambda config: refuse_uneven(config, "key head", (0,)),
    ),
)
