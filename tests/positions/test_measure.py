"""What is measured of an encoding, against what is known of it."""

import math

import pytest
import torch

from core.attention import AttentionConfig, Choice, properties
from core.attention.positions import POSITIONS, enters
from core.attention.positions.absolute import Learned, Sinusoidal, sinusoids
from core.attention.positions.rotary import Position, Rotary, Yarn
from core.entries import find
from tests.cases import each


def test_what_is_added_is_the_table():
    added = properties.additive_table(Sinusoidal(7, 100.0), 11, 7)
    torch.testing.assert_close(added, sinusoids(torch.arange(11.0), 7, 100.0))
    learned = Learned(7, 13)
    torch.testing.assert_close(properties.additive_table(learned, 11, 7), learned.table.weight[:11])
    assert not properties.additive_table(Position(), 11, 7).any()


def test_the_matrix_of_a_turn_does_what_the_encoding_does():
    position, q = Rotary(10, 10000.0, "interleaved", 0.8), torch.randn(1, 1, 6, 10)
    turns = properties.rotation_matrices(position, 6, 10)
    torch.testing.assert_close(torch.einsum("tij,tj->ti", turns, q[0, 0]), position.rotate(q)[0, 0])


@each(("layout", "first"), [("halves", (0, 4)), ("interleaved", (0, 1))])
def test_pairs_are_found_in_the_turns(layout, first):
    """Ten dimensions of which eight turn, by 1, 0.1, 0.01 and 0.001."""
    pairs = properties.rotation_pairs(
        properties.rotation_matrices(Rotary(10, 10000.0, layout, 0.8), 7, 10)
    )
    assert len(pairs) == 4 and (pairs[0].first, pairs[0].second) == first
    assert [pair.angle for pair in pairs] == pytest.approx([1, 0.1, 0.01, 0.001], rel=1e-4)
    assert pairs[0].wavelength == pytest.approx(2 * math.pi, rel=1e-5)


def test_pairs_of_sinusoids_rotate_by_their_angles():
    """Seven dimensions: three pairs, whose angles fall by 100^(-2/7), and a sine without its cosine."""
    pairs = properties.sinusoid_pairs(sinusoids(torch.arange(5.0), 7, 100.0))
    assert [(pair.first, pair.second) for pair in pairs] == [(0, 1), (2, 3), (4, 5)]
    assert [pair.angle for pair in pairs] == pytest.approx(
        [1, 100 ** (-2 / 7), 100 ** (-4 / 7)], rel=1e-5
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


@each("entry", POSITIONS)
def test_every_encoding_shows_where_it_enters(entry):
    """Only those that say so add anything, and only those that say so turn anything."""
    config = AttentionConfig(24, 3, position=Choice(entry.key))
    position = find(POSITIONS, "position", entry.key).build(config)
    assert bool(properties.additive_table(position, 6, 24).any()) is (entry.enters == "x")
    rotations = properties.rotation_matrices(position, 6, config.qk_dim)
    assert bool(properties.rotation_pairs(rotations)) is ("q, k" in enters(config.position))
