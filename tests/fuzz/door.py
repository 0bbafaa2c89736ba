"""A door: a way by which something that somebody else wrote comes into the lab, and what may come of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

Enter = Callable[[Any, Path], object]


@dataclass(frozen=True)
class Door:
    """`enter` reads a case, with a folder for what it writes; `errors` are those whose message a person reads.

    `short` cases are read in `make test`.
    """

    name: str
    cases: st.SearchStrategy[Any]
    enter: Enter
    errors: tuple[type[Exception], ...]
    short: int = 60


def seeded(make: Callable[[random.Random], Any]) -> st.SearchStrategy[Any]:
    """Cases that a seeded generator makes; hypothesis draws the seed."""
    return st.integers(0, 2**40).map(lambda seed: make(random.Random(seed)))
