"""Masks of rows that are no plain sequence: a tree, several continuations, a noised and a clean copy, a grid."""

from __future__ import annotations

import torch
from torch import Tensor

from core.eager_cache import eager_cache
from core.entries import ConfigError, Entry, Param, quote
from core.masks.patterns import LONGEST, causal, lengths_of, rule
from core.score_block import ScoreBlock

MOST_NODES = 256
ROOT = "-"


def parents_of(text: str) -> list[int]:
    """The parent of each node of a tree, −1 for a root; ConfigError quotes other text."""
    parents = []
    for node, word in enumerate(text.replace(",", " ").split()):
        number = int(word) if word.isascii() and word.isdigit() and len(word) <= 6 else None
        if word != ROOT and (number is None or number >= node):
            raise ConfigError(
                f"parents, node {node}: {quote(word)}; expected the number of an earlier node, or "
                f"{ROOT} for a root, with commas between, such as -, 0, 0, 1."
            )
        parents.append(-1 if number is None else number)
    if not 1 <= len(parents) <= MOST_NODES:
        raise ConfigError(f"parents names {len(parents)} nodes; expected 1 to {MOST_NODES}.")
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

LAYOUTS: tuple[Entry, ...] = (
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
)
