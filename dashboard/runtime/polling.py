"""What follows work in another process: a fragment on a beat, and a moment's patience after a button."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, TypeVar

import streamlit as st

from dashboard.runtime import jobs

BEAT, PATIENCE = 0.5, 0.6


class Followed(Protocol):
    """What a page shows of a run: whether it is still on its way."""

    @property
    def live(self) -> bool: ...


F = TypeVar("F", bound=Followed)


def poll(look: Callable[[], F], body: Callable[[F], None], live: bool, key: str) -> None:
    """Run the body now, and again on each beat while the run lives; when it ends, the whole page once more."""

    def look_again() -> None:
        if live:
            jobs.tick()
        shown = look()
        if live and not shown.live:
            st.rerun()
        body(shown)

    st.fragment(look_again, run_every=BEAT if live else None, key=key)()


def press(mark: str) -> None:
    """A callback of a start button: mark the press in the session.

    The page starts the run once it was made again (see ``pressed``): the config that the browser's page was drawn with
    may be older than its controls, after a long upload for instance.
    """
    st.session_state[mark] = True


def pressed(mark: str) -> bool:
    """Whether the button was pressed in this run of the page; true once."""
    return bool(st.session_state.pop(mark, False))


def wait(done: Callable[[], object]) -> None:
    """Give the worker a moment, so that the page that follows shows its answer already."""
    end = time.monotonic() + PATIENCE
    while not done() and time.monotonic() < end:
        time.sleep(0.01)
