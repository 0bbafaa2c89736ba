"""Sinusoids and tables against published values, and several positions at once against PyTorch's attention."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformers import LlamaConfig
from transformers.models.gptj import modeling_gptj as gptj
from transformers.models.llama import modeling_llama as llama

from core.attention import Attention, AttentionConfig, Choice
from core.attention.cost import attention_cost
from core.attention.positions import enters
from core.attention.positions.relative import Learned, Sinusoidal, alibi_slopes, sinusoids
from tests.cases import each
from tests.oracles.agreement import agree


def test_sinusoids_have_the_published_values():
    """The table widely printed for C = 4 and base 100 (four decimals)."""
    published = [
        [0.0000, 1.0000, 0.0000, 1.0000],
        [0.8415, 0.5403, 0.0998, 0.9950],
        [0.9093, -0.4161, 0.1987, 0.9801],
        [0.1411, -0.9900, 0.2955, 0.9553],
    ]
    table = sinusoids(torch.arange(4.0), 4, 100.0)
    torch.testing.assert_close(table, torch.tensor(published), rtol=0, atol=5.1e-5)


@each("dim", [2, 14, 62])
def test_sinusoids_against_gptj(dim):
    """Theirs has sines first, then cosines."""
    ours, theirs = sinusoids(torch.arange(31.0), dim), gptj.create_sinusoidal_positions(31, dim)
    joined = torch.cat((ours[:, 0::2], ours[:, 1::2]), dim=1)
    torch.testing.assert_close(joined, theirs, rtol=1e-5, atol=5e-6)


@each("dim", [1, 3, 7, 63])
def test_an_odd_dimension_ends_on_a_sine_of_the_same_law(dim):
    table = sinusoids(torch.arange(11.0), dim)
    last = torch.sin(torch.arange(11.0) / 10000 ** ((dim - 1) / dim))
    torch.testing.assert_close(table[:, -1], last)
    assert table.shape == (11, dim)


def test_sinusoids_far_out_keep_their_precision():
    """fp32 angles are wrong in the third decimal at 100,000; the reference is in float64."""
    far = sinusoids(torch.tensor([100_003.0]), 6)[0, 0::2]
    exact = [math.sin(100_003.0 / 10000 ** (k / 6)) for k in (0, 2, 4)]
    assert far.tolist() == pytest.approx(exact, rel=0, abs=1e-6)


def test_a_shift_is_a_rotation_of_the_sinusoids():
    """Vaswani 2017, section 3.5: the encoding of i + k is a linear function of the encoding of i."""
    table, (sin, cos) = sinusoids(torch.arange(23.0), 2, 10000.0), (math.sin(5), math.cos(5))
    rotation = torch.tensor([[cos, sin], [-sin, cos]])
    torch.testing.assert_close(table[5:], table[:-5] @ rotation.T, rtol=1e-5, atol=1e-5)


def test_sinusoidal_adds_from_its_offset_and_learned_is_an_embedding_that_says_its_end():
    position, x = Sinusoidal(7, 10000.0), torch.randn(2, 5, 7)
    torch.testing.assert_close(position.add(x, offset=3), x + sinusoids(torch.arange(3.0, 8.0), 7))
    ours, theirs = Learned(7, 13), nn.Embedding(13, 7)
    theirs.load_state_dict(ours.table.state_dict())
    reference = x + theirs(torch.arange(3, 8))
    agree(ours.add(x, offset=3), reference, (ours.table.weight,), (theirs.weight,))
    with pytest.raises(ValueError, match="13.*14|14.*13"):
        ours.add(x, offset=9)


# Several positions at once against PyTorch's attention of vectors that Llama rotates, with a bias written out.


B, T, S, C, H = 2, 5, 7, 42, 3
ROPE, ALIBI = Choice.of("rope", base=700.0), Choice("alibi")
TYPED = Choice.of("formula", formula="score - 0.3*abs(i-j) + where(j == 1, 0.7, 0)")
DISTANCES = (torch.arange(T)[:, None] - torch.arange(S)).abs().float()
BIASES = {
    TYPED: -0.3 * DISTANCES + 0.7 * (torch.arange(S) == 1),
    ALIBI: -alibi_slopes(H)[:, None, None] * DISTANCES,
}


def rotated(x):
    config = LlamaConfig(hidden_size=x.shape[-1], num_attention_heads=1, rope_theta=700.0)
    cos, sin = llama.LlamaRotaryEmbedding(config)(x, torch.arange(x.shape[2])[None])
    return llama.apply_rotary_pos_emb(x, x, cos, sin)[0]


@each(
    "parts",
    [(ROPE, TYPED), (TYPED, ROPE), (ALIBI, ROPE), (ALIBI, TYPED), (ROPE, ALIBI, TYPED)],
)
@each("record", [True, False])
def test_joined_positions_against_pytorch(parts, record):
    layer = Attention(AttentionConfig(C, H, position=Choice.of("and", *parts)))
    x, context = torch.randn(B, T, C, requires_grad=True), torch.randn(B, S, C, requires_grad=True)
    real = torch.rand(B, S) < 0.6
    real[:, 3] = True
    q, k, v = layer.projection(x, context)
    q, k = (rotated(q), rotated(k)) if ROPE in parts else (q, k)
    bias = sum((BIASES[part] for part in parts if part in BIASES), torch.zeros(T, S))
    mask = bias.expand(B, H, T, S).masked_fill(~real[:, None, None], -math.inf)
    theirs = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    ours = layer(x, context, key_mask=real, record=record).out
    agree(ours, theirs, (x, context), gradient=1e-3)


@each("learned", ["transformer_xl", "deberta", "forgetting"])
def test_a_part_with_tables_gets_its_own(learned):
    """Two parts with tables and one without: the bias is the sum of what each adds alone, to the same vectors."""
    position = Choice.of("and", ALIBI, Choice(learned), Choice("t5"))
    layer = Attention(AttentionConfig(C, H, position=position))
    for weight in layer.position.parameters():
        nn.init.normal_(weight, std=0.5)
    x, context = torch.randn(B, T, C), torch.randn(B, S, C)
    block = layer.kernel_inputs(*layer.projection(x, context), x, context).block
    assert len(block.tables) == layer.position.table_count > 0
    alone = sum(part.bias(block) for part in layer.position.parts)
    torch.testing.assert_close(layer.position.bias(block), alone)


def test_a_score_worked_by_hand():
    """Query 1 on key 0 with x = 1: rotated by one radian cos 1, then the formula takes 0.5 for the distance."""
    layer = Attention(AttentionConfig(2, 1, projection="identity", position="and"))
    scores = layer(torch.tensor([[[1.0, 0.0], [1.0, 0.0]]])).scores[0, 0, 1]
    want = [math.cos(1) / math.sqrt(2) - 0.5, 1 / math.sqrt(2)]
    assert scores.tolist() == pytest.approx(want, abs=1e-6)


def test_it_is_one_choice_with_parts():
    config = AttentionConfig(C, H, position="and")
    assert [part.key for part in config.position.parts] == ["rope", "formula"]
    assert enters(config.position) == {"q, k", "scores"} and config.has("position", "adjusts")
    assert AttentionConfig.from_json(config.to_json()) == config
    both, one = (
        attention_cost(config.with_(position=position), T, S)
        for position in (Choice.of("and", ALIBI, ROPE), "alibi")
    )
    assert both.flops == one.flops and both.bytes >= one.bytes
    AttentionConfig(C, H, position=Choice.of("and", ALIBI, ROPE), kernel="fused")
