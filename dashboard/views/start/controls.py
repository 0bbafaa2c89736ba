"""The page's controls: the numbers of the dictionary, all in the link, and the old links of the first page."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard.navigation import PAGES
from dashboard.runtime.link_values import BOUND

PAGE, NAMES, LIMIT = "start", "ABC", 99.0
QUERY = (1.0, 2.0)
KEYS = ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0))
VALUES = (10.0, 20.0, 30.0)
HELP = {
    "query": "The vector that is compared with every key: two numbers.",
    "key": "What the query is compared with: two numbers.",
    "value": "What the look-up returns: one number.",
}


@dataclass(frozen=True)
class Controls:
    """One query, and a value for each key."""

    query: tuple[float, ...] = QUERY
    keys: tuple[tuple[float, ...], ...] = KEYS
    values: tuple[float, ...] = VALUES


key = "start:{}".format  # a widget's key, which is also its name in the link


def draw_controls() -> Controls:
    """Draw a row for the query and one for each key and its value."""
    with st.container(gap="small"):
        row = _row()
        query = tuple(
            _number(row, f"Query, {at + 1}", f"q{at + 1}", QUERY[at], "query") for at in range(2)
        )
        keys, values = [], []
        for index, name in enumerate(NAMES):
            row = _row()
            keys.append(
                tuple(
                    _number(
                        row, f"Key {name}, {at + 1}", f"k{name}{at + 1}", KEYS[index][at], "key"
                    )
                    for at in range(2)
                )
            )
            values.append(_number(row, f"Value {name}", f"v{name}", VALUES[index], "value"))
    return Controls(query, tuple(keys), tuple(values))


def read_controls() -> Controls:
    """The controls as the session has them, before they are drawn again."""

    def value(name: str, default: float) -> float:
        return float(st.session_state.get(key(name), default))

    return Controls(
        tuple(value(f"q{at}", each) for at, each in enumerate(QUERY, 1)),
        tuple(
            tuple(value(f"k{name}{at}", each) for at, each in enumerate(numbers, 1))
            for name, numbers in zip(NAMES, KEYS, strict=True)
        ),
        tuple(value(f"v{name}", each) for name, each in zip(NAMES, VALUES, strict=True)),
    )


def _row() -> DeltaGenerator:
    return st.grid(3, min_column_width=90)


def _number(row: DeltaGenerator, label: str, name: str, default: float, meaning: str) -> float:
    return float(
        row.number_input(
            label,
            -LIMIT,
            LIMIT,
            default,
            0.5,
            format="%g",
            key=key(name),
            help=HELP[meaning],
            **BOUND,
        )
    )


def forward_old_link() -> None:
    """Open Why attention, which was the first page, with the parameters of a link to it."""
    old = {
        name: st.query_params.get_all(name)
        for name in st.query_params
        if name.startswith("why:") or name == "runs"
    }
    if old:
        st.switch_page(PAGES / "why.py", query_params=old)
