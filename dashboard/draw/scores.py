"""Scores: its sentences of numbers, equations, maps and rows of the table."""

from collections.abc import Iterator, Sequence

import numpy as np

from core.attention import Choice, entry
from core.attention.properties import PROBE_DIMS, ScoreProperties
from core.studies import scores as study
from core.studies.efficient import Saved
from dashboard.draw import formats
from dashboard.draw.attention_view import Tile
from dashboard.draw.components import source_of
from dashboard.draw.formats import coloured, latex, latex_signed, number, plain, share_text, written

BASELINE = "scaled_dot"
MAX_TERMS = 3  # of an equation
HEAD = (
    "score",
    "rule",
    "parameters",
    "time",
    "× dot",
    "memory",
    "rank",
    "symmetric",
    "query × 2",
    "rotated",
)


def fact_text(
    maps: Sequence[study.ScoreMaps], tokens: Sequence[str], query: int, stretch: float
) -> str:
    column = study.favourite(maps, query)
    agree = sum(int(each.weights[query].argmax()) == column for each in maps)
    high = max(maps, key=lambda each: float(each.weights[query, column]))
    low = min(maps, key=lambda each: float(each.weights[query, column]))
    sentence = (
        f"By {agree} of {len(maps)} scores :primary[{plain(tokens[query])}] takes most from "
        f"{plain(tokens[column])}: by {lower(high.key)} **{share_text(high.weights[query, column])}**, "
        f"by {lower(low.key)} **{share_text(low.weights[query, column])}**. "
        f"Uniform weights would be {number(1 / len(tokens))}."
    )
    return sentence if stretch == 1.0 else f"{sentence} Each query is multiplied by {stretch:g}."


def equal_texts(maps: Sequence[study.ScoreMaps]) -> Iterator[str]:
    """A sentence for each two scores that agree up to rounding."""
    for at, one in enumerate(maps):
        for other in maps[at + 1 :]:
            largest = max(1.0, float(np.abs(one.scores).max()))
            if np.abs(one.scores - other.scores).max() < 1e-5 * largest:  # single precision
                yield (
                    f"{entry('score', one.key).name} and {lower(other.key)} give the same numbers here."
                )


def lower(key: str) -> str:
    text = entry("score", key).name
    return plain(text if text[:2].isupper() else text[0].lower() + text[1:])


def rule(each: study.ScoreMaps) -> str:
    short = entry("score", each.key).short
    return short if each.scale == 1.0 else f"{short} × {number(each.scale)}"


def score_latex(
    each: study.ScoreMaps, tokens: Sequence[str], i: int, j: int, colour: str
) -> tuple[str, str]:
    """The rule, and the score of query i and key j in numbers."""
    names = formats.latex_name(tokens[i], i), formats.latex_name(tokens[j], j)
    left = coloured(rf"s_{{{names[0]},\,{names[1]}}}", colour)
    result = coloured(rf"\mathbf{{{latex(each.scores[i, j])}}}", colour)
    general = "s_{ij} = " + entry("score", each.key).latex
    if each.factors is None:
        return general, f"{left} = {result}"
    first, second = (part[i, j] for part in each.factors)
    products = [
        rf"{latex_signed(a)} \cdot {latex_signed(b)}"
        for a, b in zip(first[:MAX_TERMS], second, strict=False)
    ]
    terms = " + ".join([*products, r"\cdots"] if len(first) > MAX_TERMS else products)
    if each.scale != 1.0:
        terms = rf"{latex(each.scale)} \cdot ({terms})"
    return general, f"{left} = {terms} = {result}"


def tile(each: study.ScoreMaps, marker: int, show: str, largest: float) -> Tile:
    """One score's map: its weights, or its scores on the common scale ± `largest` or on its own."""
    name, note = entry("score", each.key).name, ""
    if show == "weights":
        return Tile(name, note, each.weights, marker=marker)
    if show == "own":
        largest = float(np.abs(each.scores).max())
        note = f"± {number(largest)}"
    return Tile(name, note, each.scores, marker=marker, span=(-(largest or 1.0), largest or 1.0))


def query_tile(maps: Sequence[study.ScoreMaps], query: int, name: str) -> list[Tile]:
    """What one query takes from each key, a row a score."""
    rows = study.query_rows(maps, query)
    return [Tile(f"What “{name}” takes from", "rule (row), key (column)", rows, marker=-1)]


def cost_text(properties: dict[str, ScoreProperties], saved: Saved[dict[str, study.Timing]]) -> str:
    """Which score is slowest and which has the highest rank, by their keys, beside the baseline."""
    seconds = {
        key: saved.measured[key].seconds if key in saved.measured else 0.0 for key in properties
    }
    slowest = max(seconds, key=seconds.__getitem__)
    widest = max(properties, key=lambda key: properties[key].rank)
    dot = BASELINE if BASELINE in properties else next(iter(properties))
    return (
        f"{plain(entry('score', slowest).name)} takes **{number(seconds[slowest] / seconds[dot])} ×** as long as "
        f"{lower(dot)} (measured on {saved.date}). With {PROBE_DIMS} dimensions its matrix of "
        f"scores has rank {properties[slowest].rank}. The highest rank is **{properties[widest].rank}** "
        f"({lower(widest)}); {lower(dot)} reaches {properties[dot].rank}."
    )


def rows(
    maps: Sequence[study.ScoreMaps],
    properties: Sequence[ScoreProperties],
    times: Sequence[study.Timing | None],
) -> list[list[str]]:
    by_key = {each.key: time for each, time in zip(maps, times, strict=True)}
    dot = by_key.get(BASELINE, times[0])
    table = []
    for each, can, time in zip(maps, properties, times, strict=True):
        cost = ["–"] * 3
        if time and dot:
            share = time.seconds / dot.seconds
            cost = [
                formats.duration(time.seconds),
                written(f"{number(share)} ×", share),
                formats.byte_size(time.bytes),
            ]
        table.append(
            [
                entry("score", each.key).name,
                rule(each),
                formats.whole(each.parameters),
                *cost,
                str(can.rank),
                "yes" if can.symmetric else "no",
                written(f"× {number(can.doubling)}", can.doubling),
                written(f"± {number(can.rotation)}" if can.rotation else "no change", can.rotation),
            ]
        )
    return table


def snippet(choice: Choice, dims: int) -> str:
    return (
        "import torch\nfrom core.attention import Attention, AttentionConfig, Choice\n\n"
        f"config = AttentionConfig({dims}, 1, score={source_of(choice)})\n"
        f"steps = Attention(config)(torch.randn(1, 6, {dims}))\n"
        "print(steps.scores, steps.weights)\n"
    )
