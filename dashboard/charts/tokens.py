"""Tokens as text."""

from __future__ import annotations

import re
from collections.abc import Sequence


def distinct(tokens: Sequence[str]) -> list[str]:
    """Distinct names: zero-width spaces tell equal tokens apart."""
    return [
        f"{token}{chr(0x200B) * list(tokens[:index]).count(token)}"
        for index, token in enumerate(tokens)
    ]


def shorten(text: str, most: int = 80) -> str:
    """The two ends of a long text, cut between words where there are any: outputs of one beam differ there."""
    if len(text) <= most:
        return text
    start, end = text[: most // 2 - 1], text[-most // 2 + 2 :]
    return f"{start.rpartition(' ')[0] or start} … {end.partition(' ')[2] or end}"


def spoken(text: str) -> str:
    """The words of a sentence in Markdown (bold, :primary[accent], escaped signs), as a screen reader says them."""
    words = re.sub(r":primary\[((?:\\.|[^\\\]])*)\]", r"\1", text).replace("**", "")
    return re.sub(r"\\([^\w\s])", r"\1", words)


def plain(text: str) -> str:
    """Typed text made safe for st.markdown: every sign that Markdown, LaTeX or Streamlit reads is escaped."""
    return "".join(f"\\{sign}" if sign in r"\`*_{}[]()#+-.!|~$<>:&^=" else sign for sign in text)
