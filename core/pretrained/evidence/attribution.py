"""Direct logit attribution: a logit as a sum of what each part of the model wrote towards it.

Every embedding, head and feed-forward network adds a vector to the residual stream. With the scales of the norms on
that stream held at their values, all that follows is linear, so the logit is the sum of the parts' own shares. What a
part does by way of later layers is counted as theirs. Elhage et al. 2021; Wang et al. 2023, section 3. In models that
fill masks an activation stands before the last norm; it is its input times a gate, as in x·Φ(x), and the gate is held.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from core.hooks import hooked
from core.pretrained.attention_recorder import AttentionCall
from core.pretrained.base import PretrainedError
from core.pretrained.evidence.contributions import output_layer, weight_by_head
from core.pretrained.evidence.question import Baseline
from core.pretrained.evidence.sites import blocks_of, states_of
from core.pretrained.layers import STACK
from core.pretrained.reading import forward
from core.trace import Kind

PASSES = 3  # through the model
CLOSE = 1e-3  # of the logit or the largest part, within which the parts must add up
SAME = 1e-4  # of the largest value, within which a norm is a scaled copy of its input, or a value an activation's
ACTIVATIONS = (F.gelu, partial(F.gelu, approximate="tanh"), F.relu, F.silu, torch.tanh)

LayerKey = tuple[Kind, int]


@dataclass(frozen=True)
class Part:
    """One summand of a logit.

    `role` is embedding, head, feed-forward, or what has the bias: bias (attention), norm, transform (a matrix between
    the last layer and the unembedding) or unembedding. `key` is the layer's (kind, layer) where the part has one;
    `name` says what an embedding is of.
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


@dataclass(eq=False)
class _Stream:
    """One pass along the residual stream: inputs, outputs and probes of modules, and biases with what they are part of.

    `transformed` is the output of the last matrix after the layers.
    """

    inputs: dict[nn.Module, Tensor] = field(default_factory=dict)
    outputs: dict[nn.Module, Tensor] = field(default_factory=dict)
    probes: dict[nn.Module, Tensor] = field(default_factory=dict)
    biases: list[tuple[str, Tensor, Tensor]] = field(default_factory=list)
    transformed: Tensor | None = None


def attribute_logit(baseline: Baseline, output: int, contrast: int | None = None) -> Attribution:
    """The logit of `output`, or its difference from that of `contrast`, at the question's position as a sum of parts.

    PretrainedError where W_O is unknown, and where the parts do not add up: more than norms, matrices and an
    activation stand between the residual stream and the logits, or one module serves as several layers.
    """
    *_, result = attribute_passes(baseline, output, contrast)
    assert result is not None
    return result


def attribute_passes(baseline: Baseline, output: int, contrast: int | None = None) -> Iterator[Attribution | None]:
    """The same pass by pass: None after each of PASSES forward passes but the last one, which gives the parts."""
    pretrained = baseline.pretrained
    if baseline.answer.kind not in ("next", "mask"):
        raise PretrainedError(_nonlinear(baseline))
    writers = _writers(baseline, forward(pretrained, baseline.batch, with_qkv=True)[1].calls)
    yield None
    stream = _Stream()
    passed, _ = forward(pretrained, baseline.batch, probe=True, hooks=_hold(pretrained.model, writers, stream))
    logit = _logit(baseline, passed, output, contrast)
    parts = _stream_parts(writers, stream, logit)
    yield None
    if constant := _constant(baseline, output, contrast):
        parts.append(Part("unembedding", constant))
    result = Attribution(tuple(parts), float(logit.detach()))
    most = max(abs(result.logit), *(abs(part.value) for part in parts))
    if abs(result.total - result.logit) > CLOSE * most:
        raise PretrainedError(_nonlinear(baseline))
    yield result


def _stream_parts(writers: dict[nn.Module, Any], stream: _Stream, logit: Tensor) -> list[Part]:
    """The parts of a logit, by its gradient along the residual stream; an encoder's parts have none."""
    modules, biases = list(stream.probes), stream.biases
    slopes = torch.autograd.grad(logit, [*stream.probes.values(), *(values for *_, values in biases)],
                                 allow_unused=True)
    parts = [part for module, slope in zip(modules, slopes, strict=False) if slope is not None
             for part in _parts(writers[module], module, stream, slope)]
    return [*parts, *(Part(role, float((slope * bias).sum())) for (role, bias, _), slope
                      in zip(biases, slopes[len(modules):], strict=True) if slope is not None)]


def _nonlinear(baseline: Baseline) -> str:
    return (f"The logits of {baseline.pretrained.name} are no sum of what its heads and feed-forward networks wrote: "
            "more than norms, matrices and one activation stands between, or its layers share their weights. Take a "
            "model such as GPT-2, BERT, Llama or T5.")


def _logit(baseline: Baseline, passed: Any, output: int, contrast: int | None) -> Tensor:
    logits = baseline.answer_in(baseline.batch, passed).logits
    assert logits is not None
    return logits[output] if contrast is None else logits[output] - logits[contrast]


def _writers(baseline: Baseline, calls: Sequence[AttentionCall]) -> dict[nn.Module, Any]:
    """The modules that write to the residual stream: a call by its W_O, a block by its feed-forward, embeddings."""
    model = baseline.pretrained.model
    writers: dict[nn.Module, Any] = {module: _embedding_name(name) for name, module in model.named_modules()
                                     if isinstance(module, nn.Embedding)}
    for block in blocks_of(model, calls):
        if block.feed_forward is not None:
            writers[model.get_submodule(block.feed_forward)] = block
    for call in calls:
        linear = output_layer(model, call)
        if linear is None:
            raise PretrainedError(f"The output projection of {call.name} in {baseline.pretrained.name} was not found, "
                                  "so what its heads write is unknown. Take a model such as GPT-2, Llama or T5.")
        writers[linear] = call
    return writers


def _embedding_name(module: str) -> str:
    name = module.rpartition(".")[2].lower()
    return "position" if "pos" in name or name == "wpe" else "segment" if "type" in name else "token"


@contextmanager
def _hold(model: Any, writers: dict[nn.Module, Any], stream: _Stream) -> Iterator[None]:
    """Cut every gradient but that along the residual stream, and hold the scales of its norms and the last gate."""
    norms = [module for module in model.modules() if "Norm" in type(module).__name__]
    after = [module for name, module in model.named_modules() if isinstance(module, nn.Linear)
             and not STACK.match(name) and module not in (*writers, model.get_output_embeddings())]
    with (hooked(module.register_forward_hook(partial(_cut, stream)) for module in writers),
          hooked(module.register_forward_hook(partial(_transformed, stream)) for module in after),
          hooked(module.register_forward_pre_hook(partial(_gated, stream)) for module in norms),
          hooked(module.register_forward_hook(partial(_held, stream)) for module in norms)):
        yield


def _cut(stream: _Stream, module: nn.Module, inputs: Any, output: Any) -> Any:
    """The same output without its gradient, with a probe of zeros added."""
    states = states_of(output).detach()
    if isinstance(inputs[0], Tensor):
        stream.inputs[module] = inputs[0].detach()
    stream.outputs[module] = states
    probe = stream.probes[module] = torch.zeros_like(states, requires_grad=True)
    return (states + probe, *output[1:]) if isinstance(output, tuple) else states + probe


def _transformed(stream: _Stream, linear: nn.Linear, inputs: Any, output: Tensor) -> None:
    """Note what a matrix after the layers gives, and its bias."""
    stream.transformed = output
    if linear.bias is not None and output.requires_grad:
        stream.biases.append(("transform", linear.bias.detach(), output))


def _gated(stream: _Stream, norm: nn.Module, inputs: Any) -> tuple[Tensor, ...] | None:
    """The same input, whose gradient is that of z times a constant, where it is an activation of the matrix's z."""
    x, z = inputs[0], stream.transformed
    if z is None or x.shape != z.shape or not any(_close(x, one(z)) for one in ACTIVATIONS):
        return None
    gate = torch.where(z == 0, 0.0, x / z).detach()
    return (x.detach() + gate * (z - z.detach()), *inputs[1:])


def _close(values: Tensor, others: Tensor) -> bool:
    return bool((values - others).abs().max() <= SAME * others.abs().max())


def _held(stream: _Stream, norm: Any, inputs: Any, output: Tensor) -> Tensor | None:
    """The same output, whose gradient is that of a norm with a constant scale; None for other modules."""
    scaled = _scaled_copy(norm, inputs[0], output.detach())
    if scaled is None:
        return None
    held = output.detach() + scaled - scaled.detach()
    if getattr(norm, "bias", None) is not None:
        stream.biases.append(("norm", norm.bias.detach(), held))
    return held


def _scaled_copy(norm: Any, x: Tensor, output: Tensor) -> Tensor | None:
    """scale · gain · x, or gain · (x − mean), of a layer or RMS norm with its own scale as a constant."""
    gain, bias = getattr(norm, "weight", None), getattr(norm, "bias", None)
    gain = torch.ones(x.shape[-1]) if gain is None else gain.detach()
    linear = output if bias is None else output - bias.detach()
    for wide, centred in ((gain, True), (gain, False), (1 + gain, False)):  # layer norm, RMS norm, Gemma's
        scaled = wide * (x - x.mean(-1, keepdim=True) if centred else x)
        scale = (linear * scaled).sum(-1, keepdim=True) / (scaled * scaled).sum(-1, keepdim=True).clamp(min=1e-30)
        scaled = scaled * scale.detach()
        if _close(scaled, linear):
            return scaled
    return None


def _parts(writer: Any, module: nn.Module, stream: _Stream, slope: Tensor) -> Iterator[Part]:
    """What a module wrote towards the logit; an output projection by its heads, and its bias."""
    if not isinstance(writer, AttentionCall):
        value = float((slope * stream.outputs[module]).sum())
        yield (Part("embedding", value, name=writer) if isinstance(writer, str) else
               Part("feed-forward", value, (writer.kind, writer.layer)))
        return
    key = writer.kind, writer.layer
    matrix = weight_by_head(module, writer.weights.shape[1])  # (H, E, C)
    inputs = stream.inputs[module].unflatten(-1, (matrix.shape[0], -1))
    by_head = torch.einsum("bthe,hec,btc->h", inputs.cpu(), matrix, slope.cpu().expand(*inputs.shape[:2], -1))
    yield from (Part("head", float(value), key, head) for head, value in enumerate(by_head))
    bias = getattr(module, "bias", None)
    if bias is not None:
        yield Part("bias", float((slope * bias).sum()), key)


def _constant(baseline: Baseline, output: int, contrast: int | None) -> float:
    """What the unembedding adds whatever it reads: its logit of a state of zeros."""
    passed, _ = forward(baseline.pretrained, baseline.batch, hooks=_without_states(baseline.pretrained.model))
    return float(_logit(baseline, passed, output, contrast))


@contextmanager
def _without_states(model: Any) -> Iterator[None]:
    with model.get_output_embeddings().register_forward_pre_hook(lambda module, inputs: torch.zeros_like(inputs[0])):
        yield
