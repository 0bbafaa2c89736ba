"""What a mask lets a seeded layer see: its weights with and without it, in a stack of layers, a batch, and in PyTorch."""

from dataclasses import dataclass

import numpy as np
import torch

from core.attention import AXES, AttentionConfig, Choice, Steps, entry
from core.attention.masks import COMPOSITIONS, build_mask
from core.attention.masks.content import Selection, selection
from core.attention.masks.patterns import drawing_of, layers_needed
from core.seeding import seeded_layer
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
