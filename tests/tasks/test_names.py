"""Sentences with two names, and with a verb after another noun: read again by their words, not by the task's code."""

import re

import pytest
import torch

from core.tasks import BOS, PAD, UNK, TaskConfig, make_task
from core.tasks.text import LONGEST, NAMES
from tests.cases import each

NAME = "|".join(NAMES)
GIVING = re.compile(
    rf"(?:when|after|while) ({NAME}) and ({NAME}) \w+ (?:to|at) the (?:\w+ )*?\w+ , ({NAME}) \w+ the "
    rf"(?:\w+ )*?\w+ to ({NAME}) \."
)
BEING = re.compile(
    r"the (?:\w+ )*?(\w+) (?:near|behind|beside|above|below|with) the (?:\w+ )*?(\w+) (is|are) \w+ \."
)


def lines(count=400, **params):
    task, generator = make_task(TaskConfig.of("names", **params)), torch.Generator().manual_seed(1)
    return task, [task.draw(generator, held_out=False) for _ in range(count)]


def test_the_last_name_is_the_one_that_does_not_act():
    seen = set()
    for _, words in lines(sentences="names")[1]:
        first, second, acts, last = GIVING.fullmatch(" ".join(words)).groups()
        assert first != second and {acts, last} == {first, second}
        seen.add(acts == first)
    assert seen == {True, False}, "either may act, so that no position tells"


def test_a_verb_agrees_with_its_subject_and_not_with_the_noun_before_it():
    seen = set()
    for _, words in lines(sentences="agreement")[1]:
        subject, other, verb = BEING.fullmatch(" ".join(words)).groups()
        assert (verb == "are") == subject.endswith("s")
        seen.add((verb, other.endswith("s")))
    assert len(seen) == 4, "the noun before the verb has either number"


def test_both_kinds_come_by_default_and_fit():
    task, examples = lines()
    kinds = [bool(GIVING.fullmatch(" ".join(words))) for _, words in examples]
    assert 0.4 < sum(kinds) / len(kinds) < 0.6
    assert max(len(words) for words, _ in examples) == LONGEST
    batch = task.collate(examples)
    assert UNK not in batch.source and (batch.source[:, 0] == BOS).all()
    assert torch.equal(batch.target_out == PAD, ~batch.source_mask)
    real = batch.source_mask[:, 1:]
    assert torch.equal(batch.source[:, 1:][real], batch.target_out[:, :-1][real])


@each(
    ("sentence", "words"),
    [
        ("when ann and ben went to the shop , ben gave the red book to", {"ann": "ann"}),
        ("the old dogs near the tree", {"are": "dogs"}),
    ],
)
def test_where_the_deciding_word_looks(sentence, words):
    task = make_task(TaskConfig.of("names"))
    ((answer, place),) = words.items()
    example = task.example(sentence)
    example = example._replace(target=(*example.source[1:], answer))
    places = task.places(example)
    assert [example.source[one] for one in places[-1]] == [place]
    assert not any(places[:-1])


def test_a_typed_sentence_is_read_word_by_word():
    task = make_task(TaskConfig.of("names"))
    assert task.example("The dogs near THE tree are").source == tuple(
        "<bos> the dogs near the tree are".split()
    )
    with pytest.raises(ValueError, match="at most"):
        task.example("the " * (LONGEST + 1))
