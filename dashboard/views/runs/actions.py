"""The actions on a run: name, open, fork, duplicate, download, delete; and the upload of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import streamlit as st

from core.attention import ConfigError
from core.training import archive
from core.training.config import BOUNDS, OPTIMIZERS, SCHEDULES, RunConfig
from core.training.run_storage import LONGEST_NAME, MAX_RUNS, discard, duplicate, most_bytes, prune, restore
from dashboard.charts.numbers import byte_size
from dashboard.navigation import STEPS
from dashboard.runtime import jobs
from dashboard.runtime.run_summary import RunSummary
from dashboard.views.runs.controls import select
from dashboard.widgets.flash import flash, flash_errors, pop_flash
from dashboard.widgets.panels import plain

TUNED = "A pretrained model that went on learning: it is opened on Fine-tune, and its model lies in its folder."
DELETED, UPLOADS = "runs:deleted", "runs:uploads"
RATES = (1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 3e-3, 5e-3, 1e-2, 2e-2)


def page_of(key: str) -> Any:
    return next(step.path for step in STEPS if step.key == key)


def actions(chosen: Sequence[RunSummary]) -> None:
    """The row of buttons for what is picked; several runs can be compared or deleted together."""
    first = chosen[0]
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        where, what = ("train", "Train") if first.tuned is None else ("fine_tune", "Fine-tune")
        st.page_link(page_of(where), label="Open", icon=":material/play_circle:", disabled=bool(first.trouble),
                     query_params={"run": first.run.id}, help=f"See it on {what}: its maps, and its settings")
        _compare(chosen)
        _fork(first)
        st.button("Duplicate", icon=":material/content_copy:", key="runs:duplicate", on_click=_duplicate, args=(first,),
                  disabled=first.config is None,
                  help=TUNED if first.tuned else "A copy with its weights: one of the two can be trained longer")
        _download(first)
        _delete(chosen)
    if message := pop_flash("runs"):
        st.error(plain(message))


def name(item: RunSummary) -> None:
    """The field for a run's name; a named run stays longer when room is needed."""
    key = f"runs:name:{item.run.id}"

    def take() -> None:
        item.run.update_metadata(name=st.session_state[key].strip()[:LONGEST_NAME] or None)

    st.text_input("Name", item.name if item.named else "", key=key, max_chars=LONGEST_NAME, on_change=take,
                  placeholder=item.name, disabled=item.example,
                  help="An example keeps its name." if item.example else "A named run stays longest.")


def _compare(chosen: Sequence[RunSummary]) -> None:
    target = next((step for step in STEPS if step.key == "compare_runs"), None)
    if target is not None:
        tuned = any(item.tuned for item in chosen)
        st.page_link(target.path, label="Compare", icon=":material/compare:", disabled=len(chosen) > 4 or tuned,
                     query_params={"runs": ",".join(item.run.id for item in chosen)},
                     help=TUNED if tuned else None if 2 <= len(chosen) <= 4 else "Pick two to four runs in the list")


def _fork(item: RunSummary) -> None:
    """Go on from a kept step, perhaps otherwise; the run itself stays as it is."""
    popover = st.popover("Fork", icon=":material/fork_right:", key="runs:fork", on_change="rerun",
                         disabled=not item.checkpoint_steps or item.config is None,
                         help=TUNED if item.tuned else None if item.checkpoint_steps else "It has kept no weights yet.")
    if not popover.open or item.config is None:
        return
    config, own = item.config, f"runs:fork:{item.run.id}"
    with popover:
        st.caption("A new run with this one's past up to a step; from there it trains as you say.")
        step = st.selectbox("From step", item.checkpoint_steps[::-1], key=f"{own}:step",
                            format_func=lambda at: f"{at:,}")
        steps = st.number_input("To step", step + 1, int(BOUNDS["steps"][1]), max(config.steps, 2 * step, step + 100),
                                key=f"{own}:steps:{step}")
        rates = sorted({*RATES, config.learning_rate})
        changes = {
            "learning_rate": st.select_slider("Learning rate", rates, config.learning_rate, key=f"{own}:rate",
                                              format_func=lambda rate: f"{rate:g}"),
            "schedule": st.selectbox("Schedule", SCHEDULES, SCHEDULES.index(config.schedule), key=f"{own}:schedule"),
            "optimizer": st.selectbox("Optimizer", OPTIMIZERS, OPTIMIZERS.index(config.optimizer),
                                      key=f"{own}:optimizer"),
        }
        if st.button("Fork and train", icon=":material/play_arrow:", key="runs:fork:go"):
            _begin(item, step, longer(config, steps, item.trained, **changes))


def longer(config: RunConfig, steps: int, trained: float, **changes: Any) -> RunConfig:
    """The config of a fork: more steps, as many seconds again, and no early end, which it may have passed already."""
    seconds = min(BOUNDS["seconds"][1], config.seconds + 2 * trained)
    return replace(config, steps=int(steps), seconds=float(seconds), finish_early=False, **changes)


def _begin(item: RunSummary, step: int, config: RunConfig) -> None:
    try:
        run = jobs.fork(item.run, step, config, f"{item.plain_name}, from step {step:,}"[:LONGEST_NAME])
    except (jobs.QueueFull, OSError, ValueError) as error:
        st.error(plain(str(error)))
        return
    st.switch_page(page_of("train"), query_params={"run": run.id})


def _duplicate(item: RunSummary) -> None:
    def make() -> None:
        prune(MAX_RUNS - 1, most=most_bytes() - item.bytes)
        select([duplicate(item.run, f"{item.plain_name}, copy").id])

    _try(make)


def _download(item: RunSummary) -> None:
    """The zip is made when it is asked for."""
    st.download_button("Download", lambda: archive.pack(item.run), f"{item.run.id}.zip", "application/zip",
                       icon=":material/download:", key=f"runs:download:{item.run.id}", on_click="ignore",
                       disabled=item.config is None,
                       help=TUNED if item.tuned else "One zip: settings, every record, maps and weights")


def _delete(chosen: Sequence[RunSummary]) -> None:
    own = [item for item in chosen if not item.example and not item.live]
    why = "" if own else "An example stays." if chosen[0].example else "Stop it first."
    # A popover of its own for what is picked: one that stayed open would hold the button that deletes the next run.
    key = f"runs:delete:{chosen[0].run.id}:{len(chosen)}"
    popover = st.popover("Delete", icon=":material/delete:", key=key, disabled=not own, help=why or None)
    with popover:
        st.markdown(f"Delete {_several(own)}?" if own else "")
        st.caption("It can be brought back for an hour.")
        st.button("Delete", key="runs:delete:go", on_click=_discard, args=(own,))


def _several(items: Sequence[RunSummary]) -> str:
    return f"**{plain(items[0].name)}**" if len(items) == 1 else f"these {len(items)} runs"


def _discard(items: Sequence[RunSummary]) -> None:
    def make() -> None:
        for item in items:
            discard(item.run)
        st.session_state[DELETED] = [(item.run.id, item.name) for item in items]
        select([])

    _try(make)


def undo() -> None:
    """After a deletion: what went, and the button that brings it back."""
    deleted = st.session_state.get(DELETED)
    if not deleted:
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.caption(f"Deleted {plain(deleted[0][1])}." if len(deleted) == 1 else f"Deleted {len(deleted)} runs.")
        st.button("Bring back", icon=":material/undo:", key="runs:undo", on_click=_bring_back, args=(deleted,))


def _bring_back(deleted: Sequence[tuple[str, str]]) -> None:
    def make() -> None:
        restored = [run_id for run_id, _ in deleted if restore(run_id) is not None]
        st.session_state.pop(DELETED)
        select(restored)
        if len(restored) < len(deleted):
            flash("runs", "The room was needed: not every deleted run could be brought back.")

    _try(make)


def upload() -> None:
    """A zip that someone downloaded; what is wrong with it is said here."""
    popover = st.popover("Upload", icon=":material/upload:", key="runs:upload", width="stretch")
    with popover:
        count = st.session_state.setdefault(UPLOADS, 0)
        given = st.file_uploader("A run as a zip", "zip", key=f"runs:upload:{count}",
                                 max_upload_size=archive.MOST_ZIPPED // 1_000_000)
        st.caption(f"As Download gives it: at most {byte_size(archive.MOST_ZIPPED)}, "
                   f"{byte_size(archive.MOST_UNPACKED)} unpacked. Every file is checked before it is read; "
                   "nothing in it is executed.")
        if given is None:
            return
        try:
            prune(MAX_RUNS - 1, most=most_bytes() - archive.MOST_UNPACKED)
            run = archive.unpack(given)
        except (ValueError, OSError) as error:
            st.error(plain(str(error)))
            return
    st.session_state[UPLOADS] = count + 1  # an empty field again
    select([run.id])
    st.rerun()


def _try(make: Callable[[], None]) -> None:
    """Run an action; its error is shown under the buttons."""
    flash_errors("runs", "", make, ConfigError, OSError, ValueError)
