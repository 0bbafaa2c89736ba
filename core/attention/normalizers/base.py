"""What the entries of all normalizers share: the parameter `temperature`, and the memory of their matrices."""

from __future__ import annotations

from collections.abc import Callable

from core.entries import Area, Cost, LayerConfig, Param

TEMPERATURE = Param(
    "temperature",
    "Temperature",
    1.0,
    0.01,
    100.0,
    0.01,
    meaning="number τ that every score is divided by first",
)


def matrices(plain: float, masked: float) -> Callable[[LayerConfig, Area], Cost]:
    """The `cost` of an entry that holds so many matrices beside the scores, without and with a mask.

    A temperature other than 1 takes one more.
    """

    def cost(config: LayerConfig, area: Area) -> Cost:
        scores = 4.0 * config.score_heads * area.cells
        count = (masked if area.masked else plain) + (config.normalizer["temperature"] != 1.0)
        return Cost(0.0, count * scores + (area.cells if area.masked else 0), scores)

    return cost
