"""Files of a run and of a sweep whose values were put wrong by hand; tests/fuzz does it at random."""

import json

from core.runs.runs import create_run
from dashboard.views.sweeps.compute import SweepData, load_sweep
from tests.cases import instance
from tests.fuzz.readers import sweep_with_outcomes
from tests.training.small import small_run


def test_a_number_of_everything_is_no_worker(tmp_path):
    """kill(-1, …) ends every process of the user; a status file is no reason to."""
    run = create_run(small_run(), tmp_path)
    for pid in (-1, 0, 1, True, "7", [7], 1e9, None):
        (run.path / "status.json").write_text(
            json.dumps({"state": "running", "pid": pid}), encoding="utf-8"
        )
        assert run.status().pid is None


def test_the_sweep_that_is_damaged_is_whole_before(tmp_path):
    sweep, data = sweep_with_outcomes(tmp_path / "one.json")
    sweep.path.write_text(json.dumps(data), encoding="utf-8")
    assert instance(load_sweep(sweep), SweepData).finished == 4
