"""A page's controls, each declared once: its widget, its place in the link, its bounds and its reset derive from that.

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

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

import streamlit as st

from core.entries import ConfigError, Param, Value
from dashboard.draw.formats import plain
from dashboard.ui.links import BOUND, KEEP, between, link_value, one_of
from dashboard.ui.panels import field_error

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
        """The value of a text in a link; ValueError for one that is refused."""
        return text

    def expected(self, values: Values) -> str:
        """What a link may say, for the sentence about a text that is refused."""
        return "a text"

    def allowed(self, value: Any, values: Values) -> bool:
        """Whether the field can have that value now."""
        return True


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
        draw: Any = st.slider if self.slider else st.number_input
        low, high = _of(self.low, values), _of(self.high, values)
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
        if isinstance(options, Mapping):
            return dict(options)
        return {option: (self.text or str)(option) for option in options}

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
    """Some of a list, at most `max_options` of them."""

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


@dataclass(frozen=True)
class ParamField(Field):
    param: Param = field(kw_only=False)

    def start(self, values: Values) -> Any:
        return self.param.default

    def widget(self, values: Values, start: Any, shared: dict[str, Any]) -> Any:
        return param_widget(
            replace(self.param, name=_of(self.label, values)), key=shared["key"], keep=BOUND
        )


class Fields:
    """The controls of one page, in their order."""

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
            except ValueError:
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
        value = each.widget(
            values, start, {"key": key, "help": _of(each.help, values), **keep, **also}
        )
        return start if value is None else value


def param_widget(param: Param, *, key: str, keep: dict[str, Any] = BOUND) -> Value:
    """The widget of one parameter; `keep` are the options that bind its value to the link and the session.

    A free text that cannot be read is returned as typed, with its error below; the config that takes it refuses it.
    """
    shared: dict[str, Any] = {"key": key, "help": param.help, **keep}
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


def unreadable(param: Param, typed: Value) -> ConfigError | None:
    """Why a typed text cannot be this parameter, or None."""
    try:
        param.check(typed, param.name)
    except ConfigError as error:
        return error
    return None


def show_unreadable(param: Param, typed: str) -> None:
    """Under a field: what is wrong with its text, pointing at the character where the error knows it."""
    from core.attention.formula import FormulaError  # with torch, which Start does not need

    error = unreadable(param, typed)
    if isinstance(error, FormulaError):
        st.code(error.pointed(), language=None, wrap_lines=False)
    if error is not None:
        field_error(error.why if isinstance(error, FormulaError) else error)
