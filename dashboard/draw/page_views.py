"""Components of one page or two: a mask's board, dials, a sketched line, a translator, a tree, a model's blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st

from core.tokens import token_text
from dashboard.draw.attention_view import READS, encode
from dashboard.draw.components import draw
from dashboard.draw.drawings import HEAD, dials_svg, stacks_svg
from dashboard.draw.formats import byte_size, number, operations
from dashboard.draw.maps import PictureMap
from dashboard.draw.page_exports import add
from dashboard.draw.palette import Ink, Theme
from dashboard.draw.pictures import DrawnPicture, MapsPicture

if TYPE_CHECKING:  # at run time torch would come with them
    from core.attention.properties import Pair
    from core.interpret.trace import Kind
    from core.models.model_summary import Part

# A board of cells of a mask, switched on and off by pointer or keys.


def mask_board(
    allowed: np.ndarray,
    tokens: Sequence[str],
    *,
    key: str,
    on_draw: Callable[[], None],
    query: int | None = None,
    title: str = "",
    note: str = "",
    fact: str = "",
) -> None:
    """Draw the cells `allowed` (T, T), True = may attend, T at most 64, which a person may switch on and off.

    `query` is the row in the accent while nothing is under the pointer; `fact` is what a screen reader hears first.
    """
    import torch

    from core.attention.masks.layouts import Drawing

    text = Drawing.of(torch.from_numpy(np.ascontiguousarray(allowed))).text()
    names = [token_text(str(token)) for token in tokens]
    data = {
        "cells": text,
        "names": names,
        "query": query,
        "title": title,
        "note": note,
        "fact": fact,
        "turn": st.session_state.get(f"{key}:turn", 0),
    }

    def picture() -> MapsPicture:
        rows, name, cells = tuple(names), title or "Mask", allowed.astype(float)
        drawn = PictureMap(name, cells, rows, rows, note, allowed, noun="may attend")
        return MapsPicture(name, (drawn,), query, READS["self"])

    def take() -> None:
        cells = dict(st.session_state[key].get("cells") or {})
        st.session_state[f"{key}:turn"] = int(cells.get("turn", 0))
        on_draw()

    add(key, picture)
    draw("mask_board", "mb", data, key=key, on_cells_change=take)


def drawing_text(key: str) -> str:
    """The board's drawing as validated text; ConfigError when the browser sent anything else."""
    from core.attention.masks.layouts import parse_drawing

    return parse_drawing(str(dict(st.session_state[key].get("cells") or {}).get("text", ""))).text()


# Rotations as dials: one for each pair of dimensions and position.


MAX_PAIRS = 8


def dials(
    pairs: Sequence[Pair],
    positions: int,
    ink: Ink,
    *,
    key: str,
    label: str,
    before: Sequence[Pair] = (),
) -> None:
    """Draw a row a pair, a column a position, hands rotating counter-clockwise, those of `before` faintly."""
    faint = {(pair.first, pair.second): pair.angle for pair in before}
    rows = [
        {
            "name": f"{pair.first}, {pair.second}",
            "angle": pair.angle,
            "circle": wavelength_text(pair.wavelength),
            "before": faint.get((pair.first, pair.second)),
        }
        for pair in pairs
    ]
    data = {
        "rows": rows,
        "positions": positions,
        "label": label,
        "hand": ink.series[0],
        "pick": ink.pick,
    }
    head = ("dimensions", "angle of a position", "wavelength")
    add(
        key,
        lambda: DrawnPicture(
            label,
            head,
            tuple(
                (row["name"], pair.angle, pair.wavelength)
                for row, pair in zip(rows, pairs, strict=True)
            ),
            dials_svg(rows, positions),
        ),
    )
    draw("position_dials", "dials", data, key=key)


def sample_pairs(pairs: Sequence[Pair], max_pairs: int = MAX_PAIRS) -> list[Pair]:
    """At most so many pairs, from the fastest to the slowest at even steps."""
    ranked = sorted(pairs, key=lambda pair: -abs(pair.angle))
    if len(ranked) <= max_pairs:
        return ranked
    return [ranked[round(at * (len(ranked) - 1) / (max_pairs - 1))] for at in range(max_pairs)]


def wavelength_text(wavelength: float) -> str:
    """A number of positions: one decimal below 100, thousands separated."""
    if math.isinf(wavelength):
        return "∞"
    return f"{wavelength:.1f}" if wavelength < 100 else f"{wavelength:,.0f}"


# A line that the reader draws before the measured one is shown.


NONE = "none"  # what is sent where nothing was drawn


def sketch(
    xs: Sequence[float],
    low: float,
    high: float,
    *,
    key: str,
    x_title: str,
    take: Callable[[list[float] | None], None],
    log_x: bool = False,
    log_y: bool = False,
    share: bool = False,
) -> None:
    """Draw empty axes over `xs`, from `low` to `high`; Show me calls `take` with a y for each x, or with None.

    A logarithmic axis needs numbers above 0; a `share` of 1 is written as a percentage.
    """

    def sent() -> None:
        guess = st.session_state[key]["guess"]
        if guess is not None:
            take(None if guess == NONE else [float(y) for y in guess])

    data = {
        "xs": [int(x) if float(x).is_integer() else float(x) for x in xs],
        "y": {"low": float(low), "high": float(high), "log": log_y},
        "logX": log_x,
        "share": share,
        "xTitle": x_title,
    }
    draw("sketch_view", "sketch", data, key=key, on_guess_change=sent)


# Two moving pictures of a translator: through one vector, and with attention back to every input word.


def translation_view(
    source: Sequence[str],
    target: Sequence[str],
    weights: Sequence[Sequence[float]],
    *,
    key: str,
    picked: int,
    on_pick: Callable[[int], None],
) -> None:
    """Draw both; `weights` (T, S) are the arrows of the right one, `picked` is the output word whose arrows are shown.

    `on_pick` is called with the index of an output word when a click or a key has picked it.
    """
    data = {
        "source": list(source),
        "target": list(target),
        "weights": [list(row) for row in weights],
        "picked": picked,
    }

    def picture() -> MapsPicture:
        values, (rows, columns) = np.array(weights, np.float32), (tuple(target), tuple(source))
        drawn = PictureMap("Attention", values, rows, columns, noun="weight")
        about = {"text": " ".join(source)}
        title = "Attention of the translator"
        return MapsPicture(title, (drawn,), picked, READS["cross"], about=about)

    def take() -> None:
        word = st.session_state[key].get("word")
        if isinstance(word, int | float) and 0 <= word < len(target):
            on_pick(int(word))

    add(key, picture)
    draw("translation_view", "tv", data, key=key, on_word_change=take)


def tree_view(
    picture: Callable[[Theme], str],
    rows: Callable[[], Sequence[tuple[Any, ...]]],
    fact: str,
    *,
    theme: Theme,
    follow: bool,
    key: str,
    on_pick: Callable[[], None],
) -> None:
    """Draw an SVG whose groups have data-place, data-step and data-rank; `st.session_state[key].pick` is what was
    pressed, `fact` what a screen reader hears first; with `follow` the picked group is scrolled to. `rows` gives
    the candidates by search_tree.HEAD."""
    add(key, lambda: DrawnPicture("Tree of candidates", HEAD, tuple(rows()), picture("light")))
    draw(
        "tree_view",
        "tv",
        {"svg": picture(theme), "fact": fact, "follow": follow},
        key=key,
        on_pick_change=on_pick,
    )


# A model as the papers draw it, stacks of blocks with residual paths whose layers open in place; and as nested parts.


COLUMNS = ("output", "parameters", "FLOPs", "for backward", "mean ± std", "gradient")
_ATTENTIONS: dict[str, Kind] = {"attention": "self", "causal": "causal", "cross": "cross"}


def is_attention(path: str) -> bool:
    return path.rpartition(".")[2] in _ATTENTIONS


def kind_and_layer(path: str) -> tuple[Kind, int]:
    """The kind (self, causal, cross) and layer of the attention at a path; ValueError for another path."""
    above, _, last = path.rpartition(".")
    number = above.rpartition(".")[2]
    if last not in _ATTENTIONS or not number.isdecimal():
        raise ValueError(f"{path!r} is no attention of a layer.")
    return _ATTENTIONS[last], int(number)


def cells(part: Part) -> list[str]:
    """The columns of a part: output shape, parameters, FLOPs, bytes saved for backward, mean ± std, gradient."""
    shape = "" if part.shape is None else " × ".join(map(str, part.shape))
    spread = (
        "" if part.std is None or part.mean is None else f"{number(part.mean)} ± {number(part.std)}"
    )
    return [
        shape,
        f"{part.parameters:,}" if part.parameters else "",
        operations(part.flops) if part.flops else "",
        byte_size(part.bytes) if part.bytes else "",
        spread,
        "" if part.gradient is None else number(part.gradient),
    ]


# A model as nested parts that open: each row a part, with its numbers in columns, drawn in the browser.


def diagram(
    tree: Part, *, key: str, chosen: str, on_pick: Callable[[], None], fact: str = ""
) -> None:
    """Draw the tree; `chosen` is the path of the attention whose maps the page shows."""
    most = max((part.gradient or 0.0 for part in tree.layers()), default=0.0)
    data = {"tree": row(tree, tree, most), "heads": COLUMNS, "chosen": chosen, "fact": fact}
    draw("model_diagram", "dg", data, key=key, on_pick_change=on_pick)


def picked(key: str) -> str:
    return str(dict(st.session_state[key].get("pick") or {}).get("path", ""))


def row(part: Part, whole: Part, most: float) -> dict[str, Any]:
    shares = [
        part.parameters / max(1, whole.parameters),
        part.flops / max(1, whole.flops),
        part.bytes / max(1, whole.bytes),
    ]
    return {
        "path": part.path,
        "title": part.title,
        "map": is_attention(part.path),
        "cells": cells(part),
        "shares": [round(share, 4) for share in shares],
        "parts": [row(child, whole, most) for child in part.children],
    }


MAX_ROWS, MAX_COLUMNS = 24, 128  # of the vectors that are drawn


@dataclass(frozen=True)
class Block:
    """What the panel beside the diagram says of one block; `vectors` (T, C) with T tokens, `maps` (H, T, S)."""

    title: str
    about: str
    numbers: tuple[tuple[str, str], ...] = ()
    tokens: tuple[str, ...] = ()
    vectors: np.ndarray | None = None
    maps: np.ndarray | None = None
    lines: tuple[str, ...] = ()

    def payload(self) -> dict[str, Any]:
        data: dict[str, Any] = {
            "title": self.title,
            "about": self.about,
            "numbers": self.numbers,
            "lines": self.lines,
        }
        if self.vectors is not None:
            values = self.vectors[:MAX_ROWS, :MAX_COLUMNS]
            largest = float(np.abs(values).max()) or 1.0
            data["vectors"] = {
                "rows": values.shape[0],
                "cols": values.shape[1],
                "largest": largest,
                "tokens": self.tokens[:MAX_ROWS],
                "whole": self.vectors.shape,
                "bytes": _bytes((values / largest + 1) / 2),
            }
        if self.maps is not None:
            heads, rows, cols = self.maps.shape
            data["maps"] = {"heads": heads, "rows": rows, "cols": cols, "bytes": _bytes(self.maps)}
        return data


def _bytes(unit: np.ndarray) -> str:
    return encode(np.round(255 * np.clip(unit, 0, 1)).astype(np.uint8))


def block_diagram(
    stacks: Sequence[Mapping[str, Any]],
    blocks: Mapping[str, Block],
    *,
    key: str,
    pre_norm: bool,
    chosen: str,
    on_pick: Callable[[], None],
    label: str,
    pending: bool = False,
) -> None:
    """Draw the stacks; `chosen` is the block that is open first ("": the input), `label` is read aloud.

    `on_pick` is called when a block with maps is opened; `model_diagram.picked(key)` is its path. While vectors and
    maps are `pending`, the panel stays as high as it is.
    """
    data = {
        "stacks": list(stacks),
        "blocks": {path: block.payload() for path, block in blocks.items()},
        "pre": pre_norm,
        "chosen": chosen,
        "label": label,
        "pending": pending,
    }
    add(
        key,
        lambda: DrawnPicture(
            "Blocks of the model",
            ("part", "title", "what it does"),
            tuple((path, block.title, block.about) for path, block in blocks.items()),
            stacks_svg(stacks, pre_norm),
        ),
    )
    draw("block_diagram", "bd", data, key=key, on_pick_change=on_pick)


def stacks_of(tree: Part) -> list[dict[str, Any]]:
    """The model's stacks in the order of computing: encoder and decoder, or the only one there is."""
    parts = [part for part in tree.children if not part.path.endswith("itself")]
    encoder = [
        part for part in parts if part.path.split(".")[0] in ("source", "source_places", "encoder")
    ]
    rest = [part for part in parts if part not in encoder]
    if encoder and any(part.path.startswith("layers") for part in rest):
        return [
            {"name": "Encoder", "nodes": _nodes(encoder)},
            {"name": "Decoder", "nodes": _nodes(rest)},
        ]
    return [{"name": "Encoder" if encoder else "Decoder", "nodes": _nodes(parts)}]


def paths_of(stacks: Sequence[Mapping[str, Any]]) -> set[str]:
    """The paths of all blocks that the stacks can show, and of the layers that open."""
    nodes = [node for stack in stacks for node in stack["nodes"]]
    sublayers = [part for node in nodes for part in node.get("sublayers", ())]
    return {node["path"] for node in nodes} | {
        part[way] for part in sublayers for way in ("path", "around")
    }


def _nodes(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """The blocks of a stack from the input on; a layer has sublayers, each with its residual path.

    These are attention and feed-forward, with the path of the residual connection and norm around each.
    """
    nodes: list[dict[str, Any]] = []
    kinds: dict[str, int] = {}  # of unlike attentions, in the order of the layers
    for part in parts:
        if part.path == "encoder":
            nodes += _nodes(part.children)
        elif part.path.rpartition(".")[2].isdecimal():
            paths = {child.path for child in part.children}
            sublayers = []
            for child in part.children:
                above, _, last = child.path.rpartition(".")
                if is_attention(child.path) or last == "feed_forward":
                    around = f"{above}.around_{last}"
                    sublayers.append(
                        {
                            "path": child.path,
                            "title": child.title,
                            "type": {"feed_forward": "feed", "cross": "cross"}.get(
                                last, "attention"
                            ),
                            "around": around if around in paths else "",
                        }
                    )
            nodes.append({"path": part.path, "title": part.title, "sublayers": sublayers})
            name, _, kind = part.title.partition(": ")
            if kind:
                nodes[-1]["title"] = f"Layer {name.rpartition(' ')[2]}: {kind}"
                nodes[-1]["kind"] = kinds.setdefault(kind, len(kinds))
        else:
            adds = part.path.endswith("places")  # the stack's name says of what
            nodes.append(
                {"path": part.path, "title": "Positions" if adds else part.title, "adds": adds}
            )
    return nodes
