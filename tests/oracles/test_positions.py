"""Positions against published values and other people's code: sinusoidal, learned, rotary (both layouts), ALiBi."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformers import LlamaConfig
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.gptj import modeling_gptj as gptj
from transformers.models.llama import modeling_llama as llama
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

from core.attention import Attention, AttentionConfig, Choice, ConfigError
from core.attention.cost import attention_cost
from core.attention.positions import enters
from core.attention.positions.relative import Alibi, Learned, Sinusoidal, alibi_slopes, sinusoids
from core.attention.positions.rotary import Rotary
from tests.cases import each
from tests.oracles.agreement import same_result
from tests.oracles.places import cells


def test_sinusoids_have_the_published_values():
    """The table widely printed for C = 4 and base 100 (four decimals)."""
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
    theirs = gptj.create_sinusoidal_positions(31, dim)  # sines first, then cosines
    ours = sinusoids(torch.arange(31.0), dim)
    torch.testing.assert_close(
        torch.cat((ours[:, 0::2], ours[:, 1::2]), dim=1), theirs, rtol=1e-5, atol=5e-6
    )


@each("dim", [1, 3, 7, 63])
def test_an_odd_dimension_ends_on_a_sine_of_the_same_law(dim):
    table = sinusoids(torch.arange(11.0), dim)
    last = torch.sin(torch.arange(11.0) / 10000 ** ((dim - 1) / dim))
    torch.testing.assert_close(table[:, -1], last)
    assert table.shape == (11, dim)


def test_sinusoids_far_out_keep_their_precision():
    """fp32 angles are wrong in the third decimal at 100,000; the reference is in float64."""
    far = sinusoids(torch.tensor([100_003.0]), 6)
    exact = torch.tensor([100_003.0], dtype=torch.float64) / 10000 ** (
        torch.tensor([0, 2, 4], dtype=torch.float64) / 6
    )
    torch.testing.assert_close(far[0, 0::2], exact.sin().float(), rtol=0, atol=1e-6)


def test_a_shift_is_a_rotation_of_the_sinusoids():
    """Vaswani 2017, section 3.5: the encoding of i + k is a linear function of the encoding of i."""
    table = sinusoids(torch.arange(23.0), 2, 10000.0)
    turn = torch.tensor(5.0)
    rotation = torch.stack(
        (torch.stack((turn.cos(), turn.sin())), torch.stack((-turn.sin(), turn.cos())))
    )
    torch.testing.assert_close(table[5:], table[:-5] @ rotation.T, rtol=1e-5, atol=1e-5)


def test_sinusoidal_adds_from_its_offset():
    position, x = Sinusoidal(7, 10000.0), torch.randn(2, 5, 7)
    torch.testing.assert_close(position.add(x, offset=3), x + sinusoids(torch.arange(3.0, 8.0), 7))


def test_learned_is_an_embedding():
    ours, theirs, x = Learned(7, 13), nn.Embedding(13, 7), torch.randn(2, 5, 7)
    theirs.load_state_dict(ours.table.state_dict())
    out, reference = ours.add(x, offset=3), x + theirs(torch.arange(3, 8))
    torch.testing.assert_close(out, reference)
    grad = torch.randn_like(out)
    out.backward(grad)
    reference.backward(grad)
    torch.testing.assert_close(ours.table.weight.grad, theirs.weight.grad)


def test_learned_says_what_its_end_is():
    with pytest.raises(ValueError, match="13.*14|14.*13"):
        Learned(7, 13).add(torch.zeros(1, 5, 7), offset=9)


def _llama(q, k, base, offset):
    config = LlamaConfig(
        hidden_size=q.shape[1] * q.shape[3],
        num_attention_heads=q.shape[1],
        rope_parameters={"rope_type": "default", "rope_theta": base},
    )
    places = torch.arange(offset, offset + q.shape[2])[None]
    cos, sin = llama.LlamaRotaryEmbedding(config)(q, places)
    return llama.apply_rotary_pos_emb(q, k, cos, sin)


@each(("base", "offset"), [(10000.0, 0), (500000.0, 17)])
def test_rope_in_halves_against_llama(base, offset):
    rope = Rotary(14, base, "halves")
    q, k = (torch.randn(2, 3, 11, 14, requires_grad=True) for _ in "qk")
    for x, theirs in zip((q, k), _llama(q, k, base, offset), strict=True):
        same_result(rope.rotate(x, offset), theirs, (x,), rtol=1e-5, atol=1.25e-5)


@each("offset", [0, 17])
def test_rope_interleaved_against_gptj(offset):
    q = torch.randn(2, 3, 11, 14)
    sin, cos = gptj.create_sinusoidal_positions(64, 14)[offset : offset + 11].chunk(2, dim=-1)
    theirs = gptj.apply_rotary_pos_emb(q.transpose(1, 2), sin[None], cos[None]).transpose(1, 2)
    torch.testing.assert_close(
        Rotary(14, 10000.0, "interleaved").rotate(q, offset), theirs, rtol=1e-5, atol=1e-5
    )


def test_the_two_layouts_give_different_scores_from_the_same_weights():
    q, k = torch.randn(2, 1, 2, 7, 6)
    score = {}
    for layout in ("halves", "interleaved"):
        rope = Rotary(6, 10000.0, layout)
        score[layout] = rope.rotate(q[None]) @ rope.rotate(k[None]).mT
    assert (score["halves"] - score["interleaved"]).abs().max() > 0.1


def test_the_two_layouts_agree_once_the_dimensions_are_reordered():
    q = torch.randn(2, 3, 7, 6)
    order = torch.tensor([0, 2, 4, 1, 3, 5])
    halves = Rotary(6, 10000.0, "halves").rotate(q[..., order])
    torch.testing.assert_close(halves, Rotary(6, 10000.0, "interleaved").rotate(q)[..., order])


@each("layout", ["halves", "interleaved"])
def test_a_rotary_score_sees_the_distance_alone_and_keeps_lengths(layout):
    rope, q, k = Rotary(10, 10000.0, layout), torch.randn(1, 1, 1, 10), torch.randn(1, 1, 1, 10)
    near = (rope.rotate(q, 5) * rope.rotate(k, 2)).sum()
    far = (rope.rotate(q, 105) * rope.rotate(k, 102)).sum()
    torch.testing.assert_close(near, far, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(rope.rotate(q, 77).norm(), q.norm())


def test_rope_by_hand():
    """One pair turned by one radian: (1, 0) becomes (cos 1, sin 1)."""
    turned = Rotary(2, 10000.0, "halves").rotate(torch.tensor([[[[1.0, 0.0]]]]), offset=1)
    torch.testing.assert_close(turned.flatten(), torch.tensor([0.5403023, 0.8414710]))


@each("heads", [1, 2, 3, 5, 8, 11, 12, 16])
def test_alibi_slopes_against_bloom(heads):
    theirs = build_alibi_tensor(
        torch.ones(1, 2, dtype=torch.long), heads, torch.float32
    )  # slope · j, so j = 1 is it
    torch.testing.assert_close(alibi_slopes(heads), theirs[:, 0, 1])


@each("heads", [2, 4, 8, 16])
def test_alibi_against_mpt(heads):
    """MPT writes the last row, −m (T − 1 − j), which softmax makes the same for every row under a causal mask."""
    q, k = torch.randn(2, 1, heads, 13, 5)
    scores = q @ k.mT
    causal = torch.ones(13, 13, dtype=torch.bool).tril()
    ours = (scores + Alibi(heads).bias(cells(q, k))).masked_fill(~causal, -torch.inf).softmax(-1)
    theirs = (
        (scores + build_mpt_alibi_tensor(heads, 13)[None])
        .masked_fill(~causal, -torch.inf)
        .softmax(-1)
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_alibi_of_a_cached_query_is_the_last_row_of_the_whole():
    q, k = torch.randn(2, 1, 3, 7, 5)
    torch.testing.assert_close(
        Alibi(3).bias(cells(q, k))[:, 5:], Alibi(3).bias(cells(q[:, :, 5:], k, offset=5))
    )


def test_alibi_by_hand():
    """Two heads: slopes 1/16 and 1/256, times the distance."""
    q = torch.zeros(1, 2, 3, 1)
    distance = torch.tensor([[0.0, 1, 2], [1, 0, 1], [2, 1, 0]])
    torch.testing.assert_close(
        Alibi(2).bias(cells(q, q)), -torch.stack((distance / 16, distance / 256))
    )


# Several positions at once against PyTorch's attention of vectors that Llama rotates, with a bias written out.


B, T, S, C, H = 2, 5, 7, 42, 3
ROPE, ALIBI = Choice.of("rope", base=700.0), Choice("alibi")
TYPED = Choice.of("formula", formula="score - 0.3*abs(i-j) + where(j == 1, 0.7, 0)")


def llama_rotated(q, k):
    config = LlamaConfig(hidden_size=q.shape[-1], num_attention_heads=1, rope_theta=700.0)

    def turned(x):
        cos, sin = llama.LlamaRotaryEmbedding(config)(x, torch.arange(x.shape[2])[None])
        return llama.apply_rotary_pos_emb(x, x, cos, sin)[0]

    return turned(q), turned(k)


def distances():
    return (torch.arange(T)[:, None] - torch.arange(S)).abs().float()


def typed_bias():
    return -0.3 * distances() + 0.7 * (torch.arange(S) == 1)


def alibi_bias():
    return -alibi_slopes(H)[:, None, None] * distances()


@each(
    ("parts", "rotated", "bias"),
    [
        ((ROPE, TYPED), True, typed_bias),
        ((TYPED, ROPE), True, typed_bias),
        ((ALIBI, ROPE), True, alibi_bias),
        ((ALIBI, TYPED), False, lambda: alibi_bias() + typed_bias()),
        ((ROPE, ALIBI, TYPED), True, lambda: alibi_bias() + typed_bias()),
    ],
)
@each("record", [True, False])
def test_joined_positions_against_pytorch(parts, rotated, bias, record):
    layer = Attention(AttentionConfig(C, H, position=Choice.of("and", *parts)))
    x, context = torch.randn(B, T, C, requires_grad=True), torch.randn(B, S, C, requires_grad=True)
    real = torch.rand(B, S) < 0.6
    real[:, 3] = True
    out = layer(x, context, key_mask=real, record=record).out
    q, k, v = layer.projection(x, context)
    q, k = llama_rotated(q, k) if rotated else (q, k)
    mask = bias().expand(B, H, T, S).masked_fill(~real[:, None, None], -math.inf)
    theirs = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    same_result(out, theirs, (x, context), atol=2e-5, gradient=(1e-3, 1e-4))


@each("learned", ["transformer_xl", "deberta", "forgetting"])
def test_a_part_with_tables_gets_its_own(learned):
    """Two parts with tables and one without: the bias is the sum of what each adds alone, to the same vectors."""
    joined = Attention(
        AttentionConfig(C, H, position=Choice.of("and", ALIBI, Choice(learned), Choice("t5")))
    )
    for weight in joined.position.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    x, context = torch.randn(B, T, C), torch.randn(B, S, C)
    q, k, v = joined.projection(x, context)
    block = joined.kernel_inputs(q, k, v, x, context).block
    assert len(block.tables) == joined.position.table_count > 0
    alone = [part.bias(block) for part in joined.position.parts if part.table_count]
    rest = [part.bias(block) for part in joined.position.parts if not part.table_count]
    torch.testing.assert_close(joined.position.bias(block), rest[0] + alone[0] + rest[1])


def test_a_score_worked_by_hand():
    """Query 1 on key 0 with x = 1: rotated by one radian cos 1, then the formula takes 0.5 for the distance."""
    layer = Attention(AttentionConfig(2, 1, projection="identity", position="and"))
    scores = layer(torch.tensor([[[1.0, 0.0], [1.0, 0.0]]])).scores[0, 0]
    assert scores[1, 0].item() == pytest.approx(math.cos(1) / math.sqrt(2) - 0.5, abs=1e-6)
    assert scores[1, 1].item() == pytest.approx(1 / math.sqrt(2), abs=1e-6)


def test_it_is_one_choice_with_parts():
    config = AttentionConfig(C, H, position="and")
    assert [part.key for part in config.position.parts] == ["rope", "formula"]
    assert enters(config.position) == {"q, k", "scores"} and config.has("position", "adjusts")
    assert AttentionConfig.from_json(config.to_json()) == config
    alone = config.with_(position=Choice.of("and", ALIBI, ROPE))
    assert (
        attention_cost(alone, T, S).flops
        == attention_cost(config.with_(position="alibi"), T, S).flops
    )
    assert (
        attention_cost(alone, T, S).bytes
        >= attention_cost(config.with_(position="alibi"), T, S).bytes
    )


@each(
    ("position", "words"),
    [
        (Choice.of("and", ROPE), "joins two or more positions; got 1; take two"),
        (Choice.of("and", ROPE, Choice("and")), "take the parts of the inner one"),
        (
            Choice.of("and", ROPE, Choice("sinusoidal")),
            "position = sinusoidal is added to x; take position = rope",
        ),
        (Choice.of("rope", ALIBI), "position = rope takes no parts; got 1"),
        (Choice.of("and", ROPE, Choice.of("formula", formula="score -")), "score -"),
    ],
)
def test_what_cannot_be_joined_is_refused_in_words(position, words):
    with pytest.raises(ConfigError, match=words):
        AttentionConfig(C, H, position=position)


def test_the_reasons_of_a_part_are_those_of_the_whole():
    with pytest.raises(ConfigError, match="odd size, 7; take an even one"):
        AttentionConfig(21, H, position="and")
    with pytest.raises(ConfigError, match="projection = latent has rotary positions already"):
        AttentionConfig(C, H, position="and", projection="latent")
    with pytest.raises(ConfigError, match="kernel = fused supports only positions that add a bias"):
        AttentionConfig(C, H, position="and", kernel="fused")
    AttentionConfig(C, H, position=Choice.of("and", ALIBI, ROPE), kernel="fused")
