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

from core.files import hosted

VARIABLE = "ATTENTION_LAB_PLUGINS"
PACKAGE = "attention_lab_plugins"  # the name under which the folder is imported, so that its files find each other

problems: list[str] = []  # a sentence for each file that could not be loaded


def folder() -> Path | None:
    """The folder of plug-ins, or None where the variable is not set, and on a public copy."""
    name = os.environ.get(VARIABLE, "").strip()
    return Path(name).expanduser().resolve() if name and not hosted() else None


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


def describe(error: BaseException, file: Path | None = None) -> str:
    """An error in one sentence: the last line of `file` that ran (else of any file), and the message."""
    text = error.msg if isinstance(error, SyntaxError) else " ".join(str(error).split())
    kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
    return f"{_place(error, file)}{kind}{(text or 'no message').rstrip('.')}."


def _place(error: BaseException, file: Path | None) -> str:
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}, line {error.lineno}: "
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if file in (None, Path(frame.filename))]
    if frames:
        return f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}: "
    return f"{file.name}: " if file else ""


def why_missing() -> str:
    """What to add where a key is unknown: it may be that of a plug-in which is not here."""
    if folder() is None:
        return f" No plug-in is loaded, as {VARIABLE} is not set."
    names = f" Not loaded: {' '.join(problems)}" if problems else ""
    return f" No plug-in in the folder of {VARIABLE} has this key.{names}"


def _report(problem: str) -> None:
    problems.append(problem)
    warnings.warn(problem, RuntimeWarning, stacklevel=2)
