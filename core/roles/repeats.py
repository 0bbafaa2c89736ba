"""The standard tests of heads on random tokens that repeat: induction, duplicate token, previous token.

Random tokens have no meaning, so a head can only use their positions and their identity.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from core.interpret.trace import AttentionMap, Head, Kind, NumberedHeads
from core.pretrained.base import Pretrained, PretrainedError, Reading
from core.pretrained.reading import read_ids, tokenizer_of
from core.roles.roles import OLSSON, VOITA
from core.roles.scores import ranked_heads, stack_layers

LENGTH = 25  # tokens before they repeat (Olsson et al. 2022, appendix)
FEWEST_TOKENS = 4
LINES = 8
SEED = 86
WANG = "Wang et al. 2022", "https://arxiv.org/abs/2211.00593"


@dataclass(frozen=True)
class RepeatTest:
    """A test: from each token of the repetition, the weight on the token at this offset from its first occurrence.

    Without an `offset`, the weight of every token on the one before it.
    """

    key: str
    name: str
    offset: int | None
    attends_to: str
    paper: str
    url: str

    def cells(self, length: int) -> tuple[Int[np.ndarray, " N"], Int[np.ndarray, " N"]]:
        """The queries and keys of the test in a line of `length` tokens that repeats once."""
        if self.offset is None:
            queries = np.arange(1, 2 * length)
            return queries, queries - 1
        queries = np.arange(length, 2 * length)
        return queries, queries - length + self.offset


TESTS: tuple[RepeatTest, ...] = (
    RepeatTest(
        "induction",
        "Induction",
        1,
        "the token after the first occurrence of the same token",
        *OLSSON,
    ),
    RepeatTest("duplicate", "Duplicate token", 0, "the first occurrence of the same token", *WANG),
    RepeatTest("previous", "Previous token", None, "the token before", *VOITA),
)


@dataclass(frozen=True, eq=False)
class RepeatScores(NumberedHeads):
    """Scores of tests × layers × heads, their 95 % interval (±) over the lines, and that of uniform attention.

    nan where a layer has fewer heads. `numbers` are the model's own numbers of the layers; `example` is the reading of
    one line, whose first token of `length` random ones is at `start`.
    """

    kind: Kind
    score: Float[np.ndarray, "R L H"]
    margin: Float[np.ndarray, "R L H"]
    uniform: Float[np.ndarray, " R"]
    numbers: tuple[int, ...]
    length: int
    lines: int
    example: Reading
    start: int

    def ranked(self, test: int) -> list[Head]:
        """All heads (layer, head), the one with the highest score first."""
        return ranked_heads(self.score[test])


@dataclass(frozen=True, eq=False)
class RepeatLine:
    """The reading of a line of `length` random tokens that repeats once; the first one is at `start`."""

    reading: Reading
    length: int
    start: int


def score_repeats(pretrained: Pretrained, kind: Kind = "self") -> RepeatScores:
    """The score of every head in every test: its mean weight on the test's keys, over eight lines of random tokens.

    PretrainedError for a model without tokens, or with a vocabulary or a length of fewer than four tokens a half.
    """
    lines = [read_line(pretrained, kind, tokens) for tokens in random_lines(pretrained)]
    return join_lines(kind, lines[0], [line_scores(line, kind) for line in lines])


def random_lines(pretrained: Pretrained) -> list[list[int]]:
    """The ids of different random tokens, a list for each line. PretrainedError as in `score_repeats`."""
    if not pretrained.reads_text:
        raise PretrainedError(f"{pretrained.name} reads no text, so it has no tokens to repeat.")
    pieces = ordinary_tokens(tokenizer_of(pretrained))
    length = min(
        LENGTH, len(pieces), (pretrained.max_tokens - 4) // 2
    )  # beside four special tokens
    if length < FEWEST_TOKENS:
        raise PretrainedError(
            f"{pretrained.name} has too few tokens for this test: it needs {FEWEST_TOKENS} different "
            "ones, twice."
        )
    draw = random.Random(SEED)
    return [draw.sample(pieces, length) for _ in range(LINES)]


def read_line(pretrained: Pretrained, kind: Kind, tokens: Sequence[int]) -> RepeatLine:
    """These tokens twice in a row. PretrainedError where the model has no attention of this kind."""
    reading = read_ids(pretrained, [*tokens, *tokens])
    if not reading.trace.of(kind).maps:
        raise PretrainedError(f"{pretrained.name} has no attention of this type.")
    return RepeatLine(reading, len(tokens), first_ordinary(reading, kind))


def line_scores(line: RepeatLine, kind: Kind) -> Float[np.ndarray, "R L H"]:
    """The score of every head in every test on one line."""
    cells = [test.cells(line.length) for test in TESTS]
    return np.stack(
        [
            stack_layers(
                [
                    item.weights[:, queries + line.start, keys + line.start].mean(-1).astype(float)
                    for item in line.reading.trace.of(kind).maps
                ]
            )
            for queries, keys in cells
        ]
    )


def join_lines(
    kind: Kind, example: RepeatLine, scores: Sequence[Float[np.ndarray, "R L H"]]
) -> RepeatScores:
    """The means over two lines or more, with their intervals."""
    trace, values = example.reading.trace.of(kind), np.stack(scores)
    margin = 1.96 * values.std(0, ddof=1) / np.sqrt(len(values))
    return RepeatScores(
        kind,
        values.mean(0),
        margin,
        _uniform(trace.maps[0], example.length, example.start),
        trace.numbers,
        example.length,
        len(values),
        example.reading,
        example.start,
    )


def ordinary_tokens(tokenizer: Any) -> list[int]:
    """Ids of the vocabulary that stand for letters or digits, in a fixed random order, at most 2,000."""
    special = set(tokenizer.all_special_ids)
    ids = sorted(
        index
        for piece, index in tokenizer.get_vocab().items()
        if index not in special and not piece.startswith(("[unused", "<extra_id"))
    )
    random.Random(SEED).shuffle(ids)
    return [index for index in ids[:4000] if str(tokenizer.decode([index])).strip().isalnum()][
        :2000
    ]


def first_ordinary(reading: Reading, kind: Kind) -> int:
    """The place of the first token that is not special."""
    return reading.lines(kind)[0].special.index(False)


def _uniform(item: AttentionMap, length: int, start: int) -> Float[np.ndarray, " R"]:
    """The score of attention that is uniform over the visible keys."""
    visible = item.visible[0]
    even = visible / np.maximum(visible.sum(-1, keepdims=True), 1)
    cells = [test.cells(length) for test in TESTS]
    return np.asarray([even[queries + start, keys + start].mean() for queries, keys in cells])
