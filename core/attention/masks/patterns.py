"""Patterns of the positions i and j, rows with a layout, sparse and typed rules; masks of masks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import Any, cast

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from core.attention.base import Mask, ScoreBlock, eager_cache
from core.attention.formula import parse
from core.entries import Area, ConfigError, Cost, Entry, LayerConfig, Param, quote, refuse_if

# Fixed patterns: functions of the positions i and j (padding: of the key mask).


LONGEST = 512  # of a block or a stride
WIDEST = 8192  # a window or chunk of published models; Llama 4 has the widest
LOOKBACK = Param(
    "lookback",
    "Lookback",
    default=2,
    low=0,
    high=WIDEST,
    step=1,
    meaning="number of keys before the query that it attends to, besides itself",
)
MAX_DOCUMENTS = 64
LONGEST_DOCUMENT = 100_000


class Rule(Mask):
    """A mask that is a function of the block alone."""

    def __init__(self, allows: Callable[[ScoreBlock], Tensor]) -> None:
        super().__init__()
        self.allows = allows

    def forward(self, block: ScoreBlock) -> Tensor:
        return self.allows(block)


Build = Callable[..., Mask]


def rule(allows: Callable[..., Tensor]) -> Build:
    """The build of an entry whose mask is a function of the block and the entry's parameters."""

    def build(config: LayerConfig, parts: tuple[Mask, ...], **params: Any) -> Mask:
        return Rule(partial(allows, **params))  # a local function could not be pickled

    build.__wrapped__ = allows  # type: ignore[attr-defined]  # inspect shows the function itself
    return build


def none(block: ScoreBlock) -> Tensor:
    return torch.ones_like(block.i + block.j, dtype=torch.bool)


def causal(block: ScoreBlock) -> Tensor:
    return block.j <= block.i


def padding(block: ScoreBlock) -> Tensor:
    if block.key_mask is None:
        raise ConfigError(
            "mask = padding needs key_mask, (B, S) with True for real tokens; none was given."
        )
    return block.key_mask


# Windows compare j with bounds, not i − j with a width: a matrix of distances takes eight times the mask's memory.


def local(block: ScoreBlock, window: int) -> Tensor:
    return (block.j >= block.i - window) & (block.j <= block.i + window)


def causal_local(block: ScoreBlock, lookback: int) -> Tensor:
    return (block.j >= block.i - lookback) & (block.j <= block.i)


def dilated(block: ScoreBlock, window: int, dilation: int) -> Tensor:
    return local(block, window * dilation) & (block.i % dilation == block.j % dilation)


def strided(block: ScoreBlock, lookback: int, stride: int) -> Tensor:
    return causal_local(block, lookback) | (causal(block) & (block.i % stride == block.j % stride))


def same_block(block: ScoreBlock, size: int) -> Tensor:
    return block.i // size == block.j // size


def chunked(block: ScoreBlock, size: int) -> Tensor:
    return same_block(block, size) & causal(block)


def prefix_lm(block: ScoreBlock, prefix: int) -> Tensor:
    return causal(block) | (block.j < prefix)


def lengths_of(text: str) -> list[int]:
    """Whole numbers between commas or spaces; ConfigError quotes other text."""
    words = text.replace(",", " ").split()
    lengths = [int(word) for word in words if word.isascii() and word.isdigit()]
    refuse_if(
        len(lengths) < len(words) or not all(1 <= length <= LONGEST_DOCUMENT for length in lengths),
        f"lengths = {quote(text)}; expected whole numbers from 1 to {LONGEST_DOCUMENT} with commas "
        "between, such as 3, 4, 2.",
    )
    refuse_if(
        not 1 <= len(lengths) <= MAX_DOCUMENTS,
        f"lengths names {len(lengths)} documents; expected 1 to {MAX_DOCUMENTS}.",
    )
    return lengths


def document(block: ScoreBlock, lengths: str, prefix: int = 0) -> Tensor:
    # texts of these lengths follow one another after the prefix
    ends = torch.tensor(lengths_of(lengths), device=block.i.device).cumsum(0) + prefix
    return torch.bucketize(block.i, ends, right=True) == torch.bucketize(block.j, ends, right=True)


_VASWANI: dict[str, Any] = dict(
    paper="Vaswani et al.", year=2017, url="https://arxiv.org/abs/1706.03762"
)
_LONGFORMER: dict[str, Any] = dict(
    paper="Beltagy et al.", year=2020, url="https://arxiv.org/abs/2004.05150"
)


# Masks made of masks: and, or, not, cell by cell.


class Combined(Mask):
    """The masks of all parts, joined by an operator such as operator.and_."""

    def __init__(self, parts: tuple[Mask, ...], join: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.parts, self.join = nn.ModuleList(parts), join

    def forward(self, block: ScoreBlock) -> Tensor:
        return reduce(self.join, [part(block) for part in self.parts])

    def unchosen(self, block: ScoreBlock) -> Tensor:
        return reduce(self.join, [cast(Mask, part).unchosen(block) for part in self.parts])

    def weight_factor(self, block: ScoreBlock) -> Tensor | None:
        """The product of the parts' factors; check_parts allows them in an `and` alone."""
        factors = [
            factor
            for part in self.parts
            if (factor := cast(Mask, part).weight_factor(block)) is not None
        ]
        return torch.stack(torch.broadcast_tensors(*factors)).prod(0) if factors else None


class Inverted(Mask):
    """True where the part is False."""

    def __init__(self, part: Mask) -> None:
        super().__init__()
        self.part = part

    def forward(self, block: ScoreBlock) -> Tensor:
        return ~self.part(block)


def layers_needed(allowed: Bool[Tensor, "T S"]) -> Int[Tensor, "T T"]:
    """The number of layers of this mask after which query i depends on token j; 0 where no depth is enough.

    `allowed` (T, T) of one sequence on itself. With the residual path, L layers reach the L-th power of (allowed or
    identity). ValueError unless T = S.
    """
    if allowed.dim() != 2 or allowed.shape[0] != allowed.shape[1]:
        raise ValueError(
            f"allowed is {tuple(allowed.shape)}; expected one sequence on itself, (T, T)."
        )
    step = (allowed | torch.eye(len(allowed), dtype=torch.bool, device=allowed.device)).float()
    reached = step > 0
    needed = reached.int()
    for layers in range(2, len(allowed)):  # a path between T tokens has at most T − 1 steps
        further = (reached.float() @ step) > 0
        if torch.equal(further, reached):
            break
        needed[further & ~reached] = layers
        reached = further
    return needed


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
    return causal(block) & ((block.j < prefix) | document(block, lengths, prefix))


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
    # (T, 1), (1, S): the block of each query and key
    rows, columns = (scores.i // block, scores.j // block)
    # (1, blocks of keys)
    blocks = torch.arange((scores.num_keys - 1) // block + 1, device=rows.device)[None]
    last_column = (scores.ends - 1) // block  # of each text, (B, 1, 1) where padding follows it
    last_row = last_column if scores.owns_queries else (scores.num_queries - 1) // block
    visible = (blocks >= rows - window) & (blocks <= rows + window)
    visible = visible | (
        (blocks < globals)
        | (blocks > last_column - globals)
        | (rows < globals)
        | (rows > last_row - globals)
    )
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
        # SplitMix64's finalizer; int64 wraps around
        for shift, factor in ((30, _MIX[1]), (27, _MIX[2])):
            rank = (rank ^ (rank >> shift)) * factor
        rank = ((rank ^ (rank >> 31)) & _LARGEST).masked_fill(~open_, -1)  # an open cell's is ≥ 0
        best = rank.topk(min(count, rank.shape[1]), dim=1).indices
        parts.append(torch.zeros_like(open_).scatter(1, best, True) & open_)
    return torch.cat(parts)


def _bigbird_cost(config: LayerConfig, area: Area) -> Cost:
    """The integers of a hash over the blocks that each query might see."""
    hashed = area.queries * -(-area.keys // int(config.mask["block"])) * bool(config.mask["random"])
    return Cost(0.0, 28 * min(hashed, _MAX_CELLS), area.cells)


LARGEST_DRAWING = 64  # rows or columns


def drawing_of(allowed: Bool[Tensor, "T S"]) -> str:
    """Cells drawn by hand as text: rows × columns, then each row in hexadecimal with key 0 as the highest bit.

    `3x3:4.6.7` is causal. ConfigError when there are more cells than a drawing may have.
    """
    queries, keys = allowed.shape
    refuse_if(
        not (1 <= queries <= LARGEST_DRAWING and 1 <= keys <= LARGEST_DRAWING),
        f"a drawing of {queries} × {keys} cells; expected 1 to {LARGEST_DRAWING} each way.",
    )
    rows = ("".join("01"[cell] for cell in row) for row in allowed.int().tolist())
    return f"{queries}x{keys}:{'.'.join(f'{int(row, 2):0{-(-keys // 4)}x}' for row in rows)}"


@eager_cache(maxsize=64)
def parse_drawing(text: str) -> Bool[Tensor, "T S"]:
    """The cells of a drawing, 1 = may attend; ConfigError for an invalid text."""
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
    return torch.tensor([[cell == "1" for cell in f"{int(word, 16):0{keys}b}"] for word in words])


def drawn(block: ScoreBlock, drawing: str, beyond: str) -> Tensor:
    grid = parse_drawing(drawing).to(block.i.device)
    rows, columns = grid.shape
    inside = (block.i < rows) & (block.j < columns)
    visible = grid[block.i % rows, block.j % columns]  # (T, S)
    if beyond == "repeat":
        return visible
    return visible | ~inside if beyond == "seen" else visible & inside


def formula(block: ScoreBlock, text: str) -> Tensor:
    return parse(text, "mask")(block)


def _formula_cost(config: LayerConfig, area: Area) -> Cost:
    """Double precision, one step at a time."""
    by_head = "h" in parse(str(config.mask["text"]), "mask").tree.names()
    return Cost(0.0, 20, 1) * (area.cells * (config.score_heads if by_head else 1))


ENTRIES: tuple[Entry, ...] = (
    Entry(
        "none",
        "None",
        build=rule(none),
        latex=r"\text{all } j",
        meaning="Each query attends to every key.",
        paper="Bahdanau et al.",
        year=2014,
        url="https://arxiv.org/abs/1409.0473",
        short="all keys",
    ),
    Entry(
        "causal",
        "Causal",
        build=rule(causal),
        latex=r"j \le i",
        meaning="Each query attends to itself and to earlier keys.",
        **_VASWANI,
        short="j ≤ i",
    ),
    Entry(
        "padding",
        "Padding",
        build=rule(padding),
        latex=r"j < \text{length}",
        meaning="Keys that only make the texts of a batch equally long are masked.",
        **_VASWANI,
        short="j < {length}",
    ),
    Entry(
        "local",
        "Local window",
        build=rule(local),
        latex=r"|i - j| \le w",
        meaning="Each query attends to itself and to w keys on each side.",
        paper="Luong et al.",
        year=2015,
        url="https://arxiv.org/abs/1508.04025",
        params=(
            Param(
                "window",
                "Window",
                default=2,
                low=0,
                high=WIDEST,
                step=1,
                meaning="number of keys on each side of the query that it attends to",
            ),
        ),
        short="|i − j| ≤ {window}",
    ),
    Entry(
        "causal_local",
        "Causal local",
        build=rule(causal_local),
        latex=r"0 \le i - j \le w",
        meaning="Each query attends to itself and to the w keys before it. A stack of L layers reaches L·w keys back.",
        paper="Child et al.",
        year=2019,
        url="https://arxiv.org/abs/1904.10509",
        params=(LOOKBACK,),
        short="0 ≤ i − j ≤ {lookback}",
    ),
    Entry(
        "dilated",
        "Dilated window",
        build=rule(dilated),
        latex=r"|i - j| \le w d,\ (i - j) \bmod d = 0",
        meaning="A window with gaps: w keys on each side, d positions apart, so the same work reaches d times as far.",
        **_LONGFORMER,
        params=(
            Param(
                "window",
                "Window",
                default=2,
                low=0,
                high=LONGEST,
                step=1,
                meaning="number of keys on each side that a query attends to, without the gaps",
            ),
            Param(
                "dilation",
                "Dilation",
                default=2,
                low=1,
                high=64,
                step=1,
                meaning="distance from one allowed key to the next",
            ),
        ),
        short="|i − j| ≤ {window}·{dilation}, every {dilation}",
    ),
    Entry(
        "strided",
        "Strided",
        build=rule(strided),
        latex=r"0 \le i - j \le w\ \vee\ (i - j) \bmod s = 0,\quad j \le i",
        meaning="Each query attends to the nearest keys and to every s-th key further back. Two layers reach all earlier "
        "keys if w ≥ s − 1.",
        paper="Child et al.",
        year=2019,
        url="https://arxiv.org/abs/1904.10509",
        params=(
            LOOKBACK,
            Param(
                "stride",
                "Stride",
                default=3,
                low=1,
                high=LONGEST,
                step=1,
                meaning="distance s between far keys",
            ),
        ),
        short="0 ≤ i − j ≤ {lookback} or every {stride}",
    ),
    Entry(
        "block",
        "Blocks",
        build=rule(same_block),
        latex=r"\lfloor i / b \rfloor = \lfloor j / b \rfloor",
        meaning="The sequence is cut into blocks. Each query attends to its own block only.",
        paper="Liu et al.",
        year=2018,
        url="https://arxiv.org/abs/1801.10198",
        params=(
            Param(
                "size", "Block", default=3, low=1, high=LONGEST, step=1, meaning="tokens in a block"
            ),
        ),
        short="same block of {size}",
    ),
    Entry(
        "chunked",
        "Chunked, causal",
        build=rule(chunked),
        latex=r"\lfloor i / c \rfloor = \lfloor j / c \rfloor,\ j \le i",
        meaning="The sequence is cut into chunks. Each query attends to itself and to earlier keys of its chunk. Three of "
        "four layers in Llama 4 use it.",
        paper="Meta, Llama 4",
        year=2025,
        url="https://ai.meta.com/blog/llama-4-multimodal-intelligence/",
        params=(
            Param(
                "size", "Chunk", default=3, low=1, high=WIDEST, step=1, meaning="tokens in a chunk"
            ),
        ),
        short="j ≤ i, same chunk of {size}",
    ),
    Entry(
        "prefix",
        "Prefix-LM",
        build=rule(prefix_lm),
        latex=r"j \le i\ \vee\ j < p",
        meaning="The first p keys are allowed for every query; the other keys are causal.",
        paper="Raffel et al.",
        year=2020,
        url="https://arxiv.org/abs/1910.10683",
        params=(
            Param(
                "prefix",
                "Prefix",
                default=3,
                low=0,
                high=4096,
                step=1,
                meaning="number of keys at the start that every query attends to",
            ),
        ),
        short="j ≤ i or j < {prefix}",
    ),
    Entry(
        "document",
        "Documents",
        build=rule(document),
        latex=r"\text{doc}(i) = \text{doc}(j)",
        meaning="Several texts share one row, and each query attends to its own text only. Tokens after the last length are "
        "one more text.",
        paper="Krell et al.",
        year=2021,
        url="https://arxiv.org/abs/2107.02027",
        params=(
            Param(
                "lengths",
                "Lengths",
                default="3, 3",
                meaning="number of tokens of each text, in order, with commas between",
                parse=lengths_of,
            ),
        ),
        short="same text",
    ),
    Entry(
        "tree",
        "Tree",
        build=rule(tree),
        latex=r"j = i\ \vee\ j \in \text{ancestors}(i)",
        meaning="After a prefix, the tokens are a tree of possible continuations. Each attends to the prefix, to its "
        "ancestors and to itself, so one call scores every path of the tree. Tokens after the tree continue its "
        "last node.",
        paper="Miao et al.",
        year=2023,
        url="https://arxiv.org/abs/2305.09781",
        params=(
            Param(
                "prefix",
                "Prefix",
                default=3,
                low=0,
                high=4096,
                step=1,
                meaning=_PREFIX + "the tree, which every node attends to",
            ),
            Param(
                "parents",
                "Parents",
                default="-, 0, 0, 1, 1, 2",
                parse=parents_of,
                meaning="the parent of each node: the number of an earlier node, from 0, or - for a root; with commas "
                "between",
            ),
        ),
        short="ancestors",
    ),
    Entry(
        "shared_prefix",
        "Shared prefix",
        build=rule(shared_prefix),
        latex=r"j \le i,\quad j < p\ \vee\ \text{text}(i) = \text{text}(j)",
        meaning="Several continuations of one prefix share a row. Each attends to the prefix and to its own earlier tokens, "
        "so the prefix is stored once. Tokens after the last length are one more continuation.",
        paper="Juravsky et al.",
        year=2024,
        url="https://arxiv.org/abs/2402.05099",
        params=(
            Param(
                "prefix",
                "Prefix",
                default=3,
                low=0,
                high=4096,
                step=1,
                meaning=_PREFIX + "the continuations",
            ),
            Param(
                "lengths",
                "Lengths",
                default="3, 3",
                parse=lengths_of,
                meaning="number of tokens of each continuation, in order, with commas between",
            ),
        ),
        short="j ≤ i: j < {prefix} or same text",
    ),
    Entry(
        "block_diffusion",
        "Block diffusion",
        build=rule(block_diffusion),
        latex=r"B_j = B_i\ (\text{both noised})\ \vee\ B_j < B_i\ (j\ \text{clean})\ \vee\ "
        r"B_j \le B_i\ (\text{both clean})",
        meaning="A row holds a text twice: first with noise, then clean. A noised block attends to itself and to the clean "
        "blocks before it; a clean block attends to itself and to the clean blocks before it. So all blocks are "
        "trained in one call. The paper gives both copies the same positions; here positions count all tokens.",
        paper="Arriola et al.",
        year=2025,
        url="https://arxiv.org/abs/2503.09573",
        params=(
            Param(
                "noised",
                "Noised tokens",
                default=6,
                low=1,
                high=4096,
                step=1,
                meaning="number of noised tokens; the clean ones follow",
            ),
            Param(
                "size",
                "Block",
                default=2,
                low=1,
                high=LONGEST,
                step=1,
                meaning="tokens in a block, which are denoised together",
            ),
        ),
        short="own noised block of {size}, earlier clean",
    ),
    Entry(
        "neighborhood",
        "Neighborhood",
        build=rule(neighborhood),
        latex=r"|r_i' - r_j| \le \lfloor k / 2 \rfloor,\ |c_i' - c_j| \le \lfloor k / 2 \rfloor",
        meaning="Tokens are the patches of a picture, row by row. Each attends to the window of k × k patches around it; at "
        "an edge the window is moved inside, so it never shrinks. Tokens after the grid are the next picture.",
        paper="Hassani et al.",
        year=2022,
        url="https://arxiv.org/abs/2204.07143",
        params=(
            Param(
                "rows",
                "Rows",
                default=3,
                low=1,
                high=256,
                step=1,
                meaning="number of rows of the grid",
            ),
            Param(
                "columns",
                "Columns",
                default=4,
                low=1,
                high=256,
                step=1,
                meaning="number of patches in a row of the grid",
            ),
            Param(
                "window",
                "Window",
                default=3,
                low=1,
                high=255,
                step=2,
                meaning="side k of the window, in patches; an odd number has the "
                "query in the middle",
            ),
        ),
        short="{window} × {window} patches",
    ),
    Entry(
        "global_window",
        "Window + global",
        build=rule(global_window),
        latex=r"|i - j| \le w\ \vee\ i < g\ \vee\ j < g",
        meaning="Each query attends to a window and to the first g tokens. The first g tokens attend to all. Two layers "
        "connect all tokens.",
        paper="Beltagy et al.",
        year=2020,
        url="https://arxiv.org/abs/2004.05150",
        params=(
            Param(
                "window",
                "Window",
                default=1,
                low=0,
                high=512,
                step=1,
                meaning="number of keys on each side of the query that it attends to",
            ),
            Param(
                "globals",
                "Global tokens",
                default=1,
                low=0,
                high=64,
                step=1,
                meaning="number g of tokens at the start that attend to "
                "all, and that all attend to",
            ),
        ),
        short="|i − j| ≤ {window} or global",
    ),
    Entry(
        "bigbird",
        "BigBird",
        build=rule(bigbird),
        latex=r"|I - J| \le w\ \vee\ I, J \in \text{ends}_g\ \vee\ J \in \text{random}_r(I),"
        r"\quad I = \lfloor i / b \rfloor,\ J = \lfloor j / b \rfloor",
        meaning="Each block of queries attends to a window of blocks, to the first and last blocks, and to a few random "
        "blocks. The first and last blocks attend to all. The seed fixes the random blocks.",
        paper="Zaheer et al.",
        year=2020,
        url="https://arxiv.org/abs/2007.14062",
        params=(
            Param(
                "block", "Block", default=1, low=1, high=128, step=1, meaning="tokens in a block"
            ),
            Param(
                "window",
                "Window",
                default=1,
                low=0,
                high=64,
                step=1,
                meaning="number of blocks on each side that a block attends to",
            ),
            Param(
                "globals",
                "Global blocks",
                default=1,
                low=0,
                high=16,
                step=1,
                meaning="number of blocks at each end that attend to all, and that all attend to",
            ),
            Param(
                "random",
                "Random blocks",
                default=1,
                low=0,
                high=16,
                step=1,
                meaning="number of random blocks that each block attends to",
            ),
            Param(
                "seed",
                "Seed",
                default=0,
                low=0,
                high=9999,
                step=1,
                meaning="seed of the random blocks",
            ),
        ),
        short="window, ends, {random} random",
        traits=frozenset({"reads length"}),
        cost=_bigbird_cost,
    ),
    Entry(
        "formula",
        "Formula",
        build=rule(formula),
        latex=r"f(i, j, h, T, S)",
        meaning="A rule that you type in i, j, h, T and S. A cell is allowed where the rule is true.",
        paper="",
        year=2024,
        url="",
        params=(
            Param(
                "text",
                "Formula",
                default="j <= i and i - j < 4 or j == 0",
                parse=lambda text: parse(text, "mask"),
                meaning="condition of i (query), j (key), h (head), T and S with and, or, not and "
                "comparisons",
            ),
        ),
        short="{text}",
        cost=_formula_cost,
    ),
    Entry(
        "drawn",
        "Drawn by hand",
        build=rule(drawn),
        latex=r"M_{ij} = 1",
        meaning="Each cell is allowed or masked by hand.",
        paper="",
        year=2026,
        url="",
        params=(
            Param(
                "drawing",
                "Cells",
                default="6x6:20.30.38.34.32.31",
                parse=parse_drawing,
                meaning="rows x columns, then the rows in hexadecimal, key 0 first",
            ),
            Param(
                "beyond",
                "Outside",
                default="masked",
                choices=("masked", "seen", "repeat"),
                labels=("is masked", "is seen", "the drawing repeats"),
                meaning="rule for cells outside the drawing",
            ),
        ),
        short="as drawn",
    ),
)
