"""The controls of Compare runs: the runs, which are in the link, then the measure and what the maps show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.interpret.trace import Head
from dashboard.runtime.link_values import link_value, one_of
from dashboard.runtime.run_data import EXAMPLE_RUNS, RunSummary, rival, summarize
from dashboard.server import people
from dashboard.ui.presentation import room
from dashboard.views.compare_runs import compute
from dashboard.views.compare_runs.compute import ComparedRun, Measure
from dashboard.widgets.panels import plain
from dashboard.widgets.params import KEEP

LINK, LAST = "runs", "compare_runs:last"
# Links once held a measure's label.
OLD_LABELS = {
    "Exact": "exact",
    "Error": "error",
    "Tokens": "letters",
    "BLEU": "bleu",
    "chrF": "chrf",
    "Loss": "loss",
    "Training loss": "train_loss",
    "Expected place": "expected",
}
LABELS = ("First", "Second", "Third", "Fourth")
MOST = len(LABELS)


@dataclass(frozen=True)
class Controls:
    """The measure, the step, the held-out example, a head of each run with maps (None where it has none).

    The step's `slider` is the key of its widget, "" without one.
    """

    measure: Measure
    step: int
    example: int = 0
    heads: tuple[Head | None, ...] = ()
    slider: str = ""


def draw_runs(summaries: Sequence[RunSummary]) -> list[RunSummary]:
    """Draw a list for each of the compared runs, of which the third and the fourth may stay empty."""
    summaries = [*summaries, *_linked(summaries)]
    runs, message = runs_to_compare(summaries)
    if message:
        st.warning(message)
    names = {item.run.id: item.name for item in summaries if not item.trouble}
    with st.grid(min_column_width=room(300), gap="small"):
        for index, label in enumerate(LABELS):
            key = f"compare_runs:{index}"
            st.session_state[key] = runs[index].run.id if index < len(runs) else None
            st.selectbox(
                label,
                [*[None] * (index > 1), *names],
                key=key,
                on_change=_write_link,
                disabled=index > len(runs),
                format_func=lambda name: names.get(name, "none"),
                help=f"The {label.lower()} of the compared runs.",
            )
    return runs


def _linked(summaries: Sequence[RunSummary]) -> list[RunSummary]:
    """The runs of other people of a public copy, whose ids the link has."""
    ids = set(_linked_ids()) - {item.run.id for item in summaries}
    return [summarize(run) for name in sorted(ids) if (run := people.find_run(name)) is not None]


def _linked_ids() -> list[str]:
    """The ids in the link, else those of the session."""
    link = st.query_params.get(LINK) or st.session_state.get(LAST) or ""
    return list(dict.fromkeys(name for name in link.split(",") if name))


def _write_link() -> None:
    ids = [st.session_state.get(f"compare_runs:{index}") for index in range(MOST)]
    st.query_params[LINK] = st.session_state[LAST] = ",".join(
        dict.fromkeys(name for name in ids if name)
    )


def runs_to_compare(summaries: Sequence[RunSummary]) -> tuple[list[RunSummary], str]:
    """The two to four runs of the link, else of the session, else the examples; and a warning about the link."""
    by_id = {item.run.id: item for item in summaries}
    ids = _linked_ids()
    runs = [by_id[name] for name in ids if name in by_id and by_id[name].config is not None]
    messages = []
    if missing := len(ids) - len(runs):
        messages.append(
            f"{missing} of the runs in the link {'is' if missing == 1 else 'are'} not on this machine, or "
            "cannot be read."
        )
    if len(runs) > MOST:
        messages.append(f"At most {MOST} runs can be compared; these are the first {MOST}.")
    while len(runs) < 2:
        other = rival(runs[0], summaries) if ids and runs else None
        runs.append(
            other or next(by_id[run.id] for run in EXAMPLE_RUNS if by_id[run.id] not in runs)
        )
    return runs[:MOST], " ".join(messages)


def draw_controls(
    sides: Sequence[ComparedRun],
    same: Sequence[ComparedRun],
    measures: Sequence[Measure],
    top: DeltaGenerator,
) -> Controls:
    """Draw the measure in `top`, then step, example and heads of the runs `same`, which learn the same task."""
    by_key = {measure.key: measure for measure in measures}
    link_value(
        "compare_runs:measure",
        measures[0].key,
        lambda text: one_of(by_key)(OLD_LABELS.get(text, text)),
    )
    key = top.segmented_control(
        "Measure",
        list(by_key),
        default=measures[0].key,
        key="compare_runs:measure",
        required=True,
        label_visibility="collapsed",
        help="The number that is compared.",
        format_func=lambda name: by_key[name].label,
        **KEEP,
    )
    measure = by_key.get(key, measures[0])
    if not same:
        return Controls(
            measure, max((side.records[-1].step for side in sides if side.records), default=0)
        )
    examples, ids = compute.examples(same[0]), "-".join(side.summary.run.id for side in same)
    with st.grid("auto", min_column_width=room(190), gap="small", vertical_alignment="bottom"):
        steps, slider = compute.steps(same), f"compare_runs:step:{ids}"
        step = _step(same, steps, slider) if len(steps) > 1 else steps[0]
        key = f"compare_runs:example:{ids}"
        link_value(key, 0, one_of(range(len(examples))))
        example = st.selectbox(
            "Held-out example",
            range(len(examples)),
            key=key,
            persist_state="session",
            format_func=lambda index: examples[index],
            help="The example on which the maps of all runs are drawn.",
        )
        return Controls(
            measure, step, example, tuple(map(_head, same)), slider if len(steps) > 1 else ""
        )


def _step(same: Sequence[ComparedRun], steps: Sequence[int], key: str) -> int:
    """The step that is drawn; it is in the link."""
    usual = compute.shared_step(same)
    link_value(key, usual, one_of(steps), name="step")
    return st.select_slider(
        "Training step",
        steps,
        usual,
        key=key,
        format_func=lambda step: f"{step:,}",
        **KEEP,
        help="The training step of all maps.",
    )


def _head(side: ComparedRun) -> Head | None:
    """The head of a run; a control where there are several."""
    heads = compute.heads(side)
    if len(heads) < 2:
        return heads[0] if heads else None
    key = f"compare_runs:head:{side.summary.run.id}"
    link_value(key, heads[0], one_of(heads))
    return st.selectbox(
        f"Head of {plain(side.name)}",
        heads,
        key=key,
        persist_state="session",
        format_func=lambda head: f"L{head[0]}·H{head[1]}",
        help="Layer and head, both from 0; first the head with the most weight on the expected "
        "position.",
    )
