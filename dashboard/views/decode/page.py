"""The page Decode: the tree, the sentence about it, and everything about the candidate that is picked."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from core.attention import ConfigError
from dashboard.charts import search_tree
from dashboard.components.tree_view import tree_view
from dashboard.views.decode import measure, sections, text
from dashboard.views.decode.compute import GREEDY, Decoded, decodable, decoded, steps_of
from dashboard.views.decode.controls import Asked, choose, controls, named, say
from dashboard.widgets.decoding_sources import sources
from dashboard.widgets.panels import fact, next_page, plain, theme, title

PICKED, OF = "decode:picked", "decode:picked-of"


def page() -> None:
    title("Decode", "A trained model says one token at a time. See what else it might have said.")
    runs = decodable()
    run, trouble = choose(runs)
    say(trouble)
    try:
        asked = controls(runs, run)
        found = decoded(asked.trained, asked.source, asked.how)
        plainest = decoded(asked.trained, asked.source, replace(asked.how, strategy=GREEDY)).tree.hypotheses[0]
    except (ConfigError, ValueError) as error:
        st.error(plain(str(error)))
        next_page("decode")
        return
    _, task = asked.trained.load()
    path = picked(asked, found)
    tree_view(search_tree.picture(found.tree, text.names(task), path, theme()),
              f"{len(found.tree.candidates)} candidates; the best output is "
              f"{text.spoken(task, found.tree.hypotheses[0].tokens)}.",
              follow=st.session_state[PICKED] is not None, key="decode:tree", on_pick=_pick)
    fact(text.fact(found, task, asked.how, plainest))
    where = f"{named(run)}, step {asked.trained.step:,}"
    st.caption(plain(text.caption(found, task, asked.how, len(search_tree.spots(found.tree, path)), where)))
    sections.outputs(found, task, asked.how)
    _about(asked, found, path)
    measure.section(asked)
    sources(asked.how.strategy, key="decode:source-code")
    next_page("decode")


def _pick() -> None:
    st.session_state[PICKED] = st.session_state["decode:tree"].get("pick")


def picked(asked: Asked, found: Decoded) -> list[int]:
    """The path to the candidate that was pressed in this very tree, or to the end of the best output."""
    this = (asked.trained, asked.source, asked.how)
    if st.session_state.get(OF) != this:
        st.session_state[OF] = this
        st.session_state[PICKED] = None
    place = st.session_state.get(PICKED)
    inside = isinstance(place, int) and 0 <= place < len(found.tree.candidates)
    return found.tree.path(place if inside else found.tree.hypotheses[0].leaf)


def _about(asked: Asked, found: Decoded, path: list[int]) -> None:
    """Left the attention along the picked path; right its last step, and the equation with its numbers."""
    _, task = asked.trained.load()
    tokens = found.tree.tokens(path[-1])
    followed = steps_of(asked.trained, found.prompt, tokens)
    left, right = st.columns([0.52, 0.48], gap="medium")
    with left:
        sections.looked(found, task, followed, tokens)
    with right:
        sections.next_token(followed, task, asked.how, tokens[-1])
        st.latex(text.equation(asked.how, found.tree, path))
