"""Use a model: its sentences, the chart of the similarities, and the cell of the shown head."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from core.interpret.evidence import Effect
from core.pretrained.generate import Candidate
from core.studies import use_model as study
from dashboard.draw.components import Cell, source_of
from dashboard.draw.figures import PAGE, SIGNED, Ink, Spec, Theme, axis_style, figure, layer
from dashboard.draw.formats import cut, number, numbered, plain, share_text

LONGEST, TIP = 24, 120  # signs of a sentence at the matrix, and under the pointer


def answer_fact(answer: study.Answer, predictions: Sequence[Candidate], head: study.Head) -> str:
    first, count = predictions[0], len(answer.baseline.answer.probabilities)  # type: ignore[arg-type]
    next_best = "".join(
        f", ahead of **{plain(second.word)}** with {share_text(second.probability)}"
        for second in predictions[1:2]
    )
    subjects = {
        "mask": "The masked word",
        "next": "The next token",
        "class": "The class",
        "span": "The answer",
    }
    return (
        f"{subjects[answer.baseline.answer.kind]} is :primary[**{plain(first.word)}**] with "
        f"**{share_text(first.probability)}**{next_best}; chance is 1 in {count:,}. "
        f"{head_fact(answer, head, first.word)}"
    )


def head_fact(answer: study.Answer, head: study.Head, word: str) -> str:
    key, weight, uniform = attends(answer, head)
    return (
        f"Head **{head.name}** takes most from **{key}**, {weight} (uniform attention: "
        f"{uniform}). {without(answer, head, word)}"
    )


def without(answer: study.Answer, head: study.Head, word: str) -> str:
    if head.effect is None:
        return "The effect of each head on the answer is not measured yet."
    quantity = f"the {answer.baseline.quantity} of **{plain(word)}**"
    stays = f"{quantity} stays at {number(answer.baseline.value)}"
    if abs(head.effect.drop) >= 5e-4:  # else it is none
        return f"Without it {quantity} would be {_instead(answer, head.effect)}: {_rank(answer, head)}."
    return (
        f"Without it {stays}: {_rank(answer, head)}."
        if head.before
        else f"T{stays[1:]} without any one of the {_heads(answer)}: no single head decides it."
    )


def _instead(answer: study.Answer, effect: Effect) -> str:
    """A value and the full model's; their difference, where both have the same text."""
    value, was = number(effect.value), number(answer.baseline.value)
    if value != was:
        return f"{value} instead of {was}"
    return f"{number(abs(effect.drop))} {'less' if effect.drop > 0 else 'more'} than {was}"


def _rank(answer: study.Answer, head: study.Head) -> str:
    return f"{head.before or 'none'} of {_heads(answer)} {('change' if head.before > 1 else 'changes')} it more"


def _heads(answer: study.Answer) -> str:
    return f"{len(answer.heads)} heads{(' of cross-attention' if answer.trace.kinds == ('cross',) else '')}"


def pair_fact(
    table: np.ndarray,
    names: Sequence[str],
    pair: tuple[int, int],
    answer: study.Answer,
    head: study.Head,
) -> str:
    """The similarity of the picked pair, the mean of all pairs, and the head with the largest effect on it."""
    others = table[np.triu_indices(len(names), 1)]
    first, second = (plain(cut(names[index], 40)) for index in pair)
    out = (
        f":primary[**“{first}”**] is most similar to **“{second}”**: their cosine is "
        f"**{number(float(table[pair]))}**; the mean of all {len(others)} pairs is {number(float(others.mean()))}."
    )
    if head.effect is None:
        return out
    value = number(head.effect.value)
    if value == number(answer.baseline.value):
        value = _instead(answer, head.effect)
    # a vector is compared with itself before
    alone = "the cosine of its vector with the original one is"
    verb = "it would be" if answer.baseline.question.against else alone
    return f"{out} Without head **{head.name}** {verb} {value}; {_rank(answer, head)}."


def attends(answer: study.Answer, head: study.Head) -> tuple[str, str, str]:
    """The key with the head's largest weight in its row, that weight, and that of uniform attention, as text."""
    item, grid = answer.trace.maps[head.index], answer.baseline.source.grid
    weights, keys = item.weights[head.head, head.row], item.keys
    best, key = int(weights.argmax()), ""
    if grid is not None and answer.trace.kinds != ("causal",):
        place = best - (len(answer.baseline.source) - grid[0] * grid[1])
        if 0 <= place < grid[0] * grid[1]:
            key = f"the patch in row {place // grid[1]}, column {place % grid[1]}"
    return (
        plain(key or numbered(keys)[best]),
        share_text(weights[best]),
        number(1 / len(keys)),
    )


def conditions(answer: study.Answer, head: study.Head) -> str:
    method = (
        f"All {len(answer.heads)} heads were switched off one by one, and the model was run again each time."
        if head.effect is not None
        else "No head was switched off."
    )
    return plain(
        f"{answer.baseline.pretrained.name}, {len(answer.baseline.source)} tokens, fp32 on the CPU. {method} A "
        "weight shows where a head attends; only switching the head off shows what it contributes to the answer."
    )


def head_cell(answer: study.Answer, head: study.Head) -> Cell:
    """The map of the shown head, and where it was measured what the answer loses without each head."""
    text = "The map of one head."
    results = {
        "weights": answer.trace.head(head.index, head.head),
        "baseline.value": answer.baseline.value,
    }
    code = f"""
weights = trace.head({head.index}, {head.head})  # (T, S)
"""
    if head.effect is not None:
        results["drops"] = np.array([effect.drop for effect in answer.effects.values()])
        text = "The answer without each head, and the map of one of them."
        code = f"""
import numpy as np

from core.interpret.evidence import ablate_heads
{code}
heads = [(item.kind, item.layer, head) for item in trace.maps for head in range(len(item.weights))]
drops = np.array([ablate_heads(baseline, frozenset({{head}})).drop for head in heads])
print("depends most on", heads[abs(drops).argmax()], drops[abs(drops).argmax()])
"""
    return Cell(
        text,
        code,
        f"""
from dashboard.show import show

show(trace, layer={head.index}, head={head.head}, query={head.row})
""",
        "use_model:head",
        results,
    )


def similarity_chart(
    table: np.ndarray, names: Sequence[str], picked: tuple[int, int], theme: Theme
) -> Spec:
    """Cosines of all pairs, with their numbers; purple below 0, green above, the picked pair outlined.

    The names are marks, so that another sentence changes the rows alone, and no figure is built anew.
    """
    ink = Ink.of(theme)
    labels = [f"{i}" for i in range(len(names))]
    tipped = [cut(name, TIP) for name in names]
    rows = [
        {
            "row": labels[i],
            "column": labels[j],
            "value": float(table[i, j]),
            "text": number(float(table[i, j])),
            "one": tipped[i],
            "other": tipped[j],
            "dark": bool(abs(table[i, j]) > 0.55),
        }
        for i in range(len(names))
        for j in range(len(names))
    ]
    across = {
        **axis_style(ink),
        "orient": "top",
        "labelAngle": 0,
        "labelFontSize": 13,
        "labelColor": ink.text,
    }
    at: dict[str, Any] = {
        "y": {"field": "row", "type": "ordinal", "sort": labels, "title": None, "axis": None},
        "x": {"field": "column", "type": "ordinal", "sort": labels, "title": None, "axis": across},
    }
    pair = [
        row
        for row in rows
        if {row["row"], row["column"]} == {labels[picked[0]], labels[picked[1]]}
        and row["row"] != row["column"]
    ]
    return figure(
        [
            layer(
                "rect",
                rows,
                {
                    **at,
                    "color": {
                        "field": "value",
                        "type": "quantitative",
                        "legend": None,
                        "scale": {
                            "domain": [-1, 1],
                            "range": list(SIGNED[theme]),
                            "interpolate": "rgb",
                        },
                    },
                    "tooltip": [
                        {"field": name, "type": "nominal", "title": title}
                        for name, title in (("one", "row"), ("text", "cosine"), ("other", "column"))
                    ],
                },
            ),
            layer("rect", pair, at, filled=False, stroke=ink.pick, strokeWidth=2.25),
            layer(
                "text",
                rows,
                {
                    **at,
                    "text": {"field": "text", "type": "nominal"},
                    "color": {
                        "condition": {"test": "datum.dark", "value": PAGE[theme]},
                        "value": ink.text,
                    },
                },
                fontSize=11,
            ),
            layer(
                "text",
                [
                    {"row": label, "name": f"{label}  {cut(name, LONGEST)}"}
                    for label, name in zip(labels, names, strict=True)
                ],
                {"y": at["y"], "text": {"field": "name", "type": "nominal"}},
                x=0,
                dx=-6,
                align="right",
                fontSize=13,
                color=ink.text,
                tooltip=False,
            ),
        ],
        height=max(150, 40 * len(names)),
    )


LIKELIEST = """
import altair as alt
import pandas as pd

alt.Chart(pd.DataFrame(likeliest)).mark_bar().encode(x="probability:Q", y=alt.Y("word:N", sort=None))
"""


def similarity_code(names: Sequence[str]) -> str:
    """The chart of the cosines of each pair, in a notebook."""
    return f"""
import altair as alt
import pandas as pd

names = {source_of([*names])}
pairs = pd.DataFrame([{{"row": names[i], "column": names[j], "cosine": float(table[i, j])}}
                      for i in range(len(names)) for j in range(len(names))])
alt.Chart(pairs).mark_rect().encode(x=alt.X("column:N", sort=None), y=alt.Y("row:N", sort=None), color="cosine:Q")
"""


def cosine_latex(cosine: float) -> str:
    return (
        r"\cos(\mathbf a, \mathbf b) = \frac{\mathbf a \cdot \mathbf b}{\lVert \mathbf a \rVert \, "
        rf"\lVert \mathbf b \rVert}} = {number(cosine)}"
    )
