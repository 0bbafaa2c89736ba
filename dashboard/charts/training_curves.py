"""The curves of a run: loss, what its task is judged by, and what tells how it learns; all with the picked step."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from core.tasks import Task
from core.training.diagnose import Finding, diagnose
from core.training.record import Record
from dashboard.charts.curves import Curve, step_chart
from dashboard.charts.markdown import plain
from dashboard.charts.numbers import number, percent
from dashboard.charts.palette import Ink
from dashboard.charts.vega import Spec, axis_style, figure, layer
from dashboard.runtime.run_data import RunData

SMALL = 140  # pixels
LEVELS = (0.25, 0.5, 1.01)  # where the axis of shares may end: all of the weight may be a rounding over one
MOST_HEADS = 4  # lines that are told apart
APART = 0.01  # shares that a curve of its own could show
FORMS_IN_NATS = ("pairs", "text", "label")


def title(text: str) -> None:
    st.markdown(f":small[**{text}**]")


def findings(data: RunData, step: int) -> dict[str, list[Finding]]:
    """What goes wrong up to a step, by the curve that it stands beside."""
    if data.config is None:
        return {}
    ended = data.status.message if data.status.state == "failed" else ""
    result: dict[str, list[Finding]] = {}
    for one in diagnose(data.until(step), data.config, data.task().baseline_loss, ended):
        result.setdefault(one.beside, []).append(one)
    return result


def show_findings(reports: Sequence[Finding]) -> None:
    """A sentence of what was measured, and one of what to try."""
    for one in reports:
        st.markdown(f":small[**{plain(one.text)}** {plain(one.advice)}]")


def loss(data: RunData, step: int, ink: Ink, reports: Sequence[Finding]) -> None:
    """Held-out and training loss, and the loss of guessing."""
    task = data.task()
    title("Loss" if task.form in FORMS_IN_NATS else "Squared error")
    curves = [Curve("held-out", [(r.step, r.loss) for r in data.records]),
              Curve("training", [(r.step, r.train_loss) for r in data.records])]
    guess = (task.baseline_loss, f"{baseline_name(task)}: {number(task.baseline_loss)}")
    top = _top(data, guess[0])
    spec = step_chart(curves, ink=ink, last_x=last_x(data), step=step, guess=guess, high=top)
    at = data.at(step)
    st.vega_lite_chart(spec=spec, key="train:loss",
                       alt=f"Held-out loss over training; {number(at.loss)} at step {step}.")
    show_findings(reports)


def baseline_name(task: Task) -> str:
    """The name of the prediction that gives the baseline loss."""
    return {"label": "class frequencies", "series": "the mean"}.get(task.form, f"guessing a {task.unit}")


def _top(data: RunData, guess: float) -> float:
    """A spike does not flatten the rest: the axis ends at three times guessing, or at the start."""
    first = data.records[0].loss or guess
    most = max((r.loss or 0.0 for r in data.records), default=guess)
    return max(guess, first, min(most, 3 * guess))


def metric(data: RunData, step: int, ink: Ink) -> None:
    """What the task is judged by."""
    task, records = data.task(), data.records
    if task.form == "series":
        title("Error, in % of repeating the last season")
        curves = [Curve("error", [(r.step, None if r.error is None else 100 * r.error) for r in records])]
        spec = step_chart(curves, ink=ink, last_x=last_x(data), step=step, guess=(100.0, "the last season again"),
                           named=False)
        st.vega_lite_chart(spec=spec, key="train:exact", alt="Held-out error over training, beside the last season.")
        return
    one, many = task.unit, task.whole
    scores = [Curve(name, [(r.step, getattr(r, key)) for r in records]) for name, key in
              (("BLEU", "bleu"), ("chrF", "chrf")) if any(getattr(r, key) is not None for r in records)]
    scored = " and ".join(["Exact match", *(curve.name for curve in scores)])
    title({"text": f"{one.capitalize()}s right, held-out", "label": "Right, held-out"}.get(
        task.form, f"{scored}, held-out"))
    whole = [(r.step, None if r.exact is None else 100 * r.exact) for r in records]
    single = [(r.step, None if r.letters is None else 100 * r.letters) for r in records]
    singles = Curve(f"single {one}s", single)
    curves = {"pairs": [Curve(f"whole {many}", whole), singles],
              "label": [Curve(many, single), Curve("balanced accuracy", balanced_points(records))]}.get(
                  task.form, [singles])
    curves += scores
    best = max(data.baselines(records[-1].held_out), key=lambda one: one[1], default=None)
    guess = None if best is None else (100 * best[1], f"{best[0]}: {percent(best[1])}")
    spec = step_chart(curves, ink=ink, last_x=last_x(data), step=step, high=100, percent=not scores, guess=guess)
    st.vega_lite_chart(spec=spec, key="train:exact", alt=f"Share of held-out {many} that are right over training.")


def balanced_points(records: Sequence[Record]) -> list[tuple[float, float | None]]:
    """Balanced accuracy in percent over the steps; empty where classes are so even that it is the accuracy."""
    right = [r.exact if r.letters is None else r.letters for r in records]
    if all(r.balanced is None or share is None or abs(r.balanced - share) < APART
           for r, share in zip(records, right, strict=True)):
        return []
    return [(r.step, None if r.balanced is None else 100 * r.balanced) for r in records]


def beneath(data: RunData, step: int, ink: Ink, reports: dict[str, list[Finding]]) -> None:
    """Where its heads look, the learning rate, the gradients over time, and those of each part of the model."""
    panels = [_gradient, _parts, _rate]
    panels = [_expected, *panels] if any(r.expected for r in data.records) else [*panels, _speed]
    for start in range(0, len(panels), 2):
        for column, panel in zip(st.columns(2, gap="medium"), panels[start : start + 2], strict=False):
            with column:
                panel(data, step, ink)
                show_findings(reports.get(panel.__name__.removeprefix("_"), ()))


def _expected(data: RunData, step: int, ink: Ink) -> None:
    title("Weight on the expected position")
    last = next(r for r in reversed(data.records) if r.expected)
    assert last.expected is not None
    heads = sorted(((w, layer, h) for layer, row in enumerate(last.expected) for h, w in enumerate(row)), reverse=True)
    curves = [Curve(f"L{layer}·H{h}", [(r.step, r.expected[layer][h] if r.expected else None) for r in data.records])
              for _, layer, h in heads[:MOST_HEADS]]
    most = max(w for r in data.records for row in r.expected or () for w in row)
    high = next(level for level in LEVELS if most <= level)
    even = (last.even, f"even attention: {number(last.even)}") if last.even is not None else None
    _small(data, curves, step, ink, "expected", high=high, guess=even)
    if len(heads) > MOST_HEADS:
        st.caption(f"The {MOST_HEADS} of {len(heads)} heads that end highest.")


def _gradient(data: RunData, step: int, ink: Ink) -> None:
    title("Gradient norm, before clipping")
    assert data.config is not None
    clip = data.config.clip
    curve = Curve("all weights", [(r.step, r.gradient) for r in data.records])
    largest = max((r.gradient or 0.0 for r in data.records), default=0.0)
    guess = (clip, f"clipped at {clip:g}") if clip <= 5 * max(largest, 1e-9) else None
    _small(data, [curve], step, ink, "gradient", guess=guess)


def _parts(data: RunData, step: int, ink: Ink) -> None:
    """The norm in each part of the model, first part on top: where it grows or fades with depth."""
    record = next((r for r in reversed(data.until(step)) if r.gradients), None)
    if record is None:
        title("Gradient norm by part of the model")
        st.caption("From the first step on.")
        return
    title(f"Gradient norm by part, step {record.step:,}")
    spec = parts_chart(record.gradients, ink, height=max(SMALL, 17 * len(record.gradients)))
    st.vega_lite_chart(spec=spec, key="train:parts", alt="Gradient norm of each part of the model.")


def parts_chart(gradients: dict[str, float], ink: Ink, height: int) -> Spec:
    """Bars on a logarithmic axis, one a part, from the input down to the output."""
    most = max(gradients.values()) or 1.0
    low = min([value for value in gradients.values() if value > 0] or [most]) / 3
    rows = [{"part": name, "norm": max(value, low), "told": number(value), "low": low}
            for name, value in gradients.items()]
    label = {**axis_style(ink), "labelLimit": 150, "labelOverlap": False}
    along = {"field": "norm", "type": "quantitative", "axis": None,
             "scale": {"type": "log", "domain": [low, most * 4], "nice": False}}
    at = {"y": {"field": "part", "type": "nominal", "sort": None, "title": None, "axis": label}, "x": along}
    return figure([
        layer("bar", rows, {**at, "x2": {"field": "low"}}, color=ink.series[0], height={"band": 0.6}),
        layer("text", rows, {**at, "text": {"field": "told", "type": "nominal"}}, align="left", dx=4, fontSize=12,
              color=ink.quiet)], height)


def _rate(data: RunData, step: int, ink: Ink) -> None:
    title("Learning rate")
    _small(data, [Curve("rate", [(r.step, r.rate) for r in data.records])], step, ink, "rate")


def _speed(data: RunData, step: int, ink: Ink) -> None:
    title("Tokens a second, while it trains")
    _small(data, [Curve("tokens", [(r.step, r.tokens_per_second) for r in data.records])], step, ink, "speed")


def _small(data: RunData, curves: Sequence[Curve], step: int, ink: Ink, key: str, high: float | None = None,
           guess: tuple[float, str] | None = None) -> None:
    spec = step_chart(curves, ink=ink, last_x=last_x(data), step=step, high=high, guess=guess, height=SMALL,
                        named=len(curves) > 1)
    st.vega_lite_chart(spec=spec, key=f"train:{key}", alt=f"{key} over training.")


def last_x(data: RunData) -> float:
    assert data.config is not None
    return data.config.steps if data.live else data.records[-1].step
