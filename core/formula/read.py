"""Text to tree: a tokenizer, and a parser by precedence climbing, with Python's own levels.

Not ast.parse, which reports `&&`, `!` or a lone `=` only as "invalid syntax", at wrong positions after `≤` → `<=`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from core.formula import tree as known
from core.formula.tree import (
    LARGEST,
    MAX_DEPTH,
    MAX_NODES,
    MAX_TEXT,
    FormulaError,
    Kind,
    Node,
    Type,
)

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
    **dict.fromkeys(known.COMPARISONS, 4),
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
        if sign.text in known.WORDS:
            return self.node(
                sign.text, (left, self.tree(level + 1)), "truth value", "truth value", sign.at
            )
        if sign.text not in known.COMPARISONS:
            right = self.tree(level if sign.text == "**" else level + 1)
            return self.node(sign.text, (left, right), "number", "number", sign.at)
        parts, signs = [left, self.tree(level + 1)], [sign.text]
        while self.token.text in known.COMPARISONS:  # a < b < c is a < b and b < c, as in Python
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
        if token.kind == "name" and token.text not in known.WORDS:
            self.take()
            return self.call(token) if token.text in known.FUNCTIONS else self.name(token)
        place = "the formula ends" if token.kind == "end" else f"{token.text} stands"
        raise self.error(f"{place} where a number, a name, a function or ( would fit.")

    def number(self) -> Node:
        token = self.take()
        value = float(token.text)
        if value > LARGEST:
            raise self.error(f"{token.text} is too large; at most {LARGEST:g}.", token.at)
        return self.node("number", (), "number", "number", token.at, value)

    def name(self, token: Token) -> Node:
        if token.text not in known.NAMES[self.kind]:
            note = " (score is known in score formulas alone)" if token.text == "score" else ""
            raise self.error(
                f"{token.text} is not known{note}; the names are {', '.join(known.NAMES[self.kind])} "
                f"and the functions {', '.join(known.FUNCTIONS)}.",
                token.at,
            )
        return self.node(token.text, (), "number", "number", token.at)

    def call(self, name: Token) -> Node:
        low, high = known.FUNCTIONS[name.text]
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
