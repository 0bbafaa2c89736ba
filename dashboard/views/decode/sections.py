"""The parts below the tree: the outputs, the attention along the picked path, and what else could be said there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import streamlit as st

from core.decoding import ForcedSteps
from core.tasks import Task
from core.trace import AttentionMap, AttentionTrace
from dashboard.charts.numbers import number
from dashboard.charts.palette import Ink
from dashboard.charts.source_attention import tiles
from dashboard.charts.token_bars import bars
from dashboard.components.attention_view import attention_view
from dashboard.views.decode import text
from dashboard.views.decode.compute import SAMPLING, Decoded, How
from dashboard.widgets.panels import theme
from dashboard.widgets.table import table

SHOWN = 8


def outputs(found: Decoded, task: Task, how: How) -> None:
    """Every output with what it is ranked by, the best first."""
    head = ["output", "log-probability", "tokens", "drawn" if how.strategy == SAMPLING else "score"]
    head += ["right"] if found.target is not None else []
    rows = []
    for one in found.tree.hypotheses[:SHOWN]:
        ranked = f"{one.samples}" if how.strategy == SAMPLING else number(one.score)
        known = text.right(found, task, one)
        rows.append([text.shorten(text.spoken(task, one.tokens)), number(one.logp), str(len(one)),
                     ranked, *([] if known is None else ["yes" if known else "no"])])
    table(head, rows, caption="Outputs, the best first", markers=False)
    if (more := len(found.tree.hypotheses) - SHOWN) > 0:
        st.caption(f"And {more} more.")


def looked(found: Decoded, task: Task, followed: ForcedSteps, tokens: Sequence[int]) -> None:
    """Where each step of the path looked: a map with the picked step in the accent, or pictures with their patches."""
    if not followed.source_attention:
        st.caption("This model has no attention: at each step it sees the encoder's last state alone.")
        return
    said = tuple(text.names(task)[token] for token in tokens)
    read = (*found.source, *said[:-1]) if found.prompt.text else found.source
    maps = [AttentionMap("cross", layer, np.ascontiguousarray(weights.float().cpu().numpy()), said, tuple(read))
            for layer, weights in enumerate(followed.source_attention)]
    picked = _head(maps)
    if task.input == "patches":
        st.markdown("**Where each step looked**")
        st.html(tiles(found.prompt.source[0].tolist(), task.shape.grid, said, maps[picked[0]].weights[picked[1]],
                      theme(), Ink.of(theme())))
        return
    attention_view(AttentionTrace(tuple(maps), "decoded"), key="decode:map", layer=picked[0], head=picked[1],
                   query=len(said) - 1, show="matrix", height=420, title="Where each step looked",
                   fact=f"The attention of {len(said)} steps on {len(read)} tokens that were read")


def _head(maps: Sequence[AttentionMap]) -> tuple[int, int]:
    """The head that is drawn: the sharpest one until another is chosen."""
    sharp = {(one.layer, head): float(weights.max(-1).mean()) for one in maps for head, weights in
             enumerate(one.weights)}
    usual = max(sharp, key=lambda place: sharp[place])
    if len(sharp) == 1:
        return usual
    options = list(sharp)
    return st.selectbox("Head", options, options.index(usual), key=f"decode:head:{len(maps)}:{len(maps[0].weights)}",
                        format_func=lambda place: f"L{place[0]}·H{place[1]}", width=180)


def next_token(followed: ForcedSteps, task: Task, how: How, token: int) -> None:
    """The likeliest tokens at the picked step, by the model and, where it is reshaped, as they are drawn."""
    logp = followed.logp[-1]
    shares = {"model": logp.exp()}
    if how.strategy == SAMPLING:
        shares["drawn from"] = how.sampling.reshape(logp[None])[0].softmax(-1)
    st.markdown(f"**Said at step {len(followed.logp)}**")
    st.vega_lite_chart(spec=bars(shares, text.names(task), token, Ink.of(theme())), key="decode:bars")
