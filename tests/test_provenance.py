"""A script names the version, the commit and the plug-ins that it needs, and says at its start which are missing."""

import ast
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from core import plugins
from core.attention import AXES
from core.files import lab_path
from core.provenance import MissingPlugin, lab_commit, lab_version, needed_plugins, require_plugins
from dashboard.draw.scripts import Cell, Script

WORKED = sorted(lab_path("docs/plugins").glob("*.py"))


@pytest.fixture
def keys(monkeypatch) -> Iterator[dict[str, str]]:
    """The key of each plug-in of docs/plugins, by its file; registered for one test."""
    before = {axis: list(entries) for axis, entries in AXES.items()}
    for file in WORKED:
        runpy.run_path(str(file))
    yield {
        Path(entry.source).name: entry.key
        for axis in AXES.values()
        for entry in axis
        if entry.source
    }
    for axis, entries in before.items():
        AXES[axis].entries[:] = entries


def script_of(key: str) -> Script:
    return Script(
        (
            Cell(
                "Words", f"name = {key!r}\nfile = lab_path('README.md')\nprint(name, file.exists())"
            ),
        )
    )


def run(text: str, folder: Path, plugins_folder: str = "") -> subprocess.CompletedProcess:
    (folder / "script.py").write_text(text, "utf-8")
    env = {**os.environ, "PYTHONPATH": str(lab_path("")), "PYTHONIOENCODING": "utf-8"}
    env |= {plugins.VARIABLE: plugins_folder} if plugins_folder else {}
    return subprocess.run(
        [sys.executable, "script.py"], cwd=folder, env=env, capture_output=True, encoding="utf-8"
    )


def test_a_script_names_what_it_needs(keys):
    assert len(keys) == len(WORKED)
    for file, key in keys.items():
        script = script_of(key)
        assert [*needed_plugins(script.cells[0].code)] == [file]
        for text in (script.text("Page\nsource"), script.notebook("Page")):
            assert lab_version() in text and lab_commit() in text and file in text
        ast.parse(script.text("Page\nsource"))
    assert "plug-in" not in script_of("softmax").text("Page") and not needed_plugins(
        "entry = softmax"
    )


def test_a_claim_of_a_plug_in_is_named(monkeypatch):
    monkeypatch.setitem(plugins.claim_files, "own_claim", str(WORKED[0]))
    assert [*needed_plugins("claim_of('own_claim')")] == [WORKED[0].name]


def test_a_script_runs_in_any_folder_where_its_plug_ins_are(keys, tmp_path):
    key = keys[WORKED[0].name]
    text = script_of(key).text("Page")
    done = run(text, tmp_path, str(lab_path("docs/plugins")))
    assert done.returncode == 0 and done.stdout.split() == [key, "True"], done.stderr
    done = run(text, tmp_path)
    assert done.returncode and f"This needs the plug-in {WORKED[0].name}" in done.stderr
    assert f"{plugins.VARIABLE} is not set" in done.stderr and not done.stdout


def test_a_plug_in_that_is_missing_or_changed_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv(plugins.VARIABLE, str(tmp_path))
    with pytest.raises(MissingPlugin, match="it is not in"):
        require_plugins({"own.py": "00"})
    (tmp_path / "own.py").write_text("", "utf-8")
    with pytest.raises(MissingPlugin, match="another version of it"):
        require_plugins({"own.py": "00"})
