"""Which role and which head are looked at, which kind of attention, and the sentences that a person adds."""

from __future__ import annotations

from typing import Any

import numpy as np
import streamlit as st

from core.roles import ROLES, SENTENCES, RoleScores
from core.trace import Kind
from dashboard.views.head_roles.text import Head
from dashboard.widgets.model_picker import ModelRef
from dashboard.widgets.model_picker.head_choice import KINDS, choose_head, current_head_of
from dashboard.widgets.params import BOUND

ROLE, HEAD, KIND, OWN = (f"head_roles:{key}" for key in ("role", "head", "kind", "own"))
PICKED, SHOWN, KNOWN = (f"head_roles:{key}" for key in ("picked", "shown", "known"))
MOST_SENTENCES, MOST_SIGNS = 60, 400


def kind_of(kinds: list[Kind], place: Any) -> Kind:
    """The kind of attention to measure, chosen where a model has two whose rows are its columns."""
    return kinds[0] if len(kinds) == 1 else place.selectbox("Attention", kinds, key=KIND, **BOUND,
                                                             format_func=KINDS.get)


def own_sentences(place: Any) -> tuple[tuple[str, ...], str | None]:
    """The sentences of a person's own, one a line, and a sentence about those that are not taken."""
    with place.popover("Sentences", icon=":material/notes:", width="stretch"):
        typed = st.text_area("Measure on sentences of your own, one a line", key=OWN, height=180,
                             persist_state="session", placeholder="\n".join(SENTENCES[:4]),
                             help=f"At most {MOST_SENTENCES} lines of {MOST_SIGNS} letters. Left empty, the kept "
                                  "sentences are measured.") or ""
        with st.container(height=180):
            st.caption("The kept sentences:  \n" + "  \n".join(SENTENCES))
    return read_sentences(typed)


def read_sentences(typed: str) -> tuple[tuple[str, ...], str | None]:
    """The lines that are taken, and a sentence when some are not."""
    lines = [" ".join(line.split()) for line in typed.splitlines() if line.strip()]
    short = [line for line in dict.fromkeys(lines) if len(line) <= MOST_SIGNS]
    trouble = []
    if len(short) > MOST_SENTENCES:
        trouble.append(f"There are {len(short)} lines; the first {MOST_SENTENCES} are measured.")
    if long := sum(len(line) > MOST_SIGNS for line in lines):
        trouble.append(f"{long} of the lines have more than {MOST_SIGNS} letters and are left out.")
    return tuple(short[:MOST_SENTENCES]), " ".join(trouble) or None


def usual_role(scores: RoleScores) -> int:
    """The role that is most clearly someone's: of those that pick something out, else of all that can be measured."""
    best = np.nanmax(np.where(np.isnan(scores.share), -1.0, scores.share), (1, 2))
    acts = np.asarray([role.acts for role in ROLES])
    return int((best + np.where(acts & scores.counts.any((1, 2)), 2.0, 0.0)).argmax())


def role_of(scores: RoleScores, model: str, place: Any) -> int:
    """The role to look at, by its place in ROLES; another model begins with the one that is most clearly someone's."""
    keys = [role.key for role, rows in zip(ROLES, scores.rows, strict=True) if rows]
    usual = ROLES[usual_role(scores)].key
    _reset_choice(ROLE, keys, usual, model)
    names = {role.key: role.name for role in ROLES}
    key = place.selectbox("Role", keys, keys.index(usual), key=ROLE, format_func=names.get, **BOUND)
    return [role.key for role in ROLES].index(key)


def head_of(scores: RoleScores, role: int, model: str, place: Any) -> Head:
    """The head to look at: those furthest above chance in the role come first, and another role begins with the first.
    """
    share = scores.share[role]
    heads = [(int(layer), int(head)) for layer, head in np.argwhere(~np.isnan(share))]
    heads.sort(key=lambda here: -share[here])
    options = {scores.name(here): here for here in heads}
    if PICKED in st.session_state:  # a widget's own value may be set before it is drawn, not after
        st.session_state[HEAD] = st.session_state.pop(PICKED)
    _reset_choice(HEAD, list(options), next(iter(options)), (model, role))
    chosen = place.selectbox("Head", list(options), key=HEAD, **BOUND,
                             help="The heads furthest above chance first. A click in a grid picks one, too.")
    return options[chosen]


def follow_picked_head(scores: RoleScores, ref: ModelRef) -> None:
    """Begin with the head that was picked on another page since, and with its role where it has one."""
    here = current_head_of(ref, scores.kind, scores.score.shape[1:])  # type: ignore[arg-type]
    if here is None or np.isnan(scores.score[:, *here]).all() or st.session_state.get(KNOWN) == (ref, here):
        return
    role = ROLES[scores.head_roles.get(here, usual_role(scores))]
    st.session_state[KNOWN] = ref, here
    st.session_state[ROLE], st.session_state[PICKED] = role.key, scores.name(here)
    # A widget writes into the link what a person sets in it, not what it was set to here.
    st.query_params[ROLE], st.query_params[HEAD] = role.name, scores.name(here)
    for key in (ROLE, HEAD):
        st.session_state.pop(f"{key}:of", None)


def store_picked_head(scores: RoleScores, ref: ModelRef, role: int, here: Head) -> None:
    """Whether a person picked this head: with the same role, it is another one than before."""
    before, of = st.session_state.get(SHOWN), (ref, scores.kind, role)
    st.session_state[SHOWN] = of, here
    if before is not None and before[0] == of and before[1] != here:
        choose_head(ref, scores.kind, here)
        st.session_state[KNOWN] = ref, here


def pick_from_grid(key: str) -> None:
    """A head that was pressed in a grid becomes the one that is looked at."""
    points = st.session_state[key].get("selection", {}).get("head") or []
    if points:
        st.session_state[HEAD] = points[0]["name"]


def pick_and_rerun(name: str) -> None:
    """Look at another head from now on, which was picked where no widget tells it."""
    st.session_state[PICKED] = name
    st.rerun()


def _reset_choice(key: str, options: list[str], usual: str, of: object) -> None:
    """Choose the usual one where what was chosen is not there, or was chosen for something else.

    The browser keeps what it showed under a key, so the choice is set, not forgotten.
    """
    before = st.session_state.get(f"{key}:of", of)
    st.session_state[f"{key}:of"] = of
    if before != of or st.session_state.get(key, usual) not in options:
        st.session_state[key] = usual
