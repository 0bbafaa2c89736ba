"""AttentionConfig: one formula, six choices. It names one choice an axis, with that choice's own parameters. In place of a
choice a layer may be given a function: score(q, k), mask(i, j), position(i, j) or normalizer(scores, mask)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from core.attention.base import Mask, Normalizer, Position, Projection, Score, ScoreBlock
from core.attention.kernels import KERNELS
from core.attention.masks import MASKS, check_parts
from core.attention.normalizers import NORMALIZERS
from core.attention.positions import POSITIONS
from core.attention.projections import PROJECTIONS
from core.attention.scores import SCORES
from core.entries import (
    Axis,
    Choice,
    ConfigError,
    Entry,
    HeadSizes,
    Trait,
    check_fields,
    complete,
    find,
    quote,
    quote_name,
    refuse_if,
)
from core.plugins import describe

LARGEST_SIZE = 2**20  # of d_model; the widest published models have some 2^15
AXES: dict[str, Axis] = {
    "projection": PROJECTIONS,
    "score": SCORES,
    "position": POSITIONS,
    "mask": MASKS,
    "normalizer": NORMALIZERS,
    "kernel": KERNELS,
}


def entry(axis: str, key: str) -> Entry:
    """The entry of an axis by its key; ConfigError lists the keys there are."""
    return find(AXES[axis], axis, key)


@dataclass(frozen=True)
class AttentionConfig:
    """Which attention: sizes and one choice an axis, validated when made (ConfigError), to and from JSON."""

    d_model: int = 64
    num_heads: int = 4
    projection: Choice = Choice("multi_head")
    score: Choice = Choice("scaled_dot")
    position: Choice = Choice("none")
    mask: Choice = Choice("none")
    normalizer: Choice = Choice("softmax")
    kernel: Choice = Choice("exact")
    dropout: float = 0.0

    # a key stands for its choice with all defaults, as __post_init__ completes it
    if TYPE_CHECKING:

        def __init__(
            self,
            d_model: int = 64,
            num_heads: int = 4,
            projection: Choice | str = "multi_head",
            score: Choice | str = "scaled_dot",
            position: Choice | str = "none",
            mask: Choice | str = "none",
            normalizer: Choice | str = "softmax",
            kernel: Choice | str = "exact",
            dropout: float = 0.0,
        ) -> None: ...

    def __post_init__(self) -> None:
        check_sizes(self.d_model, self.num_heads)
        refuse_if(
            isinstance(self.dropout, bool)
            or not isinstance(self.dropout, int | float)
            or not 0.0 <= self.dropout < 1.0,
            f"dropout = {quote(self.dropout)}; expected 0 ≤ dropout < 1.",
        )
        for axis, entries in AXES.items():
            object.__setattr__(self, axis, complete(getattr(self, axis), entries, axis))
        check_parts(self.mask)
        for axis in AXES:
            choice = getattr(self, axis)
            refuse_if(
                axis != "mask" and choice.parts and not entry(axis, choice.key).parts,
                f"{axis} = {choice.key} takes no parts; got {len(choice.parts)}.",
                axes=(axis,),
            )
            # a joined position asks its parts itself
            for part in choice.walk() if axis == "mask" else (choice,):
                if refusal := entry(axis, part.key).refuse(self):
                    if isinstance(refusal, str):  # as a plug-in may say it
                        raise ConfigError(refusal, axes=(axis,))
                    raise refusal

    @property
    def head_dim(self) -> int:
        """The size D of a head: that of the projection, or d_model / num_heads."""
        return int(self.projection.kwargs.get("head_dim", 0)) or self.d_model // self.num_heads

    @property
    def sizes(self) -> HeadSizes:
        """The heads that the projection makes, which scores, positions and normalizers work on."""
        sizes = entry("projection", self.projection.key).sizes
        return (
            sizes(self)
            if sizes
            else HeadSizes(self.num_heads, self.head_dim, self.head_dim, self.num_heads)
        )

    @property
    def score_heads(self) -> int:
        return self.sizes.score_heads

    @property
    def qk_dim(self) -> int:
        return self.sizes.qk_dim

    @property
    def scored_dim(self) -> int:
        """The size of a query and of a key as the score meets them, which a position may double."""
        return self.qk_dim * (2 if self.has("position", "doubles") else 1)

    @property
    def v_dim(self) -> int:
        return self.sizes.v_dim

    @property
    def kv_heads(self) -> int:
        return self.sizes.kv_heads

    def has(self, axis: str, trait: Trait) -> bool:
        """Whether the choice on that axis, or one of its parts, has the trait."""
        return any(trait in entry(axis, choice.key).traits for choice in getattr(self, axis).walk())

    def with_(self, **changes: Any) -> AttentionConfig:
        """A copy with some fields changed, validated again."""
        return replace(self, **changes)

    def to_json(self) -> dict[str, Any]:
        return {
            "d_model": self.d_model,
            "num_heads": self.num_heads,
            "dropout": self.dropout,
            **{axis: getattr(self, axis).to_json() for axis in AXES},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> AttentionConfig:
        """ConfigError names any field that is unknown or malformed."""
        values = check_fields(cls, data, "An attention config")
        values.update({axis: Choice.from_json(data[axis]) for axis in AXES if axis in data})
        return cls(**values)


def check_sizes(d_model: int, num_heads: int) -> None:
    """ConfigError unless both are whole numbers from 1 to LARGEST_SIZE and num_heads divides d_model."""
    for name, value in (("d_model", d_model), ("num_heads", num_heads)):
        refuse_if(
            isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST_SIZE,
            f"{name} = {quote(value)}; expected a whole number from 1 to {LARGEST_SIZE:,}.",
        )
    if d_model % num_heads:
        raise ConfigError(
            f"num_heads = {num_heads} does not divide d_model = {d_model}",
            num_heads=heads_that_divide(d_model)[:12],
        )


def heads_that_divide(d_model: int, max_heads: int | None = None) -> list[int]:
    """Every number of heads that divides d_model, from 1 to `max_heads`."""
    return [n for n in range(1, min(d_model, max_heads or d_model) + 1) if d_model % n == 0]


# Which choices go together, found by constructing every pair.


_LOCAL = Choice("causal"), Choice.of("local", window=2)
EXAMPLE_PARTS = {"and": _LOCAL, "or": _LOCAL, "not": (Choice("causal"),)}


def example(axis: str, key: str, **params: Any) -> Choice:
    """The choice of that key with those parameters; a composed mask gets parts to compose."""
    return Choice.of(key, *(EXAMPLE_PARTS.get(key, ()) if axis == "mask" else ()), **params)


def example_config(
    axis: str, key: str, d_model: int = 64, num_heads: int = 4, **params: Any
) -> AttentionConfig:
    """The default config with that choice, and with what it needs beside it; ConfigError where they do not fit."""
    choices: dict[str, Any] = {
        other: example(other, name) for other, name in needs(axis, key).items()
    }
    return AttentionConfig(d_model, num_heads, **choices | {axis: example(axis, key, **params)})


def refusals(axis: str, key: str) -> list[tuple[str, str, str]]:
    """The choices on other axes, with default parameters, that do not go with this one: axis, key and reason."""
    refused = []
    for other, item in others_of(axis):
        choices: dict[str, Any] = {axis: example(axis, key), other: example(other, item.key)}
        try:
            AttentionConfig(**choices)
        except ConfigError as error:
            refused.append((other, item.key, str(error)))
    return refused


def others_of(axis: str) -> list[tuple[str, Entry]]:
    """The entries of all other axes, each with its axis."""
    return [(other, item) for other in AXES if other != axis for item in AXES[other]]


def needs(axis: str, key: str) -> dict[str, str]:
    """What a choice needs where the default config does not fit: axis → the first key that does."""
    for beside in ({}, *({other: item.key} for other, item in others_of(axis))):
        choices: dict[str, Any] = {other: example(other, name) for other, name in beside.items()}
        with suppress(ConfigError):
            AttentionConfig(**choices | {axis: example(axis, key)})
            return beside
    raise ConfigError(
        f"{axis} = {key} ({entry(axis, key).name}) goes with nothing; its refuse is too strict."
    )


Function = Callable[..., Any]
Piece = nn.Module | Function  # what can stand for a choice


class ByFunction(nn.Module):
    """What stands for a choice by a person's function, which messages call `owner`."""

    def __init__(self, function: Function, owner: str) -> None:
        super().__init__()
        self.function, self.owner = function, owner

    def result(
        self, *args: Any, shape: tuple[int, ...], broadcast: bool = False, cells: bool = False
    ) -> Tensor:
        """What the function gives, of that shape, or broadcastable to it, or called for each of its `cells`;
        ConfigError, with file and line, where it raises or gives anything else."""
        names = ", ".join(("B", "H", "T", "S")[-len(shape) :])
        expected = f"{'broadcastable to ' if broadcast else ''}({names}) = {tuple(shape)}"
        try:
            result = by_cell(self.function, *args) if cells else self.function(*args)
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(f"{self.owner} failed. {describe(error)}") from error
        if not isinstance(result, Tensor):  # refuse_if would write out each tensor that fits
            raise ConfigError(
                f"{self.owner} returned {quote(result)}; expected a tensor {expected}."
            )
        fits = result.shape == shape
        if broadcast:
            with suppress(RuntimeError):
                fits = result.broadcast_to(shape).shape == shape
        refuse_if(
            not fits,
            f"{self.owner} returned a tensor {tuple(result.shape)}; expected {expected}.",
        )
        return result

    def of_cells(self, block: ScoreBlock) -> Tensor:
        """The function of the positions i and j, broadcastable to (H, T, S)."""
        return self.result(
            block.i,
            block.j,
            shape=(block.num_heads, len(block.i), block.j.shape[1]),
            broadcast=True,
        )


def by_cell(function: Function, *args: Tensor) -> Tensor:
    """A score_mod(score, b, h, q_idx, kv_idx) of scores (B, H, T, S) and vectors of their indices, or a mask_mod of
    the vectors alone: called with the numbers of one cell, as flex_attention does."""
    scores = len(args) - 4  # 1 or 0
    for place in (3, 2, 1, 0):
        dims = [0 if at == place else None for at in range(4)]
        function = torch.vmap(function, (*[0] * scores, *dims))
    return function(*args)


class FunctionScore(ByFunction, Score):
    """Scores by a function of q (B, H, T, D) and k (B, H, S, D); a module keeps its weights."""

    def forward(
        self, q: Float[Tensor, "B H T D"], k: Float[Tensor, "B H S D"]
    ) -> Float[Tensor, "B H T S"]:
        return self.result(q, k, shape=(*q.shape[:3], k.shape[2]))


class FunctionNormalizer(ByFunction, Normalizer):
    """Weights by a function of scores and mask, in at least fp32. Masked scores arrive as the least finite number, so
    that softmax and max ignore them, and masked cells leave as 0 whatever the function gives there."""

    def forward(
        self, scores: Float[Tensor, "B H T S"], mask: Bool[Tensor, ...] | None
    ) -> Float[Tensor, "B H T S"]:
        return self.rows(scores, mask, lambda ready: self.result(ready, mask, shape=scores.shape))


class FunctionBias(ByFunction, Position):
    """A bias by a function of the positions i (T, 1) and j (1, S), broadcastable to (H, T, S)."""

    def bias(self, block: ScoreBlock) -> Tensor:
        return self.of_cells(block).to(block.dtype)


class FunctionMask(ByFunction, Mask):
    """A mask by a function of the positions i (T, 1) and j (1, S): bool, True = may attend."""

    def forward(self, block: ScoreBlock) -> Tensor:
        allowed = self.of_cells(block)
        refuse_if(
            allowed.dtype != torch.bool,
            f"{self.owner} returned {allowed.dtype}; expected torch.bool with True = may attend.",
        )
        return allowed


def _indices(block: ScoreBlock, batch: int) -> tuple[Tensor, ...]:
    b, h = (torch.arange(size, device=block.i.device) for size in (batch, block.num_heads))
    return b, h, block.i[:, 0], block.j[0]


class ScoreMod(ByFunction, Position):
    """Scaled scores changed by a score_mod of flex_attention."""

    def adjust(
        self, scores: Float[Tensor, "B H T S"], block: ScoreBlock
    ) -> Float[Tensor, "B H T S"]:
        at = _indices(block, len(scores))
        return self.result(scores, *at, shape=scores.shape, cells=True).to(scores.dtype)


class MaskMod(FunctionMask):
    """A mask by a mask_mod of flex_attention."""

    def of_cells(self, block: ScoreBlock) -> Tensor:
        at = _indices(block, 1 if block.q is None else len(block.q))
        return self.result(*at, shape=tuple(map(len, at)), cells=True)


# axis -> what is made of a function as flex_attention takes it, and the function's arguments
MODS: dict[str, tuple[Function, tuple[str, ...]]] = {
    "position": (ScoreMod, ("score", "b", "h", "q_idx", "kv_idx")),
    "mask": (MaskMod, ("b", "h", "q_idx", "kv_idx")),
}
# axis -> the class whose modules are taken as they are, what is made of a function, and the function's arguments
FITTING: dict[str, tuple[type[nn.Module] | None, Function | None, tuple[str, ...]]] = {
    "projection": (Projection, None, ()),
    "score": (Score, FunctionScore, ("q", "k")),
    "position": (Position, FunctionBias, ("i", "j")),
    "mask": (Mask, FunctionMask, ("i", "j")),
    "normalizer": (Normalizer, FunctionNormalizer, ("scores", "mask")),
    "kernel": (None, lambda function, owner: function, ("inputs",)),
}


def adapt(axis: str, piece: Any, key: str = "") -> Any:
    """The module of a choice from a module or function, whose errors call it by `key` or by its own name.

    ConfigError repeats what was given and says what would fit.
    """
    kind, wrapper, names = FITTING[axis]
    if kind and isinstance(piece, kind):
        return piece
    written, function = _written(piece), [f"a function of ({', '.join(names)})"] * bool(wrapper)
    fitting = " or ".join([*function, *([f"an instance of {kind.__name__}"] if kind else [])])
    refuse_if(
        isinstance(piece, str),
        f"{axis} = {written} is a key; name it in the config: "
        f"AttentionConfig({axis}={written}). Here goes {fitting}.",
    )
    refuse_if(
        isinstance(piece, type),
        f"{axis} = {written} is a class; expected {fitting}: call it, {written}(…).",
    )
    if wrapper is None or not callable(piece):
        raise ConfigError(f"{axis} = {written}; expected {fitting}.")
    made = f"{axis} = {key or written}"
    try:
        taken = inspect.signature(piece.forward if isinstance(piece, nn.Module) else piece)
    except ValueError:  # some functions of C tell no signature
        return wrapper(piece, made)

    def takes(given: tuple[str, ...]) -> bool:
        with suppress(TypeError):
            return bool(taken.bind(*given))
        return False

    if takes(names):
        return wrapper(piece, made)
    mod = next((one for one, (_, given) in MODS.items() if takes(given)), "")
    if mod == axis:
        return MODS[axis][0](piece, made)
    also = f" As flex_attention's, it is a {mod}: register({written})." if mod else ""
    raise ConfigError(f"{axis} = {written} takes {taken}; expected {fitting}.{also}")


def adapt_given(config: AttentionConfig, given: dict[str, Piece]) -> dict[str, Any]:
    """The modules of the choices given to a layer, by axis; ConfigError for an unknown axis, or one that the config
    chooses too."""
    usual, pieces = AttentionConfig(), {}
    for axis, piece in given.items():
        refuse_if(
            axis not in AXES, f"Attention has no {quote_name(axis)}; it takes {', '.join(AXES)}."
        )
        pieces[axis] = adapt(axis, piece)
        chosen = getattr(config, axis)
        refuse_if(
            chosen != getattr(usual, axis),
            f"{axis} = {_written(piece)} is given, and the config has {axis} = {chosen.key}",
            "one of the two",
        )
    if pieces and config.kernel != usual.kernel:
        raise ConfigError(
            f"kernel = {config.kernel.key} knows no {next(iter(pieces))} from outside the lab",
            kernel="exact",
        )
    return pieces


def _written(piece: Any) -> str:
    """What a message calls it: the name of a function (also of one with some arguments filled in) or of a class."""
    piece = piece.func if isinstance(piece, partial) else piece
    return getattr(piece, "__name__", None) or (
        type(piece).__name__ if isinstance(piece, nn.Module) else quote(piece)
    )
