"""The curves of a run: loss, the scores of its task, and its training; each with the picked step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import streamlit as st

from core.tasks import Task
from core.training.diagnosis import Finding
from dashboard.draw.curves import Curve, balanced_points, legend, loss_curves, points, step_chart
from dashboard.draw.formats import number, percent
from dashboard.draw.palette import Ink
from dashboard.draw.vega import Spec, axis_style, figure, layer, split_data
from dashboard.runtime.run_data import RunData
from dashboard.ui.presentation import draw_chart
from dashboard.views.train.text import part_name
from dashboard.widgets.panels import chart_title, plain

SMALL = 140  # pixels
LEVELS = (
    0.25,
    0.5,
    1.01,
)  # where the axis of shares may end: all of the weight may be a rounding over one
MOST_HEADS = 4  # lines that can be told apart
FORMS_IN_NATS = ("pairs", "text", "label")


def show_findings(findings: Sequence[Finding]) -> None:
    """The measurement and the advice of each finding."""
    for each in findings:
        st.markdown(f":small[**{plain(each.text)}** {plain(each.advice)}]")


def loss(data: RunData, step: int, ink: Ink, findings: Sequence[Finding]) -> None:
    """Validation and training loss, and the loss of guessing.

    The axis ends at three times guessing or at the start, so that a spike does not flatten the rest.
    """
    task, losses = data.task(), [r.loss or 0.0 for r in data.records]
    guess = task.baseline_loss
    curves = loss_curves(data.records)
    chart_title(
        "Loss" if task.form in FORMS_IN_NATS else "Squared error", legend=legend(curves, ink)
    )
    _draw(
        data,
        "loss",
        "Validation and training loss over training.",
        curves,
        step,
        ink,
        guess=(guess, f"{_baseline_name(task)}: {number(guess)}"),
        high=max(guess, losses[0] or guess, min(max(losses), 3 * guess)),
    )
    show_findings(findings)


def _baseline_name(task: Task) -> str:
    """The name of the prediction that gives the baseline loss."""
    return {"label": "class frequencies", "series": "the mean"}.get(
        task.form, f"a random {task.unit}"
    )


def metric(data: RunData, step: int, ink: Ink) -> None:
    """The scores of the task on held-out items."""
    task, records = data.task(), data.records
    if task.form == "series":
        chart_title("Validation error, % of the error of repeating the last season")
        _draw(
            data,
            "exact",
            "Validation error over training, compared with repeating the last season.",
            [Curve("error", points(records, "error", 100))],
            step,
            ink,
            guess=(100.0, "last season repeated"),
        )
        return
    scores = [
        Curve(name, points(records, key))
        for name, key in (("BLEU", "bleu"), ("chrF", "chrf"))
        if any(getattr(r, key) is not None for r in records)
    ]
    exact, single = points(records, "exact", 100), points(records, "letters", 100)
    curves = [Curve(f"{task.unit} accuracy", single)]
    if task.form == "label":
        curves = [Curve("accuracy", single), Curve("balanced accuracy", balanced_points(records))]
    elif task.form == "pairs":
        curves = [Curve("sequence accuracy", exact), *curves]
    curves += scores
    short = [replace(curve, name=curve.name.removesuffix(" accuracy")) for curve in curves]
    name = curves[0].name if len(curves) == 1 else "scores" if scores else "accuracy"
    chart_title(f"Validation {name}", legend=legend(short, ink))
    best = max(data.baselines(records[-1].held_out), key=lambda baseline: baseline[1], default=None)
    guess = None if best is None else (100 * best[1], f"{best[0]}: {percent(best[1])}")
    _draw(
        data,
        "exact",
        f"Accuracy on held-out {task.whole} over training.",
        curves,
        step,
        ink,
        high=100,
        percent=not scores,
        guess=guess,
    )


def details(data: RunData, step: int, ink: Ink, findings: Mapping[str, Sequence[Finding]]) -> None:
    """The weight on expected positions, the gradients over time and by part of the model, and the learning rate."""
    panels = [("gradient", _gradient), ("parts", _parts), ("rate", _rate), ("speed", _speed)]
    if any(r.expected for r in data.records):
        panels = [("expected", _expected), *panels[:-1]]
    if any(r.indexer_loss is not None for r in data.records):
        panels = [*panels, ("indexer", _indexer)]
    for at, (name, panel) in enumerate(panels):
        if at % 2 == 0:
            cells = st.columns(2, gap="medium")
        with cells[at % 2]:
            panel(data, step, ink)
            show_findings(findings.get(name, ()))


def _expected(data: RunData, step: int, ink: Ink) -> None:
    last = next(r for r in reversed(data.records) if r.expected)
    assert last.expected is not None
    heads = sorted(
        ((w, layer, h) for layer, row in enumerate(last.expected) for h, w in enumerate(row)),
        reverse=True,
    )
    curves = [
        Curve(
            f"L{layer}·H{h}",
            [(r.step, r.expected[layer][h] if r.expected else None) for r in data.records],
        )
        for _, layer, h in heads[:MOST_HEADS]
    ]
    chart_title(f"Weight on {data.task().expected_name}", legend=legend(curves, ink))
    most = max(w for r in data.records for row in r.expected or () for w in row)
    even = (last.even, f"uniform: {number(last.even)}") if last.even is not None else None
    _draw_small(
        data,
        "expected",
        curves,
        step,
        ink,
        high=next(level for level in LEVELS if most <= level),
        guess=even,
    )
    if len(heads) > MOST_HEADS:
        st.caption(f"The {MOST_HEADS} of {len(heads)} heads with the largest weight at the end.")


def _gradient(data: RunData, step: int, ink: Ink) -> None:
    chart_title("Gradient norm, before clipping")
    assert data.config is not None
    clip, largest = data.config.clip, max((r.gradient or 0.0 for r in data.records), default=0.0)
    _draw_small(
        data,
        "gradient",
        [Curve("all weights", points(data.records, "gradient"))],
        step,
        ink,
        guess=(clip, f"clipped at {clip:g}") if clip <= 5 * max(largest, 1e-9) else None,
    )


def _indexer(data: RunData, step: int, ink: Ink) -> None:
    chart_title("Loss of the indexer, which predicts full attention")
    _draw_small(
        data,
        "indexer",
        [Curve("mean of all layers", points(data.records, "indexer_loss"))],
        step,
        ink,
    )


def _parts(data: RunData, step: int, ink: Ink) -> None:
    """The norm in each part of the model, first part on top: where it grows or fades with depth."""
    record = next((r for r in reversed(data.until(step)) if r.gradients), None)
    if record is None:
        chart_title("Gradient norm by part of the model")
        st.caption("Measured from the first step.")
        return
    chart_title(f"Gradient norm by part, step {record.step:,} (logarithmic)")
    draw_chart(
        st,
        _parts_spec(record.gradients, ink),
        key="train:parts",
        alt="Gradient norm of each part of the model.",
    )


def _parts_spec(gradients: dict[str, float], ink: Ink) -> Spec:
    """Bars on a logarithmic axis, one for each part, from the input down to the output."""
    most = max(gradients.values()) or 1.0
    low = min([value for value in gradients.values() if value > 0] or [most]) / 3
    rows = [
        {"part": part_name(path), "norm": max(value, low), "label": number(value), "low": low}
        for path, value in gradients.items()
    ]
    axes = {
        "y": {
            "field": "part",
            "type": "nominal",
            "sort": None,
            "title": None,
            "axis": {**axis_style(ink), "labelLimit": 150, "labelOverlap": False},
        },
        "x": {
            "field": "norm",
            "type": "quantitative",
            "axis": None,
            "scale": {"type": "log", "domain": [low, most * 4], "nice": False},
        },
    }
    return figure(
        [
            layer(
                "bar",
                rows,
                {**axes, "x2": {"field": "low"}},
                color=ink.series[0],
                height={"band": 0.6},
            ),
            layer(
                "text",
                rows,
                {**axes, "text": {"field": "label", "type": "nominal"}},
                align="left",
                dx=4,
                fontSize=12,
                color=ink.quiet,
            ),
        ],
        height=max(SMALL, 17 * len(gradients)),
    )


def _rate(data: RunData, step: int, ink: Ink) -> None:
    chart_title("Learning rate")
    _draw_small(data, "rate", [Curve("rate", points(data.records, "rate"))], step, ink)


def _speed(data: RunData, step: int, ink: Ink) -> None:
    chart_title("Tokens a second, while it trains")
    _draw_small(
        data, "speed", [Curve("tokens", points(data.records, "tokens_per_second"))], step, ink
    )


def _draw_small(
    data: RunData, key: str, curves: Sequence[Curve], step: int, ink: Ink, **options: Any
) -> None:
    _draw(data, key, f"{key} over training.", curves, step, ink, height=SMALL, **options)


def _draw(
    data: RunData, key: str, alt: str, curves: Sequence[Curve], step: int, ink: Ink, **options: Any
) -> None:
    """Curves over the steps of the run, all of them while it is live; `options` are those of `step_chart`.

    `alt` names no step: the browser builds a chart anew when its words change.
    """
    assert data.config is not None
    last_x = data.config.steps if data.live else data.records[-1].step
    spec = step_chart(curves, ink=ink, last_x=last_x, step=step, **options)
    draw_chart(st, *split_data(spec), key=f"train:{key}", alt=alt)
