"""What holds for every position, drawn from the entries themselves: blocks, distances, gradients, where it enters."""

import math
from dataclasses import replace

import pytest
import torch

from core.attention import (
    Attention,
    AttentionConfig,
    Choice,
    ConfigError,
    heads_that_divide,
    properties,
)
from core.attention.kernels.exact import slice_inputs
from core.attention.positions import POSITIONS, enters
from core.attention.positions.relative import Learned, Sinusoidal, sinusoids
from core.attention.positions.rotary import Position, Rotary, Yarn
from tests.cases import each

B, T, S, C, H = 2, 5, 11, 24, 3
KEYS = [e.key for e in POSITIONS]
BIASED = [e.key for e in POSITIONS if e.enters == "scores"]
ROTATED = [e.key for e in POSITIONS if e.enters == "q, k"]
IN_A_LINE = [key for key in ROTATED if key != "grid_rope"]
# what a place may change beside the distance: FIRE counts from the text's start, the others read the content
NOT_BY_DISTANCE = {
    "fire",
    "cope",
    "forgetting",
    "selective",
    "multi_token",
    "position_temperature",
    "formula",
    "and",
}
OTHER_ROWS = {e.key for e in POSITIONS if "other rows" in e.traits}


def layer_of(key, **choices):
    layer = Attention(AttentionConfig(C, H, position=key, **choices), add_positions=True).eval()
    for weight in layer.position.parameters():
        torch.nn.init.normal_(weight, std=0.5)  # what starts at zero would hide what it does
    return layer


def inputs(layer, queries=T, offset=S - T):
    x, context = torch.randn(B, queries, C), torch.randn(B, S, C)
    q, k, v = layer.projection(x, context, offset)
    return layer.kernel_inputs(q, k, v, x, context, offset=offset)


@each("key", BIASED)
@each(
    ("rows", "columns"),
    [(slice(1, 4), slice(2, 9)), (slice(0, 5), slice(0, 1)), (slice(3, 4), slice(0, 11))],
)
def test_the_bias_of_a_block_is_the_block_of_the_bias(key, rows, columns):
    made = inputs(layer_of(key))
    whole, q, k = made.bias(), made.q[:, :, rows], made.k[:, :, columns]
    part = slice_inputs(made, rows, columns, q, k, made.v).bias()
    assert (whole is None) == (part is None)
    if whole is not None:
        torch.testing.assert_close(
            part.expand(B, H, rows.stop - rows.start, columns.stop - columns.start),
            whole.expand((B, H, T, S))[:, :, rows, columns],
            rtol=1e-5,
            atol=1e-6,
        )


@each("key", [e.key for e in POSITIONS if "adjusts" in e.traits and e.key not in OTHER_ROWS])
def test_rows_are_adjusted_each_on_its_own(key):
    layer, scores = layer_of(key), torch.randn(B, H, T, S)
    block, rows = inputs(layer).block, slice(1, 4)
    whole = layer.position.adjust(scores, block)
    torch.testing.assert_close(
        layer.position.adjust(scores[:, :, rows], block.part(rows)), whole[:, :, rows]
    )
    columns = slice(0, 6)
    part = layer.position.adjust(scores[..., columns], block.part(columns=columns))
    needs_row = "whole rows" in next(e for e in POSITIONS if e.key == key).traits
    assert torch.allclose(part, whole[..., columns], atol=1e-6) is not needs_row


@each("key", sorted(OTHER_ROWS))
def test_a_position_that_reads_other_rows_refuses_a_part_of_them(key):
    layer, x = layer_of(key, mask="causal"), torch.randn(B, S, C)
    for part in (slice(3, 4), slice(5, S)):
        with pytest.raises(ConfigError, match=f"position = {key} reads .* position = forgetting"):
            layer(x[:, part], x[:, : part.stop], offset=part.start)


@each("key", [e.key for e in POSITIONS if "values" in e.traits])
def test_the_values_of_blocks_sum_to_the_whole(key):
    layer, weights = layer_of(key), torch.rand(B, H, T, S)
    block = inputs(layer).block
    parts = [
        layer.position.values(weights[..., c], block.part(columns=c))
        for c in (slice(0, 4), slice(4, 11))
    ]
    torch.testing.assert_close(parts[0] + parts[1], layer.position.values(weights, block))


@each("key", ROTATED)
def test_a_rotation_far_out_does_not_lose_its_angle_in_half_precision(key):
    """An angle made in bf16 would be off by whole turns at place 4000."""
    position = layer_of(key).position
    x = torch.ones(1, 1, 1, C // H)
    exact = position.double().rotate(x.double(), offset=4000)
    torch.testing.assert_close(
        position.bfloat16().rotate(x.bfloat16(), offset=4000).double(), exact, rtol=0, atol=3e-2
    )


@each("key", IN_A_LINE)
@each("layout", ["halves", "interleaved"])
def test_a_rotated_score_sees_the_distance_alone(key, layout):
    layer = layer_of(Choice.of(key, layout=layout, share=0.75))
    q, k = torch.randn(1, H, 1, C // H), torch.randn(1, H, 1, C // H)
    turn = layer.position.rotate
    near, far, other = (
        (turn(q, i, 99) * turn(k, j, 99)).sum() for i, j in ((7, 3), (57, 53), (7, 4))
    )
    torch.testing.assert_close(near, far, rtol=1e-4, atol=1e-4)
    assert (near - other).abs() > 1e-3


@each("key", [key for key in BIASED if key not in NOT_BY_DISTANCE])
def test_a_bias_sees_the_distance_alone(key):
    """The same q and k, moved 40 places on: the same bias (Toeplitz, where the content is not read)."""
    layer = layer_of(key)
    block = inputs(layer).block
    moved = replace(block, i=block.i + 40, j=block.j + 40)
    torch.testing.assert_close(
        layer.position.bias(moved), layer.position.bias(block), rtol=1e-4, atol=1e-5
    )


@each("key", KEYS)
def test_every_learned_number_is_reached(key):
    layer = layer_of(key)
    weights = dict(layer.position.named_parameters())
    if not weights:
        pytest.skip("nothing is learned here")
    layer(torch.randn(B, T, C)).merged.square().sum().backward()
    unreached = [
        name
        for name, weight in weights.items()
        if weight.grad is None or not weight.grad.abs().sum() > 0
    ]
    assert not unreached


@each("key", ROTATED)
def test_turns_first_made_for_a_picture_can_be_trained_with(key):
    layer, x = layer_of(key), torch.randn(1, 17, C)
    with torch.inference_mode():
        layer(x)
    layer(x).merged.sum().backward()
    assert layer.projection.query.weight.grad.abs().sum() > 0


@each("entry", POSITIONS)
def test_an_entry_says_where_it_enters(entry):
    config = AttentionConfig(24, 3, position=Choice(entry.key))
    position = layer_of(entry.key).position
    assert bool(properties.additive_table(position, 6, 24).any()) is (entry.enters == "x")
    rotations = properties.rotation_matrices(position, 6, config.qk_dim)
    assert bool(properties.rotation_pairs(rotations)) is ("q, k" in enters(config.position))
    changes = {
        name
        for name in ("bias", "adjust", "values")
        if getattr(type(position), name) is not getattr(Position, name)
    }
    assert bool(changes) is (entry.enters == "scores")
    if not entry.parts:
        assert ("adjust" in changes, "values" in changes) == (
            ("adjusts" in entry.traits, "values" in entry.traits)
        )
    assert entry.short and (entry.paper or entry.source or entry.key in ("formula", "and")), (
        "what is typed has no author"
    )


DIM = C // H
COUNTS = [
    ("learned", {"max_len": 9}, 9 * C),
    ("shaw", {"distance": 4}, 2 * 9 * DIM),
    ("shaw", {"distance": 4, "values": False}, 9 * DIM),
    ("t5", {"buckets": 8, "max_distance": 20}, 8 * H),
    ("transformer_xl", {}, C * C + 2 * C),
    ("deberta", {"distance": 5}, 10 * C + 2 * C * C),
    ("kerple", {}, 2 * H),
    ("fire", {"hidden": 7}, 2 + 14 + 8 * H),
    ("cope", {"places": 6}, 6 * DIM),
    ("forgetting", {}, C * H + H),
    ("multi_token", {"queries": 4, "keys": 3}, H * 4 * 3),
]


@each("key", KEYS)
def test_parameters_are_as_many_as_the_papers_count(key):
    """None but in the tables of those that are counted; a T5 has a table a head."""
    rows = [(params, count, H) for name, params, count in COUNTS if name == key] or [({}, 0, H)]
    rows += [({}, 32 * heads, heads) for heads in heads_that_divide(6) if key == "t5"]
    for params, count, heads in rows:
        layer = Attention(AttentionConfig(C, heads, position=Choice.of(key, **params)))
        assert sum(p.numel() for p in layer.position.parameters()) == count


def test_learned_positions_start_small():
    """As GPT-2's and BERT's do, with a standard deviation of .02."""
    assert Learned(64, max_len=128).table.weight.std().item() == pytest.approx(0.02, rel=0.05)


# What is measured of an encoding, against what is known of it.


def test_what_is_added_is_the_table():
    torch.testing.assert_close(
        properties.additive_table(Sinusoidal(7, 100.0), 11, 7),
        sinusoids(torch.arange(11.0), 7, 100.0),
    )
    learned = Learned(7, 13)
    torch.testing.assert_close(properties.additive_table(learned, 11, 7), learned.table.weight[:11])
    assert not properties.additive_table(Position(), 11, 7).any()


def test_the_matrix_of_a_turn_does_what_the_encoding_does():
    position, q = Rotary(10, 10000.0, "interleaved", 0.8), torch.randn(1, 1, 6, 10)
    torch.testing.assert_close(
        torch.einsum("tij,tj->ti", properties.rotation_matrices(position, 6, 10), q[0, 0]),
        position.rotate(q)[0, 0],
    )


@each(("layout", "first"), [("halves", (0, 4)), ("interleaved", (0, 1))])
def test_pairs_are_found_in_the_turns(layout, first):
    """Ten dimensions of which eight turn, by 1, 0.1, 0.01 and 0.001."""
    pairs = properties.rotation_pairs(
        properties.rotation_matrices(Rotary(10, 10000.0, layout, 0.8), 7, 10)
    )
    assert len(pairs) == 4 and (pairs[0].first, pairs[0].second) == first
    assert ([pair.angle for pair in pairs], pairs[0].wavelength) == (
        pytest.approx([1, 0.1, 0.01, 0.001], rel=1e-4),
        pytest.approx(2 * math.pi, rel=1e-5),
    )


def test_pairs_of_sinusoids_rotate_by_their_angles():
    """Seven dimensions: three pairs, whose angles fall by 100^(-2/7), and a sine without its cosine."""
    pairs = properties.sinusoid_pairs(sinusoids(torch.arange(5.0), 7, 100.0))
    assert ([(pair.first, pair.second) for pair in pairs], [pair.angle for pair in pairs]) == (
        [(0, 1), (2, 3), (4, 5)],
        pytest.approx([1, 100 ** (-2 / 7), 100 ** (-4 / 7)], rel=1e-5),
    )


def test_alignment_is_the_mean_cosine_of_the_angles():
    turns = properties.rotation_matrices(Rotary(4, 100.0, "halves"), 5, 4)
    expected = torch.tensor([(math.cos(d) + math.cos(d / 10)) / 2 for d in range(5)])
    torch.testing.assert_close(properties.alignment(turns)[0], expected, rtol=1e-5, atol=1e-6)
    grown = properties.rotation_matrices(Yarn(4, 100.0, "halves", 1.0, math.e, 64, 32.0, 1.0), 5, 4)
    torch.testing.assert_close(
        properties.alignment(grown)[0, 0], torch.tensor(1.1**2), rtol=1e-5, atol=1e-6
    )


def test_cosines_of_sinusoids_depend_on_the_distance_alone():
    similarity = properties.cosines(sinusoids(torch.arange(9.0), 8))
    assert similarity.shape == (9, 9)
    for d in range(9):
        row = similarity.diagonal(d)
        torch.testing.assert_close(row, row[:1].expand_as(row), rtol=1e-5, atol=1e-5)


@each("shift", [1, 5, 20])
def test_a_shift_of_sinusoids_is_the_rotation_in_closed_form(shift):
    table = sinusoids(torch.arange(300.0), 32)
    assert properties.shift_error(properties.sinusoid_shift(table[shift]), table, shift) < 1e-6
    assert (
        properties.shift_error(properties.fit_shift(table[:200], shift), table[:200], shift) < 1e-4
    )
    assert properties.shift_error(torch.eye(32), table, shift) > 0.1


def test_a_shift_of_a_random_table_is_no_linear_map():
    """With more places than dimensions: neither the closed form nor a fit, and a fit least where it never looked."""
    table = torch.randn(300, 32)
    fit = properties.fit_shift(table[:200], 5)
    seen, unseen = (properties.shift_error(fit, part, 5) for part in (table[:200], table[200:]))
    assert (
        properties.shift_error(properties.sinusoid_shift(table[5]), table, 5) > 1
        and 0.8 < seen < unseen
    )


def test_an_odd_last_dimension_stays_out_of_the_closed_form():
    table = sinusoids(torch.arange(50.0), 7)
    closed = properties.sinusoid_shift(table[3])
    torch.testing.assert_close(closed[6], torch.eye(7)[6])
    torch.testing.assert_close(table[:-3] @ closed.mT[:, :6], table[3:, :6], rtol=1e-5, atol=1e-5)


# What a position makes of its weights or inputs alone is made once a call, however many blocks a kernel cuts.


TABLES = {"transformer_xl": ["project"], "deberta": ["key", "query"], "forgetting": ["gate"]}


@each("key", TABLES)
@each("kernel", ["chunked", "local", "block_sparse"])
def test_a_table_is_made_once_a_call(key, kernel):
    layer, made = layer_of(key, kernel=Choice.of(kernel, block=4)), []
    for name in TABLES[key]:
        getattr(layer.position, name).register_forward_hook(lambda *_, name=name: made.append(name))
    out = layer(torch.randn(1, 13, C), record=False).merged
    out.sum().backward()
    assert made == TABLES[key]
