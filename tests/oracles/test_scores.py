"""Scores and normalizers beside what is not ours: PyTorch, transformers, entmax, x_transformers, the papers."""

import math
import types
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from entmax import entmax15, entmax_bisect, sparsemax
from torch import nn
from transformers.models.gemma2 import modeling_gemma2 as gemma2
from transformers.models.gpt_oss import modeling_gpt_oss as gpt_oss
from transformers.models.mistral_large4 import modeling_mistral_large4 as mistral
from transformers.models.qwen3 import modeling_qwen3 as qwen
from x_transformers.attend import Attend, one_hot_straight_through

from core.attention import (
    AXES,
    Attention,
    AttentionConfig,
    Choice,
    ConfigError,
    attend,
    entry,
    scores,
)
from core.attention.masks import build_mask
from core.attention.normalizers import sorted_threshold
from core.attention.positions.relative import alibi_slopes
from core.attention.reference import attention, rotate
from tests.attention.drawing import perturbed
from tests.cases import each
from tests.close import assert_close
from tests.oracles.agreement import agree, by_name, fla, put, same_layer

B, H, T, S, D, E = 2, 3, 7, 11, 13, 5
C = H * D
KERNELS = each("kernel", ["exact", "fused"])
RECORD = each("record", [True, False])
CAUSAL = torch.ones(T, S, dtype=torch.bool).tril()
REAL = torch.arange(S) < torch.tensor([8, 5])[:, None]


def heads(dtype=torch.float32, queries=T, keys=S, value=E):
    return tuple(
        torch.randn(shape, dtype=dtype, requires_grad=True)
        for shape in ((B, H, queries, D), (B, H, keys, D), (B, H, keys, value))
    )


def masks():
    """What queries see, by name: a mask and a bias, which is added after the scale."""
    bias, any_cells = torch.randn(H, T, S), torch.rand(B, H, T, S) < 0.6
    any_cells[..., 0] = True
    return {
        "none": (None, None),
        "causal top-left": (CAUSAL, None),
        "causal bottom-right": (torch.ones(T, S, dtype=torch.bool).tril(S - T), None),
        "padding": (REAL[:, None, None], None),
        "causal and padding": (REAL[:, None, None] & CAUSAL, None),
        "a head each": (any_cells, None),
        "a bias": (None, bias),
        "a bias and a mask": (CAUSAL, bias),
    }


@KERNELS
@each("name", masks())
@each("scale", [None, 1.0, 0.37])
@each("temperature", [0.25, 1.0, 4.0])
def test_against_sdpa(name, scale, temperature, kernel):
    # A temperature divides scores and bias alike.
    (q, k, v), (mask, bias) = heads(), masks()[name]
    out = attend(q, k, v, mask, bias=bias, scale=scale, temperature=temperature, kernel=kernel).out
    added = torch.zeros(T, S) if bias is None else bias / temperature
    added = added if mask is None else added.masked_fill(~mask, -torch.inf)
    scale = (scale or D**-0.5) / temperature
    agree(out, F.scaled_dot_product_attention(q, k, v, attn_mask=added, scale=scale), (q, k, v))


def test_gradcheck():
    mask = torch.ones(3, 5, dtype=torch.bool).tril()
    mask[1] = False
    assert torch.autograd.gradcheck(
        lambda q, k, v: attend(q, k, v, mask).out, heads(torch.float64, 3, 5, 2)
    )


def test_the_worked_example():
    q, k = torch.tensor([[[[1.0, 2]]]]), torch.tensor([[[[1.0, 0], [0, 1], [1, 1]]]])
    steps = attend(q, k, torch.tensor([[[[0.5, 0.3], [0.8, 0.2], [0.1, 0.9]]]]))
    assert (
        steps.raw.flatten().tolist(),
        steps.weights.flatten().tolist(),
        steps.out.flatten().tolist(),
    ) == (
        [1.0, 2, 3],
        pytest.approx([0.140, 0.284, 0.576], abs=5e-4),
        pytest.approx([0.355, 0.617], abs=5e-4),
    )


def test_the_two_by_two_example_unscaled():
    q, k = torch.tensor([[[[1.0, 0], [0, 1]]]]), torch.tensor([[[[0.0, 1], [1, 0]]]])
    assert attend(
        q, k, torch.tensor([[[[1.0, 2], [3, 4]]]]), scale=1.0
    ).out.flatten().tolist() == pytest.approx([2.462, 3.462, 1.538, 2.538], abs=5e-4)


def test_equal_keys_weigh_the_same_and_one_key_weighs_one():
    q, v = torch.randn(1, 1, 3, 5), torch.randn(1, 1, 7, 5)
    even = attend(q, torch.ones(1, 1, 7, 5), v)
    torch.testing.assert_close(
        (even.weights, even.out),
        (torch.full((1, 1, 3, 7), 1 / 7), v.mean(2, keepdim=True).expand(1, 1, 3, 5)),
    )
    assert torch.equal(attend(q, v[:, :, :1], v[:, :, :1]).weights, torch.ones(1, 1, 3, 1))


def test_steps_follow_from_one_another_and_fused_makes_none():
    q, k, v = heads()
    bias = torch.randn(H, T, S)
    s = attend(q, k, v, CAUSAL, bias=bias)
    torch.testing.assert_close((s.raw, s.scores), (q @ k.mT, s.raw * s.scale + bias))
    assert s.scale == pytest.approx(D**-0.5)
    assert torch.equal(s.masked, s.scores.masked_fill(~CAUSAL, -torch.inf))
    torch.testing.assert_close((s.weights, s.out), (s.masked.softmax(-1), s.weights @ v))
    fused = attend(q, k, v, kernel="fused")
    assert fused.raw is fused.scores is fused.masked is fused.weights is None


# The layer against nn.MultiheadAttention with our weights in it.


@KERNELS
@each(
    ("mask", "cross", "padded"),
    [
        ("none", False, False),
        ("none", True, False),
        ("none", True, True),
        ("padding", True, True),
        ("causal", False, False),
        ("causal", False, True),
    ],
)
def test_the_layer_is_torchs(mask, cross, padded, kernel):
    ours = Attention(AttentionConfig(C, H, mask=mask, kernel=kernel))
    p, peer = ours.projection, nn.MultiheadAttention(C, H, batch_first=True)
    put(*((part.bias, torch.randn(C)) for part in (p.query, p.key, p.value, p.output)))
    names = {f"out_proj.{name}": weight for name, weight in p.output.named_parameters()} | {
        f"in_proj_{name}": torch.cat([getattr(part, name) for part in (p.query, p.key, p.value)])
        for name in ("weight", "bias")
    }
    x = torch.randn(B, T, C, requires_grad=True)
    memory = torch.randn(B, S, C) if cross else x
    real = REAL[:, : memory.shape[1]] if padded else None
    steps = ours(x, memory if cross else None, key_mask=real)
    hidden = {  # theirs: True = ignore
        "key_padding_mask": None if real is None else ~real,
        "attn_mask": torch.ones(T, T, dtype=torch.bool).triu(1) if mask == "causal" else None,
        "average_attn_weights": False,
    }
    out, weights = torch.func.functional_call(peer, names, (x, memory, memory), hidden)
    if steps.weights is not None:
        assert_close(steps.weights, weights)
    agree(steps.merged, out, [x, *(part.weight for part in (p.query, p.key, p.value, p.output))])


@each("heads", [1, 3, 13, 39])
def test_heads_take_neighbouring_dimensions(heads):
    # Head h reads dimensions h·D to (h + 1)·D: with one head's values zeroed, only its part of the merge changes.
    steps = Attention(AttentionConfig(C, heads, projection="identity", score="dot"))(
        torch.randn(B, T, C)
    )
    torch.testing.assert_close(
        steps.merged, torch.cat([steps.out[:, h] for h in range(heads)], dim=-1)
    )


# The layer against the formula as a textbook writes it.


def textbook(layer, x, context, mask, **more):
    maps = layer.projection
    return attention(x, context, maps.query, maps.key, maps.value, maps.output, 2, mask, **more)


def rotary(bias):
    layer = Attention(
        AttentionConfig(12, 2, Choice.of("multi_head", bias=bias), position="rope", mask="causal")
    ).double()
    for weight in layer.parameters():
        nn.init.normal_(weight, std=0.3)
    x, context = (torch.randn(3, n, 12, dtype=torch.float64, requires_grad=True) for n in (T, S))
    return layer, x, context, torch.arange(S)[None] < torch.tensor([S, 4, 1])[:, None]


@each("bias", [True, False])
@RECORD
def test_rotary_causal_attention_with_padding_is_textbooks(bias, record):
    layer, x, context, key_mask = rotary(bias)
    out, weights = textbook(layer, x, context, CAUSAL & key_mask[:, None, None, :])
    steps = layer(x, context, key_mask=key_mask, record=record)
    if record:
        torch.testing.assert_close(steps.weights, weights)
    agree(steps.merged, out, [x, context, *layer.parameters()])


@RECORD
def test_a_bias_on_the_scores_is_added_after_the_scale(record):
    layer, x, context, _ = rotary(True)
    alibi = Attention(layer.config.with_(position="alibi")).double()
    alibi.load_state_dict(layer.state_dict())
    bias = (
        -alibi_slopes(2)[:, None, None].double()
        * (torch.arange(T)[:, None] - torch.arange(S)).abs()
    )
    out, _ = textbook(layer, x, context, CAUSAL, bias=bias, rotary_base=None)
    torch.testing.assert_close(alibi(x, context, record=record).merged, out)


def test_attend_on_rotated_heads_is_the_same_formula():
    layer, x, context, key_mask = rotary(False)
    q, k, v = layer.projection(x, context)
    out, _ = textbook(layer, x, context, key_mask[:, None, None, :])
    torch.testing.assert_close(
        layer.projection.merge(
            attend(rotate(q, 10000.0), rotate(k, 10000.0), v, key_mask[:, None, None, :]).out, x
        ),
        out,
    )


# The learned scores by hand, and against a second writing of each paper's formula with plain loops.


def layer(score, width=C, heads=H, **axes):
    return Attention(AttentionConfig(width, heads, "identity", score, **axes))


def rms(x):
    return x / (x.square().mean() + 1e-6).sqrt()


def clip(x):
    return x * (2 * math.sqrt(len(x)) / x.norm()).clamp(max=1)


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
    "clipped": lambda m: lambda h, q, k: clip(q * m.gain[h, 0]) @ clip(k) / math.sqrt(D),
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
    # And its factors, if it has any, which a page writes into the equation, add up to what was computed.
    attention = layer(score)
    x, context = torch.randn(B, T, C, requires_grad=True), torch.randn(B, S, C, requires_grad=True)
    q, k, _ = attention.projection(x, context)
    cell = FORMULAS[score](attention.score)
    places = [(b, h, i, j) for b in range(B) for h in range(H) for i in range(T) for j in range(S)]
    agree(
        attention(x, context).scores,
        torch.stack([cell(h, q[b, h, i], k[b, h, j]) for b, h, i, j in places]).view(B, H, T, S),
        ((x, context, *attention.score.parameters())),
    )
    one_q, one_k = q[:, :, :1], k[:, :, :1]
    if factors := attention.score.factors(one_q, one_k):
        torch.testing.assert_close(
            torch.mul(*factors).sum(-1, keepdim=True), attention.score(one_q, one_k)
        )


@each("score", ["additive", "concat"])
def test_without_gradients_it_is_the_same_in_slices(score, monkeypatch):
    attention, x, context = layer(score), torch.randn(B, T, C), torch.randn(B, S, C)
    whole = attention(x, context).scores
    with monkeypatch.context() as patch, torch.no_grad():
        patch.setattr(scores, "MAX_HIDDEN_CELLS", 1)
        torch.testing.assert_close(attention(x, context).scores, whole)


GENERAL = "Luong: W = [[0, 2], [0, 0]] lets the first of q meet the second of k alone; (3, 5)·W·(7, 11) = 66."
CONCAT = "Luong: W = [W_q | W_k] reads q's first and k's second; v = 2, so the score is 2·tanh(0.5 − 0.25)."
QK_NORM = "RMSNorm(3, 4) = (3, 4)/√12.5 and RMSNorm(0, 2) = (0, √2); gains (1, 2) and (1, 3): 6·4·√2/√12.5/√2."
CLIPPED = "A root mean square of 2 is a length of 2√2: (3, 4)·(1, 2) = (3, 8) is cut to it, (0, 2) is shorter and stays."
UNIT = "q = (3, 4) and k = (0, 2) become (0.6, 0.8) and (0, 1); with gains (1, 2) the product is 3.2, times √2."
ADDITIVE = "Bahdanau: W₁ = W₂ = 1, v = (1, −1); q = (1, 0) and k = (0, 1) meet as tanh 1 − tanh 1, k = (1, −1) as 1.7257."
EYES = {"query": torch.eye(2)[None], "key": torch.eye(2)[None], "vector": [[1.0, -1.0]]}
COSINE = "Swin V2: (3, 4) and (8, 6) meet at cos = 48/50, (−6, −8) at −1; τ = 0.5 doubles it. Lengths do not matter."
HALF = Choice.of("cosine", tau=0.5)


@each(
    ("score", "weights", "q", "k", "expected", "why"),
    [
        ("additive", EYES, [1.0, 0.0], [0.0, 1.0], 0.0, ADDITIVE),
        ("additive", EYES, [1.0, 0.0], [1.0, -1.0], math.tanh(2) - math.tanh(-1), ADDITIVE),
        (HALF, {}, [300.0, 400.0], [8.0, 6.0], 1.92, COSINE),
        (HALF, {}, [3.0, 4.0], [-6.0, -8.0], -2.0, COSINE),
        (HALF, {}, [3.0, 4.0], [0.0, 0.0], 0.0, COSINE),
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
        (
            "clipped",
            {"gain": [[[1.0, 2.0]]]},
            [3.0, 4.0],
            [0.0, 2.0],
            8 * math.sqrt(8 / 73) * 2 / math.sqrt(2),
            CLIPPED,
        ),
        (
            "unit_vectors",
            {"gain": [[[1.0, 2.0]]]},
            [3.0, 4.0],
            [0.0, 2.0],
            3.2 * math.sqrt(2),
            UNIT,
        ),
    ],
)
def test_one_score_by_hand(score, weights, q, k, expected, why):
    attention = layer(score, 2, 1)
    put(*((attention.score.get_parameter(name), value) for name, value in weights.items()))
    assert attention(torch.tensor([[q]]), torch.tensor([[k]])).scores.item() == pytest.approx(
        expected, rel=1e-5
    ), why


def test_cosine_holds_tau_from_a_hundredth_up():
    attention = Attention(AttentionConfig(C, H, score="cosine"))
    put((attention.score.log_scale, [9.0, math.log(20), math.log(20)]))
    torch.testing.assert_close(attention.score.scale.flatten(), torch.tensor([100.0, 20.0, 20.0]))
    attention(torch.randn(B, T, C)).merged.sum().backward()
    assert (
        attention.score.log_scale.grad[0] == 0 != attention.score.log_scale.grad[1]
        and not layer(Choice.of("cosine", learned=False)).score.log_scale.requires_grad
    )


def test_qk_norm_is_qwen3():
    # With grouped heads and RoPE: the norms come first, so their gains meet each dimension before it is turned.
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
    # As in the paper: the gain of a dimension does not turn with it, and the length of q has no effect.
    attention = layer("unit_vectors", 2 * C, position="rope")
    torch.nn.init.uniform_(attention.score.gain, 0.5, 2.0)
    x = torch.randn(B, S, 2 * C)
    turned = attention.position.rotate(x.view(B, S, H, 2 * D).transpose(1, 2))
    unit = turned / turned.norm(dim=-1, keepdim=True) * attention.score.gain
    want = unit @ unit.mT * math.sqrt(2 * D)
    for length in (1, 3):
        torch.testing.assert_close(attention(length * x).scores, want, rtol=1e-5, atol=1e-5)


@each("d", [4, 64, 512])
def test_the_scale_keeps_the_variance_of_the_scores(d):
    # Vaswani 2017, footnote 4: q·k of unit normals has variance D, divided by √D it has one.
    q, k = torch.randn(2, 1, 1, 257, d)
    steps = attend(q, k, k)
    assert (steps.raw.var().item(), steps.scores.var().item()) == (
        pytest.approx(d, rel=0.15),
        pytest.approx(1, rel=0.15),
    )


# Each normalizer beside an implementation that is not ours, forward and gradient, with and without a mask.


def normalizer(key, heads=H, **params):
    return entry("normalizer", key).build(
        AttentionConfig(heads * D, heads, normalizer=Choice.of(key, **params))
    )


def drawn(spread=2.0, keys=S, dtype=torch.float32):
    scores = (torch.randn(B, H, T, keys) * spread).to(dtype).requires_grad_()
    mask = torch.rand(B, 1, T, keys) > 0.4
    mask[..., 0] = True
    return scores, mask


def query_heads():
    return tuple(torch.randn(B, H, n, D, requires_grad=True) for n in (T, S, S))


ENTMAX = each(
    ("key", "params", "theirs"),
    [
        ("sparsemax", {}, lambda x: sparsemax(x, -1)),
        ("entmax15", {}, lambda x: entmax15(x, -1)),
        ("entmax", {"alpha": 1.2}, lambda x: entmax_bisect(x, 1.2, -1, n_iter=60)),
        ("entmax", {"alpha": 1.7}, lambda x: entmax_bisect(x, 1.7, -1, n_iter=60)),
    ],
)


@each("keys", [1, 2, 23, 61, 257])
@each("spread", [0.01, 2.0, 50.0])
@each("masked", [False, True])
@ENTMAX
def test_entmax_package(key, params, theirs, masked, spread, keys):
    scores, mask = drawn(spread, keys)
    ours = normalizer(key, **params)(scores, mask if masked else None)
    given = scores.masked_fill(~mask, -1e4) if masked else scores
    agree(ours, theirs(given), (scores,), felt=False)


@each(("power", "theirs"), [(1.0, sparsemax), (2.0, entmax15)])
def test_threshold_of_graphs_and_gpus_is_that_of_package(power, theirs):
    scores = torch.randn(5, 7, dtype=torch.float64) * 2
    z = (scores - scores.amax(-1, keepdim=True)) / power
    torch.testing.assert_close(
        (z - sorted_threshold(z, power)).clamp(min=0.0) ** power, theirs(scores, -1)
    )


@each("keys", [3, 40])
@ENTMAX
def test_entmax_gradient_is_the_slope(key, params, theirs, keys):
    # Finite differences in double precision, on rows that are sorted and on rows that are solved.
    torch.manual_seed(5)
    scores = torch.randn(1, 1, 3, keys, dtype=torch.float64, requires_grad=True)
    own = normalizer(key, **params).double()
    assert torch.autograd.gradcheck(lambda s: own(s, None), scores, eps=1e-7, atol=1e-5)


def test_softmax_one_is_add_zero_attn():
    peer = nn.MultiheadAttention(C, H, batch_first=True, add_zero_attn=True).eval()
    ours = Attention(AttentionConfig(C, H, normalizer="softmax_one"))
    p = ours.projection
    names = {
        "in_proj_weight": torch.cat((p.query.weight, p.key.weight, p.value.weight)),
        "out_proj.weight": p.output.weight,
    }
    x, context = torch.randn(B, T, C, requires_grad=True), torch.randn(B, S, C, requires_grad=True)
    out, weights = torch.func.functional_call(
        peer, names, (x, context, context), {"average_attn_weights": False}
    )
    steps = ours(x, context)
    torch.testing.assert_close(steps.weights, weights[..., :S])
    agree(steps.merged, out, (x, context, p.query.weight, p.value.weight))


@each("cap", [0.5, 50.0, None])
def test_softcap_is_gemma2_and_sink_is_gpt_oss(cap):
    (q, k, v), (_, mask) = query_heads(), drawn()
    large = q * 9
    module: Any = types.SimpleNamespace(num_key_value_groups=1, head_dim=D, training=False)
    added = torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)
    if cap:
        own = normalizer("softcap", cap=cap)
        _, theirs = gemma2.eager_attention_forward(module, large, k, v, added, softcap=cap)
    else:
        own = normalizer("sink")
        put((own.sink, [-1.0, 0.5, 3.0]))
        module.sinks = own.sink
        _, theirs = gpt_oss.eager_attention_forward(module, large, k, v, added, scaling=D**-0.5)
    agree(own(large @ k.mT * D**-0.5, mask), theirs, (q, k, *own.parameters()))


@each(
    ("own", "how"),
    [
        (normalizer("sigmoid", by_length=False), {"sigmoid": True}),
        (normalizer("top_k", k=4), {"sparse_topk": 4}),
    ],
)
def test_sigmoid_and_top_k_are_x_transformers(own, how):
    q, k, v = query_heads()
    theirs, between = Attend(causal=False, **how)(q, k, v)
    ours = own(q @ k.mT * D**-0.5, None)
    torch.testing.assert_close(ours, between.post_softmax_attn)
    agree(ours @ v, theirs, (q, k, v))


def test_hard_is_x_transformers():
    # Forward the largest, backward the softmax's gradient.
    scores, _ = drawn()
    agree(normalizer("hard")(scores, None), one_hot_straight_through(scores), (scores,))


def test_every_normalizer_stands_beside_an_oracle():
    source = Path(__file__).read_text("utf-8")
    named = {item.key for item in AXES["normalizer"] if f'"{item.key}"' in source}
    # test_relative_positions.py has the latter
    assert {item.key for item in AXES["normalizer"]} - named <= {"softmax", "query_sink"}


# The normalizers of 2020 to 2025 against a second writing of each paper's equation, row by row, and x_transformers.


def by_rows(scores, mask, rule):
    """rule(head, visible scores of a row) → their weights, and 0 elsewhere; one row at a time."""
    rows = []
    for b, h, t in ((b, h, t) for b in range(B) for h in range(H) for t in range(T)):
        row = scores.new_zeros(scores.shape[-1])
        seen = row == 0 if mask is None else mask[b, 0, t]
        rows.append(row.masked_scatter(seen, rule(h, scores[b, h, t][seen])) if seen.any() else row)
    return torch.stack(rows).view_as(scores)


def softpick(own, h, z):
    excess = z.exp() - 1
    return excess.relu() / (excess.abs().sum() + 1e-8 * z.max().detach().clamp(min=0).exp())


def stick_breaking(own, h, z):
    left, shares = z.new_ones(()), []
    for score in reversed(z):
        shares.append(left * score.sigmoid())
        left = left - shares[-1]
    return torch.stack(shares[::-1])


@each(
    ("key", "rule"),
    [
        (
            "scalable_softmax",
            lambda own, h, z: (
                (powers := torch.pow(torch.tensor(len(z), dtype=z.dtype), own.factor[h] * z))
                / powers.sum()
            ),
        ),
        ("softpick", softpick),
        ("stick_breaking", stick_breaking),
        ("taylor", lambda own, h, z: (1 + z + z**2 / 2) / (1 + z + z**2 / 2).sum()),
    ],
)
@each("keys", [1, 2, S])
@each("spread", [0.1, 3.0])
@each("masked", [False, True])
def test_it_is_the_paper_row_by_row(key, rule, spread, keys, masked):
    scores, mask = drawn(spread, keys, torch.float64)
    mask[:, :, 1] = False
    own, mask = normalizer(key).double(), mask if masked else None
    put(*((weight, [0.3, 1.0, -0.7]) for weight in own.parameters()))
    theirs = by_rows(scores, mask, lambda h, z: rule(own, h, z))
    inputs = (scores, *own.parameters()) if keys > 1 else (scores,)
    agree(own(scores, mask), theirs, inputs, felt=keys > 2)


def test_scalable_softmax_with_a_shift_is_mistrals():
    # Theirs counts a query's own place; under a causal mask it sees as many keys.
    (q, k, v), own = query_heads(), normalizer("scalable_softmax", shift=True)
    put((own.factor, [0.3, 1.0, -0.7]), (own.shift, [1.2, 0.4, -0.5]))
    peer = mistral.MistralLarge4TextSoftmaxScaling(H)
    scaled = torch.func.functional_call(
        peer, {"scale": own.factor, "bias": own.shift}, (q, torch.arange(T)[None], True)
    )
    ours = attend(q, k, v, CAUSAL, normalizer=own)
    agree(ours.out, attend(scaled, k, v, CAUSAL).out, (q, k, v, own.factor, own.shift))


def test_scalable_softmax_keeps_its_peak_as_keys_are_added():
    # Figure 1 of the paper: all scores −2 but the last, 3; s = 0.43. Softmax fades, this does not.

    def peak(key, keys, **params):
        scores = torch.full((1, H, 1, keys), -2.0)
        scores[..., -1] = 3.0
        return normalizer(key, **params)(scores, None)[0, 0, 0, -1].item()

    assert (
        peak("softmax", 10) > 0.9 > 0.2 > peak("softmax", 1000)
        and min(peak("scalable_softmax", keys, start=0.43) for keys in (10, 100, 1000, 10000)) > 0.9
    )


def test_softpick_counts_nothing_masked():
    own = normalizer("softpick")
    torch.testing.assert_close(
        own(torch.tensor([[[[500.0, 500.0, -500.0]]]]), None).flatten(),
        torch.tensor([0.5, 0.5, 0.0]),
    )
    torch.testing.assert_close(
        own(torch.tensor([[[[math.log(2), 7.0]]]]), torch.tensor([True, False])).flatten(),
        torch.tensor([1.0, 0.0]),
    )


def test_taylor_is_flas_based():
    q, k, v = (torch.randn(B, H, T, D, requires_grad=True) for _ in range(3))
    theirs = fla("based", "naive_parallel_based")(q, k, v)
    agree(attend(q, k, v, CAUSAL[:, :T], normalizer=normalizer("taylor")).out, theirs, (q, k, v))


@each(
    ("mask", "own_token"), [(Choice("causal"), True), (Choice.of("formula", text="j < i"), False)]
)
def test_stick_breaking_is_flas(mask, own_token):
    # Whether a token reads itself is the mask's to say; three heads share one of keys.
    q, k, v = (torch.randn(B, heads, S, D, requires_grad=True) for heads in (H, 1, 1))
    ours = attend(q, k, v, build_mask(mask, S, S), normalizer=normalizer("stick_breaking"))
    theirs, left = fla("stickbreaking_attn", "naive_stickbreaking_attn")(
        *(x.transpose(1, 2) for x in (q, k, v)), attend_current=own_token
    )
    agree(ours.out, theirs.transpose(1, 2), (q, k, v))
    assert_close(1 - ours.weights.sum(-1), left.mT)


def test_a_stick_breaks_precisely_after_nothing():
    # The last key takes almost nothing or almost all: the key before it has its share of the rest.
    weights = normalizer("stick_breaking")(torch.tensor([[[[0.0, -1e4], [0.0, 20.0]]]]), None)[0, 0]
    assert weights[0].tolist() == [0.5, 0.0]
    torch.testing.assert_close(weights[1, 0], torch.tensor(0.5 / (1 + math.exp(20.0))))


def test_stick_breaking_wants_keys_in_order():
    for axis, grid in (("mask", "neighborhood"), ("position", "grid_rope")):
        pytest.raises(
            ConfigError, AttentionConfig(8, 1, normalizer="stick_breaking").with_, **{axis: grid}
        ).match(f"stick_breaking.*{grid}.*take normalizer")


def talking():
    own = normalizer("talking_heads")
    put((own.before, torch.randn(H, H)), (own.after, torch.randn(H, H)))
    return own


@each("masked", [False, True])
def test_talking_heads_are_x_transformers(masked):
    # Theirs adds the mix before the softmax to the scores, so that ours is that plus one.
    own, (q, k, v) = talking(), query_heads()
    peer = Attend(heads=H, pre_talking_heads=True, post_talking_heads=True, causal=False)
    names = {
        "pre_softmax_talking_heads.weight": (own.before - torch.eye(H))[..., None, None],
        "post_softmax_talking_heads.weight": own.after[..., None, None],
    }
    mask = drawn()[1] if masked else None
    out, _ = torch.func.functional_call(peer, names, (q, k, v), {"mask": mask})
    agree(attend(q, k, v, mask, normalizer=own).out, out, (q, k, v, own.before, own.after))


def test_talking_heads_by_hand():
    # Two heads, two keys: the second head's scores are the sum, and each head's weights the mean of both.
    own = normalizer("talking_heads", heads=2)
    put((own.before, [[1.0, 0.0], [1.0, 1.0]]), (own.after, 0.5))
    torch.testing.assert_close(
        own(torch.tensor([[0.0, math.log(3)], [0.0, -math.log(3)]]).view(1, 2, 1, 2), None),
        torch.tensor([(1 / 4 + 1 / 2) / 2, (3 / 4 + 1 / 2) / 2]).expand(1, 2, 1, 2),
    )


def test_heads_that_talk_do_not_tell_what_is_masked():
    # Under a mask of each head's own: what a head may not see reaches no head, forward and backward, NaN too.
    own, scores = talking(), torch.randn(B, H, T, S)
    mask = torch.rand(B, H, T, S) > 0.4
    mask[:, 1, 2] = False
    broken = scores.masked_fill(~mask, torch.nan).requires_grad_()
    other = scores.masked_scatter(~mask, torch.randn(mask.numel())).requires_grad_()
    outs = own(broken, mask), own(other, mask)
    assert not outs[0][~mask].any()
    grads = torch.autograd.grad(sum(out.square().sum() for out in outs), (broken, other))
    assert grads[0].isfinite().all() and not grads[0][~mask].any()
    for one, two in (outs, grads):
        torch.testing.assert_close(one, two)
    seen = mask.clone()
    seen[:, 1, 2] = True  # a row that sees nothing gives the other heads nothing
    finite = scores.masked_fill(~mask, 0.0)
    assert not torch.allclose(own(finite, mask)[:, 0, 2], own(finite, seen)[:, 0, 2])
