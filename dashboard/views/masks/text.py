"""What is seen, in words and as equations: counts, entropy and distance, one query's sum, and how deep a stack sees."""

from __future__ import annotations

import math
from html import escape

import numpy as np

from core.attention import Choice, entry
from core.formula import parse
from dashboard.charts.latex import name
from dashboard.charts.numbers import latex, number, percent
from dashboard.views.masks.compute import D_MODEL, HEADS, SEED, Look, Pattern, Sentence, distance, spread
from dashboard.widgets.panels import plain

MOST_TERMS = 3
TABLE = """
.masks-patterns { width: 100%; border-collapse: collapse; font-size: 14px; line-height: 20px; }
.masks-patterns caption { text-align: left; font-weight: 600; padding-bottom: 6px; }
.masks-patterns th { text-align: left; font-weight: 400; opacity: .62; }
.masks-patterns td, .masks-patterns th { padding: 3px 8px 3px 0; border-bottom: 1px solid rgba(127, 127, 127, .18); }
.masks-patterns td:nth-child(2) { opacity: .62; }
.masks-patterns :is(td, th):nth-child(n + 3) { text-align: right; font-variant-numeric: tabular-nums; }
"""


def fact(look: Look) -> str:
    """How many cells are left, and what that does to the weights."""
    seen, cells = int(look.allowed.sum()), look.allowed.size
    if seen == cells:
        return f"Nothing is masked: all **{cells}** cells are computed, and every weight stays as it was."
    blind = ""
    if look.blind:
        who = ", ".join(plain(look.names[i]) for i in look.blind[:4])
        more = f" and {len(look.blind) - 4} more" if len(look.blind) > 4 else ""
        blind = f" No key is left for {who}{more}, so the output there is 0."
    return (f"The mask leaves **{seen} of {cells}** cells, {percent(seen / cells)}. A row spreads over "
            f"**{number(spread(look.after))}** nats instead of {number(spread(look.before))} and looks "
            f"**{number(distance(look.after))}** tokens away instead of {number(distance(look.before))}.{blind}")


def conditions(head: int, notes: tuple[str, ...]) -> str:
    said = (f"Head {head} of {HEADS}, d_model {D_MODEL}, no positions. Weights are random (seed {SEED}), so the "
            "arithmetic is real and the preference means nothing yet. The exact kernel computes every cell and then "
            "masks; only a local or block-sparse kernel saves the time as well.")
    return " ".join([said, *notes])


def rule(mask: Choice) -> str:
    """Where a mask lets be seen, as LaTeX; a composed one by its parts, a typed one as typed."""
    if mask.parts:
        parts = [rf"\left({rule(part)}\right)" for part in mask.parts]
        return rf"\neg {parts[0]}" if mask.key == "not" else {"and": r" \wedge ", "or": r" \vee "}[mask.key].join(parts)
    if mask.key == "formula":
        return parse(str(mask["text"]), "mask").latex()
    return entry("mask", mask.key).latex.split(r",\quad w_{ij}")[0]


def said(mask: Choice) -> str:
    """A mask in a few plain signs, with its numbers."""
    if mask.parts:
        parts = [said(part) for part in mask.parts]
        return f"not ({parts[0]})" if mask.key == "not" else f" {mask.key} ".join(parts)
    item = entry("mask", mask.key)
    return (item.short or item.name).format(**dict(mask.params), length="length")


def title(mask: Choice) -> str:
    """What a map with this mask is called."""
    if mask.parts:
        parts = [title(part) for part in mask.parts]
        return f"Not {parts[0].lower()}" if mask.key == "not" else f"{parts[0]} {mask.key} {parts[1].lower()}"
    return entry("mask", mask.key).name


def equation(look: Look, mask: Choice, i: int, j: int, colour: str) -> tuple[str, ...]:
    """Whom query i may see, and its weight on key j with the live numbers, in parts between which a line may break."""
    def pick(text: str) -> str:
        return rf"\textcolor{{{colour}}}{{{text}}}"

    query, key = name(look.names[i], i), name(look.names[j], j)
    seen = [int(m) for m in np.flatnonzero(look.allowed[i])]
    first = rf"M_i = \{{\, j : {rule(mask)} \,\}} \quad"
    second = rf"{{M_{{{pick(query)}}} = {places(seen)} \quad}}"
    weight = pick(f"w_{{{query},\\,{key}}}")
    if j not in seen:
        zero = pick(r"\mathbf{0}")
        return first, second, rf"{weight} = {zero}\quad (j = {j} \notin M_i)"
    powers = look.scores[i]
    shown = sorted(sorted(seen, key=lambda m: (m != j, -powers[m]))[:MOST_TERMS])
    below = " + ".join(f"e^{{{latex(powers[m])}}}" for m in shown) + (r" + \cdots" if len(seen) > len(shown) else "")
    fraction = rf"\frac{{e^{{{latex(powers[j])}}}}}{{{below}}}"
    factor = "" if look.factor is None else rf" \cdot {latex(look.factor[i, j])}"
    result = pick(rf"\mathbf{{{latex(look.after[i, j])}}}")
    usual = rf"\quad \text{{without the mask }} {latex(look.before[i, j])}"
    # What stands in braces never breaks over two lines.
    return first, second, rf"{{{weight} = {fraction}{factor}}}", rf"{{= {result}{usual}}}"


def places(seen: list[int]) -> str:
    """A set of places, short where it is long."""
    if not seen:
        return r"\varnothing"
    if len(seen) > 2 and seen == list(range(seen[0], seen[-1] + 1)):
        return rf"\{{{seen[0]}, \ldots, {seen[-1]}\}}"
    shown = [str(j) for j in seen[:8]] + ([r"\ldots"] if len(seen) > 8 else [])
    return rf"\{{{', '.join(shown)}\}}"


def snippet(mask: Choice) -> str:
    """The same layer in a notebook."""
    return ("from core.attention import Attention, AttentionConfig, Choice\n\n"
            f"mask = {_written(mask)}\nlayer = Attention(AttentionConfig({D_MODEL}, {HEADS}, mask=mask))\n")


def _written(mask: Choice) -> str:
    inside = [repr(mask.key), *map(_written, mask.parts), *(f"{key}={value!r}" for key, value in mask.params)]
    return f"Choice.of({', '.join(inside)})"


def stack_fact(needed: np.ndarray) -> str:
    """How many layers connect everything that can be connected."""
    pairs, never, most = needed.size, int((needed == 0).sum()), int(needed.max(initial=0))
    layers = "One layer" if most == 1 else f"**{most}** layers"
    connect = "connects" if most == 1 else "connect"
    if not never:
        steps = [f"{percent(float((needed <= at).mean()))} after {at}" for at in range(1, min(most, 4))]
        short = f" ({', '.join(steps)})" if steps else ""
        return f"{layers} {connect} every token with every other{short}."
    if never == pairs - len(needed):
        return "No token ever hears of another, however many layers are stacked."
    return (f"{layers} {connect} all that this mask ever connects; **{never} of {pairs}** pairs never meet, however "
            "deep the stack.")


def pattern_table(patterns: list[Pattern], tokens: int) -> str:
    """Every pattern at its defaults: what it computes, and how deep a stack must be until all that can has met."""
    head = "".join(f"<th>{text}</th>" for text in ("pattern", "rule", "cells", "layers", "never meet"))
    rows = "".join(
        f"<tr><td>{escape(item.name)}</td><td>{escape(item.rule)}</td><td>{item.cells}</td><td>{item.layers}</td>"
        f"<td>{item.never or '–'}</td></tr>" for item in patterns)
    return (f"<table class='masks-patterns'><caption>Each pattern at its defaults, {tokens} tokens</caption>"
            f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table><style>{TABLE}</style>")


def batch_fact(sentences: list[Sentence]) -> str:
    """What padding would take, and that it takes nothing."""
    worst = max(sentences, key=lambda item: item.leak)
    words = plain(" ".join(worst.names[:worst.real]))
    total = sum(len(item.names) ** 2 for item in sentences)
    padding = sum((len(item.names) - item.real) * len(item.names) for item in sentences)
    return (f"{padding} of {total} cells are padding. Unmasked, the words of “{words}” would spend "
            f"**{number(worst.leak)}** of their weight on it; masked, **{number(leaked(worst))}**.")


def leaked(item: Sentence) -> float:
    """The mean weight that a sentence's words do put on padding."""
    return float(item.weights[: item.real, item.real:].sum(-1).mean()) if math.prod(item.weights.shape) else 0.0
