"""Masks, cell by cell: flex_attention, transformers' functions and sparse modules, and definitions written plainly."""

import itertools
import math
import random
from typing import Any

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, create_mask, flex_attention
from transformers import BigBirdConfig, LongformerConfig, masking_utils as theirs
from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention
from transformers.models.deepseek_v32 import modeling_deepseek_v32 as hf
from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

from core.attention import Attention, AttentionConfig, Choice, ConfigError, attend
from core.attention.base import ScoreBlock
from core.attention.kernels.approximate import worth_gathering
from core.attention.masks import build_mask
from core.attention.masks.content import (
    LightningIndexer,
    Selection,
    indexer_loss,
    selection,
    top_cells,
)
from tests.attention.drawing import read_in_parts
from tests.cases import descend, each, instance
from tests.oracles.agreement import agree, put, twin

B, H, T, S = 2, 3, 13, 17
CAUSAL, LOCAL = Choice("causal"), Choice.of("local", window=2)
EITHER = Choice.of("or", CAUSAL, LOCAL)
DRAWN = Choice.of("drawn", drawing="2x3:6.1", beyond="masked")
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
    (DRAWN, lambda b, h, i, j: ((i == 0) & (j < 2)) | ((i == 1) & (j == 2))),
    (
        Choice.of("drawn", drawing=DRAWN["drawing"], beyond="seen"),
        lambda b, h, i, j: (i >= 2) | (j >= 3) | ((i == 0) & (j < 2)) | ((i == 1) & (j == 2)),
    ),
]


@each(("choice", "mod"), MODS)
def test_flex_attention_sees_the_same_cells(choice, mod):
    assert torch.equal(
        build_mask(choice, T, S, num_heads=H).expand(H, T, S),
        create_mask(mod, 1, H, T, S, device="cpu")[0],
    )


@each(("choice", "mod"), [row for row in MODS if row[0] in (CAUSAL, LOCAL, EITHER)][:3])
def test_through_flex_attention(choice, mod):
    q, (k, v) = torch.randn(1, H, T, 16), torch.randn(2, 1, H, S, 16)
    out = flex_attention(q, k, v, block_mask=create_block_mask(mod, None, None, T, S, device="cpu"))
    torch.testing.assert_close(
        attend(q, k, v, build_mask(choice, T, S)).out, out, rtol=1e-5, atol=1e-5
    )


def test_an_offset_moves_the_queries_and_padding_hides_keys():
    def later(b, h, i, j):
        return theirs.causal_mask_function(b, h, i + 4, j)

    real = torch.arange(S) < torch.tensor([8, 5])[:, None]
    padded = create_mask(theirs.padding_mask_function(real), B, 1, T, S, device="cpu")
    assert torch.equal(
        build_mask(CAUSAL, T, S, offset=4), create_mask(later, 1, 1, T, S, device="cpu")[0, 0]
    )
    assert torch.equal(
        build_mask(Choice("padding"), T, S, key_mask=real).expand(B, 1, T, S), padded
    ) and torch.equal(build_mask(CAUSAL, T, S, key_mask=real), padded & build_mask(CAUSAL, T, S))
    pytest.raises(ConfigError, build_mask, Choice("padding"), T, S).match("key_mask")


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
    layer = LongformerSelfAttention(
        LongformerConfig(hidden_size=8, num_attention_heads=2, attention_window=[2 * window]), 0
    ).eval()
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
def test_bigbird_is_window_ends_and_as_many_random_blocks(training):
    # In eval transformers adds no random block; in training it adds r to each row of blocks in the middle.
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
    ours = build_mask(
        Choice.of("bigbird", block=block, window=1, globals=1, random=0), length, length
    )
    if not training:
        assert torch.equal(ours, seen)
        return
    assert torch.equal(ours & seen, ours)
    added = build_mask(Choice.of("bigbird", block=block, random=random), length, length)[
        ::block, ::block
    ].sum(1)
    # both heads' random blocks together
    one_head = seen[::block, ::block].sum(1) - ours[::block, ::block].sum(1)
    rows = slice(2, blocks - 2)
    assert (
        (added - ours[::block, ::block].sum(1))[rows].eq(random).all()
        and one_head[rows].ge(random).all()
        and one_head[rows].le(2 * random).all()
    )


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
    layer = Attention(
        AttentionConfig(6, 1, "identity", "dot", mask=Choice.of("local_p", window=2))
    ).double()
    x, context = torch.randn(1, 5, 6).double(), torch.randn(1, 11, 6).double().requires_grad_()
    own: Any = layer.mask
    agree(
        layer(x, context).merged[0],
        luong(x[0], context[0], context[0], own.weight[0], own.vector[0], 2),
        (context, own.weight, own.vector),
    )


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
        return (
            (block_i == block_j and clean_i == clean_j)
            or (block_i > block_j and clean_j and not clean_i)
            or (block_i >= block_j and clean_i and clean_j)
        )

    return Choice.of("block_diffusion", noised=length, size=size), sees


@each(
    ("choice", "sees"),
    [
        *map(tree, range(7)),
        *(diffusion(*sizes) for sizes in [(8, 1), (8, 3), (9, 4), (7, 7), (6, 9)]),
    ],
)
def test_trees_and_block_diffusion_are_their_rules(choice, sees):
    assert torch.equal(
        build_mask(choice, S, 19),
        torch.tensor([[bool(sees(i, j)) for j in range(19)] for i in range(S)]),
    )


@each(
    ("choice", "paths"),
    [
        (
            Choice.of("tree", prefix=3, parents="-, 0, 0, 1, 1, 2"),
            [
                [0, 1, 2, *(3 + node for node in path)]
                for path in [(0,), (0, 1), (0, 2), (0, 1, 3), (0, 1, 4), (0, 2, 5)]
            ],
        ),
        (
            Choice.of("shared_prefix", prefix=4, lengths="3, 5"),
            [[*range(4), *range(*part)] for part in ((4, 7), (7, 12), (12, 14))],
        ),
    ],
)
def test_each_path_is_the_causal_call_on_that_path_alone(choice, paths):
    # What speculative decoding rests on: one call on the tree scores every path as if it were the text.
    layer = Attention(AttentionConfig(10, 2, mask=choice))
    causal, x = twin(layer, mask="causal"), torch.randn(2, max(map(max, paths)) + 1, 10)
    whole = layer(x).merged
    for tokens in paths:
        torch.testing.assert_close(causal(x[:, tokens]).merged, whole[:, tokens])


def test_a_chain_is_causal_roots_alone_are_continuations():
    chain = Choice.of("tree", prefix=0, parents="-, 0, 1, 2, 3")
    twos = Choice.of("tree", prefix=3, parents="-, 0, -, 2, -, 4")
    shared = Choice.of("shared_prefix", prefix=3, lengths="2, 2, 13")
    for one, other in ((chain, CAUSAL), (twos, shared)):
        assert torch.equal(build_mask(one, S, 19), build_mask(other, S, 19))
    mask = build_mask(Choice.of("block_diffusion", noised=6, size=1), 12, 12)
    assert torch.equal(mask[6:, 6:], build_mask(CAUSAL, 6, 6)) and not mask[6:, :6].any()


@each(("rows", "columns", "window"), [(5, 7, 3), (4, 5, 1), (6, 3, 3), (5, 5, 5), (3, 4, 5)])
def test_neighborhood_moves_its_window_inside_the_picture(rows, columns, window):
    # NATTEN's rule by its clamped centre, as flex_attention's examples write it, for odd windows that fit.
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


# What chooses keys by content: MoBA and NSA against loops from their papers, the indexer against DeepSeek-V3.2's.

D, C, LENGTH = 5, 15, 17
MOBA = Choice.of("moba", size=3, blocks=3)
LIGHTNING = Choice.of("lightning", keys=5, heads=3, size=6, share=0.7)


def moba(q, k, real, size, blocks, offset):
    """Which keys each query of one head sees: block by block, in plain Python. Lu 2025, equations 4 to 7."""
    seen = torch.zeros(len(q), len(k), dtype=torch.bool)
    for t in range(len(q)):
        i, scores = t + offset, {}
        for block in range(i // size):
            keys = [j for j in range(block * size, (block + 1) * size) if real[j]]
            if keys:
                scores[block] = float(
                    q[t].detach() @ torch.stack([k[j].detach() for j in keys]).mean(0)
                )
        for block in [*sorted(scores, key=scores.get, reverse=True)[: blocks - 1], i // size]:
            for j in range(block * size, min((block + 1) * size, i + 1, len(k))):
                seen[t, j] = True
    return seen


def moba_of(steps, real, size, blocks, offset=0):
    rows = [
        [moba(q, k, seen, size, blocks, offset) for q, k in zip(*text, strict=True)]
        for *text, seen in zip(steps.q, steps.k, real, strict=True)
    ]
    return torch.stack([torch.stack(heads) for heads in rows])


@each(("size", "blocks"), [(1, 3), (3, 2), (4, 3), (5, 1), (7, 64), (20, 2)])
@each("offset", [0, 6])
def test_moba_is_the_papers_loop(size, blocks, offset):
    layer = Attention(AttentionConfig(C, H, mask=Choice.of("moba", size=size, blocks=blocks)))
    context, real = torch.randn(B, LENGTH, C), torch.rand(B, LENGTH) < 0.7
    steps = layer(context[:, offset : offset + 11], context, key_mask=real, offset=offset)
    assert torch.equal(steps.mask, moba_of(steps, real, size, blocks, offset) & real[:, None, None])


def test_moba_through_attention_has_gradients_of_loops_mask():
    layer = Attention(AttentionConfig(C, H, mask=MOBA)).double()
    x = torch.randn(B, LENGTH, C, dtype=torch.float64, requires_grad=True)
    steps = layer(x)
    agree(
        steps.merged,
        twin(layer, mask="none")(x, mask=moba_of(steps, torch.ones(B, LENGTH), 3, 3)).merged,
        (x,),
    )


def test_moba_by_hand():
    # Blocks of two with means 1, −1 and 2 in one dimension; the query of token 7 is 1, so it takes block 2, then 0.
    k = torch.tensor([0.5, 1.5, -3.0, 1.0, 2.5, 1.5, 9.0, 9.0])[None, None, :, None]

    def row(sign, blocks):
        mask = Attention(AttentionConfig(1, 1, mask=Choice.of("moba", size=2, blocks=blocks))).mask
        block = ScoreBlock.whole(8, 8, q=torch.full((1, 1, 8, 1), sign), k=k)
        return "".join(".#"[cell] for cell in mask(block)[0, 0, 7].int().tolist())

    assert row(1.0, 1) == "......##" and row(1.0, 2) == "....####" and row(1.0, 3) == "##..####"
    assert row(-1.0, 2) == "..##..##", "the other way round the block of mean −1 is best"


@each("keys", [1, 4, 16])
@each(("size", "heads", "share", "rotated"), [(8, 1, 1.0, 8), (10, 3, 0.4, 4), (7, 5, 0.6, 4)])
def test_the_indexer_is_deepseeks(size, heads, share, rotated, keys):
    # DeepSeek's own with our weights; its queries come from a latent, here from x itself.
    layer = Attention(
        AttentionConfig(
            C, H, mask=Choice.of("lightning", keys=keys, heads=heads, size=size, share=share)
        )
    )
    own: Any = layer.mask
    for weight in own.norm.parameters():
        torch.nn.init.uniform_(weight, 0.5, 1.5)
    config = hf.DeepseekV32Config(
        hidden_size=C,
        q_lora_rank=C,
        index_n_heads=heads,
        index_head_dim=size,
        index_topk=keys,
        qk_rope_head_dim=rotated,
        head_dim=rotated,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        num_attention_heads=H,
    )
    parts = {"wq_b": own.query, "wk": own.key, "weights_proj": own.weight, "k_norm": own.norm}
    names = {f"{n}.{k}": v for n, part in parts.items() for k, v in part.state_dict().items()}
    x, real, positions = (
        torch.randn(B, LENGTH, C),
        torch.rand(B, LENGTH) < 0.8,
        torch.arange(LENGTH)[None],
    )
    real[:, 0] = True
    allowed = real[:, None] & torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    turns = hf.DeepseekV32RotaryEmbedding(config)(x, positions)
    peer, given = hf.DeepseekV32Indexer(config, 0), (x, x, turns, allowed, positions)
    indices = torch.func.functional_call(peer, names, given).long()
    chosen = torch.zeros(B, LENGTH, LENGTH, dtype=torch.bool).scatter(-1, indices, True) & allowed
    mask = layer(x, key_mask=real).mask[:, 0]
    positive = own.index_scores(ScoreBlock.whole(LENGTH, LENGTH, x=x, context=x)) != 0
    # Where every head's ReLU is 0 the scores are equal, and torch.topk takes any of them.
    ties = ((~positive & allowed).sum(-1) > 1) & (allowed.sum(-1) > keys)
    assert (
        torch.equal(mask[~ties], chosen[~ties])
        and (~ties).sum() > B * keys
        and torch.equal(mask.sum(-1), chosen.sum(-1))
    )


def test_index_scores_are_reports_sum_with_its_gradients():
    # I_ts = Σ_h w_th ReLU(q_th · k_s), one pair of tokens at a time, without a rotation.
    choice = Choice.of("lightning", heads=2, size=4, share=0.0)
    mask: Any = Attention(AttentionConfig(C, H, mask=choice)).double().mask
    x = torch.randn(1, 7, C, dtype=torch.float64)
    keys = torch.randn(1, 11, C, dtype=torch.float64, requires_grad=True)
    k = [torch.nn.functional.layer_norm(mask.key(one), (4,), eps=1e-6) for one in keys[0]]
    rows = []
    for token in x[0]:
        q, w = mask.query(token).view(2, 4), mask.weight(token)
        rows.append(
            torch.stack(
                [sum(w[h] * torch.relu(q[h] @ one) for h in range(2)) * 8**-0.5 for one in k]
            )
        )
    ours = mask.index_scores(ScoreBlock.whole(7, 11, x=x, context=keys))[0]
    agree(ours, torch.stack(rows), (keys, mask.query.weight, mask.key.weight, mask.weight.weight))


def test_the_attention_gives_the_indexer_no_gradient():
    layer = Attention(AttentionConfig(C, H, mask=LIGHTNING))
    layer(torch.randn(B, LENGTH, C)).merged.square().sum().backward()
    assert (
        all(weight.grad is None for weight in layer.mask.parameters())
        and layer.projection.query.weight.grad.abs().sum() > 0
    )


def test_top_cells_takes_the_earlier_of_equals():
    scores = torch.tensor([[1.0, 2.0, 2.0, 2.0, 0.0], [3.0, 1.0, torch.nan, 2.0, 5.0]])
    candidates = torch.tensor([[True] * 5, [True, True, False, False, False]])
    assert top_cells(scores, candidates, 2).int().tolist() == [[0, 1, 1, 0, 0], [1, 1, 0, 0, 0]]
    assert top_cells(scores.add(torch.nan), candidates, 5).equal(candidates)


def test_what_was_chosen_in_numbers():
    # Of two rows, one with both of its two best keys and 0.9 of the weight, one with one of two and 0.5.
    full = torch.tensor([[0.6, 0.3, 0.1, 0.0], [0.1, 0.5, 0.0, 0.4], [0.0] * 4])[None, None]
    allowed = torch.tensor([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0]]).bool()
    got = selection(allowed, full / 2, 2)
    assert got.keys == 2 and got.recall == pytest.approx(0.75) and got.weight == pytest.approx(0.7)
    assert selection(allowed, full, 1).recall == 1
    assert selection(allowed, torch.zeros(1, 1, 3, 4), 2) == Selection(0.0, 0.0, 0.0)
    everything = selection(torch.ones(3, 4).bool(), full, 2)
    assert (everything.keys, everything.recall) == (4, 1) and everything.weight == pytest.approx(1)


def test_papers_loss_is_divergence_and_zero_at_its_target():
    # Two heads give key 0 the weights 1/2 and 1, key 1 the other 1/2: p = (3/4, 1/4); I = 0 predicts (1/2, 1/2).
    weights = torch.tensor([[[0.5, 0.5, 0.0]], [[1.0, 0.0, 0.0]]])[None]
    allowed, target = torch.tensor([[True, True, False]]), torch.tensor([[[3.0, 1.0, 9.0]]]).log()
    divergence = 0.75 * math.log(0.75 / 0.5) + 0.25 * math.log(0.25 / 0.5)
    for scores, loss in ((torch.zeros(1, 1, 3), divergence), (target, 0.0)):
        assert indexer_loss(scores, weights, allowed).item() == pytest.approx(loss, abs=1e-6)


def test_papers_loss_trains_indexer_to_choose_better():
    # The warm-up of DeepSeek-V3.2: the attention is full and frozen, and only the indexer learns.
    torch.manual_seed(5)
    layer, causal = (
        Attention(AttentionConfig(C, H, mask=Choice.of("lightning", keys=4, heads=4, size=8))),
        torch.ones(LENGTH, LENGTH).tril().bool(),
    )
    full, indexer = twin(layer, strict=False, mask="causal"), instance(layer.mask, LightningIndexer)
    for weight in (full.projection.query.weight, full.projection.key.weight):
        weight.data *= 3  # weights that differ from key to key

    def share(x):
        return selection(
            indexer(ScoreBlock.whole(LENGTH, LENGTH, x=x, context=x)), full(x).weights.detach(), 4
        ).weight

    def loss():
        x = torch.randn(16, LENGTH, C)
        scores = indexer.index_scores(ScoreBlock.whole(LENGTH, LENGTH, x=x, context=x))
        return indexer_loss(scores, full(x).weights, causal)

    held_out = torch.randn(64, LENGTH, C)
    before = share(held_out)
    descend(torch.optim.Adam(indexer.parameters(), 0.01), loss, 150, clip=torch.inf)
    assert share(held_out) > before + 0.1


# Native sparse attention: three branches, each weighed by a gate.


def sparse_layer(size, blocks, window, heads=3, kv_heads=3):
    return Attention(
        AttentionConfig(
            heads * D,
            heads,
            Choice.of("grouped_query", kv_heads=kv_heads),
            kernel=Choice.of("nsa", size=size, blocks=blocks, window=window),
        )
    ).double()


def softmax_of(q, pairs):
    if not pairs:
        return [], torch.zeros(D, dtype=torch.float64)
    weights = torch.stack([q @ k for k, _ in pairs]).mul(D**-0.5).softmax(0)
    return weights, sum(w * v for w, (_, v) in zip(weights, pairs, strict=True))


def native_sparse(gates, q, k, v, real, size, blocks, window, shared, offset):
    """Yuan 2025, section 3.3: compression by means, selection by its weights summed over a group, and a window."""
    rows = {}
    for first, t in itertools.product(range(0, len(q), shared), range(q.shape[1])):
        i, group = t + offset, range(first, first + shared)
        keys = [
            [j for j in range(start, start + size) if real[j]]
            for start in range(0, i + 2 - size, size)
        ]
        whole = {n: js for n, js in enumerate(keys) if js}
        means = {g: [(k[g, js].mean(0), v[g, js].mean(0)) for js in whole.values()] for g in group}
        compressed = {g: softmax_of(q[g, t], means[g]) for g in group}
        importance = {
            n: sum(float(weights[at].detach()) for weights, _ in compressed.values())
            for at, n in enumerate(whole)
            if n < i // size
        }
        best = [*sorted(importance, key=importance.get, reverse=True)[: blocks - 1], i // size]
        selected = [j for j in range(i + 1) if real[j] and j // size in best]
        near = [j for j in range(max(0, i - window + 1), i + 1) if real[j]]
        for g in group:
            exact = [
                softmax_of(q[g, t], [(k[g, j], v[g, j]) for j in js])[1] for js in (selected, near)
            ]
            rows[g, t] = sum(
                gates[t, c, g] * branch for c, branch in enumerate((compressed[g][1], *exact))
            )
    return torch.stack([rows[place] for place in sorted(rows)]).view(len(q), -1, D)


# Each size with each grouping, and each of either at both offsets in turn: the loop takes 0.2 s a case.


@each(
    ("size", "blocks", "window", "heads", "kv_heads", "offset"),
    [
        (*size, *heads, 8 * ((i + j) % 2))
        for i, size in enumerate([(1, 2, 1), (3, 2, 4), (4, 3, 2), (5, 1, 7), (7, 64, 30)])
        for j, heads in enumerate([(3, 3), (4, 2), (3, 1)])
    ],
)
def test_each_query_of_nsa_is_the_papers(size, blocks, window, heads, kv_heads, offset):
    layer = sparse_layer(size, blocks, window, heads, kv_heads)
    context = torch.randn(B, LENGTH, heads * D, dtype=torch.float64, requires_grad=True)
    x, real = context[:, offset : offset + 9], torch.rand(B, LENGTH) < 0.8
    steps = layer(x, context, key_mask=real, offset=offset)
    texts = zip(
        layer.kernel.gate(x).sigmoid().view(B, -1, 3, heads),
        steps.q,
        steps.k,
        steps.v,
        real,
        strict=True,
    )
    how = (size, blocks, window, heads // kv_heads, offset)
    want = torch.stack([native_sparse(*text, *how) for text in texts])
    torch.testing.assert_close(steps.weights @ steps.v, want, rtol=1e-10, atol=1e-11)
    agree(steps.out, want, (context, layer.kernel.gate.weight, layer.projection.key.weight))


@each(
    ("size", "blocks", "window", "heads", "kv_heads", "queries", "keys", "offset"),
    [
        (4, 2, 4, 3, 3, 300, 300, 0),
        (3, 2, 5, 4, 2, 211, 211, 0),
        (3, 3, 1, 4, 1, 40, 250, 210),
        (5, 1, 300, 2, 2, 7, 200, 199),
        (2, 4, 7, 2, 1, 280, 200, 0),
        (1, 3, 4, 4, 2, 1, 99, 98),
    ],
)
@each("padded", [False, True])
def test_gathered_keys_of_nsa_give_what_all_cells_give(
    size, blocks, window, heads, kv_heads, queries, keys, offset, padded
):
    layer = sparse_layer(size, blocks, window, heads, kv_heads)
    assert worth_gathering(size * blocks, keys)
    x, context = (
        torch.randn(B, n, heads * D, dtype=torch.float64, requires_grad=True)
        for n in (queries, keys)
    )
    real = torch.rand(B, keys) < 0.8 if padded else None
    gathered, whole = (
        layer(x, context, key_mask=real, offset=offset, record=record).out
        for record in (False, True)
    )
    agree(gathered, whole, (x, context, *layer.kernel.parameters()))


def test_steps_of_nsa_gather_what_the_whole_does():
    layer, x = sparse_layer(2, 2, 3, 4, 2), torch.randn(B, 90, 4 * D, dtype=torch.float64)
    whole = layer(x).merged
    for out in (read_in_parts(layer, x, (70,) + (1,) * 20)[0], layer(x, record=False).merged):
        torch.testing.assert_close(out, whole)


def test_all_blocks_and_a_whole_window_are_causal_twice():
    layer, x = sparse_layer(1, 64, 4096), torch.randn(B, LENGTH, 3 * D, dtype=torch.float64)
    put((layer.kernel.gate.weight, 0.0), (layer.kernel.gate.bias, 0.0))
    plain, steps = twin(layer, strict=False, kernel="exact", mask="causal")(x), layer(x)
    torch.testing.assert_close((steps.out, steps.weights), (1.5 * plain.out, 1.5 * plain.weights))


def test_a_row_of_nsa_by_hand():
    # Blocks of two, all scores 0, gates 1/2. The query at 4 sees means of 0, 1 and 2, 3, then 0, 1 and 4, then 4; for
    # the query at 0 no block is whole yet, so two branches of 1/2.
    layer = Attention(
        AttentionConfig(1, 1, "identity", kernel=Choice.of("nsa", size=2, blocks=2, window=1))
    )
    put((layer.kernel.gate.weight, 0.0), (layer.kernel.gate.bias, 0.0))
    zeros, v = torch.zeros(1, 1, 5, 1), torch.arange(1.0, 6.0).view(1, 1, 5, 1)
    steps = layer.attend_heads(zeros, zeros, v, zeros[0], zeros[0])
    row = torch.tensor([1 / 4 + 1 / 3, 1 / 4 + 1 / 3, 1 / 4, 1 / 4, 1 / 3 + 1]) / 2
    torch.testing.assert_close(steps.weights[0, 0, 4], row)
    assert (steps.out[0, 0, 4].item(), steps.weights[0, 0, 0].tolist()) == (
        pytest.approx((row * torch.arange(1.0, 6.0)).sum().item()),
        [1.0, 0, 0, 0, 0],
    )
