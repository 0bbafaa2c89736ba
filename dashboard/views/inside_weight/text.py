"""Sentences about one weight, its equation with numbers, and the conditions."""

from __future__ import annotations

import numpy as np

from core.interpret.weight_breakdown import LayerAttention, WeightBreakdown
from dashboard.draw.formats import added, latex, name, number
from dashboard.draw.formats import latex_signed as signed
from dashboard.views.inside_weight.compute import Cell
from dashboard.widgets.panels import plain

MOST_TERMS = 2
TELLING = 3  # dimensions named in the fact


def weight_fact(head: str, one: WeightBreakdown, query: str, key: str) -> str:
    """How much the two agree, in which dimensions, and the weight that follows."""
    pair = (
        f"In head **{head}**, the query :primary[**{plain(query)}**] and the key **{plain(key)}**"
    )
    if not one.allowed:
        return f"{pair} have q·k = **{number(one.dot)}**, but the cell is masked, so its weight is **0**."
    largest = np.sort(one.products)[::-1] if one.dot >= 0 else np.sort(one.products)
    share, agree = float(largest[:TELLING].sum()), int((one.products > 0).sum())
    rank = 1 + int((one.scores > one.score).sum())
    visible = int(np.isfinite(one.scores).sum())
    rank_text = "the largest" if rank == 1 else f"number {rank}"
    extreme = "largest" if one.dot >= 0 else "most negative"
    return (
        f"{pair} have q·k = **{number(one.dot)}**: their signs agree in {agree} of {len(one.products)} dimensions, "
        f"and the {TELLING} {extreme} products sum to {number(share)}. The score, {number(one.score)}, is "
        f"{rank_text} of {visible} and gives the weight **{number(one.weight)}**; "
        f"uniform attention would give {number(1 / visible)}."
    )


def rotation_fact(one: WeightBreakdown, cell: Cell) -> str:
    """The product of q and k before and after rotation by their positions."""
    assert one.unrotated_q is not None and one.unrotated_k is not None
    before = float(one.unrotated_q @ one.unrotated_k)
    apart = abs(cell.query - cell.key)
    unit = "position" if apart == 1 else "positions"
    stretch = float(np.linalg.norm(one.q) / np.linalg.norm(one.unrotated_q))
    more = (
        f"The rotation also scales both by {number(stretch)}."
        if abs(stretch - 1) > 1e-3
        else "At the same position, rotation changes nothing."
    )
    return (
        f"Before rotation their product is {number(before)}; after it, {apart} {unit} apart, it is "
        f"{number(one.dot)}. {more}"
    )


def carried_fact(one: WeightBreakdown, query: str, key: str) -> str:
    """How much of the head's output for this query came through this weight."""
    whole = float(np.linalg.norm(one.out))
    share = float(one.contribution @ one.out) / whole**2 if whole else 0.0
    return (
        f"This weight adds α·v of {plain(key)}, of length {number(float(np.linalg.norm(one.contribution)))}, to "
        f"the output of {plain(query)}, of length {number(whole)}. Along the output, it contributes "
        f"**{100 * share:.0f} %**; the weight alone is {100 * one.weight:.0f} %.".replace("-", "−")
    )


def equation(
    cell: Cell, layer: LayerAttention, one: WeightBreakdown, query: str, key: str
) -> tuple[str, ...]:
    """LaTeX, symbols first, then the same with the numbers of this cell, one line a step."""
    pair = f"{name(query, cell.query)},\\,{name(key, cell.key)}"
    terms = [
        rf"{signed(float(a))} \cdot {signed(float(b))}" for a, b in zip(one.q, one.k, strict=True)
    ]
    dots = r" + \cdots" if len(terms) > MOST_TERMS else ""
    lines = [
        symbols(layer, one),
        rf"{latex(one.dot)} = q^\top k = {' + '.join(terms[:MOST_TERMS])}{dots}",
    ]
    if not one.allowed:
        return (
            *lines,
            rf"s_{{{pair}}} = -\infty \quad (\text{{masked}}), \qquad \alpha_{{{pair}}} = 0",
        )
    scaled = one.dot * one.scale
    step = _scaled(one) + ("" if one.bias is None else added(one.bias))
    value = scaled + (one.bias or 0.0)
    if one.capped is not None:
        step = rf"{latex(layer.softcap or 0)} \tanh\!\left(\frac{{{step}}}{{{latex(layer.softcap or 0)}}}\right)"
        value = one.capped
    lines.append(rf"s_{{{pair}}} = {step} = {latex(value)}")
    shift = float(one.scores.max())
    below = float(np.exp(one.scores - shift).sum()) + (
        0.0 if one.sink is None else float(np.exp(one.sink - shift))
    )
    over = rf"e^{{{latex(one.score)}{added(-shift)}}}"
    lines.append(rf"\alpha_{{{pair}}} = \frac{{{over}}}{{{below:.3f}}} = {one.weight:.4f}")
    return tuple(lines)


def _scaled(one: WeightBreakdown) -> str:
    """q·k times its scale, written as a division by a root where it is one."""
    if one.scale == 1:
        return latex(one.dot)
    if np.isclose(one.scale, len(one.q) ** -0.5):
        return rf"\frac{{{latex(one.dot)}}}{{\sqrt{{{len(one.q)}}}}}"
    return rf"{one.scale:.4f} \cdot {signed(one.dot)}"


def symbols(layer: LayerAttention, one: WeightBreakdown) -> str:
    """The family's rule in symbols: what is added, capped, and summed below the fraction."""
    inner = (
        r"q_i^\top k_j"
        if one.scale == 1
        else (
            r"\frac{q_i^\top k_j}{\sqrt{D}}"
            if np.isclose(one.scale, len(one.q) ** -0.5)
            else r"c\, q_i^\top k_j"
        )
    )
    inner = f"{inner} + b_{{i-j}}" if one.bias is not None else inner
    inner = (
        rf"\kappa \tanh\!\left(\tfrac{{1}}{{\kappa}}\left({inner}\right)\right)"
        if layer.softcap
        else inner
    )
    below = r"\sum_m e^{s_{im}}" + (r" + e^{\text{sink}}" if one.sink is not None else "")
    return rf"s_{{ij}} = {inner}, \qquad \alpha_{{ij}} = \frac{{e^{{s_{{ij}}}}}}{{{below}}}"


def conditions(
    source: str, cell: Cell, layer: LayerAttention, one: WeightBreakdown, own: float
) -> str:
    """What the numbers were made from, and how far they are from the model's own."""
    group, readers = layer.kv_group(cell.head)
    parts = [
        f"{plain(source)}: q, k and what is added to the scores are the model's own. The weight computed from "
        f"them is {one.weight:.7f}; the model's is {own:.7f}."
    ]
    if len(readers) > 1:
        parts.append(
            f"Key and value head {group} is read by query heads {readers[0]} to {readers[-1]}: "
            f"{len(layer.q)} query heads share {len(layer.k)}."
        )
    if layer.scale == 1 and one.bias is None:
        parts.append(
            "This family scales q before the product with k, so the product is not scaled again."
        )
    if one.sink is not None:
        share = 1 - float(one.weights.sum())
        parts.append(
            f"A learned sink scores {number(one.sink)} in this head and takes {number(share)} of this row."
        )
    return " ".join(parts)
