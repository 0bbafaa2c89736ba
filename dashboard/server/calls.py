"""What the page that is drawn has computed: each call with its result, from which its script is written.

A page, and each part of it that reruns alone, begins with none. Outside of a page nothing is recorded.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Call:
    """function(*args); `result` is what the page got."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    result: Any = None


class NotRecorded(ValueError):
    """A page names or passes on what no recorded call made; the message says what, and on which page."""


_calls: ContextVar[list[Call] | None] = ContextVar("calls", default=None)


@contextmanager
def recording() -> Iterator[None]:
    """Record the calls of a page, or of a part of it that reruns alone."""
    token = _calls.set([])
    try:
        yield
    finally:
        _calls.reset(token)


def recorded(function: Callable[..., Any], args: tuple[Any, ...], result: T) -> T:
    """Record a call; returns its result."""
    if (calls := _calls.get()) is not None:
        calls.append(Call(function, args, result))
    return result


def recorded_calls() -> tuple[Call, ...]:
    return tuple(_calls.get() or ())
