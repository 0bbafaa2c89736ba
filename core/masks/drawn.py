"""Masks that a person makes: a formula typed, or cells clicked on and off."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from core.eager_cache import eager_cache
from core.entries import Area, ConfigError, Cost, Entry, LayerConfig, Param, quote
from core.formula import parse
from core.masks.patterns import rule
from core.score_block import ScoreBlock

LARGEST_DRAWING = 64  # rows or columns


@dataclass(frozen=True)
class Drawing:
    """Cells drawn by hand: one string of 0 and 1 a row, 1 = may attend.

    As text it is rows × columns, then each row in hexadecimal with key 0 as the highest bit: `3x3:4.6.7` is causal.
    """

    rows: tuple[str, ...]

    def text(self) -> str:
        keys = len(self.rows[0])
        digits = -(-keys // 4)
        return f"{len(self.rows)}x{keys}:" + ".".join(
            f"{int(row, 2):0{digits}x}" for row in self.rows
        )

    def tensor(self) -> Tensor:
        """Bool (rows, columns)."""
        return torch.tensor([[cell == "1" for cell in row] for row in self.rows])

    @classmethod
    def of(cls, allowed: Tensor) -> Drawing:
        """From a bool matrix; ConfigError when it is larger than a drawing may be."""
        queries, keys = allowed.shape
        if not (1 <= queries <= LARGEST_DRAWING and 1 <= keys <= LARGEST_DRAWING):
            raise ConfigError(
                f"a drawing of {queries} × {keys} cells; expected 1 to {LARGEST_DRAWING} each way."
            )
        return cls(tuple("".join("01"[cell] for cell in row) for row in allowed.int().tolist()))


@lru_cache(maxsize=64)
def parse_drawing(text: str) -> Drawing:
    """Parse a drawing; ConfigError for an invalid text."""
    size, _, body = text.partition(":")
    sides = [
        int(side)
        for side in size.split("x")
        if side.isascii() and side.isdigit() and len(side) <= 2
    ]
    if (
        len(sides) != 2
        or size != f"{sides[0]}x{sides[1]}"
        or not all(1 <= s <= LARGEST_DRAWING for s in sides)
    ):
        raise ConfigError(
            f"drawing = {quote(text)}; expected rows x columns, each 1 to {LARGEST_DRAWING}, a colon and "
            "the rows in hexadecimal, such as 3x3:4.6.7."
        )
    queries, keys = sides
    words, digits = body.split("."), -(-keys // 4)
    if len(words) != queries:
        raise ConfigError(f"drawing = {quote(text)} announces {queries} rows and has {len(words)}.")
    for row, word in enumerate(words):
        if len(word) != digits or not set(word) <= set("0123456789abcdef") or int(word, 16) >> keys:
            raise ConfigError(
                f"drawing, row {row}: {quote(word)}; expected {digits} hexadecimal digits "
                f"for {keys} cells."
            )
    return Drawing(tuple(f"{int(word, 16):0{keys}b}" for word in words))


@eager_cache(maxsize=64)
def drawing_grid(text: str) -> Tensor:
    return parse_drawing(text).tensor()


def drawn(block: ScoreBlock, drawing: str, beyond: str) -> Tensor:
    grid = drawing_grid(drawing).to(block.i.device)
    rows, columns = grid.shape
    inside = (block.i < rows) & (block.j < columns)
    visible = grid[block.i % rows, block.j % columns]  # (T, S)
    if beyond == "repeat":
        return visible
    return visible | ~inside if beyond == "seen" else visible & inside


def formula(block: ScoreBlock, text: str) -> Tensor:
    return parse(text, "mask")(block)


def _cost(config: LayerConfig, area: Area) -> Cost:
    """Double precision, one step at a time."""
    cells = area.cells * (
        config.score_heads if "h" in parse(str(config.mask["text"]), "mask").names else 1
    )
    return Cost(0.0, 20 * cells, cells)


DRAWN: tuple[Entry, ...] = (
    Entry(
        "formula",
        "Formula",
        rule(formula),
        r"f(i, j, h, T, S)",
        "A rule that you type in i, j, h, T and S. A cell is allowed where the rule is true.",
        "",
        2024,
        "",
        (
            Param(
                "text",
                "Formula",
                "j <= i and i - j < 4 or j == 0",
                parse=lambda text: parse(text, "mask"),
                meaning="condition of i (query), j (key), h (head), T and S with and, or, not and "
                "comparisons",
            ),
        ),
        "{text}",
        cost=_cost,
    ),
    Entry(
        "drawn",
        "Drawn by hand",
        rule(drawn),
        r"M_{ij} = 1",
        "Each cell is allowed or masked by hand.",
        "",
        2026,
        "",
        (
            Param(
                "drawing",
                "Cells",
                "6x6:20.30.38.34.32.31",
                parse=parse_drawing,
                meaning="rows x columns, then the rows in hexadecimal, key 0 first",
            ),
            Param(
                "beyond",
                "Outside",
                "masked",
                choices=("masked", "seen", "repeat"),
                labels=("is masked", "is seen", "the drawing repeats"),
                meaning="rule for cells outside the drawing",
            ),
        ),
        "as drawn",
    ),
)
