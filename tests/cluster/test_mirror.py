"""What goes to a node and comes back, without a cluster: two folders on one disk."""

import os
import random
import shutil

import numpy as np

from core.runs import folder
from core.runs.folder import Change, Changes, apply, list_files, pack, read_changes, unpack
from core.runs.runs import Run, create_run
from core.training import Record
from tests.training.small import small_run


def exchange(server: Run, node: Run, known, ended: bool = False):
    changes = read_changes(node.path, known, ended)
    apply(server.path, changes)
    return changes


def sent(tmp_path) -> tuple[Run, Run, dict]:
    server, node = create_run(small_run(), path=tmp_path / "server"), Run(tmp_path / "node")
    return server, node, unpack(node.path, pack(server.path))


def same_files(server: Run, node: Run) -> bool:
    names = [name for name in list_files(node.path) if name not in ("run.json", "status.json")]
    return all(
        (server.path / name).read_bytes() == (node.path / name).read_bytes() for name in names
    )


def test_only_what_grew_comes_back(tmp_path):
    server, node, known = sent(tmp_path)
    node.append(Record(0, loss=2.0))
    first = exchange(server, node, known)
    node.append(Record(2, loss=1.0))
    second = exchange(server, node, first.known)
    assert [(change.name, change.offset) for change in second.files] == [
        ("metrics.jsonl", len(first.files[0].data))
    ]
    assert same_files(server, node)
    assert [record.step for record in server.records()] == [0, 2]
    assert exchange(server, node, second.known).files == ()


def test_a_file_that_was_cut_and_grew_again_comes_whole(tmp_path):
    """A worker that continues cuts the records after its checkpoint."""
    server, node, known = sent(tmp_path)
    for step in range(5):
        node.append(Record(step, loss=float(step)))
    known = exchange(server, node, known).known
    node.truncate(1)
    for step in range(2, 9):
        node.append(Record(step, loss=0.5 * step))
    exchange(server, node, known)
    assert [(r.step, r.loss) for r in server.records()] == [
        (r.step, r.loss) for r in node.records()
    ]


def test_a_deleted_checkpoint_is_deleted_and_frames_of_the_past_stay(tmp_path):
    server = create_run(small_run(), path=tmp_path / "server")
    for name in ("frames/000000", "frames/000002", "checkpoints/000002"):
        (server.path / f"{name}.safetensors").write_bytes(b"of before")
    node = Run(tmp_path / "node")
    known = unpack(node.path, pack(server.path))
    assert (
        node.frame_path(0).read_bytes() == b""
        and node.checkpoint_path(2).read_bytes() == b"of before"
    )
    node.frame_path(2).unlink()
    node.checkpoint_path(2).unlink()
    node.checkpoint_path(4).write_bytes(b"new")
    exchange(server, node, known)
    assert server.frame_path(0).read_bytes() == b"of before" and not server.frame_path(2).exists()
    assert server.checkpoint_steps() == [4]


def test_no_checkpoint_comes_without_its_records(tmp_path, monkeypatch):
    """The worker writes between any two reads of the node: what came back has every record up to its checkpoint."""
    server, node, known = sent(tmp_path)
    rng, step, busy, stat, names = random.Random(3), [0], [False], os.stat, folder.list_files

    def work_on() -> None:
        if not busy[0] and step[0] < 60 and rng.random() < 0.2:
            step[0] += 1
            busy[0] = True  # what it writes with calls stat, too
            node.append(Record(step[0], loss=1.0, maps={"0:self": np.zeros((1, 1, 2, 2))}))
            node.checkpoint_path(step[0]).write_bytes(b"state")
            busy[0] = False

    def late_stat(path, *args, **more):
        work_on()
        return stat(path, *args, **more)

    def late_names(folder):
        work_on()
        return names(folder)

    for _ in range(12):
        with monkeypatch.context() as patch:
            patch.setattr(os, "stat", late_stat)
            patch.setattr(folder, "list_files", late_names)
            changes = read_changes(node.path, known, False)
        apply(server.path, changes)
        known = dict(changes.known)
        steps = [record.step for record in server.records()]
        assert steps == list(range(1, len(steps) + 1))
        assert set(server.checkpoint_steps()) <= set(steps) <= set(server.frame_steps())
    assert step[0] == 60


def test_folders_that_are_written_at_the_end_come_at_the_end(tmp_path):
    server, node, known = sent(tmp_path)
    for name in ("trainer/checkpoint-3", "bert-tuned"):
        (node.path / name).mkdir(parents=True)
        (node.path / name / "model.safetensors").write_bytes(b"half")
    assert exchange(server, node, known).files == ()
    exchange(server, node, known, ended=True)
    assert same_files(server, node) and (server.path / "bert-tuned" / "model.safetensors").exists()


def test_a_checkpoint_of_the_trainer_leaves_no_empty_folder(tmp_path):
    """A run that continues would take it for one."""
    server, node = create_run(small_run(), path=tmp_path / "server"), Run(tmp_path / "node")
    (server.path / "trainer" / "checkpoint-3").mkdir(parents=True)
    (server.path / "trainer" / "checkpoint-3" / "model.safetensors").write_bytes(b"paused")
    known = unpack(node.path, pack(server.path))
    shutil.rmtree(node.path / "trainer")
    exchange(server, node, known)
    assert not (server.path / "trainer").exists() and server.exists()


def test_a_name_that_leads_out_of_the_folder_is_ignored(tmp_path):
    folder = tmp_path / "server"
    folder.mkdir()
    (tmp_path / "kept.txt").write_text("kept", encoding="utf-8")
    names = (
        "../away.txt",
        "/tmp/away.txt",
        "a/../../away.txt",
        ".hidden",
        "a/.hidden",
        "run.json",
        "lock",
        "stop",
        "",
    )
    files = tuple(Change(name, 0, b"x") for name in names)
    apply(folder, Changes(files, ("../kept.txt", "lock"), {}, {}, {}, False))
    assert list_files(tmp_path) == ["kept.txt"]
    assert unpack(folder, dict.fromkeys(names[:5], b"x")) == {}
    assert list_files(tmp_path) == ["kept.txt"]
