"""Where a token stands: what a mask lets a seeded layer see, and what positions change, by distance and under a shift."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from core.attention import AXES, AttentionConfig, Choice, Steps, entry, properties
from core.attention.masks import COMPOSITIONS, build_mask
from core.attention.masks.content import Selection, selection
from core.attention.masks.patterns import drawing_of, layers_needed
from core.attention.positions import Joined, entries_of
from core.seeding import seeded_generator, seeded_layer
from core.tokens import embed, labels, tokenize

D_MODEL, HEADS, SEED = 16, 4, 126
TINY = 1e-30  # in place of a weight of 0, which nothing divides
PAD = "[pad]"
BATCH = ("The animal was too tired .", "It slept .", "A long day ends here at last .")


@dataclass(frozen=True, eq=False)
class MaskEffect:
    """One head with and without the mask: all are (T, T)."""

    names: tuple[str, ...]
    scores: np.ndarray
    before: np.ndarray
    after: np.ndarray
    allowed: np.ndarray
    factor: np.ndarray | None  # of the weights, by the mask; None for none
    # layers of this mask until a query receives anything of a key; 0 where no depth is enough
    needed: np.ndarray
    selection: Selection | None = None  # held against the causal mask, of a mask that reads content

    @property
    def drawing(self) -> str:
        """The mask as the text of a drawing."""
        return drawing_of(torch.from_numpy(self.allowed))

    @property
    def telling_cell(self) -> tuple[int, int]:
        """The query whose weights the mask changes most, of those that see the median number of keys, and its key."""
        keys, change = self.allowed.sum(1), np.abs(self.after - self.before).sum(1)
        min_keys = min(max(float(np.median(keys)), 2.0), keys.max())
        query = int(np.where(keys >= min_keys, change, -1.0).argmax())
        return query, int(self.after[query].argmax())


@dataclass(frozen=True, eq=False)
class Sentence:
    """One row of a padded batch: its tokens and padding, weights and allowed (T, T), and how many tokens are real."""

    names: tuple[str, ...]
    weights: np.ndarray
    allowed: np.ndarray
    real: int
    leak: float  # the mean weight that its words put on padding when nothing masks it


def config_of(mask: Choice) -> AttentionConfig:
    """The layer of the page with that mask; ConfigError where it does not fit."""
    return AttentionConfig(D_MODEL, HEADS, mask=mask)


def steps_of(mask: Choice, tokens: tuple[str, ...], real: int | None = None) -> Steps:
    """Every step of the seeded layer on the tokens; from `real` on they are padding."""
    key_mask = None if real is None else (torch.arange(len(tokens)) < real)[None]
    with torch.inference_mode():
        return seeded_layer(config_of(mask), SEED)(embed(tokens, D_MODEL, SEED), key_mask=key_mask)


def mask_effect(mask: Choice, tokens: tuple[str, ...], real: int | None, head: int) -> MaskEffect:
    """One head of the layer on the tokens, with the mask and without; ConfigError for a mask that cannot be built."""
    unmasked, masked = steps_of(Choice("none"), tokens), steps_of(mask, tokens, real)
    factor = (
        None
        if masked.normalized is None
        else _head(masked.weights / masked.normalized.clamp_min(TINY), head)
    )
    allowed, selected = allowed_of(masked, head), None
    if any("reads content" in entry("mask", part.key).traits for part in mask.walk()):
        full = steps_of(Choice("causal"), tokens).weights[:, head : head + 1]
        count = max(1, round(float(allowed.sum(1).mean())))
        selected = selection(torch.from_numpy(allowed), full, count)
    return MaskEffect(
        labels(tokens),
        _head(masked.scores, head),
        _head(unmasked.weights, head),
        _head(masked.weights, head),
        allowed,
        factor,
        layers_needed(torch.from_numpy(allowed)).numpy(),
        selected,
    )


@dataclass(frozen=True)
class TorchCheck:
    """nn.MultiheadAttention with the weights of the page's layer, run with the mask inverted and as it is here."""

    difference: float  # the largest of all weights, with the inverted mask, in rows that have a key
    forbidden: float  # the mean share of weight on forbidden keys, when the mask is passed without inverting it
    nan_rows: int  # queries without a key, for which it returns NaN


def torch_check(mask: Choice, tokens: tuple[str, ...], real: int | None) -> TorchCheck | None:
    """Run the same mask in nn.MultiheadAttention; None for a mask that also multiplies the weights."""
    steps, layer = steps_of(mask, tokens, real), seeded_layer(config_of(mask), SEED)
    if steps.normalized is not None:
        return None
    allowed = whole(steps.mask, *steps.scores.shape)[0]
    x = embed(tokens, D_MODEL, SEED)
    projection = layer.projection  # whose biases begin as 0, like PyTorch's
    other = torch.nn.MultiheadAttention(D_MODEL, HEADS, batch_first=True).eval()
    maps = (projection.query, projection.key, projection.value)
    with torch.inference_mode():
        other.in_proj_weight.copy_(torch.cat([each.weight for each in maps]))
        converted, copied = (
            other(x, x, x, attn_mask=each, average_attn_weights=False)[1][0]
            for each in (~allowed, allowed)
        )
    blind = converted.isnan().any(-1)
    gap = (converted - steps.weights[0]).abs()[~blind]
    share = (copied * ~allowed).sum(-1)
    finite = share[~share.isnan()]
    return TorchCheck(
        float(gap.max()) if gap.numel() else 0.0,
        float(finite.mean()) if finite.numel() else 0.0,
        int(blind.all(0).sum()),
    )


def _head(matrix: torch.Tensor, head: int) -> np.ndarray:
    return matrix[0, head].float().numpy()


def allowed_of(steps: Steps, head: int, item: int = 0) -> np.ndarray:
    """The mask of one head as a full bool matrix."""
    return np.ascontiguousarray(whole(steps.mask, *steps.scores.shape)[item, head].numpy())


def whole(mask: torch.Tensor | None, *shape: int) -> torch.Tensor:
    """A mask in its full shape; all keys are allowed without one."""
    return torch.ones(shape, dtype=torch.bool) if mask is None else mask.expand(shape)


# name, rule, cells, layers until all pairs that can meet have met, never
Pattern = tuple[str, str, int, int, int]


def patterns(tokens: int) -> list[Pattern]:
    """Every mask that depends on positions alone, at its defaults, the fewest cells first."""
    result = []
    for item in AXES["mask"]:
        if item.key in COMPOSITIONS or item.key in ("padding", "drawn") or item.traits:
            continue
        mask = config_of(Choice(item.key)).mask
        allowed = whole(build_mask(mask, tokens, tokens), tokens, tokens)
        needed = layers_needed(allowed)
        rule = item.short.format(**dict(mask.params))
        counts = int(allowed.sum()), int(needed.max()), int((needed == 0).sum())
        result.append((item.name, rule, *counts))
    return sorted(result, key=lambda pattern: pattern[2])


def batch(mask: Choice, head: int) -> list[Sentence]:
    """Three sentences of unequal length in one batch, with the page's mask and their padding masked."""
    cut = [tokenize(text).tokens for text in BATCH]
    longest = max(map(len, cut))
    padded = [tokens + (PAD,) * (longest - len(tokens)) for tokens in cut]
    x = torch.cat([embed(tokens, D_MODEL, SEED) for tokens in padded])
    key_mask = torch.tensor(
        [[True] * len(tokens) + [False] * (longest - len(tokens)) for tokens in cut]
    )
    with torch.inference_mode():
        masked = seeded_layer(config_of(mask), SEED)(x, key_mask=key_mask)
        unmasked = seeded_layer(config_of(Choice("none")), SEED)(x)
    return [
        Sentence(
            tokens,
            masked.weights[item, head].float().numpy(),
            allowed_of(masked, head, item),
            len(words),
            float(unmasked.weights[item, head, : len(words), len(words) :].sum(-1).mean()),
        )
        for item, (tokens, words) in enumerate(zip(padded, cut, strict=True))
    ]


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
    by_distance: np.ndarray  # (T, 3): see `by_distance`


def rotations_of(config: AttentionConfig, seed: int, positions: int) -> Rotations:
    """The rotation of a query or key at each position, and the mean score of a vector and itself, rotated.

    Of a rotation by rows and columns, that of the first row.
    """
    matrices = properties.rotation_matrices(
        seeded_layer(config, seed).position, positions, config.qk_dim
    )[: row_length(config)]
    pairs = properties.rotation_pairs(matrices)
    similarity = by_distance(properties.alignment(matrices).numpy())
    return Rotations(pairs, np.array([pair.wavelength for pair in pairs]), similarity)


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
