"""The likeliest next tokens as bars, by the model and, where that is reshaped, as they are drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt
from torch import Tensor

from dashboard.charts.numbers import number
from dashboard.charts.palette import Ink
from dashboard.charts.tokens import distinct

SHOWN = 8


def likeliest(share: Tensor, token: int, most: int = SHOWN) -> list[int]:
    """The likeliest tokens, and in place of the last of them the one that was said, if it is not among them."""
    top = share.topk(min(most, len(share))).indices.tolist()
    return top if token in top else [*top[:-1], token]


def bars(shares: dict[str, Tensor], named: Sequence[str] | Mapping[int, str], token: int, ink: Ink,
         most: int = SHOWN) -> alt.LayerChart:  # fmt: skip
    """A bar a token for each distribution, the picked token in the accent."""
    top = likeliest(next(iter(shares.values())), token, most)
    names = distinct([named[i] for i in top])
    rows = [{"token": name, "p": float(share[i]), "of": of, "picked": i == token, "text": number(float(share[i]))}
            for of, share in shares.items() for i, name in zip(top, names, strict=True)]
    y = alt.Y("token:N", sort=names, title=None,
              axis=alt.Axis(labelColor=ink.text, labelFontSize=13, domain=False, ticks=False, labelLimit=120,
                           labelOverlap=False, grid=False))
    x = alt.X("p:Q", title=None, axis=None, scale=alt.Scale(domain=[0, 1.18]))
    offset = alt.YOffset("of:N", sort=list(shares)) if len(shares) > 1 else alt.Undefined
    colour = alt.condition("datum.picked", alt.value(ink.pick), alt.value(ink.series[0]))
    faint = alt.condition("datum.of == 'model'", alt.value(0.45 if len(shares) > 1 else 1.0), alt.value(1.0))
    base = alt.Chart(alt.Data(values=rows)).encode(y=y, x=x, yOffset=offset, tooltip=["token:N", "of:N", "text:N"])
    text = base.mark_text(align="left", dx=4, fontSize=12, color=ink.quiet).encode(text="text:N")
    return alt.layer(base.mark_bar(cornerRadius=2).encode(color=colour, opacity=faint), text).properties(
        height=len(top) * (26 if len(shares) == 1 else 38), width="container").configure_view(stroke=None)
