"""The actions on runs: name, open, compare, fork, duplicate, download, delete and upload."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import streamlit as st

from core.attention import ConfigError
from core.files import sentence_of, zip_of
from core.pretrained.finetune_run import result
from core.runs import archive
from core.runs.runs import LONGEST_NAME, discard, restore
from core.runs.tensorboard import tensorboard_zip
from core.tasks import make_task
from core.training.config import OPTIMIZERS, SCHEDULES, RunConfig
from dashboard.draw.formats import byte_size
from dashboard.navigation import PAGES, STEPS
from dashboard.runtime import jobs
from dashboard.runtime.link_values import between, link_value, one_of
from dashboard.runtime.run_data import RunSummary, copy_run
from dashboard.server import people
from dashboard.server.limits import MB, admit_upload, at_most, make_room, most_seconds, most_steps
from dashboard.ui.progress import flash, flash_errors, pop_flash
from dashboard.views.runs.controls import select
from dashboard.widgets.panels import plain

FINE_TUNED = (
    "This is a fine-tuned pretrained model. Open it on Fine-tune; the model is in the run's folder."
)
DELETED, UPLOADS = "runs:deleted", "runs:uploads"
RATES = (1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 3e-3, 5e-3, 1e-2, 2e-2)


def actions(selected: Sequence[RunSummary]) -> None:
    """The row of buttons for the selected runs; several can be compared or deleted together."""
    first = selected[0]
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        file = "train.py" if first.tuned is None else "fine_tune.py"
        title = next(step.title for step in STEPS if step.path.name == file)
        st.page_link(
            PAGES / file,
            label="Open",
            icon=":material/play_circle:",
            disabled=bool(first.trouble),
            query_params={"run": first.run.id},
            help=f"Open the page {title} with this run and its settings",
        )
        tuned, count = any(item.tuned for item in selected), len(selected)
        st.page_link(
            PAGES / "compare_runs.py",
            label="Compare",
            icon=":material/compare:",
            disabled=count > 4 or tuned,
            query_params={"runs": ",".join(item.run.id for item in selected)},
            help=FINE_TUNED
            if tuned
            else None
            if 2 <= count <= 4
            else "Select two to four runs in the list",
        )
        _fork(first)
        st.button(
            "Duplicate",
            icon=":material/content_copy:",
            key="runs:duplicate",
            on_click=_duplicate,
            args=(first,),
            disabled=first.config is None,
            help=FINE_TUNED
            if first.tuned
            else "Copy the run with its weights, such as to train the copy longer",
        )
        model = result(first.run) if first.tuned else None
        st.download_button(
            "Download",
            lambda: zip_of(model) if model else archive.pack(first.run),
            f"{first.run.id}.zip",
            "application/zip",
            icon=":material/download:",
            key=f"runs:download:{first.run.id}",
            on_click="ignore",
            disabled=first.config is None and model is None,
            help="A zip file of the fine-tuned model, a folder for transformers"
            if first.tuned
            else "A zip file of settings, records, maps and weights",
        )
        _other_formats(first)
        items = [
            item
            for item in selected
            if not item.example and not item.live and people.mine(item.run)
        ]
        reason = (
            None
            if items
            else "An example cannot be deleted."
            if selected[0].example
            else "Stop the run first."
        )
        # Each selection has another popover: one that stayed open would hold the button that deletes the next run.
        key = f"runs:delete:{selected[0].run.id}:{len(selected)}"
        with st.popover(
            "Delete", icon=":material/delete:", key=key, disabled=not items, help=reason
        ):
            names = f"**{plain(items[0].name)}**" if len(items) == 1 else f"these {len(items)} runs"
            st.markdown(f"Delete {names}?" if items else "")
            st.caption("You can restore it for an hour.")
            st.button("Delete", key="runs:delete:go", on_click=_discard, args=(items,))
    if message := pop_flash("runs"):
        st.error(plain(message))


def name(item: RunSummary) -> None:
    """The field for a run's name."""
    key = f"runs:name:{item.run.id}"

    def rename() -> None:
        if people.mine(item.run):
            _try(
                lambda: item.run.update_metadata(
                    name=st.session_state[key].strip()[:LONGEST_NAME] or None
                )
            )

    st.text_input(
        "Name",
        item.name if item.named else "",
        key=key,
        max_chars=LONGEST_NAME,
        on_change=rename,
        placeholder=item.name,
        disabled=item.example,
        help="An example cannot be renamed." if item.example else "Named runs are deleted last.",
    )


def _fork(item: RunSummary) -> None:
    """A popover that trains a new run from a saved step of this one, perhaps with another optimizer."""
    missing = (
        "Train a new run from a saved step of this one"
        if item.checkpoint_steps
        else "No weights are saved yet."
    )
    popover = st.popover(
        "Fork",
        icon=":material/fork_right:",
        key="runs:fork",
        on_change="rerun",
        disabled=not item.checkpoint_steps or item.config is None,
        help=FINE_TUNED if item.tuned else missing,
    )
    if not popover.open or item.config is None:
        return
    config, key = item.config, f"runs:fork:{item.run.id}"
    with popover:
        st.caption(
            "The new run copies this one up to a saved step and continues training from there with these "
            "settings."
        )
        link_value(f"{key}:step", item.checkpoint_steps[-1], one_of(item.checkpoint_steps))
        step = st.selectbox(
            "From step",
            item.checkpoint_steps[::-1],
            key=f"{key}:step",
            format_func=lambda step: f"{step:,}",
            help="The saved weights with which the fork starts.",
        )
        most = most_steps()
        usual = min(most, max(config.steps, 2 * step, step + 100))
        link_value(f"{key}:steps:{step}", usual, between(step + 1, most))
        steps = st.number_input(
            "To step",
            step + 1,
            most,
            usual,
            key=f"{key}:steps:{step}",
            help="The last training step of the fork.",
        )
        rates = sorted({*RATES, config.learning_rate})
        link_value(f"{key}:rate", config.learning_rate, one_of(rates))
        rate = st.select_slider(
            "Learning rate",
            rates,
            config.learning_rate,
            key=f"{key}:rate",
            format_func=lambda rate: f"{rate:g}",
            help="The size of each update of the weights.",
        )
        link_value(f"{key}:schedule", config.schedule, one_of(SCHEDULES))
        schedule = st.selectbox(
            "Learning rate schedule",
            SCHEDULES,
            SCHEDULES.index(config.schedule),
            key=f"{key}:schedule",
            help="How the learning rate changes after the warm-up.",
        )
        link_value(f"{key}:optimizer", config.optimizer, one_of(OPTIMIZERS))
        optimizer = st.selectbox(
            "Optimizer",
            OPTIMIZERS,
            OPTIMIZERS.index(config.optimizer),
            key=f"{key}:optimizer",
            help="The rule by which gradients change the weights.",
        )
        if st.button("Fork and train", icon=":material/play_arrow:", key="runs:fork:go"):
            _start_fork(
                item,
                step,
                longer(
                    config,
                    steps,
                    item.trained,
                    learning_rate=rate,
                    schedule=schedule,
                    optimizer=optimizer,
                ),
            )


def longer(config: RunConfig, steps: int, trained: float, **changes: Any) -> RunConfig:
    """The config of a fork: more steps, as many seconds again, and no early end, which it may have passed already."""
    seconds = min(most_seconds(), config.seconds + 2 * trained)
    return replace(config, steps=int(steps), seconds=float(seconds), finish_early=False, **changes)


def _start_fork(item: RunSummary, step: int, config: RunConfig) -> None:
    try:
        run = jobs.fork(
            item.run, step, config, f"{item.plain_name}, from step {step:,}"[:LONGEST_NAME]
        )
    except (jobs.QueueFull, OSError, ValueError) as error:
        st.error(plain(sentence_of(error)))
        return
    st.switch_page(PAGES / "train.py", query_params={"run": run.id})


def _other_formats(item: RunSummary) -> None:
    """A popover with the run as files of other programs."""
    popover = st.popover(
        "Other formats",
        icon=":material/ios_share:",
        key="runs:formats",
        on_change="rerun",
        disabled=bool(item.trouble),
        help="The run for TensorBoard or for Hugging Face transformers",
    )
    if not popover.open:
        return
    with popover:
        st.download_button(
            "TensorBoard",
            lambda: tensorboard_zip(item.run),
            f"{item.run.id}-tensorboard.zip",
            "application/zip",
            key="runs:tensorboard",
            on_click="ignore",
            disabled=not item.curve,
            help="The curves and the attention maps as event files, zipped. Unpack them and run "
            "`tensorboard --logdir` with their folder.",
        )
        reason = hf_problem(item)
        st.download_button(
            "Hugging Face",
            lambda: _hf_zip(item),
            f"{item.run.id}-hugging-face.zip",
            "application/zip",
            key="runs:hugging_face",
            on_click="ignore",
            disabled=bool(reason),
            help="Config, weights, tokenizer and a model card, zipped: a folder for transformers.",
        )
        if reason:
            st.caption(plain(reason))


def hf_problem(item: RunSummary) -> str:
    """Why no class of transformers can take the run's model; empty where one can."""
    from core.pretrained.base import PretrainedError  # here and below: first sight needs neither
    from core.pretrained.hf_conversion import conversion_of

    if item.tuned:
        return "A fine-tuned model is a Hugging Face folder already, in the folder of its run."
    if not item.checkpoint_steps or item.config is None:
        return "No weights are saved yet."
    try:
        conversion_of(item.config.model, make_task(item.config.task).shape)
    except (PretrainedError, ConfigError, ValueError) as error:
        return str(error)
    return ""


def _hf_zip(item: RunSummary) -> bytes:
    from core.pretrained.export import export_zip

    return export_zip(item.run)


def _duplicate(item: RunSummary) -> None:
    def make() -> None:
        select([copy_run(item.run, f"{item.plain_name}, copy").id])

    _try(make)


def _discard(items: Sequence[RunSummary]) -> None:
    def make() -> None:
        for item in items:
            if people.mine(item.run):
                discard(item.run)
        st.session_state[DELETED] = [(item.run.id, item.name) for item in items]
        select([])

    _try(make)


def undo() -> None:
    """After a deletion: the deleted runs, and the button that restores them."""
    deleted = st.session_state.get(DELETED)
    if not deleted:
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.caption(
            f"Deleted {plain(deleted[0][1])}."
            if len(deleted) == 1
            else f"Deleted {len(deleted)} runs."
        )
        st.button(
            "Restore", icon=":material/undo:", key="runs:undo", on_click=_restore, args=(deleted,)
        )


def _restore(deleted: Sequence[tuple[str, str]]) -> None:
    def make() -> None:
        restored = [run_id for run_id, _ in deleted if restore(run_id) is not None]
        st.session_state.pop(DELETED)
        select(restored)
        if len(restored) < len(deleted):
            flash("runs", "Not every deleted run could be restored: its disk space was needed.")

    _try(make)


def upload() -> None:
    """A popover that takes a run as a zip, or shows what is wrong with it."""
    with st.popover(
        "Upload",
        icon=":material/upload:",
        key="runs:upload",
        width="stretch",
        help="Add a run from a zip file.",
    ):
        count = st.session_state.setdefault(UPLOADS, 0)
        zipped = at_most("upload_megabytes", archive.MOST_ZIPPED // MB)
        unpacked = MB * at_most("unpacked_megabytes", archive.MOST_UNPACKED // MB)
        file = st.file_uploader(
            "Zip file of a run",
            "zip",
            key=f"runs:upload:{count}",
            help="A file made by Download.",
            max_upload_size=zipped,
        )
        st.caption(
            f"At most {byte_size(zipped * MB)}, {byte_size(unpacked)} unpacked. Every file "
            "is checked before it is read. Nothing in it is executed."
        )
        if file is None:
            return
        try:
            admit_upload(file)
            make_room(unpacked)
            run = archive.unpack(file, most=unpacked)
        except (ValueError, OSError) as error:
            st.error(plain(sentence_of(error)))
            return
    st.session_state[UPLOADS] = count + 1  # an empty field again
    select([run.id])
    st.rerun()


def _try(make: Callable[[], None]) -> None:
    """Run an action; its error is shown under the buttons."""
    flash_errors("runs", "", make, ConfigError, OSError, ValueError)
