"""Tasks: fresh by their seed, right by their rule, and held-out items that training never sees; where each output looks."""

import hashlib
import json
import math
import random
import re
import runpy
from collections import Counter
from dataclasses import replace
from datetime import date, timedelta
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sacrebleu
import torch
from babel.dates import format_date, parse_date
from hypothesis import given, strategies as st
from num2words import num2words

from core import plugins
from core.entries import ConfigError, Param
from core.models import ModelConfig, build_model, sentence_spans
from core.pretrained import export, load_folder
from core.pretrained.export import hf_tokenizer, vocabulary_words
from core.pretrained.hf_conversion import convert_to_hf
from core.pretrained.model_inputs import picture
from core.runs.sweeps import lower_is_better, measures
from core.tasks import (
    BOS,
    EOS,
    METRICS,
    PAD,
    TASKS,
    UNK,
    Example,
    Metric,
    TaskConfig,
    TaskEntry,
    Vocabulary,
    make_task,
    register_task,
    task_of,
)
from core.tasks.base import (
    LETTERS,
    SPECIALS,
    balanced_accuracy,
    bleu,
    chrf,
    entropy,
    exact_match,
    in_held_out,
    is_held_out,
    majority_class,
)
from core.tasks.config import MEASURED
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
from core.tasks.own import SONNETS, characters, own_corpus
from core.tasks.sequences import COPY, SPIKE, SequenceTask
from core.tasks.tables import iris
from core.tasks.text import (
    COMMON,
    COURTS,
    GUILT,
    LONGEST as LONGEST_LINE,
    MIN_WORDS,
    NAMES,
    TOPICS_FILE,
    UNIT,
    VERBS,
    VERDICTS,
    Corpus,
    Documents,
    TextTask,
    byte_pairs,
    learn_byte_pairs,
    split,
    topics,
    unseen,
)
from core.tasks.translation import (
    DAYS,
    FIRST_DAY,
    FORMATS,
    LANGUAGES,
    LOCALES,
    LONGEST,
    PairTask,
    Pictures,
    date_parts,
    deciding,
    digits,
    format_day,
    letters,
    number_words,
    patches_of,
    split_words,
)
from core.training import Prediction, evaluate, recommended, train
from core.training.evaluate import bits_by_length, measure_teacher_forced
from tests.cases import each, instance
from tests.training.small import small_task

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


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def pairs(task, batch):
    return [
        (tuple(task.source_vocab.decode(s)), tuple(task.target_vocab.decode(t)))
        for s, t in zip(batch.source.tolist(), batch.target_out.tolist(), strict=True)
    ]


# Whether target answers source, found out another way than the task's own.
RIGHT = {
    "copy": lambda task, source, target: target == source,
    "reverse": lambda task, source, target: target == source[::-1],
    "sort": lambda task, source, target: target == tuple(sorted(source)),
    "recall": lambda task, source, target: (
        "".join(target) in "".join(source[:-1]) and target[0] == source[-1] and target[1].isupper()
    ),
    "induction": lambda task, source, target: (
        f" {' '.join(target)} " in f" {' '.join(source[:-1])} " and target[0] == source[-1]
    ),
    "addition": lambda task, source, target: (
        sum(map(int, "".join(source).split("+")))
        == int("".join(target[::-1] if task.config["order"] == "units" else target))
    ),
    "dates": lambda task, source, target: is_date("".join(source), "".join(target)),
    "numbers": lambda task, source, target: (
        " ".join(target) == spoken_in(task.config["language"], " ".join(source))
    ),
}


def spoken_in(language, source):
    numbers = [num2words(spoken_in_english()[part], lang=language) for part in source.split(" ; ")]
    return " ; ".join(" ".join(split_words(number, language)) for number in numbers)


def is_date(source, target):
    year, month, day = map(int, target.split("-"))
    answer = re.findall(r"\d+", source)
    words = {n.lstrip("0") for n in answer} | {n[-2:] for n in answer}
    return str(day) in words and str(year)[-2:] in words and 1 <= month <= 12


def numbers_in(source):
    return tuple(sorted("".join(source).split("+")))


@cache
def spoken_in_english():
    return {" ".join(split_words(num2words(n, lang="en"), "en")): n for n in range(10_000)}


@each("config", CONFIGS)
def test_nothing_held_out_is_trained_on(config):
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
        assert RIGHT[task.key](task, *example), example
        assert 1 <= len(example.source) <= task.max_source
        words = task.source_vocab.encode(example.source) + task.target_vocab.encode(example.target)
        assert len(example.target) <= task.max_target and UNK not in words


@each("config", CONFIGS)
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


@each("language", ["en", "de", "fr"])
def test_number_words_are_num2words(language):
    words = number_words(language)
    assert len(words) == 10_000
    for n in (*range(1_000), *range(1_000, 10_000, 7)):  # those above are joined of those below
        assert words[n] == split_words(num2words(n, lang=language), language)


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
    pytest.raises(ValueError, split_words, "dreiundelfzigst", "de").match("no known morpheme")


def test_numbers_fill_every_bucket():
    task = instance(make_task(TaskConfig.of("numbers")), PairTask)
    buckets = [(len(pair.source) - 1) // 10 for pair in task.pool]
    assert len(task.pool) == 20_000 and all(buckets.count(b) > 2000 for b in range(6))
    generator = seeded()
    for _ in range(50):
        lengths = task.batch(64, generator).source_mask.sum(1)
        assert lengths.max() - lengths.min() <= (0 if lengths.max() < 58 else 3)


def test_dates_come_in_every_form():
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
        (lambda: TaskConfig.of("induction", length=17, vocab=16), "take vocab ≥ 17"),
        (lambda: TaskConfig.of("induction", length=8, said=8), "take said ≤ 7"),
        (lambda: TaskConfig.of("recall", pairs=5, keys=4), "take keys ≥ 5"),
        (lambda: TaskConfig.from_json({"task": "copy"}), "an object with a key"),
        (lambda: TaskConfig.from_json({"key": 3}), "an object with a key"),
        (lambda: TaskConfig.from_json(json.loads("[]")), "an object with a key"),
        (lambda: TaskConfig.from_json({"key": "copy", "params": [1]}), "params is an object"),
        (
            lambda: TaskConfig.of("own_text", data=SONNETS[:150]),
            "The text has 150 characters, of which a tenth is held out: too few for a window of 32",
        ),
        (
            lambda: TaskConfig.of("own_text", data="".join(map(str, range(99)))[:179], length=16),
            "has 179 characters, of which a tenth is held out: too few for a window of 16",
        ),
        (
            lambda: TaskConfig.of("own_text", data="ab\n" * 2000),
            "occurs word for word in the training",
        ),
        (
            lambda: TaskConfig.of("own_text", data=SONNETS, length=256, unit="words"),
            "too few for a window of 256",
        ),
        (lambda: TaskConfig.of("own_text", data=""), "no text yet"),
        (lambda: TaskConfig.of("own_text", data="a\x00b"), "Line 1 holds the control character"),
        (lambda: TaskConfig.of("own_text", data="x" * 4_000_001), "at most 4000000 characters"),
    ],
)
def test_what_cannot_be_is_said(make, words):
    pytest.raises(ConfigError, make).match(words)


def test_more_held_out_than_there_is_and_nothing_to_collate():
    task = make_task(TaskConfig.of("copy", length=3, vocab=28))
    assert len(task.held_out(1000)) == 1000
    pytest.raises(ValueError, task.held_out, 2300).match("too few different")
    for nothing in ([], [Example((), ())]):
        pytest.raises(ValueError, task.collate, nothing).match("at least one")
    moved = vars(task.collate(task.held_out(2)).to("meta")).values()
    assert {tensor.device.type for tensor in moved} == {"meta"}


@each(
    ("key", "text", "source"),
    [
        ("numbers", "Twenty-one; 305", "twenty one ; three hundred and five".split()),
        ("copy", " abc ", "abc"),
        ("copy", "abcdefghij", "abcdefghij"),
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
    batch = task.collate([example])
    assert key == "series" or (UNK in batch.source) == ("\N{GRINNING FACE}" in text)
    assert key != "language" or batch.target_out.tolist() == [0], "a typed source has no class"
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
    pytest.raises(ValueError, make_task(TaskConfig.of(key)).example, text).match(words)


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
    config = small_task(entry.key)
    assert TaskConfig.from_json(json.loads(json.dumps(config.to_json()))) == config
    assert TaskConfig.from_json({"key": entry.key}).seed == 0
    task = entry.build(config)
    if task.input == "tokens" or task.form == "pairs":
        assert task.shape.longest == max(task.max_source, task.max_target) + 1, "with the end mark"
    if task.input == "tokens":
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
    assert task.form != "label" or task.max_target == 1
    for kind in task.recommended:
        assert recommended(task, kind).model.kind == kind


@each("entry", TASKS)
def test_every_task_keeps_its_promises(entry, monkeypatch):
    monkeypatch.setattr("core.tasks.text.HELD_OUT_STORIES", 100)
    check_task(entry)


@pytest.mark.parametrize(
    ("method", "broken", "words"),
    [
        (
            "batch",
            lambda task, size, generator: task.collate(
                task.held_out(size + int(torch.randint(6, (), generator=generator)))[-size:]
            ),
            "held out is trained on",
        ),
        (
            "batch",
            lambda task, size, _: SequenceTask.batch(task, size, seeded(torch.seed() % 2**32)),
            "the seed decides",
        ),
        (
            "places",
            lambda task, example: ((len(example.source),),) * len(example.target),
            "is one of the source",
        ),
    ],
)
def test_what_a_broken_task_breaks_is_seen(method, broken, words):
    task = type("Broken", (SequenceTask,), {method: broken})
    pytest.raises(
        AssertionError, check_task, replace(COPY, build=lambda config: task(config, COPY))
    ).match(words)


@pytest.fixture
def doubled(without_new_entries):
    return runpy.run_path(str(Path(__file__).parents[2] / "docs" / "plugins" / "doubled.py"))


def test_a_registered_task_is_trained_and_measured(doubled):
    entry = TASKS[-1]
    assert (entry.key, entry.name) == ("doubled", "Double (plug-in)")
    assert Path(entry.source).name == "doubled.py"
    check_task(entry)
    task = make_task(TaskConfig.of("doubled", trained=5, tested=9))
    lengths = [{len(one.source) for one in side} for side in (task.trained(), task.held_out(200))]
    assert lengths == [{4, 5}, {4, 5, 6, 7, 8, 9}]
    config = recommended(task, "decoder", steps=2, record_every=1, held_out=100)
    record = list(train(config))[-1]
    assert record.scores.keys() == {"right_letters", "longer"}
    assert record.right_letters == record.scores["right_letters"]
    assert [one.lengths for one in record.buckets] == ["1–5", "6–10"]
    right, wrong = (Prediction(tuple("abcdef"), ("a",), (end,)) for end in "ab")
    short = replace(wrong, source=("a",))
    form = evaluate.objective(task)
    assert form.score(task, [right, wrong, short])["scores"]["longer"] == 0.5, "of the longer alone"
    assert evaluate.Record.from_json(json.loads(json.dumps(record.to_json()))) == record
    assert not hasattr(record, "unheard_of") and evaluate.Record(0).right_letters is None
    assert measures()["right_letters"] == "share" and not lower_is_better("right_letters")


def test_a_metric_has_another_name_than_a_record():
    fields = evaluate.Record.__dataclass_fields__.keys()
    assert fields <= MEASURED


def broken(doubled, **changes):
    """The worked example's entry with fields changed, and its class with methods changed."""
    methods: dict[str, Any] = {
        name: changes.pop(name) for name in ("draw", "places", "form") if name in changes
    }
    entry = replace(doubled["ENTRY"], **{"key": "other", "metrics": (), **changes})
    kind = type("Broken", (doubled["Doubled"],), methods)
    return entry if "build" in changes else replace(entry, build=lambda config: kind(config, entry))


LARGEST: Any = max  # no metric
MILES: Any = "miles"
BROKEN_TASKS = [
    (dict(key="Other"), "its key is of lower-case letters"),
    (dict(key="reverse"), "one of the lab's own"),
    (dict(key="doubled"), "registered already, by doubled.py"),
    (dict(look="A diagonal."), "look = 'A diagonal.'; expected a text"),
    (dict(build=3), "expected a function of a TaskConfig"),
    (dict(params=("length",)), "expected a tuple of Param"),
    (dict(params=(Param("t", "T", default=3, meaning="m"),)), "t is a number without low"),
    (dict(params=2 * (Param("t", "T", default="", meaning="m"),)), "two parameters of one key"),
    (dict(params=(Param("t", "T", default=""),)), "t has no meaning, which pages show"),
    (
        dict(metrics=tuple(Metric("far", name, LARGEST) for name in "ab")),
        "the metric far is measured already",
    ),
    (dict(metrics=(Metric("loss", "loss", LARGEST),)), "the metric loss is measured already"),
    (dict(metrics=(Metric("far", "far", LARGEST, unit=MILES),)), "a unit: share, score, positive"),
    (dict(metrics=(Metric("far", "far", lambda *_: 2.0),)), "far of a right answer is 2.0"),
    (dict(build=lambda config: config), "expected a Task"),
    (dict(draw=lambda self, g, held_out: Example(("a",), ("?",))), "lacks '\\?'|too few"),
    (
        dict(
            draw=lambda self, g, held_out: Example(
                tuple(LETTERS[i] for i in torch.randint(26, (5,))), ("a",)
            )
        ),
        "The same seed gives other examples",
    ),
    (
        dict(
            draw=lambda self, g, held_out: Example(
                tuple(LETTERS[i] for i in torch.randint(3, (2,), generator=g)), ("a",)
            )
        ),
        "too few different|trained on, too",
    ),
    (
        dict(
            draw=lambda self, g, held_out: Example(
                tuple(LETTERS[i] for i in torch.randint(26, (30,), generator=g)), ("a",)
            )
        ),
        "it said at most 12 of a source",
    ),
    (dict(places=lambda self, example: ((99,),)), "places gives"),
    (dict(form="marked"), "answers for .* tokens; give one of each place, <pad> where nothing"),
    (dict(draw=lambda self, g, held_out: 1 / 0), "test_tasks.py, line .*ZeroDivisionError"),
]


@each(("changes", "words"), BROKEN_TASKS)
def test_a_task_that_breaks_a_promise_is_not_added(changes, words, doubled):
    before = [*TASKS], {**METRICS}
    entry = broken(doubled, **changes)
    pytest.raises(ConfigError, lambda: register_task(entry)).match(words)
    assert ([*TASKS], {**METRICS}) == before, "nothing is left behind"


def test_a_task_that_asks_at_places_is_added_and_trained(doubled):
    def draw(self, generator, held_out):
        source = doubled["Doubled"].draw(self, generator, held_out).source
        return Example(source, ("<pad>",) * (len(source) - 1) + source[:1])

    def build(config):
        task = type("First", (doubled["Doubled"],), {"form": "marked", "draw": draw})(config, entry)
        task.recommended = {"decoder": task.recommended["decoder"]}
        return task

    metric = Metric("firsts", "first letters", lambda source, target, predicted: len(target) == 1)
    entry = replace(doubled["ENTRY"], key="first", metrics=(metric,), build=build)
    task = make_task(TaskConfig.of(register_task(entry).key))
    *_, record = train(recommended(task, steps=2, record_every=1, held_out=100))
    assert record.scores["firsts"] == 1.0, "a metric is of the answers alone"


def test_a_task_is_replaced_where_that_is_asked(doubled):
    config = TaskConfig.of("doubled")
    first = task_of(config)
    again = register_task(replace(doubled["ENTRY"], name="Other"), replace=True)
    assert TASKS[-1] is again and again.name == "Other (plug-in)" and task_of(config) is not first
    plugins.undo[-1]()
    assert TASKS[-1].name == "Double (plug-in)" and "right_letters" in METRICS
    no_entry: Any = 3
    with pytest.raises(ConfigError, match="takes a TaskEntry; got 3"):
        register_task(no_entry)


# Made tasks: seasonal series, days and number words in several languages, and where each output should look.

# Seasonal series: as they are made, what a forecast must beat, and where it should look.


def test_a_season_comes_back():
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
    # Not even from the generator that held-out series come from.
    task = make_task(TaskConfig.of("series"))
    held = {example.source for example in task.held_out(300)}
    batch = task.batch(4000, torch.Generator().manual_seed(2**31))
    assert len(held) == 300 and not held & set(map(tuple, batch.source[..., 0].tolist()))


def test_what_must_be_beaten_and_where_to_look():
    task = make_task(TaskConfig.of("series", period=4, seasons=2))
    assert (
        task.naive([1, 2, 3, 4, 5, 6, 7, 8]),
        task.places(Example((0.0,) * 8, (0.0,) * 4)),
    ) == ([5, 6, 7, 8], ((4,), (5,), (6,), (7,)))
    held = task.held_out(200)
    spread = [torch.tensor(e.target) - torch.tensor(e.source).mean() for e in held]
    assert task.baseline_loss == pytest.approx(float(torch.stack(spread).square().mean()), rel=1e-5)
    assert task.display_tokens(Example((1.0, -0.25), (2.0,))) == (("1.000", "-0.250"), ("2.000",))
    assert task.example("1, 2 3 4 5 6 7 8").source == (1, 2, 3, 4, 5, 6, 7, 8)
    # Errors of 1, 0, 0, 2 where the season before has 4, 3, 2, 1.
    forecast = Prediction(tuple("12345678"), tuple("9999"), ("8", "9", "9", "11"))
    assert evaluate.objective(task).score(task, [forecast]) == {"error": pytest.approx(0.3)}


def test_a_forecaster_learns_to_look_one_season_back():
    task = make_task(TaskConfig.of("series", period=4, seasons=2, anomalies=0.05))
    model = ModelConfig.transformer(32, 1, kind="forecaster", position="sinusoidal", norm="pre")
    config = recommended(
        task, model=model, steps=200, batch_size=32, learning_rate=1e-2, record_every=200
    )
    first, *_, last = train(config)
    assert last.error < 1.3 < first.error, "1.5 is what the mean of the window gives"
    assert max(map(max, last.expected)) / last.even > 3 and last.maps["0:self"].shape == (
        1,
        1,
        12,
        12,
    )


THREE, ADDED = {"pairs": 3, "keys": 16}, ((0, 4), (0, 4), (1, 5), (2, 6))
COUNTED = "twenty one ; three hundred".split(), "ein und zwanzig ; drei hundert".split()
GAVE = "when ann and ben went to the shop , ben gave the red book to ann"


@each(
    ("key", "params", "source", "target", "places", "why"),
    [
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
        (
            "numbers",
            {},
            *COUNTED,
            ((0, 1),) * 3 + ((2,),) + ((3, 4),) * 2,
            "all words of its number",
        ),
        *(
            (key, {}, ["<bos>", *line.split()[:-1]], line.split(), places, why)
            for key, line, places, why in (
                ("names", GAVE, ((),) * 15 + ((2,),), "the name that does not act"),
                ("names", "the old dogs near the tree are", ((),) * 6 + ((3,),), "the subject"),
                ("names", "it is", ((), ()), "no subject"),
                (
                    "repeats",
                    "the cat sat the cat ran the",
                    ((),) * 4 + ((2,), (), ()),
                    "what followed",
                ),
                ("repeats", "a b a b a", ((),) * 3 + ((2,), (3,)), "at the last time"),
            )
        ),
    ],
)
def test_where_each_output_looks(key, params, source, target, places, why):
    task, example = task_of(TaskConfig.of(key, **params)), Example(tuple(source), tuple(target))
    assert task.places(example) == places, why


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


def test_every_form_of_a_day_is_babels():
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
    assert max(map(len, words | {num2words(8878)})) == LONGEST and set("".join(words)) <= letters(
        tuple(LANGUAGES)
    )


def test_held_out_numbers_are_learned_in_no_language():
    task = instance(make_task(SMALL), PairTask)
    held, english = task.held_out(300), {num2words(n): n for n in range(10_000)}
    numbers = {english["".join(e.source)] for e in held if e.target == ("English",)}
    spoken = {num2words(n, lang=language) for n in numbers for language in LANGUAGES}
    assert numbers and all(is_held_out(str(number)) for number in numbers)
    # words of two languages may be of two numbers
    spoken -= {"six", "zero", "mille", "acht", "elf", "vier"}
    assert not {"".join(e.source) for e in task.pool} & spoken


def test_an_example_is_what_num2words_says():
    task = make_task(SMALL)
    # quick ones
    spoken = {
        LANGUAGES[code]: {num2words(n, lang=code) for n in range(10_000)} for code in ("es", "it")
    }
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
    assert task.baseline_loss == pytest.approx(math.log(6)) and task.places(examples[0]) is None


# Texts: windows that ask for their next token, and what is typed.


def test_characters_and_words():
    assert (split("I'm\nhere ", "characters"), split("I'm\nhere, né ", "words")) == (
        ["I", "'", "m", "↵", "h", "e", "r", "e", " "],
        ["I", "'", "m", "↵", "here", ",", "né"],
    )


PARTS = st.lists(st.sampled_from(["a", "b", "ab", "aab", " ", "\n", "é", ".", "🦊"])).map("".join)


@given(PARTS, PARTS, PARTS, st.sampled_from(UNIT.choices), st.integers(1, 40), st.booleans())
def test_unseen_windows_are_those_that_training_text_lacks(first, second, third, unit, length, few):
    trained, held_out = first + second * 9 + "b", "a " * length + third + second * 5 + first
    corpus = Corpus.of(trained, held_out, unit)
    joined, tokens = corpus.between.join(corpus.trained), corpus.held_out
    new = {
        start
        for start in range(len(tokens) - length)
        if corpus.between.join(tokens[start : start + length]) not in joined
    }
    with pytest.MonkeyPatch.context() as patch:  # as few signs as a window has are ordered
        patch.setattr("core.tasks.text.MAX_LENGTH", length if few else 256)
        starts = list(unseen(corpus, length, 1))
    assert set(starts) == new and len(starts) == len(new)


def test_the_reference_is_cut_by_topic():
    found = json.loads(TOPICS_FILE.read_bytes())
    corpus = topics("characters")
    held = [
        text.strip().replace("\n", "↵") for name, text in sorted(found.items()) if is_held_out(name)
    ]
    assert (
        held
        and "".join(corpus.held_out) == "↵↵".join(held)
        and len(corpus.trained) > 8 * len(corpus.held_out) > 80_000
    )


def _sha256(data):
    return hashlib.sha256(data.encode()).hexdigest()[:12]


def test_data_is_the_same_on_every_python():
    # What packages and the interpreter hold beside it is made here, of num2words and of Unicode's tables.
    assert [_sha256(repr(number_words(one))) for one in ("en", "de", "fr", "es")] == [
        "a271c377adf7",
        "ac8e6056d913",
        "c9602fe5bd65",
        "3d1c62a113be",
    ]
    assert _sha256(characters()) == "64a8a2129897"
    assert _sha256("".join(topics("characters").trained)) == "1a597e5728b9"


@each(
    "load",
    [
        lambda: topics.__wrapped__("words"),
        iris.__wrapped__,
        digits.__wrapped__,
        lambda: picture.__wrapped__("Flower"),
        lambda: picture.__wrapped__("Temple"),
    ],
)
def test_changed_data_is_not_read(load, monkeypatch):
    load()
    with (
        monkeypatch.context() as changed,
        pytest.raises(ConfigError, match="is not the data .* measured on.* install"),
    ):
        changed.setattr(Path, "read_bytes", lambda self: b"changed")
        load()


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
    batch = task.batch(8, seeded())
    assert batch.target_in is None and batch.source.shape == (8, config["length"])
    assert torch.equal(batch.source[:, 1:], batch.target_out[:, :-1])
    between = "" if task.corpus.unit == "characters" else " "
    learned = between.join(task.corpus.trained)
    for example in task.held_out(100):
        assert (
            between.join(example.source) not in learned
            and example.source[1:] == example.target[:-1]
        )
    assert all(
        between.join(task.source_vocab.decode(row)) in learned
        for row in batch.source.tolist()
        if UNK not in row
    )
    assert {len(example.source) for example in task.trained()} == {config["length"]}
    collated = task.collate(task.held_out(3))
    assert (
        torch.equal(collated.source[:, 1:], collated.target_out[:, :-1])
        and EOS not in collated.target_out
        and PAD not in collated.target_out
    )


def test_what_is_typed_has_no_next_token_of_its_last():
    task = make_task(TaskConfig.of("own_text"))
    batch = task.collate([task.example("Love\nis"), task.example("Lo")])
    assert batch.target_out.tolist()[1] == [batch.source.tolist()[1][1], *[PAD] * 6]
    assert batch.source_mask.sum(1).tolist() == [7, 2] and batch.tokens == 9


def test_words_that_are_not_learned_are_unknown():
    corpus = Corpus.of("a b a c", "a d d", "words")
    assert corpus.unknown == pytest.approx(2 / 3) and corpus.vocab.encode("d") == [UNK]
    assert [own_corpus("a " * n + "b", "auto").unit for n in (MIN_WORDS - 1, MIN_WORDS)] == [
        "characters",
        "words",
    ]


def test_your_text_is_cut_at_line_and_nothing_of_it_is_lost():
    task = instance(make_task(TaskConfig.of("own_text")), TextTask)
    whole = "".join((*task.corpus.trained, *task.corpus.held_out))
    assert (
        whole == SONNETS.strip().replace("\n", "↵")
        and task.corpus.trained[-1] == "↵"
        and "Training uses" in task.notes[0]
    )


def test_a_language_model_learns_more():
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
    task, generator = make_task(TaskConfig.of("names", **params)), seeded(1)
    return task, [task.draw(generator, held_out=False) for _ in range(count)]


def test_the_last_name_is_the_one_that_does_not_act():
    seen = set()
    for _, words in lines(sentences="names")[1]:
        first, second, acts, last = GIVING.fullmatch(" ".join(words)).groups()
        assert first != second and {acts, last} == {first, second}
        seen.add(acts == first)
    assert seen == {True, False}, "either may act, so that no position tells"


def test_a_verb_agrees_with_its_subject():
    seen = set()
    for _, words in lines(sentences="agreement")[1]:
        subject, other, verb = BEING.fullmatch(" ".join(words)).groups()
        assert (verb == "are") == subject.endswith("s")
        seen.add((verb, other.endswith("s")))
    assert len(seen) == 4, "the noun before the verb has either number"


def test_both_kinds_come_by_default_and_fit():
    task, examples = lines()
    kinds = [bool(GIVING.fullmatch(" ".join(words))) for _, words in examples]
    assert (
        0.4 < sum(kinds) / len(kinds) < 0.6
        and max(len(words) for words, _ in examples) == LONGEST_LINE
    )
    batch = task.collate(examples)
    assert (
        UNK not in batch.source
        and (batch.source[:, 0] == BOS).all()
        and torch.equal(batch.target_out == PAD, ~batch.source_mask)
    )
    real = batch.source_mask[:, 1:]
    assert torch.equal(batch.source[:, 1:][real], batch.target_out[:, :-1][real])


# Repeated passages: lines that say a passage again, tell each next word, and are trained as any language model.


def turn(words):
    """The step after which most of a line's words come again, and the share that does."""
    # 4 to 12 words of a passage, 0 to 6 between
    shares = {
        step: sum(a == b for a, b in zip(words, words[step:], strict=False)) / (len(words) - step)
        for step in range(4, 19)
    }
    return max(shares.items(), key=lambda item: item[1])


def test_a_line_says_its_passage_again():
    task = make_task(TaskConfig.of("repeats", length=60, passage=12, gap=6))
    batch = task.batch(1000, seeded(1))
    assert (
        batch.source.shape == batch.target_out.shape == (1000, 60)
        and (batch.source[:, 0] == BOS).all()
        and batch.target_in is None
    )
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
    # The commonest words come most.
    counts = torch.bincount(task.batch(500, seeded(2)).target_out.flatten(), minlength=254)
    often = counts[task.source_vocab.encode(COMMON)].float()
    assert len(COMMON) == len(set(COMMON)) == 250 and often[:20].mean() > 3 * often[-20:].mean() > 0


# Documents: the highest court decides, no count of words tells the class, and no document is on both sides.

CLASS_OF = {word: VERDICTS[i] for words in (GUILT, VERBS) for i in (0, 1) for word in words[i]}


def rulings(example):
    """(rank of the court, class, sentence) of each sentence that has both, read from the text."""
    found = []
    for number, line in enumerate(" ".join(example.source).removesuffix(" .").split(" . ")):
        words = line.split()
        verdicts = [CLASS_OF[word] for word in words if word in CLASS_OF]
        courts = [COURTS.index(words[i - 1]) for i, word in enumerate(words) if word == "court"]
        assert len(verdicts) == len(courts) <= 1
        found += [(court, verdict, number) for court, verdict in zip(courts, verdicts, strict=True)]
    return found


@each(
    "config",
    [
        TaskConfig.of("documents"),
        TaskConfig.of("documents", sentences=3, courts=3, seed=2),
        TaskConfig.of("documents", sentences=11, courts=6),
    ],
)
def test_the_highest_court_decides_and_another_disagrees(config):
    task = instance(make_task(config), Documents)
    examples, sizes = task.held_out(400), Counter[int]()
    for example in examples:
        ruled = rulings(example)
        assert (
            len({court for court, _, _ in ruled}) == len(ruled) >= 2
            and len({v for _, v, _ in ruled}) == 2
        )
        assert min(court for court, _, _ in ruled) >= len(COURTS) - config["courts"]
        _, verdict, number = max(ruled)
        assert example.target == (verdict,)
        spans = sentence_spans(example.source)
        place, words = task.deciding(example)
        court, ruling = sorted(
            (example.source[i] for i in words), key=lambda word: word in CLASS_OF
        )
        assert (
            place == spans[number]
            and set(words) <= set(place)
            and CLASS_OF[ruling] == verdict
            and COURTS.index(court) == max(ruled)[0]
        )
        assert task.places(example) == (tuple(place),)
        sizes[len(spans)] += 1
        assert len(example.source) <= task.max_source and UNK not in task.source_vocab.encode(
            example.source
        )
    assert set(sizes) == set(range(2, task.sentences + 1)), "documents of every length"


def test_no_count_of_words_tells_the_class():
    # Neither the number of verdicts nor any word is more frequent with one class, and naive Bayes guesses.
    task = make_task(TaskConfig.of("documents"))
    examples = task.held_out(1_000)
    by_class = {name: [e for e in examples if e.target == (name,)] for name in VERDICTS}
    assert (len(by_class["guilty"]) / len(examples)) == pytest.approx(0.5, abs=0.05)
    guilty = [sum(v == "guilty" for _, v, _ in rulings(e)) / len(rulings(e)) for e in examples]
    means = [
        sum(g for e, g in zip(examples, guilty, strict=True) if e.target == (name,))
        / len(by_class[name])
        for name in VERDICTS
    ]
    assert means[0] == pytest.approx(means[1], abs=0.04), (
        "as many verdicts of each class, whatever the class"
    )
    name, score = task.baseline()
    assert (name, score) == ("naive Bayes on word counts", 0.51)


def test_sides_share_no_document_and_batch_is_its_examples():
    task = make_task(TaskConfig.of("documents", sentences=3, courts=3))
    held = {e.source for e in task.held_out(800)}
    batch = task.batch(2_000, seeded(5))
    words = [tuple(task.source_vocab.decode(ids)) for ids in batch.source.tolist()]
    assert not held & set(words)
    classes = [VERDICTS[i] for i in task.collate(task.held_out(5)).target_out.tolist()]
    assert classes == [e.target[0] for e in task.held_out(5)]


def test_by_hand_and_what_a_person_types():
    task = make_task(TaskConfig.of("documents"))
    typed = task.example(
        "The supreme court acquitted him. It rained. The high court found him guilty."
    )
    assert task.deciding(typed) == (range(6), (1, 3)) and typed.source[5] == "."
    assert task.places(typed) == ((0, 1, 2, 3, 4, 5),)
    nothing = Example(("it", "rained", "."), ())
    assert task.deciding(nothing) is None and task.places(nothing) == ((),)
    assert task.source_vocab.tokens[task.shape.sentence_end] == "."


@each(
    ("start", "end", "kinds"),
    [
        ("It broke. ", " times.", ["classifier", "hierarchical"]),
        ("", " times.", ["classifier"]),
        ("", " times", ["classifier"]),
    ],
)
def test_a_persons_own_texts_have_sentences(start, end, kinds):
    lines = [
        f'"{start}I {"hate" if n % 2 else "love"} it {n}{end}",{"ab"[n % 2]}' for n in range(300)
    ]
    task = make_task(TaskConfig.of("own_table", data="text,kind\n" + "\n".join(lines)))
    assert (
        list(task.recommended) == kinds
        and task.recommended["classifier"].steps == 30 * len(task.trained()) // 32
    )
    end_mark = task.shape.sentence_end
    assert task.source_vocab.tokens[end_mark] == "." if "hierarchical" in kinds else end_mark == 0
    for recipe in task.recommended.values():
        model, batch = (
            build_model(ModelConfig.from_json(recipe.model), task.shape),
            task.collate(task.held_out(3)),
        )
        assert model(batch.source, batch.source_mask).logits.shape == (3, 2)
    assert task.deciding(task.held_out(1)[0]) is None


# Digits in patches and pictures of numbers: real pixels, a split that shares none of them, words from the right digit.


def whole(example, grid):
    """The picture that patches were cut from, put together another way than `patches_of`."""
    side = int(len(example.source[0]) ** 0.5)
    rows = [
        np.hstack(
            [np.array(example.source[r * grid[1] + c]).reshape(side, side) for c in range(grid[1])]
        )
        for r in range(grid[0])
    ]
    return np.vstack(rows)


def test_digits_and_iris_are_scikit_learns():
    from sklearn.datasets import load_digits, load_iris

    pictures, labels = digits()
    theirs, split, table = load_digits(), load_iris(), iris()
    assert (
        np.array_equal(pictures.numpy() * 16, theirs.images)
        and labels.tolist() == theirs.target.tolist()
    )
    assert [list(row) for row in table.rows] == split.data.tolist() and list(
        table.labels
    ) == split.target.tolist()
    assert list(table.classes) == split.target_names.tolist()


def test_patches_are_cut_row_by_row():
    picture = torch.arange(32.0).reshape(1, 4, 8)
    assert patches_of(picture, 2).shape == (1, 8, 4)
    assert patches_of(picture, 2)[0, 5].tolist() == [18, 19, 26, 27], (
        "second row of patches, second patch"
    )
    assert torch.equal(patches_of(picture, 4)[0, 1], picture[0, :, 4:].flatten())


@each("patch", ["1", "2", "4"])
def test_a_digit_is_held_out_whole(patch):
    task = make_task(TaskConfig.of("digits", patch=patch))
    held, trained = task.held_out(10_000), task.trained()
    assert (
        len(held) + len(trained) == 1797
        and len(held) == 359
        and not {e.source for e in held} & {e.source for e in trained}
    )
    pictures, labels = digits()
    known = {
        (row.tobytes(), int(label)) for row, label in zip(pictures.numpy(), labels, strict=True)
    }
    for example in held[:20]:
        picture = whole(example, task.shape.grid).astype(np.float32)
        assert (picture.tobytes(), int(example.target[0])) in known
    batch = task.batch(12, seeded())
    assert batch.source.shape == (12, task.shape.longest, task.shape.source)
    assert {tuple(map(tuple, row)) for row in batch.source.tolist()} <= {e.source for e in trained}
    assert task.display_tokens(held[0])[0][-1] == f"{8 // int(patch)},{8 // int(patch)}"


@each(
    ("language", "number", "places"),
    [
        ("en", 321, (0, -1, -1, 1, 2)),
        ("de", 321, (0, -1, 2, -1, 1)),
        ("fr", 321, (0, -1, 1, 2, 2)),
        ("fr", 22, (0, 1)),
        ("es", 333, (0, 1, -1, 2)),
        ("de", 313, (0, -1, 2, 1)),
        ("en", 12, (-1,)),
        ("en", 4321, (0, -1, 1, -1, -1, 2, 3)),
    ],
)
def test_which_digit_decides_a_word(language, number, places):
    assert (len(number_words(language)[number]), deciding(language, number)) == (
        len(places),
        places,
    )


@each("params", [dict(), dict(language="en", digits=2, patch="8"), dict(language="es", patch="2")])
def test_a_picture_shows_the_number_that_its_words_say(params):
    task = instance(make_task(TaskConfig.of("pictures", **params)), Pictures)
    words, (pictures, labels) = number_words(task.language), digits()
    label = {row.tobytes(): int(digit) for row, digit in zip(pictures.numpy(), labels, strict=True)}
    batch = task.batch(40, seeded())
    assert (
        (batch.target_in[:, 0] == BOS).all()
        and ((batch.target_out == EOS).sum(1) == 1).all()
        and torch.equal(batch.target_in[:, 1:] != PAD, batch.target_out[:, 1:] != PAD)
    )
    sides: dict[bool, set[bytes]] = {False: set(), True: set()}
    trained = [
        type(e)(tuple(map(tuple, row.tolist())), tuple(task.target_vocab.decode(ids)))
        for e, row, ids in zip(
            task.held_out(40), batch.source, batch.target_out.tolist(), strict=True
        )
    ]
    numbers: dict[bool, set[int]] = {False: set(), True: set()}
    for side, examples in ((False, trained), (True, task.held_out(40))):
        for example in examples:
            picture = whole(example, task.shape.grid).astype(np.float32)
            parts = [
                np.ascontiguousarray(part).tobytes()
                for part in np.split(picture, task.count, axis=1)
            ]
            number = int("".join(str(label[part]) for part in parts))
            assert words[number] == example.target
            sides[side].update(parts)
            numbers[side].add(number)
    assert not sides[False] & sides[True] and not numbers[False] & numbers[True]


def test_a_word_may_look_at_every_patch_of_its_digit():
    task = instance(make_task(TaskConfig.of("pictures", language="en")), Pictures)
    example = next(e for e in task.held_out(200) if deciding("en", task.number[e.target])[0] == 0)
    assert task.places(example)[:2] == ((0, 1, 6, 7), ()), "the first of three digits, and hundred"


@each(
    ("config", "kind", "steps"),
    [
        (TaskConfig.of("digits", patch="4"), "classifier", 60),
        (TaskConfig.of("pictures", language="en", digits=2, patch="8"), "transformer", 60),
    ],
)
def test_pictures_are_learned(config, kind, steps):
    task = make_task(config)
    records = list(
        train(
            recommended(
                task, kind, steps=steps, record_every=steps, held_out=40, learning_rate=5e-3
            )
        )
    )
    assert (
        records[1].loss < 0.6 * records[0].loss
        and records[-1].examples[0].target == task.held_out(1)[0].target
    )
    if kind == "transformer":
        assert (
            records[-1].expected is not None
            and records[-1].maps["0:cross"].shape[-1] == 2
            and records[-1].even == pytest.approx(0.5)
        )


# Metrics against counts made by hand and against sacrebleu's own reading.


def words(*lines):
    return [line.split() for line in lines]


TEXT = st.lists(st.text(alphabet="abc de", max_size=14), min_size=1, max_size=5)


@given(
    TEXT.flatmap(
        lambda targets: st.tuples(
            st.lists(
                st.text(alphabet="abc de", max_size=14),
                min_size=len(targets),
                max_size=len(targets),
            ),
            st.just(targets),
        )
    )
)
def test_scores_of_any_texts_are_sacrebleus(pair):
    guesses, targets = pair
    assert chrf(guesses, targets) == pytest.approx(
        sacrebleu.CHRF().corpus_score(guesses, [targets]).score
    )
    rows, wanted = ([line.split() for line in lines] for lines in pair)
    orders = max(1, min(4, max(map(len, wanted))))
    metric = sacrebleu.BLEU(tokenize="none", max_ngram_order=orders, force=True)
    assert bleu(rows, wanted) == pytest.approx(metric.corpus_score(guesses, [targets]).score)


def test_scores_by_hand():
    targets = [tuple("abcd"), tuple("ab"), tuple("abc")]
    assert exact_match([list("abcd"), list("b"), list("abx")], targets) == pytest.approx(1 / 3)
    # Words 3 of 4, pairs 1 of 3, triples 0 of 2, fours 0 of 1: what is missing counts 1/2, then 1/4.
    expected = 100 * (3 / 4 * 1 / 3 * (1 / 2) / 2 * (1 / 4) / 1) ** 0.25
    assert bleu(words("a b x d"), words("a b c d")) == pytest.approx(expected)
    assert bleu(words("a b c d"), words("a b c d")) == pytest.approx(100)
    assert bleu([["zehn"]], [["zehn"]]) == pytest.approx(100), "a target of one word can be right"
    assert bleu([[]], [["zehn"]]) == 0
    assert chrf(["ab"], ["ab"]) == pytest.approx(100) and chrf(["x"], ["ab"]) == 0


@each("metric", [exact_match, bleu])
def test_counts_must_agree(metric):
    for predictions in ([["a"]], []):
        pytest.raises(ValueError, metric, predictions, []).match("one by one")


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=40))
def test_confusion_is_that_of_scikit_learn(pairs):
    from sklearn.metrics import confusion_matrix, recall_score

    right, predicted = map(list, zip(*pairs, strict=True))
    counts = evaluate.confusion_matrix(
        torch.nn.functional.one_hot(torch.tensor(predicted), 5).float(), torch.tensor(right)
    ).tolist()
    assert counts == confusion_matrix(right, predicted, labels=range(5)).tolist()
    # balanced_accuracy_score is this mean, but warns of classes that are only predicted
    there = sorted(set(right))
    assert balanced_accuracy(counts) == pytest.approx(
        recall_score(right, predicted, labels=there, average="macro")
    )


def test_the_majority_is_of_what_is_trained_on():
    assert (majority_class("aabaa", "abbb"), entropy("aab")) == (
        ("a", 0.25),
        pytest.approx(-(2 / 3 * math.log(2 / 3) + 1 / 3 * math.log(1 / 3))),
    )
    assert entropy("abcd") == pytest.approx(math.log(4)) and entropy("aa") == 0
    pytest.raises(ValueError, balanced_accuracy, [[0, 0], [0, 0]]).match("empty confusion matrix")


# Stories: the grammar reads what it writes and says which word is wrong; the task's pieces are any text's.

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
        # he has it no more
        (f"{WENT} John gave the drink to Mary, and Mary thanked John.", ("A",)),
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


def test_plurals_articles_and_words_and_text_without_form():
    singular, many = "knife fox berry key box bus cat", "knives foxes berries keys boxes buses cats"
    assert [*map(plural, singular.split())] == many.split()
    pytest.raises(ValueError, list, judge(f"{WENT} It rained.")).match(r"^It rained\.$")
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


stories = cache(lambda: make_task(TaskConfig.of("stories", stories=200, pieces=512, length=160)))


@given(st.text())
def test_no_text_is_unknown(text):
    assert stories().text_of(stories().tokens(text)) == text
    assert set(stories().tokens(text)) <= set(stories().source_vocab.tokens)


def test_the_shipped_pieces_are_those_of_the_stories():
    learned, shipped = (
        json.loads(pieces(4_096).to_str())["model"] for pieces in (learn_byte_pairs, byte_pairs)
    )
    assert learned["merges"] == shipped["merges"]
    assert learned["vocab"].keys() == shipped["vocab"].keys() - set(SPECIALS)


def test_a_window_begins_with_a_story():
    batch = stories().batch(64, torch.Generator().manual_seed(0))
    assert batch.source.shape == (64, 160) and torch.equal(
        batch.source[:, 1:], batch.target_out[:, :-1]
    )
    for row in batch.source:
        text = stories().text_of(stories().source_vocab.decode(row))
        assert any(opening.pattern.match(text) for opening in OPENINGS) or "." not in text
    assert (batch.source == EOS).any()
    (example,) = stories().held_out(1)
    assert example.source[1:] == example.target[:-1]


def test_what_a_model_writes_is_measured(tmp_path):
    """An untrained model is right by chance alone; its folder has the task's own pieces."""
    torch.manual_seed(0)
    model = build_model(
        ModelConfig.from_json(stories().recommended["decoder"].model), stories().shape
    )
    vocabulary = Vocabulary(vocabulary_words(stories()))
    convert_to_hf(model, stories(), vocabulary).save_pretrained(tmp_path)
    tokenizer = hf_tokenizer(stories(), vocabulary, 161)
    tokenizer.save_pretrained(tmp_path)
    assert tokenizer.tokenize(WENT) == stories().tokens(WENT)
    assert load_folder(tmp_path, "untrained").tokenizer.decode(tokenizer(WENT)["input_ids"]) == WENT
    figures = export.measure_writing(tmp_path, 3)
    assert (
        figures["whole_continuations"] == figures["next_sentences"] == [0, 0]
        and figures["referents"]
    )
    assert (
        figures["loss"] == pytest.approx(math.log(len(vocabulary)), rel=0.2)
        and 0.3 < figures["entropy"] < 1
    )


def test_questions_and_continuations():
    text = f"{WENT} Mary put the drink into the jar. She was glad."
    (name, at, words), (pronoun, where, both) = export.questions(text)
    assert (name, text[at:], words) == (
        "indirect_objects",
        text[WENT.rindex("Mary") :],
        ("Mary", "John"),
    )
    assert (pronoun, text[where:], both) == ("referents", "She was glad.", ("He", "She"))
    assert export.accepted(text, len(WENT)) == [True, True]
    assert export.accepted(text.replace("She", "He"), len(WENT)) == [True, False]
    assert export.accepted(f"{WENT} It rained.", len(WENT)) == [False]
