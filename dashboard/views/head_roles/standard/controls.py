"""The controls of the view Standard tests: the type of attention, the test and the head."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from core.roles.repeats import TESTS, Head, RepeatScores
from dashboard.views.head_roles.controls import kind_field, reset_choice
from dashboard.views.head_roles.standard.compute import default_test, measure_repeats
from dashboard.widgets.model_picker import ModelChoice
from dashboard.widgets.params import BOUND

TEST, HEAD, PICKED = (f"head_roles:{key}" for key in ("test", "tested", "tested-picked"))


@dataclass(frozen=True)
class Controls:
    """The test (an index of TESTS) and the head."""

    test: int
    head: Head


def draw_controls(choice: ModelChoice) -> tuple[Controls, RepeatScores]:
    """Draw the controls; heads can be ranked only once they are measured, so return those scores too."""
    kinds = [kind for kind in choice.reading.trace.kinds if kind != "cross"]
    columns = st.columns(2 + (len(kinds) > 1), vertical_alignment="bottom")
    kind = kind_field(kinds, columns[0])
    with st.spinner("Reading random tokens, once per model"), st.skeleton(height=240):
        scores = measure_repeats(choice.ref, kind)
    names, of = [test.name for test in TESTS], f"{choice.ref} {kind}"
    default = names[default_test(scores)]
    reset_choice(TEST, names, default, of)
    test = names.index(columns[-2].selectbox("Test", names, names.index(default), key=TEST, **BOUND,
                                             help="To which earlier token each token of the repetition attends."))
    options = {scores.name(head): head for head in scores.ranked(test)}
    if PICKED in st.session_state:  # a widget's own value may be set before it is drawn, not after
        st.session_state[HEAD] = st.session_state.pop(PICKED)
    reset_choice(HEAD, list(options), next(iter(options)), (of, test))
    name = columns[-1].selectbox("Head", list(options), key=HEAD, **BOUND,
                                 help="Sorted by score. You can also click a head in the grid.")
    return Controls(test, options[name]), scores


def pick_from_grid(key: str) -> None:
    """Pick the head that was pressed in the grid."""
    points = st.session_state[key].get("selection", {}).get("head") or []
    if points:
        st.session_state[PICKED] = points[0]["name"]
