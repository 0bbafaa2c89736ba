"""The step as a table of vectors, the cache's size by length, and pages, as HTML and Vega-Lite."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from core.cards.cache_sizes import FORMS, PublishedModel, cache_bytes
from core.tokens import token_text
from dashboard.charts.cache_sizes import size_figure
from dashboard.charts.numbers import number
from dashboard.charts.palette import BAR, CATEGORIES, PICK, Theme, colour_scale, colours_at
from dashboard.charts.vega import Spec
from dashboard.views.cache.compute import NAMES, Decoding
from dashboard.views.cache.paging import Paging

STYLE = """<style>
.kv{--quiet:color-mix(in srgb,currentColor 62%,transparent);--hair:color-mix(in srgb,currentColor 14%,transparent);
  max-width:900px}
.kv table{border-collapse:separate;border-spacing:4px 2px;width:100%;table-layout:fixed;font-size:13px;line-height:18px}
.kv th{font-weight:400;text-align:left;white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
.kv thead th{color:var(--quiet)} .kv tr.new th{color:var(--pick);font-weight:600} .kv tr.later{opacity:.75}
.kv td i{display:block;height:18px;box-sizing:border-box;border-radius:3px}
.kv i.new{outline:2px solid var(--pick);outline-offset:-1px}
.kv i.not{border:1px dashed var(--hair);
  background:repeating-linear-gradient(45deg,var(--hair) 0 1px,transparent 1px 5px)}
.kv i.later{border:1px dotted var(--hair)}
.kv td.w{white-space:nowrap;font-size:12px} .kv td.w i{display:inline-block;height:10px;background:var(--bar);
  margin-right:4px;vertical-align:middle;border-radius:2px}
.kv p{display:flex;flex-wrap:wrap;gap:4px 16px;margin:0 0 4px;font-size:13px;line-height:18px}
.kv p span{display:flex;align-items:center;gap:6px} .kv p i{display:block;width:28px;height:14px;border-radius:3px;
  box-sizing:border-box}
.pg{display:grid;grid-template-columns:repeat(auto-fit,minmax(260px,1fr));gap:12px 32px;font-size:13px;line-height:18px;
  --hair:color-mix(in srgb,currentColor 18%,transparent)}
.pg h3{font-size:14px;font-weight:600;margin:0 0 4px;padding:0} .pg div div{display:flex;flex-wrap:wrap;gap:3px}
.pg i{display:block;overflow:hidden;height:26px;border:1px solid var(--hair);border-radius:3px;box-sizing:border-box;
  font-style:normal;font-size:11px;line-height:24px;text-align:center}
.pg .row{margin-bottom:3px}
</style>"""

SQUARE = 26  # pixels


def step_table(decoding: Decoding, step: int, head: tuple[int, int], theme: Theme) -> str:
    """One row a token: its q, k and v as strips, in the state of this step, and the new token's weight on it."""
    first, last = decoding.first_new(step), decoding.last(step)
    weights = decoding.weights[step][head]
    spans = {name: float(np.abs(decoding.vectors[name][head]).max()) for name in NAMES}
    rows = []
    for at, token in enumerate(decoding.tokens):
        state = "later" if at > last else "new" if at >= first else "old"
        values = {name: decoding.vectors[name][head][at] / spans[name] if at <= last else None for name in NAMES}
        cells = "".join(_vector(each, name, state, theme) for name, each in values.items())
        weight = _weight(float(weights[at])) if at <= last else "<td></td>"
        rows.append(f'<tr class="{state}"><th scope="row">{escape(token_text(token))}</th>{cells}{weight}</tr>')
    heads = "".join(f'<th scope="col">{name}</th>' for name in ("token", *NAMES, "weight"))
    return (f'<div class="kv" style="--pick:{PICK[theme]};--bar:{BAR[theme]}">{_legend(theme)}'
            f'<table aria-label="What each token\'s q, k and v are at step {step}"><thead><tr>{heads}</tr></thead>'
            f"<tbody>{''.join(rows)}</tbody></table></div>")


def _vector(values: np.ndarray | None, name: str, state: str, theme: Theme) -> str:
    """A cell: the vector where it is computed or stored, hatched where it is no longer there."""
    if values is None:
        return '<td><i class="later" title="not yet"></i></td>'
    if state == "old" and name == "q":
        return '<td><i class="not" title="not stored"></i></td>'
    title = f"{name}, {'computed now' if state == 'new' else 'read from the cache'}"
    return f'<td><i class="{state}" title="{title}" style="background:{_strip(values, theme)}"></i></td>'


def _strip(values: np.ndarray, theme: Theme) -> str:
    """A vector from −1 to 1 as a gradient of hard stops."""
    colours = colours_at(colour_scale(theme, signed=True), (values + 1) / 2).round().astype(int)
    edges = [round(100 * at / len(colours), 2) for at in range(len(colours) + 1)]
    stops = [f"rgb({r},{g},{b}) {edges[at]}% {edges[at + 1]}%" for at, (r, g, b) in enumerate(colours)]
    return f"linear-gradient(90deg,{','.join(stops)})"


def _weight(weight: float) -> str:
    return f'<td class="w"><i style="width:{round(50 * weight, 1)}%"></i>{number(weight)}</td>'


def _legend(theme: Theme) -> str:
    strip = f' style="background:{_strip(np.linspace(-1, 1, 8), theme)}"'
    parts = (("new", strip, "computed now"), ("old", strip, "read from the cache"), ("not", "", "not stored"))
    return "<p>" + "".join(f'<span><i class="{css}"{style}></i>{words}</span>' for css, style, words in parts) + "</p>"


def size_chart(model: PublishedModel, curves: Sequence[str], lengths: Sequence[int], number_bytes: int,
               theme: Theme) -> Spec:
    """Bytes of the cache by length, in each form."""
    points = {FORMS[key].name: [(length, cache_bytes(model, FORMS[key], length, number_bytes)) for length in lengths]
              for key in curves}
    return size_figure(points, [form.name for form in FORMS.values()], lengths, theme)


def paging_drawing(paging: Paging, theme: Theme) -> str:
    """Left each sequence with room for the longest, right the pages in memory."""
    size, longest = paging.size, max(paging.lengths)
    rows = []
    for sequence, length in enumerate(paging.lengths):
        squares = [_square(sequence, max(0, min(size, length - start)), min(size, longest - start), size, theme)
                   for start in range(0, longest, size)]
        rows.append(f'<div class="row">{"".join(squares)}</div>')
    pages = "".join(_square(page.sequence, page.filled, size, size, theme) for page in paging.pages)
    return (f'<div class="pg"><div><h3>Room for the longest</h3>{"".join(rows)}</div>'
            f"<div><h3>In pages</h3><div>{pages}</div></div></div>")


def _square(sequence: int, filled: int, places: int, size: int, theme: Theme) -> str:
    """So many places in a sequence's colour, from the left as far as they are filled; a page of `size` is square."""
    colour, share = CATEGORIES[theme][sequence], round(100 * filled / places, 2)
    title = f"sequence {sequence + 1}: {filled} of {places} places"
    fill = f"color-mix(in srgb,{colour} 60%,transparent) {share}%,transparent {share}%"
    width = round(SQUARE * places / size, 1)
    return (f'<i title="{title}" style="width:{width}px;background:linear-gradient(90deg,{fill}) border-box">'
            f"{sequence + 1}</i>")
