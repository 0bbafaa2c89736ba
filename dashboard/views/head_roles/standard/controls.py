"""The controls of the view Standard tests: the type of attention, the test and the head."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import streamlit as st

from core.interpret.head_tests import TESTS, RepeatScores, SuccessorScores
from core.interpret.trace import Head, Kind
from dashboard.ui.links import BOUND
from dashboard.ui.model_picker import ModelChoice
from dashboard.ui.models import ModelRef
from dashboard.ui.progress import UNASKED, measure_with_progress
from dashboard.views.head_roles.fields import head_field, kind_field, reset_choice
from dashboard.views.head_roles.standard.compute import (
    LEAST,
    LINES,
    default_test,
    join_scores,
    lines_of,
    measure_successors,
    score_line,
)

TEST, HEAD, GRID = (f"head_roles:{key}" for key in ("test", "tested", "tests"))
SUCCESSOR = "Successor"
NAMES = (*(test.name for test in TESTS), SUCCESSOR)


@dataclass(frozen=True)
class Controls:
    """The type of attention, the test (an index of NAMES) and the head."""

    kind: Kind
    test: int
    head: Head


def draw_controls(
    choice: ModelChoice,
) -> tuple[Controls, RepeatScores, SuccessorScores | None] | None:
    """Draw the controls; heads can be ranked only once they are measured, so return those scores too.

    None before the first two lines are read. The successors are measured only where they are picked.
    """
    kinds = [kind for kind in choice.reading.trace.kinds if kind != "cross"]
    columns = st.columns(2 + (len(kinds) > 1), vertical_alignment="bottom")
    kind = kind_field(kinds, columns[0])
    if (scores := _measure(choice.ref, kind)) is None:
        return None
    of = f"{choice.ref} {kind}"
    default = NAMES[default_test(scores)]
    reset_choice(TEST, list(NAMES), default, of)
    test = NAMES.index(
        columns[-2].selectbox(
            "Test",
            NAMES,
            NAMES.index(default),
            key=TEST,
            **BOUND,
            help="Induction, duplicate and previous token: to which token each token of a repetition attends. Successor: "
            "what the head's matrices make of ordered items.",
        )
    )
    successors = None
    if NAMES[test] == SUCCESSOR:
        with st.spinner("Reading the weights of every head, once per model"):
            successors = measure_successors(choice.ref, kind)
    ranked = scores.ranked(test) if successors is None else successors.ranked()
    head = head_field(
        HEAD,
        {(successors or scores).name(head): head for head in ranked},
        (of, test),
        columns[-1],
        "score",
    )
    return Controls(kind, test, head), scores, successors


def _measure(ref: ModelRef, kind: Kind) -> RepeatScores | None:
    """Read the lines one by one; None where so few are read that there is no interval."""
    scores = measure_with_progress(
        LINES,
        (ref, kind),
        range(len(lines_of(ref))),
        partial(score_line, ref, kind),
        "lines of random tokens",
        UNASKED,
    )
    return join_scores(ref, kind, list(scores.values())) if len(scores) >= LEAST else None
