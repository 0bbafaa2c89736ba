"""The exact kernel: attention of projected heads, one step of the formula a line, with every step returned."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from core.attention.base import Mask, Normalizer, Position, Score, ScoreBlock, Steps
from core.entries import Choice, ConfigError, LayerConfig


@dataclass(frozen=True, eq=False)
class AttentionInputs:
    """What a kernel computes from: rotated q and k and their positions (in `block`), v, and the layer's choices."""

    block: ScoreBlock
    v: Float[Tensor, "B H S E"]
    score: Score
    normalizer: Normalizer
    position: Position | None = None
    mask: Mask | None = None
    call_mask: Tensor | None = None  # the caller's mask, bool, broadcastable to (B, H, T, S)
    call_bias: Tensor | None = None  # the caller's bias
    combine_heads: Callable[[Tensor, Tensor, ScoreBlock], Tensor] | None = None
    causal: bool = False  # the mask is exactly the causal one
    dropout: float = 0.0
    record: bool = False  # return the weights, even from a kernel that does not compute them
    carries: bool = False  # a state stands for all keys before those given, and one is returned
    past: Float[Tensor, "B H R P"] | None = None  # that state; None before the first key

    @property
    def q(self) -> Float[Tensor, "B Hs T D"]:
        return self.block.q

    @property
    def k(self) -> Float[Tensor, "B Hs S D"]:
        return self.block.k

    @property
    def empty(self) -> bool:
        """Whether there is no query, no key or no batch."""
        return 0 in (self.q.shape[0], self.q.shape[2], self.k.shape[2])

    def joined_mask(self, chosen: bool = True) -> Tensor | None:
        """All masks joined by and, an indexer's choice among them if `chosen`; None where every key is visible."""
        own = None
        if self.mask is not None:
            own = self.mask(self.block) if chosen else self.mask.unchosen(self.block)
        parts = [x for x in (own, self.block.key_mask, self.call_mask) if x is not None]
        return reduce(and_, parts) if parts else None

    def bias(self) -> Tensor | None:
        """What is added to the scores; None for nothing."""
        return self.call_bias if self.position is None else self.position.bias(self.block)


def exact(inputs: AttentionInputs) -> Steps:
    """softmax(q kᵀ / √D + bias) v, or what other choices make of it: O(T·S·D) time and O(T·S) memory.

    Rows without a visible key give zeros. Unless `inputs.record`, a step is freed as soon as the next is computed.
    """
    mask = inputs.joined_mask()  # (B, H, T, S), True = may attend
    raw, bias, scores = compute_scores(inputs)  # q kᵀ / √D + bias
    # softmax over the keys that the mask allows
    normalized = inputs.normalizer.at(inputs.block)(scores, mask)
    weights = normalized
    if inputs.mask is not None and (factor := inputs.mask.weight_factor(inputs.block)) is not None:
        weights = weights * factor
    if inputs.combine_heads is not None:
        weights = inputs.combine_heads(weights, scores, inputs.block)
    dropped = F.dropout(weights, inputs.dropout) if inputs.dropout else weights
    out = weighted_sum(dropped, inputs.v, mask)  # weights · v
    added = None if inputs.position is None else inputs.position.values(dropped, inputs.block)
    out = out if added is None else out + added
    steps = Steps(inputs.q, inputs.k, inputs.v, inputs.score.scale, bias, mask, out)
    if not inputs.record:
        return steps
    return replace(
        steps,
        raw=raw,
        scores=scores,
        masked=scores if mask is None else scores.masked_fill(~mask, float("-inf")),
        weights=weights,
        position_values=added,
        normalized=None if normalized is weights else normalized,
    )


def compute_scores(inputs: AttentionInputs) -> tuple[Tensor | None, Tensor | None, Tensor]:
    """The raw scores (None unless recorded), the bias, and the scores that the mask and the normalizer read."""
    scores = raw = inputs.score(inputs.q, inputs.k)  # q kᵀ
    scale = inputs.score.scale
    if not isinstance(scale, float) or scale != 1.0:  # / √D; a scale of 1 makes no copy
        in_place = isinstance(scale, float) and not inputs.record
        scores = raw.mul_(scale) if in_place else raw * scale
    bias = inputs.bias()
    scores = scores if bias is None else scores + bias
    scores = scores if inputs.position is None else inputs.position.adjust(scores, inputs.block)
    return raw if inputs.record else None, bias, scores


def weighted_sum(weights: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """weights · v, in which a masked value cannot leak, not even as 0 · NaN or 0 · ∞.

    A row that may attend to a NaN or infinity is NaN. No branch tests for one, which would synchronize the device.
    """
    if mask is None:
        return weights @ v
    broken = (v * 0.0).sum((1, 3)).isnan()  # (B, S)
    attending = ((mask if mask.dim() < 3 else mask.any(-3)) & broken[:, None]).any(-1)
    taint = torch.where(attending[:, None, :, None], torch.nan, 0.0).to(v.dtype)
    return weights @ v.nan_to_num(0.0, 0.0, 0.0) + taint


def empty_steps(inputs: AttentionInputs) -> Steps:
    """The Steps without any query, key or batch: zeros."""
    q, k, v = inputs.q, inputs.k, inputs.v
    scores, weights = (q.new_zeros(*x.shape[:2], q.shape[2], k.shape[2]) for x in (q, v))
    return Steps(
        q, k, v, inputs.score.scale, None, None, weights @ v, scores, scores, scores, None, weights
    )


OF_QUERIES = (  # the fields of Steps with a row for each query; keys and values are of all of them
    "q",
    "bias",
    "mask",
    "out",
    "raw",
    "scores",
    "masked",
    "normalized",
    "weights",
    "position_values",
    "merged",
)


def last_rows(steps: Steps, count: int) -> Steps:
    """The Steps of the last queries; keys and values stay whole."""
    rows = {
        name: x[..., x.shape[-2] - count :, :]
        for name in OF_QUERIES
        if (x := getattr(steps, name)) is not None and x.shape[-2] > 1
    }
    return replace(steps, **rows)


def submatrix(matrix: Tensor, rows: slice, columns: slice | Tensor) -> Tensor:
    """These rows and columns of a matrix that may be broadcast, as (…, 1, S) or (…, T, 1)."""
    if matrix.dim() > 1 and matrix.shape[-2] > 1:
        matrix = matrix[..., rows, :]
    return matrix[..., columns] if matrix.shape[-1] > 1 else matrix


# What several kernels share: blocks of the score matrix, the dot-product score, and sums in fp32.


def spans(length: int, size: int) -> Iterator[slice]:
    """0…length in slices of `size`; the last may be shorter."""
    return (slice(start, min(start + size, length)) for start in range(0, length, size))


def slice_inputs(
    inputs: AttentionInputs,
    rows: slice,
    columns: slice | Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
) -> AttentionInputs:
    """The inputs of some rows and columns, whose queries, keys and values are q, k and v."""
    mask, bias = (
        None if x is None else submatrix(x, rows, columns)
        for x in (inputs.call_mask, inputs.call_bias)
    )
    return replace(
        inputs,
        block=inputs.block.part(rows, columns, q, k),
        v=v,
        call_mask=mask,
        call_bias=bias,
        causal=False,
    )


# Why a kernel cannot compute some choices: errors that name both and what to take instead.


@dataclass(frozen=True)
class Clash:
    """What a kernel does not go with: a choice on an axis (or a dropout) for which `applies` holds.

    In `why`, {} is that choice's key; `take` would fit, and so would the exact kernel.
    """

    axis: str
    why: str
    take: Mapping[str, str]
    applies: Callable[[LayerConfig], bool]


def refuse_when(kernel: str, *clashes: Clash) -> Callable[[LayerConfig], ConfigError | None]:
    """The `refuse` of a kernel's entry: the error of the first clash that applies."""

    def refuse(config: LayerConfig) -> ConfigError | None:
        for clash in clashes:
            if clash.applies(config):
                value = getattr(config, clash.axis)
                why = clash.why.format(value.key if isinstance(value, Choice) else value)
                return ConfigError(
                    f"kernel = {kernel} {why}",
                    axes=("kernel", clash.axis),
                    **{**clash.take, "kernel": (*clash.take.get("kernel", "").split(), "exact")},
                )
        return None

    return refuse


not_product = Clash(
    "score",
    "computes only dot products, not score = {}",
    {"score": "scaled_dot"},
    lambda config: not config.has("score", "product"),
)
not_softmax = Clash(
    "normalizer",
    "computes only softmax, not normalizer = {}",
    {"normalizer": "softmax"},
    lambda config: not config.has("normalizer", "softmax"),
)
adds_values = Clash(
    "position",
    "does not store the weights that position = {} needs",
    {"position": "alibi"},
    lambda config: config.has("position", "values"),
)
whole_rows = Clash(
    "position",
    "computes one block of keys at a time, and position = {} needs all keys",
    {"position": "alibi"},
    lambda config: config.has("position", "whole rows"),
)
ranks_keys = Clash(
    "mask",
    "computes some of the keys at a time, and mask = {} compares all of them",
    {"mask": "causal", "kernel": "block_sparse"},
    lambda config: config.has("mask", "whole rows"),
)
multiplies_weights = Clash(
    "mask",
    "cannot change the weights of softmax, which mask = {} multiplies",
    {"mask": "local"},
    lambda config: config.has("mask", "reweighs"),
)
combines_heads = Clash(
    "projection",
    "computes one softmax for each head, and projection = {} makes one map of two",
    {"projection": "multi_head"},
    lambda config: config.has("projection", "folds"),
)


def and_parts(mask: Choice) -> list[Choice]:
    """The masks that an `and` joins, at any depth; any other mask alone."""
    return (
        [inner for part in mask.parts for inner in and_parts(part)] if mask.key == "and" else [mask]
    )


# Why a kernel with weights of its own has no state of one size.
STATELESS = {
    "log_linear": "keeps a state for each stretch of the past, and their number grows with the length",
    "nsa": "selects among the keys anew for each query",
    "hca": "compresses blocks anew from the tokens",
    "csa": "selects among the blocks anew for each query",
    "linformer": "mixes all keys, and later ones too",
    "nystrom": "averages all keys anew at each length",
}


def why_no_state(config: LayerConfig) -> str | None:
    """The reason why a step stores keys or inputs and no state in their place; None where the kernel carries one."""
    key = config.kernel.key
    if not config.has("kernel", "state"):
        return f"kernel = {key} {STATELESS.get(key, 'weighs each key by itself')}."
    if not config.has("kernel", "own positions") and not any(
        part.key == "causal" for part in and_parts(config.mask)
    ):
        return f"kernel = {key} lets a token see later ones without mask = causal, which a state cannot."
    if config.has("position", "reads length"):
        return f"position = {config.position.key} rotates earlier keys again as the text grows, which a state cannot."
    return None
