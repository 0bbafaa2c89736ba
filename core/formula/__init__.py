"""Formulas typed by a person: `score - 0.5*abs(i-j)`, or `j <= i and i - j < 4 or j == 0`, as tensor operations.

A parser reads them into a tree of a few known operations; none of the text is executed as Python.
"""

from core.formula.formula import Formula, parse
from core.formula.tree import MAX_DEPTH, MAX_NODES, MAX_TEXT, FormulaError

__all__ = ["MAX_DEPTH", "MAX_NODES", "MAX_TEXT", "Formula", "FormulaError", "parse"]
