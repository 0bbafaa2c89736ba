"""The works that made the claims."""

from __future__ import annotations

from dataclasses import replace

from core.claims.base import Source

VASWANI = Source("Vaswani, Ashish and Shazeer, Noam and Parmar, Niki and Uszkoreit, Jakob and Jones, Llion and "
                 "Gomez, Aidan N. and Kaiser, Łukasz and Polosukhin, Illia", "Attention Is All You Need", 2017,
                 "https://arxiv.org/abs/1706.03762")


def at(source: Source, part: str) -> Source:
    """A work's section, table or figure."""
    return replace(source, part=part)
