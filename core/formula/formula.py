"""A parsed formula: computed on the cells of a score matrix, and written as LaTeX."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from core.formula.compute import Computer, Grid
from core.formula.latex import latex
from core.formula.read import Parser
from core.formula.tree import FormulaError, Kind, Node


@dataclass(frozen=True)
class Formula:
    """A formula as its text and its tree; called with a ScoreBlock it gives the mask, or the new scores."""

    text: str
    kind: Kind
    tree: Node

    @property
    def names(self) -> frozenset[str]:
        """The names it reads, of score, i, j, h, T and S."""
        return self.tree.names()

    def __call__(self, block: Grid, score: Tensor | None = None) -> Tensor:
        """A mask formula's truth values, bool (T, S) or (H, T, S); a score formula's new scores, (B, H, T, S).

        Scores keep their dtype and are computed in at least fp32. FormulaError, with the cell, where an operation on
        finite numbers gives one that is not. What `where`, `and` and `or` leave out is not computed, as in Python:
        `j > 0 and i / j > 2` does not divide by zero.
        """
        if self.kind == "score" and score is None:
            raise FormulaError(self.text, 0, "a score formula needs the scores.")
        device = block.i.device
        known: dict[str, Any] = {
            "h": torch.arange(block.num_heads, device=device)[:, None, None],
            "i": block.i,
            "j": block.j,
            "T": block.num_queries,
            "S": block.num_keys,
        }
        # positions are exact in fp64; not every device has it
        dtype = torch.float32 if device.type == "mps" else torch.float64
        if score is not None:
            known["score"] = score
            dtype = torch.promote_types(score.dtype, torch.float32)
        values = {
            name: torch.as_tensor(known[name], device=device).to(dtype) for name in self.names
        }
        result = Computer(self.text, block, values, torch.zeros((), dtype=dtype, device=device)).of(
            self.tree
        )
        shape = (block.i.shape[-2], block.j.shape[-1]) if score is None else score.shape
        result = result.expand(*result.shape[: -len(shape)], *shape)
        return result if score is None else self.in_dtype(result, score)

    def in_dtype(self, result: Tensor, score: Tensor) -> Tensor:
        out = result.to(score.dtype)
        if out.dtype != result.dtype and bool((~out.isfinite() & result.isfinite()).any()):
            raise FormulaError(
                self.text, self.tree.at, f"its values are too large for {score.dtype}."
            )
        return out

    def latex(self) -> str:
        """The formula as LaTeX; score is written s_{ij}."""
        return latex(self.tree)


@lru_cache(maxsize=256)
def parse(text: str, kind: Kind) -> Formula:
    """Read a score formula (over score, i, j, h, T, S) or a mask formula (without score).

    Takes numbers, + - * / % **, comparisons (also chained), and, or, not, brackets and the FUNCTIONS, with Python's
    precedence and meaning. Bounded by MAX_TEXT characters, MAX_NODES operations and MAX_DEPTH levels. FormulaError
    points at the character that does not fit and says what would.
    """
    return Formula(text, kind, Parser(text, kind).formula())
