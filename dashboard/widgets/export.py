"""Files: a table as CSV; of attention CSV of one head, NPZ of all heads, SVG of a map."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from html import escape

import numpy as np

from core.trace import AttentionMap, AttentionTrace
from dashboard.charts.palette import SIGNED, WEIGHTS, colours_at


def csv_file(head: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    """A table under its head as CSV."""
    out = io.StringIO()
    csv.writer(out).writerows([head, *rows])
    return out.getvalue().encode("utf-8")


def head_csv(item: AttentionMap, head: int) -> bytes:
    """One head as a table: a row a query, a column a key, tokens as headers (a leading = + - @ is quoted)."""
    return csv_file(["query \\ key", *map(_cell, item.keys)],
                    [[_cell(token), *(f"{weight:.6f}" for weight in row)]
                     for token, row in zip(item.queries, item.weights[head], strict=True)])


def _cell(token: str) -> str:
    """A token as text, even if a spreadsheet would take it for a formula."""
    return f"'{token}" if token[:1] in ("=", "+", "-", "@", "\t", "\r") else token


def trace_npz(trace: AttentionTrace) -> bytes:
    """Every layer's weights (H, T, S) float32 as kind_layer, with the tokens of its rows and columns."""
    arrays: dict[str, np.ndarray] = {}
    for item in trace.maps:
        name = f"{item.kind}_{item.layer}"
        arrays |= {name: item.weights, f"{name}_queries": np.array(item.queries), f"{name}_keys": np.array(item.keys)}
    out = io.BytesIO()
    np.savez_compressed(out, **arrays)  # type: ignore[arg-type]
    return out.getvalue()


def map_svg(weights: np.ndarray, queries: tuple[str, ...], keys: tuple[str, ...], *,
            signed: float | None = None) -> bytes:
    """One map (T, S) as SVG with its tokens, in the light palette, 0 to 1; with `signed`, from −signed to +signed."""
    cell, gutter = 20, 96  # px
    rows, columns = weights.shape
    palette, share = (WEIGHTS, weights) if signed is None else (SIGNED, (weights / signed + 1) / 2)
    colours = colours_at(palette["light"], share).round().astype(int)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{gutter + columns * cell}" '
             f'height="{gutter + rows * cell}" font-family="Source Sans 3, sans-serif" font-size="13">']
    for i, token in enumerate(queries):
        parts.append(f'<text x="{gutter - 6}" y="{gutter + i * cell + cell * 0.7:.1f}" text-anchor="end">'
                     f"{escape(token)}</text>")
    for j, token in enumerate(keys):
        x = gutter + j * cell + cell * 0.7
        parts.append(f'<text transform="translate({x:.1f} {gutter - 6}) rotate(-90)">{escape(token)}</text>')
    for i, j in np.ndindex(rows, columns):
        red, green, blue = colours[i, j]
        parts.append(f'<rect x="{gutter + j * cell}" y="{gutter + i * cell}" width="{cell - 1}" height="{cell - 1}" '
                     f'fill="rgb({red},{green},{blue})"><title>{weights[i, j]:.3f}</title></rect>')
    return "\n".join([*parts, "</svg>"]).encode("utf-8")
