"""Paths: how much of the answer runs from one part of a model through one other, and through no third.

A part writes to the residual stream; a later one reads the stream's sum. Along the edge from a sender to a receiver,
the receiver alone reads the sender's output of another text (or zero): a head in its queries, its keys or its values,
with the norm before them computed anew. All else is held at the clean run. What the receiver then gives is put into an
otherwise clean run, and the answer is measured. Wang et al. 2023, section 3.1; Goldowsky-Dill et al. 2023.

All edges at once are estimated by gradients on the way between the two texts: EAP-IG, Hanna et al. 2024.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from core.entries import Cost
from core.interpret.circuits import PAIR, NormCalls, fold_gain, watch_norms
from core.interpret.evidence import Baseline, Question, ask, output_matrix
from core.interpret.patching import (
    NUMBERS,
    ROWS,
    Replacement,
    blocks_of,
    pair_of,
    read_outputs,
    rerun_rows,
)
from core.interpret.trace import Head, head_name, to_numpy
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
from core.pretrained.base import refuse_too_much
from core.pretrained.load import untrained
from core.ranks import spearman

By = Literal["Q", "K", "V", ""]
QKV: tuple[By, ...] = ("Q", "K", "V")
STEPS = 5  # between the two texts
EXACT = 20  # edges, the strongest by their estimates, that are measured beside them
LOGITS, SHARE = 0.5, 0.1  # logits, and of the gap: from where an edge stands out
COPIES = 4  # of what is written: of two texts, their difference, and a layer's gradients
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


@dataclass(frozen=True, eq=False)
class PathStream:
    """The residual stream of one run: what each part writes, and what is read where.

    `writes` (N, T, C) are of `senders`, in the order in which they run. `read` has the stream (T, C) before each norm
    by the norm's name, and how many senders are in it. `norms` are the names of those before each attention, each
    feed-forward network and the answer; `networks` the modules of the feed-forward networks; `first` is the first layer's.
    """

    baseline: Baseline
    calls: list[AttentionCall]
    numbers: list[int]  # the model's own of the layer of each call
    senders: list[Node]
    writes: Float[Tensor, "N T C"]
    read: dict[str, tuple[Tensor, int]]
    norms: dict[Node, str]
    networks: dict[Node, str]
    first: str

    @cached_property
    def receivers(self) -> list[tuple[Node, By]]:
        """All receivers, in the order in which they run."""
        listed = list[tuple[Node, By]]()
        for number, call in zip(self.numbers, self.calls, strict=True):
            heads = range(call.replaceable.shape[2])
            listed += [(Node("head", number, head), by) for head in heads for by in QKV]
            listed += [(one, "") for one in self.networks if one.layer == number]
        return [*listed, (ANSWER, "")]

    def count(self, receiver: Node) -> int:
        """How many of the senders a receiver reads."""
        return self.read[self.norms[replace(receiver, head=None)]][1]


def path_stream(baseline: Baseline) -> PathStream:
    """The residual stream of a question's run.

    PretrainedError where the model does not add up what its heads and networks write, each behind a norm, in one stream.
    """
    pretrained, model = baseline.pretrained, baseline.pretrained.model
    calls = forward(pretrained, baseline.batch, with_qkv=True)[1].calls

    def refuse(condition: Any, why: str) -> None:
        reject_if(
            condition,
            f"{pretrained.name} {why}, so what runs from one part to another cannot be followed here. Take a decoder with "
            "a norm before each layer, such as GPT-2 or Llama.",
        )

    refuse(not calls or len({call.kind for call in calls}) > 1, "has more than one stream")
    refuse(any(call.q is None for call in calls), "has layers without softmax")
    refuse(any(call.output is None for call in calls), "has heads whose W_O was not found")
    blocks, numbered = blocks_of(model, calls), numbers_by_layer(model, calls)
    refuse(len(blocks) < len(calls), "runs one layer several times, or has no list of layers")
    names = {module: name for name, module in model.named_modules()}
    numbers = [numbered[call.kind, call.layer] for call in calls]
    inner = [blocks[call.kind, call.layer][1] for call in calls]
    networks = {
        Node("feed-forward", n): name for n, name in zip(numbers, inner, strict=True) if name
    }
    outputs, inputs, norms, entered = (
        dict[str, Tensor](),
        dict[Any, Tensor](),
        NormCalls(),
        list[int](),
    )

    def enter(module: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        inputs[module] = args[0] if args else options["hidden_states"]

    def change_qkv(index: int, *qkv: Tensor) -> Sequence[Tensor]:
        entered.append(index)
        return qkv

    readers = [*(call.module for call in calls), *map(model.get_submodule, networks.values())]
    written = [*(names[call.output] for call in calls), *networks.values()]
    hooks = hooked(
        (
            watch_norms(model, norms),
            hooked(one.register_forward_pre_hook(enter, with_kwargs=True) for one in readers),
            read_outputs(model, written, outputs),
        )
    )
    forward(pretrained, baseline.batch, hooks=hooks, change_qkv=change_qkv)
    refuse(len(entered) < len(calls), "computes attention in code of its own")
    before = {
        module: next((names[norm] for norm, _, made in norms if made is states), "")
        for module, states in inputs.items()
    }
    refuse("" in before.values(), "has no norm right before a layer")
    streams = {names[one]: states[0].cpu() for one, states, _ in norms if states.ndim == 3}
    parts = 1 + len(networks) + sum(call.replaceable.shape[2] for call in calls)
    size = parts * streams[before[calls[0].module]].numel()
    refuse_too_much(
        Cost(bytes=4 * COPIES * size),
        f"What {parts:,} parts write to {len(baseline.source):,} tokens",
        "Take shorter texts, or a smaller model.",
    )
    senders, writes = [Node("embedding")], [streams[before[calls[0].module]]]
    whole, read, at = writes[0], dict[str, tuple[Tensor, int]](), dict[Node, str]()

    def reads(receiver: Node, name: str, *sums: tuple[Tensor, int]) -> None:
        """Note what a receiver reads: the first of these sums that is its stream."""
        own = streams[name]
        count = next((n for one, n in sums if (one - own).norm() <= CLOSE * own.norm()), 0)
        refuse(not count, "does not add up what its heads and networks write")
        at[receiver], read[name] = name, (own, count)

    def added(name: str) -> tuple[Tensor, Any, Tensor]:
        """What a module adds to the stream, the norm that it goes through (Gemma 2), and the scale of that a token."""
        own = outputs[name]
        norm, made = next(((one, made) for one, given, made in norms if given is own), (None, own))
        scale = made[0].norm(dim=-1) / fold_gain(own[0].cpu().T, norm).T.norm(dim=-1).to(made)
        return made[0].cpu(), norm, scale.cpu()[:, None]

    for call, number, network in zip(calls, numbers, inner, strict=True):
        entering = whole, len(senders)
        reads(Node("head", number), before[call.module], entering)
        matrix, (made, norm, scale) = output_matrix(call), added(names[call.output])
        assert matrix is not None and call.gated is not None
        matrix = fold_gain(matrix.mT, norm).mT
        writes += scale * torch.einsum("the,hec->htc", call.gated[0], matrix)
        senders += [Node("head", number, head) for head in range(len(matrix))]
        whole = whole + made
        if network:
            one = Node("feed-forward", number)  # beside attention it reads what that reads
            reads(one, before[model.get_submodule(network)], (whole, len(senders)), entering)
            senders.append(one)
            writes.append(added(network)[0])
            whole = whole + writes[-1]
    reads(ANSWER, list(streams)[-1], (whole, len(senders)))
    first, _ = blocks[calls[0].kind, calls[0].layer]
    return PathStream(
        baseline, calls, numbers, senders, torch.stack(writes).detach(), read, at, networks, first
    )


@dataclass(frozen=True, eq=False)
class Change:
    """A run, and by how much each of its writes changes (N, T, C): to another text's, or with −`writes` to zero.

    `gap` is how much of the answer's lead the whole change takes away.
    """

    stream: PathStream
    shift: Float[Tensor, "N T C"]
    gap: float

    @property
    def edges(self) -> "Paths":
        """What could be edges, not estimated yet."""
        senders, receivers = tuple(self.stream.senders), tuple(self.stream.receivers)
        clean, blank = self.stream.baseline, np.full((len(senders), len(receivers)), np.nan)
        words = str(clean.word), str(clean.other)
        return Paths(senders, receivers, clean.value, self.gap, words, blank)


def measure_edges(change: Change, edges: Sequence[PathEdge]) -> list[float]:
    """The effect of each edge by exact path patching: the clean value minus the value with the edge changed.

    It takes fewer rows where the edges of one sender follow one another.
    """
    rows = max(1, min(ROWS, NUMBERS // change.shift.shape[1] ** 2))
    parts = (edges[start : start + rows] for start in range(0, len(edges), rows))
    value = change.stream.baseline.value
    return [value - one for part in parts for one in _changed_values(change, part)]


def _changed_values(change: Change, edges: Sequence[PathEdge]) -> list[float]:
    """The value with each edge changed; the edges of one sender share the row that finds what receivers give."""
    stream, baseline = change.stream, change.stream.baseline
    rows = {sender: row for row, sender in enumerate(dict.fromkeys(edge.sender for edge in edges))}
    shift = change.shift[[stream.senders.index(sender) for sender in rows]]
    batch = {name: one.expand(len(rows), *one.shape[1:]) for name, one in baseline.batch.items()}
    model = baseline.pretrained.model

    def held(shift: Float[Tensor, "S T C"], states: dict[str, Tensor], **more: Any) -> Any:
        """A pass in which each norm reads its clean stream with something added, a row each."""

        def enter(name: str, norm: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
            return ((stream.read[name][0] + shift).to(args[0]), *args[1:])

        hooks = hooked(
            (
                read_outputs(model, [*stream.networks.values()], states),
                hooked(
                    model.get_submodule(name).register_forward_pre_hook(partial(enter, name))
                    for name in stream.read
                ),
            )
        )
        return forward(baseline.pretrained, batch, with_qkv=True, hooks=hooks, **more)

    def change_qkv(which: int, index: int, *qkv: Tensor) -> Sequence[Tensor]:
        new = (changed[index].q, changed[index].k, changed[index].v)[which]
        return [*qkv[:which], new.to(qkv[which]), *qkv[which + 1 :]]

    states = dict[str, Tensor]()
    output, recorder = held(shift, states)
    changed = recorder.calls
    outs = {
        by: held(0 * shift, {}, change_qkv=partial(change_qkv, QKV.index(by)))[1].calls
        for by in {edge.by for edge in edges if edge.by}
    }
    values, patches = dict[PathEdge, float](), dict[PathEdge, Patch | Replacement]()
    for edge in edges:
        row, receiver = rows[edge.sender], edge.receiver
        if receiver == ANSWER:
            position = baseline.question.position
            answer = answer_of(baseline.pretrained, batch, output, position, row)
            values[edge] = float(baseline.target_value(answer))
        elif edge.by:
            assert receiver.layer is not None
            call = outs[edge.by][stream.numbers.index(receiver.layer)]
            patches[edge] = (0, call.kind, call.layer, receiver.head, call.replaceable[row])
        else:
            name = stream.networks[receiver]
            patches[edge] = Replacement(name, None, states[name][row])
    values |= zip(patches, rerun_rows(baseline, [*patches.values()]), strict=True)
    return [values[edge] for edge in edges]


def estimate_edges(change: Change, steps: int = STEPS) -> Float[np.ndarray, "N R"]:
    """The effect of each sender on each receiver by EAP-IG, NaN where the receiver does not read the sender.

    −(other output − own) · the mean gradient of the value at what the receiver reads, over runs whose embeddings lie
    between the other's (not included) and the own. Hanna et al. 2024, section 3.
    """
    return np.mean([estimate_step(change, step, steps) for step in range(1, steps + 1)], 0)


def estimate_step(change: Change, step: int, steps: int = STEPS) -> Float[np.ndarray, "N R"]:
    """The estimates from the gradient of one step, from 1, next to the other's embeddings, to `steps`, the own."""
    stream, added = change.stream, change.shift[0] * (1 - step / steps)
    baseline, model = stream.baseline, stream.baseline.pretrained.model
    inputs, outputs, qkv = dict[Any, Tensor](), dict[str, Tensor](), list[Sequence[Tensor]]()
    norms = {node: model.get_submodule(name) for node, name in stream.norms.items()}
    projections = [call.output for call in stream.calls]

    def begin(block: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        states = args[0] if args else options["hidden_states"]
        new = (states + added.to(states)).detach().requires_grad_()
        return ((new, *args[1:]), options) if args else (args, options | {"hidden_states": new})

    def enter(module: Any, args: tuple[Any, ...]) -> None:
        inputs[module] = args[0]

    def change_qkv(index: int, *values: Tensor) -> Sequence[Tensor]:
        qkv.append(values)
        return values

    def against(slope: Float[Tensor, "R T C"]) -> Float[Tensor, "N R"]:
        """What the change of each sender takes away by this gradient; of a layer at once, for memory."""
        return -torch.einsum("ntc,rtc->nr", change.shift, slope.cpu())

    first = model.get_submodule(stream.first)
    hooks = hooked(
        (
            hooked(one.register_forward_pre_hook(begin, with_kwargs=True) for one in [first]),
            hooked(one.register_forward_pre_hook(enter) for one in {*norms.values(), *projections}),
            read_outputs(model, [*stream.networks.values()], outputs),
        )
    )
    output, _ = forward(
        baseline.pretrained, baseline.batch, probe=True, hooks=hooks, change_qkv=change_qkv
    )
    value = baseline.target_value(baseline.answer_in(baseline.batch, output))
    gradient = partial(torch.autograd.grad, retain_graph=True)
    written = [*(inputs[one] for one in projections), *outputs.values(), inputs[norms[ANSWER]]]
    *at, last = gradient(value, written)
    of_networks = dict(zip(outputs, at[len(projections) :], strict=True))
    effects = list[Tensor]()
    for number, call, own, values in zip(stream.numbers, stream.calls, at, qkv, strict=False):
        size, read = call.replaceable.shape[2], inputs[norms[Node("head", number)]]
        # The slope of each head's output alone
        each = torch.eye(size).to(own).repeat_interleave(own.shape[-1] // size, 1)
        alone = own * each.view(size, *[1] * (own.ndim - 1), -1)
        sides = gradient(inputs[call.output], values, alone, is_grads_batched=True)
        parts = [
            gradient(one, read, side, is_grads_batched=True)[0][:, 0]
            for one, side in zip(values, sides, strict=True)
        ]
        effects.append(against(torch.stack(parts, 1).flatten(0, 1)))  # of each head by Q, K and V
        if name := stream.networks.get(network := Node("feed-forward", number)):
            slope = gradient(outputs[name], inputs[norms[network]], of_networks[name])[0]
            effects.append(against(slope))
    made = to_numpy(torch.cat([*effects, against(last)], 1))
    counts = [stream.count(receiver) for receiver, _ in stream.receivers]
    return np.where(np.arange(len(made))[:, None] < counts, made, np.nan)


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
        """The measured edges with their effects, the largest effect first."""
        edges = zip(self.strongest(len(self.exact)), self.exact.tolist(), strict=True)
        return dict(sorted(edges, key=lambda item: -abs(item[1])))

    @property
    def between_heads(self) -> dict[PathEdge, float]:
        """The measured edges from one head to another, the largest effect first."""
        return {
            edge: one
            for edge, one in self.measured.items()
            if edge.sender.part == edge.receiver.part
        }

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


Answers = tuple[int | None, int | None]


def change_texts(model: Pretrained, clean: ModelInputs, other: ModelInputs | None,
                 answers: Answers = (None, None)) -> Change:  # fmt: skip
    """The clean text's run, whose parts change to the other text's; without one, to zero.

    PretrainedError as in `pair_of` and `path_stream`, and where the model's answer is an embedding.
    """
    reject_if(
        model.head == "none",
        f"{model.name} answers with an embedding, and paths are followed to one of two answers. Take a model that writes.",
    )
    question = ask(model, Question(clean, None, "", answers[0], "difference", answers[1]))
    own = path_stream(question)  # which says why a model has none before its texts are compared
    if other is None:
        return Change(own, -own.writes, question.value)
    pair = pair_of(model, clean, other, *answers)
    shift = path_stream(pair.corrupted).writes - own.writes
    return Change(replace(own, baseline=pair.clean), shift, pair.gap)


def list_edges(model: Pretrained, clean: ModelInputs, other: ModelInputs | None,
               answers: Answers = (None, None)) -> Paths:  # fmt: skip
    """What could be edges between two texts, not estimated yet. Errors: `change_texts`."""
    return change_texts(model, clean, other, answers).edges


def key_shares(model: Pretrained, head: Head) -> tuple[dict[str, float], float]:
    """How much of the gap between the texts of PAIR runs through the keys of one head (the model's layer, the head).

    From each earlier head alone, by its name, and from all of them at once: where several write what the keys need, one
    alone changes little.
    """
    change, receiver = change_texts(model, *PAIR), Node("head", *head)
    stream, shift = change.stream, change.shift.clone()
    rows = [row for row in range(stream.count(receiver)) if stream.senders[row].part == "head"]
    edges = [PathEdge(stream.senders[row], receiver, "K") for row in rows]
    shift[rows[0]] = shift[rows].sum(0)
    effects = measure_edges(change, edges) + measure_edges(replace(change, shift=shift), edges[:1])
    *alone, every = (one / change.gap for one in effects)
    return {edge.sender.name: one for edge, one in zip(edges, alone, strict=True)}, every


def random_effect(model: Pretrained, seeds: int = 3) -> float:
    """By how many logits an edge moves the lead between the texts of PAIR at most, in models with random weights."""
    clean = change_texts(model, *PAIR).stream.baseline
    answers = clean.id, clean.contrast
    return max(
        float(np.abs(find_paths(untrained(model, seed), *PAIR, answers).exact).max())
        for seed in range(seeds)
    )


def find_paths(model: Pretrained, clean: ModelInputs, other: ModelInputs | None,
               answers: Answers = (None, None), exact: int = EXACT) -> Paths:  # fmt: skip
    """All edges between two texts by EAP-IG, and the strongest ones by exact path patching. Errors: `change_texts`."""
    change = change_texts(model, clean, other, answers)
    paths = replace(change.edges, estimates=estimate_edges(change))
    return replace(paths, exact=np.array(measure_edges(change, [*paths.strongest(exact)])))
