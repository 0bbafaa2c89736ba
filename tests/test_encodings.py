"""Text is read and written as UTF-8 wherever the lab runs, not in the encoding of the machine."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.runs.executor import spawn_worker

ROOT = Path(__file__).resolve().parents[1]
ANY = re.compile(
    r"read_text|write_text|open\(|TemporaryFile|TextIOWrapper|text=|universal_newlines"
)
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ""}
SUBPROCESS = ("run", "Popen", "check_output", "check_call", "call")


def _mode(call: ast.Call, place: int) -> str:
    given = [
        *call.args[place : place + 1],
        *(word.value for word in call.keywords if word.arg == "mode"),
    ]
    return (
        given[0].value
        if given and isinstance(given[0], ast.Constant) and isinstance(given[0].value, str)
        else "r"
    )


def reads_text(call: ast.Call) -> bool:
    """Whether the call opens a file or a pipe as text; ruff's PLW1514 sees only paths whose type it can tell."""
    function, words = call.func, {word.arg for word in call.keywords}
    if isinstance(function, ast.Name):
        return function.id == "open" and "b" not in _mode(call, 1)
    if not isinstance(function, ast.Attribute):
        return False
    owner = function.value.id if isinstance(function.value, ast.Name) else ""
    match function.attr:
        case "read_text":
            return not call.args
        case "write_text":
            return len(call.args) == 1
        case "open" if owner in ("gzip", "bz2", "lzma"):
            return "t" in _mode(call, 1)
        case "open":  # a path's, with a mode
            mode = (
                call.args[0].value
                if len(call.args) == 1 and isinstance(call.args[0], ast.Constant)
                else ""
            )
            return isinstance(mode, str) and mode != "" and set(mode) <= set("rwax+t")
        case "fdopen" | "NamedTemporaryFile" | "TemporaryFile":
            return "b" not in _mode(call, 1) and (function.attr == "fdopen" or "mode" in words)
        case "TextIOWrapper":
            return True
        case name:
            return name in SUBPROCESS and bool(words & {"text", "universal_newlines"})


def without_encoding(tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and all(word.arg != "encoding" for word in node.keywords)
            and reads_text(node)
        ):
            yield node


def test_every_text_names_its_encoding():
    found = []
    for folder in ("core", "dashboard", "pages", "benchmarks", "tests", "docs"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            text = file.read_text(encoding="utf-8")
            calls = without_encoding(ast.parse(text)) if ANY.search(text) else ()
            found += [
                f"{file.relative_to(ROOT)}:{call.lineno}: {ast.unparse(call)}" for call in calls
            ]
    assert not found, "\n".join(found)


def test_a_command_speaks_to_a_terminal_that_knows_ascii_alone():
    done = subprocess.run(
        [sys.executable, "-m", "core.claims", "list"],
        cwd=ROOT,
        env=os.environ | ASCII,
        capture_output=True,
        encoding="ascii",
    )
    assert done.returncode == 0 and "\\u221a" in done.stdout, done.stderr


@pytest.mark.parametrize("name", ["run", "läuft"])
def test_a_worker_writes_utf_8_in_every_language(name, tmp_path, monkeypatch):
    for variable, value in ASCII.items():
        monkeypatch.setenv(variable, value)
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        pytest.skip("this file system takes ASCII alone")
    (tmp_path / name).mkdir()
    (tmp_path / name / "run.json").write_text('{"config": {"tâche": 1}}', encoding="utf-8")
    spawn_worker([str(tmp_path / name)], log=tmp_path / "log").wait()
    assert (
        "failed: " in (text := (tmp_path / "log").read_text("utf-8"))
        and "tâche" in text
        and "Unicode" not in text
    )
