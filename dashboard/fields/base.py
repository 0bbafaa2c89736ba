"""The controls of a page, declared once: widget, bounds, place in the link, reset and error sentence derive from that.

    class Controls(lab.Fields, page="masks"):
        tokens = lab.Text("Sentence", SENTENCE, span=2, help="Each word becomes one token.")
        join = lab.Select("Combine", JOINS, place="settings", help="Use the mask alone, or join it with another.")
        second = lab.Select("Second mask", MASKS, place="settings").optional(lambda c: c.join in TWO_MASKS)

    controls = Controls.draw(settings=panel)
    controls.tokens, controls.second

On the class a name is its field, on an instance the value, of the field's type. A widget's key is the page's name and
the field's, and is also its name in the link. What a field says of itself may be a function of the controls before it:
`options=lambda c: fits(c.d_model)`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Generic, Self, TypeAlias, TypeVar, overload

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.entries import ConfigError, Param, Value
from dashboard.draw.formats import plain
from dashboard.fields.link import (
    BOUND,
    KEEP,
    as_text,
    between,
    is_new,
    link_value,
    one_of,
    write_first_value,
)
from dashboard.server.session import SessionValue

HERE = nullcontext()  # where the page stands, in no grid
T = TypeVar("T")
V = TypeVar("V")
N = TypeVar("N", bound=float)
Place: TypeAlias = DeltaGenerator
Grid: TypeAlias = Any  # what st.grid returns, whose class is not public
Of: TypeAlias = Callable[[Any], Any]  # what depends on the controls before


def _of(value: Any, controls: Any) -> Any:
    return value(controls) if callable(value) else value


@dataclass(frozen=True)
class Field(Generic[T]):
    """What every control has.

    `key` is its name in the session and the link, its field's by default; a hidden one may have another in the `link`, and
    be there `always`, at its start too. One that pages share has the key of another `page`.
    `place` is where `draw` draws it; `span` is the count of columns of the grid; `hidden` is for a control in a popover or
    below, whose value stays in the link while the control is out of sight; `also` are further arguments of Streamlit's
    widget. `of` is what the value belongs to, such as a model: with another one it starts again.
    """

    label: str | Of
    _: KW_ONLY
    help: str | Of | None = None
    key: str | Of | None = None
    link: str | None = None
    page: str = ""
    always: bool | Of = False
    place: str = ""
    span: int | Of = 1
    hidden: bool = False
    of: Of | None = None
    also: Mapping[str, Any] | Of = field(default_factory=dict)
    shown: Of | None = None  # see `when` and `optional`
    starts_unseen: bool = False
    name: str = field(default="", init=False)

    def __set_name__(self, owner: type, name: str) -> None:
        object.__setattr__(self, "name", name)

    @overload
    def __get__(self, controls: None, owner: type) -> Self: ...
    @overload
    def __get__(self, controls: "Fields", owner: type) -> T: ...
    def __get__(self, controls: "Fields | None", owner: type) -> Any:
        if controls is None:
            return self
        raise AttributeError(f"{self.name} is not drawn; drawn are {', '.join(controls.keys())}")

    def when(self, shown: Of) -> Self:
        """This field, on the page where `shown`; elsewhere it has its value at the start."""
        return replace(self, shown=shown, starts_unseen=True)

    def optional(self, shown: Of) -> "Field[T | None]":
        """This field, on the page where `shown`; elsewhere it has None."""
        return replace(self, shown=shown)  # type: ignore[return-value]

    def start(self, controls: Any) -> Any:
        """The value at the start: the `default` of those that have one."""
        return _of(getattr(self, "default", None), controls)

    def widget(self, controls: Any, start: Any, shared: dict[str, Any]) -> Any:
        """Draw the widget, if it has one, with these arguments beside its own; returns its value, None for an empty one."""

    def value_of(self, text: str, controls: Any) -> Any:
        """The value of a text in a link; ValueError or KeyError for one that is refused."""
        return text

    def refusal(self, error: Exception, controls: Any) -> str:
        """How the sentence ends that says which text of the link is refused."""
        return ", which cannot be used here."

    def allowed(self, value: Any, controls: Any) -> bool:
        """Whether the field can have that value now."""
        return True

    def text_of(self, value: Any, controls: Any) -> str | list[str]:
        """The text of a value in the link, as its widget writes it."""
        return as_text(value)

    def key_of(self, controls: "Fields") -> str:
        """The key of its widget in the session, which may depend on the controls before."""
        return f"{self.page or controls.page_key}:{_of(self.key, controls) or self.name}"

    def state(self, value: T, controls: "Fields") -> dict[str, Any]:
        """What the session has where the field has this value."""
        return {self.key_of(controls): value}

    def stored(self, controls: "Fields") -> SessionValue[T | None]:
        """What the session has of it, to be read or set without its link."""
        return SessionValue(None, self.key_of(controls))

    def draw(self, controls: "Fields", into: Any, places: Mapping[str, Any]) -> Any:
        """Draw the control into a grid or a container; returns its value. `places` are the others, by their names."""
        span = _of(self.span, controls)
        with into.cell(column_span=span) if span > 1 else into:
            return self.draw_widget(controls)

    def draw_widget(self, controls: "Fields") -> Any:
        """Draw the widget where the page stands, with its value from link and session; returns the value."""
        key, start = self.key_of(controls), self.start(controls)
        if self.hidden:
            self.take_link(key, start, controls)
        elif key not in st.session_state:
            self.check_link(key, controls)
        state, held, other = st.session_state, st.session_state.get(key), False
        if self.of is not None:
            of = self.of(controls)
            other = state.get(f"{key}:of", of) != of
            state[f"{key}:of"] = of
        if held is not None and (other or not self.allowed(held, controls)):
            state[key] = start  # else the value belongs to something else, or is no more on offer
        keep, also = KEEP if self.hidden else BOUND, _of(self.also, controls)
        shared = {"key": key, "help": _of(self.help, controls), **keep, **also}
        if "on_change" in shared:
            shared["on_change"] = guarded(key, shared["on_change"])
        if shared.get("bind"):  # a page may write a link of its own
            write_first_value(key, start, partial(self.text_of, controls=controls))
        value = self.widget(controls, start, shared)
        return start if value is None else value

    def take_link(self, key: str, start: Any, controls: Any) -> None:
        """Bring the value of a `hidden` one from a new link, or write that of the session into it."""
        self.check_link(self.link or key, controls)
        read, always = partial(self.value_of, controls=controls), _of(self.always, controls)
        link_value(key, start, read, name=self.link, always=always)

    def check_link(self, name: str, controls: Any) -> None:
        """Say each new text of the link that the field cannot take, which it loses."""
        for text in filter(None, st.query_params.get_all(name) if is_new(name) else []):
            try:
                self.value_of(text, controls)
            except (ValueError, KeyError) as error:
                end = self.refusal(error, controls)
                # stays in sight where the page runs again at once
                st.toast(f"The link says {self.name} = {plain(text[:40])}{end}", duration="long")

    def read(self, controls: "Fields") -> Any:
        """The value in the session, or where it starts: without drawing."""
        key, start = self.key_of(controls), self.start(controls)
        if self.hidden:
            self.take_link(key, start, controls)
        value = st.session_state.get(key)
        return start if value is None or not self.allowed(value, controls) else value


@dataclass(frozen=True)
class Text(Field[str]):
    """A line of text; with `lines`, a box."""

    default: str | Of = field(default="", kw_only=False)
    lines: bool = False

    def widget(self, controls: Any, start: Any, shared: dict[str, Any]) -> Any:
        draw: Any = st.text_area if self.lines else st.text_input
        return draw(_of(self.label, controls), start, **shared) or ""


@dataclass(frozen=True)
class Number(Field[N]):
    """A number to type between bounds; with `slider`, one to slide."""

    default: N | Of = field(kw_only=False)
    low: N | Of = field(kw_only=False)
    high: N | Of = field(kw_only=False)
    step: float = field(default=1, kw_only=False)
    slider: bool = False

    def widget(self, controls: Any, start: Any, shared: dict[str, Any]) -> Any:
        low, high = _of(self.low, controls), _of(self.high, controls)
        draw: Any = st.slider if self.slider else st.number_input
        return draw(_of(self.label, controls), low, high, start, self.step, **shared)

    def value_of(self, text: str, controls: Any) -> Any:
        low, high = _of(self.low, controls), _of(self.high, controls)
        return between(low, high, type(self.start(controls)))(text)

    def refusal(self, error: Exception, controls: Any) -> str:
        low, high = _of(self.low, controls), _of(self.high, controls)
        return f"; expected a number from {low} to {high}."

    def allowed(self, value: Any, controls: Any) -> bool:
        return bool(_of(self.low, controls) <= value <= _of(self.high, controls))


@dataclass(frozen=True)
class Toggle(Field[bool]):
    """Something that is on or off."""

    default: bool | Of = field(default=False, kw_only=False)

    def widget(self, controls: Any, start: Any, shared: dict[str, Any]) -> Any:
        return st.toggle(_of(self.label, controls), start, **shared)

    def value_of(self, text: str, controls: Any) -> Any:
        return one_of([True, False])(text)

    def refusal(self, error: Exception, controls: Any) -> str:
        return "; expected true or false."


@dataclass(frozen=True)
class Options(Field[V], Generic[V, T]):
    """One of some values: a dict from values to their texts, or the values, which `text` writes.

    The first is the default if none is named. `old` makes the text of an older link one of today's. With `typed`, a text
    that is not among them can be typed.
    """

    options: Mapping[T, str] | Iterable[T] | Of = field(kw_only=False)
    default: Any = field(default=None, kw_only=False)
    text: Callable[[Any], str] | None = None
    old: Callable[[str, Any], str] = lambda text, controls: text
    typed: bool | Of = False
    radio: bool = False

    def widget(self, controls: Any, start: Any, shared: dict[str, Any]) -> Any:
        texts = self.texts(controls)
        draw: Any = st.radio if self.radio else st.selectbox
        if _of(self.typed, controls):
            shared["accept_new_options"] = True
        return draw(
            _of(self.label, controls),
            list(texts),
            list(texts).index(start) if start in texts else None,  # nothing is on offer
            format_func=lambda value: texts.get(value, value),
            **shared,
        )

    def texts(self, controls: Any) -> dict[Any, str]:
        """What is on offer, by value: the texts of list and link."""
        options = _of(self.options, controls)
        return (
            dict(options)
            if isinstance(options, Mapping)
            else {option: (self.text or str)(option) for option in options}
        )

    def start(self, controls: Any) -> Any:
        default = _of(self.default, controls)
        return next(iter(self.texts(controls)), None) if default is None else default

    def value_of(self, text: str, controls: Any) -> Any:
        # Streamlit writes what the list shows into the link, `link_value` the value.
        texts = self.texts(controls)
        if _of(self.typed, controls):
            return text
        shown = {name: option for option, name in texts.items()}
        return shown[text] if text in shown else one_of(texts)(self.old(text, controls))

    def refusal(self, error: Exception, controls: Any) -> str:
        texts = [str(text) for text in self.texts(controls).values()]
        return f"; expected one of {', '.join(texts[:9])}{', …' * (len(texts) > 9)}."

    def allowed(self, value: Any, controls: Any) -> bool:
        return bool(_of(self.typed, controls)) or value in self.texts(controls)

    def text_of(self, value: Any, controls: Any) -> str | list[str]:
        texts: dict[Any, Any] = self.texts(controls)
        if isinstance(value, list):
            return [str(texts.get(each, each)) for each in value]
        return texts.get(value, value)


@dataclass(frozen=True)
class Select(Options[T, T]):
    """One of a list that opens; with `radio`, of one that is in sight."""


@dataclass(frozen=True)
class SelectSlider(Options[T, T]):
    """One of values in an order; a single one, along which nothing can slide, is not drawn."""

    def widget(self, controls: Any, start: Any, shared: dict[str, Any]) -> Any:
        texts = self.texts(controls)
        if len(texts) == 1:
            return start
        return st.select_slider(
            _of(self.label, controls), list(texts), start, format_func=texts.__getitem__, **shared
        )


@dataclass(frozen=True)
class Segmented(Options[T, T]):
    """One of a few that are all in sight; with `pills`, as separate pills. More than `max_options` are a list."""

    pills: bool = False
    max_options: int | None = None

    def widget(self, controls: Any, start: Any, shared: dict[str, Any]) -> Any:
        texts = self.texts(controls)
        if self.max_options is not None and len(texts) > self.max_options:
            return super().widget(controls, start, shared)
        return (st.pills if self.pills else st.segmented_control)(
            _of(self.label, controls),
            list(texts),
            default=start,
            required=True,
            format_func=texts.__getitem__,
            **shared,
        )


@dataclass(frozen=True)
class MultiSelect(Options[list[T], T]):
    """Some of a list, at most `max_options`; with `typed`, also what is typed."""

    max_options: int | None = None

    def start(self, controls: Any) -> Any:
        return list(_of(self.default, controls) or ())

    def widget(self, controls: Any, start: Any, shared: dict[str, Any]) -> Any:
        texts = self.texts(controls)
        return st.multiselect(
            _of(self.label, controls),
            list(texts),
            start,
            format_func=lambda value: texts.get(value, value),
            max_selections=self.max_options,
            accept_new_options=bool(_of(self.typed, controls)),
            **shared,
        )

    def value_of(self, text: str, controls: Any) -> Any:
        super().value_of(text, controls)
        return self.start(controls)  # Streamlit keeps those of the texts that are on offer

    def allowed(self, value: Any, controls: Any) -> bool:
        return all(super(MultiSelect, self).allowed(each, controls) for each in value)


@dataclass(frozen=True)
class Menu(Options[None, T]):
    """A list from which a press takes something: `take` gets it, and nothing stays picked. No link has it."""

    take: Callable[[Any], object] = field(kw_only=True)

    def widget(self, controls: Any, start: Any, shared: dict[str, Any]) -> Any:
        key = shared["key"]

        def changed() -> None:
            picked, st.session_state[key] = st.session_state[key], None
            if picked is not None:
                self.take(picked)

        own = {"bind": None, "on_change": guarded(key, changed)}
        return super().widget(controls, None, shared | own)


class Fields:
    """The controls of a page, as a class: see the head of this module. An instance has their values.

    What they depend on beside each other, such as a run, is given to `draw`, and is declared by its type alone.
    """

    page_key: ClassVar[str]
    declared: ClassVar[dict[str, Field[Any]]]

    def __init_subclass__(cls, *, page: str = "") -> None:
        cls.page_key = page
        cls.declared = {
            name: one
            for base in reversed(cls.__mro__)
            for name, one in vars(base).items()
            if isinstance(one, Field)
        }

    unread = False  # whether a value is the last that could be read, and not what is typed

    def __init__(self, **given: Any) -> None:
        vars(self).update(given)

    def keys(self) -> Iterator[str]:
        """The names of what has a value, so that `**controls` passes them on."""
        return iter(vars(self))

    def __getitem__(self, name: str) -> Any:
        return vars(self)[name]

    @classmethod
    def draw(cls, *names: str, into: Any = None, **given: Any) -> Self:
        """Draw the fields of these names, or all; returns their values.

        `into` is a grid, a container or `HERE`; without it, they stand in a grid of their own. A field with a place
        stands in the container that is given by this name: `draw(settings=panel)`. All else that is given is a value
        that fields depend on, such as those of fields that were drawn before.
        """
        places = [name for name, one in given.items() if isinstance(one, DeltaGenerator)]
        containers = {"": into, **{name: given.pop(name) for name in places}}
        controls = cls(**given)
        for each in controls._seen(names):
            if (place := containers.get(each.place) or containers[""]) is None:
                place = containers[""] = st.grid(6, min_column_width=120)
            vars(controls)[each.name] = each.draw(controls, place, containers)
        return controls

    def draw_more(self, *names: str, into: Any = None, **given: Any) -> Self:
        """Draw further fields, which may depend on those that this has; returns the values of all."""
        return self.draw(*names, into=into, **{**vars(self), **given})

    @classmethod
    def read(cls, *names: str, **given: Any) -> Self:
        """The values of these fields, or all, in the session, or where they start: without drawing any."""
        controls = cls(**given)
        for each in controls._seen(names):
            vars(controls)[each.name] = each.read(controls)
        return controls

    def draw_or_read(self, *names: str, opened: bool | None, **given: Any) -> Self:
        """With further fields, of a panel: of their widgets where it is `opened`, else of the session."""
        if opened:
            return self.draw_more(*names, into=HERE, **given)
        return self.read(*names, **{**vars(self), **given})

    @classmethod
    def state(cls, **values: Any) -> dict[str, Any]:
        """What the session has where fields have these values: for a callback, or something to try.

        Further values are those that keys depend on, such as a run.
        """
        controls = cls(**values)
        states = [
            cls.declared[name].state(value, controls)
            for name, value in values.items()
            if name in cls.declared  # else what a field depends on
        ]
        return {key: value for state in states for key, value in state.items()}

    @classmethod
    def set(cls, **values: Any) -> None:
        """Give fields these values, whatever they belong to; for a callback, before their widgets are drawn."""
        for key, value in cls.state(**values).items():
            st.session_state[key] = value
            st.session_state.pop(f"{key}:of", None)

    def _seen(self, names: Iterable[str]) -> Iterator[Field[Any]]:
        for each in [self.declared[name] for name in names or self.declared]:
            if each.shown is None or each.shown(self):
                yield each
            else:
                vars(self)[each.name] = each.start(self) if each.starts_unseen else None


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


def field_error(error: object) -> None:
    st.markdown(f":small[:red[{plain(str(error))}]]")
