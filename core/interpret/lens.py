"""The logit lens: what a model would answer if it stopped after a layer.

The states after the embedding and after each layer are read as the last ones are: by all that follows the last layer,
which is the final norm and the unembedding, and whatever else the family puts there. nostalgebraist 2020.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from core.hooks import hooked
from core.interpret.evidence import Baseline
from core.interpret.patching import read_outputs, states_of, with_states
from core.pretrained.attention_recorder import STACK
from core.pretrained.base import Pretrained, PretrainedError
from core.pretrained.reading import forward

TOP = 5
CELLS = 2**23  # logits in one pass: 34 MB
Part = tuple[
    Tensor, Tensor, Tensor
]  # of the lens of some states, one after another: top, probabilities and entropy
CLOSE = 1e-3  # of a probability, within which the lens of the last layer must equal the model's own output


@dataclass(frozen=True, eq=False)
class LogitLens:
    """The lens of N = layers + 1 states at T positions: the embedding's first, then each layer's.

    `states` are the residual stream, `top` and `probabilities` the likeliest tokens of each, `entropy` is in bits.
    `start` is the first of the positions.
    """

    start: int
    states: Float[Tensor, "N T C"]
    top: Int[Tensor, "N T K"]
    probabilities: Float[Tensor, "N T K"]
    entropy: Float[Tensor, "N T"]


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
    pretrained, states = baseline.pretrained, dict[str, Tensor]()
    if pretrained.head not in ("masked", "next", "seq2seq"):
        raise PretrainedError(
            f"The answer of {pretrained.name} is not a token, so its layers cannot be read as "
            "tokens. Take a model that fills masks or writes text."
        )
    names = layers_of(pretrained)

    def hooks() -> Iterator[Any]:
        """What goes into the first of the layers, under the name "", and what comes out of each."""
        first = pretrained.model.get_submodule(names[0])
        yield first.register_forward_pre_hook(
            lambda module, inputs, named: states.__setitem__(
                "", inputs[0] if inputs else named["hidden_states"]
            ),
            with_kwargs=True,
        )
        yield read_outputs(pretrained.model, names, states)

    output, _ = forward(pretrained, baseline.batch, hooks=hooked(hooks()))
    logits = output.logits[0]
    try:
        read = torch.stack([states[name][0, : len(logits)].cpu() for name in ("", *names)])
        if read.ndim != 3 or read.shape[1] != len(logits):
            raise IndexError("other axes")
    except (KeyError, IndexError, RuntimeError) as error:
        raise PretrainedError(_no_vectors(pretrained)) from error
    return Stream(start, read[:, start:stop].clone(), logits[start:stop].clone())


def count_parts(baseline: Baseline, stream: Stream) -> int:
    """How many passes read the states of a stream."""
    return -(-stream.states.shape[:2].numel() // _part_size(baseline, stream.logits.shape[-1]))


def read_part(baseline: Baseline, stream: Stream, part: int) -> Part:
    """The states that one pass reads, by its index. PretrainedError as in `forward`."""
    size = _part_size(baseline, stream.logits.shape[-1])
    likely = _readout(
        baseline, stream.states.flatten(0, 1)[part * size : (part + 1) * size]
    ).log_softmax(-1)
    best = likely.topk(min(TOP, likely.shape[-1]))
    return best.indices, best.values.exp(), -(likely.exp() * likely).sum(-1) / math.log(2)


def join_parts(pretrained: Pretrained, stream: Stream, parts: Sequence[Part]) -> LogitLens:
    """The lens of all parts of a stream. PretrainedError where that of the last layer is not the model's own output."""
    top, probabilities, entropy = (
        torch.cat(values).unflatten(0, stream.states.shape[:2])
        for values in zip(*parts, strict=True)
    )
    own = stream.logits.softmax(-1).gather(-1, top[-1])
    if (probabilities[-1] - own).abs().max() > CLOSE:
        raise PretrainedError(
            f"{pretrained.name} does more with its last layer's states than to read each one by "
            "itself, so earlier states cannot be read in the same way."
        )
    return LogitLens(stream.start, stream.states, top, probabilities, entropy)


def follow_tokens(
    baseline: Baseline, lens: LogitLens, position: int, tokens: Sequence[int]
) -> Trajectories:
    """The probabilities and ranks of tokens after each layer, at a position of the lens.

    PretrainedError as in `forward`.
    """
    assert baseline.answer.logits is not None
    states, size = (
        lens.states[:, position - lens.start],
        _part_size(baseline, len(baseline.answer.logits)),
    )
    read = torch.cat([_readout(baseline, part) for part in states.split(size)])
    values = read[:, list(tokens)]
    ranks = (read[:, None] > values[..., None]).sum(-1) + 1
    return Trajectories(read.softmax(-1)[:, list(tokens)], ranks)


def first_likeliest(trajectories: Trajectories, token: int = 0) -> tuple[int | None, int | None]:
    """The first state in which a token is the likeliest, and the first from which it stays so; None where in none."""
    first = (trajectories.ranks[:, token] == 1).tolist()
    stays = next((state for state in range(len(first)) if all(first[state:])), None)
    return first.index(True) if True in first else None, stays


def layers_of(pretrained: Pretrained) -> tuple[str, ...]:
    """The names of the layers that the answer comes from, in order: of several lists the decoder's, the outermost.

    A decoder may have others deeper in it, as of an encoder of pictures. PretrainedError where the layers are not in
    one numbered list, as where all share one module.
    """
    model, stacks = pretrained.model, dict[str, dict[str, None]]()
    for name, _ in model.named_modules():
        if match := STACK.match(name):
            stacks.setdefault(match["stack"], {})[f"{match['stack']}.{match['number']}"] = None
    if not stacks:
        raise PretrainedError(
            f"The layers of {pretrained.name} are not one numbered list, so their states cannot be "
            "read one by one. Take a model such as GPT-2, BERT or T5."
        )
    decoder = set(model.get_decoder().modules())  # in ModernBERT that is its last matrix
    inside = [stack for stack in stacks if model.get_submodule(stack) in decoder] or list(stacks)
    return tuple(stacks[min(reversed(inside), key=lambda stack: stack.count("."))])


def _no_vectors(pretrained: Pretrained) -> str:
    return (
        f"The layers of {pretrained.name} pass on something else than one vector a token, so they cannot be read "
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
    hooks = _last_output(
        pretrained.model, layers_of(pretrained)[-1], full.unflatten(0, (rows, length))
    )
    try:
        output, _ = forward(pretrained, baseline.batch, hooks=hooks)
    except PretrainedError as error:
        if rows == 1:
            raise PretrainedError(_no_vectors(pretrained)) from error
        # What follows the last layer of some families counts the rows of the inputs.
        return torch.cat([_readout(baseline, part) for part in states.split(length)])
    return output.logits.flatten(0, 1)[: len(states)].flip(0)


@contextmanager
def _last_output(model: Any, name: str, states: Float[Tensor, "R T C"]) -> Iterator[None]:
    """Let a layer give R rows of states, whatever it computed from the one that it got."""

    def hook(module: nn.Module, inputs: Any, output: Any) -> Any:
        own = states_of(output)
        rows = own.new_zeros(len(states), *own.shape[1:])  # some families pad the tokens
        rows[:, : states.shape[1]] = states
        return with_states(output, rows)

    with model.get_submodule(name).register_forward_hook(hook):
        yield
