"""Each normalizer beside an implementation that is not ours, forward and gradient, with and without a mask."""

import types
from pathlib import Path
from typing import Any

import torch
from torch import nn

from core.attention import AXES, Attention, AttentionConfig, Choice, entry
from tests.cases import each

B, T, S, H, D = 2, 5, 11, 3, 7
C = H * D


def normalizer(key, heads=H, **params):
    return entry("normalizer", key).build(
        AttentionConfig(heads * D, heads, normalizer=Choice.of(key, **params))
    )


def drawn(spread=2.0, keys=S):
    torch.manual_seed(3)
    scores = (torch.randn(B, H, T, keys) * spread).requires_grad_()
    mask = torch.rand(B, 1, T, keys) > 0.4
    mask[..., 0] = True
    return scores, mask


def same_gradients(ours, theirs, inputs, **close):
    """Both outputs, and what both do to the inputs."""
    torch.testing.assert_close(ours, theirs, **close)
    seed = torch.randn_like(theirs)
    mine = torch.autograd.grad((ours * seed).sum(), inputs, retain_graph=True)
    other = torch.autograd.grad((theirs * seed).sum(), inputs)
    for a, b in zip(mine, other, strict=True):
        torch.testing.assert_close(a, b, **close)


ENTMAX = [
    ("sparsemax", {}, 2.0),
    ("entmax15", {}, 1.5),
    ("entmax", {"alpha": 1.2}, 1.2),
    ("entmax", {"alpha": 1.7}, 1.7),
]


@each("keys", [1, 2, 23, 61, 257])
@each("spread", [0.01, 2.0, 50.0])
@each(("key", "params", "alpha"), ENTMAX)
def test_entmax_package(key, params, alpha, spread, keys):
    from entmax import entmax15, entmax_bisect, sparsemax

    scores, _ = drawn(spread, keys)
    theirs = {2.0: lambda x: sparsemax(x, -1), 1.5: lambda x: entmax15(x, -1)}.get(
        alpha, lambda x: entmax_bisect(x, alpha, -1, n_iter=60)
    )
    same_gradients(
        normalizer(key, **params)(scores, None), theirs(scores), (scores,), rtol=1e-4, atol=3e-6
    )


@each(("key", "params", "alpha"), ENTMAX)
def test_entmax_package_behind_a_mask(key, params, alpha):
    from entmax import entmax_bisect

    scores, mask = drawn()
    theirs = entmax_bisect(scores.masked_fill(~mask, -1e4), alpha, -1, n_iter=60)
    same_gradients(normalizer(key, **params)(scores, mask), theirs, (scores,), rtol=1e-4, atol=3e-6)


@each("keys", [3, 40])
@each(("key", "params", "alpha"), ENTMAX)
def test_entmax_gradient_is_the_slope(key, params, alpha, keys):
    """Finite differences in double precision, on rows that are sorted and on rows that are solved."""
    torch.manual_seed(5)
    scores = torch.randn(1, 1, 3, keys, dtype=torch.float64, requires_grad=True)
    own = normalizer(key, **params).double()
    assert torch.autograd.gradcheck(lambda s: own(s, None), scores, eps=1e-7, atol=1e-5)


def test_softmax_one_is_add_zero_attn():
    torch.manual_seed(2)
    theirs = nn.MultiheadAttention(C, H, batch_first=True, add_zero_attn=True).eval()
    ours = Attention(AttentionConfig(C, H, normalizer="softmax_one"))
    with torch.no_grad():
        for name, part in zip(
            ("query", "key", "value"), theirs.in_proj_weight.chunk(3), strict=True
        ):
            getattr(ours.projection, name).weight.copy_(part)
        ours.projection.output.weight.copy_(theirs.out_proj.weight)
    x, context = torch.randn(B, T, C, requires_grad=True), torch.randn(B, S, C, requires_grad=True)
    out, weights = theirs(x, context, context, average_attn_weights=False)
    steps = ours(x, context)
    torch.testing.assert_close(steps.weights, weights[..., :S])
    same_gradients(steps.merged, out, (x, context), rtol=1e-4, atol=1e-5)


def heads_of():
    torch.manual_seed(9)
    q = torch.randn(B, H, T, D, requires_grad=True)
    k, v = (torch.randn(B, H, S, D, requires_grad=True) for _ in range(2))
    return q, k, v


@each("cap", [0.5, 50.0])
def test_softcap_is_gemma2(cap):
    from transformers.models.gemma2.modeling_gemma2 import eager_attention_forward

    q, k, v = heads_of()
    q_large = q * 9
    _, mask = drawn()
    module: Any = types.SimpleNamespace(num_key_value_groups=1, head_dim=D, training=False)
    added = torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)
    _, theirs = eager_attention_forward(module, q_large, k, v, added, softcap=cap)
    ours = normalizer("softcap", cap=cap)(q_large @ k.mT * D**-0.5, mask)
    same_gradients(ours, theirs, (q, k), rtol=1e-4, atol=1e-5)


def test_sink_is_gpt_oss():
    from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward

    q, k, v = heads_of()
    _, mask = drawn()
    sinks = torch.tensor([-1.0, 0.5, 3.0], requires_grad=True)
    own = normalizer("sink")
    with torch.no_grad():
        own.sink.copy_(sinks)
    module: Any = types.SimpleNamespace(num_key_value_groups=1, sinks=sinks, training=False)
    added = torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)
    _, theirs = eager_attention_forward(module, q, k, v, added, scaling=D**-0.5)
    ours = own(q @ k.mT * D**-0.5, mask)
    seed = torch.randn_like(theirs)
    mine = torch.autograd.grad((ours * seed).sum(), (q, k, own.sink))
    other = torch.autograd.grad((theirs * seed).sum(), (q, k, sinks))
    torch.testing.assert_close(ours, theirs)
    for a, b in zip(mine, other, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_sigmoid_is_x_transformers():
    from x_transformers.attend import Attend

    q, k, v = heads_of()
    theirs, between = Attend(sigmoid=True, causal=False)(q, k, v)
    ours = normalizer("sigmoid", by_length=False)(q @ k.mT * D**-0.5, None)
    torch.testing.assert_close(ours, between.post_softmax_attn)
    same_gradients(ours @ v, theirs, (q, k, v), rtol=1e-4, atol=1e-5)


def test_hard_is_x_transformers():
    """Forward the largest, backward the softmax's gradient."""
    from x_transformers.attend import one_hot_straight_through

    scores, _ = drawn()
    same_gradients(
        normalizer("hard")(scores, None),
        one_hot_straight_through(scores),
        (scores,),
        rtol=1e-5,
        atol=1e-6,
    )


def test_top_k_is_x_transformers():
    from x_transformers.attend import Attend

    q, k, v = heads_of()
    theirs, between = Attend(sparse_topk=4, causal=False)(q, k, v)
    ours = normalizer("top_k", k=4)(q @ k.mT * D**-0.5, None)
    torch.testing.assert_close(ours, between.post_softmax_attn)
    same_gradients(ours @ v, theirs, (q, k, v), rtol=1e-4, atol=1e-5)


def test_every_normalizer_stands_beside_an_oracle():
    source = "".join(
        path.read_text("utf-8") for path in Path(__file__).parent.glob("test_*normalizers.py")
    )
    missing = [
        e.key for e in AXES["normalizer"] if e.key != "softmax" and f'"{e.key}"' not in source
    ]
    assert not missing, f"no oracle names {missing}"
