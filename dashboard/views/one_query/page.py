"""The page: controls, equation, picture and sentence of one query, and what √D does."""

from __future__ import annotations

import time
from collections.abc import Sequence

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.attention import AXES, AttentionConfig, ConfigError, Entry, Steps, entry, reference
from core.attention.kernels import exact
from dashboard.charts.palette import Ink
from dashboard.components.step_view import Reading, payload, read, step_view
from dashboard.runtime.cache import cached
from dashboard.runtime.mechanism_codec import choice_text
from dashboard.runtime.rendering import AHEAD
from dashboard.views.one_query import charts, choices, control_row, equations, facts, link, presets, scaling, text
from dashboard.views.one_query.compute import has_parameters, run
from dashboard.views.one_query.controls import EXACT, Controls, read_controls
from dashboard.views.one_query.session import SEED, get, key, put, uses_matrices
from dashboard.widgets.mechanism_editor import repairs
from dashboard.widgets.panels import entries_panel, fact, next_page, plain, source_panel, theme, title

NAME = "One query, step by step"
STRUT = r"\rule[-1em]{0pt}{2.35em}"
WIDE = "\u2003"  # a space that Markdown keeps
LEAD = "Follow one token’s query from projection to output. Change any control and every number follows."


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
            title(NAME, LEAD)
        control_row.draw_popover()


@st.fragment
def explore() -> None:
    """Draw controls and picture, which rerun without the rest of the page.

    The picture depends on the session alone, so it is drawn and sent before the widgets above it, except where these
    must be read first (a link, matrices in an editor).
    """
    top, symbols, view = st.container(), st.container(), st.container()
    early = read_controls() if get("ready", False) and not uses_matrices() else None
    reading = picture(early, view) if early is not None else None
    if reading is not None:
        time.sleep(AHEAD)
    with top:
        controls = draw_controls()
    if early is not None and early != controls:  # a widget did not accept the session's value
        put("ready", False)
        st.rerun()
    if early is None:
        reading = picture(controls, view)
    put("ready", True)
    if reading is not None and controls.exact_config is not None:
        equation(reading, controls, symbols)
        with view:
            sources(controls.exact_config)
    link.write_link({axis: choices.read(axis) for axis in AXES})


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
    for axis, choice in choices.nearest_fit(fields, controls.error) or repairs(fields, controls.error):
        st.button(f"Use {axis} = {choice_text(choice, axis)}", on_click=choices.write, args=(axis, choice),
                  key=key(f"repair:{axis}"))


def picture(controls: Controls, view: DeltaGenerator) -> Reading | None:
    """Draw the six stages, the sentence and the conditions; returns the numbers, or None with the error drawn."""
    config = controls.exact_config
    if config is None or controls.config is None or controls.source is None:
        return None
    try:
        steps = attend(controls)
    except (ConfigError, ValueError) as error:
        view.error(plain(str(error)))
        return None
    source, stage = controls.source, controls.stage
    reading = read(steps, source.queries, source.keys, controls.query, controls.head, half=controls.half,
                   adjusts=config.has("position", "adjusts"))
    put("names", source.queries)
    typed, reasons = source.matrices is not None, text.reasons(reading, controls.real)
    bare = typed and not has_parameters(config, controls.seed)
    notes = (kernel_note(controls.config), *facts.window(reading), *controls.notes)
    data = payload(reading, text.stage_words(config, reading, controls.real, typed), stage,
                   focus_of(reading, controls), reasons, facts.fact(reading, config, stage, reasons, controls.head),
                   facts.caption(controls.seed, bare, notes), presets.sentences(controls))
    with view:
        step_view(data, key=key("view"), on_pick=control_row.apply_pick)
    return reading


def equation(reading: Reading, controls: Controls, container: DeltaGenerator) -> None:
    """Draw the equation of the stage with its numbers, in parts between which a narrow page breaks."""
    symbols, *live = equations.equation(reading, controls.exact_config, controls.stage, focus_of(reading, controls),
                                        Ink.of(theme()).pick)
    # A part in braces never breaks, and the strut keeps the lines of a narrow page apart.
    symbols, *live = (rf"$\displaystyle {{{STRUT} {part}}}$" for part in (symbols, *live))
    container.markdown(f"{symbols} {WIDE} {' '.join(live)}", text_alignment="center")


def kernel_note(config: AttentionConfig) -> str:
    """Which kernel's steps are drawn, where another was chosen."""
    item = entry("kernel", config.kernel.key)
    if item.key == EXACT.key:
        return "These are the steps of the exact kernel."
    if "same" in item.traits:
        return f"kernel = {item.key} gives the same output without these steps, which are the exact kernel’s."
    return (f"kernel = {item.key} computes other weights than these, which are the exact kernel’s; "
            "the page Cost and speed draws those that it implies.")


def attend(controls: Controls) -> Steps:
    """The steps of these controls; ConfigError where a choice needs what typed matrices do not have."""
    source, config = controls.source, controls.exact_config
    if source.matrices and config.has("position", "values") and len(source.matrices.v[0]) != config.v_dim:
        raise ConfigError(f"position = {config.position.key} adds vectors of size {config.v_dim} to the values, and V "
                          f"has {len(source.matrices.v[0])} columns; give V as many columns as K, or take position = "
                          "none.")
    return run(config, source, controls.seed, controls.real)


def focus_of(reading: Reading, controls: Controls) -> int:
    """The key in the equation: the one pressed for this row, else the one with most weight."""
    if controls.focus is None or controls.focus[0] != reading.name or controls.focus[1] >= len(reading.keys):
        return reading.best
    return controls.focus[1]


def sources(config: AttentionConfig) -> None:
    """Draw, on request, where each stage's equation is from and the function that just ran."""
    panel = st.expander("Equation, paper and source of each stage", on_change="rerun", key=key("sources"))
    if not panel.open:
        return
    with panel:
        st.markdown("The formula as a textbook writes it, against which every choice here is tested:")
        source_panel(reference.attention)
        entries_panel(entries_of(config))
        st.markdown("The kernel that just ran, the same steps for every choice of the six axes:")
        source_panel(exact)


def entries_of(config: AttentionConfig) -> list[Entry]:
    """The entry of every choice in use, in the order of the stages; a composed mask by its parts."""
    order = [axis for axis in ("projection", "position", "score", "mask", "normalizer") if axis in AXES]
    return [entry(axis, leaf.key) for axis in order for leaf in getattr(config, axis).leaves()]


def root_of_d() -> None:
    """Draw variance and entropy with and without √D."""
    st.markdown("## What √D does")
    points = cached(scaling.measure, SEED)
    left, right = st.columns(2, gap="medium")
    figures = charts.figures(points, Ink.of(theme()))
    for column, figure, alt in zip((left, right), figures, ("Variance", "Entropy"), strict=True):
        column.vega_lite_chart(figure, theme=None, key=key(alt), alt=f"{alt} with and without √D as D grows")
    fact(scaling.sentence(points))
    st.caption(f"{scaling.QUERIES} queries against {scaling.KEYS} keys, standard normal, seed {SEED}.")
