"""The session's search, and the picked output and step, which tree, timeline and link share."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from core.decoding import Hypothesis, Tree
from core.pretrained import Pretrained
from dashboard.charts.tokens import shorten
from dashboard.runtime.link_values import Pair, read_pair, write_pair
from dashboard.views.generate.compute import Search
from dashboard.views.generate.controls import Controls

GOING, PICKED = "generate:going", "generate:picked"
LINKED = "at"  # the query parameter of the pair of a candidate and a step
OUTPUTS = 8  # outputs that can be chosen


def current_search(controls: Controls, pretrained: Pretrained) -> Search:
    """The session's search for these controls: the running one, or a new one with nothing picked in it.

    PretrainedError when the model cannot continue these inputs.
    """
    search: Search | None = st.session_state.get(GOING)
    if search is None or search.controls != controls:
        search = Search.of(controls, pretrained, read=search is not None)  # a link's pick belongs to the first search
        st.session_state[GOING], st.session_state[PICKED] = search, None
    return search


def current_path(search: Search, hypotheses: Sequence[Hypothesis]) -> tuple[list[int], int]:
    """The picked path and its step, first read from the link, then written into it."""
    if not search.read:
        st.session_state[PICKED], bad = read_pair(LINKED, (len(search.tree.candidates), search.length))
        if bad:
            st.warning(bad)
    search.read = True
    write_pair(LINKED, st.session_state[PICKED])
    return picked_path(search.tree, hypotheses, st.session_state[PICKED])


def picked_path(tree: Tree, hypotheses: Sequence[Hypothesis], pick: Pair | None) -> tuple[list[int], int]:
    """The best output through the picked candidate, or the path to it if it was dropped; and the picked step.

    With nothing picked the first step of the best output.
    """
    if pick is None:
        return tree.path(hypotheses[0].leaf), 0
    paths = (tree.path(one.leaf) for one in hypotheses)
    path = next((path for path in paths if pick[0] in path), None) or tree.path(pick[0])
    return path, min(pick[1], len(path) - 1)


def pick_candidate(path: Sequence[int], tree: Tree) -> None:
    """Pick the step of the pressed candidate, on the current path if that contains it, else on its own."""
    candidate = st.session_state["generate:tree"].get("pick")
    if isinstance(candidate, int) and 0 <= candidate < len(tree.candidates):
        leaf = path[-1] if candidate in path else candidate
        st.session_state[PICKED] = leaf, tree.candidates[candidate].step


def timeline(search: Search, hypotheses: Sequence[Hypothesis], texts: Sequence[str], path: Sequence[int],
             step: int) -> None:
    """Draw the choice of an output, where there are several, and a slider over its tokens."""
    slider = st.container()
    if len(hypotheses) > 1:
        which, slider = st.columns([0.4, 0.6], vertical_alignment="center")
        labels = {one.leaf: shorten(text) or "nothing" for one, text in zip(hypotheses[:OUTPUTS], texts, strict=False)}
        labels.setdefault(path[-1], "Another path")
        st.session_state["generate:output"] = path[-1]
        which.selectbox("Output", list(labels), key="generate:output", label_visibility="collapsed",
                        help="The output whose tokens are shown.", on_change=_pick_output,
                        args=(search.tree, hypotheses[0].leaf),
                        format_func=lambda leaf: labels[leaf])
    if len(path) > 1:
        name = slider_key(len(path))
        st.session_state[name] = step + 1
        slider.slider("Step", 1, len(path), key=name, on_change=_pick_step, args=(name, path[-1]), format="step %d",
                      label_visibility="collapsed", help="The token of the output that is shown.")


def slider_key(steps: int) -> str:
    """The key of the slider over so many tokens."""
    return f"generate:step:{steps}"


def _pick_step(name: str, leaf: int) -> None:
    st.session_state[PICKED] = leaf, st.session_state[name] - 1


def _pick_output(tree: Tree, first: int) -> None:
    """Pick the step at which the chosen output parts from the best."""
    leaf, best = st.session_state["generate:output"], set(tree.path(first))
    own = [step for step, candidate in enumerate(tree.path(leaf)) if candidate not in best]
    st.session_state[PICKED] = leaf, own[0] if own else 0
