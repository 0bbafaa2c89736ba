"""Which runs a page shows, by their ids in the link; and of a next run the settings, and what has no widget."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import streamlit as st

from core.entries import Value
from dashboard.fields.base import Field, Fields, Of, T, param_widget
from dashboard.fields.data import WIDGETS
from dashboard.fields.link import KEEP, link_param, link_value, write_link
from dashboard.server.session import SessionValue


class RunsField(SessionValue[str]):
    """The ids of several runs, of which the link has all under one name; beside it the page's last ones.

    It has no widget of its own: the page writes it when a list or a table changes.
    """

    def __init__(self, link: str) -> None:
        super().__init__("")
        self.link = link

    @property
    def ids(self) -> list[str]:
        """Those of the link, each once; without any, what `value` remembers of the last visit."""
        text = st.query_params.get(self.link) or self.value
        return list(dict.fromkeys(filter(None, text.split(","))))

    def write(self, ids: Iterable[str]) -> str:
        """Put these into the link, or none; returns their text."""
        text = ",".join(dict.fromkeys(ids))
        write_link(self.link, text or None)
        return text


@dataclass(frozen=True)
class LinkedField(Field[T]):
    """A value without a widget of its own, which is a text in the link; `from_text` may refuse one (ValueError)."""

    default: T | Of = field(kw_only=False)
    from_text: Callable[[str, Any], T] = field(kw_only=True)
    to_text: Callable[[T], str] = field(kw_only=True)

    def read(self, controls: Fields) -> T:
        key, start = self.key_of(controls), self.start(controls)
        link_value(key, start, lambda text: self.from_text(text, controls), self.to_text)
        return SessionValue(start, key).value


@dataclass(frozen=True)
class SettingsField(Field[dict[str, Value]]):
    """The parameters that are given as `params`: each has a widget and a place in the link; the value is theirs, by key."""

    def param_key(self, controls: Fields, param: str) -> str:
        """The session's key of a parameter, also its name in links, where the most seconds are still called `seconds`."""
        return f"{self.key_of(controls)}:{'seconds' if param == 'max_seconds' else param}"

    def values(self, controls: Any, drawn: bool) -> dict[str, Value]:
        """Of the widgets, else of the session. A person's own data has widgets that depend on the values before."""
        values = dict[str, Value]()
        for param in controls.params:
            key = self.param_key(controls, param.key)
            if draw := WIDGETS.get(param.key):
                values[param.key] = draw(param, values, key)
                continue
            link_param(param, key)
            values[param.key] = SessionValue(param.default, key).value
            if drawn:
                values[param.key] = param_widget(param, key=key, keep=KEEP)
        return values

    def draw_widget(self, controls: Fields) -> dict[str, Value]:
        return self.values(controls, drawn=True)

    def read(self, controls: Fields) -> dict[str, Value]:
        return self.values(controls, drawn=False)

    def state(self, value: Mapping[str, Value], controls: Fields) -> dict[str, Any]:
        return {self.param_key(controls, param): one for param, one in value.items()}
