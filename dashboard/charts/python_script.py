"""What a page computes as Python: cells of words and code, as a script and as a notebook.

A page's `script.py` makes a Script, `runtime.page_pictures.add_script` notes it, and Export offers it. The code uses
core, and where it needs them transformers, pandas and Altair; never the dashboard.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

NOTEBOOK = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


@dataclass(frozen=True)
class Cell:
    """Words, and the code that they introduce; `draw` draws what the code computed, in a notebook alone.

    `picture` is the key of the page's picture that `draw` draws: a notebook opens with it.
    """

    text: str
    code: str
    draw: str = ""
    picture: str = ""


@dataclass(frozen=True)
class Script:
    """Cells, and what they compute: `results` has the page's own numbers by the expression that gives them again."""

    cells: tuple[Cell, ...]
    results: Mapping[str, np.ndarray] = field(default_factory=dict)

    def text(self, source: str) -> str:
        """One Python file: the words as comments, `source` (page, model, text, day) in its first line.

        What a reader typed may be in `source`: a line break in it must not end the comment.
        """
        about, start = self._start()
        parts = [
            "\n".join(
                "# " + "".join(sign if sign.isprintable() else " " for sign in line)
                for line in (source, *about)
            ),
            *filter(None, [start]),
        ]
        for cell in self.cells:
            words = "".join(f"# {line}".rstrip() + "\n" for line in cell.text.splitlines())
            parts.append(f"{words}{cell.code.strip()}")
        return "\n\n".join(parts) + "\n"

    def notebook(self, source: str, drawings: Mapping[str, str] | None = None) -> str:
        """A notebook (nbformat 4.5) of the same cells; `drawings` are SVGs by the key of the picture."""
        about, start = self._start()
        cells = [
            _markdown("source", "\n\n".join([source, *about])),
            *([_code("start", start)] if start else []),
        ]
        for number, cell in enumerate(self.cells):
            cells += [
                _markdown(f"text-{number}", cell.text),
                _code(f"code-{number}", cell.code.strip()),
            ]
            if cell.draw:
                cells.append(
                    _code(f"draw-{number}", cell.draw.strip(), (drawings or {}).get(cell.picture))
                )
        return json.dumps(
            {"nbformat": 4, "nbformat_minor": 5, "metadata": NOTEBOOK, "cells": cells},
            ensure_ascii=False,
            indent=1,
        )

    def _start(self) -> tuple[list[str], str]:
        """Sentences about what this needs, and the code that imports or checks it, so that it runs in any folder."""
        from core.provenance import (
            lab_commit,
            lab_version,
            needed_plugins,
        )  # at run time: torch comes with the axes

        code = "\n".join(f"{cell.code}\n{cell.draw}" for cell in self.cells)
        needed, commit = needed_plugins(code), lab_commit()
        about = [
            f"Needs Attention Lab {lab_version()}{f' (commit {commit})' if commit else ''}: its folder on "
            "PYTHONPATH, or installed. Runs in any folder."
        ]
        lines = ["from core.files import lab_path"] if "lab_path(" in code else []
        if needed:
            about.append(
                f"Needs the plug-ins {', '.join(needed)}, in the folder that ATTENTION_LAB_PLUGINS names."
            )
            listed = "".join(f"    {name!r}: {digest!r},\n" for name, digest in needed.items())
            lines += [
                "from core.provenance import require_plugins",
                f"\nrequire_plugins({{  # SHA-256\n{listed}}})",
            ]
        return about, "\n".join(lines)


def join(scripts: Iterable[Script]) -> Script:
    """The cells of several scripts, one after the other, as one."""
    parts = list(scripts)
    return Script(
        tuple(cell for part in parts for cell in part.cells),
        {name: value for part in parts for name, value in part.results.items()},
    )


def _markdown(key: str, text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "id": key, "metadata": {}, "source": text}


def _code(key: str, code: str, drawing: str | None = None) -> dict[str, Any]:
    output = {"output_type": "display_data", "metadata": {}, "data": {"image/svg+xml": drawing}}
    return {
        "cell_type": "code",
        "id": key,
        "metadata": {},
        "execution_count": None,
        "source": code,
        "outputs": [output] if drawing else [],
    }
