"""Text as tokens, shaded by the weights of one step; the new token in the accent, later ones faint."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from core.trace import AttentionMap
from dashboard.charts.numbers import number
from dashboard.charts.palette import WEIGHTS, Ink, Theme
from dashboard.views.generate.compute import StepView

STYLE = """<style>
.lab-strip{display:flex;flex-wrap:wrap;gap:3px 2px;font-size:14px;line-height:18px}
.lab-strip span{border-radius:4px;padding:2px 5px;text-align:center;white-space:pre}
.lab-strip small{display:block;font-size:11px;line-height:13px;min-height:13px;font-variant-numeric:tabular-nums}
</style>"""
MOST = 256  # tokens of which all are shown
LEAST = 0.005  # a weight below it is not written
READABLE = 4.5


def shade(weight: float, theme: Theme) -> tuple[str, str]:
    """The ink of a weight from 0 to 1 between the stops of the scale, and the colour of text on it."""
    stops, position = WEIGHTS[theme], min(max(weight, 0.0), 1.0) * (len(WEIGHTS[theme]) - 1)
    low = min(int(position), len(stops) - 2)
    parts = [round(int(stops[low][i:i + 2], 16) * (low + 1 - position)
                   + int(stops[low + 1][i:i + 2], 16) * (position - low)) for i in (1, 3, 5)]
    ground = "#" + "".join(f"{part:02X}" for part in parts)
    inks = (Ink.of(theme).text, "#FFFFFF", "#000000")
    return ground, next((text for text in inks if contrast(text, ground) >= READABLE), inks[0])


def contrast(one: str, other: str) -> float:
    """The contrast of two colours, 1 to 21 (WCAG 2.2, section 1.4.3)."""
    low, high = sorted(_luminance(colour) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    parts = (int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5))
    return sum(share * (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4)
               for share, part in zip((0.2126, 0.7152, 0.0722), parts, strict=True))


def strip(tokens: Sequence[str], weights: Sequence[float | None], theme: Theme, *, label: str, now: int | None = None,
          chance: float | None = None) -> str:
    """HTML of the tokens; a weight is None where no attention is possible.

    `now` is the index of the new token, with its `chance`; later tokens are faint. Of very many tokens, only those with
    some weight are shown.
    """
    ink, shorten, gap = Ink.of(theme), len(tokens) > MOST, "<span>…</span>"
    cells: list[str] = []
    for index, (token, weight) in enumerate(zip(tokens, weights, strict=True)):
        below, style = "", ""
        if shorten and weight is not None and weight < LEAST:
            cells += [] if cells[-1:] == [gap] else [gap]
            continue
        if index == now:
            style = f"box-shadow:inset 0 0 0 2px {ink.pick};color:{ink.pick};font-weight:600"
            below = "" if chance is None else number(chance)
        elif now is not None and index > now:
            style = "opacity:.4"
        elif weight is not None:
            ground, text = shade(weight, theme)
            style, below = f"background:{ground};color:{text}", number(weight) if weight >= LEAST else ""
        cells.append(f'<span style="{style}">{escape(token)}<small>{below}</small></span>')
    return f'<div class="lab-strip" role="img" aria-label="{escape(label)}">{"".join(cells)}</div>'


def step_strips(view: StepView, item: AttentionMap, head: int, theme: Theme) -> str:
    """HTML of the text at a step: each token with its weight, the new one in the accent, later ones faint."""
    weights = item.weights[head, view.step].tolist()
    generated = tuple(view.names[token] for token in view.tokens)
    sink = item.keys[-1:] if view.continuation.sink else ()
    chance = float(view.continuation.logits[view.step].softmax(-1)[view.tokens[view.step]])
    label = f"Where head {item.layer_name}·H{head} attends to write {generated[view.step]}"
    if view.kind == "cross":
        read = strip(item.keys, weights, theme, label=label)
        start = tuple(view.names[token] for token in view.search.start.prompt.prefix_tokens[1:])
        answer = strip((*start, *generated), [None] * (len(start) + len(generated)), theme, label="The output",
                       now=len(start) + view.step, chance=chance)
        return f"{STYLE}{read}<div style='height:8px'></div>{answer}"
    first = len(view.search.start.prompt.prefix_tokens)
    line = (*sink, *item.keys[:first], *generated)
    shares: list[float | None] = [*weights[len(weights) - len(sink):], *weights[: first + view.step]]
    shares += [None] * (len(line) - len(shares))
    return STYLE + strip(line, shares, theme, label=label, now=len(sink) + first + view.step, chance=chance)
