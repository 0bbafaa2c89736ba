"""The equation of each stage: symbolic, and with the live numbers of one query and one key."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

import numpy as np

from core.attention import AttentionConfig, Choice, entry
from core.attention.positions import enters
from dashboard.draw.formats import added, coloured, latex, listed, name
from dashboard.draw.formats import latex_signed as signed
from dashboard.draw.step_view import Reading
from dashboard.views.one_query.text import is_root

MOST_TERMS = 6
LARGEST_POWER = 8  # above it e^s is a long number, and only the fraction of powers is written
BREAK = " \\\\ "  # where a long line may be broken
ROOT = re.compile(r" */ *\\sqrt\{D\}$")

Pick = Callable[[str], str]


def equation(
    reading: Reading, config: AttentionConfig, stage: int, focus: int, colour: str
) -> tuple[str, ...]:
    """LaTeX of a stage (1 to 6) for the picked query and a key, marked in `colour`: symbols, then numbers in parts."""
    write = (project, score, scale, mask, normalize, weighted_sum)[stage - 1]
    symbols, live = write(reading, config, focus, lambda text: coloured(text, colour))
    return symbols, *live.split(BREAK)


def first_latex(axis: str, choice: Choice) -> str:
    """The first equation of an entry; a typed formula has its own."""
    item = entry(axis, choice.key)
    for param in item.params:
        if param.parse is not None and callable(
            latex := getattr(param.parse(str(choice[param.key])), "latex", None)
        ):
            return str(latex())
    return item.latex.split(r",\quad")[0]


def pair(reading: Reading, j: int) -> str:
    return f"{name(reading.name, reading.query)},\\,{name(reading.keys[j], j)}"


def vector(values: np.ndarray) -> str:
    """The first numbers of a vector, in brackets."""
    return f"({listed(values.tolist())})"


def project(reading: Reading, config: AttentionConfig, j: int, pick: Pick) -> tuple[str, str]:
    i = reading.query
    symbols = first_latex("projection", config.projection)
    symbols = (
        symbols if symbols.startswith("q_i") else "q_i = x_i W_q"
    )  # later stages show the rest
    places = enters(config.position)
    if "q, k" in places:
        symbols = f"q_i = R_i({symbols.removeprefix('q_i = ')})"
    if "x" in places:
        symbols = symbols.replace("x_i", "(x_i + p_i)")
    return symbols, pick(f"q_{{{name(reading.name, i)}}}") + " = " + vector(reading.q[i])


def product(reading: Reading, x: np.ndarray, column: np.ndarray) -> tuple[str, ...]:
    """The first number of the query, x times the first column of W_q, in parts."""
    terms, first = products(x, column, MOST_TERMS), latex(reading.q[reading.query, 0])
    return (
        r"\quad\text{Its first number: }",
        terms[0],
        *(f"+ {term}" for term in terms[1:]),
        rf"= \mathbf{{{first}}}",
    )


def products(left: np.ndarray, right: np.ndarray, most: int) -> list[str]:
    """The first products of two vectors, and the sum of the others, so that what is shown adds up."""
    terms = [
        rf"{signed(a)} \cdot {signed(b)}" for a, b in zip(left[:most], right[:most], strict=True)
    ]
    if len(left) > most:
        rest = signed(float(left[most:] @ right[most:]))
        terms.append(rf"\underbrace{{{rest}}}_{{{len(left) - most}\text{{ more}}}}")
    return terms


def score(reading: Reading, config: AttentionConfig, j: int, pick: Pick) -> tuple[str, str]:
    i, result = reading.query, reading.raw[reading.query, j]
    left, value = pick(f"s_{{{pair(reading, j)}}}"), pick(rf"\mathbf{{{latex(result)}}}")
    if not math.isclose(float(reading.q[i] @ reading.k[j]), result, rel_tol=1e-4, abs_tol=1e-4):
        return "s_{ij} = " + ROOT.sub("", first_latex("score", config.score)), f"{left} = {value}"
    return (
        r"s_{ij} = q_i \cdot k_j",
        f"{left} = {' + '.join(products(reading.q[i], reading.k[j], 4))} = {value}",
    )


def scale(reading: Reading, config: AttentionConfig, j: int, pick: Pick) -> tuple[str, str]:
    i, dims = reading.query, reading.q.shape[1]
    symbols, live = "s_{ij}", latex(reading.raw[i, j])
    if reading.scale != 1 and is_root(reading):
        symbols, live = r"\frac{s_{ij}}{\sqrt{D}}", rf"\frac{{{live}}}{{\sqrt{{{dims}}}}}"
    elif reading.scale != 1:
        factor = latex(reading.scale)
        symbols, live = rf"{factor}\, s_{{ij}}", rf"{factor} \cdot {signed(reading.raw[i, j])}"
    rule = position_latex(config.position)
    if reading.bias is not None:
        live += added(float(reading.bias[i, j]))
        if not reading.adjusted:
            symbols += rule if rule.startswith("-") else f" + {rule}"
    left, result = (
        pick(f"b_{{{pair(reading, j)}}}"),
        pick(rf"\mathbf{{{latex(reading.scores[i, j])}}}"),
    )
    if reading.adjusted:  # the rule is of the whole score, from the left of the arrow
        return (
            rule if "=" in rule or "arrow" in rule else f"b_{{ij}} = {rule}",
            rf"{left}:\ {live} \;\to\; {result}",
        )
    return f"b_{{ij}} = {symbols}", f"{left} = {live} = {result}"


def mask(reading: Reading, config: AttentionConfig, j: int, pick: Pick) -> tuple[str, str]:
    i, allowed = reading.query, bool(reading.allowed[reading.query, j])
    rule = mask_latex(config.mask)
    symbols = rf"b_{{ij}} \leftarrow \begin{{cases}} b_{{ij}} & {rule} \\ -\infty & \text{{else}} \end{{cases}}"
    value = latex(reading.scores[i, j]) if allowed else r"-\infty"
    where = rf"\quad (i = {i},\ j = {j})"
    return symbols, pick(f"b_{{{pair(reading, j)}}}") + " = " + pick(rf"\mathbf{{{value}}}") + where


def position_latex(position: Choice) -> str:
    """What a position does to scores; of a joined one the rules of the parts that act there."""
    rules = [
        first_latex("position", leaf)
        for leaf in position.leaves()
        if not position.parts or enters(leaf) == {"scores"}
    ]
    return (r",\quad " if any("arrow" in rule for rule in rules) else " + ").join(rules)


def mask_latex(mask: Choice) -> str:
    """The condition under which a key is visible; a composed mask by its parts."""
    if not mask.parts:
        return first_latex("mask", mask)
    parts = [
        rf"({mask_latex(part)})" if part.parts or "\\vee" in mask_latex(part) else mask_latex(part)
        for part in mask.parts
    ]
    return (
        rf"\neg({parts[0]})"
        if mask.key == "not"
        else {"and": r" \wedge ", "or": r" \vee "}[mask.key].join(parts)
    )


def normalize(reading: Reading, config: AttentionConfig, j: int, pick: Pick) -> tuple[str, str]:
    """The normalizer's rule and result; every number of a softmax, and each map where a projection combines them."""
    i = reading.query
    left, value = (
        pick(f"w_{{{pair(reading, j)}}}"),
        pick(rf"\mathbf{{{latex(reading.weights[i, j])}}}"),
    )
    if reading.folded:
        maps = r",\quad ".join(
            f"a_{n + 1} = {latex(each[i, j])}" for n, each in enumerate(reading.normalized)
        )
        return first_latex("projection", config.projection), rf"{maps}{BREAK}\to\; {left} = {value}"
    if reading.reweighed:
        unfactored = float(reading.normalized[0][i, j])
        factor = float(reading.weights[i, j]) / unfactored if unfactored else 1.0
        return (
            r"w_{ij} = g_{ij}\, a_{ij}",
            rf"{left} = {latex(factor)} \cdot {latex(unfactored)} = {value}",
        )
    if not reading.allowed[i, j]:
        return weights_latex(config), f"{left} = " + pick(r"\mathbf{0}") + r"\quad (\text{masked})"
    if config.has("normalizer", "softmax"):
        return softmax(reading, config, j, left, value)
    total = (
        ""
        if reading.sums_to_one
        else rf"{BREAK}\quad \textstyle\sum_m w_{{im}} = {latex(reading.sum)}"
    )
    return weights_latex(config), f"{left} = {value}{total}"


def weights_latex(config: AttentionConfig) -> str:
    """The normalizer's equation, in b instead of s where b is free, as the stage before writes it."""
    rule = entry("normalizer", config.normalizer.key).latex
    return rule if "b_{i" in rule else rule.replace("s_{i", "b_{i")


def softmax(
    reading: Reading, config: AttentionConfig, j: int, left: str, value: str
) -> tuple[str, str]:
    i, tau = reading.query, float(config.normalizer["temperature"])
    allowed = [int(m) for m in reading.allowed[i].nonzero()[0]]
    top = r"b_{ij}" if tau == 1 else r"b_{ij} / \tau"
    below = top.replace("j", "m")
    symbols = rf"w_{{ij}} = \frac{{e^{{{top}}}}}{{\sum_{{{sum_over(config)}}} e^{{{below}}}}}"
    powers = {m: reading.scores[i, m] / tau for m in allowed}
    heaviest = sorted(allowed, key=lambda m: (m != j, -powers[m]))[:MOST_TERMS]
    terms = " + ".join(f"e^{{{latex(powers[m])}}}" for m in sorted(heaviest))
    terms += r" + \cdots" if len(allowed) > MOST_TERMS else ""
    live = rf"{left} ={BREAK}\frac{{e^{{{latex(powers[j])}}}}}{{{terms}}}"
    if max(abs(p) for p in powers.values()) < LARGEST_POWER:
        total = sum(math.exp(p) for p in powers.values())
        live += rf"{BREAK}= \frac{{{latex(math.exp(powers[j]))}}}{{{latex(total)}}}"
    return symbols, f"{live} = {value}"


def sum_over(config: AttentionConfig) -> str:
    """The keys that a sum runs over; m alone where the mask's rule is long."""
    rule = mask_latex(config.mask)
    short = config.mask.key != "none" and len(rule) <= 24 and re.search(r"\bj\b", rule)
    return re.sub(r"\bj\b", "m", rule) if short else "m"


def weighted_sum(reading: Reading, config: AttentionConfig, j: int, pick: Pick) -> tuple[str, str]:
    i = reading.query
    order: Sequence[int] = sorted(
        reading.allowed[i].nonzero()[0], key=lambda m: -abs(reading.weights[i, m])
    )
    terms = [
        rf"{latex(reading.weights[i, m])}\,v_{{{name(reading.keys[m], m)}}}"
        for m in sorted(order[:4])
    ]
    more = r" + \cdots" if len(order) > 4 else ""
    position_values = (
        "" if reading.position_values is None else " + " + vector(reading.position_values[i])
    )
    symbols = r"o_i = \sum_j w_{ij}\, v_j" + (r" + p_i" if position_values else "")
    left = pick(f"o_{{{name(reading.name, i)}}}")
    middle = (
        " = " + (" + ".join(terms) + more).replace("+ -", "- ") + position_values if terms else ""
    )
    return symbols, f"{left}{middle} = {vector(reading.out[i])}"
