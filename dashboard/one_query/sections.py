"""The page's parts that only show: equation, picture, √D and the sources."""

from __future__ import annotations

import streamlit as st

from core.attention import AttentionConfig, ConfigError, Entry, Steps, entry
from core.attention.kernels import exact
from dashboard.attention_view.palette import Ink
from dashboard.cache import cached
from dashboard.one_query import controls, equations, facts, figures, inputs, scaling, words
from dashboard.one_query.run import Source, run
from dashboard.one_query.state import fingerprint, get, key, mask_choice, put
from dashboard.panels import entries_panel, fact, source_panel, theme
from dashboard.step_view import Reading, payload, read, step_view


def choose(formula: controls.Formula) -> tuple[Source | None, AttentionConfig | None, int | None, tuple[str, ...]]:
    """The row of controls: the source, the config (None when refused, in words), real keys, and what was cut."""
    given = get("source") == "matrices"
    problem, notes = "", ()
    grid = st.grid(6, min_column_width=120)
    if given:
        source, problem = inputs.given(grid, st.container())
        d_model, heads = len(source.matrices.q[0]) if source else 1, 1
    else:
        with grid.cell(column_span=2):
            source, notes = inputs.sentence()
        with grid:
            d_model, heads = controls.sizes()
    with grid:
        position, mask = controls.position_and_mask(given)
        params, real = controls.mask_detail(mask, len(source.keys) if source else 0)
    if source is None:
        st.warning(problem or "There is no token here. Type a word, or a sentence: each word becomes one token.")
        return None, None, None, ()
    if problem:
        st.warning(problem)
    return source, build(formula, d_model, heads, position, mask_choice(mask, params)), real, notes


def build(formula, d_model, heads, position, mask) -> AttentionConfig | None:
    try:
        return controls.config_of(formula, d_model, heads, position, mask)
    except ConfigError as error:
        st.error(str(error))
        if position.startswith("rope"):
            st.button("Use position = alibi", on_click=put, args=("position", "alibi"), key=key("repair"))
        return None


def attend(config: AttentionConfig, source: Source, seed: int, real: int | None) -> Steps | None:
    try:
        return run(config, source, seed, real)
    except (ConfigError, ValueError) as error:
        st.error(str(error))
        return None


def links_refused(found: list[str]) -> None:
    """What the link asked for and could not have, said until a control is changed."""
    now = fingerprint()
    if found:
        put("refused", (tuple(found), None))
    sentences, seen = get("refused", ((), None))
    if not found and sentences and seen not in (None, now):
        sentences = ()
    put("refused", (sentences, None if found else now))
    for sentence in sentences:
        st.warning(sentence)


def picture(
    steps: Steps, source: Source, config: AttentionConfig, query: int, head: int, stage: int, real: int | None,
    seed: int, notes: tuple[str, ...],
) -> None:
    """The equation with its numbers, the six stages, the sentence and the conditions."""
    reading = read(steps, source.queries, source.keys, query, head)
    given = source.matrices is not None
    put("names", source.queries)
    focus = focus_of(reading)
    symbols, *live = equations.equation(reading, config, stage, focus, Ink.of(theme()).pick)
    with st.container(horizontal=True, horizontal_alignment="center", vertical_alignment="center", gap="xsmall"):
        for part in (symbols + r"\quad", *live):  # inline, because st.latex adds margins that push the picture down
            st.markdown(rf"$\displaystyle {part}$", width="content")
    whys = words.reasons(reading, config, real)
    said = facts.caption(seed, given, config, (*facts.window(reading), *notes))
    shown = payload(reading, words.stage_words(config, reading, real, given), stage, focus, whys,
                    facts.fact(reading, stage, whys), said)
    step_view(shown, key=key("view"), on_pick=controls.take_pick)


def focus_of(reading: Reading) -> int:
    """The key in the equation: the one that was pressed for this very row, else the one with most weight."""
    pressed = get("focus")
    if pressed is None or pressed[0] != reading.name or pressed[1] >= len(reading.keys):
        return reading.best
    return pressed[1]


def root_of_d(seed: int, head_dim: int) -> None:
    """Why the scores are divided by √D, measured."""
    st.markdown("## What √D does")
    points = cached(scaling.measure, seed)
    left, right = st.columns(2, gap="medium")
    drawn = figures.figures(points, head_dim, Ink.of(theme()))
    for place, figure, alt in zip((left, right), drawn, ("Variance", "Entropy"), strict=True):
        place.vega_lite_chart(figure, theme=None, key=key(alt), alt=f"{alt} with and without √D as D grows")
    fact(scaling.sentence(points))
    st.caption(f"{scaling.QUERIES} queries against {scaling.KEYS} keys, standard normal, seed {seed}. "
               "The rule marks the head size above.")


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
    order = ("projection", "position", "score", "mask", "normalizer")
    found = []
    for axis in order:
        choice = getattr(config, axis)
        found += [entry(axis, part.key) for part in (choice.parts or (choice,))]
    return found
