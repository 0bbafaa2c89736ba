"""Language models: windows whose next token is asked, a held-out part that is nowhere in what is learned."""

import math
import re

import pytest
import torch

from core.entries import ConfigError
from core.models import ModelConfig, build_model
from core.tasks import BOS, EOS, PAD, UNK, Example, TaskConfig, make_task
from core.tasks.base import is_held_out
from core.tasks.own import SONNETS
from core.tasks.text import COMMON, LONGEST, NAMES, Corpus, TextTask, split, topics
from core.training import recommended, train
from core.training.evaluate import bits_by_length, measure_teacher_forced
from tests.cases import each, instance


def test_characters_and_words():
    assert split("I'm\nhere ", "characters") == ["I", "'", "m", "↵", "h", "e", "r", "e", " "]
    assert split("I'm\nhere, né ", "words") == ["I", "'", "m", "↵", "here", ",", "né"]


def test_the_reference_is_cut_by_topic():
    from pydoc_data.topics import topics as found

    corpus = topics("characters")
    held = [
        text.strip().replace("\n", "↵") for name, text in sorted(found.items()) if is_held_out(name)
    ]
    assert held and "".join(corpus.held_out) == "↵↵".join(held)
    assert len(corpus.trained) > 8 * len(corpus.held_out) > 80_000


@each(
    "config",
    [
        TaskConfig.of("topics", length=24),
        TaskConfig.of("own_text", length=16),
        TaskConfig.of("topics", unit="words", length=16),
    ],
)
def test_windows_ask_for_their_own_next_token(config):
    task = instance(make_task(config), TextTask)
    batch = task.batch(8, torch.Generator().manual_seed(0))
    assert batch.target_in is None and batch.source.shape == (8, config["length"])
    assert torch.equal(batch.source[:, 1:], batch.target_out[:, :-1])
    assert torch.equal(batch.source, task.batch(8, torch.Generator().manual_seed(0)).source)
    between = "" if task.corpus.unit == "characters" else " "
    learned = between.join(task.corpus.trained)
    for example in task.held_out(100):
        assert between.join(example.source) not in learned
        assert example.source[1:] == example.target[:-1]
    assert all(
        between.join(task.source_vocab.decode(row)) in learned
        for row in batch.source.tolist()
        if UNK not in row
    )
    collated = task.collate(task.held_out(3))
    assert torch.equal(collated.source[:, 1:], collated.target_out[:, :-1])
    assert EOS not in collated.target_out and PAD not in collated.target_out


def test_what_is_typed_has_no_next_token_of_its_last():
    task = make_task(TaskConfig.of("own_text"))
    batch = task.collate([task.example("Love\nis"), task.example("Lo")])
    assert batch.target_out.tolist()[1] == [batch.source.tolist()[1][1], *[PAD] * 6]
    assert batch.source_mask.sum(1).tolist() == [7, 2] and batch.tokens == 9


def test_words_that_are_not_learned_are_unknown():
    corpus = Corpus.of("a b a c", "a d d", "words")
    assert corpus.unknown == pytest.approx(2 / 3) and corpus.vocab.encode("d") == [UNK]


@each(
    ("params", "words"),
    [
        (
            dict(data=SONNETS[:150]),
            "The text has 150 characters, of which a tenth is held out: too few for a window of 32",
        ),
        (dict(data="ab\n" * 2000), "occurs word for word in the training text"),
        (dict(data=SONNETS, length=256, unit="words"), "too few for a window of 256"),
        (dict(data=""), "no text yet"),
        (dict(data="a\x00b"), "Line 1 holds the control character"),
        (dict(data="x" * 4_000_001), "at most 4000000 characters"),
    ],
)
def test_a_text_that_will_not_do(params, words):
    with pytest.raises(ConfigError, match=words):
        TaskConfig.of("own_text", **params)


def test_your_text_is_cut_at_a_line_and_nothing_of_it_is_lost():
    task = instance(make_task(TaskConfig.of("own_text")), TextTask)
    whole = "".join((*task.corpus.trained, *task.corpus.held_out))
    assert whole == SONNETS.strip().replace("\n", "↵") and task.corpus.trained[-1] == "↵"
    assert "Training uses" in task.notes[0]


def test_a_language_model_learns_more_than_how_often_letters_come():
    task = instance(make_task(TaskConfig.of("own_text", length=16)), TextTask)
    model = ModelConfig.transformer(16, 2, kind="decoder", position="alibi", norm="pre")
    last = list(
        train(recommended(task, model=model, steps=120, learning_rate=1e-2, record_every=200))
    )[-1]
    letters = torch.tensor(
        [task.corpus.trained.count(token) for token in task.source_vocab.tokens[4:]]
    ).float()
    share = letters / letters.sum()
    assert last.loss < -float((share * share.log()).sum()) < task.baseline_loss
    assert last.maps["0:causal"].shape == (1, 2, 16, 16)
    assert len(last.examples[0].source) == 8 == len(last.examples[0].predicted)


def test_a_model_is_asked_about_lengths_that_it_never_saw():
    config = TaskConfig.of("own_text", length=16)
    torch.manual_seed(0)
    model = build_model(
        ModelConfig.transformer(8, 2, kind="decoder", position="alibi"), make_task(config).shape
    ).eval()
    bits = bits_by_length(model, config, (16, 40), windows=6)
    longer = make_task(TaskConfig.of("own_text", length=40))
    given = measure_teacher_forced(model, longer, longer.held_out(6), "cpu")
    assert bits[40] == pytest.approx(given["loss"] / math.log(2)) and set(bits) == {16, 40}


# Sentences with two names, and with a verb after another noun: read again by their words, not by the task's code.


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


# Repeated passages: lines that say a passage again, tell each next word, and are trained as any language model.


@pytest.fixture(scope="module")
def task():
    return make_task(TaskConfig.of("repeats", length=60, passage=12, gap=6))


def turn(words):
    """The step after which most of a line's words come again, and the share that does."""
    shares = {
        step: sum(a == b for a, b in zip(words, words[step:], strict=False)) / (len(words) - step)
        for step in range(4, 19)
    }  # 4 to 12 words of a passage, 0 to 6 between
    return max(shares.items(), key=lambda item: item[1])


def test_a_line_says_its_passage_again(task):
    batch = task.batch(1000, torch.Generator().manual_seed(1))
    assert batch.source.shape == batch.target_out.shape == (1000, 60)
    assert (batch.source[:, 0] == BOS).all()
    assert batch.target_in is None
    assert torch.equal(batch.source[:, 1:], batch.target_out[:, :-1])
    positions = [turn(row.tolist()) for row in batch.source[:, 1:]]
    assert min(share for _, share in positions) > 0.25, (
        "of the shortest passages with the most words between: 4 of 10"
    )
    assert {step for step, _ in positions} == set(range(4, 19)), (
        "passages and what stands between them vary"
    )
    assert any(share == 1 for _, share in positions), (
        "with nothing between, all of a line comes again"
    )


def test_where_each_word_may_look(task):
    line = ("<bos>", "the", "cat", "sat", "the", "cat", "ran", "the")
    places = task.places(Example(line[:-1], line[1:]))
    assert places == ((), (), (), (), (2,), (), ())
    twice = tuple("<bos> a b a b a".split())
    assert task.places(Example(twice[:-1], twice[1:])) == ((), (), (), (2,), (3,))


def test_the_commonest_words_come_most(task):
    counts = torch.bincount(
        task.batch(500, torch.Generator().manual_seed(2)).target_out.flatten(), minlength=254
    )
    often = counts[task.source_vocab.encode(COMMON)].float()
    assert len(COMMON) == len(set(COMMON)) == 250
    assert often[:20].mean() > 3 * often[-20:].mean() > 0


def test_it_is_trained_as_it_is_recommended():
    task = make_task(TaskConfig.of("repeats", length=24, passage=6, gap=2))
    records = list(train(recommended(task, steps=24, warmup=0, record_every=12, held_out=8)))
    assert records[-1].loss < 0.97 * records[0].loss
    assert records[-1].expected is not None
    assert 0 < records[-1].even < 0.5
