"""Formulas typed by a person: `score - 0.5*abs(i-j)`, or `j <= i and i - j < 4 or j == 0`, as tensor operations.

Python's own parser reads them, and a tree of a few known operations is made of what it read; nothing is executed.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor

from core.attention.base import ScoreBlock
from core.entries import ConfigError

# The parts of a formula: names, functions and operators, with the types that they take and give.


Kind = Literal["score", "mask"]
Type = Literal["number", "truth value"]

MAX_TEXT = 400  # characters
MAX_NODES = 120  # operations, names and numbers together
LARGEST = 1e30  # of a typed number; far below what overflows in fp32

NAMES: dict[Kind, tuple[str, ...]] = {
    "score": ("score", "i", "j", "h", "T", "S"),
    "mask": ("i", "j", "h", "T", "S"),
}
# how many arguments each takes; min and max take two or more
FUNCTIONS: dict[str, tuple[int, int]] = {
    **dict.fromkeys(("abs", "exp", "log", "sqrt", "tanh", "floor", "sin", "cos"), (1, 1)),
    **dict.fromkeys(("min", "max"), (2, 8)),
    "where": (3, 3),
}
SYMBOLS: dict[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.USub: "minus",
    ast.UAdd: "plus",
    ast.Not: "not",
    ast.And: "and",
    ast.Or: "or",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}


class FormulaError(ConfigError):
    """A formula that cannot be read or computed; `at` is the index of the character concerned."""

    def __init__(self, text: str, at: int, why: str) -> None:
        super().__init__(f"Formula {text[:MAX_TEXT]!r}, character {at + 1}: {why}")
        self.text, self.at, self.why = text, at, why

    def pointed(self) -> str:
        """The formula with a caret below the character, for a code font."""
        line = self.text.replace("\n", " ").replace("\t", " ")
        return f"{line}\n{' ' * self.at}^"


@dataclass(frozen=True)
class Node:
    """One operation: `op` is an operator, a function, a name, "compare" or "number"; `at` its index in the text."""

    op: str
    parts: tuple[Node, ...]
    gives: Type
    at: int
    value: float = 0.0  # of a number
    signs: tuple[str, ...] = ()  # of a comparison, one fewer than its parts

    def names(self) -> frozenset[str]:
        """All names in the tree."""
        name = frozenset({self.op}) if self.op in NAMES["score"] else frozenset()
        return name.union(*(part.names() for part in self.parts))


# Computes the tree of a formula on tensors, cell by cell with Python's arithmetic; results must be finite.


Operation = Callable[..., Tensor]


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
    cells: ScoreBlock
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
        if node.op == "compare":  # a < b < c, whose c is needed only where a < b
            left, right = (self.of(part, needed) for part in node.parts[:2])
            holds = COMPARE[node.signs[0]](left, right)
            for sign, part in zip(node.signs[1:], node.parts[2:], strict=True):
                left, right = right, self.of(part, _both(needed, holds))
                holds = holds & COMPARE[sign](left, right)
            return holds
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
        blamed = blamed[(None,) * (3 - blamed.dim())]
        *_, head, row, column = blamed.nonzero()[0].tolist()
        places = {
            "h": head if blamed.shape[-3] > 1 else None,
            "i": int(self.cells.i[row, 0]) if blamed.shape[-2] > 1 else None,
            "j": int(self.cells.j[0, column]) if blamed.shape[-1] > 1 else None,
        }
        named = ", ".join(f"{name} = {at}" for name, at in places.items() if at is not None)
        cell = f", first at {named}" if named else ""
        return f"{cell}; where(condition, this, other) leaves such cells out."


def _both(needed: Tensor | None, condition: Tensor) -> Tensor:
    return condition if needed is None else needed & condition


# A formula as LaTeX, with brackets only where the reading needs them.


LATEX_COMPARE = {"<": "<", "<=": r"\le", ">": ">", ">=": r"\ge", "==": "=", "!=": r"\ne"}
# precedence; operations that are not listed need no brackets
TIGHT = {
    "where": 0,
    "or": 1,
    "and": 2,
    "compare": 4,
    "not": 5,
    "+": 5,
    "-": 5,
    "*": 6,
    "%": 6,
    "minus": 7,
    "plus": 7,
    "**": 8,
}
# how an operation is written, and the precedence from which each of its parts needs no brackets
LATEX: dict[str, tuple[str, tuple[int, ...]]] = {
    "or": (r"{} \vee {}", (1, 2)),
    "and": (r"{} \wedge {}", (2, 3)),
    "not": (r"\neg {}", (5,)),
    "+": ("{} + {}", (5, 6)),
    "-": ("{} - {}", (5, 6)),
    "*": (r"{} \cdot {}", (6, 7)),
    "%": (r"{} \bmod {}", (6, 7)),
    "minus": ("-{}", (7,)),
    "plus": ("+{}", (7,)),
    "**": ("{}^{{{}}}", (9, 0)),
    "/": (r"\frac{{{}}}{{{}}}", (0, 0)),
    "where": (r"\begin{{cases}} {1} & {0} \\ {2} & \text{{else}} \end{{cases}}", (0, 0, 0)),
    "abs": (r"\left|{}\right|", (0,)),
    "floor": (r"\left\lfloor{}\right\rfloor", (0,)),
    "sqrt": (r"\sqrt{{{}}}", (0,)),
    "exp": ("e^{{{}}}", (0,)),
}


def tree_latex(node: Node) -> str:
    """The node as LaTeX."""
    op, parts = node.op, node.parts
    if op == "number":
        return number(node.value)
    if not parts:
        return "s_{ij}" if op == "score" else op
    if op == "compare":
        first, *rest = (bracketed(part, TIGHT["+"]) for part in parts)
        return first + "".join(
            f" {LATEX_COMPARE[sign]} {part}" for sign, part in zip(node.signs, rest, strict=True)
        )
    inside, loose = r",\ ".join(["{}"] * len(parts)), (0,) * len(parts)
    template, least = LATEX.get(op, (rf"\{op}\left({inside}\right)", loose))
    # after an operator a sign needs brackets: a - (-b)
    signed = op in TIGHT and len(parts) == 2 and op != "**" and parts[1].op in ("minus", "plus")
    least = (least[0], TIGHT["**"]) if signed else least
    return template.format(*map(bracketed, parts, least))


def bracketed(part: Node, least: int) -> str:
    inside = tree_latex(part)
    loose = TIGHT.get(part.op, 9) < least or (part.op in ("/", "exp") and least > TIGHT["**"])
    return rf"\left({inside}\right)" if loose else inside


def number(value: float) -> str:
    """A typed number as short as it can be written exactly."""
    text = repr(value).removesuffix(".0")
    if "e" in text:
        digits, exponent = text.split("e")
        return rf"{digits} \cdot 10^{{{int(exponent)}}}"
    return text


# A parsed formula: computed on the cells of a score matrix, and written as LaTeX.


@dataclass(frozen=True)
class Formula:
    """A formula as its text and its tree; called with a ScoreBlock it gives the mask, or the new scores."""

    text: str
    kind: Kind
    tree: Node

    def __call__(self, block: ScoreBlock, score: Tensor | None = None) -> Tensor:
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
            name: torch.as_tensor(known[name], device=device).to(dtype)
            for name in self.tree.names()
        }
        result = Computer(self.text, block, values, torch.zeros((), dtype=dtype, device=device)).of(
            self.tree
        )
        shape = (block.i.shape[-2], block.j.shape[-1]) if score is None else score.shape
        result = result.expand(*result.shape[: -len(shape)], *shape)
        if score is None:
            return result
        out = result.to(score.dtype)
        if out.dtype != result.dtype and bool((~out.isfinite() & result.isfinite()).any()):
            raise FormulaError(
                self.text, self.tree.at, f"its values are too large for {score.dtype}."
            )
        return out

    def latex(self) -> str:
        """The formula as LaTeX; score is written s_{ij}."""
        return tree_latex(self.tree)


@lru_cache(maxsize=256)
def parse(text: str, kind: Kind) -> Formula:
    """Read a score formula (over score, i, j, h, T, S) or a mask formula (without score).

    Takes numbers, + - * / % **, comparisons (also chained), and, or, not, brackets and the FUNCTIONS, with Python's
    precedence and meaning. Bounded by MAX_TEXT characters and MAX_NODES operations. FormulaError points at the
    character that does not fit and says what would.
    """
    return Formula(text, kind, Reader(text, kind).formula())


# Typographic variants of signs, and what ends a line.
_TYPED = str.maketrans(
    {"−": "-", "–": "-", "×": "*", "·": "*", "÷": "/", "≤": "<=", "≥": ">=", "≠": "!="}
    | dict.fromkeys("\n\t", " ")
)
_STRANGE = re.compile(r"[^\w .+*/%<>=!(),^&|~-]|\.(?!\d)(?<!\d\.)", re.ASCII)
_WRONG = re.compile(r"//|&&?|\|\|?|\^|~|!(?!=)|(?<![<>=!])=(?!=)")
_INSTEAD = {
    "=": "==",
    "^": "**",
    "&": "and",
    "&&": "and",
    "|": "or",
    "||": "or",
    "!": "not",
    "~": "not",
    "//": "floor(a / b)",
}
_MEANINGLESS = "has no meaning here; numbers, names and + - * / % ** < <= > >= == != ( ) , do."


class Reader:
    """Makes the tree of a formula from that of Python's parser, whose parts know their places in the text."""

    def __init__(self, text: str, kind: Kind) -> None:
        self.text, self.kind, self.nodes = text, kind, 0
        spaces = len(text) - len(text.lstrip(" \n\t"))
        self.plain = text[spaces:].translate(_TYPED)
        # the index in the text of each character of `plain`, and of its end
        self.places = [
            spaces + at for at, one in enumerate(text[spaces:]) for _ in one.translate(_TYPED)
        ]
        self.places.append(len(text))

    def formula(self) -> Node:
        """The whole text, which must be of the type of its kind of formula."""
        if len(self.text) > MAX_TEXT:
            raise FormulaError(
                self.text,
                MAX_TEXT,
                f"it has {len(self.text):,} characters; at most {MAX_TEXT} are read.",
            )
        if strange := _STRANGE.search(self.plain):
            raise self.error(f"{strange[0]!r} {_MEANINGLESS}", strange.start())
        if wrong := _WRONG.search(self.plain):
            raise self.error(
                f"{wrong[0]} is not allowed here; write {_INSTEAD[wrong[0]]}.", wrong.start()
            )
        if not self.plain:
            example = "score - 0.5*abs(i-j)" if self.kind == "score" else "j <= i and i - j < 4"
            raise FormulaError(self.text, 0, f"it is empty; write for example {example}.")
        try:
            tree = self.read(ast.parse(self.plain, mode="eval").body)
        except SyntaxError as error:
            raise self.misread(error.offset - 1 if error.offset else len(self.plain)) from None
        except (MemoryError, RecursionError):
            raise self.error(
                "it has too many levels of brackets and signs; remove some.", 0
            ) from None
        type_: Type = "truth value" if self.kind == "mask" else "number"
        if tree.gives != type_:
            hint = (
                "compare it, as in i - j < 4"
                if self.kind == "mask"
                else "choose numbers by it: where(j < i, 1, 0)"
            )
            raise FormulaError(
                self.text,
                tree.at,
                f"a {self.kind} formula gives a {type_}, and this one gives a {tree.gives}; {hint}.",
            )
        return tree

    def misread(self, at: int) -> FormulaError:
        """What stands where Python's parser could not go on."""
        word = re.findall(r"\w+|\S|$", self.plain[at:])[0]
        if word == "(":
            return self.error(
                f"the bracket of character {self.places[at] + 1} is not closed; ) or an operator would fit.",
                len(self.plain),
            )
        place = f"{word} does not fit" if word else "the formula ends"
        return self.error(f"{place} where a number, a name, a function or ( would fit.", at)

    def read(self, part: ast.expr) -> Node:
        """The tree of an expression; FormulaError for what no formula may have."""
        self.nodes += 1
        at = part.col_offset
        if self.nodes > MAX_NODES:
            raise self.error(f"it has more than {MAX_NODES} operations, names and numbers.", at)
        match part:
            case ast.Constant(int() | float() as value) if not isinstance(value, bool):
                if value > LARGEST:
                    raise self.error(
                        f"{self.plain[at : part.end_col_offset]} is too large; at most {LARGEST:g}.",
                        at,
                    )
                return Node("number", (), "number", self.places[at], float(value))
            case ast.Name(name) if name in NAMES[self.kind]:
                return Node(name, (), "number", self.places[at])
            case ast.Name(name) if name in FUNCTIONS:
                raise self.error(f"{name} is a function; write {name}(…).", at)
            case ast.Name(name) | ast.Call(ast.Name(name)) if name not in FUNCTIONS:
                note = " (score is known in score formulas alone)" if name == "score" else ""
                raise self.error(
                    f"{name} is not known{note}; the names are {', '.join(NAMES[self.kind])} "
                    f"and the functions {', '.join(FUNCTIONS)}.",
                    at,
                )
            case ast.Call(ast.Name(name), args):
                low, high = FUNCTIONS[name]
                if not low <= len(args) <= high:
                    count = f"{low} to {high}" if low < high else str(low)
                    takes = f"{count} argument{'s' if high > 1 else ''}"
                    raise self.error(f"{name} takes {takes}; {len(args)} are given.", at)
                parts = [self.read(arg) for arg in args]
                if name != "where":
                    return self.node(name, parts, "number", "number", at)
                self.expect(parts[0], "truth value", "where")
                self.expect(parts[2], parts[1].gives, "where, whose two values are of one kind,")
                return Node(name, tuple(parts), parts[1].gives, self.places[at])
            case ast.UnaryOp(op, operand):
                type_: Type = "truth value" if isinstance(op, ast.Not) else "number"
                return self.node(SYMBOLS[type(op)], [self.read(operand)], type_, type_, at)
            case ast.BinOp(left, op, right) if sign := SYMBOLS.get(type(op)):
                parts = [self.read(left), self.read(right)]
                return self.node(sign, parts, "number", "number", self.find(sign, left))
            case ast.BoolOp(op, values):
                sign, tree = SYMBOLS[type(op)], self.read(values[0])
                for before, after in pairwise(values):
                    parts = [tree, self.read(after)]
                    place = self.find(sign, before)
                    tree = self.node(sign, parts, "truth value", "truth value", place)
                return tree
            case ast.Compare(left, ops, others) if all(type(op) in SYMBOLS for op in ops):
                signs = tuple(SYMBOLS[type(op)] for op in ops)
                parts = [self.read(one) for one in (left, *others)]
                tree = self.node(
                    "compare", parts, "number", "truth value", self.find(signs[0], left)
                )
                return replace(tree, signs=signs)
        raise self.error(f"{self.plain[at : part.end_col_offset]!r} {_MEANINGLESS}", at)

    def find(self, sign: str, left: ast.expr) -> int:
        """The place of an operator, which stands after its left side."""
        return self.plain.index(sign, left.end_col_offset)

    def node(self, op: str, parts: list[Node], takes: Type, gives: Type, at: int) -> Node:
        for part in parts:
            self.expect(part, takes, op)
        return Node(op, tuple(parts), gives, self.places[at])

    def expect(self, part: Node, type_: Type, owner: str) -> None:
        if part.gives != type_:
            owner = {"minus": "-", "plus": "+", "compare": "a comparison"}.get(owner, owner)
            hint = (
                "compare it, as in i < 4"
                if type_ == "truth value"
                else "where(…, 1, 0) makes a number of it"
            )
            raise FormulaError(
                self.text,
                part.at,
                f"{owner} takes a {type_} here, and this is a {part.gives}; {hint}.",
            )

    def error(self, why: str, at: int) -> FormulaError:
        return FormulaError(self.text, self.places[at], why)
