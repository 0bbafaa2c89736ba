"""Formulas typed by a person: `score - 0.5*abs(i-j)`, or `j <= i and i - j < 4 or j == 0`, as tensor operations.

A parser reads them into a tree of a few known operations; none of the text is executed as Python.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from core.entries import ConfigError

# The parts of a formula: names, functions and operators, with the types that they take and give.


Kind = Literal["score", "mask"]
Type = Literal["number", "truth value"]

MAX_TEXT = 400  # characters
MAX_NODES = 120  # operations, names and numbers together
MAX_DEPTH = 40  # brackets, signs, functions and operands within one another
LARGEST = 1e30  # of a typed number; far below what overflows in fp32

NAMES: dict[Kind, tuple[str, ...]] = {
    "score": ("score", "i", "j", "h", "T", "S"),
    "mask": ("i", "j", "h", "T", "S"),
}
MEANINGS = {
    "score": "the score",
    "i": "the position of the query",
    "j": "the position of the key",
    "h": "the head, from 0",
    "T": "the number of queries",
    "S": "the number of keys",
}
# how many arguments each takes; min and max take two or more
FUNCTIONS: dict[str, tuple[int, int]] = {
    "abs": (1, 1),
    "min": (2, 8),
    "max": (2, 8),
    "exp": (1, 1),
    "log": (1, 1),
    "sqrt": (1, 1),
    "tanh": (1, 1),
    "floor": (1, 1),
    "sin": (1, 1),
    "cos": (1, 1),
    "where": (3, 3),
}
COMPARISONS = ("<=", ">=", "==", "!=", "<", ">")
WORDS = ("and", "or", "not")


class FormulaError(ConfigError):
    """A formula that cannot be read or computed; `at` is the index of the character concerned."""

    def __init__(self, text: str, at: int, why: str) -> None:
        self.text, self.at, self.why = text, at, why
        super().__init__(f"Formula {text[:MAX_TEXT]!r}, character {at + 1}: {why}")

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
        name = frozenset({self.op}) if self.op in MEANINGS else frozenset()
        return name.union(*(part.names() for part in self.parts))


# Computes the tree of a formula on tensors, cell by cell with Python's arithmetic; results must be finite.


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


# A formula as LaTeX, with brackets only where the reading needs them.


SIGNS = {"+": "+", "-": "-", "*": r"\cdot", "%": r"\bmod", "and": r"\wedge", "or": r"\vee"}
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
AROUND = {
    "abs": (r"\left|", r"\right|"),
    "floor": (r"\left\lfloor", r"\right\rfloor"),
    "sqrt": (r"\sqrt{", "}"),
    "exp": ("e^{", "}"),
}


def tree_latex(node: Node) -> str:
    """The node as LaTeX."""
    op, parts = node.op, node.parts
    if op == "number":
        return number(node.value)
    if not parts:
        return "s_{ij}" if op == "score" else op
    if op == "/":
        return rf"\frac{{{tree_latex(parts[0])}}}{{{tree_latex(parts[1])}}}"
    if op == "**":
        return rf"{bracketed(parts[0], TIGHT[op] + 1)}^{{{tree_latex(parts[1])}}}"
    if op in ("minus", "plus", "not"):
        return {"minus": "-", "plus": "+", "not": r"\neg "}[op] + bracketed(parts[0], TIGHT[op])
    if op == "compare":
        first, *rest = (bracketed(part, TIGHT["+"]) for part in parts)
        return first + "".join(
            f" {LATEX_COMPARE[sign]} {part}" for sign, part in zip(node.signs, rest, strict=True)
        )
    if op in SIGNS:
        signed = parts[1].op in ("minus", "plus")
        left, right = (
            bracketed(parts[0], TIGHT[op]),
            bracketed(parts[1], TIGHT["**"] if signed else TIGHT[op] + 1),
        )
        return f"{left} {SIGNS[op]} {right}"
    if op == "where":
        condition, yes, no = map(tree_latex, parts)
        return rf"\begin{{cases}} {yes} & {condition} \\ {no} & \text{{else}} \end{{cases}}"
    inside = r",\ ".join(map(tree_latex, parts))
    if op in AROUND:
        left, right = AROUND[op]
        return f"{left}{inside}{right}"
    return rf"\{op}\left({inside}\right)"


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
        return tree_latex(self.tree)


@lru_cache(maxsize=256)
def parse(text: str, kind: Kind) -> Formula:
    """Read a score formula (over score, i, j, h, T, S) or a mask formula (without score).

    Takes numbers, + - * / % **, comparisons (also chained), and, or, not, brackets and the FUNCTIONS, with Python's
    precedence and meaning. Bounded by MAX_TEXT characters, MAX_NODES operations and MAX_DEPTH levels. FormulaError
    points at the character that does not fit and says what would.
    """
    return Formula(text, kind, Parser(text, kind).formula())


_TOKEN = re.compile(
    r"(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)|(?P<name>[A-Za-z_][A-Za-z_0-9]*)"
    r"|(?P<sign>\*\*|//|<=|>=|==|!=|&&|\|\||[-+*/%<>(),=^&|!~])"
)
# Typographic variants of signs; positions in the text do not change.
_TYPED = str.maketrans({"−": "-", "–": "-", "×": "*", "·": "*", "÷": "/"})
_PAIRS = {"≤": "<=", "≥": ">=", "≠": "!="}
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
# Precedence as in Python; `not` and the signs are prefix operators.
LEVELS = {
    "or": 1,
    "and": 2,
    **dict.fromkeys(COMPARISONS, 4),
    "+": 5,
    "-": 5,
    "*": 6,
    "/": 6,
    "%": 6,
    "**": 8,
}
NOT = 3


@dataclass(frozen=True)
class Token:
    text: str
    kind: str  # number, name, sign or end
    at: int


def tokens(text: str) -> list[Token]:
    """The tokens of a formula; FormulaError at the first character that fits none."""
    if len(text) > MAX_TEXT:
        raise FormulaError(
            text, MAX_TEXT, f"it has {len(text):,} characters; at most {MAX_TEXT} are read."
        )
    parts, at, plain = [], 0, text.translate(_TYPED)
    while at < len(plain):
        if plain[at] in " \t\n":
            at += 1
        elif plain[at] in _PAIRS:
            parts.append(Token(_PAIRS[plain[at]], "sign", at))
            at += 1
        elif match := _TOKEN.match(plain, at):
            if match[0] in _INSTEAD:
                raise FormulaError(
                    text, at, f"{match[0]} is not allowed here; write {_INSTEAD[match[0]]}."
                )
            parts.append(Token(match[0], str(match.lastgroup), at))
            at = match.end()
        else:
            raise FormulaError(
                text,
                at,
                f"{text[at]!r} has no meaning here; numbers, names and "
                "+ - * / % ** < <= > >= == != ( ) , do.",
            )
    return [*parts, Token("", "end", len(text))]


class Parser:
    """Reads one formula by precedence climbing; each method returns the tree of what it read."""

    def __init__(self, text: str, kind: Kind) -> None:
        self.text, self.kind = text, kind
        self.tokens, self.next = tokens(text), 0
        self.depth = self.nodes = 0

    def formula(self) -> Node:
        """The whole text, which must be of the type of its kind of formula."""
        if self.token.kind == "end":
            example = "score - 0.5*abs(i-j)" if self.kind == "score" else "j <= i and i - j < 4"
            raise self.error(f"it is empty; write for example {example}.", 0)
        tree = self.tree()
        if self.token.kind != "end":
            raise self.error(f"{self.token.text} does not fit here; an operator or the end would.")
        type_: Type = "truth value" if self.kind == "mask" else "number"
        if tree.gives != type_:
            hint = (
                "compare it, as in i - j < 4"
                if self.kind == "mask"
                else "choose numbers by it: where(j < i, 1, 0)"
            )
            raise self.error(
                f"a {self.kind} formula gives a {type_}, and this one gives a {tree.gives}; {hint}.",
                tree.at,
            )
        return tree

    def tree(self, least: int = 0) -> Node:
        """An expression of operators of at least precedence `least`."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.error(f"it has more than {MAX_DEPTH} levels of brackets; remove some.")
        tree = self.first(least)
        while LEVELS.get(self.token.text, -1) >= least:
            tree = self.joined(tree, self.take())
        self.depth -= 1
        return tree

    def joined(self, left: Node, sign: Token) -> Node:
        """The operation of an operator, its left side and the right side that follows."""
        level = LEVELS[sign.text]
        if sign.text in WORDS:
            return self.node(
                sign.text, (left, self.tree(level + 1)), "truth value", "truth value", sign.at
            )
        if sign.text not in COMPARISONS:
            right = self.tree(level if sign.text == "**" else level + 1)
            return self.node(sign.text, (left, right), "number", "number", sign.at)
        parts, signs = [left, self.tree(level + 1)], [sign.text]
        while self.token.text in COMPARISONS:  # a < b < c is a < b and b < c, as in Python
            signs.append(self.take().text)
            parts.append(self.tree(level + 1))
        return replace(
            self.node("compare", tuple(parts), "number", "truth value", sign.at), signs=tuple(signs)
        )

    def first(self, least: int) -> Node:
        """The start of an expression: a sign, not, a number, a bracket, a name or a function."""
        token = self.token
        if token.text in ("-", "+"):
            self.take()
            part = self.tree(LEVELS["**"])
            return self.node(
                "minus" if token.text == "-" else "plus", (part,), "number", "number", token.at
            )
        if token.text == "not" and least <= NOT:
            self.take()
            return self.node("not", (self.tree(NOT),), "truth value", "truth value", token.at)
        if token.kind == "number":
            return self.number()
        if token.text == "(":
            self.take()
            tree = self.tree()
            self.close(token, "the bracket")
            return tree
        if token.kind == "name" and token.text not in WORDS:
            self.take()
            return self.call(token) if token.text in FUNCTIONS else self.name(token)
        place = "the formula ends" if token.kind == "end" else f"{token.text} stands"
        raise self.error(f"{place} where a number, a name, a function or ( would fit.")

    def number(self) -> Node:
        token = self.take()
        value = float(token.text)
        if value > LARGEST:
            raise self.error(f"{token.text} is too large; at most {LARGEST:g}.", token.at)
        return self.node("number", (), "number", "number", token.at, value)

    def name(self, token: Token) -> Node:
        if token.text not in NAMES[self.kind]:
            note = " (score is known in score formulas alone)" if token.text == "score" else ""
            raise self.error(
                f"{token.text} is not known{note}; the names are {', '.join(NAMES[self.kind])} "
                f"and the functions {', '.join(FUNCTIONS)}.",
                token.at,
            )
        return self.node(token.text, (), "number", "number", token.at)

    def call(self, name: Token) -> Node:
        low, high = FUNCTIONS[name.text]
        if self.token.text != "(":
            raise self.error(f"{name.text} is a function; write {name.text}(…).", name.at)
        opened = self.take()
        parts = [self.tree()]
        while self.token.text == ",":
            self.take()
            parts.append(self.tree())
        self.close(opened, f"{name.text}(")
        if not low <= len(parts) <= high:
            takes = (
                f"{low} to {high} arguments"
                if low < high
                else f"{low} argument{'s' if low > 1 else ''}"
            )
            raise self.error(f"{name.text} takes {takes}; {len(parts)} are given.", name.at)
        if name.text != "where":
            return self.node(name.text, tuple(parts), "number", "number", name.at)
        condition, yes, no = parts
        self.expect(condition, "truth value", "where")
        self.expect(no, yes.gives, "where, whose two values are of one kind,")
        return self.node("where", (condition, yes, no), None, yes.gives, name.at)

    def close(self, opened: Token, what: str) -> None:
        if self.token.text != ")":
            raise self.error(
                f"{what} of character {opened.at + 1} is not closed; ) or an operator would fit."
            )
        self.take()

    @property
    def token(self) -> Token:
        return self.tokens[self.next]

    def take(self) -> Token:
        token = self.token
        self.next += 1
        return token

    def node(
        self,
        op: str,
        parts: tuple[Node, ...],
        takes: Type | None,
        gives: Type,
        at: int,
        value: float = 0.0,
    ) -> Node:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise self.error(f"it has more than {MAX_NODES} operations, names and numbers.", at)
        for part in parts if takes else ():
            self.expect(part, takes, op)
        return Node(op, parts, gives, at, value)

    def expect(self, part: Node, type_: Type | None, owner: str) -> None:
        if part.gives != type_:
            owner = {"minus": "-", "plus": "+", "compare": "a comparison"}.get(owner, owner)
            hint = (
                "compare it, as in i < 4"
                if type_ == "truth value"
                else "where(…, 1, 0) makes a number of it"
            )
            raise self.error(
                f"{owner} takes a {type_} here, and this is a {part.gives}; {hint}.", part.at
            )

    def error(self, why: str, at: int | None = None) -> FormulaError:
        return FormulaError(self.text, self.token.at if at is None else at, why)
