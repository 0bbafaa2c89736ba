"""Dataclasses are read from plain values, and a value that does not fit is refused in a sentence."""

import re
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta

from core.attention import AttentionConfig, Choice
from core.entries import LONGEST_QUOTE, ConfigError, quote, quote_name
from core.files import seconds_of, server_folder
from core.pretrained.finetune import FineTuneConfig, usual
from core.runs.runs import max_disk_bytes
from core.runs.sweeps import Outcome
from core.serialization import OLD_NAMES, bounds, check_types, read
from core.settings import PREFIX, LabSettings, Limits, RayWorker, check_names, settings
from core.tasks import TaskConfig
from core.training import Record, RunConfig
from core.training.sweeps import with_settings
from tests.cases import each
from tests.damage import HOSTILE, deep
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
    half: Annotated[float, Meta(ge=0, le=0.5)] = 0.0
    low: Annotated[int, Meta(ge=0)] = 0
    high: Annotated[int, Meta(le=9)] = 0
    pair: tuple[str, float] | None = None
    table: dict[str, float] | None = None

    def __post_init__(self) -> None:
        check_types(self)


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
        ({"word": "\ud800"}, "word = '\\ud800'; expected one of a, b."),  # half a character
        ({"note": "longer"}, "expected a text of at most 5 characters or none."),
        ({"pair": ["a", "b"]}, "pair[1] = 'b'; expected a number."),
        ({"pair": ["a"]}, "pair = ['a']; expected a list of a text, a number or none."),
        ({"table": {"a": None}}, "expected an object, each of its values a number or none."),
        ({"flag": 1}, "flag = 1; expected true or false."),
        ({"half": 0.6}, "half = 0.6; expected a number from 0 to 0.5."),
        ({"low": -1}, "low = -1; expected a whole number from 0."),
        ({"high": 10}, "high = 10; expected a whole number to 9."),
        ({"rows": [0, "a", 0]}, "rows[1] = 'a'; expected a number from 0 below 1."),
        ({"table": {"a": {"b": 1}}}, "expected an object, each of its values a number or none."),
        (
            {"other": 1},
            "An outer has no other; it takes flag, half, high, inner, low, note, pair, rows, table, word.",
        ),
        ({"inner": {"size": 10**400}}, "expected a whole number from 1 to 2,000."),
    ],
)
def test_refused(change: dict, sentence: str) -> None:
    with pytest.raises(ConfigError) as error:
        read({"inner": {"size": 3}, **change}, Outer, "An outer")
    assert sentence in str(error.value)


def test_read() -> None:
    data = {"inner": {"size": 3}, "rows": [0, 0.5], "note": "x"}
    assert read(data, Outer, "An outer") == Outer(Inner(3), (0.0, 0.5), note="x")
    assert read({"inner": Inner(3)}, Outer, "An outer") == Outer(Inner(3))
    assert bounds(Inner) == {"size": (1, 2_000)} and bounds(Outer) == {"half": (0, 0.5)}
    pytest.raises(ConfigError, Inner, 0).match("^inner: size = 0; expected a whole number")
    for wrong, sentence in (([], "An outer is an object of its fields"), ({}, "needs inner")):
        pytest.raises(ConfigError, read, wrong, Outer, "An outer").match(sentence)


def older(data: dict, of: str) -> dict:
    names = {new: old for old, new in OLD_NAMES[of].items()}
    return {names.get(name, name): value for name, value in data.items()}


def test_old_configs() -> None:
    config = small_run(max_seconds=70, max_train_seconds=60, num_examples=3)
    data = older(config.to_json(), "config")
    assert (data["seconds"], data["trained"], data["watch"]) == (70, 60, 3)
    assert RunConfig.from_json(data) == config
    assert with_settings(small_run(), {"trained": 60}).max_train_seconds == 60
    tuned = replace(usual("classify"), logged_example="is it open", max_seconds=70)
    data = older(tuned.to_json(), "finetune")
    assert (data["watch"], data["seconds"]) == ("is it open", 70)
    assert FineTuneConfig.from_json(data) == tuned


def test_old_record_and_outcome() -> None:
    data: dict[str, Any] = {"step": 3, "letters": 0.5, "exact": 0.25, "trained": 1.5}
    data["buckets"] = [{"lengths": "1-2", "count": 4, "exact": 0.75, "bleu": None}]
    record = Record.from_json(data)
    scores = (record.token_accuracy, record.sequence_accuracy, record.train_seconds)
    assert scores == (0.5, 0.25, 1.5) and record.buckets[0].sequence_accuracy == 0.75
    for old, new in OLD_NAMES["record"].items():  # a plug-in that was made of a sweep reads them
        assert getattr(record, old) == getattr(record, new)
    assert Record.from_json(record.to_json()) == record and not hasattr(record, "other")
    measures = {"exact": [0.5], "letters": [0.75], "loss": [1.0]}
    outcome = Outcome.from_json(
        {"state": "finished", "steps": [4], "trained": [1.5], "measures": measures}
    )
    assert outcome.points("sequence_accuracy", "train_seconds") == [(1.5, 0.5)]
    assert outcome.last("token_accuracy") == 0.75


# What the environment sets, typed; what cannot be read names its variable.


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch):
    for field in fields(LabSettings):
        monkeypatch.delenv(PREFIX + field.name.upper(), raising=False)


def test_without_a_variable_everything_is_usual(monkeypatch):
    now = settings()
    assert server_folder() == Path.home() / ".attention-lab" / "runs"
    assert now.limits == Limits() and now.ray_worker == RayWorker() and not now.hosted
    assert not any((now.runs, now.store, now.frames, now.hosted_limits, now.hosted_models))
    monkeypatch.setenv("ATTENTION_LAB_LIMITS", "max_runs=5, disk_mb=1.5  memory_mb=800")
    monkeypatch.setenv("ATTENTION_LAB_HOSTED_MODELS", "a/b, c/d,")
    assert settings().limits == Limits(max_runs=5, disk_mb=1.5, memory_mb=800)
    assert max_disk_bytes() == 1_500_000 and settings().hosted_models == ("a/b", "c/d")
    for off in ("", "0", "false", "No"):
        monkeypatch.setenv("ATTENTION_LAB_HOSTED", off)
        assert not settings().hosted


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("500", "takes name=value with spaces between, but has '500'"),
        ("disk=500", "has max_runs, disk_mb, .*, but no 'disk'"),
        ("disk_mb=some", "disk_mb = 'some' is no number above 0"),
        ("disk_mb=0", "disk_mb = '0' is no number above 0"),
        ("=5", "takes name=value with spaces between, but has '=5'"),
        ("disk_mb=", "takes name=value with spaces between, but has 'disk_mb='"),
        ("disk_mb=inf", "disk_mb = 'inf' is no number above 0"),
    ],
)
def test_what_cannot_be_read_is_refused(monkeypatch, text, problem):
    monkeypatch.setenv("ATTENTION_LAB_LIMITS", text)
    pytest.raises(ValueError, settings).match(f"ATTENTION_LAB_LIMITS:? {problem}")


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("DISK_MB", "disk_mb=… in ATTENTION_LAB_LIMITS"),
        ("RAY_CPUS", "cpus=… in ATTENTION_LAB_RAY_WORKER"),
        ("HOSTED_STEPS", "steps=… in ATTENTION_LAB_HOSTED_LIMITS"),
    ],
)
def test_an_earlier_variable_is_not_passed_over(monkeypatch, name, place):
    monkeypatch.setenv(f"{PREFIX}HOSTED_LIMITS", "steps=5")
    check_names()
    monkeypatch.setenv(PREFIX + name, "5")
    pytest.raises(ValueError, check_names).match(re.escape(f"{PREFIX}{name} is now {place}"))


def test_every_variable_and_limit_is_documented():
    text = "".join(
        (Path(__file__).resolve().parents[1] / "docs" / name).read_text("utf-8")
        for name in ("install.md", "scaling.md")
    )
    wanted = {PREFIX + field.name.upper() for field in fields(LabSettings)}
    wanted |= {field.name for kind in (Limits, RayWorker) for field in fields(kind)}
    assert not {name for name in wanted if f"`{name}" not in text}


# What every ConfigError repeats of a value from outside, and configs made of JSON that is not theirs.


@each("value", [*HOSTILE, deep(300), {"a" * 9000: "b" * 9000}, list(range(9000))])
def test_a_quoted_value_is_short_and_can_be_printed(value):
    for text in (quote(value), quote_name(value)):
        assert len(text) <= LONGEST_QUOTE
        text.encode()


def test_what_is_short_is_quoted_whole():
    assert quote("anser") == "'anser'" and quote(12) == "12" and quote([1, "a"]) == "[1, 'a']"
    assert quote_name("layers") == "layers" and quote_name("two words") == "'two words'"
    assert [*map(seconds_of, (0.5, 7, 1e11, -1, "1"))] == [0.5, 7.0, 0.0, 0.0, 0.0]
    assert quote("a" * 58) == repr("a" * 58) and quote_name(7) == "7"
    said = [str(ConfigError("No", n=range(count))) for count in (1, 2, 3)]
    assert said == ["No; take n = 0.", "No; take n = 0 or 1.", "No; take n = one of 0, 1, 2."]


@each("name", ["key", "seed", "cls", "self"])
def test_a_parameter_of_any_name_is_refused_by_its_name(name):
    pytest.raises(ConfigError, TaskConfig.from_json, {"key": "reverse", "params": {name: 1}}).match(
        f"has no {name}"
    )
    if name != "key":
        pytest.raises(
            ConfigError, AttentionConfig.from_json, {"mask": {"key": "causal", name: 1}}
        ).match(f"has no {name}")


def test_parts_within_parts_end_somewhere():
    pytest.raises(ConfigError, Choice.from_json, deep(16)).match("deep")
    walked = AttentionConfig(mask=Choice.from_json(deep(15)), d_model=4).mask.walk()
    assert [choice.key for choice in walked] == ["not"] * 15 + ["causal"]
    pytest.raises(ConfigError, AttentionConfig, mask=Choice.of("local", window=10**400)).match(
        "window = "
    )
    # A search for divisors takes minutes
    pytest.raises(ConfigError, AttentionConfig, d_model=10**9 + 7, num_heads=2).match("d_model = ")
