"""What every task of TASKS promises, found from the entries; made-up tasks show that the checks see what is broken."""

import pytest
import torch

from core.models import ModelConfig
from core.tasks import TASKS, Task, TaskConfig, TaskEntry, Vocabulary
from core.tasks.base import Example, choose
from core.tasks.recipes import Recipe
from core.training.config import recommended
from tests.cases import each

LETTERS = tuple("abcdefgh")


def rows(batch):
    """The items of a batch by what is read: the real tokens, numbers or patches of each source."""
    return [
        tuple(source[mask].flatten().tolist())
        for source, mask in zip(batch.source, batch.source_mask, strict=True)
    ]


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def check_task(entry: TaskEntry) -> None:
    """AssertionError where a task, with its defaults, breaks what pages and runs rely on."""
    assert all(len(text) > 20 for text in (entry.meaning, entry.look)) and entry.name
    task = entry.build(
        TaskConfig(entry.key, tuple((param.key, param.default) for param in entry.params))
    )
    batch = task.batch(16, seeded(1))
    assert torch.equal(batch.source, task.batch(16, seeded(1)).source), (
        "the seed decides every batch"
    )
    assert rows(batch) != rows(task.batch(16, seeded(2)))
    held = task.held_out(7)
    assert held == task.held_out(7), "held-out items are fixed"
    assert task.finite or len(set(held)) == 7, "and all different, but for equal rows of a table"
    hidden = set(rows(task.collate(held)))
    seen = {row for seed in range(4) for row in rows(task.batch(64, seeded(seed)))}
    assert not hidden & seen, "nothing that is held out is trained on"
    assert task.collate(held).source.shape[1] <= task.max_source + 1
    for example in held:
        places = task.places(example)
        inside = places is None or all(
            0 <= place < len(example.source) for each in places for place in each
        )
        assert inside, "an expected position is one of the source"
    assert task.recommended
    for kind in task.recommended:
        assert recommended(task, kind).model.kind == kind


@each("entry", TASKS)
def test_every_task_keeps_its_promises(entry):
    check_task(entry)


class Doubled(Task):
    """Each letter twice; a source whose letters' sum divides by ten is held out."""

    def __init__(self, config, entry):
        super().__init__(config, entry)
        self.source_vocab = self.target_vocab = Vocabulary(LETTERS)
        self.max_source, self.max_target = 6, 12
        model = ModelConfig.transformer(d_model=16, num_heads=2, layers=1, d_ff=16).to_json()
        self.recommended = {"transformer": Recipe(model, 10, 8, 1e-3)}

    def draw(self, generator, held_out):
        while True:
            numbers = [choose(generator, len(LETTERS)) for _ in range(6)]
            if self.is_hidden(numbers) == held_out:
                source = tuple(LETTERS[number] for number in numbers)
                return Example(source, tuple(letter for letter in source for _ in range(2)))

    def is_hidden(self, numbers):
        return sum(numbers) % 10 == 0

    def places(self, example):
        return tuple((place // 2,) for place in range(2 * len(example.source)))


class Leaking(Doubled):
    def draw(self, generator, held_out):
        leaks = not held_out and choose(generator, 2)
        return self.held_out(1)[0] if leaks else super().draw(generator, held_out)


class Unseeded(Doubled):
    def batch(self, batch_size, generator):
        return super().batch(batch_size, torch.Generator().manual_seed(torch.seed() % 2**32))


class Misplaced(Doubled):
    def places(self, example):
        return ((len(example.source),),) * len(example.target)


def entry_of(task):
    entry = TaskEntry(
        "doubled",
        "Doubled",
        "Write each letter of the source twice.",
        "Each output attends to the letter that it repeats.",
        lambda config: task(config, entry),
    )
    return entry


def test_a_made_up_task_keeps_them_too(monkeypatch):
    monkeypatch.setattr("core.tasks.TASKS", (*TASKS, entry_of(Doubled)))
    check_task(entry_of(Doubled))


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (Leaking, "held out is trained on"),
        (Unseeded, "the seed decides"),
        (Misplaced, "is one of the source"),
    ],
)
def test_what_a_broken_task_breaks_is_seen(monkeypatch, task, words):
    monkeypatch.setattr("core.tasks.TASKS", (*TASKS, entry_of(task)))
    with pytest.raises(AssertionError, match=words):
        check_task(entry_of(task))
