"""Attention over several layers: rollout and flow through the graph of the layers. Abnar & Zuidema 2020.

A step of the graph is a matrix (to, from): half attention, the mean of the heads, and half identity, the residual
(section 3 of the paper, arXiv 2005.00928). An encoder–decoder, which the paper does not cover, is one graph, whose
steps have the encoder's positions and the decoder's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from core.trace import AttentionMap, AttentionTrace, Kind

Step = Float[np.ndarray, "to from"]
UNITS = 2**29  # capacities are whole numbers there: each is exact to 1e-9


@dataclass(frozen=True, eq=False)
class Graph:
    """The steps from the input to one layer, and the positions of the map's rows and columns."""

    steps: tuple[np.ndarray, ...]
    rows: slice
    columns: slice


def graph(trace: AttentionTrace, kind: Kind, layer: int) -> Graph:
    """The graph from the input to a layer of that kind; for cross-attention with the whole encoder.

    ValueError when the trace has no such layer.
    """
    stack = [item for item in trace.of(kind).maps if item.layer <= layer]
    if not stack or stack[-1].layer != layer:
        raise ValueError(f"the trace has no {kind}-attention of layer {layer}")
    if kind != "cross":
        return Graph(tuple(_own(item) for item in stack), slice(None), slice(None))
    size, others = len(stack[0].keys), len(stack[0].queries)
    steps = [_beside(_own(item), np.eye(others)) for item in trace.of("self").maps]
    causal = {item.layer: item for item in trace.of("causal").maps}
    for item in stack:
        if item.layer in causal:
            steps.append(_beside(np.eye(size), _own(causal[item.layer])))
        steps.append(_cross(item))
    return Graph(tuple(steps), slice(size, None), slice(None, size))


def rollout(layer_graph: Graph) -> Float[np.ndarray, "T S"]:
    """The share of each row's state that comes from each column: the product of the steps (equation 1)."""
    reached = np.eye(layer_graph.steps[0].shape[1])
    for step in layer_graph.steps:
        reached = step @ reached
    return reached[layer_graph.rows, layer_graph.columns]


def flow(layer_graph: Graph, row: int) -> Float[np.ndarray, " S"]:
    """The maximum flow from each column to one row, with weights as capacities (section 3.2)."""
    from scipy.sparse.csgraph import maximum_flow

    edges, places = _network(layer_graph), layer_graph.steps[-1].shape[0]
    source = len(layer_graph.steps) * places + range(places)[layer_graph.rows][row]
    sinks = range(places)[layer_graph.columns]
    return np.array([maximum_flow(edges, source, sink).flow_value / UNITS for sink in sinks])


def flows(layer_graph: Graph) -> Float[np.ndarray, "T S"]:
    """The flow of every row."""
    rows = range(layer_graph.steps[-1].shape[0])[layer_graph.rows]
    return np.stack([flow(layer_graph, row) for row in range(len(rows))])


def _network(layer_graph: Graph):  # type: ignore[no-untyped-def]
    """The steps as one network from the last step's positions down to the input's, with one capacity per edge."""
    from scipy.sparse import coo_array

    size = layer_graph.steps[0].shape[0]
    rows, columns, capacities = [], [], []
    for at, step in enumerate(layer_graph.steps):
        to, come = np.nonzero(step)
        rows.append((at + 1) * size + to)
        columns.append(at * size + come)
        capacities.append(np.rint(step[to, come] * UNITS).astype(np.int32))
    joined = [np.concatenate(part) for part in (rows, columns)]
    nodes = (len(layer_graph.steps) + 1) * size
    return coo_array(
        (np.concatenate(capacities), (joined[0], joined[1])), shape=(nodes, nodes)
    ).tocsr()


def _own(item: AttentionMap) -> Step:
    """The step of self-attention: half attention, half residual, each row summing to one.

    Keys after the positions themselves (a sink) pass nothing on, so they are left out.
    """
    size = len(item.queries)
    return _shared(np.abs(item.weights[:, :, :size]).mean(0, dtype=np.float64) + np.eye(size))


def _cross(item: AttentionMap) -> Step:
    """The step of cross-attention, from the decoder's positions to the encoder's."""
    size, others = len(item.keys), len(item.queries)
    low = np.concatenate([np.abs(item.weights).mean(0, dtype=np.float64), np.eye(others)], 1)
    return np.concatenate([np.eye(size, size + others), _shared(low)])


def _beside(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    step = np.zeros((len(first) + len(second),) * 2)
    step[: len(first), : len(first)] = first
    step[len(first) :, len(first) :] = second
    return step


def _shared(step: np.ndarray) -> np.ndarray:
    return step / step.sum(-1, keepdims=True)


def total(steps: Sequence[np.ndarray]) -> int:
    """The number of edges of a graph."""
    return int(sum(np.count_nonzero(step) for step in steps))
