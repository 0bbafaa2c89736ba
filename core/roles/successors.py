"""Successor heads: heads that turn a number, a day or a letter into the next one, by their weights alone.

Gould et al. 2023, "Successor Heads": https://arxiv.org/abs/2312.09230
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from core.interpret.circuits import HeadMatrices, Vocabularies, read_heads, read_vocabularies
from core.interpret.trace import Head, Kind, NumberedHeads, to_numpy
from core.pretrained.base import Pretrained, PretrainedError
from core.pretrained.reading import tokenized, tokenizer_of
from core.roles.scores import ranked_heads, stack_layers

FEWEST = 10  # items with a successor
GOULD = "Gould et al. 2023", "https://arxiv.org/abs/2312.09230"

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
        where = {place: index for index, place in enumerate(self.places)}
        return [
            (index, where[place + 1])
            for index, place in enumerate(self.places)
            if place + 1 in where
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


def score_successors(pretrained: Pretrained, kind: Kind = "self") -> SuccessorScores:
    """Rank the items of each order by W_E W_V W_O W_U of every head, from each of its items.

    The paper puts the first feed-forward network behind the embedding; it is left out here. PretrainedError for a
    model without tokens or without such matrices, or where fewer than ten items and their successors are single tokens.
    """
    orders = ordered_tokens(pretrained)
    return rank_successors(orders, read_heads(pretrained), read_vocabularies(pretrained), kind)


def ordered_tokens(pretrained: Pretrained) -> tuple[Order, ...]:
    """The orders of a model's tokens. PretrainedError where fewer than ten items have their successor."""
    if not pretrained.reads_text:
        raise PretrainedError(f"{pretrained.name} reads no text, so it has no ordered tokens.")
    orders = token_orders(pretrained)
    if (count := sum(len(order.pairs) for order in orders)) < FEWEST:
        raise PretrainedError(
            f"The vocabulary of {pretrained.name} has {count} numbers, days, months or letters "
            f"with their successor; the test needs {FEWEST}."
        )
    return orders


def rank_successors(orders: Sequence[Order], heads: Sequence[HeadMatrices], vocabularies: Vocabularies,
                    kind: Kind) -> SuccessorScores:  # fmt: skip
    """The scores of the heads of one kind. PretrainedError where none of them lies between tokens."""
    layers = [one for one in heads if one.kind == kind and vocabularies.serves(one)]
    if not layers:
        raise PretrainedError(
            "The model has no heads between an embedding and an unembedding of one size."
        )
    logits = tuple(
        stack_layers([item_logits(one, vocabularies, order) for one in layers]) for order in orders
    )
    pairs = [len(order.pairs) for order in orders]
    hits = np.sum([_hits(one, order) for one, order in zip(logits, orders, strict=True)], axis=0)
    chance = sum(count / len(order.ids) for count, order in zip(pairs, orders, strict=True)) / sum(
        pairs
    )
    return SuccessorScores(
        hits / sum(pairs),
        sum(pairs),
        chance,
        tuple(orders),
        logits,
        tuple(one.number for one in layers),
        layers[0].writes in vocabularies.by_embedding,
    )


def token_orders(pretrained: Pretrained) -> tuple[Order, ...]:
    """The orders with at least four items that are single, different tokens, with or without a space before them."""
    orders = []
    for name, items in ORDERS.items():
        ids = [_single(pretrained, item) for item in items]
        known = [
            (place, token)
            for place, token in enumerate(ids)
            if token is not None and ids.count(token) == 1
        ]
        if len(known) >= 4:
            places, tokens = zip(*known, strict=True)
            orders.append(Order(name, tuple(items[place] for place in places), tokens, places))
    return tuple(orders)


def item_logits(
    heads: HeadMatrices, vocabularies: Vocabularies, order: Order
) -> Float[np.ndarray, "H N N"]:
    """What each head adds to the logit of every item (column) where it attends to an item (row)."""
    ids = list(order.ids)
    source, target = (
        vocabularies.embeddings[heads.reads][ids],
        vocabularies.unembeddings[heads.writes][:, ids],
    )
    return to_numpy(source @ heads.w_v @ (heads.w_o @ target))


def _hits(logits: Float[np.ndarray, "L H N N"], order: Order) -> Float[np.ndarray, "L H"]:
    """How many items have their successor as the highest of the order; nan where there is no head."""
    rows, successors = zip(*order.pairs, strict=True) if order.pairs else ((), ())
    top = np.where(np.isnan(logits), -np.inf, logits)[:, :, list(rows)].argmax(-1)
    hits = (top == np.asarray(successors, dtype=int)).sum(-1).astype(float)
    hits[np.isnan(logits).any((2, 3))] = np.nan
    return hits


def _single(pretrained: Pretrained, item: str) -> int | None:
    """The item's only token, with a space before it or not; None where there is none, or an unknown one."""
    tokenizer: Any = tokenizer_of(pretrained)
    for text in (f" {item}", item):
        ids = tokenized(pretrained, text, add_special_tokens=False)["input_ids"]
        if len(ids) == 1 and ids[0] != tokenizer.unk_token_id:
            return int(ids[0])
    return None
