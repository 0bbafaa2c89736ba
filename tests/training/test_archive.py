"""A run goes out as a zip and comes back the same; whatever else comes is refused in words, and nothing stays."""

import io
import json
import re
import shutil
import struct
import time
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from core.claims import run as claim_run
from core.files import CORPORA, REPORTS, runs_folder, write_atomically
from core.interpret import corpus_run
from core.interpret.corpus import Corpus, CorpusConfig
from core.models import ModelConfig
from core.runs import archive
from core.runs.folder import RunFolder
from core.runs.runs import Run, create_run, discard, find_run, list_runs, open_run, prune
from core.runs.store import (
    Copier,
    Item,
    Store,
    StoreError,
    _copiers,
    bring,
    copy_now,
    forget,
    store,
)
from core.runs.sweeps import create_sweep, delete_sweep
from core.runs.worker import work
from core.tasks import TASKS, TaskConfig, make_task
from core.training import Record, prepare, recommended, train
from core.training.__main__ import main
from core.training.sweeps import SweepConfig
from dashboard.server import people
from dashboard.ui import export
from pages import sweeps
from tests.cases import each
from tests.training.small import (
    parts,
    record_numbers,
    refused,
    run_command,
    small_run,
    trained,
    zipped,
)


def test_a_run_comes_back_as_it_was_and_goes_on_training(tmp_path, packed):
    run = archive.unpack(packed, tmp_path)
    first = trained(tmp_path / "again")
    assert (run.config(), run.name, run.status().state) == (first.config(), "tiny", "finished")
    assert [*map(record_numbers, run.records())] == [*map(record_numbers, first.records())]
    assert run.frame_steps() == first.frame_steps()
    assert run.checkpoint_steps() == first.checkpoint_steps()
    for step in run.checkpoint_steps():
        tensors, _ = first.checkpoint(step)
        torch.testing.assert_close(run.checkpoint(step)[0], tensors, rtol=0, atol=0)
    assert run.metadata()["parent"] == {"run": "other", "step": 2} and list_runs(tmp_path) == [run]
    made = archive.pack(trained(tmp_path / "made", schedule="constant"))
    config = small_run(steps=8, schedule="constant")
    session = prepare(config)
    session.restore(*archive.unpack(made, tmp_path / "there").checkpoint(4))
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
    small = dict(steps=1, held_out=3, num_examples=2, record_every=1, batch_size=2)
    config = recommended(task, list(task.recommended)[-1], **small)
    run, session = create_run(config, tmp_path / "made"), prepare(config)
    run.append(next(train(config, session)))
    run.save_checkpoint(session, config)
    there = archive.unpack(archive.pack(run), tmp_path / "there")
    assert there.frame(0).keys() == run.frame(0).keys() and there.frame(0) and there.model()


def test_a_zip_of_the_folder_itself_is_taken_and_a_run_under_way_is_stopped(tmp_path, packed):
    changed = parts(packed) | {"status.json": b'{"state": "running", "pid": 1}'}
    run = archive.unpack(zipped(changed, "my run (2)/"), tmp_path)
    assert run.records() and run.id != "my run (2)"
    assert run.status().state == "stopped" and run.status().pid is None
    link = zipfile.ZipInfo("status.json")
    link.external_attr = 0o120777 << 16
    out = io.BytesIO(zipped({**parts(packed), "status.json": None}))
    with zipfile.ZipFile(out, "a") as file:
        file.writestr(link, "/etc/passwd")
    run = archive.unpack(out.getvalue(), tmp_path)
    assert not (run.path / "status.json").is_symlink() and run.status().state == "stopped"


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
        (lying, "cannot be read"),
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


def test_too_large_a_file_a_bomb_and_too_many_files_are_refused(tmp_path, packed, monkeypatch):
    bomb = zipped(parts(packed) | {"frames/000009.safetensors": bytes(3_000_000)})
    assert len(bomb) < 200_000
    monkeypatch.setattr(archive.shutil, "copyfileobj", lambda *_: pytest.fail("unpacked"))
    for name, most, data, words in (
        ("MAX_ZIPPED", 1_000, packed, "larger than"),
        ("MAX_UNPACKED", 2_000_000, bomb, "at most 2 MB are allowed"),
        ("MAX_FILES", 3, packed, "files; at most 3"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(archive, name, most)
            refused(data, tmp_path, words)


@pytest.mark.parametrize(
    "parent",
    [{"run": 1}, {"run": "a", "step": -1}, {"run": "a", "step": True}, {"run": "a", "step": 1e99}],
)
def test_only_known_words_are_kept(tmp_path, packed, parent):
    more = {"name": "n" * 999, "sweep": "x", "parent": parent, "pid": 1}
    metadata = json.loads(parts(packed)["run.json"]) | more
    changed = parts(packed) | {"run.json": json.dumps(metadata).encode()}
    run = archive.unpack(zipped(changed), tmp_path)
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


def test_tensorboard_reads_every_measurement_and_map_at_its_step_and_time(run, tmp_path, capsys):
    assert main(["tensorboard", str(run.path), str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "out")
    events, records = read(tmp_path / "out"), run.records()
    expected = {(tag, r.step): value for r in records for tag, value in archive.scalars(r).items()}
    shown = {
        (tag, event.step): event
        for tag in events.Tags()["scalars"]
        for event in events.Scalars(tag)
    }
    assert set(shown) == set(expected) and len(expected) > 30
    for at, value in expected.items():
        assert shown[at].value == pytest.approx(value, rel=1e-6), at
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


def test_no_weight_is_white_and_a_whole_one_black():
    one, other = np.eye(2, dtype=np.float32)[None, None], np.ones((1, 1, 1, 1), np.float32)
    (pixels,) = archive.heads_images({"0:self": one, "1:self": other}).values()
    assert pixels[2, 2] == 0 and pixels[2, -3] == 255 and pixels[0, 0] == 200


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


def test_files_are_not_mixed_and_an_empty_run_is_refused(run, tmp_path, capsys, monkeypatch):
    with zipfile.ZipFile(io.BytesIO(archive.tensorboard_zip(run))) as file:
        (name,) = file.namelist()
    assert re.fullmatch(r"four/events\.out\.tfevents\..*", name)
    archive.write_tensorboard(run, tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "wandb", None)  # an extra
    for command, words in (
        ("tensorboard", "has event files already"),
        ("wandb", 'pip install -r requirements.txt -e ".[wandb]"'),
    ):
        assert main([command, str(run.path), str(tmp_path)]) == 1
        assert words in capsys.readouterr().err
    empty = create_run(small_run(), path=tmp_path / "empty")
    with pytest.raises(ValueError, match="no measurements yet"):
        archive.write_tensorboard(empty, tmp_path / "none")


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


def test_a_run_is_copied_opened_elsewhere_and_continued_there(url, server, worker_here):
    red = server("red")
    run = create_run(small_run(steps=8), name="dear")
    work(run.path)
    assert (
        copy_now() == ""
        and red.waiting == 0
        and Item(red.root, "", run.id).manifest().server == "red"
    )

    blue = server("blue")
    (row,) = blue.elsewhere()
    assert list_runs() == [] and (row.id, row.name, row.server) == (run.id, "dear", "red")
    bring(run.id)
    (copied,) = list_runs()
    assert (
        files(copied) == files(run) and records(copied) == records(run) and blue.elsewhere() == []
    )
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


def test_only_what_is_new_is_written_and_what_is_thinned_is_deleted(copied, monkeypatch):
    red, run = copied
    written: list[str] = []
    write = Store.write

    def note(self: Store, name: str, data: bytes, new: bool = False) -> None:
        written.append(name)
        write(self, name, data, new)

    monkeypatch.setattr(Store, "write", note)
    copy_now()
    assert not written, "nothing changed"
    run.append(Record(5, loss=1.0))
    run.checkpoint_path(5).write_bytes(b"weights")
    run.checkpoint_path(2).unlink()
    run.set_status("running")
    copy_now()
    assert set(red.place.list(f"runs/{run.id}")) == set(files(run))
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
    with pytest.raises(StoreError, match=said):
        blue.take_over(copied)
    expire(red.place, run.id)
    blue.take_over(copied)
    copied.requeue()
    copied.append(Record(2, loss=1.0))
    copy_now()
    assert red.place.lease(run.id).binds("red")

    server("red")
    run.append(Record(2, loss=9.0))  # it was cut off, and trains on
    run.set_status("finished")
    copy_now()
    stored = red.place.read(f"runs/{run.id}/metrics.jsonl")
    assert stored == (copied.path / "metrics.jsonl").read_bytes(), (
        "what the other server has continued stays"
    )
    assert red.newest()[run.id].server == "blue" and red.place.lease(run.id).binds("red")


def test_while_the_store_is_away_training_goes_on_and_is_copied_later(
    memory, server, monkeypatch, worker_here
):
    red = server("red")
    run = create_run(small_run())
    with monkeypatch.context() as patch:

        def refuse(self, *_args, **_more):
            raise ConnectionError("no route")

        for name in ("find", "cat_file", "pipe_file", "rm"):
            patch.setattr(type(red.place.files), name, refuse)
        work(run.path)
        assert copy_now() == f"The store {red.place.label} cannot be reached (ConnectionError)."
        red.take_over(run)  # a run of one's own can be continued all the same
        with pytest.raises(StoreError, match="cannot be reached"):
            bring("20260101-000000-abcdef")
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


def test_what_is_deleted_leaves_the_store_once_it_cannot_be_restored(copied):
    red, run = copied
    discard(run)
    copy_now()
    assert red.place.list(f"runs/{run.id}") and red.elsewhere() == []
    shutil.rmtree(run.path.parent / ".deleted" / run.id)
    forget(run.path.parent, run.id)
    copy_now()
    assert red.place.list(f"runs/{run.id}") == {} and red.newest() == {}


@pytest.mark.parametrize(
    "index",
    [
        b"",
        b"[]",
        b'{"runs": 3}',
        b'{"runs": [1, {"id": "../x", "server": "", "owned": 0, "state": "", "at": 0}, {"id": 7}]}',
        b"\xff" * 9,
        b"[" * 99_999,
    ],
)
def test_a_broken_index_of_another_server_is_no_trouble(memory, server, index):
    red = server("red")
    red.place.write("servers/blue.json", index)
    assert copy_now() == "" and red.newest() == {}


def test_no_object_leads_out_of_the_folder(copied, server):
    red, run = copied
    for name in (".hidden", "..x", "frames/.a", "stop", "lock"):
        red.place.write(f"runs/{run.id}/{name}", b"data")
    server("blue")
    bring(run.id)
    assert files(list_runs()[0]) == files(run) and not (list_runs()[0].path / "stop").exists()


def test_an_address_that_cannot_be_used_says_so_without_its_password(monkeypatch):
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


def test_measurements_sweeps_and_reports_are_copied_and_opened_elsewhere(url, server):
    red = server("red")
    corpus = corpus_run.create(CorpusConfig("lab:induction", "texts", "the old man", kind="causal"))
    corpus_run.save_statistics(corpus, Corpus(texts=1, failed=[0]))
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

    blue = server("blue")
    assert [row.id for row in blue.elsewhere()] == [run.id], "Runs lists runs alone"
    assert blue.newest()[sweep.id].at == pytest.approx(sweep.path.stat().st_mtime)
    assert list(map(files, claim_run.find_group(claim.id).runs)) == list(map(files, claim.runs))
    found = people.find_run(corpus.id, CORPORA)
    assert files(found) == files(corpus) and corpus_run.load(found).texts == 1
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
    with pytest.raises(StoreError, match="blue trains this run"):
        red.take_over(corpus)
    delete_sweep(sweep)
    copy_now()
    assert red.place.list(f"sweeps/{sweep.id}") == {}


def test_of_two_servers_that_continue_a_run_at_once_one_does(url, server, monkeypatch):
    """Both have read that nobody holds the run, or that the last server's lease has run out, before either writes."""
    red = server("red").place
    blue = server("blue").place
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
