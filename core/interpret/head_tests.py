"""Standard tests of heads: repeated random tokens, and successors."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from core.interpret.circuits import HeadMatrices, HeadWeights, Vocabularies, head_weights
from core.interpret.roles import OLSSON, VOITA, ranked_heads, stack_layers
from core.interpret.syntax import wilson_interval
from core.interpret.trace import Head, Kind, NumberedHeads, to_numpy
from core.pretrained.base import Pretrained, Reading, reject_if
from core.pretrained.reading import read_ids, tokenized, tokenizer_of

# The standard tests of heads on random tokens that repeat: induction, duplicate token, previous token.


LENGTH = 25  # tokens before they repeat (Olsson et al. 2022, appendix)
MIN_TOKENS = 4
LINES = 8
SEED = 86
WANG = "[Wang et al. 2022](https://arxiv.org/abs/2211.00593)"
Pairs = tuple[Int[np.ndarray, " N"], Int[np.ndarray, " N"]]


@dataclass(frozen=True)
class RepeatTest:
    """A test: from each token of the repetition, the weight on the token at this offset from its first occurrence.

    Without an `offset`, the weight of every token on the one before it.
    """

    key: str
    name: str
    offset: int | None
    attends_to: str
    source: str

    def cells(self, special: Sequence[bool]) -> Pairs:
        """The queries and keys of the test in a line whose tokens repeat once, between special ones."""
        start, length = special.index(False), special.count(False) // 2
        first = start + (1 if self.offset is None else length)
        queries = np.arange(first, start + 2 * length)
        return queries, queries - first + start + (self.offset or 0)


TESTS: tuple[RepeatTest, ...] = (
    RepeatTest(
        "induction",
        "Induction",
        1,
        "the token after the first occurrence of the same token",
        OLSSON,
    ),
    RepeatTest("duplicate", "Duplicate token", 0, "the first occurrence of the same token", WANG),
    RepeatTest("previous", "Previous token", None, "the token before", VOITA),
)


@dataclass(frozen=True, eq=False)
class RepeatScores(NumberedHeads):
    """Scores of tests × layers × heads, their 95 % interval (±) over the lines, and that of uniform attention.

    nan where a layer has fewer heads. `numbers` are the model's own numbers of the layers; `example` is the reading of
    one line, of `length` random tokens twice.
    """

    kind: Kind
    score: Float[np.ndarray, "R L H"]
    margin: Float[np.ndarray, "R L H"]
    uniform: Float[np.ndarray, " R"]
    numbers: tuple[int, ...]
    length: int
    lines: int
    example: Reading

    def ranked(self, test: int) -> list[Head]:
        """All heads (layer, head), the one with the highest score first."""
        return ranked_heads(self.score[test])

    @property
    def passes(self) -> Bool[np.ndarray, "R L H"]:
        """Whether the interval of a head lies above uniform attention."""
        return self.score - self.margin > self.uniform[:, None, None]


def default_test(scores: RepeatScores) -> int:
    """The first test in which a head has half of its weight on the keys of the test, else that of the top score."""
    best = [float(np.nanmax(each)) for each in scores.score]
    return next((index for index, score in enumerate(best) if score >= 0.5), best.index(max(best)))


def score_repeats(pretrained: Pretrained, kind: Kind = "self") -> RepeatScores:
    """The score of every head in every test: its mean weight on the test's keys, over eight lines of random tokens.

    PretrainedError for a model without tokens, or with a vocabulary or a length of fewer than four tokens a half.
    """
    lines = [read_line(pretrained, kind, tokens) for tokens in random_lines(pretrained)]
    return join_lines(kind, lines[0], [line_scores(line, kind) for line in lines])


def random_lines(pretrained: Pretrained) -> list[list[int]]:
    """The ids of different random tokens, a list for each line. PretrainedError as in `score_repeats`."""
    reject_if(
        not pretrained.reads_text,
        f"{pretrained.name} reads no text, so it has no tokens to repeat.",
    )
    pieces = ordinary_tokens(tokenizer_of(pretrained))
    length = min(
        LENGTH, len(pieces), (pretrained.max_tokens - 4) // 2
    )  # beside four special tokens
    reject_if(
        length < MIN_TOKENS,
        f"{pretrained.name} has too few tokens for this test: it needs {MIN_TOKENS} different "
        "ones, twice.",
    )
    draw = random.Random(SEED)
    return [draw.sample(pieces, length) for _ in range(LINES)]


def read_line(pretrained: Pretrained, kind: Kind, tokens: Sequence[int]) -> Reading:
    """These tokens twice in a row. PretrainedError where the model has no attention of this kind."""
    reading = read_ids(pretrained, [*tokens, *tokens])
    reject_if(not reading.trace.of(kind).maps, f"{pretrained.name} has no attention of this type.")
    return reading


def line_scores(reading: Reading, kind: Kind) -> Float[np.ndarray, "R L H"]:
    """The score of every head in every test on one line."""
    maps, special = reading.trace.of(kind).maps, reading.lines(kind)[0].special
    return np.stack(
        [
            stack_layers([item.weights[:, *each].mean(-1).astype(float) for item in maps])
            for each in [test.cells(special) for test in TESTS]
        ]
    )


def join_lines(
    kind: Kind, example: Reading, scores: Sequence[Float[np.ndarray, "R L H"]]
) -> RepeatScores:
    """The means over two lines or more, with their intervals."""
    trace, special, values = (
        example.trace.of(kind),
        example.lines(kind)[0].special,
        np.stack(scores),
    )
    visible = trace.maps[0].visible[0]
    even = visible / np.maximum(visible.sum(-1, keepdims=True), 1)
    return RepeatScores(
        kind,
        values.mean(0),
        1.96 * values.std(0, ddof=1) / np.sqrt(len(values)),
        np.asarray([even[test.cells(special)].mean() for test in TESTS]),
        trace.numbers,
        special.count(False) // 2,
        len(values),
        example,
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


MIN_ITEMS = 10  # items with a successor
GOULD = "[Gould et al. 2023](https://arxiv.org/abs/2312.09230)"

ORDERS: dict[str, tuple[str, ...]] = {
    "numbers": tuple(str(number) for number in range(1, 21)),
    "number words": tuple(
        "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
        "sixteen seventeen eighteen nineteen twenty".split()
    ),
    "ordinals": tuple("first second third fourth fifth sixth seventh eighth ninth tenth".split()),
    "days": tuple("Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()),
    "months": tuple(
        "January February March April May June July August September October November December".split()
    ),
    "letters": tuple("abcdefghijklmnopqrstuvwxyz"),
}


@dataclass(frozen=True)
class Order:
    """The items of an ordered set that are single tokens of a model, and their ids; at least four."""

    name: str
    items: tuple[str, ...]
    ids: tuple[int, ...]
    places: tuple[int, ...]

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """(item, successor), as indices, for each item whose successor is a token too."""
        return [
            (item, successor)
            for item, place in enumerate(self.places)
            for successor, other in enumerate(self.places)
            if other == place + 1
        ]


@dataclass(frozen=True, eq=False)
class SuccessorScores(NumberedHeads):
    """The share of items whose successor each head ranks highest of its order, (L, H); nan where there is no head.

    `count` is the number of items, `chance` the share that random ranks would have. `logits` are, for each order, what
    a head (L, H) adds to the logit of each item (column) where it attends to an item (row). With `by_embedding` the
    model has no unembedding, and the transposed embedding stands for it.
    """

    score: Float[np.ndarray, "L H"]
    count: int
    chance: float
    orders: tuple[Order, ...]
    logits: tuple[Float[np.ndarray, "L H N N"], ...]
    numbers: tuple[int, ...]
    by_embedding: bool

    def ranked(self) -> list[Head]:
        """All heads (layer, head), the one with the highest score first."""
        return ranked_heads(self.score)

    def hits(self, head: Head) -> int:
        """The number of items whose successor the head ranks highest."""
        return round(float(self.score[head]) * self.count)

    def interval(self, head: Head) -> tuple[float, float]:
        """The 95 % interval of a head's score, Wilson's."""
        return wilson_interval(self.hits(head), self.count)


def score_successors(
    pretrained: Pretrained, weights: HeadWeights | None = None, kind: Kind = "self"
) -> SuccessorScores:
    """Rank the items of each order by W_E W_V W_O W_U of every head, from each of its items.

    The paper puts the first feed-forward network behind the embedding; it is left out here. `weights` are those of the
    model where they are known. PretrainedError for a model without tokens, without such matrices between them, or where
    fewer than ten items and their successors are single tokens.
    """
    reject_if(
        not pretrained.reads_text, f"{pretrained.name} reads no text, so it has no ordered tokens."
    )
    orders = token_orders(pretrained)
    reject_if(
        (count := sum(len(order.pairs) for order in orders)) < MIN_ITEMS,
        f"The vocabulary of {pretrained.name} has {count} numbers, days, months or letters "
        f"with their successor; the test needs {MIN_ITEMS}.",
    )
    weights = weights or head_weights(pretrained)
    vocabularies = weights.vocabularies
    layers = [one for one in weights.heads if one.kind == kind and vocabularies.serves(one)]
    reject_if(
        not layers, "The model has no heads between an embedding and an unembedding of one size."
    )
    all_logits, hits = [], np.zeros(())
    for order in orders:
        logits = stack_layers([item_logits(one, vocabularies, order) for one in layers])
        rows, successors = np.array(order.pairs, dtype=int).reshape(-1, 2).T
        top = np.nan_to_num(logits, nan=-np.inf)[:, :, rows].argmax(-1)
        # The items whose successor is the highest of the order; nan where there is no head.
        hits = hits + np.where(np.isnan(logits).any((2, 3)), np.nan, (top == successors).sum(-1))
        all_logits.append(logits)
    return SuccessorScores(
        hits / count,
        count,
        sum(len(order.pairs) / len(order.ids) / count for order in orders),
        orders,
        tuple(all_logits),
        tuple(one.number for one in layers),
        layers[0].writes in vocabularies.by_embedding,
    )


def token_orders(pretrained: Pretrained) -> tuple[Order, ...]:
    """The orders with at least four items that are single, different tokens, with or without a space before them."""
    orders, unknown = [], tokenizer_of(pretrained).unk_token_id
    for name, items in ORDERS.items():
        first = {  # the best token that an item is alone, by its place
            place: ids[0]
            for place, item in enumerate(items)
            for text in (item, f" {item}")
            for ids in [tokenized(pretrained, text, add_special_tokens=False)["input_ids"]]
            if len(ids) == 1 and ids[0] != unknown
        }
        counts = Counter(first.values())
        known = {place: token for place, token in first.items() if counts[token] == 1}
        if len(known) >= 4:
            words = tuple(items[place] for place in known)
            orders.append(Order(name, words, tuple(known.values()), tuple(known)))
    return tuple(orders)


def item_logits(
    heads: HeadMatrices, vocabularies: Vocabularies, order: Order
) -> Float[np.ndarray, "H N N"]:
    """What each head adds to the logit of every item (column) where it attends to an item (row)."""
    ids = list(order.ids)
    read = vocabularies.embeddings[heads.reads][ids] @ heads.w_v
    return to_numpy(read @ (heads.w_o @ vocabularies.unembeddings[heads.writes][:, ids]))
