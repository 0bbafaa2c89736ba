"""What the entries of all normalizers share: the parameter `temperature`, and the memory of their matrices."""

from __future__ import annotations

from typing import Any

from core.entries import Area, Cost, LayerConfig, Param

TEMPERATURE = Param("temperature", "Temperature", 1.0, 0.01, 100.0, 0.01,
                    meaning="τ divides every score before anything else is done to it")


def matrices(plain: float, masked: float) -> Any:
    """The `cost` of an entry that holds so many matrices at once beside the scores, without and with a mask.

    A temperature takes one more.
    """
    def cost(config: LayerConfig, area: Area) -> Cost:
        scores = 4.0 * config.score_heads * area.cells
        own = (masked if area.masked else plain) + (config.normalizer["temperature"] != 1.0)
        return Cost(0.0, own * scores + (area.cells if area.masked else 0), scores)

    return cost
