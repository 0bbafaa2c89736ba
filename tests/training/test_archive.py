"""A run goes out as a zip and comes back the same; whatever else comes is refused in words, and nothing stays."""

import io
import json
import struct
import zipfile

import pytest
import torch

from core.models import ModelConfig
from core.runs import archive
from core.runs.archive import pack, unpack
from core.runs.runs import create_run, find_run, list_runs
from core.tasks import TASKS, TaskConfig, make_task
from core.training import prepare, recommended, train
from core.training.__main__ import main
from tests.training.small import record_numbers, small_run
from tests.training.zips import parts, refused, trained, zipped


def test_a_run_comes_back_as_it_was(tmp_path, packed):
    run = unpack(packed, tmp_path)
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
    run = unpack(pack(trained(tmp_path / "made", schedule="constant")), tmp_path / "there")
    config = small_run(steps=8, schedule="constant")
    session = prepare(config)
    session.restore(*run.checkpoint(4))
    whole = [record_numbers(r) for r in train(config)]
    assert record_numbers(next(train(config, session))) == whole[3], (
        "step 6 of a run that was never interrupted"
    )


def test_a_model_without_attention_comes_back(tmp_path):
    config = ModelConfig.recurrent(8, None)
    run = unpack(pack(trained(tmp_path / "made", model=config)), tmp_path / "there")
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
    there = unpack(pack(run), tmp_path / "there")
    assert (
        there.frame(0).keys() == run.frame(0).keys() and len(there.frame(0)) > 0 and there.model()
    )


def test_a_zip_of_the_folder_itself_is_taken(tmp_path, packed):
    run = unpack(zipped(parts(packed), "my run (2)/"), tmp_path)
    assert run.records() and run.id != "my run (2)"


def test_a_run_under_way_comes_back_stopped(tmp_path, packed):
    changed = parts(packed) | {"status.json": b'{"state": "running", "pid": 1}'}
    status = unpack(zipped(changed), tmp_path).status()
    assert status.state == "stopped" and status.pid is None


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


def test_files_beside_the_folder_are_refused(tmp_path, packed):
    out = io.BytesIO(packed)
    with zipfile.ZipFile(out, "a") as file:
        file.writestr("other/run.json", "{}")
    refused(out.getvalue(), tmp_path, "a zip holds one run")


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
    monkeypatch.setattr(archive, "MAX_UNPACKED", 2_000_000)
    monkeypatch.setattr(archive, "_write", lambda *_: pytest.fail("unpacked"))
    assert len(zipped(bomb)) < 200_000
    refused(zipped(bomb), tmp_path, "at most 2 MB are allowed")


def test_a_file_that_lies_about_its_size_is_refused(tmp_path, packed):
    data = zipped(parts(packed) | {"frames/000009.safetensors": bytes(3_000_000)})
    lie = data.replace(struct.pack("<L", 3_000_000), struct.pack("<L", 10))
    refused(lie, tmp_path, "cannot be read|unpacks to more")


def test_too_large_a_file_and_too_many_are_refused(tmp_path, packed, monkeypatch):
    monkeypatch.setattr(archive, "MAX_ZIPPED", 1_000)
    with pytest.raises(ValueError, match="larger than"):
        unpack(packed, tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr(archive, "MAX_FILES", 3)
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
    refused(
        zipped({k: v for k, v in parts(packed).items() if k != name}), tmp_path, f"has no {name}"
    )


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
    run = unpack(zipped(parts(packed) | {"run.json": json.dumps(metadata).encode()}), tmp_path)
    assert (
        run.metadata().keys() == {"config", "created", "uploaded", "name"} and len(run.name) == 80
    )


def test_of_too_many_checkpoints_the_last_goes(tmp_path, packed, monkeypatch):
    run = unpack(packed, tmp_path)
    sizes = {name: len(data) for name, data in parts(pack(run)).items()}
    one = sizes["checkpoints/000000.safetensors"]
    monkeypatch.setattr(archive, "MAX_UNPACKED", sum(sizes.values()) - one)
    steps = [name for name in parts(pack(run)) if name.startswith("checkpoints")]
    assert steps == ["checkpoints/000004.safetensors", "checkpoints/000002.safetensors"]
    monkeypatch.setattr(archive, "MAX_UNPACKED", one)
    with pytest.raises(ValueError, match="This run is larger"):
        pack(run)


def test_a_shell_packs_and_unpacks(tmp_path, packed, capsys):
    run = unpack(packed, tmp_path)
    assert main(["pack", str(run.path), str(tmp_path / "a.zip")]) == 0
    assert main(["unpack", str(tmp_path / "a.zip")]) == 0
    output = capsys.readouterr().out.splitlines()
    assert output[0] == str(tmp_path / "a.zip") and find_run(output[1]).records() == run.records()
    (tmp_path / "a.zip").write_bytes(b"nonsense")
    assert (
        main(["unpack", str(tmp_path / "a.zip")]) == 1
        and "cannot be read" in capsys.readouterr().err
    )
