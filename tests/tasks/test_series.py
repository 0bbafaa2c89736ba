"""Seasonal series: as they are made, what a forecast must beat, and where it should look."""

from statistics import median

import pytest
import torch

from core.models import ModelConfig
from core.tasks import Example, TaskConfig, make_task
from core.tasks.sequences import SPIKE
from core.training import recommended, train


def test_a_season_comes_back_and_spikes_stand_only_in_what_is_read():
    task = make_task(TaskConfig.of("series", anomalies=0.1))
    batch = task.batch(512, torch.Generator().manual_seed(0))
    read, target = batch.source[..., 0], batch.target_out
    assert batch.source.shape == (512, 48, 1) and target.shape == (512, 12)
    back = {
        lag: float((target - read[:, 48 - lag : 60 - lag]).abs().median())
        for lag in (12, 18, 24, 30)
    }
    assert back[12] < back[24] < back[30] and back[24] < back[18], (
        "like a season ago, and less like two"
    )
    jumps = (read[:, 12:36] - 0.5 * (read[:, :24] + read[:, 24:])).abs() > 0.7 * SPIKE
    assert 0.05 < float(jumps.float().mean()) < 0.15
    assert float(((target - read[:, 36:]).abs() > 0.7 * SPIKE).float().mean()) == pytest.approx(
        0.1, abs=0.03
    )
    calm = make_task(TaskConfig.of("series", anomalies=0.0)).batch(
        512, torch.Generator().manual_seed(0)
    )
    assert (
        float(
            ((calm.source[:, 12:, 0] - calm.source[:, :-12, 0]).abs() > 0.7 * SPIKE).float().mean()
        )
        == 0
    )


def test_the_same_seed_gives_the_same_series_and_none_is_on_both_sides():
    task = make_task(TaskConfig.of("series"))
    first, again = (task.batch(64, torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(first.source, again.source) and torch.equal(
        first.target_out, again.target_out
    )
    held = task.held_out(300)
    assert len(set(held)) == 300 and held[:20] == task.held_out(20)
    trained = {
        tuple(row)
        for row in task.batch(4000, torch.Generator().manual_seed(2**31)).source[..., 0].tolist()
    }
    assert not trained & {e.source for e in held}, (
        "not even from the generator that held-out series come from"
    )


def test_what_must_be_beaten_and_where_to_look():
    task = make_task(TaskConfig.of("series", period=4, seasons=2))
    assert task.naive([1, 2, 3, 4, 5, 6, 7, 8]) == [5, 6, 7, 8]
    assert task.expected(Example((0.0,) * 8, (0.0,) * 4)) == (4, 5, 6, 7)
    held = task.held_out(200)
    spread = [torch.tensor(e.target) - torch.tensor(e.source).mean() for e in held]
    assert task.baseline_loss == pytest.approx(float(torch.stack(spread).square().mean()), rel=1e-5)
    assert task.display_tokens(Example((1.0, -0.25), (2.0,))) == (("1.000", "-0.250"), ("2.000",))
    assert task.example("1, 2 3 4 5 6 7 8").source == (1, 2, 3, 4, 5, 6, 7, 8)
    for typed, words in (
        ("1 2 x", "made of numbers"),
        ("1 2", "has 2 numbers; this task reads 8 to 8"),
    ):
        with pytest.raises(ValueError, match=words):
            task.example(typed)


def test_a_forecaster_learns_to_look_one_season_back():
    """In the median of three seeds, since a run in six or so learns later."""
    task = make_task(TaskConfig.of("series", period=4, seasons=2, anomalies=0.05))
    model = ModelConfig.transformer(32, 1, kind="forecaster", position="sinusoidal", norm="pre")
    runs = [
        list(
            train(
                recommended(
                    task,
                    model=model,
                    steps=400,
                    batch_size=32,
                    learning_rate=1e-2,
                    record_every=400,
                    seed=seed,
                )
            )
        )
        for seed in range(3)
    ]
    assert median(run[-1].error for run in runs) < 1.3, "1.5 is what the mean of the window gives"
    assert all(run[0].error > 1.3 for run in runs)
    assert median(max(map(max, run[-1].expected)) / run[-1].even for run in runs) > 3
    assert runs[0][-1].maps["0:self"].shape == (1, 1, 12, 12)
