"""Which heads look alike, as a small square of numbers; plain HTML, which a rerun draws at once."""

from __future__ import annotations

import numpy as np

from dashboard.charts import numbers
from dashboard.charts.palette import Theme, colour_scale

CELL = 28  # pixels, which two digits fill at the smallest size
STRONG = 0.5  # from here on the ink is nearer to the text's own colour than to the page's


def square(overlap: np.ndarray, theme: Theme) -> str:
    """Heads by heads: the share of weight in common, in the blue of weights, with its number."""
    heads = range(len(overlap))
    corner = '<th scope="col"></th>'
    head = corner + "".join(f'<th scope="col">{j}</th>' for j in heads)
    rows = "".join(f'<tr><th scope="row">{i}</th>{"".join(cell(overlap[i, j], i, j, theme) for j in heads)}</tr>'
                   for i in heads)
    return (f"<style>.alike{{border-collapse:separate;border-spacing:1px;font-size:11px;line-height:{CELL}px}}"
            f".alike th{{font-weight:400;font-size:12px;opacity:.62;min-width:16px}}"
            f".alike td{{width:{CELL}px;padding:0;text-align:center}}</style>"
            '<div style="font-size:14px;font-weight:600">Heads alike</div>'
            '<div style="font-size:13px;opacity:.62;margin-bottom:4px">share of their weight in common</div>'
            '<table class="alike" aria-label="Share of weight that two heads have in common">'
            f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>")


def cell(share: float, i: int, j: int, theme: Theme) -> str:
    """One pair of heads; a head has all in common with itself, which no number need say."""
    stops = colour_scale(theme)
    fill = stops[round(min(1.0, max(0.0, float(share))) * (len(stops) - 1))]
    text = stops[0] if share >= STRONG else stops[-1]
    whole = numbers.number(share)
    said = "" if i == j else numbers.cell(whole)
    return f'<td style="background:{fill};color:{text}" title="head {i} and head {j}: {whole}">{said}</td>'
