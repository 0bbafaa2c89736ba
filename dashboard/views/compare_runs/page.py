"""The Compare runs page: curves over steps and seconds, maps at one step, what differs and what was reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from dashboard.components.multiples import MINUS, Tile, difference_map, multiples
from dashboard.runtime.polling import SLOW_POLL_INTERVAL, poll
from dashboard.runtime.run_data import count_parameters
from dashboard.runtime.run_summary import RunSummary, list_summaries
from dashboard.views.compare_runs import compute, text
from dashboard.views.compare_runs.charts import Measure, curves, measured
from dashboard.views.compare_runs.compute import ComparedRun, sides
from dashboard.views.compare_runs.controls import MOST, choose, runs_to_compare
from dashboard.widgets.panels import fact, next_page, plain, source_panel, title
from dashboard.widgets.params import BOUND
from dashboard.widgets.table import table

LINK, READS = "compare_runs", "output (row) attends to → input (column)"
WORDS = ("First", "Second", "Third", "Fourth")


def page() -> None:
    """The choice of runs, and below it their figures and tables, polled while one of the runs is live."""
    title("Compare runs", "Two to four runs, by steps and by seconds, and what their attention did at the same step.")
    every = list_summaries()
    chosen, message = runs_to_compare(every)
    if message:
        st.warning(plain(message))
    with st.grid(min_column_width=170, gap="small"):
        _choices(every, chosen)
    live = any(item.live for item in chosen)
    poll(lambda: sides(chosen), _board, live, "compare_runs:board", interval=SLOW_POLL_INTERVAL,
         still_live=lambda sides: any(side.data.live for side in sides))
    panel = st.expander("How a value is told at equal steps and at equal seconds", on_change="rerun",
                       key="compare_runs:source")
    if panel.open:
        with panel:
            source_panel(text.fact)
    next_page("compare_runs")


def _choices(every: Sequence[RunSummary], chosen: Sequence[RunSummary]) -> None:
    """A list for each place; the third and the fourth may stay empty."""
    names = {item.run.id: item.name for item in every if not item.trouble}
    ids = [item.run.id for item in chosen]
    for place, word in enumerate(WORDS):
        key = f"compare_runs:{place}"
        st.session_state[key] = ids[place] if place < len(ids) else None
        st.selectbox(word, [*([None] if place > 1 else []), *names], key=key, on_change=_take,
                     disabled=place > len(ids), format_func=lambda name: names.get(name, "none"))


def _take() -> None:
    ids = [st.session_state.get(f"compare_runs:{place}") for place in range(MOST)]
    choose(list(dict.fromkeys(name for name in ids if name)))


def _board(sides: Sequence[ComparedRun]) -> None:
    """The curves, the maps, the differences and the tables of the compared runs."""
    able = measured(sides)
    if not able:
        st.info("None of these runs has measured anything yet.", icon=":material/hourglass_empty:")
        return
    top = st.container(gap="small")
    same, others = compute.split_by_task(sides)
    drawn = _maps(same) if same else None
    step = drawn.step if drawn else max((side.records[-1].step for side in sides if side.records), default=0)
    with top:
        measure = _measure(able)
        curves(sides, measure, step)
    _apart(drawn, text.fact(sides, measure, step))
    if others:
        st.caption(text.no_maps(others, bool(same)))
    _tables(sides)


def _measure(able: Sequence[Measure]) -> Measure:
    names = {measure.key: measure for measure in able}
    key = st.segmented_control("Measure", list(names), default=able[0].key, key="compare_runs:measure", required=True,
                               label_visibility="collapsed", format_func=lambda name: names[name].short, **BOUND)
    return names.get(key, able[0])


@dataclass(frozen=True)
class Drawn:
    """The maps that stand side by side: at which step, and what their rows and columns are."""

    step: int
    tiles: list[Tile]
    rows: tuple[str, ...]
    columns: tuple[str, ...]


def _maps(same: Sequence[ComparedRun]) -> Drawn:
    """The maps at one step, with the controls over them."""
    step, example, heads = _pickers(same)
    items = [(side, attention, head) for side, head in zip(same, heads, strict=True)
             if head is not None and (attention := compute.source_weights(side, step, example)) is not None]
    if not items:
        st.caption("None of these runs kept attention to its source at this step.")
        return Drawn(step, [], (), ())
    tiles, rows, columns, other = compute.tiles(items)
    multiples(tiles, rows, columns, key=f"compare_runs:maps:{len(rows)}:{len(columns)}", height=260, link=LINK,
              reads=READS, fact=f"Attention of {len(tiles)} runs at step {step:,} on one held-out example")
    if other:
        st.caption(f"{', '.join(plain(side.name) for side in other)}: maps of another size cannot stand beside these.")
    return Drawn(step, tiles, rows, columns)


def _apart(drawn: Drawn | None, sentence: str) -> None:
    """One map minus another on the left, the measured sentence on the right."""
    if drawn is None or len(drawn.tiles) < 2:
        fact(sentence)
        return
    left, right = st.columns([0.42, 0.58], gap="medium")
    with right:
        fact(sentence)
        st.caption(text.conditions(drawn.step))
        first, second = _pair(drawn.tiles)
    with left:
        difference_map(drawn.tiles[first], drawn.tiles[second], drawn.rows, drawn.columns, link=LINK, height=260,
                       key=f"compare_runs:apart:{len(drawn.rows)}:{len(drawn.columns)}",
                       fact=f"{drawn.tiles[first].name} minus {drawn.tiles[second].name}")


def _pair(tiles: Sequence[Tile]) -> tuple[int, int]:
    """Which map minus which; with two there is nothing to choose."""
    pairs = [(a, b) for b in range(len(tiles)) for a in range(len(tiles)) if a != b]
    if len(tiles) == 2:
        return pairs[0]
    return st.selectbox("Difference", pairs, key=f"compare_runs:pair:{len(tiles)}",
                        format_func=lambda pair: f"{tiles[pair[0]].name} {MINUS} {tiles[pair[1]].name}")


def _pickers(same: Sequence[ComparedRun]) -> tuple[int, int, list[compute.Head | None]]:
    """The step, the held-out example, and a head of each run that has more than one."""
    examples = compute.examples(same[0])
    steps, own = compute.steps(same), "-".join(side.summary.run.id for side in same)
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
        step = _step(steps, compute.shared_step(same), f"compare_runs:step:{own}") if len(steps) > 1 else steps[0]
        example = st.selectbox("Held-out example", range(len(examples)), key=f"compare_runs:example:{own}", width=240,
                               format_func=lambda at: examples[at])
        heads: list[compute.Head | None] = []
        for side in same:
            there = compute.heads(side)
            one = there[0] if there else None
            if len(there) > 1:
                one = st.selectbox(f"Head of {plain(side.name)}", there, key=f"compare_runs:head:{side.summary.run.id}",
                                   format_func=lambda head: f"L{head[0]}·H{head[1]}", width=190)
            heads.append(one)
    return step, example, heads


def _step(steps: list[int], usual: int, key: str) -> int:
    """The step that is drawn; it is in the link."""
    linked = st.query_params.get("step", "")
    start = int(linked) if linked.isdecimal() and len(linked) < 7 and int(linked) in steps else usual

    def take() -> None:
        st.query_params["step"] = str(st.session_state[key])

    return st.select_slider("Step", steps, start, key=key, format_func=lambda at: f"{at:,}", width=300, on_change=take)


def _tables(sides: Sequence[ComparedRun]) -> None:
    head, rows = text.results(sides, [_parameters(side) for side in sides])
    table(head, rows, caption="What each run reached")
    apart, same = text.differences(sides)
    st.markdown(":small[**How they differ**]")
    if apart:
        table(["setting", *(side.name for side in sides)], apart, caption="Settings in which the runs differ", left=5,
              markers=False)
    st.caption(f"{same} settings are the same in all of them." if apart else "They were trained in the very same way.")


def _parameters(side: ComparedRun) -> int | None:
    config = side.data.config
    return None if config is None else count_parameters(config.model, side.data.task().shape)
