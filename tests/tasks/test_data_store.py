"""A person's own long data: stored once by its checksum, referred to by settings, and whole in every run's folder."""

import json
import os
import shutil
import time
from dataclasses import replace

import pytest

from core.entries import ConfigError
from core.runs.archive import pack, unpack
from core.runs.runs import Run, create_run, duplicate, prune
from core.runs.worker import work
from core.tasks import TaskConfig, make_task, reading
from core.tasks.own import OwnPairs
from core.training import recommended
from core.training.__main__ import main
from core.training.sweeps import SweepConfig
from tests.cases import instance
from tests.tasks.grammar import sentence_pairs

DATA = sentence_pairs(400)
SMALL = dict(steps=2, record_every=1, batch_size=4, held_out=6, num_examples=1)


@pytest.fixture(autouse=True)
def runs(monkeypatch, tmp_path):
    monkeypatch.setattr("core.training.loop.FINAL", 6)
    monkeypatch.setenv("ATTENTION_LAB_RUNS", str(tmp_path / "runs"))
    reading._run_files.clear()
    reading._read.cache_clear()
    return tmp_path / "runs"


@pytest.fixture
def task():
    return TaskConfig.of("own_pairs", data=reading.put(DATA))


def forget(folder):
    """The store as another machine has it: empty."""
    shutil.rmtree(folder / ".data")
    reading._run_files.clear()
    reading._read.cache_clear()


def test_a_reference_is_the_text_and_the_same_text_has_the_same_one(task):
    reference = reading.put(DATA)
    assert reference == task["data"] and reading.read(reference) == DATA
    by_reference, inline = (
        instance(make_task(config), OwnPairs)
        for config in (task, TaskConfig.of("own_pairs", data=DATA))
    )
    assert by_reference.pairs == inline.pairs and by_reference.notes == inline.notes


def test_what_is_stored_is_refused_in_words_when_it_is_gone_or_changed(task, runs):
    with pytest.raises(ConfigError, match="not on this machine"):
        TaskConfig.of("own_text", data="sha256:" + "0" * 64)
    reading._read.cache_clear()
    reading.path_of(str(task["data"])).write_text("something else", encoding="utf-8")
    with pytest.raises(ConfigError, match="was changed"):
        make_task(replace(task, seed=1))


def test_a_run_is_whole_without_the_store(task, runs):
    run = create_run(recommended(make_task(task), "transformer", **SMALL))
    assert (run.path / "run.json").stat().st_size < 5_000
    forget(runs)
    assert work(run.path) == "finished", run.status().message
    copied = duplicate(run, "copy")
    came = unpack(pack(run), runs)
    shutil.rmtree(run.path)
    reading._run_files.clear()
    reading._read.cache_clear()
    for other in (copied, came):
        assert (
            Run(other.path).config() == run_config(other)
            and instance(other.model()[1], OwnPairs).pairs.trained
        )
        assert reading.read(str(other.config().task["data"])) == DATA


def run_config(run):
    return Run(run.path).config()


def test_a_zip_whose_data_is_not_what_it_says_is_refused(task, runs):
    run = create_run(recommended(make_task(task), "transformer", **SMALL))
    work(run.path)
    path = next((run.path / "data").glob("*.txt"))
    path.unlink()
    path.write_text(DATA + "one more\tline\n", encoding="utf-8")
    zipped = pack(run)
    forget(runs)
    shutil.rmtree(run.path)
    with pytest.raises(ValueError, match="was changed"):
        unpack(zipped, runs)


def test_text_too_long_for_a_setting_is_stored_when_a_run_is_made(monkeypatch, runs):
    monkeypatch.setattr(reading, "INLINE", 1_000)
    config = recommended(make_task(TaskConfig.of("own_pairs", data=DATA)), "transformer", **SMALL)
    run = create_run(config)
    assert reading.is_reference(run.config().task["data"])
    assert reading.read(str(run.config().task["data"])) == DATA == config.task["data"]


def test_old_runs_with_their_data_inline_are_read(runs):
    config = recommended(
        make_task(TaskConfig.of("own_pairs", data=DATA, unit="words")), "transformer", **SMALL
    )
    run = create_run(config)
    assert (
        json.loads((run.path / "run.json").read_text(encoding="utf-8"))["config"]["task"]["params"][
            "data"
        ]
        == DATA
    )
    assert run.config() == config and not (run.path / "data").exists()


def test_a_sweep_and_the_shell_refer_to_it(monkeypatch, runs, tmp_path, capsys):
    monkeypatch.setattr(reading, "INLINE", 1_000)
    (tmp_path / "my.tsv").write_text(DATA, encoding="utf-8")
    assert main(["recipe", "own_pairs", "--data", str(tmp_path / "my.tsv")]) == 0
    printed = capsys.readouterr().out
    assert len(printed) < 5_000
    (tmp_path / "mine.json").write_text(json.dumps(json.loads(printed) | SMALL), encoding="utf-8")
    assert main(["train", str(tmp_path / "mine.json"), str(tmp_path / "run")]) == 0
    run = Run(tmp_path / "run")
    sweep = SweepConfig(run.config(), "score", ("scaled_dot", "additive"), seeds=(0, 1))
    assert len(json.dumps(sweep.to_json())) < 8_000
    cell = create_run(SweepConfig.from_json(sweep.to_json()).run(1, 1))
    forget(runs)
    assert reading.read(str(cell.config().task["data"])) == DATA


def test_data_that_no_run_has_goes_after_a_day(task, runs):
    used = create_run(recommended(make_task(task), "transformer", **SMALL))
    unused = reading.path_of(reading.put("unused"))
    fresh = reading.path_of(reading.put("fresh"))
    past = time.time() - 2 * reading.UNUSED
    for path in (reading._stored(str(task["data"])), unused):
        os.utime(path, (past, past))
    prune()
    assert (
        fresh.exists()
        and not unused.exists()
        and reading._stored(str(task["data"])).exists()
        and used.exists()
    )
