"""What a run will take: counted from timed steps, said with what would end it before, and told before it begins."""

import time
from dataclasses import replace

import pytest
import torch

from core.tasks import TaskConfig, make_task
from core.training import diagnosis as estimating
from core.training import recommended
from core.training.diagnosis import Pace, duration, estimate, in_words, pace
from dashboard.views.train import compute
from tests.cases import each


def test_a_run_is_its_steps_its_records_and_its_end():
    task = make_task(TaskConfig.of("reverse", length=6, vocab=12))
    config = recommended(task, steps=100, record_every=10, decode_every=5)
    assert Pace(0.5, 0.01, 0.1).seconds(config, held_out=20, final=40) == pytest.approx(
        100 * 0.5 + 11 * 20 * 0.01 + 3 * 20 * 0.1 + 40 * 0.11
    )


@each(
    ("task", "kind"),
    [("own_pairs", "recurrent"), ("own_text", "decoder"), ("own_table", "classifier")],
)
def test_own_data_is_timed_and_nothing_random_moves(task, kind):
    made = make_task(TaskConfig.of(task))
    config = recommended(made, kind, batch_size=8)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    measurement = pace(config, made)
    assert torch.equal(before, torch.get_rng_state())
    assert measurement.step > 0 and measurement.teacher_forced > 0
    assert (measurement.free_running > 0) == (made.form == "pairs")
    assert estimate(config, made) > config.steps * 1e-5


def test_a_busy_moment_is_not_kept(monkeypatch):
    """The fastest of several timings counts, and a page times again what is a minute old."""
    made = make_task(TaskConfig.of("own_pairs"))
    config = recommended(made, "recurrent", batch_size=8)
    calm, calls = estimating.one_step, []

    def busy(session, step):
        calls.append(step)
        if len(calls) < estimating.BATCHES + 2:
            time.sleep(0.3)
        return calm(session, step)

    monkeypatch.setattr(estimating, "one_step", busy)
    monkeypatch.setattr(estimating, "LONGEST", 60.0)
    assert pace(config, made).step < 0.3
    clock = [1000.0]
    monkeypatch.setattr(compute.time, "monotonic", lambda: clock[0])

    def again(*given):
        calls.append("again")
        return Pace(1, 1, 1)

    monkeypatch.setattr(compute, "pace", again)
    compute._pace.cache_clear()
    for clock[0], times in ((1000.0, 1), (1001.0, 1), (1100.0, 2)):
        compute.time_needed(config)
        assert calls.count("again") == times
    compute.time_needed(replace(config, batch_size=9))
    assert calls.count("again") == 3
    compute._pace.cache_clear()


def test_words_name_the_cap_that_would_end_it():
    config = recommended(make_task(TaskConfig.of("own_pairs")), steps=1000, seconds=100.0)
    assert "near step" not in in_words(config, 80.0) and "80 s" in in_words(config, 80.0)
    assert "near step 250" in in_words(config, 400.0) and "7 min" in in_words(config, 400.0)
    assert [duration(s) for s in (0.2, 89, 90, 5_400)] == ["1 s", "89 s", "2 min", "1.5 h"]


def test_it_is_told_of_own_data_alone():
    own, other = (
        compute.time_needed(recommended(make_task(TaskConfig.of(task)), batch_size=8))
        for task in ("own_pairs", "reverse")
    )
    assert "About" in own and not other
