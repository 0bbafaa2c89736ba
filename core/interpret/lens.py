"""Where an answer comes from: the logit lens, layer by layer, and direct logit attribution, part by part.

The lens says what a model would answer if it stopped after a layer: the states after the embedding and after each layer
are read as the last ones are, by all that follows the last layer, which is the final norm and the unembedding, and
whatever else the family puts there. nostalgebraist 2020.

An attribution is a logit as a sum of what each part of the model wrote towards it. Every embedding, head and
feed-forward network adds a vector to the residual stream. With the scales of the norms on that stream held at their
values, all that follows is linear, so the logit is the sum of the parts' own shares. What a part does by way of later
layers is counted as theirs. Elhage et al. 2021; Wang et al. 2023, section 3. In models that fill masks an activation
stands before the last norm; it is its input times a gate, as in x·Φ(x), and the gate is held.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only
from torch.utils.hooks import RemovableHandle

from core.interpret.evidence import Baseline, output_matrix
from core.interpret.patching import (
    FEED_FORWARD,
    adds_residual,
    states_of,
    with_states,
)
from core.interpret.trace import AttentionMap, LayerKey, layer_names
from core.models.base import hooked
from core.pretrained import (
    STACK,
    SUBSTITUTES,
    AttentionCall,
    Pretrained,
    PretrainedError,
    Reading,
    forward,
    output_embeddings,
    reject_if,
)

# One module for all layers, and XLM's: each part in a list of its own, this one the last of its layer.
LISTED = re.compile(r"(?P<stack>.*\.(albert_layers|layer_norm2))\.(?P<number>\d+)")
# XLM's feed-forward networks, which are in no layer either
BESIDE = re.compile(r".*\.ffns\.(?P<number>\d+)\.")
TOP = 5
CELLS = 2**23  # logits in one pass: 34 MB
# of the lens of some states, one after another: top, probabilities and entropy
LensPart = tuple[Tensor, Tensor, Tensor]
CLOSE = 1e-3  # of a probability, of the logit or of its largest part: what rounding may leave


@dataclass(frozen=True, eq=False)
class LogitLens:
    """The lens of N = layers + 1 states at T positions: the embedding's first, then each layer's.

    `states` are the residual stream, `top` and `probabilities` the likeliest tokens of each, `entropy` is in bits.
    `start` is the first of the positions. `numbers` are those of the layers' maps; empty where they are the layers in
    order.
    """

    start: int
    states: Float[Tensor, "N T C"]
    top: Int[Tensor, "N T K"]
    probabilities: Float[Tensor, "N T K"]
    entropy: Float[Tensor, "N T"]
    numbers: tuple[int, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The embedding, and the layers by their numbers."""
        return (EMBEDDING, *(f"L{layer}" for layer in self.numbers or range(len(self.states) - 1)))


@dataclass(frozen=True, eq=False)
class Trajectories:
    """The probability, and the rank from 1, of K tokens in the N states of a lens at one position."""

    probabilities: Float[Tensor, "N K"]
    ranks: Int[Tensor, "N K"]


@dataclass(frozen=True, eq=False)
class Stream:
    """The N states of the residual stream at T positions from `start` on, and the model's own logits there."""

    start: int
    states: Float[Tensor, "N T C"]
    logits: Float[Tensor, "T V"]
    numbers: tuple[int, ...] = ()


def read_lens(baseline: Baseline, start: int = 0, stop: int | None = None) -> LogitLens:
    """The lens at positions of the sequence that answers, by default all: of an encoder–decoder, the decoder's.

    PretrainedError for a model without tokens as its answer, and for one whose layers or last steps cannot be read.
    """
    stream = read_stream(baseline, start, stop)
    return join_parts(
        baseline.pretrained,
        stream,
        [read_part(baseline, stream, part) for part in range(count_parts(baseline, stream))],
    )


def read_stream(baseline: Baseline, start: int = 0, stop: int | None = None) -> Stream:
    """The states of all layers in one pass, and the model's own logits; PretrainedError as in `read_lens`."""
    pretrained, states = baseline.pretrained, list[Tensor]()
    reject_if(
        pretrained.head not in ("masked", "next", "seq2seq"),
        f"The answer of {pretrained.name} is not a token, so its layers cannot be read as "
        "tokens. Take a model that fills masks or writes text.",
    )
    names = layers_of(pretrained)

    def hooks() -> Iterator[Any]:
        """What goes into the first of the layers, and what comes out of each, in each of its passes."""
        first = names[0].replace(".layer_norm2.", ".attentions.")
        yield pretrained.model.get_submodule(first).register_forward_pre_hook(
            lambda module, inputs, named: (
                None if states else states.append(inputs[0] if inputs else named["hidden_states"])
            ),
            with_kwargs=True,
        )
        for name in names:
            yield pretrained.model.get_submodule(name).register_forward_hook(
                lambda module, inputs, output: states.append(states_of(output))
            )

    output, recorder = forward(pretrained, baseline.batch, hooks=hooked(hooks()))
    logits, inside = output.logits[0], tuple(f"{name}." for name in names)
    # Of several stacks that run in turn, as HRM's, these are the places of one.
    numbers = tuple(
        call.layer
        for call in recorder.calls
        if call.kind != "cross" and call.name.startswith(inside)
    )
    try:
        read = torch.stack([token_states(one)[: len(logits)].cpu() for one in states])
        if read.ndim != 3 or read.shape[1] != len(logits):
            raise IndexError("other axes")
    except (KeyError, IndexError, RuntimeError) as error:
        raise PretrainedError(NO_VECTORS.format(pretrained.name)) from error
    known = numbers if len(numbers) == len(read) - 1 else ()
    return Stream(start, read[:, start:stop].clone(), logits[start:stop].clone(), known)


def count_parts(baseline: Baseline, stream: Stream) -> int:
    """How many passes read the states of a stream."""
    return -(-stream.states.shape[:2].numel() // _part_size(baseline, stream.logits.shape[-1]))


def read_part(baseline: Baseline, stream: Stream, part: int) -> LensPart:
    """The states that one pass reads, by its index. PretrainedError as in `forward`."""
    states = stream.states.flatten(0, 1).split(_part_size(baseline, stream.logits.shape[-1]))[part]
    likely = _readout(baseline, states).log_softmax(-1)
    best = likely.topk(min(TOP, likely.shape[-1]))
    return best.indices, best.values.exp(), -(likely.exp() * likely).sum(-1) / math.log(2)


def join_parts(pretrained: Pretrained, stream: Stream, parts: Sequence[LensPart]) -> LogitLens:
    """The lens of all parts of a stream. PretrainedError where that of the last layer is not the model's own output."""
    top, probabilities, entropy = (
        torch.cat(values).unflatten(0, stream.states.shape[:2])
        for values in zip(*parts, strict=True)
    )
    reject_if(
        (probabilities[-1] - stream.logits.softmax(-1).gather(-1, top[-1])).abs().max() > CLOSE,
        f"{pretrained.name} does more with its last layer's states than to read each one by "
        "itself, so earlier states cannot be read in the same way.",
    )
    return LogitLens(stream.start, stream.states, top, probabilities, entropy, stream.numbers)


def follow_tokens(
    baseline: Baseline, lens: LogitLens, position: int, tokens: Sequence[int]
) -> Trajectories:
    """The probabilities and ranks of tokens after each layer, at a position of the lens.

    PretrainedError as in `forward`.
    """
    size, followed = _part_size(baseline, len(baseline.answer.logits)), list(tokens)
    states = lens.states[:, position - lens.start].split(size)
    read = torch.cat([_readout(baseline, part) for part in states])
    return Trajectories(
        read.softmax(-1)[:, followed], (read[:, None] > read[:, followed, None]).sum(-1) + 1
    )


def first_likeliest(trajectories: Trajectories, token: int = 0) -> tuple[int | None, int | None]:
    """The first state in which a token is the likeliest, and the first from which it stays so; None where in none."""
    first = (trajectories.ranks[:, token] == 1).tolist()
    stays = next((state for state in range(len(first)) if all(first[state:])), None)
    return first.index(True) if True in first else None, stays


def layers_of(pretrained: Pretrained) -> tuple[str, ...]:
    """The names of the layers that the answer comes from, in order: of several lists the decoder's, the outermost.

    A decoder may have others deeper in it, as of an encoder of pictures. PretrainedError where the layers are not in
    one numbered list. A layer that runs several times is in it once.
    """
    model, stacks = pretrained.model, dict[str, dict[str, None]]()
    # Flaubert's norms are then not its layers' ends
    before = getattr(getattr(model, "config", None), "pre_norm", False)
    for name, _ in model.named_modules():
        if match := STACK.match(name) or (None if before else LISTED.fullmatch(name)):
            stacks.setdefault(match["stack"], {})[f"{match['stack']}.{match['number']}"] = None
    reject_if(
        not stacks,
        f"The layers of {pretrained.name} are not one numbered list, so their states cannot be "
        "read one by one. Take a model such as GPT-2, BERT or T5.",
    )
    decoder = set(model.get_decoder().modules())  # in ModernBERT that is its last matrix
    inside = [stack for stack in stacks if model.get_submodule(stack) in decoder] or list(stacks)
    return tuple(stacks[min(reversed(inside), key=lambda stack: stack.count("."))])


def token_states(states: Tensor) -> Tensor:
    """The states (T, C) of one text; FSMT has the tokens first."""
    return states[0] if len(states) == 1 else states.movedim(1, 0)[0]


NO_VECTORS = (
    "The layers of {} pass on something else than one vector a token, so they cannot be read "
    "one by one. Take a model such as GPT-2, BERT or T5."
)


def _part_size(baseline: Baseline, vocabulary: int) -> int:
    """How many states one pass reads: as many as fit into the rows of a batch."""
    length = len(baseline.target or baseline.source)
    return max(1, CELLS // (vocabulary * length)) * length


def _readout(baseline: Baseline, states: Float[Tensor, "M C"]) -> Float[Tensor, "M V"]:
    """The logits of any states, which stand in for the last layer's, last first: no logit may depend on a neighbour."""
    pretrained, length = baseline.pretrained, len(baseline.target or baseline.source)
    rows = -(-len(states) // length)
    full = states.new_zeros(rows * length, states.shape[-1])
    full[: len(states)] = states.flip(0)

    def give(module: nn.Module, inputs: Any, output: Any) -> Any:
        """Those rows of states, whatever the last layer computed from the one that it got."""
        own = states_of(output)
        padded = own.new_zeros(rows, *token_states(own).shape)  # some families pad the tokens
        padded[:, :length] = full.unflatten(0, (rows, length))
        return with_states(output, padded if len(own) == 1 else padded.transpose(0, 1))

    last = pretrained.model.get_submodule(layers_of(pretrained)[-1])
    hooks = hooked(one.register_forward_hook(give) for one in [last])
    try:
        output, _ = forward(pretrained, baseline.batch, hooks=hooks)
    except PretrainedError as error:
        if rows == 1:
            raise PretrainedError(NO_VECTORS.format(pretrained.name)) from error
        # What follows the last layer of some families counts the rows of the inputs.
        return torch.cat([_readout(baseline, part) for part in states.split(length)])
    return output.logits.flatten(0, 1)[: len(states)].flip(0)


# Direct logit attribution: a logit as a sum of what each part of the model wrote towards it.


PASSES = 3  # through the model
SAME = 1e-4  # of the largest value, within which a norm is a scaled copy of its input, or a value an activation's
ACTIVATIONS = (F.gelu, partial(F.gelu, approximate="tanh"), F.relu, F.silu, torch.tanh)


@dataclass(frozen=True)
class Part:
    """One summand of a logit.

    `role` is embedding, head, feed-forward, mixer (a state space, a convolution or linear attention), or what has the
    bias: bias (attention), norm, transform (a matrix between the last layer and the unembedding) or unembedding. `key`
    is the layer's (kind, layer) where the part has one; `name` says what an embedding is of, or which layer it is that
    has no attention.
    """

    role: str
    value: float
    key: LayerKey | None = None
    head: int | None = None
    name: str = ""


@dataclass(frozen=True)
class Attribution:
    """The parts of a logit, or of a difference of two, and the model's own `logit`, which they sum to."""

    parts: tuple[Part, ...]
    logit: float
    total: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", sum(part.value for part in self.parts))


@dataclass(frozen=True, eq=False)
class Write:
    """What one run of a module gave, and the zero added to it; `heads` are W_O's inputs, `calls` those so far.

    A `role` has what is no module's output: a bias, whose `probe` is what it is part of.
    """

    name: str
    output: Tensor
    probe: Tensor
    heads: Tensor | None
    calls: int
    role: str = ""


@dataclass(eq=False)
class HeldStream:
    """One pass along the residual stream: what modules gave, in order, and biases.

    `transformed` is the output of the last matrix after the layers. With `rows` it is followed at these tokens alone,
    and on to the queries, keys and values of every layer.
    """

    writes: list[Write] = field(default_factory=list)
    calls: int = 0
    transformed: Tensor | None = None
    rows: Sequence[int] | None = None

    def take(self, states: Tensor) -> Tensor:
        """The states at the rows that are followed."""
        return states if self.rows is None else states.index_select(-2, self._at(states))

    def put(self, states: Tensor, taken: Tensor) -> Tensor:
        """The states, without their gradient, with others at these rows."""
        if self.rows is None:
            return taken
        return states.detach().index_copy(-2, self._at(states), taken)

    def note(self, role: str, bias: Tensor, part_of: Tensor) -> None:
        self.writes.append(Write("", bias.detach(), part_of, None, self.calls, role))

    def _at(self, states: Tensor) -> Tensor:
        assert self.rows is not None
        at = [row for row in self.rows if 0 <= row < states.shape[-2]]
        return torch.tensor(at, dtype=torch.long, device=states.device)


def attribute_logit(baseline: Baseline, output: int, contrast: int | None = None) -> Attribution:
    """The logit of `output`, or its difference from that of `contrast`, at the question's position as a sum of parts.

    PretrainedError where W_O is unknown, and where the parts do not add up: more than norms, matrices and an
    activation stand between the residual stream and the logits, or one module serves as several layers.
    """
    return next(filter(None, attribute_passes(baseline, output, contrast)))


def attribute_passes(
    baseline: Baseline, output: int, contrast: int | None = None
) -> Iterator[Attribution | None]:
    """The same pass by pass: None after each of PASSES forward passes but the last one, which gives the parts."""
    pretrained, batch = baseline.pretrained, baseline.batch
    reject_if(
        baseline.answer.kind not in ("next", "mask"),
        f"The answer of {pretrained.name} is no token but "
        f"{'an embedding' if baseline.answer.logits is None else f'a {baseline.answer.output}'}, and only the logit "
        "of a token is told apart into parts. Take a model such as GPT-2, BERT, Llama or T5.",
    )
    calls = forward(pretrained, batch, with_qkv=True)[1].calls
    for call in calls:
        reject_if(
            call.gated is None,
            f"No one matrix of {pretrained.name} gets what the heads of {call.name} give, and that "
            "alone, so what each writes is unknown. Take a model such as GPT-2, Llama or T5.",
        )
    yield None
    stream, of_logit = (
        HeldStream(),
        replace(baseline, id=output, quantity="logit", contrast=contrast),
    )
    try:
        passed, _ = forward(
            pretrained, batch, probe=True, hooks=hold_stream(pretrained.model, calls, stream)
        )
    except PretrainedError as error:  # a hook changed what the family's code needs
        raise PretrainedError(NO_SUM.format(pretrained.name)) from error
    logit = of_logit.target_value(of_logit.answer_in(batch, passed))
    parts = _stream_parts(pretrained.model, calls, stream, logit)
    yield None
    # What the unembedding adds whatever it reads: its logit of a state of zeros.
    zeros = hooked(
        layer.register_forward_pre_hook(lambda module, inputs: torch.zeros_like(inputs[0]))
        for layer in [output_embeddings(pretrained.model)]
    )
    passed, _ = forward(pretrained, batch, hooks=zeros)
    if constant := float(of_logit.target_value(of_logit.answer_in(batch, passed))):
        parts.append(Part("unembedding", constant))
    result = Attribution(tuple(parts), float(logit.detach()))
    largest = max(abs(result.logit), *(abs(part.value) for part in parts))
    reject_if(
        not abs(result.total - result.logit) <= CLOSE * largest, NO_SUM.format(pretrained.name)
    )
    yield result


def direct_logits(
    baseline: Baseline,
) -> Iterator[tuple[tuple[str, int, int], Float[Tensor, " V"]]]:
    """What each head, (kind, layer, head), writes itself towards every logit at the question's position.

    These are the parts of `attribute_logit` for all outputs at once. PretrainedError as there.
    """
    attribute_logit(baseline, baseline.id)
    pretrained, batch, stream = baseline.pretrained, baseline.batch, HeldStream()
    calls = forward(pretrained, batch, with_qkv=True)[1].calls
    hooks = hold_stream(pretrained.model, calls, stream)
    passed, _ = forward(pretrained, batch, probe=True, hooks=hooks)
    logits = baseline.answer_in(batch, passed).logits
    writes = [write for write in stream.writes if write.heads is not None]
    # The slopes are linear in these weights of the logits, so that their slopes are the parts of all logits
    weights = torch.zeros_like(logits, requires_grad=True)
    slopes = torch.autograd.grad(
        logits, [write.probe for write in writes], weights, create_graph=True, allow_unused=True
    )
    for write, slope in zip(writes, slopes, strict=True):
        if slope is not None:
            call = calls[write.calls - 1]
            by_head = shares_of(calls, write, slope[None])[0, : call.weights.shape[1]]
            for head, value in enumerate(by_head):
                (towards,) = torch.autograd.grad(value, weights, retain_graph=True)
                yield (call.kind, call.layer, head), towards


def _stream_parts(
    model: Any, calls: Sequence[AttentionCall], stream: HeldStream, logit: Tensor
) -> list[Part]:
    """The parts of a logit, by its gradient along the residual stream; an encoder's parts have none."""
    if not logit.requires_grad:
        return []
    slopes = torch.autograd.grad(logit, [write.probe for write in stream.writes], allow_unused=True)
    sums: dict[Part, float] = defaultdict(float)  # by the part without its value
    biases = list[Part]()
    for write, slope in zip(stream.writes, slopes, strict=True):
        if slope is not None:
            values = shares_of(calls, write, slope[None])[0].tolist()
            for part, value in zip(parts_of(model, calls, write), values, strict=True):
                if write.role:
                    biases.append(replace(part, value=value))
                else:
                    sums[part] += value
    return [*(replace(part, value=value) for part, value in sums.items()), *biases]


NO_SUM = (
    "The logits of {} are no sum of what its embeddings, heads and feed-forward "
    "networks write through norms and matrices: something else adds to them or changes them, such as a cap on "
    "the logits, several streams, or positions without an embedding. Take a model such as GPT-2, BERT, Llama "
    "or T5."
)


def _block(name: str) -> str:
    """The layer of a stack that a module is in, or else what its attention is beside."""
    match = STACK.match(name)
    return f"{match['stack']}.{match['number']}" if match else name.rpartition(".")[0]


def hold_stream(
    model: Any, calls: Sequence[AttentionCall], stream: HeldStream
) -> AbstractContextManager[None]:
    """Cut every gradient but that along the residual stream, and hold the scales of its norms and the last gate.

    Of the layers all modules with matrices of their own are cut, so that what is left is the stream itself, norms, and
    numbers that a part is multiplied by; what a `HeldStream` with rows follows beside it is cut at each W_O.
    """
    blocks = tuple({f"{_block(call.name)}." for call in calls})
    outputs = dict[Any, list[int]]()  # the calls so far at each of its runs
    for index, call in enumerate(calls):
        outputs.setdefault(call.output, []).append(index + 1)
    attentions = tuple(f"{call.name}." for call in calls if not call.state)
    around = {name for call in calls for name in _prefixes(call.name)}  # they give on the stream
    last = output_embeddings(model)

    def hooks() -> Iterator[RemovableHandle]:
        for name, module in model.named_modules():
            if adds_residual(module):
                continue  # the stream goes through it
            inside = bool(STACK.match(name) or BESIDE.match(name) or name.startswith(blocks))
            if "Norm" in type(module).__name__:
                yield module.register_forward_pre_hook(partial(_gated, stream))
                yield module.register_forward_hook(partial(_held, stream))
            elif (
                stream.rows is not None
                and module not in outputs
                and f"{name}.".startswith(attentions)
            ):
                if isinstance(getattr(module, "weight", None), Tensor) and not _embeds(module):
                    yield module.register_forward_hook(partial(_projected, stream))
            elif (
                module in outputs
                or _embeds(module)
                or (
                    inside
                    and name not in around
                    and (
                        any(one.ndim > 1 for one in module.parameters(recurse=False))
                        # A whole feed-forward network or a mixer: gates inside it are its own.
                        or name.rpartition(".")[2] in FEED_FORWARD
                        or any(
                            re.fullmatch(rule, type(module).__name__) for rule, _ in SUBSTITUTES[1:]
                        )
                    )
                )
            ):
                yield module.register_forward_hook(partial(_cut, stream, name, outputs.get(module)))
            elif isinstance(module, nn.Linear) and not inside and module is not last:
                yield module.register_forward_hook(partial(_transformed, stream))

    return hooked(hooks())


def _embeds(module: nn.Module) -> bool:
    sines = "Embedding" in type(module).__name__.partition("Position")[2]
    return isinstance(module, nn.Embedding) or (sines and not [*module.parameters()])


def _prefixes(name: str) -> list[str]:
    """The names of a module and of all that it is in."""
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(len(parts) + 1)]


def _cut(
    stream: HeldStream,
    name: str,
    runs: list[int] | None,
    module: nn.Module,
    inputs: Any,
    output: Any,
) -> Any:
    """The same output without its gradient, with probes of zeros added."""

    def detached(values: Tensor) -> Tensor:
        if not values.is_floating_point():
            return values
        taken = stream.take(values.detach())
        probe = torch.zeros_like(taken, requires_grad=True)
        heads = None if runs is None else stream.take(inputs[0].detach())
        stream.writes.append(Write(name, taken, probe, heads, stream.calls))
        return stream.put(values, taken + probe)

    if runs:
        stream.calls = runs.pop(0)
    return tree_map_only(Tensor, detached, output)


def _projected(stream: HeldStream, module: Any, inputs: Any, output: Any) -> Tensor | None:
    """The output of a matrix that makes queries, keys or values, followed at the rows alone."""
    if not isinstance(output, Tensor) or len(inputs) != 1 or output.shape[:-2] != (1,):
        return None
    taken = module.forward(stream.take(inputs[0]))
    if getattr(module, "bias", None) is not None and taken.requires_grad:
        stream.note("projection", module.bias, taken)
    return stream.put(output, taken)


def _transformed(stream: HeldStream, linear: nn.Linear, inputs: Any, output: Tensor) -> None:
    """Note what a matrix after the layers gives, and its bias."""
    stream.transformed = output
    if linear.bias is not None and output.requires_grad:
        stream.note("transform", linear.bias, output)


def _gated(stream: HeldStream, norm: nn.Module, inputs: Any) -> tuple[Tensor, ...] | None:
    """The same input, whose gradient is that of z times a constant, where it is an activation of the matrix's z."""
    x, z = inputs[0] if inputs else None, stream.transformed
    if (
        z is None
        or not isinstance(x, Tensor)
        or x.shape != z.shape
        or not any(_close(x, one(z)) for one in ACTIVATIONS)
    ):
        return None
    return (x.detach() + torch.where(z == 0, 0.0, x / z).detach() * (z - z.detach()), *inputs[1:])


def _close(values: Tensor, others: Tensor) -> bool:
    return bool((values - others).abs().max() <= SAME * others.abs().max())


def _held(stream: HeldStream, norm: Any, inputs: Any, output: Tensor) -> Tensor | None:
    """The same output, whose gradient is that of a norm with a constant scale; None for other modules."""
    x: Any = inputs[0] if inputs else None
    floats = all(isinstance(one, Tensor) and one.is_floating_point() for one in (x, output))
    if not floats or x.shape != output.shape:
        return None
    # A norm of heads is held at all tokens
    alone = stream if x.ndim == 2 or x.ndim == 3 and len(x) == 1 else HeldStream()
    x, whole = alone.take(x), output
    output = alone.take(output.detach())
    scaled = _scaled_copy(norm, x, output) if x.numel() else None  # a head that reads one row
    if scaled is None or not scaled.requires_grad:
        return None
    held = output + scaled - scaled.detach()
    if getattr(norm, "bias", None) is not None:
        stream.note("norm", norm.bias, held)
    return alone.put(whole, held)


def _scaled_copy(norm: Any, x: Tensor, output: Tensor) -> Tensor | None:
    """scale · gain · x, or gain · (x − mean), of a layer or RMS norm with its own scale as a constant."""
    gain, bias = getattr(norm, "weight", None), getattr(norm, "bias", None)
    gain = torch.ones(x.shape[-1]) if gain is None else gain.detach()
    if gain.shape != x.shape[-gain.ndim :]:  # a norm of channels; Cohere's has a gain for each head
        return None
    linear = output if bias is None else output - bias.detach()
    # A layer norm, an RMS norm, Gemma's and Nemotron's.
    for wide, centred in ((gain, True), (gain, False), (1 + gain, False), (1 + gain, True)):
        scaled = wide * (x - x.mean(-1, keepdim=True) if centred else x)
        scale = (linear * scaled).sum(-1, keepdim=True) / (scaled * scaled).sum(
            -1, keepdim=True
        ).clamp(min=1e-30)
        scaled = scaled * scale.detach()
        if _close(scaled, linear):
            return scaled
    return None


def shares_of(
    calls: Sequence[AttentionCall], write: Write, slopes: Float[Tensor, "N ... C"]
) -> Float[Tensor, "N P"]:
    """What each of `parts_of` a module's write adds to N numbers with these slopes."""
    slopes = slopes.cpu()
    if write.heads is None:
        return (slopes * write.output.cpu()).flatten(1).sum(1, keepdim=True)
    call = calls[write.calls - 1]
    matrix = output_matrix(call)
    assert matrix is not None
    inputs = write.heads.cpu().reshape(*slopes.shape[1:-1], *matrix.shape[:2])
    shares = torch.einsum("...he,hec,n...c->nh", inputs, matrix, slopes)
    if (bias := getattr(call.output, "bias", None)) is None:
        return shares
    added = (slopes * bias.detach().cpu()).flatten(1).sum(1, keepdim=True)
    return torch.cat([shares, added], 1)


def parts_of(model: Any, calls: Sequence[AttentionCall], write: Write) -> list[Part]:
    """What a module wrote, without values; an output projection by its heads, and its bias."""
    if write.role:
        return [Part(write.role, 0.0)]
    if write.heads is not None:
        call = calls[write.calls - 1]
        key, matrix = (call.kind, call.layer), output_matrix(call)
        assert matrix is not None
        heads = [Part("head", 0.0, key, head) for head in range(len(matrix))]
        biased = getattr(call.output, "bias", None) is not None
        return [*heads, Part("bias", 0.0, key)] if biased else heads
    match = STACK.match(write.name)
    if _embeds(model.get_submodule(write.name)) and match is None:
        own = write.name.rpartition(".")[2].lower()
        positions = "pos" in own or own == "wpe"
        name = (
            "position" if positions else "segment" if "type" in own or "segment" in own else "token"
        )
        return [Part("embedding", 0.0, name=name)]
    mixes = any(write.name.startswith(f"{call.name}.") for call in calls)
    here: list[tuple[int, LayerKey]] = [
        (index, (call.kind, call.layer))
        for index, call in enumerate(calls)
        if f"{write.name}.".startswith(f"{_block(call.name)}.") and call.kind != "cross"
    ]
    before = [key for index, key in here if index < write.calls]
    place: LayerKey | None = next(iter([*before[-1:], *(key for _, key in here)]), None)
    if listed := BESIDE.match(write.name):
        place = (calls[int(listed["number"])].kind, calls[int(listed["number"])].layer)
    name = "" if place is not None or match is None else f"L{match['number']}"
    return [Part("mixer" if mixes else "feed-forward", 0.0, place, name=name)]


# When a model decides: tokens through its layers at one position, and the named parts of a logit.


EMBEDDING, BIASES, DECODER = "embedding", "biases", "decoder "
LAYER_ROLES = ("mixer", "feed-forward")  # what a layer writes beside its heads
WINDOW = 64  # positions that are read at once: each is multiplied with the whole vocabulary, after every layer
LEADERS = 3  # tokens besides the answer that lead after some layer, and are followed unasked


@dataclass(frozen=True, eq=False)
class Decision:
    """The lens at every position, and tokens through the layers at one: the answer first."""

    lens: LogitLens
    tokens: tuple[int, ...]
    trajectories: Trajectories

    @property
    def decisive(self) -> int:
        """The state from which the answer stays the likeliest; the last one where it is not."""
        _, stays = first_likeliest(self.trajectories)
        return len(self.lens.states) - 1 if stays is None else stays


def window_start(position: int, length: int) -> int:
    """The first position that is read: a long text is read in windows, which stay while near cells are picked."""
    late = max(0, position - WINDOW // 4) // (WINDOW // 2) * (WINDOW // 2)
    return min(late, max(0, length - WINDOW))


def leaders(baseline: Baseline, lens: LogitLens) -> list[int]:
    """The tokens besides the answer that are the likeliest in some state at its position, the latest first."""
    first = lens.top[:, baseline.answer.position - lens.start, 0].tolist()
    return [token for token in dict.fromkeys(reversed(first)) if token != baseline.id]


def followed(baseline: Baseline, lens: LogitLens, tokens: Sequence[int]) -> tuple[int, ...]:
    """The answer, further tokens and the latest leaders: what is followed through the layers."""
    return tuple(dict.fromkeys([baseline.id, *tokens, *leaders(baseline, lens)[:LEADERS]]))


def answering_maps(reading: Reading) -> tuple[AttentionMap, ...]:
    """The maps of the layers that answer: of an encoder–decoder, the decoder's."""
    return tuple(
        item for item in reading.trace.maps if item.kind != "self" or reading.target is None
    )


def answering_layers(reading: Reading) -> dict[LayerKey, str]:
    """The names of the layers that answer."""
    return layer_names(
        {(item.kind, item.layer): item.layer_number for item in answering_maps(reading)}
    )


def named_parts(reading: Reading, attribution: Attribution) -> list[tuple[str, Part]]:
    """Each part with its name, the largest share first."""
    names = answering_layers(reading)
    return [
        (_part_name(part, "" if part.key is None else names[part.key]), part)
        for part in sorted(attribution.parts, key=lambda part: -abs(part.value))
    ]


def _part_name(part: Part, layer: str) -> str:
    return {
        "embedding": f"{part.name} embedding",
        "head": f"{layer}·H{part.head}",
        "bias": f"bias of {layer}",
        **{role: f"{role} of {layer.removeprefix(DECODER) or part.name}" for role in LAYER_ROLES},
        "norm": "bias of a norm",
        "transform": "bias before the unembedding",
        "unembedding": "bias of the unembedding",
    }[part.role]


def grouped(reading: Reading, attribution: Attribution) -> dict[str, float]:
    """The same sum by larger parts, in the order of the model, and last all biases."""
    names, sums = answering_layers(reading), dict[str, float]()
    for part in sorted(
        attribution.parts,
        key=lambda part: (
            -1
            if part.role == "embedding"
            else 10**6
            if part.key is None
            else 2 * part.key[1] + (part.role in LAYER_ROLES)
        ),
    ):
        layer = "" if part.key is None else names[part.key]
        group = (
            f"heads of {layer}"
            if part.role == "head"
            else _part_name(part, layer)
            if part.role in ("embedding", *LAYER_ROLES)
            else BIASES
        )
        sums[group] = sums.get(group, 0.0) + part.value
    return dict(sorted(sums.items(), key=lambda item: item[0] == BIASES))
