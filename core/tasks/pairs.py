"""A person's own sentence pairs: the left side is the source, the right side the target."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from core.entries import ConfigError
from core.tasks import recipes
from core.tasks.base import Example, TaskConfig, TaskEntry, Vocabulary, choose
from core.tasks.reading import Row, read_rows
from core.tasks.text import MOST_WORDS, split
from core.tasks.translation import PairTask

FEWEST_PAIRS, MOST_TOKENS = 30, 128
HELD_OUT = 0.1
PASSES = 10  # over many pairs; the recipe's own steps are more for few
# Words in a first line that names the columns.
NAMES = frozenset(
    """source target input output src tgt from to question answer text translation word words roman digits
english german french spanish italian dutch en de fr es it nl pt left right original sentence1 sentence2""".split()
)


@dataclass(frozen=True)
class Pairs:
    """Training and held-out pairs, which share no source, and notes on how they were read."""

    trained: tuple[Example, ...]
    held_out: tuple[Example, ...]
    unit: str
    notes: tuple[str, ...]


class OwnPairs(PairTask):
    """A person's pairs; a batch has sources of like length, and the vocabularies are those of the training pairs."""

    finite = True

    def __init__(self, config: TaskConfig, entry: TaskEntry, pairs: Pairs) -> None:
        super().__init__(config, entry)
        self.pairs, self.notes = pairs, pairs.notes
        self.unit, self.whole = pairs.unit.removesuffix("s"), "targets"
        self.separator = " " if pairs.unit == "words" else ""
        both = (*pairs.trained, *pairs.held_out)
        # BLEU counts words, so it is left out where no target has two; characters are scored by chrF.
        has_words = self.separator or any(" " in pair.target for pair in both)
        self.metrics = (
            "exact",
            *(["bleu"] if has_words else []),
            *([] if self.separator else ["chrf"]),
        )
        self.source_vocab = vocabulary(pair.source for pair in pairs.trained)
        self.target_vocab = vocabulary(pair.target for pair in pairs.trained)
        self.max_source = max(len(pair.source) for pair in both)
        self.max_target = max(len(pair.target) for pair in both)
        by_kind = recipes.translation()
        first = (
            "transformer" if pairs.unit == "words" else "recurrent"
        )  # as measured: see recipes.translation
        self.recommended = recipes.for_data(
            {first: by_kind[first], **by_kind}, len(pairs.trained), PASSES
        )

    @cached_property
    def pool(self) -> list[Example]:
        return sorted(self.pairs.trained, key=lambda pair: len(pair.source))

    def words_of(self, tokens: Sequence[str]) -> list[str]:
        return list(tokens) if self.separator else split("".join(tokens), "words")

    def tokens(self, text: str) -> list[str]:
        return split(text.strip(), self.pairs.unit)

    def draw(self, generator: torch.Generator, held_out: bool) -> Example:
        side = self.pairs.held_out if held_out else self.pairs.trained
        return side[choose(generator, len(side))]

    def held_out(self, n: int) -> tuple[Example, ...]:
        return self.pairs.held_out[:n]


def parse_pairs(text: str, header: str, unit: str, seed: int) -> Pairs:
    """Pairs from the first two columns of a TSV or CSV; a tenth of the sources, by the seed, is held out. ConfigError
    names the lines of pairs with an empty side or too many tokens, and says when they are too few."""
    rows, _ = read_rows(text, "list of pairs")
    first = rows[0].cells[:2]
    has_header = (
        header == "yes" or header == "auto" and all(cell.casefold() in NAMES for cell in first)
    )
    rows = rows[1:] if has_header else rows
    notes = [f"The first line {'names the columns' if has_header else 'is a pair itself'}."]
    if rows and len(rows[0].cells) > 2:
        notes.append(f"The first two of {len(rows[0].cells)} columns are read.")
    unit = unit_of(rows) if unit == "auto" else unit
    pairs = dict.fromkeys(_pair(row, unit) for row in rows)
    if copies := len(rows) - len(pairs):
        notes.append(
            f"{copies:,} {'pair occurs' if copies == 1 else 'pairs occur'} more than once and "
            f"{'counts' if copies == 1 else 'count'} once."
        )
    if len(pairs) < FEWEST_PAIRS:
        raise ConfigError(
            f"There are {len(pairs)} different pairs; at least {FEWEST_PAIRS} are needed, as a tenth is "
            "held out."
        )
    trained, held_out = _sides(tuple(pairs), seed)
    notes.append(
        f"Training uses {len(trained):,} pairs; {len(held_out):,} are held out. No source is in both parts."
    )
    known = (
        vocabulary(pair.source for pair in trained),
        vocabulary(pair.target for pair in trained),
    )
    unknown = {
        token
        for vocab, sides in zip(known, zip(*held_out, strict=True), strict=True)
        for token in {token for side in sides for token in side} - set(vocab.tokens)
    }
    if unknown:
        notes.append(
            f"{len(unknown):,} {unit} of the held-out pairs, such as {min(unknown)!r}, are in no training "
            "pair; no model can get those right."
        )
    return Pairs(trained, held_out, unit, tuple(notes))


def unit_of(rows: Sequence[Row]) -> str:
    """Words where most pairs have a space on both sides, else characters."""
    return (
        "words"
        if 2 * sum(all(" " in cell for cell in row.cells[:2]) for row in rows) > len(rows)
        else "characters"
    )


def _pair(row: Row, unit: str) -> Example:
    sides = [
        tuple(map(sys.intern, split(cell, unit))) for cell in row.cells[:2]
    ]  # each word is in memory once
    for name, side in zip(("source", "target"), sides, strict=True):
        if not side:
            raise ConfigError(
                f"Line {row.line} has an empty {name}; fill it in or take the line out."
            )
        if len(side) > MOST_TOKENS:
            raise ConfigError(
                f"Line {row.line} has a {name} of {len(side)} {unit}; at most {MOST_TOKENS} are taken. "
                "Cut the line in two, or take it out."
            )
    return Example(*sides)


def _sides(pairs: Sequence[Example], seed: int) -> tuple[tuple[Example, ...], tuple[Example, ...]]:
    """Training and held-out pairs; all pairs of one source are on one side."""
    sources = list(dict.fromkeys(pair.source for pair in pairs))
    if len(sources) < FEWEST_PAIRS:
        raise ConfigError(
            f"There are {len(sources)} different sources; at least {FEWEST_PAIRS} are needed."
        )
    order = torch.randperm(len(sources), generator=torch.Generator().manual_seed(seed)).tolist()
    rank = {sources[i]: j for j, i in enumerate(order[: max(1, round(HELD_OUT * len(sources)))])}
    held_out = sorted(
        (pair for pair in pairs if pair.source in rank), key=lambda pair: rank[pair.source]
    )
    return tuple(pair for pair in pairs if pair.source not in rank), tuple(held_out)


def vocabulary(sides: Iterable[Sequence[str]]) -> Vocabulary:
    """The MOST_WORDS most frequent tokens."""
    counts = Counter(token for side in sides for token in side)
    return Vocabulary(token for token, _ in counts.most_common(MOST_WORDS))
