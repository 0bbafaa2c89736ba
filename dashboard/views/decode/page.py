"""The page Decode: the tree, the sentence about it, and everything about the candidate that is picked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import streamlit as st

from core.attention import ConfigError
from core.interpret.trace import AttentionMap, AttentionTrace
from core.models.decoding import ForcedSteps, force_tokens
from core.tasks import Task
from dashboard.draw import drawings
from dashboard.draw.attention_view import attention_view
from dashboard.draw.formats import number, percent
from dashboard.draw.grids import bars, tiles
from dashboard.draw.page_views import tree_view
from dashboard.draw.palette import Ink
from dashboard.runtime.link_values import (
    between,
    forget_other_runs,
    fragment,
    link_value,
    one_of,
    take_link,
    write_link,
)
from dashboard.runtime.page_pictures import add_script
from dashboard.runtime.rendering import render_before_widgets
from dashboard.runtime.threads import one_thread
from dashboard.server.cache import cached, shared
from dashboard.ui.decoding import outputs_table, sources
from dashboard.ui.export import begin_before_title
from dashboard.ui.presentation import draw_chart, room
from dashboard.ui.tables import table
from dashboard.views.decode import text
from dashboard.views.decode.compute import (
    SECONDS,
    SOURCES,
    SearchResult,
    compare_strategies,
    decodable_runs,
    decode,
)
from dashboard.views.decode.controls import (
    Controls,
    choose_run,
    draw_controls,
    read_controls,
    run_name,
)
from dashboard.views.decode.script import script
from dashboard.widgets.panels import fact, next_page, plain, theme, title

PICKED, OF, COMPARED = "decode:picked", "decode:picked-of", "decode:measured"


def page() -> None:
    """Draw the page from top to bottom."""
    _explore()
    next_page("decode")


@fragment
def _explore() -> None:
    """Draw all but the link to the next page, which reruns alone; the tree comes first."""
    begin_before_title()
    controls, shown = render_before_widgets("decode:ready", read_controls, _header, _show)
    if controls is None or shown is None:
        return
    result, path = shown
    _, task = controls.checkpoint.load()
    with one_thread():
        greedy = shared(
            decode,
            controls.checkpoint,
            controls.source,
            replace(controls.settings, strategy="greedy"),
        )
    fact(text.fact(result, task, controls.settings, greedy.tree.hypotheses[0]))
    model = f"{run_name(controls.run)}, step {controls.checkpoint.step:,}"
    st.caption(plain(text.caption(result, task, len(drawings.spots(result.tree, path)), model)))
    outputs = result.tree.hypotheses
    outputs_table(
        outputs,
        [text.output_text(task, one.tokens) for one in outputs],
        controls.settings.strategy == "sampling",
        [text.is_correct(result, task, one) for one in outputs]
        if result.target is not None
        else (),
    )
    _along_path(controls, result, path)
    _comparison(controls)
    sources(controls.settings.strategy, key="decode:source-code")


def _header() -> Controls | None:
    """Draw the title and the controls; None, with the error on the page, where they are of no search."""
    title(
        "Decode",
        "You will see which outputs a trained model considers, token by token, and why it chooses one of them.",
        first=False,
    )
    runs = decodable_runs()
    run, trouble = choose_run(runs)
    forget_other_runs("decode", run.id)
    if trouble:
        st.warning(plain(trouble))
    try:
        return draw_controls(runs, run)
    except (ConfigError, ValueError) as error:
        st.error(plain(str(error)))
        return None


def _show(controls: Controls | None) -> tuple[SearchResult, list[int]] | None:
    """Draw the tree, or an error; returns the search and the picked path."""
    if controls is None:
        return None
    try:
        with one_thread():
            result = shared(decode, controls.checkpoint, controls.source, controls.settings)
    except (ConfigError, ValueError) as error:
        st.error(plain(str(error)))
        return None
    _, task = controls.checkpoint.load()
    path = _picked_path(controls, result)
    add_script(partial(script, controls, result, task, path))
    names = text.names(task)
    tree_view(
        partial(drawings.picture, result.tree, names, path),
        partial(drawings.rows, result.tree, names),
        f"{len(result.tree.candidates)} candidates; the best output is "
        f"{text.output_text(task, result.tree.hypotheses[0].tokens)}.",
        theme=theme(),
        follow=st.session_state[PICKED] is not None,
        key="decode:tree",
        on_pick=_pick,
    )
    return result, path


def _pick() -> None:
    st.session_state[PICKED] = st.session_state["decode:tree"].get("pick")


def _picked_path(controls: Controls, result: SearchResult) -> list[int]:
    """The path to the candidate that was pressed in this tree, else to the end of the best output."""
    if st.session_state.get(OF) != controls:
        st.session_state[OF], st.session_state[PICKED] = controls, None
        take_link(PICKED, between(0, len(result.tree.candidates) - 1))
    index = st.session_state.get(PICKED)
    if not isinstance(index, int) or not 0 <= index < len(result.tree.candidates):
        index = None
    write_link(PICKED, None if index is None else str(index))
    return result.tree.path(result.tree.hypotheses[0].leaf if index is None else index)


def _along_path(controls: Controls, result: SearchResult, path: list[int]) -> None:
    """Left the attention along the picked path; right the probabilities at its last step, and the equation."""
    model, task = controls.checkpoint.load()
    tokens = result.tree.tokens(path[-1])
    steps = force_tokens(model, result.prompt, tokens)
    left, right = st.columns([0.52, 0.48], gap="medium")
    with left:
        _attention(result, task, steps, tokens)
    with right:
        # The most probable tokens at the picked step: by the model, and as they are sampled
        settings = controls.settings
        logp = steps.logp[-1]
        shares = {"model": logp.exp()}
        if settings.strategy == "sampling":
            shares["sampled from"] = settings.sampling.reshape(logp[None])[0].softmax(-1)
        st.markdown(f"**Next token at step {len(steps.logp)}**")
        draw_chart(
            st,
            bars(shares, text.names(task), tokens[-1], Ink.of(theme())),
            key="decode:bars",
            alt="The likeliest next tokens after the picked one",
        )
        st.latex(text.equation(controls.settings, result.tree, path))


def _attention(result: SearchResult, task: Task, steps: ForcedSteps, tokens: Sequence[int]) -> None:
    """The attention of each step of the path: a map with the picked step in the accent, or pictures with patches."""
    if not steps.source_attention:
        st.caption(
            "This model has no attention: at each step it reads only the encoder's last state."
        )
        return
    generated = tuple(text.names(task)[token] for token in tokens)
    keys = (*result.source, *generated[:-1]) if result.prompt.text else result.source
    maps = [
        AttentionMap(
            "cross",
            layer,
            np.ascontiguousarray(weights.float().cpu().numpy()),
            generated,
            tuple(keys),
        )
        for layer, weights in enumerate(steps.source_attention)
    ]
    picked = _head(maps)
    if task.input == "patches":
        st.markdown("**What each step attends to**")
        weights = maps[picked[0]].weights[picked[1]]
        st.html(
            tiles(
                result.prompt.source[0].tolist(),
                task.shape.grid,
                generated,
                weights,
                theme(),
                Ink.of(theme()),
            )
        )
        return
    attention_view(
        AttentionTrace(tuple(maps), "decoded"),
        key="decode:map",
        layer=picked[0],
        head=picked[1],
        query=len(generated) - 1,
        show="matrix",
        height=420,
        title="What each step attends to",
        fact=f"The attention of {len(generated)} steps to {len(keys)} input tokens",
    )


def _head(maps: Sequence[AttentionMap]) -> tuple[int, int]:
    """The head that is drawn: the sharpest one until another is chosen."""
    sharpness = {
        (one.layer, head): float(weights.max(-1).mean())
        for one in maps
        for head, weights in enumerate(one.weights)
    }
    heads = list(sharpness)
    sharpest = max(heads, key=lambda head: sharpness[head])
    if len(heads) == 1:
        return sharpest
    key = f"decode:head:{len(maps)}:{len(maps[0].weights)}"
    link_value(key, sharpest, one_of(heads))
    return st.selectbox(
        "Head",
        heads,
        heads.index(sharpest),
        key=key,
        width=room(180),
        persist_state="session",
        format_func=lambda head: f"L{head[0]}·H{head[1]}",
        help="Layer and head, both from 0; first the head with the sharpest weights.",
    )


def _comparison(controls: Controls) -> None:
    """Greedy decoding and the chosen strategy over held-out sources; measured on request."""
    _, task = controls.checkpoint.load()
    if task.form != "pairs":
        return
    measured = (controls.checkpoint, controls.settings)
    if st.button(
        f"Measure on {SOURCES} held-out sources",
        icon=":material/speed:",
        type="tertiary",
        key="decode:measure",
        help=f"It takes one or two seconds, at most {SECONDS}.",
    ):
        st.session_state[COMPARED] = measured
    if st.session_state.get(COMPARED) != measured:
        return
    strategies = tuple(
        dict.fromkeys((replace(controls.settings, strategy="greedy"), controls.settings))
    )
    with st.spinner("Decoding"):
        count, scores = cached(compare_strategies, controls.checkpoint, strategies)
    optional = [
        (name, key)
        for name, key in (("BLEU", "bleu"), ("chrF", "chrf"))
        if getattr(scores[0], key) is not None
    ]
    rows = [
        [
            text.strategy_name(settings),
            percent(one.exact),
            *(number(getattr(one, key)) for _, key in optional),
            number(one.logp),
            number(one.tokens),
        ]
        for settings, one in zip(strategies, scores, strict=True)
    ]
    table(
        ["strategy", "accuracy", *(name for name, _ in optional), "log-probability", "tokens"],
        rows,
        caption=f"Means over {count} held-out sources",
        markers=False,
    )
    st.caption(
        f"Means over the same {count} held-out sources.{text.cut_at(scores, task, controls.settings)}"
    )
    if len(scores) == 2:
        fact(text.scores_fact(*scores))
