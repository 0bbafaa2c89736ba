"""A cell of a map, and the one whose weight is worth taking apart first."""

from dataclasses import dataclass

import numpy as np

from core.interpret.trace import AttentionTrace, Head, head_name
from core.pretrained import Line, Reading
from core.pretrained.load import MINILM

PRONOUN = (3, 1)  # the head of the embedded model that links a pronoun to its noun
TARGET_WEIGHT = 2 / 3
MIN_DISTANCE = 3  # words; large weights between neighbours are common and say little


@dataclass(frozen=True)
class Cell:
    """A cell of a head: layers, heads and tokens counted from 0."""

    layer: int
    head: int
    query: int
    key: int

    @property
    def name(self) -> str:
        return head_name(self.layer, self.head)

    @property
    def at(self) -> tuple[Head, tuple[int, int]]:
        """The head, and the query and the key."""
        return (self.layer, self.head), (self.query, self.key)

    def inside(self, trace: AttentionTrace) -> bool:
        """Whether the trace has such a cell."""
        if not 0 <= self.layer < len(trace.maps):
            return False
        indices = (self.head, self.query, self.key)
        return all(
            0 <= index < size
            for index, size in zip(indices, trace.maps[self.layer].weights.shape, strict=True)
        )


def default_cell(reading: Reading, trace: AttentionTrace, head: Head | None = None) -> Cell:
    """The cell whose weight is nearest to 2/3, between two words that are not neighbours; of all cells if none is.

    A weight of 2/3 is the largest of its row and leaves some for other keys. Only `head` is searched; without one all
    heads are, except in the embedded model, where it is the head that links a pronoun to its noun.
    """
    rows, columns = reading.lines(trace.maps[0].kind)
    eligible = _is_word(rows)[:, None] & _is_word(columns)
    if trace.maps[0].kind != "cross":
        words = np.array([-1 if word is None else word for word in rows.word])
        eligible &= np.abs(words[:, None] - words) >= MIN_DISTANCE
    if not eligible.any():
        eligible = np.ones_like(eligible)
    distances = [
        np.where(eligible, np.abs(item.weights - TARGET_WEIGHT), 1.0) for item in trace.maps
    ]
    if head is None and trace.source == MINILM:
        head = PRONOUN
    if head is None:
        layer = int(np.argmin([one.min() for one in distances]))
        head = layer, int(np.argmin(distances[layer].min((1, 2))))
    query, key = np.unravel_index(int(distances[head[0]][head[1]].argmin()), eligible.shape)
    return Cell(*head, int(query), int(key))


def _is_word(line: Line) -> np.ndarray:
    """Which tokens are words of two letters or more, or patches of a picture."""
    return np.array(
        [
            not special and (line.grid is not None or len(token) > 1 and token[:2] != "##")
            for token, special in zip(line.tokens, line.special, strict=True)
        ]
    )
