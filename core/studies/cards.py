"""What the page shows of the cards: figures of each, and the cache's size by length."""

from core.models.cards import card
from core.models.cards.base import ModelCard

LENGTHS = tuple(2**power for power in range(10, 21))  # 1k to 1M tokens
SHORT, LONG = 8192, 131072


def cache(one: ModelCard, length: int) -> int | None:
    """Bytes of the cache of one sequence; None where nothing is stored, or a text of that length has no positions."""
    if not one.stores or (one.longest and length > one.longest):
        return None
    return one.cache_bytes(length)


def curves(keys: tuple[str, ...]) -> dict[str, list[tuple[int, int]]]:
    """By name of a model, its cache's bytes at each length that it can have."""
    return {
        one.name: [(length, size) for length in LENGTHS if (size := cache(one, length)) is not None]
        for one in [card(key) for key in dict.fromkeys(keys)]
        if one.stores
    }
