"""W_Q, W_K, W_V and W_O of every head of any family, with the norms' gains folded in.

Families name and fuse these matrices in a dozen ways. So none is looked up by name: each attention gets the unit
vectors as its input, one a row of a batch, and its queries, keys and values are the rows of its matrices. At a single
token rotations turn by nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from core.hooks import hooked
from core.pretrained.attention_recorder import AttentionCall, repeat_kv
from core.pretrained.base import Array, ModelInputs, Pretrained, PretrainedError
from core.pretrained.evidence.contributions import output_matrix
from core.pretrained.layers import numbers_by_layer
from core.pretrained.reading import Batch, encode, forward
from core.trace import Kind

LINEAR = 1e-3  # how far, as a share, a linear map may be from the sum of its rows
STATES, MEMORY = "hidden_states", ("key_value_states", "encoder_hidden_states")


@dataclass(frozen=True, eq=False)
class HeadMatrices:
    """The matrices of one attention by head, which act from the left: q = x W_Q, out = x W_V W_O. Biases are left out.

    A norm before them is folded in: its gain scales the rows, and a LayerNorm's centering is a projection. So is a norm
    right before or after W_O. Where a gate multiplies the heads' outputs by numbers of the query's token (`gated`), the
    matrices are those of a gate of 1. `w_q` and `w_k` are None where queries or keys are normalized themselves, so that
    no matrix makes them. Query heads that share a key and value head each have a copy; there are `kv_heads` of them.
    `layer` is its index among the layers of its kind, `number` the model's own number of the layer. Scores are
    `scale` q·k, by default 1/√D.
    """

    kind: Kind
    layer: int
    w_q: Float[Tensor, "H C D"] | None
    w_k: Float[Tensor, "H X D"] | None
    w_v: Float[Tensor, "H X E"]
    w_o: Float[Tensor, "H E Y"]
    kv_heads: int
    number: int
    scale: float | None = None
    gated: bool = False

    @property
    def writes(self) -> Kind:
        """The stream that it adds to: the encoder's, named self, or the decoder's, causal."""
        return "self" if self.kind == "self" else "causal"

    @property
    def reads(self) -> Kind:
        """The stream that keys and values come from."""
        return "causal" if self.kind == "causal" else "self"


@dataclass(eq=False)
class NormCalls:
    """The norms of a forward pass in order, with what went in and came out."""

    calls: list[tuple[Any, Tensor, Tensor]] = field(default_factory=list)

    def before(self, states: Tensor) -> Any:
        """The norm whose output these states are; None without one."""
        return next((norm for norm, _, out in reversed(self.calls) if _same(out, states)), None)

    def making(self, heads: Float[Tensor, "N T H E"]) -> tuple[Any, Tensor]:
        """The norm whose output these are, of all heads together (N, T, H·E) or of each, and its input; else they."""
        return next(
            (
                (norm, given)
                for norm, given, out in reversed(self.calls)
                if out.data_ptr() == heads.data_ptr() and out.numel() == heads.numel()
            ),
            (None, heads),
        )

    def after(self, states: Tensor) -> Any:
        """The norm whose input these states are."""
        return next((norm for norm, given, _ in self.calls if _same(given, states)), None)


def read_heads(pretrained: Pretrained) -> tuple[HeadMatrices, ...]:
    """The matrices of each attention in the order in which they run.

    PretrainedError where a layer's values are no linear map of its input, or its W_O was not found.
    """
    batch = blank_batch(pretrained)
    _, whole = forward(pretrained, batch, with_qkv=True)
    modules = [call.module for call in whole.calls]
    if not modules:
        raise PretrainedError(
            f"{pretrained.name} has no layer whose matrices can be read. Take a model such as BERT, "
            "GPT-2 or Llama."
        )
    if any(hasattr(module, "lambda_init") for module in modules):
        raise PretrainedError(
            f"{pretrained.name} subtracts the weights of one head from those of another, so no head "
            "has a circuit of its own. Take a model such as BERT, GPT-2 or Llama."
        )
    norms, inputs = NormCalls(), list[_Probe]()
    first = {
        name: values[:, :1] if values.dtype == torch.long else values
        for name, values in batch.items()
    }
    try:
        _, recorder = forward(
            pretrained,
            first,
            with_qkv=True,
            hooks=_probes(pretrained.model, modules, norms, inputs),
        )
    except PretrainedError as error:
        raise PretrainedError(
            f"The attention of {pretrained.name} takes more than the state of one token, so its "
            "matrices cannot be read from unit vectors. Take a model such as BERT, GPT-2 or "
            "Llama."
        ) from error
    numbers = numbers_by_layer(pretrained.model, whole.calls)
    return tuple(
        _matrices(
            pretrained,
            replace(call, kind=one.kind, layer=one.layer),
            numbers[one.kind, one.layer],
            norms,
            probe,
        )
        for call, one, probe in zip(recorder.calls, whole.calls, inputs, strict=True)
    )


def blank_batch(pretrained: Pretrained) -> Batch:
    """A few letters, a blank picture, or silence: something to run the model on, which no result depends on."""
    inputs = ModelInputs(
        "a b c",
        target="a b c",
        picture=Array.of(np.zeros((16, 16), np.float32)),
        sound=Array.of(np.zeros(16_000, np.float32)),
    )
    return encode(pretrained, inputs)[0]


@contextmanager
def watch_norms(model: Any, norms: NormCalls) -> Iterator[None]:
    """Note each norm that runs in a pass."""

    def watch(module: Any, args: tuple[Any, ...], output: Any) -> None:
        if args and isinstance(args[0], Tensor) and isinstance(output, Tensor):
            norms.calls.append((module, args[0], output))

    with hooked(
        module.register_forward_hook(watch)
        for module in model.modules()
        if "norm" in type(module).__name__.lower() and not list(module.children())
    ):
        yield


@dataclass(eq=False)
class _Probe:
    """What one attention would have read, what its keys and values would have, and its output."""

    states: Tensor
    memory: Tensor
    out: Tensor | None = None


@contextmanager
def _probes(
    model: Any, modules: Sequence[Any], norms: NormCalls, inputs: list[_Probe]
) -> Iterator[None]:
    """While a pass runs, give each attention a row of zeros, the unit vectors, and one more vector.

    What it adds to the model is that of the first row alone, so that all else runs on one row.
    """

    def enter(
        module: Any, args: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        states = args[0] if args else options[STATES]
        other = next((name for name in MEMORY if options.get(name) is not None), None)
        inputs.append(_Probe(states, states if other is None else options[other]))
        rows = 2 + max(inputs[-1].states.shape[-1], inputs[-1].memory.shape[-1])
        changes = {} if other is None else {other: _unit_rows(rows, options[other])}
        if args:
            return (_unit_rows(rows, states), *args[1:]), options | changes
        return args, options | changes | {STATES: _unit_rows(rows, states)}

    def leave(module: Any, args: Any, output: Any) -> Any:
        out, *others = output if isinstance(output, tuple) else (output,)
        inputs[-1].out = out[:1]
        return (out[:1], *others) if isinstance(output, tuple) else out[:1]

    attentions = list(dict.fromkeys(modules))
    with (
        hooked(module.register_forward_pre_hook(enter, with_kwargs=True) for module in attentions),
        hooked(module.register_forward_hook(leave) for module in attentions),
        watch_norms(model, norms),
    ):
        yield


def _unit_rows(rows: int, states: Float[Tensor, "1 T C"]) -> Float[Tensor, "N 1 C"]:
    """Zeros, a unit vector for each dimension, zeros up to the number of rows, and at the end `_mixture`."""
    size = states.shape[-1]
    units = states.new_zeros(rows, 1, size)
    units[1 : size + 1, 0], units[-1, 0] = torch.eye(size), _mixture(size)
    return units


def _mixture(size: int) -> Float[Tensor, " C"]:
    """A vector in which every dimension takes part."""
    return torch.arange(1.0, size + 1).sin()


def _matrices(pretrained: Pretrained, call: AttentionCall, number: int, norms: NormCalls,
              probe: _Probe) -> HeadMatrices:  # fmt: skip
    assert call.q is not None and call.k is not None and call.v is not None
    heads = call.q.shape[1]
    sizes = {"states": probe.states.shape[-1], "memory": probe.memory.shape[-1]}
    before = {"states": norms.before(probe.states), "memory": norms.before(probe.memory)}

    def matrix(values: Tensor, side: str) -> Tensor | None:
        rows = _linear(repeat_kv(values, heads)[:, :, 0], sizes[side])
        return None if rows is None else fold_gain(rows, before[side])

    w_q, w_k, w_v = matrix(call.q, "states"), matrix(call.k, "memory"), matrix(call.v, "memory")
    w_o = output_matrix(call)
    if w_v is None or w_o is None:
        raise PretrainedError(
            f"{pretrained.name} makes its values, or its heads' outputs, by more than one matrix, so "
            "its circuits cannot be read from the weights. Take a model such as BERT, GPT-2 or "
            "Llama."
        )
    assert call.out is not None and call.gated is not None
    norm, given = norms.making(call.gated)
    if norm is not None:
        rows = w_o.flatten(0, 1) if given.ndim == 3 else w_o
        w_o = fold_gain(rows, norm).reshape(w_o.shape)
    after = None if probe.out is None else norms.after(probe.out)
    if after is not None:
        w_o = fold_gain(w_o.mT, after).mT
    scale = call.options.get("scaling")
    linear = w_q is not None and w_k is not None
    return HeadMatrices(
        call.kind,
        call.layer,
        w_q if linear else None,
        w_k if linear else None,
        w_v,
        w_o.float(),
        call.k.shape[1],
        number,
        None if scale is None else float(scale),
        not torch.equal(call.out[: len(given)], given.reshape(-1, *call.out.shape[1:])),
    )


def _linear(values: Float[Tensor, "N H D"], size: int) -> Float[Tensor, "H C D"] | None:
    """The matrix whose rows the unit vectors gave; None where it is not what makes the last row."""
    rows, last = (values[1 : size + 1] - values[0]).float(), (values[-1] - values[0]).float()
    expected = torch.einsum("c,chd->hd", _mixture(size), rows)
    return rows.transpose(0, 1) if bool((expected - last).norm() <= LINEAR * last.norm()) else None


def fold_gain(matrix: Float[Tensor, "... C D"], norm: Any) -> Float[Tensor, "... C D"]:
    """P diag(γ) W: a norm's gain scales the rows of a matrix after it; a LayerNorm's also have their mean removed."""
    if norm is None:
        return matrix
    gain, centers = norm_gain(norm, matrix.shape[-2])
    matrix = gain[:, None] * matrix
    return matrix - matrix.mean(-2, keepdim=True) if centers else matrix


def norm_gain(norm: Any, size: int) -> tuple[Float[Tensor, " C"], bool]:
    """The gain of a norm by what it makes of ±1000 in turn, and whether it removes the mean.

    Some families store the gain, others the gain less 1.
    """
    values = 1000.0 * (1 - 2 * (torch.arange(size) % 2))
    with torch.no_grad():
        device = next(norm.parameters(), values).device
        plus, minus, moved = (
            norm(torch.stack([values, -values, values + 1000]).to(device)).float().cpu()
        )
    centers = torch.allclose(plus, moved, atol=1e-3)
    unit = (
        (values - values.mean()) / values.std(correction=0)
        if centers
        else values / values.square().mean().sqrt()
    )
    return (plus - minus) / (2 * unit), centers


def _same(one: Tensor, other: Tensor) -> bool:
    return one.data_ptr() == other.data_ptr() and one.shape == other.shape
