"""The transformed maps of a reading, and the head and row with which the page starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from core.interpret import map_transform
from core.interpret.map_transform import MapTransform, token_transform
from core.interpret.trace import AttentionMap, AttentionTrace, Kind
from core.pretrained import Line, ModelInputs
from core.pretrained.maps import sink_line, with_sink
from dashboard.draw.attention_view import Patches
from dashboard.server.cache import shared
from dashboard.views.pretrained.controls import Controls, Order
from dashboard.widgets.model_picker import ModelRef, reading_of

Pair = tuple[int, int]

MOST_ROWS = 24  # of a long text, searched for the most telling row
COREFERENCE = (3, 1)  # the head of the embedded model that links "it" to "animal"
NEAR = 2  # positions: a weight on a neighbour is no news


@dataclass(frozen=True, eq=False)
class TraceView:
    """The transformed trace of one kind, and the lines of its tokens before the transform."""

    trace: AttentionTrace
    transform: MapTransform
    rows: Line
    columns: Line

    @property
    def hides(self) -> bool:
        """Whether some keys are hidden, so that rows were divided by what is left."""
        return sum(map(len, self.transform.columns)) < len(self.columns)

    def ordinary(self) -> tuple[np.ndarray, np.ndarray]:
        """Which rows and columns hold a token that is not special."""
        return tuple(
            np.array([not all(line.special[index] for index in group) for group in groups])
            for line, groups in (
                (self.rows, self.transform.rows),
                (self.columns, self.transform.columns),
            )
        )  # type: ignore[return-value]


def view_of(ref: ModelRef, inputs: ModelInputs, controls: Controls) -> TraceView:
    """The maps of a reading as the controls transform them; shared, since they are as large as the maps."""
    reading = reading_of(ref, inputs)
    rows, columns = reading.lines(controls.kind)
    columns = sink_line(columns) if reading.sinks else columns
    trace = of_kind(ref, inputs, controls.kind)
    transform = transform_of(trace, rows, columns, controls)
    if transform.changes(trace.maps[0]):
        trace = shared(_through, ref, inputs, controls.kind, transform)
    return TraceView(trace, transform, rows, columns)


def of_kind(ref: ModelRef, inputs: ModelInputs, kind: Kind) -> AttentionTrace:
    """The reading's maps of one kind, with a sink's column; the same object each time, as caches hash it."""
    reading = reading_of(ref, inputs)
    if reading.trace.kinds == (kind,) and not reading.sinks:
        return reading.trace
    return shared(_of_kind, ref, inputs, kind)


def _of_kind(ref: ModelRef, inputs: ModelInputs, kind: Kind) -> AttentionTrace:
    reading = reading_of(ref, inputs)
    trace = reading.trace.of(kind)
    return with_sink(trace) if reading.sinks else trace


def _through(
    ref: ModelRef, inputs: ModelInputs, kind: Kind, transform: MapTransform
) -> AttentionTrace:
    return map_transform.transform_trace(of_kind(ref, inputs, kind), transform)


def transform_of(
    trace: AttentionTrace, rows: Line, columns: Line, controls: Controls
) -> MapTransform:
    """The map transform of the controls."""
    return token_transform(
        trace,
        rows,
        columns,
        words=controls.words,
        special=controls.special,
        sinks=controls.sinks,
        sentences=controls.sentences,
    )


def in_order(view: TraceView, layer: int, head: int, order: Order, pin: Pair | None) -> TraceView:
    """The same, the picked layer's map sorted; `pin` is the cell by whose row and column it is sorted."""
    if order == "text":
        return view
    item = view.trace.map(layer)
    weights = item.weights[head]
    down, across = (
        map_transform.single_tokens(len(weights)),
        map_transform.single_tokens(weights.shape[1]),
    )
    if order in ("keys", "both"):
        across = map_transform.sort_groups(
            across, weights[pin[0]] if pin else map_transform.received_weight(item)[head]
        )
    if order in ("queries", "both"):
        down = map_transform.sort_groups(down, weights[:, pin[1]] if pin else weights.max(-1))
    maps = list(view.trace.maps)
    maps[layer] = map_transform.transform_map(item, MapTransform(down, across))
    ranked = MapTransform(
        tuple(view.transform.rows[row] for (row,) in down),
        tuple(view.transform.columns[key] for (key,) in across),
    )
    return TraceView(
        AttentionTrace(tuple(maps), view.trace.source), ranked, view.rows, view.columns
    )


def default_row(view: TraceView, layer: int, head: int) -> tuple[int, float]:
    """The row to read first, and its reason: most weight on one ordinary key that is no neighbour of the query."""
    item = view.trace.map(layer)
    rows, columns = view.ordinary()
    candidates = np.flatnonzero(rows) if rows.any() else np.arange(len(rows))
    candidates = candidates[:: -(-len(candidates) // MOST_ROWS)]
    weights = item.weights[head, candidates].copy()
    weights[:, ~columns] = -1.0
    if item.kind != "cross":
        own = np.array([group[0] for group in view.transform.rows])[candidates]
        keys = np.array([group[0] for group in view.transform.columns])
        weights[np.abs(own[:, None] - keys[None, :]) < NEAR] = -1.0
    row, _ = np.unravel_index(weights.argmax(), weights.shape)
    return int(candidates[row]), float(weights.max())


def first_head(view: TraceView, prefer: Pair | None) -> Pair:
    """The preferred head where it exists, else the one with the most telling row."""
    layers, heads = view.trace.shape
    if prefer and prefer[0] < layers and prefer[1] < heads:
        return prefer
    return max(
        (
            (layer, head)
            for layer, item in enumerate(view.trace.maps)
            for head in range(len(item.weights))
        ),
        key=lambda at: default_row(view, *at)[1],
    )


def shown_pins(view: TraceView, own: Sequence[Pair]) -> list[Pair]:
    """Pins by own tokens as cells of the transformed map, without hidden ones."""
    return [cell for pin in own if (cell := view.transform.shown_cell(pin)) is not None]


def patches_of(view: TraceView, inputs: ModelInputs) -> Patches | None:
    """The picture and its patches, where all of these are tokens of the map, in order."""
    grid = view.rows.grid
    if grid is None or inputs.picture is None:
        return None
    patches = map_transform.single_tokens(len(view.rows))[-grid[0] * grid[1] :]
    if (
        view.transform.rows[-len(patches) :] != patches
        or view.transform.columns[-len(patches) :] != patches
    ):
        return None
    if len(view.transform.rows) != len(view.transform.columns):
        return None
    return Patches(inputs.picture.numpy(), *grid, first=len(view.transform.rows) - len(patches))


def even(item: AttentionMap, row: int, head: int = 0) -> float:
    """The weight of each visible key if a row were uniform."""
    return 1 / max(1, int(item.visible[head, row].sum()))
