"""Maps on canvases: any AttentionTrace as a grid of heads, one head or frames over training, and small multiples.

    pinned = multiples([Tile("Dot product", "softmax · Vaswani 2017", weights), Tile("ALiBi", "slope ¼", others, mask)],
                       tokens, key="page:maps", query=5, difference=(1, 0), fact="ALiBi looks nearer")

Multiples are several maps of the same tokens side by side, with one crosshair over all of them and over every attention
view of these tokens. Weights are blue from 0 to 1; signed tiles are purple and green around 0, and so is each layer of a
trace with negative weights (a state layer, differential attention), on a scale of its own. ``difference`` adds a
signed map of one tile minus another; ``difference_map`` draws that alone. Hover and keys stay in the browser; a pin is
returned.
"""

from __future__ import annotations

import base64
import functools
import math
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from weakref import WeakKeyDictionary

import msgspec
import numpy as np

from core.tokens import token_text
from dashboard.draw.components import add, draw, sent, store
from dashboard.draw.figures import MARKS
from dashboard.draw.formats import MINUS, number, share_text
from dashboard.draw.pictures import MapsPicture, PictureMap

if TYPE_CHECKING:  # at run time torch would come with them
    from core.interpret.trace import AttentionMap, AttentionTrace
    from core.pretrained import Array, Line

MIN_NEGATIVE = -1e-6  # what rounding leaves below zero makes no map signed
MAX_WEIGHT = 1.0005  # with what rounding adds
LIMIT = 512  # cells across and down which travel to the browser; more than that are pooled

Window: TypeAlias = tuple[int, int, int, int]  # rows [from, to), columns [from, to)
Pool: TypeAlias = Literal["mean", "max"]


def edges(start: int, stop: int, limit: int) -> np.ndarray:
    """The edges of at most ``limit`` blocks of [start, stop)."""
    count = min(stop - start, limit)
    return start + (np.arange(count + 1) * (stop - start)) // count


@dataclass(frozen=True)
class Blocks:
    """The cells of a picture as blocks of a map's tokens: n + 1 edges down, m + 1 across."""

    rows: np.ndarray
    columns: np.ndarray

    @classmethod
    def of(cls, shape: tuple[int, int], window: Window | None, limit: int = LIMIT) -> Blocks | None:
        """The blocks for a map of that shape, or for its window; None when every cell can travel as it is."""
        if window is None and max(shape) <= limit:
            return None
        top, bottom, left, right = window or (0, shape[0], 0, shape[1])
        return cls(edges(top, bottom, limit), edges(left, right, limit))

    @property
    def pooled(self) -> bool:
        return any(int(np.diff(axis).max()) > 1 for axis in (self.rows, self.columns))

    def weights(self, weights: np.ndarray, mask: np.ndarray | None, pool: Pool) -> np.ndarray:
        """The mean (or the largest) of the unmasked cells in each block of (…, T, S); 0 where all are masked."""
        values = np.asarray(self._cut(weights), dtype=np.float32)
        if pool == "max":  # of signed weights the largest by size
            values = values if mask is None else np.where(self._cut(mask), values, 0.0)
            low, high = (self._each(reduce, values) for reduce in (np.minimum, np.maximum))
            return np.where(-low > high, low, high)
        if mask is None:
            return self._each(np.add, values) / (
                np.diff(self.rows)[:, None] * np.diff(self.columns)[None, :]
            ).astype(np.float32)
        allowed = self._cut(np.broadcast_to(mask, weights.shape))
        return self._each(np.add, values * allowed) / np.maximum(
            self._each(np.add, allowed.astype(np.float32)), 1.0
        )

    def pool_mask(self, mask: np.ndarray) -> np.ndarray:
        """Which blocks of a bool mask (…, T, S) hold an unmasked cell."""
        return self._each(np.logical_or, self._cut(mask))

    def _cut(self, array: np.ndarray) -> np.ndarray:
        return array[..., self.rows[0] : self.rows[-1], self.columns[0] : self.columns[-1]]

    def _each(self, reduce: np.ufunc, values: np.ndarray) -> np.ndarray:
        down = reduce.reduceat(values, self.rows[:-1] - self.rows[0], axis=-2)
        return np.asarray(reduce.reduceat(down, self.columns[:-1] - self.columns[0], axis=-1))


# An AttentionTrace as plain values and base64 bytes for the canvas.


THUMB_PIXELS = 68  # 34 px on a screen of two device pixels each: finer than this is never seen
EXACT_CELLS = (
    65_536  # up to here every head of the layer travels as float32, so [ and ] need no rerun
)
FRAME_CELLS = 262_144  # more cells than this in all frames: one byte each
MASKED = 255  # the byte of a masked cell in a thumbnail; weights take 0 to 254

READS = dict.fromkeys(("self", "causal"), "query (row) takes from → key (column)") | {
    "cross": "output (row) takes from → input (column)",
    "sentences": "document (row) takes from → sentence (column)",
    "words": "sentence (row) takes from → word (column)",
}


def encode(array: np.ndarray) -> str:
    """An array's bytes as base64: Streamlit would send bytes in a dict as their repr."""
    return base64.b64encode(np.ascontiguousarray(array).data).decode("ascii")


def largest(values: np.ndarray) -> float:
    """The largest size of a finite number; 0 for none."""
    return float(np.abs(values[np.isfinite(values)]).max(initial=0.0))


def span(values: np.ndarray, signed: bool) -> tuple[float, float]:
    """The colour scale's ends: 0 to 1, or to a larger maximum, for weights; symmetric for signed numbers."""
    end = largest(values) or 1.0
    return (-end, end) if signed else (0.0, end if end > MAX_WEIGHT else 1.0)


def is_signed(item: Any) -> bool:
    """Whether a map has negative weights, which are drawn purple."""
    return bool(item.weights.min(initial=0.0) < MIN_NEGATIVE)


def otherwise(item: AttentionMap, head: int, row: int) -> str:
    """What a weight of a row is held against: uniform attention, or, where rows sum to anything, the mean size."""
    visible = item.visible[head, row]
    if item.state:
        mean = np.abs(item.weights[head, row][visible]).mean()
        return f"the mean size of the weights in its row is {number(mean)}"
    return f"uniform attention would take {share_text(1 / max(1, visible.sum()))} from each key"


def state_lines(trace: AttentionTrace) -> list[str]:
    """What each kind of layer without softmax is, after the names of its layers."""
    of: dict[str, list[str]] = {}
    for item in trace.maps:
        of.setdefault(item.state, []).append(item.layer_name)
    return [
        f"{', '.join(names) if len(names) < 6 else f'{names[0]}…{names[-1]} ({len(names)} layers)'}: {state}"
        for state, names in of.items()
        if state
    ]


def to_bytes(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Values in [low, high] as uint8 0 to 254 (255 means masked)."""
    scaled = (values - np.float32(low)) * np.float32(254.0 / (high - low))
    return np.clip(np.nan_to_num(scaled, posinf=254.0, neginf=0.0) + 0.5, 0, 254).astype(np.uint8)


# A pin or another head draws the page again, but pools no thumbnail again: these live as long as their trace.
_GRIDS: WeakKeyDictionary[Any, dict[bool, dict[str, Any]]] = WeakKeyDictionary()


def grid(trace: Any, signed: bool = False) -> dict[str, Any]:
    grids = _GRIDS.setdefault(trace, {})
    if signed not in grids:
        grids[signed] = thumbnails(trace.maps, signed)
    return grids[signed]


def thumbnails(maps: Sequence[Any], signed: bool = False) -> dict[str, Any]:
    """Every head of every layer as bytes of at most 68 × 68, on one shared scale but for signed layers."""
    blocks = [Blocks.of(item.weights.shape[1:], None, THUMB_PIXELS) for item in maps]
    pooled = [
        np.asarray(item.weights, dtype=np.float32)
        if each is None
        else each.weights(item.weights, None, "mean")
        for item, each in zip(maps, blocks, strict=True)
    ]
    # Signed weights, and those above 1, have a scale of their layer
    own = [
        None if signed or (end := span(small, is_signed(item))) == (0.0, 1.0) else end
        for item, small in zip(maps, pooled, strict=True)
    ]
    shared = [small.ravel() for small, end in zip(pooled, own, strict=True) if end is None]
    everything, is_pooled = np.concatenate([*shared, np.zeros(1)]), any(blocks)
    low, high = span(everything, signed)
    if is_pooled and not signed:
        # A mean over blocks of cells is far below one, so a pooled grid shares the 99.5th percentile as full ink.
        high = max(float(np.quantile(everything, 0.995)), 1e-6)
    parts = [to_bytes(small, *(end or (low, high))) for small, end in zip(pooled, own, strict=True)]
    for at, (item, each) in enumerate(zip(maps, blocks, strict=True)):
        if item.mask is not None:
            planes = _planes(item.mask, item.weights.shape)
            # a block of cells counts as masked only when all of it is
            allowed = planes if each is None else each.pool_mask(planes)
            parts[at] = np.where(allowed, parts[at], np.uint8(MASKED))
    return {
        "shapes": [list(cells.shape) for cells in parts],
        "layers": list(range(len(maps))),
        "pooled": is_pooled,
        "low": float(low),
        "high": float(high),
        "ends": own,
        "bytes": encode(np.concatenate([cells.ravel() for cells in parts])),
    }


def _planes(mask: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    # One plane where all heads share the mask: a causal mask of twelve heads need not be sent twelve times.
    shared = mask.ndim < 3 or mask.shape[0] == 1
    return np.broadcast_to(mask.astype(bool), (1, *shape[1:]) if shared else shape)


def packed(values: np.ndarray, exact: bool) -> dict[str, Any]:
    """Numbers as float32 where they are few, else as uint16 between their ends (steps of 1/65535 of the span)."""
    values = np.nan_to_num(np.asarray(values, dtype=np.float32), posinf=0, neginf=0)
    if exact:
        return {"type": "f4", "low": 0.0, "step": 1.0, "bytes": encode(values.astype("<f4"))}
    low, high = min(float(values.min(initial=0)), 0.0), max(float(values.max(initial=0)), 1.0)
    step = (high - low) / 65_535
    return {
        "type": "u2",
        "low": low,
        "step": step,
        "bytes": encode(np.rint((values - low) / step).astype("<u2")),
    }


def allowed_bits(
    mask: np.ndarray | None, shape: tuple[int, ...], heads: Sequence[int]
) -> dict[str, Any] | None:
    """The unmasked cells, one bit a cell: one plane when all heads share it, else one each."""
    if mask is None or bool(np.all(mask)):
        return None
    planes = _planes(mask, shape)
    planes = planes[list(heads)] if len(planes) > 1 else planes
    return {"planes": len(planes), "bytes": encode(np.packbits(planes.reshape(-1)))}


def one_map(
    attention: Any, head: int, blocks: Blocks | None = None, pool: Pool = "mean"
) -> dict[str, Any]:
    """The numbers of the drawn head, or of all heads of a small layer; with ``blocks`` those of the blocks."""
    weights = np.asarray(attention.weights)
    small = blocks is None and weights.size <= EXACT_CELLS
    heads = list(range(weights.shape[0])) if small else [int(head)]
    mask, ends = attention.mask, None
    values = weights if small else weights[heads]
    if blocks is not None:
        mask = None if mask is None else np.broadcast_to(mask, weights.shape)[heads]
        values = blocks.weights(values, mask, pool)
        ends = {
            "rows": blocks.rows.tolist(),
            "cols": blocks.columns.tolist(),
            "pooled": blocks.pooled,
        }
        mask = None if mask is None else blocks.pool_mask(mask)
    shape = (len(weights) if blocks is None else 1, *values.shape[1:])
    return {
        "heads": heads,
        "rows": int(values.shape[1]),
        "cols": int(values.shape[2]),
        "edges": ends,
        "values": packed(values, small or values.size <= EXACT_CELLS),
        "mask": allowed_bits(mask, shape, heads if blocks is None else [0]),
    }


def labels(attention: Any, blocks: Blocks | None) -> dict[str, list[str]]:
    """The names of the drawn rows and columns; that of a block is its token's, or its first and last token's."""
    drawn = {}
    for name, axis in (("queries", "rows"), ("keys", "columns")):
        tokens = [token_text(str(token)) for token in getattr(attention, name)]
        ends = range(len(tokens) + 1) if blocks is None else getattr(blocks, axis)
        drawn[name] = [
            tokens[start] if stop == start + 1 else f"{tokens[start]}…{tokens[stop - 1]}"
            for start, stop in pairwise(ends)
        ]
    return drawn


# The picture that a model has read, on which the view draws weights.


PATCH_PIXELS = 384  # pixels across and down that are sent


@dataclass(frozen=True, eq=False)
class Patches:
    """A picture (H, W) or (H, W, 3), uint8 or float 0 to 1, in patches row by row, from token ``first`` on.

    They are keys of the map, and where there are as many queries these too; with ``queries`` they are queries alone.
    """

    picture: np.ndarray
    rows: int
    columns: int
    first: int = 0
    queries: bool = False

    @classmethod
    def of(cls, picture: Array | None, line: Line) -> Patches | None:
        """The picture cut into the patches that the line's last tokens stand for; None where there are none."""
        if line.grid is None or picture is None:
            return None
        rows, columns = line.grid
        return cls(picture.numpy(), rows, columns, len(line) - rows * columns)

    def payload(self) -> dict[str, Any]:
        pixels = self.picture
        if pixels.dtype != np.uint8:
            pixels = np.rint(np.clip(pixels, 0, 1) * 255).astype(np.uint8)
        if pixels.ndim == 2:
            pixels = np.repeat(pixels[..., None], 3, axis=-1)
        thin = -(-max(pixels.shape[:2]) // PATCH_PIXELS)
        pixels = pixels[::thin, ::thin]
        return {
            "wide": int(pixels.shape[1]),
            "high": int(pixels.shape[0]),
            "rows": self.rows,
            "cols": self.columns,
            "first": self.first,
            "queries": self.queries,
            "bytes": encode(pixels),
        }


# The picks of a view: the page's until a person picks, then the person's.


Pair: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class ViewState:
    """The picked head, the newest pin (query, key), the frame's step (None: the last), and all pins, oldest first."""

    layer: int
    head: int
    pin: Pair | None = None
    frame: int | None = None
    pins: tuple[Pair, ...] = ()


def settle(store: MutableMapping[str, Any], name: str, field: str, page_value: Any) -> Any:
    """The value of one field: the page's when it is new, else what was last picked.

    A value that the page only returns (through its URL, say) is not new. ``store`` may be shared by several views, told
    apart by ``name``.
    """
    previous, returned = store.setdefault("previous", {}), store.setdefault("returned", {})
    if (name, field) not in previous:
        store.setdefault(field, page_value)
        # A second view joining a shared store must not undo a pick made in the first.
    elif page_value not in (previous[name, field], returned[name, field]):
        store[field] = page_value
    previous[name, field] = page_value
    returned[name, field] = store[field]
    return store[field]


def settle_pin(
    store: MutableMapping[str, Any], name: str, pin: Pair | None, shape: tuple[int, int]
) -> Pair | None:
    """The settled pin, removed where a map of that shape has no such cell."""
    pinned = settle(store, name, "pin", None if pin is None else (int(pin[0]), int(pin[1])))
    if pinned is not None and not inside([pinned], shape):
        pinned = store["pin"] = None
    return pinned


def stores(key: str, link: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """A view's own state in the session, and the state that views of the same link share (its own without one)."""
    own = store(f"{key}:view")
    return own, store(f"{link}:link") if link else own


def take(key: str, link: str | None, field: str) -> None:
    """A callback: store what the browser sent, for all views of the link if there is one."""
    message = sent(key, field)
    own, shared = stores(key, link)
    shared[field] = parse_message(field, message)
    own["turn"] = int(dict(message or {}).get("turn", 0))


def inside(pins: Iterable[Pair], shape: tuple[int, int]) -> tuple[Pair, ...]:
    """The pins within a map of that shape: one from a longer sentence is in no cell of a shorter one."""
    return tuple((i, j) for i, j in pins if 0 <= i < shape[0] and 0 <= j < shape[1])


# What the browser sends of a view, by field.
FIELDS: dict[str, Any] = {
    "pick": Pair | None,
    "pin": Pair | None,
    "pins": tuple[Pair, ...] | None,
    "frame": int | None,
    "window": Window | None,
}


def parse_message(field: str, message: Any) -> Any:
    """A message from the browser as this field's value, or None for nothing; raises ValueError on anything else."""
    value = msgspec.convert(dict(message or {}).get("value"), FIELDS[field], strict=False)
    return () if field == "pins" and value is None else value


Roles: TypeAlias = Mapping[tuple[int, int], int] | None
Film: TypeAlias = Sequence[tuple[int, np.ndarray]] | None


def attention_view(
    trace: AttentionTrace,
    *,
    key: str,
    layer: int = 0,
    head: int = 0,
    query: int | None = None,
    pin: Pair | None = None,
    pins: Sequence[Pair] | None = None,
    layout: Literal["one", "grid", "frames"] = "one",
    show: Literal["both", "matrix", "lines"] = "both",
    scale: Literal["unit", "largest", "p99.5"] = "unit",
    pool: Pool = "mean",
    threshold: float = 0.0,
    signed: bool = False,
    roles: Roles = None,
    patches: Patches | None = None,
    frames: Film = None,
    frame: int | None = None,
    live: bool = False,
    fact: str = "",
    title: str | None = None,
    reads: str | None = None,
    caption: str | None = None,
    height: int | None = None,
    thumb: int = 34,
    link: str | None = None,
    row_slider: str | None = None,
    show_choice: tuple[str, Sequence[str]] | None = None,
    pin_lists: tuple[str, str] | None = None,
) -> ViewState:
    """Draw a trace of one kind (weights (H, T, S) a layer) and return what the person has picked in it.

    ``layer``, ``head``, ``pin`` and ``frame`` are the page's values: each holds until a person picks something else,
    and again as soon as the page passes a new one. Views with the same ``link`` share one picked head.
    With ``pins``, even none, several cells may be pinned. ``query`` is the row drawn in the accent while nothing is
    pinned. Weights below ``threshold`` are not drawn, though still read. ``roles`` gives (layer, head) a category from
    0. ``patches`` is the picture whose pieces the tokens are: it takes the place of the lines. A map of more than 512
    tokens is pooled by ``pool`` until a zoom asks for its part. ``frames`` are (step, weights (T, S)) pairs, oldest
    first; ``frame`` is a step, None the last one, which is named "live" when ``live``. ``height`` caps the map,
    ``thumb`` a thumbnail of the grid, in pixels. ``fact`` is what a screen reader hears first; ``title``, ``reads`` and
    ``caption`` replace the words around the map.

    The browser follows native controls before the server answers: ``row_slider`` is the key of a slider over the
    queries, which moves ``query``; ``show_choice`` that of a segmented control, with the ``show`` of each option;
    ``pin_lists`` those of two lists whose options begin with the number of the pinned query and key.

    A layer with negative weights is drawn on the signed scale; ``signed`` says that the numbers are no weights.

    Raises ValueError when the trace has no map, the layer or head is not in it, or layout "frames" has no frame.
    """
    if layout == "frames" and not frames:
        raise ValueError('layout "frames" needs at least one (step, weights) pair in frames')
    own, shared = stores(key, link)
    state = settled(trace, key, shared, own, (int(layer), int(head)), pin, pins, frame)
    reads = reads or READS[trace.maps[state.layer].kind]
    item = trace.maps[state.layer]
    by_size = layout != "grid" and not signed and is_signed(item)
    heard = f"Attention weights of head {trace.name((state.layer, state.head))}"
    if layout == "grid":
        heard = f"All {sum(len(item.weights) for item in trace.maps)} heads"
    data = _data(trace, state, layout, signed, roles, frames, own, pool) | {
        "fact": fact or heard,
        "title": title,
        "reads": reads,
        "caption": caption,
        "query": query,
        "show": show,
        "scale": scale,
        "pool": pool,
        "signed": signed or by_size,
        "bySize": by_size,
        "state": item.state,
        "states": state_lines(trace) if layout == "grid" else [],
        "live": live,
        "threshold": float(threshold),
        "patches": patches and patches.payload(),
        "several": pins is not None,
        "height": height,
        "thumb": thumb,
        "turn": own.get("turn", 0),
        "rowSlider": row_slider,
        "showChoice": show_choice and dict(key=show_choice[0], values=[*show_choice[1]]),
        "pinLists": pin_lists,
    }
    add(key, lambda: picture_of(trace, state, layout, signed, frames, query, reads))
    takers: dict[str, Any] = {
        f"on_{field}_change": functools.partial(take, key, link if field == "pick" else None, field)
        for field in FIELDS
    }
    draw("attention_view", "av", data, key=key, **takers)
    return state


def picture_of(
    trace: AttentionTrace,
    state: ViewState,
    layout: str,
    signed: bool,
    frames: Film,
    row: int | None,
    reads: str,
) -> MapsPicture:
    pick, attention, is_grid = (state.layer, state.head), trace.maps[state.layer], layout == "grid"
    drawn = [
        (trace.name((layer, head)), each, head, each.weights[head])
        for layer, each in enumerate(trace.maps)
        for head in range(len(each.weights))
        if is_grid or (layer, head) == pick
    ]
    if layout == "frames" and frames:
        step, weights = next((pair for pair in frames if pair[0] == state.frame), frames[-1])
        drawn = [(f"Step {step:,}", attention, state.head, weights)]
    ends = {
        id(each): span(each.weights if is_grid else weights, signed or is_signed(each))
        for _, each, _, weights in drawn
    }
    if signed:
        ends = dict.fromkeys(ends, span(np.concatenate([one.ravel() for *_, one in drawn]), True))
    maps = tuple(
        PictureMap(
            name,
            weights,
            tuple(map(token_text, each.queries)),
            tuple(map(token_text, each.keys)),
            "" if is_grid else each.state,
            mask=each.visible[head],
            low=ends[id(each)][0],
            high=ends[id(each)][1],
            signed=signed or is_signed(each),
            noun="" if signed else "weight",
        )
        for name, each, head, weights in drawn
    )
    about = {
        "model": trace.source.rstrip("/").rpartition("/")[2],
        "head": trace.name(pick),
        "text": " ".join(map(token_text, attention.queries)),
    }
    return MapsPicture(
        "All heads" if is_grid else f"Attention of {about['head']}",
        maps,
        None if is_grid else state.pin[0] if state.pin else row,
        reads,
        across=len(attention.weights) if is_grid else 0,
        trace=None if layout == "frames" else trace,
        pick=pick,
        about={name: text for name, text in about.items() if name != "head" or not is_grid},
    )


def settled(
    trace: AttentionTrace,
    key: str,
    shared: dict[str, Any],
    own: dict[str, Any],
    pick: Pair,
    pin: Pair | None,
    pins: Sequence[Pair] | None = None,
    frame: int | None = None,
) -> ViewState:
    """The picks of a view with these `stores`, by the page's own ones; before it is drawn or in drawing it."""
    heads = [len(item.weights) for item in trace.maps]
    if not (0 <= pick[0] < len(heads) and 0 <= pick[1] < heads[pick[0]]):
        raise ValueError(f"head {pick} is not in this trace, whose layers have {heads} heads")
    layer, head = settle(shared, key, "pick", pick)
    if layer >= len(heads) or head >= heads[layer]:
        # Another model may have fewer heads than the one of the pick.
        layer, head = shared["pick"] = pick
    rows, columns = trace.maps[layer].weights.shape[1:]
    step = settle(own, key, "frame", None if frame is None else int(frame))
    if pins is not None:
        own["pins"] = pinned = inside(
            settle(own, key, "pins", tuple((int(i), int(j)) for i, j in pins)), (rows, columns)
        )
        return ViewState(layer, head, pinned[-1] if pinned else None, step, pinned)
    return ViewState(layer, head, settle_pin(own, key, pin, (rows, columns)), step)


def _data(
    trace: AttentionTrace,
    state: ViewState,
    layout: str,
    signed: bool,
    roles: Roles,
    frames: Film,
    own: dict[str, Any],
    pool: Pool,
) -> dict[str, Any]:
    """The numbers that are drawn; a large map as blocks, or its zoomed window, which lasts while it keeps its size."""
    attention, blocks, more = trace.maps[state.layer], None, {}
    if layout == "one":
        rows, columns = attention.weights.shape[1:]
        if own.get("whole") != (rows, columns):
            own["whole"], own["window"] = (rows, columns), None
        top, bottom, left, right = own.get("window") or (0, rows, 0, columns)
        if not (0 <= top < bottom <= rows and 0 <= left < right <= columns):
            own["window"] = None
        blocks = Blocks.of((rows, columns), own.get("window"))
        more = {"one": one_map(attention, state.head, blocks, pool), "part": own["window"]}
    elif layout == "grid":
        more = {
            "grid": grid(trace, signed),
            "roles": [[*head, category] for head, category in (roles or {}).items()],
        }
    else:
        stack = np.stack([np.float32(values) for _, values in frames or ()])  # oldest first
        more = {
            "frames": {
                "steps": [int(step) for step, _ in frames or ()],
                "rows": stack.shape[1],
                "cols": stack.shape[2],
                "values": packed(stack, stack.size <= FRAME_CELLS),
            },
            "mask": allowed_bits(attention.mask, attention.weights.shape, [state.head]),
        }
    return {
        "layout": layout,
        "layer": state.layer,
        "head": state.head,
        "frame": state.frame,
        "numbers": list(trace.numbers),
        "pins": list(state.pins) if state.pins else [state.pin] if state.pin else [],
        "heads": int(attention.weights.shape[0]),
        **labels(attention, blocks),
        **more,
    }


# Linked small multiples: tiles as plain values and base64 bytes for the canvases.


MAX_TILES = 12
MAX_FRAME_CELLS = 500_000  # of all maps at all values of a control: 1 MB


@dataclass(frozen=True, eq=False)
class Tile:
    """One map: weights (T, S), mask (True = may attend) broadcastable to them, and a heading of two lines.

    ``marker`` is its index in the series, ``span`` its scale's ends if not 0 to 1; ``signed`` forces a signed scale.
    """

    name: str
    note: str
    weights: np.ndarray
    mask: np.ndarray | None = None
    marker: int | None = None
    span: tuple[float, float] | None = None
    signed: bool = False


@dataclass(frozen=True, eq=False)
class Frames:
    """The maps at each value of a native slider or list, which the browser draws before the server answers.

    ``control`` is the widget's key, ``at`` the index of its value now; ``tiles`` has, for each of its values in order,
    the tiles as they are drawn then. Those of a list have ``options``, the texts that it shows.
    """

    control: str
    at: int
    tiles: Sequence[Sequence[Tile]]
    options: Sequence[str] | None = None

    def payload(self, maps: Sequence[Tile]) -> dict[str, Any] | None:
        """What the browser needs; None where that is too much, or where a value has maps of another shape."""
        shapes = [tile.weights.shape for tile in maps]
        if not fits(len(self.tiles), maps) or any(
            [tile.weights.shape for tile in row] != shapes for row in self.tiles
        ):
            return None
        return {
            "control": self.control,
            "options": self.options and list(self.options),
            "at": self.at,
            "names": [[(tile.name, tile.note) for tile in row] for row in self.tiles],
            "values": [
                packed(np.stack([tile.weights for tile in column]), False)
                for column in zip(*self.tiles, strict=True)
            ],
        }


def fits(values: int, maps: Sequence[Tile]) -> bool:
    """Whether the browser can have such maps at so many values of a control."""
    return values * sum(tile.weights.size for tile in maps) <= MAX_FRAME_CELLS


def pack(maps: Sequence[Tile], difference: Pair | None, signed: bool) -> dict[str, Any]:
    """What the browser needs of the maps; ValueError when there are too many, or the difference names none of them.

    All have one scale but those with their own: 0 to 1 or to a larger maximum, and symmetric for signed numbers.
    """
    if len(maps) > MAX_TILES:
        raise ValueError(f"multiples draws at most {MAX_TILES} maps; got {len(maps)}")
    if difference is not None and not all(0 <= at < len(maps) for at in difference):
        raise ValueError(
            f"difference = {difference}; expected two of the maps, 0 to {len(maps) - 1}"
        )
    shared = [largest(tile.weights) for tile in maps if tile.span is None]
    end = max(shared, default=1.0)
    end = (end or 1.0) if signed else end if end > MAX_WEIGHT else 1.0
    tiles = []
    for index, tile in enumerate(maps):
        values = np.asarray(tile.weights, dtype=np.float32)
        negative = signed or tile.signed or values.min(initial=0.0) < MIN_NEGATIVE
        low, high = tile.span or (-end if negative else 0.0, end)
        tiles.append(
            {
                "name": tile.name,
                "note": tile.note,
                "marker": index if tile.marker is None else int(tile.marker),
                "signed": bool(negative),
                "low": float(low),
                "high": float(high),
                "rows": values.shape[0],
                "cols": values.shape[1],
                "values": packed(values, values.size <= EXACT_CELLS),
                "mask": allowed_bits(tile.mask, (1, *values.shape), [0]),
            }
        )
    return {
        "tiles": tiles,
        "difference": difference and list(difference),
        "differenceEnd": difference and difference_span(*(maps[at] for at in difference)),
    }


def difference_span(first: Tile, second: Tile) -> float:
    """The end of a difference's symmetric scale: its largest cell, rounded up to one digit."""
    most = largest(np.asarray(first.weights, dtype=np.float64) - second.weights)
    if most < 1e-9:
        return 1.0
    unit = 10.0 ** math.floor(math.log10(most))
    return round(math.ceil(most / unit - 1e-9) * unit, 12)


def telling_column(tile: Tile, query: int) -> int:
    return int(np.nan_to_num(np.float64(tile.weights[query]), nan=-np.inf).argmax())


def multiples(
    maps: Sequence[Tile],
    queries: Sequence[str],
    keys: Sequence[str] | None = None,
    *,
    key: str,
    query: int | None = None,
    column: int | None = None,
    pin: Pair | None = None,
    difference: Pair | None = None,
    signed: bool = False,
    noun: str = "weight",
    fact: str = "",
    reads: str = READS["self"],
    height: int | None = None,
    cell: int = 28,
    link: str | None = None,
    absent: str | None = None,
    legend: bool = True,
    first: int | None = None,
    frames: Frames | None = None,
    alone: bool = False,
    dimmed: Sequence[int] = (),
    open_cell: Callable[[Pair], object] | None = None,
    beside: Sequence[str] = (),
) -> Pair | None:
    """Draw one to twelve maps (T, S) of the same queries and keys (the queries when None); return the pinned cell.

    ``query`` is the row drawn in the accent while nothing is picked, ``column`` the key whose numbers stand under the
    maps (the largest of that row in the first map when None). ``pin`` is the page's value: it holds until a person
    pins another cell. ``difference`` = (a, b) adds the map of tile a minus tile b. ``noun`` is what a cell holds.
    ``fact`` is what a screen reader hears first, ``reads`` the words over the maps; ``height`` caps a map, ``cell`` a
    cell, in pixels.
    ``absent`` says what a row is that may attend to nothing, where that means something else than being masked.
    ``legend=False`` leaves out the scale, where maps on the same scale are beside these.
    ``first`` is the map that the page's sentence names first, its own name in the accent. ``frames`` are the maps at
    each value of a slider or list, drawn as it changes. ``alone`` draws the difference without the two maps.
    ``dimmed`` are keys whose columns are drawn faintly. A press of a cell calls ``open_cell`` instead of pinning it.
    ``beside`` are the keys of a map beside this one, whose cells begin at one height with these.
    Calls with the same ``link`` share one pin. ValueError when a map does not fit the tokens, or there is none.
    """
    rows, columns = (
        [token_text(str(name)) for name in line]
        for line in (queries, queries if keys is None else keys)
    )
    if not maps:
        raise ValueError("multiples needs at least one map; got none")
    for tile in maps:
        if tile.weights.shape != (len(rows), len(columns)):
            raise ValueError(
                f"{tile.name} is {tile.weights.shape}; "
                f"expected ({len(rows)} queries, {len(columns)} keys)"
            )
    if query is not None and column is None:
        column = telling_column(maps[0], query)
    own, shared = stores(key, link)
    pinned = settle_pin(shared, key, pin, (len(rows), len(columns)))
    data = pack(maps, difference, signed) | {
        "query": query,
        "column": column,
        "fact": fact,
        "reads": reads,
        "height": height,
        "cell": cell,
        "noun": noun,
        "alone": alone,
        "dimmed": list(dimmed),
        "beside": list(beside),
        "absent": absent,
        "legend": legend,
        "first": first,
        "frames": frames and frames.payload(maps),
        "marks": MARKS,
        "queries": rows,
        "keys": columns,
        "pin": pinned,
        "turn": own.get("turn", 0),
    }
    add(key, functools.partial(tiles_picture, maps, data, rows, columns))

    def press() -> None:
        take(key, link, "pin")
        if open_cell is not None and shared["pin"] is not None:
            cell, shared["pin"] = shared["pin"], None
            open_cell(cell)

    draw("multiples", "mu", data, key=key, on_pin_change=press)
    return pinned


def difference_map(
    first: Tile,
    second: Tile,
    queries: Sequence[str],
    keys: Sequence[str] | None = None,
    **options: Any,
) -> Pair | None:
    """Draw the first map minus the second alone, purple below 0 and green above; `options` are those of `multiples`.

    Its scale is ``difference_span(first, second)``, for a page that draws the legend itself (``legend=False``).
    The tiles of ``frames`` are such pairs.
    """
    return multiples((first, second), queries, keys, difference=(0, 1), alone=True, **options)


def tiles_picture(
    maps: Sequence[Tile], data: dict[str, Any], rows: list[str], columns: list[str]
) -> MapsPicture:
    named = [
        PictureMap(
            tile.name,
            tile.weights,
            tuple(rows),
            tuple(columns),
            tile.note,
            None if tile.mask is None else np.broadcast_to(tile.mask, (1, *tile.weights.shape))[0],
            drawn["low"],
            drawn["high"],
            drawn["signed"],
            data["noun"],
        )
        for tile, drawn in zip(maps, data["tiles"], strict=True)
    ]
    if data["difference"] is not None:
        first, second = (maps[at] for at in data["difference"])
        apart = PictureMap(
            f"{first.name} {MINUS} {second.name}",
            np.asarray(first.weights) - second.weights,
            tuple(rows),
            tuple(columns),
            low=-data["differenceEnd"],
            high=data["differenceEnd"],
            signed=True,
            noun="difference",
        )
        named = [apart] if data["alone"] else [*named, apart]
    title = (
        ", ".join(item.name for item in named)
        if len(named) < 4
        else f"{named[0].name} and {len(named) - 1} more"
    )
    return MapsPicture(title, tuple(named), data["query"], data["reads"])
