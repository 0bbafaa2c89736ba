"""The controls of the page Decode: which run and step, what it reads, and how its outputs are found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from core.tasks import Task
from core.training.runs import Run
from dashboard.runtime.run_data import LAST, task_of
from dashboard.views.decode.compute import (
    BEAM,
    GREEDY,
    HALF_TRAINED,
    HELD_OUT,
    LONGEST,
    SAMPLING,
    STRATEGIES,
    How,
    Trained,
    held_out,
    telling,
    written,
)
from dashboard.widgets.panels import plain
from dashboard.widgets.params import BOUND
from dashboard.widgets.sampling import sampling_settings

RUN, SOURCE_OF = "decode:run", "decode:source-of"
LINKED = "run"  # the link's word for the run, as on the other pages of this group
WORDS = {"example_numbers": "Number words, half trained", "example_run": "Reverse, Transformer",
         "example_recurrent": "Reverse, recurrent"}


@dataclass(frozen=True)
class Asked:
    """All that the controls say."""

    run: Run
    trained: Trained
    source: str | int
    how: How


def key(name: str) -> str:
    return f"decode:{name}"


def named(run: Run) -> str:
    """A run in a few words: its own name, or its task, model and when it was made."""
    if run.id in WORDS:
        return f"{WORDS[run.id]} (kept)"
    config = run.config()
    return run.name if run.name != run.id else f"{task_of(config.task).name}, {config.model.kind}, {run.id[9:15]}"


def choose(runs: Mapping[str, Run]) -> tuple[Run, str]:
    """The run of the link, of this page, or the one that was trained last; words when the link's is not here."""
    asked, trouble = st.query_params.get(LINKED), ""
    if asked is not None and asked not in runs:
        trouble = ("The run in the link is not on this machine, has kept no weights, or says no tokens one by one. "
                   "Below is the kept example.")
        st.session_state.pop(RUN, None)
        asked = HALF_TRAINED.id
    wanted = (asked, st.session_state.get(RUN), st.session_state.get(LAST), HALF_TRAINED.id)
    chosen = next(name for name in wanted if name in runs)
    st.session_state[RUN] = chosen
    return runs[chosen], trouble


def controls(runs: Mapping[str, Run], run: Run) -> Asked:
    """Everything in two rows, and a popover for what is seldom changed."""
    which, way, *cells = st.columns([1.25, 1.35, 0.75, 0.75, 0.75], vertical_alignment="top")
    which.selectbox("Run", list(runs), format_func=lambda name: named(runs[name]), key=RUN, on_change=_to_link)
    strategy = way.segmented_control("Strategy", STRATEGIES, default=BEAM, required=True, key=key("strategy"), **BOUND)
    settings = _settings(strategy, cells)
    first, other, rest = st.columns([0.72, 0.14, 0.14], vertical_alignment="bottom")
    with rest.popover("More", icon=":material/tune:", width="stretch"):
        trained = _step(run)
        task = trained.load()[1]
        settings |= _more(strategy, task)
    return Asked(run, trained, _source(trained, task, first, other), How(strategy=strategy, **settings))


def _to_link() -> None:
    st.query_params[LINKED] = st.session_state[RUN]


def _step(run: Run) -> Trained:
    """The kept steps of the run, first chosen the one whose weights count; a control only where there are several."""
    steps = run.checkpoint_steps()
    if len(steps) == 1:
        return Trained.of(run, steps[0])
    return Trained.of(run, st.selectbox("Trained for", steps, steps.index(run.default_step()),
                                        key=f"decode:step:{run.id}", format_func=lambda step: f"{step:,} steps",
                                        persist_state="session"))


def _settings(strategy: str, cells: Sequence[Any]) -> dict[str, Any]:
    if strategy == BEAM:
        return {"width": cells[0].slider("Width", 1, 16, 4, key=key("width"), help="beginnings kept at each step",
                                         **BOUND),
                "penalty": cells[1].slider("Penalty α", 0.0, 2.0, 0.0, 0.1, key=key("penalty"), **BOUND,
                                           help="Length penalty: 0 ranks by probability alone, which favours the "
                                                "short; more favours the long")}
    if strategy == GREEDY:
        return {}
    return sampling_settings(cells, key)


def _more(strategy: str, task: Task) -> dict[str, Any]:
    most = task.max_target + 1 if task.form == "pairs" else LONGEST
    usual = most if task.form == "pairs" else 40
    found = {"no_repeat": st.number_input("Say no n tokens twice", 0, 5, 0, key=key("no_repeat"), **BOUND,
                                          help="forbids to say the same n tokens in a row again; 0 forbids nothing"),
             "longest": st.slider("Tokens at most", 1, most, usual, key=f"decode:longest:{most}",
                                  persist_state="session")}
    if strategy == SAMPLING:
        found["samples"] = st.slider("Samples", 1, 100, 20, key=key("samples"), **BOUND)
        found["seed"] = st.number_input("Seed", 0, 10_000, 0, key=key("seed"), **BOUND)
    return found


def _source(trained: Trained, task: Task, cell: Any, beside: Any) -> str | int:
    """What is read: typed where the source is tokens, else one of the held-out ones."""
    examples, here = held_out(trained), f"{trained.path}"
    if task.input != "tokens":
        return int(cell.selectbox("Held-out source", range(len(examples)), key=key("place"),
                                  format_func=lambda i: f"{i}: {' '.join(task.display_tokens(examples[i])[1])}"))
    if st.session_state.get(SOURCE_OF) != here:
        first = SOURCE_OF not in st.session_state and "decode:source" in st.query_params
        if not first:
            st.session_state["decode:source"] = written(task, examples[telling(trained)])
        st.session_state[SOURCE_OF] = here
    typed = cell.text_input("Source" if task.form == "pairs" else "Text to go on with", key="decode:source", **BOUND)
    texts = [written(task, example) for example in examples]
    beside.button("Another", icon=":material/shuffle:", help=f"the next of {HELD_OUT} held-out sources",
                  key=key("another"), on_click=_another, args=(texts,), width="stretch")
    return typed or ""


def _another(texts: Sequence[str]) -> None:
    now = st.session_state.get("decode:source")
    place = texts.index(now) if now in texts else -1
    st.session_state["decode:source"] = texts[(place + 1) % len(texts)]


def say(trouble: str) -> None:
    if trouble:
        st.warning(plain(trouble))
