"""What the link holds of a page, from where it counts, how a page is set back, and the controls, which derive from that.

A page's controls are declared once: the widget, its place in the link, its bounds and its reset derive from that.

    FIELDS = Fields(
        "masks",
        tokens=Text("Sentence", SENTENCE, span=2, help="Each word becomes one token."),
        join=Select("Combine", JOINS, help="Use the mask alone, or join it with a second one"),
        second=Select("Second mask", MASKS, when=lambda values: values.join in TWO_MASKS),
    )
    values = FIELDS.draw()
    values.tokens, values.second

A widget's key is the page's name and the field's, and is also its name in the link. What a field says of itself may be
a function of the values of the fields before it: `options=lambda values: fits(values.d_model)`.
"""

import math
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial, wraps
from typing import Any, TypeAlias

import streamlit as st
from streamlit.errors import StreamlitAPIException

from core.entries import ConfigError, Param, Value
from core.files import without_paths
from core.memory import TooMuch
from core.runs.folder import RUN_ID
from dashboard.draw.attention_view import Pair
from dashboard.draw.formats import plain
from dashboard.navigation import STEPS
from dashboard.server.streamlit_internals import script_run

# What the link holds: bound widgets, and values and pairs of the session that no widget in sight may hold.


KEEP: dict[str, Any] = {"persist_state": "session"}  # in the session alone
BOUND: dict[str, Any] = {"bind": "query-params", **KEEP}  # in the link and the session
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
    text, texts = st.query_params.get(name), _written(name)
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


def fragment(view: Callable[..., Any]) -> Callable[..., Any]:
    """`st.fragment` of a part of a page that has controls in the link."""

    @wraps(view)
    def begin(*args: Any) -> Any:
        restore_bound_values()
        with refusals():
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


def write_linked(page: str, name: str, pair: Pair | None) -> Pair | None:
    """Write the pair that a picture shows into the link, and store it for the next visit of this page; returns it."""
    key = f"{page}:{name}-of"
    st.session_state[key] = st.session_state[key][0], pair
    write_pair(name, pair)
    return pair


# Set a page back to its start: its widgets leave the browser for one run, then its values leave session and link.


CURRENT = "page_reset:current"  # the key of the page that is drawn
PENDING = "page_reset:pending"  # the key of the page to reset, the names in its link, and the values it gets
EMPTIED = "page_reset:emptied"  # whether its widgets have left the browser
BUILT = "built"  # the page on which a mechanism was last built, and its choices by axis
BUILT_THEN = (
    "train:built_then"  # that of the moment at which Train got settings of a run or a button
)


def request_reset(values: Mapping[str, Any] | None = None) -> None:
    """Ask for the page that is drawn to be reset, to these values of the session or to its start; for a callback."""
    st.session_state[PENDING] = (
        st.session_state[CURRENT],
        list(st.query_params),
        dict(values or {}),
    )


def is_pending() -> bool:
    return PENDING in st.session_state


@st.fragment(run_every=0.1)  # seconds until the browser, without the widgets, asks again
def reset_page(target: st.Page, query: Mapping[str, Any]) -> None:
    """Draw nothing once; when the browser asks again, clear the page's values and open it with these parameters."""
    if not is_pending():
        return
    if not st.session_state.get(EMPTIED):
        st.session_state[EMPTIED] = True
        return
    page, link, values = st.session_state[PENDING]
    del st.session_state[PENDING], st.session_state[EMPTIED]
    forget_page(page, link, predictions=not values)
    st.session_state.update(values)
    st.switch_page(target, query_params=query)


def forget_page(page: str, link: Iterable[str], predictions: bool = False) -> dict[str, Any]:
    """Clear the page's values, also those of these names in a link: the session's would win over a link's default; and
    what was built on any page.

    What the reader predicted stays, unless `predictions`. Returns what was cleared, by key.
    """
    state, prefixes, linked = (
        st.session_state,
        {"one_query": ("one:", "one_query:")}.get(page, (f"{page}:",)),
        [*link, BUILT],
    )
    state.pop(WRITTEN, None)
    return {
        name: state.pop(name)
        for name in list(map(str, state))
        if (name.startswith(prefixes) or name in linked)
        and (predictions or not name.endswith(":predict"))
    }


# The values that a link leaves out: those with which its page opens today, or those with which it opened before.


ARRIVED = "link_start:arrived"  # whether this run came from another page


def note_arrival(page: str) -> None:
    """Note which page is drawn, and whether the reader came from another one; app.py calls it first in each run.

    Streamlit leaves an entry without parameters in the browser's history when a page is left, and sets the page's
    widgets to their defaults when Back leads there. Such a run counts as a press in the sidebar: the session's values
    hold, and are written into the link.
    """
    st.session_state[ARRIVED] = st.session_state.get(CURRENT) != page
    st.session_state[CURRENT] = page
    if not st.session_state[ARRIVED]:
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
        old = has_values and (known is None or session.get(ARRIVED))
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


# The controls of a page.


def field_error(error: object) -> None:
    st.markdown(f":small[:red[{plain(str(error))}]]")


HERE = nullcontext()  # where the page stands, in no grid


class Values(dict[str, Any]):
    """The values of fields by name, also as attributes; None for a field that is not on the page now."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"no field {name!r}; drawn are {', '.join(self)}") from None


Of: TypeAlias = Callable[[Values], Any]  # what depends on the values of the fields before


def _of(value: Any, values: Values) -> Any:
    return value(values) if callable(value) else value


@dataclass(frozen=True)
class Field:
    """What every control has.

    `key` is its name in the session and the link, its field's by default; `when` says whether it is on the page; `span`
    is the count of columns of the grid; `hidden` is for a control in a popover or below, whose value stays in the link
    while the control is out of sight; `also` are further arguments of Streamlit's widget. `of` is what the value belongs
    to, such as a model: with another one it starts again.
    """

    label: str | Of
    _: KW_ONLY
    help: str | Of | None = None
    key: str | Of | None = None
    when: Of | None = None
    span: int | Of = 1
    hidden: bool = False
    of: Of | None = None
    also: Mapping[str, Any] | Of = field(default_factory=dict)

    def start(self, values: Values) -> Any:
        """The value at the start: the `default` of those that have one."""
        return _of(getattr(self, "default", None), values)

    @abstractmethod
    def widget(self, values: Values, start: Any, shared: dict[str, Any]) -> Any:
        """Draw the widget with these arguments beside its own; returns its value, None for an empty one."""

    def value_of(self, text: str, values: Values) -> Any:
        """The value of a text in a link; ValueError or KeyError for one that is refused."""
        return text

    def expected(self, values: Values) -> str:
        """What a link may say, for the sentence about a text that is refused."""
        return "a text"

    def allowed(self, value: Any, values: Values) -> bool:
        """Whether the field can have that value now."""
        return True

    def text_of(self, value: Any, values: Values) -> str | list[str]:
        """The text of a value in the link, as its widget writes it."""
        return as_text(value)


@dataclass(frozen=True)
class Text(Field):
    """A line of text; with `lines`, a box."""

    default: str | Of = field(default="", kw_only=False)
    lines: bool = False

    def widget(self, values: Values, start: Any, shared: dict[str, Any]) -> Any:
        draw: Any = st.text_area if self.lines else st.text_input
        return draw(_of(self.label, values), start, **shared) or ""


@dataclass(frozen=True)
class Number(Field):
    """A number to type between bounds; with `slider`, one to slide."""

    default: float | Of = field(default=0, kw_only=False)
    low: float | Of = field(default=0, kw_only=False)
    high: float | Of = field(default=0, kw_only=False)
    step: float = field(default=1, kw_only=False)
    slider: bool = False

    def widget(self, values: Values, start: Any, shared: dict[str, Any]) -> Any:
        low, high = _of(self.low, values), _of(self.high, values)
        draw: Any = st.slider if self.slider else st.number_input
        return draw(_of(self.label, values), low, high, start, self.step, **shared)

    def value_of(self, text: str, values: Values) -> Any:
        low, high = _of(self.low, values), _of(self.high, values)
        return between(low, high, type(self.start(values)))(text)

    def expected(self, values: Values) -> str:
        return f"a number from {_of(self.low, values)} to {_of(self.high, values)}"

    def allowed(self, value: Any, values: Values) -> bool:
        return bool(_of(self.low, values) <= value <= _of(self.high, values))


@dataclass(frozen=True)
class Toggle(Field):
    default: bool | Of = field(default=False, kw_only=False)

    def widget(self, values: Values, start: Any, shared: dict[str, Any]) -> Any:
        return st.toggle(_of(self.label, values), start, **shared)

    def value_of(self, text: str, values: Values) -> Any:
        return one_of([True, False])(text)

    def expected(self, values: Values) -> str:
        return "true or false"


@dataclass(frozen=True)
class Options(Field):
    """One of some values: a dict from values to their texts, or the values, which `text` writes.

    The first is the default if none is named. `old` makes the text of an older link one of today's.
    """

    options: Mapping[Any, str] | Iterable[Any] | Of = field(default=(), kw_only=False)
    default: Any = field(default=None, kw_only=False)
    text: Callable[[Any], str] | None = None
    old: Callable[[str, Values], str] = lambda text, values: text

    def texts(self, values: Values) -> dict[Any, str]:
        options = _of(self.options, values)
        return (
            dict(options)
            if isinstance(options, Mapping)
            else {option: (self.text or str)(option) for option in options}
        )

    def start(self, values: Values) -> Any:
        default = _of(self.default, values)
        return next(iter(self.texts(values)), None) if default is None else default

    def value_of(self, text: str, values: Values) -> Any:
        # Streamlit writes what the list shows into the link, `link_value` the value.
        texts = self.texts(values)
        shown = {name: option for option, name in texts.items()}
        return shown[text] if text in shown else one_of(texts)(self.old(text, values))

    def expected(self, values: Values) -> str:
        return f"one of {', '.join(self.texts(values).values())}"

    def allowed(self, value: Any, values: Values) -> bool:
        return value in self.texts(values)

    def text_of(self, value: Any, values: Values) -> str | list[str]:
        texts = self.texts(values)
        return [texts[each] for each in value] if isinstance(value, list) else texts[value]


@dataclass(frozen=True)
class Select(Options):
    """One of a list that opens; with `radio`, of one that is in sight."""

    radio: bool = False

    def widget(self, values: Values, start: Any, shared: dict[str, Any]) -> Any:
        texts = self.texts(values)
        draw: Any = st.radio if self.radio else st.selectbox
        return draw(
            _of(self.label, values),
            list(texts),
            None if start is None else list(texts).index(start),  # nothing is on offer
            format_func=texts.__getitem__,
            **shared,
        )


@dataclass(frozen=True)
class SelectSlider(Options):
    """One of values in an order; a single one, along which nothing can slide, is not drawn."""

    def widget(self, values: Values, start: Any, shared: dict[str, Any]) -> Any:
        texts = self.texts(values)
        if len(texts) == 1:
            return start
        return st.select_slider(
            _of(self.label, values), list(texts), start, format_func=texts.__getitem__, **shared
        )


@dataclass(frozen=True)
class Segmented(Options):
    """One of a few that are all in sight; with `pills`, as separate pills. More than `max_options` are a list."""

    pills: bool = False
    max_options: int | None = None

    def widget(self, values: Values, start: Any, shared: dict[str, Any]) -> Any:
        texts = self.texts(values)
        if self.max_options is not None and len(texts) > self.max_options:
            return st.selectbox(
                _of(self.label, values), list(texts), list(texts).index(start), **shared
            )
        return (st.pills if self.pills else st.segmented_control)(
            _of(self.label, values),
            list(texts),
            default=start,
            required=True,
            format_func=texts.__getitem__,
            **shared,
        )


@dataclass(frozen=True)
class MultiSelect(Options):
    max_options: int | None = None

    def start(self, values: Values) -> Any:
        return list(_of(self.default, values) or ())

    def widget(self, values: Values, start: Any, shared: dict[str, Any]) -> Any:
        texts = self.texts(values)
        return st.multiselect(
            _of(self.label, values),
            list(texts),
            start,
            format_func=texts.__getitem__,
            max_selections=self.max_options,
            **shared,
        )

    def value_of(self, text: str, values: Values) -> Any:
        return self.start(values)  # Streamlit keeps those of the texts that are on offer

    def allowed(self, value: Any, values: Values) -> bool:
        return all(super(MultiSelect, self).allowed(each, values) for each in value)


class Fields:
    def __init__(self, page: str, /, **fields: Field) -> None:
        assert not any(hasattr(dict, name) for name in fields), "a name that every dict has"
        self.page, self.fields = page, fields

    def key(self, name: str, values: Mapping[str, Any] = {}) -> str:
        """A field's name in the session and the link; `values` are those on which it may depend."""
        return f"{self.page}:{_of(self.fields[name].key, Values(values)) or name}"

    def draw(
        self, *names: str, into: AbstractContextManager[Any] | None = None, **given: Any
    ) -> Values:
        """Draw the fields of these names, or all, into a grid, a container or `HERE`; returns their values.

        `given` are further values that they depend on, such as those of fields that were drawn before.
        """
        values = Values(given)
        place: Any = st.grid(6, min_column_width=120) if into is None else into
        for name, each in self._shown(names, values):
            span = _of(each.span, values)
            with place.cell(column_span=span) if span > 1 else place:
                values[name] = self._draw(each, self.key(name, values), values)
        return values

    def read(self, *names: str, **given: Any) -> Values:
        """The values of these fields, or all, in the session, or where they start: without drawing any."""
        values = Values(given)
        for name, each in self._shown(names, values):
            key, start = self.key(name, values), each.start(values)
            if each.hidden:
                link_value(key, start, partial(each.value_of, values=values))
            value = st.session_state.get(key)
            values[name] = start if value is None or not each.allowed(value, values) else value
        return values

    def refused(self, *names: str, **given: Any) -> list[str]:
        """A sentence for each text of the link that its field cannot take; call it before the widgets are drawn."""
        link = {name: st.query_params[name] for name in st.query_params}
        values, sentences = self.read(*names, **given), []
        for name in names or self.fields:
            each, key = self.fields[name], self.key(name, values)
            text = link.get(key)
            if not text or (key in st.session_state and not each.hidden):
                continue
            try:
                values[name] = each.value_of(text, values)  # on which those after it may depend
            except (ValueError, KeyError):
                sentences.append(
                    f"The link says {name} = {plain(text[:40])}; expected {each.expected(values)}."
                )
        return sentences

    def _shown(self, names: Sequence[str], values: Values) -> Iterable[tuple[str, Field]]:
        for name in names or self.fields:
            each = self.fields[name]
            if each.when is None or each.when(values):
                yield name, each
            else:
                values[name] = None

    def _draw(self, each: Field, key: str, values: Values) -> Any:
        start = each.start(values)
        if each.hidden:
            link_value(key, start, partial(each.value_of, values=values))
        state, held, other = st.session_state, st.session_state.get(key), False
        if each.of is not None:
            of = each.of(values)
            other = state.get(f"{key}:of", of) != of
            state[f"{key}:of"] = of
        if held is not None and (other or not each.allowed(held, values)):
            state[key] = start  # else the value belongs to something else, or is no more on offer
        keep, also = KEEP if each.hidden else BOUND, _of(each.also, values)
        shared = {"key": key, "help": _of(each.help, values), **keep, **also}
        if "on_change" in shared:
            shared["on_change"] = guarded(key, shared["on_change"])
        if shared.get("bind"):  # a page may write a link of its own
            write_first_value(key, start, partial(each.text_of, values=values))
        value = each.widget(values, start, shared)
        return start if value is None else value


def guarded(key: str, change: Callable[..., Any]) -> Callable[..., None]:
    """Answer a change of a widget, but not one that a page sent while its reader left it: its value is cleared by then."""
    return partial(_call_back, key, change)


def _call_back(key: str, change: Callable[..., Any], *args: Any) -> None:
    if key in st.session_state:
        change(*args)


def param_widget(param: Param, *, key: str, keep: dict[str, Any] = BOUND) -> Value:
    """The widget of one parameter; `keep` are the options that bind its value to the link and the session.

    A free text that cannot be read is returned as typed, with its error below; the config that takes it refuses it.
    """
    shared: dict[str, Any] = {"key": key, "help": param.help, **keep}
    if keep.get("bind"):
        write_first_value(key, param.default, param.label if param.choices else as_text)
    if param.choices:
        return st.selectbox(
            param.name,
            param.choices,
            param.choices.index(str(param.default)),
            format_func=param.label,
            **shared,
        )
    if isinstance(param.default, bool):
        return st.toggle(param.name, param.default, **shared)
    if isinstance(param.default, str):
        typed = st.text_input(param.name, param.default, live=True, **shared) or ""
        show_unreadable(param, typed)
        return typed
    number: Any = type(param.default)
    low, high, step = (
        None if bound is None else number(bound) for bound in (param.low, param.high, param.step)
    )
    short = low is not None and high is not None and step is not None and high - low <= 100 * step
    if number is float and not short:
        shared["format"] = "%g"  # 10000, not 10000.00
    return (st.slider if short else st.number_input)(
        param.name, low, high, number(param.default), step, **shared
    )


def is_text(param: Param) -> bool:
    return isinstance(param.default, str) and not param.choices


def config_error(make: Callable[..., object], *args: Any, **values: Any) -> ConfigError | None:
    """Why this cannot be made of these values; None where it can."""
    try:
        make(*args, **values)
    except ConfigError as error:
        return error
    return None


def show_unreadable(param: Param, typed: str) -> None:
    from core.attention.formula import FormulaError  # with torch, which Start does not need

    error = config_error(param.check, typed, param.name)
    if isinstance(error, FormulaError):
        st.code(error.pointed(), language=None, wrap_lines=False)
    if error is not None:
        field_error(error.why if isinstance(error, FormulaError) else error)
