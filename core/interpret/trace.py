"""Attention maps, and what is measured on them: entropy, distance, induction, rollout and flow. Pure numpy.

`AttentionTrace` is what every picture of attention is drawn from."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from torch import Tensor

Join = Literal["mean", "sum"]  # of several queries
Kind = Literal["self", "causal", "cross", "words", "sentences"]
Head = tuple[int, int]  # the indices of its layer and of itself
Similar = list[tuple[Head, float]]  # heads, and what each has in common with one
LayerKey = tuple[Kind, int]  # its kind, and its index among those of the kind
MAX_ROWS = 64  # on which every head is compared with every other
STREAMS = {"self": "encoder", "causal": "decoder", "cross": "cross"}
# the head of the embedded model that links a pronoun to its noun, as "it" to "animal"
COREFERENCE = (3, 1)


@dataclass(frozen=True, eq=False)
class AttentionMap:
    """The attention of one layer: weights (H, T, S) float32, the tokens of its rows and of its columns.

    `mask` is bool, True = may attend, broadcastable to (H, T, S); None where nothing is masked. `layer` is its index
    among the maps of its kind; `number` is the model's own number of the layer, which differs where layers between them
    have no attention; None where it is unknown. A layer without softmax says in `state` what it is, such as "a gated delta
    rule"; its weights may be negative and its rows sum to anything. ValueError when the tokens do not fit the weights.
    """

    kind: Kind
    layer: int
    weights: np.ndarray
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    mask: np.ndarray | None = None
    number: int | None = None
    state: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", to_numpy(self.weights))
        if self.weights.ndim != 3 or self.weights.shape[1:] != (len(self.queries), len(self.keys)):
            raise ValueError(
                f"weights are {self.weights.shape}; expected (heads, {len(self.queries)} queries, "
                f"{len(self.keys)} keys)."
            )
        if self.mask is not None:
            np.broadcast_shapes(self.mask.shape, self.weights.shape)

    def __repr__(self) -> str:
        return f"AttentionMap({self.kind} {self.layer_name}, {self.weights.shape})"

    @property
    def layer_number(self) -> int:
        """The model's own number of the layer; its index where that is unknown."""
        return self.layer if self.number is None else self.number

    @property
    def layer_name(self) -> str:
        """The layer by the model's own number, such as L3."""
        return f"L{self.layer_number}"

    @property
    def shares(self) -> Float[np.ndarray, "H T S"]:
        """The share of each key in its row: the weights; of a layer without softmax and of signed weights |w| / Σ|w|.

        So entropies, roles, overlaps, rollout and flow of signed rows are by absolute size. A row of zeros stays.
        """
        if not self.state and not (self.weights < 0).any():
            return self.weights
        sizes = np.abs(self.weights)
        return sizes / np.maximum(sizes.sum(-1, keepdims=True), np.finfo(np.float32).tiny)

    @property
    def visible(self) -> Bool[np.ndarray, "H T S"]:
        """The keys that each row may attend to, by head; a read-only view."""
        return np.broadcast_to(True if self.mask is None else self.mask, self.weights.shape)


def why_not_weights(name: str, values: np.ndarray, signed: bool = False) -> str | None:
    """What keeps some numbers from being drawn as weights, 0 to 1, or as signed numbers; None where nothing does."""
    if wrong := int((~np.isfinite(values)).sum()):
        # a whole map has another cause than a masked row
        why = (
            "Look for NaN in the model"
            if wrong == values.size
            else "Write a fully masked row as zeros"
        )
        which = "number that is" if wrong == 1 else "numbers that are"
        return f"{name} holds {wrong:,} {which} not finite. {why}."
    low, high = float(values.min(initial=0)), float(values.max(initial=0))
    if signed or (low >= -1e-4 and high <= 1.001):  # what rounding leaves
        return None
    return (
        f"{name} runs from {low:.3g} to {high:.3g}; weights are 0 to 1. If these are scores, take their softmax "
        "first; signed weights are drawn by show(trace, signed=True)."
    )


class NumberedHeads:
    """Names heads by `numbers`, the model's own numbers of the layers."""

    numbers: tuple[int, ...]

    def name(self, head: Head) -> str:
        """A head's name, such as L3·H1."""
        return head_name(self.numbers[head[0]], head[1])


@dataclass(frozen=True, eq=False)
class AttentionTrace(NumberedHeads):
    """The maps of one model on one input, in the order of its layers, and their source by name."""

    maps: tuple[AttentionMap, ...]
    source: str

    def of(self, kind: Kind) -> "AttentionTrace":
        """Only the maps of that kind."""
        return AttentionTrace(tuple(item for item in self.maps if item.kind == kind), self.source)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return tuple(dict.fromkeys(item.kind for item in self.maps))

    @property
    def shape(self) -> tuple[int, int]:
        """The number of layers, and the largest number of heads in a layer."""
        return len(self.maps), max((len(item.weights) for item in self.maps), default=0)

    def map(self, layer: int) -> AttentionMap:
        return self.maps[layer]

    @property
    def numbers(self) -> tuple[int, ...]:  # type: ignore[override]
        """The model's own numbers of the layers."""
        return tuple(item.layer_number for item in self.maps)

    def head(self, layer: int, head: int) -> np.ndarray:
        """The weights (T, S) of one head."""
        return self.maps[layer].weights[head]


def layer_names(numbers: Mapping[LayerKey, int]) -> dict[LayerKey, str]:
    """The layers by the model's own numbers, as L3; with their kind, as decoder L3, where there are several."""
    several = len({kind for kind, _ in numbers}) > 1
    return {
        key: f"{STREAMS[key[0]]} L{number}" if several else f"L{number}"
        for key, number in numbers.items()
    }


def head_name(number: int, head: int) -> str:
    """A head's name by the number of its layer, such as L3·H1."""
    return f"L{number}·H{head}"


def to_numpy(values: Any) -> np.ndarray:
    """A tensor as a NumPy array, from any device; less than 32 bits become float32. Arrays stay, lists become arrays."""
    if not isinstance(values, Tensor):
        return np.asarray(values)
    values = values.detach().cpu().to_dense()
    return np.asarray(
        values.float() if values.dtype.is_floating_point and values.itemsize < 4 else values
    )


# Measurements of attention maps: entropy, distance, overlap of heads. All on NumPy weights (H, T, S).


Weights = Float[np.ndarray, "H T S"]


def entropy(weights: Weights) -> Float[np.ndarray, "H T"]:
    """Entropy of each row in nats: log S for uniform weights, 0 for a single key."""
    return -(weights * np.log(np.where(weights > 0, weights, 1.0))).sum(-1)


def mean_distance(weights: Weights) -> Float[np.ndarray, " H"]:
    """The mean distance |i − j| of each head, by its weights."""
    distance = np.abs(np.subtract.outer(*map(np.arange, weights.shape[1:])))
    return (weights * distance).sum((1, 2)) / weights.shape[1]


def previous_token(weights: Weights) -> Float[np.ndarray, " H"]:
    """Mean weight on the token just before; 0 with fewer than two tokens."""
    diagonal = np.diagonal(weights, -1, 1, 2)
    return diagonal.mean(1) if diagonal.shape[1] else np.zeros(len(weights), weights.dtype)


def breadth(weights: Weights) -> Float[np.ndarray, " H"]:
    """Mean entropy of the rows as a share of log S, the largest possible; 0 for a single key."""
    return entropy(weights).mean(1) / np.log(max(weights.shape[-1], 2))


def overlap(weights: Weights) -> Float[np.ndarray, "H H"]:
    """The share of weight that two heads have in common, Σ_j min(a_ij, b_ij), mean of all rows; weights ≥ 0.

    1 where two heads are equal, 0 where they share no key.
    """
    return np.stack([np.minimum(weights, head).sum(-1).mean(1) for head in weights])


def similar_heads(trace: AttentionTrace, head: Head) -> Similar:
    """The other heads of a trace by the `overlap` of their shares with one on this text, the most similar first.

    Of more than 64 rows, 64 evenly spaced ones are compared; a map of another size is left out.
    """
    one = trace.maps[head[0]].shares[head[1]]
    rows = np.linspace(0, len(one) - 1, min(len(one), MAX_ROWS)).round().astype(int)
    shares = {
        (layer, other): float(share)
        for layer, item in enumerate(trace.maps)
        if item.weights.shape[1:] == one.shape
        for other, share in enumerate(np.minimum(item.shares[:, rows], one[rows]).sum(-1).mean(1))
        if (layer, other) != head
    }
    return sorted(shares.items(), key=lambda pair: -pair[1])


def join_queries(
    weights: Weights, queries: Sequence[int], how: Join = "mean"
) -> Float[np.ndarray, "H S"]:
    """The weights of several queries together, with their signs, by head and key: their mean, or their sum.

    ValueError without a query, or for one that is no row of the maps.
    """
    count = weights.shape[1]
    if not queries or not all(0 <= query < count for query in queries):
        raise ValueError(f"queries = {list(queries)}; expected at least one of 0 to {count - 1}.")
    rows = weights[:, list(queries)]
    return np.asarray(rows.mean(1) if how == "mean" else rows.sum(1))


def strongest(
    trace: AttentionTrace, score: Callable[[Weights], np.ndarray]
) -> tuple[int, int, float]:
    """The layer and head in which a score is largest, and that score."""
    return max(
        (
            (item.layer, int(head), float(value))
            for item in trace.maps
            for head, value in enumerate(score(item.shares))
        ),
        key=lambda entry: entry[2],
    )


# Induction scores of generated text: how much each head attends to earlier positions of the next token.


class Induction(NamedTuple):
    """Scores of a map: the heads' (H,), that of uniform attention, and the number of eligible steps."""

    heads: Float[np.ndarray, " H"]
    uniform: float
    steps: int


def induction(
    item: AttentionMap, keys: Sequence[int], generated: Sequence[int]
) -> Induction | None:
    """The mean weight of each head on earlier positions of the token that a step generates, over eligible steps.

    A step is eligible where such a position is visible; None without any. Induction heads score high (Olsson et al.
    2022, section 2). `keys` (S) and `generated` (T) are the ids of the map's columns and of its rows.
    """
    same = (np.asarray(generated)[:, None] == np.asarray(keys)[None, :]) & item.visible[0]
    able = same.any(1)
    if not able.any():
        return None
    uniform = (same.sum(1) / item.visible[0].sum(1))[able].mean()
    heads = (item.shares * same).sum(-1)[:, able].mean(1)
    return Induction(heads, float(uniform), int(able.sum()))


def most_informative_head(
    trace: AttentionTrace, keys: Sequence[int], generated: Sequence[int]
) -> tuple[int, int]:
    """The (map, head) with the highest induction score; without one, that with the highest maximum weights.

    The first position does not count: it is an attention sink."""
    scores = dict[Head, float]()
    for layer, item in enumerate(trace.maps):
        scored = None if item.kind == "cross" else induction(item, keys, generated)
        first = 0 if item.kind == "cross" or item.weights.shape[-1] == 1 else 1
        sharp = item.shares[:, :, first:].max(-1).mean(1)
        of_heads = sharp if scored is None else 1 + scored.heads
        scores |= {(layer, head): float(score) for head, score in enumerate(of_heads)}
    return max(scores, key=scores.__getitem__)


Step = Float[np.ndarray, "to from"]
UNITS = 2**29  # capacities are whole numbers there: each is exact to 1e-9


def graph(trace: AttentionTrace, kind: Kind, layer: int) -> tuple[Step, ...]:
    """The steps from the input to a layer of that kind; for cross-attention with the whole encoder.

    ValueError when the trace has no such layer.
    """
    from scipy.linalg import block_diag

    stack = [item for item in trace.of(kind).maps if item.layer <= layer]
    if not stack or stack[-1].layer != layer:
        raise ValueError(f"the trace has no {kind}-attention of layer {layer}")
    if kind != "cross":
        return tuple(map(_own, stack))
    size, others = len(stack[0].keys), len(stack[0].queries)
    steps = [block_diag(_own(item), np.eye(others)) for item in trace.of("self").maps]
    causal = {item.layer: item for item in trace.of("causal").maps}
    for item in stack:
        if item.layer in causal:
            steps.append(block_diag(np.eye(size), _own(causal[item.layer])))
        # From the decoder's positions to the encoder's.
        low = np.concatenate([item.shares.mean(0, dtype=np.float64), np.eye(others)], 1)
        steps.append(np.concatenate([np.eye(size, size + others), _shared(low)]))
    # From the encoder's input alone to the decoder's positions alone
    steps[0] = steps[0][:, :size]
    return *steps[:-1], steps[-1][size:]


def rollout(steps: Sequence[Step]) -> Float[np.ndarray, "T S"]:
    """The share of each row's state that comes from each column: the product of the steps (equation 1).

    Of signed weights the steps hold shares by absolute size (`AttentionMap.shares`): what is taken away counts as what is
    added, so a rollout says how much is passed on, not with which sign.
    """
    return reduce(np.matmul, steps[::-1])


def flow(steps: Sequence[Step], row: int) -> Float[np.ndarray, " S"]:
    """The maximum flow from each column to one row, with the shares of the steps as capacities (section 3.2)."""
    from scipy.sparse import block_diag, csr_array
    from scipy.sparse.csgraph import maximum_flow

    # One network from the last step's positions down to the input's
    edges = block_diag([np.rint(step * UNITS).astype(np.int32) for step in steps], format="coo")
    size, nodes = steps[0].shape[1], steps[0].shape[1] + edges.shape[0]
    network = csr_array((edges.data, (edges.row + size, edges.col)), shape=(nodes, nodes))
    source = nodes - len(steps[-1]) + row
    return np.array(
        [maximum_flow(network, source, sink).flow_value / UNITS for sink in range(size)]
    )


def _own(item: AttentionMap) -> Step:
    """The step of self-attention: half attention, half residual, each row summing to one.

    Keys after the positions themselves (a sink) pass nothing on, so they are left out.
    """
    size = len(item.queries)
    return _shared(item.shares[:, :, :size].mean(0, dtype=np.float64) + np.eye(size))


def _shared(step: np.ndarray) -> np.ndarray:
    return step / step.sum(1, keepdims=True)
