"""The page: maps of every score on the same q and k, one score's equation, the table of costs, and the sources."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import streamlit as st
import torch

from core.attention import AXES, Choice, entry
from core.attention.properties import randomized_score, score_properties
from dashboard.draw.multiples import MOST_TILES, Frames, Tile, multiples
from dashboard.draw.palette import Ink
from dashboard.runtime.link_values import fragment, read_linked, write_linked
from dashboard.runtime.page_pictures import add_script
from dashboard.runtime.rendering import render_before_widgets, reruns_alone
from dashboard.runtime.threads import one_thread
from dashboard.server.cache import cached, remembered, shared
from dashboard.ui.presentation import room
from dashboard.ui.tables import table
from dashboard.views.scores import compute, measurement, text
from dashboard.views.scores.compute import ScoreMaps
from dashboard.views.scores.controls import (
    BASELINE,
    SEED,
    STRETCHES,
    Controls,
    draw_controls,
    get,
    key,
    read_controls,
)
from dashboard.views.scores.script import script
from dashboard.widgets.panels import (
    caption,
    details,
    entries_panel,
    fact,
    next_page,
    paragraph,
    source_panel,
    theme,
    title,
)
from dashboard.widgets.params import BOUND, params_of

MAP_HEIGHT = 260  # px, at most


def page() -> None:
    """Draw the page from top to bottom."""
    header()
    explore()
    details("Equations, papers and the code that just ran", sources, key("sources"))
    next_page("scores")


def header() -> None:
    """Draw the title and the parameters of the scores, outside the fragment: a slider does not send them again."""
    title(
        "Scores",
        "A score says how well a query and a key match. Here every rule scores the same queries and keys.",
        parameters,
    )


def parameters() -> None:
    """Draw the popover of the numbers that only some of the scores have."""
    with st.popover(
        "Parameters", icon=":material/tune:", help="Numbers that only some of the scores have"
    ):
        for item in AXES["score"]:
            if item.params:
                paragraph(f"**{item.name}**")
            params_of(item, key=key("params"))


@fragment
def explore() -> None:
    """Draw the controls and all that they change, which reruns alone."""
    controls, result = render_before_widgets(
        key("ready"),
        lambda: without_failing(read_controls()),
        lambda: without_failing(draw_controls()),
        show,
    )
    st.session_state[key("asked")] = controls
    if result is not None:
        equation(*result, controls)
    costs(controls)
    compute_stretches(controls)


def without_failing(controls: Controls) -> Controls:
    """The controls without the plug-ins that fail; a note says which, and why."""
    why = {
        choice: cached(
            compute.failure,
            choice,
            controls.tokens or ("a",),
            controls.dims,
            SEED,
            controls.stretch,
        )
        for choice in controls.choices
    }
    return replace(
        controls,
        choices=tuple(choice for choice in why if not why[choice]),
        notes=(*controls.notes, *filter(None, why.values())),
    )


def show(controls: Controls) -> tuple[list[ScoreMaps], tuple[int, int]] | None:
    """Draw the maps, the sentence and the conditions; returns the numbers and the picked cell."""
    if not controls.tokens:
        st.warning(
            "There is no token here. Type a word, or a sentence: each word becomes one token."
        )
        return None
    if not reruns_alone():
        compute_stretches(controls)
    with one_thread():
        scores = score_maps(controls)
    add_script(partial(script, controls, scores))
    cell = maps(scores, controls, most_different_query(scores))
    fact(text.fact(scores, controls.names, cell[0], controls.stretch))
    caption(text.conditions(scores, controls.dims, controls.tokens, controls.notes))
    return scores, cell


def score_maps(controls: Controls) -> list[ScoreMaps]:
    """The maps of every score."""
    return [
        shared(compute.score_maps, *_arguments(controls, choice)) for choice in controls.choices
    ]


def _arguments(controls: Controls, choice: Choice) -> tuple[Hashable, ...]:
    return choice, controls.tokens, controls.dims, SEED, controls.stretch


def stretches(controls: Controls) -> list[Controls]:
    """The controls at every length of the queries; none without tokens or with a plug-in, which may fail at one."""
    if not controls.tokens or any(entry("score", choice.key).source for choice in controls.choices):
        return []
    return [replace(controls, stretch=stretch) for stretch in STRETCHES]


def compute_stretches(controls: Controls) -> None:
    """Compute the maps at every length of the queries, which the browser draws as the slider moves."""
    with one_thread():
        for each in stretches(controls):
            score_maps(each)


def frames(controls: Controls) -> list[list[Tile]]:
    """The tiles at every length of the queries, for weights; none until all are computed."""
    others = stretches(controls)
    if controls.show != "weights" or not all(
        remembered(compute.score_maps, *_arguments(other, choice))
        for other in others
        for choice in other.choices
    ):
        return []
    return [
        [tile(each, index, "weights", 1.0) for index, each in enumerate(score_maps(other))]
        for other in others
    ]


def most_different_query(scores: Sequence[ScoreMaps]) -> int:
    """The query on which the scores' weights differ most."""
    weights = np.stack([each.weights for each in scores])
    return int(np.ptp(weights, axis=0).sum(1).argmax())


def maps(scores: Sequence[ScoreMaps], controls: Controls, query: int) -> tuple[int, int]:
    """Draw a map for each score under one crosshair; returns the pinned cell, or else the query's favourite key."""
    column, shape = text.favourite(scores, query), (len(controls.tokens),) * 2
    pin = read_linked("scores", key("cell"), shape)
    largest = max(float(np.abs(each.scores).max()) for each in scores)
    noun = "weight" if controls.show == "weights" else "score"
    tiles = [tile(each, index, controls.show, largest) for index, each in enumerate(scores)]
    others = frames(controls)
    for first in range(0, len(scores), MOST_TILES):
        part = slice(first, first + MOST_TILES)
        moved = Frames(
            key("stretch"), STRETCHES.index(controls.stretch), [row[part] for row in others]
        )
        pin = multiples(
            tiles[part],
            controls.names,
            key=key(f"maps{first}"),
            query=query,
            frames=moved if others else None,
            column=column,
            height=MAP_HEIGHT,
            signed=noun == "score",
            noun=noun,
            link=key("maps"),
            pin=pin,
            fact=text.fact(scores, controls.names, query, controls.stretch).replace("*", ""),
        )
    return write_linked("scores", key("cell"), pin) or (query, column)


def tile(each: ScoreMaps, marker: int, show: str, largest: float) -> Tile:
    """One score's map: its weights, or its scores on the common scale ± `largest` or on its own."""
    name, note = entry("score", each.key).name, text.note(each, show)
    if show == "weights":
        return Tile(name, note, each.weights, marker=marker)
    span = (float(np.abs(each.scores).max()) if show == "own" else largest) or 1.0
    return Tile(name, note, each.scores, marker=marker, span=(-span, span))


def equation(scores: Sequence[ScoreMaps], cell: tuple[int, int], controls: Controls) -> None:
    """Draw one score's rule, and its number at the picked query and key."""
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        options = [each.key for each in scores]
        name = (
            st.selectbox(
                "Equation of",
                options,
                options.index(BASELINE),
                width=room(200),
                format_func=lambda option: entry("score", option).name,
                key=key("equation"),
                **BOUND,
                help="The score whose equation is written here, with the numbers of the pinned cell",
            )
            or BASELINE
        )
        each = next(each for each in scores if each.key == name)
        parts = text.equation(each, controls.names, *cell, Ink.of(theme()).pick)
        st.markdown(
            r"$\quad$ ".join(rf"$\displaystyle {part}$ " for part in parts), width="content"
        )


def costs(controls: Controls) -> None:
    """Draw what each score learns, costs and can express: times as saved, or of this machine on request."""
    st.markdown("## What each score costs and what it can express")
    repetition, saved = get("again", 0), cached(measurement.load)
    choices = tuple(Choice(choice.key) for choice in controls.choices)
    scores = [
        shared(compute.score_maps, choice, ("a",), controls.dims, SEED, 1.0) for choice in choices
    ]
    properties = [cached(score_properties, choice, SEED) for choice in choices]
    times = saved.of(choices)
    fact(text.table_fact(scores, properties, times, saved))
    if repetition:
        with st.spinner("Measuring each score, about a second", show_time=False):
            times = cached(compute.timings, choices, repetition)
    table(
        text.HEAD,
        text.rows(scores, properties, times),
        caption="Cost and properties of each score",
        left=2,
    )
    st.caption(
        text.table_note(controls.dims, None if repetition else saved, torch.get_num_threads())
    )
    st.button(
        "Measure on this machine",
        key=key("measure"),
        icon=":material/timer:",
        help="Replaces the saved times in the table by times of this machine; the sentence above it keeps the "
        "saved ones.",
        on_click=lambda: st.session_state.update({key("again"): repetition + 1}),
    )


def sources() -> None:
    """Draw where each score is from and the class that just ran."""
    controls: Controls = st.session_state[key("asked")]
    name = get("equation") or BASELINE
    choice = next(choice for choice in controls.choices if choice.key == name)
    source_panel(type(randomized_score(choice, SEED)))
    st.markdown("The same layer in a notebook:")
    st.code(text.snippet(choice, controls.dims), language="python")
    entries_panel(AXES["score"])
