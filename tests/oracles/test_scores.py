"""The learned scores by hand, and against a second writing of each paper's formula with plain loops."""

import math

import pytest
import torch

from core.attention import AXES, Attention, AttentionConfig, Choice, attend
from tests.cases import each
from tests.oracles.agreement import same_result

B, T, S, H, D = 2, 3, 5, 2, 7
C = H * D


def layer(score, heads=H):
    return Attention(
        AttentionConfig(C if heads == H else heads * 2, heads, projection="identity", score=score)
    )


def by_loops(cell, q, k):
    """The scores, one cell at a time: cell(h, q_i, k_j) is the paper's formula."""
    rows = [
        [
            [torch.stack([cell(h, q[b, h, i], k[b, h, j]) for j in range(S)]) for i in range(T)]
            for h in range(H)
        ]
        for b in range(B)
    ]
    return torch.stack([torch.stack([torch.stack(r) for r in by_head]) for by_head in rows])


def rms(x):
    return x / (x.square().mean() + 1e-6).sqrt()


FORMULAS = {
    "dot": lambda m: lambda h, q, k: q @ k,
    "scaled_dot": lambda m: lambda h, q, k: q @ k / math.sqrt(D),
    "general": lambda m: lambda h, q, k: q @ m.weight[h] @ k,
    "additive": lambda m: lambda h, q, k: m.vector[h] @ torch.tanh(m.key[h] @ k + m.query[h] @ q),
    "concat": lambda m: (
        lambda h, q, k: (
            m.vector[h] @ torch.tanh(torch.cat((m.query[h], m.key[h]), dim=1) @ torch.cat((q, k)))
        )
    ),
    "cosine": lambda m: lambda h, q, k: q @ k / (q.norm() * k.norm()) * m.log_scale[h].exp(),
    "qk_norm": lambda m: (
        lambda h, q, k: (rms(q) * m.query.weight) @ (rms(k) * m.key.weight) / math.sqrt(D)
    ),
    "unit_vectors": lambda m: (
        lambda h, q, k: (
            math.sqrt(D)
            * sum(
                g * g * a * b
                for g, a, b in zip(m.gain[h, 0], q / q.norm(), k / k.norm(), strict=True)
            )
        )
    ),
}


@each("score", FORMULAS)
def test_against_the_formula_cell_by_cell(score):
    attention = layer(score)
    x, context = torch.randn(B, T, C, requires_grad=True), torch.randn(B, S, C, requires_grad=True)
    steps = attention(x, context)
    q, k, _ = attention.projection(x, context)
    want = by_loops(FORMULAS[score](attention.score), q, k)
    inputs = (x, context, *attention.score.parameters())
    same_result(steps.scores, want, inputs, rtol=1e-5, gradient=(1.25e-5, 2e-5))


@pytest.mark.parametrize("score", ["additive", "concat"])
def test_without_gradients_it_is_the_same_in_slices(score, monkeypatch):
    import core.attention.scores as scores

    attention = layer(score)
    x, context = torch.randn(B, T, C), torch.randn(B, S, C)
    whole = attention(x, context).scores
    monkeypatch.setattr(scores, "MAX_HIDDEN_CELLS", 1)
    with torch.no_grad():
        torch.testing.assert_close(attention(x, context).scores, whole)


@each("score", FORMULAS)
def test_its_factors_add_up_to_it(score):
    """What a page writes into the equation is what was computed."""
    own = layer(score).score
    q, k = torch.randn(2, B, H, 1, D)
    one, other = own.factors(q, k)
    torch.testing.assert_close((one * other).sum(-1, keepdim=True), own(q, k), rtol=1e-5, atol=1e-6)


def test_additive_by_hand():
    """Bahdanau: W₁ = W₂ = 1, v = (1, −1); q = (1, 0), k = (0, 1) meet as tanh 1 − tanh 1 = 0, k = (1, −1) as 1.7257."""
    attention = layer("additive", heads=1)
    with torch.no_grad():
        attention.score.key.copy_(torch.eye(2)[None])
        attention.score.query.copy_(torch.eye(2)[None])
        attention.score.vector.copy_(torch.tensor([[1.0, -1.0]]))
    steps = attention(torch.tensor([[[1.0, 0.0]]]), torch.tensor([[[0.0, 1.0], [1.0, -1.0]]]))
    second = math.tanh(2) - math.tanh(-1)
    torch.testing.assert_close(steps.scores.flatten(), torch.tensor([0.0, second]))
    first = 1 / (1 + math.exp(second))
    torch.testing.assert_close(steps.weights.flatten(), torch.tensor([first, 1 - first]))
    torch.testing.assert_close(
        steps.merged.flatten(), torch.tensor([1 - first, first - (1 - first)])
    )


def test_general_by_hand():
    """Luong: W = [[0, 2], [0, 0]] lets the first of q meet the second of k alone; (3, 5)·W·(7, 11) = 66."""
    attention = layer("general", heads=1)
    with torch.no_grad():
        attention.score.weight.copy_(torch.tensor([[[0.0, 2.0], [0.0, 0.0]]]))
    steps = attention(torch.tensor([[[3.0, 5.0]]]), torch.tensor([[[7.0, 11.0]]]))
    assert steps.scores.item() == 66.0


def test_concat_by_hand():
    """Luong: W = [W_q | W_k] reads q's first and k's second; v = 2, so the score is 2·tanh(0.5 − 0.25)."""
    attention = layer("concat", heads=1)
    with torch.no_grad():
        attention.score.query.copy_(torch.tensor([[[1.0, 0.0], [0.0, 0.0]]]))
        attention.score.key.copy_(torch.tensor([[[0.0, 1.0], [0.0, 0.0]]]))
        attention.score.vector.copy_(torch.tensor([[2.0, 9.0]]))
    steps = attention(torch.tensor([[[0.5, 4.0]]]), torch.tensor([[[4.0, -0.25]]]))
    assert steps.scores.item() == pytest.approx(2 * math.tanh(0.25))


def test_cosine_by_hand():
    """Swin V2: (3, 4) and (8, 6) meet at cos = 48/50, (−6, −8) at −1; τ = 0.5 doubles it. Lengths do not matter."""
    attention = Attention(
        AttentionConfig(2, 1, projection="identity", score=Choice.of("cosine", tau=0.5))
    )
    keys = torch.tensor([[[8.0, 6.0], [-6.0, -8.0], [0.0, 0.0]]])
    for length in (1.0, 100.0):
        steps = attention(torch.tensor([[[3.0, 4.0]]]) * length, keys)
        torch.testing.assert_close(steps.scores.flatten(), torch.tensor([1.92, -2.0, 0.0]))


def test_cosine_holds_tau_from_a_hundredth_up():
    attention = Attention(AttentionConfig(C, H, score="cosine"))
    with torch.no_grad():
        attention.score.log_scale.copy_(torch.tensor([9.0, math.log(20)]))
    torch.testing.assert_close(attention.score.scale.flatten(), torch.tensor([100.0, 20.0]))
    attention(torch.randn(B, T, C)).merged.sum().backward()
    assert attention.score.log_scale.grad[0] == 0 != attention.score.log_scale.grad[1]
    given = Attention(AttentionConfig(C, H, score=Choice.of("cosine", learned=False)))
    assert not given.score.log_scale.requires_grad


def test_qk_norm_by_hand():
    """RMSNorm(3, 4) = (3, 4)/√12.5 and RMSNorm(0, 2) = (0, √2); gains (1, 2) and (1, 3): 6·4·√2/√12.5/√2 = 6.788."""
    attention = layer("qk_norm", heads=1)
    with torch.no_grad():
        attention.score.query.weight.copy_(torch.tensor([1.0, 2.0]))
        attention.score.key.weight.copy_(torch.tensor([1.0, 3.0]))
    steps = attention(torch.tensor([[[3.0, 4.0]]]), torch.tensor([[[0.0, 2.0]]]))
    assert steps.scores.item() == pytest.approx(24 / math.sqrt(12.5), rel=1e-5)


def test_qk_norm_is_qwen3():
    """With grouped heads and RoPE: the norms come first, so their gains meet each dimension before it is turned."""
    from transformers.models.qwen3 import modeling_qwen3 as qwen
    from transformers.models.qwen3.configuration_qwen3 import Qwen3Config

    heads, groups, dims, width = 6, 2, 4, 24
    config = Qwen3Config(
        hidden_size=width,
        num_attention_heads=heads,
        num_key_value_heads=groups,
        head_dim=dims,
        rope_theta=10000.0,
        attn_implementation="eager",
        rms_norm_eps=1e-6,
    )
    theirs = qwen.Qwen3Attention(config, layer_idx=0)
    grouped = Choice.of("grouped_query", kv_heads=groups, bias=False)
    ours = Attention(
        AttentionConfig(width, heads, grouped, Choice("qk_norm"), Choice("rope"), Choice("causal"))
    )
    with torch.no_grad():
        for norm in (theirs.q_norm, theirs.k_norm):
            norm.weight.copy_(torch.rand(dims) + 0.5)
        pairs = (
            (ours.projection.query, theirs.q_proj),
            (ours.projection.key, theirs.k_proj),
            (ours.projection.value, theirs.v_proj),
            (ours.projection.output, theirs.o_proj),
            (ours.score.query, theirs.q_norm),
            (ours.score.key, theirs.k_norm),
        )
        for mine, other in pairs:
            mine.weight.copy_(other.weight)
    x = torch.randn(B, 7, width, requires_grad=True)
    added = torch.full((7, 7), float("-inf")).triu(1)[None, None]
    turns = qwen.Qwen3RotaryEmbedding(config)(x, torch.arange(7)[None])
    out, weights = theirs(x, turns, added)
    steps = ours(x)
    torch.testing.assert_close(steps.weights, weights)
    same_result(
        steps.merged,
        out,
        (x, ours.score.query.weight, ours.score.key.weight),
        (x, theirs.q_norm.weight, theirs.k_norm.weight),
    )


def test_unit_vectors_are_made_after_the_rotation():
    """As in the paper: the gain of a dimension does not turn with it, and the length of q has no effect."""
    attention = Attention(AttentionConfig(2 * C, H, "identity", "unit_vectors", "rope"))
    with torch.no_grad():
        attention.score.gain.uniform_(0.5, 2.0)
    x = torch.randn(B, S, 2 * C)
    heads = x.view(B, S, H, 2 * D).transpose(1, 2)
    turned = attention.position.rotate(heads)
    unit = turned / turned.norm(dim=-1, keepdim=True) * attention.score.gain
    want = unit @ unit.mT * math.sqrt(2 * D)
    torch.testing.assert_close(attention(x).scores, want, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(attention(3 * x).scores, want, rtol=1e-5, atol=1e-5)


def test_unit_vectors_by_hand():
    """q = (3, 4) and k = (0, 2) become (0.6, 0.8) and (0, 1); with gains (1, 2) the product is 3.2, times √2."""
    score = Attention(AttentionConfig(2, 1, "identity", "unit_vectors")).score
    with torch.no_grad():
        score.gain.copy_(torch.tensor([[[1.0, 2.0]]]))
    q, k = torch.tensor([[[[3.0, 4.0]]]]), torch.tensor([[[[0.0, 2.0]]]])
    assert (score(q, k) * score.scale).item() == pytest.approx(3.2 * math.sqrt(2))


def test_each_score_stands_beside_its_formula():
    assert {e.key for e in AXES["score"]} == set(FORMULAS)


def test_general_with_the_identity_is_dot():
    general, dot = layer("general"), layer("dot")
    with torch.no_grad():
        general.score.weight.copy_(torch.eye(D).expand(H, D, D))
    x, context = torch.randn(B, T, C), torch.randn(B, S, C)
    torch.testing.assert_close(general(x, context).weights, dot(x, context).weights)


@each("d", [4, 64, 512])
def test_the_scale_keeps_the_variance_of_the_scores(d):
    """Vaswani 2017, footnote 4: q·k of unit normals has variance D, divided by √D it has one."""
    q, k = torch.randn(2, 1, 1, 257, d)
    steps = attend(q, k, k)
    assert steps.raw.var().item() == pytest.approx(d, rel=0.15)
    assert steps.scores.var().item() == pytest.approx(1, rel=0.15)
