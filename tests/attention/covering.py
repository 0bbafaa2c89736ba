"""Few configs in which every pair of choices across two axes that can go together stands at least once."""

import itertools
from collections.abc import Collection
from functools import cache

from core.attention import AXES, AttentionConfig, ConfigError
from tests.attention.drawing import C, H, plain

Item = tuple[str, str]  # axis, key
ITEMS: dict[str, list[Item]] = {
    axis: [(axis, entry.key) for entry in entries] for axis, entries in AXES.items()
}


def build(items: Collection[Item]) -> AttentionConfig:
    return AttentionConfig(C, H, **{axis: plain(axis, key) for axis, key in items})


@cache
def pairs() -> dict[tuple[Item, Item], str | None]:
    """Every pair of choices of two axes, and the sentence that refuses it."""
    refusals: dict[tuple[Item, Item], str | None] = {}
    for one, other in itertools.combinations(AXES, 2):
        for pair in itertools.product(ITEMS[one], ITEMS[other]):
            try:
                build(pair)
                refusals[pair] = None
            except ConfigError as refusal:
                refusals[pair] = str(refusal)
    return refusals


def rows(without: Collection[Item] = ()) -> list[tuple[Item, ...]]:
    """A covering array of strength two, greedy and deterministic, over the choices that are not in `without`."""
    fits = {
        frozenset(pair)
        for pair, refusal in pairs().items()
        if refusal is None and not set(pair) & set(without)
    }
    left, array = dict.fromkeys(pair for pair in pairs() if frozenset(pair) in fits), []
    while left:
        row = list(next(iter(left)))
        for axis in AXES:
            fitting = [
                item
                for item in ITEMS[axis]
                if all(frozenset((item, other)) in fits for other in row)
            ]
            new = {
                item: sum((a, b) in left or (b, a) in left for a in (item,) for b in row)
                for item in fitting
            }
            for item in sorted(new, key=new.get, reverse=True)[:4]:
                if new[item] and builds([*row, item]):
                    row.append(item)
                    break
        for pair in itertools.permutations(row, 2):
            left.pop(pair, None)
        array.append(tuple(row))
    return array


def builds(items: Collection[Item]) -> bool:
    """Whether three and more choices that fit two by two also fit together."""
    try:
        build(items)
    except ConfigError:
        return False
    return True
