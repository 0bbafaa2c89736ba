"""Masks with a layout: blocks, documents, images, sparse patterns of long texts, and rules or drawings of a person."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from core.attention.basics import ScoreBlock, eager_cache
from core.attention.formula import parse
from core.attention.masks.patterns import LONGEST, causal, lengths_of, local, rule
from core.entries import Area, Cost, Entry, LayerConfig, Param, quote, refuse_if

# Masks of rows that are no plain sequence: a tree, several continuations, a noised and a clean copy, a grid.


MAX_NODES = 256
ROOT = "-"


def parents_of(text: str) -> list[int]:
    """The parent of each node of a tree, −1 for a root; ConfigError quotes other text."""
    parents = []
    for node, word in enumerate(text.replace(",", " ").split()):
        earlier = [ROOT, *map(str, range(node))]
        refuse_if(
            word not in earlier,
            f"parents, node {node}: {quote(word)}; expected the number of an earlier node, or "
            f"{ROOT} for a root, with commas between, such as -, 0, 0, 1.",
        )
        parents.append(earlier.index(word) - 1)
    refuse_if(
        not 1 <= len(parents) <= MAX_NODES,
        f"parents names {len(parents)} nodes; expected 1 to {MAX_NODES}.",
    )
    return parents


@eager_cache(maxsize=64)
def ancestors(parents: str) -> Tensor:
    """Bool (nodes, nodes): whether the column is the row's node itself or one of its ancestors."""
    parent = parents_of(parents)
    above = torch.eye(len(parent), dtype=torch.bool)
    for node, one in enumerate(parent):
        if one >= 0:
            above[node] |= above[one]
    return above


def tree(block: ScoreBlock, prefix: int, parents: str) -> Tensor:
    above = ancestors(parents).to(block.i.device)
    last = len(above) - 1
    outside = (block.j < prefix) | (block.j > prefix + last)
    related = above[(block.i - prefix).clamp(0, last), (block.j - prefix).clamp(0, last)]  # (T, S)
    return causal(block) & (outside | related)


def shared_prefix(block: ScoreBlock, prefix: int, lengths: str) -> Tensor:
    ends = torch.tensor(lengths_of(lengths), device=block.i.device).cumsum(0) + prefix
    texts = torch.bucketize(block.i, ends, right=True), torch.bucketize(block.j, ends, right=True)
    return causal(block) & ((block.j < prefix) | (texts[0] == texts[1]))


def block_diffusion(block: ScoreBlock, noised: int, size: int) -> Tensor:
    clean_i, clean_j = block.i >= noised, block.j >= noised
    row = torch.where(clean_i, block.i - noised, block.i) // size  # (T, 1): the block in the text
    column = torch.where(clean_j, block.j - noised, block.j) // size
    return torch.where(clean_j, column < row + clean_i.long(), (column == row) & ~clean_i)


def window_start(place: Tensor, window: int, size: int) -> Tensor:
    """The first of the places of a window around each place, which is moved inside 0…size at the edges."""
    return (place - window // 2).clamp(0, max(size - window, 0))


def neighborhood(block: ScoreBlock, rows: int, columns: int, window: int) -> Tensor:
    cells = rows * columns
    row_i, row_j = block.i % cells // columns, block.j % cells // columns
    column_i, column_j = block.i % columns, block.j % columns
    top, left = window_start(row_i, window, rows), window_start(column_i, window, columns)
    inside = (row_j >= top) & (row_j < top + window)
    inside &= (column_j >= left) & (column_j < left + window)
    return inside & (block.i // cells == block.j // cells)


_PREFIX = "number of tokens of the text before "


# Sparse patterns for long texts: a window, a few global tokens, and random far keys.


# Odd 63-bit constants of a multiplicative hash (SplitMix64's, cut), so that "random" needs no state.
_MIX = (0x1E3779B97F4A7C15, 0x3F58476D1CE4E5B9, 0x14D049BB133111EB)
_LARGEST = 2**63 - 1
_MAX_CELLS = 2**22  # ranked at once: 32 MB


def global_window(block: ScoreBlock, window: int, globals: int) -> Tensor:
    return local(block, window) | (block.i < globals) | (block.j < globals)


def bigbird(
    scores: ScoreBlock, block: int, window: int, globals: int, random: int, seed: int
) -> Tensor:
    rows, columns = (
        scores.i // block,
        scores.j // block,
    )  # (T, 1), (1, S): the block of each query and key
    blocks = torch.arange((scores.num_keys - 1) // block + 1, device=rows.device)[
        None
    ]  # (1, blocks of keys)
    last_column = (scores.ends - 1) // block  # of each text, (B, 1, 1) where padding follows it
    last_row = last_column if scores.owns_queries else (scores.num_queries - 1) // block
    visible = (blocks >= rows - window) & (blocks <= rows + window)
    ends = (
        (blocks < globals)
        | (blocks > last_column - globals)
        | (rows < globals)
        | (rows > last_row - globals)
    )
    visible = visible | ends
    if random:
        free = ~visible & (blocks <= last_column)
        cells = [
            random_cells(rows, blocks, one, random, seed)
            for one in free.reshape(-1, *free.shape[-2:])
        ]
        visible = visible | torch.stack(cells).view(free.shape)
    visible = visible[..., columns[0]]
    return visible if visible.dim() == 2 else visible[:, None]


def random_cells(rows: Tensor, columns: Tensor, free: Tensor, count: int, seed: int) -> Tensor:
    """In each row `count` of the free cells (all where there are fewer), by a hash of seed, row and column.

    Any part of the mask, on any device, agrees with the whole.
    """
    start = ((seed + 1) * _MIX[2]) & _LARGEST
    at_once, parts = max(1, _MAX_CELLS // columns.shape[1]), []
    for some, open_ in zip(rows.split(at_once), free.split(at_once), strict=True):
        rank = some * _MIX[0] + columns * _MIX[1] + start
        for shift, factor in (
            (30, _MIX[1]),
            (27, _MIX[2]),
        ):  # SplitMix64's finalizer; int64 wraps around
            rank = (rank ^ (rank >> shift)) * factor
        rank = ((rank ^ (rank >> 31)) & _LARGEST).masked_fill(~open_, -1)  # an open cell's is ≥ 0
        best = rank.topk(min(count, rank.shape[1]), dim=1).indices
        parts.append(torch.zeros_like(open_).scatter(1, best, True) & open_)
    return torch.cat(parts)


def _bigbird_cost(config: LayerConfig, area: Area) -> Cost:
    """The integers of a hash over the blocks that each query might see."""
    hashed = (
        area.queries * -(-area.keys // int(config.mask["block"])) if config.mask["random"] else 0
    )
    return Cost(0.0, 28 * min(hashed, _MAX_CELLS), area.cells)


LARGEST_DRAWING = 64  # rows or columns


@dataclass(frozen=True)
class Drawing:
    """Cells drawn by hand: one string of 0 and 1 a row, 1 = may attend.

    As text it is rows × columns, then each row in hexadecimal with key 0 as the highest bit: `3x3:4.6.7` is causal.
    """

    rows: tuple[str, ...]

    def text(self) -> str:
        keys = len(self.rows[0])
        rows = ".".join(f"{int(row, 2):0{-(-keys // 4)}x}" for row in self.rows)
        return f"{len(self.rows)}x{keys}:{rows}"

    def tensor(self) -> Tensor:
        """Bool (rows, columns)."""
        return torch.tensor([[cell == "1" for cell in row] for row in self.rows])

    @classmethod
    def of(cls, allowed: Tensor) -> Drawing:
        """From a bool matrix; ConfigError when it is larger than a drawing may be."""
        queries, keys = allowed.shape
        refuse_if(
            not (1 <= queries <= LARGEST_DRAWING and 1 <= keys <= LARGEST_DRAWING),
            f"a drawing of {queries} × {keys} cells; expected 1 to {LARGEST_DRAWING} each way.",
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
    refuse_if(
        len(sides) != 2
        or size != f"{sides[0]}x{sides[1]}"
        or not all(1 <= s <= LARGEST_DRAWING for s in sides),
        f"drawing = {quote(text)}; expected rows x columns, each 1 to {LARGEST_DRAWING}, a colon and "
        "the rows in hexadecimal, such as 3x3:4.6.7.",
    )
    queries, keys = sides
    words, digits = body.split("."), -(-keys // 4)
    refuse_if(
        len(words) != queries,
        f"drawing = {quote(text)} announces {queries} rows and has {len(words)}.",
    )
    for row, word in enumerate(words):
        refuse_if(
            len(word) != digits
            or not set(word) <= set("0123456789abcdef")
            or int(word, 16) >> keys,
            f"drawing, row {row}: {quote(word)}; expected {digits} hexadecimal digits "
            f"for {keys} cells.",
        )
    return Drawing(tuple(f"{int(word, 16):0{keys}b}" for word in words))


def drawn(block: ScoreBlock, drawing: str, beyond: str) -> Tensor:
    grid = parse_drawing(drawing).tensor().to(block.i.device)
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
        config.score_heads if "h" in parse(str(config.mask["text"]), "mask").tree.names() else 1
    )
    return Cost(0.0, 20 * cells, cells)


ENTRIES: tuple[Entry, ...] = (
    Entry(
        "tree",
        "Tree",
        rule(tree),
        r"j = i\ \vee\ j \in \text{ancestors}(i)",
        "After a prefix, the tokens are a tree of possible continuations. Each attends to the prefix, to its "
        "ancestors and to itself, so one call scores every path of the tree. Tokens after the tree continue its "
        "last node.",
        "Miao et al.",
        2023,
        "https://arxiv.org/abs/2305.09781",
        (
            Param(
                "prefix",
                "Prefix",
                3,
                0,
                4096,
                1,
                meaning=_PREFIX + "the tree, which every node attends to",
            ),
            Param(
                "parents",
                "Parents",
                "-, 0, 0, 1, 1, 2",
                parse=parents_of,
                meaning="the parent of each node: the number of an earlier node, from 0, or - for a root; with commas "
                "between",
            ),
        ),
        "ancestors",
    ),
    Entry(
        "shared_prefix",
        "Shared prefix",
        rule(shared_prefix),
        r"j \le i,\quad j < p\ \vee\ \text{text}(i) = \text{text}(j)",
        "Several continuations of one prefix share a row. Each attends to the prefix and to its own earlier tokens, "
        "so the prefix is stored once. Tokens after the last length are one more continuation.",
        "Juravsky et al.",
        2024,
        "https://arxiv.org/abs/2402.05099",
        (
            Param("prefix", "Prefix", 3, 0, 4096, 1, meaning=_PREFIX + "the continuations"),
            Param(
                "lengths",
                "Lengths",
                "3, 3",
                parse=lengths_of,
                meaning="number of tokens of each continuation, in order, with commas between",
            ),
        ),
        "j ≤ i: j < {prefix} or same text",
    ),
    Entry(
        "block_diffusion",
        "Block diffusion",
        rule(block_diffusion),
        r"B_j = B_i\ (\text{both noised})\ \vee\ B_j < B_i\ (j\ \text{clean})\ \vee\ "
        r"B_j \le B_i\ (\text{both clean})",
        "A row holds a text twice: first with noise, then clean. A noised block attends to itself and to the clean "
        "blocks before it; a clean block attends to itself and to the clean blocks before it. So all blocks are "
        "trained in one call. The paper gives both copies the same positions; here positions count all tokens.",
        "Arriola et al.",
        2025,
        "https://arxiv.org/abs/2503.09573",
        (
            Param(
                "noised",
                "Noised tokens",
                6,
                1,
                4096,
                1,
                meaning="number of noised tokens; the clean ones follow",
            ),
            Param(
                "size",
                "Block",
                2,
                1,
                LONGEST,
                1,
                meaning="tokens in a block, which are denoised together",
            ),
        ),
        "own noised block of {size}, earlier clean",
    ),
    Entry(
        "neighborhood",
        "Neighborhood",
        rule(neighborhood),
        r"|r_i' - r_j| \le \lfloor k / 2 \rfloor,\ |c_i' - c_j| \le \lfloor k / 2 \rfloor",
        "Tokens are the patches of a picture, row by row. Each attends to the window of k × k patches around it; at "
        "an edge the window is moved inside, so it never shrinks. Tokens after the grid are the next picture.",
        "Hassani et al.",
        2022,
        "https://arxiv.org/abs/2204.07143",
        (
            Param("rows", "Rows", 3, 1, 256, 1, meaning="number of rows of the grid"),
            Param(
                "columns", "Columns", 4, 1, 256, 1, meaning="number of patches in a row of the grid"
            ),
            Param(
                "window",
                "Window",
                3,
                1,
                255,
                2,
                meaning="side k of the window, in patches; an odd number has the "
                "query in the middle",
            ),
        ),
        "{window} × {window} patches",
    ),
    Entry(
        "global_window",
        "Window + global",
        rule(global_window),
        r"|i - j| \le w\ \vee\ i < g\ \vee\ j < g",
        "Each query attends to a window and to the first g tokens. The first g tokens attend to all. Two layers "
        "connect all tokens.",
        "Beltagy et al.",
        2020,
        "https://arxiv.org/abs/2004.05150",
        (
            Param(
                "window",
                "Window",
                1,
                0,
                512,
                1,
                meaning="number of keys on each side of the query that it attends to",
            ),
            Param(
                "globals",
                "Global tokens",
                1,
                0,
                64,
                1,
                meaning="number g of tokens at the start that attend to "
                "all, and that all attend to",
            ),
        ),
        "|i − j| ≤ {window} or global",
    ),
    Entry(
        "bigbird",
        "BigBird",
        rule(bigbird),
        r"|I - J| \le w\ \vee\ I, J \in \text{ends}_g\ \vee\ J \in \text{random}_r(I),"
        r"\quad I = \lfloor i / b \rfloor,\ J = \lfloor j / b \rfloor",
        "Each block of queries attends to a window of blocks, to the first and last blocks, and to a few random "
        "blocks. The first and last blocks attend to all. The seed fixes the random blocks.",
        "Zaheer et al.",
        2020,
        "https://arxiv.org/abs/2007.14062",
        (
            Param("block", "Block", 1, 1, 128, 1, meaning="tokens in a block"),
            Param(
                "window",
                "Window",
                1,
                0,
                64,
                1,
                meaning="number of blocks on each side that a block attends to",
            ),
            Param(
                "globals",
                "Global blocks",
                1,
                0,
                16,
                1,
                meaning="number of blocks at each end that attend to all, and that all attend to",
            ),
            Param(
                "random",
                "Random blocks",
                1,
                0,
                16,
                1,
                meaning="number of random blocks that each block attends to",
            ),
            Param("seed", "Seed", 0, 0, 9999, 1, meaning="seed of the random blocks"),
        ),
        "window, ends, {random} random",
        traits=frozenset({"reads length"}),
        cost=_bigbird_cost,
    ),
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
