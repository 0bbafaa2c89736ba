"""A run goes out as a zip and comes back the same; whatever else comes is refused in words, and nothing stays."""

import io
import json
import struct
import zipfile
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save as save_arrays
from safetensors.torch import load_file, save_file

from core.models import ModelConfig
from core.tasks import TASKS, TaskConfig, make_task
from core.training import Record, Run, archive, checked, create_run, list_runs, prepare, recommended, train
from core.training.archive import pack, unpack
from tests.training.small import small_run


class Packed(bytes):
    def __repr__(self) -> str:
        return f"a zip of {len(self)} bytes"


@pytest.fixture(scope="module")
def packed(tmp_path_factory) -> bytes:
    """A small run that has really trained, as a zip."""
    torch.set_num_threads(1)
    run = trained(tmp_path_factory.mktemp("made"))
    return Packed(pack(run))


def trained(root: Path, **changes) -> Run:
    config = small_run(**changes)
    run, session = create_run(config, root, name="tiny", parent={"run": "other", "step": 2}), prepare(config)
    for _, record in zip(range(3), train(config, session), strict=False):  # the final one takes a second
        run.append(record)
        run.keep(session, config)
    run.set_status("finished", "Finished.")
    return run


def parts(packed: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(packed)) as file:
        return {name.split("/", 1)[1]: file.read(name) for name in file.namelist()}


def zipped(parts: dict[str, bytes], top: str = "") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in parts.items():
            file.writestr(top + name, data)
    return out.getvalue()


def refused(data: bytes, root: Path, words: str) -> None:
    """Refused with these words, and nothing is left of it."""
    with pytest.raises(ValueError, match=words):
        unpack(data, root)
    assert list(root.iterdir()) == []


def test_a_run_comes_back_as_it_was(tmp_path, packed):
    run = unpack(packed, tmp_path)
    first = trained(tmp_path / "again")
    assert run.config() == first.config() and run.name == "tiny" and run.status().state == "finished"
    assert [r.numbers() for r in run.records()] == [r.numbers() for r in first.records()]
    assert run.frame_steps() == first.frame_steps() and run.checkpoint_steps() == first.checkpoint_steps()
    for step in run.checkpoint_steps():
        tensors, text = run.checkpoint(step)
        assert all(torch.equal(value, first.checkpoint(step)[0][name]) for name, value in tensors.items())
    assert run.asked()["parent"] == {"run": "other", "step": 2} and list_runs(tmp_path) == [run]


def test_what_came_back_goes_on_training(tmp_path, packed):
    run = unpack(pack(trained(tmp_path / "made", schedule="constant")), tmp_path / "there")
    config = small_run(steps=8, schedule="constant")
    session = prepare(config)
    session.restore(*run.checkpoint(4))
    whole = [r.numbers() for r in train(config)]
    assert next(train(config, session)).numbers() == whole[3], "step 6 of a run that was never interrupted"


def test_a_model_without_attention_comes_back(tmp_path):
    config = ModelConfig.recurrent(8, None)
    run = unpack(pack(trained(tmp_path / "made", model=config)), tmp_path / "there")
    assert run.config().model == config and run.frame_steps() == [] and run.model()[0] is not None


@pytest.mark.parametrize("key", [entry.key for entry in TASKS])
def test_every_task_comes_back_with_its_maps(tmp_path, key):
    """What is kept of each form (pairs, text, a label, a series) has sizes of its own."""
    task = make_task(TaskConfig.of(key))
    config = recommended(task, list(task.recommended)[-1], steps=1, held_out=3, watch=2, record_every=1, batch_size=2)
    run = create_run(config, tmp_path / "made")
    session = prepare(config)
    run.append(next(train(config, session)))
    run.keep(session, config)
    there = unpack(pack(run), tmp_path / "there")
    assert there.frame(0).keys() == run.frame(0).keys() and len(there.frame(0)) > 0 and there.model()


def test_a_zip_of_the_folder_itself_is_taken(tmp_path, packed):
    run = unpack(zipped(parts(packed), "my run (2)/"), tmp_path)
    assert run.records() and run.id != "my run (2)"


def test_a_run_under_way_comes_back_stopped(tmp_path, packed):
    changed = parts(packed) | {"status.json": b'{"state": "running", "pid": 1}'}
    status = unpack(zipped(changed), tmp_path).status()
    assert status.state == "stopped" and status.pid is None


@pytest.mark.parametrize("name", [
    "../run.json", "/etc/passwd", "a/../../run.json", "frames/../../000000.safetensors", "a/b/run.json", "run.json/x",
    "frames/x.safetensors", "checkpoints/000000.pt", "frames\\000000.safetensors", "run.json\n", "evil.py", "stop",
    "frames/0000000.safetensors", "__MACOSX/._run.json",
])
def test_names_that_no_run_has_are_refused(tmp_path, packed, name):
    refused(zipped(parts(packed) | {name: b"x"}), tmp_path, "which no run has|it must be one run")
    assert not (tmp_path.parent / "run.json").exists()


def test_files_beside_the_folder_are_refused(tmp_path, packed):
    out = io.BytesIO(packed)
    with zipfile.ZipFile(out, "a") as file:
        file.writestr("other/run.json", "{}")
    refused(out.getvalue(), tmp_path, "it must be one run")


def test_one_name_twice_is_refused(tmp_path, packed):
    out = io.BytesIO(zipped(parts(packed)))
    with zipfile.ZipFile(out, "a") as file, pytest.warns(UserWarning, match="Duplicate"):
        file.writestr("run.json", "{}")
    refused(out.getvalue(), tmp_path, "more than once")


def test_a_link_becomes_no_link(tmp_path, packed):
    out = io.BytesIO(packed)
    link = zipfile.ZipInfo("status.json")
    link.external_attr = 0o120777 << 16
    changed = parts(packed)
    del changed["status.json"]
    out = io.BytesIO(zipped(changed))
    with zipfile.ZipFile(out, "a") as file:
        file.writestr(link, "/etc/passwd")
    run = unpack(out.getvalue(), tmp_path)
    assert not (run.path / "status.json").is_symlink() and run.status().state == "stopped"


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path, packed, monkeypatch):
    bomb = parts(packed) | {"frames/000009.safetensors": bytes(3_000_000)}
    monkeypatch.setattr(archive, "MOST_UNPACKED", 2_000_000)
    monkeypatch.setattr(archive, "_write", lambda *_: pytest.fail("unpacked"))
    assert len(zipped(bomb)) < 200_000
    refused(zipped(bomb), tmp_path, "at most 2 are taken")


def test_a_file_that_lies_about_its_size_is_refused(tmp_path, packed):
    data = zipped(parts(packed) | {"frames/000009.safetensors": bytes(3_000_000)})
    lie = data.replace(struct.pack("<L", 3_000_000), struct.pack("<L", 10))
    refused(lie, tmp_path, "cannot be read|unpacks to more")


def test_too_large_a_file_and_too_many_are_refused(tmp_path, packed, monkeypatch):
    monkeypatch.setattr(archive, "MOST_ZIPPED", 1_000)
    with pytest.raises(ValueError, match="larger than"):
        unpack(packed, tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr(archive, "MOST_FILES", 3)
    refused(packed, tmp_path, "files; at most 3")


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04 no zip", b"x" * 99])
def test_what_is_no_zip_is_refused(tmp_path, data):
    refused(data, tmp_path, "cannot be read")


def test_other_ways_of_packing_are_refused(tmp_path, packed):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_LZMA) as file:
        for name, data in parts(packed).items():
            file.writestr(name, data)
    refused(out.getvalue(), tmp_path, "other than deflate")


@pytest.mark.parametrize("name", ["run.json", "metrics.jsonl"])
def test_what_every_run_has_must_be_there(tmp_path, packed, name):
    refused(zipped({k: v for k, v in parts(packed).items() if k != name}), tmp_path, f"has no {name}")


@pytest.mark.parametrize("text", ["", "[]", "null", "{}", '{"config": {"steps": 1}}', "[" * 100_000, "\xff",
                                  '{"config": {"task": {"key": "nothing"}, "model": {}}}'])
def test_settings_that_are_none_are_refused(tmp_path, packed, text):
    refused(zipped(parts(packed) | {"run.json": text.encode("latin1")}), tmp_path, "does not describe a run")


@pytest.mark.parametrize("line, words", [
    ("{}", "no record"), ("[]", "no record"), ("nonsense", "no JSON"), ("[" * 100_000, "no JSON"),
    ('{"step": "0"}', "step"), ('{"step": -1}', "step"), ('{"step": 0, "loss": "<script>"}', "loss"),
    ('{"step": 0, "loss": Infinity}', "loss"), ('{"step": 0, "more": 1}', "has no more"),
    ('{"step": 0, "expected": [[1], [1, 2]]}', "expected"), ('{"step": 0, "gradients": {"a": "b"}}', "gradients"),
    ('{"step": 0, "examples": [{"source": ["a"], "target": "b", "predicted": []}]}', "examples"),
    ('{"step": 0, "buckets": [{"lengths": 1, "count": 1, "exact": 1, "bleu": null}]}', "buckets"),
    ('{"step": 3}\n{"step": 2}', "comes after"), ('{"step": true}', "step"),
    ('{"step": 0, "held_out": 0.5}', "held_out"),
])
def test_records_that_cannot_be_are_refused(tmp_path, packed, line, words):
    only = {"run.json": parts(packed)["run.json"], "metrics.jsonl": line.encode()}
    refused(zipped(only), tmp_path, f"metrics.jsonl, line .*{words}")


def test_every_field_of_a_record_is_checked():
    assert checked.FIELDS.keys() == {field.name for field in fields(Record)} - {"maps"}


def frame(packed: bytes, **arrays) -> bytes:
    return zipped(parts(packed) | {"frames/000000.safetensors": save_arrays(arrays)})


def test_frames_must_fit_their_words(tmp_path, packed):
    import numpy as np
    right = np.zeros((1, 2, 7, 6), np.float16)  # six letters, and the end mark
    assert unpack(frame(packed, **{"0:cross": right}), tmp_path / "there").frame(0).keys() == {"0:cross"}
    (tmp_path / "not").mkdir()
    for name, array in (("0:cross", right[:, :, :, :5]), ("0:cross", right[0]), ("0:cross", right.astype("float32")),
                        ("0:other", right), ("9:cross", right), ("cross", right), ("0:cross", right[:, :1])):
        refused(frame(packed, **{name: array}), tmp_path / "not", "frames/00000")


def tampered(packed: bytes, tmp_path: Path, change) -> bytes:
    path = tmp_path / "weights.safetensors"
    path.write_bytes(parts(packed)["checkpoints/000004.safetensors"])
    with checked.safe_open(path, "pt") as file:
        text = dict(file.metadata())
    tensors = load_file(path)
    change(tensors, text)
    save_file(tensors, path, text)
    data = path.read_bytes()
    path.unlink()
    return zipped(parts(packed) | {"checkpoints/000004.safetensors": data})


@pytest.mark.parametrize("change, words", [
    (lambda tensors, text: tensors.pop("model.output.weight"), "has no model.output.weight"),
    (lambda tensors, text: tensors.update({"model.output.weight": torch.zeros(3)}), "expected"),
    (lambda tensors, text: tensors.update({"model.more": torch.zeros(3)}), "no such tensor"),
    (lambda tensors, text: tensors.update({"optimizer.999.step": torch.zeros(())}), "no such tensor"),
    (lambda tensors, text: tensors.update({"optimizer.0.exp_avg": torch.zeros(1)}), "expected"),
    (lambda tensors, text: tensors.pop("generator.data"), "random generators"),
    (lambda tensors, text: text.update(step="5"), "is of step 5"),
    (lambda tensors, text: text.update(step="x"), "how far"),
    (lambda tensors, text: text.update(optimizer="evil"), "optimizer evil"),
])
def test_weights_that_do_not_fit_are_refused(tmp_path, packed, change, words):
    data = tampered(packed, tmp_path, change)
    refused(data, tmp_path, words)


@pytest.mark.parametrize("data", [b"", b"\xff" * 8, struct.pack("<Q", 2) + b"{}", struct.pack("<Q", 10**12) + b"{}",
                                  struct.pack("<Q", 9) + b'{"a": [1]'])
def test_broken_headers_are_refused(tmp_path, packed, data):
    refused(zipped(parts(packed) | {"checkpoints/000002.safetensors": data}), tmp_path, "checkpoints/000002")


def test_only_known_words_are_kept(tmp_path, packed):
    asked = json.loads(parts(packed)["run.json"]) | {"name": "n" * 999, "sweep": "x", "parent": {"run": 1}, "pid": 1}
    run = unpack(zipped(parts(packed) | {"run.json": json.dumps(asked).encode()}), tmp_path)
    assert run.asked().keys() == {"config", "created", "uploaded", "name"} and len(run.name) == 80


def test_of_too_many_checkpoints_the_last_goes(tmp_path, packed, monkeypatch):
    run = unpack(packed, tmp_path)
    sizes = {name: len(data) for name, data in parts(pack(run)).items()}
    one = sizes["checkpoints/000000.safetensors"]
    monkeypatch.setattr(archive, "MOST_UNPACKED", sum(sizes.values()) - one)
    kept = [name for name in parts(pack(run)) if name.startswith("checkpoints")]
    assert kept == ["checkpoints/000004.safetensors", "checkpoints/000002.safetensors"]
    monkeypatch.setattr(archive, "MOST_UNPACKED", one)
    with pytest.raises(ValueError, match="This run is larger"):
        pack(run)


@given(st.integers(0, 10**6), st.binary(min_size=1, max_size=8))
def test_bytes_changed_anywhere_never_crash(packed, tmp_path_factory, at, put):
    root = tmp_path_factory.mktemp("fuzz")
    at %= len(packed)
    try:
        run = unpack(packed[:at] + put + packed[at + len(put):], root)
    except ValueError:
        assert list(root.iterdir()) == []
    else:
        assert run.config() and run.records() and run.model()


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(max_size=5) | st.integers(),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
                        st.sampled_from(["config", "task", "model", "key", "params", "attention", "kind", "steps"]),
                        inner, max_size=4)))
def test_any_settings_are_taken_or_refused_in_words(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("fuzz") / "run.json"
    path.write_text(json.dumps({"config": data}))
    with pytest.raises(ValueError, match="run.json does not describe a run"):
        checked.config(path)
