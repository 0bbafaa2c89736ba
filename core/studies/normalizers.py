"""What each normalizer makes of one row of scores, by the built module."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from core.attention import AttentionConfig, Choice, Normalizer, entry
from core.interpret import trace as analysis
from core.seeding import seeded_layer
from core.tokens import SENTENCE, embed, labels, tokenize

DIMS, SEED = 16, 126
MIN_GRADIENT = 1e-12  # a smaller one counts as zero, in double precision
SWEEP = 97  # the scores of one key in a curve
NEAR = 6.0  # which run at least so far from 0

Scores = tuple[float | None, ...]  # None where the key is masked


@dataclass(frozen=True, eq=False)
class RowWeights:
    """A row's weights by one normalizer, and their measures.

    `prepared` is what the normalizer makes of each score before it compares them, `zeros` the number of visible keys
    with a weight of exactly 0, `learning` the number of scores with a gradient.
    """

    key: str
    normalizer: Normalizer
    prepared: np.ndarray
    weights: np.ndarray
    zeros: int
    entropy: float
    learning: int

    @property
    def total(self) -> float:
        return float(self.weights.sum())

    @property
    def unassigned(self) -> float:
        """The weight that goes to no key."""
        return max(0.0, 1.0 - self.total)


@lru_cache(maxsize=1)
def example() -> tuple[tuple[str, ...], str, Scores]:
    """Real scores to start from: the keys, the query (the word with the largest std of scores), and its scores."""
    tokens = tokenize(SENTENCE).tokens
    with torch.inference_mode():
        scores = seeded_layer(AttentionConfig(DIMS, 1), SEED)(embed(tokens, DIMS, SEED)).scores[
            0, 0
        ]
    row = max(
        (i for i, token in enumerate(tokens) if token.isalpha()),
        key=lambda i: float(scores[i].std()),
    )
    return (
        labels(tokens),
        labels(tokens)[row],
        tuple(round(float(score), 2) for score in scores[row]),
    )


def normalizer_of(choice: Choice) -> Normalizer:
    """The built module, in double precision."""
    built: Normalizer = (
        entry("normalizer", choice.key).build(AttentionConfig(2, 1, normalizer=choice)).double()
    )
    return built


def tensors(scores: Scores, factor: float) -> tuple[Tensor, Tensor]:
    """Scores (1, 1, 1, S) times the factor, and the mask of visible keys."""
    values = torch.tensor(
        [[[[0.0 if s is None else s * factor for s in scores]]]], dtype=torch.float64
    )
    return values, torch.tensor([[[[s is not None for s in scores]]]])


def normalize_row(choice: Choice, scores: Scores, factor: float) -> RowWeights:
    """The same scores through one normalizer in double precision, and how many of them have a gradient."""
    normalizer = normalizer_of(choice)
    values, mask = tensors(scores, factor)
    values.requires_grad_()
    weights = normalizer(values, mask)
    row = weights.detach()[0, 0, 0].numpy()
    prepared = normalizer.prepare(values.detach(), mask)[0, 0, 0].detach().numpy()
    zeros = int((row[mask[0, 0, 0].numpy()] == 0).sum())
    learning = 0
    if weights.requires_grad:  # under a loss in which every weight has another factor
        factors = torch.arange(1.0, weights.shape[-1] + 1, dtype=weights.dtype).sqrt()
        (gradient,) = torch.autograd.grad((weights * factors).sum(), values)
        learning = int((gradient.abs() > MIN_GRADIENT).sum())
    return RowWeights(
        choice.key,
        normalizer,
        prepared,
        row,
        zeros,
        float(analysis.entropy(row[None, None])[0, 0]),
        learning,
    )


@torch.inference_mode()
def sweep(choice: Choice, scores: Scores, factor: float, index: int) -> np.ndarray:
    """The weight of one key as its score runs from −6 to 6, or as far as its own lies, while the others stay.

    The rows (SWEEP, 2) are scores and weights.
    """
    values, mask = tensors(scores, factor)
    end = max(NEAR, float(values[0, 0, 0, index].abs().ceil()))
    places = np.linspace(-end, end, SWEEP)
    rows = values.expand(1, 1, SWEEP, -1).clone()
    rows[0, 0, :, index] = torch.from_numpy(places)
    mask = mask.clone()
    mask[..., index] = True
    weights = normalizer_of(choice)(rows, mask.expand(1, 1, SWEEP, -1))[0, 0, :, index]
    return np.stack([places, weights.numpy()], 1)
