"""What every axis is made of: an Entry describes a choice, and a Choice names an entry with its parameters."""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from typing import Any, Literal, Protocol, TypeGuard

from core import plugins

Value = int | float | bool | str
LONGEST_TEXT = 4096
KEY = re.compile(r"[a-z][a-z0-9_]{0,39}")  # of an entry from outside
LONGEST_QUOTE = 60  # characters of an outside value that a message repeats


class ConfigError(ValueError):
    """A choice, or a pair of choices, that cannot be built; the message says what was given and what would fit.

    `axes` are those whose choices do not fit, the one at fault first; `take` are the alternatives that the message
    names: values of an axis, or of a parameter. `words` are further ones, which only a person can take.
    """

    def __init__(
        self, why: str, *words: str, axes: Sequence[str] = (), **take: Value | Sequence[Value]
    ) -> None:
        self.why, self.words, self.axes = why, words, axes
        self.take: dict[str, Sequence[Value]] = {
            name: (values,) if isinstance(values, Value) else values
            for name, values in take.items()
        }
        named = [f"{name} = {_alternatives(values)}" for name, values in self.take.items()]
        text = f"{why}; take {', or '.join([*words, *named])}." if words or named else why
        super().__init__(text)


def refuse_if(
    wrong: object,
    why: str,
    *words: str,
    axes: Sequence[str] = (),
    **take: Value | Sequence[Value],
) -> None:
    """ConfigError, made of the other arguments, where a value is wrong."""
    if wrong:
        raise ConfigError(why, *words, axes=axes, **take)


def _alternatives(values: Sequence[Value]) -> str:
    texts = [str(value) for value in values]
    return " or ".join(texts) if len(texts) < 3 else f"one of {', '.join(texts)}"


def refuse_type(value: object, kind: type, call: str) -> None:
    """ConfigError with the right call where a value is of another kind."""
    if not isinstance(value, kind):  # first: the words of a tensor take longer than attention
        got = " ".join(quote(value).split())
        raise ConfigError(f"Expected {call}; got {got} in place of the {kind.__name__}.")


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
    _: KW_ONLY
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

    @property
    def has_slider(self) -> bool:
        """Whether it has what its control is made of: a number needs bounds and a step."""
        number = not isinstance(self.default, bool | str)
        return not number or None not in (self.low, self.high, self.step or None)

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
            if not isinstance(value, str) or len(value) > self.longest:
                raise ConfigError(
                    f"{owner}: {self.key} = {quote(value)}; expected a text of at most {self.longest} "
                    "characters."
                )
            if self.parse is not None:
                self.parse(value)
            return value
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


def variants(params: Sequence[Param]) -> list[dict[str, Value]]:
    """What an entry is tried with: no parameter, and each one at its least, at each choice, or as the other flag."""
    tried: list[dict[str, Value]] = [{}]
    for param in params:
        flags = (False, True) if isinstance(param.default, bool) else (param.low,)
        values = [value for value in param.choices or flags if value not in (None, param.default)]
        tried += [{param.key: value} for value in values]
    return tried


def param_complaints(params: object, owner: str) -> Iterator[str]:
    """Sentences about the parameters of an entry from outside, of which a page could draw no control.

    ConfigError for a default that its parameter does not allow.
    """
    if not isinstance(params, tuple) or not all(isinstance(param, Param) for param in params):
        yield f"{owner}: params = {quote(params)}; expected a tuple of Param, as in (Param(…),)."
        return
    for param in params:
        checks = [
            (
                param.key.isidentifier() and param.key not in ("key", "parts"),
                f"a parameter's key is {quote(param.key)}; expected a name other than key and parts",
            ),
            (bool(param.meaning), f"{param.key} has no meaning, which pages show as its help"),
            (
                param.has_slider,
                f"{param.key} is a number without low, high and step, of which its slider is made",
            ),
        ]
        yield from (f"{owner}: {text}." for fits, text in checks if not fits)
        param.check(param.default, owner)
    if len({param.key for param in params}) < len(params):
        yield f"{owner} has two parameters of one key."


def _is_number(value: object) -> TypeGuard[int | float]:
    try:
        return isinstance(value, int | float) and math.isfinite(value)
    except OverflowError:
        return False


DEEPEST = 16  # levels of parts within parts; a composed mask has three or four


@dataclass(frozen=True)
class HeadSizes:
    """The number of heads that a projection makes, and their sizes; by default H heads of D = C / H throughout."""

    score_heads: int  # heads of q
    qk_dim: int  # size of a query and of a key
    v_dim: int  # size of a value
    kv_heads: int  # heads of k and v that are stored
    cached: int | None = None  # numbers that a decoder caches per token, where they are not k and v

    @property
    def cache(self) -> int:
        """Numbers that a decoder caches per token."""
        return self.kv_heads * (self.qk_dim + self.v_dim) if self.cached is None else self.cached


@dataclass(frozen=True)
class Cost:
    """The cost of a step: `flops` of matrix products, a multiply and an add counted as two, and nothing elementwise.

    `bytes` is the peak beyond the step's inputs, `output` the bytes of its result. NaN is unknown.
    """

    flops: float = 0.0
    bytes: float = 0.0
    output: float = 0.0

    @property
    def known(self) -> bool:
        return not math.isnan(self.flops)

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.flops + other.flops, self.bytes + other.bytes, self.output + other.output)

    def __mul__(self, times: float) -> Cost:
        return Cost(self.flops * times, self.bytes * times, self.output * times)


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
    def whole(
        cls, queries: int, keys: int, *, masked: bool = False, real: int | None = None
    ) -> Area:
        """All cells of queries and keys that both begin at position 0."""
        return cls(queries, keys, 1 - keys, queries - 1, masked, real)

    @property
    def cells(self) -> int:
        return self.queries * self.keys

    @property
    def copied_keys(self) -> int:
        """The keys where a copy is made of them, since some are not real; else none."""
        return 0 if self.real is None else self.keys


Trait = Literal[
    "adjusts",
    "at most one",
    "causal",
    "doubles",
    "folds",
    "hard",
    "implied",
    "layer only",
    "learned",
    "longest",
    "mixes heads",
    "one sequence",
    "other rows",
    "own positions",
    "pooled",
    "product",
    "reads content",
    "reads length",
    "reads mask",
    "reads order",
    "reads q",
    "reads x",
    "reweighs",
    "same",
    "shares keys",
    "softmax",
    "state",
    "sums to one",
    "values",
    "whole rows",
]
TRAITS: dict[str, dict[Trait, str]] = {  # of each axis, with what other axes may rely on
    "projection": {
        "folds": "it has more score heads than value heads, and weights may be negative",
        "own positions": "it rotates q and k itself",
        "one sequence": "x and context must be one",
        "shares keys": "it can take another layer's keys and values",
    },
    "score": {
        "product": "it is a Product; its cost is what comes on top of T·S products of D numbers"
    },
    "position": {
        "longest": "its table ends at max_len",
        "adjusts": "it changes scores in a way that no bias can say",
        "values": "it adds something to weights · v",
        "whole rows": "a cell depends on the other keys of its row",
        "other rows": "a cell depends on the rows of earlier queries",
        "reads x": "the tokens' own vectors decide",
        "reads q": "a bias or an adjustment meets queries with vectors of their size",
        "reads length": "the angles of earlier tokens change as the text grows",
        "doubles": "rotated queries and keys have 2D numbers",
    },
    "mask": {
        "reweighs": "it also multiplies the weights",
        "learned": "it has weights of its own",
        "reads content": "it depends on the numbers of a call",
        "whole rows": "it compares all keys of a row",
        "causal": "it shows no later key, though positions do not tell which it shows",
        "reads length": "it is another mask in a longer text",
    },
    "normalizer": {
        "softmax": "it is the plain one, which fused and chunked kernels can compute",
        "sums to one": "the weights of a row add up to 1",
        "at most one": "the weights of a row add up to at most 1; without either trait, to anything",
        "hard": "its gradient is not that of what was computed",
        "mixes heads": "a head's weights depend on those of other heads, and may be negative",
        "reads order": "weights depend on the order of keys",
    },
    "kernel": {
        "same": "its weights are exact's, which exact then records",
        "implied": "it has other weights, in its Steps when recording",
        "pooled": "it attends to vectors which stand for several tokens, so that the weights of tokens in its Steps "
        "do not give its output",
        "own positions": "it depends on positions itself",
        "reads mask": "it reads the mask's cells to skip hidden ones",
        "state": "a decoder can carry one state in place of keys (why_no_state)",
        "layer only": "a layer alone knows its sizes or weights, so that `attend` refuses it",
    },
}


READS = {  # what a kernel from outside may compute of the other axes, beyond softmax(q kᵀ / √D) v
    "score": "any score, by inputs.score and its scale",
    "position": "biases and other changes of scores, by inputs.bias() and inputs.position",
    "mask": "every cell of a mask, by inputs.joined_mask()",
    "padding": "which keys are real, by core.attention.kernels.implied.real_keys(inputs, key)",
    "normalizer": "any normalizer, by inputs.normalizer",
    "projection": "score heads that fold into value heads, by inputs.combine_heads",
    "dropout": "dropout of weights, by inputs.dropout",
}


class LayerConfig(Protocol):
    """What an entry reads of the config that chose it, an AttentionConfig: sizes, choices, and what follows from both."""

    def __hash__(self) -> int: ...

    @property
    def d_model(self) -> int: ...

    @property
    def num_heads(self) -> int: ...

    @property
    def projection(self) -> Choice: ...

    @property
    def score(self) -> Choice: ...

    @property
    def position(self) -> Choice: ...

    @property
    def mask(self) -> Choice: ...

    @property
    def normalizer(self) -> Choice: ...

    @property
    def kernel(self) -> Choice: ...

    @property
    def dropout(self) -> float: ...

    @property
    def head_dim(self) -> int: ...

    @property
    def score_heads(self) -> int: ...

    @property
    def qk_dim(self) -> int: ...

    @property
    def scored_dim(self) -> int: ...

    @property
    def v_dim(self) -> int: ...

    @property
    def kv_heads(self) -> int: ...

    def has(self, axis: str, trait: Trait) -> bool: ...

    def with_(self, **changes: Any) -> LayerConfig: ...


@dataclass(frozen=True)
class Entry:
    """One choice on an axis: all that controls, equations, tests and benchmarks need.

    `build` makes the module or function; its signature is given at the end of each axis file. `refuse(config)` raises
    or returns the error, or returns its sentence, where this choice cannot go with the others of the config. `short` is the
    rule in plain signs, for a column head; {name} stands for a parameter. `enters` is where a position acts: "x" (added
    before projecting), "q, k" (rotated) or "scores". `traits` are explained in TRAITS. `sizes(config)` are a
    projection's heads. `reads` says which other choices a kernel from outside computes (READS); others are refused.
    `cost(config, area)` is for one sequence: of a kernel with all that it calls, of any other choice alone; `tables` is
    the cost of what a position computes once a call.
    """

    key: str
    name: str
    _: KW_ONLY
    build: Callable[..., Any]
    latex: str
    meaning: str
    paper: str
    year: int
    url: str = ""
    params: tuple[Param, ...] = ()
    short: str = ""
    enters: str = ""
    traits: frozenset[Trait] = frozenset()
    sizes: Callable[[LayerConfig], HeadSizes] | None = None
    cost: Callable[[LayerConfig, Area], Cost] = field(default=lambda config, area: Cost())
    tables: Callable[[LayerConfig, Area], Cost] = field(default=lambda config, area: Cost())
    refuse: Callable[[LayerConfig], ConfigError | str | None] = field(default=lambda config: None)
    parts: tuple[Choice, ...] = ()  # what a composed choice joins where it names no parts
    source: str = ""  # the file that registered it; empty for the lab's own
    reads: tuple[str, ...] = ()


class Axis(list[Entry]):
    """The entries of one axis, as given or in the `order` of their keys; `core.attention.register` appends others."""

    def __init__(self, *entries: Entry, order: str = "") -> None:
        # keys without one come last
        places = {key: place for place, key in enumerate(order.split())}
        super().__init__(sorted(entries, key=lambda entry: places.get(entry.key, len(places))))


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
        """The parameters by name, for the constructor."""
        return dict(self.params)

    def walk(self) -> list[Choice]:
        """The choice itself and, of a composed one, all its parts at any depth."""
        return [self, *(inner for part in self.parts for inner in part.walk())]

    def leaves(self) -> list[Choice]:
        """The innermost parts of a composed choice; of any other the choice itself."""
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
            raise ConfigError(
                f"The parts of {quote_name(data['key'])} are a list of choices; got {quote(parts)}."
            )
        if depth == DEEPEST:
            raise ConfigError(
                f"A choice has parts within parts, more than {DEEPEST} deep; take fewer."
            )
        params = tuple(
            sorted((name, value) for name, value in data.items() if name not in ("key", "parts"))
        )
        return cls(data["key"], params, tuple(cls.from_json(part, depth + 1) for part in parts))


def find(entries: Sequence[Entry], axis: str, key: str) -> Entry:
    """The entry of that key; ConfigError lists the keys there are, and says which plug-ins could not be loaded."""
    for entry in entries:
        if entry.key == key:
            return entry
    raise ConfigError(
        f"{axis} = {quote(key)}; expected one of {', '.join(entry.key for entry in entries)}."
        f"{plugins.why_missing()}"
    )


def complete(choice: Choice | str, entries: Sequence[Entry], axis: str) -> Choice:
    """The choice with every parameter filled in and checked; ConfigError names what the entry does not have."""
    choice = Choice(choice) if isinstance(choice, str) else choice
    if not isinstance(choice, Choice):
        raise ConfigError(
            f"{axis} = {quote(choice)}; expected a Choice or its key. A function goes to the layer: "
            f"Attention(config, {axis}=…)."
        )
    entry = find(entries, axis, choice.key)
    return Choice.of(
        choice.key,
        *(complete(part, entries, axis) for part in choice.parts or entry.parts),
        **filled(entry.params, dict(choice.params), f"{axis} = {choice.key}"),
    )


def filled(
    params: Iterable[Param], values: Mapping[str, Any], owner: str, what: str = ""
) -> dict[str, Value]:
    """The value of each parameter, by default its own; ConfigError for an unknown or an invalid one."""
    known = {param.key: param for param in params}
    if extra := sorted(values.keys() - known.keys()):
        raise ConfigError(
            f"{owner} has no {what}{quote_name(extra[0])}; it takes "
            f"{', '.join(known) or 'no parameters'}."
        )
    return {key: param.check(values.get(key, param.default), owner) for key, param in known.items()}
