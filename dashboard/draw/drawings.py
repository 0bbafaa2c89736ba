"""Drawings that are SVG from the start: dials of rotations, stacks of a model, and the tree of a search."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from dashboard.draw.formats import number
from dashboard.draw.maps import svg_of, text
from dashboard.draw.palette import LIGHT_INK, WEIGHTS, Ink, Theme, text_on

if TYPE_CHECKING:
    from core.models.decoding import Candidate, Tree  # at run time torch would come with them

# Drawings that only the browser draws elsewhere, as SVG for a file: dials of rotations, and stacks of a model.


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
    xs = [ROW_NAME + (at + 0.5) * DIAL for at in range(positions)]
    parts = [text(x, 10, str(at), anchor="middle") for at, x in enumerate(xs)]
    for i, row in enumerate(rows):
        y = (i + 0.5) * DIAL + 16
        parts.append(text(0, y + 4, f"{row['name']} · {row['circle']} positions"))
        hands = ((row.get("before"), LIGHT_INK.hairline), (row["angle"], LIGHT_INK.series[0]))
        for at, x in enumerate(xs):
            parts.append(
                f'<circle cx="{x}" cy="{y}" r="15" fill="none" stroke="{LIGHT_INK.hairline}"/>'
            )
            parts += [
                f'<line x1="{x}" y1="{y}" x2="{x + 15 * math.cos(at * angle):.2f}" '
                f'y2="{y - 15 * math.sin(at * angle):.2f}" stroke="{colour}" stroke-width="2"/>'
                for angle, colour in hands
                if angle is not None
            ]
    size = ROW_NAME + positions * DIAL, 20 + len(rows) * DIAL
    return svg_of(*size, "".join(parts), 'font-size="12"')


def stacks_svg(stacks: Sequence[Mapping[str, Any]], pre_norm: bool) -> str:
    """A model's stacks beside each other, each from its input below to its output above, every layer open."""
    columns = [list(_blocks(stack["nodes"], pre_norm)) for stack in stacks]
    height = max(sum(size + GAP for *_, size in column) for column in columns) + 30
    parts, tops, crossed = [], [], []
    for at, (stack, column) in enumerate(zip(stacks, columns, strict=True)):
        x, y = at * (WIDE + APART) + 0.5, height - 24
        parts.append(text(x + WIDE / 2, height - 4, stack["name"], anchor="middle", weight=600))
        for title, kind, inset, size in column:
            y -= size + GAP
            parts.append(
                f'<line x1="{x + WIDE / 2}" y1="{y + (0 if kind == "layer" else size)}" x2="{x + WIDE / 2}" '
                f'y2="{y + size + GAP}" stroke="{LIGHT_INK.quiet}"/>'
            )
            if kind == "layer":
                parts.append(text(x, y + size, title, weight=600))
                continue
            left, wide = x + inset, WIDE - inset
            if kind == "cross":
                crossed.append((left, y + size / 2))
            parts.append(
                f'<rect x="{left}" y="{y}" width="{wide}" height="{size}" rx="5" fill="{FILLS[kind]}" '
                f'stroke="{LIGHT_INK.hairline}"/>'
            )
            parts.append(text(left + wide / 2, y + size / 2 + 4, title, anchor="middle"))
        tops.append(y)
    if (
        len(stacks) > 1
    ):  # arrows from the encoder, whose highest block begins at `top`, to each cross-attention
        top, ink = tops[0], LIGHT_INK.quiet
        parts += [
            f'<path d="M{WIDE / 2 + 0.5} {top}V{top - GAP}H{WIDE + APART / 2}V{middle}H{left - 5}" fill="none" '
            f'stroke="{ink}"/><path d="M{left} {middle}l-7 -4v8z" fill="{ink}"/>'
            for left, middle in crossed
        ]
    return svg_of(
        len(stacks) * (WIDE + APART) - APART + 1, height, "".join(parts), 'font-size="12"'
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


RANKS = 8  # candidates of one step, by default
TALL, CANDIDATE_GAP, TOP = 34, 6, 24  # px: a candidate, between two, and the line of steps above
NARROW, CANDIDATE_WIDE = 46, 108
DASHES = {"dropped": ' stroke-dasharray="2 3"', "cut": ' stroke-dasharray="6 3"'}
HEAD = ("step", "token", "of", "log-probability", "total", "what became of it")
Names = Sequence[str] | Mapping[int, str]
FATES = {"kept": "kept", "ended": "an output", "cut": "cut at the longest", "dropped": "dropped"}


@dataclass(frozen=True)
class Spot:
    """A drawn candidate: its index in the tree, its step and its rank there."""

    place: int
    step: int
    rank: int


def spots(tree: Tree, picked: Sequence[int], ranks: int = RANKS) -> list[Spot]:
    """The first `ranks` candidates of each step by samples, then probability, and the picked path and drawn parents."""
    required, result, all_ = set(picked), list[Spot](), tree.candidates
    # from the last step back, so that what leads somewhere is known
    for step in sorted({one.step for one in all_}, reverse=True):
        ranked = sorted(
            (index for index, one in enumerate(all_) if one.step == step),
            key=lambda i: (-all_[i].samples, -all_[i].total),
        )
        room = max(0, ranks - len(required & set(ranked)))
        shown = required | set([index for index in ranked if index not in required][:room])
        visible = [index for index in ranked if index in shown]
        required |= {all_[index].parent for index in visible if all_[index].fate != "dropped"}
        result = [Spot(index, step, rank) for rank, index in enumerate(visible)] + result
    return result


def rows(tree: Tree, words: Names) -> list[tuple[int, str, int, float, float, str]]:
    """Every candidate as a row under HEAD; `of` is the row of the one that it continues, -1 for the root."""
    return [
        (one.step, words[one.token], one.parent, one.logp, one.total, FATES[one.fate])
        for one in tree.candidates
    ]


def picture(
    tree: Tree,
    words: Names,
    picked: Sequence[int],
    theme: Theme,
    step: int = -1,
    ranks: int = RANKS,
) -> str:
    """The tree as SVG: `words` names tokens, `picked` is a path, `step` its current one, `ranks` limits a step."""
    ink, visible = Ink.of(theme), spots(tree, picked, ranks)
    longest = max(len(words[tree.candidates[spot.place].token]) for spot in visible)
    figures = max(
        len(_number(one, math.exp(one.logp)))
        for one in (tree.candidates[spot.place] for spot in visible)
    )
    pitch = min(max(NARROW, 8 * longest + 22, 6 * figures + 8), CANDIDATE_WIDE) + 20
    at = {
        spot.place: (spot.step * pitch, TOP + spot.rank * (TALL + CANDIDATE_GAP))
        for spot in visible
    }
    width = (1 + max(spot.step for spot in visible)) * pitch
    height = TOP + (1 + max(spot.rank for spot in visible)) * (TALL + CANDIDATE_GAP)
    on = set(picked)
    lines = [
        _edge(tree, spot.place, at, pitch, ink, on)
        for spot in sorted(visible, key=lambda s: s.place in on)
    ]
    steps = [
        f'<text x="{step * pitch + (pitch - 20) / 2:.0f}" y="14" font-size="12" text-anchor="middle" '
        f'fill="{ink.quiet}">{step + 1}</text>'
        for step in range(1 + max(spot.step for spot in visible))
    ]
    current = picked[step] if picked else None
    boxes = [
        _box(tree, spot, at[spot.place], pitch - 20, words, ink, theme, on, current)
        for spot in visible
    ]
    return (
        f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="group" '
        f'aria-label="Tree of {len(tree.candidates)} candidates">'
        f"{''.join(steps)}{''.join(filter(None, lines))}{''.join(boxes)}</svg>"
    )


def _edge(
    tree: Tree, index: int, at: dict[int, tuple[int, int]], pitch: int, ink: Ink, on: set[int]
) -> str:
    one = tree.candidates[index]
    if one.parent not in at:
        return ""
    (x, y), (to_x, to_y) = at[one.parent], at[index]
    share = (
        one.samples / (tree.candidates[one.parent].samples or 1)
        if one.chance is not None
        else math.exp(one.logp)
    )
    faint = one.fate == "dropped"
    colour, opacity = (ink.pick, 1.0) if index in on else (ink.text, 0.16 if faint else 0.5)
    start, end, middle = x + pitch - 20, to_x, (x + pitch - 20 + to_x) / 2
    y, to_y = y + TALL // 2, to_y + TALL // 2
    return (
        f'<path d="M{start} {y}C{middle} {y} {middle} {to_y} {end} {to_y}" fill="none" stroke="{colour}" '
        f'stroke-opacity="{opacity}" stroke-width="{round(1 + (0 if faint else 3 * share), 1)}"/>'
    )


def _box(
    tree: Tree,
    spot: Spot,
    at: tuple[int, int],
    width: int,
    words: Names,
    ink: Ink,
    theme: Theme,
    on: set[int],
    current: int | None,
) -> str:
    one, (x, y) = tree.candidates[spot.place], at
    chance = math.exp(one.logp)
    stops = WEIGHTS[theme]
    colour = stops[min(len(stops) - 1, round(chance * (len(stops) - 1)))]
    text = text_on(colour, theme)
    name = words[one.token]
    name = name if 8 * len(name) + 10 <= width else name[: max(1, (width - 18) // 8)] + "…"
    wide = 3 if spot.place == current else 1.5
    ring = (
        f'stroke="{ink.pick}" stroke-width="{wide}"'
        if spot.place in on
        else f'stroke="{ink.text}" stroke-opacity="0.35"{DASHES.get(one.fate, "")}'
    )
    css = " picked" if spot.place == current else ""
    faint = (
        0.55 if one.fate == "dropped" and spot.place not in on else 1
    )  # of each part: a group's needs a layer
    return (
        f'<g data-place="{spot.place}" data-parent="{one.parent}" data-step="{spot.step}" data-rank="{spot.rank}" '
        f'class="{one.fate}{css}" fill-opacity="{faint}">'
        f"<title>{escape(candidate_text(tree, spot.place, words))}</title>"
        f'<rect x="{x + 1.5}" y="{y + 1.5}" width="{width - 3}" height="{TALL - 3}" rx="4" fill="{colour}" {ring}/>'
        f'<text x="{x + width / 2}" y="{y + 15}" font-size="13" text-anchor="middle" fill="{text}" '
        f'font-weight="{600 if spot.place in on else 400}">{escape(name)}</text>'
        f'<text x="{x + width / 2}" y="{y + 28}" font-size="11" text-anchor="middle" fill="{text}">'
        f"{_number(one, chance)}</text></g>"
    )


def _number(one: Candidate, chance: float) -> str:
    return f"{number(chance)} · {one.samples}×" if one.samples else number(chance)


def candidate_text(tree: Tree, index: int, words: Names) -> str:
    one = tree.candidates[index]
    before = (
        " ".join(words[token] for token in tree.tokens(one.parent)) if one.step else "the start"
    )
    samples = f", drawn {one.samples} times" if one.samples else ""
    return (
        f"{words[one.token]} after {before}: {number(math.exp(one.logp))}{samples}; all together "
        f"{number(math.exp(one.total))}; {FATES[one.fate]}."
    )
