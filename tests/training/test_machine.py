"""A run names what its numbers depend on: threads, PyTorch, processor; and whether seconds ended it, not steps."""

import dataclasses
import re

import torch

from core.runs.archive import pack, unpack
from core.runs.machine import line, machine, valid
from core.runs.runs import Run, create_run
from core.runs.worker import _train
from core.tasks import TASKS, TaskConfig, make_task
from core.training import RunConfig, recommended
from core.training.__main__ import progress
from dashboard.runtime.run_data import summarize
from dashboard.views.runs import text as runs_words
from dashboard.views.train import text as train_words
from tests.cases import each
from tests.training.small import small_run

OTHER = {
    "threads": 4,
    "torch": "2.1.0+cpu",
    "device": "Another CPU",
    "capability": "NO AVX",
    "libraries": "MKL on",
}


def trained(path, **changes) -> tuple[Run, str]:
    run = create_run(small_run(**changes), path=path)
    return run, _train(run, lambda: False, lambda record: None)[1]


def test_a_run_records_where_it_trained_and_shows_it(tmp_path):
    torch.set_num_threads(1)
    run, _ = trained(tmp_path / "run")
    here = machine("cpu")
    assert run.metadata()["machines"] == [here]
    assert here["threads"] == 1 and here["torch"] == str(torch.__version__) and here["device"]
    words = line([here])
    assert (
        f"{here['device']} ({here['capability']}), 1 thread, PyTorch {torch.__version__.partition('+')[0]}"
        == words
    )
    assert words in runs_words.about(summarize(run))
    assert "1 thread, PyTorch" in train_words.pace(run.records()[-1], words)
    run.update_metadata(machines=[OTHER], config=small_run(steps=6).to_json())
    _train(run, lambda: False, lambda record: None)
    assert run.metadata()["machines"] == [OTHER, here]
    assert line(run.metadata()["machines"]).startswith(
        "Another CPU (NO AVX), 4 threads, PyTorch 2.1.0; then "
    )
    assert unpack(pack(run), tmp_path / "there").metadata()["machines"] == [OTHER, here]


def test_it_records_how_its_libraries_are_set(monkeypatch):
    """What moves the last bit of a sum, and so a run: another way of MKL's, or oneDNN left out."""
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert re.match(
        "MKL (on|off), oneDNN off, (.*, )?MKL_CBWR=COMPATIBLE(, |$)", machine("cpu")["libraries"]
    )
    before = {key: value for key, value in OTHER.items() if key != "libraries"}
    assert valid([before]) == [{**OTHER, "libraries": ""}], "a run of an older version"


@each(
    "data", [None, "x", [3], [{}], [{**OTHER, "threads": "4"}], [{**OTHER, "torch": 1}], {"a": 1}]
)
def test_what_is_no_machine_is_left_out(data):
    assert valid(data) == [] and line(data) == ""
    assert len(line([{**OTHER, "device": "x" * 10_000}])) < 200


def test_a_gpu_is_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA A100")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    assert line([machine("cuda")]).startswith("NVIDIA A100 (8.0), ")


def test_a_cap_on_seconds_that_ended_a_run_is_named(tmp_path):
    run, words = trained(
        tmp_path / "run", steps=20_000, seconds=1, record_every=50, finish_early=False
    )
    last = run.records()[-1]
    assert last.capped and "The time limit of 1 s ended it before step 20,000" in words
    assert "ended by the limit of 1 s" in progress(last, run.config())
    run, words = trained(tmp_path / "whole")
    assert not run.records()[-1].capped and "cap" not in words
    slow = dataclasses.replace(run.records()[-1], elapsed=1e4)
    assert "cap" not in progress(slow, run.config()), (
        "it made all of its steps, however long that took"
    )


def test_steps_alone_bound_every_recipe():
    for entry in TASKS:
        if any(param.key == "data" for param in entry.params):
            continue
        task = make_task(TaskConfig.of(entry.key))
        for kind in task.recommended:
            assert recommended(task, kind).seconds == RunConfig.seconds
