"""The page Cost and speed: a benchmark, two figures, a table, and the weights that some kernels imply."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.attention import Choice, ConfigError
from core.attention.cost import attention_cost, output_error, race
from core.tokens import labels, tokenize
from dashboard.draw.formats import byte_size, duration, number
from dashboard.draw.multiples import Tile, multiples
from dashboard.draw.palette import CATEGORIES, Ink, Theme
from dashboard.draw.vega import (
    Spec,
    filtered_layer,
    right_margin,
    separate,
    series_encoding,
    titled_figure,
)
from dashboard.runtime.link_values import fragment, read_linked, write_linked
from dashboard.runtime.page_pictures import add_script
from dashboard.runtime.polling import POLL_INTERVAL
from dashboard.runtime.racing import Race
from dashboard.server.cache import cached
from dashboard.ui.presentation import draw_chart
from dashboard.ui.tables import table
from dashboard.views.efficient import compute, example, text
from dashboard.views.efficient.compute import Implied, Result
from dashboard.views.efficient.controls import (
    ENTRIES,
    USUAL,
    Controls,
    draw_controls,
    key,
    limits_help,
)
from dashboard.views.efficient.script import benchmark, implied_script
from dashboard.views.efficient.text import kernel_name
from dashboard.widgets.panels import (
    caption,
    details,
    entries_panel,
    fact,
    next_page,
    plain,
    source_panel,
    theme,
    title,
)
from dashboard.widgets.params import BOUND

SENTENCE, MOST_TOKENS = "The animal was too tired .", 48
FEATURES, FEW = (4, 16, 64, 256, 1024), (1, 2, 3, 4, 6, 8)

if TYPE_CHECKING:
    import pyarrow as pa

HEIGHT = 300  # pixels of the plot
SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross")
THOUSANDS = "datum.value < 1024 ? datum.label : datum.value / 1024 + 'k'"
AIR = 1.25  # factor of free space above and below, at least
STEPS = 2  # to a power of ten, in which an axis ends

RACE, RACE_CONTROLS, RESULT = key("race"), key("race_controls"), key("result")
POLLING = key("beating")
OLDER = "The curves were measured before, with other controls. Press Measure to measure these."


def page() -> None:
    """Draw the page from top to bottom."""
    title(
        "Cost and speed",
        "Twice as many tokens cost exact attention four times the work. Some kernels save memory "
        "with the same output, others save work with an approximate one.",
    )
    # one fragment, which polls while a race runs
    st.fragment(_benchmark, run_every=POLL_INTERVAL if running() else None, key=key("explore"))()
    implied_weights()
    details("Equations, papers and the code that just ran", _sources, key("sources"))
    next_page("efficient")


def running() -> Race | None:
    """The race of this session that has not ended."""
    current = st.session_state.get(RACE)
    return current if current is not None and current.alive else None


def _benchmark() -> None:
    # Store the points of a race
    if current := st.session_state.get(RACE):
        current.poll()
        if current.points:
            st.session_state[RESULT] = Result.of_race(st.session_state[RACE_CONTROLS], current)
    controls, older = _controls()
    result, kernels = _shown()
    _figures(result, kernels)
    if sentence := text.fact(result, kernels):
        fact(sentence)
    caption(
        " ".join(
            filter(
                None,
                (
                    OLDER * older,
                    text.conditions(result, RESULT not in st.session_state),
                    text.skipped(result, kernels),
                ),
            )
        )
    )
    if kernels:
        add_script(partial(benchmark, result, kernels, RESULT not in st.session_state), "benchmark")
    errors = {
        kernel: cached(output_error, result.controls.config(kernel), compute.SEED)
        for kernel in kernels
    }
    table(
        text.HEAD,
        text.rows(result, kernels, errors),
        markers=False,
        caption="Time, FLOPs and memory of each kernel at its longest length",
    )


def _controls() -> tuple[Controls, bool]:
    """Draw the controls, and how far a race is; returns also whether the curves are of other controls."""
    controls = draw_controls(_button)
    return controls, _progress(controls)


def _shown() -> tuple[Result, list[str]]:
    """The result, and those of the picked kernels that it has."""
    result = st.session_state.get(RESULT) or example.load()
    return result, [
        kernel for kernel in st.session_state.get(key("kernels"), USUAL) if result.of(kernel)
    ]


def _button(controls: Controls) -> None:
    """Measure, or Stop while a race is on."""
    if current := running():
        st.button(
            "Stop",
            icon=":material/stop:",
            type="primary",
            width="stretch",
            key=key("stop"),
            on_click=_stop,
            args=(current,),
        )
    else:
        st.button(
            "Measure",
            icon=":material/timer:",
            type="primary",
            width="stretch",
            key=key("measure"),
            on_click=_start,
            args=(controls,),
            disabled=not controls.configs()[0],
            help=limits_help(controls.device),
        )


def _start(controls: Controls) -> None:
    configs = controls.configs()[0]
    controls = replace(
        controls, kernels=tuple(choice for choice in controls.kernels if choice.key in configs)
    )
    st.session_state[RACE], st.session_state[RACE_CONTROLS] = compute.start_race(controls), controls


def _stop(current: Race) -> None:
    current.stop()
    current.wait(POLL_INTERVAL)


def _progress(controls: Controls) -> bool:
    """Show how far a race is; its end stops the polling.

    Returns whether no race is on and the controls are others than those of the curves.
    """
    current = st.session_state.get(RACE)
    if current is None:
        return not (st.session_state.get(RESULT) or example.load()).controls.covers(controls)
    if current.alive:
        label = "Waiting for another measurement to end" if current.waiting else "Measuring"
        st.progress(current.fraction, text=label)
        if POLLING not in st.session_state:
            st.session_state[POLLING] = True
            st.rerun(scope="app")
        return False
    if current.error:
        st.error(plain(current.error))
    del st.session_state[RACE]
    if st.session_state.pop(POLLING, False):
        st.rerun(scope="app")
    return False


def _figures(result: Result, kernels: list[str]) -> None:
    """Time and peak memory against length, side by side."""
    if not kernels:
        st.info("Pick a kernel to see its curves.", icon=":material/speed:")
        return
    time, memory = list[Line](), list[Line]()
    for index, kernel in enumerate(kernels):
        points, config, name = (
            result.of(kernel),
            result.controls.config(kernel),
            ENTRIES[kernel].name,
        )
        closed = [(p.length, attention_cost(config, p.length, p.length)) for p in points]
        speed = points[-1].seconds / closed[-1][1].flops
        time.append(
            Line(
                name,
                index,
                [(p.length, p.seconds / text.MILLI) for p in points],
                [(length, cost.flops * speed / text.MILLI) for length, cost in closed],
            )
        )
        memory.append(
            Line(
                name,
                index,
                [(p.length, p.bytes / text.MEGABYTE) for p in points],
                [(length, cost.bytes / text.MEGABYTE) for length, cost in closed],
            )
        )
    left, right = st.columns(2, gap="medium")
    _figure(left, "Time of a call", "ms", time, lambda y: duration(y * text.MILLI))
    _figure(right, "Peak memory", "MB", memory, lambda y: byte_size(y * text.MEGABYTE))


def _figure(
    column: DeltaGenerator,
    name: str,
    unit: str,
    lines: list[Line],
    format_y: Callable[[float], str],
) -> None:
    draw_chart(
        column,
        log_log(name, unit, lines, theme()),
        rows(lines, format_y),
        theme=None,
        key=key(unit),
        width="stretch",
        alt=f"{name} against the number of tokens, both logarithmic, one line for each kernel",
    )


def _sources() -> None:
    """Draw each kernel's equation and paper, and the generator that measured."""
    entries_panel(ENTRIES.values())
    source_panel(race)


# Time and memory against length, both axes logarithmic, as Vega-Lite: measured lines, dotted closed forms.


@dataclass(frozen=True)
class Line:
    """One kernel: its name, its measurements, and the closed form at the same lengths."""

    name: str
    index: int  # in the series: its colour and shape
    points: Sequence[tuple[int, float]]
    closed: Sequence[tuple[int, float]]


def log_log(title: str, unit: str, lines: Sequence[Line], theme: Theme) -> Spec:
    """One figure of the rows below, each line with its name at its end.

    The axis ends in steps, so that another kernel changes the rows alone, and no figure is built anew.
    """
    lengths = sorted({x for line in lines for x, _ in line.points})
    low, high = _ends(lines)
    x = {
        "field": "x",
        "type": "quantitative",
        "title": "tokens T",
        "scale": {"type": "log", "base": 2, "domain": [lengths[0], lengths[-1]], "nice": False},
        "axis": {"grid": False, "values": lengths, "labelExpr": THOUSANDS},
    }
    powers = [
        10.0**power for power in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
    ]
    y = {
        "field": "y",
        "type": "quantitative",
        "title": None,
        "axis": {"values": powers, "format": ",~g", "labelPadding": 8},
        "scale": {"type": "log", "domain": [low, high], "nice": False},
    }
    return titled_figure(
        f"{title}, {unit}", _layers(x, y, theme), HEIGHT, Ink.of(theme), **right_margin(4)
    )


def _ends(lines: Sequence[Line]) -> tuple[float, float]:
    """The ends of the axis of all measured and calculated numbers, in steps of half a power of ten."""
    values = [y for line in lines for _, y in (*line.points, *line.closed) if y > 0]
    low, high = math.log10(min(values) / AIR), math.log10(max(values) * AIR)
    return 10.0 ** (math.floor(low * STEPS) / STEPS), 10.0 ** (math.ceil(high * STEPS) / STEPS)


def _layers(x: Spec, y: Spec, theme: Theme) -> list[Spec]:
    indices = [str(index) for index in range(len(SHAPES))]
    colours = [CATEGORIES[theme][index % len(CATEGORIES[theme])] for index in range(len(SHAPES))]
    shape = series_encoding("place", indices, SHAPES)
    both = {"x": x, "y": y, "color": series_encoding("place", indices, colours)}
    tips = [
        {"field": "name", "title": " "},
        {"field": "x", "title": "tokens", "format": ",d"},
        {"field": "told", "title": " "},
    ]
    name = {**both, "text": {"field": "name"}}
    look = {"fontSize": 12, "fontWeight": 600}
    return [
        filtered_layer("closed", "line", both, strokeWidth=1.25, strokeDash=[2, 3]),
        filtered_layer("measured", "line", both, strokeWidth=2),
        filtered_layer(
            "measured", "point", {**both, "shape": shape}, filled=True, size=30, opacity=1
        ),
        filtered_layer("measured", "point", {**both, "tooltip": tips}, opacity=0, size=160),
        filtered_layer("label", "text", name, **look, align="left", dx=8, baseline="middle"),
        filtered_layer(
            "early", "text", name, **look, align="right", dx=4, dy=-7, baseline="bottom"
        ),
    ]


def rows(lines: Sequence[Line], format_y: Callable[[float], str]) -> pa.Table:
    """The data of the figure: kind, name, index in the series, x, y, and y as `format_y` writes it."""
    import pyarrow as pa

    cells = [
        (kind, line.name, str(line.index % len(SHAPES)), float(x), float(y))
        for line in lines
        for kind, points in (("measured", line.points), ("closed", line.closed))
        for x, y in points
        if y > 0
    ]
    last = max(x for line in lines for x, _ in line.points)
    # A line that ends early does so by its cost: it is the steepest, and nothing is drawn above its end.
    cells += [
        (
            "label" if line.points[-1][0] == last else "early",
            line.name,
            str(line.index % len(SHAPES)),
            float(line.points[-1][0]),
            y,
        )
        for line, y in zip(lines, _label_heights(lines), strict=True)
    ]
    columns = [list(column) for column in zip(*cells, strict=True)]
    table = pa.table(dict(zip(("kind", "name", "place", "x", "y"), columns, strict=True)))
    return table.append_column("told", [[format_y(y) for y in columns[-1]]])


def _label_heights(lines: Sequence[Line]) -> list[float]:
    """The y of each line's name: that of its last point, moved apart where lines end at the same length."""
    low, high = (math.log(end) for end in _ends(lines))
    result = [0.0] * len(lines)
    for length in {line.points[-1][0] for line in lines}:
        together = [at for at, line in enumerate(lines) if line.points[-1][0] == length]
        heights = separate(
            [(math.log(lines[at].points[-1][1]) - low) / (high - low) for at in together]
        )
        for at, height in zip(together, heights, strict=True):
            result[at] = math.exp(low + height * (high - low))
    return result


# The weights that linear and low-rank kernels never make, beside exact's, on a sentence.


@fragment
def implied_weights() -> None:
    """Draw the implied weights next to the exact ones."""
    st.markdown(
        "## Implied weights\n\nLinear and low-rank kernels compute no weights. These are the weights that "
        "would give their outputs, next to the weights of exact attention."
    )
    grid = st.grid(6, min_column_width=120)
    with grid.cell(column_span=2):
        sentence = st.text_input(
            "Sentence", SENTENCE, key=key("sentence"), **BOUND, help="Each word is one token."
        )
    with grid:
        head = st.selectbox(
            "Head", range(compute.HEADS), key=key("head"), **BOUND, help="The head that is drawn."
        )
        features = st.selectbox(
            "Random features",
            FEATURES,
            2,
            key=key("features"),
            **BOUND,
            help=ENTRIES["performer"].params[0].help,
        )
        few = st.selectbox(
            "Rank, landmarks",
            FEW,
            2,
            key=key("few"),
            **BOUND,
            help="The number of projected keys in Linformer and of landmarks in Nyström.",
        )
        causal = st.toggle(
            "Causal",
            key=key("implied_causal"),
            **BOUND,
            help="Hides later keys. Linformer and Nyström cannot do this and are left out.",
        )
    tokens = tokenize(sentence or "").tokens[:MOST_TOKENS]
    if not tokens:
        st.warning("There is no word here. Type a sentence: each word becomes one token.")
        return
    choices = [
        Choice("exact"),
        Choice("linear"),
        Choice.of("performer", features=features),
        Choice.of("linformer", rank=few),
        Choice.of("nystrom", landmarks=few),
        Choice("retention"),
    ]
    implied, errors = [], []
    for choice in choices:
        try:
            implied.append(cached(compute.implied, choice, tokens, causal))
        except ConfigError as error:
            errors.append(str(error))
    add_script(partial(implied_script, choices, implied, tokens, causal, head), "implied")
    tiles = [
        Tile(
            ENTRIES[each.kernel].name,
            "softmax" if each.kernel == "exact" else f"implied, error {number(each.mean_error)}",
            each.weights[head],
        )
        for each in implied
    ]
    sentence = _fact(implied, features, few)
    pin = read_linked("efficient", key("pin"), (len(tokens), len(tokens)))
    pin = multiples(tiles, labels(tokens), key=key("maps"), fact=sentence, height=190, pin=pin)
    write_linked("efficient", key("pin"), pin)
    fact(sentence)
    caption(
        " ".join(
            [
                f"Token vectors and projections of {compute.D_MODEL} numbers are random (seed {compute.SEED}) "
                "and the same for all. Implied weights: the kernel's output is these weights times the "
                "values. Error: the mean difference from the weights of exact attention.",
                *errors,
            ]
        )
    )


def _fact(implied: list[Implied], features: int, few: int) -> str:
    """The kernels with the smallest and the largest error, and the largest weight of linear."""
    approximations = [
        each for each in implied[1:] if each.kernel != "retention"
    ]  # retention approximates no softmax
    exact, linear = implied[0], next(each for each in implied if each.kernel == "linear")
    near, *_, far = sorted(approximations, key=lambda each: each.mean_error)
    size = {
        "performer": f" with {features} features",
        "linformer": f" of rank {few}",
        "nystrom": f" with {few} landmarks",
    }
    first, last = (f"{kernel_name(each.kernel)}{size.get(each.kernel, '')}" for each in (near, far))
    return (
        f"On average, a weight of {first} differs from exact attention by **{number(near.mean_error)}**, one of "
        f"{last} by **{number(far.mean_error)}**. The largest weight of linear attention is "
        f"{number(linear.largest)}, that of softmax {number(exact.largest)}."
    )
