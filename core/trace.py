"""AttentionTrace: the attention maps of one model on one input, from any source; every figure is drawn from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

Kind = Literal["self", "causal", "cross", "words", "sentences"]
Head = tuple[int, int]  # the indices of its layer and of itself


@dataclass(frozen=True, eq=False)
class AttentionMap:
    """The attention of one layer: weights (H, T, S) float32, the tokens of its rows and of its columns.

    `mask` is bool, True = may attend, broadcastable to (H, T, S); None where nothing is masked. `layer` is its index
    among the maps of its kind; `number` is the model's own number of the layer, which differs where layers between them
    have no attention; None where it is unknown. ValueError when the tokens do not fit the weights.
    """

    kind: Kind
    layer: int
    weights: np.ndarray
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    mask: np.ndarray | None = None
    number: int | None = None

    def __post_init__(self) -> None:
        if self.weights.ndim != 3 or self.weights.shape[1:] != (len(self.queries), len(self.keys)):
            raise ValueError(
                f"weights are {self.weights.shape}; expected (heads, {len(self.queries)} queries, "
                f"{len(self.keys)} keys)."
            )
        if self.mask is not None:
            np.broadcast_shapes(self.mask.shape, self.weights.shape)

    @property
    def layer_number(self) -> int:
        """The model's own number of the layer; its index where that is unknown."""
        return self.layer if self.number is None else self.number

    @property
    def layer_name(self) -> str:
        """The layer by the model's own number, such as L3."""
        return f"L{self.layer_number}"

    @property
    def visible(self) -> Bool[np.ndarray, "H T S"]:
        """The keys that each row may attend to, by head; a read-only view."""
        return np.broadcast_to(True if self.mask is None else self.mask, self.weights.shape)

    @property
    def visible_in_any(self) -> Bool[np.ndarray, "T S"]:
        """The keys that each row may attend to in any of its heads."""
        return np.asarray(self.visible.any(0))


def why_not_weights(name: str, values: np.ndarray, signed: bool = False) -> str | None:
    """What keeps some numbers from being drawn as weights, 0 to 1, or as signed numbers; None where nothing does."""
    if not np.isfinite(values).all():
        return (
            f"{name} holds {int((~np.isfinite(values)).sum()):,} numbers that are not finite. Write a fully masked "
            "row as zeros."
        )
    low, high = float(values.min(initial=0)), float(values.max(initial=0))
    if signed or (low >= -1e-4 and high <= 1.001):  # what rounding leaves
        return None
    return (
        f"{name} runs from {low:.3g} to {high:.3g}; weights are 0 to 1. If these are scores, take their softmax "
        "first; signed weights are drawn by core.show.show(trace, signed=True)."
    )


class NumberedHeads:
    """Names heads by `numbers`, the model's own numbers of the layers."""

    numbers: tuple[int, ...]

    def name(self, head: Head) -> str:
        """A head's name, such as L3·H1."""
        return head_name(self.numbers[head[0]], head[1])


@dataclass(frozen=True, eq=False)
class AttentionTrace:
    """The maps of one model on one input, in the order of its layers, and their source by name."""

    maps: tuple[AttentionMap, ...]
    source: str

    def of(self, kind: Kind) -> AttentionTrace:
        """Only the maps of that kind."""
        return AttentionTrace(tuple(item for item in self.maps if item.kind == kind), self.source)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return tuple(dict.fromkeys(item.kind for item in self.maps))

    @property
    def shape(self) -> tuple[int, int]:
        """The number of layers, and the largest number of heads in a layer."""
        return len(self.maps), max((len(item.weights) for item in self.maps), default=0)

    def map(self, layer: int) -> AttentionMap:
        return self.maps[layer]

    @property
    def numbers(self) -> tuple[int, ...]:
        """The model's own numbers of the layers."""
        return tuple(item.layer_number for item in self.maps)

    def label(self, layer: int, head: int) -> str:
        """A head's name by the model's own number of its layer, such as L3·H1."""
        return head_name(self.maps[layer].layer_number, head)

    def head(self, layer: int, head: int) -> np.ndarray:
        """The weights (T, S) of one head."""
        return self.maps[layer].weights[head]


def head_name(number: int, head: int) -> str:
    """A head's name by the number of its layer, such as L3·H1."""
    return f"L{number}·H{head}"


def to_numpy(values: Tensor) -> np.ndarray:
    """A tensor as a NumPy array, from any device; half precision becomes float32."""
    values = values.detach().cpu()
    array: np.ndarray = (
        values.float() if values.dtype in (torch.bfloat16, torch.float16) else values
    ).numpy()
    return array
