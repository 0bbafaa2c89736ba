"""Measurements, sweeps and reports in a store; and one lease for two servers."""

import pytest

from core.claims import run as claim_run
from core.claims.run import CELLS, ClaimConfig, find_group
from core.corpus import Corpus, CorpusConfig
from core.corpus import run as corpus_run
from core.corpus.run import load, save_statistics
from core.files import REPORTS, runs_folder, write_atomically
from core.runs.runs import create_run
from core.runs.store import Store, StoreError
from core.runs.store_sync import bring, copy_now
from core.runs.sweeps import create_sweep, delete_sweep
from core.training.sweeps import SweepConfig
from dashboard.runtime import reports
from dashboard.server import people
from dashboard.views.sweeps import compute
from tests.training.small import small_run
from tests.training.stores import expire, files, held_by


def test_measurements_sweeps_and_reports_are_copied_and_opened_elsewhere(url, server):
    red = server("red")
    corpus = corpus_run.create(CorpusConfig("lab:induction", "texts", "the old man", kind="causal"))
    save_statistics(corpus, Corpus(texts=1))
    corpus.set_status("stopped")
    claim = claim_run.create(ClaimConfig("iris", {"seeds": 2}), 2)
    for part in claim.runs:
        line = '{"condition": "mean", "seed": 0, "seconds": 1, "values": []}\n'
        (part.path / CELLS).write_text(line, encoding="utf-8")
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
    assert list(map(files, find_group(claim.id).runs)) == list(map(files, claim.runs))
    found = people.find_measurement(corpus.id)
    assert files(found) == files(corpus) and load(found).texts == 1
    linked = compute.linked(sweep.id)
    assert linked.data() == sweep.data() and [
        run.status().state for run in linked.runs().values()
    ] == ["paused"]
    assert reports.read_report(report.name[:16]) is None, "it is fetched, and is no report"
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
