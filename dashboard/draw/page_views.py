"""Components of one page or two: a mask's board, dials, a sketched line, a translator, a tree, a model's blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from core.tokens import token_text
from dashboard.draw.attention_view import READS, encode, packed
from dashboard.draw.components import add, draw, sent, store
from dashboard.draw.figures import LIGHT_INK, WEIGHTS, Ink, Theme, text_on
from dashboard.draw.formats import byte_size, number, operations, share_text, signed
from dashboard.draw.pictures import DrawnPicture, MapsPicture, PictureMap, svg_of, text

if TYPE_CHECKING:  # at run time torch would come with them
    from core.attention.properties import Pair
    from core.interpret.trace import Kind
    from core.models.decoding import Candidate, Tree
    from core.models.model_summary import Part

# A board of cells of a mask, switched on and off by pointer or keys.


def mask_board(
    allowed: np.ndarray,
    tokens: Sequence[str],
    *,
    key: str,
    on_draw: Callable[[], None],
    weights: np.ndarray,
    cell: int,
    query: int | None = None,
    title: str = "",
    note: str = "",
    fact: str = "",
) -> None:
    """Draw the cells `allowed` (T, T), True = may attend, T at most 64, which a person may switch on and off.

    A phone shows in them the `weights` (T, T), for which it has no room beside the board.
    `cell` is the largest size of a cell in pixels.
    `query` is the row in the accent while nothing is under the pointer; `fact` is what a screen reader hears first.
    """
    import torch

    from core.attention.masks.patterns import drawing_of

    names = [token_text(str(token)) for token in tokens]
    own = store(f"{key}:view")
    data = {
        "cells": drawing_of(torch.from_numpy(np.ascontiguousarray(allowed))),
        "names": names,
        "weights": packed(weights, True),
        "cell": cell,
        "query": query,
        "title": title,
        "note": note,
        "fact": fact,
        "turn": own.get("turn", 0),
    }

    def picture() -> MapsPicture:
        rows, name, cells = tuple(names), title or "Mask", allowed.astype(float)
        drawn = PictureMap(name, cells, rows, rows, note, allowed, noun="may attend")
        return MapsPicture(name, (drawn,), query, READS["self"])

    def take() -> None:
        own["turn"] = int(dict(sent(key, "cells") or {}).get("turn", 0))
        on_draw()

    add(key, picture)
    draw("mask_board", "mb", data, key=key, on_cells_change=take)


def drawing_text(key: str) -> str:
    """The board's drawing as validated text; ConfigError when the browser sent anything else."""
    from core.attention.masks.patterns import drawing_of, parse_drawing

    cells = dict(sent(key, "cells") or {})
    return drawing_of(parse_drawing(str(cells.get("text", ""))))


# Rotations as dials: one for each pair of dimensions and position.


MAX_PAIRS = 8
DIAL, ROW_NAME = 40, 150  # px


def dials(
    pairs: Sequence[Pair],
    positions: Sequence[int],
    ink: Ink,
    *,
    key: str,
    label: str,
    before: Sequence[Pair] = (),
    words: Sequence[str] = (),
) -> None:
    """Draw a row a pair, a column a position, hands rotating clockwise from the top, those of `before` faintly.

    A row is named by the pair's two dimensions; `words` stand at the first columns.
    """
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
        "positions": list(positions),
        "words": list(words),
        "label": label,
        "hand": ink.series[0],
        "pick": ink.pick,
    }
    add(
        key,
        lambda: DrawnPicture(
            label,
            ("dimensions", "angle of a position", "wavelength"),
            tuple(
                (f"pair {row['name']}", pair.angle, pair.wavelength)
                for row, pair in zip(rows, pairs, strict=True)
            ),
            dials_svg(rows, positions),
        ),
    )
    draw("position_dials", "dials", data, key=key)


def dials_svg(rows: Sequence[Mapping[str, Any]], positions: Sequence[int]) -> str:
    """A row of dials for each pair of dimensions: its name, its wavelength, and a hand rotated by position × angle."""
    xs = [ROW_NAME + (at + 0.5) * DIAL for at in range(len(positions))]
    parts = [text(x, 10, str(at), anchor="middle") for at, x in zip(positions, xs, strict=True)]
    for i, row in enumerate(rows):
        y = (i + 0.5) * DIAL + 16
        parts.append(text(0, y + 4, f"{row['name']} · {row['circle']} positions"))
        parts += [
            f'<circle cx="{x}" cy="{y}" r="15" fill="none" stroke="{LIGHT_INK.hairline}"/>'
            for x in xs
        ]
        parts += [
            f'<line x1="{x}" y1="{y}" x2="{x + 15 * math.sin(at * angle):.2f}" '
            f'y2="{y - 15 * math.cos(at * angle):.2f}" stroke="{colour}" stroke-width="2"/>'
            for at, x in zip(positions, xs, strict=True)
            for angle, colour in (
                (row.get("before"), LIGHT_INK.hairline),
                (row["angle"], LIGHT_INK.series[0]),
            )
            if angle is not None
        ]
    return svg_of(
        ROW_NAME + len(positions) * DIAL, 20 + len(rows) * DIAL, "".join(parts), 'font-size="12"'
    )


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

    def take_guess() -> None:
        guess = sent(key, "guess")
        if guess is not None:
            take(None if guess == NONE else [float(y) for y in guess])

    data = {
        "xs": [int(x) if float(x).is_integer() else float(x) for x in xs],
        "y": {"low": float(low), "high": float(high), "log": log_y},
        "logX": log_x,
        "share": share,
        "xTitle": x_title,
    }
    draw("sketch_view", "sketch", data, key=key, on_guess_change=take_guess)


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
        values, words = np.array(weights, np.float32), (tuple(target), tuple(source))
        drawn = PictureMap("Attention", values, *words, noun="weight")
        title, about = "Attention of the translator", {"text": " ".join(source)}
        return MapsPicture(title, (drawn,), picked, READS["cross"], about=about)

    def take() -> None:
        word = sent(key, "word")
        if isinstance(word, int | float) and 0 <= word < len(target):
            on_pick(int(word))

    add(key, picture)
    draw("translation_view", "tv", data, key=key, on_word_change=take)


# The tree of a search, whose groups have data-place, data-step and data-rank.


RANKS = 8  # candidates of one step, by default
TALL, CANDIDATE_GAP, TOP = 34, 6, 24  # px: a candidate, between two, and the line of steps above
NARROW, CANDIDATE_WIDE = 46, 108
STROKES = {"dropped": ' stroke-dasharray="2 3"', "cut": ' stroke-dasharray="6 3"'}
TREE_HEAD = ("step", "token", "of", "log-probability", "total", "what became of it")
Names = Sequence[str] | Mapping[int, str]
FATES = {"kept": "kept", "ended": "an output", "cut": "cut at the longest", "dropped": "dropped"}


def tree_spots(tree: Tree, picked: Sequence[int], ranks: int = RANKS) -> dict[int, tuple[int, int]]:
    """Step and rank of each candidate that is drawn, by its index in the tree.

    These are the first `ranks` of each step by samples, then probability, the picked path, and the parents of all.
    """
    required, result, all_ = set(picked), dict[int, tuple[int, int]](), tree.candidates
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
        result = {index: (step, rank) for rank, index in enumerate(visible)} | result
    return result


def tree_svg(
    tree: Tree,
    words: Names,
    picked: Sequence[int],
    theme: Theme,
    step: int = -1,
    ranks: int = RANKS,
) -> str:
    """The tree as SVG: `words` names tokens, `picked` is a path, `step` its current one, `ranks` limits a step."""
    ink, spots, on = Ink.of(theme), tree_spots(tree, picked, ranks), set(picked)
    drawn = [tree.candidates[place] for place in spots]
    letters = max(8 * len(words[one.token]) + 22 for one in drawn)
    pitch = (
        min(max(NARROW, letters, max(6 * len(_number(one)) + 8 for one in drawn)), CANDIDATE_WIDE)
        + 20
    )
    at = {
        place: (step * pitch, TOP + rank * (TALL + CANDIDATE_GAP))
        for place, (step, rank) in spots.items()
    }
    columns, rows = (1 + max(part) for part in zip(*spots.values(), strict=True))
    width, height = columns * pitch, TOP + rows * (TALL + CANDIDATE_GAP)
    lines = "".join(
        _edge(tree, place, at, pitch, ink, on)
        for place in sorted(spots, key=on.__contains__)
        if tree.candidates[place].parent in at
    )
    steps = "".join(
        f'<text x="{step * pitch + (pitch - 20) / 2:.0f}" y="14" font-size="12" text-anchor="middle" '
        f'fill="{ink.quiet}">{step + 1}</text>'
        for step in range(columns)
    )
    current = picked[step] if picked else None
    boxes = "".join(
        f'<g data-place="{place}" data-parent="{tree.candidates[place].parent}" data-step="{step}" '
        f'data-rank="{rank}" {_box(tree, place, at[place], pitch - 20, words, theme, on, current)}</g>'
        for place, (step, rank) in spots.items()
    )
    return (
        f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="group" '
        f'aria-label="Tree of {len(tree.candidates)} candidates">{steps}{lines}{boxes}</svg>'
    )


def _edge(
    tree: Tree, index: int, at: dict[int, tuple[int, int]], pitch: int, ink: Ink, on: set[int]
) -> str:
    one = tree.candidates[index]
    (x, y), (end, to_y) = at[one.parent], at[index]
    share = (
        one.samples / (tree.candidates[one.parent].samples or 1)
        if one.chance is not None
        else math.exp(one.logp)
    )
    faint, thick = (0.16, 1.0) if one.fate == "dropped" else (0.5, 1 + 3 * share)
    colour, opacity = (ink.pick, 1.0) if index in on else (ink.text, faint)
    start, y, to_y = x + pitch - 20, y + TALL // 2, to_y + TALL // 2
    middle = (start + end) / 2
    return (
        f'<path d="M{start} {y}C{middle} {y} {middle} {to_y} {end} {to_y}" fill="none" stroke="{colour}" '
        f'stroke-opacity="{opacity}" stroke-width="{round(thick, 1)}"/>'
    )


def _box(
    tree: Tree,
    place: int,
    at: tuple[int, int],
    width: int,
    words: Names,
    theme: Theme,
    on: set[int],
    current: int | None,
) -> str:
    one, (x, y), ink, stops = tree.candidates[place], at, Ink.of(theme), WEIGHTS[theme]
    colour = stops[min(len(stops) - 1, round(_share(one) * (len(stops) - 1)))]
    text, name = text_on(colour, theme), words[one.token]
    name = name if 8 * len(name) + 10 <= width else name[: max(1, (width - 18) // 8)] + "…"
    state, border = (f"{one.fate} picked", 3) if place == current else (one.fate, 1.5)
    # the opacity of each part: a group's needs a layer
    faint, weight = 0.55 if one.fate == "dropped" else 1, 400
    ring = f'stroke="{ink.text}" stroke-opacity="0.35"{STROKES.get(one.fate, "")}'
    if place in on:
        faint, weight, ring = 1, 600, f'stroke="{ink.pick}" stroke-width="{border}"'
    return (
        f'class="{state}" fill-opacity="{faint}">'
        f"<title>{escape(candidate_text(tree, place, words))}</title>"
        f'<rect x="{x + 1.5}" y="{y + 1.5}" width="{width - 3}" height="{TALL - 3}" rx="4" fill="{colour}" {ring}/>'
        f'<text x="{x + width / 2}" y="{y + 15}" font-size="13" text-anchor="middle" fill="{text}" '
        f'font-weight="{weight}">{escape(name)}</text>'
        f'<text x="{x + width / 2}" y="{y + 28}" font-size="11" text-anchor="middle" fill="{text}">'
        f"{_number(one)}</text>"
    )


def _share(one: Candidate) -> float:
    """Its probability, of a sampled one that with which it is drawn."""
    return math.exp(one.logp) if one.chance is None else one.chance


def _number(one: Candidate) -> str:
    return share_text(_share(one)) + (f" · {one.samples}×" if one.samples else "")


def candidate_text(tree: Tree, index: int, words: Names) -> str:
    one = tree.candidates[index]
    before = (
        " ".join(words[token] for token in tree.tokens(one.parent)) if one.step else "the start"
    )
    samples = f", drawn {one.samples} times" if one.samples else ""
    return (
        f"{words[one.token]} after {before}: {share_text(_share(one))}{samples}; by the model all "
        f"together {share_text(math.exp(one.total))}; {FATES[one.fate]}."
    )


def tree_view(
    tree: Tree,
    words: Names,
    path: Sequence[int],
    fact: str,
    *,
    key: str,
    follow: bool,
    theme: Theme,
    on_pick: Callable[[int], None],
    **options: int,
) -> None:
    """Draw a tree, with the `options` of `tree_svg`; `on_pick` gets the candidate that was pressed.

    `fact` is what a screen reader hears first; with `follow` the picked group is scrolled to.
    """

    def picture() -> DrawnPicture:
        rows = (  # `of` is the row of the one that a candidate continues, -1 for the root
            (one.step, words[one.token], one.parent, one.logp, one.total, FATES[one.fate])
            for one in tree.candidates
        )
        drawing = tree_svg(tree, words, path, "light", **options)
        return DrawnPicture("Tree of candidates", TREE_HEAD, tuple(rows), drawing)

    def pressed() -> None:
        candidate = sent(key, "pick")
        if isinstance(candidate, int) and 0 <= candidate < len(tree.candidates):
            on_pick(candidate)

    add(key, picture)
    data = {"svg": tree_svg(tree, words, path, theme, **options), "fact": fact, "follow": follow}
    draw("tree_view", "tv", data, key=key, on_pick_change=pressed)


# A model as the papers draw it, stacks of blocks with residual paths whose layers open in place; and as nested parts.


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
    return [
        " × ".join(map(str, part.shape or ())),
        f"{part.parameters:,}" if part.parameters else "",
        operations(part.flops) if part.flops else "",
        byte_size(part.bytes) if part.bytes else "",
        (
            ""
            if part.std is None or part.mean is None
            else f"{number(part.mean)} ± {number(part.std)}"
        ),
        "" if part.gradient is None else number(part.gradient),
    ]


# A model as nested parts that open: each row a part, with its numbers in columns, drawn in the browser.


def diagram(
    tree: Part, *, key: str, chosen: str, on_pick: Callable[[], None], fact: str = ""
) -> None:
    """Draw the tree; `chosen` is the path of the attention whose maps the page shows."""
    data = {
        "tree": row(tree, tree),
        "heads": ("output", "parameters", "FLOPs", "for backward", "mean ± std", "gradient"),
        "chosen": chosen,
        "fact": fact,
    }
    draw("model_diagram", "dg", data, key=key, on_pick_change=on_pick)


def row(part: Part, whole: Part) -> dict[str, Any]:
    return {
        "path": part.path,
        "title": part.title,
        "map": is_attention(part.path),
        "cells": cells(part),
        "shares": [
            round(getattr(part, n) / max(1, getattr(whole, n)), 4)
            for n in ("parameters", "flops", "bytes")
        ],
        "parts": [row(child, whole) for child in part.children],
    }


MAX_ROWS, MAX_COLUMNS = 24, 128  # of the vectors that are drawn


@dataclass(frozen=True)
class Bars:
    """Names with a bar each, the first one in the accent where it is `picked`; with `before`, also what changed.

    `at_temperature` has the shares of the same names by the temperature of the softmax, which is then a control.
    """

    heading: str
    rows: tuple[tuple[str, float], ...]
    before: tuple[float, ...] = ()
    at_temperature: tuple[tuple[float, tuple[float, ...]], ...] = ()
    picked: bool = True

    def payload(self) -> dict[str, Any]:
        changes = [
            (share_text(old), signed(share - old) if abs(share - old) >= 1e-4 else "0")
            for (_, share), old in zip(self.rows, self.before, strict=False)
        ]
        return {
            "heading": self.heading,
            "names": [name for name, _ in self.rows],
            "shares": [(share, share_text(share)) for _, share in self.rows],
            "changes": changes,
            "temperatures": [
                (temperature, [(share, share_text(share)) for share in shares])
                for temperature, shares in self.at_temperature
            ],
            "picked": self.picked,
        }


@dataclass(frozen=True)
class Block:
    """What the panel beside the diagram says of one block; `vectors` (T, C) with T tokens, `maps` (H, T, S).

    `cell` is the head, row and column of its maps that the panel shows, `label` stands beside the block, `table` has a
    column of bars for each of the last tokens.
    """

    title: str
    about: str
    numbers: tuple[tuple[str, str], ...] = ()
    tokens: tuple[str, ...] = ()
    vectors: np.ndarray | None = None
    maps: np.ndarray | None = None
    bars: tuple[Bars, ...] = ()
    cell: tuple[int, int, int] | None = None
    label: str = ""
    table: tuple[Bars, ...] = ()

    def payload(self) -> dict[str, Any]:
        data: dict[str, Any] = {
            "title": self.title,
            "about": self.about,
            "numbers": self.numbers,
            "tokens": self.tokens,
            "bars": [one.payload() for one in self.bars],
            "cell": self.cell,
            "label": self.label,
            "table": [one.payload() for one in self.table],
        }
        if self.vectors is not None:
            values = self.vectors[:MAX_ROWS, :MAX_COLUMNS]
            largest = float(np.abs(values).max()) or 1.0
            data["vectors"] = {
                "rows": values.shape[0],
                "cols": values.shape[1],
                "largest": largest,
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
    steps: Sequence[Sequence[str]],
    pending: bool = False,
) -> None:
    """Draw the stacks; `chosen` is the block that is open first ("": that of the first step).

    `label` is read aloud. Each of the `steps` lights some blocks and tells the first of them; the layers whose
    sublayers they name are open at first.

    `on_pick` is called when a block with maps is opened; `sent(key, "pick")` has its path. While vectors and
    maps are `pending`, the panel stays as high as it is.
    """
    data = {
        "stacks": list(stacks),
        "blocks": {path: block.payload() for path, block in blocks.items()},
        "pre": pre_norm,
        "chosen": chosen,
        "label": label,
        "steps": list(steps),
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
            above = y if kind == "layer" else y + size
            parts.append(
                f'<line x1="{x + WIDE / 2}" y1="{above}" x2="{x + WIDE / 2}" '
                f'y2="{y + size + GAP}" stroke="{LIGHT_INK.quiet}"/>'
            )
            if kind == "layer":
                parts.append(text(x, y + size, title, weight=600))
                continue
            left, wide = x + inset, WIDE - inset
            if kind == "cross":
                crossed.append((left, y + size / 2))
            parts += [
                f'<rect x="{left}" y="{y}" width="{wide}" height="{size}" rx="5" fill="{FILLS[kind]}" '
                f'stroke="{LIGHT_INK.hairline}"/>',
                text(left + wide / 2, y + size / 2 + 4, title, anchor="middle"),
            ]
        tops.append(y)
    # arrows from the encoder, whose highest block begins at `top`, to each cross-attention
    top, ink = tops[0], LIGHT_INK.quiet
    parts += [
        f'<path d="M{WIDE / 2 + 0.5} {top}V{top - GAP}H{WIDE + APART / 2}V{middle}H{left - 5}" fill="none" '
        f'stroke="{ink}"/><path d="M{left} {middle}l-7 -4v8z" fill="{ink}"/>'
        for left, middle in crossed
        if len(stacks) > 1
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


def stacks_of(tree: Part) -> list[dict[str, Any]]:
    """The model's stacks in the order of computing: encoder and decoder, or the only one there is."""
    parts = [part for part in tree.children if not part.path.endswith("itself")]
    encoder = [
        part for part in parts if part.path.split(".")[0] in ("source", "source_places", "encoder")
    ]
    rest = [part for part in parts if part not in encoder]
    if encoder and any(part.path.startswith("layers") for part in rest):
        stacks = {"Encoder": encoder, "Decoder": rest}
    else:  # the layers of the only stack need not name it
        parts = [replace(one, title=one.title.replace("Decoder layer", "Layer")) for one in parts]
        stacks = {"Encoder" if encoder else "Decoder": parts}
    return [{"name": name, "nodes": _nodes(part)} for name, part in stacks.items()]


def paths_of(stacks: Sequence[Mapping[str, Any]]) -> set[str]:
    """The paths of all blocks that the stacks can show, and of the layers that open."""
    nodes = [node for stack in stacks for node in stack["nodes"]]
    return {node["path"] for node in nodes} | {
        part[way]
        for node in nodes
        for part in node.get("sublayers", ())
        for way in ("path", "around")
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
            sublayers = [
                {
                    "path": child.path,
                    "title": child.title,
                    "type": {"feed_forward": "feed", "cross": "cross"}.get(last, "attention"),
                    "around": around if around in paths else "",
                }
                for child in part.children
                for above, _, last in [child.path.rpartition(".")]
                for around in [f"{above}.around_{last}"]
                if is_attention(child.path) or last == "feed_forward"
            ]
            node: dict[str, Any] = {"path": part.path, "title": part.title, "sublayers": sublayers}
            name, _, kind = part.title.partition(": ")
            if kind:
                node["title"] = f"Layer {name.rpartition(' ')[2]}: {kind}"
                node["kind"] = kinds.setdefault(kind, len(kinds))
            nodes.append(node)
        else:
            adds = part.path.endswith("places")  # the stack's name says of what
            nodes.append(
                {"path": part.path, "title": "Positions" if adds else part.title, "adds": adds}
            )
    return nodes
