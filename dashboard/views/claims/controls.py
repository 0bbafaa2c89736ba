"""The controls: which claim, its settings, and whose results are drawn."""

from __future__ import annotations

import streamlit as st

from core.claims.base import Claim
from core.claims.catalogue import CLAIMS, claim_of
from core.claims.run import ClaimConfig, find_group
from dashboard.runtime.link_values import is_new, link_value, one_of
from dashboard.widgets.params import BOUND, param_widget

PAGE = "claims"
ALL = ""
SOURCES = {"shipped": "The lab's", "own": "Yours", "both": "Both"}


def key(name: str) -> str:
    return f"{PAGE}:{name}"


CLAIM, RUN, HIDE = key("claim"), key("run"), key("hide")


def chosen_claim() -> Claim | None:
    """The claim of the link or the session; None for the index."""
    arrived = is_new("claim")
    link_value(CLAIM, ALL, one_of([claim.key for claim in CLAIMS]), name="claim")
    if arrived and "claim" in st.query_params:
        st.query_params["claim"] = st.query_params[
            "claim"
        ]  # the browser shows no link that leads to the same page
    link_value(RUN, "", _run_id)
    chosen = st.session_state.get(CLAIM, ALL)
    return None if chosen == ALL else claim_of(chosen)


def _run_id(text: str) -> str:
    """The id of a claim's run on this machine; ValueError for another one."""
    if find_group(text) is None:
        raise ValueError(f"{text[:40]!r} is no run on this machine")
    return text


def draw_hide() -> bool:
    """Draw the toggle of the index that hides the verdicts, in the link too; whether they are hidden."""
    return st.toggle(
        "Hide verdicts", key=HIDE, help="For a class that guesses first. A link keeps it.", **BOUND
    )


def draw_claim_choice(claim: Claim) -> None:
    """Draw the select of all claims, which opens another one."""
    keys = [one.key for one in CLAIMS]
    box = key("choice")
    st.session_state[box] = claim.key
    st.selectbox(
        "Claim",
        keys,
        key=box,
        format_func=lambda one: claim_of(one).name,
        on_change=_open,
        help="Opens another claim.",
    )


def _open() -> None:
    st.session_state[CLAIM] = st.session_state[key("choice")]


def open_index() -> None:
    """Go back to all claims."""
    st.session_state[CLAIM] = ALL


def draw_settings(claim: Claim) -> ClaimConfig:
    """Draw the claim's settings, the number of seeds first; returns what a run of the reader's would measure."""
    with st.grid(6, min_column_width=120):
        values = {
            param.key: param_widget(param, key=key(f"{claim.key}:{param.key}"))
            for param in claim.params
        }
    return ClaimConfig(claim.key, values)


def draw_source(claim: Claim) -> str:
    """Draw whose results are shown, where there are two."""
    return str(
        st.segmented_control(
            "Results",
            list(SOURCES),
            default="own",
            required=True,
            key=key("results"),
            format_func=SOURCES.__getitem__,
            **BOUND,
            help="The lab's own measurement, yours, or both in one figure.",
        )
    )
