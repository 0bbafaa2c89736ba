"""Each normalizer beside an implementation that is not ours, forward and gradient, with and without a mask."""

import math
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from entmax import entmax15, entmax_bisect, sparsemax
from torch import nn
from transformers.models.gemma2 import modeling_gemma2 as gemma2
from transformers.models.gpt_oss import modeling_gpt_oss as gpt_oss
from x_transformers.attend import Attend, one_hot_straight_through

from core.attention import AXES, Attention, AttentionConfig, Choice, attend, entry
from tests.cases import each
from tests.oracles.agreement import agree, put

B, T, S, H, D = 2, 5, 11, 3, 7
C = H * D


def normalizer(key, heads=H, **params):
    config = AttentionConfig(heads * D, heads, normalizer=Choice.of(key, **params))
    return entry("normalizer", key).build(config)


def drawn(spread=2.0, keys=S, dtype=torch.float32):
    """Scores, and a mask whose first key is seen by all."""
    scores = (torch.randn(B, H, T, keys) * spread).to(dtype).requires_grad_()
    mask = torch.rand(B, 1, T, keys) > 0.4
    mask[..., 0] = True
    return scores, mask


def heads():
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


@each("keys", [3, 40])
@ENTMAX
def test_entmax_gradient_is_the_slope(key, params, theirs, keys):
    """Finite differences in double precision, on rows that are sorted and on rows that are solved."""
    torch.manual_seed(5)
    scores = torch.randn(1, 1, 3, keys, dtype=torch.float64, requires_grad=True)
    own = normalizer(key, **params).double()
    assert torch.autograd.gradcheck(lambda s: own(s, None), scores, eps=1e-7, atol=1e-5)


def test_softmax_one_is_add_zero_attn():
    peer = nn.MultiheadAttention(C, H, batch_first=True, add_zero_attn=True).eval()
    ours = Attention(AttentionConfig(C, H, normalizer="softmax_one"))
    p = ours.projection
    maps = torch.cat((p.query.weight, p.key.weight, p.value.weight))
    names = {"in_proj_weight": maps, "out_proj.weight": p.output.weight}
    x, context = torch.randn(B, T, C, requires_grad=True), torch.randn(B, S, C, requires_grad=True)
    out, weights = torch.func.functional_call(
        peer, names, (x, context, context), {"average_attn_weights": False}
    )
    steps = ours(x, context)
    torch.testing.assert_close(steps.weights, weights[..., :S])
    agree(steps.merged, out, (x, context, p.query.weight, p.value.weight))


@each("cap", [0.5, 50.0, None])
def test_softcap_is_gemma2_and_sink_is_gpt_oss(cap):
    (q, k, v), (_, mask) = heads(), drawn()
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
    q, k, v = heads()
    theirs, between = Attend(causal=False, **how)(q, k, v)
    ours = own(q @ k.mT * D**-0.5, None)
    torch.testing.assert_close(ours, between.post_softmax_attn)
    agree(ours @ v, theirs, (q, k, v))


def test_hard_is_x_transformers():
    """Forward the largest, backward the softmax's gradient."""
    scores, _ = drawn()
    agree(normalizer("hard")(scores, None), one_hot_straight_through(scores), (scores,))


def test_every_normalizer_stands_beside_an_oracle():
    source = Path(__file__).read_text("utf-8")
    named = {item.key for item in AXES["normalizer"] if f'"{item.key}"' in source}
    assert {item.key for item in AXES["normalizer"]} - named <= {"softmax"}


# The normalizers of 2020 to 2025 against a second writing of each paper's equation, row by row, and x_transformers.


def by_rows(scores, mask, rule):
    """rule(head, visible scores of a row) → their weights, and 0 elsewhere; one row at a time."""
    rows = []
    for b, h, t in ((b, h, t) for b in range(B) for h in range(H) for t in range(T)):
        row = scores.new_zeros(scores.shape[-1])
        seen = row == 0 if mask is None else mask[b, 0, t]
        rows.append(row.masked_scatter(seen, rule(h, scores[b, h, t][seen])) if seen.any() else row)
    return torch.stack(rows).view_as(scores)


def scalable(own, h, z):
    """n^(s z), in shares."""
    powers = torch.pow(torch.tensor(len(z), dtype=z.dtype), own.factor[h] * z)
    return powers / powers.sum()


def softpick(own, h, z):
    excess = z.exp() - 1
    return excess.relu() / (excess.abs().sum() + 1e-8 * z.max().detach().clamp(min=0).exp())


@each(("key", "rule"), [("scalable_softmax", scalable), ("softpick", softpick)])
@each("keys", [1, 2, S])
@each("spread", [0.1, 3.0])
@each("masked", [False, True])
def test_it_is_the_paper_row_by_row(key, rule, spread, keys, masked):
    """In double precision; under the mask the second row sees nothing."""
    scores, mask = drawn(spread, keys, torch.float64)
    mask[:, :, 1] = False
    own, mask = normalizer(key).double(), mask if masked else None
    put(*((weight, [0.3, 1.0, -0.7]) for weight in own.parameters()))
    theirs = by_rows(scores, mask, lambda h, z: rule(own, h, z))
    inputs = (scores, *own.parameters()) if keys > 1 else (scores,)
    agree(own(scores, mask), theirs, inputs, felt=keys > 2)


def test_scalable_softmax_keeps_its_peak_as_keys_are_added():
    """Figure 1 of the paper: all scores −2 but the last, 3; s = 0.43. Softmax fades, this does not."""

    def peak(key, keys, **params):
        scores = torch.full((1, H, 1, keys), -2.0)
        scores[..., -1] = 3.0
        return normalizer(key, **params)(scores, None)[0, 0, 0, -1].item()

    assert peak("softmax", 10) > 0.9 > 0.2 > peak("softmax", 1000)
    assert min(peak("scalable_softmax", keys, start=0.43) for keys in (10, 100, 1000, 10000)) > 0.9


def test_softpick_neither_overflows_nor_counts_what_is_masked():
    own = normalizer("softpick")
    large = own(torch.tensor([[[[500.0, 500.0, -500.0]]]]), None)
    torch.testing.assert_close(large.flatten(), torch.tensor([0.5, 0.5, 0.0]))
    one = own(torch.tensor([[[[math.log(2), 7.0]]]]), torch.tensor([True, False]))
    torch.testing.assert_close(one.flatten(), torch.tensor([1.0, 0.0]))


def talking():
    """Talking heads with random matrices."""
    own = normalizer("talking_heads")
    put((own.before, torch.randn(H, H)), (own.after, torch.randn(H, H)))
    return own


@each("masked", [False, True])
def test_talking_heads_are_x_transformers(masked):
    """Theirs adds the mix before the softmax to the scores, so that ours is that plus one."""
    own, (q, k, v) = talking(), heads()
    peer = Attend(heads=H, pre_talking_heads=True, post_talking_heads=True, causal=False)
    names = {
        "pre_softmax_talking_heads.weight": (own.before - torch.eye(H))[..., None, None],
        "post_softmax_talking_heads.weight": own.after[..., None, None],
    }
    mask = drawn()[1] if masked else None
    out, _ = torch.func.functional_call(peer, names, (q, k, v), {"mask": mask})
    agree(attend(q, k, v, mask, normalizer=own).out, out, (q, k, v, own.before, own.after))


def test_talking_heads_by_hand():
    """Two heads, two keys: the second head's scores are the sum, and each head's weights the mean of both."""
    own = normalizer("talking_heads", heads=2)
    put((own.before, [[1.0, 0.0], [1.0, 1.0]]), (own.after, 0.5))
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


@each("key", ["scalable_softmax", "softpick", "talking_heads"])
@each("kernel", [Choice.of("local", block=3), Choice.of("block_sparse", block=2)])
def test_kernels_of_blocks_count_the_same_keys(key, kernel):
    """A block holds some keys that its rows may not see, and lacks others: neither is counted."""
    mask = Choice.of("causal_local", lookback=3)
    layer = Attention(AttentionConfig(C, H, mask=mask, normalizer=key, kernel=kernel))
    x, real = torch.randn(B, S, C), torch.rand(B, S) > 0.3
    fast, exact = (layer(x, key_mask=real, record=record).out for record in (False, True))
    torch.testing.assert_close(fast, exact, rtol=1e-4, atol=1e-6)


def test_what_is_learned_starts_where_it_is_told():
    assert normalizer("scalable_softmax", start=1.5).factor.tolist() == pytest.approx([1.5] * H)
