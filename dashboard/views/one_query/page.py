"""The page's parts: the bench (controls, equation, picture, words) and what stands below it."""

from __future__ import annotations

import time
from collections.abc import Sequence

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.attention import AXES, AttentionConfig, ConfigError, Entry, Steps, entry
from core.attention.kernels import exact
from dashboard.charts.palette import Ink
from dashboard.components.step_view import Reading, payload, read, step_view
from dashboard.runtime.cache import cached
from dashboard.runtime.mechanism_codec import choice_text
from dashboard.runtime.rendering import AHEAD
from dashboard.views.one_query import charts, choices, control_row, equations, facts, link, presets, scaling, text
from dashboard.views.one_query.compute import learned, run
from dashboard.views.one_query.controls import EXACT, Settings, settings
from dashboard.views.one_query.session import SEED, get, given, key, put
from dashboard.widgets.mechanism_editor import repairs
from dashboard.widgets.panels import entries_panel, fact, next_page, plain, source_panel, theme, title

NAME = "One query, step by step"
STRUT = r"\rule[-1em]{0pt}{2.35em}"
WIDE = "\u2003"  # a space that Markdown keeps
LEAD = "Follow one token’s query from projection to output. Change any control and every number follows."


def page() -> None:
    """Draw the page from top to bottom."""
    opening()
    bench()
    root_of_d()
    next_page("one_query")


def opening() -> None:
    """Title, and the popover of what is changed seldom: outside the bench, so that a slider does not send it again."""
    put("found", link.take())  # before the first widget takes its value out of the link
    with st.container(horizontal=True, vertical_alignment="bottom", horizontal_alignment="distribute"):
        with st.container(width=700):
            title(NAME, LEAD)
        control_row.popover()


@st.fragment
def bench() -> None:
    """Controls and picture, which rerun without the rest of the page.

    The picture follows from the session alone, so it is made and sent before the controls that stand over it; only
    where the controls must first be read (a link, matrices in an editor) does it come after them.
    """
    top, symbols, view = st.container(), st.container(), st.container()
    first = get("ready", False) and not given()
    drawn = settings() if first else None
    reading = picture(drawn, view) if drawn is not None else None
    if reading is not None:
        time.sleep(AHEAD)
    with top:
        now = row_of_controls()
    if drawn is not None and drawn != now:  # a control would not take what stood in the session
        put("ready", False)
        st.rerun()
    if drawn is None:
        reading = picture(now, view)
    put("ready", True)
    if reading is not None and now.drawn is not None:
        equation(reading, now, symbols)
        with view:
            sources(now.drawn)
    link.write({axis: choices.read(axis) for axis in AXES})


def row_of_controls() -> Settings:
    """The row, and which query, head and stage; what is refused stands under the row."""
    say_refused(get("found", []))
    put("found", [])
    control_row.row()
    now = settings()
    if now.config is None or now.source is None:
        refusal(now)
    else:
        control_row.looked_at(now)
        control_row.pick_stage(now.stage)
    return settings()


def say_refused(found: Sequence[str]) -> None:
    """What the link asked for and could not have, said until a control is changed."""
    sentences, seen = get("refused", ((), None))
    now = settings()
    if found:
        sentences, seen = tuple(found), None
    elif sentences and seen not in (None, now):
        sentences = ()
    put("refused", (sentences, None if found else now))
    for sentence in sentences:
        st.warning(sentence)


def refusal(now: Settings) -> None:
    """Why nothing can be drawn, and a button for each choice that would mend it."""
    if now.source is None:
        st.warning(now.said)
        return
    st.error(plain(now.said))
    fields = {**now.fields, "dropout": 0.0}
    for axis, choice in choices.mended(fields, now.said) or repairs(fields, now.said):
        st.button(f"Use {axis} = {choice_text(choice, axis)}", on_click=choices.write, args=(axis, choice),
                  key=key(f"repair:{axis}"))


def picture(now: Settings, view: DeltaGenerator) -> Reading | None:
    """The six stages, the sentence and the conditions; what was drawn, or None with the reason on the page."""
    config = now.drawn
    if config is None or now.config is None or now.source is None:
        return None
    try:
        steps = attend(now)
    except (ConfigError, ValueError) as error:
        view.error(plain(str(error)))
        return None
    reading = read(steps, now.source.queries, now.source.keys, now.query, now.head, half=now.half,
                   adjusts=config.has("position", "adjusts"))
    put("names", now.source.queries)
    as_given, whys = now.source.matrices is not None, text.reasons(reading, now.real)
    bare = as_given and not learned(config, now.seed)
    said = facts.caption(now.seed, bare, (kernel_note(now.config), *facts.window(reading), *now.notes))
    shown = payload(reading, text.stage_words(config, reading, now.real, as_given), now.stage, focus_of(reading, now),
                    whys, facts.fact(reading, config, now.stage, whys, now.head), said, presets.words(now))
    with view:
        step_view(shown, key=key("view"), on_pick=control_row.take_pick)
    return reading


def equation(reading: Reading, now: Settings, place: DeltaGenerator) -> None:
    """The equation of the stage with its numbers: one element of several parts, which a narrow page breaks between."""
    symbols, *live = equations.equation(reading, now.drawn, now.stage, focus_of(reading, now), Ink.of(theme()).pick)
    # A part in braces never breaks, and the strut keeps the lines of a narrow page apart.
    symbols, *live = (rf"$\displaystyle {{{STRUT} {part}}}$" for part in (symbols, *live))
    place.markdown(f"{symbols} {WIDE} {' '.join(live)}", text_alignment="center")


def kernel_note(config: AttentionConfig) -> str:
    """Whose steps are drawn, where another kernel was chosen."""
    item = entry("kernel", config.kernel.key)
    if item.key == EXACT.key:
        return "These are the steps of the exact kernel."
    if "same" in item.traits:
        return f"kernel = {item.key} gives the same output without these steps, which are the exact kernel’s."
    return (f"kernel = {item.key} computes other weights than these, which are the exact kernel’s; "
            "the page Cost and speed draws those that it implies.")


def attend(now: Settings) -> Steps:
    """The steps of these settings; ConfigError where a choice lacks something that given matrices cannot bring."""
    source, config = now.source, now.drawn
    if source.matrices and config.has("position", "values") and len(source.matrices.v[0]) != config.v_dim:
        raise ConfigError(f"position = {config.position.key} adds vectors of size {config.v_dim} to the values, and V "
                          f"has {len(source.matrices.v[0])} columns; give V as many columns as K, or take position = "
                          "none.")
    return run(config, source, now.seed, now.real)


def focus_of(reading: Reading, now: Settings) -> int:
    """The key in the equation: the one that was pressed for this very row, else the one with most weight."""
    if now.focus is None or now.focus[0] != reading.name or now.focus[1] >= len(reading.keys):
        return reading.best
    return now.focus[1]


def sources(config: AttentionConfig) -> None:
    """Where each stage's equation is from, and the function that just ran."""
    panel = st.expander("Equation, paper and source of each stage", on_change="rerun", key=key("sources"))
    if not panel.open:
        return
    with panel:
        entries_panel(entries_of(config))
        source_panel(exact)


def entries_of(config: AttentionConfig) -> list[Entry]:
    """The entry of every choice in use, in the order of the stages; a composed mask by its parts."""
    order = [axis for axis in ("projection", "position", "score", "mask", "normalizer") if axis in AXES]
    return [entry(axis, leaf.key) for axis in order for leaf in getattr(config, axis).leaves()]


def root_of_d() -> None:
    """Why the scores are divided by √D, measured."""
    st.markdown("## What √D does")
    points = cached(scaling.measure, SEED)
    left, right = st.columns(2, gap="medium")
    drawn = charts.figures(points, Ink.of(theme()))
    for place, figure, alt in zip((left, right), drawn, ("Variance", "Entropy"), strict=True):
        place.vega_lite_chart(figure, theme=None, key=key(alt), alt=f"{alt} with and without √D as D grows")
    fact(scaling.sentence(points))
    st.caption(f"{scaling.QUERIES} queries against {scaling.KEYS} keys, standard normal, seed {SEED}.")
