"""A map through a lens, held against sums and means written out cell by cell."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.interpret import map_transform
from core.interpret.map_transform import MapTransform
from core.interpret.trace import AttentionMap, AttentionTrace
from tests.cases import each

RNG = np.random.default_rng(86)


def a_map(heads=2, rows=5, columns=7, mask=None, kind="cross") -> AttentionMap:
    values = RNG.random((heads, rows, columns)).astype(np.float32)
    values *= 1 if mask is None else mask
    values /= np.maximum(values.sum(-1, keepdims=True), 1e-9)
    return AttentionMap(
        kind, 0, values, tuple("abcdefghijk"[:rows]), tuple("tuvwxyz0123"[:columns]), mask
    )


def test_pieces_of_a_word_are_summed_over_keys_and_averaged_over_queries():
    # "un ##believ ##able story": a hand-worked case.
    weights = np.array(
        [[[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1], [0.25, 0.25, 0.25, 0.25], [0, 0, 0, 1]]],
        dtype=np.float32,
    )
    tokens = ("un", "##believ", "##able", "story")
    shown = map_transform.transform_map(
        AttentionMap("self", 0, weights, tokens, tokens),
        MapTransform(*2 * (map_transform.group_by_word((0, 0, 0, 1)),)),
    )
    assert shown.keys == shown.queries == ("unbelievable", "story")
    np.testing.assert_allclose(
        shown.weights[0], [[(0.6 + 0.9 + 0.75) / 3, (0.4 + 0.1 + 0.25) / 3], [0.0, 1.0]], atol=1e-6
    )


@st.composite
def lenses(draw, rows=5, columns=7):
    def groups(count):
        places = draw(st.permutations(range(count)))[: draw(st.integers(1, count))]
        cuts = sorted(draw(st.sets(st.integers(1, len(places) - 1)))) if len(places) > 1 else []
        return tuple(
            tuple(places[a:b]) for a, b in zip([0, *cuts], [*cuts, len(places)], strict=True)
        )

    return MapTransform(groups(rows), groups(columns))


@given(lenses(), st.booleans())
def test_any_lens_is_what_the_loops_say(through, masked):
    mask = np.random.default_rng(1).random((5, 7)) > 0.4 if masked else None
    item = a_map(mask=mask)
    shown = map_transform.transform_map(item, through)
    hidden = sum(map(len, through.columns)) < 7
    for head in range(2):
        for i, own_rows in enumerate(through.rows):
            row = [
                np.mean([sum(item.weights[head, r, c] for c in own) for r in own_rows])
                for own in through.columns
            ]
            whole = np.mean([item.weights[head, r].sum() for r in own_rows])
            expected = np.array(row) * (whole / sum(row) if hidden and sum(row) else 1)
            np.testing.assert_allclose(shown.weights[head, i], expected, atol=1e-5)
    if masked:
        for i, own_rows in enumerate(through.rows):
            for j, own_columns in enumerate(through.columns):
                assert shown.mask[i, j] == any(mask[r, c] for r in own_rows for c in own_columns)


def test_a_row_that_spent_everything_on_hidden_keys_gives_zeros():
    weights = np.zeros((1, 2, 3), np.float32)
    weights[0, :, 0] = 1
    item = AttentionMap("self", 0, weights, ("a", "b"), ("x", "y", "z"))
    keys = map_transform.hide_tokens(map_transform.single_tokens(3), (True, False, False))
    shown = map_transform.transform_map(item, MapTransform(map_transform.single_tokens(2), keys))
    np.testing.assert_array_equal(shown.weights, np.zeros((1, 2, 2)))


def test_rows_keep_their_sum_where_it_was_below_one():
    weights = np.array([[[0.2, 0.2, 0.1]]], np.float32)
    shown = map_transform.transform_map(
        AttentionMap("self", 0, weights, ("a",), ("x", "y", "z")),
        MapTransform(((0,),), ((0,), (2,))),
    )
    np.testing.assert_allclose(shown.weights[0, 0], [1 / 3, 1 / 6], atol=1e-6)


def test_the_plain_lens_leaves_the_map_as_it_is():
    item = a_map()
    assert map_transform.transform_map(item, MapTransform.plain(5, 7)) is item


def test_a_cell_is_found_through_the_lens_and_back():
    seen = MapTransform(
        map_transform.hide_tokens(
            map_transform.group_by_word((None, 0, 0, 1)), (True, False, False, False)
        ),
        ((2,), (0, 1)),
    )
    assert seen.shown_cell((2, 1)) == (0, 1)
    assert seen.shown_cell((0, 1)) is None
    assert seen.source_cell((0, 1)) == (1, 0)


def test_groups_are_ordered_by_value_and_equals_keep_their_order():
    assert map_transform.sort_groups(((0,), (1, 2), (3,)), [0.2, 0.2, 0.6]) == ((3,), (0,), (1, 2))


@each("weight", [0.2, 0.5])
def test_a_sink_gets_more_than_three_tenths_of_every_query_that_sees_it(weight):
    rows = np.tri(6, dtype=np.float32)
    rows /= rows.sum(-1, keepdims=True)
    sunk = rows * (1 - weight)
    sunk[:, 0] += weight
    item = AttentionMap(
        "causal", 0, sunk[None], tuple("abcdef"), tuple("abcdef"), np.tri(6, dtype=bool)
    )
    sinks = map_transform.find_sinks(AttentionTrace((item,), "test"))
    expected = [np.mean([sunk[i, j] for i in range(j, 6)]) > 0.3 for j in range(6)]
    assert sinks.tolist() == expected
    assert sinks[0]
    # The last token is seen by itself alone, so its mean is its own weight.
    assert map_transform.received_weight(item)[0, 5] == pytest.approx(sunk[5, 5])
