"""RoPE in a grid against the vision tower of Qwen2-VL, and by hand."""

import math

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.gpt_neox import modeling_gpt_neox as neox
from transformers.models.gptj import modeling_gptj as gptj
from transformers.models.llama import modeling_llama as llama
from transformers.models.phi3 import modeling_phi3 as phi3
from transformers.models.qwen2_vl import modeling_qwen2_vl as qwen
from transformers.models.qwen2_vl.configuration_qwen2_vl import Qwen2VLVisionConfig

from core.attention import AttentionConfig, Choice, ConfigError
from core.attention.positions import POSITIONS
from core.attention.positions.rotary import (
    DynamicNtk,
    GridRotary,
    Linear,
    Llama3,
    LongRope,
    PartialRotary,
    Rotary,
    Yarn,
    parse_factors,
    spread_factors,
)
from core.entries import complete, find
from tests.cases import each
from tests.oracles.places import agree, layer_of, share

# Scaled and partial RoPE against transformers' own frequencies, Llama's forward, GPT-NeoX and GPT-J, and by hand.


T, H, D = 13, 3, 14
NAMES = {"linear_rope": "linear", "ntk_rope": "dynamic", "yarn": "yarn", "llama3_rope": "llama3"}
CASES = [
    ("linear_rope", dict(base=10000.0, factor=3.0)),
    ("ntk_rope", dict(base=500.0, factor=2.0, original=32)),
    ("ntk_rope", dict(base=500.0, factor=5.0, original=64)),
    ("yarn", dict(base=10000.0, factor=8.0, original=64)),
    ("yarn", dict(base=150.0, factor=40.0, original=4096, fast=64.0, slow=2.0)),
    ("yarn", dict(base=10000.0, factor=1.0, original=128)),
    ("yarn", dict(base=10000.0, factor=16.0, original=32, fast=8.0, slow=4.0)),
    ("llama3_rope", dict(base=500000.0, factor=8.0, original=8192)),
    ("llama3_rope", dict(base=10000.0, factor=32.0, original=64, low=0.5, high=16.0)),
]


def peer_config(key, dims=D, **params):
    """A Llama config that says the same in transformers' words."""
    words = dict(params)
    base, original = words.pop("base"), words.pop("original", 2048)
    renamed = {
        "fast": "beta_fast",
        "slow": "beta_slow",
        "low": "low_freq_factor",
        "high": "high_freq_factor",
    }
    rope = {
        "rope_type": NAMES[key],
        "rope_theta": base,
        "original_max_position_embeddings": original,
    }
    rope |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0} if key == "llama3_rope" else {}
    rope |= {renamed.get(name, name): value for name, value in words.items()}
    return LlamaConfig(
        hidden_size=H * dims,
        num_attention_heads=H,
        max_position_embeddings=original,
        attn_implementation="eager",
        rope_parameters=rope,
    )


def build(key, dims=D, **params):
    choice = complete(Choice.of(key, **params), POSITIONS, "position")
    config = AttentionConfig(H * dims, H, position=choice)
    return find(POSITIONS, "position", key).build(config)


@each("length", [7, 100, 5000])
@each("dims", [D, 64])
@each(("key", "params"), CASES)
def test_frequencies_and_amplitude_against_transformers(key, params, dims, length):
    """Ours are in fp64, theirs in fp32."""
    position = build(key, dims, **params)
    theirs, factor = ROPE_INIT_FUNCTIONS[NAMES[key]](
        peer_config(key, dims, **params), "cpu", seq_len=length
    )
    torch.testing.assert_close(position.frequencies(length).float(), theirs, rtol=2e-5, atol=1e-9)
    assert position.amplitude == pytest.approx(factor, rel=1e-12)


@each(("key", "params"), CASES)
def test_the_whole_layer_against_llama(key, params):
    """LlamaAttention with the same weights; 70 places, so that dynamic NTK grows beyond its 32 and 64."""
    config = peer_config(key, **params)
    peer = llama.LlamaAttention(config, layer_idx=0).eval()
    layer = layer_of(key, H * D, H, bias=False, **params)
    pairs = [
        (getattr(layer.projection, one).weight, getattr(peer, other).weight)
        for one, other in (
            ("query", "q_proj"),
            ("key", "k_proj"),
            ("value", "v_proj"),
            ("output", "o_proj"),
        )
    ]
    share(*pairs)
    x = torch.randn(2, 70, H * D) * 0.3
    turn = llama.LlamaRotaryEmbedding(config)(x, torch.arange(70)[None])
    theirs, weights = peer(x, position_embeddings=turn, attention_mask=None)
    steps = layer(x)
    torch.testing.assert_close(steps.weights, weights, rtol=1e-4, atol=1e-5)
    agree(steps.merged, theirs, *pairs)


@each("share_", [0.25, 0.5])
def test_a_share_in_halves_against_gpt_neox(share_):
    dims, offset = 24, 5
    q, k = (torch.randn(2, H, T, dims, requires_grad=True) for _ in "qk")
    rotary = Rotary(dims, 10000.0, "halves", share_)
    angle = torch.arange(offset, offset + T)[:, None] * rotary.frequencies(T).float()
    cos, sin = (wave(torch.cat((angle, angle), -1))[None] for wave in (torch.cos, torch.sin))
    theirs = neox.apply_rotary_pos_emb(q, k, cos, sin)
    agree(rotary.rotate(q, offset), theirs[0], (q, q))
    agree(rotary.rotate(k, offset), theirs[1], (k, k))


def test_a_share_interleaved_against_gptj():
    """GPT-J turns the first rotary_dim of its dimensions and appends the rest."""
    dims, rotary_dim, offset = 24, 8, 5
    q = torch.randn(2, H, T, dims)
    sin, cos = gptj.create_sinusoidal_positions(64, rotary_dim)[offset : offset + T].chunk(
        2, dim=-1
    )
    turned = gptj.apply_rotary_pos_emb(
        q[..., :rotary_dim].transpose(1, 2), sin[None], cos[None]
    ).transpose(1, 2)
    ours = Rotary(dims, 10000.0, "interleaved", rotary_dim / dims).rotate(q, offset)
    torch.testing.assert_close(
        ours, torch.cat((turned, q[..., rotary_dim:]), -1), rtol=1e-5, atol=1e-5
    )


def test_linear_scaling_by_hand():
    """Place 4 with a factor of 4 is place 1 without: (1, 0) becomes (cos 1, sin 1)."""
    turned = Linear(2, 10000.0, "halves", 1.0, 4.0).rotate(torch.tensor([[[[1.0, 0.0]]]]), offset=4)
    torch.testing.assert_close(turned.flatten(), torch.tensor([math.cos(1), math.sin(1)]))


def test_dynamic_ntk_by_hand():
    """D = 4, base 16, s = 2, L = 64 of 32: the base becomes 16 · 3² = 144, so the slow pair turns by 1/12."""
    position = DynamicNtk(4, 16.0, "halves", 1.0, 2.0, 32)
    torch.testing.assert_close(
        position.frequencies(64), torch.tensor([1.0, 1 / 12], dtype=torch.float64)
    )
    torch.testing.assert_close(
        position.frequencies(20), torch.tensor([1.0, 1 / 4], dtype=torch.float64)
    )


def test_dynamic_ntk_turns_queries_and_keys_by_one_base():
    """Whatever is asked of whatever: a query alone against 70 keys is the last row of all against all."""
    layer, x = layer_of("ntk_rope", H * D, H, factor=4.0, original=32), torch.randn(1, 70, H * D)
    torch.testing.assert_close(
        layer(x[:, -1:], x, offset=69).scores, layer(x).scores[:, :, -1:], rtol=1e-4, atol=1e-5
    )
    longer, keys = layer(torch.randn(1, 90, H * D), x), layer.projection(x, x)[1]
    among_90 = torch.cat(
        (keys, torch.zeros(1, H, 20, D)), dim=2
    )  # the same keys in a text of 90 places
    torch.testing.assert_close(longer.k, layer.position.rotate(among_90)[:, :, :70])


def test_yarn_by_hand():
    """D = 6, base 8, L₀ = 200: 31.8, 15.9 and 8.0 turns; the ramp runs from dimension 0 (31 turns) to 3 (7 turns)."""
    position = Yarn(6, 8.0, "halves", 1.0, 4.0, 200, 31.0, 7.0)
    low, high = 0, 3  # floor(0.04) and ceil(2.18)
    plain = torch.tensor([1.0, 0.5, 0.25], dtype=torch.float64)
    slow = (torch.arange(3, dtype=torch.float64) - low) / (high - low)
    torch.testing.assert_close(position.frequencies(9), plain * (1 - slow) + plain / 4 * slow)
    assert position.amplitude == pytest.approx(1 + 0.1 * math.log(4))


def test_llama3_by_hand():
    """Wavelengths 2π, 2π·10 and 2π·100 of an original 40π: 20, 2 and 0.2 turns stay, are shared (⅓), are divided."""
    position = Llama3(6, 1000.0, "halves", 1.0, 5.0, 10, 1.0, 4.0)
    position.original = 40 * math.pi  # type: ignore[assignment]
    theirs = torch.tensor([1.0, 0.1 / 3 + 0.1 / 5 * 2 / 3, 0.01 / 5], dtype=torch.float64)
    torch.testing.assert_close(position.frequencies(9), theirs)


@each("key", ["rope", *NAMES])
def test_an_odd_size_is_refused_by_name_unless_a_share_turns(key):
    with pytest.raises(ConfigError, match=f"position = {key} .*odd size, 5; take an even one"):
        AttentionConfig(15, 3, position=key)
    partly = AttentionConfig(15, 3, position=Choice.of(key, share=0.8))
    turned = find(POSITIONS, "position", key).build(partly).rotate(torch.randn(1, 3, T, 5))
    assert turned.shape == (1, 3, T, 5)


# p-RoPE and LongRoPE against transformers' own frequencies and Phi-3's whole layer, and by hand.


B = 2


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


ROWS, COLUMNS = 5, 7
CELLS = ROWS * COLUMNS


@each("dims", [4, 12, 64])
def test_queries_and_keys_are_qwens(dims):
    """Their tables of rows and columns (halves layout); scores and gradients."""
    q, k = torch.randn(2, B, H, CELLS, dims, requires_grad=True)
    row, column = torch.meshgrid(torch.arange(ROWS), torch.arange(COLUMNS), indexing="ij")
    config = Qwen2VLVisionConfig(embed_dim=H * dims, num_heads=H)
    cos, sin = qwen.Qwen2VLVisionRotaryEmbedding(config)(
        q, torch.stack((row.flatten(), column.flatten()), -1)
    )
    theirs = [
        qwen.apply_rotary_pos_emb_vision(x.transpose(1, 2), x.transpose(1, 2), cos, sin)[
            0
        ].transpose(1, 2)
        for x in (q, k)
    ]
    position = GridRotary(dims, 10000.0, "halves", COLUMNS)
    ours = [position.rotate(x) for x in (q, k)]
    agree(ours[0] @ ours[1].mT, theirs[0] @ theirs[1].mT, (q, q), (k, k))


@each("layout", ["halves", "interleaved"])
@each("dims", [2, 6, 8])
def test_a_score_sees_the_rows_and_columns_between_two_patches_alone(layout, dims):
    """Moved down by two rows and right by one column; across the edge of a row the distance is another."""
    turn = GridRotary(dims, 10.0, layout, COLUMNS).rotate
    q, k = torch.randn(2, 1, 1, 1, dims, dtype=torch.float64)
    score = lambda i, j: (turn(q, i) * turn(k, j)).sum()  # noqa: E731
    moved = 2 * COLUMNS + 1
    torch.testing.assert_close(score(9, 3), score(9 + moved, 3 + moved))
    assert (score(6, 5) - score(7, 6)).abs() > 1e-3


def test_a_grid_by_hand():
    """D = 4, three columns: token 5 has row 1 and column 2, so its pairs turn by 1 and by 2."""
    turned = (
        GridRotary(4, 10000.0, "interleaved", 3).rotate(torch.ones(1, 1, 1, 4), offset=5).flatten()
    )
    waves = [(math.cos(angle), math.sin(angle)) for angle in (1, 2)]
    torch.testing.assert_close(
        turned, torch.tensor([value for cos, sin in waves for value in (cos - sin, cos + sin)])
    )


def test_rows_are_plain_rope_of_half_the_size_where_a_picture_is_one_column_wide():
    q = torch.randn(1, H, CELLS, 8)
    ours = GridRotary(8, 10000.0, "halves", 1).rotate(q)
    by_row = [0, 1, 4, 5]
    torch.testing.assert_close(
        ours[..., by_row], Rotary(4, 10000.0, "halves").rotate(q[..., by_row])
    )
    torch.testing.assert_close(ours[..., 2:4], q[..., 2:4])
