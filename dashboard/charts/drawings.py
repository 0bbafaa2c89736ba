"""Drawings that only the browser draws elsewhere, as SVG for a file: dials of rotations, and stacks of a model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from dashboard.charts.palette import LIGHT_INK

DIAL, ROW_NAME = 40, 150  # px
BOX, SMALL, GAP, WIDE, INSET, APART = 30, 22, 10, 200, 14, 90  # px of the blocks of a stack
FILLS = {
    "adds": "#FFFFFF",
    "add": "#FFFFFF",
    "norm": "#F4F5F5",
    "feed": "#C7DEDF",
    "attention": "#95C9CF",
    "cross": "#DCC9E1",
    "box": "#F4F5F5",
}


def dials_svg(rows: Sequence[Mapping[str, Any]], positions: int) -> str:
    """A row of dials for each pair of dimensions: its name, its wavelength, and a hand rotated by position × angle."""
    parts = []
    for i, row in enumerate(rows):
        y = (i + 0.5) * DIAL + 16
        parts.append(_text(0, y + 4, f"{row['name']} · {row['circle']} positions"))
        for at in range(positions):
            x = ROW_NAME + (at + 0.5) * DIAL
            parts.append(
                f'<circle cx="{x}" cy="{y}" r="15" fill="none" stroke="{LIGHT_INK.hairline}"/>'
            )
            for angle, colour in (
                (row.get("before"), LIGHT_INK.hairline),
                (row["angle"], LIGHT_INK.series[0]),
            ):
                if angle is not None:
                    turn = at * angle
                    parts.append(
                        f'<line x1="{x}" y1="{y}" x2="{x + 15 * math.cos(turn):.2f}" '
                        f'y2="{y - 15 * math.sin(turn):.2f}" stroke="{colour}" stroke-width="2"/>'
                    )
    parts += [_text(ROW_NAME + (at + 0.5) * DIAL, 10, str(at), "middle") for at in range(positions)]
    return _svg(ROW_NAME + positions * DIAL, 20 + len(rows) * DIAL, parts)


def stacks_svg(stacks: Sequence[Mapping[str, Any]], pre_norm: bool) -> str:
    """A model's stacks beside each other, each from its input below to its output above, every layer open."""
    columns = [list(_blocks(stack["nodes"], pre_norm)) for stack in stacks]
    height = max(sum(size + GAP for *_, size in column) for column in columns) + 30
    parts, tops, crossed = [], [], []
    for number, (stack, column) in enumerate(zip(stacks, columns, strict=True)):
        x, y = number * (WIDE + APART) + 0.5, height - 24
        parts.append(_text(x + WIDE / 2, height - 4, stack["name"], "middle", weight=600))
        for title, kind, inset, size in column:
            y -= size + GAP
            parts.append(
                f'<line x1="{x + WIDE / 2}" y1="{y + (0 if kind == "layer" else size)}" x2="{x + WIDE / 2}" '
                f'y2="{y + size + GAP}" stroke="{LIGHT_INK.quiet}"/>'
            )
            if kind == "layer":
                parts.append(_text(x, y + size, title, weight=600))
                continue
            left, wide = x + inset, WIDE - inset
            if kind == "cross":
                crossed.append((left, y + size / 2))
            parts.append(
                f'<rect x="{left}" y="{y}" width="{wide}" height="{size}" rx="5" fill="{FILLS[kind]}" '
                f'stroke="{LIGHT_INK.hairline}"/>'
            )
            parts.append(_text(left + wide / 2, y + size / 2 + 4, title, "middle"))
        tops.append(y)
    parts += [_read_by(tops[0], left, middle) for left, middle in crossed if len(stacks) > 1]
    return _svg(len(stacks) * (WIDE + APART) - APART + 1, height, parts)


def _read_by(top: float, left: float, middle: float) -> str:
    """An arrow from the encoder, whose highest block begins at `top`, to a cross-attention of the decoder."""
    return (
        f'<path d="M{WIDE / 2 + 0.5} {top}V{top - GAP}H{WIDE + APART / 2}V{middle}H{left - 5}" fill="none" '
        f'stroke="{LIGHT_INK.quiet}"/><path d="M{left} {middle}l-7 -4v8z" fill="{LIGHT_INK.quiet}"/>'
    )


def _blocks(
    nodes: Sequence[Mapping[str, Any]], pre_norm: bool
) -> Iterator[tuple[str, str, int, int]]:
    """Title, kind, inset and height of every block, from the input on; the name of a layer stands above it."""
    for node in nodes:
        if "sublayers" not in node:
            yield (
                (f"+ {node['title']}", "adds", 0, SMALL)
                if node["adds"]
                else (node["title"], "box", 0, BOX)
            )
            continue
        for part in node["sublayers"]:
            if pre_norm and part["around"]:
                yield "Norm", "norm", INSET, SMALL
            yield part["title"], part["type"], INSET, BOX
            if part["around"]:
                yield "Add" if pre_norm else "Add and norm", "add", INSET, SMALL
        yield node["title"], "layer", 0, SMALL


def _svg(width: float, height: float, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-size="12">{"".join(parts)}</svg>'
    )


def _text(x: float, y: float, text: str, anchor: str = "start", weight: int = 400) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}" fill="{LIGHT_INK.text}">'
        f"{escape(text)}</text>"
    )
