"""All mechanisms: its sentences of numbers, and its tables as Markdown."""

from collections.abc import Iterable, Sequence

import numpy as np

from core.attention import Entry, Param, needs
from core.attention.difference import HIDDEN
from core.interpret import trace as analysis
from core.studies import mechanisms as study
from dashboard.draw.attention_view import Tile
from dashboard.draw.formats import number, plain

MIN_NUMBER = 5e-3  # a smaller change of a number is not written


def fact_text(item: Entry, effect: study.Effect, query: int, column: int) -> str:
    before, after = effect.baseline.weights, effect.result.weights
    was, now = float(before[query, column]), float(after[query, column])
    name, row = plain(item.name), f":primary[{plain(effect.names[query])}]"
    key = f"“{plain(effect.names[column])}”"
    if not effect.changes:
        if item.key == "fused":
            name = "Fused (FlashAttention) is faster and needs less memory, and"
        return f"{name} changes no weight here: {row} takes **{number(now)}** from {key} with it and without it."
    text = f"With {name}, {row} takes **{number(now)}** from {key} instead of {number(was)}."
    total = float(after[query].sum())
    if abs(total - 1) >= MIN_NUMBER:
        text += f" The weights of this query sum to **{number(total)}**."
    return text


def tile_note(axis: str, item: Entry, effect: study.Effect) -> str:
    """The line over the map: source, what the choice needs beside it, and whether its weights are implied."""
    others = " and ".join(f"{other} = {name}" for other, name in needs(axis, item.key).items())
    parts = (
        item.paper and f"{item.paper} {item.year}",
        others and f"with {others}",
        "implied weights" if effect.result.implied else "",
    )
    return " · ".join(filter(None, parts)) or axis


def contrast_tiles(mine: np.ndarray, ours: np.ndarray, beside: str) -> list[Tile]:
    """Two maps of one step on one scale, without the cells that are −∞."""
    visible = [one > HIDDEN for one in (mine, ours)]
    numbers = np.concatenate([one[seen] for one, seen in zip((mine, ours), visible, strict=True)])
    low, high = float(numbers.min(initial=0.0)), float(numbers.max(initial=1e-6))
    largest = max(-low, high)
    span = (-largest, largest) if low < 0 else (0.0, high)
    return [
        Tile(name, "", np.where(seen, one, 0.0), seen, span=span, signed=low < 0)
        for name, one, seen in zip(("Mine", beside), (mine, ours), visible, strict=True)
    ]


def conditions(effect: study.Effect) -> str:
    most = ", in which a weight changes most" if effect.changes else ""
    text = (
        f"Head {effect.head} of {study.BASELINE.num_heads}{most}; d_model {study.BASELINE.d_model}. The layer is not "
        f"trained. Its parameters are random (seed {study.SEED}), and both maps share those that both have. So the "
        "numbers are computed, but which key a query prefers has no meaning."
    )
    before, after = effect.baseline.weights, effect.result.weights
    old, new = (float(analysis.entropy(np.clip(m, 0, None)[None]).mean()) for m in (before, after))
    if (after >= 0).all() and abs(old - new) >= MIN_NUMBER:
        text += f" The mean entropy of a query changes from {number(old)} to {number(new)} nats."
    if effect.result.implied:
        text += " This kernel computes no weights: the map shows the weights that would give the same output."
    return text


def compatible_text(item: Entry, total: int, conflicts: int) -> str:
    if not conflicts:
        return (
            f"{plain(item.name)} can be combined with all {total} choices of the other five axes."
        )
    return (
        f"{plain(item.name)} can be combined with {total - conflicts} of the {total} choices of the other "
        f"axes, and not with these {conflicts}:"
    )


def rows_text(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose cells have as many lines as they need, as Markdown."""
    lines = [head, ["---"] * len(head), *(map(plain, row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def bounds(param: Param) -> str:
    if param.choices:
        return ", ".join(map(param.label, param.choices))
    if isinstance(param.default, bool):
        return "on or off"
    if isinstance(param.default, str):
        return "a text"
    return f"{param.low:g} to {param.high:g}"
