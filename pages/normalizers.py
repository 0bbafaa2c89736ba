"""Normalizers: the same scores through every rule that turns scores into weights."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import streamlit as st

import dashboard.page as lab
from core.attention import Choice, entry
from core.entries import refuse_if
from core.studies import normalizers as study
from dashboard.draw import normalizers as draw

MAX_SCORES, LARGEST = 32, 1e4
MAX_CURVES = 4
USUAL = "softmax", "sink", "sigmoid", "sparsemax"
MASKED = "x"
SINK = entry("normalizer", "sink")
# the sink starts at 1 on this page
START: Any = replace(next(one for one in SINK.params if one.key == "start"), default=1.0)


def own_fields(normalizer: str) -> dict[str, str]:
    """The fields of this page that are parameters of a normalizer, by these."""
    fields = {"temperature": "temperature"} | ({"start": "sink"} if normalizer == SINK.key else {})
    names = {param.key for param in entry("normalizer", normalizer).params}
    return {name: one for name, one in fields.items() if name in names}


class Controls(lab.Fields, page="normalizers"):
    scores = lab.Text(
        "Scores of one query",
        lambda _: write(study.example()[2]),
        span=2,
        help=f"Type numbers with commas between them, and {MASKED} for a masked key.",
    )
    spread = lab.SelectSlider(
        "Scores times",
        [0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0],
        1.0,
        help="Every score is multiplied by this number first.",
    )
    temperature = lab.SelectSlider(
        "Temperature τ",
        [0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 10.0],
        1.0,
        help="Normalizers with a temperature divide the scores by it. A small temperature makes the "
        "largest weight larger.",
    )
    key = lab.Segmented[str](
        "Key",
        lambda c: c.names,
        lambda c: c.names[c.largest],
        text=lab.plain,
        pills=True,
        max_options=draw.MAX_PILLS,
        also=lambda c: {"width": lab.room(260)} if len(c.names) > draw.MAX_PILLS else {},
        help="The key whose weight the equation and the curves show.",
    )
    curves = lab.MultiSelect(
        f"Up to {MAX_CURVES} normalizers",
        draw.NAMES,
        USUAL,
        max_options=MAX_CURVES,
        help="Each is a figure above and a curve below.",
    )
    sink = lab.Number(
        f"{SINK.name} b",
        START.default,
        START.low,
        START.high,
        START.step,
        slider=True,
        help=START.help,
    )
    choices = lab.ParamsField("Parameters", key="params", axis="normalizer", own=own_fields)
    equation = lab.Select(
        "Equation of",
        draw.NAMES,
        draw.BASELINE,
        also=lambda _: {"width": lab.room(170)},
        help="The normalizer whose formula is shown, with the picked key's numbers.",
    )

    @property
    def row(self) -> study.Scores:
        """The scores as numbers; ConfigError when they cannot be read."""
        return parse(self.scores)

    @property
    def scaled(self) -> study.Scores:
        return tuple(None if score is None else score * self.spread for score in self.row)

    @property
    def names(self) -> tuple[str, ...]:
        tokens, count = study.example()[0], len(self.row)
        return tokens if count == len(tokens) else tuple(f"key {at}" for at in range(count))

    @property
    def largest(self) -> int:
        scores = [-math.inf if score is None else score for score in self.row]
        return scores.index(max(scores))

    @property
    def picked(self) -> int:
        return self.names.index(self.key)


def parse(text: str) -> study.Scores:
    """Numbers separated by commas, x for a masked key; ConfigError names the first that is neither."""
    parts = [part.strip() for part in text.replace("−", "-").split(",")]
    if not parts[-1]:
        parts.pop()  # a comma at the end is a list that is still being typed
    refuse_if(
        not parts,
        f"There is no score here. Type numbers with commas between them; {MASKED} masks a key.",
    )
    refuse_if(
        len(parts) > MAX_SCORES,
        f"There are {len(parts)} scores; this page draws at most {MAX_SCORES}.",
    )
    scores: list[float | None] = []
    for index, part in enumerate(parts):
        try:
            score = None if part.lower() == MASKED else float(part)
        except ValueError:
            score = math.nan
        quoted = f"“{part[:20]}”" if part else "empty"
        refuse_if(
            score is not None and not abs(score) <= LARGEST,
            f"Score {index}, {quoted}, is not a number from −{LARGEST:,.0f} to {LARGEST:,.0f}; "
            f"write numbers with commas between them, and {MASKED} for a masked key.",
        )
        scores.append(score)
    return tuple(scores)


def write(scores: study.Scores) -> str:
    return ", ".join(MASKED if score is None else f"{score:.2f}" for score in scores)


def page() -> None:
    st.html(draw.STYLE)
    lab.title(
        "Normalizers",
        "A normalizer turns scores into weights: how much does each key get?",
    )
    lab.take_built("normalizers", adopt, axes=("normalizer",))
    explore()


def adopt(built: lab.Built) -> None:
    """Draw the normalizer that was built elsewhere first, and write its equation."""
    choice = built.get("normalizer", Choice(draw.BASELINE))
    shown = list(dict.fromkeys([choice.key, *USUAL]))[:MAX_CURVES]
    Controls.set(choices=(choice,), equation=choice.key, curves=shown)


@lab.fragment
@lab.shown_errors()
def explore() -> None:
    controls = Controls.draw("scores", "spread", "temperature")
    controls = controls.draw_more("key", into=lab.HERE)
    picture = st.container()
    # under the picture, and before it in this run, as it has what the picture is drawn from
    controls = controls.draw_more(
        "curves", "sink", "choices", into=lab.settings_panel("Choose normalizers")
    )
    rows = [
        lab.cached(study.normalize_row, choice, controls.row, controls.spread)
        for choice in controls.choices
    ]
    shown = [row for row in rows if row.key in controls.curves]
    with picture:
        bars(controls, shown)
        spoken = [row for row in rows if row in shown or row.key == draw.BASELINE]
        lab.fact(draw.fact_text(spoken, controls.row))
        linked = Controls.equation.key_of(controls) in st.query_params
        with lab.settings_panel("The equation of one rule, with its numbers", opened=linked):
            lab.draw_equation(
                Controls,
                "normalizer",
                dict(zip(controls.choices, rows, strict=True)),
                lambda row: draw.normalizer_latex(
                    row, controls.names, controls.picked, lab.Ink.of(lab.theme()).pick
                ),
            )
    curves(controls, rows)
    lab.details(
        f"All {len(rows)} normalizers", partial(everything, controls, rows), "normalizers:all"
    )
    sources = partial(
        lab.equation_sources,
        Controls,
        "normalizer",
        controls.choices,
        study.normalizer_of,
        partial(draw.snippet, scores=controls.scaled),
    )
    lab.details("Equations, papers and the code that just ran", sources, "normalizers:sources")


def bars(controls: Controls, rows: Sequence[study.RowWeights], rules: bool = False) -> None:
    names, picked, theme = controls.names, controls.picked, lab.theme()
    tiles = [draw.weights_tile(row, controls.row, names, picked, rules) for row in rows]
    st.html(draw.bars([draw.scores_tile(controls.scaled, names, picked, theme), *tiles], theme))


def everything(controls: Controls, rows: Sequence[study.RowWeights]) -> None:
    bars(controls, rows, rules=True)
    lab.table(
        draw.HEAD,
        draw.table_rows(rows),
        caption="What each normalizer's weights measure",
        markers=False,
    )
    own = controls.row != study.example()[2]
    lab.caption(draw.conditions(rows, own, controls.spread, controls.temperature))


def curves(controls: Controls, rows: Sequence[study.RowWeights]) -> None:
    st.markdown("## Weight against score")
    shown = [choice for choice in controls.choices if choice.key in controls.curves]
    if not shown:
        st.info("Pick a normalizer to see its curve.", icon=":material/show_chart:")
        lab.as_python(weights=rows)
        return
    points = [
        lab.cached(study.sweep, choice, controls.row, controls.spread, controls.picked)
        for choice in shown
    ]
    names = [draw.NAMES[choice.key] for choice in shown]
    lab.as_python(
        weights=rows,
        curves=points,
        draw={
            "normalizers:chart": f"""
import altair as alt
import pandas as pd

names = {names}
points = pd.DataFrame([(name, *point) for name, curve in zip(names, curves) for point in curve],
                      columns=["normalizer", "score", "weight"])
alt.Chart(points).mark_line().encode(x="score", y="weight", color="normalizer")
"""
        },
    )
    st.markdown(
        f"**Weight of “{lab.plain(controls.names[controls.picked])}”**, while the other scores stay the same"
    )
    series = [lab.Curve(name, curve.tolist()) for name, curve in zip(names, points, strict=True)]
    first, last = points[0][[0, -1], 0].tolist()
    lab.draw_chart(
        st,
        lab.fixed_chart(names, "score of this key", first, last, lab.Ink.of(lab.theme())),
        lab.curve_rows(series, controls.scaled[controls.picked]),
        theme=None,
        key="normalizers:chart",
        alt="The weight of one key as its score rises",
    )
