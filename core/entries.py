"""What every axis is made of: an entry says once what a choice is, and a Choice names one with its parameters."""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

Value = int | float | bool | str
LONGEST_TEXT = 4096
LONGEST_QUOTE = 60  # characters of an outside value that a message repeats
DEEPEST = 16  # levels of parts within parts; a mask that a person composes has three or four


class ConfigError(ValueError):
    """A choice, or a pair of choices, that cannot be built; the message says what was given and what would fit."""


_WORD = re.compile(rf"[\w.-]{{1,{LONGEST_QUOTE}}}")
_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = LONGEST_QUOTE


def quote(value: object) -> str:
    """The repr of a value from outside, for a message: at most LONGEST_QUOTE characters, however large or deep it
    is."""
    text = _REPR.repr(value)
    return text if len(text) <= LONGEST_QUOTE else f"{text[: LONGEST_QUOTE - 1]}…"


def quote_name(name: object) -> str:
    """A name from outside, for a message: bare where it is one short word, else quoted."""
    return name if isinstance(name, str) and _WORD.fullmatch(name) else quote(name)


@dataclass(frozen=True)
class Param:
    """One parameter of an entry: its default, its bounds, and what it means. Sliders are made from it.

    A text without choices is typed freely, up to `longest` signs, and `parse` raises ConfigError where it cannot be
    read. `before` is what a stored run goes by that was written before this parameter existed; None: the default.
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

    def label(self, choice: str) -> str:
        """What a page calls a choice: its label, or the choice itself."""
        return dict(zip(self.choices, self.labels, strict=False)).get(choice, choice)

    def check(self, value: Value, owner: str) -> Value:
        """Return the value in this parameter's own type; ConfigError if it is of another kind or out of bounds."""
        if self.choices:
            if value not in self.choices:
                raise ConfigError(f"{owner}: {self.key} = {quote(value)}; expected one of {', '.join(self.choices)}.")
            return value
        kind = type(self.default)
        if kind is str:
            return self._read(value, owner)
        if not _is_number(value) or isinstance(value, bool) != (kind is bool) or (kind is int and value != int(value)):
            expected = {bool: "true or false", int: "a whole number"}.get(kind, "a number")
            raise ConfigError(f"{owner}: {self.key} = {quote(value)}; expected {expected}.")
        low, high = self.low, self.high
        if (low is not None and value < low) or (high is not None and value > high):
            raise ConfigError(f"{owner}: {self.key} = {value:g}; expected {low:g} to {high:g}.")
        return kind(value)

    def _read(self, value: Value, owner: str) -> str:
        if not isinstance(value, str) or len(value) > self.longest:
            raise ConfigError(f"{owner}: {self.key} = {quote(value)}; expected a text of at most {self.longest} signs.")
        if self.parse is not None:
            self.parse(value)
        return value


def _is_number(value: object) -> TypeGuard[int | float]:
    """Whether it is a finite number; a whole number too large for a float is none."""
    try:
        return isinstance(value, int | float) and math.isfinite(value)
    except OverflowError:
        return False


@dataclass(frozen=True)
class HeadSizes:
    """What a projection makes: how many heads meet, and their sizes. By default H heads of D = C / H in all places."""

    score_heads: int  # heads of q that meet keys
    qk_dim: int  # size of a query and of a key as they meet
    v_dim: int  # size of a value
    kv_heads: int  # heads of k and v that are stored
    cached: int | None = None  # numbers that a decoder caches per token, where they are not those keys and values

    @property
    def cache(self) -> int:
        """Numbers that a decoder caches per token."""
        return self.kv_heads * (self.qk_dim + self.v_dim) if self.cached is None else self.cached


@dataclass(frozen=True)
class Cost:
    """What a step takes.

    `flops` are those of matrix products, a multiply and an add counted as two: what torch.utils.flop_counter counts,
    and nothing elementwise. `bytes` is the most alive at once beyond the step's inputs, `output` its result.
    """

    flops: float = 0.0
    bytes: float = 0.0
    output: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.flops + other.flops, self.bytes + other.bytes, self.output + other.output)


@dataclass(frozen=True)
class Area:
    """A rectangle of the score matrix that is computed at once: T queries and S keys, with i − j from low to high.

    `masked` says that a mask hides some of its cells, `real` how many keys come before the padding (None: all).
    """

    queries: int
    keys: int
    low: int
    high: int
    masked: bool = False
    real: int | None = None

    @classmethod
    def whole(cls, queries: int, keys: int, *, masked: bool = False, real: int | None = None) -> Area:
        """All cells of queries and keys that both begin at place 0."""
        return cls(queries, keys, 1 - keys, queries - 1, masked, real)

    @property
    def cells(self) -> int:
        return self.queries * self.keys


@dataclass(frozen=True)
class Entry:
    """One choice on an axis: everything that a control, an equation, a test or a benchmark needs to know of it.

    `build` makes the working piece; its signature is the axis's own (see the end of each axis file). `refuse` takes a
    whole AttentionConfig and returns the sentence that says why this choice cannot go with the others, or None.
    `short` is the rule in plain signs, for the head of a column; {name} stands for a parameter. `enters` says of a
    position where order comes in: "x" (added before projecting), "q, k" (rotated) or "scores" (a bias). `traits` are
    what other axes may ask of it, in the words that its axis file lists. `sizes` (projections) says which heads come
    out for a config; `cost(config, area)` what it takes for one sequence: a kernel with all that it calls, any other
    choice alone. `tables` is what a position makes once a call beside that, whatever areas a kernel cuts.
    """

    key: str
    name: str
    build: Callable[..., Any]
    latex: str
    meaning: str
    paper: str
    year: int
    url: str = ""
    params: tuple[Param, ...] = ()
    short: str = ""
    enters: str = ""
    traits: frozenset[str] = frozenset()
    sizes: Callable[[Any], HeadSizes] | None = None
    cost: Callable[[Any, Area], Cost] = field(default=lambda config, area: Cost())
    tables: Callable[[Any, Area], Cost] = field(default=lambda config, area: Cost())
    refuse: Callable[[Any], str | None] = field(default=lambda config: None)


@dataclass(frozen=True)
class Choice:
    """An entry's key with that entry's own parameters; masks may hold `parts`, which are Choices themselves."""

    key: str
    params: tuple[tuple[str, Value], ...] = ()
    parts: tuple[Choice, ...] = ()

    @classmethod
    def of(cls, key: str, /, *parts: Choice, **params: Value) -> Choice:
        return cls(key, tuple(sorted(params.items())), parts)

    def __getitem__(self, name: str) -> Value:
        return dict(self.params)[name]

    @property
    def kwargs(self) -> dict[str, Any]:
        """The parameters by name, for the constructor that they were checked for."""
        return dict(self.params)

    def walk(self) -> list[Choice]:
        """The choice itself and, of a composed one, all its parts at any depth."""
        return [self, *(inner for part in self.parts for inner in part.walk())]

    def leaves(self) -> list[Choice]:
        """The choices that a composed one is made of at last; any other is its own."""
        return [inner for inner in self.walk() if not inner.parts]

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {"key": self.key, **dict(self.params)}
        if self.parts:
            out["parts"] = [part.to_json() for part in self.parts]
        return out

    @classmethod
    def from_json(cls, data: str | Mapping[str, Any], depth: int = 0) -> Choice:
        """The choice that a key, or an object with a key, describes; ConfigError for anything else."""
        if isinstance(data, str):
            return cls(data)
        if not isinstance(data, Mapping) or not isinstance(data.get("key"), str):
            raise ConfigError(f"A choice is a key, or an object with a key; got {quote(data)}.")
        parts = data.get("parts", [])
        if not isinstance(parts, list | tuple):
            raise ConfigError(f"The parts of {quote_name(data['key'])} are a list of choices; got {quote(parts)}.")
        if depth == DEEPEST:
            raise ConfigError(f"A choice has parts within parts, more than {DEEPEST} deep; take fewer.")
        params = tuple(sorted((name, value) for name, value in data.items() if name not in ("key", "parts")))
        return cls(data["key"], params, tuple(cls.from_json(part, depth + 1) for part in parts))


def find(entries: tuple[Entry, ...], axis: str, key: str) -> Entry:
    """The entry of that key; ConfigError lists the keys there are."""
    for entry in entries:
        if entry.key == key:
            return entry
    raise ConfigError(f"{axis} = {quote(key)}; expected one of {', '.join(entry.key for entry in entries)}.")


def complete(choice: Choice | str, entries: tuple[Entry, ...], axis: str) -> Choice:
    """The choice with every parameter filled in and checked; ConfigError names what the entry does not have."""
    choice = Choice(choice) if isinstance(choice, str) else choice
    entry = find(entries, axis, choice.key)
    given, known = dict(choice.params), {param.key: param for param in entry.params}
    if extra := sorted(given.keys() - known.keys()):
        raise ConfigError(f"{axis} = {choice.key} has no {quote_name(extra[0])}; it takes "
                          f"{', '.join(known) or 'no parameters'}.")
    owner = f"{axis} = {choice.key}"
    params = {key: param.check(given.get(key, param.default), owner) for key, param in known.items()}
    return Choice.of(choice.key, *(complete(part, entries, axis) for part in choice.parts), **params)
