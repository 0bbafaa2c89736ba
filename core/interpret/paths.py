"""Paths: how much of the answer runs from one part of a model through one other, and through no third.

A part writes to the residual stream; a later one reads the stream's sum. Along the edge from a sender to a receiver,
the receiver alone reads the sender's output of another text (or zero): a head in its queries, its keys or its values,
with the norm before them computed anew. All else is held at the clean run. What the receiver then gives is put into an
otherwise clean run, and the answer is measured. Wang et al. 2023, section 3.1; Goldowsky-Dill et al. 2023.

All edges at once are estimated by gradients on the way between the two texts: EAP-IG, Hanna et al. 2024.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from core.interpret.circuits import NormCalls, watch_norms
from core.interpret.evidence import Baseline, output_matrix
from core.interpret.patching import (
    NUMBERS,
    ROWS,
    Replacement,
    blocks_of,
    pair_of,
    read_outputs,
    rerun_rows,
)
from core.interpret.trace import head_name, to_numpy
from core.models.base import hooked
from core.pretrained import (
    AttentionCall,
    ModelInputs,
    Patch,
    Pretrained,
    answer_of,
    forward,
    numbers_by_layer,
    reject_if,
)
from core.ranks import spearman

By = Literal["Q", "K", "V", ""]
QKV: tuple[By, ...] = ("Q", "K", "V")
STEPS = 5  # between the two texts
EXACT = 20  # edges, the strongest by their estimates, that are measured beside them
LOGITS, SHARE = 0.5, 0.1  # logits, and of the gap: from where an edge stands out
CLOSE = 1e-3  # of the stream: how far the sum of what was written may be from it


@dataclass(frozen=True)
class Node:
    """What writes or reads: the embedding, a head or a feed-forward network of a layer (the model's number), the answer."""

    part: Literal["embedding", "head", "feed-forward", "answer"]
    layer: int | None = None
    head: int | None = None

    @property
    def name(self) -> str:
        if self.layer is None:
            return self.part
        return (
            f"L{self.layer} {self.part}" if self.head is None else head_name(self.layer, self.head)
        )


ANSWER = Node("answer")


@dataclass(frozen=True)
class PathEdge:
    """A sender, a receiver, and what the receiver reads the sender by: a head its Q, K or V, others all ("")."""

    sender: Node
    receiver: Node
    by: By = ""

    @property
    def name(self) -> str:
        by = f"{self.by} of " if self.by else ""
        return f"{self.sender.name} → {by}{self.receiver.name}"

    @property
    def between_heads(self) -> bool:
        return self.sender.part == self.receiver.part == "head"


@dataclass(frozen=True, eq=False)
class Stream:
    """The residual stream of one run: what each part writes, and what is read where.

    `writes` (N, T, C) are of `senders`, in the order in which they run. `read` has the stream (T, C) before each norm
    by the norm's name, and how many senders are in it. `norms` are those before each attention, each feed-forward network
    and the answer; `networks` the modules of the feed-forward networks.
    """

    baseline: Baseline
    calls: list[AttentionCall]
    numbers: list[int]
    senders: list[Node]
    writes: Float[Tensor, "N T C"]
    read: dict[str, tuple[Tensor, int]]
    norms: dict[Node, str]
    networks: dict[Node, str]
    first: str  # the first layer's module

    @cached_property
    def receivers(self) -> list[tuple[Node, By]]:
        """All receivers, in the order in which they run."""
        listed = list[tuple[Node, By]]()
        for number, call in zip(self.numbers, self.calls, strict=True):
            heads = range(call.replaceable.shape[2])
            listed += [(Node("head", number, head), by) for head in heads for by in QKV]
            if (network := Node("feed-forward", number)) in self.networks:
                listed.append((network, ""))
        return [*listed, (ANSWER, "")]

    def norm(self, receiver: Node) -> str:
        """The name of the norm that a receiver reads by."""
        return self.norms[Node("head", receiver.layer) if receiver.part == "head" else receiver]

    def count(self, receiver: Node) -> int:
        """How many of the senders a receiver reads."""
        return self.read[self.norm(receiver)][1]


def read_stream(baseline: Baseline) -> Stream:
    """The residual stream of a question's run.

    PretrainedError where the model does not add up what its heads and networks write, each behind a norm, in one stream.
    """
    pretrained, model = baseline.pretrained, baseline.pretrained.model
    _, recorder = forward(pretrained, baseline.batch, with_qkv=True)
    calls = recorder.calls
    refuse = partial(_refuse, pretrained)
    refuse(not calls or len({call.kind for call in calls}) > 1, "has more than one stream")
    refuse(any(call.q is None for call in calls), "has layers without softmax")
    blocks = blocks_of(model, calls)
    refuse(len(blocks) < len(calls), "runs one layer several times, or has no list of layers")
    names = {module: name for name, module in model.named_modules()}
    numbered = numbers_by_layer(model, calls)
    numbers = [numbered[call.kind, call.layer] for call in calls]
    inner = [blocks[call.kind, call.layer][1] for call in calls]
    outputs, inputs, norms, entered = dict[str, Tensor](), dict[Any, Tensor](), NormCalls(), []
    refuse(any(call.output is None for call in calls), "has heads whose W_O was not found")

    def enter(module: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        inputs[module] = args[0] if args else options["hidden_states"]

    def change_qkv(index: int, *qkv: Tensor) -> Sequence[Tensor]:
        entered.append(index)
        return qkv

    networks = [name for name in inner if name]
    readers = [*(call.module for call in calls), *map(model.get_submodule, networks)]
    written = [*(names[call.output] for call in calls), *networks]
    with (
        watch_norms(model, norms),
        hooked(one.register_forward_pre_hook(enter, with_kwargs=True) for one in readers),
    ):
        forward(
            pretrained,
            baseline.batch,
            hooks=read_outputs(model, written, outputs),
            change_qkv=change_qkv,
        )
    refuse(len(entered) < len(calls), "computes attention in code of its own")
    before = {
        module: next((one for one in norms if one[2] is states), None)
        for module, states in inputs.items()
    }
    refuse(None in before.values(), "has no norm right before a layer")
    streams = {names[norm]: states[0].detach() for norm, states, _ in norms if states.ndim == 3}
    of = {module: names[one[0]] for module, one in before.items() if one}
    senders, parts = [Node("embedding")], [streams[of[calls[0].module]]]
    whole, read, at = parts[0], dict[str, tuple[Tensor, int]](), dict[Node, str]()

    def reads(receiver: Node, name: str, sums: Sequence[tuple[Tensor, int]]) -> None:
        """Note what a receiver reads: the first of these sums that is its stream."""
        own = streams[name]
        count = next((n for one, n in sums if (one - own).norm() <= CLOSE * own.norm()), None)
        refuse(count is None, "does not add up what its heads and networks write")
        assert count is not None
        at[receiver], read[name] = name, (own, count)

    for call, number, network in zip(calls, numbers, inner, strict=True):
        sums = [(whole, len(senders))]
        reads(Node("head", number), of[call.module], sums)
        matrix = output_matrix(call)
        assert matrix is not None and call.gated is not None
        parts += torch.einsum("the,hec->htc", call.gated[0], matrix)
        senders += [Node("head", number, head) for head in range(len(matrix))]
        whole = whole + outputs[names[call.output]][0]
        if network:
            sums.insert(0, (whole, len(senders)))  # the other one is of a parallel network
            reads(Node("feed-forward", number), of[model.get_submodule(network)], sums)
            senders.append(Node("feed-forward", number))
            parts.append(outputs[network][0])
            whole = whole + outputs[network][0]
    reads(ANSWER, list(streams)[-1], [(whole, len(senders))])
    named = {Node("feed-forward", n): name for n, name in zip(numbers, inner, strict=True) if name}
    first = blocks[calls[0].kind, calls[0].layer][0]
    writes = torch.stack(parts).detach()
    return Stream(baseline, calls, numbers, senders, writes, read, at, named, first)


def _refuse(pretrained: Pretrained, condition: Any, why: str) -> None:
    reject_if(
        condition,
        f"{pretrained.name} {why}, so what runs from one part to another cannot be followed here. Take a decoder with "
        "a norm before each layer, such as GPT-2 or Llama.",
    )


@dataclass(frozen=True, eq=False)
class Change:
    """A run, and by how much each of its writes changes (N, T, C): to another text's, or with −`writes` to zero.

    `gap` is how much of the answer's lead the whole change takes away.
    """

    stream: Stream
    shift: Float[Tensor, "N T C"]
    gap: float

    @property
    def edges(self) -> "Paths":
        """What could be edges, not estimated yet."""
        stream, asked = self.stream, self.stream.baseline
        blank = np.full((len(stream.senders), len(stream.receivers)), np.nan)
        words = str(asked.word), str(asked.other)
        senders, receivers = tuple(stream.senders), tuple(stream.receivers)
        return Paths(senders, receivers, asked.value, self.gap, words, blank)


@contextmanager
def _held(model: Any, read: Mapping[str, tuple[Tensor, int]], shift: Any) -> Iterator[None]:
    """While a pass runs, each norm of the stream reads its clean stream with something added, a row each."""

    def enter(name: str, norm: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        clean = read[name][0].expand_as(args[0]).to(args[0])
        return (clean + (shift.to(clean) if torch.is_tensor(shift) else shift), *args[1:])

    with hooked(
        model.get_submodule(name).register_forward_pre_hook(partial(enter, name)) for name in read
    ):
        yield


def measure_edges(change: Change, edges: Sequence[PathEdge]) -> list[float]:
    """The effect of each edge by exact path patching: the clean value minus the value with the edge changed."""
    stream, length = change.stream, change.shift.shape[1]
    rows = max(1, min(ROWS, NUMBERS // length**2))
    place = {sender: index for index, sender in enumerate(stream.senders)}
    order = sorted(range(len(edges)), key=lambda at: place[edges[at].sender])
    effects = dict[int, float]()
    for start in range(0, len(order), rows):
        part = order[start : start + rows]
        values = _changed_values(change, [edges[at] for at in part], place)
        effects |= {
            at: stream.baseline.value - value for at, value in zip(part, values, strict=True)
        }
    return [effects[at] for at in range(len(edges))]


def _changed_values(
    change: Change, edges: Sequence[PathEdge], place: Mapping[Node, int]
) -> list[float]:
    """The value with each edge changed; the edges of one sender share the rows that find what receivers give."""
    stream = change.stream
    baseline, model = stream.baseline, stream.baseline.pretrained.model
    rows = {sender: row for row, sender in enumerate(dict.fromkeys(edge.sender for edge in edges))}
    shift = change.shift[[place[sender] for sender in rows]]
    batch = {name: one.expand(len(rows), *one.shape[1:]) for name, one in baseline.batch.items()}
    states = dict[str, Tensor]()

    def held(shift: Any, **more: Any) -> tuple[Any, list[AttentionCall]]:
        with read_outputs(model, list(stream.networks.values()), states):
            hooks = _held(model, stream.read, shift)
            output, recorder = forward(
                baseline.pretrained, batch, with_qkv=True, hooks=hooks, **more
            )
        return output, recorder.calls

    output, changed = held(shift)
    networks, outs = dict(states), dict[By, list[AttentionCall]]()

    def change_qkv(which: int, index: int, *qkv: Tensor) -> Sequence[Tensor]:
        new = (changed[index].q, changed[index].k, changed[index].v)[which]
        return [*qkv[:which], new.to(qkv[which]), *qkv[which + 1 :]]

    for by in {edge.by for edge in edges if edge.by}:
        outs[by] = held(0, change_qkv=partial(change_qkv, QKV.index(by)))[1]
    values, patches = dict[PathEdge, float](), dict[PathEdge, Patch | Replacement]()
    for edge in edges:
        row, receiver = rows[edge.sender], edge.receiver
        if receiver == ANSWER:
            answer = baseline.pretrained, batch, output, baseline.question.position, row
            values[edge] = float(baseline.target_value(answer_of(*answer)))
        elif edge.by:
            call = outs[edge.by][stream.numbers.index(receiver.layer)]
            patches[edge] = (0, call.kind, call.layer, receiver.head, call.replaceable[row])
        else:
            name = stream.networks[receiver]
            patches[edge] = Replacement(name, None, networks[name][row])
    values |= zip(patches, rerun_rows(baseline, list(patches.values()), ROWS), strict=True)
    return [values[edge] for edge in edges]


def estimate_edges(change: Change, steps: int = STEPS) -> Float[np.ndarray, "N R"]:
    """The effect of each sender on each receiver by EAP-IG, NaN where the receiver does not read the sender.

    −(other output − own) · the mean gradient of the value at what the receiver reads, over runs whose embeddings lie
    between the other's (not included) and the own. Hanna et al. 2024, section 3.
    """
    return np.mean([estimate_step(change, step, steps) for step in range(1, steps + 1)], 0)


def estimate_step(change: Change, step: int, steps: int = STEPS) -> Float[np.ndarray, "N R"]:
    """The estimates from the gradient of one step, from 1, next to the other's embeddings, to `steps`, the own."""
    stream = change.stream
    slopes = _slopes(stream, change.shift[0] * (1 - step / steps))
    effects = -to_numpy(torch.einsum("ntc,rtc->nr", change.shift, slopes))
    counts = np.array([stream.count(receiver) for receiver, _ in stream.receivers])
    return np.where(np.arange(len(effects))[:, None] < counts, effects, np.nan)


def _slopes(stream: Stream, added: Float[Tensor, "T C"]) -> Float[Tensor, "R T C"]:
    """The gradient of the value at what each receiver reads, with something added to the embedding."""
    baseline, model = stream.baseline, stream.baseline.pretrained.model
    read, outputs, heads, qkv = (dict[Any, Any]() for _ in range(4))

    def enter(block: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        states = args[0] if args else options["hidden_states"]
        states = (states + added.to(states)).detach().requires_grad_()
        return (
            ((states, *args[1:]), options) if args else (args, options | {"hidden_states": states})
        )

    def keep(into: dict[Any, Any], name: Any, module: Any, args: tuple[Any, ...]) -> None:
        into[name] = args[0]

    def change_qkv(index: int, *values: Tensor) -> Sequence[Tensor]:
        qkv[index] = values
        return values

    with (
        hooked(
            [model.get_submodule(stream.first).register_forward_pre_hook(enter, with_kwargs=True)]
        ),
        hooked(
            model.get_submodule(name).register_forward_pre_hook(partial(keep, read, name))
            for name in stream.read
        ),
        hooked(
            call.output.register_forward_pre_hook(partial(keep, heads, index))
            for index, call in enumerate(stream.calls)
        ),
    ):
        hooks = read_outputs(model, list(stream.networks.values()), outputs)
        output, _ = forward(
            baseline.pretrained, baseline.batch, probe=True, hooks=hooks, change_qkv=change_qkv
        )
        value = baseline.target_value(baseline.answer_in(baseline.batch, output))
    gradient = partial(torch.autograd.grad, retain_graph=True)
    last = read[stream.norms[ANSWER]]
    *at, final = gradient(value, [*heads.values(), *outputs.values(), last])
    slope = dict(zip([*heads, *outputs], at, strict=True))
    slopes = list[Tensor]()
    for index, (number, call) in enumerate(zip(stream.numbers, stream.calls, strict=True)):
        own, size = slope[index], call.replaceable.shape[2]
        one = torch.eye(size).to(own).repeat_interleave(own.shape[-1] // size, 1)  # each head alone
        alone = own * one.view(size, *[1] * (own.ndim - 1), -1)
        sides = gradient(heads[index], qkv[index], alone, is_grads_batched=True)
        states = read[stream.norms[Node("head", number)]]
        parts = [
            gradient(values, states, side, is_grads_batched=True)[0][:, 0]
            for values, side in zip(qkv[index], sides, strict=True)
        ]
        slopes += torch.stack(parts, 1).flatten(0, 1)  # of each head by Q, K and V
        if network := stream.networks.get(Node("feed-forward", number)):
            states = read[stream.norms[Node("feed-forward", number)]]
            slopes.append(gradient(outputs[network], states, slope[network])[0][0])
    return torch.stack([*slopes, final[0]]).cpu()


@dataclass(frozen=True, eq=False)
class Paths:
    """All edges between two texts of one model, in the units of the answer's lead over the other answer, logits.

    `estimates` (N, R) are of each sender and receiver (NaN where there is no edge), `exact` the measured effects of the
    strongest ones. Positive: the lead is less with the other text's output along the edge alone. `lead` is that of the
    clean text, `gap` how much of it the whole other text takes away; `words` are the two answers.
    """

    senders: tuple[Node, ...]
    receivers: tuple[tuple[Node, By], ...]
    lead: float
    gap: float
    words: tuple[str, str]
    estimates: Float[np.ndarray, "N R"]
    exact: Float[np.ndarray, " M"] = field(default_factory=lambda: np.zeros(0))

    @property
    def count(self) -> int:
        """How many edges there are."""
        return int(np.isfinite(self.estimates).sum())

    def strongest(self, count: int) -> dict[PathEdge, float]:
        """The edges with the largest estimates, the strongest first."""
        order = np.argsort(-np.abs(np.nan_to_num(self.estimates)), axis=None, kind="stable")
        places = np.unravel_index(order[: min(count, self.count)], self.estimates.shape)
        return {
            PathEdge(self.senders[sender], *self.receivers[receiver]): float(
                self.estimates[sender, receiver]
            )
            for sender, receiver in zip(*places, strict=True)
        }

    @cached_property
    def measured(self) -> dict[PathEdge, float]:
        """The measured edges with their effects, those with the largest estimates first."""
        return dict(zip(self.strongest(len(self.exact)), self.exact.tolist(), strict=True))

    @property
    def between_heads(self) -> dict[PathEdge, float]:
        """The measured edges from one head to another, the largest effect first."""
        heads = {edge: effect for edge, effect in self.measured.items() if edge.between_heads}
        return dict(sorted(heads.items(), key=lambda item: -abs(item[1])))

    @property
    def least(self) -> float:
        """By how much an edge moves the lead that stands out: LOGITS, and SHARE of what the whole text does.

        In a model with random weights two texts differ by little, of which an edge may take much; none moves the lead.
        """
        return max(LOGITS, SHARE * abs(self.gap))

    @property
    def agreement(self) -> tuple[float | None, float]:
        """Spearman's ρ of the estimates of measured edges with their effects, and the share whose signs agree."""
        estimates = np.array([*self.strongest(len(self.exact)).values()])
        signs = np.sign(estimates) == np.sign(self.exact)
        return spearman(estimates, self.exact), float(signs.mean())


def change_texts(model: Pretrained, clean: ModelInputs, other: ModelInputs,
                 answers: tuple[int | None, int | None] = (None, None)) -> Change:  # fmt: skip
    """The clean text's run, whose parts change to the other text's.

    PretrainedError as in `pair_of` and `read_stream`, and where the model's answer is an embedding.
    """
    pair = pair_of(model, clean, other, *answers)
    reject_if(
        pair.clean.id is None,
        f"{model.name} answers with an embedding, and paths are followed to one of two answers. Take a model that writes.",
    )
    own = read_stream(pair.clean)
    return Change(own, read_stream(pair.corrupted).writes - own.writes, pair.gap)


def list_edges(model: Pretrained, clean: ModelInputs, other: ModelInputs,
               answers: tuple[int | None, int | None] = (None, None)) -> Paths:  # fmt: skip
    """What could be edges between two texts, not estimated yet. Errors: `change_texts`."""
    return change_texts(model, clean, other, answers).edges


def find_paths(model: Pretrained, clean: ModelInputs, other: ModelInputs,
               answers: tuple[int | None, int | None] = (None, None), exact: int = EXACT) -> Paths:  # fmt: skip
    """All edges between two texts by EAP-IG, and the strongest ones by exact path patching. Errors: `change_texts`."""
    change = change_texts(model, clean, other, answers)
    paths = replace(change.edges, estimates=estimate_edges(change))
    return replace(paths, exact=np.array(measure_edges(change, [*paths.strongest(exact)])))
