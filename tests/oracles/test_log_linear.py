"""Log-linear attention against the states of a Fenwick tree, one token at a time, and the paper's matrix."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from core.attention import Attention, AttentionConfig, Choice, ConfigError
from core.attention.cost import attention_cost
from core.attention.kernels.delta import log_linear, tree_levels
from tests.cases import each
from tests.drawn_costs import Case, taken
from tests.oracles.test_kernels import B, D, H, S, T, heads, same
from tests.oracles.test_state_kernels import between, log_decays, shares

LEVELS = 5  # fewer than T has: the last two are one


def tree_recurrence(q, k, v, decay, step, weights):
    """All states fade; the token's own is new; then, as in a binary counter, full stretches move up a level."""
    states: dict[int, Any] = {}
    outs = []
    for t in range(q.shape[2]):
        if t < k.shape[2]:
            states = {
                level: decay[:, :, t, None, None].exp() * state for level, state in states.items()
            }
            states[0] = step[:, :, t, None, None] * k[:, :, t, :, None] * v[:, :, t, None]
        outs.append(
            sum(
                weights[:, :, t, min(level, weights.shape[-1] - 1), None, None]
                * (q[:, :, t, None] @ state)
                for level, state in states.items()
            )
        )
        lowest = ((t + 1) & -(t + 1)).bit_length()  # where t + 1 has its lowest bit
        full = [states.pop(level) for level in range(lowest) if level in states]
        if full:
            states[lowest] = sum(full)
    return torch.cat(outs, 2)


def inputs(queries, keys):
    gates = (
        log_decays(keys),
        shares(keys),
        torch.rand(B, H, queries, LEVELS, dtype=torch.float64, requires_grad=True),
    )
    return *heads(queries, keys, dtype=torch.float64), *gates


@each("chunk", [1, 2, 8, 64])
@each("keys", [T, S])
def test_in_chunks_it_is_the_recurrence(chunk, keys):
    given = inputs(T, keys)
    same(log_linear(*given, chunk), tree_recurrence(*given), given)


@each(("queries", "offset"), [(5, 24), (5, 3), (1, 28), (11, 24)])
def test_it_takes_a_cache(queries, offset):
    q, k, v, decay, step, weights = inputs(offset + queries, S)
    ours = log_linear(q[:, :, offset:], k, v, decay, step, weights[:, :, offset:], 4, offset)
    theirs = tree_recurrence(q, k, v, decay, step, weights)[:, :, offset:]
    same(ours, theirs, [q, k, v, decay, step, weights])


def tree_matrix(q, k, decay, step, weights):
    """Q Kᵀ ∘ M^S ∘ M^H of the paper, with the level of every pair by its definition."""
    levels = [
        [min((i ^ j).bit_length(), weights.shape[-1] - 1) for j in range(k.shape[2])]
        for i in range(q.shape[2])
    ]
    return (
        (q @ k.mT)
        * between(decay)
        * step[:, :, None]
        * weights.gather(-1, torch.tensor(levels).expand(*q.shape[:3], -1))
    )


def test_the_matrix_of_the_paper_times_v_is_the_output():
    q, k, v, decay, step, weights = (x.detach() for x in inputs(T, T))
    torch.testing.assert_close(
        log_linear(q, k, v, decay, step, weights, 16), tree_matrix(q, k, decay, step, weights) @ v
    )


def test_the_weights_that_a_layer_shows_are_that_matrix():
    config = AttentionConfig(
        H * D, H, score="dot", kernel=Choice.of("log_linear", chunk=8, levels=LEVELS)
    )
    layer, x = Attention(config).double(), torch.randn(B, T, H * D, dtype=torch.float64)
    torch.nn.init.normal_(layer.kernel.level_rate)
    steps, kernel = layer(x), layer.kernel
    weights = kernel.level(x).unflatten(2, (H, LEVELS)).transpose(1, 2)
    weights = F.softplus(kernel.level_rate * weights)
    torch.testing.assert_close(
        steps.weights, tree_matrix(steps.q, steps.k, *kernel.gates(x), weights)
    )


def test_with_one_level_it_is_mamba2():
    layer = Attention(AttentionConfig(H * D, H, kernel=Choice.of("log_linear", levels=1)))
    peer = Attention(AttentionConfig(H * D, H, kernel="ssd"))
    peer.load_state_dict(
        {name: weight for name, weight in layer.state_dict().items() if "level" not in name}
    )
    torch.nn.init.zeros_(layer.kernel.level.weight)
    x = torch.randn(B, T, H * D)
    torch.testing.assert_close(layer(x).out, math.log(2) * peer(x).out)  # softplus(0)


def test_worked_by_hand():
    """Δ = log 2, a = 1/2, λ = 1 but 10 for level 2: query 2 sees itself by 1, and keys 1 and 0 by 10/2 and 10/4."""
    layer = Attention(
        AttentionConfig(1, 1, "identity", "dot", kernel=Choice.of("log_linear", levels=3))
    )
    with torch.no_grad():
        for weight in layer.kernel.parameters():
            weight.zero_()
        layer.kernel.level.weight.fill_(1.0)
        layer.kernel.level_rate.copy_(
            torch.tensor([1.0, 1, 10]).expm1().log()
        )  # the inverse of softplus
    ones, x = torch.ones(1, 1, 3, 1), torch.ones(1, 3, 1)
    steps = layer.kernel(
        replace(layer.kernel_inputs(ones, ones, ones, x, torch.zeros_like(x)), record=True)
    )
    want = math.log(2) * torch.tensor([[1, 0, 0], [0.5, 1, 0], [2.5, 5, 1]])
    torch.testing.assert_close(steps.weights[0, 0], want)


def test_levels_double():
    assert tree_levels(8, 9, torch.device("cpu"))[7].tolist() == [3, 3, 3, 3, 2, 2, 1, 0]
    assert tree_levels(8, 3, torch.device("cpu"))[4].tolist() == [2, 2, 2, 2, 0, 1, 2, 2]


@each(
    ("chunk", "queries", "keys", "real"),
    [(5, 90, 90, None), (32, 70, 110, 60), (64, 300, 300, None)],
)
def test_the_cost_is_what_pytorch_counts_and_allocates(chunk, queries, keys, real):
    config = AttentionConfig(96, 4, kernel=Choice.of("log_linear", chunk=chunk))
    flops, held = taken(Case(config, queries, keys, real))
    cost = attention_cost(config, queries, keys, real)
    assert cost.flops == flops and cost.bytes == pytest.approx(held, rel=0.2)


def test_it_needs_the_x_of_the_queries():
    layer = Attention(AttentionConfig(H * D, H, kernel="log_linear"))
    with pytest.raises(
        ConfigError, match="weighs its levels by the queries' x, which is not given here"
    ):
        q, k, v = torch.randn(3, B, H, T, D)
        layer.kernel(layer.kernel_inputs(q, k, v, context=torch.randn(B, T, H * D)))
