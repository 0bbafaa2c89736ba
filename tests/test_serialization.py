"""Dataclasses are read from plain values, and a value that does not fit is refused in a sentence."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta

from core.entries import ConfigError
from core.pretrained.finetune import FineTuneConfig, usual
from core.runs.sweeps import Outcome
from core.serialization import OLD_NAMES, bounds, check_types, read
from core.training import Record, RunConfig
from core.training.sweeps import with_settings
from tests.training.small import small_run


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


def older(data: dict, of: str) -> dict:
    """An object with the names of before."""
    names = {new: old for old, new in OLD_NAMES[of].items()}
    return {names.get(name, name): value for name, value in data.items()}


def test_old_config() -> None:
    config = small_run(max_seconds=70, max_train_seconds=60, num_examples=3)
    data = older(config.to_json(), "config")
    assert (data["seconds"], data["trained"], data["watch"]) == (70, 60, 3)
    assert RunConfig.from_json(data) == config
    assert with_settings(small_run(), {"trained": 60}).max_train_seconds == 60


def test_old_fine_tuning() -> None:
    config = replace(usual("classify"), logged_example="is it open", max_seconds=70)
    data = older(config.to_json(), "finetune")
    assert (data["watch"], data["seconds"]) == ("is it open", 70)
    assert FineTuneConfig.from_json(data) == config


def test_old_record() -> None:
    data: dict[str, Any] = {"step": 3, "letters": 0.5, "exact": 0.25, "trained": 1.5}
    data["buckets"] = [{"lengths": "1-2", "count": 4, "exact": 0.75, "bleu": None}]
    record = Record.from_json(data)
    assert (record.token_accuracy, record.sequence_accuracy, record.train_seconds) == (
        0.5,
        0.25,
        1.5,
    )
    assert record.buckets[0].sequence_accuracy == 0.75
    for old, new in OLD_NAMES["record"].items():  # a plug-in that was made of a sweep reads them
        assert getattr(record, old) == getattr(record, new)
    assert Record.from_json(record.to_json()) == record and not hasattr(record, "other")


def test_old_outcome() -> None:
    measures = {"exact": [0.5], "letters": [0.75], "loss": [1.0]}
    data = {"state": "finished", "steps": [4], "trained": [1.5], "measures": measures}
    outcome = Outcome.from_json(data)
    assert outcome.points("sequence_accuracy", "train_seconds") == [(1.5, 0.5)]
    assert outcome.last("token_accuracy") == 0.75
