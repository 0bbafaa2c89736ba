"""Median seconds and peak memory of attention on this machine, at growing lengths."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log

import torch
from torch import Tensor
from torch._C._autograd import _disable_profiler_legacy, _enable_profiler_legacy
from torch.autograd.profiler_legacy import profile

from core.attention import Attention, AttentionConfig
from core.cost import attention_cost

Work = Callable[[], object]
CPU, CUDA = "cpu", "cuda"
BACKWARD = 3.0  # a forward and a backward pass take about three forward ones


@dataclass(frozen=True)
class Limits:
    """The most that one call may take, or it is skipped: expected seconds, and closed-form bytes."""

    seconds: float = 2.0
    bytes: float = 512e6


@dataclass(frozen=True)
class Measurement:
    """One mechanism at one length: median seconds of a call and the most bytes alive at once beyond its inputs."""

    name: str
    length: int
    seconds: float = 0.0
    bytes: int = 0
    skipped: str = ""  # why it was not measured


@dataclass(frozen=True)
class Progress:
    """The finished fraction of a race, and the measurements since the last report."""

    fraction: float
    points: tuple[Measurement, ...] = ()


def devices() -> tuple[str, ...]:
    """The devices of this machine, the fastest first."""
    return (CUDA, CPU) if torch.cuda.is_available() else (CPU,)


def wait(device: str) -> None:
    """Wait for the device: a call on CUDA returns before its work is done."""
    if device == CUDA:
        torch.cuda.synchronize()


def peak_bytes(work: Work, device: str = CPU) -> int:
    """PyTorch's peak memory on a device during a call, beyond what it held before.

    On the CPU exact to the byte, from every recorded allocation and release (RSS would miss short-lived memory), on one
    thread: each more has buffers of its own. On CUDA the allocator's record, in steps of 512 bytes, of a second call,
    as the first makes workspaces that stay. What `work` returns counts until the call is over.
    """
    if device == CUDA:
        work()
        wait(device)
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        work()
        wait(device)
        return torch.cuda.max_memory_allocated() - before
    usual = torch.get_num_threads()
    torch.set_num_threads(1)
    _enable_profiler_legacy(profile(profile_memory=True).config())
    try:
        work()
    finally:
        threads = _disable_profiler_legacy()
        torch.set_num_threads(usual)
    held = highest = 0
    for event in (event for thread in threads for event in thread):
        if event.kind() == "memory_alloc":
            held += event.cpu_memory_usage()
            highest = max(highest, held)
    return highest


def seconds(work: Work, clock: Callable[[], float] = time.perf_counter, device: str = CPU) -> float:
    """Seconds of a call, to the end of its work on the device."""
    wait(device)
    start = clock()
    work()
    wait(device)
    return clock() - start


def workload(
    config: AttentionConfig,
    length: int,
    backward: bool = False,
    seed: int = 0,
    *,
    keys: int | None = None,
    real: int | None = None,
    device: str = CPU,
) -> Work:
    """A call of the config's kernel on random q, k, v of that length, batch 1; with `backward` also their gradients.

    `keys` is the number of keys, `length` unless given; keys from `real` on are padding.
    """
    layer, generator = Attention(config).eval().to(device), torch.Generator().manual_seed(seed)
    sizes, keys = config.sizes, length if keys is None else keys
    values = min(sizes.kv_heads, config.num_heads)
    shapes = (
        (sizes.score_heads, length, sizes.qk_dim),
        (sizes.kv_heads, keys, sizes.qk_dim),
        (values, keys, sizes.v_dim),
        (length, config.d_model),
        (keys, config.d_model),
    )
    q, k, v, x, context = (
        torch.randn(1, *shape, generator=generator).to(device) for shape in shapes
    )
    if real is None and any(choice.key == "padding" for choice in config.mask.walk()):
        real = keys
    mask = None if real is None else torch.arange(keys, device=device)[None] < real

    def output() -> Tensor:
        return layer.kernel(layer.kernel_inputs(q, k, v, x, context, key_mask=mask)).out

    def forward() -> None:
        with torch.no_grad():
            output()

    def both() -> None:
        inputs = [tensor.requires_grad_() for tensor in (q, k, v)]
        torch.autograd.grad(output().sum(), inputs)

    return both if backward else forward


def race(
    configs: Mapping[str, AttentionConfig],
    lengths: Sequence[int],
    *,
    backward: bool = False,
    rounds: int = 5,
    limits: Limits = Limits(),
    seed: int = 0,
    clock: Callable[[], float] = time.perf_counter,
    device: str = CPU,
) -> Iterator[Progress]:
    """Measure all configs at each length, in turn in each round, so that a busy machine slows all alike.

    With one thread, time.process_time as the clock leaves out other processes. A generator, which can be closed between
    two reports. What would exceed the limits is skipped with a reason.
    """
    flops = {
        (name, length): attention_cost(config, length, length).flops
        for name, config in configs.items()
        for length in lengths
    }
    total, done = sum(flops.values()), 0.0
    last: dict[str, Measurement] = {}
    for length in sorted(lengths):
        works, points = {}, []
        for name, config in configs.items():
            reason = _too_much(config, length, backward, last.get(name), limits)
            if reason:
                points.append(Measurement(name, length, skipped=reason))
            else:
                works[name] = workload(config, length, backward, seed, device=device)
        share = sum(flops[name, length] for name in works) / (rounds + 1)
        peaks: dict[str, int] = {}
        taken: dict[str, list[float]] = {name: [] for name in works}
        for number in range(rounds + 1):
            for name, work in works.items():
                if (
                    number == 0
                ):  # the first call, which also warms up, is the one whose memory is recorded
                    peaks[name] = peak_bytes(work, device)
                else:
                    taken[name].append(seconds(work, clock, device))
            done += share
            yield Progress(min(done / total, 1.0))
        for name in works:
            last[name] = Measurement(name, length, statistics.median(taken[name]), peaks[name])
            points.append(last[name])
        done = sum(flops[name, size] for name in configs for size in lengths if size <= length)
        yield Progress(min(done / total, 1.0), tuple(points))


def _too_much(
    config: AttentionConfig,
    length: int,
    backward: bool,
    before: Measurement | None,
    limits: Limits,
) -> str:
    """Why a length is skipped, or "": memory by the closed form, time from the measurement before."""
    cost, times = attention_cost(config, length, length), BACKWARD if backward else 1.0
    if cost.bytes * times > limits.bytes:
        return f"would hold {cost.bytes * times / 1e6:,.0f} MB; the limit is {limits.bytes / 1e6:,.0f} MB"
    if before is None:
        return ""
    expected = (
        before.seconds * cost.flops / attention_cost(config, before.length, before.length).flops
    )
    if expected > limits.seconds:
        return f"would take {expected:.1f} s a call; the limit is {limits.seconds:g} s"
    return ""


def exponent(lengths: Sequence[float], values: Sequence[float]) -> float:
    """b of the best line log value = a + b · log length: 2 for quadratic, 1 for linear, 0 for constant.

    ValueError for fewer than two points or for a value that is not above zero.
    """
    if len(lengths) < 2 or len(set(lengths)) < 2 or min(values) <= 0:
        raise ValueError(
            f"a slope needs two lengths and values above zero; got {list(lengths)} and {list(values)}."
        )
    return statistics.linear_regression([log(x) for x in lengths], [log(y) for y in values]).slope
