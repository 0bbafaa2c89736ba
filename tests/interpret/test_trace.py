"""Whether a head looks at the token that is said next: worked by hand, and on the lab's own models."""

import networkx
import numpy as np
import pytest
from hypothesis import given, strategies as st

from core.interpret import trace as analysis
from core.interpret.trace import (
    AttentionMap,
    AttentionTrace,
    Graph,
    Kind,
    count_eligible_steps,
    flow,
    flows,
    graph,
    induction_score,
    most_informative_head,
    rollout,
    uniform_induction_score,
)
from core.models.decoding import SearchSettings
from core.pretrained import ModelInputs, load_lab_model
from core.pretrained.generate import generate, prepare_generation, score_continuation
from tests.cases import each
from tests.interpret.readings import softmax

# The trace refuses tokens that do not fit its weights, and tells kinds apart.


def test_maps_are_told_apart_by_kind():
    one = AttentionMap("self", 0, np.ones((2, 1, 1), np.float32), ("a",), ("a",))
    other = AttentionMap("cross", 1, np.ones((4, 1, 1), np.float32), ("b",), ("a",))
    trace = AttentionTrace((one, other), "test")
    assert trace.kinds == ("self", "cross")
    assert trace.of("cross").maps == (other,)
    assert trace.shape == (2, 4)


# Every figure of a head, against maps whose answer is known by hand.


SCORES = (analysis.previous_token, analysis.breadth)


def shifted(size: int, by: int) -> np.ndarray:
    """All weight `by` places on, as far as there is one, else on itself."""
    target = np.clip(np.arange(size) + by, 0, size - 1)
    return np.eye(size, dtype=np.float32)[target]


def test_entropy_and_distance_by_hand():
    weights = np.array([[[0.5, 0.5, 0.0], [0.0, 1.0, 0.0]]], np.float32)
    np.testing.assert_allclose(analysis.entropy(weights), [[np.log(2), 0.0]], rtol=1e-6)
    np.testing.assert_allclose(
        analysis.mean_distance(weights), [0.25]
    )  # row 0: half of it one away


def test_overlap_by_hand():
    """Two heads agree in half of the first row and in all of the second; the third looks elsewhere."""
    weights = np.array(
        [[[0.5, 0.5, 0], [0, 1, 0]], [[0, 0.5, 0.5], [0, 1, 0]], [[0, 0, 1], [1, 0, 0]]], np.float32
    )
    np.testing.assert_allclose(
        analysis.overlap(weights), [[1, 0.75, 0], [0.75, 1, 0.25], [0, 0.25, 1]]
    )


@given(st.integers(1, 9), st.integers(1, 4), st.integers(0, 2**31))
def test_bounds_hold_for_any_weights(size, heads, seed):
    scores = np.random.default_rng(seed).normal(0, 3, (heads, size, size))
    for score in SCORES:
        value = score(softmax(scores))
        assert value.shape == (heads,)
        assert (value >= -1e-9).all() and (value <= 1 + 1e-9).all()


def test_strongest_names_layer_and_head():
    def item(layer, *heads):
        return AttentionMap("self", layer, np.stack(heads), tuple("abcd"), tuple("abcd"))

    trace = AttentionTrace(
        (item(0, shifted(4, 1), shifted(4, 0)), item(1, shifted(4, 0), shifted(4, -1))), "test"
    )
    assert analysis.strongest(trace, analysis.previous_token) == (1, 1, pytest.approx(1.0))


# Rollout by hand, flow against networkx, and both against what must hold for any attention.


def uneven(
    rng: np.random.Generator, heads: int, rows: int, columns: int, causal: bool = False
) -> np.ndarray:
    scores = rng.normal(0, 2, (heads, rows, columns))
    scores[:, ~np.tri(rows, columns, dtype=bool)] = -np.inf if causal else 0
    return softmax(scores).astype(np.float32)


def stack(
    kind: Kind, layers: list[np.ndarray], rows: str, columns: str
) -> tuple[AttentionMap, ...]:
    return tuple(
        AttentionMap(kind, layer, one, tuple(rows), tuple(columns))
        for layer, one in enumerate(layers)
    )


def translator(seed: int = 0) -> AttentionTrace:
    """Two layers of encoder over five tokens, two of decoder over three."""
    rng = np.random.default_rng(seed)
    return AttentionTrace(
        (
            *stack("self", [uneven(rng, 2, 5, 5) for _ in range(2)], "vwxyz", "vwxyz"),
            *stack("causal", [uneven(rng, 2, 3, 3, True) for _ in range(2)], "abc", "abc"),
            *stack("cross", [uneven(rng, 2, 3, 5) for _ in range(2)], "abc", "vwxyz"),
        ),
        "test",
    )


def largest_by_networkx(flow_graph: Graph, row: int, column: int) -> float:
    """The same flow by another library: nodes (step, place), from the top down."""
    network = networkx.DiGraph()
    for at, step in enumerate(flow_graph.steps):
        for to, come in zip(*np.nonzero(step), strict=True):
            network.add_edge((at + 1, int(to)), (at, int(come)), capacity=float(step[to, come]))
    places = range(len(flow_graph.steps[-1]))
    source, sink = (
        (len(flow_graph.steps), places[flow_graph.rows][row]),
        (0, places[flow_graph.columns][column]),
    )
    if not (network.has_node(source) and network.has_node(sink)):
        return 0.0
    return networkx.maximum_flow_value(network, source, sink)


def test_rollout_and_flow_of_two_layers_by_hand():
    """Â = ½A + ½I; the first row of the second layer looks away, so it gets ½ of what each place had.

    Flow from b to a: ½ through b's own place; from a to a: ½ down each side, of which b's side lets ½ through.
    """
    first = np.array([[[1.0, 0.0], [1.0, 0.0]]], np.float32)  # Â = [[1, 0], [.5, .5]]
    second = np.array([[[0.0, 1.0], [0.0, 1.0]]], np.float32)  # Â = [[.5, .5], [0, 1]]
    trace = AttentionTrace(stack("self", [first, second], "ab", "ab"), "test")
    np.testing.assert_allclose(rollout(graph(trace, "self", 0)), [[1.0, 0.0], [0.5, 0.5]])
    np.testing.assert_allclose(rollout(graph(trace, "self", 1)), [[0.75, 0.25], [0.5, 0.5]])
    np.testing.assert_allclose(flows(graph(trace, "self", 1)), [[1.0, 0.5], [0.5, 0.5]], atol=1e-8)


@each("seed", range(4))
def test_flow_is_networkx_maximum_flow(seed):
    rng = np.random.default_rng(seed)
    layers = [uneven(rng, 3, 7, 7, causal=bool(seed % 2)) for _ in range(3)]
    flow_graph = graph(
        AttentionTrace(stack("self", layers, "abcdefg", "abcdefg"), "test"), "self", 2
    )
    for row in (0, 4, 6):
        expected = [largest_by_networkx(flow_graph, row, column) for column in range(7)]
        np.testing.assert_allclose(flow(flow_graph, row), expected, atol=1e-6)


@each("layer", [0, 1])
def test_flow_from_decoder_to_encoder_is_networkx_maximum_flow(layer):
    flow_graph = graph(translator(), "cross", layer)
    got = flows(flow_graph)
    assert got.shape == (3, 5)
    largest = [[largest_by_networkx(flow_graph, i, j) for j in range(5)] for i in range(3)]
    np.testing.assert_allclose(got, largest, atol=1e-6)


def test_what_a_decoder_owes_to_its_source_is_the_product_by_hand():
    """One layer each, without heads that differ: cross · encoder, halved by the decoder's own residual."""
    rng = np.random.default_rng(3)
    own, back, over = uneven(rng, 1, 5, 5), uneven(rng, 1, 3, 3, True), uneven(rng, 1, 3, 5)
    trace = AttentionTrace(
        (
            *stack("self", [own], "vwxyz", "vwxyz"),
            *stack("causal", [back], "abc", "abc"),
            *stack("cross", [over], "abc", "vwxyz"),
        ),
        "test",
    )
    flow_graph = graph(trace, "cross", 0)
    expected = 0.5 * over[0] @ (0.5 * own[0] + 0.5 * np.eye(5))
    np.testing.assert_allclose(rollout(flow_graph), expected, atol=1e-6)
    whole = (
        np.linalg.multi_dot(flow_graph.steps[::-1])
        if len(flow_graph.steps) > 1
        else flow_graph.steps[0]
    )
    np.testing.assert_allclose(whole.sum(-1), 1.0)


def test_a_sink_carries_nothing_on():
    weights = np.array([[[0.2, 0.0, 0.8], [0.1, 0.1, 0.8]]], np.float32)
    trace = AttentionTrace(
        (AttentionMap("causal", 0, weights, ("a", "b"), ("a", "b", "sink")),), "test"
    )
    np.testing.assert_allclose(
        rollout(graph(trace, "causal", 0)), [[1.0, 0.0], [0.1 / 1.2, 1.1 / 1.2]], rtol=1e-6
    )


def test_tokens_that_do_not_fit_and_a_layer_that_is_not_there_are_refused():
    with pytest.raises(ValueError, match="3 queries, 2 keys"):
        AttentionMap("self", 0, np.zeros((1, 2, 3), np.float32), ("a", "b", "c"), ("x", "y"))
    with pytest.raises(ValueError, match="no cross-attention of layer 5"):
        graph(translator(), "cross", 5)


@given(st.integers(2, 6), st.integers(1, 4), st.integers(0, 2**31))
def test_what_holds_for_any_attention(size, depth, seed):
    rng = np.random.default_rng(seed)
    tokens = "abcdef"[:size]
    trace = AttentionTrace(
        stack("self", [uneven(rng, 2, size, size) for _ in range(depth)], tokens, tokens), "test"
    )
    flow_graph = graph(trace, "self", depth - 1)
    shares, most = rollout(flow_graph), flows(flow_graph)
    np.testing.assert_allclose(shares.sum(-1), 1.0)
    assert (most >= shares - 1e-6).all(), (
        "what one way of sending carries, the best way carries too"
    )
    assert (most <= 1 + 1e-6).all()


KEYS, TOKENS = (
    (7, 8, 9, 8),
    (8, 5, 9),
)  # the first step can look back at 8, the second at nothing, the third at 9


def item(layer=0, fill=None, kind="causal"):
    rows = [[0.25, 0.75, 0, 0], [0, 0, 1, 0], [0, 0.5, 0.5, 0]] if fill is None else fill
    weights = np.array([[[1, 0, 0, 0]] * 3, rows], dtype=np.float32)
    mask = np.tril(np.ones((3, 4), dtype=bool), 1)[None]
    return AttentionMap(
        kind,
        layer,
        weights,
        ("a", "b", "c"),
        ("p", "q", "r", "s"),
        mask if kind == "causal" else None,
    )


def test_the_weight_on_the_token_that_is_said_is_a_mean_over_the_steps_that_can():
    assert induction_score(item(), KEYS, TOKENS) == pytest.approx([0, (0.75 + 0.5) / 2])
    assert uniform_induction_score(item(), KEYS, TOKENS) == pytest.approx((1 / 2 + 1 / 4) / 2)
    assert (
        item().visible[0].sum(-1).tolist() == [2, 3, 4]
        and count_eligible_steps(item(), KEYS, TOKENS) == 2
    )
    assert (
        induction_score(item(), KEYS, (1, 2, 3)) is None
        and uniform_induction_score(item(), KEYS, (1, 2, 3)) == 0
    )


def test_the_telling_head_copies_or_else_is_the_sharpest_off_the_first_place():
    blunt = item(1, [[0.5, 0.5, 0, 0], [0.4, 0.3, 0.3, 0], [0.25] * 4])
    trace = AttentionTrace((blunt, item()), "made")
    assert most_informative_head(trace, KEYS, TOKENS) == (1, 1)
    assert most_informative_head(trace, (1, 1, 1, 1), (2, 3, 4)) == (1, 1), (
        "never head 0, which rests on the first place"
    )
    crossed = AttentionTrace((item(kind="cross"),), "made")
    assert most_informative_head(crossed, KEYS, TOKENS) == (0, 0), (
        "the first place of a source is as good as any"
    )


def test_the_lab_s_language_model_copies_far_above_even_and_its_first_layer_does_not():
    model = load_lab_model("induction")
    given = ModelInputs("her red boat sank near the long blue lake . her red boat")
    started = prepare_generation(model, given)
    tokens = generate(model, given, SearchSettings(longest=10)).hypotheses[0].tokens
    trace = score_continuation(model, started, tokens).trace
    keys = (*started.read.ids, *tokens[:-1])
    below, above = (float(induction_score(one, keys, tokens).max()) for one in trace.maps)
    assert above > 0.5 > below and above > 4 * uniform_induction_score(trace.map(1), keys, tokens)
