"""Each normalizer beside an implementation that is not ours, forward and gradient, with and without a mask."""

import math
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from core.attention import AXES, Attention, AttentionConfig, Choice, attend, entry
from tests.cases import each
from tests.oracles.agreement import same_result

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
    same_result(
        normalizer(key, **params)(scores, None), theirs(scores), (scores,), rtol=1e-4, atol=3e-6
    )


@each(("key", "params", "alpha"), ENTMAX)
def test_entmax_package_behind_a_mask(key, params, alpha):
    from entmax import entmax_bisect

    scores, mask = drawn()
    theirs = entmax_bisect(scores.masked_fill(~mask, -1e4), alpha, -1, n_iter=60)
    same_result(normalizer(key, **params)(scores, mask), theirs, (scores,), rtol=1e-4, atol=3e-6)


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
    same_result(steps.merged, out, (x, context), rtol=1e-4, atol=1e-5)


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
    same_result(ours, theirs, (q, k), rtol=1e-4, atol=1e-5)


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
    same_result(ours, theirs, (q, k, own.sink), (q, k, sinks))


def test_sigmoid_is_x_transformers():
    from x_transformers.attend import Attend

    q, k, v = heads_of()
    theirs, between = Attend(sigmoid=True, causal=False)(q, k, v)
    ours = normalizer("sigmoid", by_length=False)(q @ k.mT * D**-0.5, None)
    torch.testing.assert_close(ours, between.post_softmax_attn)
    same_result(ours @ v, theirs, (q, k, v), rtol=1e-4, atol=1e-5)


def test_hard_is_x_transformers():
    """Forward the largest, backward the softmax's gradient."""
    from x_transformers.attend import one_hot_straight_through

    scores, _ = drawn()
    same_result(
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
    same_result(ours @ v, theirs, (q, k, v), rtol=1e-4, atol=1e-5)


def test_every_normalizer_stands_beside_an_oracle():
    source = "".join(
        path.read_text("utf-8") for path in Path(__file__).parent.glob("test_*normalizers.py")
    )
    missing = [
        e.key for e in AXES["normalizer"] if e.key != "softmax" and f'"{e.key}"' not in source
    ]
    assert not missing, f"no oracle names {missing}"


# The normalizers of 2020 to 2025 against a second writing of each paper's equation, row by row, and x_transformers.


TIGHT = dict[str, Any](rtol=1e-9, atol=1e-12)


def by_rows(scores, mask, rule):
    """rule(head, visible scores of a row) → their weights, and 0 elsewhere; one row at a time."""
    rows = []
    for b in range(B):
        for h in range(H):
            for t in range(T):
                seen = (
                    mask[b, 0, t]
                    if mask is not None
                    else torch.ones(scores.shape[-1], dtype=torch.bool)
                )
                row = scores.new_zeros(scores.shape[-1])
                rows.append(
                    row.masked_scatter(seen, rule(h, scores[b, h, t][seen])) if seen.any() else row
                )
    return torch.stack(rows).view_as(scores)


def masked_cases(spread=2.0, keys=S):
    """Double-precision scores with no mask, then with a random one whose second row sees nothing."""
    scores, mask = drawn(spread, keys)
    mask[:, :, 1] = False
    return scores.detach().double().requires_grad_(), (None, mask)


@each("keys", [1, 2, S])
@each("spread", [0.1, 3.0])
def test_scalable_softmax_is_the_paper_row_by_row(spread, keys):
    scores, masks = masked_cases(spread, keys)
    own = normalizer("scalable_softmax").double()
    with torch.no_grad():
        own.factor.copy_(torch.tensor([0.3, 1.0, -0.7]))

    def rule(h, z):
        powers = torch.pow(torch.tensor(len(z), dtype=z.dtype), own.factor[h] * z)  # n^(s z)
        return powers / powers.sum()

    for mask in masks:
        ours, theirs = own(scores, mask), by_rows(scores, mask, rule)
        inputs = (scores, own.factor) if keys > 1 else (scores,)
        same_result(ours, theirs, inputs, **TIGHT)


def test_scalable_softmax_keeps_its_peak_as_keys_are_added():
    """Figure 1 of the paper: all scores −2 but the last, 3; s = 0.43. Softmax fades, this does not."""

    def peak(key, keys, **params):
        scores = torch.full((1, H, 1, keys), -2.0)
        scores[..., -1] = 3.0
        return normalizer(key, **params)(scores, None)[0, 0, 0, -1].item()

    assert peak("softmax", 10) > 0.9 > 0.2 > peak("softmax", 1000)
    assert min(peak("scalable_softmax", keys, start=0.43) for keys in (10, 100, 1000, 10000)) > 0.9


@each("keys", [1, 2, S])
@each("spread", [0.1, 3.0])
def test_softpick_is_the_paper_row_by_row(spread, keys):
    scores, masks = masked_cases(spread, keys)

    def rule(h, z):
        excess = z.exp() - 1
        return excess.relu() / (excess.abs().sum() + 1e-8 * z.max().detach().clamp(min=0).exp())

    for mask in masks:
        same_result(
            normalizer("softpick")(scores, mask), by_rows(scores, mask, rule), (scores,), **TIGHT
        )


def test_softpick_neither_overflows_nor_counts_what_is_masked():
    own = normalizer("softpick")
    large = own(torch.tensor([[[[500.0, 500.0, -500.0]]]]), None)
    torch.testing.assert_close(large.flatten(), torch.tensor([0.5, 0.5, 0.0]))
    scores, mask = torch.tensor([[[[math.log(2), 7.0]]]]), torch.tensor([True, False])
    torch.testing.assert_close(own(scores, mask).flatten(), torch.tensor([1.0, 0.0]))


def talking(seed=1):
    """Talking heads with random matrices."""
    torch.manual_seed(seed)
    own = normalizer("talking_heads")
    with torch.no_grad():
        own.before.normal_()
        own.after.normal_()
    return own


@each("masked", [False, True])
def test_talking_heads_are_x_transformers(masked):
    """Theirs adds the mix before the softmax to the scores, so that ours is that plus one."""
    from x_transformers.attend import Attend

    own, (q, k, v) = talking(), heads_of()
    theirs = Attend(heads=H, pre_talking_heads=True, post_talking_heads=True, causal=False)
    with torch.no_grad():
        theirs.pre_softmax_talking_heads.weight.copy_((own.before - torch.eye(H))[..., None, None])
        theirs.post_softmax_talking_heads.weight.copy_(own.after[..., None, None])
    _, mask = drawn()
    mask = mask if masked else None
    out, _ = theirs(q, k, v, mask=mask)
    steps = attend(q, k, v, mask, normalizer=own)
    convolved = (theirs.pre_softmax_talking_heads, theirs.post_softmax_talking_heads)
    mine, others = (own.before, own.after), [each.weight for each in convolved]
    ours, theirs = (q, k, v, *mine), (q, k, v, *others)
    same_result(steps.out, out, ours, theirs, rtol=1e-5, gradient=(1e-4, 2e-5))


def test_talking_heads_by_hand():
    """Two heads, two keys: the second head's scores are the sum, and each head's weights the mean of both."""
    own = normalizer("talking_heads", heads=2)
    with torch.no_grad():
        own.before.copy_(torch.tensor([[1.0, 0.0], [1.0, 1.0]]))
        own.after.fill_(0.5)
    scores = torch.tensor([[0.0, math.log(3)], [0.0, -math.log(3)]]).view(1, 2, 1, 2)
    want = torch.tensor([(1 / 4 + 1 / 2) / 2, (3 / 4 + 1 / 2) / 2]).expand(1, 2, 1, 2)
    torch.testing.assert_close(own(scores, None), want)


def test_heads_that_talk_do_not_tell_what_is_masked():
    """Under a mask of each head's own: what a head may not see reaches no head, forward and backward, NaN too."""
    own, scores = talking(), torch.randn(B, H, T, S)
    mask = torch.rand(B, H, T, S) > 0.4
    mask[:, 1, 2] = False
    broken = scores.masked_fill(~mask, torch.nan).requires_grad_()
    other = scores.masked_scatter(~mask, torch.randn(mask.numel())).requires_grad_()
    torch.testing.assert_close(own(broken, mask), own(other, mask))
    assert not own(broken, mask)[~mask].any()
    (one,) = torch.autograd.grad(own(broken, mask).square().sum(), broken)
    (two,) = torch.autograd.grad(own(other, mask).square().sum(), other)
    assert one.isfinite().all() and not one[~mask].any()
    torch.testing.assert_close(one, two)
    seen = mask.clone()
    seen[:, 1, 2] = True  # a row that sees nothing gives the other heads nothing
    with_row = own(scores.masked_fill(~mask, 0.0), mask)
    assert not torch.allclose(with_row[:, 0, 2], own(scores.masked_fill(~mask, 0.0), seen)[:, 0, 2])


@each("key", ["scalable_softmax", "softpick", "talking_heads"])
@each("kernel", [Choice.of("local", block=3), Choice.of("block_sparse", block=2)])
def test_kernels_of_blocks_count_the_same_keys(key, kernel):
    """A block holds some keys that its rows may not see, and lacks others: neither is counted."""
    config = AttentionConfig(
        C, H, mask=Choice.of("causal_local", lookback=3), normalizer=key, kernel=kernel
    )
    layer, x, real = Attention(config), torch.randn(B, S, C), torch.rand(B, S) > 0.3
    torch.testing.assert_close(
        layer(x, key_mask=real, record=False).out, layer(x, key_mask=real).out, rtol=1e-4, atol=1e-6
    )


def test_what_is_learned_starts_where_it_is_told():
    assert normalizer("scalable_softmax", start=1.5).factor.tolist() == pytest.approx([1.5] * H)
