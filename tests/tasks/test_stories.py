"""Stories: the grammar reads what it writes and says which word is wrong; the task's pieces are any text's."""

import math
import random

import pytest
import torch
from hypothesis import given, strategies as st

from core.models import ModelConfig, build_model
from core.pretrained import load_folder, writer
from core.pretrained.export import hf_tokenizer, vocabulary_words
from core.pretrained.hf_conversion import convert_to_hf
from core.tasks import EOS, TaskConfig, Vocabulary, make_task
from core.tasks.grammar import (
    NOUNS,
    OPENINGS,
    WORDS,
    State,
    judge,
    plural,
    story,
    unknown_words,
    with_article,
)
from tests.cases import each

WENT = "When Mary and John went to the shop, John gave a drink to Mary."


@given(st.integers(0, 2**32))
def test_every_story_is_accepted(seed):
    made = story(random.Random(seed))
    forms = list(judge(made.text))
    assert not any(one.wrong for one in forms) and forms[-1].end == len(made.text)
    assert made.nats > len(forms) * math.log(2)


@each(
    ("text", "wrong"),
    [
        (f"{WENT} Mary gave the drink to John, and John thanked Mary.", ()),
        (
            f"{WENT} John gave the drink to Mary, and Mary thanked John.",
            ("A",),
        ),  # he has it no more
        ("When Mary and John went to the shop, John gave a drink to John.", ("A",)),
        (f"{WENT} Mary put the drink into the jar. She was glad.", ()),
        (f"{WENT} Mary put the drink into the jar. He was glad.", ("A",)),
        (
            f'{WENT} Mary put the drink into the jar. "Where is the drink?" asked John. "It is in the box," said Mary.',
            ("c",),
        ),
        (
            "Eva was an actor and lived in Ripley. She found an old kite. She found an odd kite.",
            ("x",),
        ),
        ("Eva was a actor and lived in Ripley.", ("j",)),
        (f"{WENT} Mary had three plums. She ate one, so now she had two plums.", ()),
        (f"{WENT} Mary had three plums. She ate one, so now she had four plums.", ("m",)),
        (f"{WENT} Mary was taller than John, so John was taller than Mary.", ("d",)),
        (f"{WENT} Mary spoke Thai, and John spoke Urdu. John said something in Thai.", ("l",)),
    ],
)
def test_what_is_not_so_is_named(text, wrong):
    *before, last = judge(text)
    assert last.wrong == wrong and not any(one.wrong for one in before)


def test_a_text_without_a_form_names_its_place():
    with pytest.raises(ValueError, match=r"^It rained\.$"):
        list(judge(f"{WENT} It rained."))


@each(
    ("noun", "many"),
    [
        ("knife", "knives"),
        ("fox", "foxes"),
        ("berry", "berries"),
        ("key", "keys"),
        ("box", "boxes"),
        ("bus", "buses"),
        ("cat", "cats"),
    ],
)
def test_plurals(noun, many):
    assert plural(noun) == many


def test_articles_and_words():
    assert [*map(with_article, ("apple", "ukulele", "unicycle", "kite"))] == [
        "an apple",
        "an ukulele",
        "a unicycle",
        "a kite",
    ]
    words = {word for kind in WORDS.values() for word in kind} | {plural(noun) for noun in NOUNS}
    assert len(words) > 3_000
    assert unknown_words(f"{WENT} Quantum kites, 3 geese and the Zug: quantum") == (
        "Quantum",
        "Zug",
        "quantum",
    )


def test_the_nats_of_a_draw():
    opening = OPENINGS[1]  # a person, a job and a town
    _, nats = opening.draw(State(), random.Random(0))
    people = len(WORDS["she"]) + len(WORDS["he"])
    assert nats == pytest.approx(
        sum(map(math.log, (people, len(WORDS["job"]), len(WORDS["town"]))))
    )


TASK = make_task(TaskConfig.of("stories", stories=200, pieces=512, length=160))


@given(st.text())
def test_no_text_is_unknown(text):
    assert TASK.text_of(TASK.tokens(text)) == text
    assert set(TASK.tokens(text)) <= set(TASK.source_vocab.tokens)


def test_a_window_begins_with_a_story_and_its_target_is_a_piece_ahead():
    batch = TASK.batch(64, torch.Generator().manual_seed(0))
    assert batch.source.shape == (64, 160) and torch.equal(
        batch.source[:, 1:], batch.target_out[:, :-1]
    )
    for row in batch.source:
        text = TASK.text_of(TASK.source_vocab.decode(row))
        assert any(opening.pattern.match(text) for opening in OPENINGS) or "." not in text
    assert (batch.source == EOS).any()
    (example,) = TASK.held_out(1)
    assert example.source[1:] == example.target[:-1]


def test_what_a_model_writes_is_measured(tmp_path):
    """An untrained model is right by chance alone; its folder has the task's own pieces."""
    torch.manual_seed(0)
    model = build_model(ModelConfig.from_json(TASK.recommended["decoder"].model), TASK.shape)
    vocabulary = Vocabulary(vocabulary_words(TASK))
    convert_to_hf(model, TASK, vocabulary).save_pretrained(tmp_path)
    tokenizer = hf_tokenizer(TASK, vocabulary, 161)
    tokenizer.save_pretrained(tmp_path)
    assert tokenizer.tokenize(WENT) == TASK.tokens(WENT)
    assert load_folder(tmp_path, "untrained").tokenizer.decode(tokenizer(WENT)["input_ids"]) == WENT
    figures = writer.measure(tmp_path, 3)
    assert figures.whole_continuations == figures.next_sentences == (0, 0) and figures.referents
    assert (
        figures.loss == pytest.approx(math.log(len(vocabulary)), rel=0.2)
        and 0.3 < figures.entropy < 1
    )


def test_questions_and_continuations():
    text = f"{WENT} Mary put the drink into the jar. She was glad."
    (name, at, words), (pronoun, where, both) = writer.questions(text)
    assert (name, text[at:], words) == (
        "indirect_objects",
        text[WENT.rindex("Mary") :],
        ("Mary", "John"),
    )
    assert (pronoun, text[where:], both) == ("referents", "She was glad.", ("He", "She"))
    assert writer.accepted(text, len(WENT)) == [True, True]
    assert writer.accepted(text.replace("She", "He"), len(WENT)) == [True, False]
    assert writer.accepted(f"{WENT} It rained.", len(WENT)) == [False]
