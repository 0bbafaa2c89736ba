"""The best weights: kept beside the last ones, measured at the end, and what a run's pages take."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from core.runs.archive import pack, unpack
from core.runs.runs import create_run
from core.runs.worker import work
from core.training import evaluate, loop, prepare, train
from tests.training.small import small_run

LOSSES = [3.0, 2.0, 1.0, 1.5, 1.7, 1.6, 9.0, 9.0]  # of steps 0, 2, 4, …


@pytest.fixture
def scripted(monkeypatch):
    """Held-out losses that fall to step 4 and then rise, and the weights that each was measured with."""
    measured: list[dict[str, torch.Tensor]] = []

    def given(model, *rest):
        measured.append({name: value.clone() for name, value in model.state_dict().items()})
        return replace(
            evaluate.measure_teacher_forced(model, *rest), loss=LOSSES[len(measured) - 1]
        )

    monkeypatch.setattr(loop, "measure_teacher_forced", given)
    return measured


def same(a, b):
    return all(torch.equal(a[name], b[name]) for name in a)


def test_the_final_record_measures_the_best_weights_and_the_session_keeps_its_last(scripted):
    config = small_run(steps=20, keep_best=True, patience=3)
    session = prepare(config)
    records = list(train(config, session))
    assert [r.step for r in records] == [0, 2, 4, 6, 8, 10, 10], (
        "three records without a smaller loss end it"
    )
    assert records[-1].final and records[-1].best == 4
    assert same(scripted[-1], scripted[2]) and not same(scripted[2], scripted[5])
    assert same(session.model.state_dict(), scripted[5]), "it could go on from where it was"


def test_without_it_the_last_weights_count(scripted):
    last = list(train(small_run(steps=20, patience=3)))[-1]
    assert last.best is None and same(scripted[-1], scripted[5])


def test_a_run_keeps_its_best_checkpoint_and_its_model_is_that_one(scripted, tmp_path):
    run = create_run(small_run(steps=20, keep_best=True, patience=3), path=tmp_path / "run")
    assert work(run.path) == "finished"
    assert "smallest at step 4" in run.status().message
    assert {4, 10} <= set(run.checkpoint_steps()) and run.default_step() == 4
    assert same(run.model()[0].state_dict(), scripted[2]) and same(
        run.model(10)[0].state_dict(), scripted[5]
    )
    copied = unpack(pack(run), tmp_path)
    assert copied.default_step() == 4 and copied.records()[-1].best == 4


def test_it_goes_on_with_its_best_after_a_pause(scripted, tmp_path):
    run = create_run(small_run(steps=6, keep_best=True), path=tmp_path / "run")
    work(run.path)
    run.update_metadata(config=replace(run.config(), steps=10).to_json())
    run.requeue()
    del scripted[5:]
    assert work(run.path) == "finished"
    assert run.records()[-1].best == 4 and run.default_step() == 4


def test_the_final_figures_are_of_items_that_did_not_choose_the_weights():
    config = small_run(keep_best=True)
    session = prepare(config)
    chose = set(session.held_out)
    assert chose and not chose & set(loop.final_examples(session))
    assert chose <= set(loop.final_examples(prepare(small_run())))


def test_the_final_items_are_others_than_those_that_chose_the_weights_as_long_as_there_are_as_many():
    def items(there: int, chose: int) -> list[int]:
        session: Any = SimpleNamespace(
            task=SimpleNamespace(held_out=lambda n: tuple(range(min(n, there)))),
            held_out=range(chose),
            config=SimpleNamespace(keep_best=True),
        )
        examples: Any = loop.final_examples(session)
        return list(examples)

    assert items(8, 4) == [4, 5, 6, 7]
    assert items(7, 4) == [0, 1, 2, 3, 4, 5, 6], "three others are too few"
