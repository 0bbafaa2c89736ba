"""Whether a head looks at the token that is said next: worked by hand, and on the lab's own models."""

from collections.abc import Sequence
from dataclasses import replace
from string import printable

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.special import softmax

from core.interpret import map_transform, trace as analysis
from core.interpret.map_transform import (
    Aligned,
    MapTransform,
    align,
    changes,
    names,
    place_on_grid,
)
from core.interpret.trace import (
    AttentionMap,
    AttentionTrace,
    Kind,
    flow,
    graph,
    induction,
    most_informative_head,
    rollout,
)
from tests.cases import each


def test_maps_are_told_apart_by_kind():
    one = AttentionMap("self", 0, np.ones((2, 1, 1), np.float32), ("a",), ("a",))
    other = AttentionMap("cross", 1, np.ones((4, 1, 1), np.float32), ("b",), ("a",))
    trace = AttentionTrace((one, other), "test")
    assert (trace.kinds, trace.of("cross").maps) == (("self", "cross"), (other,))
    assert (trace.shape, trace.of("causal").shape) == ((2, 4), (0, 0))
    # What one head may see is visible in any
    assert replace(other, mask=np.arange(4)[:, None, None] == 2).visible.any(0).all()


# Every figure of a head, against maps whose answer is known by hand.


@given(st.integers(1, 9), st.integers(1, 4), st.integers(0, 2**31))
def test_bounds_hold_for_any_weights(size, heads, seed):
    scores = np.random.default_rng(seed).normal(0, 3, (heads, size, size))
    for score in (analysis.previous_token, analysis.breadth):
        value = score(softmax(scores, axis=-1))
        assert value.shape == (heads,) and (value >= -1e-9).all() and (value <= 1 + 1e-9).all()


# Rollout by hand, flow against networkx, and both against what must hold for any attention.


def uneven(
    rng: np.random.Generator, heads: int, rows: int, columns: int, causal: bool = False
) -> np.ndarray:
    scores = rng.normal(0, 2, (heads, rows, columns))
    scores[:, ~np.tri(rows, columns, dtype=bool)] = -np.inf if causal else 0
    return softmax(scores, axis=-1).astype(np.float32)


def flows(steps: Sequence[np.ndarray]) -> np.ndarray:
    return np.stack([flow(steps, row) for row in range(len(steps[-1]))])


def stack(
    kind: Kind, layers: list[np.ndarray], rows: str, columns: str
) -> tuple[AttentionMap, ...]:
    return tuple(
        AttentionMap(kind, layer, one, tuple(rows), tuple(columns))
        for layer, one in enumerate(layers)
    )


def translator() -> AttentionTrace:
    # Two layers of encoder over five tokens, two of decoder over three.
    rng = np.random.default_rng(0)
    return AttentionTrace(
        (
            *stack("self", [uneven(rng, 2, 5, 5) for _ in range(2)], "vwxyz", "vwxyz"),
            *stack("causal", [uneven(rng, 2, 3, 3, True) for _ in range(2)], "abc", "abc"),
            *stack("cross", [uneven(rng, 2, 3, 5) for _ in range(2)], "abc", "vwxyz"),
        ),
        "test",
    )


def three_layers(seed: int) -> AttentionTrace:
    # Every second one causal.
    rng = np.random.default_rng(seed)
    layers = [uneven(rng, 3, 7, 7, causal=bool(seed % 2)) for _ in range(3)]
    return AttentionTrace(stack("self", layers, "abcdefg", "abcdefg"), "test")


@each(
    "flow_graph",
    [graph(three_layers(seed), "self", 2) for seed in range(4)]
    + [graph(translator(), "cross", layer) for layer in (0, 1)],
)
def test_flow_is_networkx_maximum_flow(flow_graph):
    # By another library: nodes (step, place), from the top down.
    import networkx

    network, top = networkx.DiGraph(), len(flow_graph)
    sizes = [flow_graph[0].shape[1], *map(len, flow_graph)]
    network.add_nodes_from((at, place) for at, size in enumerate(sizes) for place in range(size))
    for at, step in enumerate(flow_graph):
        for to, come in np.argwhere(step).tolist():
            network.add_edge((at + 1, to), (at, come), capacity=float(step[to, come]))
    largest = [
        [
            networkx.maximum_flow_value(network, (top, row), (0, column))
            for column in range(sizes[0])
        ]
        for row in range(sizes[-1])
    ]
    np.testing.assert_allclose(flows(flow_graph), largest, atol=1e-6, strict=True)


def test_what_decoder_owes_to_its_source_is_product_by_hand():
    # One layer of encoder and two of decoder: its causal attention passes on what cross-attention brought before.
    rng = np.random.default_rng(3)
    own, back, over = uneven(rng, 1, 5, 5), uneven(rng, 2, 3, 3, True), uneven(rng, 2, 3, 5)
    maps = (
        *stack("self", [own], "vwxyz", "vwxyz"),
        *stack("causal", [back, back], "abc", "abc"),
        *stack("cross", [over, over], "abc", "vwxyz"),
    )
    flow_graph = graph(AttentionTrace(maps, "test"), "cross", 1)
    once = 0.5 * over.mean(0) @ (0.5 * own[0] + 0.5 * np.eye(5))
    np.testing.assert_allclose(
        rollout(flow_graph), once + 0.5 * (0.5 * back.mean(0) + 0.5 * np.eye(3)) @ once, atol=1e-6
    )
    first, *others = flow_graph
    np.testing.assert_allclose(first.sum(-1), [1, 1, 1, 1, 1, 0, 0, 0])  # of the source alone
    assert all(np.allclose(step.sum(-1), 1.0) for step in others)


@given(st.integers(2, 6), st.integers(1, 4), st.integers(0, 2**31))
def test_what_holds_for_any_attention(size, depth, seed):
    # What one way of sending carries, the best way carries too.
    rng = np.random.default_rng(seed)
    layers = [uneven(rng, 2, size, size) for _ in range(depth)]
    tokens = "abcdef"[:size]
    flow_graph = graph(
        AttentionTrace(stack("self", layers, tokens, tokens), "test"), "self", depth - 1
    )
    shares, most = rollout(flow_graph), flows(flow_graph)
    np.testing.assert_allclose(shares.sum(-1), 1.0)
    assert (most >= shares - 1e-6).all() and (most <= 1 + 1e-6).all()


# the first step can look back at 8, the second at nothing, the third at 9
KEYS, TOKENS = ((7, 8, 9, 8), (8, 5, 9))


def item(layer=0, fill=None, kind="causal"):
    rows = [[0.25, 0.75, 0, 0], [0, 0, 1, 0], [0, 0.5, 0.5, 0]] if fill is None else fill
    return AttentionMap(
        kind,
        layer,
        np.array([[[1, 0, 0, 0]] * 3, rows], dtype=np.float32),
        ("a", "b", "c"),
        ("p", "q", "r", "s"),
        np.tril(np.ones((3, 4), dtype=bool), 1)[None] if kind == "causal" else None,
    )


def test_the_weight_on_the_said_token_is_a_mean():
    heads, uniform, steps = induction(item(), KEYS, TOKENS)
    assert (
        heads == pytest.approx([0, (0.75 + 0.5) / 2])
        and uniform == pytest.approx((1 / 2 + 1 / 4) / 2)
        and steps == 2
    )
    assert induction(replace(item(), weights=item().weights[1:]), KEYS, TOKENS).heads == heads[1:]
    assert (
        item().visible[0].sum(-1).tolist() == [2, 3, 4]
        and induction(item(), KEYS, (1, 2, 3)) is None
    )


def test_the_telling_head_copies_or_is_the_sharpest():
    # Never head 0, which rests on the first place; the first place of a source is as good as any.
    blunt = item(1, [[0.5, 0.5, 0, 0], [0.4, 0.3, 0.3, 0], [0.25] * 4])
    trace, crossed = (
        AttentionTrace(maps, "made") for maps in ((blunt, item()), (item(kind="cross"),))
    )
    second = AttentionTrace((item(0, [[0, 1, 0, 0]] * 3), item(1, [[0.5, 0, 0.5, 0]] * 3)), "made")
    two = AttentionMap("causal", 0, np.array([[[1, 0]], [[0.4, 0.6]]]), ("a",), ("p", "q"))
    one = AttentionMap("causal", 0, np.array([[[0.9]], [[1.0]]]), ("a",), ("p",))
    none = (1, 1, 1, 1), (2, 3, 4)
    given = (
        (trace, KEYS, TOKENS),
        (trace, *none),
        (crossed, KEYS, TOKENS),
        (second, *none),
        (AttentionTrace((two,), "made"), (1, 1), (2,)),
        (AttentionTrace((one,), "made"), (1,), (2,)),
    )
    assert [most_informative_head(*one) for one in given] == [
        (1, 1),
        (1, 1),
        (0, 0),
        (0, 1),
        (0, 1),
        (0, 1),
    ]


# Two readings held against each other: alignment, how far heads are apart, and which are alike, on hand-made maps.


# A map through a lens, held against sums and means written out cell by cell.


def test_pieces_of_a_word_are_summed_over_keys():
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
    # Of each column of two rows
    np.testing.assert_allclose(map_transform.received_weight(shown), shown.weights.sum(1) / 2)
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
    values, random = np.random.default_rng(86).random((2, 2, 5, 7))
    mask = random > 0.4 if masked else None
    weights = (values if mask is None else values * mask).astype(np.float32)
    weights /= np.maximum(weights.sum(-1, keepdims=True), 1e-9)
    item = AttentionMap("cross", 0, weights, (*"abcde",), (*"tuvwxyz",), mask)
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
            for j, own_columns in enumerate(through.columns if masked else ()):
                assert shown.mask[head, i, j] == mask[head][np.ix_(own_rows, own_columns)].any()


@each(
    ("row", "columns", "expected"),
    [([1, 0, 0], ((1,), (2,)), [0, 0]), ([0.2, 0.2, 0.1], ((0,), (2,)), [1 / 3, 1 / 6])],
)
def test_rows_keep_their_sum(row, columns, expected):
    item = AttentionMap("self", 0, np.array([[row]], np.float32), ("a",), ("x", "y", "z"))
    shown = map_transform.transform_map(item, MapTransform(((0,),), columns))
    np.testing.assert_allclose(shown.weights[0, 0], expected, atol=1e-6)
    assert map_transform.transform_map(item, MapTransform.plain(1, 3)) is item


@each("weight", [0.2, 0.5])
def test_a_sink_gets_more_than_three_tenths(weight):
    sunk = np.tri(6, dtype=np.float32) / np.arange(1, 7, dtype=np.float32)[:, None] * (1 - weight)
    sunk[:, 0] += weight
    item = AttentionMap("causal", 0, sunk[None], (*"abcdef",), (*"abcdef",), np.tri(6, dtype=bool))
    sinks = map_transform.find_sinks(AttentionTrace((item,), "test"))
    assert (
        sinks.tolist() == [np.mean([sunk[i, j] for i in range(j, 6)]) > 0.3 for j in range(6)]
        and sinks[0]
    )
    # The last token is seen by itself alone, so its mean is its own weight.
    assert map_transform.received_weight(item)[0, 5] == pytest.approx(sunk[5, 5])


WORDS = st.lists(st.sampled_from(["a", "b", "c", "the", "Cat"]), min_size=1, max_size=9)


def trace(tokens, layers=2, heads=3, seed=0, kind="self") -> AttentionTrace:
    chance, size = np.random.default_rng(seed), (layers, heads, len(tokens), len(tokens))
    weights = softmax(2 * chance.normal(size=size), axis=-1).astype(np.float32)
    return AttentionTrace(stack(kind, list(weights), tokens, tokens), f"seed {seed}")


@given(WORDS, WORDS)
def test_every_token_is_aligned_once_and_in_order(first, second):
    pairs = align(first, second)
    assert [a for a, _ in pairs if a is not None] == list(range(len(first)))
    assert [b for _, b in pairs if b is not None] == list(range(len(second)))
    assert align(first, first) == tuple((place, place) for place in range(len(first)))


@given(WORDS, WORDS)
def test_spreading_a_map_keeps_its_weight(first, second):
    item = trace(first, layers=1, heads=1).map(0)
    places = [a for a, _ in align(first, second)]
    wide = place_on_grid(item.weights[0], places, places)
    aligned = [place for place, a in enumerate(places) if a is not None]
    np.testing.assert_array_equal(wide[np.ix_(aligned, aligned)], item.weights[0])
    assert wide.sum() == pytest.approx(item.weights[0].sum(), rel=1e-5)


def test_changes_finds_the_head_that_was_changed():
    first = trace("abcdefg")
    weights = [item.weights.copy() for item in first.maps]
    weights[1][2] = np.eye(7, dtype=np.float32)
    most, *others = changes(
        first, AttentionTrace(stack("self", weights, "abcdefg", "abcdefg"), "new")
    )
    assert (most.layer, most.head, most.to) == (1, 2, (1, 2)) and most.name == most.other == "L1·H2"
    own = float((1 - np.diagonal(first.map(1).weights[2])).mean())
    assert (
        most.moved == pytest.approx(own, abs=1e-6)
        and most.moved > 0.3
        and [item.moved for item in others] == [0.0] * 5
    )


@each(
    ("make", "words"),
    [
        (
            lambda: AttentionMap("self", 0, np.zeros((1, 2, 3), np.float32), (*"abc",), (*"xy",)),
            "3 queries, 2 keys",
        ),
        (lambda: graph(translator(), "cross", 5), "no cross-attention of layer 5"),
        (lambda: changes(trace("abc"), trace("abcd")), "align their tokens"),
        (lambda: Aligned.of(trace("abc"), AttentionTrace((), "nothing")), "no map"),
    ],
)
def test_what_does_not_fit_is_refused(make, words):
    pytest.raises(ValueError, make).match(words)


def test_nearest_head_is_found_among_other_layers_and_heads():
    first, heads = trace("abcdefg", layers=2, heads=3), ((1, 0), (0, 2), (0, 1), (1, 2), (1, 1))
    shuffled = np.stack([first.head(*head) for head in heads])
    second = AttentionTrace(stack("self", [shuffled], "abcdefg", "abcdefg"), "other")
    nearest = {(item.layer, item.head): item for item in Aligned.of(first, second).changes(False)}
    assert (
        [nearest[head].to for head in heads] == [(0, i) for i in range(5)]
        and nearest[1, 0].moved == 0
        and nearest[0, 0].moved > 0.1
    )
    assert not Aligned.of(first, second).same_shape
    # Of 65 rows all but the one in the middle are compared
    tokens, weights = printable[:65], np.eye(65, dtype=np.float32)[np.zeros((2, 65), int)]
    weights[1, [0, 32]] = np.eye(65)[1]
    pair = [AttentionTrace(stack("self", [one[None]], tokens, tokens), "") for one in weights]
    assert Aligned.of(*pair).changes(False)[0].moved == 1 / 64


def test_equal_maps_move_no_weight():
    # In float32 a row's sum depends on its order in memory, and a share of −5e−9 is none.
    first = trace(printable[:50], layers=2, heads=4)
    changes = Aligned.of(first, replace(first, source="again")).changes(True)
    assert {(item.moved, item.difference) for item in changes} == {(0.0, 0.0)}


def test_only_rows_that_both_have_are_measured():
    # The second text has a word more, on which nobody looks and which counts for nothing.
    first = trace("abcd", layers=1, heads=2)
    wide = place_on_grid(first.map(0).weights[0], [0, 1, None, 2, 3], [0, 1, None, 2, 3])
    wide[2] = 0.2
    wider = AttentionTrace(stack("self", [np.stack([wide, wide])], "abxcd", "abxcd"), "wider")
    aligned = Aligned.of(first, wider)
    assert aligned.keys == aligned.queries == ["a", "b", "– / x", "c", "d"]
    same, other = sorted(aligned.changes(True), key=lambda item: item.head)
    moved = np.maximum(np.subtract(*first.map(0).weights), 0).sum(-1).mean()
    assert (same.moved, same.difference, other.moved) == pytest.approx((0, 0, moved), abs=1e-6)
    weights, allowed = aligned.on_grid(0, 0, 0)
    assert allowed.tolist()[2] == [False] * 5 and not weights[:, 2].any()


def test_what_may_not_be_attended_to_stays_so():
    weights, mask = np.tril(np.ones((1, 3, 3), np.float32)) / 3, np.tri(3, dtype=bool)
    causal = AttentionMap("causal", 0, weights, (*"abc",), (*"abc",), mask[None])
    aligned = Aligned.of(*[AttentionTrace((causal,), "causal")] * 2)
    np.testing.assert_array_equal(aligned.on_grid(1, 0, 0)[1], mask)


# Two heads agree in half of the first row and in all of the second; the third looks elsewhere.
HEADS = np.array([[[0.5, 0.5, 0], [0, 1, 0]], [[0, 0.5, 0.5], [0, 1, 0]], [[0, 0, 1], [1, 0, 0]]])
# Â = ½A + ½I is [[1, 0], [.5, .5]] and [[.5, .5], [0, 1]]; the first row of the second layer looks away, so it gets ½ of
# what each place had. Flow from b to a: ½ through b's own place; from a to a: ½ down each side, of which b's side lets
# ½ through.
TWO = AttentionTrace(
    stack("self", [np.array([[[1.0, 0], [1, 0]]]), np.array([[[0, 1.0], [0, 1]]])], "ab", "ab"), ""
)
SUNK = np.array([[[0.2, 0.0, 0.8], [0.1, 0.1, 0.8]]])
CROSSED = [
    AttentionTrace(stack("cross", [np.array(rows)], "ab", "xyz"), "")
    for rows in ([[[1.0, 0, 0], [0.5, 0.5, 0]]], [[[0.25, 0.75, 0], [0, 0.5, 0.5]]])
]
MIXED = ["It", "was", "too", "tired", "."], ["it", "was", "wide", "."]
SHIFTED = AttentionTrace(
    stack("self", [np.eye(4)[np.clip(np.add.outer(heads, np.arange(4)), 0, 3)]
                   for heads in ((1, 0), (0, -1))], "abcd", "abcd"), "")  # fmt: skip
SEEN = MapTransform(
    map_transform.hide_tokens(((0,), (1, 2), (3,)), (True, False, False, False)), ((2,), (0, 1))
)


@each(("found", "expected"), [
    (analysis.entropy(HEADS[:1]), [[np.log(2), 0]]),
    ([analysis.breadth(one)[0] for one in (np.full((1, 1, 2), 0.5), np.ones((1, 1, 1)), HEADS[:1])],
     [1, 0, np.log(2) / 2 / np.log(3)]),
    (analysis.mean_distance(HEADS[:1]), [0.25]),  # half of the first row is one away
    (analysis.overlap(HEADS), [[1, 0.75, 0], [0.75, 1, 0.25], [0, 0.25, 1]]),
    (analysis.strongest(SHIFTED, analysis.previous_token), (1, 1, 1)),
    (rollout(graph(TWO, "self", 0)), [[1, 0], [0.5, 0.5]]),
    (rollout(graph(TWO, "self", 1)), [[0.75, 0.25], [0.5, 0.5]]),
    (flows(graph(TWO, "self", 1)), [[1, 0.5], [0.5, 0.5]]),
    # A sink carries nothing on.
    (rollout(graph(AttentionTrace((AttentionMap("causal", 0, SUNK, ("a", "b"), ("a", "b", "sink")),), ""), "causal", 0)),
     [[1, 0], [0.1 / 1.2, 1.1 / 1.2]]),
    # What moved is the total variation between the rows.
    ([(one.moved, one.difference) for pair in (CROSSED, CROSSED[:1] * 2) for one in changes(*pair)],
     [(0.625, 1.25 / 3), (0, 0)]),
])  # fmt: skip
def test_a_figure_is_that_by_hand(found, expected):
    np.testing.assert_allclose(found, expected, atol=1e-8)


def test_similar_heads_are_those_by_hand():
    # of two layers: the second has the first head again, and one that shares a quarter of each row's weight
    other = np.stack([HEADS[0], [[0.25, 0, 0.75], [0, 0.25, 0.75]]])
    trace = AttentionTrace(stack("self", [HEADS, other], "ab", "xyz"), "")
    heads, shares = zip(*analysis.similar_heads(trace, (0, 0)), strict=True)
    assert heads == ((1, 0), (0, 1), (1, 1), (0, 2))
    np.testing.assert_allclose(shares, [1, 0.75, 0.25, 0], atol=1e-6)
    assert analysis.similar_heads(AttentionTrace(trace.maps[:1], ""), (0, 1))[0][0] == (0, 0)


def test_similar_heads_have_maps_of_the_same_size():
    maps = [*stack("self", [np.full((2, 100, 100), 0.01)], "a" * 100, "a" * 100)]
    maps += stack("self", [np.ones((1, 2, 1))], "ab", "x")
    ((head, share),) = analysis.similar_heads(AttentionTrace(tuple(maps), ""), (0, 0))
    assert head == (0, 1) and share == pytest.approx(1), "of 64 rows, not summed over all"
    assert not analysis.similar_heads(AttentionTrace(tuple(maps), ""), (1, 0))


def test_queries_are_joined_by_hand():
    mean, both = (analysis.join_queries(HEADS, [0, 1], how) for how in ("mean", "sum"))
    np.testing.assert_allclose(mean[:2], [[0.25, 0.75, 0], [0, 0.75, 0.25]])
    np.testing.assert_allclose(both, 2 * mean)
    np.testing.assert_array_equal(analysis.join_queries(HEADS, [1]), HEADS[:, 1])
    for queries in ([], [2], [-1]):
        with pytest.raises(ValueError, match="expected at least one of 0 to 1"):
            analysis.join_queries(HEADS, queries)


@each(("found", "expected"), [
    # A word put in is nobody's, in long lines, too; one put for another stands beside it.
    (align(["the", "cat", "sat", "."], ["the", "black", "cat", "sat", "."]), ((0, 0), (None, 1), (1, 2), (2, 3), (3, 4))),
    (align(["x", *200 * ["a"]], 200 * ["a"])[0], (0, None)),
    (names(*MIXED, align(*MIXED)), ["It", "was", "too / wide", "tired / –", "."]),
    # A cell is found through the lens and back; groups are ordered by value, and equals keep their order.
    (map_transform.group_by_word((None, 0, 0, 1)), ((0,), (1, 2), (3,))),
    ([SEEN.shown_cell((2, 1)), SEEN.shown_cell((0, 1)), SEEN.source_cell((0, 1))], [(0, 1), None, (1, 0)]),
    (map_transform.sort_groups(((0,), (1, 2), (3,)), [0.2, 0.2, 0.6]), ((3,), (0,), (1, 2))),
])  # fmt: skip
def test_tokens_are_aligned_and_grouped_as_by_hand(found, expected):
    assert found == expected


# Signed weights, and those of layers without softmax, count by the share of their size in the row.


SIGNED = np.array([[[0.0, 0.0, 0.0], [0.5, -1.5, 0.0], [2.0, 1.0, -1.0]]], np.float32)


def state_map(weights, state="a gated delta rule", layer=0):
    names = tuple("abc")
    return AttentionMap("causal", layer, weights, names, names, np.tri(3) > 0, state=state)


def test_shares_of_signed_rows_are_by_size():
    expected = np.array([[[0, 0, 0], [0.25, 0.75, 0], [0.5, 0.25, 0.25]]])
    for state in ("", "a gated delta rule"):
        np.testing.assert_allclose(state_map(SIGNED, state).shares, expected, rtol=1e-4)
    # Rows of attention stay as they are, those with a sink too; rows of a state layer never sum to anything else.
    half = np.full((1, 3, 3), 0.1, np.float32)
    np.testing.assert_array_equal(state_map(half, "").shares, half)
    np.testing.assert_allclose(state_map(half).shares.sum(-1), 1, rtol=1e-4)


def test_figures_of_signed_maps_are_those_of_their_shares():
    item = state_map(SIGNED)
    ln = np.log
    by_hand = [[0, -0.25 * ln(0.25) - 0.75 * ln(0.75), 0.5 * ln(2) + 0.5 * ln(4)]]
    np.testing.assert_allclose(analysis.entropy(item.shares), by_hand, rtol=1e-4)
    trace = AttentionTrace((item, state_map(SIGNED * 3, layer=1), state_map(-SIGNED, "", 2)), "")
    # The same shares, whatever the scale and the sign of a row
    assert [one for one, _ in analysis.similar_heads(trace, (0, 0))] == [(1, 0), (2, 0)]
    for _, share in analysis.similar_heads(trace, (0, 0)):
        assert share == pytest.approx(2 / 3, rel=1e-4)  # a row of zeros has nothing in common
    _, _, previous = analysis.strongest(trace.of("causal"), analysis.previous_token)
    assert previous == pytest.approx((0.25 + 0.25) / 2, rel=1e-4)
    joined = analysis.join_queries(SIGNED, [1, 2], "sum")
    np.testing.assert_allclose(joined, [[2.5, -0.5, -1.0]], rtol=1e-4)  # with their signs


def test_rollout_and_flow_of_signed_maps_pass_shares_on():
    steps = graph(
        AttentionTrace((state_map(SIGNED), state_map(5 * SIGNED, layer=1)), ""), "causal", 1
    )
    for step in steps:  # half of the residual, but for the row of zeros, which is residual alone
        expected = np.array([[1, 0, 0], [0.125, 0.875, 0], [0.25, 0.125, 0.625]])
        np.testing.assert_allclose(step, expected, rtol=1e-4)
    np.testing.assert_allclose(rollout(steps).sum(-1), 1, rtol=1e-4)
    assert (rollout(steps) >= 0).all()
    np.testing.assert_allclose(flow(steps, 2), [0.625, 0.25, 0.625], rtol=1e-4)


def test_hidden_keys_leave_signed_rows_as_they_are():
    keep = MapTransform(((0,), (1,), (2,)), ((1,), (2,)))
    shown = map_transform.transform_map(state_map(SIGNED), keep).weights
    np.testing.assert_allclose(shown, SIGNED[..., 1:], rtol=1e-4)
