"""A state kernel: linear attention to all keys so far, by sums that a decoder carries in place of keys."""

import torch

from core.attention import Entry, Steps, register
from core.attention.kernels.implied import real_keys


def running_sums(inputs):
    """Σ (q·k) v / Σ (q·k) over the keys up to each query, where q and k are softmaxes of themselves."""
    real = real_keys(inputs, "running_sums")  # (B, 1, 1, S), or None where all are
    q, k, v = inputs.q.softmax(-1), inputs.k.softmax(-1), inputs.v
    if real is not None:
        k = k * real.mT
    values = torch.cat((v, torch.ones_like(v[..., :1])), dim=-1)  # the last number sums up weights
    state = torch.einsum("bhsd,bhse->bhsde", k, values).cumsum(2)  # after each key
    if inputs.past is not None:
        state = state + inputs.past[:, :, None]
    at = inputs.block.i[:, 0].clamp(max=k.shape[2] - 1)  # a query after the last key reads all
    sums = torch.einsum("bhtd,bhtde->bhte", q, state[:, :, at])
    mask = weights = None
    if inputs.record:
        mask, weights = inputs.joined_mask(), (q @ k.mT) * (inputs.block.j <= inputs.block.i)
        weights = weights / weights.sum(-1, keepdim=True).clamp(min=1e-6)
    return Steps(
        inputs.q,
        inputs.k,
        v,
        inputs.score.scale,
        bias=None,
        mask=mask,
        out=(sums[..., :-1] / sums[..., -1:].clamp(min=1e-6)).to(v.dtype),
        weights=weights,
        state=state[:, :, -1] if inputs.carries else None,
        implied=True,
    )


register(
    "kernel",
    Entry(
        "running_sums",
        "Running sums",
        build=lambda config: running_sums,
        latex=r"\frac{\sum_{j \le i} (\hat q_i \cdot \hat k_j)\, v_j}{\sum_{j \le i} \hat q_i \cdot \hat k_j}",
        meaning="Keys and values are summed up in one state, which each query reads: causal by itself.",
        paper="",
        year=2026,
        short="sums so far",
        traits=frozenset({"implied", "state", "own positions"}),
        reads=("padding",),
    ),
)
