"""Tasks of pictures: handwritten digits to classify, pictures of numbers to read."""

import gzip
import math
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int

from core.entries import Param
from core.models.base import Shape
from core.tasks import recipes
from core.tasks.base import (
    BOS,
    EOS,
    PAD,
    Batch,
    Example,
    LabelledTask,
    Task,
    TaskConfig,
    TaskEntry,
    Vocabulary,
    is_held_out,
    pad,
    split_sides,
)
from core.tasks.sequences import decimal_digits
from core.tasks.tables import data_file
from core.tasks.translation import number_words

# Handwritten digits, cut in patches: which digit is it?


SIDE = 8  # pixels of a digit


@lru_cache(maxsize=1)
def digits() -> tuple[Float[torch.Tensor, "N 8 8"], Int[torch.Tensor, " N"]]:
    """1,797 handwritten digits of 8 × 8 pixels, 0 to 1, and which they are (Alpaydin & Kaynak 1998)."""
    with gzip.open(data_file("digits.csv.gz"), "rt", encoding="utf-8") as file:
        numbers = torch.from_numpy(np.loadtxt(file, delimiter=",", dtype=np.float32))
    return numbers[:, :-1].reshape(-1, SIDE, SIDE) / 16, numbers[:, -1].long()


def cut(pictures: Float[torch.Tensor, "N H W"], patch: int) -> Float[torch.Tensor, "N P D"]:
    """Square patches of `patch` pixels, row by row, as Dosovitskiy 2021 cuts them."""
    return rearrange(pictures, "n (r a) (c b) -> n (r c) (a b)", a=patch, b=patch)


class PictureTask(Task):
    """A task of pictures: a source is patches, named by row and column."""

    input = "patches"
    grid: tuple[int, int]

    def display_tokens(self, example: Example) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Patches by their row and column, from 1, and the target."""
        rows, columns = (range(1, size + 1) for size in self.grid)
        return tuple(f"{r},{c}" for r in rows for c in columns), example.target

    def encode(
        self, examples: Sequence[Example]
    ) -> tuple[Float[torch.Tensor, "B P D"], Bool[torch.Tensor, "B P"]]:
        source = torch.tensor([example.source for example in examples])
        return source, torch.ones(source.shape[:2], dtype=torch.bool)

    def example(self, text: str) -> Example:
        raise ValueError("A picture cannot be typed; choose one of the held-out pictures.")


class Digits(PictureTask, LabelledTask):
    """Tell which digit a picture shows."""

    unit, whole = "picture", "pictures"
    baseline_name = "logistic regression on pixels"

    def __init__(self, config: TaskConfig, entry: TaskEntry) -> None:
        pictures, labels = digits()
        self.patch = int(config["patch"])
        self.grid = (SIDE // self.patch, SIDE // self.patch)
        patches = [tuple(map(tuple, picture)) for picture in cut(pictures, self.patch).tolist()]
        super().__init__(config, entry, patches, labels.tolist(), tuple("0123456789"))
        self.recommended = recipes.DIGITS

    @property
    def shape(self) -> Shape:
        return Shape(self.patch**2, 10, self.max_source, "patches", "label", grid=self.grid)

    @property
    def baseline_loss(self) -> float:
        return math.log(10)

    def flat(self, examples: Sequence[Example]) -> Float[torch.Tensor, "N D"]:
        return self.collate(examples).source.flatten(1)


PATCH = Param(
    "patch",
    "Patch",
    "2",
    choices=("1", "2", "4"),
    labels=("1 pixel", "2 × 2 pixels", "4 × 4 pixels"),
    meaning="size of the patch of the picture that is one token",
)
DIGITS: TaskEntry = TaskEntry(
    "digits",
    "Handwritten digits",
    "Classify the digit in a picture of 8 × 8 pixels.",
    "The class token attends to the strokes that distinguish the digits.",
    lambda config: Digits(config, DIGITS),
    (PATCH,),
)


DECIDES = 0.5  # a digit decides a word that changes with more than this share of its other values


class Pictures(PictureTask):
    """A handwritten number to its words; held-out examples share neither numbers nor digit pictures with training."""

    unit, whole = "word", "numbers"
    separator = " "
    metrics = ("sequence_accuracy", "bleu")

    def __init__(self, config: TaskConfig, entry: TaskEntry) -> None:
        self.count, self.patch = int(config["digits"]), int(config["patch"])
        self.language = str(config["language"])
        self.words = number_words(self.language)
        self.number = {words: n for n, words in enumerate(self.words)}
        first = 10 ** (self.count - 1)
        self.numbers = {
            side: torch.tensor([n for n in range(first, 10 * first) if is_held_out(str(n)) == side])
            for side in (False, True)
        }
        texts = [self.words[n] for n in range(first, 10 * first)]
        self.grid = (SIDE // self.patch, self.count * SIDE // self.patch)
        longest = self.grid[0] * self.grid[1], max(map(len, texts))
        words = Vocabulary(word for words in texts for word in words)
        super().__init__(config, entry, recipes.PICTURES, longest, words)

    @property
    def shape(self) -> Shape:
        longest = max(self.max_source, self.max_target) + 1
        return Shape(self.patch**2, len(self.target_vocab), longest, "patches", grid=self.grid)

    @cached_property
    def ids(self) -> Int[torch.Tensor, "N T"]:
        """The ids of each number's words, up to EOS, padded; a row for every number below 10 ** digits."""
        return pad([[*self.target_vocab.encode(self.words[n]), EOS] for n in range(10**self.count)])

    def batch(self, batch_size: int, generator: torch.Generator) -> Batch:
        source, numbers = self._pictures(batch_size, generator, held_out=False)
        target = self.ids[numbers]
        target = target[:, : int((target != PAD).sum(1).max())]
        words = target[:, :-1].masked_fill(target[:, :-1] == EOS, PAD)
        target_in = torch.cat((torch.full((batch_size, 1), BOS), words), dim=1)
        return Batch(source, torch.ones(source.shape[:2], dtype=torch.bool), target_in, target)

    def draw(self, generator: torch.Generator, held_out: bool) -> Example:
        source, numbers = self._pictures(1, generator, held_out)
        return Example(tuple(map(tuple, source[0].tolist())), self.words[int(numbers[0])])

    def places(self, example: Example) -> tuple[tuple[int, ...], ...] | None:
        """For each word the patches of the digit that decides it; none for a word that no single digit decides."""
        rows, columns = self.grid
        wide = SIDE // self.patch
        of_digit = [
            tuple(r * columns + digit * wide + c for r in range(rows) for c in range(wide))
            for digit in range(self.count)
        ]
        return tuple(
            of_digit[digit] if digit >= 0 else ()
            for digit in deciding(self.language, self.number[example.target])
        )

    def _pictures(
        self, count: int, generator: torch.Generator, held_out: bool
    ) -> tuple[Float[torch.Tensor, "B P D"], Int[torch.Tensor, " B"]]:
        pictures, _ = digits()
        table, sizes = self._by_digit[held_out]
        side = self.numbers[held_out]
        numbers = side[torch.randint(len(side), (count,), generator=generator)]
        each = decimal_digits(numbers, self.count)  # (B, digits)
        index = (torch.rand(each.shape, generator=generator) * sizes[each]).long()
        wide = rearrange(pictures[table[each, index]], "b k h w -> b h (k w)")
        return cut(wide, self.patch), numbers

    @cached_property
    def _by_digit(
        self,
    ) -> Mapping[bool, tuple[Int[torch.Tensor, "ten M"], Int[torch.Tensor, " ten"]]]:
        pictures, labels = digits()
        by_side = split_sides(
            [row.tobytes() for row in pictures.numpy()], labels.tolist(), self.config.seed
        )
        lists = {
            side: [
                [i for i in rows if int(labels[i]) == digit] for digit in labels.unique().tolist()
            ]
            for side, rows in by_side.items()
        }
        return {
            side: (pad(rows), torch.tensor(list(map(len, rows)))) for side, rows in lists.items()
        }


@lru_cache(maxsize=20_000)
def deciding(language: str, number: int) -> tuple[int, ...]:
    """For each word of a number the index of the digit that decides it, −1 where none or several do. A digit decides a
    word that changes, or goes, for most other values of this digit alone."""
    words, digits = number_words(language), str(number)
    target = words[number]
    result = []
    for i, word in enumerate(target):
        changed = []
        for j, digit in enumerate(digits):
            others = [
                other for other in "0123456789" if other != digit and not (j == 0 and other == "0")
            ]
            variants = [words[int(digits[:j] + other + digits[j + 1 :])] for other in others]
            changed.append(
                sum(len(each) <= i or each[i] != word for each in variants) / len(variants)
            )
        decisive = [j for j, share in enumerate(changed) if share > DECIDES]
        result.append(decisive[0] if len(decisive) == 1 else -1)
    return tuple(result)


PICTURES: TaskEntry = TaskEntry(
    "pictures",
    "Pictures to words",
    "Write the number that several handwritten digits show, in words.",
    "Each word attends to the digit that determines it. In a German number the ones come before the tens.",
    lambda config: Pictures(config, PICTURES),
    (
        Param(
            "language",
            "Language",
            "de",
            choices=("en", "de", "fr", "es"),
            labels=("English", "German", "French", "Spanish"),
            meaning="language of the number",
        ),
        Param("digits", "Digits", 3, 2, 4, 1, meaning="number of digits in a picture"),
        Param(
            "patch",
            "Patch",
            "4",
            choices=("2", "4", "8"),
            labels=("2 × 2 pixels", "4 × 4 pixels", "a whole digit"),
            meaning=PATCH.meaning,
        ),
    ),
)
