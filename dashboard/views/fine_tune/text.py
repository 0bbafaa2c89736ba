"""The sentences and tables of the page Fine-tune; makes no st call."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from core.interpret.map_transform import HeadChange
from core.pretrained.finetune import FineTuneConfig, Rows, name_of
from core.training.record import Prediction, Record
from dashboard.draw.formats import number, percent
from dashboard.views.fine_tune.compute import BeforeAfter
from dashboard.widgets.panels import plain

TASKS = {"classify": "Labels of texts", "pairs": "Pairs of sequences"}
OURS = {
    "classify": "120 messages that are a question, a request, praise or a complaint",
    "pairs": "400 numbers in English words and the same numbers in digits",
}
LEAST = 0.005  # of a head's weight: less counts as unmoved


def fact(
    config: FineTuneConfig, first: Record, now: Record, majority: tuple[str, float] | None
) -> str:
    """The scores at a step, compared with those before training and of the majority class."""
    name, items = (
        ("accuracy", "texts") if config.task == "classify" else ("sequence accuracy", "sources")
    )
    sentence = (
        f"At step {now.step:,}, {name} is **{percent(now.exact)}** on {now.held_out} held-out {items}; before "
        f"training it was {percent(first.exact)}"
    )
    if now.balanced is not None:
        sentence += f". Balanced accuracy is **{percent(now.balanced)}**"
    if majority is not None:
        sentence += f"; the majority class, “{plain(majority[0])}”, reaches {percent(majority[1])}"
    sentence += "."
    if now.cut:
        sentence += f" {now.cut:,} outputs were cut at the length of the longest target, before an end token."
    return sentence


def gained(both: BeforeAfter, head: HeadChange) -> str:
    """The cell (query, key) of a head that gained most, and how far the head moved."""
    if head.moved < LEAST:
        return ""
    now = both.now.map(head.layer)
    weights, before = now.weights[head.head], both.first.map(head.layer).weights[head.head]
    row, column = (
        int(index) for index in np.unravel_index((weights - before).argmax(), weights.shape)
    )
    query, key = plain(now.queries[row]), plain(now.keys[column])
    return (
        f" In head **{head.name}**, :primary[**{query}**] now puts **{number(weights[row, column])}** of its "
        f"weight on **{key}**, {number(before[row, column])} before; {number(head.moved)} of the head's "
        "weight has moved to other tokens."
    )


def conditions(config: FineTuneConfig, about: dict, rows: Rows, machine: str = "") -> str:
    """The conditions of the numbers; `machine` is where the run trained, if that is known."""
    fixed = config.task == "classify" and config.layers == 0
    parts = [
        f"{plain(name_of(config.model))}, {about.get('learns', 0):,} of {about.get('weights', 0):,} weights train",
        f"{len(rows.learned):,} training rows, {len(rows.held_out):,} held out",
        f"seed {config.seed}",
    ]
    if machine:
        parts.append(f"trained on {plain(machine)}")
    if config.task == "classify" and "new_head" in about:
        parts.append(
            "its classification head is new"
            if about["new_head"]
            else "its own head has the same labels"
        )
    if new := about.get("new_words"):
        words = ", ".join(map(plain, new[:10])) + (", …" if len(new) > 10 else "")
        parts.append(
            f"{len(new)} words were not in its vocabulary ({words}); their vectors start near the mean of the "
            "others"
        )
    if rows.repeated:
        parts.append(f"{rows.repeated} repeated rows are used once")
    if truncated := about.get("truncated"):
        parts.append(f"{truncated:,} rows are cut at {about.get('max_tokens', 0):,} tokens")
    forcing = " The decoder reads the correct target (teacher forcing), so the rows of a map stay the same."
    return (
        f"{'Only the classification head is trained, so no attention changes. ' * fixed}{'; '.join(parts)}."
        f"{forcing * (config.task == 'pairs')} A change is not yet a reason: to test whether a head "
        "matters, switch it off on the page Evidence."
    )


def progress(records: Sequence[Record], steps: int) -> tuple[float, str]:
    """How far a run is, 0 to 1, and a line with the time left at this pace."""
    step = records[-1].step if records else 0
    if not step:
        return 0.0, "The first step takes a few seconds."
    left = records[-1].elapsed / step * (steps - step)
    return min(step / steps, 1.0), f"Step {step:,} of {steps:,}, about {max(1, round(left))} s left"


def table(
    before: Sequence[Prediction],
    now: Sequence[Prediction],
    columns: Sequence[str],
    hairline: str,
    quiet: str,
) -> str:
    """Held-out rows with the predictions before training and now, wrong ones struck through: HTML."""
    cell = f'style="padding:3px 12px 3px 0;border-bottom:1px solid {hairline};vertical-align:top"'
    head = "".join(
        f'<th {cell[:-1]};text-align:left;font-weight:600">{escape(title)}</th>'
        for title in columns
    )
    rows = []
    for first, last in zip(before, now, strict=False):
        cells = [
            escape(" ".join(last.source)),
            escape(" ".join(last.target)),
            _answer(first, quiet),
            _answer(last, quiet),
        ]
        rows.append("<tr>" + "".join(f"<td {cell}>{content}</td>" for content in cells) + "</tr>")
    return (
        f'<table style="font-size:14px;line-height:20px;border-collapse:collapse;width:100%"><tr>{head}</tr>'
        f"{''.join(rows)}</table>"
    )


def _answer(prediction: Prediction, quiet: str) -> str:
    output = escape(" ".join(prediction.predicted)) or "nothing"
    return (
        output
        if prediction.right
        else f'<span style="color:{quiet};text-decoration:line-through">{output}</span>'
    )
