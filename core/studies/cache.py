"""Several sequences in pages of a few tokens each, against room for the longest reserved for every one."""

from __future__ import annotations

from dataclasses import dataclass

MOST_SEQUENCES, LONGEST = 8, 256


@dataclass(frozen=True)
class Page:
    """One page: the sequence that it belongs to, and how many of its places hold a token."""

    sequence: int
    filled: int


@dataclass(frozen=True)
class Paging:
    """Lengths of sequences, and the pages in the order in which they were taken."""

    lengths: tuple[int, ...]
    size: int
    pages: tuple[Page, ...]

    @property
    def used(self) -> int:
        """Tokens."""
        return sum(self.lengths)

    @property
    def paged(self) -> int:
        """Places for a token in all pages."""
        return self.size * len(self.pages)

    @property
    def reserved(self) -> int:
        """Places where each sequence has room for the longest."""
        return len(self.lengths) * max(self.lengths)

    def wasted(self, places: int) -> float:
        """The share of the places that holds no token."""
        return 1 - self.used / places


def paging(lengths: tuple[int, ...], size: int) -> Paging:
    """Sequences that start together and grow by one token a step: each takes a page when its last one is full."""
    pages = [
        Page(sequence, min(size, length - start))
        for start in range(0, max(lengths), size)
        for sequence, length in enumerate(lengths)
        if length > start
    ]
    return Paging(lengths, size, tuple(pages))


def parse_lengths(text: str) -> tuple[int, ...]:
    """Typed lengths; ValueError names the first that is none, and what would fit."""
    lengths = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        if not (part.isascii() and part.isdigit() and 1 <= int(part[:9]) <= LONGEST):
            raise ValueError(
                f"“{part[:20]}” is no length; type whole numbers from 1 to {LONGEST}, with commas."
            )
        lengths.append(int(part))
    if not 1 <= len(lengths) <= MOST_SEQUENCES:
        raise ValueError(
            f"There are {len(lengths)} lengths; type 1 to {MOST_SEQUENCES}, such as 37, 5, 90."
        )
    return tuple(lengths)
