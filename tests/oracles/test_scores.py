"""The learned scores by hand, and against a second writing of each paper's formula with plain loops."""

import math

import pytest
import torch
from transformers.models.qwen3 import modeling_qwen3 as qwen

from core.attention import AXES, Attention, AttentionConfig, Choice, attend, scores
from tests.attention.drawing import perturbed
from tests.cases import each
from tests.oracles.agreement import agree, by_name, put, same_layer

B, T, S, H, D = 2, 3, 5, 2, 7
C = H * D


def layer(score, width=C, heads=H, **axes):
    return Attention(AttentionConfig(width, heads, "identity", score, **axes))


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


@each("score", [item.key for item in AXES["score"]])
def test_against_the_formula_cell_by_cell(score):
    """And its factors, which a page writes into the equation, add up to what was computed."""
    attention = layer(score)
    x, context = torch.randn(B, T, C, requires_grad=True), torch.randn(B, S, C, requires_grad=True)
    q, k, _ = attention.projection(x, context)
    cell = FORMULAS[score](attention.score)
    places = [(b, h, i, j) for b in range(B) for h in range(H) for i in range(T) for j in range(S)]
    theirs = torch.stack([cell(h, q[b, h, i], k[b, h, j]) for b, h, i, j in places])
    inputs = (x, context, *attention.score.parameters())
    agree(attention(x, context).scores, theirs.view(B, H, T, S), inputs)
    one, other = attention.score.factors(q[:, :, :1], k[:, :, :1])
    product = (one * other).sum(-1, keepdim=True)
    torch.testing.assert_close(product, attention.score(q[:, :, :1], k[:, :, :1]))


@each("score", ["additive", "concat"])
def test_without_gradients_it_is_the_same_in_slices(score, monkeypatch):
    attention, x, context = layer(score), torch.randn(B, T, C), torch.randn(B, S, C)
    whole = attention(x, context).scores
    with monkeypatch.context() as patch, torch.no_grad():
        patch.setattr(scores, "MAX_HIDDEN_CELLS", 1)
        torch.testing.assert_close(attention(x, context).scores, whole)


def test_additive_by_hand():
    """Bahdanau: W₁ = W₂ = 1, v = (1, −1); q = (1, 0), k = (0, 1) meet as tanh 1 − tanh 1 = 0, k = (1, −1) as 1.7257."""
    attention = layer("additive", 2, 1)
    own, eye = attention.score, torch.eye(2)[None]
    put((own.key, eye), (own.query, eye), (own.vector, [[1.0, -1.0]]))
    steps = attention(torch.tensor([[[1.0, 0.0]]]), torch.tensor([[[0.0, 1.0], [1.0, -1.0]]]))
    second = math.tanh(2) - math.tanh(-1)
    first = 1 / (1 + math.exp(second))
    assert steps.scores.flatten().tolist() == pytest.approx([0.0, second])
    assert steps.weights.flatten().tolist() == pytest.approx([first, 1 - first])
    assert steps.merged.flatten().tolist() == pytest.approx([1 - first, 2 * first - 1])


GENERAL = "Luong: W = [[0, 2], [0, 0]] lets the first of q meet the second of k alone; (3, 5)·W·(7, 11) = 66."
CONCAT = "Luong: W = [W_q | W_k] reads q's first and k's second; v = 2, so the score is 2·tanh(0.5 − 0.25)."
QK_NORM = "RMSNorm(3, 4) = (3, 4)/√12.5 and RMSNorm(0, 2) = (0, √2); gains (1, 2) and (1, 3): 6·4·√2/√12.5/√2."
UNIT = "q = (3, 4) and k = (0, 2) become (0.6, 0.8) and (0, 1); with gains (1, 2) the product is 3.2, times √2."
BY_HAND = [
    ("general", {"weight": [[[0.0, 2.0], [0.0, 0.0]]]}, [3.0, 5.0], [7.0, 11.0], 66.0, GENERAL),
    (
        "concat",
        {
            "query": [[[1.0, 0.0], [0.0, 0.0]]],
            "key": [[[0.0, 1.0], [0.0, 0.0]]],
            "vector": [[2.0, 9.0]],
        },
        [0.5, 4.0],
        [4.0, -0.25],
        2 * math.tanh(0.25),
        CONCAT,
    ),
    (
        "qk_norm",
        {"query.weight": [1.0, 2.0], "key.weight": [1.0, 3.0]},
        [3.0, 4.0],
        [0.0, 2.0],
        24 / math.sqrt(12.5),
        QK_NORM,
    ),
    ("unit_vectors", {"gain": [[[1.0, 2.0]]]}, [3.0, 4.0], [0.0, 2.0], 3.2 * math.sqrt(2), UNIT),
]


@each(("score", "weights", "q", "k", "expected", "why"), BY_HAND)
def test_one_score_by_hand(score, weights, q, k, expected, why):
    attention = layer(score, 2, 1)
    put(*((attention.score.get_parameter(name), value) for name, value in weights.items()))
    got = attention(torch.tensor([[q]]), torch.tensor([[k]])).scores.item()
    assert got == pytest.approx(expected, rel=1e-5), why


def test_cosine_by_hand():
    """Swin V2: (3, 4) and (8, 6) meet at cos = 48/50, (−6, −8) at −1; τ = 0.5 doubles it. Lengths do not matter."""
    attention = layer(Choice.of("cosine", tau=0.5), 2, 1)
    keys = torch.tensor([[[8.0, 6.0], [-6.0, -8.0], [0.0, 0.0]]])
    for length in (1.0, 100.0):
        steps = attention(torch.tensor([[[3.0, 4.0]]]) * length, keys)
        torch.testing.assert_close(steps.scores.flatten(), torch.tensor([1.92, -2.0, 0.0]))


def test_cosine_holds_tau_from_a_hundredth_up():
    attention = Attention(AttentionConfig(C, H, score="cosine"))
    put((attention.score.log_scale, [9.0, math.log(20)]))
    torch.testing.assert_close(attention.score.scale.flatten(), torch.tensor([100.0, 20.0]))
    attention(torch.randn(B, T, C)).merged.sum().backward()
    assert attention.score.log_scale.grad[0] == 0 != attention.score.log_scale.grad[1]
    assert not layer(Choice.of("cosine", learned=False)).score.log_scale.requires_grad


def test_qk_norm_is_qwen3():
    """With grouped heads and RoPE: the norms come first, so their gains meet each dimension before it is turned."""
    config = qwen.Qwen3Config(
        hidden_size=24,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=4,
        rope_theta=10000.0,
        attn_implementation="eager",
        rms_norm_eps=1e-6,
    )
    grouped = Choice.of("grouped_query", kv_heads=2, bias=False)
    ours = perturbed(Attention(AttentionConfig(24, 6, grouped, "qk_norm", "rope", "causal")))
    gains = {"q_norm.weight": ours.score.query.weight, "k_norm.weight": ours.score.key.weight}
    x, future = torch.randn(B, 7, 24), torch.full((7, 7), float("-inf")).triu(1)[None, None]
    turns = qwen.Qwen3RotaryEmbedding(config)(x, torch.arange(7)[None])
    same_layer(ours, qwen.Qwen3Attention(config, 0), by_name(ours) | gains, x, turns, future)


def test_unit_vectors_are_made_after_the_rotation():
    """As in the paper: the gain of a dimension does not turn with it, and the length of q has no effect."""
    attention = layer("unit_vectors", 2 * C, position="rope")
    torch.nn.init.uniform_(attention.score.gain, 0.5, 2.0)
    x = torch.randn(B, S, 2 * C)
    turned = attention.position.rotate(x.view(B, S, H, 2 * D).transpose(1, 2))
    unit = turned / turned.norm(dim=-1, keepdim=True) * attention.score.gain
    want = unit @ unit.mT * math.sqrt(2 * D)
    for length in (1, 3):
        torch.testing.assert_close(attention(length * x).scores, want, rtol=1e-5, atol=1e-5)


def test_general_with_the_identity_is_dot():
    general, x, context = layer("general"), torch.randn(B, T, C), torch.randn(B, S, C)
    put((general.score.weight, torch.eye(D).expand(H, D, D)))
    torch.testing.assert_close(general(x, context).weights, layer("dot")(x, context).weights)


@each("d", [4, 64, 512])
def test_the_scale_keeps_the_variance_of_the_scores(d):
    """Vaswani 2017, footnote 4: q·k of unit normals has variance D, divided by √D it has one."""
    q, k = torch.randn(2, 1, 1, 257, d)
    steps = attend(q, k, k)
    assert steps.raw.var().item() == pytest.approx(d, rel=0.15)
    assert steps.scores.var().item() == pytest.approx(1, rel=0.15)
