"""One measure of every run, over steps and over seconds of training: the two may rank the runs differently."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import streamlit as st

from dashboard.charts.curves import Curve, step_chart
from dashboard.charts.palette import Ink
from dashboard.runtime.run_data import task_of
from dashboard.views.compare_runs.compute import ComparedRun, Value, expected
from dashboard.widgets.panels import theme


@dataclass(frozen=True)
class Measure:
    """Something that records hold: what it is called, where it stands, and its unit."""

    key: str
    short: str
    name: str
    value: Value
    share: bool = True  # of 1, drawn in percent


MEASURES = (
    Measure("exact", "Exact", "Whole outputs right", lambda r: r.exact),
    Measure("error", "Error", "Error, as a share of repeating the last season", lambda r: r.error),
    Measure("letters", "Tokens", "Single tokens right", lambda r: r.letters),
    Measure("bleu", "BLEU", "BLEU", lambda r: r.bleu, False),
    Measure("chrf", "chrF", "chrF", lambda r: r.chrf, False),
    Measure("loss", "Loss", "Held-out loss", lambda r: r.loss, False),
    Measure("train_loss", "Training loss", "Training loss", lambda r: r.train_loss, False),
    Measure("expected", "Expected place", "Weight on the expected place, best head", expected),
)


def measured(sides: Sequence[ComparedRun]) -> list[Measure]:
    """The measures that any of the runs has, in the words of the task where all learn the same."""
    measures = [measure for measure in MEASURES
             if any(measure.value(record) is not None for side in sides for record in side.records)]
    configs = {side.data.config.task for side in sides if side.data.config is not None}
    if len(configs) != 1:
        return measures
    task = task_of(next(iter(configs)))
    own = {"exact": f"{'' if task.form == 'label' else 'whole '}{task.whole} right",
           "letters": f"single {task.unit}s right"}
    return [replace(measure, name=own[measure.key][0].upper() + own[measure.key][1:]) if measure.key in own else measure
            for measure in measures]


def curves(sides: Sequence[ComparedRun], measure: Measure, step: int | None) -> None:
    """The same measure twice: left over steps, right over seconds."""
    ink = Ink.of(theme())
    factor = 100 if measure.share else 1
    left, right = st.columns(2, gap="medium")
    for place, unit in ((left, "step"), (right, "seconds of training")):
        points = [[(float(r.step if unit == "step" else r.trained), value if value is None else value * factor)
                   for r in side.records for value in (measure.value(r),)] for side in sides]
        drawn = [Curve(side.name, line, side.index) for side, line in zip(sides, points, strict=True)]
        last = max((x for line in points for x, _ in line), default=1.0)
        with place:
            st.markdown(f":small[**{measure.name}**]")
            figure = step_chart(drawn, ink=ink, last_x=last, step=step if unit == "step" else None, unit=unit,
                                high=100 if measure.share and measure.key != "error" else None, percent=measure.share)
            st.vega_lite_chart(spec=figure, key=f"compare_runs:{unit[:4]}",
                               alt=f"{measure.name} of {len(sides)} runs over {unit}")
