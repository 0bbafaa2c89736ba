"""RoPE, plain, scaled, partial and in a grid, against transformers' frequencies and whole layers, and by hand."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import flex_attention
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.gpt_neox import modeling_gpt_neox as neox
from transformers.models.gptj import modeling_gptj as gptj
from transformers.models.llama import modeling_llama as llama
from transformers.models.llama4 import modeling_llama4 as llama4
from transformers.models.phi3 import modeling_phi3 as phi3
from transformers.models.qwen2_vl import modeling_qwen2_vl as qwen
from x_transformers.attend import Attend, selective_attn
from x_transformers.x_transformers import (
    CoPE,
    DataDependentAlibi,
    PolarEmbedding,
    apply_polar_pos_emb,
)

from core.attention import Attention, AttentionConfig, Choice, ConfigError
from core.attention.positions.contextual import (
    Cope,
    Forgetting,
    MultiToken,
    Path,
    PositionTemperature,
    Selective,
    Typed,
)
from core.attention.positions.rotary import (
    GridRotary,
    Polar,
    Rotary,
    dynamic_ntk,
    fastest,
    linear,
    llama3 as llama3_rule,
    parse_factors,
    searched,
    spread_factors,
    yarn,
)
from tests.attention.drawing import perturbed
from tests.cases import each
from tests.close import assert_close
from tests.oracles.agreement import agree, by_name, cells, fla, layer_of, put, same_layer, twin

B, T, H, D = 2, 13, 3, 14


def heads(dim, length=T):
    return torch.randn(2, B, H, length, dim, requires_grad=True)


@each(("base", "offset"), [(10000.0, 0), (500000.0, 17)])
def test_in_halves_against_llama(base, offset):
    rope, (q, k) = Rotary(D, base, "halves"), heads(D)
    config = LlamaConfig(
        hidden_size=H * D,
        num_attention_heads=H,
        rope_parameters={"rope_type": "default", "rope_theta": base},
    )
    waves = llama.LlamaRotaryEmbedding(config)(q, torch.arange(offset, offset + T)[None])
    for x, theirs in zip((q, k), llama.apply_rotary_pos_emb(q, k, *waves), strict=True):
        agree(rope.rotate(x, offset), theirs, (x,))


@each("share", [0.25, 0.5])
def test_a_share_in_halves_against_gpt_neox(share):
    (q, k), rotary, offset = heads(24), Rotary(24, 10000.0, "halves", share), 5
    angle = torch.arange(offset, offset + T)[:, None] * rotary.frequencies(T)[0].float()
    cos, sin = (wave(torch.cat((angle, angle), -1))[None] for wave in (torch.cos, torch.sin))
    for x, theirs in zip((q, k), neox.apply_rotary_pos_emb(q, k, cos, sin), strict=True):
        agree(rotary.rotate(x, offset), theirs, (x,))


@each(("dims", "turned", "offset"), [(D, D, 0), (D, D, 17), (24, 8, 5)])
def test_interleaved_against_gptj(dims, turned, offset):
    # GPT-J turns the first rotary_dim of its dimensions and appends the rest.
    q, _ = heads(dims)
    sin, cos = gptj.create_sinusoidal_positions(64, turned)[offset : offset + T][None].chunk(
        2, dim=-1
    )
    theirs = gptj.apply_rotary_pos_emb(q[..., :turned].transpose(1, 2), sin, cos).transpose(1, 2)
    agree(
        Rotary(dims, 10000.0, "interleaved", turned / dims).rotate(q, offset),
        torch.cat((theirs, q[..., turned:]), -1),
        (q,),
    )


def test_the_two_layouts_differ_and_agree():
    q, k = torch.randn(2, 2, 3, 7, 6)
    halves, interleaved = (
        Rotary(6, 10000.0, layout).rotate for layout in ("halves", "interleaved")
    )
    scores = [turn(q) @ turn(k).mT for turn in (halves, interleaved)]
    assert (scores[0] - scores[1]).abs().max() > 0.1
    order = torch.tensor([0, 2, 4, 1, 3, 5])
    torch.testing.assert_close(halves(q[..., order]), interleaved(q)[..., order])


SIN, COS = math.sin(1), math.cos(1)


@each(
    ("position", "x", "offset", "expected"),
    [
        (Rotary(2, 10000.0, "halves"), [1.0, 0.0], 1, [COS, SIN]),
        # place 4 with a factor of 4 is place 1 without
        (Rotary(2, 10000.0, "halves", rule=linear, factor=4.0), [1.0, 0.0], 4, [COS, SIN]),
        # base 16, p = 1/2: the pair (0, 2) turns by 1 a position, the pair (1, 3) stays
        (
            Rotary(4, 16.0, "halves", rule=fastest, part=0.5),
            [1.0] * 4,
            1,
            [COS - SIN, 1.0, COS + SIN, 1.0],
        ),
        # three columns: token 5 has row 1 and column 2, so its pairs turn by 1 and by 2
        (
            GridRotary(4, 10000.0, "interleaved", 3),
            [1.0] * 4,
            5,
            [sign * math.sin(n) + math.cos(n) for n in (1, 2) for sign in (-1, 1)],
        ),
    ],
)
def test_a_turn_by_hand(position, x, offset, expected):
    turned = position.rotate(torch.tensor(x).view(1, 1, 1, -1), offset=offset)
    assert turned.flatten().tolist() == pytest.approx(expected, rel=1e-6)


# Scaled RoPE against transformers' own frequencies and the layers of Llama and Phi-3. Ours are in fp64, theirs in fp32.


SHORT, LONG = [1.0, 1.05, 1.1, 1.5, 1.8, 2.0, 2.5], [1.0, 1.2, 2.0, 4.5, 11.0, 30.0, 64.0]
ORIGINAL, STRETCH = 64, 32.0
NAMES = {
    "linear_rope": "linear",
    "ntk_rope": "dynamic",
    "yarn": "yarn",
    "llama3_rope": "llama3",
    "p_rope": "proportional",
    "longrope": "longrope",
}
WORDS = {
    "base": "rope_theta",
    "original": "original_max_position_embeddings",
    "fast": "beta_fast",
    "slow": "beta_slow",
    "low": "low_freq_factor",
    "high": "high_freq_factor",
    "share": "partial_rotary_factor",
    "stretch": "factor",
    "short": "short_factor",
    "long": "long_factor",
}
SEARCHED = {"base": 10000.0, "stretch": STRETCH, "original": ORIGINAL, "short": SHORT, "long": LONG}
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
    *(("p_rope", dict(base=500.0, share=p)) for p in (0.25, 0.4, 0.5, 0.7, 0.75, 1.0)),
]


def peer_config(key, dims=D, model=LlamaConfig, **params):
    rope = {"rope_type": NAMES[key], WORDS["original"]: 2048}
    rope |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0} if key == "llama3_rope" else {}
    rope |= {WORDS.get(name, name): value for name, value in params.items()}
    longest = {"original_max_position_embeddings": ORIGINAL} if key == "longrope" else {}
    return model(
        hidden_size=H * dims,
        num_attention_heads=H,
        num_key_value_heads=H,
        max_position_embeddings=2048 if key == "longrope" else rope[WORDS["original"]],
        attn_implementation="eager",
        rope_parameters=rope,
        pad_token_id=0,
        **longest,
    )


def ours(key, dims=D, bias=True, **params):
    """A layer with this position; factors that are searched are texts."""
    texts = {n: ", ".join(map(str, x)) if isinstance(x, list) else x for n, x in params.items()}
    texts = {n: x for n, x in texts.items() if not (key == "longrope" and n == "base")}
    return layer_of(key, H * dims, H, bias=bias, **texts)


@each("length", [7, ORIGINAL, ORIGINAL + 1, 100, 5000])
@each(
    ("key", "params", "dims"),
    [*((*case, dims) for case in CASES for dims in (D, 6, 64)), ("longrope", SEARCHED, D)],
)
def test_frequencies_and_amplitude_against_transformers(key, params, dims, length):
    theirs, factor = ROPE_INIT_FUNCTIONS[NAMES[key]](
        peer_config(key, dims, **params), "cpu", seq_len=length
    )
    frequencies, amplitude = ours(key, dims, **params).position.frequencies(length)
    if theirs.any():  # at least one pair rotates here
        torch.testing.assert_close(frequencies.float(), theirs, rtol=2e-5, atol=1e-9)
    assert amplitude == pytest.approx(factor, rel=1e-12)


@each(("key", "params"), [case for case in CASES if case[1].get("share", 0.75) in (0.4, 0.75)])
def test_the_whole_layer_against_llama(key, params):
    # 70 places, so that dynamic NTK grows beyond its 32 and 64.
    config, x = peer_config(key, **params), torch.randn(B, 70, H * D) * 0.3
    turn = llama.LlamaRotaryEmbedding(config)(x, torch.arange(70)[None])
    layer, peer = ours(key, bias=False, **params), llama.LlamaAttention(config, layer_idx=0).eval()
    same_layer(layer, peer, by_name(layer), x, position_embeddings=turn, attention_mask=None)


@each("length", [T, ORIGINAL + 6])
def test_a_whole_layer_of_longrope_is_phi3s(length):
    # Phi-3 holds q, k and v in one matrix; beyond 64 tokens it takes the long factors.
    config = peer_config("longrope", model=phi3.Phi3Config, **SEARCHED)
    layer, x = ours("longrope", bias=False, **SEARCHED), torch.randn(B, length, H * D)
    q, k, v, output = (part.weight for part in layer.projection.children())
    names = {"qkv_proj.weight": torch.cat((q, k, v)), "o_proj.weight": output}
    turn = phi3.Phi3RotaryEmbedding(config)(x, torch.arange(length)[None])
    same_layer(
        layer,
        phi3.Phi3Attention(config, layer_idx=0).eval(),
        names,
        x,
        position_embeddings=turn,
        attention_mask=None,
    )


# 31.8, 15.9 and 8.0 turns; the ramp runs from dimension 0 (31 turns) to 3 (7 turns), floor(0.04) and ceil(2.18)
# wavelengths 2π, 2π·10 and 2π·100 of an original 40π: 20, 2 and 0.2 turns stay, are shared (⅓), are divided
LLAMA3 = Rotary(
    6, 1000.0, "halves", rule=llama3_rule, factor=5.0, original=40 * math.pi, low=1.0, high=4.0
)
# L = 64 of 32, s = 2: the base becomes 16 · 3² = 144, so the slow pair turns by 1/12
NTK = Rotary(4, 16.0, "halves", rule=dynamic_ntk, factor=2.0, original=32)
LONGROPE = Rotary(
    4, 16.0, "halves", rule=searched, stretch=32.0, original=32, short=(1.0,), long=(2.0, 8.0)
)


@each(
    ("position", "length", "frequencies", "amplitude"),
    [
        (NTK, 64, [1.0, 1 / 12], 1.0),
        (NTK, 20, [1.0, 1 / 4], 1.0),
        (
            Rotary(6, 8.0, "halves", rule=yarn, factor=4.0, original=200, fast=31.0, slow=7.0),
            9,
            [1.0, 0.5 * 2 / 3 + 0.125 / 3, 0.25 / 3 + 0.0625 * 2 / 3],
            1 + 0.1 * math.log(4),
        ),
        (LLAMA3, 9, [1.0, 0.1 / 3 + 0.1 / 5 * 2 / 3, 0.01 / 5], 1.0),
        # s = L₀: √(1 + 1) on q and on k
        (LONGROPE, 33, [0.5, 1 / 32], 2**0.5),
        (LONGROPE, 32, [1.0, 0.25], 2**0.5),
    ],
)
def test_frequencies_by_hand(position, length, frequencies, amplitude):
    ours, factor = position.frequencies(length)
    assert (ours.tolist(), factor) == (pytest.approx(frequencies), pytest.approx(amplitude))


def test_dynamic_ntk_turns_queries_and_keys_by_one_base():
    # Whatever is asked of whatever: a query alone against 70 keys is the last row of all against all.
    layer, x = layer_of("ntk_rope", H * D, H, factor=4.0, original=32), torch.randn(1, 70, H * D)
    assert_close(layer(x[:, -1:], x, offset=69).scores, layer(x).scores[:, :, -1:])
    longer, keys = layer(torch.randn(1, 90, H * D), x), layer.projection(x, x)[1]
    # the same keys in a text of 90 places
    torch.testing.assert_close(
        longer.k,
        layer.position.rotate(torch.cat((keys, torch.zeros(1, H, 20, D)), dim=2))[:, :, :70],
    )


def test_p_rope_is_rope_when_all_pairs_turn():
    q = torch.randn(1, H, T, 8)
    (rope, shared, two), (whole, half, one) = (
        [layer_of(key, 8 * H, H, share=share).position.rotate(q) for share in (1.0, 0.5, 0.05)]
        for key in ("rope", "p_rope")
    )
    assert (one != q).any(-2)[0, 0].nonzero().flatten().tolist() == [0, 4], "one pair at the least"
    assert (two != q).any(-2)[0, 0].nonzero().flatten().tolist() == [0, 1]
    torch.testing.assert_close((whole, half[..., [0, 1, 4, 5]]), (rope, rope[..., [0, 1, 4, 5]]))
    assert torch.equal(half[..., [2, 3, 6, 7]], q[..., [2, 3, 6, 7]]) and not torch.allclose(
        half, shared
    )


@each("key", ["rope", "linear_rope", "ntk_rope", "yarn", "llama3_rope", "p_rope", "longrope"])
def test_odd_size_is_refused_by_name_unless_share_turns(key):
    pytest.raises(ConfigError, AttentionConfig, 15, 3, position=key).match(
        f"position = {key} .*odd size, 5; take an even one"
    )
    if key not in ("p_rope", "longrope"):
        assert layer_of(key, 15, 3, share=0.8).position.rotate(torch.randn(1, 3, T, 5)).shape == (
            1,
            3,
            T,
            5,
        )


@each(
    ("factors", "pairs", "spread"),
    [
        ((3.0,), 2, (3, 3)),
        ((1.0, 4.0), 4, (1, 2, 3, 4)),
        ((1.0, 4.0), 1, (1,)),
        ((1.0, 3.0, 9.0), 5, (1, 2, 3, 6, 9)),
        ((1.0, 2.0, 3.0), 2, (1, 3)),
    ],
)
def test_factors_are_spread_over_the_pairs(factors, pairs, spread):
    assert spread_factors(factors, pairs) == pytest.approx(spread)


@each("text", ["", "a", "1,,2", "0", "-1", "nan", "inf", "1; 2"])
def test_unreadable_factors_are_refused_in_words(text):
    pytest.raises(ConfigError, parse_factors, text).match("expected numbers from 0.01 to 1,000,000")
    pytest.raises(
        ConfigError, AttentionConfig, 24, 3, position=Choice.of("longrope", long=text)
    ).match("The factors are")


# A grid of rows and columns, against the vision tower of Qwen2-VL.


ROWS, COLUMNS = 5, 7
CELLS = ROWS * COLUMNS


@each("dims", [4, 12, 64])
def test_queries_and_keys_of_a_grid_are_qwens(dims):
    q, k = heads(dims, CELLS)
    places = torch.cartesian_prod(torch.arange(ROWS), torch.arange(COLUMNS))
    waves = qwen.Qwen2VLVisionRotaryEmbedding(
        qwen.Qwen2VLVisionConfig(embed_dim=H * dims, num_heads=H)
    )(q, places)
    a, b = (x.transpose(1, 2) for x in (q, k))
    theirs = [x.transpose(1, 2) for x in qwen.apply_rotary_pos_emb_vision(a, b, *waves)]
    turn = GridRotary(dims, 10000.0, "halves", COLUMNS).rotate
    agree(turn(q) @ turn(k).mT, theirs[0] @ theirs[1].mT, (q, k))


@each("layout", ["halves", "interleaved"])
@each("dims", [2, 6, 8])
def test_a_score_sees_rows_and_columns_alone(layout, dims):
    # Moved down by two rows and right by one column; across the edge of a row the distance is another.
    turn, (q, k) = (
        GridRotary(dims, 10.0, layout, COLUMNS).rotate,
        torch.randn(2, 1, 1, 1, dims).double(),
    )
    places = ((9, 3), (9 + 2 * COLUMNS + 1, 3 + 2 * COLUMNS + 1), (6, 5), (7, 6))
    here, moved, within, across = ((turn(q, i) * turn(k, j)).sum() for i, j in places)
    torch.testing.assert_close(here, moved)
    assert (within - across).abs() > 1e-3


def test_rows_are_plain_rope_of_half_the_size():
    q, by_row = torch.randn(1, H, CELLS, 8), [0, 1, 4, 5]
    ours, plain = GridRotary(8, 10000.0, "halves", 1).rotate(q), Rotary(4, 10000.0, "halves")
    torch.testing.assert_close(
        (ours[..., by_row], ours[..., 2:4]), (plain.rotate(q[..., by_row]), q[..., 2:4])
    )


# Positions that read what is there: CoPE, forgetting, formulas, selective and multi-token attention, temperature.

SIZE = 5
AHEAD = torch.ones(T, T, dtype=torch.bool).triu(1)
LEAST = -torch.finfo(torch.float32).max


def some(dtype=torch.float32):
    return torch.randn(2, B, H, T, SIZE, dtype=dtype, requires_grad=True)


def scores_of(dtype=torch.float32):
    return torch.randn(B, H, T, T, dtype=dtype).mul(2).requires_grad_()


@each("places", [4, 64])
def test_cope_against_x_transformers(places):
    # With 4 places the count runs over the table's end; theirs reads scores whose future is masked already.
    ours, peer, (q, k), scores = Cope(SIZE, places), CoPE(SIZE, H, places), some(), scores_of()
    put((ours.table, torch.randn_like(ours.table)))
    masked = scores.masked_fill(AHEAD, LEAST)
    theirs = torch.func.functional_call(peer, {"pos_emb": ours.table}, (q, masked))
    agree(
        ours.adjust(scores, cells(q, k)).masked_fill(AHEAD, -torch.inf).softmax(-1),
        (masked + theirs).softmax(-1),
        [q, scores, ours.table],
    )


TABLE = torch.arange(8.0)[:, None].tolist()
UNEVEN = torch.tensor(
    [[0.0, 0, 0, 0, 0], [9, 0, 0, 0, 0], [9, 3, 7, 0, 0], [9, 1, -2, 0, 0], [9, 5, 2, 6, 1]]
)
SELECTED = torch.tensor([[0.0] * 5, [0.0] * 5, [9, 0, 0, 0, 0], [18, 3, 0, 0, 0], [27, 4, 0, 0, 0]])
STEPS = torch.tensor([0.0, 1, 1, 2, 2])


@each(
    ("position", "weights", "scores", "real", "expected"),
    [
        # scores of 0 open each gate by half: two keys count 1, three 1.5, between the vectors of places 1 and 2
        (
            Cope(1, 3),
            {"table": [[0.0], [10.0], [30.0]]},
            torch.zeros(3, 3),
            [True] * 3,
            torch.tensor([[5.0, 0, 0], [10, 5, 0], [20, 10, 5]]),
        ),
        # a key of padding counts nothing
        (
            Cope(1, 8),
            {"table": TABLE},
            torch.zeros(4, 4),
            [True, False, True, True],
            torch.tensor([[0.5, 0, 0, 0], [0.5, 0, 0, 0], [1, 0.5, 0.5, 0], [1.5, 1, 1, 0.5]]),
        ),
        # key 1 is selected by query 2 with 3, and by query 3 with 1; the first head's own scores are lowered too
        *(
            (Selective(keep_first), {}, UNEVEN, [True] * 5, UNEVEN - SELECTED * other)
            for keep_first, other in ((True, torch.arange(5) > 0), (False, 1.0))
        ),
        # two queries and three keys: the third query takes 10 times its own scores and once the row before, one key on
        (
            MultiToken(1, 2, 3, 0.0),
            {"theta": [[[[0.0, 0, 1], [0, 10, 0]]]]},
            torch.tensor([[1.0, 9, 9], [2, 3, 9], [4, 5, 6]]),
            [True] * 3,
            torch.tensor([[10.0, 0, 0], [20, 30, 0], [40 + 3, 50, 60]]),
        ),
        # a = 1/2, n = 2: queries 0, 1 … 4 have 0, 1, 1, 2 and 2 whole steps behind them and their own position
        (
            PositionTemperature(0.5, 2, "steps"),
            {},
            torch.ones(5, 3),
            [True] * 3,
            1 + STEPS.log1p()[:, None].expand(5, 3) / 2,
        ),
    ],
)
def test_scores_by_hand(position, weights, scores, real, expected):
    put(*((position.get_parameter(name), numbers) for name, numbers in weights.items()))
    q, k = (torch.ones(1, 1, n, 1) for n in scores.shape)
    torch.testing.assert_close(
        position.adjust(scores[None, None], cells(q, k, key_mask=torch.tensor([real])))[0, 0],
        expected,
    )


def test_forgetting_against_x_transformers():
    # Their causal half: theirs leaves growing numbers after the query, which a causal mask takes away.
    ours, peer = perturbed(Forgetting(12, H, 0.0)), DataDependentAlibi(12, H, causal=True)
    names = {f"to_forget_gates.0.{name}": w for name, w in ours.gate.named_parameters()}
    (q, k), x = some(), torch.randn(B, T, 12, requires_grad=True)
    agree(
        ours.bias(cells(q, k, x=x, context=x)).tril(),
        torch.func.functional_call(peer, names, x).tril(),
        (x, *ours.parameters()),
    )


def test_forgetting_is_its_recurrence():
    # What a query has kept of a key is its own gate times what the query before had kept; of itself it keeps all, and
    # of what comes later it has forgotten as much.
    position, x = Forgetting(12, H, 1.0).double(), torch.randn(B, T, 12, dtype=torch.float64)
    gates = position.gate(x).sigmoid().mT  # (B, H, T)
    decay = torch.eye(T, dtype=torch.float64).repeat(B, H, 1, 1)
    for i in range(1, T):
        decay[:, :, i] += gates[:, :, i, None] * decay[:, :, i - 1]
    bias = position.bias(cells(*some(torch.float64), x=x, context=x))
    torch.testing.assert_close((bias.exp().tril(), bias), (decay, bias.mT))


def test_forgetting_by_hand_and_what_it_needs():
    # Gates of ½ and equal scores: a causal row is 1, ⅓ ⅔, 1/7 2/7 4/7.
    layer = layer_of("forgetting", 6, 1, mask="causal")
    put((layer.position.gate.weight, 0.0), (layer.projection.query.weight, 0.0))
    torch.testing.assert_close(
        layer(torch.randn(1, 3, 6)).weights[0, 0],
        torch.tensor([[1.0, 0, 0], [1 / 3, 2 / 3, 0], [1 / 7, 2 / 7, 4 / 7]]),
    )
    pytest.raises(ConfigError, layer.position.bias, cells(*some())).match(
        "forgetting reads context.*alibi"
    )


def test_wall_is_a_loop_over_its_products():
    # fla's formula, cell by cell: three heads of queries, which have gates of their own, share one of keys.
    layer = Attention(
        AttentionConfig(
            15, 3, Choice.of("grouped_query", kv_heads=1), position="wall", mask="causal"
        )
    ).double()
    perturbed(layer)
    put((layer.position.gate.bias, torch.randn(15)))  # gates that forget
    real = torch.rand(B, T) < 0.7
    x = torch.randn(B, T, 15, dtype=torch.float64, requires_grad=True)
    q, k, v = layer.projection(x, x)
    sums = F.logsigmoid(layer.position.gate(x)).masked_fill(~real[..., None], 0.0).cumsum(1)
    sums = sums.unflatten(-1, (3, 5)).transpose(1, 2)
    scores = q.new_full((B, 3, T, T), -torch.inf)
    for i in range(T):
        for j in range(i + 1):
            fade = (sums[:, :, i] - sums[:, :, j]).exp()
            score = (q[:, :, i] * k[:, :, j] * fade).sum(-1) * 5**-0.5
            scores[:, :, i, j] = score.masked_fill(~real[:, j, None], -torch.inf)
    seen = real.cumsum(1) > 0
    out = (scores.softmax(-1).nan_to_num() @ v).transpose(1, 2).flatten(2)
    steps = layer(x, key_mask=real)
    agree(
        steps.merged * seen[..., None],
        layer.projection.output(out) * seen[..., None],
        (x, *layer.position.parameters(), layer.projection.query.weight),
    )


def test_wall_by_hand_and_what_it_needs():
    # q = k = (1, 1): gates of 1/2 and 1/4 leave 2, 3/4 and 5/16 of the products at distance 0, 1 and 2.
    layer = layer_of("wall", 2, 1, score="dot", mask="causal")
    put((layer.position.gate.weight, 0.0), (layer.position.gate.bias, [0.0, -math.log(3)]))
    ones = torch.ones(1, 1, 3, 2)
    bias = layer.position.bias(cells(ones, ones, x=ones[0], context=ones[0]))
    torch.testing.assert_close(2 + bias[0, 0, 2], torch.tensor([5 / 16, 3 / 4, 2.0]))
    pytest.raises(ConfigError, layer.position.bias, cells(*some())).match("wall reads context")
    pytest.raises(ConfigError, layer.config.with_, score="general").match(
        "wall.*score = general.*take score = one of dot"
    )


def test_a_formula_can_be_alibi():
    typed = layer_of("formula", 16, 8, formula="score - 2 ** -(h + 1) * abs(i - j)")
    alibi, x = twin(typed, position="alibi"), torch.randn(B, T, 16)
    (_, *ours), (_, *theirs) = ([x, *one.projection.parameters()] for one in (typed, alibi))
    agree(typed(x).merged, alibi(x).merged, ours, theirs)


def test_a_formula_against_flex_attention():

    def rule(score, b, h, i, j):
        return torch.where(j > i, score * 0.5, torch.tanh(score) - (i - j) / (h + 1))

    (q, k), v = (x.detach() for x in some()), torch.randn(B, H, T, 7)
    scores = Typed("where(j > i, score * 0.5, tanh(score) - (i - j) / (h + 1))").adjust(
        q @ k.mT * SIZE**-0.5, cells(q, k)
    )
    torch.testing.assert_close(
        scores.softmax(-1) @ v, flex_attention(q, k, v, score_mod=rule), rtol=1e-5, atol=1e-5
    )


def test_a_formula_by_hand():
    layer = layer_of("formula", 4, 2, formula="0 * score + h + i - 10 * j + T")
    torch.testing.assert_close(
        layer(torch.randn(1, 2, 4), torch.randn(1, 3, 4), offset=5).scores[0][1],
        torch.tensor([[13.0, 3, -7], [14, 4, -6]]),
    )


# Selective attention against x_transformers, and against a loop over the paper's sum under random key masks.


@each("keep_first", [True, False])
def test_selective_scores_are_x_transformers(keep_first):
    # Their function on causal scores; ours is given the scores before the mask.
    scores = scores_of()
    theirs = selective_attn(scores.masked_fill(AHEAD, LEAST), no_mask_sos=keep_first)
    agree(
        Selective(keep_first).adjust(scores, cells(*some())).masked_fill(AHEAD, 0.0),
        theirs.masked_fill(AHEAD, 0.0),
        (scores,),
    )


@each("padded", [False, True])
def test_a_whole_selective_layer_is_x_transformers(padded):
    # Attend with selective; padding at the end, of which theirs hides the keys.
    layer = layer_of("selective", H * SIZE, H, mask="causal")
    x = torch.randn(B, T, H * SIZE, requires_grad=True)
    real = torch.arange(T) < torch.tensor([[T], [6 if padded else T]])
    q, k, v = layer.projection(x, x)
    out, _ = Attend(heads=H, causal=True, selective=True)(q, k, v, mask=real[:, None, None])
    rows = real[:, None, :, None]
    agree(layer.attend_heads(q, k, v, x, x, key_mask=real).out * rows, out * rows, (x,))


@each("keep_first", [True, False])
def test_random_padding_selects_nothing(keep_first):
    # The paper's sum, cell by cell; a query that is padding selects nothing.
    scores, real = scores_of(torch.float64), torch.rand(B, T) > 0.4
    theirs = scores.clone()
    for b, i, j in ((b, i, j) for b in range(B) for i in range(T) for j in range(keep_first, T)):
        for m in (m for m in range(j + 1, i) if real[b, m]):
            theirs[b, :, i, j] = theirs[b, :, i, j] - scores[b, 0, m, j].clamp(min=0)
    agree(Selective(keep_first).adjust(scores, cells(*some(), key_mask=real)), theirs, (scores,))


def test_a_selective_layer_decodes_with_all_votes():
    layer, x = layer_of("selective", H * SIZE, H, mask="causal"), torch.randn(B, T, H * SIZE)
    whole, (first, cache) = layer(x), layer.step(x[:, :6], record=True)
    rest, cache = layer.step(x[:, 6:], cache, record=True)
    torch.testing.assert_close(first.merged, whole.merged[:, :6])
    for name in ("merged", "out", "scores", "weights", "q"):
        assert_close(getattr(rest, name), getattr(whole, name)[..., 6:, :])
    assert cache.length == T and rest.mask.shape[-2] == T - 6


# Multi-token attention against a loop over the paper's sum under random key masks, and by hand.


def mixed(scores, theta, real):
    """The paper's sum, cell by cell, with θ of the query itself in its last row; a = 0 is that query."""
    queries, keys = theta.shape[2:]
    out, steps = torch.zeros_like(scores), [(a, c) for a in range(queries) for c in range(keys)]
    for b, i, j in ((b, i, j) for b in range(B) for i in range(T) for j in range(T)):
        for a, c in steps:
            query, key = i - a, j + c - keys // 2
            if query >= 0 and 0 <= key <= query and real[b, query] and real[b, key]:
                out[b, :, i, j] = (
                    out[b, :, i, j] + theta[:, 0, queries - 1 - a, c] * scores[b, :, query, key]
                )
    return out


@each(("queries", "keys"), [(1, 1), (3, 5), (14, 1), (1, 3), (2, 27)])
@each("padded", [False, True])
def test_mixed_scores_are_the_papers_sum(queries, keys, padded):
    scores, position = scores_of(torch.float64), MultiToken(H, queries, keys, 0.5).double()
    torch.nn.init.normal_(position.theta)
    real = torch.rand(B, T) > 0.4 if padded else torch.ones(B, T, dtype=torch.bool)
    agree(
        position.adjust(scores, cells(*some(), key_mask=real if padded else None)),
        mixed(scores, position.theta, real),
        (scores, position.theta),
    )


@each("keys", [1, 5])
def test_without_mixing_nothing_changes(keys):
    scores = scores_of().tril()
    torch.testing.assert_close(MultiToken(H, 4, keys, 0.0).adjust(scores, cells(*some())), scores)
    assert MultiToken(H, 4, keys, 0.3).theta.sum((2, 3)).flatten().tolist() == pytest.approx(
        [1.0] * H
    )


# The temperature by position against the layers of Llama 4 without rotation, and by hand.


@each(("growth", "step"), [(0.1, 1), (0.7, 4), (0.1, 8192)])
def test_a_whole_layer_of_temperature_is_llama_4s(growth, step):
    # Three heads of keys and values; a random mask, in which every query sees its own token.
    config = llama4.Llama4TextConfig(
        hidden_size=60,
        num_attention_heads=6,
        num_key_value_heads=3,
        head_dim=10,
        num_hidden_layers=1,
        no_rope_layers=[0],
        attn_temperature_tuning=True,
        floor_scale=step,
        attn_scale=growth,
        attention_bias=False,
        attn_implementation="eager",
    )
    peer = llama4.Llama4TextAttention(config, layer_idx=0).eval()
    assert not peer.use_rope
    position = Choice.of("position_temperature", growth=growth, step=step)
    projection = Choice.of("grouped_query", kv_heads=3, bias=False)
    layer = perturbed(Attention(AttentionConfig(60, 6, projection, position=position)).eval())
    mask = (torch.rand(B, 1, T, T) > 0.4) | torch.eye(T, dtype=torch.bool)
    same_layer(
        layer,
        peer,
        by_name(layer),
        torch.randn(B, T, 60),
        None,
        torch.zeros(mask.shape).masked_fill(~mask, LEAST),
        mask=mask,
    )


# PoPE: lengths and phases, against x-transformers' functions and by hand.


@each(("kv_heads", "offset"), [(1, 0), (3, 0), (6, 4)])
def test_lengths_and_phases_against_x_transformers(kv_heads, offset):
    heads, size, length = 6, 5, 9
    projection = Choice.of("grouped_query", kv_heads=kv_heads)
    config = AttentionConfig(heads * size, heads, projection, position="pope", mask="causal")
    layer, peer = perturbed(Attention(config)), PolarEmbedding(size, heads)
    put((layer.position.phase, -6.0 * torch.rand(heads, 1, size)))
    x = torch.randn(B, length, heads * size, requires_grad=True)
    real = torch.rand(B, length) < 0.7
    real[:, 0] = True
    queries = x[:, offset:]
    steps = layer(queries, x, key_mask=real, offset=offset)
    q, k, v = layer.projection(queries, x, offset)
    k, v = (one.repeat_interleave(heads // kv_heads, 1) for one in (k, v))
    peer.learned_bias = layer.position.phase
    angles, bias = peer(torch.arange(length))
    q, k = apply_polar_pos_emb(q, angles), apply_polar_pos_emb(k, angles + bias)
    assert q.shape[-1] == k.shape[-1] == 2 * size
    visible = real[:, None, None] & torch.ones(length, length, dtype=torch.bool).tril()[offset:]
    weights = (q @ k.mT * size**-0.5).masked_fill(~visible, -torch.inf).softmax(-1)
    assert_close(steps.weights, weights)
    theirs = layer.projection.output((weights @ v).transpose(1, 2).flatten(2))
    agree(steps.merged, theirs, (x, layer.position.phase, layer.projection.query.weight))


def test_lengths_and_phases_by_hand():
    # softplus(ln(e^r − 1)) = r: lengths 3 and 2, one θ of 1, places 4 and 1: 3 · 2 · cos(4 − 1 − δ).
    position = Polar(1, 1, 10000.0, random=False)
    put((position.phase, -0.5))
    q, k = (torch.tensor(math.expm1(r)).log().view(1, 1, 1, 1) for r in (3.0, 2.0))
    score = position.rotate(q, 4) @ position.rotate_keys(k, 1).mT
    assert score.item() == pytest.approx(6 * math.cos(3.5), rel=1e-5)
    put((position.phase, 1.0))  # a phase above 0 counts as 0
    score = position.rotate(q, 4) @ position.rotate_keys(k, 1).mT
    assert score.item() == pytest.approx(6 * math.cos(3), rel=1e-5)


def test_random_phases_begin_between_a_turn_and_none():
    phase = Polar(3, 40, 10000.0, random=True).phase
    assert -2 * math.pi <= phase.min() < -5 and -1 < phase.max() <= 0


@each(
    ("choices", "message"),
    [
        ({"score": "general"}, "score = general has weights"),
        ({"kernel": "linear"}, "kernel = linear counts on"),
        ({"mask": "local_p"}, "mask = local_p has weights"),
        ({"position": Choice("and", (), (Choice("pope"), Choice("rope")))}, "the part rope"),
        ({"position": Choice("and", (), (Choice("cope"), Choice("pope")))}, "the part cope"),
    ],
)
def test_what_counts_on_the_size_of_queries_refuses_twice(choices, message):
    pytest.raises(ConfigError, AttentionConfig, **{"position": "pope"} | choices).match(message)
    joined = Choice("and", (), (Choice("pope"), Choice("forgetting")))
    assert AttentionConfig(position=joined).scored_dim == 2 * AttentionConfig().qk_dim


# PaTH: reflections between key and query, against flash-linear-attention, a loop over the tokens, and by hand.


def reflected(layer: Attention, x: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
    """The output of PaTH, each score by the product of the matrices between its key and its query."""
    position, config = layer.position, layer.config
    size, queries = config.qk_dim, config.num_heads // config.kv_heads
    q, k, v = layer.projection(x, x)
    rows = F.linear(F.linear(x, position.down.weight), position.up.weight)
    rows = rows * real[..., None]
    width, wide = position.taps.shape
    mixed = F.conv1d(rows.mT, position.taps.T[:, None], padding=width - 1, groups=wide).mT[
        :, : x.shape[1]
    ]
    w = F.silu(mixed).unflatten(-1, (-1, size))
    w = w / w.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    strength = 2 * position.strength(x).sigmoid() * real[..., None]
    scores = q.new_full((*q.shape[:3], x.shape[1]), -torch.inf)
    for b, h, i in itertools.product(*map(range, q.shape[:3])):
        across, group = q[b, h, i], h // queries
        for j in range(i, -1, -1):
            scores[b, h, i, j] = across @ k[b, group, j] * size**-0.5
            one = w[b, j, group]
            across = across - strength[b, j, group] * (across @ one) * one
    weights = scores.masked_fill(~real[:, None, None], -torch.inf).softmax(-1)
    return layer.projection.output(
        (weights @ v.repeat_interleave(queries, 1)).transpose(1, 2).flatten(2)
    )


@each("kv_heads", [1, 2])
def test_reflections_against_a_loop(kv_heads):
    config = AttentionConfig(
        12,
        4,
        Choice.of("grouped_query", kv_heads=kv_heads),
        position=Choice.of("path", rank=5, width=2),
        mask="causal",
    )
    layer = perturbed(Attention(config)).double()
    x = torch.randn(2, 7, 12, dtype=torch.float64, requires_grad=True)
    real = torch.tensor([[True] * 7, [True, False, True, False, False, True, True]])
    theirs = reflected(layer, x, real)
    weights = [weight for weight in layer.parameters() if weight is not layer.projection.key.bias]
    agree(layer(x, key_mask=real).merged, theirs, [x, *weights])


@each("gated", [False, True])
def test_reflections_against_flash_linear_attention(gated):
    # their forget gates are multiplied by the scale, too
    places = [Choice.of("path", rank=5, width=3), Choice("forgetting")][: 1 + gated]
    position = Choice("and", (), tuple(places)) if gated else places[0]
    grouped = Choice.of("grouped_query", kv_heads=2)
    layer = perturbed(Attention(AttentionConfig(24, 4, grouped, position=position, mask="causal")))
    path = layer.position.parts[0] if gated else layer.position
    x = torch.randn(2, 70, 24, requires_grad=True)
    q, k, v = layer.projection(x, x)
    w, strength = path.reflections(layer.kernel_inputs(q, k, v, x, x).block)
    gates = torch.zeros(2, 70, 4)
    if gated:
        gate = layer.position.parts[1].gate
        gates = F.logsigmoid(gate(x)) * 6**0.5
    theirs = fla("path_attn", "naive_path_attn")(
        *(one.transpose(1, 2) for one in (q, k, v, w)),
        strength[..., 0].transpose(1, 2),
        gates,
        6**-0.5,
        16,
    )
    theirs = layer.projection.output(theirs.flatten(2))
    weights = [weight for weight in layer.parameters() if weight is not layer.projection.key.bias]
    agree(layer(x).merged, theirs, [x, *weights])


def test_a_reflection_by_hand():
    # w = (1, 0) and β = 2 for every token: q = (3, 1) meets k = (1, 1) as 4, with one token between as −3 + 1, with two
    # as 4 again; with β = 1 the first number is gone.
    position = Path(2, 1, 2, scale=1.0, rank=2, width=1)
    put(
        (position.down.weight, [[1.0, 0.0], [0.0, 1.0]]),
        (position.up.weight, [[1.0, 0.0], [0.0, 1.0]]),
        (position.taps, [[1.0, 1.0]]),
        (position.strength.weight, [[0.0, 0.0]]),
    )
    q, k = torch.tensor([3.0, 1.0]).expand(1, 1, 3, 2), torch.ones(1, 1, 3, 2)
    context = torch.tensor([5.0, 0.0]).expand(1, 3, 2)
    for bias, scores in ((50.0, [4, -2, 4]), (0.0, [1, 1, 4])):
        put((position.strength.bias, [bias]))
        row = (q @ k.mT + position.bias(cells(q, k, x=context, context=context)))[0, 0, 2]
        assert row.tolist() == pytest.approx(scores, abs=1e-5)


def test_reflections_stand_in_a_dot_product():
    pytest.raises(ConfigError, AttentionConfig, position="path", score="cosine").match(
        "not of score = cosine; take"
    )
