"""One canvas component which draws any AttentionTrace: a grid of heads, one head, or frames over training."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from core.tokens import token_text
from dashboard.components.attention_view import payload
from dashboard.components.attention_view.blocks import Blocks, Pool, Window
from dashboard.components.attention_view.patches import Patches
from dashboard.components.attention_view.state import (
    Pair,
    ViewState,
    inside,
    settle,
    settle_pin,
    stores,
    take,
)
from dashboard.components.lib import draw
from dashboard.draw.maps import PictureMap
from dashboard.draw.palette import colour_scale
from dashboard.draw.pictures import MapsPicture
from dashboard.runtime.page_pictures import add

if TYPE_CHECKING:
    from core.trace import AttentionTrace

__all__ = ["Patches", "ViewState", "attention_view", "colour_scale"]

FIELDS = ("pick", "pin", "pins", "frame", "window")

Roles: TypeAlias = Mapping[tuple[int, int], int] | None
Frames: TypeAlias = Sequence[tuple[int, np.ndarray]] | None


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
    frames: Frames = None,
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

    Raises ValueError when the trace has no map, the layer or head is not in it, or layout "frames" has no frame.
    """
    if layout == "frames" and not frames:
        raise ValueError('layout "frames" needs at least one (step, weights) pair in frames')
    _check(trace, layer, head)
    own, shared = stores(key, link)
    state = _settled(trace, key, shared, own, (int(layer), int(head)), pin, pins, frame)
    texts = {
        "fact": fact or _fact(trace, state, layout),
        "title": title,
        "reads": reads or payload.READS[trace.maps[state.layer].kind],
        "caption": caption,
    }
    look = {
        "query": query,
        "show": show,
        "scale": scale,
        "pool": pool,
        "signed": signed,
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
    blocks = _blocks(trace, state, own) if layout == "one" else None
    data = (
        _data(trace, state, layout, signed, roles, frames, blocks, own.get("window"), pool)
        | texts
        | look
    )
    add(
        key,
        functools.partial(
            picture_of,
            trace,
            state,
            layout,
            signed=signed,
            frames=frames,
            row=query,
            reads=str(texts["reads"]),
        ),
    )
    draw("attention_view", "av", data, key=key, **_callbacks(key, link))
    return state


def _callbacks(key: str, link: str | None) -> dict[str, Any]:
    """What takes each field that the browser sends."""
    return {
        f"on_{field}_change": functools.partial(take, key, link if field == "pick" else None, field)
        for field in FIELDS
    }


def picture_of(
    trace: AttentionTrace,
    state: ViewState,
    layout: str,
    *,
    signed: bool,
    frames: Frames,
    row: int | None,
    reads: str,
) -> MapsPicture:
    """The picture that is drawn: the head, all heads, or the frame of a step."""
    item = trace.maps[state.layer]
    queries, keys = (tuple(map(token_text, names)) for names in (item.queries, item.keys))
    about = {
        "model": trace.source.rstrip("/").rpartition("/")[2],
        "head": trace.label(state.layer, state.head),
        "text": " ".join(queries),
    }
    if layout == "grid":
        scale = payload.span(np.concatenate([each.weights.ravel() for each in trace.maps]), signed)
        maps = tuple(
            _named(
                trace.label(layer, head),
                each.weights[head],
                tuple(map(token_text, each.queries)),
                tuple(map(token_text, each.keys)),
                each.visible[head],
                signed,
                scale,
            )
            for layer, each in enumerate(trace.maps)
            for head in range(len(each.weights))
        )
        return MapsPicture(
            "All heads",
            maps,
            reads=reads,
            across=len(item.weights),
            trace=trace,
            pick=(state.layer, state.head),
            about={name: about[name] for name in ("model", "text")},
        )
    name, weights = about["head"], item.weights[state.head]
    if layout == "frames" and frames:
        step, weights = next((pair for pair in frames if pair[0] == state.frame), frames[-1])
        name = f"Step {step:,}"
    drawn = _named(
        name,
        weights,
        queries,
        keys,
        item.visible[state.head],
        signed,
        payload.span(weights, signed),
    )
    return MapsPicture(
        f"Attention of {about['head']}",
        (drawn,),
        state.pin[0] if state.pin else row,
        reads,
        trace=None if layout == "frames" else trace,
        pick=(state.layer, state.head),
        about=about,
    )


def _fact(trace: AttentionTrace, state: ViewState, layout: str) -> str:
    """What is heard of a view whose page says nothing of it."""
    if layout == "grid":
        return f"All {sum(len(item.weights) for item in trace.maps)} heads"
    return f"Attention weights of head {trace.label(state.layer, state.head)}"


def _named(
    name: str,
    weights: np.ndarray,
    queries: tuple[str, ...],
    keys: tuple[str, ...],
    mask: np.ndarray,
    signed: bool,
    scale: tuple[float, float],
) -> PictureMap:
    return PictureMap(
        name, weights, queries, keys, "", mask, *scale, signed, "" if signed else "weight"
    )


def _settled(
    trace: AttentionTrace,
    key: str,
    shared: dict[str, Any],
    own: dict[str, Any],
    pick: Pair,
    pin: Pair | None,
    pins: Sequence[Pair] | None,
    frame: int | None,
) -> ViewState:
    layer, head = settle(shared, key, "pick", pick)
    if layer >= len(trace.maps) or head >= len(trace.maps[layer].weights):
        # Another model may have fewer heads than the one of the pick.
        layer, head = shared["pick"] = pick
    rows, columns = trace.maps[layer].weights.shape[1:]
    step = settle(own, key, "frame", None if frame is None else int(frame))
    if pins is not None:
        initial = tuple((int(i), int(j)) for i, j in pins)
        own["pins"] = pinned = inside(settle(own, key, "pins", initial), (rows, columns))
        return ViewState(layer, head, pinned[-1] if pinned else None, step, pinned)
    return ViewState(layer, head, settle_pin(own, key, pin, (rows, columns)), step)


def _blocks(trace: AttentionTrace, state: ViewState, own: dict[str, Any]) -> Blocks | None:
    """The blocks of a large map or of its zoomed window, which lasts while the map keeps its size."""
    rows, columns = trace.maps[state.layer].weights.shape[1:]
    if own.get("whole") != (rows, columns):
        own["whole"], own["window"] = (rows, columns), None
    window: Window | None = own.get("window")
    if window is not None:
        top, bottom, left, right = window
        if not (0 <= top < bottom <= rows and 0 <= left < right <= columns):
            window = own["window"] = None
    return Blocks.of((rows, columns), window)


def _check(trace: AttentionTrace, layer: int, head: int) -> None:
    layers = len(trace.maps)
    if not layers:
        raise ValueError("attention_view needs a trace of at least one map; this one has none")
    if not 0 <= layer < layers:
        raise ValueError(
            f"layer {layer} is not in this trace; it has {layers} layers, 0 to {layers - 1}"
        )
    heads = len(trace.maps[layer].weights)
    if not 0 <= head < heads:
        raise ValueError(
            f"head {head} is not in layer {layer}, which has {heads} heads, 0 to {heads - 1}"
        )


def _data(
    trace: AttentionTrace,
    state: ViewState,
    layout: str,
    signed: bool,
    roles: Roles,
    frames: Frames,
    blocks: Blocks | None,
    part: Window | None,
    pool: Pool,
) -> dict[str, Any]:
    attention = trace.maps[state.layer]
    data: dict[str, Any] = {
        "layout": layout,
        "layer": state.layer,
        "head": state.head,
        "frame": state.frame,
        "numbers": list(trace.numbers),
        "pins": list(state.pins) if state.pins else [state.pin] if state.pin else [],
        "heads": int(attention.weights.shape[0]),
        **payload.labels(attention, blocks),
    }
    if layout == "grid":
        return data | {"grid": payload.grid(trace, signed), "roles": payload.role_list(roles)}
    if layout == "one":
        return data | {"one": payload.one_map(attention, state.head, blocks, pool), "part": part}
    return data | {
        "frames": payload.frame_maps(frames or ()),
        "mask": payload.allowed_bits(attention.mask, attention.weights.shape, [state.head]),
    }
