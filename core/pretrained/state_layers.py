"""The matrix of a layer without softmax: with what weight each token reaches each later one through its state.

A state layer (a delta rule, Mamba, a linear recurrence, a short convolution) is linear in its values once its other inputs
are given. So the library's own function, called once more with the unit vectors of time as values, returns the very
matrix: decay, removal of keys, norms inside the function and a skip (D) included. Its weights may be negative, and its
rows sum to anything. Ali et al. 2024, The Hidden Attention of Mamba Models; Dao & Gu 2024, section 3, for Mamba-2.

Where the values of a head share a coefficient there is a matrix a head; in Mamba-1, RWKV and the like each channel has
one of its own, and the matrices that are drawn are the means of groups of neighbouring channels.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

MAX_GROUPS = 8  # maps of a layer whose channels have a matrix each
UNITS = 2**24  # numbers of the states of one call with unit vectors: 64 MB


@dataclass(frozen=True)
class Kernel:
    """A function of the library that is linear in one argument.

    `axes` are those of `values`: b row, t time, h head, d dimension of a head, c channel with a matrix of its own. `state` is
    the argument with what earlier calls left, `gate` one that multiplies the result by its SiLU, `constant` one that is
    added to it.
    """

    values: str
    axes: str
    state: str = ""
    gate: str = ""
    constant: str = ""

    @property
    def by_channel(self) -> bool:
        return "c" in self.axes


DELTA = Kernel("value", "bthd", "initial_state")
CONVOLUTION = Kernel("hidden_states", "bct", constant="bias")
# By the names of the library's functions, of a method and of the forward pass of a module.
KERNELS: Mapping[str, Kernel] = {
    **dict.fromkeys(
        (
            "torch_chunk_gated_delta_rule",
            "torch_recurrent_gated_delta_rule",
            "chunk_kimi_delta_attention",
            "recurrent_kimi_delta_attention",
        ),
        DELTA,
    ),
    "mamba2_chunk_scan": Kernel("hidden_states", "bthd", "initial_states"),
    "mamba2_selective_state_update": Kernel("hidden_states", "bhd", "state", "z"),
    "mamba_selective_scan": Kernel("hidden_states", "bct", gate="z"),
    "mamba_selective_state_update": Kernel("hidden_states", "bc", "state", "z"),
    "rwkv_linear_attention": Kernel("value", "btc", "state"),
    "_rnn_scan": Kernel("hidden_states", "btc", "recurrent_states"),
    "xLSTMBackend": Kernel("value", "bhtd", "c_initial"),
    "causal_conv1d_fn": CONVOLUTION,
}


def by_heads(values: Tensor, axes: str, groups: int = 1) -> Float[Tensor, "B T H E"]:
    """Values, or a result, with the axes of a kernel: by row, time, head and dimension; channels as `groups` heads."""
    for place, axis in enumerate("bt"):
        if axis not in axes:  # one step
            values, axes = values.unsqueeze(place), axes[:place] + axis + axes[place:]
    if "c" in axes:
        return torch.einsum(f"{axes}->btc", values).unflatten(-1, (groups, -1))
    return torch.einsum(f"{axes}->bthd", values)


def as_given(heads: Float[Tensor, "B T H E"], axes: str) -> Tensor:
    """The inverse of `by_heads`."""
    one_step = "t" not in axes
    heads = heads[:, 0] if one_step else heads
    names = "bhd" if one_step else "bthd"
    if "c" in axes:
        heads, names = heads.flatten(-2), names[:-2] + "c"
    return torch.einsum(f"{names}->{axes}", heads)


def groups_of(kernel: Kernel, values: Tensor) -> int:
    """The number of groups of neighbouring channels: at most 8, of one size."""
    if not kernel.by_channel:
        return 1
    channels = values.shape[kernel.axes.index("c")]
    return next(count for count in range(MAX_GROUPS, 0, -1) if channels % count == 0)


@torch.no_grad()
def state_matrix(
    function: Callable[..., Any],
    kernel: Kernel,
    given: inspect.BoundArguments,
    groups: int | None = None,
) -> Float[Tensor, "B H T S"]:
    """The weight of each earlier token (S) in the result at each token (T), by head or by channel.

    With `groups`, channels as the means of so many groups. Computed in blocks of S, so the memory beside the matrix is
    bounded.
    """
    values, axes = given.arguments[kernel.values], kernel.axes
    rows, time, *sizes = by_heads(values, axes).shape
    eye = torch.eye(time, dtype=values.dtype, device=values.device)
    per_unit = values.numel() * (16 if kernel.by_channel else 1) // (1 if kernel.by_channel else sizes[1])
    blocks = []
    for units in eye.split(max(1, UNITS // per_unit)):
        if kernel.by_channel:  # a row of the batch for each unit vector
            wide = units[:, None, :, None, None].expand(-1, rows, -1, *sizes).flatten(0, 1)
            result = _call(function, kernel, given, as_given(wide, axes), len(units))
            block = by_heads(result, axes, groups or sizes[1]).unflatten(0, (-1, rows)).mean(-1)
            blocks.append(block.permute(1, 3, 2, 0))
        else:  # a dimension of the values for each
            wide = units.mT[None, :, None].expand(rows, -1, sizes[0], -1)
            result = by_heads(_call(function, kernel, given, as_given(wide, axes)), axes)
            blocks.append(result.transpose(1, 2))
    return torch.cat(blocks, -1)


@torch.no_grad()
def carried(function: Callable[..., Any], kernel: Kernel, given: inspect.BoundArguments) -> Tensor:
    """What the result has beside matrix times values: of the state that earlier calls left, and of a constant."""
    zeros, kept = torch.zeros_like(given.arguments[kernel.values]), given.arguments.get(kernel.state)
    again = inspect.BoundArguments(given.signature, dict(given.arguments))  # type: ignore[arg-type]
    again.arguments[kernel.values] = zeros
    if isinstance(kept, Tensor):  # a step changes it in place
        again.arguments[kernel.state] = kept.clone()
    return first(function(*again.args, **again.kwargs))


@torch.no_grad()
def decayed_products(
    q: Float[Tensor, "B H T D"], k: Float[Tensor, "B H T D"], slope: Float[Tensor, "H 1 1"]
) -> Float[Tensor, "B H T T"]:
    """q·k times exp(−slope · distance), for earlier tokens: lightning attention. Qin et al. 2024, equation 8."""
    at = torch.arange(q.shape[2], device=q.device)
    distance = at[:, None] - at
    return ((q @ k.mT) * torch.exp(-slope * distance.clamp(min=0))).tril()


def _call(
    function: Callable[..., Any],
    kernel: Kernel,
    given: inspect.BoundArguments,
    values: Tensor,
    times: int = 1,
) -> Tensor:
    """The function on other values, from an empty state, without its gate and its constant."""
    again = inspect.BoundArguments(given.signature, dict(given.arguments))  # type: ignore[arg-type]
    for name in filter(None, (kernel.gate, kernel.constant)):
        again.arguments[name] = None
    if times > 1:
        rows = given.arguments[kernel.values].shape[0]
        for name, value in again.arguments.items():
            if isinstance(value, Tensor) and value.ndim >= min(3, len(kernel.axes)) and len(value) == rows:
                again.arguments[name] = value.repeat(times, *[1] * (value.ndim - 1))
    if kernel.state in again.arguments:
        kept = again.arguments[kernel.state]
        step = isinstance(kept, Tensor) and "t" not in kernel.axes
        again.arguments[kernel.state] = torch.zeros_like(kept) if step else None
    again.arguments[kernel.values] = values.contiguous()
    return first(function(*again.args, **again.kwargs))


def first(result: Any) -> Tensor:
    """The output of a function that may return its state as well."""
    return result[0] if isinstance(result, tuple) else result


@cache
def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)
