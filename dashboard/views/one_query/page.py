"""The page: controls, equation, picture and sentence of one query, and what √D does."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.attention import AXES, AttentionConfig, ConfigError, Entry, entry, reference
from core.attention.kernels import exact
from core.seeding import seeded_layer
from dashboard.charts.palette import Ink
from dashboard.components.step_view import Reading, payload, read, step_view
from dashboard.runtime.cache import cached
from dashboard.runtime.mechanism_codec import choice_text
from dashboard.runtime.rendering import render_before_widgets
from dashboard.views.one_query import charts, compute, control_row, equations, facts, link, presets, text
from dashboard.views.one_query.controls import Controls, nearest_fit, read_controls
from dashboard.views.one_query.session import SEED, get, key, put, read_choice, uses_matrices, write_choice
from dashboard.widgets.mechanism_editor import repairs
from dashboard.widgets.panels import details, entries_panel, fact, next_page, plain, source_panel, theme, title

STRUT = r"\rule[-1em]{0pt}{2.35em}"
WIDE = "\u2003"  # a space that Markdown keeps
STAGE_ORDER = ("projection", "position", "score", "mask", "normalizer")


def page() -> None:
    """Draw the page from top to bottom."""
    header()
    explore()
    root_of_d()
    next_page("one_query")


def header() -> None:
    """Draw the title and the popover, outside the fragment: a slider does not send them again."""
    put("link_errors", link.read_link())  # before the first widget takes its value out of the link
    with st.container(horizontal=True, vertical_alignment="bottom", horizontal_alignment="distribute"):
        with st.container(width=700):
            title("One query, step by step", "Follow one token’s query from projection to output. Change any control "
                                             "and every number follows.")
        control_row.draw_popover()


@st.fragment
def explore() -> None:
    """Draw controls and picture, which rerun without the rest of the page."""
    if uses_matrices():
        put("ready", False)  # their editors must be read before the picture is drawn
    controls, (symbols, reading) = render_before_widgets(key("ready"), read_controls, draw_controls, picture)
    if reading is not None and controls.exact_config is not None:
        equation(reading, controls, symbols)
        details("Equation, paper and source of each stage", partial(sources, controls.exact_config), key("sources"))
    link.write_link({axis: read_choice(axis) for axis in AXES})


def draw_controls() -> Controls:
    """Draw the row of controls, then query, head and stage, or the error of a refused choice."""
    show_link_errors(get("link_errors", []))
    put("link_errors", [])
    control_row.draw_row()
    controls = read_controls()
    if controls.config is None or controls.source is None:
        show_error(controls)
    else:
        control_row.draw_selection(controls)
        control_row.draw_stage(controls.stage)
    return read_controls()


def show_link_errors(errors: Sequence[str]) -> None:
    """Show the errors of the link until a control is changed."""
    sentences, before = get("refused", ((), None))
    controls = read_controls()
    if errors:
        sentences, before = tuple(errors), None
    elif sentences and before not in (None, controls):
        sentences = ()
    put("refused", (sentences, None if errors else controls))
    for sentence in sentences:
        st.warning(sentence)


def show_error(controls: Controls) -> None:
    """Draw the error, and a button for each choice that fits."""
    if controls.source is None:
        st.warning(controls.error)
        return
    st.error(plain(controls.error))
    fields = {**controls.fields, "dropout": 0.0}
    for axis, choice in nearest_fit(fields, controls.error) or repairs(fields, controls.error):
        st.button(f"Use {axis} = {choice_text(choice, axis)}", on_click=write_choice, args=(axis, choice),
                  key=key(f"repair:{axis}"))


def picture(controls: Controls) -> tuple[DeltaGenerator, Reading | None]:
    """Draw the six stages with sentence and conditions, or the error; returns the container above, and the numbers."""
    symbols = st.container()
    config, source, stage = controls.exact_config, controls.source, controls.stage
    if config is None or controls.config is None or source is None:
        return symbols, None
    try:
        steps = compute.run(config, source, controls.seed, controls.real)
    except (ConfigError, ValueError) as error:
        st.error(plain(str(error)))
        return symbols, None
    reading = read(steps, source.queries, source.keys, controls.query, controls.head, half=controls.half,
                   adjusts=config.has("position", "adjusts"))
    put("names", source.queries)
    typed, reasons = source.matrices is not None, text.reasons(reading, controls.real)
    weightless = typed and not any(True for _ in seeded_layer(config, controls.seed).parameters())
    notes = (facts.kernel_note(controls.config), *facts.window(reading), *controls.notes)
    data = payload(reading, text.stage_words(config, reading, controls.real, typed), stage,
                   focus_of(reading, controls), reasons, facts.fact(reading, config, stage, reasons, controls.head),
                   facts.caption(controls.seed, weightless, notes), presets.sentences(controls))
    step_view(data, key=key("view"), on_pick=control_row.apply_pick)
    return symbols, reading


def equation(reading: Reading, controls: Controls, container: DeltaGenerator) -> None:
    """Draw the equation of the stage with its numbers, in parts between which a narrow page breaks."""
    parts = equations.equation(reading, controls.exact_config, controls.stage, focus_of(reading, controls),
                               Ink.of(theme()).pick)
    # A part in braces never breaks, and the strut keeps the lines of a narrow page apart.
    symbols, *live = (rf"$\displaystyle {{{STRUT} {part}}}$" for part in parts)
    container.markdown(f"{symbols} {WIDE} {' '.join(live)}", text_alignment="center")


def focus_of(reading: Reading, controls: Controls) -> int:
    """The key in the equation: the one pressed for this row, else the one with most weight."""
    if controls.focus is None or controls.focus[0] != reading.name or controls.focus[1] >= len(reading.keys):
        return reading.best
    return controls.focus[1]


def sources(config: AttentionConfig) -> None:
    """Draw where each stage's equation is from and the function that just ran."""
    st.markdown("The formula as a textbook writes it, against which every choice here is tested:")
    source_panel(reference.attention)
    entries_panel(entries_of(config))
    st.markdown("The kernel that just ran, the same steps for every choice of the six axes:")
    source_panel(exact)


def entries_of(config: AttentionConfig) -> list[Entry]:
    """The entry of every choice in use, in the order of the stages; a composed mask by its parts."""
    return [entry(axis, leaf.key) for axis in STAGE_ORDER for leaf in getattr(config, axis).leaves()]


def root_of_d() -> None:
    """Draw variance and entropy with and without √D."""
    st.markdown("## What √D does")
    points = cached(compute.measure_scaling, SEED)
    figures = charts.figures(points, Ink.of(theme()))
    for column, figure, alt in zip(st.columns(2, gap="medium"), figures, ("Variance", "Entropy"), strict=True):
        column.vega_lite_chart(figure, theme=None, key=key(alt), alt=f"{alt} with and without √D as D grows")
    fact(facts.scaling_fact(points))
    st.caption(f"{compute.QUERIES} queries against {compute.KEYS} keys, standard normal, seed {SEED}.")
