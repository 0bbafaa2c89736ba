"""Poll work of another process."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import streamlit as st

from dashboard.runtime import jobs

POLL_INTERVAL, SLOW_POLL_INTERVAL = (
    0.5,
    1.0,
)  # seconds between two reads; slow where many folders are read
PATIENCE = 0.6  # seconds

T = TypeVar("T")


def is_live(data: Any) -> bool:
    return bool(data.live)


def poll(
    load: Callable[[], T],
    render: Callable[[T], None],
    live: bool,
    key: str,
    *,
    interval: float = POLL_INTERVAL,
    still_live: Callable[[T], bool] = is_live,
) -> None:
    """Render what `load` returns, every `interval` seconds while the work is live; then the whole page runs again."""

    def refresh() -> None:
        if live:
            jobs.tick(fresh=POLL_INTERVAL / 2)
        data = load()
        if live and not still_live(data):
            st.rerun()
        render(data)

    st.fragment(refresh, run_every=interval if live else None, key=key)()


def wait(done: Callable[[], object]) -> None:
    """Wait up to PATIENCE seconds for `done`, so that the next run of the page shows the result."""
    end = time.monotonic() + PATIENCE
    while not done() and time.monotonic() < end:
        time.sleep(0.01)
