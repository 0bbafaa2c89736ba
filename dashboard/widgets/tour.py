"""The tour of one minute: a bar above each page that opens the next one with its controls set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import streamlit as st

from dashboard.navigation import step_of

AT = "tour:at"  # the session key of the stop; None or absent while no tour runs
LEFT = "This page is no stop of the tour. Next opens the next stop."


@dataclass(frozen=True)
class Stop:
    """A page, the query parameters that set its controls, and a sentence about what is seen."""

    page: str
    sentence: str
    query: Mapping[str, str | Sequence[str]] = field(default_factory=dict)


STOPS = (
    Stop("one_query", "You type a sentence and pick a word as the query: **cat** is compared with every word.",
         {"one:tokens": "The cat chased a mouse", "one:query": "cat"}),
    Stop("masks", "The mask of this page is now causal: each word attends to itself and to the words before it.",
         {"masks:tokens": "The cat chased a mouse"}),
    Stop("positions", "Attention alone knows no order. This page shuffles the words and shows what ALiBi changes.",
         {"positions:position": "ALiBi · 2022", "positions:tokens": "The cat chased a mouse"}),
    Stop("pretrained", "These are real heads of a trained model on the same words. Head 3·1 is open; pick any other.",
         {"inside:text": "The cat chased a mouse because it was hungry.", "head": "3.1"}),
    Stop("compare", "A score formula that you type stands next to ordinary attention: each step away costs 0.5.",
         {"m": ("score=scaled_dot", "position=formula(formula='score - 0.5*abs(i-j)')")}),
    Stop("train", "Here a model learned to reverse letters. Press Train to watch your own attention form."),
)


def start() -> None:
    """Open the first stop."""
    go(0)


def go(index: int) -> None:
    """Open a stop with its controls set."""
    stop = STOPS[index]
    st.session_state[AT] = index
    for name in stop.query:  # what the session remembers would win over a default in the link
        st.session_state.pop(name, None)
    st.switch_page(step_of(stop.page).path, query_params=dict(stop.query))


def bar(page: str) -> None:
    """Draw the bar above a page while a tour runs: the sentence, Back, Next and Skip."""
    if st.session_state.get(AT) is None:
        return
    here = [index for index, stop in enumerate(STOPS) if stop.page == page]  # also by the sidebar or the Back button
    at = st.session_state[AT] = here[0] if here else st.session_state[AT]
    sentence, last = STOPS[at].sentence if here else LEFT, len(STOPS) - 1
    with st.container(horizontal=True, vertical_alignment="center", border=True, gap="small", key="tour:bar"):
        st.markdown(f":small[**Tour, {at + 1} of {last + 1}.** {sentence}]", width="stretch")
        if st.button("Back", key="tour:back", disabled=at == 0, help="The stop before this one"):
            go(at - 1)
        if st.button("Finish" if at == last else "Next", key="tour:next", icon=":material/arrow_forward:",
                     help="The next stop of the tour"):
            if at < last:
                go(at + 1)
            _end()
            st.switch_page(step_of("start").path, query_params={})
        st.button("Skip", key="tour:skip", type="tertiary", help="End the tour; this page stays open", on_click=_end)


def _end() -> None:
    st.session_state.pop(AT, None)
