"""Runs in a store: copied as they grow, opened and continued on another server, and kept from two writers."""

import json
import shutil

import pytest

from core.runs import store_sync
from core.runs.runs import Run, create_run, discard, find_run, list_runs, prune
from core.runs.store import Item, Store, StoreError, store
from core.runs.store_sync import bring, copy_now, forget
from core.runs.worker import work
from core.training import Record
from tests.training.small import record_numbers, run_command, small_run
from tests.training.stores import expire, files, held_by


def records(run: Run) -> list[tuple]:
    return list(map(record_numbers, run.records()))


def test_a_run_is_copied_opened_elsewhere_and_continued_there(url, server, worker_here):
    red = server("red")
    run = create_run(small_run(steps=8), name="dear")
    work(run.path)
    assert (
        copy_now() == ""
        and red.waiting == 0
        and Item(red.root, "", run.id).read_manifest().server == "red"
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


def test_only_what_is_new_is_written_and_what_is_thinned_is_deleted(memory, server, monkeypatch):
    red = server("red")
    run = create_run(small_run())
    run.append(Record(0, loss=2.0))
    run.checkpoint_path(0).write_bytes(b"weights")
    run.checkpoint_path(2).write_bytes(b"weights")
    copy_now()
    assert set(red.place.list(f"runs/{run.id}")) == set(files(run))
    written: list[str] = []
    write = Store.write

    def note(self: Store, name: str, data: bytes) -> None:
        written.append(name)
        write(self, name, data)

    monkeypatch.setattr(Store, "write", note)
    copy_now()
    assert not written, "nothing changed"
    run.append(Record(4, loss=1.0))
    run.checkpoint_path(4).write_bytes(b"weights")
    run.checkpoint_path(2).unlink()
    run.set_status("running")
    copy_now()
    assert set(red.place.list(f"runs/{run.id}")) == set(files(run))
    names = [name.removeprefix(f"runs/{run.id}/") for name in written if name.startswith("runs/")]
    assert names == [
        "metrics.jsonl",
        "checkpoints/000004.safetensors",
        "run.json",
        "status.json",
    ], "the status last"


def test_one_server_trains_a_run(memory, server):
    red = server("red")
    run = create_run(small_run())
    run.append(Record(0, loss=2.0))
    run.set_status("running")
    copy_now()
    blue = server("blue")
    bring(run.id)
    (copied,) = list_runs()
    status = copied.status()
    assert status.state == "paused" and status.message == "It trains on red; this is a copy."
    with pytest.raises(
        StoreError,
        match=r"red trains this run\. Continue it once red has ended it, or \d\d s after",
    ):
        blue.take_over(copied)
    expire(red.place, run.id)
    blue.take_over(copied)
    copied.requeue()
    copied.append(Record(2, loss=1.0))
    copy_now()
    assert held_by(red, run) == "blue"

    server("red")
    run.append(Record(2, loss=9.0))  # it was cut off, and trains on
    run.set_status("finished")
    copy_now()
    stored = red.place.read(f"runs/{run.id}/metrics.jsonl")
    assert stored == (copied.path / "metrics.jsonl").read_bytes(), (
        "what the other server has continued stays"
    )
    assert red.newest()[run.id].server == "blue" and held_by(red, run) == "blue"


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


def test_a_copied_run_may_leave_the_disk_and_comes_back(memory, server, worker_here):
    red = server("red")
    run = create_run(small_run())
    work(run.path)
    copy_now()
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


def test_what_is_deleted_leaves_the_store_once_it_cannot_be_restored(memory, server, worker_here):
    red = server("red")
    run = create_run(small_run())
    work(run.path)
    copy_now()
    discard(run)
    copy_now()
    assert red.place.list(f"runs/{run.id}") and red.elsewhere() == []
    shutil.rmtree(run.path.parent / ".deleted" / run.id)
    forget(run.path.parent, run.id)
    copy_now()
    assert red.place.list(f"runs/{run.id}") == {} and red.newest() == {}


def test_an_empty_disk_deletes_nothing_from_the_store(memory, server, worker_here):
    red = server("red")
    run = create_run(small_run())
    work(run.path)
    copy_now()
    shutil.rmtree(red.root)
    store_sync._copiers.clear()  # a new process on a new machine of the same name
    again = server("red")
    assert copy_now() == "" and [row.id for row in again.elsewhere()] == [run.id]


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


def test_no_object_leads_out_of_the_folder(memory, server, worker_here, tmp_path):
    red = server("red")
    run = create_run(small_run())
    work(run.path)
    copy_now()
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
