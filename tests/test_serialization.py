"""Dataclasses are read from plain values, and a value that does not fit is refused in a sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
from msgspec import Meta

from core.entries import ConfigError
from core.serialization import bounds, check_types, read


@dataclass(frozen=True)
class Inner:
    size: Annotated[int, Meta(ge=1, le=2_000)]

    def __post_init__(self) -> None:
        check_types(self, "inner: ")


@dataclass(frozen=True)
class Outer:
    inner: Inner
    rows: tuple[Annotated[float, Meta(ge=0, lt=1)], ...] = ()
    word: Literal["a", "b"] = "a"
    note: Annotated[str, Meta(max_length=5)] | None = None
    flag: bool = False
    pair: tuple[str, float] | None = None
    table: dict[str, float] | None = None

    def __post_init__(self) -> None:
        check_types(self)


def test_read() -> None:
    data = {"inner": {"size": 3}, "rows": [0, 0.5], "note": "x"}
    assert read(data, Outer, "An outer") == Outer(Inner(3), (0.0, 0.5), note="x")
    assert read({"inner": Inner(3)}, Outer, "An outer") == Outer(Inner(3))
    assert bounds(Inner) == {"size": (1, 2_000)} and bounds(Outer) == {}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"inner": {"size": 0}}, "inner.size = 0; expected a whole number from 1 to 2,000."),
        ({"inner": {}}, "inner = {}; expected an object of size."),
        ({"inner": None}, "inner = None; expected an object of size."),
        ({"rows": [0, 1.0]}, "rows[1] = 1.0; expected a number from 0 below 1."),
        ({"rows": 1}, "rows = 1; expected a list, each a number from 0 below 1."),
        ({"rows": [float("nan")]}, "rows[0] = nan; expected a number"),
        ({"word": "c"}, "word = 'c'; expected one of a, b."),
        ({"word": ["a"]}, "expected one of a, b."),
        ({"note": "longer"}, "expected a text of at most 5 characters or none."),
        ({"pair": ["a", "b"]}, "pair[1] = 'b'; expected a number."),
        ({"pair": ["a"]}, "pair = ['a']; expected a list of a text, a number or none."),
        ({"table": {"a": None}}, "expected an object, each of its values a number or none."),
        ({"flag": 1}, "flag = 1; expected true or false."),
        (
            {"other": 1},
            "An outer has no other; it takes flag, inner, note, pair, rows, table, word.",
        ),
        ({"inner": {"size": 10**400}}, "expected a whole number from 1 to 2,000."),
    ],
)
def test_refused(change: dict, sentence: str) -> None:
    with pytest.raises(ConfigError) as error:
        read({"inner": {"size": 3}, **change}, Outer, "An outer")
    assert sentence in str(error.value)


def test_direct() -> None:
    with pytest.raises(ConfigError, match="^inner: size = 0; expected a whole number"):
        Inner(0)


@pytest.mark.parametrize(
    ("data", "sentence"), [([], "An outer is an object of its fields"), ({}, "needs inner")]
)
def test_no_object(data: object, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        read(data, Outer, "An outer")
