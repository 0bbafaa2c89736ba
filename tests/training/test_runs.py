import json
import time

import numpy as np
import pytest

from core.runs.runs import create_run, find_run, list_runs
from core.training import Record
from core.training.record import Prediction
from tests.training.small import small_run

EXAMPLE = Prediction(("a", "b"), ("b", "a"), ("b", "b"))


def record(step: int, **changes) -> Record:
    values = dict(
        loss=1.5,
        expected=((0.1, 0.2),),
        even=0.5,
        examples=(EXAMPLE,),
        maps={"0": np.eye(2)[None, None]},
    )
    return Record(step, **{**values, **changes})


def test_a_run_is_found_again(tmp_path):
    config = small_run(seed=5)
    run = create_run(config, root=tmp_path)
    assert find_run(run.id, tmp_path) == run and list_runs(tmp_path) == [run]
    assert run.config() == config and run.status().state == "queued" and run.records() == []


def test_names_sort_by_age_within_one_second_too(tmp_path):
    made = []
    for _ in range(20):
        made.append(create_run(small_run(), root=tmp_path))
        time.sleep(0.001)
    assert list_runs(tmp_path) == made


def test_records_and_frames_come_back(tmp_path):
    run = create_run(small_run(), root=tmp_path)
    run.append(record(0))
    run.append(record(20, loss=float("nan"), maps={}))
    first, second = run.records()
    assert first == record(0, maps={}) and second.loss is None
    assert run.frame_steps() == [0]
    np.testing.assert_array_equal(run.frame(0)["0"], np.eye(2, dtype=np.float32)[None, None])
    assert run.frame(20) == {}


def test_a_half_written_line_is_left_for_later(tmp_path):
    run = create_run(small_run(), root=tmp_path)
    run.append(record(0))
    with open(run.path / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write('not json\n{"step": "x"}\n{"step": 20, "lo')
    assert [r.step for r in run.records()] == [0]


@pytest.mark.parametrize(
    "name",
    [
        None,
        "",
        "..",
        "../../etc",
        "/etc/passwd",
        "20261120-120000-abcdef/../..",
        "20261120-120000-ABCDEF",
        7,
        "20261120-120000-abcdef\n",
        "x" * 10_000,
        "20261120-120000-abcde\u0661",
    ],
)
def test_what_is_no_run_is_never_joined_to_a_path(name, tmp_path):
    (tmp_path / "20261120-120000-abcdef").mkdir()
    (tmp_path / "20261120-120000-abcdef" / "run.json").write_text("{}", encoding="utf-8")
    assert find_run(name, tmp_path) is None


def test_broken_files_never_raise(tmp_path):
    run = create_run(small_run(), root=tmp_path)
    for name in ("status.json", "metrics.jsonl"):
        (run.path / name).write_bytes(b"\xff\xfe{")
    run.frame_path(0).write_bytes(b"\x00" * 9)
    assert run.status().state == "stopped" and run.records() == [] and run.frame(0) == {}


def test_alive_is_whether_the_lock_is_held(tmp_path):
    run = create_run(small_run(), root=tmp_path)
    assert not run.alive()
    with run.lock():
        assert run.alive()
    assert not run.alive()


def test_run_json_reads_as_plain_json(tmp_path):
    run = create_run(small_run(), root=tmp_path)
    assert json.loads((run.path / "run.json").read_text(encoding="utf-8"))["config"]["steps"] == 4
