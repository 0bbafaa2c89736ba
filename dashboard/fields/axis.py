"""A choice on an axis as controls: the list of its entries, then the parts and the parameters of the picked one."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import streamlit as st

from core.attention import AXES, Choice, entry
from core.attention.masks import COMPOSITIONS
from core.attention.presets.base import Preset
from core.attention.text import choice_from_text, choice_text
from core.entries import Entry, Param, Value, complete
from dashboard.draw.formats import plain
from dashboard.fields.base import (
    Field,
    Fields,
    Options,
    _of,
    config_error,
    is_text,
    param_widget,
)
from dashboard.fields.link import BOUND, KEEP, link_value
from dashboard.server.session import SessionValue
from dashboard.ui.panels import paragraph


@dataclass(frozen=True)
class ChoiceField(Options[Choice, str]):
    """A choice on an axis, of the entries that are `options`, with its parameters; the value is the Choice.

    `params` is the place of a parameter, by the controls before, its entry and itself; `after` follows each parameter's
    name. Of a typed parameter that cannot be read the last text counts that could, and `unread` of the controls is true;
    where the field may be `refused` it counts itself, and the config that takes it says why not. With `parts`, those of
    an entry that is composed of others are controls, too.
    """

    axis: str = field(kw_only=True)
    params: Callable[[Any, Entry, Param], str] = field(
        default=lambda controls, item, param: "", kw_only=True
    )
    after: str = field(default="", kw_only=True)
    refused: bool = field(default=False, kw_only=True)
    parts: bool = field(default=False, kw_only=True)
    text_columns: int = field(default=3, kw_only=True)  # cells of a grid that a typed one takes

    def draw(self, controls: Fields, into: Any, places: Mapping[str, Any]) -> Choice:
        key = self.key_of(controls)
        item = entry(self.axis, super().draw(controls, into, places))
        drawn, grids, parts = dict[str, Value](), dict[str, Any](), list[Choice]()
        if self.parts:
            with into:
                parts = draw_parts(self.axis, item.key, Choice(item.key), key=key, keep=BOUND)
        for param in item.params:
            place = self.params(controls, item, param)
            if place not in grids:
                given: Any = places[place] if place else into
                grids[place] = (
                    given if hasattr(type(given), "cell") else given.grid(6, min_column_width=120)
                )
            # one cell each, so that an error is drawn under its field
            with grids[place].cell(column_span=self.text_columns if is_text(param) else 1):
                drawn[param.key] = param_widget(
                    replace(param, name=param.name + self.after),
                    key=f"{key}:{item.key}:{param.key}",
                )
        values = drawn if self.refused else params_in_session(item, key=key)
        controls.unread |= values != drawn
        return Choice.of(item.key, *parts, **values)

    def state(self, value: Choice, controls: Fields) -> dict[str, Any]:
        return choice_state(self.key_of(controls), value)

    def read(self, controls: Fields) -> Choice:
        item = entry(self.axis, super().read(controls))
        if self.parts:
            return choice_in_session(self.axis, Choice(item.key), key=self.key_of(controls))
        return Choice.of(item.key, **params_in_session(item, key=self.key_of(controls)))


@dataclass(frozen=True)
class WrittenChoice(ChoiceField):
    """A choice on an axis that is one text of the link, drawn in one place with all its parts and parameters.

    A link may also bring what is not among its options.
    """

    hidden: bool = field(default=True, kw_only=True)
    parts: bool = field(default=True, kw_only=True)

    def draw(self, controls: Fields, into: Any, places: Mapping[str, Any]) -> Choice:
        start, key = self.start(controls), self.key_of(controls)
        self.take_link(key, start, controls)
        others = {item.key for item in AXES[self.axis]} - self.texts(controls).keys()
        name, about = str(self.label), _of(self.help, controls)
        with into:
            return draw_choice(self.axis, name, Choice(start), key=key, help=about, without=others)

    def allowed(self, value: Any, controls: Any) -> bool:
        return True

    def take_link(self, key: str, start: str, controls: Any) -> None:
        self.check_link(key, controls)
        first = complete(start, AXES[self.axis], self.axis)
        now, whole = (
            choice_in_session(self.axis, first, key=key),
            SessionValue(first, f"{key}:choice"),
        )
        whole.value = now
        read, write = (
            partial(self.value_of, controls=controls),
            partial(choice_text, axis=self.axis),
        )
        link_value(whole.key, first, read, write, name=key)
        if whole.value != now:
            st.session_state.update(choice_state(key, whole.value))

    def value_of(self, text: str, controls: Any) -> Choice:
        names = {item.name: item.key for item in AXES[self.axis]}  # as older links write them
        return choice_from_text(names.get(text, text), self.axis)

    def refusal(self, error: Exception, controls: Any) -> str:
        shown = entry(self.axis, self.start(controls)).name
        return f", which cannot be read. {plain(str(error))} {shown} is shown."


@dataclass(frozen=True)
class ParamsField(Field[tuple[Choice, ...]]):
    """The parameters of all entries of an axis; the value is a Choice of each entry.

    `own` names, by an entry's parameters, fields of the page that have their values.
    """

    axis: str = field(kw_only=True)
    own: Callable[[str], Mapping[str, str]] = field(default=lambda key: {}, kw_only=True)

    def widget(self, controls: Any, start: Any, shared: dict[str, Any]) -> tuple[Choice, ...]:
        for item in AXES[self.axis]:
            own = self.own(item.key)
            if any(param.key not in own for param in item.params):
                paragraph(f"**{item.name}**")
            params_of(item, key=self.key_of(controls), exclude=tuple(own))
        return self.read(controls)

    def read(self, controls: Fields) -> tuple[Choice, ...]:
        key = self.key_of(controls)
        return tuple(
            Choice.of(
                item.key,
                **params_in_session(item, key=key)
                | {param: controls[name] for param, name in self.own(item.key).items()},
            )
            for item in AXES[self.axis]
        )

    def state(self, value: tuple[Choice, ...], controls: Fields) -> dict[str, Any]:
        key, state = self.key_of(controls), dict[str, Any]()
        for choice in value:
            own = self.own(choice.key)
            for name, one in choice.params:
                if name in own:
                    state |= controls.declared[own[name]].state(one, controls)
                else:
                    state[f"{key}:{choice.key}:{name}"] = one
        return state


# The widgets of a choice that may have parts, and of parameters, for pages and panels that draw them one by one.


PARTS = Choice("causal"), Choice("local")  # with which a composed mask starts
MAX_PARTS = 3
MAX_NESTED = 2  # parts of parts are plain masks here; deeper ones come by a link alone


def params_of(
    item: Entry,
    *,
    key: str,
    exclude: tuple[str, ...] = (),
    base: Choice | None = None,
    keep: dict[str, Any] = BOUND,
) -> dict[str, Value]:
    """Draw a widget for each of the entry's parameters except `exclude`; returns their values.

    They start from the values of `base` where it is a choice of that entry; `keep` are the options by which link and
    session hold them.
    """
    start = dict(base.params) if base is not None and base.key == item.key else {}
    return {
        param.key: param_widget(
            replace(param, default=start.get(param.key, param.default)),
            key=f"{key}:{item.key}:{param.key}",
            keep=keep,
        )
        for param in item.params
        if param.key not in exclude
    }


def params_in_session(item: Entry, *, key: str) -> dict[str, Value]:
    """The values that those widgets have, or will have; of a text that cannot be read, the last that could."""
    state, values = st.session_state, {}
    for param in item.params:
        name = f"{key}:{item.key}:{param.key}"
        value = state.get(name, param.default)
        if is_text(param) and config_error(param.check, value, param.name):
            value = state.get(f"{name}:read", param.default)
        elif is_text(param):
            state[f"{name}:read"] = value
        values[param.key] = value
    return values


def draw_choice(
    axis: str,
    label: str,
    base: Choice,
    *,
    key: str,
    help: str | None,
    keep: dict[str, Any] = KEEP,
    without: Collection[str] = (),
    depth: int = 0,
) -> Choice:
    """Draw the widgets of a choice that starts from `base`, of entries that are not in `without`; returns it."""
    hidden = {*without, *(COMPOSITIONS if depth >= MAX_NESTED else ())}
    if depth and axis == "position":  # only those that rotate or change scores can be joined
        hidden |= {
            item.key for item in AXES[axis] if item.parts or item.enters not in ("q, k", "scores")
        }
    hidden -= {st.session_state.get(key), base.key}
    options = [item.key for item in AXES[axis] if item.key not in hidden]
    name = st.selectbox(
        label,
        options,
        options.index(base.key),
        key=key,
        help=help,
        format_func=lambda name: entry(axis, name).name if depth else dated(entry(axis, name)),
        **keep,
    )
    return Choice.of(
        name,
        *draw_parts(axis, name, base, key=key, keep=keep, depth=depth),
        **params_of(entry(axis, name), key=key, base=base, keep=keep),
    )


def draw_parts(
    axis: str, name: str, base: Choice, *, key: str, keep: dict[str, Any] = KEEP, depth: int = 0
) -> list[Choice]:
    """Draw the parts of a composed choice, for masks joined by and or by or also how many there are."""
    count = len(part_starts(axis, name, base, key))
    label = entry(axis, name).name
    if axis == "mask" and name in ("and", "or"):
        st.number_input(
            f"{label}: parts",
            1,
            max(MAX_PARTS, count),
            count,
            key=f"{key}:{name}:parts",
            help="How many masks are joined",
            **keep,
        )
    return [
        draw_choice(
            axis,
            f"{label}: part {n + 1}",
            part,
            key=part_key(key, name, n),
            help="One of the choices that act together",
            keep=keep,
            depth=depth + 1,
        )
        for n, part in enumerate(part_starts(axis, name, base, key))
    ]


def part_starts(axis: str, name: str, base: Choice, key: str) -> tuple[Choice, ...]:
    """What each part of a choice starts from: the parts of `base` where it is of that entry, else the entry's own."""
    start = base.parts if base.key == name and base.parts else entry(axis, name).parts
    if axis == "mask" and name in COMPOSITIONS:
        start = start or PARTS[: 1 if name == "not" else 2]
    count = st.session_state.get(f"{key}:{name}:parts", len(start))
    return (*start, *start[-1:] * (count - len(start)))[:count]


def part_key(key: str, name: str, number: int) -> str:
    """The session's key of one of the parts of the choice with that key and name."""
    return f"{key}:{name}:part{number}"


def choice_in_session(axis: str, base: Choice, *, key: str) -> Choice:
    """The choice that those widgets have, or will have, before they are drawn."""
    name = st.session_state.get(key, base.key)
    return Choice.of(
        name,
        *(
            choice_in_session(axis, part, key=part_key(key, name, n))
            for n, part in enumerate(part_starts(axis, name, base, key))
        ),
        **params_in_session(entry(axis, name), key=key),
    )


def choice_state(key: str, choice: Choice) -> dict[str, Any]:
    """The state of the widgets for a choice, with all its parts; for a link or a callback, before they are drawn."""
    values: dict[str, Any] = {
        key: choice.key,
        **{f"{key}:{choice.key}:{name}": value for name, value in choice.params},
    }
    if choice.parts:
        values[f"{key}:{choice.key}:parts"] = len(choice.parts)
    for n, part in enumerate(choice.parts):
        values |= choice_state(part_key(key, choice.key, n), part)
    return values


def dated(item: Entry | Preset) -> str:
    """The name with the year of its paper, where it has one that the name does not say."""
    return (
        f"{item.name} · {item.year}"
        if item.paper and str(item.year) not in item.name
        else item.name
    )
