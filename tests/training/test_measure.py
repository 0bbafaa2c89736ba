"""What a record waits for: free-running decodes come when they say something, and no more of them than are judged."""

import pytest

from core.tasks import TaskConfig, make_task
from core.training import evaluate, loop, recommended, train
from tests.training.small import small_run


@pytest.fixture
def told(monkeypatch) -> list[int]:
    """How many examples each free-running decode is asked for."""
    counts: list[int] = []

    def measured(model, task, examples, *rest):
        counts.append(len(examples))
        return evaluate.measure_free(model, task, examples, *rest)

    monkeypatch.setattr(loop, "measure_free", measured)
    return counts


def test_an_untrained_model_is_not_decoded_where_decodes_are_few(told):
    records = list(train(small_run(decode_every=2, finish_early=False)))
    assert [(r.step, r.exact is not None) for r in records[:-1]] == [(0, False), (2, False), (4, True)]
    assert told == [11, 1000]


def test_every_record_is_decoded_where_it_costs_little(told):
    records = list(train(small_run(finish_early=False)))
    assert all(r.exact is not None and r.examples for r in records) and len(told) == len(records)


def test_a_text_is_continued_for_the_watched_examples_alone(told):
    task = make_task(TaskConfig.of("own_text", length=16))
    record = next(train(recommended(task, held_out=20, watch=3, steps=1)))
    assert told == [3] and len(record.examples) == 3 and record.letters is not None
