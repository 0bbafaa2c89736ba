"""The page: the layers of all models, the card of one, and caches by length."""

from __future__ import annotations

from functools import lru_cache, partial

import streamlit as st

from core.cards import ModelCard, card
from dashboard.charts.cache_sizes import size_figure
from dashboard.charts.palette import Theme
from dashboard.navigation import step_of
from dashboard.runtime.link_values import fragment
from dashboard.runtime.page_pictures import add_script
from dashboard.views.cards import charts, compute, text
from dashboard.views.cards.controls import Controls, draw_controls, key
from dashboard.views.cards.script import script
from dashboard.widgets.panels import caption, details, fact, next_page, paragraph, source_panel, theme, title
from dashboard.widgets.presentation import draw_chart
from dashboard.widgets.table import table
from dashboard.widgets.train_with import train_small


def page() -> None:
    """Draw the page from top to bottom."""
    title("Model cards", f"You will see which attention each layer of {len(compute.rows())} published models has, and "
                         "what it costs.")
    st.html(charts.STYLE)
    models()
    details("The code that just ran", partial(source_panel, ModelCard), key("sources"))
    next_page("cards")


@fragment
def models() -> None:
    """Draw the controls, all models, and the chosen one."""
    controls = draw_controls()
    add_script(partial(script, controls))
    with st.container(gap=None):
        st.html(charts.key_of(controls.model, theme()))
        st.html(_overview(theme()))
    fact(text.all_fact())
    one = card(controls.model)
    st.markdown(f"## {one.name}")
    paragraph(text.lead(one))
    st.html(charts.pattern(one, theme()))
    table(text.FIGURES, [text.figures(one)], caption=f"The figures of {one.name}", left=0, markers=False)
    fact(text.fact(one))
    caption(f"{text.note(one)} {text.source(one)}")
    attentions(one)
    sizes(one, controls)


@lru_cache(maxsize=2)
def _overview(theme: Theme) -> str:
    return charts.overview(compute.rows(), theme)


def attentions(one: ModelCard) -> None:
    """Draw each attention of the model as choices of this lab, with a link to them in small."""
    st.markdown("### Its attentions")
    for layer, count in one.distinct.items():
        paragraph(f"- {text.layer_text(layer, count)}")
    step = step_of("compare")
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        train_small(one, key=key("train"))
        st.page_link(step.path, label="See these attentions in small, side by side", icon=step.icon, width="content",
                     query_params=text.link(one))
    details("What its parameters are for", partial(parts, one), key("parts"))


def parts(one: ModelCard) -> None:
    """Draw the parameters by what they are for."""
    table(text.PARTS, text.part_rows(one), caption=f"The parameters of {one.name}", markers=False)


def sizes(one: ModelCard, controls: Controls) -> None:
    """Draw the caches of the chosen model and of those compared, by length."""
    st.markdown("### Its cache beside others")
    curves = compute.curves((controls.model, *controls.compared))
    if curves:
        draw_chart(st, size_figure(curves, list(curves), compute.LENGTHS, theme(), powers=6), key=key("sizes"),
                   alt="Bytes of the cache by the length of the text, a line each model")
        caption("Bytes of the cache of one sequence, numbers of 2 bytes; both axes are logarithmic. A curve ends where "
                "a model has no more positions; caches below 1 MB lie on the lowest line.")
