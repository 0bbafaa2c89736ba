"""What an uploaded run's files must be: whatever else they are is refused in words, and nothing stays."""

import struct
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from safetensors.numpy import save as save_arrays
from safetensors.torch import load_file, save_file

from core.runs import archive
from core.runs.archive import unpack
from core.training import Record
from tests.training.zips import parts, refused, zipped


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
        ("{}", "not a record"),
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


def test_every_field_of_a_record_is_checked():
    assert archive.FIELDS.keys() == {field.name for field in fields(Record)} - {"maps"}


def frame(packed: bytes, **arrays) -> bytes:
    return zipped(parts(packed) | {"frames/000000.safetensors": save_arrays(arrays)})


def test_frames_must_fit_their_words(tmp_path, packed):
    import numpy as np

    right = np.zeros((1, 2, 7, 6), np.float16)  # six letters, and the end mark
    assert unpack(frame(packed, **{"0:cross": right}), tmp_path / "there").frame(0).keys() == {
        "0:cross"
    }
    (tmp_path / "not").mkdir()
    for name, array in (
        ("0:cross", right[:, :, :, :5]),
        ("0:cross", right[0]),
        ("0:cross", right.astype("float32")),
        ("0:other", right),
        ("9:cross", right),
        ("cross", right),
        ("0:cross", right[:, :1]),
    ):
        refused(frame(packed, **{name: array}), tmp_path / "not", "frames/00000")


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
    data = tampered(packed, tmp_path, change)
    refused(data, tmp_path, words)


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
