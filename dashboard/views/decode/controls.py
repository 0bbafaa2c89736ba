"""The controls of the page Decode: the run and its step, the source, and the search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from core.decoding import SearchSettings
from core.tasks import Task
from core.training.runs import Run
from dashboard.runtime.cache import cached
from dashboard.runtime.run_data import LAST, task_of
from dashboard.views.decode.compute import HALF_TRAINED, HELD_OUT, LONGEST, Checkpoint, default_example, source_text
from dashboard.widgets.params import BOUND
from dashboard.widgets.sampling import STRATEGIES, sample_count, strategy_settings

RUN, SOURCE_OF = "decode:run", "decode:source-of"
LINKED = "run"  # the query parameter of the run, shared with the other pages of this group
EXAMPLES = {"example_numbers": "Number words, half trained", "example_run": "Reverse, Transformer",
            "example_recurrent": "Reverse, recurrent"}
PENALTY = ("Penalty α", 0.0,
           "Length penalty: 0 ranks by probability alone, which favours the short; more favours the long")


@dataclass(frozen=True)
class Controls:
    """The run, its checkpoint, the source (typed, or the index of a held-out one), and the search."""

    run: Run
    checkpoint: Checkpoint
    source: str | int
    settings: SearchSettings


def key(name: str) -> str:
    return f"decode:{name}"


def run_name(run: Run) -> str:
    """A run's own name, or its task, model and time."""
    if run.id in EXAMPLES:
        return f"{EXAMPLES[run.id]} (kept)"
    config = run.config()
    return run.name if run.name != run.id else f"{task_of(config.task).name}, {config.model.kind}, {run.id[9:15]}"


def choose_run(runs: Mapping[str, Run]) -> tuple[Run, str]:
    """The run of the link, of this page or of Train, else the example; and a warning about the link."""
    linked, trouble = st.query_params.get(LINKED), ""
    if linked is not None and linked not in runs:
        trouble = ("The run in the link is not on this machine, has kept no weights, or says no tokens one by one. "
                   "Below is the kept example.")
        st.session_state.pop(RUN, None)
        linked = HALF_TRAINED.id
    candidates = (linked, st.session_state.get(RUN), st.session_state.get(LAST), HALF_TRAINED.id)
    run_id = next(name for name in candidates if name in runs)
    st.session_state[RUN] = run_id
    return runs[run_id], trouble


def draw_controls(runs: Mapping[str, Run], run: Run) -> Controls:
    """Draw two rows of controls, and a popover for the rest."""
    run_cell, way, *cells = st.columns([1.25, 1.35, 0.75, 0.75, 0.75], vertical_alignment="top")
    run_cell.selectbox("Run", list(runs), format_func=lambda name: run_name(runs[name]), key=RUN, on_change=_write_link)
    strategy = way.segmented_control("Strategy", list(STRATEGIES), default="Beam", required=True, key=key("strategy"),
                                     **BOUND)
    settings = strategy_settings(strategy, cells, key, max_width=16, penalty=PENALTY)
    first, other, rest = st.columns([0.72, 0.14, 0.14], vertical_alignment="bottom")
    with rest.popover("More", icon=":material/tune:", width="stretch"):
        checkpoint = _step(run)
        task = checkpoint.load()[1]
        settings |= _more(strategy, task)
    source = _source(checkpoint, task, first, other)
    return Controls(run, checkpoint, source, SearchSettings(STRATEGIES[strategy], **settings))


def _write_link() -> None:
    st.query_params[LINKED] = st.session_state[RUN]


def _step(run: Run) -> Checkpoint:
    """The checkpoint of the run; a control where there are several, at first the run's default."""
    steps = run.checkpoint_steps()
    step = steps[0] if len(steps) == 1 else st.selectbox(
        "Trained for", steps, steps.index(run.default_step()), key=f"decode:step:{run.id}",
        format_func=lambda step: f"{step:,} steps", persist_state="session")
    return Checkpoint.of(run, step)


def _more(strategy: str, task: Task) -> dict[str, Any]:
    most, usual = (task.max_target + 1,) * 2 if task.form == "pairs" else (LONGEST, 40)
    settings = {
        "no_repeat": st.number_input("Say no n tokens twice", 0, 5, 0, key=key("no_repeat"), **BOUND,
                                     help="forbids to say the same n tokens in a row again; 0 forbids nothing"),
        "longest": st.slider("Tokens at most", 1, most, usual, key=f"decode:longest:{most}", persist_state="session")}
    if strategy == "Sampling":
        settings |= sample_count(100, 20, key)
    return settings


def _source(checkpoint: Checkpoint, task: Task, cell: Any, beside: Any) -> str | int:
    """The source: typed where the task reads tokens, else the index of a held-out one."""
    examples, path = task.held_out(HELD_OUT), f"{checkpoint.path}"
    if task.input != "tokens":
        return int(cell.selectbox("Held-out source", range(len(examples)), key=key("place"),
                                  format_func=lambda i: f"{i}: {' '.join(task.display_tokens(examples[i])[1])}"))
    if st.session_state.get(SOURCE_OF) != path:
        if SOURCE_OF in st.session_state or "decode:source" not in st.query_params:
            st.session_state["decode:source"] = source_text(task, examples[cached(default_example, checkpoint)])
        st.session_state[SOURCE_OF] = path
    typed = cell.text_input("Source" if task.form == "pairs" else "Text to go on with", key="decode:source", **BOUND)
    texts = [source_text(task, example) for example in examples]
    beside.button("Another", icon=":material/shuffle:", help=f"the next of {HELD_OUT} held-out sources",
                  key=key("another"), on_click=_another, args=(texts,), width="stretch")
    return typed or ""


def _another(texts: Sequence[str]) -> None:
    current = st.session_state.get("decode:source")
    index = texts.index(current) if current in texts else -1
    st.session_state["decode:source"] = texts[(index + 1) % len(texts)]
