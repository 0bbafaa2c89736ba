"""The controls of the page Decode: the run and its step, the source, and the search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import streamlit as st

from core.models.decoding import SearchSettings
from core.runs.runs import Run
from core.tasks import Task
from dashboard.runtime.link_values import between, link_value, one_of
from dashboard.runtime.run_data import LAST, task_of
from dashboard.server.cache import cached
from dashboard.ui.decoding import STRATEGIES, sample_count, strategy_settings
from dashboard.views.decode.compute import (
    HALF_TRAINED,
    HELD_OUT,
    LONGEST,
    Checkpoint,
    default_example,
    source_text,
)
from dashboard.widgets.params import BOUND

RUN, SOURCE_OF, DRAWN = "decode:run", "decode:source-of", "decode:drawn"
VALUES = {
    RUN,
    SOURCE_OF,
    *(
        f"decode:{name}"
        for name in (
            "strategy",
            "penalty",
            "temperature",
            "top_k",
            "top_p",
            "samples",
            "seed",
            "no_repeat",
            "place",
            "source",
        )
    ),
}
LINKED = "run"  # the query parameter of the run, shared with the other pages of this group
EXAMPLES = {
    "example_numbers": "Number words, half trained",
    "example_run": "Reverse, Transformer",
    "example_recurrent": "Reverse, recurrent",
}
PENALTY = (
    "Penalty α",
    0.0,
    "Length penalty: 0 ranks outputs by probability, which favours short ones; larger values favour long ones.",
)


@dataclass(frozen=True)
class Controls:
    """The run, its checkpoint, the source (typed, or the index of a held-out one), and the search."""

    run: Run
    checkpoint: Checkpoint
    source: str | int
    settings: SearchSettings


key = "decode:{}".format  # a widget's key, which is also its name in the link


def run_name(run: Run) -> str:
    """The name of a run, or its task, model and time."""
    if run.id in EXAMPLES:
        return f"{EXAMPLES[run.id]} (example)"
    config = run.config()
    return (
        run.name
        if run.name != run.id
        else f"{task_of(config.task).name}, {config.model.kind}, {run.id[9:15]}"
    )


def choose_run(runs: Mapping[str, Run]) -> tuple[Run, str]:
    """The run of the link, of this page or of Train, else the example; and a warning about the link."""
    linked, trouble = st.query_params.get(LINKED), ""
    if linked is not None and linked not in runs:
        trouble = (
            "The run in the link is not on this machine, has no saved weights, or has no decoder. "
            "Below is the example."
        )
        st.session_state.pop(RUN, None)
        linked = HALF_TRAINED.id
    candidates = (linked, st.session_state.get(RUN), st.session_state.get(LAST), HALF_TRAINED.id)
    run_id = next(name for name in candidates if name and name in runs)
    st.session_state[RUN] = run_id
    return runs[run_id], trouble


def draw_controls(runs: Mapping[str, Run], run: Run) -> Controls:
    """Draw two rows of controls, and a popover for the rest."""
    run_cell, way, *cells = st.columns([1.62, 1.43, 0.6, 0.6, 0.57], vertical_alignment="top")
    run_cell.selectbox(
        "Run",
        list(runs),
        format_func=lambda name: run_name(runs[name]),
        key=RUN,
        on_change=_write_link,
        help="The trained model that decodes.",
    )
    strategy = way.segmented_control(
        "Strategy",
        list(STRATEGIES),
        default="Beam",
        required=True,
        key=key("strategy"),
        help="How the next tokens are selected.",
        **BOUND,
    )
    settings = strategy_settings(strategy, cells, key, max_width=16, penalty=PENALTY)
    first, other, rest = st.columns([0.72, 0.14, 0.14], vertical_alignment="bottom")
    with rest.popover(
        "More",
        icon=":material/tune:",
        width="stretch",
        help="Saved step, repeated tokens and length.",
    ):
        checkpoint = _step(run)
        task = checkpoint.load()[1]
        settings |= _more(strategy, task)
    source = _source(checkpoint, task, first, other)
    controls = Controls(run, checkpoint, source, SearchSettings(STRATEGIES[strategy], **settings))
    st.session_state[DRAWN] = controls, _values()
    return controls


def read_controls() -> Controls | None:
    """The controls that were drawn last, with the width of now, before they are drawn again.

    None where another one changed.
    """
    controls, values = st.session_state.get(DRAWN, (None, {}))
    if controls is None or values != _values():
        return None
    if controls.settings.strategy != "beam":
        return controls
    return replace(
        controls,
        settings=replace(
            controls.settings, width=st.session_state.get(key("width"), controls.settings.width)
        ),
    )


def _values() -> dict[str, Any]:
    """What the session has for the controls, but for the width."""
    names = sorted(map(str, st.session_state))
    return {
        name: st.session_state[name]
        for name in names
        if name in VALUES or name.startswith(("decode:step:", "decode:longest:"))
    }


def _write_link() -> None:
    st.query_params[LINKED] = st.session_state[RUN]


def _step(run: Run) -> Checkpoint:
    """The checkpoint of the run; a control where there are several, at first the run's default."""
    steps = run.checkpoint_steps()
    if len(steps) == 1:
        return Checkpoint.of(run, steps[0])
    step_key, usual = f"decode:step:{run.id}", run.default_step()
    link_value(step_key, usual, one_of(steps))
    step = st.selectbox(
        "Trained for",
        steps,
        steps.index(usual),
        key=step_key,
        persist_state="session",
        format_func=lambda step: f"{step:,} steps",
        help="The training step of the weights.",
    )
    return Checkpoint.of(run, step)


def _more(strategy: str, task: Task) -> dict[str, Any]:
    most, usual = (task.max_target + 1,) * 2 if task.form == "pairs" else (LONGEST, 40)
    longest = f"decode:longest:{most}"
    link_value(longest, usual, between(1, most))
    settings = {
        "no_repeat": st.number_input(
            "No repeated n-grams",
            0,
            5,
            0,
            key=key("no_repeat"),
            **BOUND,
            help="The same n tokens in a row may not occur twice; 0 allows all.",
        ),
        "longest": st.slider(
            "Most tokens",
            1,
            most,
            usual,
            key=longest,
            persist_state="session",
            help="An output without an end mark is cut at this length.",
        ),
    }
    if strategy == "Sampling":
        settings |= sample_count(100, 20, key)
    return settings


def _source(checkpoint: Checkpoint, task: Task, cell: Any, beside: Any) -> str | int:
    """The source: typed where the task reads tokens, else the index of a held-out one."""
    examples, path = checkpoint.examples(), f"{checkpoint.path}"
    if task.input != "tokens":
        link_value(key("place"), 0, one_of(range(len(examples))))
        return int(
            cell.selectbox(
                "Held-out source",
                range(len(examples)),
                key=key("place"),
                persist_state="session",
                format_func=lambda i: f"{i}: {' '.join(task.display_tokens(examples[i])[1])}",
                help="Its number and its target.",
            )
        )
    if st.session_state.get(SOURCE_OF) != path:
        if SOURCE_OF in st.session_state or "decode:source" not in st.query_params:
            st.session_state["decode:source"] = source_text(
                task, examples[cached(default_example, checkpoint)]
            )
        st.session_state[SOURCE_OF] = path
    typed = cell.text_input(
        "Source" if task.form == "pairs" else "Text to continue",
        key="decode:source",
        **BOUND,
        help="What the model reads; you can type your own.",
    )
    texts = [source_text(task, example) for example in examples]
    beside.button(
        "Another",
        icon=":material/shuffle:",
        help=f"Show the next of {HELD_OUT} held-out sources.",
        key=key("another"),
        on_click=_another,
        args=(texts,),
        width="stretch",
    )
    return typed or ""


def _another(texts: Sequence[str]) -> None:
    current = st.session_state.get("decode:source")
    index = texts.index(current) if current in texts else -1
    st.session_state["decode:source"] = texts[(index + 1) % len(texts)]
