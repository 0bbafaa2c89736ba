"""Glossary: the words of the field that the pages use."""

import streamlit as st

import dashboard.page as lab


class Controls(lab.Fields, page="glossary"):
    find = lab.Text(
        "Find a term",
        help="Shows the terms whose name or explanation contains this text.",
        also=lambda values: {"live": True, "placeholder": "softmax", "width": lab.room(320)},
    )


# The formula with the words for its parts, of which the first three explain the others
FORMULA = (
    r"\underbrace{\text{softmax}\Big(\frac{\overbrace{q\,k^\top}^{\text{query and key: a score}}}"
    r"{\sqrt{D}\;\text{(head size)}}\Big)}_{\text{attention weights}}\;"
    r"\underbrace{v}_{\text{values}}"
)
FIRST = ("query", "key", "value")


def page() -> None:
    lab.title("Glossary", "The words of attention, and where to see them.")
    typed = Controls.draw(into=lab.HERE).find
    terms = matching(typed)
    if typed.strip():
        show(terms)
    else:
        st.latex(FORMULA, width="content")
        show([term for name in FIRST for term in terms if term.name == name])
        lab.details(f"All {len(lab.glossary.TERMS)} terms", lambda: show(terms), "glossary:all")
    if not terms:
        st.info(
            f"No term contains {lab.plain(typed)}. Shorten the text, or clear it to see all {len(lab.glossary.TERMS)} terms.",
            icon=":material/search:",
        )


def show(terms: list[lab.glossary.Term]) -> None:
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


def matching(typed: str) -> list[lab.glossary.Term]:
    """The terms that contain a text, by name: first the one of that name, then those whose name contains it.

    A hyphen is read as a space.
    """
    text = typed.strip().lower().replace("-", " ")
    names = {term: term.name.lower().replace("-", " ") for term in lab.glossary.TERMS}
    return sorted(
        (
            term
            for term in lab.glossary.TERMS
            if text in f"{term.name} {term.text}".lower().replace("-", " ")
        ),
        key=lambda term: (names[term] != text, text not in names[term], names[term].lstrip("[")),
    )
