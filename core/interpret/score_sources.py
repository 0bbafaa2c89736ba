"""Why this key: the score of one query and one key as a sum over what the model wrote at both tokens before.

A score is bilinear in q and k. With the scale of each norm held at its value, q is a linear map of what was added to the
residual stream at its token: the embedding, each earlier head, each feed-forward network, and biases. So is k. One
backward pass a dimension gives that map for rotation, grouped heads, norms of q and k, and low-rank projections alike.
After Elhage et al. 2021, A Mathematical Framework for Transformer Circuits.
"""

import inspect
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, cast

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from core.attention.base import repeat_heads
from core.interpret.circuits import STATES, blank_batch
from core.interpret.evidence import (
    LayerAttention,
    WeightBreakdown,
    break_down_weight,
    layer_attention,
    output_gates,
    output_matrix,
)
from core.interpret.lens import HeldStream, Part, Write, hold_stream, parts_of, shares_of
from core.interpret.patching import states_of, with_states
from core.interpret.trace import Kind, LayerKey, layer_names, to_numpy
from core.models.base import hooked
from core.pretrained import (
    STACK,
    AttentionCall,
    ModelInputs,
    Pretrained,
    PretrainedError,
    encode,
    forward,
    maps_bytes,
    numbers_by_layer,
    reject_if,
)
from core.ranks import pearson

SourcePart = Literal[
    "embedding", "position", "segment", "head", "feed-forward", "state layer", "biases",
    "projection bias",
]  # fmt: skip
Side = Literal["query", "key"]
SLOPES = 2**21  # numbers of the largest slope in one backward pass: more is slower, in no cache
# By the name of an embedding, or what has a bias
OF_NO_LAYER: dict[str, SourcePart] = {
    "token": "embedding", "position": "position", "segment": "segment", "bias": "biases", "norm": "biases",
    "transform": "biases", "projection": "projection bias",
}  # fmt: skip
START = "start"  # the role of what enters the first layer
CONSTANT = ("biases", "projection bias")
ADDS_UP = 1e-4  # of the largest part: how far their sum may be from the model's own vector


@dataclass(frozen=True)
class Source:
    """What wrote a part of a query, a key or a value: a head, a feed-forward network, an embedding, biases, …

    `layer` is the model's own number of its layer, `head` its number there; `key` is the (kind, layer) of its attention,
    by which pages and `forward` name a layer. `modules` are those whose outputs it is.
    """

    part: SourcePart
    name: str
    layer: int | None = None
    head: int | None = None
    key: LayerKey | None = None
    modules: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class ScoreSources:
    """One score, split: `parts` (A, B) is scale · q_a·k_b of each source at the query and at the key.

    `q_parts` (A, D) add up to the query and `k_parts` (B, D) to the key, after rotation; of several `queries`, to their
    sum. `bias` is the position bias, a source of its own: what is added to the scaled product for the distance of the
    tokens (ALiBi, T5) or by a mask. `score` is all of it, before a cap, and is that of `key` in `scores`, which has
    the scores of all keys that the queries see, else −inf. `capped` is what a cap leaves of it; a learned `sink` has a
    score beside them, which takes of the `weight`. The weight and the sink's score are sums over the queries too.

    `moved` (V, C) is what the head adds to the residual stream for this key, by what wrote its value: weight · v_b W_O.
    `read` has for a head, by its side and its source, what it adds to the score by reading each token of what it
    reads; their sum is that of its row or column of `parts`.
    """

    place: LayerKey
    head: int
    queries: tuple[int, ...]
    key: int
    q_sources: tuple[Source, ...]
    k_sources: tuple[Source, ...]
    v_sources: tuple[Source, ...]
    q_parts: Float[np.ndarray, "A D"]
    k_parts: Float[np.ndarray, "B D"]
    moved: Float[np.ndarray, "V C"]
    read: dict[tuple[Side, Source], np.ndarray]
    scale: float
    bias: float
    scores: Float[np.ndarray, " S"]
    keys: Float[np.ndarray, "S D"]
    weight: float
    capped: float | None = None
    sink: float | None = None

    @property
    def parts(self) -> Float[np.ndarray, "A B"]:
        return self.scale * self.q_parts @ self.k_parts.T

    @property
    def score(self) -> float:
        return float(self.parts.sum()) + self.bias

    @property
    def moved_shares(self) -> Float[np.ndarray, " V"]:
        """Of what the head adds for this key, the share of each source, along the whole; they sum to 1."""
        whole = self.moved.sum(0)
        return self.moved @ whole / max(float(whole @ whole), 1e-30)

    def fewest_removals(self, side: Side) -> tuple[tuple[Source, ...], int] | None:
        """The fewest sources of one side without which another key has the highest score, and that key.

        The norms stay as they are, biases are not removed, and a source is removed at its own token alone. Against one
        other key the sources count by what each adds to the difference, so taking the largest first is best; of all
        other keys the one with the fewest is taken. None where no removal is enough.
        """
        sources = self.q_sources if side == "query" else self.k_sources
        free = [place for place, one in enumerate(sources) if one.part not in CONSTANT]
        fewest: list[tuple[int, float, tuple[Source, ...], int]] = []
        for rival in map(int, np.flatnonzero(np.isfinite(self.scores))):
            ahead = self.scale * self.q_parts @ (self.keys[self.key] - self.keys[rival])
            adds = (ahead if side == "query" else self.parts.sum(0))[free]
            order = np.argsort(-adds)
            lead = self.scores[self.key] - self.scores[rival]
            left = lead - np.concatenate([[0.0], adds[order].cumsum()])
            if rival != self.key and (behind := np.flatnonzero(left < 0)).size:
                count = int(behind[0])
                taken = tuple(sources[free[place]] for place in order[:count])
                fewest.append((count, float(left[count]), taken, rival))
        return min(fewest, key=lambda one: one[:2])[2:] if fewest else None


NO_SPLIT = (
    "The queries and keys of {} are no sum of what its embeddings, heads and feed-forward networks "
    "write through norms and matrices: something else adds to them or changes them, such as several "
    "streams, or a gate. Take a model such as GPT-2, BERT, Llama or T5."
)


@contextmanager
def _watch(model: Any, calls: Sequence[AttentionCall], stream: HeldStream) -> Iterator[None]:
    """Hold the stream, and note what the first layer of each stack gets."""
    modules = dict(model.named_modules())
    stacks = dict.fromkeys(match["stack"] for call in calls if (match := STACK.match(call.name)))
    seen = set[Any]()

    def enter(module: Any, args: Any, options: dict[str, Any]) -> Any:
        states = args[0] if args else options.get(STATES)
        if module in seen or not isinstance(states, Tensor) or not states.is_floating_point():
            return None
        seen.add(module)
        taken = stream.take(states)
        probe = torch.zeros_like(taken, requires_grad=True)
        stream.writes.append(Write("", taken.detach(), probe, None, stream.calls, START))
        states = stream.put(states, taken + probe)
        return ((states, *args[1:]), options) if args else (args, options | {STATES: states})

    with (
        hold_stream(model, calls, stream),
        hooked(
            modules[f"{stack}.0"].register_forward_pre_hook(enter, with_kwargs=True)
            for stack in stacks
        ),
    ):
        yield


def explain_score(
    pretrained: Pretrained,
    inputs: ModelInputs,
    layer: int,
    head: int,
    query: int | Sequence[int],
    key: int,
    kind: Kind | None = None,
) -> ScoreSources:
    """Split the score of a query and a key of a head by what wrote them, and the value that it moves.

    `layer` is its index among those of its kind (by default the last kind that the model has). The scores of several
    queries are summed. PretrainedError where there is no such head or token, where the query does not see the key, and
    where a query, key or value is no sum of the sources that were noted.
    """
    batch, *_ = encode(pretrained, inputs)
    model, queries = pretrained.model, (query,) if isinstance(query, int) else tuple(query)
    reject_if(not queries, "There is no query: name one or more.")
    _, blank = forward(pretrained, blank_batch(pretrained), with_qkv=True)
    for call in blank.calls:
        reject_if(
            call.gated is None and not call.state,
            f"No one matrix of {pretrained.name} gets what the heads of {call.name} give, and that "
            "alone, so what each writes is unknown. Take a model such as GPT-2, Llama or T5.",
        )
    stream = HeldStream(rows=sorted({*queries, key}))
    short = "logits_to_keep" in inspect.signature(model.forward).parameters
    try:
        _, recorder = forward(
            pretrained,
            batch,
            with_qkv=True,
            probe=True,
            hooks=_watch(model, blank.calls, stream),
            **cast(Any, {"logits_to_keep": 1} if short else {}),  # no logit is looked at
        )
    except PretrainedError as error:  # a hook changed what the family's code needs
        raise PretrainedError(NO_SPLIT.format(pretrained.name)) from error
    kind = kind or recorder.calls[-1].kind
    call = _call_of(pretrained, recorder.calls, (kind, layer))
    attention, at = layer_attention(call), list(queries)
    score, seen = _score(attention, head, queries, key), _seen(attention)[head, at].all(0)
    reject_if(
        not seen[key],
        f"Query {query} does not see key {key}: a mask hides it, or an indexer left it out. So it has "
        "no score. Take a key that the query sees.",
    )
    group, _ = attention.kv_group(head)
    q, k, scale = attention.q[head, at].sum(0), attention.k[group, key], attention.scale
    split = partial(_split, pretrained, recorder.calls, stream)
    q_sources, q_parts, q_read = split(q, scale * k.detach())
    k_sources, k_parts, k_read = split(k, scale * q.detach())
    v_sources, v_parts, _ = split(attention.v[group, key])
    matrix = output_matrix(call)
    assert matrix is not None
    factors = (call.weights[0, head, at, key, None].detach() * output_gates(call)[at, head]).sum(0)
    moved = (torch.from_numpy(v_parts) * factors) @ matrix[head]
    scores = scale * attention.k[group] @ q
    if attention.bias is not None:
        scores = scores + attention.bias.expand(*_seen(attention).shape)[head, at].sum(0)
    return ScoreSources(
        (kind, layer), head, queries, key, q_sources, k_sources, v_sources, q_parts, k_parts, to_numpy(moved),
        {("query", one): by for one, by in q_read.items()}
        | {("key", one): by for one, by in k_read.items()}, scale, sum(one.bias or 0.0 for one in score),
        to_numpy(scores.masked_fill(~seen, -torch.inf)), to_numpy(attention.k[group]),
        sum(one.weight for one in score),
        None if attention.softcap is None else sum(one.capped or 0.0 for one in score),
        None if attention.sinks is None else sum(one.sink or 0.0 for one in score),
    )  # fmt: skip


def _call_of(
    pretrained: Pretrained, calls: Sequence[AttentionCall], place: LayerKey
) -> AttentionCall:
    here = [call for call in calls if (call.kind, call.layer) == place and not call.state]
    reject_if(
        not here,
        f"Layer {place[1]} ({place[0]}) of {pretrained.name} has no queries and keys, or does not exist.",
    )
    return here[0]


def _score(
    attention: LayerAttention, head: int, queries: Sequence[int], key: int
) -> list[WeightBreakdown]:
    """The scores of some queries with one key. PretrainedError where there is no such head, query or key."""
    try:
        with torch.no_grad():
            return [break_down_weight(attention, head, one, key) for one in queries]
    except ValueError as error:
        raise PretrainedError(str(error)) from error


def _seen(attention: LayerAttention) -> Bool[Tensor, "H T S"]:
    """Which queries of each head see which keys."""
    shape = *attention.q.shape[:2], attention.k.shape[1]
    allowed = attention.allowed
    return torch.ones(shape, dtype=torch.bool) if allowed is None else allowed.expand(shape)


def _split(
    pretrained: Pretrained,
    calls: Sequence[AttentionCall],
    stream: HeldStream,
    vector: Float[Tensor, " D"],
    other: Float[Tensor, " D"] | None = None,
) -> tuple[tuple[Source, ...], Float[np.ndarray, "A D"], dict[Source, np.ndarray]]:
    """What wrote a vector, the parts that add up to it, and what heads read for their product with another.

    PretrainedError where the parts do not add up.
    """
    probes = [write.probe for write in stream.writes]
    tokens = max(call.weights.shape[-1] for call in calls)
    size = tokens * max(write.output.shape[-1] for write in stream.writes)
    units = torch.eye(len(vector), dtype=vector.dtype, device=vector.device)
    passes = [
        torch.autograd.grad(
            vector, probes, some, retain_graph=True, allow_unused=True, is_grads_batched=True
        )
        for some in units.split(max(1, SLOPES // size))
    ]
    runs = Counter(write.name for write in stream.writes)
    source = partial(_source, numbers_by_layer(pretrained.model, calls), calls)
    sums: dict[Source, Tensor] = defaultdict(lambda: torch.zeros(len(vector)))
    modules: dict[Source, dict[str, None]] = defaultdict(dict)
    read, rests = dict[Source, np.ndarray](), list[Tensor]()
    for write, slopes in zip(stream.writes, zip(*passes, strict=True), strict=True):
        if slopes[0] is None:
            continue
        slope = torch.cat(slopes).cpu()
        shares = shares_of(calls, write, slope).T
        if write.role == START:
            rests.append(shares[0] - sum(sums.values()))
            continue
        sources = [source(part) for part in parts_of(pretrained.model, calls, write)]
        for one, share in zip(sources, shares, strict=True):
            sums[one] += share
            if one.part not in CONSTANT and runs[write.name] == 1:
                modules[one][write.name] = None
        if write.heads is not None and other is not None:
            toward = torch.einsum("d,d...->...", other, slope)
            by_token = _read(calls[write.calls - 1], toward, stream.rows or ())
            read |= dict(zip(sources, map(to_numpy, by_token), strict=False))
    own = vector.detach().cpu()
    largest = max(float(one.norm()) for one in (own, *sums.values()))
    for rest in rests:
        # Patches, convolutions, a tensor of positions: what enters the layers and no embedding wrote
        if (own - sum(sums.values())).norm() > ADDS_UP * largest:
            several = any(one.part == "embedding" for one in sums)
            sums[Source("embedding", "other embeddings" if several else "embedding")] += rest
    reject_if(
        not (own - sum(sums.values())).norm() <= ADDS_UP * largest,
        NO_SPLIT.format(pretrained.name),
    )
    named = {one: replace(one, modules=tuple(modules[one])) for one in sums}
    return (
        tuple(named.values()),
        to_numpy(torch.stack(list(sums.values()))),
        {named[one]: values for one, values in read.items()},
    )


def _source(numbers: dict[LayerKey, int], calls: Sequence[AttentionCall], part: Part) -> Source:
    plain = OF_NO_LAYER.get(part.name if part.role == "embedding" else part.role)
    if plain is not None:
        return Source(plain, plain)
    layer, name = int(part.name[1:]) if part.name else None, part.name
    if part.key is not None:
        layer, name = numbers[part.key], layer_names(numbers)[part.key]
    state = [call for call in calls if call.state and (call.kind, call.layer) == part.key]
    # Where each channel has a matrix of its own there are no heads
    if part.role == "head" and not (state and state[0].mean):
        role: SourcePart = "state layer" if state else "head"
        return Source(role, f"{name}·H{part.head}", layer, part.head, part.key)
    role = "feed-forward" if part.role == "feed-forward" else "state layer"
    return Source(role, f"{name} {role}".strip(), layer, None, part.key)


def _read(
    call: AttentionCall, slope: Float[Tensor, "*R C"], followed: Sequence[int]
) -> Float[Tensor, "H S"] | tuple[()]:
    """What each head adds along a slope by reading each token; none of channels, or of rows out of order."""
    matrix, rows = output_matrix(call), [one for one in followed if one < call.weights.shape[2]]
    if call.mean or matrix is None or slope.shape[:-1].numel() != len(rows):
        return ()
    values = repeat_heads(call.v, len(matrix))[0].detach()
    weights = call.weights[0, :, rows, : values.shape[1]].detach()
    toward = torch.einsum("rc,hec->rhe", slope.flatten(0, -2), matrix)
    return torch.einsum("rhe,hrs,hse->hs", toward * output_gates(call)[rows], weights, values)


# Algebra is not cause: a source removed at its token, and the model run on with nothing held.


@dataclass(frozen=True)
class Removal:
    """How a score changes without one source: by its parts, with all else held, and when the model runs on."""

    query: int
    key: int
    side: Side
    source: Source
    predicted: float
    actual: float


def remove_source(
    pretrained: Pretrained, inputs: ModelInputs, split: ScoreSources, side: Side, source: Source
) -> Removal:
    """The change of a split's score when the module's output, or the head's, is zero at the token of that side.

    PretrainedError for biases, and for what no module of its own writes once.
    """
    reject_if(
        not source.modules,
        f"No one module writes {source.name} once, so it cannot be removed alone.",
    )
    rows = list(split.queries) if side == "query" else [split.key]
    sources = split.q_sources if side == "query" else split.k_sources
    heads = sum(one.head is not None and one.key == source.key for one in sources)

    def remove(module: Any, inputs: Any, output: Any) -> Any:
        states = states_of(output)
        at = torch.tensor(rows, device=states.device)
        return with_states(output, states.index_fill(-2, at, 0.0))

    def remove_head(module: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        states = inputs[0].clone()
        states.unflatten(-1, (heads, -1))[..., rows, source.head, :] = 0
        return states, *inputs[1:]

    batch, *_ = encode(pretrained, inputs)
    modules = [pretrained.model.get_submodule(name) for name in source.modules]
    _, recorder = forward(
        pretrained,
        batch,
        with_qkv=True,
        hooks=hooked(
            module.register_forward_hook(remove)
            if source.head is None
            else module.register_forward_pre_hook(remove_head)
            for module in modules
        ),
    )
    attention = layer_attention(_call_of(pretrained, recorder.calls, split.place))
    parts = _score(attention, split.head, split.queries, split.key)
    score = sum(one.dot * one.scale + (one.bias or 0.0) for one in parts)
    predicted = -float(split.parts.sum(1 if side == "query" else 0)[sources.index(source)])
    return Removal(split.queries[0], split.key, side, source, predicted, score - split.score)


def random_removal(pretrained: Pretrained, inputs: ModelInputs, layer: int, head: int, kind: Kind | None = None,
                   seed: int = 0) -> Removal:  # fmt: skip
    """The removal of a random source of a random side of a random score of a head. Errors as `explain_score`."""
    _, recorder = forward(pretrained, encode(pretrained, inputs)[0], with_qkv=True)
    kind, rng = kind or recorder.calls[-1].kind, np.random.default_rng(seed)
    attention = layer_attention(_call_of(pretrained, recorder.calls, (kind, layer)))
    reject_if(not 0 <= head < len(attention.q), f"Layer {layer} has no head {head}.")
    cells = np.argwhere(to_numpy(_seen(attention)[head]))
    cells = cells[cells[:, 0] != cells[:, 1]] if kind != "cross" else cells
    reject_if(not len(cells), "No token sees another one here: write a text of two words or more.")
    query, key = rng.choice(cells).tolist()
    split = explain_score(pretrained, inputs, layer, head, query, key, kind)
    side: Side = "query" if rng.random() < 0.5 else "key"
    sources = split.q_sources if side == "query" else split.k_sources
    removable = [one for one in sources if one.modules]
    source = removable[rng.integers(len(removable))]
    return remove_source(pretrained, inputs, split, side, source)


def removal_correlation(
    removals: Sequence[Removal], seed: int = 0
) -> tuple[float, float, float] | None:
    """Pearson's r of predicted and actual changes, and the ends of its 95 % interval (1,000 bootstrap samples).

    None for fewer than 3 removals, or where none changes anything.
    """
    pairs = np.array([(one.predicted, one.actual) for one in removals])
    drawn = np.random.default_rng(seed).integers(0, len(pairs), (1000, len(pairs)))
    r, *sampled = (pearson(*some.T) for some in (pairs, *pairs[drawn]))
    if r is None:
        return None
    known = [one for one in sampled if one is not None]
    low, high = np.quantile(known, (0.025, 0.975)).tolist()
    return r, low, high


# Measured with a GPT-2 of 124 million on one core: FLOPs a second, seconds of any text, and times the memory of all maps.
RATE, FIRST, MAP_COPIES = 7e10, 0.2, 8


def split_cost(pretrained: Pretrained, inputs: ModelInputs) -> tuple[float, float]:
    """The seconds and the bytes that `explain_score` takes on one core, about: a pass through all weights, and back."""
    batch, *_ = encode(pretrained, inputs)
    tokens = max(values.shape[-1] for name, values in batch.items())
    weights = sum(one.numel() for one in pretrained.model.parameters())
    return FIRST + 2 * weights * tokens / RATE, float(
        MAP_COPIES * maps_bytes(pretrained.model, tokens)
    )
