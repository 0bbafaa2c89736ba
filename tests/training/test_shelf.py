import os
import time

import pytest

from core.runs.runs import (
    LONGEST_NAME,
    Run,
    create_run,
    deleted_runs,
    discard,
    duplicate,
    find_run,
    list_runs,
    prune,
    restore,
    size,
)
from core.training import Record
from tests.training.small import small_run


def made(tmp_path, second: int, state: str = "finished", **more) -> Run:
    run = create_run(small_run(), path=tmp_path / f"20261120-12000{second}-abcdef", **more)
    run.append(Record(0, loss=1.0))
    if state:
        run.set_status(state)
    return run


def test_the_oldest_go_first_and_never_a_run_under_way(tmp_path):
    runs = [made(tmp_path, i, "" if i == 1 else "finished") for i in range(4)]
    prune(2, tmp_path)
    assert list_runs(tmp_path) == [runs[1], runs[3]]


def test_a_name_keeps_a_run_longer(tmp_path):
    runs = [made(tmp_path, 0, name="dear"), made(tmp_path, 1), made(tmp_path, 2)]
    prune(2, tmp_path)
    assert list_runs(tmp_path) == [runs[0], runs[2]]
    prune(1, tmp_path)
    assert list_runs(tmp_path) == [runs[0]]


def test_all_runs_fit_into_the_room_there_is(tmp_path):
    runs = [made(tmp_path, i) for i in range(3)]
    runs[0].checkpoint_path(0).write_bytes(b"x" * 5_000)
    assert size(runs[0]) > 5_000 > size(runs[1])
    room = size(runs[1]) + size(
        runs[2]
    )  # a moment is written with more digits or fewer, so they differ by a byte
    prune(9, tmp_path, most=room)
    assert list_runs(tmp_path) == runs[1:]
    prune(9, tmp_path, most=room)
    assert list_runs(tmp_path) == runs[1:], "what fits stays"


def test_a_deleted_run_comes_back_within_the_hour(tmp_path):
    run = made(tmp_path, 0)
    discard(run)
    assert find_run(run.id, tmp_path) is None and list_runs(tmp_path) == []
    prune(9, tmp_path)
    assert restore(run.id, tmp_path) == run and run.records() and list_runs(tmp_path) == [run]
    discard(run)
    (deleted,) = deleted_runs(tmp_path)
    long_ago = time.time() - 3_700
    os.utime(deleted.path, (long_ago, long_ago))
    prune(9, tmp_path)
    assert restore(run.id, tmp_path) is None and not deleted.path.exists()


def test_what_was_deleted_goes_before_any_run(tmp_path):
    first, second = made(tmp_path, 0), made(tmp_path, 1)
    discard(second)
    prune(9, tmp_path, most=size(first))
    assert list_runs(tmp_path) == [first] and deleted_runs(tmp_path) == []


def test_a_run_under_way_is_not_deleted(tmp_path):
    run = made(tmp_path, 0, "running")
    with pytest.raises(ValueError, match="stop it first"):
        discard(run)
    run.set_status("finished")
    with run.lock(), pytest.raises(ValueError, match="stop it first"):
        discard(run)
    assert list_runs(tmp_path) == [run]


def test_only_a_run_can_be_brought_back(tmp_path):
    (tmp_path / ".deleted").mkdir()
    (tmp_path / "elsewhere").mkdir()
    assert restore("../elsewhere", tmp_path) is None


def test_a_copy_shares_everything_but_its_name(tmp_path):
    run = made(tmp_path, 0, name="first", parent={"run": "x", "step": 2})
    run.checkpoint_path(0).write_bytes(b"weights")
    copied = duplicate(run, "n" * 200, tmp_path)
    assert copied.name == "n" * LONGEST_NAME and copied.metadata()["parent"] == {
        "run": "x",
        "step": 2,
    }
    assert copied.records() == run.records() and copied.config() == run.config()
    assert (
        copied.checkpoint_path(0).read_bytes() == b"weights" and copied.status().state == "finished"
    )
    copied.append(Record(2, loss=0.5))
    assert len(run.records()) == 1, "the first run does not feel what happens to its copy"
