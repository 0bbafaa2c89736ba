"""Values as the Python that makes them again: configs with the fields that are not defaults."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import PurePath
from typing import Any

import numpy as np

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
    """The line that imports what the code uses of core.attention."""
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
    """The name of what makes a dataclass, and its arguments that are not defaults."""
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
    entries = [entry for entry in _entries() if entry.key == value.key]
    defaults = [{param.key: param.default for param in entry.params} for entry in entries]
    return [
        (key, one)
        for key, one in value.params
        if not defaults or any(each.get(key) != one for each in defaults if key in each)
    ]


def _entries() -> Iterator[Any]:
    from core.attention import AXES
    from core.tasks import TASKS

    for entries in (*AXES.values(), TASKS):
        yield from entries
