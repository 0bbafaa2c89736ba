"""The page Side by side, as one fragment: title, controls, maps, difference, fact, table of costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from html import escape

import streamlit as st
import torch
from streamlit.delta_generator import DeltaGenerator

from core.attention import AttentionConfig, ConfigError, Entry, entry
from core.attention.cost import ClosedFormCost, Measurement, closed_form_cost, race
from core.attention.kernels.exact import exact
from core.pretrained import PretrainedError
from dashboard.draw.formats import MINUS, byte_size, duration, number, operations
from dashboard.draw.multiples import Tile, difference_map, difference_span, multiples
from dashboard.draw.palette import SIGNED
from dashboard.runtime.link_values import fragment, read_linked, write_linked
from dashboard.runtime.page_pictures import add_script
from dashboard.runtime.racing import ONE_AT_A_TIME
from dashboard.runtime.threads import one_thread
from dashboard.server.cache import cached, measurements
from dashboard.ui.export import begin_before_title
from dashboard.ui.presentation import room
from dashboard.ui.tables import table
from dashboard.views.compare import control_row, text
from dashboard.views.compare.compute import (
    MapResult,
    Tokens,
    compute_map,
    default_cell,
    shared_weights,
    tokens_of,
)
from dashboard.views.compare.controls import (
    LENGTHS,
    Controls,
    Pair,
    load_controls,
    read_widgets,
    save_controls,
    use_seeded,
)
from dashboard.views.compare.script import script
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

ROUNDS = 5
POLL_INTERVAL = 0.1  # seconds between two tries while another measurement runs
UNABLE = (ConfigError, ValueError, RuntimeError)

Measurements = dict[
    tuple[AttentionConfig, int], Measurement
]  # by mechanism at its sizes, and length

VISITED = "compare:visited"  # the session has seen the first measurements
HEAD = ("mechanism", "entropy", "distance", "time", "memory", "FLOPs", "parameters")
MISSING = "–"
DENSE_NOTE = "¹ This kernel computes all scores and then masks some, so it saves no time."

LOADED, DRAWN = "compare:loaded", "compare:map_tiles"
SHORT = 64  # tokens, up to which one thread is enough
MAPS_HEIGHT = 380  # px of the placeholder while the model is loaded
COUNTS = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six"}


@fragment
def page() -> None:
    """Draw the page; its maps come before the controls above them, from session_state, except on the first run."""
    top, body = st.container(), st.container()
    control_row.apply_edit()
    controls, errors = load_controls()
    controls = read_widgets(controls)
    save_controls(controls)
    names = text.names_of(controls.mechanisms)
    errors += filter(None, [st.session_state.pop("compare:refused", None)])
    early = DRAWN in st.session_state
    measure = None
    if not early:
        _head(top, controls, names, errors)
    else:
        begin_before_title()
    with body:
        tokens = _read_tokens(controls)
        with one_thread(tokens is None or len(tokens.names) <= SHORT):
            results = (
                [compute_map(controls, config) for config in controls.mechanisms] if tokens else []
            )
        tiles = {
            index: _tile(controls, names, index, each)
            for index, each in enumerate(results)
            if not each.error
        }
        cell = _draw_maps(list(tiles.values()), tokens) if tokens and tiles else None
        if early:
            _head(top, controls, names, errors, first=False)
        if tokens and cell is not None:
            add_script(partial(script, controls, results, names, tokens))
            measure = _difference_and_table(controls, results, names, tokens, cell, tiles)
            details(
                "Equations with their numbers, papers and the code that just ran",
                partial(sources, controls, names, results, tokens, cell),
                "compare:sources",
            )
        # Draw why a mechanism has no map, and the way out where MiniLM's queries and keys are the reason
        for name, each in zip(names, results, strict=False):
            if each.error:
                st.error(f"**{plain(name)}** cannot be drawn here. {plain(each.error)}")
        if any(each.error for each in results) and not controls.seeded:
            st.button(
                "Use the seeded layer",
                key="compare:seeded",
                on_click=use_seeded,
                help="A layer with random parameters, which every mechanism can change.",
            )
    next_page("compare")
    control_row.edit_dialog(controls)
    if measure is not None:
        measure()  # a second or two, for which nothing else has to wait


def _head(
    container: DeltaGenerator,
    controls: Controls,
    names: Sequence[str],
    errors: Sequence[str],
    *,
    first: bool = True,
) -> None:
    """Draw title, errors of the link, and the row of controls."""
    count = COUNTS[len(controls.mechanisms)]
    lead = (
        f"Compare the attention maps of {count} mechanisms on the same tokens. Shared parameters are equal."
        if controls.seeded
        else f"Compare the attention maps of {count} mechanisms on the same queries and keys."
    )
    with container:
        title("Side by side", lead, partial(control_row.tokens_popover, controls), first=first)
        for sentence in errors:
            st.warning(sentence)
        control_row.controls_row(controls, names)


def _read_tokens(controls: Controls) -> Tokens | None:
    """The tokens, with the model loaded where its queries are used; None and a hint where there are none."""
    try:
        if controls.seeded or st.session_state.get(LOADED, False):
            tokens = tokens_of(controls)
        else:
            with (
                st.spinner("Loading the model, 91 MB, first time only"),
                st.skeleton(height=MAPS_HEIGHT),
            ):
                tokens = tokens_of(controls)
    except PretrainedError as error:
        st.info(str(error), icon=":material/edit:")
        return None
    if not controls.seeded:
        st.session_state[LOADED] = True
    if not tokens.names:
        st.info(
            "There is no token here. Open Tokens and type a word, or a sentence.",
            icon=":material/edit:",
        )
        return None
    return tokens


def _tile(controls: Controls, names: Sequence[str], index: int, result: MapResult) -> Tile:
    """A mechanism's map under its name and rule, with its index as marker."""
    note = "implied · " * result.implied + text.heading_note(controls.mechanisms[index])
    return Tile(names[index], note, result.weights, result.mask, index)


def _draw_maps(tiles: Sequence[Tile], tokens: Tokens) -> Pair:
    """Draw the maps under one crosshair; returns the pinned cell, else the default one."""
    size = len(tokens.names)
    linked = read_linked("compare", "pin", (size, size))
    st.session_state[DRAWN] = True
    row, column = default_cell(tiles[0].weights, tokens.special)
    sentence = f"{len(tiles)} maps of {size} tokens; the picked query is {tokens.names[row]}"
    pin = multiples(
        tiles,
        tokens.names,
        key="compare:maps",
        query=row,
        column=column,
        pin=linked,
        link="compare",
        fact=sentence,
    )
    return write_linked("compare", "pin", pin) or (row, column)


def _difference_and_table(
    controls: Controls,
    results: Sequence[MapResult],
    names: Sequence[str],
    tokens: Tokens,
    cell: Pair,
    tiles: dict[int, Tile],
) -> Callable[[], None] | None:
    """Draw the difference on the left; its scale, the fact and the table on the right.

    Returns what measures the costs, None where nothing is left to measure.
    """
    a, b = controls.minus
    both = a != b and a in tiles and b in tiles
    left, right = st.columns([0.34, 0.66], gap="medium")
    with left:
        if both:
            difference = number(float(results[a].weights[cell] - results[b].weights[cell]))
            difference_map(
                tiles[a],
                tiles[b],
                tokens.names,
                key="compare:apart",
                query=cell[0],
                column=cell[1],
                pin=None,
                link="compare",
                legend=False,
                fact=f"{names[a]} minus {names[b]}: {difference} there",
            )
        else:
            st.caption("Choose two different mechanisms above to see the difference of their maps.")
    with right:
        if both:
            _legend(difference_span(tiles[a], tiles[b]), names[a], names[b])
            fact(text.fact(controls, names, results, tokens, cell))
        measure = cost_table(controls, names, results)
        shared, own = cached(
            shared_weights, controls, tuple(controls.mechanisms[index] for index in tiles)
        )
        labels = [names[index] for index in tiles]
        caption(
            f"{text.caption(controls, tokens, [results[index] for index in tiles], labels)} "
            f"{text.shared_weights_text(shared, own, labels, controls.seeded)}"
        )
    return measure


def _legend(end: float, first: str, second: str) -> None:
    """The scale of the difference: purple is less, green is more."""
    stops = ", ".join(SIGNED[theme()])
    st.html(
        f'<div style="display:flex;flex-wrap:wrap;gap:0 16px;font-size:12px;line-height:18px">'
        f'<div style="width:226px;max-width:100%"><div style="height:8px;margin-top:5px;'
        f'background:linear-gradient(to right,{stops})"></div>'
        f'<div style="display:flex;justify-content:space-between;opacity:.62"><span>{MINUS}{end:g}</span>'
        f"<span>0</span><span>+{end:g}</span></div></div>"
        f'<span style="opacity:.62">weight of {escape(first)} minus weight of {escape(second)}</span></div>'
    )


# The table under the fact: a row a mechanism with the marker of its map, what it measures and what it costs.


def cost_table(
    controls: Controls, names: Sequence[str], results: Sequence[MapResult]
) -> Callable[[], None] | None:
    """Draw the table; what no session has measured yet waits for a press, except on the first visit.

    Returns what measures and fills the table, for the page to call when all else is drawn; None with nothing to do.
    """
    done: Measurements = measurements(__name__)
    configs = sized_configs(controls)
    possible = [config for config in configs if config is not None]
    closed = [
        None if config is None else cached(closed_form_cost, config, controls.length)
        for config in configs
    ]
    first = next((cost.parameters for cost in closed if cost), 0)
    table_slot, progress_slot = st.empty(), st.empty()

    def measured() -> list[Measurement | None]:
        return [done.get((config, controls.length)) if config else None for config in configs]

    def draw() -> None:
        rows = [
            row(*each, first)
            for each in zip(names, results, closed, range(len(names)), measured(), strict=True)
        ]
        with table_slot.container():
            table(
                HEAD,
                rows,
                caption="Entropy, distance, time, memory, FLOPs and parameters of each mechanism",
            )

    def measure() -> None:
        bar = progress_slot.progress(0.0, "Measuring time and memory on this machine")
        for fraction in measure_costs(possible, controls.length, done):
            bar.progress(fraction, "Measuring time and memory on this machine")
        progress_slot.empty()
        st.session_state[VISITED] = True
        draw()

    draw()
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.selectbox(
            "Length T",
            LENGTHS,
            key="compare:length",
            persist_state="session",
            width=room(110),
            help="The number of tokens at which time, memory and FLOPs are given.",
            format_func=lambda size: f"T = {size}",
        )
        pressed = st.button(
            "Measure",
            icon=":material/speed:",
            key="compare:measure",
            help="Runs every mechanism on this machine, which takes a second or two.",
        )
    dense = any(cost.dense for cost in closed if cost)
    unable = [
        f"{plain(name)}: {plain(each.skipped)}"
        for name, each in zip(names, measured(), strict=True)
        if each and each.skipped
    ]
    caption(" ".join([conditions(controls), *[DENSE_NOTE] * dense, *unable]))
    new = not st.session_state.get(VISITED) and any(
        (config, controls.length) not in done for config in possible
    )
    if not new:
        st.session_state[VISITED] = True
    return measure if pressed or new else None


def row(
    name: str,
    result: MapResult,
    cost: ClosedFormCost | None,
    index: int,
    measurement: Measurement | None,
    first: int,
) -> list[str]:
    """One line; parameters as more or less than the first's, `first`, except in the first line."""
    time = memory = flops = parameters = MISSING
    if measurement is not None and not measurement.skipped:
        time = duration(measurement.seconds) + "¹" * bool(cost and cost.dense)
        memory = byte_size(measurement.bytes)
    if cost is not None:
        flops = ("≤ " if cost.at_most else "") + operations(cost.flops)
        more = cost.parameters - first
        parameters = (
            f"{'+' if more >= 0 else '−'} {abs(more):,}" if index else f"{cost.parameters:,}"
        )
    entropy, distance = (
        MISSING if value is None else number(value) for value in (result.entropy, result.distance)
    )
    return [name, entropy, distance, time, memory, flops, parameters]


# The time and memory of each mechanism, as measured here.


def sized_configs(controls: Controls) -> list[AttentionConfig | None]:
    """Every mechanism at the sizes compared; None where they do not fit it."""
    configs: list[AttentionConfig | None] = []
    for config in controls.mechanisms:
        try:
            configs.append(controls.sized(config))
        except ConfigError:
            configs.append(None)
    return configs


def measure_costs(
    configs: Sequence[AttentionConfig], length: int, measurements: Measurements
) -> Iterator[float]:
    """Measure the mechanisms at one length in turn, into `measurements`; yields the progress, 0 to 1.

    It waits while this server measures anything else.
    """
    while not ONE_AT_A_TIME.acquire(timeout=POLL_INTERVAL):
        yield 0.0
    try:
        yield from _measure_costs(configs, length, measurements)
    finally:
        ONE_AT_A_TIME.release()


def _measure_costs(
    configs: Sequence[AttentionConfig], length: int, measurements: Measurements
) -> Iterator[float]:
    named = {str(index): config for index, config in enumerate(dict.fromkeys(configs))}
    try:
        yield from _race_configs(named, length, measurements)
    except UNABLE:  # one of them cannot run at that length: each runs alone, and the error is recorded for that one
        for count, (name, config) in enumerate(named.items(), 1):
            try:
                for _ in _race_configs({name: config}, length, measurements):
                    pass
            except UNABLE as error:
                measurements[config, length] = Measurement(name, length, skipped=str(error))
            yield count / len(named)


def _race_configs(
    configs: Mapping[str, AttentionConfig], length: int, measurements: Measurements
) -> Iterator[float]:
    for progress in race(configs, [length], rounds=ROUNDS):
        for point in progress.points:
            measurements[configs[point.name], length] = point
        yield progress.fraction


def conditions(controls: Controls) -> str:
    """The conditions under which time and memory were measured."""
    d_model, heads = controls.sizes
    threads = torch.get_num_threads()
    return (
        f"T = {controls.length}, d_model {d_model}, {heads} heads, float32, {threads} CPU "
        f"{'thread' if threads == 1 else 'threads'}. Time and memory: the kernel's forward pass, median of "
        f"{ROUNDS} runs. FLOPs: its matrix products. Entropy is in nats; distance is the mean "
        "distance of the weight, in tokens."
    )


# The end of the page: each mechanism's equation with its numbers, its paper, the code that ran.


def sources(
    controls: Controls,
    names: Sequence[str],
    results: Sequence[MapResult],
    tokens: Tokens,
    cell: Pair,
) -> None:
    """Draw the cell's numbers in every mechanism, equations and papers, and the code."""
    query, key = tokens.names[cell[0]], tokens.names[cell[1]]
    for config, name, each in zip(controls.mechanisms, names, results, strict=True):
        st.markdown(f"### {plain(name)}")
        if not each.error:
            st.latex(text.equation(each, query, key, cell))
        entries_panel(entries_of(config))
    st.markdown("### The code that just ran")
    source_panel(exact)


def entries_of(config: AttentionConfig) -> list[Entry]:
    """The entries of the changed axes, each part of a mask; of the plain dot product, score and normalizer."""
    axes = text.changed_axes(config) or ["score", "normalizer"]
    return [
        entry(axis, part.key)
        for axis in axes
        for part in getattr(config, axis).parts or (getattr(config, axis),)
    ]
