"""The parts that every page ends with: the fact, where the equation is from, and the next step."""

from __future__ import annotations

from collections.abc import Iterable

import streamlit as st

from core.attention import Entry
from dashboard.map import following


def title(name: str, lead: str) -> None:
    """Title and lead in one element, which saves a gap."""
    st.markdown(f"# {name}\n\n{lead}")


def plain(text: str) -> str:
    """Typed text made safe for st.markdown: every sign that Markdown, LaTeX or Streamlit reads is escaped."""
    return "".join(f"\\{sign}" if sign in r"\`*_{}[]()#+-.!|~$<>:&^=" else sign for sign in text)


def fact(text: str) -> None:
    """The page's measured sentence, in the serif of the headings (Markdown; escape tokens with plain)."""
    st.markdown(f"##### {text}")


def entries_panel(entries: Iterable[Entry]) -> None:
    """Name, equation, meaning and paper of each choice in use."""
    for item in entries:
        paper = f" [{item.paper} {item.year}]({item.url})" if item.url else ""
        st.markdown(f"**{item.name}** — {item.meaning}{paper}")
        st.latex(item.latex)


def source_panel(function: object) -> None:
    """The source of a function, as it just ran."""
    import inspect

    st.code(inspect.getsource(function), language="python")  # type: ignore[arg-type]


def next_page(key: str) -> None:
    """One line at the end of a page that leads to the next."""
    step = following(key)
    st.page_link(step.path, label=f"Next: {step.invite}", icon=":material/arrow_forward:")
