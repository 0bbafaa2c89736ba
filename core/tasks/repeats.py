"""Lines in which a passage of random words is repeated, for induction heads (Olsson 2022)."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from core.entries import ConfigError, Param
from core.tasks import recipes
from core.tasks.base import BOS, Example, Form, TaskConfig, TaskEntry, Vocabulary
from core.tasks.rows import RowTask
from core.tasks.text import split

BEGIN = "<bos>"
SHORTEST = 4  # words of a passage
RANK = 12  # word number r is drawn with probability proportional to 1 / (r + RANK)

# The commonest first, so that a typed sentence repeats its small words, too.
COMMON = tuple(
    """
the . a and of to in , it was he on that she for with they at his her is had as but we you i not from by be or an my
their one all said there were when out up so what who if then this no into down over him them time now like could than
little old new big small long two good man woman child boy girl king queen friend day night morning year house door
window room street road town city garden tree river sea lake hill mountain forest field sun moon star wind rain snow
fire water stone gold silver red blue green white black dark light warm cold hot cat dog horse cow sheep bird fish
mouse fox bear wolf lion bread milk cheese apple egg cake soup tea book letter word story song name school table chair
bed cup box hat coat shoe ship boat train car hand head eye heart face sat ran saw went came took gave made found lost
told asked knew thought felt heard read wrote ate drank slept woke stood walked fell flew sang played opened closed
loved kept left never always again soon here where before after under near between far away three four mat rug animal
bank paper money music dinner because too very quick brown lazy tired hungry happy sad young slow strong cross jumped
wanted needed looked turned sent bought sold rose lay cut ' t s didn don ? !
""".split()
)


class Repeats(RowTask):
    """Predict each next word of lines of random words in which one passage is repeated, with other words in between. A
    line begins with the start mark, to which a word without an earlier occurrence can attend."""

    form: Form = "text"
    metrics = ()
    separator = " "
    unit, whole = "word", "continuations"

    def __init__(self, config: TaskConfig, entry: TaskEntry) -> None:
        super().__init__(config, entry)
        self.length, self.passage, self.gap = (
            int(config[name]) for name in ("length", "passage", "gap")
        )
        self.source_vocab = self.target_vocab = Vocabulary(COMMON)
        self.ids = torch.tensor(self.source_vocab.encode(COMMON))
        self.frequencies = 1 / (torch.arange(len(COMMON)) + RANK)
        self.max_source = self.max_target = self.length
        self.recommended = recipes.repeats()

    def tokens(self, text: str) -> list[str]:
        return [BEGIN, *split(text.lower(), "words")]

    def rows(
        self, count: int, generator: torch.Generator
    ) -> tuple[Int[Tensor, "N S"], Int[Tensor, "N S"]]:
        """At position p stands word p mod (passage + gap) of the line's passage, or a random word in the gap."""
        draws = torch.multinomial(
            self.frequencies, count * self.length, replacement=True, generator=generator
        )
        random_words = draws.view(count, self.length)
        size = torch.randint(SHORTEST, self.passage + 1, (count, 1), generator=generator)
        between = torch.randint(self.gap + 1, (count, 1), generator=generator)
        start = torch.randint(self.passage + self.gap, (count, 1), generator=generator)
        index = (torch.arange(self.length) + start) % (size + between)
        words = torch.where(index < size, random_words.gather(1, index), random_words)
        line = torch.cat((torch.full((count, 1), BOS), self.ids[words]), 1)
        return line[:, :-1], line[:, 1:]

    def places(self, example: Example) -> tuple[tuple[int, ...], ...]:
        """Earlier positions of the next word after the same word."""
        words = example.source
        return tuple(
            tuple(j for j in range(1, i + 1) if (words[j - 1], words[j]) == (words[i], next_word))
            for i, next_word in enumerate(example.target)
        )


def check_lines(length: int, passage: int, gap: int) -> None:
    """ConfigError when a line has no room to repeat a passage."""
    if length < 2 * (passage + gap):
        raise ConfigError(
            f"length = {length} has no room for a passage of {passage} words and {gap} others, twice; "
            f"take length ≥ {2 * (passage + gap)}, or a shorter passage."
        )


REPEATS: TaskEntry = TaskEntry(
    "repeats",
    "Repeated passages",
    "Predict each next word of a line in which a passage of random words is repeated.",
    "When the passage is repeated, each word attends to the word after its earlier occurrence: an induction head. In "
    "the layer before, each word attends to the previous word.",
    lambda config: Repeats(config, REPEATS),
    (
        Param(
            "length",
            "Line",
            64,
            16,
            128,
            8,
            meaning="number of words in a line, with the start mark",
        ),
        Param(
            "passage",
            "Longest passage",
            20,
            SHORTEST,
            32,
            1,
            meaning="largest number of words that are repeated",
        ),
        Param(
            "gap",
            "Words between",
            8,
            0,
            16,
            1,
            meaning="largest number of random words between the passage and its repetition",
        ),
    ),
    check_lines,
)
