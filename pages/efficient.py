"""Cost and speed: what each kernel takes as the text grows, measured here, and the weights that some imply."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TypeAlias

import numpy as np
import streamlit as st
import torch

import dashboard.page as lab
from core.attention import Choice, ConfigError
from core.attention.cost import (
    CPU,
    CUDA,
    attention_cost,
    devices,
    exponent,
    output_error,
    race,
)
from core.studies import efficient as study
from core.tokens import labels, tokenize

# The page's controls: the kernels and their conditions, and those of the implied weights.

MAX_KERNELS = 6  # curves in one figure

key = "efficient:{}".format  # a widget's key, which is also its name in the link


def limits_help(device: str) -> str:
    most = study.limits(device)
    return (
        f"A length is not measured where a call would need more than {lab.byte_size(most.bytes)} of memory or take "
        f"longer than {most.seconds:g} s."
    )


class Controls(lab.Fields, page="efficient"):
    kernels = lab.MultiSelect(
        f"Up to {MAX_KERNELS} kernels",
        {name: item.name for name, item in study.ENTRIES.items()},
        study.USUAL,
        max_options=MAX_KERNELS,
        help="A kernel is a way to compute attention. Each is one line of both figures.",
    )
    window = lab.SelectSlider(
        "Window of local and block-sparse",
        (16, 32, 64, 128, 256),
        study.Conditions.window,
        help="How many keys a query sees on each side.",
    )
    longest = lab.Select(
        "Measure here up to",
        (512, 1024, 2048, 4096, 8192),
        study.Conditions.longest,
        text="{:,} tokens".format,
        help=lambda _: limits_help(devices()[0]),
    )
    causal = lab.Select(
        "A query sees",
        {False: "every key", True: "keys before"},
        help="Every key, or only its own and those before it (a causal mask).",
    )
    backward = lab.Select(
        "Pass",
        {False: "forward", True: "and backward"},
        help="Training also runs a backward pass, which computes gradients.",
    )
    device = lab.Select(
        "Device",
        lambda _: devices(),
        text=lambda name: torch.cuda.get_device_name() if name == CUDA else "CPU",
        help="Where the kernels run.",
    ).optional(lambda _: len(devices()) > 1)
    sentence = lab.Text(
        "Sentence", "The animal was too tired .", span=2, help="Each word is one token."
    )
    head = lab.Select("Head", range(study.HEADS), help="The head that is drawn.")
    features = lab.Select(
        "Random features",
        (4, 16, 64, 256, 1024),
        64,
        help=study.ENTRIES["performer"].params[0].help,
    )
    few = lab.Select(
        "Rank, landmarks",
        (1, 2, 3, 4, 6, 8),
        3,
        help="The number of projected keys in Linformer and of landmarks in Nyström.",
    )
    implied_causal = lab.Toggle(
        "Causal",
        help="Hides later keys. Linformer and Nyström cannot do this and are left out.",
    )


def draw_controls() -> tuple[study.Conditions, st.delta_generator.DeltaGenerator]:
    """Draw the controls; returns what they say, and the place between them for the figures."""
    grid = st.grid(4 + (len(devices()) > 1), min_column_width=120, vertical_alignment="bottom")
    values = Controls.draw("longest", "causal", "backward", "device", into=grid)
    picture = st.container()
    with lab.settings_panel("Kernels, and what each does"):
        picked, choices = Controls.draw("kernels", "window", into=lab.HERE), list[Choice]()
        for item in map(study.ENTRIES.__getitem__, picked.kernels):
            lab.paragraph(f"**{item.name}:** {item.meaning}")
            # A table's length follows the longest text.
            choices.append(
                Choice.of(
                    item.key, **lab.params_of(item, key=key("params"), exclude=(study.TABLE,))
                )
            )
    conditions = study.Conditions(
        tuple(choices),
        values.longest,
        values.causal,
        values.backward,
        picked.window,
        values.device or CPU,
    )
    with grid:
        st.button(
            "Measure",
            icon=":material/timer:",
            type="primary",
            width="stretch",
            key=key("measure"),
            on_click=_start,
            args=(conditions,),
            disabled=not conditions.configs()[0],
            help=limits_help(conditions.device),
        )
    with picture:
        for sentence in conditions.configs()[1]:
            st.info(lab.plain(sentence), icon=":material/block:")
    return conditions, picture


# What the page computes as Python: the measurement of its curves, and the implied weights.


DRAW = """
import altair as alt
import pandas as pd

alt.Chart(pd.DataFrame(points)).mark_line(point=True).encode(
    x=alt.X("length", scale=alt.Scale(type="log")), y=alt.Y("{}", scale=alt.Scale(type="log")), color="name")
"""


def benchmark(result: study.Result, kernels: Sequence[str], is_saved: bool) -> lab.Script:
    configs = {kernel: result.conditions.config(kernel) for kernel in kernels}
    points = {kernel: result.of(kernel) for kernel in kernels}
    made, chosen = lab.source_of(configs), result.conditions
    if is_saved:
        imports = "from core.studies.efficient import load_result"
        measured = "load_result().points  # `make measured` measures all of it again"
    else:
        lengths = sorted({point.length for each in points.values() for point in each})
        imports = "from core.attention.cost import race"
        measured = (
            "[point for report in race(configs, "
            f"{lengths}, rounds={study.ROUNDS}, backward={chosen.backward}, device={chosen.device!r})\n"
            "            for point in report.points]"
        )
    costs = [
        attention_cost(configs[kernel], points[kernel][-1].length, points[kernel][-1].length)
        for kernel in kernels
    ]
    results = {
        "[(cost.flops, cost.bytes) for cost in costs.values()]": np.array(
            [(c.flops, c.bytes) for c in costs]
        ),
        "list(errors.values())": np.array(
            [lab.cached(output_error, configs[kernel], study.SEED) for kernel in kernels]
        ),
    }
    if is_saved:
        results["[(point.seconds, point.bytes) for point in points]"] = np.array(
            [
                (point.seconds, point.bytes)
                for point in result.points
                if point.name in configs and not point.skipped
            ]
        )
    return lab.Script(
        (
            lab.Cell(
                "The time of a call and its peak memory by the number of tokens, as they were measured.",
                f"""
{lab.attention_import(made)}
{imports}

configs = {made}
measured = {measured}
points = [point for point in measured if point.name in configs and not point.skipped]
for point in points:
    print(point.name, point.length, point.seconds, "s", point.bytes, "bytes")
""",
                DRAW.format("seconds"),
                "efficient:ms",
            ),
            lab.Cell(
                "FLOPs and memory in closed form at each kernel's longest length, and the error of its output.",
                f"""
from core.attention.cost import attention_cost
from core.attention.cost import output_error

costs = {{}}
for key, config in configs.items():
    length = max(point.length for point in points if point.name == key)
    costs[key] = attention_cost(config, length, length)
    print(key, length, "tokens:", costs[key].flops, "FLOPs,", costs[key].bytes, "bytes")
errors = {{key: output_error(config, seed={study.SEED}) for key, config in configs.items()}}
print(errors)
""",
                DRAW.format("bytes"),
                "efficient:MB",
            ),
        ),
        results,
    )


def implied_script(
    choices: Sequence[Choice],
    implied: Sequence[study.Implied],
    tokens: tuple[str, ...],
    causal: bool,
    head: int,
) -> lab.Script:
    kernels = [each.kernel for each in implied]
    results = {f"kernels[{each.kernel!r}].weights": each.weights for each in implied}
    results["[each.mean_error for each in kernels.values()]"] = np.array(
        [each.mean_error for each in implied]
    )
    return lab.Script(
        (
            lab.Cell(
                "The weights that give each kernel's outputs: of one layer with seeded weights, by kernel.",
                f"""
from core.attention import Choice
from core.studies.efficient import implied

tokens = {lab.source_of(tokens)}
choices = {lab.source_of([choice for choice in choices if choice.key in kernels])}
kernels = {{choice.key: implied(choice, tokens, causal={causal}) for choice in choices}}
for key, each in kernels.items():
    print(key, "mean difference from the weights of exact attention", each.mean_error)
""",
                f"""
from dashboard.show import show_maps
from core.tokens import labels

show_maps({{key: each.weights[{head}] for key, each in kernels.items()}}, labels(tokens), labels(tokens))
""",
                "efficient:maps",
            ),
        ),
        results,
    )


# The page's sentence, conditions and table, from the measurements and the closed forms.


LAST = 3  # lengths that a slope is fitted to: short ones are overhead


def scaling(result: study.Result, kernel: str) -> lab.Values | None:
    """One kernel: its longest point, the exponents of time, memory and operations, and the closed forms there.

    None before two lengths have been measured.
    """
    points = result.of(kernel)[-LAST:]
    if len(points) < 2:
        return None
    config, lengths = result.conditions.config(kernel), [point.length for point in points]
    costs = [attention_cost(config, length, length) for length in lengths]
    return lab.Values(
        kernel=kernel,
        point=points[-1],
        time=exponent(lengths, [p.seconds for p in points]),
        memory=exponent(lengths, [p.bytes for p in points]),
        flops=exponent(lengths, [c.flops for c in costs]),
        closed_flops=costs[-1].flops,
        closed_bytes=costs[-1].bytes,
    )


def power(value: float) -> str:
    """T with its exponent raised: T¹·⁹⁸."""
    raised = lab.number(value).translate(str.maketrans("0123456789.−", "⁰¹²³⁴⁵⁶⁷⁸⁹·⁻"))
    return lab.written(f"T{raised}", {", exponent of T": value})


def fact_text(result: study.Result, kernels: list[str]) -> str:
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
    fused = next((each for _, each in others if each.kernel == "fused" and each is not fast), None)
    times = f"{lab.number(2**slow.time)} times as long"
    growth = f"Twice the text takes {second} {times}"
    if slow.kernel == "exact":
        growth = f"Twice the text has four times the pairs of tokens: exact, which stores them, takes {times}"
        growth += f", fused {lab.number(2**fused.time)}" if fused else ""
    return (
        f"At {point.length:,} tokens, {first} takes **{lab.duration(point.seconds)}**, {second} "
        f"**{lab.duration(slow.point.seconds)}**. {growth}, {first} {lab.number(2**fast.time)}."
    )


def faster_text(result: study.Result, kernel: str) -> str:
    """From how many tokens a kernel is faster than fused; up to how many it was measured where it is not."""
    if kernel == "fused" or not result.of("fused"):
        return "–"
    longest = min(result.of(one)[-1].length for one in (kernel, "fused"))
    length = result.faster_from(kernel)
    return f"from {length:,} tokens" if length else f"not up to {longest:,}"


def kernel_name(kernel: str) -> str:
    label = study.ENTRIES[kernel].name
    return label if label in ("Performer", "Linformer", "Nyström") else label[0].lower() + label[1:]


def summary(result: study.Result, kernels: Sequence[str]) -> str:
    """Which kernels compute softmax attention, of which keys, and which have another output."""
    groups: dict[str, list[str]] = {
        "Same output": [],
        "Near keys": [],
        "Another output": [],
    }
    for kernel in kernels:
        far = lab.cached(output_error, result.conditions.config(kernel), study.SEED) >= 0.01
        group = list(groups)[2 if far else kernel in study.BANDED]
        groups[group].append(kernel_name(kernel))
    parts = (f"**{group}**: {', '.join(names)}." for group, names in groups.items() if names)
    ends = [
        f"{kernel_name(p.name)} from {p.length:,} tokens ({p.skipped.partition(';')[0]})"
        for p in result.skipped()
        if p.name in kernels
    ]
    return " ".join([*parts, f"Not measured: {', '.join(ends)}." * bool(ends)])


def _conditions(result: study.Result, kernels: Sequence[str], example: bool) -> None:
    chosen = result.conditions
    keys = "the keys up to itself" if chosen.causal else "every key"
    banded = [kernel_name(kernel) for kernel in chosen.keys if kernel in study.BANDED]
    window = f", in {' and '.join(banded)} a window of {chosen.window} keys" if banded else ""
    passes = "forward and backward" if chosen.backward else "forward"
    where = "Measured by `make measured`, in processor time" if example else "Measured here"
    lab.caption(
        f"{where}: one sequence, {study.HEADS} heads of {study.HEAD_DIM} numbers, float32, {passes}, median of "
        f"{study.ROUNDS} runs. A query sees {keys}{window}. {result.machine}. Both axes are logarithmic. Solid lines "
        "are measured; dotted ones are calculated from the "
        "formula of a forward pass: FLOPs of its matrix products at the speed of the last point, and memory on a CPU, "
        f"within about a quarter. “Grows as” is fitted to the last {LAST} lengths.",
    )
    lab.caption(
        "Error: |output − exact output| / |exact output| on random q, k, v. Linear kernels and Performer compute "
        "another function than softmax attention, so theirs is large: it says how different, not how good."
    )


# The page Cost and speed: a benchmark, two figures, a table, and the weights that some kernels imply.


SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross")
AIR = 1.25  # factor of free space above and below, at least
STEPS = 2  # to a power of ten, in which an axis ends

RACE, PROGRESS, RESULT = key("race"), key("progress"), key("result")


def page() -> None:
    lab.title(
        "Cost and speed",
        "How the time and memory of attention grow with the text.",
    )
    lab.take_built("efficient", adopt, axes=("kernel",))
    lab.fragment_unless_measuring(_benchmark)
    implied_weights()
    lab.details("Equations, papers and the code that just ran", _sources, key("sources"))


def adopt(built: lab.Built) -> None:
    """Measure the kernel that was built elsewhere beside the usual ones."""
    st.session_state[key("kernels")] = list(
        dict.fromkeys(["exact", *(one.key for one in built.values()), *study.USUAL])
    )[:MAX_KERNELS]
    for choice in built.values():
        st.session_state.update(lab.choice_state(key("params"), choice))


def _benchmark() -> None:
    chosen, picture = draw_controls()
    with picture:
        measure()
        result = st.session_state.get(RESULT) or study.load_result()
        kernels = [choice.key for choice in chosen.kernels if result.of(choice.key)]
        lab.caption(summary(result, kernels))
        if sentence := fact_text(result, kernels):
            lab.fact(sentence)
        _figures(result, kernels)
        if not result.conditions.covers(chosen):
            lab.caption("These curves were measured before, with other controls. Press Measure.")
    example = RESULT not in st.session_state
    lab.details("How this was measured", partial(_conditions, result, kernels, example), key("how"))
    if kernels:
        lab.add_script(partial(benchmark, result, kernels, example), "benchmark")
    lab.table(
        (
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
            "faster than fused",
        ),
        [
            [
                study.ENTRIES[kernel].name,
                lab.whole(each.point.length),
                lab.duration(each.point.seconds),
                power(each.time),
                lab.operations(each.closed_flops),
                power(each.flops),
                lab.byte_size(each.point.bytes),
                power(each.memory),
                lab.byte_size(each.closed_bytes),
                lab.share_text(
                    lab.cached(output_error, result.conditions.config(kernel), study.SEED)
                ),
                faster_text(result, kernel),
            ]
            for kernel in kernels
            if (each := scaling(result, kernel))
        ],
        markers=False,
        caption="Time, FLOPs and memory of each kernel at its longest length",
    )


def _start(chosen: study.Conditions) -> None:
    possible = tuple(choice for choice in chosen.kernels if choice.key in chosen.configs()[0])
    chosen = replace(chosen, kernels=possible)
    st.session_state[RACE] = chosen, time.time(), study.start_race(chosen)


def measure() -> None:
    """Measure what remains of the race that was started; its points so far become the result."""
    if RACE not in st.session_state:
        return
    chosen, began, reports = st.session_state[RACE]
    try:
        values = lab.measure_with_progress(
            PROGRESS,
            (chosen, began),
            range(chosen.reports),
            lambda _: next(reports).points,
            "rounds",
            math.inf,
        )
    except RuntimeError as error:  # such as where memory is short
        del st.session_state[RACE]
        st.error(lab.plain(str(error)))
        return
    if points := tuple(chain.from_iterable(values.values())):
        st.session_state[RESULT] = study.Result(chosen, points, study.machine(chosen.device))
    if len(values) == chosen.reports:
        del st.session_state[RACE]


def _figures(result: study.Result, kernels: list[str]) -> None:
    if not kernels:
        st.info("Pick a kernel to see its curves.", icon=":material/speed:")
        return
    # Name, unit, size of the unit, and how a number is written
    figures = (
        ("Time of a call", "ms", 1e-3, lab.duration),
        ("Peak memory", "MB", 1e6, lab.byte_size),
    )
    for column, (name, unit, size, write) in zip(st.columns(2, gap="medium"), figures, strict=True):
        lines: dict[str, list[tuple[int, float, float]]] = {}
        for kernel in kernels:
            points, config = result.of(kernel), result.conditions.config(kernel)
            costs = [attention_cost(config, point.length, point.length) for point in points]
            speed = points[-1].seconds / costs[-1].flops
            lines[study.ENTRIES[kernel].name] = [
                (point.length, point.seconds / size, cost.flops * speed / size)
                if unit == "ms"
                else (point.length, point.bytes / size, cost.bytes / size)
                for point, cost in zip(points, costs, strict=True)
            ]
        lab.draw_chart(
            column,
            log_log(name, unit, lines, lab.theme()),
            draw_rows(lines, write, size),
            theme=None,
            key=key(unit),
            width="stretch",
            alt=f"{name} against the number of tokens, both logarithmic, one line for each kernel",
        )


def _sources() -> None:
    lab.entries_panel(study.ENTRIES.values())
    lab.source_panel(race)


# Time and memory against length, both axes logarithmic, as Vega-Lite: measured lines, dotted closed forms.


# By kernel its lengths, each with the measurement and the closed form there
Lines: TypeAlias = Mapping[str, Sequence[tuple[int, float, float]]]


def log_log(title: str, unit: str, lines: Lines, theme: lab.Theme) -> lab.Spec:
    """One figure of the rows below, each line with its name at its end.

    The axis ends in steps, so that another kernel changes the rows alone, and no figure is built anew.
    """
    lengths = sorted({x for points in lines.values() for x, _, _ in points})
    low, high = _ends(lines)
    x = {
        "field": "x",
        "type": "quantitative",
        "title": "tokens T",
        "scale": {"type": "log", "base": 2, "domain": [lengths[0], lengths[-1]], "nice": False},
        "axis": {
            "grid": False,
            "values": lengths,
            "labelExpr": "datum.value < 1024 ? datum.label : datum.value / 1024 + 'k'",
        },
    }
    powers = [
        10.0**power for power in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
    ]
    indices = [str(index) for index in range(len(SHAPES))]
    both = {
        "x": x,
        "y": {
            "field": "y",
            "type": "quantitative",
            "title": None,
            "axis": {"values": powers, "format": ",~g", "labelPadding": 8},
            "scale": {"type": "log", "domain": [low, high], "nice": False},
        },
        "color": lab.series_encoding(
            "place",
            indices,
            [
                lab.CATEGORIES[theme][index % len(lab.CATEGORIES[theme])]
                for index in range(len(SHAPES))
            ],
        ),
    }
    name = {**both, "text": {"field": "name"}}
    look = {"fontSize": 12, "fontWeight": 600}
    return lab.titled_figure(
        f"{title}, {unit}",
        [
            lab.filtered_layer("closed", "line", both, strokeWidth=1.25, strokeDash=[2, 3]),
            lab.filtered_layer("measured", "line", both, strokeWidth=2),
            lab.filtered_layer(
                "measured",
                "point",
                {**both, "shape": lab.series_encoding("place", indices, SHAPES)},
                filled=True,
                size=30,
                opacity=1,
            ),
            lab.filtered_layer(
                "measured",
                "point",
                {
                    **both,
                    "tooltip": [
                        {"field": "name", "title": " "},
                        {"field": "x", "title": "tokens", "format": ",d"},
                        {"field": "told", "title": " "},
                    ],
                },
                opacity=0,
                size=160,
            ),
            lab.filtered_layer(
                "label", "text", name, **look, align="left", dx=8, baseline="middle"
            ),
            lab.filtered_layer(
                "early", "text", name, **look, align="right", dx=4, dy=-7, baseline="bottom"
            ),
        ],
        340,
        lab.Ink.of(theme),
        **lab.right_margin(4),
    ) | lab.table_columns(
        {
            "name": "kernel",
            "kind": "measured or closed form",
            "x": "tokens T",
            "y": f"{title}, {unit}",
        }
    )


def _ends(lines: Lines) -> tuple[float, float]:
    values = [y for points in lines.values() for _, *both in points for y in both if y > 0]
    low, high = math.log10(min(values) / AIR), math.log10(max(values) * AIR)
    return 10.0 ** (math.floor(low * STEPS) / STEPS), 10.0 ** (math.ceil(high * STEPS) / STEPS)


def draw_rows(lines: Lines, write: Callable[[float], str], size: float) -> list[lab.Spec]:
    """The data of the figure: kind, name, index in the series, x, y, and y in words: `write` takes it in the unit of
    that `size`.

    A name stands at the y of its line's last point, moved apart where lines end at the same length.
    """
    places = {name: str(index % len(SHAPES)) for index, name in enumerate(lines)}
    cells = [
        (kind, name, places[name], float(point[0]), float(point[column]))
        for name, points in lines.items()
        for column, kind in ((1, "measured"), (2, "closed"))
        for point in points
        if point[column] > 0
    ]
    low, high = (math.log(end) for end in _ends(lines))
    last = max(points[-1][0] for points in lines.values())
    for length in {points[-1][0] for points in lines.values()}:
        together = [name for name, points in lines.items() if points[-1][0] == length]
        heights = lab.separate(
            [(math.log(lines[name][-1][1]) - low) / (high - low) for name in together]
        )
        # A line that ends early does so by its cost: it is the steepest, and nothing is drawn above its end.
        kind = "label" if length == last else "early"
        cells += [
            (kind, name, places[name], float(length), math.exp(low + height * (high - low)))
            for name, height in zip(together, heights, strict=True)
        ]
    names = ("kind", "name", "place", "x", "y", "told")
    return [dict(zip(names, (*row, write(row[-1] * size)), strict=True)) for row in cells]


# The weights that linear and low-rank kernels never make, beside exact's, on a sentence.


@lab.fragment
def implied_weights() -> None:
    st.markdown(
        "## Implied weights\n\nLinear and low-rank kernels compute no weights. These are the weights that "
        "would give their outputs, next to the weights of exact attention."
    )
    values = Controls.draw("sentence", "head", "features", "few", "implied_causal")
    head, causal = values.head, values.implied_causal
    tokens = tokenize(values.sentence).tokens[:48]
    if not tokens:
        st.warning("There is no word here. Type a sentence: each word becomes one token.")
        return
    choices = [
        Choice("exact"),
        Choice("linear"),
        Choice.of("performer", features=values.features),
        Choice.of("linformer", rank=values.few),
        Choice.of("nystrom", landmarks=values.few),
        Choice("retention"),
    ]
    implied, errors = [], []
    for choice in choices:
        try:
            implied.append(lab.cached(study.implied, choice, tokens, causal))
        except ConfigError as error:
            errors.append(str(error))
    lab.add_script(partial(implied_script, choices, implied, tokens, causal, head), "implied")
    tiles = [
        lab.Tile(
            study.ENTRIES[each.kernel].name,
            "softmax"
            if each.kernel == "exact"
            else f"implied, differs by {lab.share_text(each.mean_error)}",
            each.weights[head],
        )
        for each in implied
    ]
    # The kernels with the smallest and the largest error, and the largest weight of linear; retention
    # approximates no softmax
    exact, linear = implied[0], next(each for each in implied if each.kernel == "linear")
    near, *_, far = sorted(
        [each for each in implied[1:] if each.kernel != "retention"],
        key=lambda each: each.mean_error,
    )
    size = {
        "performer": f" with {values.features} features",
        "linformer": f" of rank {values.few}",
        "nystrom": f" with {values.few} landmarks",
    }
    first, last = (f"{kernel_name(each.kernel)}{size.get(each.kernel, '')}" for each in (near, far))
    sentence = (
        f"On average, a weight of {first} differs from exact attention by **{lab.share_text(near.mean_error)}**, one of "
        f"{last} by **{lab.share_text(far.mean_error)}**. The largest weight of linear attention is "
        f"{lab.share_text(float(linear.weights.max()))}, that of softmax {lab.share_text(float(exact.weights.max()))}."
    )
    lab.write_linked(
        "efficient",
        key("pin"),
        lab.multiples(
            tiles,
            labels(tokens),
            key=key("maps"),
            fact=sentence,
            height=190,
            pin=lab.read_linked("efficient", key("pin"), (len(tokens), len(tokens))),
        ),
    )
    lab.fact(sentence)
    lab.caption(
        " ".join(
            [
                f"Token vectors and projections of {study.D_MODEL} numbers are random (seed {study.SEED}) "
                "and the same for all. Implied weights: the kernel's output is these weights times the "
                "values. “Differs by”: the mean difference from the weights of exact attention.",
                *errors,
            ]
        ),
    )
