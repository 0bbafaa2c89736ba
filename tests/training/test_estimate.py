"""What a run will take: counted from timed steps, said with what would end it before, and told before it begins."""

import pytest
import torch
from streamlit.testing.v1 import AppTest

from core.tasks import TaskConfig, make_task
from core.training import recommended
from core.training.estimate import Pace, duration, estimate, in_words, pace


def test_a_run_is_its_steps_its_records_and_its_end():
    task = make_task(TaskConfig.of("reverse", length=6, vocab=12))
    config = recommended(task, steps=100, record_every=10, decode_every=5)
    assert Pace(0.5, 0.01, 0.1).seconds(config, held_out=20, final=40) == pytest.approx(
        100 * 0.5 + 11 * 20 * 0.01 + 3 * 20 * 0.1 + 40 * 0.11)


@pytest.mark.parametrize(("task", "kind"), [("own_pairs", "recurrent"), ("own_text", "decoder"),
                                            ("own_table", "classifier")])
def test_own_data_is_timed_and_nothing_random_moves(task, kind):
    made = make_task(TaskConfig.of(task))
    config = recommended(made, kind, batch_size=8)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    found = pace(config, made)
    assert torch.equal(before, torch.get_rng_state())
    assert found.step > 0 and found.given > 0 and (found.free > 0) == (made.form == "pairs")
    assert estimate(config, made) > config.steps * 1e-5


def test_words_name_the_cap_that_would_end_it():
    config = recommended(make_task(TaskConfig.of("own_pairs")), steps=1000, seconds=100.0)
    assert "near step" not in in_words(config, 80.0) and "80 s" in in_words(config, 80.0)
    assert "near step 250" in in_words(config, 400.0) and "7 min" in in_words(config, 400.0)
    assert [duration(s) for s in (0.2, 89, 90, 5_400)] == ["1 s", "89 s", "2 min", "1.5 h"]


def script():
    from core.tasks import TaskConfig, make_task
    from core.training import recommended
    from dashboard.train.needed import time_needed

    for task in ("own_pairs", "reverse"):
        time_needed(recommended(make_task(TaskConfig.of(task)), batch_size=8))


def test_the_page_tells_it_of_own_data_alone():
    app = AppTest.from_function(script, default_timeout=60).run()
    assert not app.exception and len(app.caption) == 1 and "About" in app.caption[0].value
