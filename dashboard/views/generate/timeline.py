"""Which output is looked at, and which step of it: tree, timeline, choice of an output and link agree."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from core.decoding import Hypothesis, Tree
from dashboard.charts.tokens import shorten
from dashboard.runtime.query_params import Pair, read_pair, write_pair
from dashboard.views.generate.compute import PICKED, Search

LINKED = "at"  # the link's word for the pair of a candidate and a step
OUTPUTS = 8  # outputs that can be chosen


def current_path(search: Search, hypotheses: Sequence[Hypothesis]) -> tuple[list[int], int]:
    """The path that is looked at and its step; as the page is opened the link's. The link then says it."""
    if not search.read:
        st.session_state[PICKED], bad = read_pair(LINKED, (len(search.tree.candidates), search.length))
        if bad:
            st.warning(bad)
    search.read = True
    write_pair(LINKED, st.session_state[PICKED])
    return picked_path(search.tree, hypotheses, st.session_state[PICKED])


def picked_path(tree: Tree, hypotheses: Sequence[Hypothesis], pick: Pair | None) -> tuple[list[int], int]:
    """The best output through the picked candidate, or what leads to one that was dropped; and the picked step.

    With nothing picked the first step of the best output.
    """
    if pick is None:
        return tree.path(hypotheses[0].leaf), 0
    paths = (tree.path(one.leaf) for one in hypotheses)
    path = next((path for path in paths if pick[0] in path), None) or tree.path(pick[0])
    return path, min(pick[1], len(path) - 1)


def pressed(path: Sequence[int], tree: Tree) -> None:
    """After a candidate was pressed: its step, on the path that is looked at if it is on it, else on its own."""
    place = st.session_state["generate:tree"].get("pick")
    if isinstance(place, int) and 0 <= place < len(tree.candidates):
        st.session_state[PICKED] = path[-1] if place in path else place, tree.candidates[place].step


def timeline(
    search: Search, hypotheses: Sequence[Hypothesis], texts: Sequence[str], path: Sequence[int], step: int
) -> None:
    """The output that is looked at, where there are several, and a slider with a place for each of its tokens."""
    slider = st.container()
    if len(hypotheses) > 1:
        which, slider = st.columns([0.4, 0.6], vertical_alignment="center")
        named = {one.leaf: shorten(text) or "nothing" for one, text in zip(hypotheses[:OUTPUTS], texts, strict=False)}
        named.setdefault(path[-1], "Another beginning")
        st.session_state["generate:output"] = path[-1]
        which.selectbox("Output", list(named), key="generate:output", label_visibility="collapsed",
                        on_change=_chosen, args=(search.tree, hypotheses[0].leaf), format_func=lambda leaf: named[leaf])
    if len(path) > 1:
        name = f"generate:step:{len(path)}"
        st.session_state[name] = step + 1
        slider.slider("Step", 1, len(path), key=name, on_change=_scrubbed, args=(name, path[-1]), format="step %d",
                      label_visibility="collapsed")


def _scrubbed(name: str, leaf: int) -> None:
    st.session_state[PICKED] = leaf, st.session_state[name] - 1


def _chosen(tree: Tree, first: int) -> None:
    """Begin where the chosen output parts from the best."""
    leaf, best = st.session_state["generate:output"], set(tree.path(first))
    own = [step for step, place in enumerate(tree.path(leaf)) if place not in best]
    st.session_state[PICKED] = leaf, own[0] if own else 0
