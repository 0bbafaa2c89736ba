"""Every choice of every axis computes on a GPU what it computes on the CPU: outputs, gradients, steps, graphs."""

from copy import deepcopy
from typing import Any

import pytest
import torch

from core.attention import AXES, PRESETS, Attention, AttentionConfig, Choice, ConfigError
from core.attention.config import example_config
from core.attention.cost import CUDA, Limits, attention_cost, peak_bytes, race, seconds, workload
from core.studies.efficient import Race, machine
from tests.attention import drawing
from tests.attention.drawing import ENTRIES, read_in_parts
from tests.attention.test_register import listed
from tests.cases import each
from tests.close import differences

B, T, C, H = 2, 67, 64, 4  # more tokens than a chunk of 64, and no power of two
NARROW = 24  # heads of 6 numbers, which no kernel of the GPU takes as they are


def config_of(axis, key, width=C):
    return example_config(axis, key, width, H)


def inputs(width, length=T) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.randn(B, length, width), torch.rand(B, length) < 0.7, torch.randn(B, length, width)


def outcome(layer, x, key_mask, felt, record):
    x = x.detach().clone().requires_grad_()
    merged = layer(x, key_mask=key_mask, record=record).merged
    merged.backward(felt)
    return {"merged": merged, "x": x.grad} | {
        n: p.grad for n, p in layer.named_parameters() if p.grad is not None
    }


def check(config, record, length=T):
    layer, given = Attention(config, add_positions=True), inputs(config.d_model, length)
    x, key_mask, felt = given
    ours = outcome(deepcopy(layer).cuda(), x.cuda(), key_mask.cuda(), felt.cuda(), record)
    wrong = differences(ours, outcome(layer, x, key_mask, felt, record))
    assert not wrong, wrong


@each("record", [True, False])
@each("width", [C, NARROW])
@each(("axis", "key"), ENTRIES)
def test_every_entry_is_as_on_the_cpu(axis, key, width, record):
    check(config_of(axis, key, width), record)


@each("record", [True, False])
@each("preset", PRESETS)
def test_every_preset_is_as_on_the_cpu(preset, record):
    check(preset.config(C, 1 if preset.config(C, 1).projection.key == "identity" else H), record)


@each("record", [True, False])
@each("row", drawing.rows() if torch.cuda.is_available() else [])
def test_every_pair_is_as_on_the_cpu(row, record):
    check(drawing.build(row), record)


@each(("axis", "key"), ENTRIES)
def test_every_entry_steps_as_on_the_cpu(axis, key):
    layer, (x, *_) = Attention(config_of(axis, key)).eval(), inputs(C, 9)
    results, refusals = [], []
    for device in ("cuda", "cpu"):
        try:
            merged = read_in_parts(deepcopy(layer).to(device), x.to(device), (5, 1, 3))[0]
        except (ConfigError, ValueError) as refusal:
            refusals.append(str(refusal))
            continue
        results.append({"merged": merged})
    if refusals:
        assert refusals[0] == refusals[-1] and not results
    else:
        assert not (wrong := differences(results[0], results[1])), wrong


@each("record", [True, False])
@each(("axis", "key"), ENTRIES)
def test_bfloat16_is_finite(axis, key, record):
    layer = Attention(config_of(axis, key), add_positions=True).cuda()
    x, key_mask, felt = (tensor.cuda() for tensor in inputs(C))
    with torch.autocast("cuda", torch.bfloat16):
        merged = layer(x.requires_grad_(), key_mask=key_mask, record=record).merged
    merged.float().backward(felt)
    assert merged.isfinite().all() and x.grad.isfinite().all()
    assert all(p.grad.isfinite().all() for p in layer.parameters() if p.grad is not None)


COMPILED = (
    [
        (axis, key)
        for axis, key in ENTRIES
        if listed().get(f"{axis}-{key}", {}).get("fullgraph", True)
    ]
    if torch.cuda.is_available()
    else []
)


@pytest.mark.skipif(
    torch.__version__ < "2.13", reason="docs/compile.md is about the PyTorch of requirements.txt"
)
@pytest.mark.parametrize(("axis", "key"), COMPILED)
def test_a_compiled_entry_is_as_eager(axis, key):
    """By Triton's own code, where docs/compile.md claims one graph."""
    layer = Attention(config_of(axis, key), add_positions=True).eval().cuda()
    x, key_mask, _ = (tensor.cuda() for tensor in inputs(C))
    torch._dynamo.reset()
    with torch.no_grad():
        runs: tuple[Any, Any] = torch.compile(layer, fullgraph=True), layer
        ours, theirs = (
            {"merged": run(x, key_mask=key_mask, record=False).merged.cpu()} for run in runs
        )
    assert not (wrong := differences(ours, theirs)), wrong


# What is measured on a GPU: seconds to the end of the work, and bytes that agree with the closed form.


LENGTH = 512


def kernel_config(key):
    params = {"max_len": LENGTH} if key == "linformer" else {}
    mask = Choice.of("local", window=16) if key in ("local", "block_sparse") else Choice("none")
    return AttentionConfig(256, 4, mask=mask, kernel=Choice.of(key, **params))


@pytest.mark.parametrize("backward", [False, True])
def test_every_kernel_races(backward):
    configs = {item.key: kernel_config(item.key) for item in AXES["kernel"]}
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
    config = kernel_config("exact")
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
    contest = Race(race({"fused": kernel_config("fused")}, [128, 256], rounds=2, device=CUDA))
    contest.wait(60)
    assert not contest.alive and not contest.error and len(contest.points) == 2
    assert machine(CUDA).startswith(torch.cuda.get_device_name())
