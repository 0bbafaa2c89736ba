"""The controls: the kind of attention, the user's own sentences, the role and the head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import streamlit as st

from core.interpret.roles import ROLES, SENTENCES, RoleScores
from core.interpret.trace import Head, Kind
from dashboard.ui.links import BOUND
from dashboard.ui.model_picker import ModelChoice, choose_head, current_head_of
from dashboard.ui.models import ModelRef
from dashboard.views.head_roles.compute import Measurements, default_role, measure_roles
from dashboard.views.head_roles.fields import head_field, kind_field, reset_choice

ROLE, HEAD, OWN, SHOWN, KNOWN = (
    f"head_roles:{key}" for key in ("role", "head", "own", "shown", "known")
)
MOST_SENTENCES, MOST_SIGNS = 60, 400
HERE, SET = "here", "set"
ROLE_VIEW, SYNTAX_VIEW, TEST_VIEW = "Roles", "Syntax", "Standard tests"


@dataclass(frozen=True)
class Controls:
    """The kind of attention, the user's own sentences, and the picked role (an index of ROLES) and head."""

    kind: Kind
    sentences: tuple[str, ...]
    role: int
    head: Head


def draw_view() -> str:
    """Draw the choice of what is measured, by its name."""
    views = [ROLE_VIEW, SYNTAX_VIEW, TEST_VIEW]
    return st.segmented_control(
        "Measure",
        views,
        default=ROLE_VIEW,
        key="head_roles:view",
        required=True,
        label_visibility="collapsed",
        **BOUND,
        help="Roles: tokens by position, word or repetition. Syntax: subjects, objects and "
        "other relations, in annotated sentences. Standard tests: random tokens that "
        "repeat.",
    )


def draw_controls(choice: ModelChoice) -> tuple[Controls, Measurements]:
    """Draw the controls; roles and heads can be listed only once they are measured, so return those scores too."""
    kinds = [kind for kind in choice.reading.trace.kinds if kind != "cross"]
    reads_text = choice.pretrained is not None and choice.pretrained.reads_text
    columns = st.columns(len(kinds) + 1 + reads_text, vertical_alignment="bottom")
    kind = kind_field(kinds, columns[0])
    role_column, head_column, *more = columns[len(kinds) - 1 :]
    sentences, error = _sentences_field(more[0]) if more else ((), None)
    if error:
        st.warning(error)
    with st.spinner("Measuring every head, once per model"), st.skeleton(height=240):
        measurements = measure_roles(choice, kind, sentences)
    scores, model = measurements.scores, f"{choice.ref} {kind}"
    _load_picked_head(scores, choice.ref)
    role = _role_field(scores, model, role_column)
    options = {scores.name(head): head for head in scores.ranked(role)}
    head = head_field(HEAD, options, (model, role), head_column, "how far they are above chance")
    _store_picked_head(scores, choice.ref, role, head)
    return Controls(kind, sentences, role, head), measurements


def draw_on_set(noun: str) -> bool:
    """Draw the choice between the user's own input and the measured one; True for the measured one."""
    return (
        st.segmented_control(
            "Shown on",
            [HERE, SET],
            default=HERE,
            key="head_roles:where",
            required=True,
            label_visibility="collapsed",
            **BOUND,
            help="Your own input, or the measured one with the clearest example of the role.",
            format_func={HERE: f"Your {noun}", SET: "Clearest example"}.__getitem__,
        )
        == SET
    )


def _sentences_field(column: Any) -> tuple[tuple[str, ...], str | None]:
    with column.popover("Sentences", icon=":material/notes:", width="stretch"):
        typed = (
            st.text_area(
                "Your own sentences, one per line",
                key=OWN,
                height=180,
                **BOUND,
                placeholder="\n".join(SENTENCES[:4]),
                help="The heads are measured on them: at most "
                f"{MOST_SENTENCES} lines of {MOST_SIGNS} letters. Left empty, the example sentences "
                "are measured.",
            )
            or ""
        )
        with st.container(height=180):
            st.caption("The example sentences:  \n" + "  \n".join(SENTENCES))
    return read_sentences(typed)


def read_sentences(typed: str) -> tuple[tuple[str, ...], str | None]:
    """The sentences in the text, and a message about lines that are left out."""
    lines = [" ".join(line.split()) for line in typed.splitlines() if line.strip()]
    short = [line for line in dict.fromkeys(lines) if len(line) <= MOST_SIGNS]
    errors = []
    if len(short) > MOST_SENTENCES:
        errors.append(f"There are {len(short)} lines; the first {MOST_SENTENCES} are measured.")
    if long := sum(len(line) > MOST_SIGNS for line in lines):
        errors.append(f"{long} of the lines have more than {MOST_SIGNS} letters and are left out.")
    return tuple(short[:MOST_SENTENCES]), " ".join(errors) or None


def _role_field(scores: RoleScores, model: str, column: Any) -> int:
    keys = [role.key for role, rows in zip(ROLES, scores.rows, strict=True) if rows]
    default = ROLES[default_role(scores)].key
    reset_choice(ROLE, keys, default, model)
    names = {role.key: role.name for role in ROLES}
    key = column.selectbox(
        "Role",
        keys,
        keys.index(default),
        key=ROLE,
        format_func=names.__getitem__,
        **BOUND,
        help="The role whose scores are shown for every head.",
    )
    return [role.key for role in ROLES].index(key)


def _load_picked_head(scores: RoleScores, ref: ModelRef) -> None:
    """Take the head that was picked on another page since, and its role where it has one."""
    head = current_head_of(ref, scores.kind, scores.score.shape[1:])  # type: ignore[arg-type]
    if (
        head is None
        or np.isnan(scores.score[:, *head]).all()
        or st.session_state.get(KNOWN) == (ref, head)
    ):
        return
    role = ROLES[scores.head_roles.get(head, default_role(scores))]
    st.session_state[KNOWN] = ref, head
    st.session_state[ROLE], st.session_state[HEAD] = role.key, scores.name(head)
    # A widget writes into the link what a person sets in it, not what it was set to here.
    st.query_params[ROLE], st.query_params[HEAD] = role.name, scores.name(head)
    for key in (ROLE, HEAD):
        st.session_state.pop(f"{key}:of", None)


def _store_picked_head(scores: RoleScores, ref: ModelRef, role: int, head: Head) -> None:
    """Store the head for other pages if the user picked it, that is, if it changed while the role did not."""
    before, of = st.session_state.get(SHOWN), (ref, scores.kind, role)
    st.session_state[SHOWN] = of, head
    if before is not None and before[0] == of and before[1] != head:
        choose_head(ref, scores.kind, head)
        st.session_state[KNOWN] = ref, head
