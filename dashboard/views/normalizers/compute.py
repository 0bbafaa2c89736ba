"""One row of scores through every normalizer, and what its weights measure; asked of the built modules."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from core import analysis
from core.attention import AttentionConfig, Choice, entry
from core.attention.normalizers import Normalizer
from dashboard.runtime.seeding import seeded_layer
from dashboard.runtime.tokens import SENTENCE, embed, labels, tokenize
from dashboard.views.normalizers.controls import DIMS, SEED, Scores

LEARNS = 1e-12  # a gradient smaller than this moves nothing, in double precision
SWEEP = np.linspace(-6.0, 6.0, 97)  # the scores that one key is given in the curves


@dataclass(frozen=True, eq=False)
class Weighed:
    """A row's weights by one normalizer, and what they measure.

    `given` is their sum, `zeros` how many keys that may be seen get exactly nothing, `learn` how many scores have a
    gradient, `prepared` what the normalizer made of each score before it compared them.
    """

    key: str
    normalizer: Normalizer
    prepared: np.ndarray
    weights: np.ndarray
    zeros: int
    entropy: float
    learn: int

    @property
    def given(self) -> float:
        return float(self.weights.sum())

    @property
    def kept(self) -> float:
        """What goes to no key."""
        return max(0.0, 1.0 - self.given)


@lru_cache(maxsize=1)
def example() -> tuple[tuple[str, ...], str, Scores]:
    """Real scores to begin with: the keys, the query's name, and the word whose scores lie farthest apart."""
    tokens = tokenize(SENTENCE).tokens
    with torch.inference_mode():
        scores = seeded_layer(AttentionConfig(DIMS, 1), SEED)(embed(tokens, DIMS, SEED)).scores[0, 0]
    row = max((at for at, token in enumerate(tokens) if token.isalpha()), key=lambda at: float(scores[at].std()))
    return labels(tokens), labels(tokens)[row], tuple(round(float(score), 2) for score in scores[row])


def normalizer_of(choice: Choice) -> Normalizer:
    """The built module, in double precision."""
    built: Normalizer = entry("normalizer", choice.key).build(AttentionConfig(2, 1, normalizer=choice)).double()
    return built


def tensors(scores: Scores, spread: float) -> tuple[Tensor, Tensor]:
    """Scores (1, 1, 1, S), times the spread, and which keys may be seen."""
    values = torch.tensor([[[[0.0 if s is None else s * spread for s in scores]]]], dtype=torch.float64)
    return values, torch.tensor([[[[s is not None for s in scores]]]])


def weigh(choice: Choice, scores: Scores, spread: float) -> Weighed:
    """The row through one normalizer, with its gradients."""
    normalizer = normalizer_of(choice)
    values, mask = tensors(scores, spread)
    values.requires_grad_()
    weights = normalizer(values, mask)
    row = weights.detach()[0, 0, 0].numpy()
    prepared = normalizer.prepare(values.detach(), mask)[0, 0, 0].detach().numpy()
    zeros = int((row[mask[0, 0, 0].numpy()] == 0).sum())
    return Weighed(choice.key, normalizer, prepared, row, zeros, float(analysis.entropy(row[None, None])[0, 0]),
                   learning(weights, values))


def learning(weights: Tensor, values: Tensor) -> int:
    """How many scores have a gradient when every weight is asked to change by its own amount."""
    if not weights.requires_grad:
        return 0
    wish = torch.arange(1.0, weights.shape[-1] + 1, dtype=weights.dtype).sqrt()
    found, = torch.autograd.grad((weights * wish).sum(), values)
    return int((found.abs() > LEARNS).sum())


@torch.inference_mode()
def sweep(choice: Choice, scores: Scores, spread: float, at: int) -> tuple[tuple[float, float], ...]:
    """The weight of key `at` as its score runs from −6 to 6 while the others stay."""
    values, mask = tensors(scores, spread)
    rows = values.expand(1, 1, len(SWEEP), -1).clone()
    rows[0, 0, :, at] = torch.from_numpy(SWEEP)
    mask = mask.clone()
    mask[..., at] = True
    weights = normalizer_of(choice)(rows, mask.expand(1, 1, len(SWEEP), -1))[0, 0, :, at]
    return tuple(zip(SWEEP.tolist(), weights.tolist(), strict=True))
