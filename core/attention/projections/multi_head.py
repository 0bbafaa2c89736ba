"""Projections whose keys and values are of each head, of several heads together, of one latent vector, or factored."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from einops import einsum, rearrange
from jaxtyping import Float
from torch import Tensor, nn

from core.attention.base import (
    Extended,
    Heads,
    Projection,
    StoresLess,
    linear,
    merge_heads,
    split_heads,
)
from core.attention.decoding import append
from core.attention.positions import enters
from core.attention.positions.rotary import BASE, LAYOUT, Rotary
from core.entries import ConfigError, Entry, HeadSizes, LayerConfig, Param, refuse_if

BIAS = Param("bias", "Bias", default=True, meaning="whether the four projections have a bias")
HEAD_SIZE = Param(
    "head_dim",
    "Head size",
    default=0,
    low=0,
    high=1024,
    step=1,
    meaning="size D of each head; 0 is d_model divided by the number of heads",
)


class MultiHead(Projection):
    """Linear maps W_q, W_k, W_v into H heads of D, C / H unless given, and W_o back. Vaswani 2017, section 3.2.2."""

    def __init__(self, d_model: int, num_heads: int, bias: bool, head_dim: int = 0) -> None:
        super().__init__()
        self.num_heads = self.kv_heads = num_heads
        inner = num_heads * (head_dim or d_model // num_heads)
        self.query, self.key, self.value = (linear(d_model, inner, bias) for _ in range(3))
        self.output = linear(inner, d_model, bias)


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
    given = int(config.projection.kwargs.get("kv_heads", 1))
    return HeadSizes(config.num_heads, config.head_dim, config.head_dim, given or config.num_heads)


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


EPSILON = 1e-6  # of the norm of a value or a latent, as in Gemma's and DeepSeek's own code


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


# Latent attention: keys and values are maps of one small vector a token (MLA, 2024), or of several (GLA, 2025).


BESIDE_ABSORBED = ("none", "sinusoidal", "learned", "alibi", "t5", "kerple", "fire")  # positions


class Latent(StoresLess):
    """c = RMSNorm(W_c x) of size R; k = [W_uk c; rotated W_r x] and v = W_uv c. DeepSeek-V2, section 2.1.

    Each head's query and key have D dimensions of content and `rope` rotated by position (left as they are with layout
    "none"); this part of the key is one for all heads. With `query_latent` the query, too, is computed from a small
    vector (0: W_q alone). In `groups` the latent is cut into parts of R / groups numbers, each with a norm of its own,
    and each is read by H / groups neighbouring heads alone. Zadouri 2025, section 3.3.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        latent: int,
        rope: int,
        query_latent: int,
        base: float,
        layout: str,
        head_dim: int = 0,
        groups: int = 1,
        absorbs: bool = True,
    ) -> None:
        super().__init__()
        self.absorbs, self.groups = absorbs, groups
        content = head_dim or d_model // num_heads
        self.num_heads, self.content, self.rope = num_heads, content, rope
        self.query_down = (
            nn.Sequential(linear(d_model, query_latent), nn.RMSNorm(query_latent, EPSILON))
            if query_latent
            else nn.Identity()
        )
        self.query = linear(query_latent or d_model, num_heads * (content + rope))
        self.down, self.norm = linear(d_model, latent), PartsNorm(latent, groups)
        self.turned_key = linear(d_model, rope) if rope else None
        # W_uk and W_uv
        self.key, self.value = (linear(latent // groups, num_heads * content) for _ in range(2))
        self.output = linear(num_heads * content, d_model)
        self.turn = Rotary(rope, base, layout) if rope and layout != "none" else None

    def plain_queries(self, x: Float[Tensor, "B T C"]) -> tuple[Tensor, Tensor]:
        """The content of each head's query (B, H, T, D), and the part that is then rotated (B, H, T, rope)."""
        both = split_heads(self.query(self.query_down(x)), self.num_heads)
        return both.split((self.content, self.rope), dim=-1)

    def plain_latents(self, context: Float[Tensor, "B S C"]) -> tuple[Tensor, Tensor]:
        """The latent (B, S, R), and the shared key (B, 1, S, rope) before its rotation."""
        latent = self.norm(self.down(context))
        if self.turned_key is None:
            return latent, latent.new_empty(len(latent), 1, latent.shape[1], 0)
        return latent, split_heads(self.turned_key(context), 1)

    def rotate(self, x: Float[Tensor, "B H T P"], offset: int) -> Float[Tensor, "B H T P"]:
        return x if self.turn is None else self.turn.rotate(x, offset)

    def cached(self, context: Float[Tensor, "B S C"], offset: int = 0) -> tuple[Tensor, ...]:
        """What a decoder caches, (B, 1, S, R + rope): the latent with the shared key after it, one head's key."""
        latent, plain = self.plain_latents(context)
        return (torch.cat((latent[:, None], self.rotate(plain, offset)), -1),)

    def queries(self, x: Float[Tensor, "B T C"], offset: int = 0) -> Float[Tensor, "B H T D"]:
        content, plain = self.plain_queries(x)
        return torch.cat((content, self.rotate(plain, offset)), -1)

    def parts(self, stored: Float[Tensor, "B 1 S W"]) -> tuple[Tensor, Tensor]:
        """The latent (B, S, R) and the shared rotated key (B, 1, S, rope) of what is stored."""
        latent, shared = stored.split((stored.shape[-1] - self.rope, self.rope), dim=-1)
        return latent[:, 0], shared

    def keys_values(self, *stored: Tensor) -> tuple[Tensor, Tensor]:
        latent, shared = self.parts(stored[0])
        keys, values = self.expand_latent(self.key, latent), self.expand_latent(self.value, latent)
        return torch.cat((keys, shared.expand(-1, self.num_heads, -1, -1)), -1), values

    def expand_latent(
        self, up: nn.Linear, latent: Float[Tensor, "B S R"]
    ) -> Float[Tensor, "B H S D"]:
        """W_uk c or W_uv c of each head, from its part of the latent."""
        if self.groups == 1:
            return split_heads(up(latent), self.num_heads)
        maps = self.per_head(up).unflatten(0, (self.groups, -1))  # (G, H / G, D, R / G)
        return (split_heads(latent, self.groups).unsqueeze(2) @ maps.mT).flatten(1, 2)

    def extend(
        self, x: Float[Tensor, "B T C"], stored: tuple[Tensor, ...], offset: int, **_: Any
    ) -> Extended:
        (content, plain), (latent, plain_key) = self.plain_queries(x), self.plain_latents(x)
        both = self.rotate(torch.cat((plain, plain_key), 1), offset)  # one rotation instead of two
        rotated, shared = both.split((self.num_heads, 1), dim=1)
        (keys,) = append(stored, (torch.cat((latent[:, None], shared), -1),))
        if not self.absorbs:
            return torch.cat((content, rotated), -1), *self.keys_values(keys), (keys,)
        content = content @ self.per_head(self.key)  # qᵀ(W_uk c) = (W_ukᵀq)ᵀc
        parts = keys
        if self.groups > 1:  # each group's part of the latent, with the shared key after it
            latent, shared = self.parts(keys)
            shared = shared.expand(-1, self.groups, -1, -1)
            parts = torch.cat((split_heads(latent, self.groups), shared), -1)
        # as values too: fused wants equal sizes
        return torch.cat((content, rotated), -1), parts, parts, (keys,)

    def expand(self, out: Float[Tensor, "B H T E"]) -> Float[Tensor, "B H T D"]:
        if not self.absorbs:
            return out
        # Σ w (W_uv c) = W_uv Σ w c
        return out[..., : out.shape[-1] - self.rope] @ self.per_head(self.value).mT

    def per_head(self, up: nn.Linear) -> Float[Tensor, "H D R"]:
        """The rows of W_uk or W_uv by head, which read R / groups numbers."""
        return up.weight.view(self.num_heads, self.content, -1)


class PartsNorm(nn.RMSNorm):
    """RMSNorm of each of `groups` equal parts of a vector, with a gain for each of its numbers.

    g √n x / √(‖x‖² + n ε) for parts of n numbers. PyTorch's function takes more operations, and in a step of decoding
    each costs the same, however small.
    """

    def __init__(self, size: int, groups: int) -> None:
        super().__init__(size, EPSILON)
        self.groups, self.root = groups, math.sqrt(size // groups)

    def forward(self, x: Float[Tensor, "B S R"]) -> Float[Tensor, "B S R"]:
        parts = x if self.groups == 1 else x.unflatten(-1, (self.groups, -1))
        length = torch.linalg.vector_norm(parts, dim=-1, keepdim=True)
        length = torch.hypot(length, length.new_full((), self.root * math.sqrt(EPSILON)))
        return (parts / length).view_as(x) * (self.weight * self.root)


def _build_latent(config: LayerConfig) -> Latent:
    """It absorbs under a plain dot product and its own weights, without positions that read heads or add to the output."""
    plain = (
        config.score.key in ("dot", "scaled_dot")
        and config.position.key in BESIDE_ABSORBED
        and config.has("kernel", "same")
    )
    return Latent(config.d_model, config.num_heads, **config.projection.kwargs, absorbs=plain)


def _refuse_latent(config: LayerConfig) -> None:
    rope, groups = int(config.projection["rope"]), int(config.projection["groups"])
    for name, number in (
        ("num_heads", config.num_heads),
        ("latent", int(config.projection["latent"])),
    ):
        refuse_if(
            number % groups,
            f"projection = latent cuts heads and latent into groups, but groups = {groups} does not divide "
            f"{name} = {number}",
            axes=("projection",),
            groups=1,
            projection="multi_query",
        )
    refuse_if(
        rope % 2,
        f"projection = latent rotates pairs of dimensions, and rope = {rope} is odd",
        axes=("projection",),
        rope=(rope - 1, rope + 1),
    )
    refuse_second_rotation(config)


def refuse_second_rotation(config: LayerConfig) -> None:
    """The `refuse` of a projection that rotates q and k itself."""
    refuse_if(
        "q, k" in enters(config.position),
        f"projection = {config.projection.key} has rotary positions already, and position = "
        f"{config.position.key} would be a second position",
        axes=("projection", "position"),
        position="none",
        projection="grouped_query",
    )


_SIZE = 4096  # the largest latent on offer; DeepSeek-V3 has 512, and 1536 for queries


class TensorProduct(StoresLess):
    """q, k and v of a token are (1/R) Σ_r a_r ⊗ b_r: a_r has a number for each head, b_r one for each dimension.

    Zhang 2025, section 3.1. Both are linear in the token; a decoder stores those of keys and values. A rotary position
    rotates every head alike, so that it may as well rotate the sum.
    """

    def __init__(self, d_model: int, num_heads: int, query_rank: int, rank: int) -> None:
        super().__init__()
        self.num_heads, size = num_heads, d_model // num_heads
        (
            (self.query_heads, self.query_dims),
            (self.key_heads, self.key_dims),
            (self.value_heads, self.value_dims),
        ) = (
            (linear(d_model, r * num_heads), linear(d_model, r * size))
            for r in (query_rank, rank, rank)
        )
        self.output = linear(d_model, d_model)

    def outer(
        self, heads: Float[Tensor, "B S a"], dims: Float[Tensor, "B S b"]
    ) -> Float[Tensor, "B H S D"]:
        """The mean of the outer products of R vectors of H numbers with R vectors of D."""
        heads = heads.unflatten(-1, (-1, self.num_heads))
        rank = heads.shape[2]
        return einsum(heads, dims.unflatten(-1, (rank, -1)), "b s r h, b s r d -> b h s d") / rank

    def queries(self, x: Float[Tensor, "B T C"], offset: int = 0) -> Float[Tensor, "B H T D"]:
        return self.outer(self.query_heads(x), self.query_dims(x))

    def keys_values(self, *stored: Tensor) -> tuple[Tensor, Tensor]:
        return self.outer(*stored[:2]), self.outer(*stored[2:])

    def cached(self, context: Float[Tensor, "B S C"], offset: int = 0) -> tuple[Tensor, ...]:
        return tuple(
            part(context)
            for part in (self.key_heads, self.key_dims, self.value_heads, self.value_dims)
        )


class GroupedTied(StoresLess):
    """One state of D numbers in each of G groups: it is the value, and its first half the first half of the key.

    Zadouri 2025, section 3.3. The other half of every key is one rotated vector, shared by all heads.
    """

    def __init__(
        self, d_model: int, num_heads: int, kv_heads: int, base: float, layout: str
    ) -> None:
        super().__init__()
        size = d_model // num_heads
        self.num_heads, self.kv_heads, self.rotated = num_heads, kv_heads, rotated_size(size)
        self.query, self.output = linear(d_model, d_model), linear(d_model, d_model)
        self.tied = linear(d_model, kv_heads * size)
        self.turned_key: Any = linear(d_model, self.rotated) if self.rotated else None
        self.turn = Rotary(self.rotated, base, layout) if self.rotated else None

    def queries(self, x: Float[Tensor, "B T C"], offset: int = 0) -> Float[Tensor, "B H T D"]:
        q = split_heads(self.query(x), self.num_heads)
        if self.turn is None:
            return q
        return torch.cat(
            (q[..., : -self.rotated], self.turn.rotate(q[..., -self.rotated :], offset)), -1
        )

    def keys_values(self, *stored: Tensor) -> tuple[Tensor, Tensor]:
        tied, shared = stored
        shared = shared.expand(-1, self.kv_heads, -1, -1)
        return torch.cat((tied[..., : tied.shape[-1] - self.rotated], shared), -1), tied

    def cached(self, context: Float[Tensor, "B S C"], offset: int = 0) -> tuple[Tensor, ...]:
        """The tied states (B, G, S, D), and the shared rotated key (B, 1, S, P)."""
        tied = split_heads(self.tied(context), self.kv_heads)
        if self.turn is None:
            return tied, tied.new_empty(tied.shape[0], 1, tied.shape[2], 0)
        return tied, self.turn.rotate(split_heads(self.turned_key(context), 1), offset)


def _refuse_tied(config: LayerConfig) -> None:
    refuse_uneven(config, "tied state", (1,))
    refuse_second_rotation(config)


def rotated_size(size: int) -> int:
    """Half of a head's dimensions, in whole pairs."""
    return size // 4 * 2


ENTRIES: tuple[Entry, ...] = (
    Entry(
        "identity",
        "Identity",
        build=lambda config: Identity(config.d_model, config.num_heads),
        latex=r"q_i = x_i,\quad k_j = v_j = c_j",
        meaning="Queries, keys and values are the states themselves. Nothing is learned here.",
        paper="Bahdanau et al.",
        year=2014,
        url="https://arxiv.org/abs/1409.0473",
        short="q = x",
        sizes=lambda config: HeadSizes(  # keys and values are one
            config.num_heads, config.head_dim, config.head_dim, config.num_heads, config.d_model
        ),
    ),
    Entry(
        "multi_head",
        "Multi-head",
        build=lambda config: MultiHead(
            config.d_model, config.num_heads, **config.projection.kwargs
        ),
        latex=r"q_i = x_i W_q,\quad k_j = c_j W_k,\quad v_j = c_j W_v",
        meaning="Learned projections give each head its queries, keys and values. The context c is x itself "
        "(self-attention) or another sequence (cross-attention).",
        paper="Vaswani et al.",
        year=2017,
        url="https://arxiv.org/abs/1706.03762",
        params=(BIAS, HEAD_SIZE),
        short="q = x W_q",
        traits=frozenset({"shares keys"}),
    ),
    Entry(
        "grouped_query",
        "Grouped-query",
        build=lambda config: GroupedQuery(
            config.d_model, config.num_heads, **config.projection.kwargs
        ),
        latex=r"k^{(g)}_j = W^{(g)}_k c_j,\quad v^{(g)}_j = W^{(g)}_v c_j,\quad g = \lfloor h\,G / H \rfloor",
        meaning="Neighbouring query heads share one head of keys and values, so a decoder caches fewer numbers for each "
        "token.",
        paper="Ainslie et al.",
        year=2023,
        url="https://arxiv.org/abs/2305.13245",
        params=(
            Param(
                "kv_heads",
                "Key/value heads",
                default=2,
                low=1,
                high=MAX_KV_HEADS,
                step=1,
                meaning="number G of heads of keys and values; it divides the number of query heads",
            ),
            BIAS,
            HEAD_SIZE,
        ),
        short="{kv_heads} heads of k, v",
        traits=frozenset({"shares keys"}),
        sizes=kv_sizes,
        refuse=lambda config: refuse_uneven(config, "key head"),
    ),
    Entry(
        "multi_query",
        "Multi-query",
        build=lambda config: GroupedQuery(
            config.d_model, config.num_heads, 1, **config.projection.kwargs
        ),
        latex=r"k_j = c_j W_k,\quad v_j = c_j W_v\ \text{for all heads}",
        meaning="All query heads share one head of keys and values.",
        paper="Shazeer",
        year=2019,
        url="https://arxiv.org/abs/1911.02150",
        params=(BIAS, HEAD_SIZE),
        short="one head of k, v",
        traits=frozenset({"shares keys"}),
        sizes=kv_sizes,
    ),
    Entry(
        "keys_as_values",
        "Keys as values (K = V)",
        build=lambda config: KeysAsValues(
            config.d_model, config.num_heads, **config.projection.kwargs
        ),
        latex=r"k_j = c_j W_k,\quad v_j = \frac{k_j}{\mathrm{RMS}(k_j)}",
        meaning="Values are the normalized keys, so a layer has no map for values, and a decoder caches the keys alone. "
        "Layers of Gemma 4 that attend to all tokens do this.",
        paper="Gemma Team",
        year=2026,
        url="https://huggingface.co/docs/transformers/model_doc/gemma4",
        params=(
            Param(
                "kv_heads",
                "Key/value heads",
                default=1,
                low=1,
                high=MAX_KV_HEADS,
                step=1,
                meaning="number G of heads of keys and values; it divides the number of query heads",
            ),
            BIAS,
            HEAD_SIZE,
        ),
        short="v = norm(k), {kv_heads} heads",
        sizes=lambda config: replace(
            kv_sizes(config), cached=int(config.projection["kv_heads"]) * config.head_dim
        ),
        refuse=lambda config: refuse_uneven(config, "head of keys", (1,)),
    ),
    Entry(
        "exclusive",
        "Exclusive",
        build=lambda config: Exclusive(
            config.d_model, config.num_heads, **config.projection.kwargs
        ),
        latex=r"\big[y_i - \langle y_i, \hat{v}_i \rangle\, \hat{v}_i\big]\,W_o,\quad \hat{v}_i = v_i / \lVert v_i \rVert",
        meaning="From each head's output the part along the token's own value is taken away, so that attention adds only "
        "what the token does not already have. It needs self-attention: cross-attention has no own value.",
        paper="Zhai",
        year=2026,
        url="https://arxiv.org/abs/2603.09078",
        params=(
            BIAS,
            Param(
                "learned",
                "Learned share",
                default=False,
                meaning="whether each head learns how much of that part is taken away, as in NeoMME: tanh α, from 0",
            ),
        ),
        short="out − its part along v of i",
        traits=frozenset({"one sequence"}),
    ),
    Entry(
        "value_residual",
        "Value residual",
        build=lambda config: ValueResidual(
            config.d_model,
            config.num_heads,
            **config.projection.kwargs | {"kv_heads": config.kv_heads},
        ),
        latex=r"v_j = (1 - \lambda)\, x_j W_v + \lambda\, v^{1}_j",
        meaning="In each layer after the first, values are mixed with those of the first layer, so that what a token "
        "itself is reaches deep layers. A layer alone has its own values.",
        paper="Zhou et al.",
        year=2024,
        url="https://arxiv.org/abs/2410.17897",
        params=(
            BIAS,
            Param(
                "kv_heads",
                "Key/value heads",
                default=0,
                low=0,
                high=MAX_KV_HEADS,
                step=1,
                meaning="number G of heads of keys and values, which divides the number of query heads; 0 for as many",
            ),
            Param(
                "share",
                "Share λ",
                default=0.5,
                low=0.0,
                high=1.0,
                step=0.05,
                meaning="share λ of the first layer's values; 0 is multi-head attention, 1 takes them alone",
            ),
        ),
        short="v + values of layer 1",
        traits=frozenset({"one sequence"}),
        sizes=kv_sizes,
        refuse=lambda config: refuse_uneven(config, "key head", (0,)),
    ),
    Entry(
        "latent",
        "Latent (MLA)",
        build=_build_latent,
        latex=r"c_j = x_j W_c,\quad k^{(h)}_j = [c_j W^{(h)}_{uk};\ R_j(x_j W_r)],\quad v^{(h)}_j = c_j W^{(h)}_{uv}",
        meaning="A decoder caches one small vector of each token, the latent, from which every head computes its keys and "
        "values. Order enters through one rotated key that all heads share.",
        paper="DeepSeek-AI",
        year=2024,
        url="https://arxiv.org/abs/2405.04434",
        params=(
            Param(
                "latent",
                "Latent size",
                default=32,
                low=1,
                high=_SIZE,
                step=1,
                meaning="size R of the latent vector that is cached for each token",
            ),
            Param(
                "rope",
                "Rotary size",
                default=8,
                low=0,
                high=256,
                step=2,
                meaning="dimensions of the shared key, which are rotated by position; an even number",
            ),
            Param(
                "query_latent",
                "Query latent",
                default=0,
                low=0,
                high=_SIZE,
                step=1,
                meaning="size of the latent vector that queries are computed from; 0 for none",
            ),
            BASE,
            Param(
                "layout",
                "Layout",
                default="interleaved",
                choices=("halves", "interleaved", "none"),
                meaning="which dimensions form a pair: m with m + D/2, or 2m with 2m + 1; none rotates nothing",
            ),
            HEAD_SIZE,
            Param(
                "groups",
                "Groups",
                default=1,
                low=1,
                high=MAX_KV_HEADS,
                step=1,
                meaning="number of parts of the latent, each read by as many heads; 1 is MLA, more are GLA",
            ),
        ),
        short="k, v from {latent} numbers",
        traits=frozenset({"own positions"}),
        sizes=lambda config: HeadSizes(
            config.num_heads,
            config.head_dim + int(config.projection["rope"]),
            config.head_dim,
            config.num_heads,
            cached=int(config.projection["latent"]) + int(config.projection["rope"]),
        ),
        refuse=_refuse_latent,
    ),
    Entry(
        "tensor_product",
        "Tensor product (TPA)",
        build=lambda config: TensorProduct(
            config.d_model, config.num_heads, **config.projection.kwargs
        ),
        latex=r"k_j = \tfrac{1}{R} \sum_r a_r(c_j) \otimes b_r(c_j)\ \text{for all heads},\quad q, v\ \text{alike}",
        meaning="The queries, keys and values of all heads are sums of a few outer products: one vector says how much each "
        "head takes, the other what it takes. A decoder caches these vectors.",
        paper="Zhang et al.",
        year=2025,
        url="https://arxiv.org/abs/2501.06425",
        params=(
            Param(
                "rank",
                "Rank",
                default=2,
                low=1,
                high=64,
                step=1,
                meaning="number R of outer products in keys, and in values",
            ),
            Param(
                "query_rank",
                "Query rank",
                default=6,
                low=1,
                high=64,
                step=1,
                meaning="number of outer products in queries",
            ),
        ),
        short="k, v of rank {rank}",
        sizes=lambda config: HeadSizes(
            config.num_heads,
            config.head_dim,
            config.head_dim,
            config.num_heads,
            cached=2 * int(config.projection["rank"]) * (config.num_heads + config.head_dim),
        ),
    ),
    Entry(
        "grouped_tied",
        "Grouped-tied (GTA)",
        build=lambda config: GroupedTied(
            config.d_model, config.num_heads, **config.projection.kwargs
        ),
        latex=r"s_j = c_j W_s,\quad v_j = s_j,\quad k_j = [s_j^{\text{first half}};\ R_j(c_j W_r)]",
        meaning="Each group of heads has one state that is the value and half of the key. The other half of every key is one "
        "rotated vector for all heads. A decoder caches about half as much as with grouped-query heads.",
        paper="Zadouri et al.",
        year=2025,
        url="https://arxiv.org/abs/2505.21487",
        params=(
            Param(
                "kv_heads",
                "Tied heads",
                default=1,
                low=1,
                high=MAX_KV_HEADS,
                step=1,
                meaning="number G of tied states; it divides the number of query heads",
            ),
            BASE,
            LAYOUT,
        ),
        short="v and half of k tied",
        traits=frozenset({"own positions"}),
        sizes=lambda config: replace(
            kv_sizes(config),
            cached=int(config.projection["kv_heads"]) * config.head_dim
            + rotated_size(config.head_dim),
        ),
        refuse=_refuse_tied,
    ),
)
