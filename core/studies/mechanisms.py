"""One head's weights under the baseline and under a choice."""

from dataclasses import dataclass

import numpy as np
import torch

from core.attention import AttentionConfig, LayerSteps
from core.seeding import seeded_layer
from core.tokens import embed, labels, tokenize

TOKENS = labels(tokenize("The animal didn't cross the street because it was too tired .").tokens)
SEED, PADDING = 126, 3
D_MODEL, HEADS = 16, 4
BASELINE = AttentionConfig(D_MODEL, HEADS)
MIN_CHANGE = 5e-4  # a smaller one is not drawn


@dataclass(frozen=True)
class Comparison:
    """One head's weights (T, S) under the baseline and under a choice, with the choice's mask."""

    head: int
    before: np.ndarray
    after: np.ndarray
    mask: np.ndarray | None
    implied: bool


def steps_of(config: AttentionConfig) -> LayerSteps:
    """The steps of the seeded layer on the sentence; under a padding mask its last tokens are padding."""
    real = torch.arange(len(TOKENS)) < len(TOKENS) - (
        PADDING if "padding" in str(config.mask) else 0
    )
    with torch.inference_mode():
        return seeded_layer(config, SEED)(embed(TOKENS, D_MODEL, SEED), key_mask=real[None])


def compare(config: AttentionConfig) -> Comparison:
    """The baseline and a config on the same sentence, in the head with the largest change of a weight."""
    first, second = steps_of(BASELINE), steps_of(config)
    head = int((first.weights - second.weights).abs().amax((0, 2, 3)).argmax())
    before, after = (steps.weights[0, head].float().numpy() for steps in (first, second))
    mask = (
        None if second.mask is None else second.mask.expand(second.weights.shape)[0, head].numpy()
    )
    return Comparison(head, before, after, mask, second.implied)


def most_changed(before: np.ndarray, after: np.ndarray) -> tuple[int, int]:
    """The cell with the largest change of weight; where none changes, the largest weight."""
    change = np.abs(after - before)
    row, column = np.unravel_index(
        (change if change.max() > MIN_CHANGE else after).argmax(), change.shape
    )
    return int(row), int(column)
