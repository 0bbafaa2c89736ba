"""Why this key: the score of one query and one key as a sum over what the model wrote at both tokens before.

A score is bilinear in q and k. With the scale of each norm held at its value, q is a linear map of what was added to the
residual stream at its token: the embedding, each earlier head, each feed-forward network, and biases. So is k. One
backward pass a dimension gives that map for rotation, grouped heads, norms of q and k, and low-rank projections alike.
After Elhage et al. 2021, A Mathematical Framework for Transformer Circuits.
"""

import inspect
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from core.attention.base import repeat_heads
from core.interpret.circuits import STATES, blank_batch
from core.interpret.evidence import layer_attention, output_matrix
from core.interpret.lens import HeldStream, Part, Write, hold_stream, parts_of, shares_of
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
    numbers_by_layer,
    reject_if,
)

SourcePart = Literal[
    "embedding", "position", "segment", "head", "feed-forward", "state layer", "biases",
    "projection bias",
]  # fmt: skip
Side = Literal["query", "key"]
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
    tokens (ALiBi, T5) or by a mask. `score` is all of it, before `softcap`, and is that of `key` in `scores`, which has
    the scores of all keys that the queries see, else −inf. `sink` is the score of a learned sink beside them.

    `moved` (V, C) is what the head adds to the residual stream for this key, by what wrote its value: weight · v_b W_O.
    `q_tokens` and `k_tokens` have for a head what it adds to the score by reading each token of what it reads;
    their sum is that of its row or column of `parts`.
    """

    queries: tuple[int, ...]
    key: int
    q_sources: tuple[Source, ...]
    k_sources: tuple[Source, ...]
    v_sources: tuple[Source, ...]
    q_parts: Float[np.ndarray, "A D"]
    k_parts: Float[np.ndarray, "B D"]
    moved: Float[np.ndarray, "V C"]
    q_tokens: dict[Source, np.ndarray]
    k_tokens: dict[Source, np.ndarray]
    scale: float
    bias: float
    scores: Float[np.ndarray, " S"]
    keys: Float[np.ndarray, "S D"]
    weight: float
    softcap: float | None = None
    sink: float | None = None

    @property
    def parts(self) -> Float[np.ndarray, "A B"]:
        return self.scale * self.q_parts @ self.k_parts.T

    @property
    def score(self) -> float:
        return float(self.parts.sum()) + self.bias

    @property
    def capped(self) -> float:
        """The score that the softmax gets, after the cap where there is one, of one query."""
        if self.softcap is None:
            return self.score
        return float(self.softcap * np.tanh(self.score / self.softcap))

    @property
    def moved_shares(self) -> Float[np.ndarray, " V"]:
        """Of what the head adds for this key, the share of each source, along the whole; they sum to 1."""
        whole = self.moved.sum(0)
        return self.moved @ whole / max(float(whole @ whole), 1e-30)

    def tokens(self, side: Side, source: Source) -> Float[np.ndarray, " S"] | None:
        """What a head adds to the score by reading each token before; None for what reads no tokens."""
        return (self.q_tokens if side == "query" else self.k_tokens).get(source)

    def fewest_removals(self, side: Side) -> tuple[tuple[Source, ...], int] | None:
        """The fewest sources of one side without which another key has the highest score, and that key.

        The norms stay as they are, biases are not removed, and a source is removed at its own token alone. Against one
        other key the sources count by what each adds to the difference, so taking the largest first is best; of all
        other keys the one with the fewest is taken. None where no removal is enough.
        """
        rivals = [
            int(one) for one in np.flatnonzero(np.isfinite(self.scores)) if int(one) != self.key
        ]
        sources = self.q_sources if side == "query" else self.k_sources
        free = [place for place, one in enumerate(sources) if one.part not in CONSTANT]
        best: tuple[int, float, tuple[Source, ...], int] | None = None
        for rival in rivals:
            lead = float(self.scores[self.key] - self.scores[rival])
            if side == "query":
                whole = self.keys[self.key] - self.keys[rival]
                adds = self.scale * self.q_parts[free] @ whole
            else:
                adds = self.parts.sum(0)[free]
            order = np.argsort(-adds)
            left = lead - np.concatenate([[0.0], adds[order].cumsum()])
            if not (below := np.flatnonzero(left < 0)).size:
                continue
            count = int(below[0])
            taken = tuple(sources[free[place]] for place in order[:count])
            if best is None or (count, float(left[count])) < best[:2]:
                best = count, float(left[count]), taken, rival
        return None if best is None else (best[2], best[3])


NO_SPLIT = (
    "The queries and keys of {} are no sum of what its embeddings, heads and feed-forward networks "
    "write through norms and matrices: something else adds to them or changes them, such as several "
    "streams, or a gate. Take a model such as GPT-2, BERT, Llama or T5."
)


@dataclass(frozen=True, eq=False)
class _Start:
    """The residual stream as the first layer of a stack gets it, after so many writes and biases."""

    writes: int
    biases: int
    states: Tensor
    probe: Tensor


@contextmanager
def _watch(
    model: Any, calls: Sequence[AttentionCall], stream: HeldStream, starts: list[_Start]
) -> Iterator[None]:
    """Hold the stream, and note where each stack of layers starts."""
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
        starts.append(_Start(len(stream.writes), len(stream.biases), taken.detach(), probe))
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
    _, blank = forward(pretrained, blank_batch(pretrained), with_qkv=True)
    for call in blank.calls:
        reject_if(
            call.gated is None and not call.state,
            f"No one matrix of {pretrained.name} gets what the heads of {call.name} give, and that "
            "alone, so what each writes is unknown. Take a model such as GPT-2, Llama or T5.",
        )
    stream, starts = HeldStream(rows=sorted({*queries, key})), list[_Start]()
    short = "logits_to_keep" in inspect.signature(model.forward).parameters
    try:
        _, recorder = forward(
            pretrained,
            batch,
            with_qkv=True,
            probe=True,
            hooks=_watch(model, blank.calls, stream, starts),
            **({"logits_to_keep": 1} if short else {}),  # no logit is looked at
        )
    except PretrainedError as error:  # a hook changed what the family's code needs
        raise PretrainedError(NO_SPLIT.format(pretrained.name)) from error
    calls = [call for call in recorder.calls if not call.state]
    reject_if(not calls, f"{pretrained.name} has no layer with queries and keys.")
    kind = kind or calls[-1].kind
    here = [call for call in calls if (call.kind, call.layer) == (kind, layer)]
    heads, keys = calls[0].q.shape[1], calls[0].k.shape[2]
    rows = calls[0].q.shape[2]
    if here:
        (heads, rows), keys = here[0].q.shape[1:3], here[0].k.shape[2]
    reject_if(
        not here
        or not 0 <= head < heads
        or not 0 <= key < keys
        or not queries
        or not all(0 <= one < rows for one in queries),
        f"Layer {layer}, head {head}, query {query}, key {key} is not in {pretrained.name} with this "
        f"text, whose layers have {heads} heads, {rows} queries and {keys} keys.",
    )
    call = here[0]
    attention = layer_attention(call)
    group, _ = attention.kv_group(head)
    allowed = torch.ones(1, rows, keys, dtype=torch.bool)
    if attention.allowed is not None:
        allowed = attention.allowed
    seen = allowed.expand(heads, rows, keys)[head, list(queries)].all(0)
    reject_if(
        not bool(seen[key]),
        f"Query {query} does not see key {key}: a mask hides it, or an indexer left it out. So it has "
        "no score. Take a key that the query sees.",
    )
    q, k = call.q[0, head, list(queries)].sum(0), call.k[0, group, key]
    splitter = _Splitter(pretrained, recorder.calls, stream, starts)
    scale = attention.scale
    q_sides = splitter.split(q, scale * k.detach())
    k_sides = splitter.split(k, scale * q.detach())
    v_sources, v_parts, _ = splitter.split(call.v[0, group, key])
    bias = torch.zeros(keys)
    if attention.bias is not None:
        bias = attention.bias.expand(heads, rows, keys)[head, list(queries)].sum(0).detach()
    scores = (scale * call.k[0, group] @ q + bias).masked_fill(~seen, -torch.inf)
    gates = _gates(call)
    weights = call.weights[0, head, list(queries), key].detach()
    matrix = output_matrix(call)
    assert matrix is not None
    factors = (weights[:, None] * gates[list(queries), head]).sum(0)
    moved = (torch.from_numpy(v_parts) * factors.cpu()) @ matrix[head]
    sinks = attention.sinks
    return ScoreSources(
        queries,
        key,
        q_sides[0],
        k_sides[0],
        v_sources,
        q_sides[1],
        k_sides[1],
        to_numpy(moved),
        q_sides[2],
        k_sides[2],
        scale,
        float(bias[key]),
        to_numpy(scores),
        to_numpy(call.k[0, group]),
        float(weights.sum()),
        attention.softcap,
        None if sinks is None else float(sinks.expand(-1, rows)[head, list(queries)].sum()),
    )


def _gates(call: AttentionCall) -> Float[Tensor, "T H E"]:
    """What multiplies each number of the heads' outputs before W_O: 1 but for a gate or a norm."""
    out, gated = call.out[0].detach(), call.gated[0].detach()  # type: ignore[index]
    return torch.where(out == 0, 0.0, gated / torch.where(out == 0, 1.0, out))


@dataclass(frozen=True, eq=False)
class _Splitter:
    """One pass along the stream, by which queries, keys and values are split."""

    pretrained: Pretrained
    calls: Sequence[AttentionCall]
    stream: HeldStream
    starts: Sequence[_Start]

    def split(
        self, vector: Float[Tensor, " D"], other: Float[Tensor, " D"] | None = None
    ) -> tuple[tuple[Source, ...], Float[np.ndarray, "A D"], dict[Source, np.ndarray]]:
        """What wrote a vector, the parts that add up to it, and what heads read for their product with another.

        PretrainedError where the parts do not add up.
        """
        stream, model = self.stream, self.pretrained.model
        ends = [
            *(write.probe for write in stream.writes),
            *(values for *_, values in stream.biases),
            *(start.probe for start in self.starts),
        ]
        slopes = list(
            torch.autograd.grad(
                vector,
                ends,
                torch.eye(len(vector), dtype=vector.dtype, device=vector.device),
                retain_graph=True,
                is_grads_batched=True,
                allow_unused=True,
            )
        )
        sums: dict[Source, Tensor] = defaultdict(lambda: torch.zeros(len(vector)))
        modules: dict[Source, list[str]] = defaultdict(list)
        tokens = dict[Source, np.ndarray]()
        written, biased = list[Tensor](), list[Tensor]()
        for write in stream.writes:
            slope = slopes.pop(0)
            written.append(torch.zeros(len(vector)))
            if slope is None:
                continue
            shares = shares_of(self.calls, write, slope)
            written[-1] = shares.sum(1)
            for part, share in zip(parts_of(model, self.calls, write), shares.T, strict=True):
                source = self._source(part)
                sums[source] += share
                if source.part not in CONSTANT and write.name not in modules[source]:
                    modules[source].append(write.name)
            if write.heads is not None and other is not None:
                tokens |= self._read(write, torch.einsum("d,d...->...", other, slope))
        for role, bias, _ in stream.biases:
            slope = slopes.pop(0)
            share = torch.zeros(len(vector))
            if slope is not None:
                share = (slope * bias).flatten(1).sum(1).cpu()
                sums[self._source(Part(role, 0.0))] += share
            biased.append(share)
        for start, slope in zip(self.starts, slopes, strict=True):
            if slope is None:
                continue
            rest = (slope * start.states).flatten(1).sum(1).cpu()
            for one in (*written[: start.writes], *biased[: start.biases]):
                rest = rest - one
            if (
                rest.norm() > ADDS_UP * vector.norm()
            ):  # patches, convolutions, a tensor of positions
                other_ones = any(source.part == "embedding" for source in sums)
                name = "other embeddings" if other_ones else "embedding"
                sums[Source("embedding", name)] += rest
        total = sum(sums.values(), torch.zeros(len(vector)))
        largest = max(
            float(vector.detach().norm()), *(float(one.norm()) for one in sums.values()), 1e-30
        )
        reject_if(
            not float((total - vector.detach().cpu()).norm()) <= ADDS_UP * largest,
            NO_SPLIT.format(self.pretrained.name),
        )
        named = {source: replace(source, modules=tuple(modules[source])) for source in sums}
        return (
            tuple(named.values()),
            to_numpy(torch.stack(list(sums.values()))),
            {named[source]: values for source, values in tokens.items()},
        )

    def _source(self, part: Part) -> Source:
        numbers = numbers_by_layer(self.pretrained.model, self.calls)
        names = layer_names(numbers)
        if part.role == "embedding":
            what: SourcePart = "embedding" if part.name == "token" else part.name  # type: ignore[assignment]
            return Source(what, what)
        if part.role == "projection":
            return Source("projection bias", "projection bias")
        if part.role not in ("head", "feed-forward", "mixer"):
            return Source("biases", "biases")
        if part.key is None:
            layer, name = (int(part.name[1:]), part.name) if part.name else (None, "")
        else:
            layer, name = numbers[part.key], names[part.key]
        state = any((call.kind, call.layer) == part.key and call.state for call in self.calls)
        if part.role == "mixer" or (part.role == "head" and state):
            return Source("state layer", f"{name} state layer".strip(), layer, None, part.key)
        if part.role == "head":
            return Source("head", f"{name}·H{part.head}", layer, part.head, part.key)
        return Source("feed-forward", f"{name} feed-forward".strip(), layer, None, part.key)

    def _read(self, write: Write, slope: Float[Tensor, "1 R C"]) -> dict[Source, np.ndarray]:
        """What each head adds along a slope by reading each token."""
        call = self.calls[write.calls - 1]
        matrix, gates = output_matrix(call), call.gated
        if call.state or matrix is None or gates is None or len(gates) != 1:
            return {}
        rows = [row for row in self.stream.rows or () if row < gates.shape[1]]
        values = repeat_heads(call.v, len(matrix))[0].detach()
        weights = call.weights[0, :, rows, : values.shape[1]].detach()
        toward = torch.einsum("rc,hec->rhe", slope.flatten(0, -2).cpu(), matrix)
        read = torch.einsum("rhe,hrs,hse->hs", toward * _gates(call)[rows], weights, values)
        key = call.kind, call.layer
        return {
            self._source(Part("head", 0.0, key, head)): to_numpy(one)
            for head, one in enumerate(read)
        }
