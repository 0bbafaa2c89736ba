"""Relative positions: ALiBi, KERPLE, FIRE, Shaw, Transformer-XL, DeBERTa and T5, against others' modules and by hand;
and what Inkling 1 and 2 choose, against their modules."""

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from transformers import (
    DebertaV2Config,
    LlamaConfig,
    T5Config,
    Wav2Vec2BertConfig,
    Wav2Vec2ConformerConfig,
)
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.deberta_v2.modeling_deberta_v2 import DisentangledSelfAttention
from transformers.models.gptj import modeling_gptj as gptj
from transformers.models.inkling import modeling_inkling as first
from transformers.models.inkling2 import modeling_inkling2 as second
from transformers.models.llama import modeling_llama as llama
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor
from transformers.models.t5.modeling_t5 import T5Attention
from transformers.models.wav2vec2_bert.modeling_wav2vec2_bert import Wav2Vec2BertSelfAttention
from transformers.models.wav2vec2_conformer import modeling_wav2vec2_conformer as conformer

from core.attention import Attention, AttentionConfig, Choice, ConfigError, attend
from core.attention.base import ScoreBlock
from core.attention.cost import attention_cost
from core.attention.positions import enters, relative
from core.attention.positions.relative import (
    Alibi,
    Fire,
    Kerple,
    Learned,
    RelativeLogits,
    Sinusoidal,
    alibi_slopes,
    bucket,
    clipped_rows,
    sinusoids,
)
from tests.attention.drawing import perturbed, read_in_parts
from tests.cases import each
from tests.close import assert_close
from tests.oracles.agreement import agree, by_name, cells, layer_of, put, same_layer

B, H, T, D, C = 2, 3, 11, 5, 24


def some(heads=H, queries=T, keys=T, dim=D, dtype=torch.float32):
    return tuple(
        torch.randn(B, heads, n, dim, dtype=dtype, requires_grad=True) for n in (queries, keys)
    )


def every_cell(rule, queries, keys, offset=0):
    return torch.stack(
        [
            torch.stack([rule(i, j) for j in range(keys)], -1)
            for i in range(offset, offset + queries)
        ],
        -2,
    )


def bias_of(position, queries, keys=None, heads=1):
    q, k = (torch.zeros(1, heads, n, 1) for n in (queries, keys or queries))
    return position.bias(cells(q, k))


@each("heads", [1, 2, 3, 5, 8, 11, 12, 16])
def test_alibi_slopes_against_bloom(heads):
    # Theirs is slope · j, so that j = 1 is it.
    torch.testing.assert_close(
        alibi_slopes(heads),
        build_alibi_tensor(torch.ones(1, 2, dtype=torch.long), heads, torch.float32)[:, 0, 1],
    )


@each("heads", [2, 4, 8, 16])
def test_alibi_against_mpt(heads):
    # MPT writes the last row, −m (T − 1 − j), which softmax makes the same for every row under a causal mask.
    q, k = torch.randn(2, 1, heads, 13, 5)
    biases = Alibi(heads).bias(cells(q, k)), build_mpt_alibi_tensor(heads, 13)[None]
    ahead = torch.ones(13, 13, dtype=torch.bool).triu(1)
    ours, theirs = ((q @ k.mT + one).masked_fill(ahead, -torch.inf).softmax(-1) for one in biases)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


APART = torch.tensor([[0.0, 1, 2], [1, 0, 1], [2, 1, 0]])
ONE = math.log(math.e - 1)  # whose softplus is 1
ZEROS, ONES = [[0.0]] * 3, [[1.0] * 4] * 3


@each(
    ("position", "weights", "q", "k", "expected"),
    [
        # two heads: slopes 1/16 and 1/256, times the distance
        (Alibi(2), {}, ZEROS, ZEROS, -torch.stack((APART / 16, APART / 256))),
        # r₁ = r₂ = 1: −log(1 + d), and −d
        (Kerple(1, "log"), {"slope": ONE, "shape": ONE}, ZEROS, ZEROS, -APART.log1p()),
        (Kerple(1, "power"), {"slope": ONE, "shape": 0.0}, ZEROS, ZEROS, -APART),
        # D = 4, K = 1, q = 1: the scores grow by a/√4
        (
            relative.Shaw(4, 1, 1, values=False),
            {"key": [[-1.0] * 4, [0.0] * 4, [2.0] * 4]},
            ONES,
            ONES,
            torch.tensor([[0.0, 4, 4], [-2, 0, 4], [-2, -2, 0]]),
        ),
        # C = 2, D = 1: r is (sin d, cos d); W reads its sine, q = 2, k = 3, u = 5 and v = 7 give 5·3 + 9 sin(i − j)
        (
            relative.TransformerXL(2, 1, 1, 10000.0),
            {"project.weight": [[1.0, 0.0]], "content": 5.0, "place": 7.0},
            [[2.0]] * 2,
            [[3.0]] * 3,
            15 + 9 * torch.tensor([[0.0, -1, -2], [1, 0, -1]]).sin(),
        ),
        # C = D = 1 and all maps 1: the table's number, for i − j ≤ −1 and for all others, once for q and once for k
        (
            relative.Deberta(1, 1, 1, 1),
            {"key.weight": 1.0, "query.weight": 1.0, "table": [[10.0], [1.0]]},
            [[2.0], [3.0]],
            [[5.0], [7.0]],
            torch.tensor([[7.0, 90.0], [8.0, 10.0]]),
        ),
        # four buckets, two a side: distance 0, one or more back; one after, more after
        (
            relative.T5(C, 1, 4, 3, True),
            {"table": [[0.0], [-1.0], [5.0], [7.0]]},
            ZEROS,
            ZEROS,
            torch.tensor([[0.0, 7, 7], [-1, 0, 7], [-1, -1, 0]]),
        ),
    ],
)
def test_a_bias_by_hand(position, weights, q, k, expected):
    put(*((position.get_parameter(name), numbers) for name, numbers in weights.items()))
    torch.testing.assert_close(
        position.bias(cells(torch.tensor([[q]]), torch.tensor([[k]]))).reshape(expected.shape),
        expected,
    )


@each("kernel", ["log", "power"])
def test_kerple_cell_by_cell(kernel):
    # Chi 2022: −r₁ log(1 + r₂ d) and −r₁ d^r₂, with the positive numbers that ours makes of what it learns.
    position, log = Kerple(H, kernel).double(), kernel == "log"
    r1, shape = F.softplus(position.slope), position.shape
    r2 = F.softplus(shape) if log else 2 * torch.sigmoid(shape)

    def rule(i, j):
        return -r1 * torch.log(1 + r2 * abs(i - j)) if log else -r1 * abs(i - j) ** r2

    q, k = some(queries=4, dtype=torch.float64)
    agree(
        position.bias(cells(q, k, offset=3)),
        every_cell(rule, 4, T, offset=3),
        (position.slope, position.shape),
    )


def test_kerple_keeps_its_kernels_positive_definite():
    # Chi 2022 asks for r₁ > 0, and for 0 < r₂ ≤ 2 in the power: whatever is learned stays within.
    position = Kerple(4, "power")
    put((position.slope, [-9.0, -1, 1, 9]), (position.shape, [-9.0, 9, 30, -30]))
    bias = bias_of(position, 8, heads=4).detach()
    assert (bias <= 0).all() and (bias[:, 0, 1] < 0).all()
    assert (bias[:, 0, 2] / bias[:, 0, 1] <= 4.0 + 1e-5).all(), "d^r₂ at 2 is at most 4"
    first = [F.softplus(weight) for weight in Kerple(1000, "log").parameters()]
    assert [round(x.item(), 1) for r in first for x in r.aminmax()] == pytest.approx(
        [0.05, 2, 0.05, 1], abs=0.06
    )


def test_fire_cell_by_cell():
    # Li 2024 and its listing: f(log(c d + 1) / log(c max(i, L) + 1)), one value of f a head.
    position = Fire(H, 6, 4.0).double()
    names, own = zip(*position.named_parameters(), strict=True)
    assert names[:2] == ("stretch", "multiple")
    c, m, w1, b1, w2, b2 = own

    def rule(i, j):
        longest = torch.maximum(torch.tensor(float(i), dtype=torch.float64), (m * 4.0).abs())
        return (
            w2
            @ F.relu(
                w1[:, 0]
                * (torch.log((c * (i - j)).abs() + 1) / (torch.log((c * longest).abs() + 1) + 1e-6))
                + b1
            )
            + b2
        )

    q, k = some(queries=7, dtype=torch.float64)
    agree(position.bias(cells(q, k, offset=2)), every_cell(rule, 7, T, offset=2), own)


def test_fire_by_hand():
    # f(x) = x, c = 1, L = 3: before place 3 the share is log(d + 1)/log 4, after it log(d + 1)/log(i + 1).
    position = Fire(1, 1, 3.0)
    put(*zip(position.parameters(), (1.0, 1.0, 1.0, 0.0, 1.0, 0.0), strict=True))
    bias = bias_of(position, 8)[0]
    read = [*bias[2, :3].tolist(), bias[7, 0].item(), bias[7, 6].item()]
    early = [math.log(d) / math.log(4) for d in (3, 2, 1)]
    assert read == pytest.approx([*early, 1.0, math.log(2) / math.log(8)], rel=1e-4, abs=1e-5)


def test_shaw_keys_against_wav2vec2_bert():
    # All places within ±4 and beyond, so that the clipping is seen.
    config = Wav2Vec2BertConfig(
        hidden_size=C,
        num_attention_heads=H,
        position_embeddings_type="relative_key",
        left_max_position_embeddings=4,
        right_max_position_embeddings=4,
        attn_implementation="eager",
    )
    layer = perturbed(layer_of("shaw", C, H, distance=4, values=False))
    names = by_name(layer, "linear_q", "linear_k", "linear_v", "linear_out")
    names["distance_embedding.weight"] = layer.position.key
    same_layer(layer, Wav2Vec2BertSelfAttention(config).eval(), names, torch.randn(B, T, C))


def test_shaw_values_against_every_cell_on_its_own():
    # o = Σ w (v + a), written out: a vector for each cell, which is what the paper has and what nobody stores.
    shaw = relative.Shaw(5, 7, 3, values=True)
    weights = torch.rand(2, 3, 4, 9, requires_grad=True)
    where = cells(torch.randn(2, 3, 4, 5), torch.randn(2, 3, 9, 5), offset=2)
    rows = [[shaw.value[max(-3, min(3, j - i)) + 3] for j in range(9)] for i in range(2, 6)]
    agree(
        shaw.values(weights, where),
        torch.einsum("bhts,tse->bhte", weights, torch.stack([torch.stack(row) for row in rows])),
        (weights, shaw.value),
    )


def test_shaw_values_by_hand():
    shaw, q = relative.Shaw(4, 1, 1, values=True), torch.ones(1, 1, 3, 4)
    put((shaw.value, [[10.0], [0.0], [1.0]]))
    weights = torch.tensor([[[[0.5, 0.25, 0.25], [0.2, 0.3, 0.5], [0.1, 0.6, 0.3]]]])
    torch.testing.assert_close(
        shaw.values(weights, cells(q, q))[0, 0, :, 0], torch.tensor([0.5, 2.5, 7.0])
    )


def test_keys_far_after_their_queries_read_last_row_alone():
    i, j = torch.arange(2)[:, None], torch.arange(9, 12)[None]
    row, read = clipped_rows(ScoreBlock(i, j, 2, 12, low=-11, high=-8), most=2)
    assert read == slice(4, 5) and not row.any()


def test_shaw_in_the_layer_adds_both_terms():
    # Zero keys make equal scores, so the output is the mean of v + a over what is seen.
    layer = layer_of("shaw", 6, 1, distance=2)
    put((layer.projection.query.weight, 0.0))
    steps, value = layer(torch.randn(1, 3, 6)), layer.position.value
    torch.testing.assert_close(
        steps.out[0, 0],
        steps.v[0, 0].mean(0)
        + torch.stack([value[first : first + 3].mean(0) for first in (2, 1, 0)]),
    )


def test_transformer_xl_against_wav2vec2_conformer():
    config = Wav2Vec2ConformerConfig(
        hidden_size=C,
        num_attention_heads=H,
        position_embeddings_type="relative",
        max_source_positions=32,
        attn_implementation="eager",
    )
    layer, x = perturbed(layer_of("transformer_xl", C, H)), torch.randn(B, T, C)
    names = by_name(layer, "linear_q", "linear_k", "linear_v", "linear_out") | {
        "linear_pos.weight": layer.position.project.weight,
        "pos_bias_u": layer.position.content,
        "pos_bias_v": layer.position.place,
    }
    places = conformer.Wav2Vec2ConformerRelPositionalEmbedding(config)(x)
    same_layer(
        layer,
        conformer.Wav2Vec2ConformerSelfAttention(config).eval(),
        names,
        x,
        relative_position_embeddings=places,
    )


def test_deberta_against_deberta_v2():
    config = DebertaV2Config(
        hidden_size=C,
        num_attention_heads=H,
        relative_attention=True,
        pos_att_type=["c2p", "p2c"],
        share_att_key=False,
        position_buckets=-1,
        max_relative_positions=4,
        attention_probs_dropout_prob=0.0,
    )
    peer, layer = (
        DisentangledSelfAttention(config).eval(),
        perturbed(layer_of("deberta", C, H, distance=4)),
    )
    place, x = layer.position, torch.randn(B, T, C, requires_grad=True)
    put((peer.pos_key_proj.bias, 0.0), (peer.pos_query_proj.bias, 0.0))
    maps = by_name(layer, "query_proj", "key_proj", "value_proj", "")
    positions = {
        "pos_key_proj.weight": place.key.weight,
        "pos_query_proj.weight": place.query.weight,
    }
    given = {"output_attentions": True, "rel_embeddings": place.table}
    theirs, weights = torch.func.functional_call(
        peer, maps | positions, (x, torch.ones(B, 1, T, T)), given
    )
    steps = layer(x)
    torch.testing.assert_close(steps.weights, weights, rtol=1e-4, atol=1e-5)
    agree(steps.out.transpose(1, 2).flatten(2), theirs, [x, place.table, *positions.values()])


@each("bidirectional", [True, False])
@each(("buckets", "farthest"), [(32, 128), (8, 20), (4, 3), (6, 16), (64, 1000), (256, 128)])
def test_t5_buckets_against_t5_and_the_published_numbers(bidirectional, buckets, farthest):
    distance = torch.arange(-1500, 1501)
    theirs = T5Attention._relative_position_bucket(distance, bidirectional, buckets, farthest)
    torch.testing.assert_close(bucket(distance, bidirectional, buckets, farthest), theirs)
    assert bucket(torch.tensor([-3, -1, 0, 1, 8, 127, 200])).tolist() == [3, 1, 0, 17, 24, 31, 31]


T5_TABLE = {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 10}


def test_t5_against_its_attention():
    # The whole layer: dot products without √D, no biases in the maps, one table for the heads.
    peer = T5Attention(
        T5Config(d_model=C, d_kv=C // H, num_heads=H, **T5_TABLE), has_relative_attention_bias=True
    ).eval()
    layer = perturbed(layer_of("t5", C, H, score="dot", bias=False, buckets=8, max_distance=10))
    names = by_name(layer, "q", "k", "v", "o")
    names["relative_attention_bias.weight"] = layer.position.table
    same_layer(layer, peer, names, torch.randn(B, T, C), shows=False)


@each("decoder", [True, False])
def test_t5_bias_of_a_cache_against_compute_bias(decoder):
    peer = T5Attention(
        T5Config(num_heads=5, is_decoder=decoder, **T5_TABLE),
        has_relative_attention_bias=True,
        layer_idx=0,
    )
    position, table = relative.T5(C, 5, 8, 10, not decoder), peer.relative_attention_bias.weight
    put((position.table, table))
    agree(
        position.bias(cells(torch.randn(1, 5, 3, 2), torch.randn(1, 5, 13, 2), offset=10))[None],
        peer.compute_bias(3, 13, past_seen_tokens=10),
        (position.table,),
        (table,),
    )


# Sinusoids and tables against published values, and several positions at once against PyTorch's attention.


def test_sinusoids_have_the_published_values():
    # The table widely printed for C = 4 and base 100 (four decimals).
    published = [
        [0.0000, 1.0000, 0.0000, 1.0000],
        [0.8415, 0.5403, 0.0998, 0.9950],
        [0.9093, -0.4161, 0.1987, 0.9801],
        [0.1411, -0.9900, 0.2955, 0.9553],
    ]
    torch.testing.assert_close(
        sinusoids(torch.arange(4.0), 4, 100.0), torch.tensor(published), rtol=0, atol=5.1e-5
    )


@each("dim", [2, 14, 62])
def test_sinusoids_against_gptj(dim):
    # Theirs has sines first, then cosines.
    ours, theirs = sinusoids(torch.arange(31.0), dim), gptj.create_sinusoidal_positions(31, dim)
    torch.testing.assert_close(
        torch.cat((ours[:, 0::2], ours[:, 1::2]), dim=1), theirs, rtol=1e-5, atol=5e-6
    )


@each("dim", [1, 3, 7, 63])
def test_an_odd_dimension_ends_on_a_sine_of_the_same_law(dim):
    table = sinusoids(torch.arange(11.0), dim)
    torch.testing.assert_close(
        table[:, -1], torch.sin(torch.arange(11.0) / 10000 ** ((dim - 1) / dim))
    )
    assert table.shape == (11, dim)


def test_sinusoids_far_out_keep_their_precision():
    # fp32 angles are wrong in the third decimal at 100,000; the reference is in float64.
    far = sinusoids(torch.tensor([100_003.0]), 6)[0, 0::2]
    assert far.tolist() == pytest.approx(
        [math.sin(100_003.0 / 10000 ** (k / 6)) for k in (0, 2, 4)], rel=0, abs=1e-6
    )


def test_sinusoidal_adds_from_its_offset():
    position, x = Sinusoidal(7, 10000.0), torch.randn(2, 5, 7)
    torch.testing.assert_close(position.add(x, offset=3), x + sinusoids(torch.arange(3.0, 8.0), 7))
    ours, theirs = Learned(7, 13), nn.Embedding(13, 7)
    theirs.load_state_dict(ours.table.state_dict())
    agree(
        ours.add(x, offset=3),
        x + theirs(torch.arange(3, 8)),
        (ours.table.weight,),
        (theirs.weight,),
    )
    pytest.raises(ValueError, ours.add, x, offset=9).match("13.*14|14.*13")


# Several positions at once against PyTorch's attention of vectors that Llama rotates, with a bias written out.


S, WIDTH = 7, 42
ROPE, ALIBI = Choice.of("rope", base=700.0), Choice("alibi")
TYPED = Choice.of("formula", formula="score - 0.3*abs(i-j) + where(j == 1, 0.7, 0)")
DISTANCES = (torch.arange(T)[:, None] - torch.arange(S)).abs().float()
BIASES = {
    TYPED: -0.3 * DISTANCES + 0.7 * (torch.arange(S) == 1),
    ALIBI: -alibi_slopes(H)[:, None, None] * DISTANCES,
}


def rotated(x):
    cos, sin = llama.LlamaRotaryEmbedding(
        LlamaConfig(hidden_size=x.shape[-1], num_attention_heads=1, rope_theta=700.0)
    )(x, torch.arange(x.shape[2])[None])
    return llama.apply_rotary_pos_emb(x, x, cos, sin)[0]


@each(
    "parts",
    [(ROPE, TYPED), (TYPED, ROPE), (ALIBI, ROPE), (ALIBI, TYPED), (ROPE, ALIBI, TYPED)],
)
@each("record", [True, False])
def test_joined_positions_against_pytorch(parts, record):
    layer = Attention(AttentionConfig(WIDTH, H, position=Choice.of("and", *parts)))
    x, context = (
        torch.randn(B, T, WIDTH, requires_grad=True),
        torch.randn(B, S, WIDTH, requires_grad=True),
    )
    real = torch.rand(B, S) < 0.6
    real[:, 3] = True
    q, k, v = layer.projection(x, context)
    q, k = (rotated(q), rotated(k)) if ROPE in parts else (q, k)
    bias = sum((BIASES[part] for part in parts if part in BIASES), torch.zeros(T, S))
    mask = bias.expand(B, H, T, S).masked_fill(~real[:, None, None], -math.inf)
    agree(
        layer(x, context, key_mask=real, record=record).out,
        F.scaled_dot_product_attention(q, k, v, attn_mask=mask),
        (x, context),
        gradient=1e-3,
    )


@each("learned", ["transformer_xl", "deberta", "forgetting"])
def test_a_part_with_tables_gets_its_own(learned):
    layer = perturbed(
        Attention(
            AttentionConfig(
                WIDTH, H, position=Choice.of("and", ALIBI, Choice(learned), Choice("t5"))
            )
        )
    )
    x, context = torch.randn(B, T, WIDTH), torch.randn(B, S, WIDTH)
    block = layer.kernel_inputs(*layer.projection(x, context), x, context).block
    alone = replace(block, tables=())
    assert any(block.tables)
    torch.testing.assert_close(
        layer.position.bias(block), sum(part.bias(alone) for part in layer.position.parts)
    )


def test_a_score_worked_by_hand():
    # Query 1 on key 0 with x = 1: rotated by one radian cos 1, then the formula takes 0.5 for the distance.
    layer = Attention(AttentionConfig(2, 1, projection="identity", position="and"))
    assert layer(torch.tensor([[[1.0, 0.0], [1.0, 0.0]]])).scores[
        0, 0, 1
    ].tolist() == pytest.approx([math.cos(1) / math.sqrt(2) - 0.5, 1 / math.sqrt(2)], abs=1e-6)


def test_it_is_one_choice_with_parts():
    config = AttentionConfig(WIDTH, H, position="and")
    assert [part.key for part in config.position.parts] == ["rope", "formula"]
    assert enters(config.position) == {"q, k", "scores"} and config.has("position", "adjusts")
    assert AttentionConfig.from_json(config.to_json()) == config
    both, one = (
        attention_cost(config.with_(position=position), T, S)
        for position in (Choice.of("and", ALIBI, ROPE), "alibi")
    )
    assert both.flops == one.flops and both.bytes >= one.bytes
    AttentionConfig(WIDTH, H, position=Choice.of("and", ALIBI, ROPE), kernel="fused")


TEXTS, QUERIES, KEYS, CHANNELS, THREE, R = 2, 7, 11, 24, 3, 5


# Relative logits: a bias from the query's token and the distance.


@each("distance", [1, 4, 64])
@each("offset", [0, 4])
@each("clip", [0.0, 1.5])
def test_relative_logits_are_inklings(clip, offset, distance):
    # Keys after their queries, in reach, and too far; a clip that shortens some of the mixing vectors and not others.
    position = perturbed(RelativeLogits(CHANNELS, THREE, R, distance, clip)).double()
    x, memory = (
        torch.randn(TEXTS, n, CHANNELS, dtype=torch.float64, requires_grad=True)
        for n in (QUERIES, KEYS)
    )
    q, k = (
        torch.zeros(TEXTS, THREE, QUERIES, 1, dtype=torch.float64),
        torch.zeros(TEXTS, THREE, KEYS, 1),
    )
    i, j = torch.arange(offset, offset + QUERIES), torch.arange(KEYS)
    if clip:
        config = second.Inkling2TextConfig(
            hidden_size=CHANNELS, d_rel=R, rel_l2_clip_threshold=clip * math.sqrt(R)
        )
        peer = second.Inkling2RelativePositionBias(
            config, THREE, distance, log_scaling=False
        ).double()
        names = {
            "linear.weight": position.mix.weight,
            "proj": position.profiles,
            "norm.scale": position.gain[:, 0],
        }
        given = (x, i[:, None] - j, i[None])
        lengths = (position.mix(x).unflatten(-1, (THREE, R)) * position.gain[:, 0]).norm(dim=-1)
        assert (lengths > clip * math.sqrt(R)).any() and (lengths < clip * math.sqrt(R)).any()
    else:
        peer = first.InklingRelativeLogits(R, distance).double()
        names = {"proj": position.profiles}
        given = (position.mix(x).unflatten(-1, (THREE, R)), i, j)
    theirs = torch.func.functional_call(peer, names, given)
    ours = position.bias(cells(q, k, offset, x=x, context=memory))
    agree(ours, theirs, (x, *position.parameters()), rel=1e-6)  # theirs clips in fp32


def test_relative_logits_by_hand():
    # Profiles (1, 2, 3) and (10, 20, 30) over the distances 0, 1, 2; token i mixes them as (i, 1); 0 from
    # distance 3 on. Clipped to 1, (3, 4) of length 5 becomes (3, 4) · √2 / 5.
    position = RelativeLogits(2, 1, 2, 3, 0.0)
    put((position.mix.weight, torch.eye(2)), (position.profiles, [[1.0, 2, 3], [10, 20, 30]]))
    x = torch.tensor([[[i, 1.0] for i in range(4)]])
    q = torch.zeros(1, 1, 4, 1)
    assert_close(
        position.bias(cells(q, q, x=x, context=x))[0, 0],
        torch.tensor([[10.0, 0, 0, 0], [22, 11, 0, 0], [36, 24, 12, 0], [0, 39, 26, 13]]),
    )
    clipped = RelativeLogits(2, 1, 2, 1, 1.0)
    put((clipped.mix.weight, torch.eye(2)), (clipped.profiles, [[1.0], [0.0]]))
    (states,) = clipped.tables(cells(q, q, x=torch.tensor([[[3.0, 4.0], [0.6, 0.8]]])))
    assert_close(
        states[0, 0], torch.tensor([[3.0, 4.0], [3.0, 4.0]]) * torch.tensor([[2**0.5 / 5], [0.2]])
    )


def test_relative_logits_store_no_token():
    # Only the query's own token is read, which a step is given: the cache is that of keys and values.
    _, cache = Attention(
        AttentionConfig(CHANNELS, THREE, position="relative_logits", mask="causal")
    ).step(torch.randn(TEXTS, QUERIES, CHANNELS))
    assert cache.inputs is None and cache.numbers == QUERIES * 2 * CHANNELS


# A sink that each query computes, and clipped queries and keys.


@each("record", [True, False])
def test_a_query_sink_is_inkling_2s(record):
    layer = perturbed(Attention(AttentionConfig(CHANNELS, THREE, normalizer="query_sink"))).double()
    x, context = (
        torch.randn(TEXTS, n, CHANNELS, dtype=torch.float64, requires_grad=True)
        for n in (QUERIES, KEYS)
    )
    real = torch.arange(KEYS) < torch.tensor([[8], [5]])
    q, k, v = layer.projection(x, context)
    hidden = torch.zeros(TEXTS, 1, QUERIES, KEYS, dtype=torch.float64).masked_fill(
        ~real[:, None, None], torch.finfo(torch.float64).min
    )
    module = SimpleNamespace(num_key_value_groups=1, training=False)
    sinks = layer.normalizer.level(x).mT.unsqueeze(-1)
    out, weights = second.eager_attention_forward(
        module, q, k, v, hidden, scaling=(CHANNELS // THREE) ** -0.5, sinks=sinks
    )
    steps = layer(x, context, key_mask=real, record=record)
    if record:
        assert_close(steps.weights, weights, 1e-6)
    learned = (x, context, layer.normalizer.level.weight, layer.projection.value.weight)
    theirs = layer.projection.output(out.flatten(2))
    agree(steps.merged, theirs, learned, rel=1e-6)  # theirs normalizes in fp32


def test_a_query_sink_by_hand():
    # Two equal scores of 0 beside a sink of log 2 are e^0 / (2 + 2) = 1/4; beside one of log 6 they are 1/8.
    layer = Attention(AttentionConfig(2, 1, normalizer="query_sink", mask="causal"))
    p = layer.projection
    put((p.query.weight, 0.0), (p.key.weight, 0.0), (layer.normalizer.level.weight, [[1.0, 0.0]]))
    steps = layer(torch.tensor([[[0.0, 0.0], [math.log(2), 0.0], [math.log(6), 1.0]]]))
    third = 1 / 9
    assert_close(
        steps.weights[0, 0], torch.tensor([[0.5, 0, 0], [0.25, 0.25, 0], [third, third, third]])
    )
    pytest.raises(
        ConfigError, attend, steps.q, steps.k, steps.v, normalizer=layer.normalizer
    ).match("query_sink reads x.*take.*normalizer = sink")


@each("largest", [0.5, 2.0])
def test_clipped_queries_and_keys_are_inkling_2s(largest):
    # Some vectors shorter than the bound, some longer.
    layer = perturbed(
        Attention(AttentionConfig(CHANNELS, THREE, score=Choice.of("clipped", largest=largest)))
    )
    layer, threshold = layer.double(), largest * math.sqrt(CHANNELS // THREE)
    x, context = (
        torch.linspace(0.01, 3, n)[:, None] * torch.randn(TEXTS, n, CHANNELS, dtype=torch.float64)
        for n in (QUERIES, KEYS)
    )
    q, k, _ = layer.projection(x.requires_grad_(), context.requires_grad_())
    queries, keys = (
        second.Inkling2ScaledL2Clip(THREE, CHANNELS // THREE, threshold),
        second.Inkling2L2Clip(threshold),
    )
    gains = {"scale": layer.score.gain[:, 0]}
    q = torch.func.functional_call(queries, gains, (q.transpose(1, 2),)).transpose(1, 2)
    assert (k.norm(dim=-1) > threshold).any() and (k.norm(dim=-1) < threshold).any()
    theirs = q @ keys(k).mT / math.sqrt(CHANNELS // THREE)
    agree(layer(x, context).scores, theirs, (x, context, layer.score.gain), rel=1e-6)


# Convolutions of keys and values, then whole layers of Inkling 1 and 2.


CHOICES: dict[str, tuple[str, dict[str, Any]]] = {
    "first": ("dynamic_conv", {"taps": "fixed", "scaled": False, "gate": False}),
    "window": ("dynamic_conv", {"taps": "fixed"}),
    "full": ("dynamic_conv", {}),
}
HEADS, GROUPS, SIZE, WINDOW = 6, 2, 4, 3


def inkling_of(kind, **axes):
    """A layer of Inkling 1 with a window, or of Inkling 2 with one or to the whole text."""
    key, params = CHOICES[kind]
    first_one, mask = kind == "first", Choice.of("causal_local", lookback=WINDOW - 1)
    place = Choice.of("relative_logits", size=R, distance=4, clip=0.0 if first_one else 1.5)
    growth = Choice.of("position_temperature", growth=0.5, step=2, rule="smooth")
    config = AttentionConfig(
        CHANNELS,
        HEADS,
        Choice.of(key, kv_heads=GROUPS, head_dim=SIZE, **params),
        "qk_norm" if first_one else Choice.of("clipped", largest=1.0),
        Choice.of("and", place, growth) if kind == "full" else place,
        "causal" if kind == "full" else mask,
        "softmax" if first_one else "query_sink",
    )
    return perturbed(Attention(config.with_(**axes)).eval())


def names_in(layer, kind):
    """Our weights by the names that they have in Inkling's layer."""
    p, rows = layer.projection, GROUPS * SIZE
    bias = layer.position.parts[0] if kind == "full" else layer.position
    taps = dict(zip("kv", p.taps.split(rows, dim=1), strict=True))
    # theirs begins with the oldest
    flipped = {one: tap.flip(0).T[:, None] for one, tap in taps.items()}
    if kind == "first":
        return {
            **by_name(layer),
            "r_proj.weight": bias.mix.weight,
            "rel_logits_proj.proj": bias.profiles,
            "k_sconv.conv1d.weight": flipped["k"],
            "v_sconv.conv1d.weight": flipped["v"],
            "q_norm.weight": layer.score.query.weight * math.sqrt(SIZE),  # theirs divides by D
            "k_norm.weight": layer.score.key.weight,
        }
    names = by_name(layer, *(f"{one}_proj.linear" for one in "qkvo")) | {
        "o_proj.gate_proj.weight": p.gate.weight,
        "sink_proj.weight": layer.normalizer.level.weight,
        "q_proj.norm.scale": layer.score.gain[:, 0],
        "relative_position_bias.linear.weight": bias.mix.weight,
        "relative_position_bias.norm.scale": bias.gain[:, 0],
        "relative_position_bias.proj": bias.profiles,
    }
    if kind == "window":
        return names | {f"{one}_proj.sconv.conv1d.weight": flipped[one] for one in "kv"}
    mixes = dict(zip("kv", p.mix.weight.chunk(2), strict=True))
    return (
        names
        | {f"{one}_proj.sconv.static_weight": taps[one] for one in "kv"}
        | {f"{one}_proj.sconv.weight_proj.weight": mixes[one] for one in "kv"}
    )


@each("kind", CHOICES)
def test_a_layer_is_inklings(kind):
    # Grouped heads, a window, distances in reach and beyond, both clips, and the growth of scores from position 2 on.
    layer, module = inkling_of(kind), first if kind == "first" else second
    sizes = {
        f"{prefix}{name}": value
        for prefix in ("", "swa_")
        for name, value in {
            "num_attention_heads": HEADS,
            "num_key_value_heads": GROUPS,
            "head_dim": SIZE,
        }.items()
    }
    given = (
        {}
        if kind == "first"
        else {
            "qk_l2_clip_threshold": math.sqrt(SIZE),
            "rel_l2_clip_threshold": 1.5 * math.sqrt(R),
            "log_scaling_n_floor": 2,
            "log_scaling_alpha": 0.5,
        }
    )
    config = getattr(module, "InklingTextConfig" if kind == "first" else "Inkling2TextConfig")(
        hidden_size=CHANNELS,
        num_hidden_layers=1,
        d_rel=R,
        rel_extent=4,
        sliding_window_size=4,
        layer_types=["hybrid" if kind == "full" else "hybrid_sliding"],
        attn_implementation="eager",
        **sizes,
        **given,
    )
    kinds = {
        "first": "InklingAttention",
        "window": "Inkling2SlidingAttention",
        "full": "Inkling2FullAttention",
    }
    peer, x = getattr(module, kinds[kind])(config, 0).eval(), torch.randn(TEXTS, QUERIES, CHANNELS)
    i = torch.arange(QUERIES)
    near = (i[:, None] >= i) & ((i[:, None] - i < WINDOW) | (kind == "full"))
    hidden = torch.zeros(1, 1, QUERIES, QUERIES).masked_fill(~near, torch.finfo(torch.float32).min)
    how: dict[str, Any] = {"attention_mask": hidden}
    if kind != "first":
        how |= {"position_ids": i[None], "relative_distance": i[:, None] - i}
    more = (x, x) if kind == "full" else ()
    same_layer(layer, peer, names_in(layer, kind), x, *more, **how)


def test_a_dynamic_convolution_by_hand():
    # One head of one number, x = (1, 2): the second key is 2 + (c₀ + d)·2 + (c₁ + d')·1 with c = (3, 4), d = 5x and
    # d' = 6x, thus 2 + 13·2 + 16·1 = 44; the first 1 + 8·1 = 9. Scaled, both are over √5, and values are 1.
    for scaled in (False, True):
        layer = Attention(
            AttentionConfig(1, 1, Choice.of("dynamic_conv", width=2, scaled=scaled, gate=False))
        )
        p = layer.projection
        put((p.key.weight, 1.0), (p.value.weight, 1.0), (p.taps, [[3.0, 3.0], [4.0, 4.0]]))
        put((p.mix.weight, [[5.0], [6.0], [5.0], [6.0]]))
        steps = layer(torch.tensor([[[1.0], [2.0]]]))
        expected = torch.tensor([9.0, 44.0])
        assert_close(steps.k.flatten(), expected / math.sqrt(5 if scaled else 1))
        assert_close(steps.v.flatten(), torch.ones(2) if scaled else expected)


@each("kind", CHOICES)
def test_a_text_in_parts_is_the_whole_text(kind):
    # A prefill, then tokens one by one and together, with padding before one of the texts.
    layer, x = inkling_of(kind), torch.randn(TEXTS, KEYS, CHANNELS)
    real = torch.arange(KEYS) >= torch.tensor([[0], [3]])
    for key_mask in (None, real):
        out, cache = read_in_parts(layer, x, key_mask=key_mask)
        seen = real if key_mask is not None else real | True
        assert_close(out[seen], layer(x, key_mask=key_mask).merged[seen])
        held = 3 * 2 * GROUPS * SIZE  # the last rows of the convolution
        assert cache.numbers == KEYS * layer.config.sizes.cache + held
