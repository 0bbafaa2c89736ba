"""What an uploaded run's files must be: whatever else they are is refused in words, and nothing stays."""

import json
import os
import shutil
import struct
import time
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save as save_arrays
from safetensors.torch import load_file, save_file

from core.files import folder_bytes
from core.runs import archive, folder as run_index
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
)
from core.studies.sweeps import SweepData, load_sweep
from core.training import Record
from core.training.record import Prediction
from tests.cases import each, instance
from tests.fuzz.folders import sweep_with_outcomes
from tests.training.small import parts, refused, small_run, zipped

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
    """And names sort by age within one second, too."""
    config, made = small_run(seed=5), []
    for _ in range(20):
        made.append(create_run(config, root=tmp_path))
        time.sleep(0.001)
    run = made[0]
    assert list_runs(tmp_path) == made and find_run(run.id, tmp_path) == run
    assert run.config() == config and run.status().state == "queued" and run.records() == []
    assert json.loads((run.path / "run.json").read_text(encoding="utf-8"))["config"]["steps"] == 4
    with run.lock():
        assert run.alive()
    assert not run.alive()


def test_records_and_frames_come_back_and_a_half_written_line_is_left_for_later(tmp_path):
    run = create_run(small_run(), root=tmp_path)
    run.append(record(0))
    run.append(record(20, loss=float("nan"), maps={}))
    with open(run.path / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write('not json\n{"step": "x"}\n{"step": 20, "lo')
    first, second = run.records()
    assert first == record(0, maps={}) and second.loss is None and second.step == 20
    np.testing.assert_array_equal(run.frame(0)["0"], np.eye(2, dtype=np.float32)[None, None])
    assert run.frame_steps() == [0] and run.frame(20) == {}
    for path in (run.path / "status.json", run.path / "metrics.jsonl", run.frame_path(0)):
        path.write_bytes(b"\xff\xfe{")  # broken files never raise
    assert run.status().state == "stopped" and run.records() == [] and run.frame(0) == {}


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


def made(tmp_path, second: int, state: str = "finished", **more) -> Run:
    run = create_run(small_run(), path=tmp_path / f"20261120-12000{second}-abcdef", **more)
    run.append(Record(0, loss=1.0))
    if state:
        run.set_status(state)
    return run


def test_the_oldest_go_first_never_a_run_under_way_and_a_name_keeps_a_run_longer(tmp_path):
    runs = [made(tmp_path, i, "" if i == 1 else "finished") for i in range(4)]
    prune(2, tmp_path)
    assert list_runs(tmp_path) == [runs[1], runs[3]]
    named = [
        made(tmp_path / "named", 0, name="dear"),
        *(made(tmp_path / "named", i) for i in (1, 2)),
    ]
    for count, left in ((2, [named[0], named[2]]), (1, named[:1])):
        prune(count, tmp_path / "named")
        assert list_runs(tmp_path / "named") == left


def test_all_runs_fit_into_the_room_there_is_and_what_was_deleted_goes_first(tmp_path):
    runs = [made(tmp_path, i) for i in range(3)]
    runs[0].checkpoint_path(0).write_bytes(b"x" * 5_000)
    assert folder_bytes(runs[0].path) > 5_000 > folder_bytes(runs[1].path)
    for _ in range(2):  # what fits stays
        prune(9, tmp_path, max_bytes=sum(folder_bytes(run.path) for run in runs[1:]))
        assert list_runs(tmp_path) == runs[1:]
    discard(runs[2])
    prune(9, tmp_path, max_bytes=folder_bytes(runs[1].path))
    assert list_runs(tmp_path) == [runs[1]] and deleted_runs(tmp_path) == []


def test_a_deleted_run_comes_back_within_the_hour(tmp_path):
    """A run under way is not deleted, and only a run can be restored."""
    run = made(tmp_path, 0, "running")
    with pytest.raises(ValueError, match="stop it first"):
        discard(run)
    run.set_status("finished")
    with run.lock(), pytest.raises(ValueError, match="stop it first"):
        discard(run)
    assert list_runs(tmp_path) == [run]
    discard(run)
    assert find_run(run.id, tmp_path) is None and list_runs(tmp_path) == []
    for name in ("elsewhere", ".draft-old", ".draft-new"):
        (tmp_path / name).mkdir()
    os.utime(tmp_path / ".draft-old", (time.time() - 3_700,) * 2)
    assert restore("../elsewhere", tmp_path) is None
    prune(9, tmp_path)
    assert [path.name for path in tmp_path.glob(".draft-*")] == [".draft-new"]
    assert restore(run.id, tmp_path) == run and run.records() and list_runs(tmp_path) == [run]
    discard(run)
    (deleted,) = deleted_runs(tmp_path)
    os.utime(deleted.path, (time.time() - 3_700,) * 2)
    prune(9, tmp_path)
    assert restore(run.id, tmp_path) is None and not deleted.path.exists()


def test_a_copy_shares_everything_but_its_name(tmp_path):
    parent = {"run": "x", "step": 2}
    run = made(tmp_path, 0, name="first", parent=parent)
    run.checkpoint_path(0).write_bytes(b"weights")
    copied = duplicate(run, "n" * 200, tmp_path)
    assert (copied.name, copied.metadata()["parent"]) == ("n" * LONGEST_NAME, parent)
    assert copied.records() == run.records() and copied.config() == run.config()
    assert copied.checkpoint_path(0).read_bytes() == b"weights"
    assert copied.status().state == "finished"
    copied.append(Record(2, loss=0.5))
    assert len(run.records()) == 1, "the first run does not feel what happens to its copy"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{}",
        '{"config": {"steps": 1}}',
        "[" * 100_000,
        "\xff",
        '{"config": {"task": {"key": "nothing"}, "model": {}}}',
    ],
)
def test_settings_that_are_none_are_refused(tmp_path, packed, text):
    refused(
        zipped(parts(packed) | {"run.json": text.encode("latin1")}),
        tmp_path,
        "does not describe a run",
    )


@pytest.mark.parametrize(
    "line, words",
    [
        ("{}", "A record needs step"),
        ("[]", "no object"),
        ("nonsense", "cannot be read"),
        ("[" * 100_000, "cannot be read"),
        ('{"step": "0"}', "step"),
        ('{"step": -1}', "step"),
        ('{"step": 0, "loss": "<script>"}', "loss"),
        ('{"step": 0, "loss": Infinity}', "loss"),
        ('{"step": 0, "more": 1}', "has no more"),
        ('{"step": 0, "expected": [[1], [1, 2]]}', "expected"),
        ('{"step": 0, "gradients": {"a": "b"}}', "gradients"),
        (
            '{"step": 0, "examples": [{"source": ["a"], "target": "b", "predicted": []}]}',
            "examples",
        ),
        (
            '{"step": 0, "buckets": [{"lengths": 1, "count": 1, "exact": 1, "bleu": null}]}',
            "buckets",
        ),
        ('{"step": 3}\n{"step": 2}', "comes after"),
        ('{"step": true}', "step"),
        ('{"step": 0, "held_out": 0.5}', "held_out"),
    ],
)
def test_records_that_cannot_be_are_refused(tmp_path, packed, line, words):
    only = {"run.json": parts(packed)["run.json"], "metrics.jsonl": line.encode()}
    refused(zipped(only), tmp_path, f"metrics.jsonl, line .*{words}")


def only(packed: bytes, line: str) -> bytes:
    return zipped({"run.json": parts(packed)["run.json"], "metrics.jsonl": line.encode()})


@pytest.mark.parametrize("field", sorted({field.name for field in fields(Record)}))
def test_a_field_takes_no_object(tmp_path, packed, field):
    line = json.dumps({"step": 0, field: {"a": {}}})
    refused(only(packed, line), tmp_path, f"metrics.jsonl, line 1: {field}")


def test_records_of_before_are_read(tmp_path, packed):
    before = only(packed, '{"step": 0, "letters": 0.5, "exact": 0.25, "trained": 1.5}')
    assert archive.unpack(before, tmp_path).records()[0].token_accuracy == 0.5


def frame(packed: bytes, **arrays) -> bytes:
    return zipped(parts(packed) | {"frames/000000.safetensors": save_arrays(arrays)})


@each(
    ("name", "change"),
    [
        ("0:cross", lambda right: right[:, :, :, :5]),
        ("0:cross", lambda right: right[0]),
        ("0:cross", lambda right: right.astype("float32")),
        ("0:other", lambda right: right),
        ("9:cross", lambda right: right),
        ("cross", lambda right: right),
        ("0:cross", lambda right: right[:, :1]),
    ],
)
def test_frames_must_fit_their_words(packed, tmp_path_factory, name, change):
    right = np.zeros((1, 2, 7, 6), np.float16)  # six letters, and the end mark
    run = archive.unpack(frame(packed, **{"0:cross": right}), tmp_path_factory.mktemp("there"))
    assert run.frame(0).keys() == {"0:cross"}
    refused(frame(packed, **{name: change(right)}), tmp_path_factory.mktemp("not"), "frames/00000")


def tampered(packed: bytes, tmp_path: Path, change) -> bytes:
    path = tmp_path / "weights.safetensors"
    path.write_bytes(parts(packed)["checkpoints/000004.safetensors"])
    with archive.safe_open(path, "pt") as file:
        text = dict(file.metadata())
    tensors = load_file(path)
    change(tensors, text)
    save_file(tensors, path, text)
    data = path.read_bytes()
    path.unlink()
    return zipped(parts(packed) | {"checkpoints/000004.safetensors": data})


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda tensors, text: tensors.pop("model.output.weight"), "has no model.output.weight"),
        (lambda tensors, text: tensors.update({"model.output.weight": torch.zeros(3)}), "expected"),
        (lambda tensors, text: tensors.update({"model.more": torch.zeros(3)}), "no such tensor"),
        (
            lambda tensors, text: tensors.update({"optimizer.999.step": torch.zeros(())}),
            "no such tensor",
        ),
        (lambda tensors, text: tensors.update({"optimizer.0.exp_avg": torch.zeros(1)}), "expected"),
        (lambda tensors, text: tensors.pop("generator.data"), "random generators"),
        (lambda tensors, text: text.update(step="5"), "is of step 5"),
        (lambda tensors, text: text.update(step="x"), "the step of the run"),
        (lambda tensors, text: text.update(optimizer="evil"), "optimizer evil"),
    ],
)
def test_weights_that_do_not_fit_are_refused(tmp_path, packed, change, words):
    refused(tampered(packed, tmp_path, change), tmp_path, words)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff" * 8,
        struct.pack("<Q", 2) + b"{}",
        struct.pack("<Q", 10**12) + b"{}",
        struct.pack("<Q", 9) + b'{"a": [1]',
    ],
)
def test_broken_headers_are_refused(tmp_path, packed, data):
    refused(
        zipped(parts(packed) | {"checkpoints/000002.safetensors": data}),
        tmp_path,
        "checkpoints/000002",
    )


def test_a_number_of_everything_is_no_worker(tmp_path):
    """kill(-1, …) ends every process of the user; a status file is no reason to."""
    run = create_run(small_run(), tmp_path)
    for pid in (-1, 0, 1, True, "7", [7], 1e9, None):
        text = json.dumps({"state": "running", "pid": pid})
        (run.path / "status.json").write_text(text, encoding="utf-8")
        assert run.status().pid is None


def test_the_sweep_that_is_damaged_is_whole_before(tmp_path):
    sweep, data = sweep_with_outcomes(tmp_path / "one.json")
    sweep.path.write_text(json.dumps(data), encoding="utf-8")
    assert instance(load_sweep(sweep), SweepData).finished == 4


def indexed_run(root, number: int, state: str = "finished", **more) -> run_index.RunFolder:
    run = run_index.RunFolder(root / f"20260101-{number:06d}-abcdef")
    run.path.mkdir(parents=True)
    (run.path / "run.json").write_text(
        json.dumps({"config": {}, "created": 1.0, **more}), encoding="utf-8"
    )
    run.set_status(state)
    return run


@pytest.fixture(params=[0, 10**6], ids=["in a file", "in memory"])
def root(request, tmp_path, monkeypatch):
    """A folder of six runs, whose index is a file or in memory; a refresh compares one further run."""
    monkeypatch.setattr(run_index, "MAX_UNINDEXED", request.param)
    monkeypatch.setattr(run_index, "TURN", 1)
    for number in range(6):
        indexed_run(tmp_path, number, "queued" if number == 3 else "finished")
    assert run_index.unfinished(tmp_path) == ["20260101-000003-abcdef"]
    return tmp_path


def folders(root) -> dict[str, str]:
    """What a scan says."""
    runs = [run_index.RunFolder(path) for path in sorted(root.glob("2026*"))]
    return {run.id: run.status().state for run in runs if run.exists()}


def indexed(root) -> dict[str, str]:
    with run_index.open_index(root) as index:
        return dict(index.database.execute("SELECT id, state FROM runs ORDER BY id"))


def test_it_follows_what_the_lab_changes(root):
    assert (root / run_index.FILE).exists() == (run_index.MAX_UNINDEXED == 0)
    first, second, third = (
        run_index.RunFolder(root / f"20260101-00000{number}-abcdef") for number in (0, 1, 3)
    )
    first.requeue()
    assert run_index.unfinished(root) == [first.id, third.id]
    second.update_metadata(name="mine")
    with run_index.open_index(root) as index:
        assert index.oldest_first()[-1] == second.id, "a name counts at once"
    indexed_run(root, 9, "failed")
    shutil.rmtree(second.path)
    # as a worker elsewhere does
    (third.path / "status.json").write_text('{"state": "stopped"}', encoding="utf-8")
    assert indexed(root) == folders(root)
    states = sorted(status.state for status in run_index.list_statuses(root))
    assert states == sorted(folders(root).values())
    for spoil in (
        lambda path: path.write_bytes(b"no database" * 999),
        lambda path: path.unlink(missing_ok=True),
        lambda path: path.write_bytes(b""),
    ):
        spoil(root / run_index.FILE)
        assert indexed(root) == folders(root), "it is read anew"


def test_what_another_program_changes_is_noticed_in_turn(root):
    paused, deleted = (root / f"20260101-00000{number}-abcdef" for number in (4, 5))
    (paused / "status.json").write_text('{"state": "paused", "at": 12.5}', encoding="utf-8")
    (deleted / "run.json").unlink()
    for _ in range(8):
        indexed(root)
    assert indexed(root) == folders(root) and deleted.name not in indexed(root)


def test_a_folder_that_cannot_be_written_has_its_index_in_memory(root, monkeypatch):
    def refuse(folder, path, load=run_index._load):
        if path != run_index.IN_MEMORY:
            raise PermissionError("read-only")
        return load(folder, path)

    monkeypatch.setattr(run_index, "_load", refuse)
    assert indexed(root) == folders(root) and run_index.unfinished(root)


def test_a_long_journal_is_cut_and_a_cut_one_costs_nothing_but_time(root, monkeypatch):
    if run_index.MAX_UNINDEXED:
        return  # has no journal
    monkeypatch.setattr(run_index, "MAX_JOURNAL", 100)
    for _ in range(9):
        run_index.RunFolder(root / "20260101-000002-abcdef").set_status("paused")
    assert indexed(root) == folders(root) and (root / run_index.JOURNAL).stat().st_size == 0
    run_index.RunFolder(root / "20260101-000002-abcdef").set_status("stopped")
    indexed(root)
    (root / "20260101-000001-abcdef" / "status.json").write_text(
        '{"state": "failed"}', encoding="utf-8"
    )
    os.truncate(root / run_index.JOURNAL, 0)
    assert indexed(root) == folders(root), "all were compared"


def test_a_search_finds_words_and_ids_and_the_best_other_run(root):
    with run_index.open_index(root) as index:
        left = index.fill(
            lambda name: run_index.Details(
                f"run {int(name[9:15])} é", "copy", name, float(name[14]), 1.0, True
            )
        )
        assert (
            left == 0
            and index.search(["run", "é"]) == index.ids()
            and index.count(["run", "4"]) == 1
        )
        assert (
            index.search(["20260101-000002-abcdef"]) == ["20260101-000002-abcdef"]
            and index.search(["%"]) == []
        )
        assert index.search([], 1, 2) == ["20260101-000004-abcdef", "20260101-000003-abcdef"]
        assert index.best("copy", "20260101-000005-abcdef") == "20260101-000004-abcdef"
        assert (
            index.best("other", "") is None
            and index.first_measured(["3"]) == "20260101-000003-abcdef"
        )
    run_index.RunFolder(root / "20260101-000004-abcdef").set_status("failed")
    with run_index.open_index(root) as index:
        expected = ["20260101-000004-abcdef"] if run_index.MAX_UNINDEXED == 0 else index.ids()
        index.fill(lambda name: run_index.Details(f"again {name}"))
        assert index.search(["again"]) == expected, "what changed is described again, and no more"


def test_the_oldest_go_by_the_index(root):
    with run_index.open_index(root) as index:
        assert index.sizes() == {name: folder_bytes(root / name) for name in folders(root)}
    prune(2, root)
    assert sorted(folders(root)) == ["20260101-000003-abcdef", "20260101-000005-abcdef"], (
        "what waits stays"
    )
    assert indexed(root) == folders(root)
