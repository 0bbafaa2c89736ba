"""What a page computes as Python: cells of words and code, as a script and as a notebook, and values as their source."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from pathlib import PurePath
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
        from core.provenance import lab_commit, lab_version, needed_plugins

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


WIDTH = 100  # columns of a line of code
SIZES = ("d_model", "num_heads")  # fields that are always written: a reader wants to see them
Arguments = list[tuple[str, Any]]  # a name ("" for an argument by its place) and a value


def source_of(value: Any, indent: int = 0) -> str:
    """The Python of a number, text, list, tuple or config; a call that is too long takes a line for each argument."""
    if is_dataclass(value) and not isinstance(value, type):
        name, arguments = _call(value)
        return _wrapped(
            f"{name}(", [(f"{key}=" if key else "", one) for key, one in arguments], ")", indent
        )
    if isinstance(value, (list, tuple)):
        ends = "[]" if isinstance(value, list) else ("(", ",)" if len(value) == 1 else ")")
        return _wrapped(ends[0], [("", item) for item in value], ends[1], indent)
    if isinstance(value, dict):
        return _wrapped("{", [(f"{key!r}: ", item) for key, item in value.items()], "}", indent)
    if isinstance(value, PurePath):
        return repr(str(value))
    return repr(value.item() if isinstance(value, np.generic) else value)


def attention_import(code: str) -> str:
    names = [
        name
        for name in ("Attention", "AttentionConfig", "Choice", "attend")
        if re.search(rf"\b{name}\b", code)
    ]
    return f"from core.attention import {', '.join(names)}"


def _wrapped(start: str, parts: Arguments, end: str, indent: int) -> str:
    """One line where it fits, else a line for each part that is a call, and short parts after each other."""
    line = start + ", ".join(key + source_of(one) for key, one in parts) + end
    if len(line) + indent <= WIDTH and "\n" not in line:
        return line
    inner, lines = indent + 4, [""]
    for part in (f"{key}{source_of(one, indent + 4)}, " for key, one in parts):
        if lines[-1] and (len(lines[-1]) + len(part) + inner > WIDTH or "(" in start):
            lines.append("")
        lines[-1] += part
    body = "".join(f"\n{' ' * inner}{part.rstrip()}" for part in lines)
    return f"{start}{body}\n{' ' * indent}{end.lstrip(',')}"


def _call(value: Any) -> tuple[str, Arguments]:
    name = type(value).__name__
    if hasattr(type(value), "of") and hasattr(value, "params"):  # a Choice or a TaskConfig
        arguments = [
            ("", value.key),
            *(("", part) for part in getattr(value, "parts", ())),
            *_changed_params(value),
        ]
        return f"{name}.of", arguments + (
            [("seed", value.seed)] if getattr(value, "seed", 0) else []
        )
    return name, [
        (item.name, _as_key(getattr(value, item.name)))
        for item in fields(value)
        if item.init and (item.name in SIZES or not _is_default(item, getattr(value, item.name)))
    ]


def _as_key(value: Any) -> Any:
    """A choice with nothing but defaults as its key, which a config completes."""
    return (
        value.key
        if type(value).__name__ == "Choice" and not value.parts and not _changed_params(value)
        else value
    )


def _is_default(item: Field, value: Any) -> bool:
    default = item.default_factory() if item.default_factory is not MISSING else item.default
    if default is MISSING or type(default) is not type(value):
        return False
    return bool(_as_key(default) == _as_key(value))


def _changed_params(value: Any) -> Arguments:
    """The parameters of a choice or a task that are not the defaults of every entry of that key."""
    from core.attention import AXES
    from core.tasks import TASKS

    every: list[Iterable[Any]] = [*AXES.values(), TASKS]
    defaults = [
        {param.key: param.default for param in entry.params}
        for entries in every
        for entry in entries
        if entry.key == value.key
    ]
    return [
        (key, one)
        for key, one in value.params
        if not defaults or any(each.get(key) != one for each in defaults if key in each)
    ]
