"""What attention costs: operations and bytes in closed form, time and memory measured, and the error of a kernel."""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import lru_cache
from math import log
from typing import Any

import torch
from torch._C._autograd import _disable_profiler_legacy, _enable_profiler_legacy
from torch.autograd.profiler_legacy import profile
from torch.overrides import TorchFunctionMode

from core.attention import AXES, Attention, AttentionConfig, ConfigError, entry
from core.attention.base import ScoreBlock
from core.attention.kernels.exact import exact
from core.attention.masks import make_mask
from core.entries import Area, Choice, Cost
from core.memory import admitted, room_bytes
from core.seeding import seeded_generator, seeded_rng
from core.threads import num_threads

# The parameters, FLOPs and activation memory of an attention layer, in closed form, for one fp32 sequence.


DENSE = ("exact", "fused")  # kernels that compute every cell, masked or not
RANDOM = ("normal_", "uniform_", "kaiming_uniform_")


class ShapesOnly(TorchFunctionMode):
    """Makes new matrices on the meta device, and leaves unfilled what would begin with random numbers: it draws none.

    Not all tensors, as `torch.device("meta")` would: there normal_, arange and log import PyTorch's compiler, which
    takes seconds.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.randn and "generator" not in kwargs:
            func = torch.empty
        if func is torch.empty and (
            len(args) > 1 or (isinstance(args[0], tuple) and len(args[0]) > 1)
        ):
            return func(*args, **{**kwargs, "device": "meta"})
        if getattr(func, "__name__", "") in RANDOM:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


def meta_layer(config: AttentionConfig) -> Attention:
    """The layer with the shapes of its weights, which take no memory and hold nothing."""
    with ShapesOnly():
        return Attention(config)


@lru_cache(maxsize=256)
def parameters(config: AttentionConfig) -> dict[str, int]:
    """The number of learned parameters of each axis, counted on a layer built on the meta device."""
    modules = dict(meta_layer(config).named_children())
    return {
        axis: sum(weight.numel() for weight in modules[axis].parameters()) if axis in modules else 0
        for axis in AXES
    }


def attention_cost(
    config: AttentionConfig, num_queries: int, num_keys: int, real: int | None = None
) -> Cost:
    """One forward pass from projected heads to the output of each head, without gradients, as `workload` is measured.

    `real` is the number of keys before the padding where there is a key mask. `bytes` is the peak on a CPU, beyond q,
    k, v and x.
    """
    area = Area.whole(
        num_queries, num_keys, masked=config.mask.key != "none" or real is not None, real=real
    )
    return entry("kernel", config.kernel.key).cost(config, area)


def expected_cost(config: AttentionConfig, num_queries: int, num_keys: int) -> Cost:
    """`attention_cost`, or that of the exact kernel where a kernel from outside does not tell its own."""
    cost = attention_cost(config, num_queries, num_keys)
    exactly = config.with_(kernel=Choice("exact"))
    return cost if cost.known else attention_cost(exactly, num_queries, num_keys)


# FLOPs that take as long as a random weight, and as one cell of all recorded maps
DRAWN, CELL = 200.0, 1_000.0


def recorded_cost(config: AttentionConfig, num_queries: int, num_keys: int) -> Cost:
    """At most what it costs to make a layer with random weights, and one call that records each step.

    `bytes` is the peak on a CPU: its weights, three copies of its heads, and four maps beside what its kernel and the
    exact one take.
    """
    sizes, weights = config.sizes, sum(parameters(config).values())
    cost = attention_cost(config.with_(kernel=Choice("exact")), num_queries, num_keys)
    if config.kernel.key != "exact":
        cost += expected_cost(config, num_queries, num_keys)
    heads = num_queries * sizes.score_heads * sizes.qk_dim + num_keys * sizes.kv_heads * (
        sizes.qk_dim + sizes.v_dim
    )
    maps = sizes.score_heads * num_queries * num_keys
    flops = cost.flops + weights * (2 * num_keys + DRAWN) + maps * CELL
    return Cost(flops, cost.bytes + 4 * (weights + 3 * heads + 4 * maps))


def layer_admitted(
    config: AttentionConfig, num_queries: int, num_keys: int
) -> AbstractContextManager[None]:
    """Room for a layer that is made and recorded in the block; TooMuch as core.memory.admitted."""
    price = recorded_cost(config, num_queries, num_keys)
    remedy = "Take fewer or smaller heads, or a shorter sentence."
    return admitted(price, "A layer of these sizes", remedy)


@dataclass(frozen=True)
class ClosedFormCost:
    """Learned numbers, and FLOPs at a length, NaN if unknown; a kernel that computes masked cells too (`dense`) spends all.

    `at_most`: the FLOPs are a bound, as a kernel skips masked keys under a mask that depends on the input.
    """

    parameters: int
    flops: float
    dense: bool
    at_most: bool = False


def closed_form_cost(config: AttentionConfig, length: int) -> ClosedFormCost:
    """A layer's learned numbers, and its FLOPs from projected heads to outputs, of every cell that is computed.

    `dense`: the kernel computes cells that it then masks.
    """
    dense = config.kernel.key in DENSE and visible_share(config, length) < 1.0
    return ClosedFormCost(
        sum(parameters(config).values()),
        attention_cost(config, length, length).flops,
        dense,
        config.has("kernel", "reads mask") and config.has("mask", "reads content"),
    )


def visible_share(config: AttentionConfig, length: int) -> float:
    """The share of visible cells at that length; 1 where the mask depends on the numbers themselves."""
    if config.mask.key == "none" or config.has("mask", "learned"):
        return 1.0
    cells = ScoreBlock.whole(length, length, key_mask=torch.ones(1, length, dtype=torch.bool))
    try:
        return float(make_mask(config.mask, config)(cells).float().mean())
    except (ConfigError, ValueError):  # a rule that needs more than positions
        return 1.0


# Median seconds and peak memory of attention on this machine, at growing lengths.


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
    with num_threads(1):
        _enable_profiler_legacy(profile(profile_memory=True).config())
        try:
            work()
        finally:
            threads = _disable_profiler_legacy()
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

    def work() -> None:
        with torch.set_grad_enabled(backward):
            for tensor in (q, k, v):
                tensor.requires_grad_(backward)
            out = layer.kernel(layer.kernel_inputs(q, k, v, x, context, key_mask=mask)).out
            if backward:
                torch.autograd.grad(out.sum(), (q, k, v))

    return work


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
    two reports. What would exceed the limits, or cannot run at that length, is skipped with a reason.
    """
    flops = {
        (name, length): expected_cost(config, length, length).flops
        for name, config in configs.items()
        for length in lengths
    }
    if device == CPU:
        limits = replace(limits, bytes=min(limits.bytes, room_bytes()))
    total, done = sum(flops.values()), 0.0
    last: dict[str, Measurement] = {}
    for length in sorted(lengths):
        works, points, peaks = dict[str, Work](), [], dict[str, int]()
        for name, config in configs.items():
            reason = _too_much(config, length, backward, last.get(name), limits)
            try:
                if not reason:
                    work = workload(config, length, backward, seed, device=device)
                    peaks[name] = peak_bytes(work, device)  # of the first call, which also warms up
                    works[name] = work
            except (ValueError, RuntimeError) as error:
                reason = str(error)
            if reason:
                points.append(Measurement(name, length, skipped=reason))
        share = sum(flops[name, length] for name in works) / (rounds + 1)
        taken: dict[str, list[float]] = {name: [] for name in works}
        for number in range(rounds + 1):
            for name, work in works.items() if number else ():
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
    cost, times = expected_cost(config, length, length), BACKWARD if backward else 1.0
    if cost.bytes * times > limits.bytes:
        return f"would hold {cost.bytes * times / 1e6:,.0f} MB; the limit is {limits.bytes / 1e6:,.0f} MB"
    if before is None:
        return ""
    expected = (
        before.seconds * cost.flops / expected_cost(config, before.length, before.length).flops
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


LENGTH = 512  # tokens at which outputs are compared


@lru_cache(256)
def output_error(config: AttentionConfig, seed: int) -> float:
    """|out − exact| / |exact| over all numbers of the output, on random q, k, v of LENGTH tokens; exact in float64.

    Kernels that also read the tokens' own vectors get random ones.
    """
    with seeded_rng(seed):
        layer = Attention(config).eval()
    generator = seeded_generator(seed, "output error")
    q, k, v = (
        torch.randn(1, config.num_heads, LENGTH, config.head_dim, generator=generator)
        for _ in range(3)
    )
    x = torch.randn(1, LENGTH, config.d_model, generator=generator)
    with torch.no_grad():
        inputs = layer.kernel_inputs(q, k, v, x, x)
        ours = layer.kernel(inputs).out.double()
        inputs = replace(layer.kernel_inputs(q.double(), k.double(), v.double()), record=False)
        return float((ours - exact(inputs).out).norm() / exact(inputs).out.norm())
