"""docs/compile.md is true: each choice is one graph of any length, or is listed with its reason, and then is not."""

import json
import re
import subprocess
import sys
from pathlib import Path

from core.attention import AXES

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"\| (\w+-\w+) \| (yes|no) \| (yes|no) \| (\S.*) \|")


def listed() -> dict[str, dict[str, bool]]:
    """The rows of the table in docs/compile.md: choice → whether each way takes it."""
    return {
        name: {"fullgraph": whole == "yes", "export": dynamic == "yes"}
        for name, whole, dynamic, _ in ROW.findall(
            (ROOT / "docs" / "compile.md").read_text(encoding="utf-8")
        )
    }


def test_every_choice_is_traced_or_listed_with_its_reason():
    names = {f"{axis}-{item.key}" for axis, entries in AXES.items() for item in entries}
    table = listed()
    assert set(table) <= names, "what is listed exists"
    failing = [
        f"{name}:{way}"
        for name, ways in table.items()
        for way, passes in ways.items()
        if not passes
    ]
    run = subprocess.run(
        [sys.executable, "-m", "tests.attention.compiling", *failing],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
    )
    assert run.returncode == 0, run.stderr[-2000:]
    report = json.loads(run.stdout.splitlines()[-1])
    assert set(report) == names
    wrong = {
        (name, way): fault
        for name, ways in report.items()
        for way, fault in ways.items()
        if (fault is None) != table.get(name, {}).get(way, True)
    }
    assert not wrong
