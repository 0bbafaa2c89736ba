"""A line that the reader draws before the measured one is shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st

from dashboard.components.lib import draw

NONE = "none"  # what is sent where nothing was drawn


def sketch(
    xs: Sequence[float],
    low: float,
    high: float,
    *,
    key: str,
    x_title: str,
    take: Callable[[list[float] | None], None],
    log_x: bool = False,
    log_y: bool = False,
    share: bool = False,
) -> None:
    """Draw empty axes over `xs`, from `low` to `high`; Show me calls `take` with a y for each x, or with None.

    A logarithmic axis needs numbers above 0; a `share` of 1 is written as a percentage.
    """

    def sent() -> None:
        guess = st.session_state[key]["guess"]
        if guess is not None:
            take(None if guess == NONE else [float(y) for y in guess])

    whole = [int(x) if float(x).is_integer() else float(x) for x in xs]
    data = {
        "xs": whole,
        "y": {"low": float(low), "high": float(high), "log": log_y},
        "logX": log_x,
        "share": share,
        "xTitle": x_title,
    }
    draw("sketch_view", "sketch", data, key=key, on_guess_change=sent)
