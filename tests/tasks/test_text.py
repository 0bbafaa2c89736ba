"""Language models: windows whose next token is asked, a held-out part that is nowhere in what is learned."""

import math

import pytest
import torch

from core.entries import ConfigError
from core.models import ModelConfig, build_model
from core.tasks import EOS, PAD, UNK, TaskConfig, make_task
from core.tasks.base import is_held_out
from core.tasks.own import SONNETS
from core.tasks.text import Corpus, TextTask, split, topics
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
