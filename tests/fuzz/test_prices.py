"""No link costs more than a machine of 1 GB has: every page with the numbers of its link at their largest."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dashboard.navigation import STEPS

PAGES = [step.key for step in STEPS]
MANY = bool(os.environ.get("ATTENTION_LAB_FUZZ"))
MOST = 1_000  # MB
pytestmark = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="needs Linux to measure a peak"
)


@pytest.mark.first
@pytest.mark.parametrize("half", [0, 1])
def test_the_largest_numbers_of_a_link_fit_into_1_gb(half):
    counts = ("500", "200") if MANY else ("1", "0")
    command = [sys.executable, "-m", "tests.fuzz.largest_links", ",".join(PAGES[half::2]), *counts]
    run = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    links = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    assert run.returncode == 0, run.stderr[-2_000:]
    assert {link["page"] for link in links} == set(PAGES[half::2])
    wrong = [link for link in links if link["peak"] > MOST or link["exceptions"]]
    assert not wrong, wrong
