"""The example that ends each docs/add-a-….md: taken out of its document, added to a copy of the lab, and run there.

A block with a title is a file: Python or JSON that is new, that stands above a line, or that is a row more of a list; of
a diff the lines that are there before and after.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted((ROOT / "docs").glob("add-a-*.md"))
BLOCK = re.compile(r'^```(\w+) title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
# What the lab's own tests hold new things to; those of the examples run beside them.
HELD = (
    "tests/attention/test_entries.py::test_an_entry_says_everything_and_has_its_key_alone",
    "tests/claims/test_claims.py::test_a_claim_says_everything_and_has_a_shipped_result[dilution]",
    "tests/dashboard/test_mechanism.py::test_the_saved_list_is_what_the_lab_has",
    "tests/pages/test_first_sight.py::test_a_page_explains_its_controls_and_terms[spread]",
    "tests/pages/test_first_sight.py::test_every_picture_of_a_page_comes_back_from_every_file[spread]",
    "tests/pages/test_scripts.py::test_the_notebook_of_a_page_computes_what_it_shows[spread]",
    "tests/pages/test_snapshots.py::test_a_page_at_its_links_is_what_was_saved[spread]",
    "tests/oracles/test_scores.py::test_against_the_formula_cell_by_cell",
    "tests/test_cost.py::test_a_score_without_a_cost_multiplies_no_matrices",
    "tests/test_snippets.py::test_every_page_has_its_words",
)
# What `make generated` and `attention-lab claims run` do, for the examples alone; then their tests, in one process.
GENERATED = """
import os, runpy, sys

import pytest, streamlit, torch, transformers

if (child := os.fork()) == 0:
    from core.claims.__main__ import main as claims
    from core.pretrained.cards import write_table
    from core.studies.scores import main as scores

    write_table("tinyllama")
    scores()
    wrong = claims(["run", "dilution", "--ship"])
    os._exit(wrong)
assert os.waitpid(child, 0)[1] == 0
runpy.run_module("dashboard.search", run_name="__main__")
sys.exit(pytest.main(sys.argv[1:]))
"""


def add(folder: Path, kind: str, title: str, block: str) -> str:
    """Put a block of a document into the lab in a folder; its path there."""
    name, _, line = title.partition(", above ")
    file = folder / name
    before = file.read_text("utf-8") if file.exists() else ""
    if kind == "diff":
        old, new = (
            "".join(one[1:] + "\n" for one in block.splitlines() if one[0] in signs)
            for signs in (" -", " +")
        )
        assert before.count(old) == 1, f"{title} has these lines {before.count(old)} times:\n{old}"
        text = before.replace(old, new)
    elif kind == "json":
        text = json.dumps([*json.loads(before), json.loads(block)])
    elif line:
        assert before.count(f"\n{line}") == 1, title
        text = before.replace(f"\n{line}", f"\n{block}\n\n{line}")
    else:
        assert not before, f"{title} is there already"
        text = block
    file.write_text(text, "utf-8")
    return name


@pytest.mark.first
def test_the_examples_of_the_documents_run_in_a_copy(tmp_path):
    for part in ("attention_lab", "core", "dashboard", "pages", "tests", "docs"):
        skipped = shutil.ignore_patterns("node_modules", "*.webp")
        shutil.copytree(ROOT / part, tmp_path / part, ignore=skipped)
    for name in ("pyproject.toml", "streamlit_app.py", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    times = json.loads((ROOT / "core/studies/data/scores.json").read_text("utf-8"))["measured"]
    tests = list(HELD)
    for document in DOCUMENTS:
        blocks = BLOCK.findall(document.read_text("utf-8").partition("\n## A whole example\n")[2])
        names = [add(tmp_path, *block) for block in blocks]
        tests += [name for name in names if Path(name).name.startswith("test_")]
    done = subprocess.run(
        [sys.executable, "-c", GENERATED, *dict.fromkeys(tests)],
        cwd=tmp_path,
        env={**os.environ, "UPDATE_SNAPSHOTS": "1"},
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    now = json.loads((tmp_path / "core/studies/data/scores.json").read_text("utf-8"))["measured"]
    assert now == times | {"tempered": now["tempered"]}, "no other score is timed again"
