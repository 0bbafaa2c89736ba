"""The checksum at the end of a line: any changed bit is noticed, and lines without one are read as before."""

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.files import read_checked, read_lines, with_checksum
from core.runs.executor import spawn_worker

VALUE = {
    "step": 12,
    "loss": 0.25,
    "examples": [{"source": ["é", '"}'], "cut": False}],
    "rate": None,
}

LINE = with_checksum(json.dumps(VALUE, ensure_ascii=False))


def test_a_line_is_json_and_comes_back():
    assert json.loads(LINE).keys() - VALUE.keys() == {"crc32"}
    assert (
        read_checked(LINE)
        == read_checked(LINE + b"  ")
        == read_checked(json.dumps(VALUE).encode())
        == VALUE
    )


def test_every_changed_bit_is_noticed():
    end = LINE.index(b', "crc32')
    for at in range(8 * len(LINE)):
        line = bytearray(LINE)
        line[at // 8] ^= 1 << at % 8
        try:
            value = read_checked(bytes(line))
        except ValueError:
            continue
        assert at // 8 > end and value.keys() - VALUE.keys(), (
            "only the name of the checksum, which is a field too many"
        )


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"3", b"{", b"\xff{}", b'{"a": 1, "crc32": "0000000g"}', b'{"crc32": "00000000"}'],
)
def test_what_is_no_object_is_refused(text):
    with pytest.raises(ValueError):
        read_checked(text)


def test_damaged_lines_stand_among_the_others_and_a_last_one_without_an_end_is_left_out(tmp_path):
    (tmp_path / "lines").write_bytes(
        LINE + b"\n" + LINE.replace(b"12", b"13") + b"\n\n" + LINE + b"\n" + LINE
    )
    assert [value for _, value in read_lines(tmp_path / "lines", dict)] == [VALUE, None, VALUE]
    assert read_lines(tmp_path / "none", dict) == []


# Text is read and written as UTF-8 wherever the lab runs, not in the encoding of the machine.


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
