"""What is measured on a GPU: seconds to the end of the work, and bytes that agree with the closed form."""

import pytest
import torch

from core.attention import AXES, AttentionConfig, Choice
from core.attention.cost import CUDA, Limits, attention_cost, peak_bytes, race, seconds, workload
from core.studies.racing import Race, machine

LENGTH = 512


def config_of(key):
    params = {"max_len": LENGTH} if key == "linformer" else {}
    mask = Choice.of("local", window=16) if key in ("local", "block_sparse") else Choice("none")
    return AttentionConfig(256, 4, mask=mask, kernel=Choice.of(key, **params))


@pytest.mark.parametrize("backward", [False, True])
def test_every_kernel_races(backward):
    configs = {item.key: config_of(item.key) for item in AXES["kernel"]}
    *_, last = race(
        configs, [128, LENGTH], backward=backward, rounds=2, limits=Limits(20.0, 4e9), device=CUDA
    )
    assert {point.name for point in last.points} == configs.keys()
    wrong = [
        point
        for point in last.points
        if point.skipped or not (point.seconds > 0 and point.bytes > 0)
    ]
    assert not wrong


def test_memory_is_that_of_the_closed_form():
    config = config_of("exact")
    measured = peak_bytes(workload(config, 2048, device=CUDA), CUDA)
    assert measured == pytest.approx(attention_cost(config, 2048, 2048).bytes, rel=0.2)


def test_a_call_is_timed_to_the_end_of_its_work():
    matrix = torch.randn(8192, 8192, device=CUDA)
    work = lambda: [matrix @ matrix for _ in range(4)]  # noqa: E731
    work()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    taken = seconds(work, device=CUDA)
    end.record()
    end.synchronize()
    assert taken == pytest.approx(start.elapsed_time(end) / 1e3, rel=0.3)


def test_a_race_runs_in_its_thread():
    contest = Race(
        {"fused": config_of("fused")}, [128, 256], rounds=2, limits=Limits(), device=CUDA
    )
    contest.wait(60)
    assert not contest.alive and not contest.error and len(contest.points) == 2
    assert machine(CUDA).startswith(torch.cuda.get_device_name())
