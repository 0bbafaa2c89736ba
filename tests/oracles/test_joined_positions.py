"""Several positions at once against PyTorch's attention of vectors that Llama rotates, with a bias written out."""

import math

import pytest
import torch
import torch.nn.functional as F
from transformers import LlamaConfig
from transformers.models.llama import modeling_llama as llama

from core.attention import Attention, AttentionConfig, Choice, ConfigError
from core.attention.cost import attention_cost
from core.attention.positions import enters
from core.attention.positions.relative import alibi_slopes
from tests.cases import each

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
    torch.testing.assert_close(out, theirs, rtol=1e-4, atol=2e-5)
    for one, other in zip(
        *(torch.autograd.grad(y.square().sum(), (x, context)) for y in (out, theirs)), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


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
