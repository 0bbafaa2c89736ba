"""What is measured for the page: a layer without a mask, on words or on places, with and without an encoding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from core.attention import Attention, AttentionConfig, Choice, Entry, Steps
from core.positions import measure
from dashboard.runtime.seeding import seeded_layer
from dashboard.runtime.tokens import embed

TABLE_PLACES = 512  # on which a linear map is fitted, all but the last share of them
UNSEEN = 1 / 8
SHIFTS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 28, 32)


def layer_of(config: AttentionConfig, seed: int) -> Attention:
    return seeded_layer(config, seed)


@dataclass(frozen=True, eq=False)
class Shuffled:
    """The same words in two orders: weights (H, T, T) in order and put back, and each word's change of output."""

    order: tuple[int, ...]
    ordered: np.ndarray
    put_back: np.ndarray
    change: np.ndarray  # (T,), as a share of the word's output
    largest: float  # over all numbers of all outputs
    without: float  # the same without positions


@torch.inference_mode()
def shuffled(config: AttentionConfig, tokens: tuple[str, ...], seed: int, times: int) -> Shuffled:
    """Shuffle, attend, and put the outputs back beside those in order."""
    x, order = embed(tokens, config.d_model, seed), shuffle(len(tokens), seed, times)
    back = order.argsort()

    def both(choice: AttentionConfig) -> tuple[Steps, Steps, Tensor]:
        plain, mixed = layer_of(choice, seed)(x), layer_of(choice, seed)(x[:, order])
        return plain, mixed, mixed.merged[0, back] - plain.merged[0]

    plain, mixed, gap = both(config)
    weights = mixed.weights[0][:, back][:, :, back]
    without = both(config.with_(position=Choice("none")))[2]
    return Shuffled(tuple(order.tolist()), plain.weights[0].numpy(), weights.numpy(),
                    (gap.norm(dim=-1) / plain.merged[0].norm(dim=-1)).numpy(), float(gap.abs().max()),
                    float(without.abs().max()))


def shuffle(count: int, seed: int, times: int) -> Tensor:
    """An order of that many words, never the one they stand in (but for one word)."""
    generator = torch.Generator().manual_seed(1000 * times + seed)
    order = torch.randperm(count, generator=generator)
    return order.roll(1) if count > 1 and bool((order == torch.arange(count)).all()) else order


def table_of(config: AttentionConfig, seed: int, places: int) -> Tensor:
    """What is added at each place, (T, C); fewer places where the table of the encoding ends."""
    longest = dict(config.position.params).get("max_len", places)
    return measure.added(layer_of(config, seed).position, min(places, int(longest)), config.d_model)


def turns_of(config: AttentionConfig, seed: int, places: int) -> Tensor:
    return measure.turned(layer_of(config, seed).position, places, config.qk_dim)


def unscaled(config: AttentionConfig) -> AttentionConfig | None:
    """The same encoding with a factor of 1, where it has a factor that is not 1 already."""
    if dict(config.position.params).get("factor", 1.0) == 1.0:
        return None
    return config.with_(position=Choice.of(config.position.key, **{**dict(config.position.params), "factor": 1.0}))


@torch.inference_mode()
def changes(config: AttentionConfig, seed: int, places: int) -> np.ndarray:
    """What the encoding changes each score by, (H, T, T), on as many random words as there are places."""
    x = embed(tuple(f"word {place}" for place in range(places)), config.d_model, seed)
    steps = layer_of(config, seed)(x)
    return (steps.scores - steps.raw * steps.scale)[0].numpy()


def spread(config: AttentionConfig, seed: int, places: int) -> float:
    """The standard deviation of the scores before the encoding changes them, on the same random words."""
    x = embed(tuple(f"word {place}" for place in range(places)), config.d_model, seed)
    with torch.inference_mode():
        steps = layer_of(config, seed)(x)
    return float((steps.raw * steps.scale).std())


def latex_of(config: AttentionConfig, seed: int, item: Entry) -> str:
    """The equation: the encoding's own where it has one (a typed formula), else its entry's."""
    own = getattr(layer_of(config, seed).position, "latex", None)
    return own() if own else item.latex


@dataclass(frozen=True, eq=False)
class Moved:
    """Scores of the same words at the start and `shift` places later, (H, T, T), and of plain sinusoids beside."""

    first: np.ndarray
    later: np.ndarray
    beside: float  # the largest difference with sinusoids added instead

    @property
    def largest(self) -> float:
        return float(np.abs(self.later - self.first).max())


@torch.inference_mode()
def moved(config: AttentionConfig, tokens: tuple[str, ...], seed: int, shift: int) -> Moved:
    """The words alone, and after `shift` others that do not change their own vectors."""
    before = tuple(f"before {place}" for place in range(shift))
    pair = []
    for choice in (config, config.with_(position=Choice("sinusoidal"))):
        layer = layer_of(choice, seed)
        alone = layer(embed(tokens, config.d_model, seed)).scores[0]
        after = layer(embed((*before, *tokens), config.d_model, seed)).scores[0, :, shift:, shift:]
        pair.append((alone.numpy(), after.numpy()))
    (first, later), (plain, plain_later) = pair
    return Moved(first, later, float(np.abs(plain_later - plain).max()))


@dataclass(frozen=True, eq=False)
class Linear:
    """P(i + k) as a linear map of P(i): the two maps at one shift, and how far each misses at several."""

    closed: np.ndarray  # (C, C)
    fitted: np.ndarray
    places: int
    rows: tuple[tuple[int, float, float, float, float], ...]  # shift; closed, fitted, fitted on unseen places, as it is

    def at(self, shift: int) -> tuple[int, float, float, float, float]:
        return next(row for row in self.rows if row[0] == shift)


@torch.inference_mode()
def linear(config: AttentionConfig, seed: int, shift: int) -> Linear:
    """Fit on the first places of the table, and measure on those and on its last ones, which the fit never saw."""
    table = table_of(config, seed, TABLE_PLACES)
    seen = len(table) - max(1, int(len(table) * UNSEEN))
    asked = [k for k in sorted({*SHIFTS, shift}) if k < min(seen, len(table) - seen)]
    rows, maps = [], {}
    for k in asked:
        closed, fit = measure.rotation_of(table[k]), measure.fitted(table[:seen], k)
        maps[k] = closed, fit
        rows.append((k, measure.miss(closed, table, k), measure.miss(fit, table[:seen], k),
                     measure.miss(fit, table[seen:], k), measure.miss(torch.eye(config.d_model), table, k)))
    if shift not in maps:
        raise ValueError(f"Of a table of {len(table)} places {len(table) - seen} stay unseen, too few to look {shift} "
                         "places on; take a longer table or fewer places.")
    return Linear(maps[shift][0].numpy(), maps[shift][1].numpy(), len(table), tuple(rows))
