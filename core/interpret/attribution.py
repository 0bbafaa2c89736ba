"""Direct logit attribution: a logit as a sum of what each part of the model wrote towards it.

Every embedding, head and feed-forward network adds a vector to the residual stream. With the scales of the norms on
that stream held at their values, all that follows is linear, so the logit is the sum of the parts' own shares. What a
part does by way of later layers is counted as theirs. Elhage et al. 2021; Wang et al. 2023, section 3. In models that
fill masks an activation stands before the last norm; it is its input times a gate, as in x·Φ(x), and the gate is held.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only
from torch.utils.hooks import RemovableHandle

from core.hooks import hooked
from core.interpret.evidence import Baseline, output_matrix
from core.interpret.patching import FEED_FORWARD
from core.interpret.trace import LayerKey
from core.pretrained.attention_recorder import (
    MIXERS,
    STACK,
    SUBSTITUTES,
    AttentionCall,
    output_embeddings,
)
from core.pretrained.base import PretrainedError
from core.pretrained.reading import forward

PASSES = 3  # through the model
CLOSE = 1e-3  # of the logit or the largest part, within which the parts must add up
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

    @property
    def total(self) -> float:
        return sum(part.value for part in self.parts)


@dataclass(frozen=True, eq=False)
class _Write:
    """What one run of a module gave, and the zero added to it; `heads` are W_O's inputs, `calls` those so far."""

    name: str
    output: Tensor
    probe: Tensor
    heads: Tensor | None
    calls: int


@dataclass(eq=False)
class _Stream:
    """One pass along the residual stream: what modules gave, in order, and biases with what they are part of.

    `transformed` is the output of the last matrix after the layers.
    """

    writes: list[_Write] = field(default_factory=list)
    biases: list[tuple[str, Tensor, Tensor]] = field(default_factory=list)
    calls: int = 0
    transformed: Tensor | None = None


def attribute_logit(baseline: Baseline, output: int, contrast: int | None = None) -> Attribution:
    """The logit of `output`, or its difference from that of `contrast`, at the question's position as a sum of parts.

    PretrainedError where W_O is unknown, and where the parts do not add up: more than norms, matrices and an
    activation stand between the residual stream and the logits, or one module serves as several layers.
    """
    *_, result = attribute_passes(baseline, output, contrast)
    assert result is not None
    return result


def attribute_passes(
    baseline: Baseline, output: int, contrast: int | None = None
) -> Iterator[Attribution | None]:
    """The same pass by pass: None after each of PASSES forward passes but the last one, which gives the parts."""
    pretrained, batch = baseline.pretrained, baseline.batch
    if baseline.answer.kind not in ("next", "mask"):
        raise PretrainedError(
            f"The answer of {pretrained.name} is no token but "
            f"{'a class' if baseline.answer.kind == 'class' else 'an embedding'}, and only the logit "
            "of a token is told apart into parts. Take a model such as GPT-2, BERT, Llama or T5."
        )
    calls = forward(pretrained, batch, with_qkv=True)[1].calls
    for call in calls:
        if call.gated is None:
            raise PretrainedError(
                f"The output projection of {call.name} in {pretrained.name} was not found, so what "
                "its heads write is unknown. Take a model such as GPT-2, Llama or T5."
            )
    yield None
    stream = _Stream()
    hold = _hold(pretrained.model, calls, stream)
    try:
        passed, _ = forward(pretrained, batch, probe=True, hooks=hold)
    except PretrainedError as error:  # a hook changed what the family's code needs
        raise PretrainedError(_nonlinear(baseline)) from error
    logit = _logit(baseline, passed, output, contrast)
    parts = _stream_parts(pretrained.model, calls, stream, logit)
    yield None
    # What the unembedding adds whatever it reads: its logit of a state of zeros.
    zeros = hooked(
        layer.register_forward_pre_hook(lambda module, inputs: torch.zeros_like(inputs[0]))
        for layer in [output_embeddings(pretrained.model)]
    )
    passed, _ = forward(pretrained, batch, hooks=zeros)
    if constant := float(_logit(baseline, passed, output, contrast)):
        parts.append(Part("unembedding", constant))
    result = Attribution(tuple(parts), float(logit.detach()))
    most = max(abs(result.logit), *(abs(part.value) for part in parts))
    if not abs(result.total - result.logit) <= CLOSE * most:
        raise PretrainedError(_nonlinear(baseline))
    yield result


def _stream_parts(
    model: Any, calls: Sequence[AttentionCall], stream: _Stream, logit: Tensor
) -> list[Part]:
    """The parts of a logit, by its gradient along the residual stream; an encoder's parts have none."""
    if not logit.requires_grad:
        return []
    held = [*(write.probe for write in stream.writes), *(values for *_, values in stream.biases)]
    slopes = torch.autograd.grad(logit, held, allow_unused=True)
    sums: dict[Part, float] = {}  # by the part without its value
    for write, slope in zip(stream.writes, slopes, strict=False):
        for part in [] if slope is None else _parts(model, calls, write, slope):
            same = replace(part, value=0.0)
            sums[same] = sums.get(same, 0.0) + part.value
    biases = zip(stream.biases, slopes[len(stream.writes) :], strict=True)
    return [
        *(replace(part, value=value) for part, value in sums.items()),
        *(
            Part(role, float((slope * bias).sum()))
            for (role, bias, _), slope in biases
            if slope is not None
        ),
    ]


def _nonlinear(baseline: Baseline) -> str:
    return (
        f"The logits of {baseline.pretrained.name} are no sum of what its embeddings, heads and feed-forward "
        "networks write through norms and matrices: something else adds to them or changes them, such as a cap on "
        "the logits, several streams, or positions without an embedding. Take a model such as GPT-2, BERT, Llama "
        "or T5."
    )


def _logit(baseline: Baseline, passed: Any, output: int, contrast: int | None) -> Tensor:
    logits = baseline.answer_in(baseline.batch, passed).logits
    assert logits is not None
    return logits[output] if contrast is None else logits[output] - logits[contrast]


def _block(name: str) -> str:
    """The layer of a stack that a module is in, or else what its attention is beside."""
    match = STACK.match(name)
    return f"{match['stack']}.{match['number']}" if match else name.rpartition(".")[0]


def _hold(
    model: Any, calls: Sequence[AttentionCall], stream: _Stream
) -> AbstractContextManager[None]:
    """Cut every gradient but that along the residual stream, and hold the scales of its norms and the last gate.

    Of the layers all modules with matrices of their own are cut, so that what is left is the stream itself, norms, and
    numbers that a part is multiplied by.
    """
    blocks = tuple({f"{_block(call.name)}." for call in calls})
    outputs = {call.output for call in calls}
    around = {name for call in calls for name in _prefixes(call.name)}  # they give on the stream
    last = output_embeddings(model)

    def hooks() -> Iterator[RemovableHandle]:
        for name, module in model.named_modules():
            inside = STACK.match(name) is not None or name.startswith(blocks)
            if "Norm" in type(module).__name__:
                yield module.register_forward_pre_hook(partial(_gated, stream))
                yield module.register_forward_hook(partial(_held, stream))
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
                yield module.register_forward_hook(partial(_cut, stream, name, module in outputs))
            elif isinstance(module, nn.Linear) and not inside and module is not last:
                yield module.register_forward_hook(partial(_transformed, stream))

    return hooked(hooks())


def _embeds(module: nn.Module) -> bool:
    """Whether a module is an embedding, learned or of sines."""
    sines = re.search("Position\\w*Embedding", type(module).__name__) and not any(
        True for _ in module.parameters()
    )
    return isinstance(module, nn.Embedding) or bool(sines)


def _prefixes(name: str) -> list[str]:
    """The names of a module and of all that it is in."""
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(len(parts) + 1)]


def _cut(
    stream: _Stream, name: str, attends: bool, module: nn.Module, inputs: Any, output: Any
) -> Any:
    """The same output without its gradient, with probes of zeros added."""

    def detached(values: Tensor) -> Tensor:
        if not values.is_floating_point():
            return values
        probe = torch.zeros_like(values, requires_grad=True)
        heads = inputs[0].detach() if attends else None
        stream.writes.append(_Write(name, values.detach(), probe, heads, stream.calls))
        return values.detach() + probe

    stream.calls += attends
    return tree_map_only(Tensor, detached, output)


def _transformed(stream: _Stream, linear: nn.Linear, inputs: Any, output: Tensor) -> None:
    """Note what a matrix after the layers gives, and its bias."""
    stream.transformed = output
    if linear.bias is not None and output.requires_grad:
        stream.biases.append(("transform", linear.bias.detach(), output))


def _gated(stream: _Stream, norm: nn.Module, inputs: Any) -> tuple[Tensor, ...] | None:
    """The same input, whose gradient is that of z times a constant, where it is an activation of the matrix's z."""
    x, z = inputs[0] if inputs else None, stream.transformed
    if z is None or not isinstance(x, Tensor) or x.shape != z.shape:
        return None
    if not any(_close(x, one(z)) for one in ACTIVATIONS):
        return None
    gate = torch.where(z == 0, 0.0, x / z).detach()
    return (x.detach() + gate * (z - z.detach()), *inputs[1:])


def _close(values: Tensor, others: Tensor) -> bool:
    return bool((values - others).abs().max() <= SAME * others.abs().max())


def _held(stream: _Stream, norm: Any, inputs: Any, output: Tensor) -> Tensor | None:
    """The same output, whose gradient is that of a norm with a constant scale; None for other modules."""
    if not inputs or not all(
        isinstance(one, Tensor) and one.is_floating_point() for one in (inputs[0], output)
    ):
        return None
    whole = inputs[0].shape == output.shape and inputs[0].numel() > 0
    scaled = _scaled_copy(norm, inputs[0], output.detach()) if whole else None
    if scaled is None or not scaled.requires_grad:
        return None
    held = output.detach() + scaled - scaled.detach()
    if getattr(norm, "bias", None) is not None:
        stream.biases.append(("norm", norm.bias.detach(), held))
    return held


def _scaled_copy(norm: Any, x: Tensor, output: Tensor) -> Tensor | None:
    """scale · gain · x, or gain · (x − mean), of a layer or RMS norm with its own scale as a constant."""
    gain, bias = getattr(norm, "weight", None), getattr(norm, "bias", None)
    gain = torch.ones(x.shape[-1]) if gain is None else gain.detach()
    if gain.shape != x.shape[-1:]:  # a norm of channels
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


def _parts(
    model: Any, calls: Sequence[AttentionCall], write: _Write, slope: Tensor
) -> Iterator[Part]:
    """What a module wrote towards the logit; an output projection by its heads, and its bias."""
    if write.heads is not None:
        call = calls[write.calls - 1]
        matrix, bias = output_matrix(call), getattr(call.output, "bias", None)
        assert matrix is not None
        inputs = write.heads.cpu().reshape(*slope.shape[:-1], *matrix.shape[:2])
        by_head = torch.einsum("...he,hec,...c->h", inputs, matrix, slope.cpu())
        yield from (
            Part("head", float(value), (call.kind, call.layer), head)
            for head, value in enumerate(by_head)
        )
        if bias is not None:
            yield Part("bias", float((slope * bias).sum()), (call.kind, call.layer))
        return
    value = float((slope * write.output).sum())
    module = model.get_submodule(write.name)
    if _embeds(module) and STACK.match(write.name) is None:
        own = write.name.rpartition(".")[2].lower()
        positions = "pos" in own or own == "wpe"
        name = "position" if positions else "segment" if "type" in own else "token"
        yield Part("embedding", value, name=name)
        return
    block = _block(write.name)
    around = [
        type(model.get_submodule(name)).__name__
        for name in _prefixes(write.name)
        if name.startswith(f"{block}.")
    ]
    mixes = any(re.fullmatch(rule, name) for rule, _ in MIXERS for name in around) or any(
        write.name.startswith(f"{call.name}.") for call in calls
    )
    here = [
        (index, call)
        for index, call in enumerate(calls)
        if f"{write.name}.".startswith(f"{_block(call.name)}.") and call.kind != "cross"
    ]
    before = [call for index, call in here if index < write.calls]
    key = next(
        ((call.kind, call.layer) for call in (*before[-1:], *(call for _, call in here))), None
    )
    match = STACK.match(write.name)
    yield Part(
        "mixer" if mixes else "feed-forward",
        value,
        key,
        name="" if key is not None or match is None else f"L{match['number']}",
    )
