"""A run goes out as a zip and comes back the same; whatever else comes is refused in words, and nothing stays."""

import io
import json
import re
import struct
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from core.models import ModelConfig
from core.runs import archive
from core.runs.runs import Run, create_run, find_run, list_runs, open_run
from core.runs.worker import work
from core.tasks import TASKS, TaskConfig, make_task
from core.training import prepare, recommended, train
from core.training.__main__ import main
from tests.cases import each
from tests.training.small import parts, record_numbers, refused, small_run, trained, zipped


def test_a_run_comes_back_as_it_was(tmp_path, packed):
    run = archive.unpack(packed, tmp_path)
    first = trained(tmp_path / "again")
    assert (
        run.config() == first.config() and run.name == "tiny" and run.status().state == "finished"
    )
    assert [record_numbers(r) for r in run.records()] == [
        record_numbers(r) for r in first.records()
    ]
    assert (
        run.frame_steps() == first.frame_steps()
        and run.checkpoint_steps() == first.checkpoint_steps()
    )
    for step in run.checkpoint_steps():
        tensors, text = run.checkpoint(step)
        assert all(
            torch.equal(value, first.checkpoint(step)[0][name]) for name, value in tensors.items()
        )
    assert run.metadata()["parent"] == {"run": "other", "step": 2} and list_runs(tmp_path) == [run]


def test_what_came_back_goes_on_training(tmp_path, packed):
    run = archive.unpack(
        archive.pack(trained(tmp_path / "made", schedule="constant")), tmp_path / "there"
    )
    config = small_run(steps=8, schedule="constant")
    session = prepare(config)
    session.restore(*run.checkpoint(4))
    whole = [record_numbers(r) for r in train(config)]
    assert record_numbers(next(train(config, session))) == whole[3], (
        "step 6 of a run that was never interrupted"
    )


def test_a_model_without_attention_comes_back(tmp_path):
    config = ModelConfig.recurrent(8, None)
    run = archive.unpack(archive.pack(trained(tmp_path / "made", model=config)), tmp_path / "there")
    assert run.config().model == config and run.frame_steps() == [] and run.model()[0] is not None


@pytest.mark.parametrize("key", [entry.key for entry in TASKS])
def test_every_task_comes_back_with_its_maps(tmp_path, key):
    """What is kept of each form (pairs, text, a label, a series) has sizes of its own."""
    task = make_task(TaskConfig.of(key))
    config = recommended(
        task,
        list(task.recommended)[-1],
        steps=1,
        held_out=3,
        num_examples=2,
        record_every=1,
        batch_size=2,
    )
    run = create_run(config, tmp_path / "made")
    session = prepare(config)
    run.append(next(train(config, session)))
    run.save_checkpoint(session, config)
    there = archive.unpack(archive.pack(run), tmp_path / "there")
    assert (
        there.frame(0).keys() == run.frame(0).keys() and len(there.frame(0)) > 0 and there.model()
    )


def test_a_zip_of_the_folder_itself_is_taken_and_a_run_under_way_is_stopped(tmp_path, packed):
    changed = parts(packed) | {"status.json": b'{"state": "running", "pid": 1}'}
    run = archive.unpack(zipped(changed, "my run (2)/"), tmp_path)
    assert run.records() and run.id != "my run (2)"
    assert run.status().state == "stopped" and run.status().pid is None


@pytest.mark.parametrize(
    "name",
    [
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
    ],
)
def test_names_that_no_run_has_are_refused(tmp_path, packed, name):
    refused(
        zipped(parts(packed) | {name: b"x"}),
        tmp_path,
        "which is not a file of a run|a zip holds one run",
    )
    assert not (tmp_path.parent / "run.json").exists()


def appended(packed: bytes, name: str) -> bytes:
    """A zip with one more file."""
    out = io.BytesIO(packed)
    with zipfile.ZipFile(out, "a") as file, warnings.catch_warnings(action="ignore"):
        file.writestr(name, "{}")
    return out.getvalue()


def lying(packed: bytes) -> bytes:
    """A zip with a file that has more bytes than it states."""
    data = zipped(parts(packed) | {"frames/000009.safetensors": bytes(3_000_000)})
    return data.replace(struct.pack("<L", 3_000_000), struct.pack("<L", 10))


@each(
    ("change", "words"),
    [
        (lambda packed: appended(packed, "other/run.json"), "a zip holds one run"),
        (lambda packed: appended(zipped(parts(packed)), "run.json"), "more than once"),
        (lying, "cannot be read|unpacks to more"),
        (lambda packed: zipped(parts(packed), how=zipfile.ZIP_LZMA), "other than deflate"),
        *(
            (lambda packed, data=data: data, "cannot be read")
            for data in (b"", b"PK\x03\x04 no", b"x" * 99)
        ),
        *(
            (
                lambda packed, name=name: zipped({**parts(packed), name: None}),
                f"has no {name}",
            )
            for name in ("run.json", "metrics.jsonl")
        ),
    ],
)
def test_what_is_no_zip_of_one_run_is_refused(tmp_path, packed, change, words):
    refused(change(packed), tmp_path, words)


def test_a_link_becomes_no_link(tmp_path, packed):
    link = zipfile.ZipInfo("status.json")
    link.external_attr = 0o120777 << 16
    out = io.BytesIO(zipped({**parts(packed), "status.json": None}))
    with zipfile.ZipFile(out, "a") as file:
        file.writestr(link, "/etc/passwd")
    run = archive.unpack(out.getvalue(), tmp_path)
    assert not (run.path / "status.json").is_symlink() and run.status().state == "stopped"


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path, packed, monkeypatch):
    bomb = parts(packed) | {"frames/000009.safetensors": bytes(3_000_000)}
    monkeypatch.setattr(archive, "MAX_UNPACKED", 2_000_000)
    monkeypatch.setattr(archive, "_write", lambda *_: pytest.fail("unpacked"))
    assert len(zipped(bomb)) < 200_000
    refused(zipped(bomb), tmp_path, "at most 2 MB are allowed")


def test_too_large_a_file_and_too_many_are_refused(tmp_path, packed, monkeypatch):
    monkeypatch.setattr(archive, "MAX_ZIPPED", 1_000)
    with pytest.raises(ValueError, match="larger than"):
        archive.unpack(packed, tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr(archive, "MAX_FILES", 3)
    refused(packed, tmp_path, "files; at most 3")


@pytest.mark.parametrize(
    "parent",
    [{"run": 1}, {"run": "a", "step": -1}, {"run": "a", "step": True}, {"run": "a", "step": 1e99}],
)
def test_only_known_words_are_kept(tmp_path, packed, parent):
    metadata = json.loads(parts(packed)["run.json"]) | {
        "name": "n" * 999,
        "sweep": "x",
        "parent": parent,
        "pid": 1,
    }
    run = archive.unpack(
        zipped(parts(packed) | {"run.json": json.dumps(metadata).encode()}), tmp_path
    )
    assert (
        run.metadata().keys() == {"config", "created", "uploaded", "name"} and len(run.name) == 80
    )


def test_of_too_many_checkpoints_the_last_goes(tmp_path, packed, monkeypatch):
    run = archive.unpack(packed, tmp_path)
    sizes = {name: len(data) for name, data in parts(archive.pack(run)).items()}
    one = sizes["checkpoints/000000.safetensors"]
    monkeypatch.setattr(archive, "MAX_UNPACKED", sum(sizes.values()) - one)
    steps = [name for name in parts(archive.pack(run)) if name.startswith("checkpoints")]
    assert steps == ["checkpoints/000004.safetensors", "checkpoints/000002.safetensors"]
    monkeypatch.setattr(archive, "MAX_UNPACKED", one)
    with pytest.raises(ValueError, match="This run is larger"):
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


def test_tensorboard_reads_every_measurement_at_its_step_and_time(run, tmp_path, capsys):
    assert main(["tensorboard", str(run.path), str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "out")
    events, records = read(tmp_path / "out"), run.records()
    expected = {
        (tag, record.step): value
        for record in records
        for tag, value in archive.scalars(record).items()
    }
    events_by_step = {
        (tag, event.step): event
        for tag in events.Tags()["scalars"]
        for event in events.Scalars(tag)
    }
    assert set(events_by_step) == set(expected) and len(expected) > 30
    for at, value in expected.items():
        assert events_by_step[at].value == pytest.approx(value, rel=1e-6), at
    first, last = (
        events_by_step["loss/validation", record.step] for record in (records[0], records[-2])
    )
    assert last.wall_time - first.wall_time == pytest.approx(
        records[-2].elapsed - records[0].elapsed, abs=1e-3
    )
    (text,) = events.Tensors("run/text_summary")
    words = text.tensor_proto.string_val[0].decode()
    assert (
        "four steps" in words
        and json.loads(re.search(r"```json\n(.*)\n```", words, re.DOTALL)[1])["steps"] == 4
    )


def test_tensorboard_shows_the_attention_of_each_saved_step(run, tmp_path):
    events = read(archive.write_tensorboard(run, tmp_path / "out"))
    assert set(events.Tags()["images"]) == {"attention/self", "attention/causal", "attention/cross"}
    images = events.Images("attention/cross")
    assert [image.step for image in images] == run.frame_steps()
    pixels = np.asarray(Image.open(io.BytesIO(images[-1].encoded_image_string)).convert("L"))
    maps = run.frame(run.frame_steps()[-1])["0:cross"]
    layers, heads, rows, columns = maps.shape
    times = 64 // max(rows, columns)
    assert pixels.shape == (layers * (rows * times + 4), heads * (columns * times + 4))
    assert pixels[2 + times // 2, 2 + times // 2] == pytest.approx(
        255 * (1 - maps[0, 0, 0, 0]), abs=1
    )


def test_a_fine_tuned_run_is_written_too_and_data_is_left_out(run, tmp_path):
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


def test_no_weight_is_white_and_a_whole_one_black():
    frame = {
        "0:self": np.eye(2, dtype=np.float32)[None, None],
        "1:self": np.ones((1, 1, 1, 1), np.float32),
    }
    (pixels,) = archive.heads_images(frame).values()
    assert pixels[2, 2] == 0 and pixels[2, -3] == 255 and pixels[0, 0] == 200


def test_a_zip_holds_the_event_file(run):
    with zipfile.ZipFile(io.BytesIO(archive.tensorboard_zip(run))) as file:
        assert [
            re.fullmatch(r"four/events\.out\.tfevents\..*", name) is not None
            for name in file.namelist()
        ] == [True]


def test_files_are_not_mixed_and_an_empty_run_is_refused(run, tmp_path, capsys):
    archive.write_tensorboard(run, tmp_path)
    assert main(["tensorboard", str(run.path), str(tmp_path)]) == 1
    assert "has event files already" in capsys.readouterr().err
    with pytest.raises(ValueError, match="no measurements yet"):
        archive.write_tensorboard(
            create_run(small_run(), path=tmp_path / "empty"), tmp_path / "none"
        )


def test_wandb_is_an_extra(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "wandb", None)
    assert main(["wandb", str(run.path), str(tmp_path)]) == 1
    assert 'pip install -r requirements.txt -e ".[wandb]"' in capsys.readouterr().err


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


def test_every_tag_is_a_measurement():
    from core.training import Record

    assert all(hasattr(Record(1), name) for name in archive.TAGS.values())
