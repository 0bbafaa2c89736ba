"""The page Heads over a corpus: a scatter of heads, one head over all texts, the texts that show it, and its map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from html import escape

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.corpus import Measure, measure_texts
from core.corpus.joint_map import HeadVectors, join_vectors, joint_map, nearness
from core.corpus.measures import AXES
from core.corpus.run import load_inputs
from core.corpus.statistics import CONFIDENCE, RunningMean
from core.entries import ConfigError
from core.interpret.trace import Head
from core.pretrained import PretrainedError
from core.runs.runs import Run
from dashboard.draw.formats import number, percent
from dashboard.draw.palette import Ink, Theme, shade, text_on
from dashboard.draw.vega import split_data, titles_as_marks
from dashboard.navigation import step_of
from dashboard.runtime import jobs
from dashboard.runtime.link_values import link_value
from dashboard.runtime.page_pictures import add_script
from dashboard.runtime.polling import SLOW_POLL_INTERVAL, poll
from dashboard.runtime.rendering import reruns_alone
from dashboard.server import people
from dashboard.ui.heads import role_line
from dashboard.ui.presentation import draw_chart
from dashboard.ui.progress import UNASKED, fragment_unless_measuring, measure_with_progress
from dashboard.views.corpus import charts, compute, text
from dashboard.views.corpus.compute import (
    Measurement,
    TextExample,
    find_measurement,
    read_measurement,
)
from dashboard.views.corpus.controls import (
    LAST,
    Controls,
    HeadControls,
    Last,
    axes_now,
    draw_colour,
    draw_controls,
    draw_head_controls,
    head_now,
    key,
    other_settings,
    pick_from_scatter,
)
from dashboard.views.corpus.script import script
from dashboard.widgets import run_controls
from dashboard.widgets.model_picker import input_errors, load_model
from dashboard.widgets.model_picker.inputs import TEXT
from dashboard.widgets.model_picker.models import MODEL
from dashboard.widgets.panels import (
    caption,
    chart_title,
    details,
    fact,
    next_page,
    paragraph,
    placeholder,
    plain,
    source_panel,
    theme,
    title,
)

MOST_SHOWN = 48  # tokens of a text, around its query

PAGE, RUN = "corpus", "corpus:run"
EXAMPLES = {"strongest": compute.strongest, "typical": compute.typical, "weakest": compute.weakest}


@dataclass(frozen=True)
class Ahead:
    """What the scatter shows that was drawn before the controls, and the column beside it."""

    controls: Controls
    head: Head
    right: DeltaGenerator


def page() -> None:
    """Draw the page from top to bottom."""
    title(
        "Heads over a corpus",
        "Every head on hundreds of texts: what is typical of it, and where it fails.",
    )
    fragment_unless_measuring(_view)
    details("Papers and source", _sources, "corpus:source-code")
    next_page(PAGE)


def _view() -> None:
    top, results = st.container(), st.container(key=key("results"))
    scatter = results.container()
    ahead = _scatter_ahead(scatter)
    with top:
        controls = draw_controls()
        measurement = None if controls is None else _measurement(controls)
    if controls is None or measurement is None:
        return
    with results:
        if measurement.live:
            poll(
                lambda: read_measurement(measurement.run),
                partial(_draw, controls=controls),
                True,
                "corpus:live",
                interval=SLOW_POLL_INTERVAL,
            )
        else:
            _draw(measurement, controls, scatter, ahead)


def _scatter_ahead(scatter: DeltaGenerator) -> Ahead | None:
    """Draw the scatter before the controls where a rerun changes no more than its axes or its head."""
    last: Last | None = st.session_state.get(LAST)
    if last is None or not reruns_alone() or last.settings != other_settings():
        return None
    try:
        measurement, controls = read_measurement(last.run), axes_now(last.controls)
        head = head_now(measurement)
        if head is None:
            return None
        with scatter:
            ahead = Ahead(controls, head, _scatter_and_roles(measurement, controls, head))
    except (
        ConfigError,
        PretrainedError,
        OSError,
    ):  # said below the controls, for instance of a deleted measurement
        return None
    return ahead


def _measurement(controls: Controls) -> Measurement | None:
    """Draw the buttons of the measurement; returns what it gave so far."""
    link_value(RUN, "", _run_id)
    config = controls.config
    if config is not None and run_controls.pressed(PAGE, config):
        run_controls.start_run(
            PAGE, config, lambda: jobs.measure(config), _select, ConfigError, PretrainedError
        )
        st.rerun()
    run = None if config is None else find_measurement(config, st.session_state.get(RUN))
    run_controls.show_flash(PAGE)
    if run is None:
        # The button that measures what was not measured yet
        with st.container(horizontal=True, vertical_alignment="center"):
            st.button(
                "Measure",
                icon=":material/play_arrow:",
                type="primary",
                key="corpus:start",
                on_click=run_controls.press,
                args=(PAGE,),
                disabled=controls.config is None,
                help="A worker measures the texts one by one; Stop keeps what there is.",
            )
            st.caption(
                "These texts were not measured with this model yet."
                if controls.config
                else "Open Corpus, and paste texts or upload a file."
            )
        run_controls.limits_line(steps=False)
        placeholder("The heads appear here while the texts are measured.", charts.HEIGHT)
        return None
    measurement = read_measurement(run)
    if measurement.status.state != "finished":
        _bar(measurement)
    return measurement


def _run_id(text: str) -> str:
    """The id of a measurement on this machine; ValueError for another one."""
    if people.find_measurement(text) is None:
        raise ValueError(f"{text[:40]!r} is no measurement on this machine")
    return text


def _select(run: Run) -> None:
    st.session_state[RUN] = run.id


def _bar(measurement: Measurement) -> None:
    """Stop or Continue, and how far the measurement is."""
    run = measurement.run
    buttons, column = st.columns([1, 3.4], vertical_alignment="center")
    if not people.mine(run):
        run_controls.anothers_note(run)
    elif measurement.live:
        run_controls.stop_button(buttons, PAGE, run_controls.end_run, run)
    elif measurement.corpus.texts < measurement.count:
        run_controls.continue_button(buttons, PAGE, partial(run_controls.continue_run, PAGE), run)
    with column:
        poll(lambda: read_measurement(run), _progress, measurement.live, "corpus:progress")


def _progress(measurement: Measurement) -> None:
    run_controls.show_progress(
        measurement.run,
        measurement.status,
        ending=plain(measurement.status.message),
        progress=lambda: text.progress(measurement),
    )


def _draw(
    measurement: Measurement,
    controls: Controls,
    scatter: DeltaGenerator | None = None,
    ahead: Ahead | None = None,
) -> None:
    if measurement.corpus.means is None:
        if measurement.live:
            placeholder(
                "The model is loaded; the first heads appear in about five seconds.", charts.HEIGHT
            )
        return
    with input_errors():
        _heads(measurement, controls, scatter or st.container(), ahead)


def _heads(
    measurement: Measurement, controls: Controls, scatter: DeltaGenerator, ahead: Ahead | None
) -> None:
    ref = controls.ref
    chosen = draw_head_controls(measurement, ref)
    st.session_state[LAST] = Last(measurement.run, controls, other_settings())
    if ahead is not None and (ahead.controls, ahead.head) != (controls, chosen.head):
        st.rerun()
    with scatter:
        right = ahead.right if ahead else _scatter_and_roles(measurement, controls, chosen.head)
    with right:
        # Draw the picked head's values over all texts, and its mean
        noun = controls.noun
        name = measurement.scores.name(chosen.head)
        chart_title(f"{chosen.measure.name} of {name} in every {noun}; ticks are deciles")
        spec = charts.histogram(
            measurement.values(chosen.measure, chosen.head), chosen.measure, f"{noun}s", theme()
        )
        draw_chart(
            st,
            spec,
            key=key("histogram"),
            alt=f"How many {noun}s have which {text.in_sentence(chosen.measure)} in {name}",
        )
        fact(text.about(text.fact(measurement, chosen.measure, chosen.head), noun))
    st.latex(text.equation(measurement, chosen.measure, chosen.head))
    if chosen.view == "map":
        draw_map(measurement, controls, chosen)
    else:
        # Draw the texts that show the head, with a row of each map
        examples = EXAMPLES[chosen.view](measurement, controls.ref, chosen.measure, chosen.head)
        caption(
            text.about(
                text.view_note(chosen.view, measurement, chosen.measure, chosen.head), controls.noun
            )
        )
        st.html(marked_table(examples, chosen.measure, controls.noun, theme()))
        if examples:
            # A link to the whole map of the head on one of the texts; none for pictures
            index = examples[0].text
            written, step = load_inputs(measurement.run)[index].text, step_of("pretrained")
            if written:
                st.page_link(
                    step.path,
                    label=f"Open text {index + 1} in {step.title}",
                    icon=step.icon,
                    query_params={
                        "head": f"{chosen.head[0]}.{chosen.head[1]}",
                        TEXT: written,
                        MODEL: controls.ref.written,
                    },
                )
    add_script(partial(script, measurement, controls, chosen))
    caption(
        plain(
            text.about(
                text.caption(measurement, load_model(ref), compute.token_bytes(ref)), controls.noun
            )
        )
    )
    st.download_button(
        "All heads, CSV",
        lambda: text.to_csv(measurement),
        "heads-over-a-corpus.csv",
        "text/csv",
        icon=":material/download:",
        on_click="ignore",
    )


def _scatter_and_roles(measurement: Measurement, controls: Controls, head: Head) -> DeltaGenerator:
    """Draw the scatter and the roles below it; returns the column beside them."""
    left, right = st.columns([1.7, 1], gap="medium")
    with left:
        _scatter(measurement, controls, head)
        role_line(measurement.scores.head_roles, len(measurement.heads))
    return right


def _scatter(measurement: Measurement, controls: Controls, head: Head) -> None:
    x, y = (compute.axis_of(measurement, controls.ref, one) for one in (controls.x, controls.y))
    if missing := [one.measure for one in (x, y) if one.is_missing]:
        st.info(text.not_measured(missing[0], measurement), icon=":material/edit:")
        return
    chart_title(
        f"{controls.y.name} and {text.in_sentence(controls.x)} of every head: means over {controls.noun}s, "
        f"{percent(CONFIDENCE)} intervals"
    )
    spec = charts.head_scatter(measurement, x, y, head, theme())
    draw_chart(
        st,
        spec,
        drawn=split_data(titles_as_marks(spec, Ink.of(theme()))),
        key=key("scatter"),
        alt="Every head as a point of two measures",
        selection_mode="head",
        on_select=partial(pick_from_scatter, measurement, controls.ref),
    )


def _sources() -> None:
    """Draw the papers of the measures and the functions that ran."""
    for measure in AXES:
        source = f" [{measure.paper}]({measure.url})" if measure.url else ""
        st.markdown(f"**{measure.name}** — {plain(measure.meaning)}.{source}")
    paragraph(
        "Running means and intervals: Welford 1962. Queries and keys in one plane: "
        "[Yeh et al. 2023](https://arxiv.org/abs/2305.03210), AttentionViz."
    )
    source_panel(measure_texts)
    source_panel(RunningMean)
    source_panel(joint_map)


# The joint map of a head's queries and keys.


def draw_map(measurement: Measurement, controls: Controls, chosen: HeadControls) -> None:
    """Draw the head's queries and keys as points of one plane."""
    if measurement.live:
        st.info("The map is drawn once the measurement has ended.", icon=":material/info:")
        return
    if (
        vectors := _vectors(compute.vectors_key(measurement, controls.ref), f"{controls.noun}s")
    ) is None:
        return
    points = joint_map(*vectors.head(*chosen.head))
    colour = draw_colour()
    name = measurement.scores.name(chosen.head)
    chart_title(f"Queries ● and keys ▲ of {name} in the plane of most variance")
    draw_chart(
        st,
        charts.joint_chart(points, vectors, colour, theme()),
        key=key("map"),
        alt=f"Queries and keys of {name} in the plane of most variance",
    )
    near = nearness(points, vectors, *chosen.head)
    caption(
        text.about(
            text.map_note(points, name, len(vectors.tokens), int(vectors.texts[-1]) + 1, near),
            controls.noun,
        )
    )


def _vectors(of: compute.VectorsKey, nouns: str) -> HeadVectors | None:
    """The queries and keys of the texts that were read so far; None without any."""
    if not compute.has_vectors(of):
        with st.spinner("Reading queries and keys"):
            texts = range(len(compute.texts_of_map(of)))
        read = measure_with_progress(
            compute.VECTORS, of, texts, partial(compute.read_vectors, of), nouns, UNASKED
        )
        if len(read) < len(texts) and not compute.has_vectors(of):
            return join_vectors(list(read.values())) if read else None
    return compute.vectors_of(of)


# Texts as HTML, each token in the colour of its weight in one row: the query in the accent, expected keys underlined.


def marked_table(examples: Sequence[TextExample], measure: Measure, noun: str, theme: Theme) -> str:
    """A table with a row a text (`noun`): its decile where it stands for one, its value, and its tokens."""
    ink, deciles = Ink.of(theme), any(one.decile is not None for one in examples)
    head = [*(["decile"] if deciles else []), measure.name, f"{noun}, with one row of its map"]
    rows = "".join(_row(one, deciles, measure, noun, ink, theme) for one in examples)
    columns = "".join(
        f'<th scope="col" style="padding:2px 8px 2px 0;font-weight:400;text-align:left;opacity:.75;'
        f'white-space:nowrap">{escape(name)}</th>'
        for name in head
    )
    return (
        f'<div style="overflow-x:auto"><table aria-label="Texts of this head" style="width:100%;font-size:14px;'
        f'border-collapse:collapse"><thead><tr>{columns}</tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _row(
    example: TextExample, deciles: bool, measure: Measure, noun: str, ink: Ink, theme: Theme
) -> str:
    cell = f"padding:6px 8px 6px 0;border-top:1px solid {ink.hairline};vertical-align:top"
    decile = (
        f'<td style="{cell}">{round(10 * example.decile)}</td>'
        if deciles and example.decile is not None
        else ""
    )
    row = example.row
    note = f"{row.line.tokens[row.query]} → {row.line.tokens[row.key]} {number(float(row.weights[row.key]))}"
    if not np.isnan(row.value) and measure.role is not None:
        note += f"; here {number(row.value)}"
    return (
        f'<tr>{decile}<td style="{cell};text-align:left">{number(example.value)}</td>'
        f'<td style="{cell};width:100%;line-height:26px">{_tokens(example, ink, theme)}'
        f'<div style="font-size:13px;line-height:18px;color:{ink.quiet}">{noun} {example.text + 1}: '
        f"{escape(note)}</div></td></tr>"
    )


def _tokens(example: TextExample, ink: Ink, theme: Theme) -> str:
    """The tokens around the query; those of one word stand together."""
    row = example.row
    first = max(0, min(row.query - MOST_SHOWN // 2, len(row.line) - MOST_SHOWN))
    shown = range(first, min(len(row.line), first + MOST_SHOWN))
    parts = []
    for index in shown:
        joined = (
            index > first
            and row.line.word[index] is not None
            and row.line.word[index] == row.line.word[index - 1]
        )
        parts.append(("" if joined else " ") + _token(example, index, ink, theme))
    return f"{'… ' if first else ''}{''.join(parts).strip()}{' …' if shown.stop < len(row.line) else ''}"


def _token(example: TextExample, index: int, ink: Ink, theme: Theme) -> str:
    row = example.row
    colour = shade(float(row.weights[index]), theme)
    style = f"background:{colour};color:{text_on(colour, theme)};padding:1px 2px;border-radius:3px"
    if index == row.query:
        style += f";outline:2px solid {ink.pick}"
    if row.expected[index]:
        style += f";border-bottom:2px dashed {ink.text}"
    token = row.line.tokens[index].removeprefix("##")
    return (
        f'<span title="{number(float(row.weights[index]))}" style="{style}">{escape(token)}</span>'
    )
