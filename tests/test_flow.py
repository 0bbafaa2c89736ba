"""Rollout by hand, flow against networkx, and both against what must hold for any attention."""

import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.interpret.trace import (
    AttentionMap,
    AttentionTrace,
    Graph,
    Kind,
    flow,
    flows,
    graph,
    rollout,
)
from tests.cases import each


def uneven(
    rng: np.random.Generator, heads: int, rows: int, columns: int, causal: bool = False
) -> np.ndarray:
    scores = rng.normal(0, 2, (heads, rows, columns))
    scores[:, ~np.tri(rows, columns, dtype=bool)] = -np.inf if causal else 0
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True)).astype(np.float32)


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


def test_rollout_of_two_layers_by_hand():
    """Â = ½A + ½I; the first row of the second layer looks away, so it gets ½ of what each place had."""
    first = np.array([[[1.0, 0.0], [1.0, 0.0]]], np.float32)  # Â = [[1, 0], [.5, .5]]
    second = np.array([[[0.0, 1.0], [0.0, 1.0]]], np.float32)  # Â = [[.5, .5], [0, 1]]
    trace = AttentionTrace(stack("self", [first, second], "ab", "ab"), "test")
    np.testing.assert_allclose(rollout(graph(trace, "self", 0)), [[1.0, 0.0], [0.5, 0.5]])
    np.testing.assert_allclose(rollout(graph(trace, "self", 1)), [[0.75, 0.25], [0.5, 0.5]])


def test_flow_of_two_layers_by_hand():
    """From b to a: ½ through b's own place; from a to a: ½ down each side, of which b's side lets ½ through."""
    first = np.array([[[1.0, 0.0], [1.0, 0.0]]], np.float32)
    second = np.array([[[0.0, 1.0], [0.0, 1.0]]], np.float32)
    trace = AttentionTrace(stack("self", [first, second], "ab", "ab"), "test")
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


def test_a_layer_that_is_not_there_is_refused():
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
