"""Plug-ins: Python files of the folder in ATTENTION_LAB_PLUGINS, which register mechanisms when core.attention loads.

A plug-in is code that runs with all rights of this process, so without the variable nothing is loaded.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
import warnings
from pathlib import Path
from types import ModuleType

VARIABLE = "ATTENTION_LAB_PLUGINS"
PACKAGE = "attention_lab_plugins"  # the name under which the folder is imported, so that its files find each other

problems: list[str] = []  # a sentence for each file that could not be loaded


def folder() -> Path | None:
    """The folder of plug-ins, or None where the variable is not set."""
    name = os.environ.get(VARIABLE, "").strip()
    return Path(name).expanduser().resolve() if name else None


def load_plugins() -> None:
    """Import every file of the folder whose name does not begin with _; a file that raises becomes a problem."""
    path = folder()
    if path is None or PACKAGE in sys.modules:
        return
    if not path.is_dir():
        _report(f"{VARIABLE} = {path} is no folder; no plug-in was loaded.")
        return
    os.environ[VARIABLE] = str(path)  # a worker starts in another folder
    package = ModuleType(PACKAGE)
    package.__path__ = [str(path)]
    sys.modules[PACKAGE] = package
    for file in sorted(path.glob("[!_]*.py")):
        try:
            importlib.import_module(f"{PACKAGE}.{file.stem}")
        except (Exception, SystemExit) as error:
            _report(f"Plug-in {describe(error, file)}")


def describe(error: BaseException, file: Path) -> str:
    """What went wrong in a plug-in, in one sentence: the file, the last line of it that ran, and the message."""
    line = error.lineno if isinstance(error, SyntaxError) else last_line(error, str(file))
    kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
    text = error.msg if isinstance(error, SyntaxError) else " ".join(str(error).split())
    return f"{file.name}{f', line {line}' if line else ''}: {kind}{text or 'no message'}"


def last_line(error: BaseException, file: str) -> int | None:
    """The number of the last line of a file that ran before an error; None where none of it did."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return lines[-1] if lines else None


def why_missing() -> str:
    """What to add where a key is unknown: it may be that of a plug-in which is not here."""
    if folder() is None:
        return f" No plug-in is loaded, as {VARIABLE} is not set."
    names = f" Not loaded: {' '.join(problems)}" if problems else ""
    return f" No plug-in in the folder of {VARIABLE} has this key.{names}"


def _report(problem: str) -> None:
    problems.append(problem)
    warnings.warn(problem, RuntimeWarning, stacklevel=2)
