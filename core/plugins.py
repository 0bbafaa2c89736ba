"""Plug-ins: Python files of the folder in ATTENTION_LAB_PLUGINS, which register mechanisms, tasks and claims when core loads.

A plug-in is code that runs with all rights of this process, so without the variable nothing is loaded.
"""

import importlib
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from core.files import hosted
from core.settings import settings

VARIABLE = "ATTENTION_LAB_PLUGINS"
PACKAGE = "attention_lab_plugins"  # the name under which the folder is imported, so that its files find each other

problems: list[str] = []  # a sentence for each file that could not be loaded
faults: dict[str, tuple[str, ...]] = {}  # that check finds in what was added
claim_files: dict[str, str] = {}  # by the key of a claim; an Entry has its own `source`
undo: list[
    Callable[[], None]
] = []  # takes back what was registered since the import of a file began


def folder() -> Path | None:
    """The folder of plug-ins, or None where the variable is not set, and on a public copy."""
    name = settings().plugins
    return Path(name).expanduser().resolve() if name and not hosted() else None


def load_folder(path: Path) -> None:
    """Load the plug-ins of a folder, here and in the workers that start from here; another one may be set, and stays."""
    os.environ.setdefault(VARIABLE, str(path.resolve()))
    load_plugins()


def load_plugins() -> None:
    """Import every file of the folder whose name does not begin with _; a file that raises becomes a problem.

    It is tried again as long as others load, whose keys it may need.
    """
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
    failed: dict[Path, BaseException] = dict.fromkeys(sorted(path.glob("[!_]*.py")), ImportError())
    tried = 0
    while len(failed) != tried:
        tried = len(failed)
        for file in list(failed):
            undo.clear()
            known = set(sys.modules)
            try:
                importlib.import_module(f"{PACKAGE}.{file.stem}")
                del failed[file]
            except (Exception, SystemExit) as error:
                failed[file] = error
                for take_back in reversed(undo):
                    take_back()
                for name in set(sys.modules) - known:
                    if name.startswith(f"{PACKAGE}."):
                        del sys.modules[name]
    for file, problem in failed.items():
        _report(f"Plug-in {describe(problem, file)}")


def files_with(name: str) -> list[str]:
    """The paths of the plug-ins that define this name."""
    loaded = [one for key, one in list(sys.modules.items()) if key.startswith(f"{PACKAGE}.")]
    return [str(one.__file__) for one in loaded if hasattr(one, name)]


def describe(error: BaseException, file: Path | None = None) -> str:
    """An error in one sentence: the last line of `file` that ran (else of any file), and the message."""
    text, place = " ".join(str(error).split()), f"{file.name}: " if file else ""
    frames = [
        (frame.filename, frame.lineno)
        for frame in traceback.extract_tb(error.__traceback__)
        if file in (None, Path(frame.filename))
    ]
    if isinstance(error, SyntaxError):
        text = error.msg
        if error.filename:
            frames = [(error.filename, error.lineno)]
    if frames:
        place = f"{Path(frames[-1][0]).name}, line {frames[-1][1]}: "
    kind = "" if text and isinstance(error, ValueError) else f"{type(error).__name__}: "
    return f"{place}{kind}{(text or 'no message').rstrip('.')}."


def why_missing() -> str:
    """What to add where a key is unknown: it may be that of a plug-in which is not here."""
    if folder() is None:
        return f" No plug-in is loaded, as {VARIABLE} is not set."
    names = f" Not loaded: {' '.join(problems)}" if problems else ""
    return f" No plug-in that is loaded has this key.{names}"


def _report(problem: str) -> None:
    problems.append(problem)
    warnings.warn(problem, RuntimeWarning, stacklevel=2)
