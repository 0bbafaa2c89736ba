"""`make test` runs all of its parts, and names at its end which of them failed."""

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run_make(folder: Path, fails: str) -> tuple[int, str, list[str]]:
    """`make test` with tools that only write down how they were called; those whose call holds `fails` end in 1."""
    tools = folder / "bin"
    tools.mkdir()
    for name in ("python", "ruff", "mypy"):
        tool = tools / name
        tool.write_text(
            f'#!/bin/sh\necho "{name} $*" >> {folder}/calls\n'
            f'case "{name} $* " in *"{fails}"*) exit 1;; esac\n',
            encoding="utf-8",
        )
        tool.chmod(0o755)
    for mark in (".installed", ".installed-dev"):
        (folder / mark).touch()
    done = subprocess.run(
        ["make", "test", f"VENV={folder}"],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        env={k: v for k, v in os.environ.items() if not k.startswith("MAKE")},
        timeout=60,
    )
    return (
        done.returncode,
        done.stdout,
        [
            line
            for line in (folder / "calls").read_text(encoding="utf-8").splitlines()
            if "playwright" not in line
        ],
    )


@pytest.mark.parametrize(
    "fails, parts",
    [
        ("nothing", ""),
        ("ruff", "check"),
        ("--ignore=tests/browser ", "beside"),
        (" tests/browser ", "in-browser"),
        ("pytest", "beside in-browser"),
        ("tests.leftovers", "leftovers"),
    ],
)
def test_every_part_runs_whichever_fails(fails, parts):
    with tempfile.TemporaryDirectory(
        dir="/tmp"
    ) as folder:  # make takes no VENV with a space in its path
        code, output, calls = run_make(Path(folder), fails)
    assert (code != 0) == bool(parts)
    assert [call.split()[:3] for call in calls if "pytest" in call] == [
        ["python", "-m", "pytest"]
    ] * 2
    assert (
        output.splitlines()[-1:] == [f"make test failed in: {parts}"]
        if parts
        else "failed" not in output
    )


def test_what_quick_runs_is_there():
    listed = (ROOT / "tests" / "quick.txt").read_text(encoding="utf-8").split()
    assert listed and not [item for item in listed if not (ROOT / item.partition("::")[0]).exists()]
