"""The equation of each stage: symbolic, and with the live numbers of one query and one key."""

from __future__ import annotations

import math
import re

from core.attention import AttentionConfig, Choice, entry
from dashboard.one_query.words import is_root
from dashboard.step_view import Reading, number

MOST_TERMS = 6
BREAK = " \\\\ "  # where a long line may be broken
SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")


def equation(reading: Reading, config: AttentionConfig, stage: int, focus: int, colour: str) -> tuple[str, ...]:
    """LaTeX of a stage (1 to 6) for the chosen query and a key: the symbols, then the live numbers in parts.

    The parts stand side by side, or one below the other on a phone; `colour` marks what was picked.
    """
    write = (project, score, scale, mask, normalize, weigh)[stage - 1]
    symbols, live = write(reading, config, focus, lambda text: rf"\textcolor{{{colour}}}{{{text}}}")
    return symbols, *live.split(BREAK)


def num(value: float) -> str:
    """A number for LaTeX; its minus is U+2212 there too."""
    text = number(value).replace("−", "-")
    return r"\text{NaN}" if "not" in text else text.replace("∞", r"\infty")


def signed(value: float) -> str:
    """A number that follows an operator, in brackets when it is negative."""
    return f"({num(value)})" if num(value).startswith("-") else num(value)


def name(label: str, at: int) -> str:
    """A token inside LaTeX: as it is when it is plain letters, else its place."""
    return rf"\text{{{label}}}" if len(label) <= 12 and set(label) <= SAFE and label else str(at)


def pair(reading: Reading, j: int) -> str:
    return f"{name(reading.name, reading.query)},\\,{name(reading.keys[j], j)}"


def listed(values, most: int = 4) -> str:
    shown = [num(v) for v in values[:most]]
    return "(" + r",\ ".join(shown + ([r"\ldots"] if len(values) > most else [])) + ")"


def project(reading, config, j, pick):
    i = reading.query
    symbols = part_of("projection", config.projection.key)
    enters = entry("position", config.position.key).enters
    if enters == "q, k":
        symbols = symbols.replace("q_i = ", "q_i = R_i ")
    if enters == "x":
        symbols = symbols.replace("x_i", "(x_i + p_i)")
    return symbols, pick(f"q_{{{name(reading.name, i)}}}") + " = " + listed(reading.q[i])


def score(reading, config, j, pick):
    i, key = reading.query, config.score.key
    left = pick(f"s_{{{pair(reading, j)}}}")
    result = pick(rf"\mathbf{{{num(reading.raw[i, j])}}}")
    if key not in ("dot", "scaled_dot"):
        return "s_{ij} = " + entry("score", key).latex, f"{left} = {result}"
    terms = [rf"{signed(a)} \cdot {signed(b)}" for a, b in zip(reading.q[i][:4], reading.k[j][:4], strict=True)]
    more = r" + \cdots" if reading.q.shape[1] > 4 else ""
    return r"s_{ij} = q_i^\top k_j", f"{left} = {' + '.join(terms)}{more} = {result}"


def scale(reading, config, j, pick):
    i, dims = reading.query, reading.q.shape[1]
    symbols, live = "s_{ij}", num(reading.raw[i, j])
    if reading.scale != 1 and is_root(reading):
        symbols, live = r"\frac{s_{ij}}{\sqrt{D}}", rf"\frac{{{live}}}{{\sqrt{{{dims}}}}}"
    elif reading.scale != 1:
        symbols, live = rf"{num(reading.scale)}\, s_{{ij}}", rf"{num(reading.scale)} \cdot {signed(reading.raw[i, j])}"
    if reading.bias is not None:
        bias, value = part_of("position", config.position.key), reading.bias[i, j]
        symbols += f" {bias}" if bias.startswith("-") else f" + {bias}"
        live += f" - {num(-value)}" if value <= 0 else f" + {num(value)}"
    result = pick(rf"\mathbf{{{num(reading.scores[i, j])}}}")
    return f"b_{{ij}} = {symbols}", pick(f"b_{{{pair(reading, j)}}}") + f" = {live} = {result}"


def mask(reading, config, j, pick):
    i, allowed = reading.query, bool(reading.allowed[reading.query, j])
    rule = mask_latex(config.mask)
    symbols = rf"b_{{ij}} \leftarrow \begin{{cases}} b_{{ij}} & {rule} \\ -\infty & \text{{else}} \end{{cases}}"
    value = num(reading.scores[i, j]) if allowed else r"-\infty"
    where = rf"\quad (i = {i},\ j = {j})"
    return symbols, pick(f"b_{{{pair(reading, j)}}}") + " = " + pick(rf"\mathbf{{{value}}}") + where


def normalize(reading, config, j, pick):
    i, tau = reading.query, float(config.normalizer["temperature"])
    allowed = [int(m) for m in reading.allowed[i].nonzero()[0]]
    top = r"b_{ij}" if tau == 1 else r"b_{ij} / \tau"
    below = top.replace("j", "m")
    symbols = rf"w_{{ij}} = \frac{{e^{{{top}}}}}{{\sum_{{{sum_over(config)}}} e^{{{below}}}}}"
    left = pick(f"w_{{{pair(reading, j)}}}")
    if j not in allowed:
        return symbols, f"{left} = " + pick(r"\mathbf{0}") + r"\quad (e^{-\infty} = 0)"
    powers = {m: reading.scores[i, m] / tau for m in allowed}
    result = pick(rf"\mathbf{{{num(reading.weights[i, j])}}}")
    heaviest = sorted(allowed, key=lambda m: (m != j, -powers[m]))[:MOST_TERMS]
    shown = " + ".join(f"e^{{{num(powers[m])}}}" for m in sorted(heaviest))
    shown += r" + \cdots" if len(allowed) > MOST_TERMS else ""
    live = rf"{left} = \frac{{e^{{{num(powers[j])}}}}}{{{shown}}}"
    if max(abs(p) for p in powers.values()) < 8:
        total = sum(math.exp(p) for p in powers.values())
        live += rf"{BREAK}= \frac{{{num(math.exp(powers[j]))}}}{{{num(total)}}}"
    return symbols, f"{live} = {result}"


def sum_over(config: AttentionConfig) -> str:
    return "m" if config.mask.key == "none" else re.sub(r"\bj\b", "m", mask_latex(config.mask))


def mask_latex(mask: Choice) -> str:
    """Where a mask lets be seen; a composed one by its parts."""
    if not mask.parts:
        return entry("mask", mask.key).latex
    parts = [mask_latex(part) for part in mask.parts]
    return rf"\neg({parts[0]})" if mask.key == "not" else {"and": r" \wedge ", "or": r" \vee "}[mask.key].join(parts)


def part_of(axis: str, key: str) -> str:
    """The first of the equations that an entry is written in."""
    return entry(axis, key).latex.split(r",\quad")[0]


def weigh(reading, config, j, pick):
    i = reading.query
    order = sorted(reading.allowed[i].nonzero()[0], key=lambda m: -reading.weights[i, m])
    terms = [rf"{num(reading.weights[i, m])}\,v_{{{name(reading.keys[m], m)}}}" for m in sorted(order[:4])]
    more = r" + \cdots" if len(order) > 4 else ""
    left = pick(f"o_{{{name(reading.name, i)}}}")
    middle = " = " + " + ".join(terms) + more if terms else ""
    return r"o_i = \sum_j w_{ij}\, v_j", f"{left}{middle} = {listed(reading.out[i])}"
