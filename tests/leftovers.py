"""What the tests left: `python -m tests.leftovers before`, where `before` holds what `git status` said before them.

Ends in 1 when a command of the lab no longer starts in this checkout, Python would run other code than that of the
source, or a file is new or changed.
"""

import importlib
import importlib.util
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OPTIONS = ("argparse", "typer", "streamlit.web.cli")  # by which a command knows --help


def sources() -> Iterator[Path]:
    for folder in ("core", "dashboard", "pages", "benchmarks"):
        yield from (ROOT / folder).rglob("*.py")


def commands() -> list[str]:
    """Every module that `python -m` runs and that takes options."""
    texts = {file: file.read_text(encoding="utf-8") for file in sources()}
    return sorted(
        ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__")
        for file, text in texts.items()
        if '__name__ == "__main__"' in text and any(one in text for one in OPTIONS)
    )


def start(command: str) -> int:
    """The process of `python -m command --help`, a fork that has the large packages already; it says what is wrong."""
    if (child := os.fork()) == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.argv = [command, "--help"]
        runpy.run_module(command, run_name="__main__", alter_sys=True)
        sys.exit()
    return child


def other_code() -> list[str]:
    """The modules whose cache holds other code than that of the source, which Python would take for it."""
    wrong = []
    for file in sources():
        if os.path.exists(importlib.util.cache_from_source(str(file))):
            loader = SourceFileLoader("_", str(file))
            if loader.get_code("_") != loader.source_to_code(file.read_bytes(), str(file)):
                wrong.append(f"{file.relative_to(ROOT)}: its cache is of other code")
    return wrong


def new_files(before: str) -> list[str]:
    """The lines of `git status` that were not there before; none where there is no repository."""
    done = subprocess.run(
        ("git", "status", "--porcelain", "--untracked-files=all"),
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
    )
    return sorted(set(done.stdout.splitlines()) - set(before.splitlines()))


def main() -> None:
    for package in ("torch", "streamlit"):
        importlib.import_module(package)
    started = {f"python -m {command} --help failed": start(command) for command in commands()}
    faults = [fault for fault, child in started.items() if os.waitpid(child, 0)[1]]
    faults += other_code() + new_files(Path(sys.argv[1]).read_text(encoding="utf-8"))
    sys.exit("\n".join(["The tests left something:", *faults]) if faults else 0)


if __name__ == "__main__":
    main()
