"""A reading's maps with tokens merged, hidden and sorted, and the head and row that are worth reading first."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from core.interpret import map_transform
from core.interpret.trace import AttentionMap, AttentionTrace, Kind
from core.pretrained import Line, Reading
from core.pretrained.reading import sink_line, with_sink

Pair = tuple[int, int]
Order = Literal["text", "keys", "queries", "both"]

MAX_ROWS = 24  # of a long text, searched for the most telling row
COREFERENCE = (3, 1)  # the head of the embedded model that links "it" to "animal"
NEAR = 2  # positions: a weight on a neighbour is no news


@dataclass(frozen=True, eq=False)
class TraceView:
    """The transformed trace of one kind, and the lines of its tokens before the transform."""

    trace: AttentionTrace
    transform: map_transform.MapTransform
    rows: Line
    columns: Line

    @property
    def hides(self) -> bool:
        """Whether some keys are hidden, so that rows were divided by what is left."""
        return sum(map(len, self.transform.columns)) < len(self.columns)

    def ordinary(self) -> tuple[np.ndarray, np.ndarray]:
        """Which rows and columns hold a token that is not special."""
        rows, columns = (
            np.array([not all(line.special[index] for index in group) for group in groups])
            for line, groups in (
                (self.rows, self.transform.rows),
                (self.columns, self.transform.columns),
            )
        )
        return rows, columns


def view_of(reading: Reading, kind: Kind, **options: Any) -> TraceView:
    """The reading's maps of one kind, with a learned sink's column, its tokens merged and hidden by `token_transform`."""
    own = reading.trace.kinds == (kind,)
    trace, (rows, columns) = reading.trace if own else reading.trace.of(kind), reading.lines(kind)
    if reading.sinks:
        trace, columns = with_sink(trace), sink_line(columns)
    transform = map_transform.token_transform(trace, rows, columns, **options)
    if transform.changes(trace.maps[0]):
        trace = map_transform.transform_trace(trace, transform)
    return TraceView(trace, transform, rows, columns)


def in_order(view: TraceView, layer: int, head: int, order: Order, pin: Pair | None) -> TraceView:
    """The same, the picked layer's map sorted; `pin` is the cell by whose row and column it is sorted."""
    if order == "text":
        return view
    item, maps = view.trace.map(layer), list(view.trace.maps)
    weights = item.weights[head]
    down, across = map(map_transform.single_tokens, weights.shape)
    if order != "queries":
        values = weights[pin[0]] if pin else map_transform.received_weight(item)[head]
        across = map_transform.sort_groups(across, values)
    if order != "keys":
        down = map_transform.sort_groups(down, weights[:, pin[1]] if pin else weights.max(-1))
    maps[layer] = map_transform.transform_map(item, map_transform.MapTransform(down, across))
    ranked = map_transform.MapTransform(
        tuple(view.transform.rows[row] for (row,) in down),
        tuple(view.transform.columns[key] for (key,) in across),
    )
    return TraceView(
        AttentionTrace(tuple(maps), view.trace.source), ranked, view.rows, view.columns
    )


def default_row(view: TraceView, layer: int, head: int) -> tuple[int, float]:
    """The row to read first, and its reason: most weight on one ordinary key that is no neighbour of the query."""
    item, (rows, columns) = view.trace.map(layer), view.ordinary()
    candidates = np.flatnonzero(rows) if rows.any() else np.arange(len(rows))
    candidates = candidates[:: -(-len(candidates) // MAX_ROWS)]
    weights = item.weights[head, candidates].copy()
    weights[:, ~columns] = -1.0
    if item.kind != "cross":
        own = np.array([view.transform.rows[row][0] for row in candidates])
        keys = np.array([group[0] for group in view.transform.columns])
        weights[np.abs(own[:, None] - keys) < NEAR] = -1.0
    row, _ = np.unravel_index(weights.argmax(), weights.shape)
    return int(candidates[row]), float(weights.max())


def first_head(view: TraceView, prefer: Pair | None) -> Pair:
    """The preferred head where it exists, else the one with the most telling row."""
    if prefer and all(one < size for one, size in zip(prefer, view.trace.shape, strict=True)):
        return prefer
    heads = (
        (layer, head)
        for layer, item in enumerate(view.trace.maps)
        for head in range(len(item.weights))
    )
    return max(heads, key=lambda at: default_row(view, *at)[1])


def shown_pins(view: TraceView, own: Sequence[Pair]) -> list[Pair]:
    """Pins by own tokens as cells of the transformed map, without hidden ones."""
    return [cell for pin in own if (cell := view.transform.shown_cell(pin)) is not None]


def even(item: AttentionMap, row: int, head: int = 0) -> float:
    """The weight of each visible key if a row were uniform."""
    return 1 / max(1, int(item.visible[head, row].sum()))
