"""A row of weights as bars, one small figure a normalizer, in plain HTML: it shows as soon as the text does."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from dashboard.draw.formats import number
from dashboard.draw.palette import PICK, SIGNED, WEIGHTS, Theme
from dashboard.views.normalizers.controls import MAX_PILLS

NO_KEY = "no key"
MIN_UNASSIGNED = 5e-3  # a smaller weight, which two decimals would not show, is not drawn

STYLE = """<style>
.nb{display:grid;grid-template-columns:repeat(auto-fill,minmax(130px,1fr));gap:20px 16px;--hair:color-mix(in srgb,
  currentColor 10%,transparent);--quiet:color-mix(in srgb,currentColor 62%,transparent)}
.nb .figure{margin:0;min-width:0;display:flex;flex-direction:column}
.nb .title{font-size:14px;line-height:18px;font-weight:600;margin-bottom:18px}
.nb small{display:block;font-size:12px;line-height:16px;font-weight:400;color:var(--quiet);overflow-wrap:anywhere}
.nb .bars{display:flex;gap:3px;height:84px;flex:none;margin-top:auto;border-bottom:1px solid var(--hair)}
.nb .bar{flex:1;position:relative;min-width:2px}
.nb .bar i{position:absolute;left:0;right:0;bottom:0;border-radius:2px 2px 0 0;background:var(--ink)}
.nb .bar b{position:absolute;left:-12px;right:-12px;text-align:center;font-size:12px;line-height:14px;font-weight:400}
.nb .none i{background:none;border:1px dashed var(--quiet);border-bottom:0;box-sizing:border-box}
.nb .masked{background:repeating-linear-gradient(45deg,var(--hair) 0 1px,transparent 1px 5px)}
.nb .names{display:flex;gap:3px;height:54px;font-size:12px;line-height:1.1}
.nb .names span{flex:1;writing-mode:vertical-rl;min-width:2px;display:flex;align-items:center;max-height:52px;
  overflow:hidden;white-space:nowrap;color:var(--quiet);padding-top:4px}
.nb .names .pick,.nb .pick b{color:var(--pick);font-weight:600}
.nb .sum{font-size:12px;line-height:16px;color:var(--quiet);margin-top:2px}
</style>"""


def figures(tiles: Sequence[str], theme: Theme) -> str:
    """All figures in a grid of as many columns as fit; STYLE is a separate element, which never changes."""
    ink = WEIGHTS[theme][5]
    return f'<div class="nb" style="--ink:{ink};--pick:{PICK[theme]}">{"".join(tiles)}</div>'


def weights_tile(
    title: str,
    note: str,
    weights: np.ndarray,
    visible: Sequence[bool],
    names: Sequence[str],
    picked: int,
    unassigned: float,
    foot: str,
) -> str:
    """One normalizer: a bar a key from 0 to 1, hatched where masked, and a hollow one for what goes to no key."""
    top = int(weights.argmax())
    bars = [
        bar(float(w), may, at in (top, picked), at == picked, names[at])
        for at, (w, may) in enumerate(zip(weights, visible, strict=True))
    ]
    labels = list(names)
    if unassigned > MIN_UNASSIGNED:
        bars.append(bar(unassigned, True, True, False, NO_KEY, "none"))
        labels.append(NO_KEY)
    description = ", ".join(
        f"{name} {number(float(w))}" for name, w in zip(names, weights, strict=True)
    )
    return figure(title, note, f"{title}: {description}; {foot}", bars, labels, picked, foot)


def bar(value: float, visible: bool, named: bool, pick: bool, name: str, css: str = "") -> str:
    high = min(max(value, 0.0), 1.0) * 100
    text = (
        f'<b style="bottom:calc({high:.1f}% + 1px)">{number(value)}</b>'
        if named and visible
        else ""
    )
    classes = " ".join(
        filter(None, ("bar", css, "" if visible else "masked", "pick" if pick else ""))
    )
    return (
        f'<div class="{classes}" title="{escape(name)}: {number(value) if visible else "masked"}">'
        f'<i style="height:{high:.1f}%"></i>{text}</div>'
    )


def scores_tile(
    title: str,
    note: str,
    scores: Sequence[float | None],
    names: Sequence[str],
    picked: int,
    theme: Theme,
) -> str:
    """What goes in: signed bars around the line of 0, green above and purple below."""
    values = [0.0 if score is None else score for score in scores]
    low, high = min(0.0, *values), max(0.0, *values)
    span = (high - low) or 1.0
    zero = -low / span * 100
    bars = []
    for at, (score, value) in enumerate(zip(scores, values, strict=True)):
        size, colour = abs(value) / span * 100, SIGNED[theme][8 if value >= 0 else 2]
        start = zero if value >= 0 else zero - size
        edge = (
            f"bottom:calc({start + size:.1f}% + 1px)"
            if value >= 0
            else f"bottom:calc({start:.1f}% - 15px)"
        )
        text = (
            f'<b style="{edge}">{number(value)}</b>' if at == picked and score is not None else ""
        )
        tip = f"{escape(names[at])}: {'masked' if score is None else number(value)}"
        bars.append(
            f'<div class="bar{" masked" * (score is None)}{" pick" * (at == picked)}" title="{tip}">'
            f'<i style="background:{colour};border-radius:2px;bottom:{start:.1f}%;height:{size:.1f}%"></i>'
            f"{text}</div>"
        )
    description = ", ".join(
        f"{name} {'masked' if score is None else number(score)}"
        for name, score in zip(names, scores, strict=True)
    )
    return figure(
        title,
        note,
        f"{title}: {description}",
        bars,
        names,
        picked,
        f"{number(low)} to {number(high)}",
    )


def figure(
    title: str,
    note: str,
    description: str,
    bars: Sequence[str],
    names: Sequence[str],
    picked: int,
    foot: str,
) -> str:
    marks = ['class="pick"' if at == picked else "" for at in range(len(names))]
    under = "".join(
        f"<span {mark}>{escape(name)}</span>" for mark, name in zip(marks, names, strict=True)
    )
    below = (
        f'<div class="names" aria-hidden="true">{under}</div>'
        if len(names) <= MAX_PILLS + 1
        else ""
    )
    head = f'<div class="title">{escape(title)}<small>{escape(note)}</small></div>'
    return (
        f'<div class="figure" role="img" aria-label="{escape(description)}">{head}'
        f'<div class="bars">{"".join(bars)}</div>{below}<div class="sum">{escape(foot)}</div></div>'
    )
