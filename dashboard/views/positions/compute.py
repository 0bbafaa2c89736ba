"""Effects of a position encoding on a layer without a mask: on shuffled words, by distance, and under a shift."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from core.attention import Attention, AttentionConfig, Choice, Entry, Steps
from core.positions import measure
from core.seeding import seeded_generator, seeded_layer
from dashboard.runtime.tokens import embed

TABLE_POSITIONS = 512  # on which a linear map is fitted, all but the last share of them
HELD_OUT = 1 / 8
SHIFTS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 28, 32)


def layer_of(config: AttentionConfig, seed: int) -> Attention:
    return seeded_layer(config, seed)


@dataclass(frozen=True, eq=False)
class ShuffleEffect:
    """The same words in two orders: weights (H, T, T) in order and restored to it, and each word's change of output."""

    order: tuple[int, ...]
    ordered: np.ndarray
    restored: np.ndarray
    change: np.ndarray  # (T,), as a share of the word's output
    largest: float  # over all numbers of all outputs
    baseline: float  # the same without positions


@torch.inference_mode()
def shuffle_effect(config: AttentionConfig, tokens: tuple[str, ...], seed: int, times: int) -> ShuffleEffect:
    """Shuffle, attend, and put the outputs back beside those in order."""
    x, order = embed(tokens, config.d_model, seed), shuffle(len(tokens), seed, times)
    back = order.argsort()

    def both(choice: AttentionConfig) -> tuple[Steps, Steps, Tensor]:
        plain, mixed = layer_of(choice, seed)(x), layer_of(choice, seed)(x[:, order])
        return plain, mixed, mixed.merged[0, back] - plain.merged[0]

    plain, mixed, gap = both(config)
    weights = mixed.weights[0][:, back][:, :, back]
    baseline = both(config.with_(position=Choice("none")))[2]
    return ShuffleEffect(tuple(order.tolist()), plain.weights[0].numpy(), weights.numpy(),
                    (gap.norm(dim=-1) / plain.merged[0].norm(dim=-1)).numpy(), float(gap.abs().max()),
                    float(baseline.abs().max()))


def shuffle(count: int, seed: int, times: int) -> Tensor:
    """An order of that many words, never the one they stand in (but for one word)."""
    generator = seeded_generator(seed, f"shuffle {times}")
    order = torch.randperm(count, generator=generator)
    return order.roll(1) if count > 1 and bool((order == torch.arange(count)).all()) else order


def table_of(config: AttentionConfig, seed: int, positions: int) -> Tensor:
    """What is added at each position, (T, C); fewer positions where the table of the encoding ends."""
    longest = dict(config.position.params).get("max_len", positions)
    return measure.additive_table(layer_of(config, seed).position, min(positions, int(longest)), config.d_model)


def rotations_of(config: AttentionConfig, seed: int, positions: int) -> Tensor:
    return measure.rotation_matrices(layer_of(config, seed).position, positions, config.qk_dim)


def unscaled(config: AttentionConfig) -> AttentionConfig | None:
    """The same encoding with a factor of 1, where it has a factor that is not 1 already."""
    if dict(config.position.params).get("factor", 1.0) == 1.0:
        return None
    return config.with_(position=Choice.of(config.position.key, **{**dict(config.position.params), "factor": 1.0}))


@torch.inference_mode()
def score_changes(config: AttentionConfig, seed: int, positions: int) -> np.ndarray:
    """What the encoding changes each score by, (H, T, T), on as many random words as there are positions."""
    x = embed(tuple(f"word {index}" for index in range(positions)), config.d_model, seed)
    steps = layer_of(config, seed)(x)
    return (steps.scores - steps.raw * steps.scale)[0].numpy()


def score_std(config: AttentionConfig, seed: int, positions: int) -> float:
    """The standard deviation of the scores before the encoding changes them, on the same random words."""
    x = embed(tuple(f"word {index}" for index in range(positions)), config.d_model, seed)
    with torch.inference_mode():
        steps = layer_of(config, seed)(x)
    return float((steps.raw * steps.scale).std())


def latex_of(config: AttentionConfig, seed: int, item: Entry) -> str:
    """The equation: the encoding's own where it has one (a typed formula), else its entry's."""
    own = getattr(layer_of(config, seed).position, "latex", None)
    return own() if own else item.latex


@dataclass(frozen=True, eq=False)
class ShiftEffect:
    """Scores of the same words at the start and `shift` positions later, (H, T, T), and of plain sinusoids beside."""

    first: np.ndarray
    later: np.ndarray
    sinusoidal: float  # the largest difference with sinusoids added instead

    @property
    def largest(self) -> float:
        return float(np.abs(self.later - self.first).max())


@torch.inference_mode()
def shift_effect(config: AttentionConfig, tokens: tuple[str, ...], seed: int, shift: int) -> ShiftEffect:
    """The words alone, and after `shift` others that do not change their own vectors."""
    before = tuple(f"before {index}" for index in range(shift))
    pair = []
    for choice in (config, config.with_(position=Choice("sinusoidal"))):
        layer = layer_of(choice, seed)
        alone = layer(embed(tokens, config.d_model, seed)).scores[0]
        after = layer(embed((*before, *tokens), config.d_model, seed)).scores[0, :, shift:, shift:]
        pair.append((alone.numpy(), after.numpy()))
    (first, later), (plain, plain_later) = pair
    return ShiftEffect(first, later, float(np.abs(plain_later - plain).max()))


@dataclass(frozen=True, eq=False)
class LinearMaps:
    """P(i + k) as a linear map of P(i): the two maps at one shift, and how far each misses at several."""

    closed: np.ndarray  # (C, C)
    fitted: np.ndarray
    positions: int
    rows: tuple[tuple[int, float, float, float, float], ...]  # shift; misses of closed, fitted, held out, identity

    def at(self, shift: int) -> tuple[int, float, float, float, float]:
        return next(row for row in self.rows if row[0] == shift)


@torch.inference_mode()
def linear_maps(config: AttentionConfig, seed: int, shift: int) -> LinearMaps:
    """Fit on the first positions of the table, and measure on those and on its last ones, which the fit never saw."""
    table = table_of(config, seed, TABLE_POSITIONS)
    fit_length = len(table) - max(1, int(len(table) * HELD_OUT))
    shifts = [k for k in sorted({*SHIFTS, shift}) if k < min(fit_length, len(table) - fit_length)]
    rows, maps = [], {}
    for k in shifts:
        closed, fit = measure.sinusoid_shift(table[k]), measure.fit_shift(table[:fit_length], k)
        maps[k] = closed, fit
        rows.append((k, measure.shift_error(closed, table, k), measure.shift_error(fit, table[:fit_length], k),
                     measure.shift_error(fit, table[fit_length:], k),
                     measure.shift_error(torch.eye(config.d_model), table, k)))
    if shift not in maps:
        raise ValueError(f"Of a table of {len(table)} places {len(table) - fit_length} stay unseen, too few to look "
                         f"{shift} places on; take a longer table or fewer places.")
    return LinearMaps(maps[shift][0].numpy(), maps[shift][1].numpy(), len(table), tuple(rows))
