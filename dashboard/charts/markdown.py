"""Text for Markdown."""

from __future__ import annotations


def plain(text: str) -> str:
    """Typed text made safe for st.markdown: every sign that Markdown, LaTeX or Streamlit reads is escaped."""
    return "".join(f"\\{sign}" if sign in r"\`*_{}[]()#+-.!|~$<>:&^=" else sign for sign in text)
