"""Text as tokens, shaded by the weights of one step; the new token in the accent, later ones faint."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from core.trace import AttentionMap
from dashboard.charts.numbers import number
from dashboard.charts.palette import Ink, Theme, shade, text_on
from dashboard.views.generate.compute import StepView

STYLE = """<style>
.lab-strip{display:flex;flex-wrap:wrap;gap:3px 2px;font-size:14px;line-height:18px}
.lab-strip span{border-radius:4px;padding:2px 5px;text-align:center;white-space:pre}
.lab-strip small{display:block;font-size:11px;line-height:13px;min-height:13px;font-variant-numeric:tabular-nums}
</style>"""
MOST = 256  # tokens of which all are shown
LEAST = 0.005  # a weight below it is not written


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
            style = "opacity:.7"
        elif weight is not None:
            ground = shade(weight, theme)
            style = f"background:{ground};color:{text_on(ground, theme)}"
            below = number(weight) if weight >= LEAST else ""
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
