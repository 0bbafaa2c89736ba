"""Why this key: the score of a query and a key, split by what wrote them, and what the head moves between them."""

from functools import partial

import streamlit as st

import dashboard.page as lab
from core.interpret.score_sources import ScoreSources, explain_score
from dashboard.draw import why_key as draw


class Controls(lab.WeightFields, page="why_key"):
    cell, shown = lab.CellField("cell"), lab.HeadField(None)


def page() -> None:
    lab.title(
        "Why this key", "A score is a sum over what the model wrote at the query and at the key."
    )
    chosen = lab.choose_model(needs=("qkv",))
    if chosen is not None:
        lab.fragment_unless_measuring(partial(explore, chosen))


def explore(chosen: lab.ModelChoice) -> None:
    reading, answer = chosen.reading, st.container()  # a phone shows it before the controls
    grid = st.grid(4 if len(reading.trace.kinds) > 1 else 3, min_column_width=105)
    controls = Controls.draw("kind", into=grid, reading=reading)
    cell = controls.pick(chosen, grid)
    item, head = controls.trace.map(cell.layer), controls.trace.name((cell.layer, cell.head))
    query, key = item.queries[cell.query], item.keys[cell.key]
    with lab.input_errors():
        one = lab.study_of(
            explain_score,
            chosen.ref,
            chosen.inputs,
            cell.layer,
            cell.head,
            cell.query,
            cell.key,
            controls.kind,
        )
        with answer:
            lab.fact(draw.why_fact(head, one, query, key))
        split(one, query, key)
        lab.weight_link(chosen, controls.kind, *cell.at, ["inside_weight"])
        moved(one, head, query, key)
        decided(one, chosen, query, item.keys)
        for line in draw.equation(one):
            st.latex(line, width="content")
        st.caption(draw.conditions(reading.trace.source, one, reading.note))
        lab.details(
            f"All {len(one.q_sources)} sources at the query, {len(one.k_sources)} at the key",
            partial(every_source, one),
        )
        lab.details("Papers and source", sources)
        lab.as_python(
            one=one, draw={"why_key:pairs": draw.CHART, "why_key:moved": draw.MOVED_CHART}
        )


def split(one: ScoreSources, query: str, key: str) -> None:
    lab.draw_chart(
        st,
        draw.pairs_chart(one, query, key, lab.theme()),
        heading=f"What wrote {lab.plain(query)} (rows) × what wrote {lab.plain(key)} (columns)",
        legend="green adds to the score, purple takes from it",
        key="why_key:pairs",
        theme=None,
        alt=f"The score of {query} and {key} by what wrote them",
    )


def moved(one: ScoreSources, head: str, query: str, key: str) -> None:
    st.markdown("## What the head moves")
    lab.fact(draw.moved_fact(head, one, query, key))
    lab.draw_chart(
        st,
        draw.moved_chart(one, lab.theme()),
        key="why_key:moved",
        theme=None,
        alt=f"What {head} moves from {key} to {query}, by what wrote it at {key}",
    )


def decided(one: ScoreSources, chosen: lab.ModelChoice, query: str, keys: tuple[str, ...]) -> None:
    st.markdown("## What decides it")
    key, reading = keys[one.key], chosen.reading
    for side, token in (("query", query), ("key", key)):
        lab.paragraph(draw.fewest_text(one, side, token, keys))
    tokens = {kind: reading.lines(kind)[1].tokens for kind in reading.trace.kinds}
    if rows := draw.read_rows(one, {"query": query, "key": key}, tokens):
        lab.table(
            ["head", "wrote at", "part of the score", "by reading"],
            rows,
            caption="The earlier heads that add most, and the tokens that they read",
            left={0, 1, 3},
            markers=False,
        )


def every_source(one: ScoreSources) -> None:
    lab.table(
        ["source", "at the query", "at the key", "share of what is moved"],
        draw.source_rows(one),
        caption="Every source: what it adds to the score, and its share of what the head moves",
        markers=False,
    )


def sources() -> None:
    lab.sources(
        "With the scale of each norm held, a query is a linear map of what was added to the residual stream at its "
        "token, and so is a key: [Elhage et al. 2021](https://transformer-circuits.pub/2021/framework/index.html).",
        explain_score,
    )
