"""A run goes out as a zip and comes back the same; whatever else comes is refused in words, and nothing stays."""

import io
import json
import os
import re
import shutil
import struct
import time
import uuid
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from unittest.mock import Mock, create_autospec

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.numpy import save as save_arrays
from safetensors.torch import load, save

from core.claims import run as claim_run
from core.files import CORPORA, REPORTS, folder_bytes, runs_folder, write_atomically
from core.interpret import corpus as corpora
from core.interpret.corpus import Corpus, CorpusConfig
from core.models import ModelConfig
from core.runs import archive, folder as run_index
from core.runs.folder import RunFolder
from core.runs.runs import (
    LONGEST_NAME,
    Run,
    create_run,
    deleted_runs,
    discard,
    duplicate,
    find_run,
    list_runs,
    new_id,
    open_run,
    prune,
    restore,
)
from core.runs.store import (
    Copier,
    Item,
    Store,
    StoredRun,
    StoreError,
    _copiers,
    _open,
    bring,
    copier,
    copy_now,
    forget,
    store,
)
from core.runs.sweeps import create_sweep, delete_sweep
from core.runs.worker import work
from core.tasks import TASKS, make_task
from core.training import Prediction, Record, prepare, recommended, train
from core.training.__main__ import main
from core.training.sweeps import SweepConfig
from dashboard.server import limits
from dashboard.ui import export
from pages import sweeps
from tests.cases import each, instance
from tests.training.small import (
    parts,
    record_numbers,
    run_command,
    small_run,
    small_task,
    trained,
    zipped,
)


def test_a_run_comes_back_as_it_was_and_can_go_on(tmp_path):
    first = trained(tmp_path / "made")
    run = archive.unpack(archive.pack(first), tmp_path)
    assert (run.config(), run.name, run.status().state) == (first.config(), "tiny", "finished")
    assert [*map(record_numbers, run.records())] == [*map(record_numbers, first.records())]
    assert run.frame_steps() == first.frame_steps()
    assert run.checkpoint_steps() == first.checkpoint_steps()
    for step in run.checkpoint_steps():
        (tensors, text), (others, other_text) = run.checkpoint(step), first.checkpoint(step)
        torch.testing.assert_close(tensors, others, rtol=0, atol=0)
        assert text == other_text
    assert run.metadata()["parent"] == {"run": "other", "step": 2} and list_runs(tmp_path) == [run]
    prepare(run.config()).restore(tensors, text)


def test_a_model_without_attention_comes_back(tmp_path):
    config = ModelConfig.recurrent(8, None)
    packed = archive.pack(trained(tmp_path / "made", model=config))
    run = archive.unpack(packed, tmp_path / "there" / "runs")
    assert run.config().model == config and run.frame_steps() == [] and run.model()[0] is not None
    assert parts(packed)["run.json"].startswith(b'{\n "config": {\n  "task"')


@pytest.mark.parametrize("key", [entry.key for entry in TASKS])
def test_every_task_comes_back_with_its_maps(tmp_path, key, monkeypatch):
    monkeypatch.setattr("core.tasks.text.HELD_OUT_STORIES", 100)
    # What is kept of each form (pairs, text, a label, a series) has sizes of its own.
    task = make_task(small_task(key))
    small = dict(steps=1, held_out=3, num_examples=2, record_every=1, batch_size=2)
    config = recommended(task, list(task.recommended)[-1], **small)
    run, session = create_run(config, tmp_path / "made"), prepare(config)
    run.append(next(train(config, session)))
    run.save_checkpoint(session, config)
    there = archive.unpack(archive.pack(run), tmp_path / "there")
    assert there.frame(0).keys() == run.frame(0).keys() and there.frame(0) and there.model()


def test_a_zip_of_the_folder_itself_is_taken(tmp_path, packed):
    running = b'{"state": "running", "pid": 1}'
    run = archive.unpack(zipped(parts(packed) | {"status.json": running}, "my run (2)/"), tmp_path)
    assert run.records() and run.id != "my run (2)"
    assert run.status().state == "stopped" and run.status().pid is None
    link = zipfile.ZipInfo("status.json")
    link.external_attr = 0o120777 << 16
    out = io.BytesIO(zipped({**parts(packed), "status.json": None}))
    with zipfile.ZipFile(out, "a") as file:
        file.writestr(link, "/etc/passwd")
    run = archive.unpack(out.getvalue(), tmp_path)
    assert not (run.path / "status.json").is_symlink() and run.status().state == "stopped"


# Zips of the packed run with something else in it, each made of the zip of the whole one.


def refused(data: bytes, root: Path, words: str) -> None:
    pytest.raises(ValueError, archive.unpack, data, root).match(words)
    assert list(root.iterdir()) == [] and not (root.parent / "run.json").exists()


def appended(packed: bytes, name: str) -> bytes:
    out = io.BytesIO(packed)
    with zipfile.ZipFile(out, "a") as file, warnings.catch_warnings(action="ignore"):
        file.writestr(name, "{}")
    return out.getvalue()


def other(name: str, data: bytes | None) -> Callable[[bytes], bytes]:
    return lambda packed: zipped(parts(packed) | {name: data})


def lines(text: str) -> Callable[[bytes], bytes]:
    return lambda packed: zipped(
        {"run.json": parts(packed)["run.json"], "metrics.jsonl": text.encode()}
    )


def frames(**arrays: np.ndarray) -> Callable[[bytes], bytes]:
    return other("frames/000000.safetensors", save_arrays(arrays))


def weights(change: Callable[[dict, dict], object]) -> Callable[[bytes], bytes]:

    def tampered(packed: bytes) -> bytes:
        data = parts(packed)["checkpoints/000004.safetensors"]
        (length,) = struct.unpack_from("<Q", data)
        tensors, text = load(data), json.loads(data[8 : 8 + length])["__metadata__"]
        change(tensors, text)
        return other("checkpoints/000004.safetensors", save(tensors, text))(packed)

    return tampered


CROSS = np.zeros((1, 2, 7, 6), np.float16)  # six letters, and the end mark


@each(
    ("change", "words"),
    [
        *(
            (other(name, b"x"), "which is not a file of a run|a zip holds one run")
            for name in (
                "../run.json",
                "/etc/passwd",
                "a/../../run.json",
                "frames/../../000000.safetensors",
                "a/b/run.json",
                "run.json/x",
                "frames/x.safetensors",
                "checkpoints/000000.pt",
                "frames\\000000.safetensors",
                "run.json\n",
                "evil.py",
                "stop",
                "frames/0000000.safetensors",
                "__MACOSX/._run.json",
            )
        ),
        (lambda packed: appended(packed, "other/run.json"), "a zip holds one run"),
        (lambda packed: appended(zipped(parts(packed)), "run.json"), "more than once"),
        (  # a file that has more bytes than it states
            lambda packed: other("frames/000009.safetensors", bytes(3_000_000))(packed).replace(
                struct.pack("<L", 3_000_000), struct.pack("<L", 10)
            ),
            "cannot be read",
        ),
        (lambda packed: zipped(parts(packed), how=zipfile.ZIP_LZMA), "other than deflate"),
        *(
            (lambda packed, data=data: data, "cannot be read")
            for data in (b"", b"PK\x03\x04 no", b"x" * 99)
        ),
        *((other(name, None), f"has no {name}") for name in ("run.json", "metrics.jsonl")),
        (other(f"data/{'0' * 64}.txt", b"a text"), "stored data was changed"),
        *(
            (other("run.json", text.encode("latin1")), "does not describe a run")
            for text in (
                "",
                "[]",
                "null",
                "{}",
                '{"config": {"steps": 1}}',
                "[" * 100_000,
                "\xff",
                '{"config": {"task": {"key": "nothing"}, "model": {}}}',
            )
        ),
        *(
            (lines(text), f"metrics.jsonl, line .*{words}")
            for text, words in (
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
                ('{"step": 3}\n{"step": 2}', "2: step 2 comes after 3"),
                ('{"step": true}', "step"),
                ('{"step": 0, "held_out": 0.5}', "held_out"),
                *(
                    (json.dumps({"step": 0, of.name: {"a": {}}}), f"1: {of.name}")
                    for of in fields(Record)
                ),
            )
        ),
        *(
            (frames(**{name: array}), "frames/00000")
            for name, array in (
                ("0:cross", CROSS[:, :, :, :5]),
                ("0:cross", CROSS[0]),
                ("0:cross", CROSS.astype("float32")),
                ("0:other", CROSS),
                ("9:cross", CROSS),
                ("cross", CROSS),
                ("0:cross", CROSS[:, :1]),
            )
        ),
        (frames(**{"0:cross": np.zeros((1, 769, 7, 6), np.float16)}), r"000000.*has \(1, 769\)"),
        (
            lambda packed: re.sub(
                rb"(PK\x01\x02.{4})\0", b"\\1\x01", zipped(parts(packed)), flags=re.DOTALL
            ),
            "is encrypted",
        ),
        *(
            (weights(change), words)
            for change, words in (
                (
                    lambda tensors, text: tensors.pop("model.output.weight"),
                    "has no model.output.weight",
                ),
                (
                    lambda tensors, text: tensors.update({"model.output.weight": torch.zeros(3)}),
                    "expected",
                ),
                (
                    lambda tensors, text: tensors.update({"model.more": torch.zeros(3)}),
                    "no such tensor",
                ),
                (
                    lambda tensors, text: tensors.update({"optimizer.999.step": torch.zeros(())}),
                    "no such tensor",
                ),
                (
                    lambda tensors, text: tensors.update({"optimizer.0.exp_avg": torch.zeros(1)}),
                    "expected",
                ),
                (
                    lambda tensors, text: tensors.update(
                        {
                            f"optimizer.{sum(name[:6] == 'model.' for name in tensors)}.step": torch.zeros(
                                ()
                            )
                        }
                    ),
                    "no such tensor",
                ),
                (
                    lambda tensors, text: tensors.update({"generator.cuda": torch.zeros(17)}),
                    r"is \(17,\); expected \(16,\)",
                ),
                (lambda tensors, text: tensors.pop("generator.data"), "random generators"),
                (lambda tensors, text: text.update(step="5"), "is of step 5"),
                (lambda tensors, text: text.update(step="x"), "the step of the run"),
                (lambda tensors, text: text.update(optimizer="evil"), "optimizer evil"),
            )
        ),
        *(
            (other("checkpoints/000002.safetensors", data), "checkpoints/000002")
            for data in (
                b"",
                b"\xff" * 8,
                struct.pack("<Q", 2) + b"{}",
                struct.pack("<Q", 10**12) + b"{}",
                struct.pack("<Q", 9) + b'{"a": [1]',
            )
        ),
    ],
)
def test_what_is_no_zip_of_one_run_is_refused(tmp_path, packed, change, words):
    refused(change(packed), tmp_path, words)


def test_whole_frames_and_records_of_before_are_read(tmp_path, packed):
    run = archive.unpack(frames(**{"0:cross": CROSS})(packed), tmp_path)
    assert run.frame(0).keys() == {"0:cross"}
    before = lines('{"step": 0, "letters": 0.5, "exact": 0.25, "trained": 1.5}')(packed)
    assert archive.unpack(before, tmp_path).records()[0].token_accuracy == 0.5


def test_too_large_file_bomb_and_too_many_files_are_refused(tmp_path, packed, monkeypatch):
    bomb = other("frames/000009.safetensors", bytes(3_000_000))(packed)
    assert len(bomb) < 200_000
    monkeypatch.setattr(archive.shutil, "copyfileobj", lambda *_: pytest.fail("unpacked"))
    for name, most, data, words in (
        ("MAX_ZIPPED", len(packed) - 1, packed, "larger than"),
        ("MAX_UNPACKED", 2_000_000, bomb, "at most 2 MB are allowed"),
        ("MAX_FILES", 3, packed, "files; at most 3"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(archive, name, most)
            refused(data, tmp_path, words)


@pytest.mark.parametrize(
    "parent",
    [
        {"run": 1},
        {"run": "a", "step": -1},
        {"run": "a", "step": True},
        {"run": "a", "step": 1e99},
        {"run": "a", "step": 10**9 + 1},
    ],
)
def test_only_known_words_are_kept(tmp_path, packed, parent):
    more = {"name": "n" * 999, "sweep": "x", "parent": parent, "pid": 1}
    metadata = json.loads(parts(packed)["run.json"]) | more
    run = archive.unpack(other("run.json", json.dumps(metadata).encode())(packed), tmp_path)
    assert run.metadata().keys() == {"config", "created", "uploaded", "name"}
    assert len(run.name) == 80


def test_of_too_many_checkpoints_the_last_goes(tmp_path, packed, monkeypatch):
    sizes = {name: len(data) for name, data in parts(packed).items()}
    monkeypatch.setattr(archive, "MAX_ZIPPED", len(packed))
    monkeypatch.setattr(archive, "MAX_FILES", len(sizes))
    run = archive.unpack(packed, tmp_path, max_bytes=sum(sizes.values()))
    sizes = {name: len(data) for name, data in parts(archive.pack(run)).items()}
    monkeypatch.setattr(archive, "MAX_FILES", len(sizes) - 2)
    first, second, third = (f"checkpoints/00000{step}.safetensors" for step in (0, 2, 4))
    room = sum(sizes.values()) - sizes[first]
    for left, names in ((room, [third, second]), (room - sizes[second], [third])):
        monkeypatch.setattr(archive, "MAX_UNPACKED", left)
        assert [name for name in parts(archive.pack(run)) if "checkpoints" in name] == names
    for name, less in (("MAX_UNPACKED", room - sizes[second] - 1), ("MAX_FILES", len(sizes) - 3)):
        with monkeypatch.context() as patch, pytest.raises(ValueError, match="This run is larger"):
            patch.setattr(archive, name, less)
            archive.pack(run)


def test_a_shell_packs_and_unpacks(tmp_path, packed, capsys):
    run = archive.unpack(packed, tmp_path)
    assert main(["pack", str(run.path), str(tmp_path / "a.zip")]) == 0
    assert main(["unpack", str(tmp_path / "a.zip")]) == 0
    output = capsys.readouterr().out.splitlines()
    assert output[0] == str(tmp_path / "a.zip") and find_run(output[1]).records() == run.records()
    (tmp_path / "a.zip").write_bytes(b"nonsense")
    assert (
        main(["unpack", str(tmp_path / "a.zip")]) == 1
        and "cannot be read" in capsys.readouterr().err
    )


# What TensorBoard and Weights & Biases read from a run's files are the run's own measurements.


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    run = create_run(small_run(), path=tmp_path_factory.mktemp("run") / "four", name="four steps")
    assert work(run.path) == "finished"
    return run


def read(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 0})
    events.Reload()
    return events


def test_tensorboard_reads_every_measurement(run, tmp_path, capsys):
    assert main(["tensorboard", str(run.path), str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "out")
    events, records = read(tmp_path / "out"), run.records()
    expected = {(tag, r.step): value for r in records for tag, value in archive.scalars(r).items()}
    shown = {
        (tag, event.step): event
        for tag in events.Tags()["scalars"]
        for event in events.Scalars(tag)
    }
    assert {at: one.value for at, one in shown.items()} == pytest.approx(expected, rel=1e-6)
    assert len(expected) > 30
    first, last = records[0], records[-2]
    taken = [shown["loss/validation", record.step].wall_time for record in (first, last)]
    assert taken[1] - taken[0] == pytest.approx(last.elapsed - first.elapsed, abs=1e-3)
    words = events.Tensors("run/text_summary")[0].tensor_proto.string_val[0].decode()
    config = json.loads(re.search(r"```json\n(.*)\n```", words, re.DOTALL)[1])
    assert "four steps" in words and config["steps"] == 4
    assert set(events.Tags()["images"]) == {"attention/self", "attention/causal", "attention/cross"}
    images = events.Images("attention/cross")
    assert [image.step for image in images] == run.frame_steps()
    pixels = np.asarray(Image.open(io.BytesIO(images[-1].encoded_image_string)).convert("L"))
    maps = run.frame(run.frame_steps()[-1])["0:cross"]
    layers, heads, rows, columns = maps.shape
    times = 64 // max(rows, columns)
    assert pixels.shape == (layers * (rows * times + 4), heads * (columns * times + 4))
    grey = 255 * (1 - maps[0, 0, 0, 0])
    assert pixels[2 + times // 2, 2 + times // 2] == pytest.approx(grey, abs=1)
    one, other = np.eye(2, dtype=np.float32)[None, None], np.ones((1, 1, 1, 1), np.float32)
    (pixels,) = archive.heads_images({"0:self": one, "1:self": other}).values()
    assert pixels[2, 2] == 0 and pixels[2, -3] == 255 and pixels[0, 0] == 200


def test_fine_tuned_run_is_written_too_and_data_is_left_out(run, tmp_path):
    tuned = Run(Path(__file__).parents[2] / "dashboard/examples/fine_tune/messages")
    events = read(archive.write_tensorboard(tuned, tmp_path / "out"))
    assert [event.step for event in events.Scalars("loss/validation")] == [
        record.step for record in tuned.records() if record.loss is not None and not record.final
    ]
    assert "attention/self" in events.Tags()["images"]
    shown = json.dumps(archive.settings_of(tuned))
    assert (
        archive.settings_of(tuned)["model"] == tuned.metadata()["finetune"]["model"]
        and len(shown) < 2_000
    )
    assert "characters" in shown and tuned.metadata()["finetune"]["data"][:300] not in shown


def test_files_are_not_mixed_and_an_empty_run_is_refused(run, tmp_path, capsys, monkeypatch):
    with zipfile.ZipFile(io.BytesIO(archive.tensorboard_zip(run))) as file:
        (name,) = file.namelist()
    assert re.fullmatch(r"four/events\.out\.tfevents\..*", name)
    archive.write_tensorboard(run, tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "wandb", None)  # an extra
    for command, words in (
        ("tensorboard", "has event files already"),
        ("wandb", "pip install wandb"),
    ):
        assert main([command, str(run.path), str(tmp_path)]) == 1
        assert words in capsys.readouterr().err
    empty = create_run(small_run(), path=tmp_path / "empty")
    pytest.raises(ValueError, archive.write_tensorboard, empty, tmp_path / "none").match(
        "no measurements yet"
    )


def log_records(data: bytes, at: int = 7, block: int = 32_768):
    """The records of a log in LevelDB's format: parts of checksum, length and type, in blocks that none crosses."""
    whole = b""
    while at + 7 <= len(data):
        if block - at % block < 7:
            at += block - at % block
            continue
        length, position = struct.unpack_from("<HB", data, at + 4)
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if position in (1, 4):  # the whole record, or its last part
            yield whole
            whole = b""


def test_wandb_reads_the_measurements(run, tmp_path):
    from wandb.proto.wandb_internal_pb2 import Record as Line  # type: ignore[attr-defined]

    assert main(["wandb", str(run.path), str(tmp_path)]) == 0
    (path,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    rows = []
    for data in log_records(path.read_bytes()):
        line = Line.FromString(data)
        if line.WhichOneof("record_type") == "history":
            rows.append(
                {
                    item.key or item.nested_key[0]: json.loads(item.value_json)
                    for item in line.history.item
                }
            )
    records = open_run(str(run.path)).records()
    assert [row["_step"] for row in rows] == sorted({record.step for record in records})
    for record in records:
        row = next(row for row in rows if row["_step"] == record.step)
        assert {tag: row[tag] for tag in archive.scalars(record)} == pytest.approx(
            archive.scalars(record)
        )


# Runs in a store: copied as they grow, opened and continued on another server, and kept from two writers.


def files(run: RunFolder) -> dict[str, bytes]:
    return {
        str(path.relative_to(run.path)): path.read_bytes()
        for path in run.path.rglob("*.*")
        if not path.name.startswith(".") and path.is_file()
    }


def expire(place: Store, name: str) -> None:
    """Let the lease run out, as if its server had died a minute ago."""
    lease = place.lease(name)
    assert lease is not None
    place.write(
        f"leases/{name}/{lease.number}.json",
        json.dumps({"server": lease.server, "until": time.time() - 1}).encode(),
    )


def records(run: Run) -> list[tuple]:
    return list(map(record_numbers, run.records()))


def test_run_is_copied_opened_elsewhere_and_continued_there(stores, server, worker_here):
    red = server("red")
    assert red.waiting == 0 and copy_now() == "", "there is nothing yet"
    run = create_run(small_run(steps=8), name="dear" * 30)
    work(run.path)
    assert copy_now() == "" and red.waiting == 0
    assert Item(red.root, "", run.id).manifest().server == "red"

    blue = server("blue")
    (row,) = blue.elsewhere()
    assert list_runs() == [] and row == StoredRun(
        id=run.id,
        server="red",
        owned=run.metadata()["created"],
        state="finished",
        at=run.status().at,
        created=run.metadata()["created"],
        name="dear" * 20,
        bytes=sum(map(len, files(run).values())),
        stamp=Item(red.root, "", run.id).stamp(),
    )
    bring(run.id)
    (copied,) = list_runs()
    assert files(copied) == files(run) and records(copied) == records(run)
    assert blue.elsewhere() == []
    blue.take_over(copied)
    copied.update_metadata(config=small_run(steps=12).to_json())
    copied.requeue()
    work(copied.path)
    assert copied.records()[-1].step == 12 and copy_now() == ""

    server("red")
    assert copy_now() == ""
    bring(run.id)
    assert records(run) == records(copied), (
        "the first server has the newer version when it opens the run again"
    )
    assert red.newest()[run.id].server == "blue" and red.place.lease(run.id) is None


@pytest.fixture
def copied(memory, server, worker_here) -> tuple[Copier, Run]:
    red, run = server("red"), create_run(small_run())
    work(run.path)
    copy_now()
    assert set(red.place.list(f"runs/{run.id}")) == set(files(run))
    return red, run


def test_only_what_is_new_is_written(copied, monkeypatch):
    red, run = copied
    write = create_autospec(Store.write, side_effect=Store.write)
    monkeypatch.setattr(Store, "write", write)
    copy_now()
    assert not write.called, "nothing changed"
    run.append(Record(5, loss=1.0))
    run.checkpoint_path(5).write_bytes(b"weights")
    run.checkpoint_path(2).unlink()
    run.set_status("running")
    copy_now()
    assert set(red.place.list(f"runs/{run.id}")) == set(files(run))
    written = [str(call.args[1]) for call in write.call_args_list]
    names = [name.removeprefix(f"runs/{run.id}/") for name in written if name.startswith("runs/")]
    expected = ["metrics.jsonl", "checkpoints/000005.safetensors", "run.json", "status.json"]
    assert names == expected, "the status last"


def test_one_server_trains_a_run(memory, server):
    red, run = server("red"), create_run(small_run())
    run.append(Record(0, loss=2.0))
    run.set_status("running")
    copy_now()
    blue = server("blue")
    bring(run.id)
    (copied,) = list_runs()
    status = copied.status()
    assert status.state == "paused" and status.message == "It trains on red; this is a copy."
    said = r"red trains this run\. Continue it once red has ended it, or \d\d s after"
    pytest.raises(StoreError, blue.take_over, copied).match(said)
    expire(red.place, run.id)
    blue.take_over(copied)
    copied.requeue()
    copied.append(Record(2, loss=1.0))
    copy_now()
    assert red.place.lease(run.id).binds("red")

    server("red")
    copy_now()
    bring(run.id)
    run.append(Record(2, loss=9.0))  # it was cut off, and trains on
    run.set_status("finished")
    copy_now()
    stored = red.place.read(f"runs/{run.id}/metrics.jsonl")
    assert stored == (copied.path / "metrics.jsonl").read_bytes(), (
        "what the other server has continued stays"
    )
    assert [record.loss for record in run.records()] == [2.0, 9.0], "what trains is not replaced"
    assert red.newest()[run.id].server == "blue" and red.place.lease(run.id).binds("red")


def test_training_goes_on_while_the_store_is_away(memory, server, monkeypatch, worker_here):
    red, run = server("red"), create_run(small_run())
    with monkeypatch.context() as patch:
        for name in ("find", "cat_file", "pipe_file", "rm"):
            away = Mock(side_effect=ConnectionError("no route"))
            patch.setattr(type(red.place.files), name, away)
        work(run.path)
        assert copy_now() == f"The store {red.place.label} cannot be reached (ConnectionError)."
        red.take_over(run)  # a run of one's own can be continued all the same
        pytest.raises(StoreError, bring, "20260101-000000-abcdef").match("cannot be reached")
        prune(0)
        assert find_run(run.id) == run, "what is not copied stays"
    assert run.status().state == "finished" and copy_now() == "" and red.trouble == ""
    assert set(red.place.list(f"runs/{run.id}")) == set(files(run))


def test_a_copied_run_may_leave_the_disk_and_comes_back(copied, server):
    red, run = copied
    before = files(run)
    prune(0)
    assert list_runs() == [] and [row.id for row in red.elsewhere()] == [run.id]
    copy_now()
    bring(run.id)
    assert files(run) == before and red.place.lease(run.id) is None
    red.take_over(run)
    run.update_metadata(name="again")
    copy_now()
    assert red.newest()[run.id].name == "again", "it is this server's own"
    shutil.rmtree(red.root)
    _copiers.clear()  # a new process on a new machine of the same name
    again = server("red")
    assert copy_now() == "" and [row.id for row in again.elsewhere()] == [run.id]


def test_what_is_deleted_leaves_the_store(copied):
    red, run = copied
    discard(run)
    assert copy_now() == "" and red.place.list(f"runs/{run.id}") and red.elsewhere() == []
    shutil.rmtree(run.path.parent / ".deleted" / run.id)
    forget(run.path.parent, run.id)
    assert copy_now() == "" == copy_now()
    assert red.place.list(f"runs/{run.id}") == {} and red.newest() == {}
    assert sorted(os.listdir(red.root)) == [".deleted", ".store.lock"], "nothing is left of it"


def test_a_broken_index_is_no_trouble(copied, server):
    red, run = copied
    for index in (
        b"",
        b"[]",
        b'{"runs": 3}',
        b'{"runs": [1, {"id": "../x", "server": "", "owned": 0, "state": "", "at": 0}, {"id": 7}]}',
        b"\xff" * 9,
        b"[" * 99_999,
    ):
        red.place.write("servers/blue.json", index)
        assert copy_now() == "" and red.newest().keys() == {run.id}
    for name in (".hidden", "..x", "frames/.a", "stop", "lock"):
        red.place.write(f"runs/{run.id}/{name}", b"data")
    blue = server("blue")
    bring(run.id)
    assert files(list_runs()[0]) == files(run) and not (list_runs()[0].path / "stop").exists()
    shutil.rmtree(list_runs()[0].path)
    red.place.delete(f"runs/{run.id}/run.json")
    bring(run.id)
    assert os.listdir(blue.root) == [".store.lock"], "what lacks its settings is no run"


def test_a_bad_address_says_so_without_its_password(monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_STORE", "nosuch://user:secret@host/lab")
    with pytest.raises(StoreError, match="The store nosuch://host/lab cannot be opened") as error:
        store()
    assert "secret" not in str(error.value) and "nosuch" in copy_now()
    monkeypatch.setenv("ATTENTION_LAB_HOSTED", "1")
    assert store() is None, "a public copy forgets its people's runs"


def test_the_shell_copies_when_it_ends(memory, server, tmp_path):
    red = server("red")
    (tmp_path / "run.json").write_text(json.dumps(small_run().to_json()), encoding="utf-8")
    assert run_command("core.training", "train", str(tmp_path / "run.json")) == 0
    red.read_rows()
    assert [row.state for row in red.newest().values()] == ["finished"]


def test_measurements_sweeps_and_reports_are_copied(stores, server):
    red = server("red")
    corpus = CorpusConfig("lab:induction", "texts", "the old man", kind="causal").create()
    corpora.save_statistics(corpus, Corpus(texts=1, failed=[0]))
    corpus.set_status("stopped")
    claim = claim_run.create(claim_run.ClaimConfig("iris", {"seeds": 2}), 2)
    for part in claim.runs:
        line = '{"condition": "mean", "seed": 0, "seconds": 1, "values": []}\n'
        (part.path / claim_run.CELLS).write_text(line, encoding="utf-8")
        part.set_status("stopped")
    sweep = create_sweep(SweepConfig(small_run(), "score", ("dot", "general"), (0, 1)))
    run = create_run(sweep.config().run(0, 0))
    run.set_status("running")
    sweep.add_runs({(0, 0): run})
    report = runs_folder() / REPORTS / f"{'ab' * 8}.json.gz"
    write_atomically(report, b"red's views")
    assert copy_now() == "" and red.waiting == 0

    paths = run.path, corpus.path, sweep.path, red.root / "x", red.root / REPORTS / run.id
    homes = ("", run.id), (CORPORA, corpus.id)
    items = [Item(red.root, *home) for home in homes] + [None] * 3
    assert [Item.at(red.root, path) for path in paths] == items
    blue = server("blue")
    assert [row.id for row in blue.elsewhere()] == [run.id], "Runs lists runs alone"
    assert blue.newest()[sweep.id].at == pytest.approx(sweep.path.stat().st_mtime)
    assert list(map(files, claim_run.find_group(claim.id).runs)) == list(map(files, claim.runs))
    found = limits.find_run(corpus.id, CORPORA)
    assert files(found) == files(corpus) and corpora.load(found).texts == 1
    linked = sweeps.linked(sweep.id)
    assert linked.data() == sweep.data() and [
        run.status().state for run in linked.runs().values()
    ] == ["paused"]
    assert export.read_report(report.name[:16]) is None, "it is fetched, and is no report"
    other = runs_folder() / REPORTS / report.name
    assert other.read_bytes() == report.read_bytes() != b"blue's views"
    assert copy_now() == "" and blue.newest()[report.name[:16]].server == "red", (
        "to look at it changes nothing"
    )
    write_atomically(other, b"blue's views")
    blue.take_over(found)
    found.requeue()
    assert copy_now() == "" and blue.place.lease(found.id).binds("red")

    server("red")
    bring(report.name[:16], REPORTS)
    assert copy_now() == "" and red.newest()[report.name[:16]].server == "blue"
    bring(report.name[:16], REPORTS)
    assert report.read_bytes() == b"blue's views", "the latest change counts"
    pytest.raises(StoreError, red.take_over, corpus).match("blue trains this run")
    delete_sweep(sweep)
    copy_now()
    assert red.place.list(f"sweeps/{sweep.id}") == {}


def test_ids_of_one_moment_differ(monkeypatch):
    monkeypatch.setattr(time, "time", lambda: 1e9)
    assert len({new_id() for _ in range(4096)}) == 4096, "two runs of a claim had one folder"


def test_an_index_of_the_same_size_and_time_is_read_again(local, monkeypatch):
    place = store()
    info = place.files.info
    still = {"mtime": 0.0, "created": 0.0}  # as where a clock ticks slowly
    monkeypatch.setattr(place.files, "info", lambda path, **more: info(path, **more) | still)
    marks = []
    for text in (b"red", b"tan"):
        place.write("servers/red.json", text)
        marks.append(place.list("servers"))
    assert marks[0] != marks[1]


def test_a_lease_is_prolonged_in_time(memory, server, monkeypatch):
    red, run, now = server("red"), create_run(small_run()), time.time()
    run.set_status("running")
    read = create_autospec(Copier.read_rows, side_effect=Copier.read_rows)
    monkeypatch.setattr(Copier, "read_rows", read)
    for seconds, number, until, reads in (
        (0.0, 1, 60.0, 1),
        (19.0, 1, 60.0, 2),
        (21.0, 1, 81.0, 3),
        (70.0, 1, 130.0, 4),
        (121.0, 2, 181.0, 5),  # too late to be sure of the old one
        (121.9, 2, 181.0, 5),
        (123.1, 2, 181.0, 6),
    ):
        for name in ("time", "monotonic"):
            monkeypatch.setattr(time, name, lambda seconds=seconds: now + seconds)
        bring("20260101-000000-abcdef") if seconds > 121 else copy_now()
        lease = red.place.lease(run.id)
        assert (lease.number, lease.until - now, read.call_count) == (number, until, reads)
    assert [*red.place.list(f"leases/{run.id}")] == ["2.json"]


def test_of_two_servers_that_continue_run_at_once_one_does(stores, server, monkeypatch):
    # Both have read that nobody holds the run, or that the last server's lease has run out, before either writes.
    red, blue = server("red").place, server("blue").place
    for last in (False, True):
        if last:
            expire(red, "run")
        before = red.lease("run")
        with monkeypatch.context() as patch:
            patch.setattr(Store, "lease", lambda self, run_id, before=before: before)
            assert (blue.take("run"), red.take("run") is None) == (None, False)
        lease = red.lease("run")
        assert (
            lease is not None
            and (lease.server, lease.number) == ("blue", 1 + last)
            and lease.binds("red")
        )
    red.release("run")
    assert red.lease("run") == lease, "only who has it gives it back"
    blue.release("run")
    assert red.lease("run") is None


def test_a_run_is_found_again(tmp_path):
    config, made = small_run(seed=5), []
    for _ in range(20):
        made.append(create_run(config, root=tmp_path))
        time.sleep(0.001)
    run = made[0]
    assert list_runs(tmp_path) == made and find_run(run.id, tmp_path) == run
    assert run.config() == config and run.status().state == "queued" and run.records() == []
    assert '\n  "steps": 4,\n' in (run.path / "run.json").read_text("utf-8"), "people read it, too"


def test_records_and_frames_come_back(tmp_path):
    run = create_run(small_run(), root=tmp_path)
    record = Record(
        0,
        loss=1.5,
        expected=((0.1, 0.2),),
        even=0.5,
        examples=(Prediction(("a", "b"), ("b", "a"), ("b", "b")),),
    )
    run.append(replace(record, maps={"0": np.eye(2)[None, None]}))
    run.append(Record(20, loss=float("nan")))
    with open(run.path / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write('not json\n{"step": "x"}\n{"step": 20, "lo')
    first, second = run.records()
    assert first == record and second.loss is None and second.step == 20
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


def test_the_oldest_go_first_never_a_run_under_way(tmp_path):
    runs = [made(tmp_path, i, "" if i == 1 else "finished") for i in range(4)]
    prune(2, tmp_path)
    assert list_runs(tmp_path) == [runs[1], runs[3]]
    named, *others = (made(tmp_path / "named", i, name="" if i else "dear") for i in range(3))
    for count, left in ((2, [named, others[1]]), (1, [named])):
        prune(count, tmp_path / "named")
        assert list_runs(tmp_path / "named") == left


def test_all_runs_fit_into_the_room_there_is(tmp_path):
    runs = [made(tmp_path, i) for i in range(3)]
    runs[0].checkpoint_path(0).write_bytes(b"x" * 5_000)
    assert folder_bytes(runs[0].path) == sum(map(len, files(runs[0]).values())) > 5_000
    assert folder_bytes(runs[1].path) < 5_000
    for _ in range(2):  # what fits stays
        prune(9, tmp_path, max_bytes=sum(folder_bytes(run.path) for run in runs[1:]))
        assert list_runs(tmp_path) == runs[1:]
    discard(made(tmp_path, 3))
    (earlier,) = deleted_runs(tmp_path)
    os.utime(earlier.path, (time.time() - 60,) * 2)
    discard(runs[2])
    assert deleted_runs(tmp_path)[1:] == [earlier], "latest first"
    for less, left in ((0, 2), (1, 1)):
        prune(9, tmp_path, max_bytes=folder_bytes(tmp_path) - less)
        assert len(deleted_runs(tmp_path)) == left
    prune(9, tmp_path, max_bytes=folder_bytes(runs[1].path))
    assert list_runs(tmp_path) == [runs[1]] and deleted_runs(tmp_path) == []


def test_a_deleted_run_comes_back_within_the_hour(tmp_path):
    run = made(tmp_path, 0, "running")
    pytest.raises(ValueError, discard, run).match("stop it first")
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
    assert copied.config() == run.config() and copied.status().state == "finished"
    assert files(copied).keys() == files(run).keys() and copied.records() == run.records()
    copied.append(Record(2, loss=0.5))
    assert len(run.records()) == 1, "the first run does not feel what happens to its copy"


def test_a_number_of_everything_is_no_worker(tmp_path):
    # kill(-1, …) ends every process of the user; a status file is no reason to.
    run = create_run(small_run(), tmp_path)
    known = 2, 2**31 - 1
    for pid in (*known, -1, 0, 1, True, "7", [7], 1e9, 2**31, None):
        text = json.dumps({"state": "running", "pid": pid})
        (run.path / "status.json").write_text(text, encoding="utf-8")
        assert run.status().pid == (pid if pid in known else None)


def indexed_run(root, number: int, state: str = "finished", **more) -> run_index.RunFolder:
    run = run_index.RunFolder(root / f"20260101-{number:06d}-abcdef")
    run.path.mkdir(parents=True)
    (run.path / "run.json").write_text(
        json.dumps({"config": {}, "created": 1.0, **more}), encoding="utf-8"
    )
    run.set_status(state)
    return run


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A folder of six runs, of which a refresh compares one further; its index is saved each time."""
    monkeypatch.setattr(run_index, "MAX_UNSAVED", 0)
    monkeypatch.setattr(run_index, "SAVE_SECONDS", 0.0)
    monkeypatch.setattr(run_index, "TURN", 1)
    for number in range(6):
        indexed_run(tmp_path, number, "queued" if number == 3 else "finished")
    assert run_index.unfinished(tmp_path) == ["20260101-000003-abcdef"]
    return tmp_path


def folders(root) -> dict[str, str]:
    runs = [run_index.RunFolder(path) for path in sorted(root.glob("2026*"))]
    return {run.id: run.status().state for run in runs if run.exists()}


def indexed(root) -> dict[str, str]:
    with run_index.open_index(root) as index:
        return {name: index.rows[name].state for name in sorted(index.rows)}


def test_it_follows_what_the_lab_changes(root):
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


@pytest.mark.parametrize("spoil", [b"", b"no index" * 999, b'{"20260101-000000-abcdef": {}}'])
def test_the_next_process_begins_with_the_file(root, spoil, monkeypatch):
    with run_index.open_index(root) as index:
        index.fill(lambda name: run_index.Details(name))
    run_index.RunFolder(root / "20260101-000002-abcdef").set_status("paused")
    run_index._index.cache_clear()
    with run_index.open_index(root) as index:
        assert index.fill(lambda name: run_index.Details("read anew")) == 0
        assert index.search(["read", "anew"]) == [
            "20260101-000003-abcdef",
            "20260101-000002-abcdef",
        ], "what waits or was changed"
    (root / run_index.FILE).write_bytes(spoil)
    run_index._index.cache_clear()
    monkeypatch.setattr(run_index, "write_atomically", refuse_writing)
    assert indexed(root) == folders(root), "a broken one is read anew, and need not be written"


def refuse_writing(*_: object) -> None:
    raise PermissionError("read-only")


def test_what_another_program_changes_is_noticed_in_turn(root):
    paused, deleted = (root / f"20260101-00000{number}-abcdef" for number in (4, 5))
    (paused / "status.json").write_text('{"state": "paused", "at": 12.5}', encoding="utf-8")
    (deleted / "run.json").unlink()
    for _ in range(8):
        indexed(root)
    assert indexed(root) == folders(root) and deleted.name not in indexed(root)


def test_search_finds_words_and_ids_and_best_other_run(root):
    with run_index.open_index(root) as index:
        left = index.fill(
            lambda name: run_index.Details(
                f"run {int(name[9:15])} é", "copy", name, float(name[14]), 1.0, True
            )
        )
        assert left == 0 and index.search(["run", "é"]) == index.search()
        assert len(index.search(["run", "4"])) == 1 and index.search(["%"]) == []
        assert index.search(["20260101-000002-abcdef"]) == ["20260101-000002-abcdef"]
        assert index.best("copy", "20260101-000005-abcdef") == "20260101-000004-abcdef"
        assert index.best("other", "") is None
        assert index.first_measured(["3"]) == "20260101-000003-abcdef"
    run_index.RunFolder(root / "20260101-000004-abcdef").set_status("failed")
    with run_index.open_index(root) as index:
        late = index.fill(lambda name: run_index.Details(f"again {name}"), -1.0)
        assert late == 2, "it takes no longer than said"
        index.fill(lambda name: run_index.Details(f"again {name}"))
        again = ["20260101-000004-abcdef", "20260101-000003-abcdef"]
        assert index.search(["again"]) == again, "what changed or waits is described again"


def test_the_oldest_go_by_the_index(root):
    with run_index.open_index(root) as index:
        assert index.sizes() == {name: folder_bytes(root / name) for name in folders(root)}
    prune(2, root)
    assert sorted(folders(root)) == ["20260101-000003-abcdef", "20260101-000005-abcdef"], (
        "what waits stays"
    )
    assert indexed(root) == folders(root)


@pytest.fixture(scope="module")
def packed(tmp_path_factory) -> bytes:
    torch.set_num_threads(1)
    return archive.pack(trained(tmp_path_factory.mktemp("made")))


@pytest.fixture
def s3(monkeypatch):
    from moto.server import ThreadedMotoServer  # a second to import
    from s3fs import S3FileSystem

    S3FileSystem.clear_instance_cache()  # those of another test's server
    _open.cache_clear()
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    bucket = f"s3://lab-{uuid.uuid4().hex}"  # moto has those of a test before still
    for name, value in (
        ("AWS_ENDPOINT_URL", f"http://{host}:{port}"),
        ("AWS_ACCESS_KEY_ID", "key"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("AWS_DEFAULT_REGION", "us-east-1"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
        ("ATTENTION_LAB_STORE", f"{bucket}/runs"),
    ):
        monkeypatch.setenv(name, value)
    store().files.mkdir(bucket)
    yield
    server.stop()


@pytest.fixture
def memory(monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_STORE", f"memory://{uuid.uuid4().hex}/lab")


@pytest.fixture
def local(monkeypatch, tmp_path):
    monkeypatch.setenv("ATTENTION_LAB_STORE", f"file://{tmp_path}/store")


@pytest.fixture(params=["memory", "local", "s3"])
def stores(request):
    request.getfixturevalue(request.param)


@pytest.fixture
def server(monkeypatch, tmp_path):

    _copiers.clear()

    def become(name: str) -> Copier:
        monkeypatch.setenv("ATTENTION_LAB_RUNS", str(tmp_path / name / "lab" / "runs"))
        monkeypatch.setenv("ATTENTION_LAB_STORE_NAME", name)
        return instance(copier(), Copier)

    return become
