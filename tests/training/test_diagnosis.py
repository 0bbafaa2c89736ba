"""What a run will take: counted from timed steps, said with what would end it before, and told before it begins."""

import time
from dataclasses import replace
from typing import Any

import pytest
import torch

from core.studies import train as study
from core.tasks import TaskConfig, make_task
from core.training import Record, RunConfig, diagnosis as estimating, recommended, train
from tests.cases import each
from tests.training.small import small_run


def findings_of(config: RunConfig) -> dict[str, str]:
    """Everything that is told at the end of a real run, by its key."""
    records, failed = [], ""
    try:
        for record in train(config):
            records.append(record)
    except FloatingPointError as error:
        failed = str(error)
    findings = estimating.diagnose(records, config, make_task(config.task).baseline_loss, failed)
    return {one.key: f"{one.text} {one.advice}" for one in findings}


def falling(count: int = 12, start: float = 3.0) -> list[Record]:
    """Records of a run that learns."""
    return [
        Record(
            10 * i,
            train_loss=start * 0.8**i,
            loss=start * 0.8**i,
            gradient=0.5,
            gradients={"a": 0.3, "b": 0.4},
            data_share=0.02,
        )
        for i in range(count)
    ]


BASE = small_run(steps=200)


def keys(records: list[Record], config: RunConfig = BASE, failed: str = "") -> set[str]:
    return {one.key for one in estimating.diagnose(records, config, 3.0, failed)}


def test_a_run_that_learns_hears_nothing():
    assert findings_of(small_run(steps=120, record_every=10, learning_rate=5e-3)).keys() <= {
        "starving"
    }
    assert all(keys(falling(n)) == set() for n in range(13))


@each(
    ("key", "words", "changes"),
    [
        (
            "rate_dead",
            "1e-06 is small for AdamW",
            dict(steps=80, record_every=8, learning_rate=1e-6),
        ),
        # At 24 steps the loss of five seeds was 5.6 to 9.3 and guessing costs 2.8; later it falls to guessing.
        (
            "rate_high",
            "large for AdamW",
            dict(steps=24, record_every=3, learning_rate=1.0, schedule="constant"),
        ),
    ],
)
def test_a_learning_rate_that_is_too_small_or_too_large(key, words, changes):
    findings = findings_of(small_run(**changes))
    assert words in findings[key] and (key != "rate_dead" or set(findings) == {key})


def test_a_loss_that_is_no_number():
    findings = findings_of(
        small_run(
            steps=80,
            record_every=2,
            learning_rate=1.0,
            optimizer="sgd",
            clip=1e9,
            schedule="constant",
        )
    )
    assert "diverged" in findings or "exploding" in findings or "rate_high" in findings
    assert keys(falling(3), failed="The loss is no longer a number at step 31; …") == {"diverged"}


def test_overfitting_on_a_small_table():
    findings = findings_of(
        recommended(make_task(TaskConfig.of("iris")), "classifier", learning_rate=1e-2)
    )
    assert "overfitting" in findings and "memorizes its examples" in findings["overfitting"]


def changed(*steps: int, **values: Any) -> list[Record]:
    """Records of a run that learns, with other values at these records, or at all."""
    return [replace(r, **values) if i in steps or not steps else r for i, r in enumerate(falling())]


SLOW = [replace(r, loss=2.9 - 0.05 * i) for i, r in enumerate(falling())]


@each(
    ("records", "expected"),
    [
        (changed(9, gradient=80.0), {"exploding"}),
        (changed(9, gradient=3.0), set()),
        ([replace(r, gradient=1e-7) for r in SLOW], {"vanishing"}),
        ([replace(r, gradients={"first": 1e-6, "last": 0.5}) for r in SLOW], {"fading"}),
        # A learned task may have no gradient left.
        (changed(*range(1, 12), loss=0.01, gradient=1e-7, gradients={"a": 1e-9, "b": 1e-7}), set()),
        (changed(data_share=0.5), {"starving"}),
        # Too soon.
        *(([replace(r, gradient=1e9, loss=50.0) for r in falling(n)], set()) for n in (0, 1, 5)),
    ],
)
def test_what_is_told_of_records(records, expected):
    assert keys(records) == expected


def test_words_name_the_part_and_a_training_loss_that_rises_is_no_overfitting():
    (one,) = estimating.diagnose(
        [replace(r, gradients={"first": 1e-6, "last": 0.5}) for r in SLOW], BASE, 3.0
    )
    assert "first gets 2e-06" in one.text
    rises = [Record(60 + 10 * i, train_loss=2.0 + i, loss=2.0 + i, gradient=0.5) for i in range(4)]
    assert "overfitting" not in keys(falling(6) + rises)


def test_a_run_is_its_steps_its_records_and_its_end():
    task = make_task(TaskConfig.of("reverse", length=6, vocab=12))
    config = recommended(task, steps=100, record_every=10, decode_every=5)
    assert estimating.Pace(0.5, 0.01, 0.1).seconds(config, held_out=20, final=40) == pytest.approx(
        100 * 0.5 + 11 * 20 * 0.01 + 3 * 20 * 0.1 + 40 * 0.11
    )


@each(
    ("task", "kind"),
    [("own_pairs", "recurrent"), ("own_text", "decoder"), ("own_table", "classifier")],
)
def test_own_data_is_timed_and_nothing_random_moves(task, kind):
    made = make_task(TaskConfig.of(task))
    config = recommended(made, kind, batch_size=8)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    measurement = estimating.pace(config, made)
    assert torch.equal(before, torch.get_rng_state())
    assert measurement.step > 0 and measurement.teacher_forced > 0
    assert (measurement.free_running > 0) == (made.form == "pairs")
    assert estimating.estimate(config, made) > config.steps * 1e-5


def test_a_busy_moment_is_not_kept(monkeypatch):
    """The fastest of several timings counts, and a page times again what is a minute old."""
    made = make_task(TaskConfig.of("own_pairs"))
    config = recommended(made, "recurrent", batch_size=8)
    calm, calls = estimating.one_step, []

    def busy(session, step):
        calls.append(step)
        if len(calls) < estimating.BATCHES + 2:
            time.sleep(0.3)
        return calm(session, step)

    monkeypatch.setattr(estimating, "one_step", busy)
    monkeypatch.setattr(estimating, "LONGEST", 60.0)
    assert estimating.pace(config, made).step < 0.3
    clock = [1000.0]
    monkeypatch.setattr(study.time, "monotonic", lambda: clock[0])

    def again(*given):
        calls.append("again")
        return estimating.Pace(1, 1, 1)

    monkeypatch.setattr(study, "pace", again)
    study._pace.cache_clear()
    for clock[0], times in ((1000.0, 1), (1001.0, 1), (1100.0, 2)):
        study.time_needed(config)
        assert calls.count("again") == times
    study.time_needed(replace(config, batch_size=9))
    assert calls.count("again") == 3
    study._pace.cache_clear()


def test_words_name_the_cap_that_would_end_it():
    config = recommended(make_task(TaskConfig.of("own_pairs")), steps=1000, max_seconds=100.0)
    assert "near step" not in estimating.in_words(config, 80.0) and "80 s" in estimating.in_words(
        config, 80.0
    )
    assert "near step 250" in estimating.in_words(config, 400.0) and "7 min" in estimating.in_words(
        config, 400.0
    )
    assert [estimating.duration(s) for s in (0.2, 89, 90, 5_400)] == [
        "1 s",
        "89 s",
        "2 min",
        "1.5 h",
    ]


def test_it_is_told_of_own_data_alone():
    own, other = (
        study.time_needed(recommended(make_task(TaskConfig.of(task)), batch_size=8))
        for task in ("own_pairs", "reverse")
    )
    assert "About" in own and not other
