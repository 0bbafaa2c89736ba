"""The view When it decides: the lens at every position, and tokens along the layers at one."""

from __future__ import annotations

from functools import partial

import streamlit as st

from dashboard.draw.formats import number
from dashboard.draw.vega import PICKED, Spec
from dashboard.runtime.page_pictures import add_script
from dashboard.ui.presentation import draw_chart, pressed_point
from dashboard.ui.progress import UNASKED, measure_with_progress
from dashboard.ui.tables import table
from dashboard.views.lens import charts, compute, heads, text
from dashboard.views.lens.charts import Curve
from dashboard.views.lens.compute import Decision
from dashboard.views.lens.controls import Controls, draw_layer, draw_tokens, layer_key
from dashboard.views.lens.script import when_script
from dashboard.widgets.panels import caption, chart_title, details, fact, plain, theme

GRID = "lens:grid"
# A long text scrolls in its own box, whose cells keep the width that a token needs: from the end that is picked.
STYLE = """<style>
.st-key-lens-cells {{ overflow-x: auto; direction: {direction} }}
.st-key-lens-cells > div {{ min-width: {width}px; direction: ltr }}
</style>"""
MARGIN = 80  # pixels for the names of the layers


def section(controls: Controls) -> None:
    """Draw the view."""
    key = compute.lens_key(controls)
    with st.spinner("Running the model"):
        parts = range(compute.parts_of(key))
    read = measure_with_progress(
        compute.LENS, key, parts, partial(compute.read_lens_part, key), "parts", UNASKED
    )
    if len(read) < len(parts):
        return
    lens = compute.lens_of(key)
    fact_place = st.container()
    grid_place = st.container()
    with st.container(horizontal=True, vertical_alignment="top"):
        tokens = draw_tokens(controls, compute.leaders(controls, lens))
        name = draw_layer(controls, list(compute.state_names(lens))[1:])
    decision = compute.decide(controls, lens, tokens)
    words = compute.words_of(controls.ref, [*decision.tokens, *lens.top.flatten().tolist()])
    state = name or decision.states[max(1, decision.decisive)]
    add_script(partial(when_script, controls, decision, words))
    with fact_place:
        fact(text.decided(controls, decision, words))
    with grid_place:
        _grid(controls, decision, words, state)
    _curves(controls, decision, words, state)
    details(
        "The layers at this position, as a table",
        lambda: table(
            ["after", "likeliest", "its probability", "the answer’s", "rank", "entropy, bits"],
            text.rows_of(decision, words, controls.position),
            caption="The lens at the picked position",
            left=2,
            markers=False,
        ),
        "lens:rows",
    )
    heads.attention(controls, state)
    st.latex(text.LENS)


def _grid(controls: Controls, decision: Decision, words: dict[int, str], state: str) -> None:
    start, length = decision.lens.start, decision.lens.top.shape[1]
    tokens, position = controls.line.tokens[start : start + length], controls.position - start
    rows = [
        _cell(decision, words, row, index, token)
        for row in range(len(decision.states))
        for index, token in enumerate(tokens)
    ]
    chart_title(
        "The likeliest token after each layer, in the colour of its probability",
        legend=charts.scale_legend(theme()),
    )
    caption("A row is a layer, a column a token that was read.")
    if length < len(controls.line):
        caption(
            f"Tokens {start} to {start + length - 1} of {len(controls.line)}, around the position that answers."
        )
    late = position >= length / 2
    st.html(
        STYLE.format(width=charts.WIDE * len(tokens) + MARGIN, direction="rtl" if late else "ltr")
    )
    with st.container(key="lens:cells"):
        draw_chart(
            st,
            charts.token_grid(rows, decision.states, tokens, (state, position), theme(), late),
            key=GRID,
            on_select=lambda: _pick(controls),
            selection_mode=[PICKED],
            alt="The likeliest token after each layer, at each position",
        )


def _cell(decision: Decision, words: dict[int, str], row: int, index: int, token: str) -> Spec:
    lens = decision.lens
    top = [
        (words[one], p)
        for one, p in zip(
            lens.top[row, index].tolist(), lens.probabilities[row, index].tolist(), strict=True
        )
    ]
    texts = [f"{word} {number(p)}" for word, p in top]
    return {
        "state": decision.states[row],
        "column": index,
        "index": lens.start + index,
        "token": token,
        "word": top[0][0],
        "p": top[0][1],
        "text": texts[0],
        "top": ", ".join(texts[1:]),
    }


def _pick(controls: Controls) -> None:
    """The pressed cell's position becomes the one that answers, its layer the one whose attention is shown."""
    if point := pressed_point(GRID):
        st.session_state[controls.position_key] = int(point["index"])
        if point["state"] != compute.EMBEDDING:
            st.session_state[layer_key(controls.ref)] = point["state"]


def _curves(controls: Controls, decision: Decision, words: dict[int, str], state: str) -> None:
    """Draw probability, rank and entropy along the layers."""
    names = charts.distinct([words[token] for token in decision.tokens])
    along, states = decision.trajectories, decision.states
    entropy = decision.lens.entropy[:, controls.position - decision.lens.start].tolist()
    left, middle, right = st.columns(3, gap="medium")
    legend = charts.legend([plain(name) for name in names], theme())
    with left:
        chart_title("Probability", legend=legend)
        draw_chart(
            st,
            charts.along_layers(
                [
                    Curve(name, along.probabilities[:, one].tolist())
                    for one, name in enumerate(names)
                ],
                states,
                theme(),
                high=1.0,
                picked=state,
            ),
            key="lens:probability",
            alt="Probability of the answers after each layer",
        )
    with middle:
        chart_title("Rank, 1 is the likeliest")
        draw_chart(
            st,
            charts.along_layers(
                [Curve(name, along.ranks[:, one].tolist()) for one, name in enumerate(names)],
                states,
                theme(),
                rank=True,
                picked=state,
            ),
            key="lens:rank",
            alt="Rank of the answers after each layer",
        )
    with right:
        chart_title("Entropy of all tokens, bits")
        draw_chart(
            st,
            charts.along_layers([Curve("entropy", entropy)], states, theme(), picked=state),
            key="lens:entropy",
            alt="Entropy of all tokens after each layer, in bits",
        )
