"""The base class of each axis, Steps, which a kernel returns, and ScoreBlock, a rectangle of scores with all that masks and
positions may read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from core.attention.decoding import Cache, append
from core.entries import ConfigError

if TYPE_CHECKING:
    Absent = Any  # None in places that a type checker cannot tell, as the steps of a call that records none
else:
    Absent = None


Heads = tuple[Float[Tensor, "B Hs T D"], Float[Tensor, "B G S D"], Float[Tensor, "B Gv S E"]]
Extended = tuple[Tensor, Tensor, Tensor, tuple[Tensor, ...]]
# floats of D numbers a cell, as of tanh(W₁k + W₂q), held at once when nothing needs a gradient: 128 MB
MAX_HIDDEN_CELLS = 2**25


def split_heads(x: Float[Tensor, "B T C"], num_heads: int) -> Float[Tensor, "B H T D"]:
    return x.reshape(*x.shape[:2], num_heads, x.shape[2] // num_heads).transpose(1, 2)


def merge_heads(x: Float[Tensor, "B H T D"]) -> Float[Tensor, "B T C"]:
    return x.transpose(1, 2).flatten(2)


def repeat_heads(heads: Float[Tensor, "B G S D"], num_heads: int) -> Float[Tensor, "B H S D"]:
    """Each of G heads repeated for the H / G queries that share it."""
    groups = heads.shape[1]
    if groups in (1, num_heads):
        return heads.expand(-1, num_heads, -1, -1)  # without a copy
    return heads.repeat_interleave(num_heads // groups, dim=1)


def to_float32(x: Tensor) -> Tensor:
    """x in at least fp32: sums over many keys lose too much in half precision."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def linear(inputs: int, outputs: int, bias: bool = False) -> nn.Linear:
    """A linear map with Glorot uniform weights and zero bias, as in the Transformer."""
    layer = nn.Linear(inputs, outputs, bias)
    nn.init.xavier_uniform_(layer.weight)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def clip_rms(x: Float[Tensor, "*rows D"], largest: float) -> Float[Tensor, "*rows D"]:
    """x with each row shortened to a root mean square of `largest` where it has a larger one. Inkling 2, its L2Clip."""
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x * (largest * x.shape[-1] ** 0.5 / (length + 1e-6)).clamp(max=1.0)


def convolve(rows: Float[Tensor, "B N W"], taps: Float[Tensor, "n W"]) -> Float[Tensor, "B T W"]:
    """Σ_a taps[a] ⊙ rows[t + a], a causal convolution of each number: T = N − n + 1, as n − 1 rows come before."""
    count = rows.shape[1] - len(taps) + 1
    return torch.stack([tap * rows[:, a : a + count] for a, tap in enumerate(taps)]).sum(0)


Function = TypeVar("Function", bound=Callable[..., Any])


def eager_cache(maxsize: int) -> Callable[[Function], Function]:
    """As `functools.lru_cache`, but a trace calls the function itself: its tensors hold no numbers for a later call.

    Outside inference mode, whose tensors cannot be used in training. Never change the result.
    """

    def decorate(function: Function) -> Function:
        cached = lru_cache(maxsize)(torch.inference_mode(False)(function))

        @wraps(function)
        def call(*args: Any, **named: Any) -> Any:
            return (function if torch.compiler.is_compiling() else cached)(*args, **named)

        return cast(Function, call)

    return decorate


def dot_product_scale(head_dim: int) -> float:
    """1/√D, so that the standard deviation of a dot product of D numbers does not grow with D. Vaswani 2017, 3.2.1."""
    return head_dim**-0.5


ALL = slice(None)


@eager_cache(maxsize=32)
def positions(start: int, stop: int, device: torch.device | str) -> Int[Tensor, " N"]:
    """start … stop − 1. Cached, as all layers of a model ask for the same."""
    return torch.arange(start, stop, device=device)


@dataclass(frozen=True, eq=False)
class ScoreBlock:
    """Some rows and columns of the score matrix: the positions i of queries and j of keys, with their q and k.

    B batch, H score heads, T queries and S keys of this rectangle. `num_queries` and `num_keys` count the whole matrix,
    cached queries included. x, context and `real` are the layer's whole inputs: index them by i − `offset` and by j;
    `keys` is the k of the whole matrix. A field is None where the caller has no such tensor. i − j lies between `low`
    and `high`; `tables` is what a position computes once for the whole matrix.
    """

    i: Int[Tensor, "T 1"]
    j: Int[Tensor, "1 S"]
    num_queries: int
    num_keys: int
    num_heads: int = 1
    offset: int = 0
    low: int = 0
    high: int = 0
    tables: tuple[Any, ...] = ()
    key_mask: Bool[Tensor, "B 1 1 S"] | None = None  # which keys of this rectangle are real
    real: Bool[Tensor, "B Sx"] | None = None  # which keys of the whole matrix are real
    q: Float[Tensor, "B H T D"] | Absent = None
    k: Float[Tensor, "B H S D"] | Absent = None
    keys: Float[Tensor, "B H Sx D"] | None = None
    x: Float[Tensor, "B Tx C"] | Absent = None
    context: Float[Tensor, "B Sx C"] | Absent = None

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the scores."""
        return torch.float32 if self.q is None else self.q.dtype

    @property
    def owns_queries(self) -> bool:
        """Whether queries and keys are the same tokens, so that `real` speaks of queries too."""
        return self.x is self.context and self.num_queries == self.num_keys

    @property
    def ends(self) -> Int[Tensor, "B 1 1"] | int:
        """The number of keys up to the last real one of each text; that of all keys without a key mask."""
        if self.real is None:
            return self.num_keys
        return (self.real * torch.arange(1, self.num_keys + 1, device=self.real.device)).amax(-1)[
            :, None, None
        ]

    @property
    def real_queries(self) -> Bool[Tensor, "B T"] | None:
        """Which of this rectangle's queries are real tokens; None where no key mask speaks of them."""
        if self.real is None:
            return None
        if self.x is self.context:
            return self.real[:, self.i[:, 0] - self.offset]
        continued = self.offset > 0 and self.num_queries == self.num_keys  # after a cache
        return self.real[:, self.i[:, 0]] if continued else None

    def own(self, x: Float[Tensor, "B Tx C"]) -> Float[Tensor, "B T C"]:
        """Of what is said of each of the layer's own tokens, the rows of this rectangle's queries."""
        return x[:, self.i.flatten() - self.offset]

    def require(self, name: str, owner: str, **take: str) -> Tensor:
        """The tensor of that name; ConfigError where the caller has none, as `owner` reads it and what to `take` not."""
        tensor = getattr(self, name)
        if tensor is None:
            raise ConfigError(
                f"{owner} reads {name}, which is not given here", "Attention(config)", **take
            )
        return tensor

    @classmethod
    def whole(
        cls,
        num_queries: int,
        num_keys: int,
        *,
        num_heads: int = 1,
        offset: int = 0,
        key_mask: Tensor | None = None,
        device: torch.device | str = "cpu",
        **tensors: Tensor | None,
    ) -> ScoreBlock:
        """The whole matrix; its first query has position `offset`, and key_mask is (B, S)."""
        stop = offset + num_queries
        return cls(
            positions(offset, stop, device)[:, None],
            positions(0, num_keys, device)[None],
            stop,
            num_keys,
            num_heads,
            offset,
            tables=(),
            low=offset - num_keys + 1,
            high=stop - 1,
            key_mask=None if key_mask is None else key_mask[:, None, None],
            real=key_mask,
            keys=tensors.get("k"),
            **tensors,
        )

    def part(
        self,
        rows: slice = ALL,
        columns: slice | Tensor = ALL,
        q: Tensor | None = None,
        k: Tensor | None = None,
    ) -> ScoreBlock:
        """The rectangle of these rows and columns (a slice, or increasing indices), with its q and k where they are
        given, else those of this one."""
        num_rows, num_columns = len(self.i), self.j.shape[1]
        first, stop, _ = rows.indices(num_rows)
        if isinstance(columns, slice):
            start, end, _ = columns.indices(num_columns)
        else:
            start, end = int(columns[0]), int(columns[-1]) + 1
        return replace(
            self,
            i=self.i[rows],
            j=self.j[:, columns],
            low=self.low + first + num_columns - end,
            high=self.high - (num_rows - stop) - start,
            key_mask=None if self.key_mask is None else self.key_mask[..., columns],
            q=self.q[:, :, rows] if q is None and self.q is not None else q,
            k=self.k[:, :, columns] if k is None and self.k is not None else k,
        )


@dataclass(frozen=True)
class Steps:
    """Every intermediate of one attention, by name; B batch, H heads, T queries, S keys, D head size.

    A kernel that never computes `raw`, `scores`, `masked` and `weights` leaves them None, and one without a layer
    `merged`. Hs is the number of score heads, which differs from H where the projection combines heads. k and v are
    repeated for the heads that share them, but for a step of one token that is not recorded, which keeps the G heads as
    they are stored.
    """

    q: Float[Tensor, "B Hs T D"]  # projected and rotated
    k: Float[Tensor, "B G S D"]
    v: Float[Tensor, "B Gv S E"]
    scale: float | Tensor
    bias: Tensor | None  # broadcastable to (B, Hs, T, S)
    mask: Tensor | None  # bool, True = may attend, broadcastable to (B, Hs, T, S)
    out: Float[Tensor, "B H T E"]  # weights · v, plus `position_values` where there are any
    raw: Float[Tensor, "B Hs T S"] | Absent = None  # the score of q and k, before scale and bias
    scores: Float[Tensor, "B Hs T S"] | Absent = None  # raw · scale + bias
    masked: Float[Tensor, "B Hs T S"] | Absent = None  # scores, −∞ where the mask is False
    # after the normalizer, where weights differ
    normalized: Float[Tensor, "B Hs T S"] | None = None
    weights: Float[Tensor, "B H T S"] | Absent = None  # what multiplies v, before dropout
    position_values: Float[Tensor, "B H T E"] | None = None  # what positions add to weights · v
    merged: Float[Tensor, "B T C"] | Absent = None  # heads merged and projected; the layer's output
    cache: Cache | Absent = None  # what the layer has stored, where it was called with a cache
    # after the last key, where the kernel carries one
    state: Float[Tensor, "B H R P"] | None = None
    indexer_loss: Float[Tensor, ""] | None = None  # of a mask with an indexer, in training
    implied: bool = False  # the kernel never computed these weights; they give its output


class Projection(nn.Module):
    """Maps inputs to heads and heads to the output. k and v may have fewer heads than q: the layer repeats them.

    A subclass that mixes tokens sets `reads_key_mask`: its methods then get `key_mask` (B, S), True = a real token, or
    None. One that mixes layers sets `shares`: they get `shared`, a dict that all layers of a stack fill and read in one
    forward pass, the first layer first, about the same tokens. A subclass that does either takes one sequence alone
    (trait "one sequence").
    """

    num_heads: int
    kv_heads: int
    query: nn.Linear  # W_q and so on
    key: nn.Linear
    value: nn.Linear
    output: nn.Linear
    layer = 0  # the index of its layer in a stack
    reads_key_mask = False
    shares = False

    def forward(
        self, x: Float[Tensor, "B T C"], context: Float[Tensor, "B S C"], offset: int = 0
    ) -> Heads:
        """q, k and v, here by linear maps; `offset` is the position of x's first token, for a projection with positions
        of its own."""
        k, v = (split_heads(one(context), self.kv_heads) for one in (self.key, self.value))
        return self.queries(x), k, v

    def queries(self, x: Float[Tensor, "B T C"], offset: int = 0) -> Float[Tensor, "B H T D"]:
        """q alone, as a layer needs it that takes another layer's k and v (trait "shares keys")."""
        return split_heads(self.query(x), self.num_heads)

    def combine_heads(
        self,
        weights: Float[Tensor, "B Hs T S"],
        scores: Float[Tensor, "B Hs T S"],
        block: ScoreBlock,
    ) -> Float[Tensor, "B H T S"]:
        """The weights of the value heads, from those and the scores of all score heads (trait "folds" where they differ)
        in a block; a masked score may hold anything."""
        return weights

    def merge(
        self, out: Float[Tensor, "B H T E"], x: Float[Tensor, "B T C"]
    ) -> Float[Tensor, "B T C"]:
        """The layer's output from that of all heads, here W_o of the joined heads; x is the layer's input."""
        return self.output(merge_heads(out))

    def cached(self, context: Float[Tensor, "B S C"], offset: int = 0) -> tuple[Tensor, ...]:
        """What a decoder caches of its context, whose first token is at position `offset`: k and v, unless less."""
        _, k, v = self(context, context, offset)
        return k, v

    def extend(
        self, x: Float[Tensor, "B T C"], stored: tuple[Tensor, ...], offset: int, **given: Any
    ) -> Extended:
        """q of T new tokens, k and v of all S tokens, and what is then stored; `stored` is of the S − T before."""
        q, *new = self(x, x, offset, **given)
        k, v = append(stored, new)
        return q, k, v, (k, v)

    def carry(
        self, x: Float[Tensor, "B T C"], stored: tuple[Tensor, ...], offset: int, **given: Any
    ) -> Extended:
        """q, k and v of T new tokens, and what is then stored beside a kernel's state, whose size must not grow."""
        return *self.extend(x, (), offset, **given)[:3], ()

    def expand(self, out: Float[Tensor, "B H T E"]) -> Float[Tensor, "B H T D"]:
        """The output of each head from that of the values of `extend`, which may be smaller than values are."""
        return out


class StoresLess(Projection):
    """A projection whose `cached` is smaller than keys and values, which `keys_values` computes from it."""

    def keys_values(self, *stored: Tensor) -> tuple[Tensor, Tensor]:
        """k and v of all tokens, from what is stored of them."""
        raise NotImplementedError

    def forward(
        self, x: Float[Tensor, "B T C"], context: Float[Tensor, "B S C"], offset: int = 0
    ) -> Heads:
        return self.queries(x, offset), *self.keys_values(*self.cached(context))

    def extend(
        self, x: Float[Tensor, "B T C"], stored: tuple[Tensor, ...], offset: int, **_: Any
    ) -> Extended:
        stored = append(stored, self.cached(x, offset))
        return self.queries(x, offset), *self.keys_values(*stored), stored


class Score(nn.Module):
    """Raw scores of queries and keys, which a kernel multiplies by `scale` (a number, or a Tensor (H, 1, 1))."""

    scale: float | Tensor = 1.0

    def qk_transform(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """q (B, H, T, D) and k (B, G, S, D) before positions rotate them; the result is seen in Steps.q and Steps.k."""
        return q, k

    def drop_keys(self) -> None:
        """Remove the weights of `qk_transform` for keys: a layer that takes another's takes them transformed."""

    def forward(
        self, q: Float[Tensor, "B H T D"], k: Float[Tensor, "B H S D"]
    ) -> Float[Tensor, "B H T S"]:
        raise NotImplementedError

    def factors(
        self, q: Float[Tensor, "B H 1 D"], k: Float[Tensor, "B H 1 D"]
    ) -> tuple[Tensor, Tensor] | None:
        """The pairs of numbers whose products add up to the raw score of one query and one key, each (B, H, 1, D).

        None for a score that is no such sum; a page then shows its result alone.
        """
        return None


class Product(Score):
    """A score that is a dot product once query and key are prepared, each alone (trait "product").

    Kernels that never hold the score matrix call `prepare` and compute the product in their own way.
    """

    def prepare(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return q, k

    def forward(
        self, q: Float[Tensor, "B H T D"], k: Float[Tensor, "B H S D"]
    ) -> Float[Tensor, "B H T S"]:
        q, k = self.prepare(q, k)
        return q @ k.mT

    def factors(
        self, q: Float[Tensor, "B H 1 D"], k: Float[Tensor, "B H 1 D"]
    ) -> tuple[Tensor, Tensor]:
        return self.prepare(q, k)


class Position(nn.Module):
    """No position: x, q and k pass unchanged, nothing is added to scores or output. An encoding overrides its part."""

    def add(self, x: Float[Tensor, "B T C"], offset: int = 0) -> Float[Tensor, "B T C"]:
        """x with its positions added; `offset` is the position of x's first token."""
        return x

    def rotate(
        self,
        x: Float[Tensor, "B H T D"],
        offset: int = 0,
        length: int | None = None,
    ) -> Float[Tensor, "B H T D"]:
        """Queries or keys rotated by their positions; `length` is the whole sequence's, offset + T unless given."""
        return x

    def rotate_keys(
        self, x: Float[Tensor, "B G S D"], offset: int = 0, length: int | None = None
    ) -> Float[Tensor, "B G S D"]:
        """Keys rotated by their positions, as queries are unless an encoding has another way for them."""
        return self.rotate(x, offset, length)

    def tables(self, block: ScoreBlock) -> tuple[Any, ...]:
        """What `bias` reads that is the same for every block; computed once a call and passed in `block.tables`."""
        return ()

    def bias(self, block: ScoreBlock) -> Float[Tensor, ...] | None:
        """What is added to the scores, broadcastable to (B, H, T, S), in their dtype; None for nothing."""
        return None

    def adjust(
        self, scores: Float[Tensor, "B H T S"], block: ScoreBlock
    ) -> Float[Tensor, "B H T S"]:
        """The scores after scale and bias, changed in a way that is no bias (trait "adjusts")."""
        return scores

    def values(
        self, weights: Float[Tensor, "B H T S"], block: ScoreBlock
    ) -> Float[Tensor, "B H T E"] | None:
        """What is added to weights · v (trait "values"); None for nothing."""
        return None


class Mask(nn.Module):
    """Which queries may attend to which keys; it may have weights, and may read q and k."""

    def forward(self, block: ScoreBlock) -> Tensor:
        """Bool, True = may attend, broadcastable to (B, H, T, S)."""
        raise NotImplementedError

    def unchosen(self, block: ScoreBlock) -> Tensor:
        """The mask before an indexer in it has chosen: it lets every key through up to the query."""
        return self(block)

    def weight_factor(self, block: ScoreBlock) -> Tensor | None:
        """What multiplies the weights after the normalizer (trait "reweighs"); None for nothing."""
        return None


class Normalizer(nn.Module):
    """Scores to weights, row by row; a subclass says in `normalize` how.

    Masked cells get exactly 0. A row without any visible key gives zeros and zero gradients: filling with the dtype's
    least number, instead of −∞, keeps NaN out of both, and the last line clears what `normalize` leaves in a masked
    cell. Half precision is computed in fp32.
    """

    def __init__(self, temperature: float = 1.0) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(
        self, scores: Float[Tensor, "B H T S"], mask: Bool[Tensor, ...] | None
    ) -> Float[Tensor, "B H T S"]:
        """Weights in the scores' own dtype; mask is True where a query may attend."""
        return self.rows(scores, mask, self.normalize)

    def at(self, block: ScoreBlock) -> Callable[[Tensor, Tensor | None], Tensor]:
        """`forward` for a block's scores; one that reads the tokens themselves takes its part of x."""
        return self

    def rows(
        self, scores: Tensor, mask: Tensor | None, normalize: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """`forward` with that `normalize`."""
        if not scores.numel():
            return scores
        ready = self.prepare(to_float32(scores), mask)
        if mask is None:
            return normalize(ready).to(scores.dtype)
        hidden = ~mask
        weights = normalize(ready.masked_fill(hidden, torch.finfo(ready.dtype).min))
        return weights.masked_fill(hidden, 0.0).to(scores.dtype)

    def prepare(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        """What is done to each score alone; masked scores may still hold anything, NaN too."""
        return scores if self.temperature == 1.0 else scores / self.temperature

    def normalize(self, scores: Tensor) -> Tensor:
        """Rows of scores to rows of weights; masked scores are the dtype's least number."""
        raise NotImplementedError
