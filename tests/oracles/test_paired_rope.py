"""p-RoPE and LongRoPE against transformers' own frequencies and Phi-3's whole layer, and by hand."""

import math

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama import modeling_llama as llama
from transformers.models.phi3 import modeling_phi3 as phi3

from core.attention import AttentionConfig, Choice, ConfigError
from core.attention.positions.rotary import LongRope, PartialRotary, parse_factors, spread_factors
from tests.cases import each
from tests.oracles.places import agree, layer_of, share

B, T, H = 2, 13, 3


def proportional(dims, base, p):
    rope = {"rope_type": "proportional", "rope_theta": base, "partial_rotary_factor": p}
    return LlamaConfig(
        hidden_size=H * dims,
        num_attention_heads=H,
        rope_parameters=rope,
        attn_implementation="eager",
    )


@each("p", [0.25, 0.5, 0.7, 0.75, 1.0])
@each("dims", [6, 14, 64])
def test_p_rope_has_transformers_frequencies(p, dims):
    """Ours are in fp64, theirs in fp32; at least one pair rotates here."""
    theirs, amplitude = ROPE_INIT_FUNCTIONS["proportional"](proportional(dims, 500.0, p), "cpu")
    ours = PartialRotary(dims, 500.0, "halves", p).frequencies(T)
    assert len(theirs) == len(ours) == dims // 2 and amplitude == 1.0
    if theirs.any():
        torch.testing.assert_close(ours.float(), theirs, rtol=2e-5, atol=0)


@each("p", [0.4, 0.75])
def test_a_whole_layer_of_p_rope_is_llamas_with_those_frequencies(p):
    dims = 14
    config = proportional(dims, 10000.0, p)
    theirs = llama.LlamaAttention(config, layer_idx=0).eval()
    layer = layer_of("p_rope", H * dims, H, bias=False, share=p)
    names = (("query", "q_proj"), ("key", "k_proj"), ("value", "v_proj"), ("output", "o_proj"))
    pairs = [
        (getattr(layer.projection, one).weight, getattr(theirs, other).weight)
        for one, other in names
    ]
    share(*pairs)
    x = torch.randn(B, T, H * dims) * 0.3
    turn = llama.LlamaRotaryEmbedding(config)(x, torch.arange(T)[None])
    out, weights = theirs(x, position_embeddings=turn, attention_mask=None)
    steps = layer(x)
    torch.testing.assert_close(steps.weights, weights, rtol=1e-4, atol=1e-5)
    agree(steps.merged, out, *pairs)


def test_p_rope_by_hand():
    """D = 4, base 16, p = 1/2: the pair (0, 2) turns by 1 a position, the pair (1, 3) stays."""
    turned = (
        PartialRotary(4, 16.0, "halves", 0.5).rotate(torch.ones(1, 1, 1, 4), offset=1).flatten()
    )
    sin, cos = math.sin(1), math.cos(1)
    torch.testing.assert_close(turned, torch.tensor([cos - sin, 1.0, cos + sin, 1.0]))


def test_p_rope_is_rope_when_all_pairs_turn_and_not_a_share_of_the_dimensions():
    q = torch.randn(1, H, T, 8)
    rope, neox, half = (
        layer_of(key, 8 * H, H, **params).position.rotate(q)
        for key, params in (("rope", {}), ("rope", {"share": 0.5}), ("p_rope", {"share": 0.5}))
    )
    torch.testing.assert_close(layer_of("p_rope", 8 * H, H, share=1.0).position.rotate(q), rope)
    torch.testing.assert_close(half[..., [0, 1, 4, 5]], rope[..., [0, 1, 4, 5]])
    assert torch.equal(half[..., [2, 3, 6, 7]], q[..., [2, 3, 6, 7]]) and not torch.allclose(
        half, neox
    )


SHORT, LONG = [1.0, 1.05, 1.1, 1.5, 1.8, 2.0, 2.5], [1.0, 1.2, 2.0, 4.5, 11.0, 30.0, 64.0]
DIMS, ORIGINAL, STRETCH = 14, 64, 32.0


def searched(model=LlamaConfig, **more):
    rope = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": SHORT,
        "long_factor": LONG,
        "factor": STRETCH,
        "original_max_position_embeddings": ORIGINAL,
    }
    return model(
        hidden_size=H * DIMS,
        num_attention_heads=H,
        max_position_embeddings=int(STRETCH * ORIGINAL),
        original_max_position_embeddings=ORIGINAL,
        rope_parameters=rope,
        attn_implementation="eager",
        **more,
    )


def listed(factors):
    return ", ".join(map(str, factors))


PARAMS = {"stretch": STRETCH, "original": ORIGINAL, "short": listed(SHORT), "long": listed(LONG)}


@each("length", [7, ORIGINAL, ORIGINAL + 1, 5000])
def test_longrope_has_transformers_frequencies_and_amplitude(length):
    theirs, amplitude = ROPE_INIT_FUNCTIONS["longrope"](searched(), "cpu", seq_len=length)
    ours = layer_of("longrope", H * DIMS, H, **PARAMS).position
    torch.testing.assert_close(ours.frequencies(length).float(), theirs, rtol=2e-5, atol=1e-9)
    assert ours.amplitude == pytest.approx(amplitude, rel=1e-12)


@each("length", [T, ORIGINAL + 6])
def test_a_whole_layer_of_longrope_is_phi3s(length):
    """Phi-3 holds q, k and v in one matrix; beyond 64 tokens it takes the long factors."""
    config = searched(phi3.Phi3Config, num_key_value_heads=H, pad_token_id=0)
    theirs = phi3.Phi3Attention(config, layer_idx=0).eval()
    layer = layer_of("longrope", H * DIMS, H, bias=False, **PARAMS)
    own = [getattr(layer.projection, name).weight for name in ("query", "key", "value", "output")]
    with torch.no_grad():
        theirs.qkv_proj.weight.copy_(torch.cat(own[:3]))
        theirs.o_proj.weight.copy_(own[3])
    x = torch.randn(B, length, H * DIMS, requires_grad=True)
    turn = phi3.Phi3RotaryEmbedding(config)(x, torch.arange(length)[None])
    out, weights = theirs(x, position_embeddings=turn, attention_mask=None)
    steps = layer(x)
    torch.testing.assert_close(steps.weights, weights, rtol=1e-4, atol=1e-5)
    agree(steps.merged, out, (x, x), (own[3], theirs.o_proj.weight))


def test_longrope_by_hand():
    """D = 4, base 16: 1 and 1/4 become 1/2 and 1/4/8. s = L₀: √(1 + 1) on q and on k."""
    position = LongRope(4, 16.0, "halves", 1.0, 32.0, 32, "1", "2, 8")
    torch.testing.assert_close(
        position.frequencies(33), torch.tensor([0.5, 1 / 32], dtype=torch.float64)
    )
    torch.testing.assert_close(
        position.frequencies(32), torch.tensor([1.0, 0.25], dtype=torch.float64)
    )
    assert position.amplitude == pytest.approx(2**0.5)


@each(
    ("factors", "pairs", "each_"),
    [
        ((3.0,), 2, (3, 3)),
        ((1.0, 4.0), 4, (1, 2, 3, 4)),
        ((1.0, 4.0), 1, (1,)),
        ((1.0, 3.0, 9.0), 5, (1, 2, 3, 6, 9)),
        ((1.0, 2.0, 3.0), 2, (1, 3)),
    ],
)
def test_factors_are_spread_over_the_pairs(factors, pairs, each_):
    assert spread_factors(factors, pairs) == pytest.approx(each_)


@each("text", ["", "a", "1,,2", "0", "-1", "nan", "inf", "1; 2"])
def test_unreadable_factors_are_refused_in_words(text):
    with pytest.raises(ConfigError, match="expected numbers from 0.01 to 1,000,000"):
        parse_factors(text)
    with pytest.raises(ConfigError, match="The factors are"):
        AttentionConfig(24, 3, position=Choice.of("longrope", long=text))


def test_an_odd_size_is_refused_by_name():
    with pytest.raises(ConfigError, match="position = p_rope .*odd size, 5; take an even one"):
        AttentionConfig(15, 3, position="p_rope")
    with pytest.raises(ConfigError, match="position = longrope .*odd size, 5; take an even one"):
        AttentionConfig(15, 3, position="longrope")
