"""Made tasks: seasonal series, days and number words in several languages, and where each output should look."""

import math
from datetime import date, timedelta
from itertools import product
from statistics import median

import pytest
import torch
from babel.dates import format_date
from num2words import num2words

from core.models import ModelConfig, build_model
from core.tasks import UNK, Example, TaskConfig, make_task
from core.tasks.base import in_held_out
from core.tasks.sequences import SPIKE
from core.tasks.translation import (
    DAYS,
    FIRST_DAY,
    FORMATS,
    LANGUAGES,
    LOCALES,
    LONGEST,
    PairTask,
    date_parts,
    format_day,
    letters,
)
from core.training import recommended, train
from tests.cases import each, instance

# Seasonal series: as they are made, what a forecast must beat, and where it should look.


def test_a_season_comes_back_and_spikes_stand_only_in_what_is_read():
    task = make_task(TaskConfig.of("series", anomalies=0.1))
    batch = task.batch(512, torch.Generator().manual_seed(0))
    read, target = batch.source[..., 0], batch.target_out
    assert batch.source.shape == (512, 48, 1) and target.shape == (512, 12)
    back = {
        lag: float((target - read[:, 48 - lag : 60 - lag]).abs().median())
        for lag in (12, 18, 24, 30)
    }
    assert back[12] < back[24] < back[30] and back[24] < back[18], (
        "like a season ago, and less like two"
    )
    jumps = (read[:, 12:36] - 0.5 * (read[:, :24] + read[:, 24:])).abs() > 0.7 * SPIKE
    assert 0.05 < float(jumps.float().mean()) < 0.15
    assert float(((target - read[:, 36:]).abs() > 0.7 * SPIKE).float().mean()) == pytest.approx(
        0.1, abs=0.03
    )
    calm = make_task(TaskConfig.of("series", anomalies=0.0)).batch(
        512, torch.Generator().manual_seed(0)
    )
    assert (
        float(
            ((calm.source[:, 12:, 0] - calm.source[:, :-12, 0]).abs() > 0.7 * SPIKE).float().mean()
        )
        == 0
    )


def test_no_series_is_on_both_sides():
    """Not even from the generator that held-out series come from."""
    task = make_task(TaskConfig.of("series"))
    held = {example.source for example in task.held_out(300)}
    batch = task.batch(4000, torch.Generator().manual_seed(2**31))
    assert len(held) == 300 and not held & set(map(tuple, batch.source[..., 0].tolist()))


def test_what_must_be_beaten_and_where_to_look():
    task = make_task(TaskConfig.of("series", period=4, seasons=2))
    assert task.naive([1, 2, 3, 4, 5, 6, 7, 8]) == [5, 6, 7, 8]
    assert task.expected(Example((0.0,) * 8, (0.0,) * 4)) == (4, 5, 6, 7)
    held = task.held_out(200)
    spread = [torch.tensor(e.target) - torch.tensor(e.source).mean() for e in held]
    assert task.baseline_loss == pytest.approx(float(torch.stack(spread).square().mean()), rel=1e-5)
    assert task.display_tokens(Example((1.0, -0.25), (2.0,))) == (("1.000", "-0.250"), ("2.000",))
    assert task.example("1, 2 3 4 5 6 7 8").source == (1, 2, 3, 4, 5, 6, 7, 8)


def test_a_forecaster_learns_to_look_one_season_back():
    """In the median of three seeds, since a run in six or so learns later."""
    task = make_task(TaskConfig.of("series", period=4, seasons=2, anomalies=0.05))
    model = ModelConfig.transformer(32, 1, kind="forecaster", position="sinusoidal", norm="pre")
    runs = [
        list(
            train(
                recommended(
                    task,
                    model=model,
                    steps=400,
                    batch_size=32,
                    learning_rate=1e-2,
                    record_every=400,
                    seed=seed,
                )
            )
        )
        for seed in range(3)
    ]
    assert median(run[-1].error for run in runs) < 1.3, "1.5 is what the mean of the window gives"
    assert all(run[0].error > 1.3 for run in runs)
    assert median(max(map(max, run[-1].expected)) / run[-1].even for run in runs) > 3
    assert runs[0][-1].maps["0:self"].shape == (1, 1, 12, 12)


def places(key, source, target, **params):
    return make_task(TaskConfig.of(key, **params)).places(Example(tuple(source), tuple(target)))


def test_sorted_letters_stand_anywhere_and_twins_are_as_good():
    task, repeated = make_task(TaskConfig.of("sort")), Example(tuple("cabca"), tuple("aabcc"))
    assert task.places(repeated) == ((1, 4), (1, 4), (2,), (0, 3), (0, 3))
    assert task.expected(repeated) == (-1, -1, 2, -1, -1)


def test_recall_looks_behind_the_letter_that_is_asked_for():
    assert places("recall", "aBcDeFc", "cD", pairs=3, keys=16) == ((2, 6), (3,))
    assert places("recall", "aBcDeFx", "xD", pairs=3, keys=16) == ((), ()), (
        "what was never there stands nowhere"
    )
    assert places("recall", "aBcDeFc", "", pairs=3, keys=16) == (), (
        "what a person typed has no target"
    )


def test_induction_goes_on_from_the_earlier_place():
    assert places("induction", "ba be bi bo be".split(), "be bi bo ba".split()) == (
        (1, 4),
        (2,),
        (3,),
        (),
    )
    assert places("induction", "ba be bi".split(), "bi bo".split()) == ((), ())


def test_a_digit_looks_at_the_two_it_is_added_from():
    units_last = ((0, 4), (0, 4), (1, 5), (2, 6))
    assert places("addition", "123+456", "0579", order="written") == units_last
    assert places("addition", "123+456", "9750") == units_last[::-1]
    assert places("addition", "12+45", "75") == ((), ()), (
        "shorter numbers than the task's have no places in it"
    )


def test_a_number_word_looks_at_all_words_of_its_number():
    source, target = "twenty one ; three hundred".split(), "ein und zwanzig ; drei hundert".split()
    assert places("numbers", source, target) == ((0, 1),) * 3 + ((2,),) + ((3, 4),) * 2


@each(
    ("text", "year", "month", "day"),
    [
        ("Wednesday, January 5, 2000", "2000", "January", "5"),
        ("5 janv. 2000", "2000", "janv", "5"),
        ("1/5/00", "00", "1", "5"),
        ("05/01/2000", "2000", "01", "05"),
        ("05.01.00", "00", "01", "05"),
    ],
)
def test_parts_of_a_date(text, year, month, day):
    assert [text[part.start : part.stop] for part in date_parts(text)] == [year, month, day]


def test_no_date_has_no_parts():
    assert (
        date_parts("12 May")
        == date_parts("May")
        == date_parts("1 2")
        == (range(0), range(0), range(0))
    )


def test_parts_of_every_kind_of_date_say_its_target():
    for offset in range(0, DAYS, 97):
        day = FIRST_DAY + timedelta(offset)
        for place in LOCALES:
            for form in FORMATS:
                text = format_day(day, place, form)
                year, month, date = (text[part.start : part.stop] for part in date_parts(text))
                assert (int(year) % 100, int(date)) == (day.year % 100, day.day), text
                assert not month.isdecimal() or int(month) == day.month, text


@each("key", ["copy", "reverse", "sort", "recall", "induction"])
def test_what_is_looked_at_is_what_is_said(key):
    task = make_task(TaskConfig.of(key))
    for example in task.held_out(100):
        positions = task.places(example)
        assert len(positions) == len(example.target)
        for there, token in zip(positions, example.target, strict=True):
            assert there and {example.source[place] for place in there} == {token}


def test_the_held_out_tenth_is_a_tenth_whatever_the_rows():
    drawn = torch.randint(4, 30, (50_000, 10), generator=torch.Generator().manual_seed(0))
    near = torch.stack(
        torch.meshgrid(torch.arange(300), torch.arange(300), indexing="ij"), -1
    ).flatten(0, 1)
    for rows in (drawn, near, near[:, :1].unique(dim=0)):
        assert float(in_held_out(rows).float().mean()) == pytest.approx(
            0.1, abs=0.02 if len(rows) > 1000 else 0.06
        )
    assert torch.equal(in_held_out(drawn[:7]), in_held_out(drawn)[:7])


# Days in words and numbers against Babel, and the language of number words against num2words.


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
