"""The gated delta rule: a state that forgets, and that a key corrects instead of adding to.

Yang et al. 2024, section 3.1: S_t = α_t S_{t−1}(I − β_t k_t k_tᵀ) + β_t v_t k_tᵀ, out_t = S_t q_t. α_t decays the
state before; of what it then returns for k_t, a share β_t is replaced by v_t. Three layers of four in Qwen3-Next.
"""

from __future__ import annotations

from math import log

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from core.attention.kernels.base import to_float32
from core.attention.kernels.exact import AttentionInputs, Steps
from core.attention.kernels.implied import CAUSAL, IMPLIED, in_chunks, needs_plain_rows, real_keys, scaled_qk, steps
from core.attention.kernels.implied_costs import delta_cost
from core.attention.kernels.linear import CHUNK
from core.entries import ConfigError, Entry, LayerConfig

EPSILON = 1e-6  # of the squared length, as in the authors' own code
RATES, STEPS = (1.0, 16.0), (1e-3, 0.1)  # between which A and softplus(b) start, as in Mamba-2


def unit(x: Tensor) -> Tensor:
    """x at length 1, and zero where it is zero."""
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + EPSILON)


def delta_rule(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, write: Tensor, chunk: int, offset: int = 0) -> Tensor:
    """S_t q_t, (B, H, T, E), in chunks; decay = log α and write = β are (B, H, S), queries begin at position `offset`.

    Token t writes β_t(v_t − α_t S_{t−1}k_t), where S_{t−1} holds what its chunk wrote before: a triangular system,
    solved for the values and for the keys that read the state at the chunk's start. Yang 2024, section 3.3.
    """
    queries, keys, size = q.shape[2], k.shape[2], v.shape[-1]
    q, k, v = in_chunks(q, k, v, chunk, offset)
    length = q.shape[2] * chunk
    decay, write = (F.pad(x, (0, length - keys)).unflatten(2, (-1, chunk)).unsqueeze(-1) for x in (decay, write))
    total = decay.cumsum(-2)  # log of the decay since the chunk's start; padding neither decays nor writes
    ahead = torch.ones(chunk, chunk, dtype=torch.bool, device=q.device).triu(1)
    between = (total - total.mT).masked_fill(ahead, -torch.inf).exp()
    written, since = k * write, total.exp()
    solved = torch.linalg.solve_triangular(
        (written @ k.mT) * between, torch.cat((v * write, written * since), -1), upper=False, unitriangular=True)
    new_values, read_keys = solved.split((size, k.shape[-1]), -1)
    inside, from_start, updates = (q @ k.mT) * between, q * since, (k * (total[..., -1:, :] - total).exp()).mT
    state, out = new_values.new_zeros(*k.shape[:2], k.shape[-1], size), []
    for i in range(q.shape[2]):
        values = new_values[:, :, i] - read_keys[:, :, i] @ state
        out.append(inside[:, :, i] @ values + from_start[:, :, i] @ state)
        state = state * since[:, :, i, -1:] + updates[:, :, i] @ values
    return torch.cat(out, 2)[:, :, offset:offset + queries]


class GatedDelta(nn.Module):
    """α = e^(−e^A softplus(W_a x + b)) and β = σ(W_b x), one of each a head and key, from the keys' own x."""

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        if config is None:
            raise ConfigError("kernel = gated_delta has learned gates; take Attention(config), or kernel = linear.")
        heads, self.chunk = config.score_heads, int(config.kernel["chunk"])
        self.forget = nn.Linear(config.d_model, heads)
        self.write = nn.Linear(config.d_model, heads, bias=False)
        self.log_rate = nn.Parameter(torch.empty(heads).uniform_(*RATES).log())
        step = torch.empty(heads).uniform_(*map(log, STEPS)).exp()
        with torch.no_grad():
            self.forget.bias.copy_(step.expm1().log())  # the inverse of softplus

    def gates(self, context: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor]:
        """log α and β, (B, H, S) each; a key that is not real leaves the state as it is: α = 1, β = 0."""
        if real is not None:
            context = context.masked_fill(~real[:, 0].mT, 0.0)
        decay = -to_float32(self.log_rate).exp()[:, None] * F.softplus(to_float32(self.forget(context)).mT)
        write = to_float32(self.write(context)).mT.sigmoid()
        return (decay, write) if real is None else (decay * real[:, 0], write * real[:, 0])

    def forward(self, inputs: AttentionInputs) -> Steps:
        if inputs.block.context is None:
            raise ConfigError("kernel = gated_delta computes its gates from the keys' x, which is not given here; "
                              "give it, or take kernel = retention.")
        real = real_keys(inputs, "gated_delta")
        q, k, scale = scaled_qk(inputs)
        if real is not None:
            k = k.masked_fill(~real.mT, 0.0)
        q, k, v, offset = unit(q) * scale, unit(k), to_float32(inputs.v), inputs.block.offset
        gates = self.gates(inputs.block.context, real)

        def weights() -> Tensor:
            """The output is linear in v, so that the identity for v gives the weights."""
            identity = torch.eye(k.shape[2], dtype=k.dtype, device=k.device).expand(*k.shape[:2], -1, -1)
            return delta_rule(q, k, identity, *gates, self.chunk, offset)

        return steps(inputs, delta_rule(q, k, v, *gates, self.chunk, offset), weights)


GATED_DELTA = Entry(
    "gated_delta", "Gated delta rule", GatedDelta,
    r"S_t q_t, \quad S_t = \alpha_t S_{t-1} (I - \beta_t k_t k_t^\top) + \beta_t v_t k_t^\top",
    "A state is passed from token to token. Each token scales the state by α and corrects the value that the state "
    "holds for its key. Queries and keys have length 1, and a query attends only to itself and earlier tokens.",
    "Yang et al.", 2024,
    "https://arxiv.org/abs/2412.06464", (CHUNK,), short="αS(I − βkkᵀ) + βvkᵀ", traits=IMPLIED | {"own positions"},
    cost=delta_cost, refuse=needs_plain_rows("gated_delta", *CAUSAL))
