"""Mask, the base class; fixed patterns of the positions i and j; masks made of masks; and the reach of a stack."""

from collections.abc import Callable
from functools import partial, reduce
from typing import Any, cast

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from core.attention.basics import ScoreBlock
from core.entries import ConfigError, Entry, LayerConfig, Param, quote, refuse_if

# Mask, the base class, and fixed patterns: functions of the positions i and j (padding: of the key mask).


LONGEST = 512  # of a block or a stride
WIDEST = 8192  # a window or chunk of published models; Llama 4 has the widest
LOOKBACK = Param(
    "lookback",
    "Lookback",
    2,
    0,
    WIDEST,
    1,
    meaning="number of keys before the query that it attends to, besides itself",
)
MAX_DOCUMENTS = 64
LONGEST_DOCUMENT = 100_000


class Mask(nn.Module):
    """Which queries may attend to which keys; it may have weights, and may read q and k."""

    def forward(self, block: ScoreBlock) -> Tensor:
        """Bool, True = may attend, broadcastable to (B, H, T, S)."""
        raise NotImplementedError

    def weight_factor(self, block: ScoreBlock) -> Tensor | None:
        """What multiplies the weights after the normalizer (trait "reweighs"); None for nothing."""
        return None


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


def document(block: ScoreBlock, lengths: str) -> Tensor:
    ends = torch.tensor(lengths_of(lengths), device=block.i.device).cumsum(0)
    documents = (
        torch.bucketize(block.i, ends, right=True),
        torch.bucketize(block.j, ends, right=True),
    )
    return documents[0] == documents[1]


_VASWANI = ("Vaswani et al.", 2017, "https://arxiv.org/abs/1706.03762")
_LONGFORMER = ("Beltagy et al.", 2020, "https://arxiv.org/abs/2004.05150")


# Masks made of masks: and, or, not, cell by cell.


class Combined(Mask):
    """The masks of all parts, joined by an operator such as operator.and_."""

    def __init__(self, parts: tuple[Mask, ...], join: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.parts, self.join = nn.ModuleList(parts), join

    def forward(self, block: ScoreBlock) -> Tensor:
        return reduce(self.join, [part(block) for part in self.parts])

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


ENTRIES: tuple[Entry, ...] = (
    Entry(
        "none",
        "None",
        rule(none),
        r"\text{all } j",
        "Each query attends to every key.",
        "Bahdanau et al.",
        2014,
        "https://arxiv.org/abs/1409.0473",
        short="all keys",
    ),
    Entry(
        "causal",
        "Causal",
        rule(causal),
        r"j \le i",
        "Each query attends to itself and to earlier keys.",
        *_VASWANI,
        short="j ≤ i",
    ),
    Entry(
        "padding",
        "Padding",
        rule(padding),
        r"j < \text{length}",
        "Keys that only make the texts of a batch equally long are masked.",
        *_VASWANI,
        short="j < {length}",
    ),
    Entry(
        "local",
        "Local window",
        rule(local),
        r"|i - j| \le w",
        "Each query attends to itself and to w keys on each side.",
        "Luong et al.",
        2015,
        "https://arxiv.org/abs/1508.04025",
        (
            Param(
                "window",
                "Window",
                2,
                0,
                WIDEST,
                1,
                meaning="number of keys on each side of the query that it attends to",
            ),
        ),
        "|i − j| ≤ {window}",
    ),
    Entry(
        "causal_local",
        "Causal local",
        rule(causal_local),
        r"0 \le i - j \le w",
        "Each query attends to itself and to the w keys before it. A stack of L layers reaches L·w keys back.",
        "Child et al.",
        2019,
        "https://arxiv.org/abs/1904.10509",
        (LOOKBACK,),
        "0 ≤ i − j ≤ {lookback}",
    ),
    Entry(
        "dilated",
        "Dilated window",
        rule(dilated),
        r"|i - j| \le w d,\ (i - j) \bmod d = 0",
        "A window with gaps: w keys on each side, d positions apart, so the same work reaches d times as far.",
        *_LONGFORMER,
        (
            Param(
                "window",
                "Window",
                2,
                0,
                LONGEST,
                1,
                meaning="number of keys on each side that a query attends to, without the gaps",
            ),
            Param(
                "dilation",
                "Dilation",
                2,
                1,
                64,
                1,
                meaning="distance from one allowed key to the next",
            ),
        ),
        "|i − j| ≤ {window}·{dilation}, every {dilation}",
    ),
    Entry(
        "strided",
        "Strided",
        rule(strided),
        r"0 \le i - j \le w\ \vee\ (i - j) \bmod s = 0,\quad j \le i",
        "Each query attends to the nearest keys and to every s-th key further back. Two layers reach all earlier "
        "keys if w ≥ s − 1.",
        "Child et al.",
        2019,
        "https://arxiv.org/abs/1904.10509",
        (
            LOOKBACK,
            Param("stride", "Stride", 3, 1, LONGEST, 1, meaning="distance s between far keys"),
        ),
        "0 ≤ i − j ≤ {lookback} or every {stride}",
    ),
    Entry(
        "block",
        "Blocks",
        rule(same_block),
        r"\lfloor i / b \rfloor = \lfloor j / b \rfloor",
        "The sequence is cut into blocks. Each query attends to its own block only.",
        "Liu et al.",
        2018,
        "https://arxiv.org/abs/1801.10198",
        (Param("size", "Block", 3, 1, LONGEST, 1, meaning="tokens in a block"),),
        "same block of {size}",
    ),
    Entry(
        "chunked",
        "Chunked, causal",
        rule(chunked),
        r"\lfloor i / c \rfloor = \lfloor j / c \rfloor,\ j \le i",
        "The sequence is cut into chunks. Each query attends to itself and to earlier keys of its chunk. Three of "
        "four layers in Llama 4 use it.",
        "Meta, Llama 4",
        2025,
        "https://ai.meta.com/blog/llama-4-multimodal-intelligence/",
        (Param("size", "Chunk", 3, 1, WIDEST, 1, meaning="tokens in a chunk"),),
        "j ≤ i, same chunk of {size}",
    ),
    Entry(
        "prefix",
        "Prefix-LM",
        rule(prefix_lm),
        r"j \le i\ \vee\ j < p",
        "The first p keys are allowed for every query; the other keys are causal.",
        "Raffel et al.",
        2020,
        "https://arxiv.org/abs/1910.10683",
        (
            Param(
                "prefix",
                "Prefix",
                3,
                0,
                4096,
                1,
                meaning="number of keys at the start that every query attends to",
            ),
        ),
        "j ≤ i or j < {prefix}",
    ),
    Entry(
        "document",
        "Documents",
        rule(document),
        r"\text{doc}(i) = \text{doc}(j)",
        "Several texts share one row, and each query attends to its own text only. Tokens after the last length are "
        "one more text.",
        "Krell et al.",
        2021,
        "https://arxiv.org/abs/2107.02027",
        (
            Param(
                "lengths",
                "Lengths",
                "3, 3",
                meaning="number of tokens of each text, in order, with commas between",
                parse=lengths_of,
            ),
        ),
        "same text",
    ),
)
