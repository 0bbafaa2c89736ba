"""Attention maps in a notebook, drawn as the pages draw them: no server runs, and the saved notebook keeps them.

    from core.show import show
    show(trace)                      # all heads, and the picked one; hover, keys and zoom work
    show(trace).save("heads.html")   # the same as a file that needs no network
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from importlib import import_module
from pathlib import Path

from core.trace import AttentionTrace

HEIGHT = 900  # px


@dataclass(frozen=True)
class Shown:
    """A page of HTML that a notebook shows in a frame."""

    html: str
    height: int = HEIGHT

    def _repr_html_(self) -> str:
        return (f'<iframe srcdoc="{escape(self.html, quote=True)}" title="Attention" width="100%" '
                f'height="{self.height}" style="border:0"></iframe>')

    def save(self, path: str | Path) -> Path:
        """Write the page to a file; returns its path."""
        Path(path).write_text(self.html, encoding="utf-8")
        return Path(path)


def show(trace: AttentionTrace, *, title: str = "", layer: int = 0, head: int = 0, query: int | None = None,
         signed: bool = False, height: int = HEIGHT) -> Shown:
    """Draw a trace (weights (H, T, S) a layer), opened at a head; `query` is the row in the accent.

    ValueError for a trace without maps, or with too many weights. The drawing is the
    dashboard's, which is installed with core; it is imported here, so that core does without it.
    """
    draw = import_module("dashboard.components.standalone").trace_html
    return Shown(draw(trace, title=title or f"Attention of {trace.source}", layer=layer, head=head, query=query,
                      signed=signed), height)
