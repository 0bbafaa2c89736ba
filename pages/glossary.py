"""Glossary: the words of the field that the pages use."""

import streamlit as st

import dashboard.page as lab
from dashboard.draw import glossary as draw


class Controls(lab.Fields, page="glossary"):
    find = lab.Text(
        "Find a term",
        help="Shows the terms whose name or explanation contains this text.",
        also=lambda values: {"live": True, "placeholder": "softmax", "width": lab.room(320)},
    )


FIRST = ("query", "key", "value")  # that the formula names


def page() -> None:
    lab.title("Glossary", "The words of attention, and where to see them.")
    typed = Controls.draw(into=lab.HERE).find
    terms = draw.matching(typed)
    if typed.strip():
        show(terms)
    else:
        st.latex(draw.FORMULA, width="content")
        show(sorted(terms, key=lambda term: (*FIRST, term.name).index(term.name)))
    if not terms:
        st.info(
            f"No term contains {lab.plain(typed)}. Shorten the text, or clear it to see all {len(draw.TERMS)} terms.",
            icon=":material/search:",
        )


def show(terms: list[draw.Term]) -> None:
    for term in terms:
        step = lab.step_of(term.page)
        with st.container(
            horizontal=True,
            horizontal_alignment="distribute",
            vertical_alignment="center",
            gap="small",
        ):
            st.markdown(f"**{lab.plain(term.name)}**: {lab.plain(term.text)}", width=lab.room(540))
            st.page_link(
                step.page(),
                label=f"{step.place}: {step.section}" if step.place else step.title,
                icon=step.icon,
                width="content",
                help=f"Open the page where {lab.plain(term.name)} can be seen.",
            )
