"""From a reading and the settings to what is drawn: the lens, the maps through it, the head and row to begin with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from core import map_transform
from core.map_transform import Groups, MapTransform
from core.pretrained import Line, ModelInputs
from core.pretrained.maps import sink_line, with_sink
from core.trace import AttentionMap, AttentionTrace, Kind
from dashboard.components.attention_view import Patches
from dashboard.runtime.cache import shared
from dashboard.views.pretrained.controls import Controls, Order
from dashboard.widgets.model_picker import ModelRef, reading_of

Pair = tuple[int, int]

MOST_ROWS = 24  # of a long text only some rows are searched for the one that tells most
NEAR = 2  # places: a weight on a neighbour is no news


@dataclass(frozen=True, eq=False)
class TraceView:
    """The trace of one kind as it is drawn, and which of its own tokens are ordinary words."""

    trace: AttentionTrace
    lens: MapTransform
    rows: Line
    columns: Line

    @property
    def hides(self) -> bool:
        """Whether some keys are hidden, so that rows were divided by what is left."""
        return sum(map(len, self.lens.columns)) < len(self.columns)

    def ordinary(self) -> tuple[np.ndarray, np.ndarray]:
        """Of the drawn rows and columns, which hold a token that is not special."""
        return tuple(np.array([not all(line.special[place] for place in group) for group in groups])
                     for line, groups in ((self.rows, self.lens.rows), (self.columns, self.lens.columns)))  # type: ignore[return-value]


def view_of(ref: ModelRef, given: ModelInputs, controls: Controls) -> TraceView:
    """What the settings leave of a reading; shared, since maps through a lens are as large as the maps."""
    reading = reading_of(ref, given)
    rows, columns = reading.lines(controls.kind)
    columns = sink_line(columns) if reading.sinks else columns
    trace = of_kind(ref, given, controls.kind)
    transform = transform_of(trace, rows, columns, controls)
    if transform.changes(trace.maps[0]):
        trace = shared(_through, ref, given, controls.kind, transform)
    return TraceView(trace, transform, rows, columns)


def of_kind(ref: ModelRef, given: ModelInputs, kind: Kind) -> AttentionTrace:
    """The reading's maps of one kind, with the sink that a model may have.

    The same object at each call, so that what is made of it is kept.
    """
    reading = reading_of(ref, given)
    return reading.trace if reading.trace.kinds == (kind,) and not reading.sinks else shared(_of_kind, ref, given, kind)


def _of_kind(ref: ModelRef, given: ModelInputs, kind: Kind) -> AttentionTrace:
    reading = reading_of(ref, given)
    trace = reading.trace.of(kind)
    return with_sink(trace) if reading.sinks else trace


def _through(ref: ModelRef, given: ModelInputs, kind: Kind, transform: MapTransform) -> AttentionTrace:
    return map_transform.transform_trace(of_kind(ref, given, kind), transform)


def transform_of(trace: AttentionTrace, rows: Line, columns: Line, controls: Controls) -> MapTransform:
    """The lens of the settings; what would leave no row or no column is not done."""
    down, across = (map_transform.group_by_word(line.word) if controls.words else map_transform.single_tokens(len(line))
                    for line in (rows, columns))
    if controls.special:
        down, across = map_transform.hide_tokens(down, rows.special), map_transform.hide_tokens(across, columns.special)
    if controls.sentences != "all":
        first, second = ("ab".index(letter) for letter in controls.sentences)
        down, across = _of_sentence(down, rows, first), _of_sentence(across, columns, second)
    if controls.sinks:
        across = map_transform.hide_tokens(across, map_transform.find_sinks(trace)) or across
    if not (down and across):
        return MapTransform.plain(len(rows), len(columns))
    return MapTransform(down, across)


def _of_sentence(groups: Groups, line: Line, segment: int) -> Groups:
    hidden = [own != segment or special for own, special in zip(line.segment, line.special, strict=True)]
    return map_transform.hide_tokens(groups, hidden)


def in_order(view_: TraceView, layer: int, head: int, order: Order, pin: Pair | None) -> TraceView:
    """The same with the picked layer's map in the order asked for; `pin` is the drawn cell by which it is ranked."""
    if order == "text":
        return view_
    item = view_.trace.map(layer)
    weights = item.weights[head]
    down, across = map_transform.single_tokens(len(weights)), map_transform.single_tokens(weights.shape[1])
    if order in ("keys", "both"):
        across = map_transform.sort_groups(across, weights[pin[0]] if pin
                                           else map_transform.received_weight(item)[head])
    if order in ("queries", "both"):
        down = map_transform.sort_groups(down, weights[:, pin[1]] if pin else weights.max(-1))
    maps = list(view_.trace.maps)
    maps[layer] = map_transform.transform_map(item, MapTransform(down, across))
    ranked = MapTransform(tuple(view_.lens.rows[row] for (row,) in down),
                          tuple(view_.lens.columns[key] for (key,) in across))
    return TraceView(AttentionTrace(tuple(maps), view_.trace.source), ranked, view_.rows, view_.columns)


def default_row(view_: TraceView, layer: int, head: int) -> tuple[int, float]:
    """The row to read first, and its reason: most weight on one ordinary key that is no neighbour of the query."""
    item = view_.trace.map(layer)
    rows, columns = view_.ordinary()
    places = _sample(np.flatnonzero(rows) if rows.any() else np.arange(len(rows)))
    weights = item.weights[head, places].copy()
    weights[:, ~columns] = -1.0
    if item.kind != "cross":
        own = np.array([group[0] for group in view_.lens.rows])[places]
        keys = np.array([group[0] for group in view_.lens.columns])
        weights[np.abs(own[:, None] - keys[None, :]) < NEAR] = -1.0
    row, _ = np.unravel_index(weights.argmax(), weights.shape)
    return int(places[row]), float(weights.max())


def _sample(places: np.ndarray) -> np.ndarray:
    return places[:: -(-len(places) // MOST_ROWS)]


def first_head(view_: TraceView, prefer: Pair | None) -> Pair:
    """The head to begin with: the preferred one where there is one, else the one with the most telling row."""
    layers, heads = view_.trace.shape
    if prefer and prefer[0] < layers and prefer[1] < heads:
        return prefer
    return max(((layer, head) for layer, item in enumerate(view_.trace.maps) for head in range(len(item.weights))),
               key=lambda at: default_row(view_, *at)[1])


def shown_pins(view_: TraceView, own: Sequence[Pair]) -> list[Pair]:
    """Own cells as drawn cells, without those that are hidden."""
    return [cell for pin in own if (cell := view_.lens.shown_cell(pin)) is not None]


def patches_of(view_: TraceView, given: ModelInputs) -> Patches | None:
    """The picture whose patches the drawn tokens are, where they are all there and in order."""
    grid = view_.rows.grid
    if grid is None or given.picture is None:
        return None
    patches = map_transform.single_tokens(len(view_.rows))[-grid[0] * grid[1]:]
    if view_.lens.rows[-len(patches):] != patches or view_.lens.columns[-len(patches):] != patches:
        return None
    if len(view_.lens.rows) != len(view_.lens.columns):
        return None
    return Patches(given.picture.numpy(), *grid, first=len(view_.lens.rows) - len(patches))


def even(item: AttentionMap, row: int, head: int = 0) -> float:
    """What each key would get if the row were spread evenly over those that it sees."""
    if item.mask is None:
        return 1 / len(item.keys)
    return 1 / max(1, int(np.broadcast_to(item.mask, item.weights.shape)[head, row].sum()))
