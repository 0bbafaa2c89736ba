"""Two texts, two models: its sentences of numbers, and its script beside the recorded calls."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from core.interpret import map_transform as difference, patching
from core.pretrained import MINILM, Reading
from dashboard.draw.components import Cell
from dashboard.draw.figures import Spec
from dashboard.draw.formats import number, percent, plain, share_text, signed

SIDES = {
    "texts": ("Text A", "Text B"),
    "models": ("Model A", "Model B"),
    "untrained": ("Trained", "Untrained"),
}
MODES = {"texts": "Two texts", "models": "Two models", "untrained": "Trained and untrained"}
TWO = {"picture": "Two pictures", "sound": "Two sounds"}  # in place of two texts
NOTE_SIGNS = 34  # of a text under a map
Recovered = tuple[str, str, float, str]  # layer, column, what the part recovers, and its name


@dataclass(frozen=True, eq=False)
class Side:
    """One of the two sides: its name, a note on it, and its reading."""

    name: str
    note: str
    reading: Reading


# Two texts of a model that are worth a try: the title, the model, text A, text B, and what there is to see.
PAIRS = (
    (
        "Another word to copy",
        "induction",
        "the old king saw the old",
        "the old queen saw the old",
        "The last “old” is followed by what followed it before. Only the state at the word that differs carries the "
        "answer, until the heads of the last layer move it to the end.",
    ),
    (
        "A word that is not repeated",
        "induction",
        "the old king saw the old",
        "the young king saw the old",
        "In text B the last word occurs only once, so nothing can be copied. The attention of layer 0 brings the "
        "answer back at “king”: it tells each word which word came before it. Layer 1 then finds “king”.",
    ),
    (
        "Which word came before",
        "only-attention",
        "the dark river and the cold house . we saw the dark",
        "the cold river and the dark house . we saw the dark",
        "“dark” and “cold” are swapped, so only what came before “river” and “house” differs. One head of layer 0, "
        "which attends to the word before, brings back most; the heads of layer 1 share the rest. What a head can do "
        "names the same heads by their weights alone.",
    ),
    (
        "Which of two names",
        "names",
        "when ann and ben went to the shop , ben gave the book to",
        "when ann and ben went to the shop , ann gave the book to",
        "Only who gives differs. One head of layer 1 brings back all of the difference: it attends to the name that "
        "gives, and lowers it. The heads of layer 0 raise both names, in both texts.",
    ),
    (
        "Singular or plural",
        "names",
        "the dogs near the tree",
        "the dog near the tree",
        "Another head, of layer 0, brings back most: at the word before the verb it attends to the subject and passes "
        "over the noun between them.",
    ),
    (
        "One number",
        "numbers",
        "nine thousand three hundred and twelve",
        "nine thousand four hundred and twelve",
        "The answer is the first word of the two translations that differs. In the encoder the state at the changed "
        "word carries all of it; cross-attention moves it to the decoder.",
    ),
    (
        "One word of a sentence",
        "all-MiniLM-L6-v2",
        "The cat sat on the mat.",
        "The dog sat on the mat.",
        "An embedding has no answer; the cosine with the embedding of text A is brought back instead. No single head "
        "does it: a sentence’s embedding is the mean of all its tokens.",
    ),
)


# Text B beside a model's own text A
SECOND = {
    "writer": "When Mary and John went to the shop, Mary gave a book to",
    "numbers": "nine thousand three hundred and twelve ; forty-eight",
    "induction": "the old king walked to the dark house . the old king walked to the dark",
    "only-attention": "the cold river and the dark house . we saw the dark",
    "names": "when ann and ben went to the shop , ann gave the book to",
    "": "The animal didn't cross the street because it was too wide.",
}
RELATED = {  # the first model to compare with
    "writer": MINILM,  # which reads all of its words
    "names": "writer",
    "induction": "only-attention",
    "only-attention": "induction",
}
HOW = r"""Tokens are aligned by the longest sequences that both texts share (Ratcliff and Obershelp, 1988).
The difference of two heads is the total variation between their rows, averaged:

$$
\mathrm{difference}(A, B) = \frac{1}{T}\sum_{i=1}^{T}\Big(1 - \sum_{j} \min(a_{ij}, b_{ij})\Big)
$$

A head that changed need not matter for the answer: the page Why this answer switches heads off to test it. On the changes by
fine-tuning see [Kovaleva 2019](https://arxiv.org/abs/1908.08593); on the difference between trained and random queries
and keys [Trockman 2023](https://arxiv.org/abs/2305.09828)."""


def fact_text(
    sides: Sequence[Side], comparison: difference.Comparison, head: difference.HeadChange
) -> str:
    pair, heads = comparison.pair, comparison.heads
    names = [f"{side.name[0].lower()}{side.name[1:]}" for side in sides]
    if sides[0].name == "Trained":
        names = [f"the {name} model" for name in names]
    out, changed = "", [plain(name) for name in pair.keys if " / " in name]
    if changed and names[0].startswith("text"):
        more = " …" if len(changed) > 3 else ""
        out = f"The texts differ in **{', '.join(changed[:3])}{more}**. "
    median = float(np.median([item.moved for item in heads]))
    out += (
        f"From {names[0]} to {names[1]}, head **{head.name}** (layer {head.number}, head {head.head}) moves "
        f"**{number(head.moved)}** of its weight to other tokens; the median head {number(median)}."
        if comparison.in_place
        else f"Head **{head.name}** of A is most like head **{head.other}** of B: they take "
        f"**{number(1 - head.moved)}** from the same tokens; the median head {number(1 - median)}."
    )
    if (cell := difference.most_different_cell(pair, head)) is None:
        return out
    first, second = (share_text(weights[cell]) for weights, _ in difference.maps_of(pair, head))
    return (
        f"{out} In it, :primary[**{plain(pair.queries[cell[0]])}**] takes **{first}** from "
        f"“{plain(pair.keys[cell[1]])}” in {names[0]} and **{second}** in {names[1]}."
    )


def conditions(sides: Sequence[Side], comparison: difference.Comparison, mode: str) -> str:
    pair = comparison.pair
    shared, rows = sum(None not in both for both in pair.rows), len(pair.rows)
    holds = {
        plain(
            f"{sides[0].note} and {sides[1].note}" if mode == "models" else pair.first.source
        ): True,
        f"{shared} of {rows} rows are in both and are compared": True,
        "the models split words differently, so pieces are merged into words: summed over keys, "
        "averaged over queries": comparison.merged,
        "words that differ are paired by position": any(
            " / " in name and difference.NOTHING not in name for name in (*pair.queries, *pair.keys)
        ),
        "a token that is absent on one side is hatched there": shared < rows,
    }
    more = {
        " The position of a head means nothing across two models, so each head of A is compared with the most "
        "similar head of B.": not comparison.in_place,
        " Untrained weights are drawn as the model's family draws them before training.": mode
        == "untrained",
    }
    return "; ".join(filter(holds.get, holds)) + "." + "".join(filter(more.get, more))


def figures(comparison: difference.Comparison) -> list[tuple[str, str, str]]:
    """The three numbers of a comparison: the name, the value and the meaning of each."""
    heads = comparison.heads
    apart = sum(change >= 0.25 for change in comparison.largest_changes)
    return [
        (
            "Overlap",
            number(1 - float(np.mean([item.moved for item in heads]))),
            "The share of the weight on the same tokens, the mean of all heads; 1 where nothing differs.",
        ),
        (
            "Mean difference",
            number(float(np.mean([item.difference for item in heads]))),
            "The mean absolute difference of a weight, over all cells of all heads.",
        ),
        (
            "One weight differs by 0.25",
            f"in {apart} of {len(heads)}",
            "Heads in which one weight at least, of one query, differs by a quarter or more, between tokens that both "
            "sides have. The map shows the mean of all queries, which is smaller.",
        ),
    ]


def head_rows(comparison: difference.Comparison) -> list[Spec]:
    """The cells of the grid: how far each head moved, or how alike it is to one of another position."""
    shown = [one.moved if comparison.in_place else 1 - one.moved for one in comparison.heads]
    return [
        {
            "layer": f"L{item.number}",
            "head": str(item.head),
            "change": value,
            "name": item.name,
            "to": item.name if comparison.in_place else item.other,
            "by": number(value),
        }
        for item, value in zip(comparison.heads, shown, strict=True)
    ]


def recovered(
    source: patching.PatchSource, effects: Mapping[patching.LayerKey, patching.LayerEffect]
) -> tuple[list[Recovered], list[Recovered]]:
    """What heads and networks recover, and what the states after each layer do."""
    heads, states = list[Recovered](), list[Recovered]()
    for key, effect in effects.items():
        layer = source.names[key]
        heads += [(layer, f"{at}", one, f"{layer}·H{at}") for at, one in enumerate(effect.heads)]
        heads.append((layer, "all", effect.attention, f"all heads of {layer}"))
        if effect.feed_forward is not None:
            heads.append((layer, "FF", effect.feed_forward, f"feed-forward of {layer}"))
        line = source.pair.clean.source
        if key[0] == "causal":
            line = source.pair.clean.target or line
        states += [
            (layer, f"{at} {line.tokens[at]}", one, f"after {layer}, at {line.tokens[at]}")
            for at, one in enumerate(effect.residual)
        ]
    return heads, states


def recovered_rows(cells: Sequence[Recovered], direction: patching.Direction) -> list[Spec]:
    return [
        {
            "layer": layer,
            "head": column,
            "change": float(value) - (direction == "noise"),
            "name": name,
            "by": number(float(value)),
        }
        for layer, column, value, name in cells
    ]


def ranked_rows(
    best: Sequence[tuple[patching.LayerKey, int, float]],
    names: Mapping[patching.LayerKey, str],
    estimates: Mapping[patching.LayerKey, np.ndarray],
) -> list[list[str]]:
    """Heads with what was measured of them, and its estimate."""
    return [
        [
            f"{names[key]}·H{head}",
            number(value),
            number(float(estimates[key][head])) if key in estimates else "–",
        ]
        for key, head, value in best
    ]


def patched_text(
    pair: patching.TextPair,
    direction: patching.Direction,
    effects: Mapping[patching.LayerKey, patching.LayerEffect],
    best: Sequence[tuple[patching.LayerKey, int, float]],
    names: Mapping[patching.LayerKey, str],
    agree: float | None,
) -> str:
    quantity = (
        "The cosine with the embedding of text A"
        if pair.clean.id is None
        else f"The logit of **{plain(str(pair.clean.word))}** minus that of **{plain(str(pair.clean.other))}**"
    )
    key, head, value = best[0]
    back = direction == "denoise"
    whole = (max if back else min)(effects, key=lambda one: effects[one].attention)
    one, every = (percent(each if back else 1 - each) for each in (value, effects[whole].attention))
    agrees = (
        ""
        if agree is None
        else f" Estimates from one gradient correlate with the heads’ effects by {number(agree)}."
    )
    way = "From A into B" if back else "From B into A"
    does = "brings back" if back else "takes away"
    return (
        f"{quantity} is **{signed(pair.clean.value)}** for text A and **{signed(pair.corrupted.value)}** for text B. "
        f"{way}, head **{names[key]}·H{head}** {does} **{one}** of the difference, and all heads of {names[whole]} "
        f"together **{every}**.{agrees}"
    )


def shorten(text: str) -> str:
    """The end of a text, where two texts mostly differ."""
    return text if len(text) <= NOTE_SIGNS else f"…{text[1 - NOTE_SIGNS :]}"


def cells(comparison: difference.Comparison, head: difference.HeadChange) -> list[Cell]:
    """Every head beside its partner, and one of them in both, after the recorded `comparison`."""
    heads = comparison.heads
    (first, _), (second, _) = difference.maps_of(comparison.pair, head)
    every = Cell(
        "How far every head moved from its partner: the share of its weight on other tokens.",
        """
import numpy as np

heads = comparison.heads
moved = np.array([each.moved for each in heads])
print("most apart:", max(heads, key=lambda each: each.moved).name, "median:", np.median(moved))
""",
        """
import altair as alt
import pandas as pd

cells = pd.DataFrame([{"layer": each.number, "head": each.head, "moved": each.moved} for each in heads])
alt.Chart(cells).mark_rect().encode(x="head:O", y="layer:O", color="moved:Q")
""",
        "two_models:grid",
        {
            "moved": [one.moved for one in heads],
            "[each.difference for each in heads]": [one.difference for one in heads],
        },
    )
    one = Cell(
        "One head in both, and their difference, on the aligned tokens.",
        f"""
pair = comparison.pair
head = next(each for each in heads if (each.layer, each.head) == {(head.layer, head.head)})
first, _ = pair.on_grid(0, head.layer, head.head)  # (T, S)
second, _ = pair.on_grid(1, *head.to)
print(head.name, "and", head.other, head.moved)
""",
        """
from dashboard.show import show_maps

show_maps({"first": first, "second": second, "second - first": second - first}, pair.queries, pair.keys)
""",
        f"two_models:maps:{comparison.kind}",
        {
            "first": first,
            "second": second,
            "second - first": second - first,
            "head.moved": head.moved,
        },
    )
    return [every, one]


def effects_cell(
    source: patching.PatchSource,
    direction: patching.Direction,
    effects: Mapping[patching.LayerKey, patching.LayerEffect],
) -> Cell:
    every = effects.values()
    return Cell(
        "What each part recovers: 0 is the answer to the second text, 1 that to the first.",
        f"""
import numpy as np

from core.interpret.patching import ranked, with_model

source = with_model(texts, model)
effects = {{key: source.effect(key) for key in source.calls}}  # by (kind, layer)
best = ranked(effects, {direction!r})  # (kind, layer), head, share
print(*best[:6], sep="\\n")
""",
        """
import altair as alt
import pandas as pd

cells = pd.DataFrame([{"layer": str(key), "head": index, "share": share} for key, index, share in best])
alt.Chart(cells).mark_rect().encode(x="head:O", y="layer:N", color="share:Q")
""",
        "two_models:patch:heads",
        {
            "[share for *_, share in best]": [
                share for *_, share in patching.ranked(effects, direction)
            ],
            "np.concatenate([one.heads for one in effects.values()])": np.concatenate(
                [one.heads for one in every]
            ),
            "np.concatenate([one.residual for one in effects.values()])": np.concatenate(
                [one.residual for one in every]
            ),
            "[one.attention for one in effects.values()]": [one.attention for one in every],
            "np.concatenate([[], *source.estimates.values()])": np.concatenate(
                [[], *source.estimates.values()]
            ),
        },
    )
