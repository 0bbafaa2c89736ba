"""ScoreBlock: a rectangle of the score matrix, with everything that masks and positions may read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from core.entries import ConfigError

# A cache of tensors that no trace of torch.compile or torch.export fills.


P = ParamSpec("P")
R = TypeVar("R")


def eager_cache(maxsize: int) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """As `functools.lru_cache`, but a trace calls the function itself: its tensors hold no numbers for a later call."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        cached = lru_cache(maxsize)(function)

        @wraps(function)
        def call(*args: P.args, **named: P.kwargs) -> R:
            if torch.compiler.is_compiling():
                return function(*args, **named)
            return cached(*args, **named)  # type: ignore[arg-type]

        call.cache_clear = cached.cache_clear  # type: ignore[attr-defined]
        return call

    return decorate


ALL = slice(None)


def dot_product_scale(head_dim: int) -> float:
    """1/√D, so that the standard deviation of a dot product of D numbers does not grow with D. Vaswani 2017, 3.2.1."""
    return head_dim**-0.5


@eager_cache(maxsize=32)
def positions(start: int, stop: int, device: torch.device | str) -> Int[Tensor, " N"]:
    """start … stop − 1. Cached, as all layers of a model ask for the same: never change the result."""
    with torch.inference_mode(False):
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
    tables: tuple[Tensor, ...] = ()
    key_mask: Bool[Tensor, "B 1 1 S"] | None = None  # which keys of this rectangle are real
    real: Bool[Tensor, "B Sx"] | None = None  # which keys of the whole matrix are real
    q: Float[Tensor, "B H T D"] | None = None
    k: Float[Tensor, "B H S D"] | None = None
    keys: Float[Tensor, "B H Sx D"] | None = None
    x: Float[Tensor, "B Tx C"] | None = None
    context: Float[Tensor, "B Sx C"] | None = None

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
        i, j = (
            positions(offset, offset + num_queries, device)[:, None],
            positions(0, num_keys, device)[None],
        )
        real = None if key_mask is None else key_mask[:, None, None, :]
        low, high = offset - num_keys + 1, offset + num_queries - 1
        return cls(
            i,
            j,
            offset + num_queries,
            num_keys,
            num_heads,
            offset,
            low,
            high,
            (),
            real,
            key_mask,
            keys=tensors.get("k"),
            **tensors,
        )

    def part(self, rows: slice = ALL, columns: slice = ALL) -> ScoreBlock:
        """The rectangle of these rows and columns."""
        if rows == ALL and columns == ALL:
            return self
        key_mask = None if self.key_mask is None else self.key_mask[..., columns]
        q, k = (
            None if self.q is None else self.q[:, :, rows],
            None if self.k is None else self.k[:, :, columns],
        )
        return replace(self, **self.coordinates(rows, columns), key_mask=key_mask, q=q, k=k)

    def coordinates(self, rows: slice, columns: slice | Tensor) -> dict[str, Any]:
        """The fields i, j, low and high of these rows and columns; columns are a slice, or increasing indices."""
        (num_rows, num_columns), (first, stop, _) = (
            (len(self.i), self.j.shape[1]),
            rows.indices(len(self.i)),
        )
        if isinstance(columns, slice):
            start, end, _ = columns.indices(num_columns)
        else:
            start, end = int(columns[0]), int(columns[-1]) + 1
        return {
            "i": self.i[rows],
            "j": self.j[:, columns],
            "low": self.low + first + num_columns - end,
            "high": self.high - (num_rows - stop) - start,
        }
