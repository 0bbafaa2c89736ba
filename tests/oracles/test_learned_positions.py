"""KERPLE and FIRE cell by cell, CoPE and forgetting against x-transformers, a formula against FlexAttention."""

import math

import pytest
import torch
from einops import rearrange
from torch.nn import functional as F
from transformers import DebertaV2Config, T5Config, Wav2Vec2BertConfig, Wav2Vec2ConformerConfig
from transformers.models.deberta_v2.modeling_deberta_v2 import DisentangledSelfAttention
from transformers.models.t5.modeling_t5 import T5Attention
from transformers.models.wav2vec2_bert.modeling_wav2vec2_bert import Wav2Vec2BertSelfAttention
from transformers.models.wav2vec2_conformer import modeling_wav2vec2_conformer as conformer
from x_transformers.x_transformers import CoPE, DataDependentAlibi

from core.attention import Attention, AttentionConfig, Choice
from core.attention.positions.contextual import Cope, Forgetting, Typed
from core.attention.positions.relative import T5, Deberta, Fire, Kerple, Shaw, TransformerXL, bucket
from core.entries import ConfigError
from tests.cases import each
from tests.oracles.agreement import same_result
from tests.oracles.places import agree, cells, layer_of, share

B, H, T, D = 2, 3, 11, 5


def some(heads=H, queries=T, keys=T, dim=D, dtype=torch.float32):
    return tuple(
        torch.randn(B, heads, n, dim, dtype=dtype, requires_grad=True) for n in (queries, keys)
    )


def every_cell(rule, queries, keys, offset=0):
    """(H, T, S) from a rule of one cell, which gives a number a head."""
    rows = [
        torch.stack([rule(i, j) for j in range(keys)], -1) for i in range(offset, offset + queries)
    ]
    return torch.stack(rows, -2)


@each("kernel", ["log", "power"])
def test_kerple_cell_by_cell(kernel):
    """Chi 2022: −r₁ log(1 + r₂ d) and −r₁ d^r₂, with the positive numbers that ours makes of what it learns."""
    position = Kerple(H, kernel).double()
    first = position.slope.detach().clone().requires_grad_()
    second = position.shape.detach().clone().requires_grad_()
    r1, r2 = F.softplus(first), F.softplus(second) if kernel == "log" else 2 * torch.sigmoid(second)

    def rule(i, j):
        return -r1 * torch.log(1 + r2 * abs(i - j)) if kernel == "log" else -r1 * abs(i - j) ** r2

    q, k = some(queries=4, dtype=torch.float64)
    agree(
        position.bias(cells(q, k, offset=3)),
        every_cell(rule, 4, T, offset=3),
        (position.slope, first),
        (position.shape, second),
    )


@each(("kernel", "expected"), [("log", [0.0, 0.6931472, 1.0986123]), ("power", [0.0, 1.0, 2.0])])
def test_kerple_by_hand(kernel, expected):
    """r₁ = r₂ = 1: −log(1 + d), and −d."""
    position = Kerple(1, kernel)
    with torch.no_grad():
        position.slope.fill_(math.log(math.e - 1))  # softplus gives 1
        position.shape.fill_(math.log(math.e - 1) if kernel == "log" else 0.0)
    q = torch.zeros(1, 1, 3, 1)
    torch.testing.assert_close(position.bias(cells(q, q))[0, 2], -torch.tensor(expected).flip(0))


def test_kerple_keeps_its_kernels_positive_definite():
    """Chi 2022 asks for r₁ > 0, and for 0 < r₂ ≤ 2 in the power: whatever is learned stays within."""
    position = Kerple(4, "power")
    with torch.no_grad():
        position.slope.copy_(torch.tensor([-9.0, -1, 1, 9]))
        position.shape.copy_(torch.tensor([-9.0, 9, 30, -30]))
    q = torch.zeros(1, 4, 8, 1)
    bias = position.bias(cells(q, q))
    assert (bias <= 0).all() and (bias[:, 0, 1] < 0).all()
    assert ((bias[:, 0, 2] / bias[:, 0, 1]).detach() <= 4.0 + 1e-5).all(), "d^r₂ at 2 is at most 4"


def test_fire_cell_by_cell():
    """Li 2024 and its listing: f(log(c d + 1) / log(c max(i, L) + 1)), one value of f a head."""
    position = Fire(H, 6, 4.0).double()
    own = [p.detach().clone().requires_grad_() for p in position.parameters()]
    c, m, w1, b1, w2, b2 = own

    def rule(i, j):
        longest = torch.maximum(torch.tensor(float(i), dtype=torch.float64), (m * 4.0).abs())
        share_ = torch.log((c * (i - j)).abs() + 1) / (torch.log((c * longest).abs() + 1) + 1e-6)
        return w2 @ F.relu(w1[:, 0] * share_ + b1) + b2

    assert [name for name, _ in position.named_parameters()][:2] == ["stretch", "multiple"]
    q, k = some(queries=7, dtype=torch.float64)
    agree(
        position.bias(cells(q, k, offset=2)),
        every_cell(rule, 7, T, offset=2),
        *zip(position.parameters(), own, strict=True),
    )


def test_fire_by_hand():
    """f(x) = x, c = 1, L = 3: before place 3 the share is log(d + 1)/log 4, after it log(d + 1)/log(i + 1)."""
    position = Fire(1, 1, 3.0)
    with torch.no_grad():
        for p, value in zip(position.parameters(), (1.0, 1.0, 1.0, 0.0, 1.0, 0.0), strict=True):
            p.fill_(value)
    q = torch.zeros(1, 1, 8, 1)
    bias = position.bias(cells(q, q))[0]
    torch.testing.assert_close(
        bias[2, :3], torch.tensor([3.0, 2, 1]).log() / math.log(4), rtol=1e-4, atol=1e-5
    )
    torch.testing.assert_close(bias[7, 0], torch.tensor(1.0), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        bias[7, 6], torch.tensor(math.log(2) / math.log(8)), rtol=1e-4, atol=1e-5
    )


@each("places", [4, 64])
def test_cope_against_x_transformers(places):
    """With 4 places the count runs over the table's end; theirs reads scores whose future is masked already."""
    ours, peer = Cope(D, places), CoPE(D, H, places)
    share((ours.table, peer.pos_emb))
    (q, k), scores = some(), torch.randn(B, H, T, T, requires_grad=True)
    causal = torch.ones(T, T, dtype=torch.bool).tril()
    masked = scores.masked_fill(~causal, -torch.finfo(scores.dtype).max)
    theirs = (masked + peer(q, masked)).softmax(-1)
    mine = ours.adjust(scores, cells(q, k)).masked_fill(~causal, -torch.inf).softmax(-1)
    same_result(
        mine,
        theirs,
        [q, scores, ours.table],
        [q, scores, peer.pos_emb],
        rtol=1e-5,
        atol=1e-6,
        gradient=(1e-4, 1.25e-5),
        felt=True,
    )


def test_cope_by_hand():
    """Scores of 0 open each gate by half: two keys count 1, three 1.5, between the vectors of places 1 and 2."""
    position = Cope(1, 3)
    with torch.no_grad():
        position.table.copy_(torch.tensor([[0.0], [10.0], [30.0]]))
    q = torch.ones(1, 1, 3, 1)
    added = position.adjust(torch.zeros(1, 1, 3, 3), cells(q, q))[0, 0]
    torch.testing.assert_close(added, torch.tensor([[5.0, 0, 0], [10, 5, 0], [20, 10, 5]]))


def test_cope_counts_no_padding():
    position, q = Cope(1, 8), torch.ones(1, 1, 4, 1)
    with torch.no_grad():
        position.table.copy_(torch.arange(8.0)[:, None])
    where = cells(q, q)
    padded = type(where).whole(
        4, 4, num_heads=1, q=q, k=q, key_mask=torch.tensor([[True, False, True, True]])
    )
    added = position.adjust(torch.zeros(1, 1, 4, 4), padded)[0, 0, 3]
    torch.testing.assert_close(added, torch.tensor([1.5, 1.0, 1.0, 0.5]))


def test_forgetting_against_x_transformers():
    """Their causal half: theirs leaves growing numbers after the query, which a causal mask takes away."""
    ours, peer = Forgetting(12, H, 0.0), DataDependentAlibi(12, H, causal=True)
    linear = peer.to_forget_gates[0]
    share((ours.gate.weight, linear.weight), (ours.gate.bias, linear.bias))
    x = torch.randn(B, T, 12, requires_grad=True)
    q, k = some()
    mine, theirs = ours.bias(cells(q, k, x=x, context=x)).tril(), peer(x).tril()
    agree(mine, theirs, (x, x), (ours.gate.weight, linear.weight), (ours.gate.bias, linear.bias))


def test_forgetting_is_its_recurrence():
    """What a query has kept of a key is its own gate times what the query before had kept; of itself it keeps all."""
    position, x = Forgetting(12, H, 1.0).double(), torch.randn(B, T, 12, dtype=torch.float64)
    q, k = some(dtype=torch.float64)
    gates = position.gate(x).sigmoid().mT  # (B, H, T)
    decay = torch.zeros(B, H, T, T, dtype=torch.float64)
    for i in range(T):
        if i:
            decay[:, :, i] = gates[:, :, i, None] * decay[:, :, i - 1]
        decay[:, :, i, i] = 1.0
    bias = position.bias(cells(q, k, x=x, context=x))
    torch.testing.assert_close(bias.exp().tril(), decay)
    torch.testing.assert_close(bias, bias.mT)  # of what comes later it has forgotten as much


def test_forgetting_by_hand():
    """Gates of ½ and equal scores: a causal row is 1, ⅓ ⅔, 1/7 2/7 4/7."""
    layer = layer_of("forgetting", 6, 1, mask="causal")
    with torch.no_grad():
        layer.position.gate.weight.zero_()
        layer.projection.query.weight.zero_()
    weights = layer(torch.randn(1, 3, 6)).weights[0, 0]
    torch.testing.assert_close(
        weights, torch.tensor([[1.0, 0, 0], [1 / 3, 2 / 3, 0], [1 / 7, 2 / 7, 4 / 7]])
    )


def test_forgetting_says_what_it_needs():
    q, k = some()
    with pytest.raises(ConfigError, match="forgetting reads context.*alibi"):
        Forgetting(12, H, 0.0).bias(cells(q, k))


def test_a_formula_can_be_alibi():
    """Press's slopes for 8 heads, typed."""
    typed = layer_of("formula", 16, 8, formula="score - 2 ** -(h + 1) * abs(i - j)")
    alibi = layer_of("alibi", 16, 8)
    alibi.load_state_dict(typed.state_dict())
    x = torch.randn(B, T, 16)
    agree(
        typed(x).merged, alibi(x).merged, *zip(typed.parameters(), alibi.parameters(), strict=True)
    )


def test_a_formula_against_flex_attention():
    """PyTorch's own way to say it: a function of the score and its place."""
    from torch.nn.attention.flex_attention import flex_attention

    q, k = some()
    v = torch.randn(B, H, T, 7)

    def rule(score, b, h, i, j):
        return torch.where(j > i, score * 0.5, torch.tanh(score) - (i - j) / (h + 1))

    theirs = flex_attention(q.detach(), k.detach(), v, score_mod=rule)
    typed = Typed("where(j > i, score * 0.5, tanh(score) - (i - j) / (h + 1))")
    scores = typed.adjust(q @ k.mT * D**-0.5, cells(q, k))
    torch.testing.assert_close(scores.softmax(-1) @ v, theirs, rtol=1e-5, atol=1e-5)


def test_a_formula_by_hand_and_its_refusal():
    layer = Attention(
        AttentionConfig(
            4, 2, position=Choice.of("formula", formula="0 * score + h + i - 10 * j + T")
        )
    )
    scores = layer(torch.randn(1, 2, 4), torch.randn(1, 3, 4), offset=5).scores[0]
    torch.testing.assert_close(scores[1], torch.tensor([[13.0, 3, -7], [14, 4, -6]]))
    with pytest.raises(ConfigError, match="character 9"):
        AttentionConfig(4, 2, position=Choice.of("formula", formula="score + x"))


# Shaw, Transformer-XL, DeBERTa and T5 against Hugging Face's own modules, and by hand.


C = 24


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
