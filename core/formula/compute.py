"""Computes the tree of a formula on tensors, cell by cell with Python's arithmetic; results must be finite."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

import torch
from torch import Tensor

from core.formula.tree import FormulaError, Node

Operation = Callable[..., Tensor]


class Grid(Protocol):
    """What a formula reads of a ScoreBlock: positions, and the sizes of the whole matrix."""

    @property
    def i(self) -> Tensor: ...
    @property
    def j(self) -> Tensor: ...
    @property
    def num_heads(self) -> int: ...
    @property
    def num_queries(self) -> int: ...
    @property
    def num_keys(self) -> int: ...


def power(base: Tensor, exponent: Tensor) -> Tensor:
    """base ** exponent, with gradient 0 where it is undefined: for a base of 0, and to the exponent of a base ≤ 0."""
    zero, exponent = base == 0, torch.where(base > 0, exponent, exponent.detach())
    return torch.where(zero, base.detach() ** exponent, torch.where(zero, 1.0, base) ** exponent)


def root(x: Tensor) -> Tensor:
    """√x with gradient 0 at 0, where it is undefined."""
    zero = x == 0
    return torch.where(zero, 0.0, torch.where(zero, 1.0, x).sqrt())


ARITHMETIC: dict[str, Operation] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "%": torch.remainder,
    "**": power,
    "minus": operator.neg,
    "plus": operator.pos,
    "abs": torch.abs,
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": root,
    "tanh": torch.tanh,
    "floor": torch.floor,
    "sin": torch.sin,
    "cos": torch.cos,
    "min": lambda *parts: reduce(torch.minimum, parts),
    "max": lambda *parts: reduce(torch.maximum, parts),
}
COMPARE: dict[str, Operation] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
BROKEN = {
    "/": "this divides by zero",
    "%": "this divides by zero",
    "log": "log needs a number above 0",
    "sqrt": "sqrt needs a number from 0",
    "**": "this power is no finite number",
}


@dataclass(frozen=True)
class Computer:
    """Computes a tree over some cells; `zero` gives the dtype and device of its numbers."""

    text: str
    cells: Grid
    values: Mapping[str, Tensor]
    zero: Tensor

    def of(self, node: Node, needed: Tensor | None = None) -> Tensor:
        """The value of a node where it is `needed` (everywhere when None); elsewhere any finite one.

        FormulaError names the first needed cell that would not be finite.
        """
        if node.op == "number":
            return self.zero + node.value
        if node.op in self.values:
            return self.values[node.op]
        if node.op == "compare":
            return self.compare(node, needed)
        if node.op == "not":
            return ~self.of(node.parts[0], needed)
        if node.op in ("and", "or"):
            left = self.of(node.parts[0], needed)
            right = self.of(node.parts[1], _both(needed, left if node.op == "and" else ~left))
            return left & right if node.op == "and" else left | right
        if node.op == "where":
            condition = self.of(node.parts[0], needed)
            yes = self.of(node.parts[1], _both(needed, condition))
            return torch.where(condition, yes, self.of(node.parts[2], _both(needed, ~condition)))
        return self.arithmetic(node, [self.of(part, needed) for part in node.parts], needed)

    def compare(self, node: Node, needed: Tensor | None) -> Tensor:
        """a < b < c, whose c is needed only where a < b."""
        left, right = (self.of(part, needed) for part in node.parts[:2])
        holds = COMPARE[node.signs[0]](left, right)
        for sign, part in zip(node.signs[1:], node.parts[2:], strict=True):
            left, right = right, self.of(part, _both(needed, holds))
            holds = holds & COMPARE[sign](left, right)
        return holds

    def arithmetic(self, node: Node, parts: list[Tensor], needed: Tensor | None) -> Tensor:
        """The operation on its parts; FormulaError where a needed result is not finite though all parts are."""
        result = ARITHMETIC[node.op](*parts)
        if bool(result.isfinite().all()):
            return result
        broken = reduce(operator.and_, (part.isfinite() for part in parts), ~result.isfinite())
        blamed = broken if needed is None else broken & needed
        if bool(blamed.any()):
            raise FormulaError(
                self.text,
                node.at,
                BROKEN.get(node.op, "this becomes too large") + self.place(blamed),
            )
        # Cells that are not needed get inputs of 1, so that their gradient is not NaN.
        return ARITHMETIC[node.op](*(torch.where(broken, 1.0, part) for part in parts))

    def place(self, blamed: Tensor) -> str:
        """The position of the first blamed cell."""
        at = blamed.nonzero()[0].tolist()
        sizes = blamed.shape
        named = [f"h = {at[-3]}"] if blamed.dim() > 2 and sizes[-3] > 1 else []
        named += (
            [f"i = {int(self.cells.i[at[-2], 0])}"] if blamed.dim() > 1 and sizes[-2] > 1 else []
        )
        named += (
            [f"j = {int(self.cells.j[0, at[-1]])}"] if blamed.dim() > 1 and sizes[-1] > 1 else []
        )
        cell = f", first at {', '.join(named)}" if named else ""
        return f"{cell}; where(condition, this, other) leaves such cells out."


def _both(needed: Tensor | None, condition: Tensor) -> Tensor:
    return condition if needed is None else needed & condition
