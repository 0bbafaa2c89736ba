"""The page's sentence, conditions and table, all from what was measured and from the closed forms."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from core.benchmark import CUDA, Measured, exponent
from core.cost import attention_cost
from dashboard.charts.numbers import byte_size, duration, number, operations, percent
from dashboard.views.efficient import state
from dashboard.views.efficient.state import BANDED, ENTRIES, HEADS, ROUNDS, SIZE, Result

LAST = 3  # lengths that a slope is fitted to: short ones are overhead
MEGABYTE, MILLI = 1e6, 1e-3  # of the charts' axes
HEAD = ("kernel", "T", "time", "grows as", "operations", "grow as", "peak memory", "grows as", "closed form",
        "from exact")
_RAISED = str.maketrans("0123456789.−", "⁰¹²³⁴⁵⁶⁷⁸⁹·⁻")


@dataclass(frozen=True)
class Grown:
    """One kernel at its longest measured length: the point, and the slopes of what was measured and of closed forms."""

    kernel: str
    point: Measured
    time: float
    memory: float
    flops: float
    closed_flops: float
    closed_bytes: float


def grown(result: Result, kernel: str) -> Grown | None:
    """None before two lengths have been measured."""
    points = result.of(kernel)[-LAST:]
    if len(points) < 2:
        return None
    config, lengths = result.asked.config(kernel), [point.length for point in points]
    costs = [attention_cost(config, length, length) for length in lengths]
    return Grown(kernel, points[-1], exponent(lengths, [p.seconds for p in points]),
                 exponent(lengths, [p.bytes for p in points]), exponent(lengths, [c.flops for c in costs]),
                 costs[-1].flops, costs[-1].bytes)


def power(value: float) -> str:
    """T with its exponent raised: T¹·⁹⁸."""
    return "T" + number(value).translate(_RAISED)


def rows(result: Result, kernels: list[str], apart: dict[str, float]) -> list[list[str]]:
    """A row a kernel; `apart` says how far its output is from exact's."""
    out = []
    for kernel in kernels:
        each = grown(result, kernel)
        if each is None:
            continue
        out.append([ENTRIES[kernel].name, f"{each.point.length:,}", duration(each.point.seconds), power(each.time),
                    operations(each.closed_flops), power(each.flops), byte_size(each.point.bytes), power(each.memory),
                    byte_size(each.closed_bytes), percent(apart.get(kernel))])
    return out


def fact(result: Result, kernels: list[str]) -> str:
    """The fastest at the longest length that it shares with exact, or with the slowest, in numbers."""
    found = [each for kernel in kernels if (each := grown(result, kernel))]
    if len(found) < 2:
        return ""
    slow = next((each for each in found if each.kernel == "exact"), max(found, key=lambda each: each.point.seconds))
    at = slow.point.length
    others = {each.kernel: point for each in found if each is not slow
              for point in result.of(each.kernel) if point.length == at}
    if not others:
        return ""
    quick = min(others, key=lambda kernel: others[kernel].seconds)
    point, growth = others[quick], next(each for each in found if each.kernel == quick)
    return (f"At {at:,} tokens {name(quick)} takes **{duration(point.seconds)}** and {byte_size(point.bytes)} where "
            f"{name(slow.kernel)} takes **{duration(slow.point.seconds)}** and {byte_size(slow.point.bytes)}: twice "
            f"the text costs it {number(2 ** growth.time)} times as much, and {name(slow.kernel)} "
            f"{number(2 ** slow.time)} times.")


def name(kernel: str) -> str:
    """As it stands within a sentence."""
    said = ENTRIES[kernel].name
    return said if said in ("Performer", "Linformer", "Nyström") else said[0].lower() + said[1:]


def conditions(result: Result, example: bool) -> str:
    """How, where, and by what it was measured."""
    asked = result.asked
    seen = "the keys before each query" if asked.causal else "every key"
    banded = [name(kernel) for kernel in asked.keys if kernel in BANDED]
    window = f", {' and '.join(banded)} a window of {asked.window}" if banded else ""
    way = "forward and backward" if asked.backward else "forward"
    where = "Measured by `make measured`, in processor time" if example else "Measured here"
    return (f"{where}: one sequence, {HEADS} heads of {SIZE}, float32, {way}, median of {ROUNDS}; all see "
            f"{seen}{window}. {result.machine}. Dotted: the closed forms of a forward pass. Operations are those of "
            "matrix products, drawn at the speed of the last point; memory is the CPU's, right to about a quarter. "
            f"Slopes are fitted to the last {LAST} lengths. From exact: |out − exact| / |exact|, random q, k, v.")


def limits(where: str) -> str:
    """What a call may take on that device."""
    most = state.limits(where)
    return (f"A call is skipped when it would hold more than {byte_size(most.bytes)} or take longer than "
            f"{most.seconds:g} s.")


def device(key: str) -> str:
    """The name of a device, as its control says it."""
    return torch.cuda.get_device_name() if key == CUDA else "CPU"


def skipped(result: Result, kernels: list[str]) -> str:
    """Which curves end early, and why."""
    said = [f"{name(p.name)} from {p.length:,} tokens ({p.skipped.partition(';')[0]})" for p in result.skipped()
            if p.name in kernels]
    return f"Skipped: {', '.join(said)}." if said else ""
