"""What a script was written by: this lab's version, its commit, and the plug-ins whose keys the script has."""

import re
import subprocess
import tomllib
from collections.abc import Mapping
from functools import cache
from itertools import chain
from pathlib import Path

from core import plugins
from core.files import lab_path, sha256

LAB = lab_path("")


class MissingPlugin(RuntimeError):
    """A plug-in that a script needs is not loaded, or is another version of it."""


@cache
def lab_version() -> str:
    return str(tomllib.loads((LAB / "pyproject.toml").read_text("utf-8"))["project"]["version"])


@cache
def lab_commit() -> str:
    """The git commit of this checkout, with a + where files of it were changed; "" where it is none."""
    if not (LAB / ".git").exists():
        return ""
    try:
        outputs = [
            subprocess.run(
                ["git", "-C", str(LAB), *words],
                capture_output=True,
                encoding="utf-8",
                timeout=5,
                check=True,
            ).stdout.strip()
            for words in (("rev-parse", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
        ]
    except (OSError, subprocess.SubprocessError):
        return ""
    return outputs[0] + ("+" if outputs[1] else "")


def needed_plugins(code: str) -> dict[str, str]:
    """The SHA-256 of each plug-in's file, by its name, that registered a key which stands in the code."""
    from core.attention import AXES
    from core.tasks import TASKS

    known = [
        *((entry.key, entry.source) for entry in chain.from_iterable(AXES.values())),
        *((task.key, task.source) for task in TASKS),
        *plugins.claim_files.items(),
    ]
    files = {
        Path(source) for key, source in known if source and re.search(rf"['\"]{key}['\"]", code)
    }
    return {file.name: sha256(file) for file in sorted(files) if file.is_file()}


def require_plugins(needed: Mapping[str, str]) -> None:
    """MissingPlugin where a file of that name and SHA-256 is not among the plug-ins that were loaded."""
    folder = plugins.folder()
    for name, digest in needed.items():
        here = sha256(folder / name) if folder and (folder / name).is_file() else ""
        if here != digest:
            state = (
                f"another version of it is in {folder}"
                if here
                else (f"it is not in {folder}" if folder else f"{plugins.VARIABLE} is not set")
            )
            raise MissingPlugin(
                f"This needs the plug-in {name} with SHA-256 {digest}, and {state}. Put the file in a "
                f"folder and name that folder in {plugins.VARIABLE} before Python starts."
            )
