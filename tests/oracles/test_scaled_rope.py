"""Scaled and partial RoPE against transformers' own frequencies, Llama's forward, GPT-NeoX and GPT-J, and by hand."""

import math

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.gpt_neox import modeling_gpt_neox as neox
from transformers.models.gptj import modeling_gptj as gptj
from transformers.models.llama import modeling_llama as llama

from core.attention import AttentionConfig, Choice, ConfigError
from core.attention.positions import POSITIONS
from core.attention.positions.rotary import DynamicNtk, Linear, Llama3, Rotary, Yarn
from core.entries import complete, find
from tests.cases import each
from tests.oracles.places import agree, layer_of, share

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
