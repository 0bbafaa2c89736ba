"""The index of runs says what the folders say, whatever changed them, and whatever happened to its file."""

import json
import os
import shutil

import pytest

from core.runs import index as run_index
from core.runs.folder import JOURNAL, RunFolder
from core.runs.index import FILE, Details, list_statuses, open_index, unfinished
from core.runs.runs import prune


def made(root, number: int, state: str = "finished", **more) -> RunFolder:
    run = RunFolder(root / f"20260101-{number:06d}-abcdef")
    run.path.mkdir(parents=True)
    (run.path / "run.json").write_text(
        json.dumps({"config": {}, "created": 1.0, **more}), encoding="utf-8"
    )
    run.set_status(state)
    return run


@pytest.fixture(params=[0, 10**6], ids=["in a file", "in memory"])
def root(request, tmp_path, monkeypatch):
    """A folder of six runs, whose index is a file or in memory; a refresh compares one further run."""
    monkeypatch.setattr(run_index, "FEW", request.param)
    monkeypatch.setattr(run_index, "TURN", 1)
    for number in range(6):
        made(tmp_path, number, "queued" if number == 3 else "finished")
    assert unfinished(tmp_path) == ["20260101-000003-abcdef"]
    return tmp_path


def folders(root) -> dict[str, str]:
    """What a scan says."""
    runs = [RunFolder(path) for path in sorted(root.glob("2026*"))]
    return {run.id: run.status().state for run in runs if run.exists()}


def indexed(root) -> dict[str, str]:
    with open_index(root) as index:
        return dict(index.database.execute("SELECT id, state FROM runs ORDER BY id"))


def test_it_follows_what_the_lab_changes(root):
    assert (root / FILE).exists() == (run_index.FEW == 0)
    first, second = (
        RunFolder(root / "20260101-000000-abcdef"),
        RunFolder(root / "20260101-000001-abcdef"),
    )
    first.requeue()
    assert unfinished(root) == [first.id, "20260101-000003-abcdef"]
    second.update_metadata(name="mine")
    with open_index(root) as index:
        assert index.oldest_first()[-1] == second.id, "a name counts at once"
    made(root, 9, "failed")
    shutil.rmtree(second.path)
    # as a worker elsewhere does
    (root / "20260101-000003-abcdef" / "status.json").write_text(
        '{"state": "stopped"}', encoding="utf-8"
    )
    assert indexed(root) == folders(root)
    assert sorted(status.state for status in list_statuses(root)) == sorted(folders(root).values())


def test_what_another_program_changes_is_noticed_in_turn(root):
    (root / "20260101-000004-abcdef" / "status.json").write_text(
        '{"state": "paused", "at": 12.5}', encoding="utf-8"
    )
    (root / "20260101-000005-abcdef" / "run.json").unlink()
    for _ in range(8):
        indexed(root)
    assert indexed(root) == folders(root) and "20260101-000005-abcdef" not in indexed(root)


def test_a_broken_a_missing_and_an_old_file_are_read_anew(root):
    for spoil in (
        lambda path: path.write_bytes(b"no database" * 999),
        lambda path: path.unlink(missing_ok=True),
        lambda path: path.write_bytes(b""),
    ):
        spoil(root / FILE)
        assert indexed(root) == folders(root)


def test_a_folder_that_cannot_be_written_has_its_index_in_memory(root, monkeypatch):
    def refuse(_root):
        raise PermissionError("read-only")

    monkeypatch.setattr(run_index, "_load", refuse)
    assert indexed(root) == folders(root) and unfinished(root)


def test_a_long_journal_is_cut_and_a_cut_one_costs_nothing_but_time(root, monkeypatch):
    if run_index.FEW:
        return  # has no journal
    monkeypatch.setattr(run_index, "MOST_JOURNAL", 100)
    for _ in range(9):
        RunFolder(root / "20260101-000002-abcdef").set_status("paused")
    assert indexed(root) == folders(root) and (root / JOURNAL).stat().st_size == 0
    RunFolder(root / "20260101-000002-abcdef").set_status("stopped")
    indexed(root)
    (root / "20260101-000001-abcdef" / "status.json").write_text(
        '{"state": "failed"}', encoding="utf-8"
    )
    os.truncate(root / JOURNAL, 0)
    assert indexed(root) == folders(root), "all were compared"


def test_a_search_finds_words_and_ids_and_the_best_other_run(root):
    with open_index(root) as index:
        left = index.fill(
            lambda name: Details(
                f"run {int(name[9:15])} é", "copy", name, float(name[14]), 1.0, True
            )
        )
        assert (
            left == 0
            and index.search(["run", "é"]) == index.ids()
            and index.count(["run", "4"]) == 1
        )
        assert (
            index.search(["20260101-000002-abcdef"]) == ["20260101-000002-abcdef"]
            and index.search(["%"]) == []
        )
        assert index.search([], 1, 2) == ["20260101-000004-abcdef", "20260101-000003-abcdef"]
        assert index.best("copy", "20260101-000005-abcdef") == "20260101-000004-abcdef"
        assert (
            index.best("other", "") is None
            and index.first_measured(["3"]) == "20260101-000003-abcdef"
        )
    RunFolder(root / "20260101-000004-abcdef").set_status("failed")
    with open_index(root) as index:
        expected = ["20260101-000004-abcdef"] if run_index.FEW == 0 else index.ids()
        index.fill(lambda name: Details(f"again {name}"))
        assert index.search(["again"]) == expected, "what changed is described again, and no more"


def test_the_oldest_go_by_the_index(root):
    sizes = dict.fromkeys(folders(root), 10)
    with open_index(root) as index:
        assert index.sizes(lambda path: 10) == sizes
    prune(2, root)
    assert sorted(folders(root)) == ["20260101-000003-abcdef", "20260101-000005-abcdef"], (
        "what waits stays"
    )
    assert indexed(root) == folders(root)
