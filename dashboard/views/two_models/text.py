"""Sentences and figures of the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from core.interpret.map_transform import NOTHING, Aligned, HeadChange
from core.interpret.patching import Direction, LayerEffect, LayerKey, TextPair
from core.pretrained import Pretrained
from dashboard.draw.formats import number, percent, signed
from dashboard.views.two_models.compute import Comparison
from dashboard.widgets.guide import Move
from dashboard.widgets.panels import plain

MODES = {"texts": "Two texts", "models": "Two models", "untrained": "Trained and untrained"}


def modes(pretrained: Pretrained | None) -> dict[str, str]:
    """What can be compared, by name: of a model of pictures or sounds two of these, not two texts."""
    other = {"picture": "Two pictures", "sound": "Two sounds"}.get(
        pretrained.reads if pretrained else ""
    )
    return {**MODES, "texts": other} if other else MODES


def fact(comparison: Comparison, head: HeadChange) -> str:
    """The difference of the picked head, the median of all heads, and the cell that differs most."""
    pair, sides, heads = comparison.pair, comparison.sides, comparison.heads
    usual = float(np.median([item.moved for item in heads]))
    if comparison.in_place:
        out = f"Head **{head.name}** puts **{number(head.moved)}** of its weight on other tokens"
    else:
        out = (
            f"Head **{head.name}** of A and the most similar head of B, **{head.other}**, put "
            f"**{number(head.moved)}** of their weight on different tokens"
        )
    out += f"; the median of {len(heads)} heads is {number(usual)}."
    cell = most_different_cell(pair, head)
    if cell is None:
        return out
    (first, _), (second, _) = pair.on_grid(0, head.layer, head.head), pair.on_grid(1, *head.to)
    row, column = cell
    query, key = plain(pair.queries[row]), plain(pair.keys[column])
    sides_text = [
        f"the {side.name.lower()} model"
        if side.name in ("Trained", "Untrained")
        else side.name[0].lower() + side.name[1:]
        for side in sides
    ]
    return (
        f"{out} In it, :primary[**{query}**] puts **{number(first[row, column])}** of its weight on **{key}** in "
        f"{sides_text[0]} and **{number(second[row, column])}** in {sides_text[1]}."
    )


def most_different_cell(pair: Aligned, head: HeadChange) -> tuple[int, int] | None:
    """The cell of two shared tokens in which the two maps of a head are furthest apart; None where they share none."""
    (first, _), (second, _) = pair.on_grid(0, head.layer, head.head), pair.on_grid(1, *head.to)
    rows, columns = (
        [index for index, (a, b) in enumerate(line.pairs) if a is not None and b is not None]
        for line in (pair.rows, pair.columns)
    )
    if not rows or not columns:
        return None
    shared = np.abs(second - first)[np.ix_(rows, columns)]
    row, column = np.unravel_index(shared.argmax(), shared.shape)
    return rows[int(row)], columns[int(column)]


def figures(heads: Sequence[HeadChange]) -> list[tuple[str, str, str]]:
    """Name, number and meaning of the three summary figures."""
    moved = [item.moved for item in heads]
    return [
        (
            "Overlap",
            number(1 - float(np.mean(moved))),
            "The share of the weight on the same tokens, the mean of "
            "all heads; 1 where nothing differs.",
        ),
        (
            "Mean difference",
            number(float(np.mean([item.difference for item in heads]))),
            "The mean absolute difference of a weight, over all cells of all heads.",
        ),
        (
            "Heads that differ",
            f"{sum(one >= 0.25 for one in moved)} of {len(moved)}",
            "Heads with at least a quarter of their weight on other tokens.",
        ),
    ]


def conditions(comparison: Comparison, mode: str) -> str:
    """The conditions under which the numbers hold."""
    pair, sides = comparison.pair, comparison.sides
    shared, rows = len(pair.rows.both), len(pair.rows.pairs)
    models = f"{sides[0].note} and {sides[1].note}" if mode == "models" else pair.first.source
    out = [plain(models), f"{shared} of {rows} rows are in both and are compared"]
    if comparison.merged:
        out.append(
            "the models split words differently, so pieces are merged into words: summed over keys, "
            "averaged over queries"
        )
    if any(" / " in name and NOTHING not in name for name in (*pair.queries, *pair.keys)):
        out.append("words that differ are paired by position")
    if shared < rows:
        out.append("a token that is absent on one side is hatched there")
    text = "; ".join(out) + "."
    if not comparison.in_place:
        text += (
            " The position of a head means nothing across two models, so each head of A is compared with the most "
            "similar head of B."
        )
    if mode == "untrained":
        text += " Untrained weights are drawn as the model's family draws them before training."
    return text


DIRECTIONS: dict[Direction, str] = {
    "denoise": "Bring back: from A into B",
    "noise": "Take away: from B into A",
}
SCALE = {"denoise": "brought back", "noise": "taken away"}


def _texts(model: str, language: str, first: str, second: str) -> dict[str, str]:
    """The session's values for two texts of a model; `language` is that of its examples ("": English)."""
    return {
        "inside:model": model,
        "inside:language": language,
        "inside:text": first,
        "two_models:mode": "texts",
        f"two_models:text:{model}": second,
    }


PAIRS = (
    Move(
        "Another word to copy",
        _texts("induction", "induction", "the old king saw the old", "the old queen saw the old"),
        "The last “old” is followed by what followed it before. Only the state at the word that differs carries the "
        "answer, until the heads of the last layer move it to the end.",
    ),
    Move(
        "A word that is not repeated",
        _texts("induction", "induction", "the old king saw the old", "the young king saw the old"),
        "In text B the last word occurs only once, so nothing can be copied. The attention of layer 0 brings the "
        "answer back at “king”: it tells each word which word came before it. Layer 1 then finds “king”.",
    ),
    Move(
        "Which word came before",
        _texts(
            "only-attention",
            "only-attention",
            "the dark river and the cold house . we saw the dark",
            "the cold river and the dark house . we saw the dark",
        ),
        "“dark” and “cold” are swapped, so only what came before “river” and “house” differs. One head of layer 0, "
        "which attends to the word before, brings back most; the heads of layer 1 share the rest. What a head can do "
        "names the same heads by their weights alone.",
    ),
    Move(
        "Which of two names",
        _texts(
            "names",
            "names",
            "when ann and ben went to the shop , ben gave the book to",
            "when ann and ben went to the shop , ann gave the book to",
        ),
        "Only who gives differs. One head of layer 1 brings back all of the difference: it attends to the name that "
        "gives, and lowers it. The heads of layer 0 raise both names, in both texts.",
    ),
    Move(
        "Singular or plural",
        _texts("names", "names", "the dogs near the tree", "the dog near the tree"),
        "Another head, of layer 0, brings back most: at the word before the verb it attends to the subject and passes "
        "over the noun between them.",
    ),
    Move(
        "One number",
        _texts(
            "numbers",
            "numbers",
            "nine thousand three hundred and twelve",
            "nine thousand four hundred and twelve",
        ),
        "The answer is the first word of the two translations that differs. In the encoder the state at the changed "
        "word carries all of it; cross-attention moves it to the decoder.",
    ),
    Move(
        "One word of a sentence",
        _texts("all-MiniLM-L6-v2", "", "The cat sat on the mat.", "The dog sat on the mat."),
        "An embedding has no answer; the cosine with the embedding of text A is brought back instead. No single head "
        "does it: a sentence’s embedding is the mean of all its tokens.",
    ),
)


def share(value: float) -> str:
    """What a part recovers, as a number without a unit: 1 is all of the difference."""
    return signed(value) if value < 0 else number(value)


def patched(
    pair: TextPair,
    direction: str,
    effects: Mapping[LayerKey, LayerEffect],
    best: Sequence[tuple[LayerKey, int, float]],
    names: Mapping[LayerKey, str],
    agree: float | None,
) -> str:
    """The two runs, the head and the layer with the largest effect, and how well one gradient foretells the heads."""
    quantity = (
        "The cosine with the embedding of text A"
        if pair.clean.id is None
        else f"The logit of **{plain(str(pair.clean.word))}** minus that of **{plain(str(pair.clean.other))}**"
    )
    out = f"{quantity} is **{signed(pair.clean.value)}** for text A and **{signed(pair.corrupted.value)}** for text B. "
    key, head, value = best[0]
    whole = (max if direction == "denoise" else min)(
        effects, key=lambda one: effects[one].attention
    )
    attention = effects[whole].attention
    if direction == "denoise":
        out += (
            f"From A into B, head **{names[key]}·H{head}** brings back **{percent(value)}** of the difference, and "
            f"all heads of {names[whole]} together **{percent(attention)}**."
        )
    else:
        out += (
            f"From B into A, head **{names[key]}·H{head}** takes away **{percent(1 - value)}** of the difference, "
            f"and all heads of {names[whole]} together **{percent(1 - attention)}**."
        )
    return (
        out
        if agree is None
        else f"{out} Estimates from one gradient correlate with the heads’ effects by "
        f"{number(agree)}."
    )
