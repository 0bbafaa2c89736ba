"""Rows of a table: split by class, scaled by what is trained on, missing cells out of attention's sight."""

from collections import Counter

import pytest
import torch

from core.models import ModelConfig, build_model
from core.tasks import TaskConfig, make_task
from core.tasks.base import split_sides
from core.tasks.tables import IRIS, Column, Table, TableTask, iris
from core.training import loop, recommended, train
from tests.cases import each

GAPS = Table(
    (Column("size"), Column("colour", ("blue", "red"))),
    tuple(
        (float(i), 1.0 + i % 2) if i % 5 else (None, 2.0) if i % 2 else (float(i), None)
        for i in range(40)
    ),
    tuple(i % 2 for i in range(40)),
    ("no", "yes"),
)


def gaps():
    return TableTask(TaskConfig.of("iris"), IRIS, GAPS)


def test_iris_is_scikit_learns():
    from sklearn.datasets import load_iris

    split, table = load_iris(), iris()
    assert [list(row) for row in table.rows] == split.data.tolist()
    assert (
        list(table.labels) == split.target.tolist()
        and list(table.classes) == split.target_names.tolist()
    )


def test_a_fifth_of_each_class_is_held_out_and_no_row_is_on_both_sides():
    task = make_task(TaskConfig.of("iris"))
    held, trained = task.held_out(1000), task.trained()
    assert len(held) + len(trained) == 150 and task.held_out(5) == held[:5]
    assert Counter(e.target for e in held) == {(0,): 10, (1,): 10, (2,): 10}
    assert not {e.source for e in held} & {e.source for e in trained}
    assert make_task(TaskConfig.of("iris", seed=1)).held_out(1000) != held


def test_equal_rows_stand_on_one_side():
    rows = [i // 2 for i in range(40)]
    split = split_sides(rows, [0] * 20 + [1] * 20, seed=3)
    assert not {rows[i] for i in split[True]} & {rows[i] for i in split[False]}
    assert sorted((*split[True], *split[False])) == list(range(40)) and len(split[True]) == 8


def test_numbers_are_scaled_by_what_is_trained_on_alone():
    task = make_task(TaskConfig.of("iris"))
    source = task.collate(task.trained()).source
    torch.testing.assert_close(source.mean(0), torch.zeros(4), atol=1e-5, rtol=0)
    torch.testing.assert_close(source.std(0, correction=0), torch.ones(4), atol=1e-5, rtol=0)
    assert task.collate(task.held_out(30)).source.mean(0).abs().max() > 1e-3


@each("kind", ["classifier", "one_token"])
def test_what_stands_in_a_missing_cell_changes_nothing(kind):
    task = gaps()
    batch = task.collate([e for e in (*task.trained(), *task.held_out(99)) if None in e.source])
    assert (~batch.source_mask).any(0).all(), "both a number and a category are missing somewhere"
    torch.manual_seed(0)
    model = build_model(ModelConfig.transformer(8, 2, kind=kind), task.shape).eval()
    other = torch.where(batch.source_mask, batch.source, 1.0)
    torch.testing.assert_close(
        model(batch.source, batch.source_mask).logits, model(other, batch.source_mask).logits
    )
    assert not torch.equal(batch.source, other)


def test_words_of_a_row_and_rows_that_are_typed():
    task = gaps()
    row = next(e for e in task.trained() if e.source == (1.0, 2.0))
    assert task.display_tokens(row) == (("size 1", "colour red"), ("yes",))
    assert task.example("3.5, blue").source == (3.5, 1.0) and task.example(",red").source == (
        None,
        2.0,
    )
    for typed, words in (
        ("3.5", "1 cells; this table has 2"),
        ("a,red", "size = 'a'; expected a number"),
        ("1,green", "colour = 'green'; expected one of blue, red"),
    ):
        with pytest.raises(ValueError, match=words):
            task.example(typed)
    assert task.shape.columns == (0, 3)


def test_a_batch_is_of_trained_rows_and_its_seed():
    task = make_task(TaskConfig.of("iris"))
    first, again = (task.batch(64, torch.Generator().manual_seed(4)) for _ in range(2))
    assert torch.equal(first.source, again.source)
    known = {tuple(row) for row in task.collate(task.trained()).source.tolist()}
    assert {tuple(row) for row in first.source.tolist()} <= known


def test_iris_is_learned_and_the_petals_are_looked_at(monkeypatch):
    monkeypatch.setattr(loop, "FINAL", 1000)
    records = list(
        train(recommended(make_task(TaskConfig.of("iris")), record_every=1000, steps=150))
    )
    assert records[-1].sequence_accuracy >= 0.85 and records[-1].held_out == 30
    assert records[-1].maps["0:self"].shape == (1, 4, 5, 5)
    assert records[-1].even == pytest.approx(2 / 5) and max(records[-1].expected[0]) > 0.5
    assert len([r for r in records if r.final]) == 1, "a small held-out set never ends the training"


def test_logistic_regression_stands_beside_it():
    name, share = make_task(TaskConfig.of("iris")).baseline()
    assert name == "logistic regression" and 0.85 <= share <= 1
