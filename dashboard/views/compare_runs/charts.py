"""One measure of every run, over steps and over seconds of training: the two may rank the runs differently."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from dashboard.draw.curves import Curve, legend, step_chart
from dashboard.draw.palette import Ink
from dashboard.draw.vega import split_data
from dashboard.ui.presentation import draw_chart
from dashboard.views.compare_runs.compute import ComparedRun, Measure
from dashboard.widgets.panels import chart_title, theme


def curves(sides: Sequence[ComparedRun], measure: Measure, step: int) -> None:
    """Draw the same measure twice: left over steps, right over seconds."""
    ink, factor = Ink.of(theme()), 100 if measure.share else 1
    for column, unit in zip(
        st.columns(2, gap="medium"), ("step", "seconds of training"), strict=True
    ):
        lines = [
            Curve(
                side.name,
                [
                    (
                        float(r.step if unit == "step" else r.trained),
                        None if value is None else value * factor,
                    )
                    for r in side.records
                    for value in (measure.value(r),)
                ],
                place=side.index,
            )
            for side in sides
        ]
        spec = step_chart(
            lines,
            ink=ink,
            last_x=max((x for line in lines for x, _ in line.points), default=1.0),
            step=step if unit == "step" else None,
            unit=unit,
            percent=measure.share,
            high=100 if measure.share and measure.key != "error" else None,
        )
        chart_title(measure.name, column, legend(lines, ink))
        draw_chart(
            column,
            *split_data(spec),
            key=f"compare_runs:{unit[:4]}",
            alt=f"{measure.name} of {len(sides)} runs over {unit}",
        )
