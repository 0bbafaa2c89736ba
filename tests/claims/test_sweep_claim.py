"""A claim made of a sweep: its file is loaded as a plug-in, judged on made-up data, and measured once."""

import runpy
from dataclasses import replace
from typing import Any

import pytest

from core.claims.catalogue import CLAIMS, claim_of, register_claim
from core.claims.experiment import measure_cell, trained
from core.claims.sweep_claim import SweepClaim
from core.entries import ConfigError
from core.training.sweeps import SweepConfig
from tests.claims.made_up import judge
from tests.training.small import small_run

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
