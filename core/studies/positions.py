"""What positions change for a seeded layer: by distance, under a shift, and for the same words in another order."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from core.attention import AttentionConfig, Choice, Steps, properties
from core.attention.positions import Joined, entries_of
from core.seeding import seeded_generator, seeded_layer
from core.tokens import embed

TABLE_POSITIONS = 512  # on which a linear map is fitted, all but the last share of them
HELD_OUT = 1 / 8
ROUNDING = 1e-5  # a smaller difference of two weights or scores is none
GUIDE_SHIFT = 5  # positions, of the question
SHIFTS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 28, 32)


@dataclass(frozen=True, eq=False)
class ShuffleEffect:
    """The same words in two orders: weights (H, T, T) in order and restored to it, and each word's change of output.

    Where `restored` differs by rounding alone it is as `ordered`.
    """

    names: tuple[str, ...]
    order: tuple[int, ...]
    ordered: np.ndarray
    restored: np.ndarray
    difference: np.ndarray
    change: np.ndarray  # (T,), as a share of the word's output
    largest: float  # over all numbers of all outputs
    baseline_change: np.ndarray  # (T,), and `baseline`: the same without positions
    baseline: float


@torch.inference_mode()
def shuffle_effect(
    config: AttentionConfig, tokens: tuple[str, ...], seed: int, times: int
) -> ShuffleEffect:
    """How much each word's output changes in another order, as a share of its length.

    Outputs and weights of the shuffled words are restored to their order.
    """
    x, order = embed(tokens, config.d_model, seed), shuffle(len(tokens), seed, times)
    back = order.argsort()

    def both(config: AttentionConfig) -> tuple[Steps, Steps, np.ndarray, float]:
        layer = seeded_layer(config, seed)
        ordered, shuffled = layer(x), layer(x[:, order])
        gap = shuffled.merged[0, back] - ordered.merged[0]
        return (
            ordered,
            shuffled,
            (gap.norm(dim=-1) / ordered.merged[0].norm(dim=-1)).numpy(),
            float(gap.abs().max()),
        )

    ordered, shuffled, change, largest = both(config)
    _, _, baseline_change, baseline = both(config.with_(position=Choice("none")))
    return ShuffleEffect(
        tokens,
        tuple(order.tolist()),
        *_compared(ordered.weights[0], shuffled.weights[0][:, back][:, :, back]),
        change,
        largest,
        baseline_change,
        baseline,
    )


def _compared(before: Tensor, after: Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Both, the second as the first where they differ by rounding alone, and the second minus the first."""
    after = torch.where((after - before).abs() < ROUNDING, before, after)
    return before.numpy(), after.numpy(), (after - before).numpy()


def shuffle(count: int, seed: int, times: int) -> Tensor:
    """A random order of `count` words, never their own order unless there is one word."""
    order = torch.randperm(count, generator=seeded_generator(seed, f"shuffle {times}"))
    return order.roll(1) if torch.equal(order, torch.arange(count)) else order


@dataclass(frozen=True, eq=False)
class Input:
    """The vector of each word and of its position, and their sum, (T, C) each."""

    words: np.ndarray
    places: np.ndarray
    total: np.ndarray


def added_vectors(config: AttentionConfig, tokens: tuple[str, ...], seed: int) -> Input:
    """What attention reads, the vector of each word plus that of its position."""
    words = embed(tokens, config.d_model, seed)[0].numpy()
    places = table_of(config, seed, len(tokens)).detach().numpy()
    return Input(words, places, words + places)


def table_of(config: AttentionConfig, seed: int, positions: int) -> Tensor:
    """What is added at each position; at most as many as the encoding's table has, (T, C)."""
    return properties.additive_table(
        seeded_layer(config, seed).position,
        min(positions, int(dict(config.position.params).get("max_len", positions))),
        config.d_model,
    )


@dataclass(frozen=True, eq=False)
class Added:
    """What is added at each position, (T, C), and the cosines of positions by distance, (T, 3): see `by_distance`."""

    table: np.ndarray
    by_distance: np.ndarray


def added_table(config: AttentionConfig, seed: int, positions: int) -> Added:
    """What is added at each position, and the cosine of the vectors of two positions by their distance."""
    table = table_of(config, seed, positions)
    return Added(table.numpy(), by_distance(properties.cosines(table).numpy()))


@dataclass(frozen=True, eq=False)
class Rotations:
    """The pairs of dimensions that rotate together, and the mean score of a vector and itself, rotated, by distance."""

    pairs: tuple[properties.Pair, ...]
    wavelengths: np.ndarray  # of the pairs: positions for each full turn
    scores: np.ndarray  # (T, T), that mean score of each query and key
    by_distance: np.ndarray  # (T, 3): see `by_distance`


def rotations_of(config: AttentionConfig, seed: int, positions: int) -> Rotations:
    """The rotation of a query or key at each position, and the mean score of a vector and itself, rotated.

    Of a rotation by rows and columns, that of the first row.
    """
    matrices = properties.rotation_matrices(
        seeded_layer(config, seed).position, positions, config.qk_dim
    )[: row_length(config)]
    pairs = properties.rotation_pairs(matrices)
    scores = properties.alignment(matrices).numpy()
    return Rotations(
        pairs, np.array([pair.wavelength for pair in pairs]), scores, by_distance(scores)
    )


def row_length(config: AttentionConfig) -> int | None:
    """How many positions lie in one row, of a rotation by rows and columns; None where all lie in one line."""
    columns = dict(config.position.params).get("columns")
    return None if columns is None else int(columns)


def by_distance(cells: np.ndarray, first: int = 0) -> np.ndarray:
    """The mean, the least and the largest cell (T, T) at each distance of the key from the query, from `first` on."""
    return np.array(
        [
            (row.mean(), row.min(), row.max())
            for row in [np.diagonal(cells, distance) for distance in range(first, len(cells))]
        ]
    )


def unscaled(config: AttentionConfig) -> AttentionConfig | None:
    """The same encoding with a factor of 1, where it has a factor that is not 1 already."""
    if dict(config.position.params).get("factor", 1.0) == 1.0:
        return None
    return config.with_(
        position=Choice.of(config.position.key, **{**dict(config.position.params), "factor": 1.0})
    )


@dataclass(frozen=True, eq=False)
class ScoreChanges:
    """What the encoding changes each score by, (H, T, T), and that by the distance of the key, (H, 2·T − 1, 3)."""

    changes: np.ndarray
    by_distance: np.ndarray  # from the farthest key before to the farthest after
    std: float  # of the scores without it


@torch.inference_mode()
def score_changes(config: AttentionConfig, seed: int, positions: int) -> ScoreChanges:
    """What the encoding changes each score by, on as many random words as there are positions."""
    words = tuple(f"word {index}" for index in range(positions))
    steps = seeded_layer(config, seed)(embed(words, config.d_model, seed))
    plain = steps.raw * steps.scale
    changes = (steps.scores - plain)[0].numpy()
    distances = np.stack([by_distance(change, 1 - positions) for change in changes])
    return ScoreChanges(changes, distances, float(plain.std()))


def latex_of(config: AttentionConfig, seed: int) -> str:
    """The equation of each part: the encoding's own where it has one (a typed formula), else its entry's."""
    position = seeded_layer(config, seed).position
    return r",\quad ".join(
        piece.latex() if hasattr(piece, "latex") else item.latex
        for piece, item in zip(
            (position.parts if isinstance(position, Joined) else [position]),
            entries_of(config.position),
            strict=True,
        )
    )


@dataclass(frozen=True, eq=False)
class ShiftEffect:
    """Scores of the same words at the start and `shift` positions later, (H, T, T), and the change with sinusoids.

    Where `later` differs by rounding alone it is as `first`.
    """

    names: tuple[str, ...]
    first: np.ndarray
    later: np.ndarray
    difference: np.ndarray
    largest: float  # of all differences, rounding included
    sinusoidal: float  # the same with sinusoids added instead

    @property
    def head(self) -> int:
        """The head with the largest difference."""
        return int(np.abs(self.difference).max((1, 2)).argmax())


@torch.inference_mode()
def shift_effect(
    config: AttentionConfig, tokens: tuple[str, ...], seed: int, shift: int
) -> ShiftEffect:
    """The scores of the words at the start, and after other words, which do not change their vectors."""
    before = tuple(f"before {index}" for index in range(shift))

    def both(config: AttentionConfig) -> tuple[Tensor, Tensor, float]:
        layer = seeded_layer(config, seed)
        words = (embed(each, config.d_model, seed) for each in (tokens, (*before, *tokens)))
        first, later = (layer(x).scores[0] for x in words)
        later = later[:, shift:, shift:]
        return first, later, float((later - first).abs().max())

    first, later, largest = both(config)
    sinusoidal = both(config.with_(position=Choice("sinusoidal")))[-1]
    return ShiftEffect(tokens, *_compared(first, later), largest, sinusoidal)


def shift_changes(config: AttentionConfig, tokens: tuple[str, ...], seed: int) -> dict[str, float]:
    """The largest change of a score, GUIDE_SHIFT positions later, with each of three encodings."""
    return {
        key: shift_effect(config.with_(position=Choice(key)), tokens, seed, GUIDE_SHIFT).largest
        for key in ("sinusoidal", "learned", "rope")
    }


@dataclass(frozen=True, eq=False)
class LinearMaps:
    """P(i + k) as a linear map of P(i): the two maps at one shift, and how far each misses at several."""

    closed: np.ndarray  # (C, C)
    fitted: np.ndarray
    # at this shift, as shares of the length: of closed, of fitted, of fitted where it is held out, of no map
    misses: tuple[float, float, float, float]
    # other shifts, with these four
    rows: tuple[tuple[int, float, float, float, float], ...]


@torch.inference_mode()
def linear_maps(config: AttentionConfig, seed: int, shift: int) -> LinearMaps:
    """P(i + k) as a linear map of P(i), the rotation in closed form and a least-squares fit.

    Fitted on the first positions of the table, measured on those and on its last ones, which are held out.
    """
    table = table_of(config, seed, TABLE_POSITIONS)
    fitted = len(table) - max(1, int(len(table) * HELD_OUT))
    maps = {
        k: (properties.sinusoid_shift(table[k]), properties.fit_shift(table[:fitted], k))
        for k in sorted({*SHIFTS, shift})
        if k < min(fitted, len(table) - fitted)
    }
    if shift not in maps:
        raise ValueError(
            f"The table has {len(table)} positions, of which {len(table) - fitted} are held out: too "
            f"few for a shift of {shift}; take a longer table or a smaller shift."
        )
    rows = {
        k: (
            properties.shift_error(closed, table, k),
            properties.shift_error(fit, table[:fitted], k),
            properties.shift_error(fit, table[fitted:], k),
            properties.shift_error(torch.eye(config.d_model), table, k),
        )
        for k, (closed, fit) in maps.items()
    }
    return LinearMaps(
        maps[shift][0].numpy(),
        maps[shift][1].numpy(),
        rows[shift],
        tuple((k, *misses) for k, misses in rows.items()),
    )
