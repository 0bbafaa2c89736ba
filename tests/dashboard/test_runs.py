"""What the list of runs says of each, what a search finds, and what the link picks; and the runs that come along."""

import json
import os
import time
from typing import Any

import pytest
import torch

from core.models import ModelConfig
from core.runs.archive import pack, unpack
from core.runs.runs import create_run
from core.tasks import TaskConfig
from core.training import Record
from dashboard.draw.formats import percent
from dashboard.ui.run_data import (
    EXAMPLE_RUNS,
    find_any_run,
    list_summaries,
    load_board,
    rival,
    status_of,
    summarize,
)
from pages import runs
from pages.runs import longer
from tests.cases import each
from tests.training.small import small_run


def made(name: str | None = None, exact: float | None = None, trained: float = 1.0, **changes):
    run = create_run(small_run(**changes), **dict[str, Any](name=name) if name else {})
    run.append(Record(0, loss=2.0))
    run.append(Record(4, loss=1.0, sequence_accuracy=exact, train_seconds=trained, held_out=11))
    run.set_status("finished", "Finished.")
    return run


@pytest.mark.parametrize("example", EXAMPLE_RUNS, ids=lambda run: run.id)
def test_a_kept_example_has_learned_and_can_be_used(example, tmp_path):
    records = example.records()
    assert records[-1].final and records[-1].sequence_accuracy >= 0.99
    assert example.frame_steps() == sorted({record.step for record in records})
    model, task = example.model()
    batch = task.collate(task.held_out(50))
    with torch.no_grad():
        prediction = model(batch.source, batch.source_mask, batch.target_in).logits.argmax(-1)
    real = batch.target_out != 0
    assert (prediction == batch.target_out)[real].float().mean() > 0.99, (
        "the kept weights still fit the code"
    )
    assert unpack(pack(example), tmp_path).records() == records


def test_both_examples_learn_one_task_and_are_found_by_link():
    first, second = EXAMPLE_RUNS
    assert (
        first.config().task == second.config().task
        and first.config().model != second.config().model
    )
    assert find_any_run("example_recurrent") == second and find_any_run("example_run/..") is None
    assert status_of(first).ended


def test_a_summary_follows_its_folder():
    run = made(exact=0.5)
    first = summarize(run)
    assert (first.steps, first.loss, first.last.sequence_accuracy, first.curve, first.named) == (
        4,
        1.0,
        0.5,
        (2.0, 1.0),
        False,
    )
    assert first is summarize(run), "nothing changed, so nothing is read again"
    run.append(Record(8, loss=0.5, sequence_accuracy=0.75))
    run.update_metadata(name="mine")
    os.utime(run.path / "metrics.jsonl", (time.time() + 1,) * 2)
    second = summarize(run)
    assert (second.steps, second.name, second.named) == (
        8,
        "mine",
        True,
    ) and second.bytes > first.bytes


def test_a_run_that_cannot_be_read_says_so():
    run = made()
    (run.path / "run.json").write_text(
        json.dumps({"config": {"task": 1}, "created": "x"}), encoding="utf-8"
    )
    item = summarize(run)
    assert "cannot be read" in item.trouble and item.created == 0 and item.name == "unreadable"
    assert runs.about_text(item) and runs.result_text(item) and runs.state(item)


@each(
    "query, names",
    [
        ("", {"dear", "slow", "no"}),
        ("DEAR", {"dear"}),
        ("recurrent", {"slow", "no"}),
        ("recurrent additive", {"slow"}),
        ("reverse no attention", {"no"}),
        ("finished", {"dear", "slow", "no"}),
        ("seed 7", {"dear"}),
        ("nothing", set()),
    ],
)
def test_a_search_wants_every_word(query, names):
    made("dear", seed=7)
    made("slow", model=ModelConfig.recurrent(8, "additive"))
    made("no", model=ModelConfig.recurrent(8, None))
    mine = [item for item in load_board(query, ()).rows(1) if not item.example]
    assert {item.name for item in mine} == names


def test_the_fact_names_the_best_other_run_of_the_task():
    made("other task", 1.0, task=TaskConfig.of("copy", length=6, vocab=12))
    made("same settings", 1.0)
    made("worse", 0.25, seed=1)
    made("better", 0.75, seed=2)
    first = made("first", 0.5, trained=3.0)
    fact = runs.fact_text([summarize(first)], list_summaries())
    assert (
        "**50\u00a0% accuracy** after 4 steps, 3\u00a0s" in fact and "**better** reaches 75" in fact
    )
    assert (
        rival(summarize(made("alone", task=TaskConfig.of("copy", length=5))), list_summaries())
        is None
    )


@each("share, percentage", [(0, "0 %"), (1, "100 %"), (0.9996, "99.96 %"), (0.0004, "0.04 %")])
def test_only_all_is_called_all(share, percentage):
    assert percent(share).replace("\u00a0", " ") == percentage


def test_a_fork_goes_on_for_as_long_again():
    config = small_run(max_seconds=60.0)
    forked = longer(config, 9, 20.0, learning_rate=1e-3)
    assert (forked.steps, forked.max_seconds, forked.learning_rate, forked.finish_early) == (
        9,
        100.0,
        1e-3,
        False,
    )
    assert forked.model == config.model and forked.task == config.task
