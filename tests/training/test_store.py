"""Runs in a store: copied as they grow, opened and continued on another server, and kept from two writers."""

import json
import shutil
import time

import pytest

from core.claims import run as claim_run
from core.files import REPORTS, runs_folder, write_atomically
from core.interpret import corpus_run
from core.interpret.corpus import Corpus, CorpusConfig
from core.runs.folder import RunFolder
from core.runs.runs import Run, create_run, discard, find_run, list_runs, prune
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
from core.training import Record
from core.training.sweeps import SweepConfig
from dashboard.server import people
from dashboard.ui import export
from pages import sweeps
from tests.training.small import record_numbers, run_command, small_run


def files(run: RunFolder) -> dict[str, bytes]:
    return {
        str(path.relative_to(run.path)): path.read_bytes()
        for path in run.path.rglob("*.*")
        if not path.name.startswith(".") and path.is_file()
    }


def held_by(copies: Copier, run: RunFolder) -> str:
    lease = copies.place.lease(run.id)
    return lease.server if lease and lease.until > time.time() else ""


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
    """The server red, and a run that it has trained and copied."""
    red, run = server("red"), create_run(small_run())
    work(run.path)
    copy_now()
    assert set(red.place.list(f"runs/{run.id}")) == set(files(run))
    return red, run


def test_only_what_is_new_is_written_and_what_is_thinned_is_deleted(copied, monkeypatch):
    red, run = copied
    written: list[str] = []
    write = Store.write

    def note(self: Store, name: str, data: bytes) -> None:
        written.append(name)
        write(self, name, data)

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


def test_a_copied_run_may_leave_the_disk_and_comes_back(copied):
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


def test_what_is_deleted_leaves_the_store_once_it_cannot_be_restored(copied):
    red, run = copied
    discard(run)
    copy_now()
    assert red.place.list(f"runs/{run.id}") and red.elsewhere() == []
    shutil.rmtree(run.path.parent / ".deleted" / run.id)
    forget(run.path.parent, run.id)
    copy_now()
    assert red.place.list(f"runs/{run.id}") == {} and red.newest() == {}


def test_an_empty_disk_deletes_nothing_from_the_store(copied, server):
    red, run = copied
    shutil.rmtree(red.root)
    _copiers.clear()  # a new process on a new machine of the same name
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
    corpus_run.save_statistics(corpus, Corpus(texts=1))
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
    assert list(map(files, claim_run.find_group(claim.id).runs)) == list(map(files, claim.runs))
    found = people.find_measurement(corpus.id)
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
    assert copy_now() == "" and held_by(blue, found) == "blue"

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
