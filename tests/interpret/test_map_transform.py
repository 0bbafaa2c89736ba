"""Two readings held against each other: alignment, how far heads are apart, and which are alike, on hand-made maps."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from core.interpret import map_transform
from core.interpret.map_transform import (
    Aligned,
    MapTransform,
    align,
    changes,
    names,
    place_on_grid,
    weight_moved,
)
from core.interpret.trace import AttentionMap, AttentionTrace
from tests.cases import each
from tests.interpret.readings import softmax

# A map through a lens, held against sums and means written out cell by cell.


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
    item = AttentionMap("self", 0, weights, ("a",), ("x", "y", "z"))
    shown = map_transform.transform_map(item, MapTransform(((0,),), ((0,), (2,))))
    np.testing.assert_allclose(shown.weights[0, 0], [1 / 3, 1 / 6], atol=1e-6)
    assert map_transform.transform_map(item, MapTransform.plain(1, 3)) is item


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


WORDS = st.lists(st.sampled_from(["a", "b", "c", "the", "Cat"]), min_size=1, max_size=9)


def trace(tokens, layers=2, heads=3, seed=0, kind="self") -> AttentionTrace:
    chance = np.random.default_rng(seed)
    size = (heads, len(tokens), len(tokens))
    maps = [
        AttentionMap(
            kind,
            layer,
            softmax(2 * chance.normal(size=size)).astype(np.float32),
            tuple(tokens),
            tuple(tokens),
        )
        for layer in range(layers)
    ]
    return AttentionTrace(tuple(maps), f"seed {seed}")


def test_moved_by_hand_is_the_total_variation_between_the_rows():
    one = np.array([[[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]], np.float32)
    other = np.array([[[0.25, 0.75, 0.0], [0.0, 0.5, 0.5]]], np.float32)
    np.testing.assert_allclose(weight_moved(one, other), [(0.75 + 0.5) / 2])
    assert weight_moved(one, one) == 0
    one, other = (trace("abcdefg", seed=seed).map(0).weights for seed in (1, 2))
    np.testing.assert_allclose(
        weight_moved(one, other), np.abs(one - other).sum(-1).mean(-1) / 2, atol=1e-6
    )


def test_a_word_put_in_is_nobodys_and_one_put_for_another_stands_beside_it():
    alignment = align(["the", "cat", "sat", "."], ["the", "black", "cat", "sat", "."])
    assert alignment.pairs == ((0, 0), (None, 1), (1, 2), (2, 3), (3, 4))
    assert alignment.both == ((0, 0), (1, 2), (2, 3), (3, 4))
    first, second = ["It", "was", "too", "tired", "."], ["it", "was", "wide", "."]
    pairs = align(first, second).pairs
    assert names(first, second, pairs) == ["It", "was", "too / wide", "tired / –", "."]


@given(WORDS, WORDS)
def test_every_token_is_aligned_once_and_in_order(first, second):
    pairs = align(first, second).pairs
    assert [a for a, _ in pairs if a is not None] == list(range(len(first)))
    assert [b for _, b in pairs if b is not None] == list(range(len(second)))
    assert align(first, first).both == tuple((place, place) for place in range(len(first)))


@given(WORDS, WORDS)
def test_spreading_a_map_keeps_its_weight_and_leaves_the_rest_empty(first, second):
    item = trace(first, layers=1, heads=1).map(0)
    places = [a for a, _ in align(first, second).pairs]
    wide = place_on_grid(item.weights[0], places, places)
    aligned = [place for place, a in enumerate(places) if a is not None]
    np.testing.assert_array_equal(wide[np.ix_(aligned, aligned)], item.weights[0])
    assert wide.sum() == pytest.approx(item.weights[0].sum(), rel=1e-5)


def test_changes_finds_the_head_that_was_changed():
    first = trace("abcdefg")
    weights = [item.weights.copy() for item in first.maps]
    weights[1][2] = np.eye(7, dtype=np.float32)
    second = AttentionTrace(
        tuple(
            AttentionMap("self", layer, one, tuple("abcdefg"), tuple("abcdefg"))
            for layer, one in enumerate(weights)
        ),
        "changed",
    )
    differences = changes(first, second)
    assert (differences[0].layer, differences[0].head, differences[0].to) == (1, 2, (1, 2))
    assert differences[0].moved > 0.3
    assert [item.moved for item in differences[1:]] == [0.0] * 5 and differences[0].name == "L1·H2"
    own = first.map(1).weights[2]
    assert differences[0].moved == pytest.approx(float((1 - np.diagonal(own)).mean()), abs=1e-6)


def test_changes_refuses_models_of_other_shapes():
    with pytest.raises(ValueError, match="align their tokens"):
        changes(trace("abc"), trace("abcd"))
    with pytest.raises(ValueError, match="no map"):
        Aligned.of(trace("abc"), AttentionTrace((), "nothing"))


def test_the_nearest_head_is_found_among_other_layers_and_heads():
    first, tokens = trace("abcdefg", layers=2, heads=3), tuple("abcdefg")
    shuffled = np.stack(
        [first.head(1, 0), first.head(0, 2), first.head(0, 1), first.head(1, 2), first.head(1, 1)]
    )
    second = AttentionTrace((AttentionMap("self", 0, shuffled, tokens, tokens),), "other")
    nearest_heads = {(item.layer, item.head): item for item in Aligned.of(first, second).nearest()}
    assert [nearest_heads[head].to for head in ((1, 0), (0, 2), (0, 1), (1, 2), (1, 1))] == [
        (0, i) for i in range(5)
    ]
    assert nearest_heads[1, 0].moved == 0 and nearest_heads[0, 0].moved > 0.1
    assert not Aligned.of(first, second).same_shape


def test_only_rows_that_both_have_are_measured():
    """The second text has a word more, on which nobody looks and which counts for nothing."""
    first = trace("abcd", layers=1, heads=2)
    wide = place_on_grid(first.map(0).weights[0], [0, 1, None, 2, 3], [0, 1, None, 2, 3])
    wide[2] = 0.2
    item = AttentionMap("self", 0, np.stack([wide, wide]), tuple("abxcd"), tuple("abxcd"))
    aligned = Aligned.of(first, AttentionTrace((item,), "wider"))
    assert aligned.keys == ["a", "b", "– / x", "c", "d"]
    by_head = {item.head: item for item in aligned.in_place()}
    assert by_head[0].moved == pytest.approx(0, abs=1e-6) and by_head[
        0
    ].difference == pytest.approx(0, abs=1e-6)
    assert by_head[1].moved == pytest.approx(
        float(weight_moved(first.map(0).weights[1:], first.map(0).weights[:1])[0])
    )
    weights, allowed = aligned.on_grid(0, 0, 0)
    assert allowed.tolist()[2] == [False] * 5 and not weights[:, 2].any()


def test_what_may_not_be_attended_to_stays_so():
    tokens = tuple("abc")
    causal = AttentionMap(
        "causal",
        0,
        np.tril(np.ones((1, 3, 3), np.float32)) / 3,
        tokens,
        tokens,
        np.tri(3, dtype=bool)[None],
    )
    aligned = Aligned.of(*[AttentionTrace((causal,), "causal")] * 2)
    np.testing.assert_array_equal(aligned.on_grid(1, 0, 0)[1], np.tri(3, dtype=bool))
