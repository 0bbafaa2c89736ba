"""Language models: windows of a text, each token predicted from those before it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

import torch

from core.entries import Param
from core.tasks import recipes
from core.tasks.base import (
    UNK,
    Batch,
    Example,
    Form,
    Task,
    TaskConfig,
    TaskEntry,
    Vocabulary,
    choose,
    is_held_out,
)

NEWLINE = "↵"  # the token of a line end
MOST_WORDS = 5_000
FEWEST_WORDS = (
    20_000  # of a text that is read in words; in a shorter one most words occur once or twice
)
UNIT = Param(
    "unit", "Tokens", "characters", choices=("characters", "words"), meaning="what one token is"
)


def split(text: str, unit: str) -> list[str]:
    """The tokens of a text: its characters, or its words and punctuation marks; line ends are tokens too."""
    text = text.replace("\n", NEWLINE)
    return (
        list(text) if unit == "characters" else re.findall(rf"\w+|[^\w\s{NEWLINE}]|{NEWLINE}", text)
    )


@dataclass(frozen=True)
class Corpus:
    """The tokens of a training text and of a held-out text."""

    unit: str
    trained: tuple[str, ...]
    held_out: tuple[str, ...]
    vocab: Vocabulary

    @classmethod
    def of(cls, trained: str, held_out: str, unit: str) -> Corpus:
        """The vocabulary is the MOST_WORDS most frequent tokens of the training text."""
        first, second = split(trained, unit), split(held_out, unit)
        known = [token for token, _ in Counter(first).most_common(MOST_WORDS)]
        return cls(unit, tuple(first), tuple(second), Vocabulary(known))

    @property
    def unknown(self) -> float:
        """The share of held-out tokens that are not in the vocabulary."""
        return self.vocab.encode(self.held_out).count(UNK) / max(1, len(self.held_out))


def unseen(corpus: Corpus, length: int, seed: int) -> Iterator[int]:
    """Starts of windows of the held-out text, shuffled by the seed, without those that occur in the training text."""
    between = "" if corpus.unit == "characters" else " "
    trained, tokens = between.join(corpus.trained), corpus.held_out
    starts = torch.randperm(
        len(tokens) - length, generator=torch.Generator().manual_seed(seed + 2**31)
    ).tolist()
    return (
        start for start in starts if between.join(tokens[start : start + length]) not in trained
    )


class TextTask(Task):
    """Windows of `length` tokens; the vocabulary is the corpus's, so a model meets windows of any length."""

    form: Form = "text"
    metrics = ()

    def __init__(self, config: TaskConfig, entry: TaskEntry, corpus: Corpus) -> None:
        super().__init__(config, entry)
        self.corpus, self.length = corpus, int(config["length"])
        self.source_vocab = self.target_vocab = corpus.vocab
        self.max_source = self.max_target = self.length
        self.unit, self.whole = corpus.unit.removesuffix("s"), "continuations"
        self.ids = torch.tensor(corpus.vocab.encode(corpus.trained))
        self.recommended = recipes.text(self.length, len(corpus.trained))

    def tokens(self, text: str) -> list[str]:
        return split(text, self.corpus.unit)

    def draw(self, generator: torch.Generator, held_out: bool) -> Example:
        tokens = self.corpus.held_out if held_out else self.corpus.trained
        return self._window(tokens, choose(generator, len(tokens) - self.length))

    def batch(self, batch_size: int, generator: torch.Generator) -> Batch:
        starts = torch.randint(len(self.ids) - self.length, (batch_size, 1), generator=generator)
        windows = self.ids[starts + torch.arange(self.length + 1)]  # (B, S + 1)
        source, target = windows[:, :-1].contiguous(), windows[:, 1:].contiguous()
        return Batch(source, torch.ones_like(source, dtype=torch.bool), None, target)

    def held_out(self, n: int) -> tuple[Example, ...]:
        """Up to n windows of the held-out text, none of which occurs in the training text."""
        starts = islice(unseen(self.corpus, self.length, self.config.seed), n)
        return tuple(self._window(self.corpus.held_out, start) for start in starts)

    def _window(self, tokens: Sequence[str], start: int) -> Example:
        return Example(
            tuple(tokens[start : start + self.length]),
            tuple(tokens[start + 1 : start + self.length + 1]),
        )


@lru_cache(maxsize=2)
def topics(unit: str) -> Corpus:
    """The language reference that comes with every CPython, a tenth of its topics held out."""
    from pydoc_data.topics import topics as texts

    trained, held_out = (
        "\n\n".join(
            text.strip() for name, text in sorted(texts.items()) if is_held_out(name) == side
        )
        for side in (False, True)
    )
    return Corpus.of(trained, held_out, unit)


LENGTH = Param(
    "length", "Window", 64, 16, 256, 8, meaning="number of tokens that the model reads together"
)
TOPICS: TaskEntry = TaskEntry(
    "topics",
    "Language model",
    "Predict each next character of the Python language reference.",
    "Each character attends to those just before it, most to the nearest. In a later layer it attends to earlier "
    "occurrences of the same few characters.",
    lambda config: TextTask(config, TOPICS, topics(str(config["unit"]))),
    (LENGTH, UNIT),
)
