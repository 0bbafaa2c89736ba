"""The matrix of a layer without softmax: with what weight each token reaches each later one through its state.

A state layer (a delta rule, Mamba, a linear recurrence, a short convolution) is linear in its values once its other inputs
are given. So the library's own function, called once more with the unit vectors of time as values, returns the very
matrix: decay, removal of keys, norms inside the function and a skip (D) included. Its weights may be negative, and its
rows sum to anything. Ali et al. 2024, The Hidden Attention of Mamba Models; Dao & Gu 2024, section 3, for Mamba-2.

Where the values of a head share a coefficient there is a matrix a head; in Mamba-1, RWKV and the like each channel has
one of its own, and the matrices that are drawn are the means of groups of neighbouring channels.
"""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

MAX_GROUPS = 8  # maps of a layer whose channels have a matrix each
UNITS = 2**24  # numbers of the states of one call with unit vectors: 64 MB


@dataclass(frozen=True)
class Kernel:
    """A function of the library that is linear in one argument.

    `name` says what the layer is. `axes` are those of `values`: b row, t time, h head, d dimension of a head, c channel with
    a matrix of its own. `state` is the argument with what earlier calls left, with its axes after a colon (of several the
    first is linear in the values), `gate` one that multiplies the result by its SiLU, `constant` one that is added to it.
    """

    name: str
    values: str
    axes: str
    state: str = ""
    gate: str = ""
    constant: str = ""

    @property
    def by_channel(self) -> bool:
        return "c" in self.axes


GROUPS = "H: groups of channels"  # of kernels by channel, whose maps are no heads
DELTA = Kernel("a gated delta rule", "value", "bthd", "initial_state:bhkd")
CONVOLUTION = Kernel(f"a short convolution ({GROUPS})", "hidden_states", "bct", constant="bias")
MAMBA, MAMBA2 = (f"a selective state space ({name})" for name in (f"Mamba; {GROUPS}", "Mamba-2"))
LIGHTNING = "lightning attention (linear)"  # its code is no function: see `decayed_products`
SCAN = "mamba_selective_scan"
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
    "mamba2_chunk_scan": Kernel(MAMBA2, "hidden_states", "bthd", "initial_states:bhdn"),
    "mamba2_selective_state_update": Kernel(MAMBA2, "hidden_states", "bhd", "state:bhdn", "z"),
    SCAN: Kernel(MAMBA, "hidden_states", "bct", gate="z"),
    "mamba_selective_state_update": Kernel(MAMBA, "hidden_states", "bc", "state:bcn", "z"),
    "rwkv_linear_attention": Kernel(
        f"a decaying average (RWKV; {GROUPS})", "value", "btc", "state:bc"
    ),
    "_rnn_scan": Kernel(
        f"a gated linear recurrence ({GROUPS})", "hidden_states", "btc", "recurrent_states:bc"
    ),
    "xLSTMBackend": Kernel("a matrix memory (mLSTM)", "value", "bhtd", "c_initial:bhkd"),
    "causal_conv1d_fn": CONVOLUTION,
    "causal_conv1d_update": replace(CONVOLUTION, state="conv_state:bck"),
}


def by_heads(values: Tensor, axes: str, groups: int = 1) -> Float[Tensor, "B T H E"]:
    """Values, or a result, with the axes of a kernel: by row, time, head and dimension; channels as `groups` heads."""
    if "t" not in axes:  # one step
        values, axes = values.unsqueeze(1), f"{axes[0]}t{axes[1:]}"
    if "c" in axes:
        return torch.einsum(f"{axes}->btc", values).unflatten(-1, (groups, -1))
    return torch.einsum(f"{axes}->bthd", values)


def as_given(heads: Float[Tensor, "B T H E"], axes: str) -> Tensor:
    """The inverse of `by_heads`."""
    if "c" in axes:
        return torch.einsum(f"btc->{axes}", heads.flatten(-2))
    return torch.einsum(f"bthd->{axes}", heads)  # of one step t is 1, which is summed


def groups_of(kernel: Kernel, values: Tensor, calls: int = 1) -> int:
    """The number of groups of neighbouring channels, all of one size: at most 8 in the calls of one layer."""
    if not kernel.by_channel:
        return 1
    channels = values.shape[kernel.axes.index("c")]
    return next(count for count in range(MAX_GROUPS // calls, 0, -1) if channels % count == 0)


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
    if groups and function.__name__ == SCAN:
        scanned: dict[str, Any] = {name: given.arguments.get(name) for name in SCANNED}
        return scan_matrix(**scanned, groups=groups)
    eye = torch.eye(time, dtype=values.dtype, device=values.device)
    per_unit = values.numel() // (1 if kernel.by_channel else sizes[1])
    blocks = []
    for units in eye.split(max(1, UNITS // per_unit)):
        if kernel.by_channel:  # a row of the batch for each unit vector
            wide = units[:, None, :, None, None].expand(-1, rows, -1, *sizes).flatten(0, 1)
            result = _call(function, kernel, given, as_given(wide, axes), len(units))
            block = by_heads(result, axes, groups or sizes[1]).unflatten(0, (-1, rows)).mean(-1)
            blocks.append(block.permute(1, 3, 2, 0))
        else:  # a dimension of the values for each; of one step all dimensions
            width = len(units) if "t" in axes else sizes[1]
            wide = units.mT[None, :, None].expand(rows, -1, sizes[0], width)
            result = by_heads(_call(function, kernel, given, as_given(wide, axes)), axes)
            blocks.append(result.transpose(1, 2)[..., : len(units)])
    return torch.cat(blocks, -1)


FADED = 1e-12  # a weight below is 0: products of still smaller numbers take a processor ten times longer
SCANNED = ("dt", "A", "B", "C", "D", "delta_bias", "delta_softplus")  # its arguments in the library


def scan_matrix(
    dt: Float[Tensor, "B C T"],
    A: Float[Tensor, "C N"],
    B: Float[Tensor, "B N T"],
    C: Float[Tensor, "B N T"],
    D: Float[Tensor, " C"] | None,
    delta_bias: Float[Tensor, " C"] | None,
    delta_softplus: bool,
    groups: int,
) -> Float[Tensor, "B H T T"]:
    """The matrix of Mamba's selective scan, a mean over each group of channels: Σ_n C_t exp(A (S_t − S_s)) Δ_s B_s.

    S is the sum of Δ so far. Gu and Dao 2023, equations 2 to 4. One call with unit vectors a token would take minutes:
    here a block of queries reads all keys before it by one product, exp(A (S_t − S_0)) times exp(A (S_0 − S_s)), where
    S_0 is at the last token before the block.
    """
    dt = dt if delta_bias is None else dt + delta_bias[:, None]
    dt = torch.nn.functional.softplus(dt) if delta_softplus else dt
    total = dt.double().cumsum(-1)[:, :, None]  # (B, C, 1, T); differences of long sums
    rates, time, last = A[:, :, None], dt.shape[-1], total[..., :1]
    keys, matrix = dt[:, :, None] * B[:, None], dt.new_zeros(len(dt), groups, time, time)
    size = max(4, math.isqrt(time // 2))  # then both parts cost the same
    for block in torch.arange(time).split(size):
        here, past = slice(int(block[0]), int(block[-1]) + 1), slice(0, int(block[0]))
        queries = C[:, None, :, here] * torch.exp(rates * (total[..., here] - last).to(rates))
        left, right = (
            one.unflatten(1, (groups, -1)).flatten(2, 3) for one in (queries, keys[..., past])
        )
        matrix[:, :, here, past] = left.mT @ right
        apart = (total[..., here, None] - total[..., None, here]).clamp(min=0).to(rates)
        inside = torch.exp(rates[..., None] * apart) * keys[..., None, here]
        inside = torch.einsum("bcnts,bnt->bcts", inside, C[..., here]).tril()
        matrix[:, :, here, here] = inside.unflatten(1, (groups, -1)).sum(2)
        now = total[..., here][..., -1:]
        keys[..., past] *= torch.exp(rates * (now - last).to(rates))
        keys[..., here] *= torch.exp(rates * (now - total[..., here]).to(rates))
        keys, last = torch.nn.functional.hardshrink(keys, FADED), now
    matrix /= dt.shape[1] // groups
    if D is not None:
        matrix.diagonal(0, -2, -1).add_(D.unflatten(0, (groups, -1)).mean(-1)[:, None])
    return matrix


@torch.no_grad()
def carried(function: Callable[..., Any], kernel: Kernel, given: inspect.BoundArguments) -> Tensor:
    """What the result has beside matrix times values: of the state that earlier calls left, and of a constant."""
    again = inspect.BoundArguments(given.signature, dict(given.arguments))  # type: ignore[arg-type]
    again.arguments[kernel.values] = torch.zeros_like(given.arguments[kernel.values])
    name = kernel.state.partition(":")[0]
    if isinstance(state := given.arguments.get(name), Tensor):  # a step changes it in place
        again.arguments[name] = state.clone()
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
            if (
                isinstance(value, Tensor)
                and value.ndim >= min(3, len(kernel.axes))
                and len(value) == rows
            ):
                again.arguments[name] = value.repeat(times, *[1] * (value.ndim - 1))
    name, _, axes = kernel.state.partition(":")
    if (state := given.arguments.get(name)) is not None:
        linear, *others = state if isinstance(state, tuple | list) else (state,)
        sizes = (
            values.shape[-1] if axis == "d" else size
            for axis, size in zip(axes[1:], linear.shape[1:], strict=True)
        )
        others = [one.repeat(times, *[1] * (one.ndim - 1)) for one in others]
        empty = linear.new_zeros(len(values), *sizes)
        again.arguments[name] = [empty, *others] if others else empty
    again.arguments[kernel.values] = values.contiguous()
    return first(function(*again.args, **again.kwargs))


def first(result: Any) -> Tensor:
    """The output of a function that may return its state as well."""
    return result[0] if isinstance(result, tuple) else result
