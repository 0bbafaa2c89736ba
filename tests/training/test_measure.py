"""What a record waits for: free-running decodes come when they say something, and no more of them than are judged."""

import pytest
import torch

from core.decoding import EOS
from core.tasks import TaskConfig, make_task
from core.training import evaluate, loop, recommended, train
from core.training.evaluate import objective
from tests.training.small import small_run


@pytest.fixture
def decoded(monkeypatch) -> list[int]:
    """How many examples each free-running decode is asked for."""
    counts: list[int] = []

    def measured(model, task, examples, *rest):
        counts.append(len(examples))
        return evaluate.measure_free(model, task, examples, *rest)

    monkeypatch.setattr(loop, "measure_free", measured)
    return counts


def test_an_untrained_model_is_not_decoded_where_decodes_are_few(decoded):
    records = list(train(small_run(decode_every=2, finish_early=False)))
    assert [(r.step, r.exact is not None) for r in records[:-1]] == [
        (0, False),
        (2, False),
        (4, True),
    ]
    assert decoded == [11, 20]


def test_every_record_is_decoded_where_it_costs_little(decoded):
    records = list(train(small_run(finish_early=False)))
    assert all(r.exact is not None and r.examples for r in records) and len(decoded) == len(records)


def test_a_text_is_continued_for_the_watched_examples_alone(decoded):
    task = make_task(TaskConfig.of("own_text", length=16))
    record = next(train(recommended(task, held_out=20, watch=3, steps=1)))
    assert decoded == [3] and len(record.examples) == 3 and record.letters is not None


def test_long_targets_of_short_sources_are_read_to_their_end_and_cuts_are_counted():
    lines = [f"{n}\t" + "ab" * (1 + n % 6) for n in range(100, 160)]
    task = make_task(TaskConfig.of("own_pairs", data="\n".join(lines), unit="characters"))
    examples = task.held_out(1000)
    assert max(len(e.target) for e in examples) > 2 * 3 + 2, "longer than twice the source and two"

    class Knows:
        """Says the target of each source, which it has by heart; `ends` whether it also says the end mark."""

        training = one_length = False

        def __init__(self, ends: bool):
            self.answers = {
                e.source: task.target_vocab.encode(e.target) + [EOS if ends else 5] * 50
                for e in examples
            }

        def train(self, mode=True):
            return self

        eval = train

        def encode(self, source, mask):
            return [self.answers[tuple(task.source_vocab.decode(row))] for row in source.tolist()]

        def start(self, memory):
            return 0

        def step(self, memory, state, tokens):
            output = torch.tensor([row[state] for row in memory])
            return (
                torch.nn.functional.one_hot(output, len(task.target_vocab)).float(),
                state + 1,
                None,
            )

    for ends in (True, False):
        scores = objective(task).score(
            task, evaluate.measure_free(Knows(ends), task, examples, "cpu")
        )
        assert (scores["exact"], scores["cut"]) == ((1.0, 0) if ends else (0.0, len(examples)))
