"""Each pattern against an independent one: flex_attention's create_mask, transformers' functions and sparse modules."""

import math
from typing import Any

import pytest
import torch
from torch.nn.attention.flex_attention import create_mask
from transformers import BigBirdConfig, LongformerConfig, masking_utils
from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention
from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

from core.attention import Attention, AttentionConfig, Choice
from core.attention.masks import build_mask
from tests.cases import each

T, S = 13, 17
TEXTS = torch.tensor([0] * 4 + [1] * 5 + [2] * 3 + [3] * 5)
MODS = {
    "causal_local": (
        Choice.of("causal_local", lookback=3),
        lambda b, h, i, j: (i >= j) & (i - j <= 3),
    ),
    "dilated": (
        Choice.of("dilated", window=2, dilation=3),
        lambda b, h, i, j: ((i - j).abs() <= 6) & ((i - j).abs() % 3 == 0),
    ),
    "strided": (
        Choice.of("strided", lookback=3, stride=5),
        lambda b, h, i, j: (j <= i) & ((i - j < 4) | ((i - j) % 5 == 0)),
    ),
    "block": (Choice.of("block", size=5), lambda b, h, i, j: i // 5 == j // 5),
    "chunked": (Choice.of("chunked", size=5), lambda b, h, i, j: (i >= j) & (i // 5 == j // 5)),
    "prefix": (Choice.of("prefix", prefix=4), lambda b, h, i, j: (i >= j) | (j < 4)),
    "document": (Choice.of("document", lengths="4, 5, 3"), lambda b, h, i, j: TEXTS[i] == TEXTS[j]),
    "global_window": (
        Choice.of("global_window", window=2, globals=2),
        lambda b, h, i, j: ((i - j).abs() <= 2) | (i < 2) | (j < 2),
    ),
    "formula": (
        Choice.of("formula", text="j <= i and i - j < 4 or j % 5 == h"),
        lambda b, h, i, j: ((j <= i) & (i - j < 4)) | (j % 5 == h),
    ),
    "local_m": (Choice.of("local_m", window=3), lambda b, h, i, j: (i - j).abs() <= 3),
}


@each("name", MODS)
def test_flex_attention_sees_the_same_cells(name):
    choice, mod = MODS[name]
    theirs = create_mask(mod, 1, 3, T, S, device="cpu")[0]
    assert torch.equal(build_mask(choice, T, S, num_heads=3).expand(3, T, S), theirs)


@each("size", [1, 4, 6])
def test_chunked_is_llama_4s(size):
    theirs = masking_utils.chunked_causal_mask_function(size, torch.zeros(1, dtype=torch.long))
    want = torch.stack(
        [torch.stack([theirs(0, 0, i, j) for j in torch.arange(S)]) for i in torch.arange(T)]
    )
    assert torch.equal(build_mask(Choice.of("chunked", size=size), T, S), want)


def test_documents_and_causal_are_packed_sequences():
    theirs = masking_utils.packed_sequence_mask_function(TEXTS[None])
    want = torch.tensor([[bool(theirs(0, 0, i, j)) for j in range(S)] for i in range(S)])
    assert torch.equal(build_mask(Choice.of("document", lengths="4 5 3"), S, S), want)


def felt(layer, length, width, heads, **more):
    """Which inputs each output of a self-attention moves with through its values, (length, length), by gradient."""
    layer.query.weight.data.zero_(), layer.key.weight.data.zero_()
    x = torch.randn(1, length, width, requires_grad=True)
    out = layer(x, **more)[0].reshape(1, length, -1)
    rows = [
        torch.autograd.grad(out[0, i].sum(), x, retain_graph=True)[0][0].abs().sum(-1)
        for i in range(length)
    ]
    return torch.stack(rows) > 1e-9


@each(("window", "globals"), [(2, 1), (4, 3), (3, 0)])
def test_global_window_is_longformers(window, globals):
    length = 12 * window
    config = LongformerConfig(hidden_size=8, num_attention_heads=2, attention_window=[2 * window])
    layer = LongformerSelfAttention(config, 0).eval()
    layer.query_global.weight.data.zero_()
    mask = torch.zeros(1, length)
    mask[:, :globals] = 10_000
    seen = felt(
        layer,
        length,
        8,
        2,
        attention_mask=mask,
        is_index_masked=mask < 0,
        is_index_global_attn=mask > 0,
        is_global_attn=bool(globals),
    )
    assert torch.equal(
        build_mask(Choice.of("global_window", window=window, globals=globals), length, length), seen
    )


@each("training", [False, True])
def test_bigbird_is_the_window_the_ends_and_as_many_random_blocks(training):
    """In eval transformers adds no random block; in training it adds r to each row of blocks in the middle."""
    block, blocks, random = 2, 12, 2
    length = block * blocks
    config = BigBirdConfig(
        hidden_size=8,
        num_attention_heads=2,
        block_size=block,
        num_random_blocks=random,
        max_position_embeddings=1024,
    )
    layer = BigBirdBlockSparseAttention(config, seed=5).train(training)
    ones = torch.ones(1, length)
    masks = dict(
        band_mask=torch.ones(1, 1, blocks - 4, block, 3 * block),
        from_mask=ones[:, None, :, None],
        to_mask=ones[:, None, None],
        from_blocked_mask=ones.view(1, blocks, block),
        to_blocked_mask=ones.view(1, blocks, block),
    )
    seen = felt(layer, length, 8, 2, **masks)
    fixed = Choice.of("bigbird", block=block, window=1, globals=1, random=0)
    ours = build_mask(fixed, length, length)
    if not training:
        assert torch.equal(ours, seen)
        return
    assert torch.equal(ours & seen, ours)
    added = build_mask(Choice.of("bigbird", block=block, random=random), length, length)[
        ::block, ::block
    ].sum(1)
    one_head = seen[::block, ::block].sum(1) - ours[::block, ::block].sum(
        1
    )  # both heads' random blocks together
    rows = slice(2, blocks - 2)
    assert (added - ours[::block, ::block].sum(1))[rows].eq(random).all()
    assert one_head[rows].ge(random).all() and one_head[rows].le(2 * random).all()


def luong(q, keys, values, weight, vector, width):
    """Local-p as the paper writes it, one query and one key at a time (Luong 2015, equations 9 and 10)."""
    out = []
    for hidden in q:
        place = len(keys) / (1 + torch.exp(-(vector * torch.tanh(weight @ hidden)).sum()))
        seen = [s for s in range(len(keys)) if place - width <= s <= place + width]
        total = sum(torch.exp(hidden @ keys[s]) for s in seen)
        parts = [
            torch.exp(hidden @ keys[s])
            / total
            * torch.exp(-((s - place) ** 2) / (2 * (width / 2) ** 2))
            * values[s]
            for s in seen
        ]
        out.append(sum(parts))
    return torch.stack(out)


def test_local_p_is_the_papers_with_its_gradients():
    torch.manual_seed(0)
    config = AttentionConfig(
        6, 1, projection="identity", score="dot", mask=Choice.of("local_p", window=2)
    )
    layer = Attention(config).double()
    x, context = torch.randn(1, 5, 6).double(), torch.randn(1, 11, 6).double().requires_grad_()
    ours = layer(x, context).merged
    mask: Any = layer.mask
    theirs = luong(x[0], context[0], context[0], mask.weight[0], mask.vector[0], 2)
    torch.testing.assert_close(ours[0], theirs, rtol=1e-10, atol=1e-12)
    inputs = (context, mask.weight, mask.vector)
    pull = torch.randn_like(theirs)
    for got, want in zip(
        torch.autograd.grad((ours[0] * pull).sum(), inputs),
        torch.autograd.grad((theirs * pull).sum(), inputs),
        strict=True,
    ):
        assert want.abs().sum() > 0
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-11)


def test_the_gaussian_is_half_as_wide_as_the_window():
    """At the window's edge, two sigmas out, a weight is e^(−2) of what it was."""
    config = AttentionConfig(
        6, 1, projection="identity", mask=Choice.of("local_m", window=4, gaussian=True)
    )
    steps = Attention(config)(torch.zeros(1, 9, 6))
    assert steps.weights[0, 0, 4, 8].item() == pytest.approx(math.exp(-2) / 9, rel=1e-6)
