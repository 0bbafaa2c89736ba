"""Tasks of letters and numbers: copy, reverse, sort, recall, induction, addition, and series to forecast."""

import math
from collections.abc import Callable, Sequence
from functools import cached_property

import torch
from jaxtyping import Float, Int

from core.entries import Param, refuse_if
from core.models.base import Shape
from core.tasks import recipes
from core.tasks.base import (
    LETTERS,
    MIN_SOURCES,
    Batch,
    Example,
    Form,
    RowTask,
    Task,
    Vocabulary,
    in_held_out,
)
from core.tasks.config import TaskConfig, TaskEntry

ORDERS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "copy": lambda source: source,
    "reverse": lambda source: source.flip(1),
    "sort": lambda source: source.sort(1).values,  # ids are in the order of the alphabet
}


class SequenceTask(RowTask):
    """`length` letters out of `vocab`; the target is the same letters in the order that the task's key names."""

    def __init__(self, config: TaskConfig, entry: TaskEntry) -> None:
        self.length, self.letters = int(config["length"]), int(config["vocab"])
        recommended = recipes.SORT if entry.key == "sort" else recipes.repeat(self.length)
        letters = Vocabulary(LETTERS[: self.letters])
        super().__init__(config, entry, recommended, (self.length, self.length), letters)
        self.ids = torch.tensor(letters.encode(LETTERS[: self.letters]))

    def rows(self, count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        source = self.ids[torch.randint(self.letters, (count, self.length), generator=generator)]
        return source, ORDERS[self.key](source)

    def places(self, example: Example) -> tuple[tuple[int, ...], ...]:
        """The same letter: where it stands, or of a sorted sequence wherever it occurs."""
        source, positions = example.source, range(len(example.source))
        if self.key == "sort":
            return tuple(tuple(i for i in positions if source[i] == one) for one in sorted(source))
        return tuple((i,) for i in (positions[::-1] if self.key == "reverse" else positions))


def check(length: int, vocab: int) -> None:
    """ConfigError for too few different sequences to hold some out."""
    refuse_if(
        vocab**length < MIN_SOURCES,
        f"length = {length} with vocab = {vocab} gives only {vocab**length:,} different sequences, "
        f"too few to hold some out; take vocab ** length ≥ {MIN_SOURCES:,}.",
    )


PARAMS = (
    Param("length", "Length", default=10, low=2, high=64, step=1, meaning="letters in a sequence"),
    Param(
        "vocab",
        "Letters",
        default=26,
        low=2,
        high=52,
        step=1,
        meaning="different letters that may occur",
    ),
)
COPY: TaskEntry = TaskEntry(
    "copy",
    "Copy",
    meaning="Write the same letters again.",
    look="Each output attends to the letter at the same position: a diagonal.",
    build=lambda config: SequenceTask(config, COPY),
    params=PARAMS,
    check=check,
)
REVERSE: TaskEntry = TaskEntry(
    "reverse",
    "Reverse",
    meaning="Write the letters in reverse order.",
    look="Each output attends to the letter at the mirrored position: an anti-diagonal.",
    build=lambda config: SequenceTask(config, REVERSE),
    params=PARAMS,
    check=check,
)
SORT: TaskEntry = TaskEntry(
    "sort",
    "Sort",
    meaning="Write the letters in alphabetical order.",
    look="Each output attends to the next letter in alphabetical order, at any position: one mark in each row and one in "
    "each column.",
    build=lambda config: SequenceTask(config, SORT),
    params=(
        Param(
            "length", "Length", default=6, low=2, high=32, step=1, meaning="letters in a sequence"
        ),
        Param(
            "vocab",
            "Letters",
            default=10,
            low=2,
            high=26,
            step=1,
            meaning="different letters that may occur",
        ),
    ),
    check=check,
)


SYLLABLES = tuple(
    first + vowel + last
    for last in ("", "n")
    for vowel in "aeiou"
    for first in "bcdfghjklmnpqrstvwxz"
)


class Recall(RowTask):
    """Pairs of a small letter and a capital in a row, then one of the small letters, to be answered by its capital. Ba
    2016 (fast weights), section 4.1; here both are letters, and no key occurs twice."""

    whole = "pairs"

    def __init__(self, config: TaskConfig, entry: TaskEntry) -> None:
        self.pairs, self.keys = int(config["pairs"]), int(config["keys"])
        keys, values = LETTERS[: self.keys], LETTERS[: self.keys].upper()
        longest = 2 * self.pairs + 1, 2
        super().__init__(
            config, entry, recipes.lookup(1, 1500, 1500, 1000), longest, Vocabulary(keys + values)
        )
        self.key_ids, self.value_ids = (
            torch.tensor(self.source_vocab.encode(kind)) for kind in (keys, values)
        )

    def rows(self, count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        # each at most once
        keys = torch.rand(count, self.keys, generator=generator).argsort(1)[:, : self.pairs]
        values = torch.randint(self.keys, keys.shape, generator=generator)
        query = torch.randint(self.pairs, (count, 1), generator=generator)
        pairs = torch.stack((self.key_ids[keys], self.value_ids[values]), 2).flatten(1)
        key, value = self.key_ids[keys.gather(1, query)], self.value_ids[values.gather(1, query)]
        return torch.cat((pairs, key), 1), torch.cat((key, value), 1)

    def places(self, example: Example) -> tuple[tuple[int, ...], ...]:
        """The query, at the end or in its pair; then the capital of that pair."""
        *pairs, query = example.source
        key = 2 * pairs[::2].index(query) if query in pairs[::2] else None
        positions = ((), ()) if key is None else ((key, len(pairs)), (key + 1,))
        return positions[: len(example.target)]


class Induction(RowTask):
    """Different words in a row, then one of them again, to be followed by the words after it (Olsson 2022)."""

    separator = " "
    unit = "word"

    def __init__(self, config: TaskConfig, entry: TaskEntry) -> None:
        self.length, self.words, self.answer = (
            int(config[name]) for name in ("length", "vocab", "said")
        )
        words = SYLLABLES[: self.words]
        longest = self.length + 1, self.answer + 1
        super().__init__(
            config, entry, recipes.lookup(2, 1000, 2500, 2500), longest, Vocabulary(words)
        )
        self.ids = torch.tensor(self.source_vocab.encode(words))

    def rows(self, count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        # The indexes of the largest random numbers differ, so no word occurs twice.
        words = self.ids[
            torch.rand(count, self.words, generator=generator).topk(self.length).indices
        ]
        start = torch.randint(self.length - self.answer, (count, 1), generator=generator)
        target = words.gather(1, start + torch.arange(self.answer + 1))
        return torch.cat((words, target[:, :1]), 1), target

    def places(self, example: Example) -> tuple[tuple[int, ...], ...]:
        """The query, at its first position or at the end; then the words after it, one by one."""
        *words, query = example.source
        if query not in words:
            return ((),) * len(example.target)
        first = words.index(query)
        after = (
            (i,) if i < len(words) else () for i in range(first + 1, first + len(example.target))
        )
        return ((first, len(words)), *after)[: len(example.target)]


def check_recall(pairs: int, keys: int) -> None:
    """ConfigError for fewer keys than pairs, or too few different sources to hold some out."""
    refuse_if(
        keys < pairs,
        f"pairs = {pairs} need as many different keys, but keys = {keys}; take keys ≥ {pairs}.",
    )
    refuse_if(
        (different := math.perm(keys, pairs) * keys**pairs * pairs) < MIN_SOURCES,
        f"pairs = {pairs} with keys = {keys} give only {different:,} different sources; {MIN_SOURCES:,} "
        "are needed, so that some can be held out. Take more pairs or more keys.",
    )


def check_induction(length: int, vocab: int, **params: int) -> None:
    """ConfigError when the words cannot all differ, or too few follow the queried one."""
    refuse_if(
        vocab < length,
        f"length = {length} different words need at least as many in the vocabulary, but vocab = "
        f"{vocab}; take vocab ≥ {length}.",
    )
    refuse_if(
        (answer := params["said"]) >= length,
        f"said = {answer} words must follow one of length = {length}; take said ≤ {length - 1}.",
    )


RECALL: TaskEntry = TaskEntry(
    "recall",
    "Associative recall",
    meaning="The source is pairs of letters, then one letter. Write the other letter of its pair.",
    look="The answer attends to the capital after the same letter in the source. It finds that letter by content, not by "
    "position.",
    build=lambda config: Recall(config, RECALL),
    params=(
        Param(
            "pairs",
            "Pairs",
            default=8,
            low=2,
            high=16,
            step=1,
            meaning="number of pairs in a source",
        ),
        Param(
            "keys",
            "Letters",
            default=16,
            low=4,
            high=26,
            step=1,
            meaning="number of different small letters, and of different capitals, that may occur",
        ),
    ),
    check=check_recall,
)
INDUCTION: TaskEntry = TaskEntry(
    "induction",
    "Induction",
    meaning="The source is words, then one of them again. Repeat it and the words that followed it.",
    look="Each output attends to the word that followed the previous word in the source: a diagonal that starts at any "
    "position.",
    build=lambda config: Induction(config, INDUCTION),
    params=(
        Param(
            "length",
            "Length",
            default=16,
            low=8,
            high=64,
            step=1,
            meaning="number of words before one is repeated",
        ),
        Param(
            "vocab",
            "Words",
            default=200,
            low=16,
            high=200,
            step=1,
            meaning="number of different words that may occur",
        ),
        Param(
            "said",
            "Words to repeat",
            default=4,
            low=1,
            high=8,
            step=1,
            meaning="number of words to write after the repeated one",
        ),
    ),
    check=check_induction,
)


class Addition(RowTask):
    """a+b with leading zeros, so that all have one length; b+a is held out wherever a+b is.

    The sum's units come first unless it is written as usual; then its first digit depends on all the others (Lee 2023,
    Teaching arithmetic to small transformers).
    """

    unit, whole = "digit", "sums"

    def __init__(self, config: TaskConfig, entry: TaskEntry) -> None:
        self.digits, self.units_first = int(config["digits"]), config["order"] == "units"
        longest = 2 * self.digits + 1, self.digits + 1
        super().__init__(config, entry, recipes.ADDITION, longest, Vocabulary("0123456789+"))
        self.ids, self.plus = (
            torch.tensor(self.source_vocab.encode("0123456789")),
            self.source_vocab.encode("+")[0],
        )

    def tokens(self, text: str) -> list[str]:
        """The digits of "7 + 25", with leading zeros."""
        return list("+".join(number.strip().zfill(self.digits) for number in text.split("+")))

    def rows(self, count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        numbers = torch.randint(10**self.digits, (count, 2), generator=generator)
        a, b = (self.ids[decimal_digits(number, self.digits)] for number in numbers.T)
        plus = torch.full((count, 1), self.plus)
        total = decimal_digits(numbers.sum(1), self.digits + 1)
        return torch.cat((a, plus, b), 1), self.ids[total.flip(1) if self.units_first else total]

    def item(self, source: Int[torch.Tensor, "N S"]) -> Int[torch.Tensor, "N K"]:
        """Both numbers, the smaller first."""
        powers = 10 ** torch.arange(self.digits - 1, -1, -1)
        digits = source - self.ids[0]
        a, b = (
            (part * powers).sum(1)
            for part in (digits[:, : self.digits], digits[:, self.digits + 1 :])
        )
        return torch.stack((torch.minimum(a, b), torch.maximum(a, b)), 1)

    def places(self, example: Example) -> tuple[tuple[int, ...], ...]:
        """The two digits that are added; for the last carry those that cause it."""
        if len(example.source) != 2 * self.digits + 1:
            return ((),) * len(example.target)
        positions = [(i, i + self.digits + 1) for i in (0, *range(self.digits))]
        return tuple(positions[::-1] if self.units_first else positions)


def decimal_digits(numbers: Int[torch.Tensor, " N"], digits: int) -> Int[torch.Tensor, "N D"]:
    """The decimal digits of whole numbers, the highest first."""
    return numbers[:, None] // 10 ** torch.arange(digits - 1, -1, -1) % 10


ADDITION: TaskEntry = TaskEntry(
    "addition",
    "Addition",
    meaning="Add two numbers, digit by digit.",
    look="Each digit of the sum attends to the two digits that it is the sum of: two parallel diagonals.",
    build=lambda config: Addition(config, ADDITION),
    params=(
        Param(
            "digits",
            "Digits",
            default=3,
            low=3,
            high=8,
            step=1,
            meaning="number of digits of each number",
        ),
        Param(
            "order",
            "Order",
            default="units",
            choices=("units", "written"),
            labels=("units first", "as written"),
            meaning="order in which the model writes the digits of the sum",
        ),
    ),
)


# standard deviations: between seasons, of a moment, of a season's slope
DRIFT, NOISE, TREND = (0.3, 0.15, 0.3)
SPIKE = 4.0
PRECISION = 1000  # steps a unit, for the hash that decides the side of the split


class Seasons(Task):
    """Predict the next season from `seasons` seasons; each series has a random season of its own.

    The season drifts from one to the next and the series has a linear trend. `anomalies` is the share of the moments
    read that are spikes, of SPIKE standard deviations of the season; the target has none.
    """

    form: Form = "series"
    input = "series"
    unit, whole = "moment", "forecasts"
    metrics = ("error",)

    def __init__(self, config: TaskConfig, entry: TaskEntry) -> None:
        self.period, self.seasons = int(config["period"]), int(config["seasons"])
        self.anomalies = float(config["anomalies"])
        longest = self.period * self.seasons, self.period
        super().__init__(config, entry, recipes.SERIES, longest)

    @property
    def shape(self) -> Shape:
        return Shape(1, self.max_target, self.max_source, "series", "values")

    @cached_property
    def baseline_loss(self) -> float:
        """The mean squared error of predicting each window's mean."""
        errors = [
            (value - sum(e.source) / len(e.source)) ** 2
            for e in self.held_out(200)
            for value in e.target
        ]
        return sum(errors) / len(errors)

    def naive(self, values: Sequence[float]) -> list[float]:
        return list(values[-self.period :])

    def batch(self, batch_size: int, generator: torch.Generator) -> Batch:
        return self._batch(*self._series(batch_size, generator, held_out=False))

    def draw(self, generator: torch.Generator, held_out: bool) -> Example:
        source, target = self._series(1, generator, held_out)
        return Example(tuple(source[0].tolist()), tuple(target[0].tolist()))

    def collate(self, examples: Sequence[Example]) -> Batch:
        return self._batch(
            torch.tensor([example.source for example in examples]),
            torch.tensor([example.target for example in examples]),
        )

    def display_tokens(self, example: Example) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return tuple(f"{value:.3f}" for value in example.source), tuple(
            f"{value:.3f}" for value in example.target
        )

    def example(self, text: str) -> Example:
        """A typed series, numbers with spaces or commas between; ValueError when it is none."""
        try:
            values = tuple(float(word) for word in text.replace(",", " ").split())
        except ValueError as error:
            raise ValueError(f"A series is made of numbers: {error}.") from None
        refuse_if(
            not 2 * self.period <= len(values) <= self.max_source,
            f"The series has {len(values)} numbers; this task reads {2 * self.period} to "
            f"{self.max_source}.",
        )
        return Example(values, (0.0,) * self.period)

    def places(self, example: Example) -> tuple[tuple[int, ...], ...]:
        """One season back."""
        return tuple((i,) for i in range(len(example.source) - self.period, len(example.source)))

    def _series(
        self, count: int, generator: torch.Generator, held_out: bool
    ) -> tuple[Float[torch.Tensor, "B S"], Float[torch.Tensor, "B N"]]:
        """Series of one side of the split, which the first season decides."""
        firsts: list[torch.Tensor] = []
        while sum(map(len, firsts)) < count:
            candidates = torch.randn(count + count // 4 + 16, self.period, generator=generator)
            firsts.append(
                candidates[in_held_out((candidates * PRECISION).round().long()) == held_out]
            )
        first = torch.cat(firsts)[:count]
        steps = DRIFT * torch.randn(count, self.seasons, self.period, generator=generator)
        # (B, seasons + 1, period)
        seasons = torch.cat((first[:, None], first[:, None] + steps.cumsum(1)), dim=1)
        slope = TREND * torch.randn(count, 1, generator=generator)
        moments = torch.arange((self.seasons + 1) * self.period) / self.period
        values = seasons.flatten(1) + slope * moments
        values = values + NOISE * torch.randn(values.shape, generator=generator)
        source, target = values[:, : self.max_source], values[:, self.max_source :]
        spikes = torch.rand(source.shape, generator=generator) < self.anomalies
        signs = torch.randint(2, source.shape, generator=generator) * 2 - 1
        return source + SPIKE * signs * spikes, target

    def _batch(
        self, source: Float[torch.Tensor, "B S"], target: Float[torch.Tensor, "B N"]
    ) -> Batch:
        return Batch(source[..., None], torch.ones(source.shape, dtype=torch.bool), None, target)


SERIES: TaskEntry = TaskEntry(
    "series",
    "Time series",
    meaning="Predict the next season of a series from the seasons before it.",
    look="Each predicted moment attends to the moment one season earlier, and skips spikes.",
    build=lambda config: Seasons(config, SERIES),
    params=(
        Param(
            "period",
            "Season",
            default=12,
            low=4,
            high=24,
            step=1,
            meaning="number of moments in a season",
        ),
        Param(
            "seasons",
            "Seasons",
            default=4,
            low=2,
            high=8,
            step=1,
            meaning="number of seasons in the input",
        ),
        Param(
            "anomalies",
            "Anomalies",
            default=0.04,
            low=0.0,
            high=0.2,
            step=0.01,
            meaning="share of the input moments that are spikes",
        ),
    ),
)
