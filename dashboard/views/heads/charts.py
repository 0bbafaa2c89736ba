"""Overlap of heads as a square of numbers, and cache sizes as bars: plain HTML, which a rerun draws at once."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from core.attention import entry
from dashboard.charts import numbers
from dashboard.charts.numbers import byte_size
from dashboard.charts.palette import CATEGORIES, Theme, colour_scale
from dashboard.views.heads.compute import CacheSize

CELL = 28  # pixels, which two digits fill at the smallest size
DARK = 0.5  # from here on a cell is nearer to the text's own colour than to the page's
LONGEST = 42  # percent of the width, which leaves room for names and amounts
BREAK = '<div style="flex-basis:100%;height:0"></div>'


def overlap_square(overlap: np.ndarray, theme: Theme) -> str:
    """Heads by heads: the share of weight in common, in the blue of weights, with its number."""
    heads = range(len(overlap))
    head = '<th scope="col"></th>' + "".join(f'<th scope="col">{j}</th>' for j in heads)
    rows = "".join(f'<tr><th scope="row">{i}</th>{"".join(_cell(overlap[i, j], i, j, theme) for j in heads)}</tr>'
                   for i in heads)
    return (f"<style>.overlap{{border-collapse:separate;border-spacing:1px;font-size:11px;line-height:{CELL}px}}"
            f".overlap th{{font-weight:400;font-size:12px;opacity:.62;min-width:16px}}"
            f".overlap td{{width:{CELL}px;padding:0;text-align:center}}</style>"
            '<div style="font-size:14px;font-weight:600">Overlap of heads</div>'
            '<div style="font-size:13px;opacity:.62;margin-bottom:4px">'
            'the weight that two heads put on the same words</div>'
            '<table class="overlap" aria-label="Weight that two heads put on the same words">'
            f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>")


def _cell(share: float, i: int, j: int, theme: Theme) -> str:
    """One pair of heads; a head's overlap with itself is 1 and has no number."""
    stops = colour_scale(theme)
    fill = stops[round(min(1.0, max(0.0, float(share))) * (len(stops) - 1))]
    colour = stops[0] if share >= DARK else stops[-1]
    whole = numbers.number(share)
    text = "" if i == j else numbers.cell(whole)
    return f'<td style="background:{fill};color:{colour}" title="head {i} and head {j}: {whole}">{text}</td>'


def head_bars(word: str, lengths: np.ndarray, theme: Theme) -> str:
    """The length of what each head adds to one word's new vector, a bar for each head, (H,)."""
    most, colour = float(lengths.max()) or 1.0, CATEGORIES[theme][0]
    title = f"Length of what each head adds to “{word}”"
    label = ", ".join(f"head {head} {numbers.number(float(each))}" for head, each in enumerate(lengths))
    lines = "".join(f'<div style="display:flex;gap:8px"><div style="flex:0 0 52px;text-align:right">head {head}</div>'
                    f'<div style="height:14px;margin-top:2px;border-radius:2px;background:{colour};'
                    f'width:{round(LONGEST * float(each) / most, 1)}%"></div>'
                    f"<div>{numbers.number(float(each))}</div></div>"
                    for head, each in enumerate(lengths))
    return (f'<div role="img" aria-label="{escape(f"{title}: {label}")}" style="font-size:13px;line-height:18px;'
            f'max-width:560px"><div style="font-size:14px;font-weight:600;margin-bottom:4px">{escape(title)}</div>'
            f'{lines}</div>')


def cache_bars(length: int, caches: Sequence[CacheSize], theme: Theme) -> str:
    """Bytes cached, a bar for each projection, with the amount at its end."""
    most = max(each.bytes for each in caches)
    names = [entry("projection", each.config.projection.key).name for each in caches]
    title = f"Cache of {length:,} tokens, one layer"
    label = ", ".join(f"{name} {byte_size(each.bytes)}" for name, each in zip(names, caches, strict=True))
    lines = "".join(
        f'<div style="flex:0 0 104px;text-align:right">{escape(name)}</div><div style="height:18px;'
        f'border-radius:2px;width:{round(LONGEST * each.bytes / most, 1)}%;background:{colour}"></div>'
        f"<div>{byte_size(each.bytes)}</div>{BREAK}"
        for name, each, colour in zip(names, caches, CATEGORIES[theme], strict=False))
    return (f'<div role="img" aria-label="{escape(f"{title}: {label}")}" style="font-size:13px;line-height:18px">'
            f'<div style="font-size:14px;font-weight:600;margin-bottom:8px">{title}</div>'
            f'<div style="display:flex;flex-wrap:wrap;gap:10px 8px;align-items:center">{lines}</div></div>')
