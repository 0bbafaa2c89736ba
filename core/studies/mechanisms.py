"""One mechanism beside the plain one, on a sentence of its own, in the head that it changes most."""

from dataclasses import dataclass

import numpy as np
import torch

from core.attention import AttentionConfig, Steps
from core.seeding import seeded_layer
from core.studies.compare import MapResult, head_map
from core.tokens import embed, labels, tokenize

TOKENS = labels(tokenize("The animal didn't cross the street because it was too tired .").tokens)
SEED, PADDING = 126, 3
BASELINE = AttentionConfig(16, 4)
MIN_CHANGE = 5e-4  # a smaller one is not drawn


@dataclass(frozen=True, eq=False)
class Effect:
    """One head's map under BASELINE and under another config, and the second minus the first, (T, T)."""

    names: tuple[str, ...]
    head: int
    baseline: MapResult
    result: MapResult
    difference: np.ndarray

    @property
    def changes(self) -> bool:
        return bool(np.abs(self.difference).max() > MIN_CHANGE)

    @property
    def telling_cell(self) -> tuple[int, int]:
        """The cell with the largest change of weight; where none changes, the largest weight."""
        cells = np.abs(self.difference) if self.changes else self.result.weights
        row, column = np.unravel_index(cells.argmax(), cells.shape)
        return int(row), int(column)


def steps_of(config: AttentionConfig) -> Steps:
    """The steps of the seeded layer on TOKENS; under a padding mask its last ones are padding."""
    real = torch.arange(len(TOKENS)) < len(TOKENS) - PADDING * ("padding" in str(config.mask))
    with torch.inference_mode():
        return seeded_layer(config, SEED)(embed(TOKENS, config.d_model, SEED), key_mask=real[None])


def beside_baseline(config: AttentionConfig) -> Effect:
    """The same sentence through the plain layer and through this one, in the head in which a weight changes most.

    Both layers have BASELINE's sizes and one seed.
    """
    both = steps_of(BASELINE), steps_of(config)
    head = int((both[0].weights - both[1].weights).abs().amax((0, 2, 3)).argmax())
    before, after = (head_map(steps, head) for steps in both)
    return Effect(TOKENS, head, before, after, after.weights - before.weights)
