"""The tour: a bar above each page that opens the next one with its controls set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import streamlit as st

from dashboard.navigation import step_of
from dashboard.ui.links import forget_page, one_of, request_reset, take_link, write_link

SENTENCE = "The cat chased a mouse"
LINK = "tour"  # the stop in the link
AT = "tour:at"  # the session key of the stop; None or absent while no tour runs
BEFORE = "tour:before"  # the session's values of the stop's page before the tour set them; absent where it set none
LEFT = "This page is not part of the tour. Next stop goes on with it."

# On a phone, where the page is long, the bar stays at the bottom of the window.
STYLE = """<style>@media (max-width: 640px) and (min-height: 600px) {
[data-testid=stLayoutWrapper]:has(> .st-key-tour-bar) { position: sticky; bottom: 0; z-index: 11; order: 1;
  background: light-dark(#fff, #12151b); border-radius: 6px }}</style>"""


@dataclass(frozen=True)
class Stop:
    """A page, the query parameters that set its controls, and a sentence about what is seen."""

    page: str
    sentence: str
    query: Mapping[str, str | Sequence[str]] = field(default_factory=dict)


STOPS = (
    Stop(
        "why",
        "Each point is a translator, with **one vector** or with **attention**. All of them translate most "
        "short sentences without a mistake. Predict below what happens to long sentences.",
    ),
    Stop(
        "one_query",
        "Here **cat** is the query: it is compared with every word. Predict below which word gets the "
        "largest weight, then pick **5 Normalize**: the blue bars are the weights. This model is not "
        "trained yet.",
        {"one:start": "simple", "one:tokens": SENTENCE, "one:query": "cat"},
    ),
    Stop(
        "heads",
        "A trained model has many heads: Head 0, Head 1 and so on, each with its own map. A row is a word "
        "that attends; the more a cell stands out, the larger its weight. In Head 1, **it** attends most "
        "to **animal**.",
    ),
    Stop(
        "positions",
        "Attention alone does not know the order of words: shuffle them, and the output of each word "
        "stays the same. With positions it changes, by the numbers below the words.",
        {
            "positions:position": "Sinusoidal · 2017",
            "positions:idea": "Shuffle the words",
            "positions:tokens": SENTENCE,
        },
    ),
    Stop(
        "masks",
        "A model that predicts the next word must not see it. ✓ means may attend, ✕ may not: each word "
        "attends to itself and to the words before it.",
        {"masks:tokens": SENTENCE},
    ),
    Stop(
        "transformer",
        "A whole model: the input enters at the bottom, the output leaves at the top. Some of the "
        "blocks are attention. Press a block to see what it computes.",
    ),
    Stop(
        "train",
        "This small model learned to write letters in reverse order. The map shows which letter it attends "
        "to for each that it writes: an anti-diagonal. Press Train to watch one form.",
    ),
)


def running() -> bool:
    """Whether the session is on the tour, also after a reload: the link holds the stop."""
    take_link(AT, one_of(range(len(STOPS))), name=LINK)
    return st.session_state.get(AT) is not None


def go(index: int) -> None:
    """Open a stop with its controls set, and all others of its page as they are at first."""
    _put_back()
    stop = STOPS[index]
    st.session_state[AT] = index
    st.session_state[BEFORE] = forget_page(stop.page, stop.query)
    st.switch_page(step_of(stop.page).page(), query_params=dict(stop.query))


def bar(page: str) -> None:
    """Draw the bar above a page while a tour runs: the sentence, Back, Next and Skip."""
    if not running():
        return
    at, last = st.session_state[AT], len(STOPS) - 1
    # the page may also be opened by the sidebar or the Back button
    here = next((index for index, stop in enumerate(STOPS) if stop.page == page), at)
    if here != at:
        _put_back()
    at = st.session_state[AT] = here
    write_link(LINK, str(at))
    sentence = STOPS[at].sentence if STOPS[at].page == page else LEFT
    with st.container(border=True, key="tour:bar"):
        words, buttons = st.columns([0.7, 0.3], vertical_alignment="center")
    words.markdown(f":small[**Tour, {at + 1} of {last + 1}.** {sentence}]")
    with buttons, st.container(horizontal=True, horizontal_alignment="right", gap="small"):
        if st.button("Back", key="tour:back", disabled=at == 0, help="The stop before this one"):
            go(at - 1)
        if st.button(
            "Finish" if at == last else "Next stop",
            key="tour:next",
            icon=":material/arrow_forward:",
            help="End the tour on Start here" if at == last else "The next stop of the tour",
        ):
            if at < last:
                go(at + 1)
            _end()
            st.switch_page(step_of("start").page(), query_params={})
        st.button(
            "Skip",
            key="tour:skip",
            type="tertiary",
            help="End the tour; this page stays open",
            on_click=_end,
            args=(page,),
        )
    st.html(STYLE)


def _put_back() -> None:
    """Forget the controls that the stop which is left has set; the page gets those that it had before the tour."""
    before = st.session_state.pop(BEFORE, None)
    if before is not None:
        stop = STOPS[st.session_state[AT]]
        forget_page(stop.page, stop.query)
        st.session_state.update(before)


def _end(staying: str = "") -> None:
    """End the tour; the page on which the reader stays keeps the tour's controls if the reader had set none there."""
    if STOPS[st.session_state[AT]].page != staying:
        _put_back()
    elif before := st.session_state.pop(BEFORE, None):
        request_reset(before)
    st.session_state.pop(AT, None)
    write_link(LINK, None)
