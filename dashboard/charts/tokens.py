"""Tokens as text: what pages write of them in sentences, tables, tooltips and labels."""

from __future__ import annotations

from collections.abc import Sequence


def distinct(tokens: Sequence[str]) -> list[str]:
    """Names that all differ: an invisible sign keeps two tokens apart that read alike."""
    return [f"{token}{chr(0x200B) * list(tokens[:place]).count(token)}" for place, token in enumerate(tokens)]


def shorten(text: str, most: int = 80) -> str:
    """The two ends of a long output: outputs of one beam differ there."""
    return text if len(text) <= most else f"{text[: most // 2 - 1]} … {text[-most // 2 + 2 :]}"
