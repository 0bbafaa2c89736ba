"""What TensorBoard and Weights & Biases read from a run's files are the run's own measurements."""

import io
import json
import re
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from core.runs.runs import Run, create_run, open_run
from core.runs.tensorboard import (
    TAGS,
    heads_images,
    scalars,
    settings_of,
    tensorboard_zip,
    write_tensorboard,
)
from core.runs.worker import work
from core.training.__main__ import main
from tests.training.small import small_run


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
        (tag, record.step): value for record in records for tag, value in scalars(record).items()
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
    events = read(write_tensorboard(run, tmp_path / "out"))
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
    events = read(write_tensorboard(tuned, tmp_path / "out"))
    assert [event.step for event in events.Scalars("loss/validation")] == [
        record.step for record in tuned.records() if record.loss is not None and not record.final
    ]
    assert "attention/self" in events.Tags()["images"]
    shown = json.dumps(settings_of(tuned))
    assert (
        settings_of(tuned)["model"] == tuned.metadata()["finetune"]["model"] and len(shown) < 2_000
    )
    assert "characters" in shown and tuned.metadata()["finetune"]["data"][:300] not in shown


def test_no_weight_is_white_and_a_whole_one_black():
    frame = {
        "0:self": np.eye(2, dtype=np.float32)[None, None],
        "1:self": np.ones((1, 1, 1, 1), np.float32),
    }
    (pixels,) = heads_images(frame).values()
    assert pixels[2, 2] == 0 and pixels[2, -3] == 255 and pixels[0, 0] == 200


def test_a_zip_holds_the_event_file(run):
    with zipfile.ZipFile(io.BytesIO(tensorboard_zip(run))) as file:
        assert [
            re.fullmatch(r"four/events\.out\.tfevents\..*", name) is not None
            for name in file.namelist()
        ] == [True]


def test_files_are_not_mixed_and_an_empty_run_is_refused(run, tmp_path, capsys):
    write_tensorboard(run, tmp_path)
    assert main(["tensorboard", str(run.path), str(tmp_path)]) == 1
    assert "has event files already" in capsys.readouterr().err
    with pytest.raises(ValueError, match="no measurements yet"):
        write_tensorboard(create_run(small_run(), path=tmp_path / "empty"), tmp_path / "none")


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
        assert {tag: row[tag] for tag in scalars(record)} == pytest.approx(scalars(record))


def test_every_tag_is_a_measurement():
    from core.training import Record

    assert all(hasattr(Record(1), name) for name in TAGS.values())
