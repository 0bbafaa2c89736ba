"""The page: the layers of all models, the card of one, and caches by length."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from html import escape
from itertools import groupby

import streamlit as st

from core.models.cards import card
from core.models.cards.base import KINDS, Kind, ModelCard
from dashboard.draw.curves import size_figure
from dashboard.draw.formats import byte_size, operations
from dashboard.draw.palette import CATEGORIES, PICK, Theme
from dashboard.navigation import step_of
from dashboard.runtime.link_values import fragment
from dashboard.runtime.page_pictures import add_script
from dashboard.ui.presentation import draw_chart
from dashboard.ui.tables import table
from dashboard.ui.train_with import train_small
from dashboard.views.cards import compute, text
from dashboard.views.cards.compute import Row
from dashboard.views.cards.controls import Controls, draw_controls, key
from dashboard.views.cards.script import script
from dashboard.widgets.panels import (
    caption,
    details,
    fact,
    next_page,
    paragraph,
    source_panel,
    theme,
    title,
)

# A kind differs in height or outline too, so that it is told without colours; what sees or stores less is lower.
SHAPES: dict[Kind, str] = {
    "full": "height:100%",
    "window": "height:50%",
    "latent": "height:75%",
    "linear": "height:25%",
    "no positions": "height:100%",
}
MEANINGS: dict[Kind, str] = {
    "full": "all tokens",
    "window": "a window or chunk",
    "latent": "all tokens, stored as small vectors",
    "linear": "a state of fixed size",
    "no positions": "all tokens, without positions",
}
STYLE = """<style>
.cards{--hair:color-mix(in srgb,currentColor 10%,transparent);font-size:14px;line-height:20px}
.cards table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
.cards th,.cards td{padding:3px 8px;border-bottom:1px solid var(--hair);text-align:right;font-weight:400;
  white-space:nowrap}
.cards th:first-child,.cards td.strip{text-align:left} .cards td.strip{width:60%}
.cards thead th{opacity:.62}
.cards .layers{display:flex;align-items:flex-end;gap:1px;height:16px}
.cards .layers i{flex:1 1 5px;max-width:9px;min-width:1px;border-radius:1px;box-sizing:border-box}
.cards .large{height:32px;gap:2px} .cards .large i{max-width:22px;border-radius:2px}
.cards p{display:flex;flex-wrap:wrap;gap:4px 16px;margin:0 0 8px;font-size:13px;line-height:18px}
.cards p span{display:flex;align-items:flex-end;gap:6px} .cards p b{display:flex;align-items:flex-end;height:16px}
.cards p i{display:block;width:10px;border-radius:2px;box-sizing:border-box}
@media (max-width:640px){.cards table,.cards tbody{display:block}.cards thead{display:none}
  .cards tr{display:flex;flex-wrap:wrap;border-bottom:1px solid var(--hair);padding:4px 0}
  .cards th,.cards td{border:0;padding:0 10px 0 0}.cards td.strip{order:9;width:100%;padding:2px 0}}
</style>"""


def page() -> None:
    """Draw the page from top to bottom."""
    title(
        "Model cards",
        f"You will see which attention each layer of {len(compute.rows())} published models has, and "
        "what it costs.",
    )
    st.html(STYLE)
    models()
    details("The code that just ran", partial(source_panel, ModelCard), key("sources"))
    next_page("cards")


@fragment
def models() -> None:
    """Draw the controls, all models, and the chosen one."""
    controls = draw_controls()
    add_script(partial(script, controls))
    with st.container(gap=None):
        st.html(key_of(controls.model, theme()))
        st.html(_overview(theme()))
    fact(text.all_fact())
    one = card(controls.model)
    st.markdown(f"## {one.name}")
    paragraph(text.lead(one))
    st.html(pattern(one, theme()))
    table(
        text.FIGURES,
        [text.figures(one)],
        caption=f"The figures of {one.name}",
        left=0,
        markers=False,
    )
    fact(text.fact(one))
    caption(f"{text.note(one)} {text.source(one)}")
    attentions(one)
    sizes(one, controls)


@lru_cache(maxsize=2)
def _overview(theme: Theme) -> str:
    return overview(compute.rows(), theme)


def attentions(one: ModelCard) -> None:
    """Draw each attention of the model as choices of this lab, with a link to them in small."""
    st.markdown("### Its attentions")
    for layer, count in one.distinct.items():
        paragraph(f"- {text.layer_text(layer, count)}")
    step = step_of("compare")
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        train_small(one, key=key("train"))
        st.page_link(
            step.path,
            label="See these attentions in small, side by side",
            icon=step.icon,
            width="content",
            query_params=text.link(one),
        )
    details("What its parameters are for", partial(parts, one), key("parts"))


def parts(one: ModelCard) -> None:
    """Draw the parameters by what they are for."""
    table(text.PARTS, text.part_rows(one), caption=f"The parameters of {one.name}", markers=False)


def sizes(one: ModelCard, controls: Controls) -> None:
    """Draw the caches of the chosen model and of those compared, by length."""
    st.markdown("### Its cache beside others")
    curves = compute.curves((controls.model, *controls.compared))
    if curves:
        draw_chart(
            st,
            size_figure(curves, list(curves), compute.LENGTHS, theme(), powers=6),
            key=key("sizes"),
            alt="Bytes of the cache by the length of the text, a line each model",
        )
        caption(
            "Bytes of the cache of one sequence, numbers of 2 bytes; both axes are logarithmic. A curve ends where "
            "a model has no more positions; caches below 1 MB lie on the lowest line."
        )


# The layers of a model as a strip of cells, alone and for all models in a table, as HTML.


def key_of(picked: str, theme: Theme) -> str:
    """What the cells mean, with the style that marks a model in the table below, which itself is never sent again."""
    return (
        f'<div class="cards">{legend(KINDS, theme)}'
        f"<style>.cards tr[data-model='{picked}'] th{{font-weight:600;color:{PICK[theme]}}}</style></div>"
    )


def overview(rows: Sequence[Row], theme: Theme) -> str:
    """All models: name, year, a cell for each layer, parameters, and the cache of a long text."""
    head = "".join(
        f'<th scope="col">{words}</th>'
        for words in (
            "model",
            "year",
            '<span style="float:left">layers</span>',
            "parameters",
            "cache at 128k",
        )
    )
    body = "".join(_row(row, theme) for row in rows)
    return (
        f'<div class="cards"><table aria-label="The layers of {len(rows)} published models">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _row(row: Row, theme: Theme) -> str:
    size = "–" if row.cache is None else byte_size(row.cache)
    return (
        f'<tr data-model="{row.card.key}"><th scope="row">{escape(row.card.name)}</th><td>{row.card.year}</td>'
        f'<td class="strip">{strip(row.card, theme)}</td><td>{operations(row.parameters)}</td><td>{size}</td></tr>'
    )


def strip(card: ModelCard, theme: Theme, large: bool = False) -> str:
    """A cell for each layer from the first to the last, told in words to a screen reader and on hover."""
    layers = card.layers
    cells = "".join(
        f'<i title="layer {at}: {escape(layer.name)}" style="{cell_style(layer.kind, theme)}"></i>'
        for at, layer in enumerate(layers, 1)
    )
    words = in_words([layer.name for layer in layers])
    return f'<div class="layers{" large" * large}" role="img" aria-label="{escape(words)}">{cells}</div>'


def pattern(card: ModelCard, theme: Theme) -> str:
    """The chosen model's layers, large, with a legend of its own attentions."""
    return f'<div class="cards">{strip(card, theme, large=True)}</div>'


def cell_style(kind: Kind, theme: Theme) -> str:
    """The colour and shape of a kind; without positions a cell is hollow."""
    colour = CATEGORIES[theme][KINDS.index(kind)]
    look = f"border:2px solid {colour}" if kind == "no positions" else f"background:{colour}"
    return f"{SHAPES[kind]};{look}"


def legend(kinds: Sequence[Kind], theme: Theme) -> str:
    """Each kind's cell, its name, and what a layer of it attends to."""
    return (
        "<p>"
        + "".join(
            f'<span><b><i style="{cell_style(kind, theme)}"></i></b>{kind}: {MEANINGS[kind]}</span>'
            for kind in kinds
        )
        + "</p>"
    )


def in_words(names: Sequence[str]) -> str:
    """Layers in order as runs of equal ones: "48 layers: 5 window of 1,024, 1 full, and so on"."""
    runs = [(name, len(list(group))) for name, group in groupby(names)]
    shown = ", ".join(f"{count} {name}" for name, count in runs[:6])
    return f"{len(names)} layers: {shown}{', and so on' * (len(runs) > 6)}"
