"""The link of a page: what it holds, how a value gets there and back, and from where it counts.

Bound widgets stand in it by Streamlit itself; the functions here write and read what no widget in sight may hold.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from typing import Any

import streamlit as st
from streamlit.errors import StreamlitAPIException

from core.entries import Param
from core.files import without_paths
from core.memory import TooMuch
from core.runs.folder import RUN_ID
from dashboard.draw.attention_view import Pair
from dashboard.draw.formats import plain
from dashboard.navigation import STEPS
from dashboard.server.calls import recording
from dashboard.server.session import CURRENT, SessionValue, T
from dashboard.server.streamlit_internals import script_run

KEEP: dict[str, Any] = {"persist_state": "session"}  # in the session alone
BOUND: dict[str, Any] = {"bind": "query-params", **KEEP}  # in the link and the session
# in neither: what a page takes once, when it is sent
UNBOUND = {"bind": None, "persist_state": None}
BEFORE = "link:before"  # the link of the last run, and the session's values of its names
WRITTEN = (
    "link:written"  # by name, what this visit of the page has put into the link; None: removed it
)
Reader = Callable[[str], Any]


def as_text(value: Any) -> str:
    """A value in a link: true, 3, 0.001, a text, or 1.0 for the pair (1, 0)."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ".".join(map(str, value))
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def link_value(
    key: str,
    default: Any,
    read: Reader,
    write: Callable[[Any], str] | None = None,
    *,
    name: str | None = None,
    always: bool = False,
) -> None:
    """Take the session's value of a key from the link, or write it there unless it is the default.

    A text that this session has not written wins over the session's value; one that `read` refuses (ValueError,
    KeyError) is removed. `name` is the link's, the key by default; `always` writes the default too.
    """
    if went_back(name or key):
        st.session_state[key] = default
        _written(name or key).append(None)
        return  # a text that is written now would end the way forward
    take_link(key, read, name=name)
    value = st.session_state.get(key, default)
    write_link(name or key, None if value == default and not always else (write or as_text)(value))


class LinkedValue(SessionValue[T]):
    """A SessionValue that is in the link too, by the name `link` or else its key. It has no widget."""

    def __init__(self, start: T, link: str = "", key: str = "") -> None:
        super().__init__(start, key)
        self.link = link

    @property
    def in_link(self) -> bool:
        return (self.link or self.key) in st.query_params

    def linked(
        self,
        read: Reader,
        start: T | None = None,
        *,
        write: Callable[[Any], str] | None = None,
        always: bool = False,
    ) -> T:
        """The value of a new link, else the session's, which is written into the link; see `link_value`."""
        first = self.start if start is None else start
        link_value(self.key, first, read, write, name=self.link or None, always=always)
        return st.session_state.get(self.key, first)

    def set(self, value: T) -> None:
        """Give it this value; for a callback."""
        self.value = value


def take_link(key: str, read: Reader, *, name: str | None = None) -> None:
    """Put a text of the link that this session has not written into the session."""
    if is_new(name or key):
        with suppress(ValueError, KeyError):  # a ConfigError is the first
            st.session_state[key] = read(st.query_params[name or key])


def is_new(name: str) -> bool:
    """Whether the link has a value of this name that this session has not written.

    While controls change fast, the browser sends texts that were written before the last one; these are not new
    unless the reader went back to them.
    """
    # Only what was written is kept in the session: a link that has lost another value gets it again.
    text, texts = st.query_params.get(name), st.session_state.get(WRITTEN, {}).get(name, [])
    return text is not None and text not in (texts[-1:] if by_history() else texts)


def went_back(name: str) -> bool:
    """Whether the reader went back or forward to a link without this value, which this session had written."""
    return by_history() and name not in st.query_params and _written(name)[-1:] not in ([], [None])


def by_history() -> bool:
    return bool(getattr(script_run(), "is_history_navigation", False))


def write_link(name: str, text: str | None) -> None:
    """Write a text into the link, or remove it with None, where that changes it."""
    if (texts := _written(name))[-1:] != [text]:
        texts.append(text)
    if text is None:
        if name in st.query_params:
            del st.query_params[name]
    elif st.query_params.get(name) != text:
        st.query_params[name] = text


def write_first_value(key: str, default: Any, text: Callable[[Any], Any]) -> None:
    """Write a value that was set before its widget is first drawn, which Streamlit 1.67 leaves out of the link.

    The value of a widget that pages share is set anew: on each page the widget is another one, and Streamlit 1.67 takes
    a value over to the next page only from a page that has run twice.
    """
    value = st.session_state.get(key)
    if value not in (None, default) and key not in st.query_params and not by_history():
        with suppress(StreamlitAPIException):  # the widget was drawn before: Streamlit writes it
            st.query_params[key] = text(value)
            st.session_state[key] = value


def bound(key: str, default: Any, text: Callable[[Any], Any] = as_text) -> dict[str, Any]:
    """The arguments of a widget that is drawn next, by which the link and the session hold its value."""
    write_first_value(key, default, text)
    return {"key": key, **BOUND}


def restore_bound_values() -> None:
    """Have Streamlit write again the values of widgets that the link has lost; call it first in each run or fragment.

    What the server writes into the link replaces all of it, also what the browser has written meanwhile for a control
    that was pressed twice. Such a value has changed since the last run and its text has not: a set value is written.
    """
    state, link = st.session_state, {name: st.query_params[name] for name in st.query_params}
    last, values = state.get(BEFORE, ({}, {}))
    names = [
        name for name in {**last, **link} if name in state and name not in state.get(WRITTEN, {})
    ]
    if not by_history():
        for name in names:
            if name in values and state[name] != values[name] and link.get(name) == last.get(name):
                state[name] = state[name]
    state[BEFORE] = link, {name: state[name] for name in names}


def forget_other_runs(page: str, *shown: str) -> None:
    """Remove from the link what it says of runs that the page does not show, such as train:step:ID=300."""
    for name in list(st.query_params):
        first, *rest = name.split(":")
        if first == page and any(RUN_ID.fullmatch(part) and part not in shown for part in rest):
            write_link(name, None)


# the session's keys that a stop of the tour waits for, their values at first, and whether the bar says that one changed
Awaited = tuple[tuple[str, Any], ...]
AWAITED = SessionValue[tuple[Awaited, bool]](((), False), "tour:awaited")


def has_changed(awaited: Awaited) -> bool:
    return any(st.session_state.get(key, start) != start for key, start in awaited)


def fragment(view: Callable[..., Any]) -> Callable[..., Any]:
    """`st.fragment` of a part of a page that has controls in the link; the tour's bar hears of what is done in it."""

    @wraps(view)
    def begin(*args: Any) -> Any:
        restore_bound_values()
        awaited, done = AWAITED.value
        if reruns_alone() and has_changed(awaited) != done:
            st.rerun(scope="app")
        with recording(), refusals():
            return view(*args)

    return st.fragment(begin)


@contextmanager
def refusals() -> Iterator[None]:
    """Show why a model or the memory refused something, where nothing nearer to it does."""
    try:
        yield
    except Exception as error:
        from core.pretrained.base import PretrainedError  # loads NumPy

        if not isinstance(error, TooMuch | PretrainedError):
            raise
        st.error(plain(without_paths(str(error))))


def drop_infinite_numbers(page: st.Page) -> None:
    """Open the page without the infinite numbers of its link, of which Streamlit 1.67 makes tracebacks."""
    finite = dict(st.query_params.items())
    for name, text in st.query_params.items():
        with suppress(ValueError):
            if math.isinf(float(text)):
                del finite[name]
    if len(finite) < len(st.query_params):
        st.switch_page(page, query_params=finite)


def _written(name: str) -> list[str | None]:
    return st.session_state.setdefault(WRITTEN, {}).setdefault(name, [])


def link_param(param: Param, key: str) -> None:
    read = one_of([True, False]) if isinstance(param.default, bool) else type(param.default)
    link_value(key, param.default, lambda text: param.check(read(text), param.name))


def one_of(options: Iterable[Any]) -> Reader:
    """The reader of the text of one of the options; KeyError for another one."""
    return {as_text(option): option for option in options}.__getitem__


def between(low: float, high: float, number: type[int] | type[float] = int) -> Reader:
    """The reader of a number within bounds; ValueError outside of them."""

    def read(text: str) -> Any:
        value = number(text)
        if not low <= value <= high:
            raise ValueError(f"{value} is not between {low} and {high}")
        return value

    return read


def read_pair(name: str, bounds: Pair) -> tuple[Pair | None, str | None]:
    """The pair ?name=a.b of the URL, and a sentence when it is malformed or out of bounds (then no pair)."""
    text = st.query_params.get(name)
    return (None, None) if text is None else _pair(name, text, bounds)


def read_pairs(name: str, bounds: Pair) -> tuple[list[Pair], str | None]:
    """The pairs ?name=a.b_c.d of the URL, and a sentence about the first that is none (then those before it)."""
    pairs: list[Pair] = []
    for text in filter(None, st.query_params.get(name, "").split("_")):
        pair, error = _pair(name, text, bounds)
        if pair is None:
            return pairs, error
        pairs.append(pair)
    return pairs, None


def _pair(name: str, text: str, bounds: Pair) -> tuple[Pair | None, str | None]:
    match = re.fullmatch(r"(\d{1,5})\.(\d{1,5})", text, re.ASCII)
    if match is None:
        return (
            None,
            f"The link says {name} = {plain(text[:40])}; expected two whole numbers, such as {name}=3.1.",
        )
    pair = int(match[1]), int(match[2])
    if pair[0] < bounds[0] and pair[1] < bounds[1]:
        return pair, None
    return None, (
        f"The link says {name} = {as_text(pair)}, but here these run from 0.0 "
        f"to {bounds[0] - 1}.{bounds[1] - 1}."
    )


def write_pair(name: str, *pairs: Pair | None) -> None:
    write_link(name, "_".join(as_text(pair) for pair in pairs if pair is not None) or None)


def read_linked(page: str, name: str, bounds: Pair, of: object = None) -> Pair | None:
    """The link's pair, else this page's last one; none once `of`, the model or text it belongs to, has changed.

    Warns of a link's pair that is not one; one that a shorter text has lost needs no words.
    """
    last_of, last = st.session_state.get(f"{page}:{name}-of", (of, None))
    if last_of != of:
        write_pair(name, last := None)
    new, (pair, error) = is_new(name), read_pair(name, bounds)
    if error and new:
        st.warning(error)
    if name not in st.query_params and last and last[0] < bounds[0] and last[1] < bounds[1]:
        pair = last
    st.session_state[f"{page}:{name}-of"] = of, pair
    return pair


def last_linked(page: str, name: str) -> Pair | None:
    """The page's last pair, whatever the link has."""
    return st.session_state.get(f"{page}:{name}-of", (None, None))[1]


def write_linked(page: str, name: str, pair: Pair | None) -> Pair | None:
    """Write the pair that a picture shows into the link, and store it for the next visit of this page; returns it."""
    key = f"{page}:{name}-of"
    st.session_state[key] = st.session_state[key][0], pair
    write_pair(name, pair)
    return pair


# The values that a link leaves out: those with which its page opens today, or those with which it opened before.


ARRIVED = SessionValue(False, "link_start:arrived")  # whether this run came from another page


def note_arrival(page: str) -> None:
    """Note which page is drawn, and whether the reader came from another one; app.py calls it first in each run.

    Streamlit leaves an entry without parameters in the browser's history when a page is left, and sets the page's
    widgets to their defaults when Back leads there. Such a run counts as a press in the sidebar: the session's values
    hold, and are written into the link.
    """
    ARRIVED.value = CURRENT.value != page
    CURRENT.value = page
    if not ARRIVED.value:
        return
    if by_history() and not st.query_params:
        script_run().is_history_navigation = False
    # a link to this page that has an earlier text is a new one
    for texts in st.session_state.get(WRITTEN, {}).values():
        del texts[:-1]


def read_start(page: str, *starts: str) -> str:
    """The start, of those that the page has had, from which its link counts; call it before the page's first widget.

    `starts` begin with today's; a link that names none was made when the last of them was the only one.
    """
    session, name = st.session_state, f"{page}:start"
    known, start = session.get(name), st.query_params.get(name)
    has_values = any(param.startswith(f"{page}:") for param in st.query_params)
    if start not in starts:
        old = has_values and (known is None or ARRIVED.value)
        start = starts[-1] if old else known or starts[0]
    session[name], session[f"{page}:has_link"] = start, known is not None or has_values
    return start


def write_start(page: str) -> None:
    """Name the start in the link, but not on the first run of a page that was opened without a value."""
    session, name = st.session_state, f"{page}:start"
    if session[f"{page}:has_link"]:
        write_link(name, session[name])
    session[f"{page}:has_link"] = True


VISITED = "visited"  # the session's key of the pages that this browser has opened
VISITS = "attention_lab_visits"  # the browser's cookie of them


def remember_visit(key: str) -> None:
    """Add a page to those that were opened: in this session, before it in this browser, and by an older link to Start."""
    stored = f"{st.context.cookies.get(VISITS, '')}.{st.query_params.get('start:visited', '')}"
    visited = {key, *visited_pages(), *stored.split(".")}
    st.session_state[VISITED] = [step.key for step in STEPS if step.key in visited]


def visited_pages() -> list[str]:
    pages: list[str] = st.session_state.get(VISITED, [])
    return pages


# Whether the browser still shows what a fragment drew in the run before.


def reruns_alone() -> bool:
    return bool(getattr(script_run(), "fragment_ids_this_run", False))
