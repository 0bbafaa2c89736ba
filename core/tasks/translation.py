"""Translation: numbers in English words to German or French, and written dates to ISO."""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left, bisect_right
from dataclasses import replace
from datetime import date, timedelta
from functools import cached_property

import torch
from jaxtyping import Int
from torch import Tensor

from core.entries import Param
from core.tasks import recipes
from core.tasks.base import (
    PAD,
    Batch,
    Example,
    Task,
    TaskConfig,
    TaskEntry,
    Vocabulary,
    choose,
    is_held_out,
)
from core.tasks.dates import FORMATS, LOCALES, date_parts, format_day
from core.tasks.words import LARGEST, number_words

SEPARATOR = ";"
FIRST_DAY, DAYS = date(1950, 1, 1), 36_525  # a hundred years, so that a year of two digits is clear


class PairTask(Task):
    """A task with a pool of training pairs, made once by the seed; a batch has one source length, which recurrent cells
    read twice as fast as packed lengths."""

    @cached_property
    def pool(self) -> list[Example]:
        """The training pairs, shortest source first."""
        generator = torch.Generator().manual_seed(self.config.seed)
        pairs = [
            self.draw(generator, held_out=False) for _ in range(int(self.config["train_pairs"]))
        ]
        return sorted(pairs, key=lambda pair: len(pair.source))

    def batch(self, batch_size: int, generator: torch.Generator) -> Batch:
        return cut(self._pool_batch, self.choose_rows(batch_size, generator))

    @cached_property
    def _pool_batch(self) -> Batch:
        return self.collate(self.pool)

    def choose_rows(self, batch_size: int, generator: torch.Generator) -> Int[Tensor, " N"]:
        """Random pairs of the pool of one source length."""
        pool, length_of = self.pool, lambda pair: len(pair.source)
        length = length_of(pool[choose(generator, len(pool))])
        low, high = (
            bisect_left(pool, length, key=length_of),
            bisect_right(pool, length, key=length_of),
        )
        if (
            short := batch_size - (high - low)
        ) > 0:  # too few of that length: add those beside them
            low = max(0, min(low - short // 2, len(pool) - batch_size))
            high = low + batch_size
        return low + torch.randperm(min(high, len(pool)) - low, generator=generator)[:batch_size]


def cut(batch: Batch, rows: Int[Tensor, " N"]) -> Batch:
    """Rows of a batch, without the columns that are padding in all of them."""
    mask, target = batch.source_mask[rows], batch.target_out[rows]
    longest = int(mask.sum(1).max())
    source, mask = batch.source[rows, :longest], mask[:, :longest]
    if batch.target_in is None:
        return Batch(source, mask, None, target)
    size = int((target != PAD).sum(1).max())
    return Batch(source, mask, batch.target_in[rows, :size], target[:, :size])


class Numbers(PairTask):
    """One to ten numbers joined by ";": most below a thousand, some up to 9999."""

    separator = " "
    metrics = ("exact", "bleu")

    def __init__(self, config: TaskConfig, entry: TaskEntry) -> None:
        super().__init__(config, entry)
        self.english, self.words = number_words("en"), number_words(str(config["language"]))
        self.source_vocab = Vocabulary(
            [SEPARATOR, *(token for words in self.english for token in words)]
        )
        self.target_vocab = Vocabulary(
            [SEPARATOR, *(token for words in self.words for token in words)]
        )
        self.max_source = int(config["max_source"])
        self.max_target = int(config["numbers"]) * (max(map(len, self.words)) + 1)
        self.recommended = recipes.translation(128, 700, 600, 4e-3)

    def tokens(self, text: str) -> list[str]:
        """Words and ";" of a typed text; numbers up to 9999 become words."""
        parts = re.findall(r"[^\W\d_]+|\d+|;", text.lower())
        spelled = [
            self.english[int(t)] if t.isdecimal() and int(t) <= LARGEST else (t,) for t in parts
        ]
        return [word for words in spelled for word in words]

    def draw(self, generator: torch.Generator, held_out: bool) -> Example:
        while True:
            count = 1 + choose(generator, int(self.config["numbers"]))
            small = (torch.rand(count, generator=generator) < 0.7).tolist()
            draws = torch.randint(LARGEST + 1, (count,), generator=generator).tolist()
            numbers = [n % 1000 if below else n for n, below in zip(draws, small, strict=True)]
            source = _join(self.english, numbers)
            if (
                len(source) <= self.max_source
                and is_held_out(",".join(map(str, numbers))) == held_out
            ):
                return Example(source, _join(self.words, numbers))

    def places(self, example: Example) -> tuple[tuple[int, ...], ...]:
        """All words of the same number; for a ";" its counterpart."""
        sources, targets = _parts(example.source), _parts(example.target)
        same = dict(zip(targets, sources, strict=False))  # a typed example has no target
        return tuple(tuple(same.get(part, ())) for part in targets for _ in part)


def _parts(tokens: tuple[str, ...]) -> list[range]:
    """The positions of each number, and of each separator between two."""
    ends = [i for i, token in enumerate(tokens) if token == SEPARATOR]
    cuts = [0, *(cut for end in ends for cut in (end, end + 1)), len(tokens)]
    return [range(low, high) for low, high in itertools.pairwise(cuts)]


def _join(words: tuple[tuple[str, ...], ...], numbers: list[int]) -> tuple[str, ...]:
    tokens: list[str] = []
    for n in numbers:
        tokens += (SEPARATOR, *words[n]) if tokens else words[n]
    return tuple(tokens)


class Dates(PairTask):
    """A date as English, German or French speakers write it, short or in full, to year-month-day; a day is held out in
    all forms."""

    def __init__(self, config: TaskConfig, entry: TaskEntry) -> None:
        super().__init__(config, entry)
        forms = {
            format_day(FIRST_DAY + timedelta(n), locale, form)
            for n in range(0, 366, 5)
            for locale in LOCALES
            for form in FORMATS
        }
        self.source_vocab = Vocabulary(
            [*"0123456789", *(letter for text in forms for letter in text)]
        )
        self.target_vocab = Vocabulary("0123456789-")
        self.max_source, self.max_target = max(map(len, forms)) + 2, len("2000-01-01")
        self.recommended = recipes.translation(64, 900, 900)

    def draw(self, generator: torch.Generator, held_out: bool) -> Example:
        while True:
            day = FIRST_DAY + timedelta(choose(generator, DAYS))
            if is_held_out(day.isoformat()) == held_out:
                locale = [*LOCALES][choose(generator, len(LOCALES))]
                text = format_day(day, locale, FORMATS[choose(generator, len(FORMATS))])
                return Example(tuple(text), tuple(day.isoformat()))

    def places(self, example: Example) -> tuple[tuple[int, ...], ...]:
        """The year's digits for the year, the month's digits or letters for the month, the day's digits for the day."""
        parts = date_parts("".join(example.source))
        positions = [
            tuple(part) for part, size in zip(parts, (4, 2, 2), strict=True) for _ in range(size)
        ]
        return tuple(
            [*positions[:4], (), *positions[4:6], (), *positions[6:]][: len(example.target)]
        )


PAIRS = Param(
    "train_pairs",
    "Training pairs",
    20_000,
    1000,
    50_000,
    1000,
    meaning="number of pairs that are generated before training",
)
NUMBERS: TaskEntry = TaskEntry(
    "numbers",
    "Number words",
    "Translate English number words to German or French.",
    "Each output attends to the words of its number, so the map is a staircase. Within a German number it steps back, "
    "as ones come before tens.",
    lambda config: Numbers(config, NUMBERS),
    (
        Param(
            "language",
            "Language",
            "de",
            choices=("de", "fr"),
            labels=("German", "French"),
            meaning="language that the numbers are translated to",
        ),
        Param(
            "numbers", "Numbers", 10, 2, 10, 1, meaning="largest number of numbers in one source"
        ),
        Param(
            "max_source",
            "Longest source",
            60,
            10,
            80,
            1,
            meaning="largest number of words in one source",
        ),
        PAIRS,
    ),
)
DATES: TaskEntry = TaskEntry(
    "dates",
    "Dates",
    "Translate a date in English, German or French to year-month-day.",
    "The output attends to the end of the source for the year, then to the month, then to the day.",
    lambda config: Dates(config, DATES),
    (replace(PAIRS, default=10_000),),
)
