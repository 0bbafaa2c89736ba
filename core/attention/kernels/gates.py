"""What the kernels with learned gates share: gates from the keys' own x, and the sizes at which they start."""

from __future__ import annotations

from math import log

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from core.attention.basics import split_heads
from core.attention.kernels.base import to_float32
from core.attention.kernels.exact import AttentionInputs, Steps
from core.attention.kernels.implied import chunk_length, full_precision, real_keys, scaled_qk, steps
from core.entries import ConfigError, LayerConfig

RATES, STEPS = (1.0, 16.0), (1e-3, 0.1)  # between which A and softplus(b) start, as in Mamba-2


class StateKernel(nn.Module):
    """A kernel whose state is changed from token to token, by gates that are computed from the keys' own x.

    A subclass has a `key`, computes its `gates`, and the output from them; q and k are prepared by `prepare`.
    """

    key: str

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        if config is None:
            raise ConfigError(
                f"kernel = {self.key} has learned gates; take Attention(config), or kernel = linear."
            )
        self.chunk = int(config.kernel["chunk"])

    def gates(self, context: Tensor) -> tuple[Tensor, ...]:
        """The gates of every key, (B, H, S) or (B, H, S, D) each, of which 0 leaves the state as it is."""
        raise NotImplementedError

    def real_gates(self, context: Tensor, real: Tensor | None) -> tuple[Tensor, ...]:
        """The gates, 0 for the keys that are not real."""
        if real is None:
            return self.gates(context)
        gates = self.gates(context.masked_fill(~real[:, 0].mT, 0.0))
        return tuple(gate * (real[:, 0] if gate.dim() == 3 else real.mT) for gate in gates)

    def query_gates(self, x: Tensor | None) -> tuple[Tensor, ...]:
        """Further gates of every query, from its own x; none for most kernels."""
        return ()

    def prepare(self, q: Tensor, k: Tensor, scale: float | Tensor = 1.0) -> tuple[Tensor, Tensor]:
        """q times the score's scale, and k, as the rule takes them."""
        return q * scale, k

    def output(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        gates: tuple[Tensor, ...],
        chunk: int,
        offset: int,
        past: Tensor | None,
    ) -> tuple[Tensor, Tensor | None]:
        """(B, H, T, E), linear in v where there is no `past`, and the state after the last key, if there is one alone.

        Queries begin at position `offset` of the keys given; `past` is the state before these.
        """
        raise NotImplementedError

    @full_precision
    def forward(self, inputs: AttentionInputs) -> Steps:
        block = inputs.block
        if block.context is None:
            raise ConfigError(
                f"kernel = {self.key} computes its gates from the keys' x, which is not given here; "
                "give it, or take kernel = retention."
            )
        dtype = next(self.parameters()).dtype  # autocast may give x in half precision
        x, context = None if block.x is None else block.x.to(dtype), block.context.to(dtype)
        real, offset = real_keys(inputs, self.key), block.offset
        q, k, scale = scaled_qk(inputs)
        q, k = self.prepare(q, k if real is None else k.masked_fill(~real.mT, 0.0), scale)
        gates = (*self.real_gates(context, real), *self.query_gates(x))
        v, chunk = to_float32(inputs.v), chunk_length(inputs, self.chunk)

        def weights() -> Tensor:
            """The output is linear in v, so that the identity for v gives the weights."""
            identity = torch.eye(k.shape[2], dtype=k.dtype, device=k.device).expand(
                *k.shape[:2], -1, -1
            )
            return self.output(q, k, identity, gates, chunk, offset, None)[0]

        out, state = self.output(q, k, v, gates, chunk, offset, inputs.past)
        return steps(inputs, out, weights, state)


def initial_rates(heads: int) -> nn.Parameter:
    """log A of each head, the rate of decay in α = e^(−A·step)."""
    return nn.Parameter(torch.empty(heads).uniform_(*RATES).log())


def initial_steps(bias: Tensor) -> None:
    """Fill the bias of a gate so that its softplus, the step, lies between 0.001 and 0.1."""
    with torch.no_grad():
        step = torch.empty_like(bias).uniform_(*map(log, STEPS)).exp()
        bias.copy_(step.expm1().log())  # the inverse of softplus


def head_gate(layer: nn.Module, context: Tensor) -> Tensor:
    """What a linear map of x to one number a head gives, (B, H, S), in at least fp32."""
    return to_float32(layer(context)).mT


def channel_gate(layer: nn.Module, context: Tensor, num_heads: int) -> Tensor:
    """What a map of x to one number a channel of each head gives, (B, H, S, D), in at least fp32."""
    return to_float32(split_heads(layer(context), num_heads))


def softplus_decay(log_rate: Tensor, gate: Tensor) -> Tensor:
    """log α = −e^A softplus(gate), for A of each head and a gate (B, H, S) or (B, H, S, D)."""
    rate = to_float32(log_rate).exp().view(-1, *(1,) * (gate.dim() - 2))
    return F.softplus(gate).mul_(-rate)


class LowRank(nn.Module):
    """A linear map of x to every channel of every head, (B, S, H · D), through `rank` numbers."""

    def __init__(self, config: LayerConfig, rank: int) -> None:
        super().__init__()
        self.down = nn.Linear(config.d_model, rank, bias=False)
        self.up = nn.Linear(rank, config.score_heads * config.qk_dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.up(self.down(x))
