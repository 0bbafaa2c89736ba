"""Shaw, Transformer-XL, DeBERTa and T5 against Hugging Face's own modules, and by hand."""

import pytest
import torch
from einops import rearrange
from transformers import DebertaV2Config, T5Config, Wav2Vec2BertConfig, Wav2Vec2ConformerConfig
from transformers.models.deberta_v2.modeling_deberta_v2 import DisentangledSelfAttention
from transformers.models.t5.modeling_t5 import T5Attention
from transformers.models.wav2vec2_bert.modeling_wav2vec2_bert import Wav2Vec2BertSelfAttention
from transformers.models.wav2vec2_conformer import modeling_wav2vec2_conformer as conformer

from core.attention import AttentionConfig, Choice, ConfigError
from core.attention.positions.relative import T5, Deberta, Shaw, TransformerXL, bucket
from tests.cases import each
from tests.oracles.places import agree, cells, layer_of, share

B, T, C, H = 2, 11, 24, 3


def projections(layer, query, key, value, output=None):
    ours, theirs = layer.projection, [query, key, value, *([output] if output else [])]
    mine = [ours.query, ours.key, ours.value, ours.output]
    return [
        (a, b)
        for one, other in zip(mine, theirs, strict=False)
        for a, b in zip(one.parameters(), other.parameters(), strict=True)
    ]


def test_shaw_keys_against_wav2vec2_bert():
    """All places within ±4 and beyond, so that the clipping is seen."""
    peer = Wav2Vec2BertSelfAttention(
        Wav2Vec2BertConfig(
            hidden_size=C,
            num_attention_heads=H,
            position_embeddings_type="relative_key",
            left_max_position_embeddings=4,
            right_max_position_embeddings=4,
            attn_implementation="eager",
        )
    ).eval()
    layer = layer_of("shaw", C, H, distance=4, values=False)
    pairs = [
        (layer.position.key, peer.distance_embedding.weight),
        *projections(layer, peer.linear_q, peer.linear_k, peer.linear_v, peer.linear_out),
    ]
    share(*pairs)
    x = torch.randn(B, T, C)
    theirs, weights = peer(x)
    steps = layer(x)
    torch.testing.assert_close(steps.weights, weights, rtol=1e-5, atol=1e-6)
    agree(
        steps.merged, theirs, *(pair for pair in pairs if pair[0] is not layer.projection.key.bias)
    )


def test_shaw_values_against_every_cell_on_its_own():
    """o = Σ w (v + a), written out: a vector for each cell, which is what the paper has and what nobody stores."""
    shaw, weights = Shaw(5, 7, 3, values=True), torch.rand(2, 3, 4, 9, requires_grad=True)
    where = cells(torch.randn(2, 3, 4, 5), torch.randn(2, 3, 9, 5), offset=2)
    table = shaw.value.detach().clone().requires_grad_()
    each = torch.stack(
        [torch.stack([table[max(-3, min(3, j - i)) + 3] for j in range(9)]) for i in range(2, 6)]
    )
    agree(
        shaw.values(weights, where),
        torch.einsum("bhts,tse->bhte", weights, each),
        (weights, weights),
        (shaw.value, table),
    )


def test_shaw_by_hand():
    """D = 4, K = 1, q = 1: the scores grow by a/√4, and the output by the weight at each distance times its vector."""
    shaw = Shaw(4, 1, 1, values=True)
    with torch.no_grad():
        shaw.key.copy_(torch.tensor([-1.0, 0.0, 2.0])[:, None].expand(3, 4))
        shaw.value.copy_(torch.tensor([[10.0], [0.0], [1.0]]))
    q = torch.ones(1, 1, 3, 4)
    bias = shaw.bias(cells(q, q))
    torch.testing.assert_close(bias[0, 0], torch.tensor([[0.0, 4, 4], [-2, 0, 4], [-2, -2, 0]]))
    weights = torch.tensor([[[[0.5, 0.25, 0.25], [0.2, 0.3, 0.5], [0.1, 0.6, 0.3]]]])
    torch.testing.assert_close(
        shaw.values(weights, cells(q, q))[0, 0, :, 0], torch.tensor([0.5, 2.5, 7.0])
    )


def test_shaw_in_the_layer_adds_both_terms():
    """Zero keys make equal scores, so the output is the mean of v + a over what is seen."""
    layer = layer_of("shaw", 6, 1, distance=2)
    with torch.no_grad():
        layer.projection.query.weight.zero_()
    x = torch.randn(1, 3, 6)
    steps = layer(x)
    value = layer.position.value
    extra = torch.stack(
        [value[[2, 3, 4]].mean(0), value[[1, 2, 3]].mean(0), value[[0, 1, 2]].mean(0)]
    )
    torch.testing.assert_close(steps.out[0, 0], steps.v[0, 0].mean(0) + extra)


def test_transformer_xl_against_wav2vec2_conformer():
    config = Wav2Vec2ConformerConfig(
        hidden_size=C,
        num_attention_heads=H,
        position_embeddings_type="relative",
        max_source_positions=32,
        attn_implementation="eager",
    )
    peer = conformer.Wav2Vec2ConformerSelfAttention(config).eval()
    layer = layer_of("transformer_xl", C, H)
    pairs = [
        (layer.position.project.weight, peer.linear_pos.weight),
        (layer.position.content, peer.pos_bias_u),
        (layer.position.place, peer.pos_bias_v),
        *projections(layer, peer.linear_q, peer.linear_k, peer.linear_v, peer.linear_out),
    ]
    share(*pairs)
    x = torch.randn(B, T, C)
    theirs, weights = peer(
        x, relative_position_embeddings=conformer.Wav2Vec2ConformerRelPositionalEmbedding(config)(x)
    )
    steps = layer(x)
    torch.testing.assert_close(steps.weights, weights, rtol=1e-4, atol=1e-5)
    agree(
        steps.merged, theirs, *(pair for pair in pairs if pair[0] is not layer.projection.key.bias)
    )


def test_transformer_xl_by_hand():
    """C = 2, D = 1: r is (sin d, cos d); W reads its sine, q = 2, k = 3, u = 5 and v = 7 give 5·3 + 9 sin(i − j)."""
    position = TransformerXL(2, 1, 1, 10000.0)
    with torch.no_grad():
        position.project.weight.copy_(torch.tensor([[1.0, 0.0]]))
        position.content.fill_(5.0)
        position.place.fill_(7.0)
    bias = position.bias(cells(torch.full((1, 1, 2, 1), 2.0), torch.full((1, 1, 3, 1), 3.0)))
    sine = torch.tensor([[0.0, -1, -2], [1, 0, -1]]).sin()
    torch.testing.assert_close(bias[0, 0], 15 + 9 * sine)


def test_deberta_against_deberta_v2():
    peer = DisentangledSelfAttention(
        DebertaV2Config(
            hidden_size=C,
            num_attention_heads=H,
            relative_attention=True,
            pos_att_type=["c2p", "p2c"],
            share_att_key=False,
            position_buckets=-1,
            max_relative_positions=4,
            attention_probs_dropout_prob=0.0,
        )
    ).eval()
    layer = layer_of("deberta", C, H, distance=4)
    table = torch.empty(8, C, requires_grad=True)
    torch.nn.init.zeros_(peer.pos_key_proj.bias)
    torch.nn.init.zeros_(peer.pos_query_proj.bias)
    pairs = [
        (layer.position.table, table),
        (layer.position.key.weight, peer.pos_key_proj.weight),
        (layer.position.query.weight, peer.pos_query_proj.weight),
        *projections(layer, peer.query_proj, peer.key_proj, peer.value_proj),
    ]
    share(*pairs)
    x = torch.randn(B, T, C)
    theirs, weights = peer(x, torch.ones(B, 1, T, T), output_attentions=True, rel_embeddings=table)
    steps = layer(x)
    torch.testing.assert_close(steps.weights, weights, rtol=1e-4, atol=1e-5)
    agree(rearrange(steps.out, "b h t d -> b t (h d)"), theirs, *pairs)


def test_deberta_by_hand():
    """C = D = 1 and all maps 1: the table's number, once for the query and once for the key, and all over √3."""
    position = Deberta(1, 1, 1, 1)
    with torch.no_grad():
        for weight in (position.key.weight, position.query.weight):
            weight.fill_(1.0)
        position.table.copy_(torch.tensor([[10.0], [1.0]]))  # for i − j ≤ −1, and for all others
    where = cells(torch.tensor([[[[2.0], [3.0]]]]), torch.tensor([[[[5.0], [7.0]]]]))
    bias = position.bias(where)
    torch.testing.assert_close(bias[0, 0], torch.tensor([[7.0, 90.0], [8.0, 10.0]]))
    torch.testing.assert_close(position.adjust(bias, where), bias / 3**0.5)


def test_t5_buckets_have_the_published_numbers():
    distance = torch.tensor([-3, -1, 0, 1, 8, 127, 200])
    assert bucket(distance).tolist() == [3, 1, 0, 17, 24, 31, 31]


@each("bidirectional", [True, False])
@each(("buckets", "farthest"), [(32, 128), (8, 20), (4, 3), (6, 16), (64, 1000), (256, 128)])
def test_t5_buckets_against_t5(bidirectional, buckets, farthest):
    distance = torch.arange(-1500, 1501)
    theirs = T5Attention._relative_position_bucket(distance, bidirectional, buckets, farthest)
    torch.testing.assert_close(bucket(distance, bidirectional, buckets, farthest), theirs)


def test_t5_against_its_attention():
    """The whole layer: dot products without √D, no biases in the maps, one table for the heads."""
    peer = T5Attention(
        T5Config(
            d_model=C,
            d_kv=C // H,
            num_heads=H,
            relative_attention_num_buckets=8,
            relative_attention_max_distance=10,
        ),
        has_relative_attention_bias=True,
    ).eval()
    layer = layer_of("t5", C, H, score="dot", bias=False, buckets=8, max_distance=10)
    pairs = [
        (layer.position.table, peer.relative_attention_bias.weight),
        *projections(layer, peer.q, peer.k, peer.v, peer.o),
    ]
    share(*pairs)
    x = torch.randn(B, T, C)
    agree(layer(x).merged, peer(x)[0], *pairs)


@each("decoder", [True, False])
def test_t5_bias_of_a_cache_against_compute_bias(decoder):
    peer = T5Attention(
        T5Config(
            num_heads=5,
            relative_attention_num_buckets=8,
            relative_attention_max_distance=10,
            is_decoder=decoder,
        ),
        has_relative_attention_bias=True,
        layer_idx=0,
    )
    position = T5(C, 5, 8, 10, not decoder)
    share((position.table, peer.relative_attention_bias.weight))
    where = cells(torch.randn(1, 5, 3, 2), torch.randn(1, 5, 13, 2), offset=10)
    agree(
        position.bias(where)[None],
        peer.compute_bias(3, 13, past_seen_tokens=10),
        (position.table, peer.relative_attention_bias.weight),
    )


def test_t5_by_hand():
    """Four buckets, two a side: distance 0, one or more back; one after, more after; one head."""
    position = T5(C, 1, 4, 3, True)
    with torch.no_grad():
        position.table.copy_(torch.tensor([[0.0], [-1.0], [5.0], [7.0]]))
    q = torch.zeros(1, 1, 3, 2)
    torch.testing.assert_close(
        position.bias(cells(q, q))[0], torch.tensor([[0.0, 7, 7], [-1, 0, 7], [-1, -1, 0]])
    )


def test_t5_refuses_more_exact_buckets_than_distances():
    with pytest.raises(
        ConfigError, match="buckets = 64.*max_distance = 10.*take max_distance ≥ 17"
    ):
        AttentionConfig(C, H, position=Choice.of("t5", buckets=64, max_distance=10))
