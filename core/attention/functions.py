"""Functions as choices: score(q, k), mask(i, j), position(i, j) and normalizer(scores, mask), each in its class."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from core.attention.basics import HALF, Normalizer, Projection, Score, ScoreBlock
from core.attention.config import AXES, AttentionConfig
from core.attention.masks.patterns import Mask
from core.attention.positions.rotary import Position
from core.entries import ConfigError, quote, quote_name, refuse_if
from core.plugins import describe

Function = Callable[..., Any]
Piece = nn.Module | Function  # what can stand for a choice


class ByFunction(nn.Module):
    """What stands for a choice by a person's function, which messages call `owner`."""

    def __init__(self, function: Function, owner: str) -> None:
        super().__init__()
        self.function, self.owner = function, owner

    def result(self, *args: Any, shape: tuple[int, ...], broadcast: bool = False) -> Tensor:
        """What the function gives, of that shape, or broadcastable to it; ConfigError, with file and line, where it
        raises or gives anything else."""
        names = ", ".join(("B", "H", "T", "S")[-len(shape) :])
        expected = f"{'broadcastable to ' if broadcast else ''}({names}) = {tuple(shape)}"
        try:
            result = self.function(*args)
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(f"{self.owner} failed. {describe(error)}") from error
        refuse_if(
            not isinstance(result, Tensor),
            f"{self.owner} returned {quote(result)}; expected a tensor {expected}.",
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
        ready = scores.float() if scores.dtype in HALF else scores
        if mask is not None:
            ready = ready.masked_fill(~mask, torch.finfo(ready.dtype).min)
        weights = self.result(ready, mask, shape=scores.shape)
        return (weights if mask is None else weights.masked_fill(~mask, 0.0)).to(scores.dtype)


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
    try:
        taken.bind(*names)
    except TypeError:
        raise ConfigError(f"{axis} = {written} takes {taken}; expected {fitting}.") from None
    return wrapper(piece, made)


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
