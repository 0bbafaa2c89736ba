"""Glossary: the words of the field that the pages use."""

import streamlit as st

from dashboard.draw.glossary import TERMS, Term
from dashboard.page import HERE, Fields, Text, next_page, plain, room, step_of, title

# The page: a field to find a word, and under it every term with a link to a page that shows it.


FIELDS = Fields(
    "glossary",
    find=Text(
        "Find a term",
        help="Shows the terms whose name or explanation contains this text.",
        also=lambda values: {"live": True, "placeholder": "softmax", "width": room(320)},
    ),
)


def page() -> None:
    title(
        "Glossary",
        f"{len(TERMS)} terms, each in a sentence or two, with a link to a page that shows it.",
    )
    typed = FIELDS.draw(into=HERE).find
    terms = matching(typed)
    if not terms:
        st.info(
            f"No term contains {plain(typed)}. Shorten the text, or clear it to see all {len(TERMS)} terms.",
            icon=":material/search:",
        )
    for term in terms:
        step = step_of(term.page)
        with st.container(
            horizontal=True,
            horizontal_alignment="distribute",
            vertical_alignment="center",
            gap="small",
        ):
            st.markdown(f"**{plain(term.name)}**: {plain(term.text)}")
            st.page_link(
                step.page(),
                label=step.title,
                icon=step.icon,
                width="content",
                help=f"Open {step.title}, where {plain(term.name)} can be seen.",
            )
    next_page("glossary")


def matching(typed: str) -> list[Term]:
    """The terms that contain a text, by name; those whose name contains it come first."""
    text = typed.strip().lower()
    terms = [term for term in TERMS if text in f"{term.name} {term.text}".lower()]
    return sorted(
        terms, key=lambda term: (text not in term.name.lower(), term.name.lower().lstrip("["))
    )
