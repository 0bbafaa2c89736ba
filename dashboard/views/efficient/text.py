"""The page's sentence, conditions and table, from the measurements and the closed forms."""

from __future__ import annotations

from dataclasses import dataclass

from core.attention.cost import Measurement, attention_cost, exponent
from dashboard.draw.formats import byte_size, duration, number, operations, percent
from dashboard.views.efficient.compute import Result
from dashboard.views.efficient.controls import BANDED, ENTRIES, HEADS, ROUNDS, SIZE

LAST = 3  # lengths that a slope is fitted to: short ones are overhead
MEGABYTE, MILLI = 1e6, 1e-3  # of the charts' axes
HEAD = (
    "kernel",
    "tokens T",
    "time",
    "grows as",
    "FLOPs",
    "grow as",
    "peak memory",
    "grows as",
    "by formula",
    "error",
)
_RAISED = str.maketrans("0123456789.−", "⁰¹²³⁴⁵⁶⁷⁸⁹·⁻")


@dataclass(frozen=True)
class Scaling:
    """One kernel: its longest point, the exponents of time, memory and operations, and the closed forms there."""

    kernel: str
    point: Measurement
    time: float
    memory: float
    flops: float
    closed_flops: float
    closed_bytes: float


def scaling(result: Result, kernel: str) -> Scaling | None:
    """None before two lengths have been measured."""
    points = result.of(kernel)[-LAST:]
    if len(points) < 2:
        return None
    config, lengths = result.controls.config(kernel), [point.length for point in points]
    costs = [attention_cost(config, length, length) for length in lengths]
    return Scaling(
        kernel,
        points[-1],
        exponent(lengths, [p.seconds for p in points]),
        exponent(lengths, [p.bytes for p in points]),
        exponent(lengths, [c.flops for c in costs]),
        costs[-1].flops,
        costs[-1].bytes,
    )


def power(value: float) -> str:
    """T with its exponent raised: T¹·⁹⁸."""
    return "T" + number(value).translate(_RAISED)


def rows(result: Result, kernels: list[str], errors: dict[str, float]) -> list[list[str]]:
    """A row a kernel; `errors` is the distance of each output from exact's."""
    return [
        [
            ENTRIES[kernel].name,
            f"{each.point.length:,}",
            duration(each.point.seconds),
            power(each.time),
            operations(each.closed_flops),
            power(each.flops),
            byte_size(each.point.bytes),
            power(each.memory),
            byte_size(each.closed_bytes),
            percent(errors.get(kernel)),
        ]
        for kernel in kernels
        if (each := scaling(result, kernel))
    ]


def fact(result: Result, kernels: list[str]) -> str:
    """The fastest kernel against exact, or against the slowest, at the longest length of that one."""
    scalings = [each for kernel in kernels if (each := scaling(result, kernel))]
    if len(scalings) < 2:
        return ""
    slow = next(
        (each for each in scalings if each.kernel == "exact"),
        max(scalings, key=lambda each: each.point.seconds),
    )
    others = [
        (point, each)
        for each in scalings
        if each is not slow
        for point in result.of(each.kernel)
        if point.length == slow.point.length
    ]
    if not others:
        return ""
    point, fast = min(others, key=lambda pair: pair[0].seconds)
    first, second = kernel_name(fast.kernel), kernel_name(slow.kernel)
    return (
        f"At {point.length:,} tokens, {first} takes **{duration(point.seconds)}** and {byte_size(point.bytes)}; "
        f"{second} takes **{duration(slow.point.seconds)}** and {byte_size(slow.point.bytes)}. With twice as many "
        f"tokens, {first} takes {number(2**fast.time)} times as long, {second} {number(2**slow.time)} times."
    )


def kernel_name(kernel: str) -> str:
    """A kernel's name within a sentence."""
    label = ENTRIES[kernel].name
    return label if label in ("Performer", "Linformer", "Nyström") else label[0].lower() + label[1:]


def conditions(result: Result, example: bool) -> str:
    """The conditions of the measurement."""
    controls = result.controls
    keys = "the keys up to itself" if controls.causal else "every key"
    banded = [kernel_name(kernel) for kernel in controls.keys if kernel in BANDED]
    window = f", in {' and '.join(banded)} a window of {controls.window} keys" if banded else ""
    passes = "forward and backward" if controls.backward else "forward"
    where = "Measured by `make measured`, in processor time" if example else "Measured here"
    return (
        f"{where}: one sequence, {HEADS} heads of {SIZE} numbers, float32, {passes}, median of {ROUNDS} runs. A "
        f"query sees {keys}{window}. {result.machine}. Dotted lines are calculated from the formula of a forward "
        "pass: FLOPs of its matrix products at the speed of the last point, and memory on a CPU, within about a "
        f"quarter. “Grows as” is fitted to the last {LAST} lengths. Error: |output − exact output| / |exact "
        "output| on random q, k, v."
    )


def skipped(result: Result, kernels: list[str]) -> str:
    """Which curves end early, and why."""
    ends = [
        f"{kernel_name(p.name)} from {p.length:,} tokens ({p.skipped.partition(';')[0]})"
        for p in result.skipped()
        if p.name in kernels
    ]
    return f"Not measured: {', '.join(ends)}." if ends else ""
