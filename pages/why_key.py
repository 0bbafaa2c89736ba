"""Why this key: the score of a query and a key, split by what wrote them, and what the head moves between them."""

from collections.abc import Sequence
from functools import partial

import streamlit as st

import dashboard.page as lab
from core.interpret.score_sources import (
    ScoreSources,
    explain_score,
    random_removal,
    remove_source,
    split_cost,
)
from dashboard.draw import why_key as draw

REMOVALS = 40  # random ones of a head


class Controls(lab.WeightFields, page="why_key"):
    more = lab.MultiSelect[str](
        "Summed with",
        lambda c: lab.numbered(c.trace.maps[0].queries),
        of=lambda c: c.trace.maps[0].queries,
        help="Further queries, whose scores of the key are added to the first one's.",
    )
    cell, shown = lab.CellField("cell"), lab.HeadField(None)


def page() -> None:
    lab.title(
        "Why this key", "A score is a sum over what the model wrote at the query and at the key."
    )
    chosen = lab.choose_model(needs=("qkv",))
    if chosen is not None:
        lab.fragment_unless_measuring(partial(explore, chosen))


def explore(chosen: lab.ModelChoice) -> None:
    reading = chosen.reading
    picture, right = st.columns([1.75, 1], gap="medium")
    answer = right.container()
    grid = right.grid(2, min_column_width=105)
    controls = Controls.draw("kind", into=grid, reading=reading)
    cell = controls.pick(chosen, grid)
    if cell is None:
        return
    item, head = controls.trace.map(cell.layer), controls.trace.name((cell.layer, cell.head))
    keys = lab.numbered(item.keys)
    names = lab.numbered(item.queries)
    more = map(names.index, controls.draw_more("more", into=grid).more)
    queries = tuple(dict.fromkeys([cell.query, *more]))
    query, key = draw.listing([names[at] for at in queries]), keys[cell.key]
    one: ScoreSources | None = None
    about = chosen.ref, chosen.inputs
    with picture, lab.input_errors():
        seconds, size = lab.study_of(split_cost, *about)
        words = f"about {lab.duration(seconds)} and {lab.byte_size(size)}"
        with st.spinner(f"Splitting the score, {words}"):
            given = *cell.at[0], queries if queries[1:] else cell.query, cell.key, controls.kind
            one = lab.study_of(explain_score, *about, *given)
        lab.draw_chart(
            st,
            draw.pairs_chart(one, query, key, lab.theme()),
            heading=f"What wrote {lab.plain(query)} (rows) × {lab.plain(key)} (columns)",
            legend="green adds to the score, purple takes",
            key="why_key:pairs",
            theme=None,
            alt=f"The score of {query} and {key} by what wrote them",
        )
    with right:
        lab.weight_link(chosen, controls.kind, *cell.at, ["inside_weight"])
    if one is None:
        return
    with answer:
        lab.fact(draw.why_fact(head, one, query, key))
    st.markdown("## What the head moves")
    lab.fact(draw.moved_fact(head, one, query, key))
    st.caption("This is the length of α·v W_O; *Inside one weight* tells that of α·v, before W_O.")
    lab.draw_chart(
        st,
        draw.moved_chart(one, lab.theme()),
        key="why_key:moved",
        theme=None,
        alt=f"What {head} moves from {key} to {query}, by what wrote it at {key}",
    )
    st.markdown("## What decides it")
    lab.fact(draw.decided_fact(one, query, keys))
    tokens = {kind: reading.lines(kind)[1].tokens for kind in reading.trace.kinds}
    if rows := draw.read_rows(one, {"query": query, "key": key}, tokens):
        lab.table(
            ["head", "wrote at", "part of the score", "by reading"],
            rows,
            caption="The earlier heads that add most, and the tokens that they read",
            left={0, 1, 3},
            markers=False,
        )
    lab.as_python(one=one, draw={"why_key:pairs": draw.CHART, "why_key:moved": draw.MOVED_CHART})
    with lab.input_errors():
        removed(one, chosen, head, query, key)
    for line in draw.equation(one):
        st.latex(line, width="content")
    st.caption(draw.conditions(reading.trace.source, one, reading.note))
    lab.details(
        f"The largest pairs, all {len(one.q_sources)} sources at the query and {len(one.k_sources)} at the key",
        partial(every_source, one, query, key),
        "why_key:sources",
    )
    papers = (
        "With the scale of each norm held, a query is a linear map of what was added to the residual stream at its "
        "token, and so is a key: [Elhage et al. 2021](https://transformer-circuits.pub/2021/framework/index.html)."
    )
    lab.details("Papers and source", partial(lab.sources, papers, explain_score, remove_source))


def removed(one: ScoreSources, chosen: lab.ModelChoice, head: str, query: str, key: str) -> None:
    """How far the parts tell what removals of its largest sources do to this score."""
    st.markdown("## What a removal does")
    removals = lab.measure_with_progress(
        "why_key:largest",
        (chosen.ref, chosen.inputs, one.place, one.head, one.queries, one.key),
        draw.removable(one),
        lambda each: remove_source(chosen.model, chosen.inputs, one, *each),
        "removals from this score",
    )
    if all_of := [*removals.values()]:
        lab.fact(draw.removals_fact("this score", all_of))
    ends = {"query": query, "key": key}
    rows = [
        [each.source.name, ends[each.side], lab.signed(each.predicted), lab.signed(each.actual)]
        for each in all_of
    ]
    lab.details(
        "Each removal, and removals from other scores",
        partial(other_removals, one, chosen, head, rows),
        "why_key:removals",
    )


def other_removals(
    one: ScoreSources, chosen: lab.ModelChoice, head: str, rows: Sequence[Sequence[str]]
) -> None:
    """The removals from this score in a table, and on request those from random scores of its head."""
    lab.table(
        ["removed", "at", "predicted", "actual"],
        rows,
        caption="Change of this score without its largest sources",
        left=2,
        markers=False,
    )
    kind, layer = one.place
    about = chosen.inputs, layer, one.head, kind
    removals = lab.measure_with_progress(
        "why_key:measured",
        (chosen.ref, *about),
        range(REMOVALS),
        partial(random_removal, chosen.model, *about),
        "removals from random scores",
        at_once=0.0,
    )
    all_of = [*removals.values()]
    cells = [draw.removals_cell(one, all_of)] if len(all_of) == REMOVALS else []
    lab.add_script(lambda: lab.Script(tuple(cells), {}), "removals")
    if cells:
        lab.fact(draw.removals_fact(f"random scores of {head}", all_of))
        lab.draw_chart(
            st,
            draw.removals_chart(all_of, lab.Ink.of(lab.theme())),
            key="why_key:agreement",
            theme=None,
            alt=f"Predicted and actual changes of scores of {head} when a source is removed",
        )


def every_source(one: ScoreSources, query: str, key: str) -> None:
    lab.table(
        [f"at {query}", f"at {key}", "part of the score"],
        draw.pair_rows(one),
        caption="The largest pairs of sources",
        left=2,
        markers=False,
    )
    lab.table(
        ["source", "at the query", "at the key", "share of what is moved"],
        draw.source_rows(one),
        caption="Every source: what it adds to the score, and its share of what the head moves",
        markers=False,
    )
