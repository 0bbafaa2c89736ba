"""A formula as LaTeX, with brackets only where the reading needs them."""

from __future__ import annotations

from core.formula.tree import Node

SIGNS = {"+": "+", "-": "-", "*": r"\cdot", "%": r"\bmod", "and": r"\wedge", "or": r"\vee"}
COMPARE = {"<": "<", "<=": r"\le", ">": ">", ">=": r"\ge", "==": "=", "!=": r"\ne"}
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


def latex(node: Node) -> str:
    """The node as LaTeX."""
    op, parts = node.op, node.parts
    if op == "number":
        return number(node.value)
    if not parts:
        return "s_{ij}" if op == "score" else op
    if op == "/":
        return rf"\frac{{{latex(parts[0])}}}{{{latex(parts[1])}}}"
    if op == "**":
        return rf"{bracketed(parts[0], TIGHT[op] + 1)}^{{{latex(parts[1])}}}"
    if op in ("minus", "plus", "not"):
        return {"minus": "-", "plus": "+", "not": r"\neg "}[op] + bracketed(parts[0], TIGHT[op])
    if op == "compare":
        first, *rest = (bracketed(part, TIGHT["+"]) for part in parts)
        return first + "".join(
            f" {COMPARE[sign]} {part}" for sign, part in zip(node.signs, rest, strict=True)
        )
    if op in SIGNS:
        signed = parts[1].op in ("minus", "plus")
        left, right = (
            bracketed(parts[0], TIGHT[op]),
            bracketed(parts[1], TIGHT["**"] if signed else TIGHT[op] + 1),
        )
        return f"{left} {SIGNS[op]} {right}"
    if op == "where":
        condition, yes, no = map(latex, parts)
        return rf"\begin{{cases}} {yes} & {condition} \\ {no} & \text{{else}} \end{{cases}}"
    inside = r",\ ".join(map(latex, parts))
    if op in AROUND:
        left, right = AROUND[op]
        return f"{left}{inside}{right}"
    return rf"\{op}\left({inside}\right)"


def bracketed(part: Node, least: int) -> str:
    inside = latex(part)
    loose = TIGHT.get(part.op, 9) < least or (part.op in ("/", "exp") and least > TIGHT["**"])
    return rf"\left({inside}\right)" if loose else inside


def number(value: float) -> str:
    """A typed number as short as it can be written exactly."""
    text = repr(value).removesuffix(".0")
    if "e" in text:
        digits, exponent = text.split("e")
        return rf"{digits} \cdot 10^{{{int(exponent)}}}"
    return text
