"""Associative recall and induction: what followed this token when it occurred before?

Both targets begin with the query itself, so that the position that reads it must answer, as in text. Were the answer to
follow the start mark, the mark would first have to learn to attend to the query: a Transformer that must learn both
still guesses after 2,500 steps.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from core.entries import ConfigError, Param
from core.tasks import recipes
from core.tasks.base import Example, TaskConfig, TaskEntry, Vocabulary
from core.tasks.rows import FEWEST, LETTERS, RowTask

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
        super().__init__(config, entry)
        self.pairs, self.keys = int(config["pairs"]), int(config["keys"])
        keys, values = LETTERS[: self.keys], LETTERS[: self.keys].upper()
        self.source_vocab = self.target_vocab = Vocabulary(keys + values)
        self.key_ids, self.value_ids = (
            torch.tensor(self.source_vocab.encode(kind)) for kind in (keys, values)
        )
        self.max_source, self.max_target = 2 * self.pairs + 1, 2
        self.recommended = recipes.lookup(1, 1500, 1500, 1000)

    def rows(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        keys = torch.rand(count, self.keys, generator=generator).argsort(1)[
            :, : self.pairs
        ]  # each at most once
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
        super().__init__(config, entry)
        self.length, self.words, self.answer = (
            int(config[name]) for name in ("length", "vocab", "said")
        )
        words = SYLLABLES[: self.words]
        self.source_vocab = self.target_vocab = Vocabulary(words)
        self.ids = torch.tensor(self.source_vocab.encode(words))
        self.max_source, self.max_target = self.length + 1, self.answer + 1
        self.recommended = recipes.lookup(2, 1000, 2500, 2500)

    def rows(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
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
    if keys < pairs:
        raise ConfigError(
            f"pairs = {pairs} need as many different keys, but keys = {keys}; take keys ≥ {pairs}."
        )
    if (different := math.perm(keys, pairs) * keys**pairs * pairs) < FEWEST:
        raise ConfigError(
            f"pairs = {pairs} with keys = {keys} give only {different:,} different sources; {FEWEST:,} "
            "are needed, so that some can be held out. Take more pairs or more keys."
        )


def check_induction(length: int, vocab: int, **params: int) -> None:
    """ConfigError when the words cannot all differ, or too few follow the queried one."""
    if vocab < length:
        raise ConfigError(
            f"length = {length} different words need at least as many in the vocabulary, but vocab = "
            f"{vocab}; take vocab ≥ {length}."
        )
    if (answer := params["said"]) >= length:
        raise ConfigError(
            f"said = {answer} words must follow one of length = {length}; take said ≤ {length - 1}."
        )


RECALL: TaskEntry = TaskEntry(
    "recall",
    "Associative recall",
    "The source is pairs of letters, then one letter. Write the other letter of its pair.",
    "The answer attends to the capital after the same letter in the source. It finds that letter by content, not by "
    "position.",
    lambda config: Recall(config, RECALL),
    (
        Param("pairs", "Pairs", 8, 2, 16, 1, meaning="number of pairs in a source"),
        Param(
            "keys",
            "Letters",
            16,
            4,
            26,
            1,
            meaning="number of different small letters, and of different capitals, that may occur",
        ),
    ),
    check_recall,
)
INDUCTION: TaskEntry = TaskEntry(
    "induction",
    "Induction",
    "The source is words, then one of them again. Repeat it and the words that followed it.",
    "Each output attends to the word that followed the previous word in the source: a diagonal that starts at any "
    "position.",
    lambda config: Induction(config, INDUCTION),
    (
        Param("length", "Length", 16, 8, 64, 1, meaning="number of words before one is repeated"),
        Param(
            "vocab", "Words", 200, 16, 200, 1, meaning="number of different words that may occur"
        ),
        Param(
            "said",
            "Words to repeat",
            4,
            1,
            8,
            1,
            meaning="number of words to write after the repeated one",
        ),
    ),
    check_induction,
)
