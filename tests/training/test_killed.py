"""A worker killed at any place goes on to the numbers of a run that was never killed."""

import functools

import pytest

from core.runs.runs import Run, create_run
from core.runs.worker import _train
from core.training import Record, loop
from tests.training.small import record_numbers, small_run


class Killed(BaseException):
    """The end of a process, as far as a test can have it: nothing of the worker's own runs after it."""


PLACES = [("append", at, late) for at in range(4) for late in (False, True)] + [
    ("save_checkpoint", at, late) for at in range(4) for late in (False, True)
]


def train(run: Run) -> tuple[str, str]:
    return _train(run, lambda: False, lambda record: None)


def kill(monkeypatch, method: str, at: int, late: bool) -> None:
    """The call number `at` of a method of Run ends the worker, before what it does or, `late`, after."""
    whole, calls = getattr(Run, method), []

    def call(self, *args):
        calls.append(args)
        if len(calls) == at + 1 and not late:
            raise Killed
        whole(self, *args)
        if len(calls) == at + 1:
            raise Killed

    monkeypatch.setattr(Run, method, call)


@functools.cache
def whole(**changes) -> list[Record]:
    """The records of a run that nothing interrupts."""
    return list(loop.train(small_run(**changes)))


def numbers(records: list[Record]) -> list[tuple]:
    return [(record_numbers(record), record.final) for record in records]


@pytest.mark.parametrize(("method", "at", "late"), PLACES)
def test_a_killed_run_goes_on_as_if_it_had_not_been(tmp_path, monkeypatch, method, at, late):
    broken = create_run(
        small_run(steps=4), path=tmp_path
    )  # three records, the final one, a checkpoint beside each
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill(patch, method, at, late)
        train(broken)
    state, words = train(broken)
    assert state == "finished" and words.startswith("Finished after 4 steps")
    assert numbers(broken.records()) == numbers(whole(steps=4))
    assert broken.checkpoint_steps()[-1] == 4


@pytest.mark.parametrize("asks", [3, 4, 5, 6, 8])
def test_a_run_stopped_at_any_step_goes_on_as_if_it_had_not_been(tmp_path, asks):
    """Between two records the mean training loss of both parts counts; only the last gradients are not kept."""
    sizes = dict(steps=7, record_every=3)
    broken = create_run(small_run(**sizes), path=tmp_path)
    left = iter(range(asks))
    assert _train(broken, lambda: next(left, None) is None, lambda record: None)[0] == "stopped"
    assert train(broken)[0] == "finished"
    assert [(r.step, r.final, r.loss, r.train_loss, r.gradient) for r in broken.records()] == [
        (r.step, r.final, r.loss, r.train_loss, r.gradient) for r in whole(**sizes)
    ]


def test_a_finished_run_that_is_asked_to_go_on_to_its_own_end_stays_finished(tmp_path):
    run = create_run(small_run(), path=tmp_path)
    train(run)
    before = numbers(run.records())
    assert train(run)[0] == "finished" and numbers(run.records()) == before


def test_a_run_that_waited_long_enough_ends_where_it_was_killed(tmp_path, monkeypatch):
    waits = dict(steps=40, patience=1, learning_rate=1e-6, weight_decay=0.0, optimizer="sgd")
    broken = create_run(small_run(**waits), path=tmp_path)
    steps = [record.step for record in whole(**waits)]
    assert whole(**waits)[-1].final
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill(patch, "append", len(steps) - 1, late=False)
        train(broken)
    train(broken)
    assert [record.step for record in broken.records()] == steps
