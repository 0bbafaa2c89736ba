"""Param: one parameter of an entry, with its default and bounds; ConfigError, and quotes of outside values."""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeGuard

Value = int | float | bool | str
LONGEST_TEXT = 4096
LONGEST_QUOTE = 60  # characters of an outside value that a message repeats


class ConfigError(ValueError):
    """A choice, or a pair of choices, that cannot be built; the message says what was given and what would fit."""


_WORD = re.compile(rf"[\w.-]{{1,{LONGEST_QUOTE}}}")
_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = LONGEST_QUOTE


def quote(value: object) -> str:
    """The repr of an outside value for a message, cut to LONGEST_QUOTE characters."""
    text = _REPR.repr(value)
    return text if len(text) <= LONGEST_QUOTE else f"{text[: LONGEST_QUOTE - 1]}…"


def quote_name(name: object) -> str:
    """An outside name for a message: bare where it is one short word, else quoted."""
    return name if isinstance(name, str) and _WORD.fullmatch(name) else quote(name)


def check_fields(cls: Any, data: object, name: str, needed: Iterable[str] = ()) -> dict[str, Any]:
    """The values of a config in a dict; ConfigError for anything else, and for an unknown or a missing field."""
    known = sorted(field.name for field in fields(cls))
    if not isinstance(data, Mapping):
        raise ConfigError(
            f"{name} is an object of its fields, {', '.join(known)}; got {quote(data)}."
        )
    if unknown := sorted(set(data) - set(known)):
        raise ConfigError(f"{name} has no {quote_name(unknown[0])}; it takes {', '.join(known)}.")
    if missing := sorted(set(needed) - set(data)):
        raise ConfigError(f"{name} needs {' and '.join(missing)}.")
    return dict(data)


@dataclass(frozen=True)
class Param:
    """One parameter of an entry: its default, bounds and meaning, from which sliders are made.

    A text without choices is typed freely, up to `longest` characters; `parse` raises ConfigError for an invalid one.
    `before` is the value of runs stored before this parameter existed; None for the default.
    """

    key: str
    name: str
    default: Value
    low: float | None = None
    high: float | None = None
    step: float | None = None
    choices: tuple[str, ...] = ()
    meaning: str = ""
    labels: tuple[str, ...] = ()
    parse: Callable[[str], object] | None = None
    longest: int = LONGEST_TEXT
    before: Value | None = None

    @property
    def help(self) -> str:
        """The meaning as a sentence, which a page shows beside the widget."""
        return f"{self.meaning[:1].upper()}{self.meaning[1:]}."

    def label(self, choice: str) -> str:
        """What a page calls a choice: its label, or the choice itself."""
        return dict(zip(self.choices, self.labels, strict=False)).get(choice, choice)

    def check(self, value: Value, owner: str) -> Value:
        """The value in this parameter's type; ConfigError if it is of another type or out of bounds."""
        if self.choices:
            if value not in self.choices:
                raise ConfigError(
                    f"{owner}: {self.key} = {quote(value)}; expected one of {', '.join(self.choices)}."
                )
            return value
        kind = type(self.default)
        if kind is str:
            return self._read(value, owner)
        if (
            not _is_number(value)
            or isinstance(value, bool) != (kind is bool)
            or (kind is int and value != int(value))
        ):
            expected = {bool: "true or false", int: "a whole number"}.get(kind, "a number")
            raise ConfigError(f"{owner}: {self.key} = {quote(value)}; expected {expected}.")
        low, high = self.low, self.high
        if (low is not None and value < low) or (high is not None and value > high):
            raise ConfigError(f"{owner}: {self.key} = {value:g}; expected {low:g} to {high:g}.")
        return kind(value)

    def _read(self, value: Value, owner: str) -> str:
        if not isinstance(value, str) or len(value) > self.longest:
            raise ConfigError(
                f"{owner}: {self.key} = {quote(value)}; expected a text of at most {self.longest} "
                "characters."
            )
        if self.parse is not None:
            self.parse(value)
        return value


def _is_number(value: object) -> TypeGuard[int | float]:
    """Whether it is a finite number that fits a float."""
    try:
        return isinstance(value, int | float) and math.isfinite(value)
    except OverflowError:
        return False
