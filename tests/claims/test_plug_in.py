"""A claim as a plug-in: the documented one runs by the real command and from the page, in real workers."""

import os
import re
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.claims.catalogue import CLAIMS, claim_of, register_claim
from core.claims.experiment import measure_cell, trained
from core.claims.sweep_claim import SweepClaim
from core.entries import ConfigError
from core.training.sweeps import SweepConfig
from tests.claims.test_rules import judge
from tests.training.small import small_run

ROOT = Path(__file__).resolve().parents[2]
PAGE = """
import time
from core.claims.run import find_group
from tests.pages.app import open_at, page_text, query_value

app = open_at("claims", claim="diluted")
app.slider(key="claims:diluted:seeds").set_value(5).run()
app.button(key="claims:start").click().run()
group, limit = find_group(query_value(app, "claims:run")), time.monotonic() + 300
while group.live and time.monotonic() < limit:
    app.run()
app.pills(key="claims:diluted:predict").set_value("falls below a quarter").run()
assert not app.exception
print([run.status() for run in group.runs], page_text(app))
"""


def command(folder, *arguments, **more):
    environment = {**os.environ, "ATTENTION_LAB_PLUGINS": str(folder), **more}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        encoding="utf-8",
    )


@pytest.fixture
def documented(tmp_path):
    """A folder with the claim of docs/write-a-plugin.md."""
    text = (ROOT / "docs" / "write-a-plugin.md").read_text(encoding="utf-8")
    (block,) = (
        block
        for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        if "register_claim" in block
    )
    (tmp_path / "diluted.py").write_text(block, encoding="utf-8")
    return tmp_path


def test_the_documented_claim_is_measured_by_the_command(documented):
    done = command(
        documented, "-m", "core.claims", "run", "diluted", "--set", "seeds=5", "--set", "d_k=8"
    )
    assert done.returncode == 0 and "Verdict: holds" in done.stdout, done.stdout + done.stderr
    assert "could not" not in done.stderr and "Plug-in" not in done.stderr


def test_the_documented_claim_is_measured_from_the_page(documented):
    done = command(documented, "-c", PAGE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("finished") == 2, done.stdout
    assert "Your run: the claim holds" in done.stdout, done.stdout[-2000:]


@pytest.mark.parametrize("name", ["a_score", "zebra"])
def test_a_claim_of_a_sweep_finds_the_plug_ins_that_it_needs_whatever_their_names(tmp_path, name):
    """The sweep's values are a plug-in's, whose file comes before or after my_… in the alphabet."""
    (tmp_path / f"{name}.py").write_text(
        "from core.attention import Entry, register\n"
        "register('score', Entry('plain', 'Plain', lambda config: lambda q, k: q @ k.mT, 'x', "
        "'A variant for the tests alone.', '', 2026))\n",
        encoding="utf-8",
    )
    sweep = SweepConfig(small_run(), "score", ("dot", "additive"), seeds=(0, 1))
    claim = SweepClaim(sweep, 0, 1, "loss", 0.0)
    text = claim.file().replace('"additive"', '"plain"')
    assert text != claim.file()
    (tmp_path / f"{claim.key}.py").write_text(text, encoding="utf-8")
    done = command(
        tmp_path,
        "-m",
        "core.claims",
        "run",
        claim.key,
        "--set",
        "seeds=2",
        "--set",
        "steps=2",
        "--workers",
        "1",
    )
    assert done.returncode == 0 and "Verdict: " in done.stdout, done.stdout + done.stderr


# A claim made of a sweep: its file is loaded as a plug-in, judged on made-up data, and measured once.


SWEEP = SweepConfig(small_run(), "score", ("dot", "additive", "general"), seeds=(0, 1))


@pytest.fixture
def plugged():
    before = list(CLAIMS)
    yield
    CLAIMS[:] = before


def loaded(claim, folder):
    file = folder / f"{claim.key}.py"
    file.write_text(claim.file(), encoding="utf-8")
    runpy.run_path(str(file))
    return claim_of(claim.key)


@pytest.mark.parametrize(
    ("measure", "better", "worse"), [("sequence_accuracy", 0.9, 0.5), ("loss", 0.5, 0.9)]
)
def test_the_file_judges_what_its_author_wrote(plugged, tmp_path, measure, better, worse):
    claim = loaded(SweepClaim(SWEEP, 2, 0, measure, 0.1, 'O\'Neill, "Ann"'), tmp_path)
    first, second = claim.conditions(claim.settle())
    assert (first, second) == ("General", "Dot product") and claim.name.endswith("(plug-in)")
    assert claim.source.authors == 'O\'Neill, "Ann"'

    def world(one, other):
        return {(first, measure, None): one, (second, measure, None): other}

    assert judge(claim, world(better, worse), 0.01) == ("holds", ["holds"])
    assert judge(claim, world(worse, better), 0.01) == ("does not hold", ["refuted"])
    assert judge(claim, world(0.5, 0.51), 0.001) == ("does not hold", ["refuted"])
    assert judge(claim, world(better, worse), 0.9)[0] == "cannot be told here"


def test_the_file_trains_both_values_from_new_seeds(plugged, tmp_path):
    claim = loaded(SweepClaim(SWEEP, 0, 1, "loss", 0.0), tmp_path)
    cells = [
        measure_cell(claim, (condition, 0), claim.settle({"steps": 2}))
        for condition in claim.conditions(claim.settle())
    ]
    values = [cell.values for cell in cells]
    assert [name for ((name, _, _),) in values] == ["loss", "loss"] and values[0] != values[1]
    assert values[0][0][1] == trained(replace(SWEEP.run(0, 1000), steps=2), 1000).last.loss


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"measure": "speed"}, "measure = 'speed'; take one of sequence_accuracy"),
        ({"second": 0}, "two values of the sweep"),
        ({"second": 9}, "two values of the sweep"),
        ({"bound": float("nan")}, "a number from 0"),
    ],
)
def test_what_cannot_be_compared_is_refused(changes, words):
    with pytest.raises(ConfigError, match=words):
        SweepClaim(
            **{
                **dict(sweep=SWEEP, first=0, second=1, measure="sequence_accuracy", bound=0.1),
                **changes,
            }
        )


def test_a_key_is_checked(plugged):
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"key": "a/b"}, "small letters"),
        ({"key": CLAIMS[0].key}, "already"),
        ({"key": "new", "parts": ()}, "needs conditions, parts"),
    ]
    for changes, words in wrong:
        with pytest.raises(ConfigError, match=words):
            register_claim(replace(CLAIMS[0], **changes))
