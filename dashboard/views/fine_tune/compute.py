"""One sentence before training and at a step: its maps of one type, and how far each head moved."""

from __future__ import annotations

from dataclasses import dataclass

from core.interpret.map_transform import HeadChange
from core.interpret.trace import AttentionTrace
from dashboard.draw.multiples import Tile


@dataclass(frozen=True)
class BeforeAfter:
    """The maps of one type before training and at a step, and the heads, the one that moved most first.

    They are of the `sentence`-th watched one, or, with None, what both models make of the `text`.
    """

    text: str
    sentence: int | None
    step: int
    last: bool
    first: AttentionTrace
    now: AttentionTrace
    heads: list[HeadChange]

    def tiles(self, head: HeadChange) -> list[Tile]:
        """One head before training, and at the step."""
        first, now = (trace.map(head.layer) for trace in (self.first, self.now))
        return [
            Tile("Before training", "step 0", first.weights[head.head], first.mask, 0),
            Tile(
                "After training" if self.last else "During training",
                f"step {self.step:,}",
                now.weights[head.head],
                now.mask,
                1,
            ),
        ]
