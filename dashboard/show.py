"""Attention maps in a notebook, drawn as the pages draw them: no server runs, and the saved notebook keeps them.

from dashboard.show import show, show_maps
show(trace)                      # all heads, and the picked one; hover, keys and zoom work
show(trace).save("heads.html")   # the same as a file that needs no network
show_maps({"weights": weights}, tokens, tokens)  # matrices as one still picture
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from core.entries import refuse_type
from core.interpret.trace import AttentionTrace, to_numpy, why_not_weights
from dashboard.draw.picture_files import trace_html
from dashboard.draw.pictures import PictureMap, maps_svg

HEIGHT = 900  # px


@dataclass(frozen=True)
class Shown:
    """A page of HTML that a notebook shows in a frame."""

    html: str
    height: int = HEIGHT

    def _repr_html_(self) -> str:
        return (
            f'<iframe srcdoc="{escape(self.html, quote=True)}" title="Attention" width="100%" '
            f'height="{self.height}" style="border:0"></iframe>'
        )

    def save(self, path: str | Path) -> Path:
        """Write the page to a file; returns its path."""
        Path(path).write_text(self.html, encoding="utf-8")
        return Path(path)


def show(
    trace: AttentionTrace,
    *,
    title: str = "",
    layer: int = 0,
    head: int = 0,
    query: int | None = None,
    signed: bool = False,
    height: int = HEIGHT,
) -> Shown:
    """Draw a trace (weights (H, T, S) a layer), opened at a head; `query` is the row in the accent.

    ValueError for a trace without maps, or with too many weights, or where a cell that is not masked is NaN, or, unless
    `signed` or of a layer without softmax, outside 0 to 1.
    """
    refuse_type(
        trace, AttentionTrace, "show(trace), or show_maps({'name': weights}, rows, columns)"
    )
    for item in trace.maps:
        if reason := why_not_weights(
            f"Layer {item.layer_name}", item.weights[item.visible], signed or bool(item.state)
        ):
            raise ValueError(reason)
    return Shown(
        trace_html(
            trace,
            title=title or f"Attention of {trace.source}",
            layer=layer,
            head=head,
            query=query,
            signed=signed,
        ),
        height,
    )


@dataclass(frozen=True)
class ShownMaps:
    """A drawing as SVG that a notebook shows."""

    svg: str

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | Path) -> Path:
        """Write the drawing to a file; returns its path."""
        Path(path).write_text(self.svg, encoding="utf-8")
        return Path(path)


def show_maps(
    maps: Mapping[str, Any], rows: Sequence[str], columns: Sequence[str], *, row: int | None = None
) -> ShownMaps:
    """Draw matrices (T, S) by name between the same tokens, as one picture; ValueError for none, another shape, or NaN.

    All have one scale, from 0 to the largest, or around 0 where there are negative numbers. `row` is outlined.
    """
    arrays = {name: to_numpy(values).astype(np.float64) for name, values in maps.items()}
    for name, values in arrays.items():
        if values.shape != (len(rows), len(columns)):
            raise ValueError(
                f"{name} has the shape {values.shape}; the tokens make {(len(rows), len(columns))}."
            )
        if reason := why_not_weights(name, values, signed=True):
            raise ValueError(reason)
    largest = (
        max((float(np.abs(values).max(initial=0)) for values in arrays.values()), default=1.0)
        or 1.0
    )
    signed = any(bool((values < 0).any()) for values in arrays.values())
    low = -largest if signed else 0.0
    return ShownMaps(
        maps_svg(
            [
                PictureMap(
                    name, values, tuple(rows), tuple(columns), low=low, high=largest, signed=signed
                )
                for name, values in arrays.items()
            ],
            row,
        )
    )
