"""Figures of the page Use a model: the similarity of all pairs of inputs, and the likeliest answers as bars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from core.pretrained.answers import Candidate
from dashboard.charts.numbers import number
from dashboard.charts.palette import PAGE, SIGNED, Ink, Theme
from dashboard.charts.tokens import distinct
from dashboard.charts.vega import Spec, axis_style, figure, layer
from dashboard.views.use_model.text import short

LONGEST, TIP = 24, 120  # signs of a sentence at the matrix, and under the pointer


def similarity_chart(table: np.ndarray, names: Sequence[str], picked: tuple[int, int], theme: Theme) -> Spec:
    """Cosines of all pairs, with their numbers; purple below 0, green above, the picked pair outlined.

    The names are marks, so that another sentence changes the rows alone, and no figure is built anew.
    """
    ink = Ink.of(theme)
    labels = [f"{i}" for i in range(len(names))]
    tipped = [short(name, TIP) for name in names]
    rows = [{"row": labels[i], "column": labels[j], "value": float(table[i, j]),
             "text": number(float(table[i, j])), "one": tipped[i], "other": tipped[j],
             "dark": bool(abs(table[i, j]) > 0.55)} for i in range(len(names)) for j in range(len(names))]
    across = {**axis_style(ink), "orient": "top", "labelAngle": 0, "labelFontSize": 13, "labelColor": ink.text}
    at: dict[str, Any] = {"y": {"field": "row", "type": "ordinal", "sort": labels, "title": None, "axis": None},
                          "x": {"field": "column", "type": "ordinal", "sort": labels, "title": None, "axis": across}}
    words = [{"row": label, "name": f"{label}  {short(name, LONGEST)}"}
             for label, name in zip(labels, names, strict=True)]
    tips = [{"field": name, "type": "nominal", "title": title}
            for name, title in (("one", "row"), ("text", "cosine"), ("other", "column"))]
    colour = {"field": "value", "type": "quantitative", "legend": None,
              "scale": {"domain": [-1, 1], "range": list(SIGNED[theme]), "interpolate": "rgb"}}
    pair = [row for row in rows if {row["row"], row["column"]} == {labels[picked[0]], labels[picked[1]]}
            and row["row"] != row["column"]]
    numbers = {**at, "text": {"field": "text", "type": "nominal"},
              "color": {"condition": {"test": "datum.dark", "value": PAGE[theme]}, "value": ink.text}}
    return figure([layer("rect", rows, {**at, "color": colour, "tooltip": tips}),
                   layer("rect", pair, at, filled=False, stroke=ink.pick, strokeWidth=2.25),
                   layer("text", rows, numbers, fontSize=11),
                   layer("text", words, {"y": at["y"], "text": {"field": "name", "type": "nominal"}}, x=0, dx=-6,
                         align="right", fontSize=13, color=ink.text, tooltip=False)],
                  height=max(150, 40 * len(names)))


def bars(predictions: Sequence[Candidate], ink: Ink) -> Spec:
    """The likeliest answers, the first one in the accent."""
    names = distinct([one.word for one in predictions])
    rows = [{"word": name, "p": one.probability, "text": number(one.probability), "first": rank == 0}
            for rank, (name, one) in enumerate(zip(names, predictions, strict=True))]
    axis = {**axis_style(ink), "labelColor": ink.text, "labelFontSize": 13, "labelLimit": 220, "labelFlush": False}
    at: dict[str, Any] = {"y": {"field": "word", "type": "ordinal", "sort": names, "title": None, "axis": axis},
                          "x": {"field": "p", "type": "quantitative", "title": None, "axis": None,
                                "scale": {"domain": [0, 1.15]}}}
    colour = {"condition": {"test": "datum.first", "value": ink.pick}, "value": ink.series[0]}
    return figure([layer("bar", rows, {**at, "color": colour}, cornerRadius=2),
                   layer("text", rows, {**at, "text": {"field": "text", "type": "nominal"}}, align="left", dx=4,
                         fontSize=12, color=ink.quiet)], height=27 * len(rows))
