"""Days in words and numbers against Babel, and the language of number words against num2words."""

import math
from datetime import date, timedelta
from itertools import product

import pytest
import torch
from babel.dates import format_date
from num2words import num2words

from core.models import build_model
from core.models.config import ModelConfig
from core.tasks import UNK, TaskConfig, make_task
from core.tasks.translation import (
    FORMATS,
    LANGUAGES,
    LOCALES,
    LONGEST,
    PairTask,
    format_day,
    letters,
)
from tests.cases import instance

# Days in words and numbers against Babel, which reads Unicode's CLDR.


def test_every_form_of_days_of_every_month_weekday_and_length_is_babels():
    days = [date(1950, 1, 1) + timedelta(n) for n in range(0, 36_525, 29)]
    assert {(day.month, day.weekday()) for day in days} == set(product(range(1, 13), range(7)))
    assert {day.day for day in days} == set(range(1, 32))
    for locale, form in product(LOCALES, FORMATS):
        for day in days[FORMATS.index(form) % 3 :: 1 if form == "full" else 3]:
            assert format_day(day, locale, form) == " ".join(
                format_date(day, form, locale=locale).split()
            )


SMALL = TaskConfig.of("language", train_pairs=1000)


def test_the_longest_word_and_all_letters():
    words = {
        num2words(n, lang=language)
        for language in ("en", "fr", "es", "pt")
        for n in range(4, 10_000, 10)
    }
    assert max(map(len, words | {num2words(8878)})) == LONGEST
    assert set("".join(words)) <= letters(tuple(LANGUAGES))


def test_held_out_numbers_are_learned_in_no_language():
    task = instance(make_task(SMALL), PairTask)
    held, english = task.held_out(300), {num2words(n): n for n in range(10_000)}
    numbers = {english["".join(e.source)] for e in held if e.target == ("English",)}
    spoken = {num2words(n, lang=language) for n in numbers for language in LANGUAGES}
    same = {
        "six",
        "zero",
        "mille",
        "acht",
        "elf",
        "vier",
    }  # words of two languages may be of two numbers
    assert not {"".join(e.source) for e in task.pool} & (spoken - same)


def test_an_example_is_what_num2words_says_and_a_batch_holds_its_class():
    task = make_task(SMALL)
    spoken = {
        LANGUAGES[code]: {num2words(n, lang=code) for n in range(10_000)} for code in ("es", "it")
    }  # quick ones
    for example in task.held_out(60):
        name = example.target[0]
        assert name in task.classes and "".join(example.source) in spoken.get(
            name, {"".join(example.source)}
        )
    examples = task.held_out(8)
    batch = task.collate(examples)
    assert [task.classes[i] for i in batch.target_out.tolist()] == [e.target[0] for e in examples]
    assert (
        batch.target_in is None
        and UNK not in batch.source
        and torch.equal(batch.source_mask, batch.source != 0)
    )
    assert task.baseline_loss == pytest.approx(math.log(6)) and task.expected(examples[0]) is None


def test_what_is_typed_may_have_no_class_yet():
    task = make_task(SMALL)
    batch = task.collate([task.example("Forty-Two")])
    model = build_model(ModelConfig.from_json(task.recommended["classifier"].model), task.shape)
    assert model(batch.source, batch.source_mask).logits.shape == (1, 6)
