"""Tasks: fresh by their seed, right by their rule, and held-out items that training never sees; where each output looks."""

import json
import math
import re
from dataclasses import replace
from datetime import date, timedelta
from functools import cache
from itertools import product
from statistics import median

import pytest
import torch
from babel.dates import format_date, parse_date
from num2words import num2words

from core.entries import ConfigError
from core.models import ModelConfig, build_model
from core.tasks import (
    BOS,
    EOS,
    PAD,
    TASKS,
    UNK,
    Example,
    TaskConfig,
    TaskEntry,
    Vocabulary,
    make_task,
    task_of,
)
from core.tasks.base import in_held_out, is_held_out
from core.tasks.sequences import COPY, SPIKE, SequenceTask
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
    number_words,
    split_words,
)
from core.training import recommended, train
from tests.cases import each, instance

CONFIGS = [
    TaskConfig.of("reverse"),
    TaskConfig.of("copy", length=5, vocab=8),
    TaskConfig.of("dates", train_pairs=3000),
    TaskConfig.of("numbers", train_pairs=3000),
    TaskConfig.of("numbers", language="fr", train_pairs=1000),
    TaskConfig.of("sort"),
    TaskConfig.of("recall"),
    TaskConfig.of("induction"),
    TaskConfig.of("addition"),
    TaskConfig.of("addition", digits=4, order="written"),
]
every_task = each("config", CONFIGS)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def pairs(task, batch):
    return [
        (tuple(task.source_vocab.decode(s)), tuple(task.target_vocab.decode(t)))
        for s, t in zip(batch.source.tolist(), batch.target_out.tolist(), strict=True)
    ]


def right(task, source, target):
    """Whether target answers source, found out another way than the task's own."""
    if task.key in ("copy", "reverse"):
        return target == (source if task.key == "copy" else source[::-1])
    if task.key == "sort":
        return target == tuple(sorted(source))
    if task.key == "recall":
        first, numbers_in = "".join(source[:-1]), source[-1]
        return "".join(target) in first and target[0] == numbers_in and target[1].isupper()
    if task.key == "induction":
        return f" {' '.join(target)} " in f" {' '.join(source[:-1])} " and target[0] == source[-1]
    if task.key == "addition":
        total = "".join(target[::-1] if task.config["order"] == "units" else target)
        return sum(map(int, "".join(source).split("+"))) == int(total)
    if task.key == "dates":
        year, month, day = map(int, "".join(target).split("-"))
        answer = re.findall(r"\d+", "".join(source))
        words = {n.lstrip("0") for n in answer} | {n[-2:] for n in answer}
        return str(day) in words and str(year)[-2:] in words and 1 <= month <= 12
    numbers = [spoken_in_english()[part] for part in " ".join(source).split(" ; ")]
    language = task.config["language"]
    return " ".join(target) == " ; ".join(
        " ".join(split_words(num2words(n, lang=language), language)) for n in numbers
    )


def numbers_in(source):
    return tuple(sorted("".join(source).split("+")))


@cache
def spoken_in_english():
    return {" ".join(split_words(num2words(n, lang="en"), "en")): n for n in range(10_000)}


@every_task
def test_examples_are_right_and_none_that_is_held_out_is_trained_on(config):
    task, generator = task_of(config), seeded()
    held = task.held_out(400)
    trained = {pair for _ in range(60) for pair in pairs(task, task.batch(64, generator))}
    trained |= {tuple(pair) for pair in getattr(task, "pool", ())}
    sources = {source for source, _ in trained}
    assert len(set(held)) == 400 and not sources & {e.source for e in held}
    if task.key == "addition":
        trained_on = set(map(numbers_in, sources))
        assert not {numbers_in(e.source) for e in held} & trained_on, "nor turned round"
    if task.key == "dates":
        assert not {target for _, target in trained} & {e.target for e in held}, (
            "a day is held out in every form"
        )
    drawn = [Example(*pair) for pair in pairs(task, task.batch(24, seeded(1)))]
    for example in (*drawn, *held[:24]):
        assert right(task, *example), example
        assert 1 <= len(example.source) <= task.max_source
        words = task.source_vocab.encode(example.source) + task.target_vocab.encode(example.target)
        assert len(example.target) <= task.max_target and UNK not in words


@every_task
def test_a_batch_is_padded_on_the_right_and_shifted_by_one(config):
    examples = task_of(config).held_out(20)
    batch = task_of(config).collate(examples)
    assert torch.equal(batch.source_mask, batch.source != PAD)
    assert not (batch.source_mask[:, 1:] & ~batch.source_mask[:, :-1]).any()
    inside, ends = batch.target_in[:, 1:] != PAD, (batch.target_out != PAD).sum(1) - 1
    assert torch.equal(batch.target_in[:, 1:][inside], batch.target_out[:, :-1][inside])
    assert (batch.target_in[:, 0] == BOS).all()
    assert (batch.target_out[torch.arange(20), ends] == EOS).all()
    assert batch.tokens == sum(len(e.source) + len(e.target) + 1 for e in examples)
    assert batch.to("cpu").source.shape == batch.source.shape


@each("language", ["en", "de", "fr"])
def test_number_words_are_num2words(language):
    assert number_words(language) == tuple(
        split_words(num2words(n, lang=language), language) for n in range(10_000)
    )


def test_german_compounds_are_split_in_morphemes():
    assert split_words("neuntausendsiebenhundertsechsunddreißig", "de") == (
        "neun",
        "tausend",
        "sieben",
        "hundert",
        "sechs",
        "und",
        "drei",
        "ßig",
    )
    assert split_words("siebzehn", "de") == ("sieb", "zehn")
    with pytest.raises(ValueError, match="no known morpheme"):
        split_words("dreiundelfzigst", "de")


def test_numbers_fill_every_bucket_and_batches_are_of_like_length():
    task = instance(make_task(TaskConfig.of("numbers")), PairTask)
    buckets = [(len(pair.source) - 1) // 10 for pair in task.pool]
    assert len(task.pool) == 20_000
    assert all(buckets.count(b) > 2000 for b in range(6))
    generator = seeded()
    for _ in range(50):
        lengths = task.batch(64, generator).source_mask.sum(1)
        assert lengths.max() - lengths.min() <= (0 if lengths.max() < 58 else 3)


def test_dates_come_in_every_form_and_are_read_back_by_babel():
    task = make_task(TaskConfig.of("dates"))
    texts = {"".join(e.source): "".join(e.target) for e in task.held_out(300)}
    assert any(re.fullmatch(r"\d\d\.\d\d\.\d\d", text) for text in texts) and any(
        "janv" in text or "juil" in text for text in texts
    )
    german = [
        (text, iso) for text, iso in texts.items() if re.fullmatch(r"\d\d\.\d\d\.\d{4}", text)
    ]
    assert german and all(
        parse_date(text, locale="de_DE").isoformat() == iso for text, iso in german
    )


@each(
    ("make", "words"),
    [
        (lambda: TaskConfig.of("sorting"), "expected one of reverse, copy, sort, recall"),
        (lambda: TaskConfig.of("copy", size=3), "has no size; it takes length, vocab"),
        (lambda: TaskConfig.of("copy", length=0), "length = 0; expected 2 to 64"),
        (lambda: TaskConfig.of("documents", sentences=2), "sentences = 2; expected 3 to 12"),
        (lambda: TaskConfig.of("documents", courts=2), "courts = 2; expected 3 to 6"),
        (lambda: TaskConfig.of("documents", courts=7), "courts = 7; expected 3 to 6"),
        (lambda: TaskConfig.of("repeats", length=32, passage=16, gap=1), "take length ≥ 34"),
        (lambda: TaskConfig.of("copy", length=3, vocab=4), "too few to hold some out"),
        (lambda: TaskConfig.of("numbers", language="nl"), "expected one of de, fr"),
        (lambda: TaskConfig("copy", seed=-1), "seed = -1"),
        (lambda: TaskConfig.from_json({"task": "copy"}), "an object with a key"),
        (lambda: TaskConfig.from_json({"key": "copy", "params": [1]}), "params is an object"),
    ],
)
def test_what_cannot_be_is_said(make, words):
    with pytest.raises(ConfigError, match=words):
        make()


def test_more_held_out_than_there_is_and_nothing_to_collate():
    task = make_task(TaskConfig.of("copy", length=3, vocab=28))
    assert len(task.held_out(1000)) == 1000
    with pytest.raises(ValueError, match="too few different"):
        task.held_out(2300)
    with pytest.raises(ValueError, match="at least one"):
        task.collate([])


@each(
    ("key", "text", "source"),
    [
        ("numbers", "Twenty-one; 305", "twenty one ; three hundred and five".split()),
        ("copy", " abc ", "abc"),
        ("copy", "a\N{GRINNING FACE}", "a\N{GRINNING FACE}"),
        ("addition", "7 + 25", "007+025"),
        ("names", "The dogs near THE tree are", "<bos> the dogs near the tree are".split()),
        ("repeats", "The cat sat. THE cat", "<bos> the cat sat . the cat".split()),
        ("language", "Forty-Two", "forty-two"),
        ("own_pairs", "MMX", "MMX"),
        ("series", ", ".join("1" * 24), [1.0] * 24),
    ],
)
def test_what_a_person_types_becomes_a_source(key, text, source):
    task = make_task(TaskConfig.of(key))
    example = task.example(text)
    assert example.source == tuple(source)
    ids = task.collate([example]).source[0].tolist()
    assert key == "series" or (UNK in ids) == ("\N{GRINNING FACE}" in text)
    assert key != "numbers" or task.tokens("9999; 10000")[-3:] == ["nine", ";", "10000"]


@each(
    ("key", "text", "words"),
    [
        ("numbers", "  ", "empty"),
        ("copy", "abcdefghijk", "at most 10"),
        ("names", "the " * 21, "at most"),
        ("digits", "7", "cannot be typed"),
        ("series", "1 2 x", "made of numbers"),
        ("series", "1 2", "has 2 numbers; this task reads 24 to 48"),
    ],
)
def test_what_cannot_be_a_source_is_said(key, text, words):
    with pytest.raises(ValueError, match=words):
        make_task(TaskConfig.of(key)).example(text)


def test_a_vocabulary_reads_back_what_it_knows():
    vocab = Vocabulary("cab")
    assert (
        vocab.tokens,
        vocab.decode([BOS, *vocab.encode("abz"), EOS, 5]),
        len({entry.key for entry in TASKS}),
    ) == (("<pad>", "<bos>", "<eos>", "<unk>", "a", "b", "c"), ["a", "b", "<unk>"], len(TASKS))


# What every task of TASKS promises, found from the entries; made-up tasks show that the checks see what is broken.


def rows(batch):
    return [
        tuple(source[mask].flatten().tolist())
        for source, mask in zip(batch.source, batch.source_mask, strict=True)
    ]


def check_task(entry: TaskEntry) -> None:
    """AssertionError where a task, with its defaults, breaks what pages and runs rely on."""
    assert all(len(text) > 20 and text[-1] == "." for text in (entry.meaning, entry.look))
    config = TaskConfig(entry.key, tuple((param.key, param.default) for param in entry.params))
    assert TaskConfig.from_json(json.loads(json.dumps(config.to_json()))) == config
    assert TaskConfig.from_json({"key": entry.key}).seed == 0
    task = entry.build(config)
    if task.input == "tokens":
        assert task.shape.longest == max(task.max_source, task.max_target) + 1, "with the end mark"
        assert task.form == "label" or task.baseline_loss == math.log(len(task.target_vocab))
    batch = task.batch(16, seeded(1))
    assert torch.equal(batch.source, task.batch(16, seeded(1)).source), (
        "the seed decides every batch"
    )
    assert rows(batch) != rows(task.batch(16, seeded(2)))
    held = task.held_out(7)
    assert held == task.held_out(7) == task.held_out(20)[:7], "held-out items are fixed"
    assert held != entry.build(replace(config, seed=7)).held_out(7)
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
    assert task.recommended and (task.majority(7) is None) == (task.form != "label")
    for kind in task.recommended:
        assert recommended(task, kind).model.kind == kind


@each("entry", TASKS)
def test_every_task_keeps_its_promises(entry):
    check_task(entry)


class Leaking(SequenceTask):
    def batch(self, batch_size, generator):
        batch = super().batch(batch_size, generator)
        batch.source[0] = self.collate(self.held_out(1)).source[0]
        return batch


class Unseeded(SequenceTask):
    def batch(self, batch_size, generator):
        return super().batch(batch_size, torch.Generator().manual_seed(torch.seed() % 2**32))


class Misplaced(SequenceTask):
    def places(self, example):
        return ((len(example.source),),) * len(example.target)


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (Leaking, "held out is trained on"),
        (Unseeded, "the seed decides"),
        (Misplaced, "is one of the source"),
    ],
)
def test_what_a_broken_task_breaks_is_seen(task, words):
    with pytest.raises(AssertionError, match=words):
        check_task(replace(COPY, build=lambda config: task(config, COPY)))


# Made tasks: seasonal series, days and number words in several languages, and where each output should look.

# Seasonal series: as they are made, what a forecast must beat, and where it should look.


def test_a_season_comes_back_and_spikes_stand_only_in_what_is_read():
    task = make_task(TaskConfig.of("series", anomalies=0.1))
    batch = task.batch(512, seeded())
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
    calm = make_task(TaskConfig.of("series", anomalies=0.0)).batch(512, seeded()).source
    assert not ((calm[:, 12:, 0] - calm[:, :-12, 0]).abs() > 0.7 * SPIKE).any()
    drift = calm[:, 36:, 0] - calm[:, :12, 0]  # of three seasons, beside the trend and the noise
    variance = float((drift - drift.mean(1, keepdim=True)).square().mean())
    assert variance == pytest.approx((3 * 0.3**2 + 2 * 0.15**2) * 11 / 12, rel=0.1)


def test_no_series_is_on_both_sides():
    """Not even from the generator that held-out series come from."""
    task = make_task(TaskConfig.of("series"))
    held = {example.source for example in task.held_out(300)}
    batch = task.batch(4000, torch.Generator().manual_seed(2**31))
    assert len(held) == 300 and not held & set(map(tuple, batch.source[..., 0].tolist()))


def test_what_must_be_beaten_and_where_to_look():
    task = make_task(TaskConfig.of("series", period=4, seasons=2))
    assert (
        task.naive([1, 2, 3, 4, 5, 6, 7, 8]),
        task.expected(Example((0.0,) * 8, (0.0,) * 4)),
    ) == ([5, 6, 7, 8], (4, 5, 6, 7))
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
    assert (
        all(run[0].error > 1.3 for run in runs)
        and median(max(map(max, run[-1].expected)) / run[-1].even for run in runs) > 3
    )
    assert runs[0][-1].maps["0:self"].shape == (1, 1, 12, 12)


THREE, ADDED = {"pairs": 3, "keys": 16}, ((0, 4), (0, 4), (1, 5), (2, 6))
COUNTED = "twenty one ; three hundred".split(), "ein und zwanzig ; drei hundert".split()
PLACES = [
    ("copy", {}, "abc", "abc", ((0,), (1,), (2,)), "the same letter"),
    ("reverse", {}, "abc", "cba", ((2,), (1,), (0,)), "the mirrored letter"),
    ("sort", {}, "cabca", "aabcc", ((1, 4), (1, 4), (2,), (0, 3), (0, 3)), "twins are as good"),
    ("recall", THREE, "aBcDeFc", "cD", ((2, 6), (3,)), "behind the letter that is asked for"),
    ("recall", THREE, "aBcDeFx", "xD", ((), ()), "what was never there stands nowhere"),
    ("recall", THREE, "aBcDeFc", "", (), "what a person typed has no target"),
    (
        "induction",
        {},
        "ba be bi bo be".split(),
        "be bi bo ba".split(),
        ((1, 4), (2,), (3,), ()),
        "it goes on from the earlier place",
    ),
    ("induction", {}, "ba be bi".split(), "bi bo".split(), ((), ()), "no earlier place"),
    ("addition", {"order": "written"}, "123+456", "0579", ADDED, "the two it is added from"),
    ("addition", {}, "123+456", "9750", ADDED[::-1], "units first"),
    ("addition", {}, "12+45", "75", ((), ()), "shorter numbers have no places in it"),
    ("numbers", {}, *COUNTED, ((0, 1),) * 3 + ((2,),) + ((3, 4),) * 2, "all words of its number"),
]


@each(("key", "params", "source", "target", "places", "why"), PLACES)
def test_where_each_output_looks(key, params, source, target, places, why):
    task, example = task_of(TaskConfig.of(key, **params)), Example(tuple(source), tuple(target))
    assert task.places(example) == places, why
    assert key != "sort" or task.expected(example) == (-1, -1, 2, -1, -1)


@each(
    ("text", "year", "month", "day"),
    [
        ("Wednesday, January 5, 2000", "2000", "January", "5"),
        ("5 janv. 2000", "2000", "janv", "5"),
        ("1/5/00", "00", "1", "5"),
        ("05/01/2000", "2000", "01", "05"),
        ("05.01.00", "00", "01", "05"),
        *((text, "", "", "") for text in ("12 May", "May", "1 2")),
    ],
)
def test_parts_of_a_date(text, year, month, day):
    assert [text[part.start : part.stop] for part in date_parts(text)] == [year, month, day]


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
    drawn = torch.randint(4, 30, (50_000, 10), generator=seeded())
    near = torch.stack(
        torch.meshgrid(torch.arange(300), torch.arange(300), indexing="ij"), -1
    ).flatten(0, 1)
    for rows in (drawn, near, near[:, :1].unique(dim=0)):
        assert float(in_held_out(rows).float().mean()) == pytest.approx(
            0.1, abs=0.02 if len(rows) > 1000 else 0.06
        )
    assert torch.equal(in_held_out(drawn[:7]), in_held_out(drawn)[:7])


# Days in words and numbers against Babel, which reads Unicode's CLDR.


def test_every_form_of_days_of_every_month_weekday_and_length_is_babels():
    days = [date(1950, 1, 1) + timedelta(n) for n in range(0, 36_525, 29)]
    assert ({(day.month, day.weekday()) for day in days}, {day.day for day in days}) == (
        set(product(range(1, 13), range(7))),
        set(range(1, 32)),
    )
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
    assert numbers and all(is_held_out(str(number)) for number in numbers)
    # words of two languages may be of two numbers
    spoken -= {"six", "zero", "mille", "acht", "elf", "vier"}
    assert not {"".join(e.source) for e in task.pool} & spoken


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
    typed = task.collate([task.example("Forty-Two")])  # it may have no class yet
    model = build_model(ModelConfig.from_json(task.recommended["classifier"].model), task.shape)
    assert model(typed.source, typed.source_mask).logits.shape == (1, 6)
