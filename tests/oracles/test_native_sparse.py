"""Native sparse attention against a loop from the paper's equations, one query of one head at a time."""

import pytest
import torch

from core.attention import Attention, AttentionConfig, Choice, ConfigError, attend
from tests.cases import each
from tests.oracles.agreement import same_result

B, T, D = 2, 19, 5


def layer_of(size, blocks, window, heads=3, kv_heads=3, **axes):
    kernel = Choice.of("nsa", size=size, blocks=blocks, window=window)
    projection = Choice.of("grouped_query", kv_heads=kv_heads)
    return Attention(AttentionConfig(heads * D, heads, projection, kernel=kernel, **axes)).double()


def softmax_of(q, pairs):
    """The weights over some keys, and their sum of values; nothing for no key."""
    if not pairs:
        return [], torch.zeros(D, dtype=torch.float64)
    weights = torch.stack([q @ k for k, _ in pairs]).mul(D**-0.5).softmax(0)
    return weights, sum(w * v for w, (_, v) in zip(weights, pairs, strict=True))


def native_sparse(layer, x, q, k, v, real, size, blocks, window, shared, offset):
    """Yuan 2025, section 3.3: compression by means, selection by its weights summed over a group, and a window."""
    heads, gates = len(q), layer.kernel.gate(x).sigmoid().view(len(x), 3, -1)
    out: list[list] = [[None] * len(x) for _ in range(heads)]
    for t in range(len(x)):
        i = t + offset
        compressed: dict[int, torch.Tensor] = {}
        importance: dict[tuple[int, int], float] = {}
        for h in range(heads):
            whole = {
                n: [j for j in range(n * size, (n + 1) * size) if real[j]]
                for n in range((i + 1) // size)
            }
            whole = {n: keys for n, keys in whole.items() if keys}
            means = [
                (
                    torch.stack([k[h, j] for j in keys]).mean(0),
                    torch.stack([v[h, j] for j in keys]).mean(0),
                )
                for keys in whole.values()
            ]
            weights, compressed[h] = softmax_of(q[h, t], means)
            for n, weight in zip(whole, weights, strict=True):
                key = (h // shared, n)
                importance[key] = importance.get(key, 0.0) + float(weight.detach())
        for h in range(heads):
            earlier = {
                n: weight
                for (group, n), weight in importance.items()
                if group == h // shared and n < i // size
            }
            best = [*sorted(earlier, key=earlier.get, reverse=True)[: blocks - 1], i // size]
            selected = [j for j in range(i + 1) if real[j] and j // size in best]
            near = [j for j in range(max(0, i - window + 1), i + 1) if real[j]]
            branches = (
                compressed[h],
                *(
                    softmax_of(q[h, t], [(k[h, j], v[h, j]) for j in js])[1]
                    for js in (selected, near)
                ),
            )
            out[h][t] = sum(gates[t, c, h] * branch for c, branch in enumerate(branches))
    return torch.stack([torch.stack(rows) for rows in out])


SIZES = [(1, 2, 1), (3, 2, 4), (4, 3, 2), (5, 1, 7), (7, 64, 30)]
HEADS = [(3, 3), (4, 2), (3, 1)]
# Each size with each grouping, and each of either at both offsets in turn: the loop takes 0.2 s a case.
CASES = [
    (*size, *heads, 8 * ((i + j) % 2))
    for i, size in enumerate(SIZES)
    for j, heads in enumerate(HEADS)
]


@each(("size", "blocks", "window", "heads", "kv_heads", "offset"), CASES)
def test_each_query_is_the_papers(size, blocks, window, heads, kv_heads, offset):
    layer = layer_of(size, blocks, window, heads, kv_heads)
    context = torch.randn(B, T, heads * D, dtype=torch.float64, requires_grad=True)
    x, real = context[:, offset : offset + 11], torch.rand(B, T) < 0.8
    steps = layer(x, context, key_mask=real, offset=offset)
    want = torch.stack(
        [
            native_sparse(
                layer,
                x[b],
                steps.q[b],
                steps.k[b],
                steps.v[b],
                real[b],
                size,
                blocks,
                window,
                heads // kv_heads,
                offset,
            )
            for b in range(B)
        ]
    )
    torch.testing.assert_close(steps.weights @ steps.v, want, rtol=1e-10, atol=1e-11)
    inputs = (context, layer.kernel.gate.weight, layer.projection.key.weight)
    same_result(steps.out, want, inputs, rtol=1e-10, atol=1e-11, gradient=(1e-8, 1e-9), felt=True)


def test_all_blocks_and_a_window_of_all_are_causal_attention_twice():
    """With every gate at 1/2 and blocks of one token, the three branches are one causal attention each."""
    layer = layer_of(1, 64, 4096)
    torch.nn.init.zeros_(layer.kernel.gate.weight), torch.nn.init.zeros_(layer.kernel.gate.bias)
    plain = Attention(layer.config.with_(kernel="exact", mask="causal")).double()
    plain.load_state_dict(layer.state_dict(), strict=False)
    x = torch.randn(B, T, 3 * D, dtype=torch.float64)
    torch.testing.assert_close(layer(x).out, 1.5 * plain(x).out)
    torch.testing.assert_close(layer(x).weights, 1.5 * plain(x).weights)


def test_a_row_by_hand():
    """Blocks of two, all scores 0, gates 1/2. The query at 4 sees means of 0, 1 and 2, 3, then 0, 1 and 4, then 4."""
    layer = Attention(
        AttentionConfig(1, 1, "identity", kernel=Choice.of("nsa", size=2, blocks=2, window=1))
    )
    torch.nn.init.zeros_(layer.kernel.gate.weight), torch.nn.init.zeros_(layer.kernel.gate.bias)
    zeros, v = torch.zeros(1, 1, 5, 1), torch.arange(1.0, 6.0).view(1, 1, 5, 1)
    x = torch.zeros(1, 5, 1)
    steps = layer.attend_heads(zeros, zeros, v, x, x)
    third, half = 1 / 3, 0.5
    row = torch.tensor(
        [half * (0.25 + third), half * (0.25 + third), half * 0.25, half * 0.25, half * (third + 1)]
    )
    torch.testing.assert_close(steps.weights[0, 0, 4], row)
    assert steps.out[0, 0, 4].item() == pytest.approx((row * torch.arange(1.0, 6.0)).sum().item())
    assert steps.weights[0, 0, 0].tolist() == [1.0, 0, 0, 0, 0], (
        "no block is whole yet, so two branches of 1/2"
    )


def test_needs_the_layer_and_the_queries_x():
    q = torch.randn(1, 3, T, D)
    with pytest.raises(ConfigError, match="nsa has weights or sizes of its own; take Attention"):
        attend(q, q, q, kernel="nsa")
    with pytest.raises(ConfigError, match="nsa reads x, which is not given"):
        layer_of(2, 2, 2).attend_heads(*(x.double() for x in (q, q, q)))
