"""Masks, cell by cell: flex_attention, transformers' functions and sparse modules, and definitions written plainly."""

import math
import random
from typing import Any

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, create_mask, flex_attention
from transformers import BigBirdConfig, LongformerConfig, masking_utils as theirs
from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention
from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

from core.attention import Attention, AttentionConfig, Choice, ConfigError, attend
from core.attention.masks import build_mask
from tests.cases import each
from tests.oracles.agreement import agree, twin

B, H, T, S = 2, 3, 13, 17
CAUSAL, LOCAL = Choice("causal"), Choice.of("local", window=2)
EITHER = Choice.of("or", CAUSAL, LOCAL)
TEXTS = torch.tensor([0] * 4 + [1] * 5 + [2] * 3 + [3] * 5)


def overlay(b, h, i, j):
    return theirs.or_masks(
        theirs.causal_mask_function, theirs.sliding_window_bidirectional_overlay(2)
    )(b, h, i, j)


# Functions of (b, h, i, j), of which many are transformers' own. A window of w sees w keys on either side besides the
# query's own place; their sliding window counts that place, too.
MODS = [
    (CAUSAL, theirs.causal_mask_function),
    (LOCAL, lambda b, h, i, j: (i - j).abs() <= 2),
    *(
        (Choice.of("local", window=w), theirs.sliding_window_bidirectional_mask_function(w))
        for w in (0, 1, 2, 5)
    ),
    *(
        (
            Choice.of("and", CAUSAL, Choice.of("local", window=lookback)),
            theirs.sliding_window_causal_mask_function(lookback + 1),
        )
        for lookback in (1, 3)
    ),
    *(
        (
            Choice.of("chunked", size=size),
            theirs.chunked_causal_mask_function(size, torch.zeros(1, dtype=torch.long)),
        )
        for size in (1, 4, 6)
    ),
    (EITHER, overlay),
    (EITHER, lambda b, h, i, j: (i >= j) | (j - i <= 2)),
    (Choice.of("not", CAUSAL), lambda b, h, i, j: i < j),
    (Choice.of("not", EITHER), lambda b, h, i, j: ~overlay(b, h, i, j)),
    (
        Choice.of("document", lengths="4 5 3"),
        theirs.packed_sequence_mask_function(TEXTS[None]),
    ),
    (
        Choice.of("causal_local", lookback=3),
        lambda b, h, i, j: (i >= j) & (i - j <= 3),
    ),
    (
        Choice.of("dilated", window=2, dilation=3),
        lambda b, h, i, j: ((i - j).abs() <= 6) & ((i - j).abs() % 3 == 0),
    ),
    (
        Choice.of("strided", lookback=3, stride=5),
        lambda b, h, i, j: (j <= i) & ((i - j < 4) | ((i - j) % 5 == 0)),
    ),
    (Choice.of("block", size=5), lambda b, h, i, j: i // 5 == j // 5),
    (Choice.of("chunked", size=5), lambda b, h, i, j: (i >= j) & (i // 5 == j // 5)),
    (Choice.of("prefix", prefix=4), lambda b, h, i, j: (i >= j) | (j < 4)),
    (Choice.of("document", lengths="4, 5, 3"), lambda b, h, i, j: TEXTS[i] == TEXTS[j]),
    (
        Choice.of("global_window", window=2, globals=2),
        lambda b, h, i, j: ((i - j).abs() <= 2) | (i < 2) | (j < 2),
    ),
    (
        Choice.of("formula", text="j <= i and i - j < 4 or j % 5 == h"),
        lambda b, h, i, j: ((j <= i) & (i - j < 4)) | (j % 5 == h),
    ),
    (Choice.of("local_m", window=3), lambda b, h, i, j: (i - j).abs() <= 3),
]


@each(("choice", "mod"), MODS)
def test_flex_attention_sees_the_same_cells(choice, mod):
    ours = build_mask(choice, T, S, num_heads=H).expand(H, T, S)
    assert torch.equal(ours, create_mask(mod, 1, H, T, S, device="cpu")[0])


@each(("choice", "mod"), [row for row in MODS if row[0] in (CAUSAL, LOCAL, EITHER)][:3])
def test_through_flex_attention(choice, mod):
    q, (k, v) = torch.randn(1, H, T, 16), torch.randn(2, 1, H, S, 16)
    block = create_block_mask(mod, None, None, T, S, device="cpu")
    out = flex_attention(q, k, v, block_mask=block)
    ours = attend(q, k, v, build_mask(choice, T, S)).out
    torch.testing.assert_close(ours, out, rtol=1e-5, atol=1e-5)


def test_an_offset_moves_the_queries_and_padding_hides_keys():
    def later(b, h, i, j):
        return theirs.causal_mask_function(b, h, i + 4, j)

    real = torch.arange(S) < torch.tensor([8, 5])[:, None]
    padded = create_mask(theirs.padding_mask_function(real), B, 1, T, S, device="cpu")
    assert torch.equal(
        build_mask(CAUSAL, T, S, offset=4), create_mask(later, 1, 1, T, S, device="cpu")[0, 0]
    )
    ours = build_mask(Choice("padding"), T, S, key_mask=real)
    assert torch.equal(ours.expand(B, 1, T, S), padded)
    with pytest.raises(ConfigError, match="key_mask"):
        build_mask(Choice("padding"), T, S)


@each("key", ["and", "or", "not", "not two", "causal"])
def test_a_composition_with_the_wrong_number_of_parts_is_refused(key):
    parts = {"not two": (CAUSAL, LOCAL), "causal": (LOCAL,)}.get(key, ())
    with pytest.raises(ConfigError):
        build_mask(Choice.of(key.split()[0], *parts), T, S)


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
    mask = Choice.of("local_p", window=2)
    layer = Attention(AttentionConfig(6, 1, "identity", "dot", mask=mask)).double()
    x, context = torch.randn(1, 5, 6).double(), torch.randn(1, 11, 6).double().requires_grad_()
    own: Any = layer.mask
    peer = luong(x[0], context[0], context[0], own.weight[0], own.vector[0], 2)
    agree(layer(x, context).merged[0], peer, (context, own.weight, own.vector))


def test_the_gaussian_is_half_as_wide_as_the_window():
    """At the window's edge, two sigmas out, a weight is e^(−2) of what it was."""
    mask = Choice.of("local_m", window=4, gaussian=True)
    steps = Attention(AttentionConfig(6, 1, "identity", mask=mask))(torch.zeros(1, 9, 6))
    assert steps.weights[0, 0, 4, 8].item() == pytest.approx(math.exp(-2) / 9, rel=1e-6)


# Trees, continuations, block diffusion and neighborhoods against independent definitions.


def tree(seed):
    """A random tree after three tokens, and whether i's way to its root meets j: walked upward from each node; the
    prefix is above all, and the tokens after the tree are below its last node."""
    rng, prefix = random.Random(seed), 3
    parents = [-1] + [rng.randint(-1, node - 1) for node in range(1, 11)]
    text = ", ".join("-" if parent < 0 else str(parent) for parent in parents)

    def path(token):
        while token >= 0:
            yield token
            node = token - prefix
            if 0 <= node < len(parents):
                token = prefix + parents[node] if parents[node] >= 0 else prefix - 1
            else:
                token -= 1

    return Choice.of("tree", prefix=prefix, parents=text), lambda i, j: j in set(path(i))


def diffusion(length, size):
    """M = block-diagonal ∨ offset block-causal ∨ block-causal over [noised; clean]. Arriola 2025, section 3.1."""

    def sees(i, j):
        clean_i, clean_j = i >= length, j >= length
        block_i, block_j = (i - length * clean_i) // size, (j - length * clean_j) // size
        diagonal = block_i == block_j and clean_i == clean_j
        offset_causal = block_i > block_j and clean_j and not clean_i
        return diagonal or offset_causal or (block_i >= block_j and clean_i and clean_j)

    return Choice.of("block_diffusion", noised=length, size=size), sees


DIFFUSIONS = [(8, 1), (8, 3), (9, 4), (7, 7), (6, 9)]


@each(("choice", "sees"), [*map(tree, range(7)), *(diffusion(*sizes) for sizes in DIFFUSIONS)])
def test_trees_and_block_diffusion_are_their_rules(choice, sees):
    want = torch.tensor([[bool(sees(i, j)) for j in range(19)] for i in range(S)])
    assert torch.equal(build_mask(choice, S, 19), want)


TREE = Choice.of("tree", prefix=3, parents="-, 0, 0, 1, 1, 2")
PATHS = [(0,), (0, 1), (0, 2), (0, 1, 3), (0, 1, 4), (0, 2, 5)]
CONTINUED = Choice.of("shared_prefix", prefix=4, lengths="3, 5")


@each(
    ("choice", "paths"),
    [
        (TREE, [[0, 1, 2, *(3 + node for node in path)] for path in PATHS]),
        (CONTINUED, [[*range(4), *range(*part)] for part in ((4, 7), (7, 12), (12, 14))]),
    ],
)
def test_each_path_is_the_causal_call_on_that_path_alone(choice, paths):
    """What speculative decoding rests on: one call on the tree scores every path as if it were the text."""
    layer = Attention(AttentionConfig(10, 2, mask=choice))
    causal, x = twin(layer, mask="causal"), torch.randn(2, max(map(max, paths)) + 1, 10)
    whole = layer(x).merged
    for tokens in paths:
        torch.testing.assert_close(causal(x[:, tokens]).merged, whole[:, tokens])


def test_a_chain_is_causal_roots_alone_are_continuations_and_so_are_clean_blocks_of_one():
    chain = Choice.of("tree", prefix=0, parents="-, 0, 1, 2, 3")
    twos = Choice.of("tree", prefix=3, parents="-, 0, -, 2, -, 4")
    shared = Choice.of("shared_prefix", prefix=3, lengths="2, 2, 13")
    for one, other in ((chain, CAUSAL), (twos, shared)):
        assert torch.equal(build_mask(one, S, 19), build_mask(other, S, 19))
    mask = build_mask(Choice.of("block_diffusion", noised=6, size=1), 12, 12)
    assert torch.equal(mask[6:, 6:], build_mask(CAUSAL, 6, 6)) and not mask[6:, :6].any()


@each(("rows", "columns", "window"), [(5, 7, 3), (4, 5, 1), (6, 3, 3), (5, 5, 5), (3, 4, 5)])
def test_neighborhood_moves_its_window_inside_the_picture(rows, columns, window):
    """NATTEN's rule by its clamped centre, as flex_attention's examples write it, for odd windows that fit."""
    half = window // 2
    choice = Choice.of("neighborhood", rows=rows, columns=columns, window=window)
    cells_ = rows * columns

    def centre(place, size):
        return (
            place.clamp(min(half, size - 1), max(size - 1 - half, 0)) if window <= size else place
        )

    def sees(b, h, i, j):
        inside = torch.ones((), dtype=torch.bool)
        for place_i, place_j, size in (
            (i // columns, j // columns, rows),
            (i % columns, j % columns, columns),
        ):
            inside = inside & (((centre(place_i, size) - place_j).abs() <= half) | (window > size))
        return inside

    want = create_mask(sees, 1, 1, cells_, cells_, device="cpu")[0, 0]
    assert torch.equal(build_mask(choice, cells_, cells_), want)
    assert (want.sum(1) == min(window, rows) * min(window, columns)).all(), (
        "the window never shrinks"
    )
    two = build_mask(choice, 2 * cells_, 2 * cells_)
    assert torch.equal(two[cells_:, cells_:], want) and not two[cells_:, :cells_].any()
