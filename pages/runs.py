"""Runs: everything that was trained here, to find, name, fork, compare, take away and bring in."""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

import dashboard.page as lab
from core.attention import ConfigError
from core.files import hosted, sentence_of, zip_of
from core.interpret.trace import AttentionMap, AttentionTrace
from core.pretrained.finetune_run import result
from core.runs import archive
from core.runs.machine import line
from core.runs.runs import GRACE, LONGEST_NAME, MAX_RUNS, discard, max_disk_bytes, restore
from core.runs.store import StoreError, bring, copier
from core.studies.runs import RunData, RunSummary, records_of
from core.tasks import make_task
from core.training import OPTIMIZERS, SCHEDULES
from core.training.watch import WatchedModel
from dashboard.draw import runs as draw

# The controls of Runs: the search, and the selected runs, which are in the link.


MAX_SELECTED = 20
ROWS = 50  # rows of the list at once
COMPARED = lab.SessionValue("", "compare_runs:runs")  # with which Compare runs opens


def of_fork(name: str) -> Callable[[Any], str]:
    return lambda c: f"fork:{c.item.run.id}:{name}"


class Controls(lab.Fields, page="runs"):
    selected = lab.RunsField("run")
    deleted = lab.SessionValue[list[tuple[str, str]]]([])  # the ids and names of runs to restore
    page = lab.LinkedValue(1)  # of the list
    uploads = lab.SessionValue(0)  # the number of the uploader: each file has another, empty one
    search = lab.Text(
        "Search",
        also={
            "live": True,
            "icon": ":material/search:",
            "max_chars": 200,
            "placeholder": "name, task, model or state",
            "label_visibility": "collapsed",
        },
        help="Words in the name, task, model, optimizer or state of a run.",
    )
    step = lab.Select[int](
        "From step",
        lambda c: c.item.checkpoint_steps[::-1],
        text="{:,}".format,
        key=of_fork("step"),
        hidden=True,
        help="The saved weights with which the fork starts.",
    )
    steps = lab.Number[int](
        "To step",
        lambda c: min(
            lab.limits.max_run_steps(), max(c.item.config.steps, 2 * c.step, c.step + 100)
        ),
        lambda c: c.step + 1,
        lambda c: lab.limits.max_run_steps(),
        key=lambda c: f"fork:{c.item.run.id}:steps:{c.step}",
        hidden=True,
        help="The last training step of the fork.",
    )
    rate = lab.SelectSlider[float](
        "Learning rate",
        lambda c: sorted(
            {1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 3e-3, 5e-3, 1e-2, 2e-2, c.item.config.learning_rate}
        ),
        lambda c: c.item.config.learning_rate,
        text="{:g}".format,
        key=of_fork("rate"),
        hidden=True,
        help="The size of each update of the weights.",
    )
    schedule = lab.Select(
        "Learning rate schedule",
        SCHEDULES,
        lambda c: c.item.config.schedule,
        key=of_fork("schedule"),
        hidden=True,
        help="How the learning rate changes after the warm-up.",
    )
    optimizer = lab.Select(
        "Optimizer",
        OPTIMIZERS,
        lambda c: c.item.config.optimizer,
        key=of_fork("optimizer"),
        hidden=True,
        help="The rule by which gradients change the weights.",
    )
    data: RunData  # of a watched run
    model: WatchedModel
    heads: Sequence[int]
    layer = lab.Select[tuple[int, int]](
        "Layer",
        lambda c: {
            (at, layer): name
            for at, group in enumerate(c.model.groups)
            for layer, name in enumerate(group.layers)
        },
        key=lambda c: f"layer:{c.data.run.id}",
        hidden=True,
        help="The module whose attention is drawn.",
    )
    head = lab.Select[int](
        "Head",
        lambda c: {at: f"head {head}" for at, head in enumerate(c.heads)},
        key=lambda c: f"head:{c.data.run.id}:{c.layer}",
        hidden=True,
        help="One head of that layer.",
    )
    name = lab.Text(
        "Name",
        lambda c: c.item.name if c.item.named else "",
        key=lambda c: f"name:{c.item.run.id}",
        of=lambda c: c.item.name,
        also=lambda c: {
            "bind": None,
            "max_chars": LONGEST_NAME,
            "on_change": rename,
            "args": (c.item,),
            "placeholder": c.item.name,
            "disabled": c.item.example,
        },
        help=lambda c: (
            "An example cannot be renamed." if c.item.example else "Named runs are deleted last."
        ),
    )
    stored = lab.Select[str](
        "Run in the store",
        lambda c: c.rows,
        key="stored:run",
        also={"bind": None},
        help="The newest come first.",
    )


def select(ids: Sequence[str]) -> None:
    Controls.selected.write(ids[:MAX_SELECTED])


def _saying_errors(act: Callable[..., object]) -> Callable[..., Any]:
    """A callback whose error is shown under the buttons."""
    return lambda *args: lab.flash_errors(
        "runs", "", partial(act, *args), ConfigError, OSError, ValueError
    )


@_saying_errors
def rename(item: RunSummary) -> None:
    if lab.limits.mine(item.run):
        name = Controls.read("name", item=item).name
        item.run.update_metadata(name=name.strip()[:LONGEST_NAME] or None)


# The actions on runs: name, open, compare, fork, duplicate, download, delete and upload.


FINE_TUNED = (
    "This is a fine-tuned pretrained model. Open it on Fine-tune; the model is in the run's folder."
)
WATCHED = "This run is watched in a loop of its own: the lab has its numbers and maps, not its settings and weights."


def actions(selected: Sequence[RunSummary]) -> None:
    first, count = selected[0], len(selected)
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        step = lab.step_of("train" if first.tuned is None else "fine_tune")
        st.page_link(
            step.page(),
            label="Open",
            icon=":material/play_circle:",
            disabled=bool(first.trouble or first.watched),
            query_params={"run": first.run.id},
            help=WATCHED
            if first.watched
            else f"Open the page {step.title} with this run and its settings",
        )
        tuned = any(item.tuned for item in selected)
        st.page_link(
            lab.step_of("compare_runs").page(),
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
        model = result(first.run) if first.tuned else None
        st.download_button(
            "Download",
            lambda: zip_of(model) if model else archive.pack(first.run),
            f"{first.run.id}.zip",
            "application/zip",
            icon=":material/download:",
            key=f"runs:download:{first.run.id}",
            on_click="ignore",
            disabled=not (first.config or first.watched or model),
            help="A zip file of the fine-tuned model, a folder for transformers"
            if first.tuned
            else "A zip file of records and maps"
            if first.watched
            else "A zip file of settings, records, maps and weights",
        )
        # Each selection has another popover: one that stayed open would hold the button that deletes the next run.
        with st.popover("More", icon=":material/tune:", key=f"runs:more:{first.run.id}:{count}"):
            _more(first, selected)
    if message := lab.pop_flash("runs"):
        st.error(lab.plain(message))


def _more(first: RunSummary, selected: Sequence[RunSummary]) -> None:
    """What is done seldom: the name of the first selected run, its copy and formats, and the end of all selected."""
    Controls.draw("name", into=lab.HERE, item=first)
    st.button(
        "Duplicate",
        icon=":material/content_copy:",
        key="runs:duplicate",
        on_click=_saying_errors(
            lambda: select([lab.copy_run(first.run, f"{first.plain_name}, copy").id])
        ),
        disabled=first.config is None,
        help=FINE_TUNED
        if first.tuned
        else WATCHED
        if first.watched
        else "Copy the run with its weights, such as to train the copy longer",
    )
    if not first.trouble:
        lab.details("TensorBoard and Hugging Face", partial(_other_formats, first), "runs:formats")
    items = [
        item for item in selected if not (item.example or item.live) and lab.limits.mine(item.run)
    ]
    ours = "Close its watcher first." if first.watched else "Stop the run first."
    reason = "An example cannot be deleted." if first.example else ours
    st.button(
        f"Delete {len(items)} runs" if items[1:] else "Delete",
        icon=":material/delete:",
        key="runs:delete:go",
        on_click=_discard,
        args=(items,),
        disabled=not items,
        help=f"You can restore it for {GRACE / 3600:.0f} hour." if items else reason,
    )


def _fork(item: RunSummary) -> None:
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
        help=FINE_TUNED if item.tuned else WATCHED if item.watched else missing,
    )
    if not popover.open or item.config is None:
        return
    with popover:
        st.caption(
            "The new run copies this one up to a saved step and continues training from there with these "
            "settings."
        )
        fields = "step", "steps", "rate", "schedule", "optimizer"
        controls = Controls.draw(*fields, into=lab.HERE, item=item)
        if st.button("Fork and train", icon=":material/play_arrow:", key="runs:fork:go"):
            try:
                now = replace(
                    item.config,
                    learning_rate=controls.rate,
                    schedule=controls.schedule,
                    optimizer=controls.optimizer,
                    **lab.longer(item.config, controls.steps, 2 * item.train_seconds),
                )
                run = lab.queue.fork(
                    item.run,
                    controls.step,
                    now,
                    f"{item.plain_name}, from step {controls.step:,}"[:LONGEST_NAME],
                )
            except (lab.limits.QueueFull, OSError, ValueError) as error:
                st.error(lab.plain(sentence_of(error)))
                return
            st.switch_page(lab.step_of("train").page(), query_params={"run": run.id})


def _other_formats(item: RunSummary) -> None:
    from core.pretrained.export import export_zip

    reason = hf_problem(item)
    for label, make, disabled, help in (
        (
            "TensorBoard",
            archive.tensorboard_zip,
            not item.curve,
            "The curves and the attention maps as event files, zipped. Unpack them and run "
            "`tensorboard --logdir` with their folder.",
        ),
        (
            "Hugging Face",
            export_zip,
            bool(reason),
            "Config, weights, tokenizer and a model card, zipped: a folder for transformers.",
        ),
    ):
        name = label.lower().replace(" ", "-")
        st.download_button(
            label,
            partial(make, item.run),
            f"{item.run.id}-{name}.zip",
            "application/zip",
            key=f"runs:{name.replace('-', '_')}",
            on_click="ignore",
            disabled=disabled,
            help=help,
        )
    if reason:
        st.caption(lab.plain(reason))


def hf_problem(item: RunSummary) -> str:
    """Why no class of transformers can take the run's model; empty where one can."""
    from core.pretrained.base import PretrainedError
    from core.pretrained.hf_conversion import conversion_of

    if item.tuned:
        return "A fine-tuned model is a Hugging Face folder already, in the folder of its run."
    if item.watched:
        return WATCHED
    if not item.checkpoint_steps or item.config is None:
        return "No weights are saved yet."
    try:
        conversion_of(item.config.model, make_task(item.config.task).shape)
    except (PretrainedError, ValueError) as error:
        return str(error)
    return ""


@_saying_errors
def _discard(items: Sequence[RunSummary]) -> None:
    for run in filter(lab.limits.mine, (item.run for item in items)):
        discard(run)
    Controls.deleted.value = [(item.run.id, item.name) for item in items]
    select([])


@_saying_errors
def _restore(deleted: Sequence[tuple[str, str]]) -> None:
    restored = [run_id for run_id, _ in deleted if restore(run_id) is not None]
    Controls.deleted.value = []
    select(restored)
    if len(restored) < len(deleted):
        lab.flash("runs", "Not every deleted run could be restored: its disk space was needed.")


def upload(cell: st.delta_generator.DeltaGenerator) -> None:
    with cell.popover(
        "Upload",
        icon=":material/upload:",
        key="runs:upload",
        width="stretch",
        help="Add a run from a zip file.",
    ):
        zipped = lab.visitors.at_most("upload_megabytes", archive.MAX_ZIPPED // lab.visitors.MB)
        unpacked = lab.visitors.MB * lab.visitors.at_most(
            "unpacked_megabytes", archive.MAX_UNPACKED // lab.visitors.MB
        )
        file = st.file_uploader(
            "Zip file of a run",
            "zip",
            key=f"runs:upload:{Controls.uploads.value}",
            help="A file made by Download.",
            max_upload_size=zipped,
        )
        st.caption(
            f"At most {lab.byte_size(zipped * lab.visitors.MB)}, {lab.byte_size(unpacked)} unpacked. Every file "
            "is checked before it is read. Nothing in it is executed."
        )
        if file is None:
            return
        try:
            lab.limits.admit_upload(file)
            lab.limits.make_room(unpacked)
            select([archive.unpack(file, max_bytes=unpacked).id])
        except (ValueError, OSError) as error:
            st.error(lab.plain(sentence_of(error)))
            return
    Controls.uploads.value += 1
    st.rerun()


def space_text(board: lab.Board) -> str:
    """The disk space, and which runs are deleted when it is full."""
    own = f"{lab.plural(board.own, 'run')} of your own" if board.own else "No runs of your own yet"
    return (
        f"{own}, {lab.byte_size(board.bytes)} of "
        f"{lab.byte_size(lab.visitors.at_most('megabytes', max_disk_bytes() // lab.visitors.MB) * lab.visitors.MB)}. "
        f"At most {lab.visitors.at_most('runs', MAX_RUNS):,} are "
        "stored; at the limit, the oldest unnamed runs are deleted. A deleted run can be restored for "
        f"{GRACE / 3600:.0f} hour."
    )


def about_text(item: RunSummary) -> str:
    count, metadata = len(item.checkpoint_steps), item.run.metadata()
    machine = line(metadata.get("machines"))
    parts = (
        item.status.message or draw.state_text(item),
        count and f"weights saved at {count} step{'s' if count != 1 else ''}",
        item.parent and f"forked from {item.parent}",
        machine and f"trained on {machine}",
        lab.queue.node_text(metadata),
        lab.byte_size(item.bytes),
    )
    return " · ".join(str(part).rstrip(".") for part in parts if part) + "."


# The page Runs: a search, the list of runs, and the selected run with its curves and actions.


def page() -> None:
    lab.title(
        "Runs",
        f"Each row is a model that {'you' if hosted() else 'this machine'} trained, or an example: select one to see how "
        "it learned.",
    )
    search_cell, upload_cell = st.columns([0.78, 0.22], gap="small", vertical_alignment="bottom")
    query = Controls.draw("search", into=search_cell).search
    upload(upload_cell)

    def load() -> lab.Board:
        return lab.load_board(query, Controls.selected.ids[:MAX_SELECTED])

    first = [load()]  # which the first drawing takes
    with lab.figures_place("runs"):
        lab.poll(
            lambda: first.pop() if first else load(),
            partial(_board, query),
            first[0].live,
            "runs:board",
            interval=lab.SLOW_POLL_INTERVAL,
            # a loop of one's own may begin to be watched at any time
            idle=None if hosted() else lab.IDLE_POLL_INTERVAL,
        )
    draw_store()
    if hosted():
        # Draw the rule by which things are forgotten, and the button
        now = lab.visitors.limits()
        known = (
            "A cookie with a random number knows this browser again"
            if lab.visitors.cookie()
            else "This browser sends no cookie, so that a reload makes you another person, without these runs"
        )
        lab.paragraph(
            "This is a public copy of the lab. Nobody else sees your runs, except where you give them a link: then "
            f"they can look at that run and copy it. You have {lab.byte_size(now['megabytes'] * lab.visitors.MB)} for "
            f"runs, reports and data, and {now['uploads']} uploads an hour of at most "
            f"{lab.byte_size(now['upload_megabytes'] * lab.visitors.MB)}. "
            f"All is deleted {now['hours']} h after your last visit and your last run: download what you want to keep. "
            f"{known}."
        )
        with st.popover(
            "Delete everything of mine",
            icon=":material/delete_forever:",
            key="runs:everything",
            help="Your runs, sweeps, measurements, reports and data on this server.",
        ):
            st.markdown(
                "Delete all your runs, sweeps, measurements, reports and data? This cannot be undone."
            )
            st.button(
                "Delete everything",
                key="runs:everything:go",
                on_click=_delete,
                help="What trains for you ends at once.",
            )

    def about() -> None:
        lab.paragraph(space_text(load()))
        lab.source_panel(archive.unpack)

    lab.details("Disk space, and how an upload is checked", about, "runs:source")


def _board(query: str, board: lab.Board) -> None:
    if deleted := Controls.deleted.value:
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.caption(
                f"Deleted {lab.plain(deleted[0][1]) if len(deleted) == 1 else f'{len(deleted)} runs'}."
            )
            st.button(
                "Restore",
                icon=":material/undo:",
                key="runs:undo",
                on_click=_restore,
                args=(deleted,),
            )
    if count := board.missing:
        runs = "A run in the link is" if count == 1 else f"{count} runs in the link are"
        st.warning(f"{runs} not on this machine, or {'was' if count == 1 else 'were'} deleted.")
    if board.ids:
        page, pages = 1, -(-len(board.ids) // ROWS)
        if pages > 1:
            Controls.page.value = min(Controls.page.linked(lab.between(1, pages)), pages)
            page = st.pagination(pages, key=Controls.page.key, **lab.KEEP)
        ids, selected = board.ids[(page - 1) * ROWS : page * ROWS], board.selected
        run_list(list(map(lab.summary_of, ids)), selected, len(board.ids))
        # The first selected run, and the actions on all selected runs
        first = selected[0]
        if 2 <= len(selected) <= 4:
            COMPARED.value = ",".join(item.run.id for item in selected)
        actions(selected)
        lab.warn_of_damage(first.run)
        if first.trouble:
            st.error(lab.plain(first.trouble))
        elif records_of(first.run):
            _curves(first)
            lab.fact(draw.fact_text(selected, board.others))
            if first.watched:
                watched_maps(RunData.of(first.run), first.watched)
        else:
            st.caption("This run has no measurements yet.")
        lab.caption(lab.plain(about_text(first)))
    else:
        st.info(
            f"No run matches “{lab.plain(query)}” in its name, task, model or state.",
            icon=":material/search_off:",
        )
    if board.unread:
        st.caption(
            f"The list is being read again: a search does not find {board.unread:,} of the older runs yet."
        )
    if (cluster := lab.queue.cluster_state()) is not None:
        st.caption(draw.cluster_text(cluster))


def _curves(item: RunSummary) -> None:
    lab.as_python(table=lab.records_table(item.run), draw={"runs:loss": lab.DRAW_LOSSES})
    records = records_of(item.run)
    last = max(records[-1].step, item.planned_steps if item.live else 0)
    left, right = st.columns(2, gap="medium")
    lab.draw_curves(
        left,
        f"{'Training loss' if item.loss_name == 'training loss' else 'Loss'} of {lab.plain(item.name)}",
        lab.loss_curves(records),
        last_x=last,
        height=170,
        key="runs:loss",
        alt=f"Validation and training loss of {item.name} over {last:,} steps",
    )
    if item.watched:
        norms = lab.Curve("all weights", lab.points(records, "gradient"))
        lab.draw_curves(
            right,
            "Gradient norm",
            [norms],
            last_x=last,
            height=170,
            key="runs:right",
            alt=f"Gradient norm of {item.name} over {last:,} steps",
        )
        return
    shares = [
        lab.Curve(name.replace("_", " "), lab.points(records, name, 100))
        for name in ("sequence_accuracy", "token_accuracy", "error")
    ]
    lab.draw_curves(
        right,
        "Validation accuracy"
        if item.last is None or item.last.error is None
        else "Validation error, relative to repeating the last season",
        shares,
        last_x=last,
        high=None if shares[2].defined_points() else 100,
        percent=True,
        height=170,
        key="runs:right",
        alt=f"Validation result of {item.name} over {last:,} steps",
    )


def watched_maps(data: RunData, model: WatchedModel) -> None:
    """The maps of a watched model over its steps, a head at a time, and the gradient norm of each part."""
    left, right = st.columns(2, gap="medium")
    record = next((one for one in reversed(data.records) if one.gradients), None)
    if record is not None:
        lab.draw_chart(
            right,
            draw.norms_chart(record.gradients, lab.Ink.of(lab.theme())),
            key="runs:parts",
            alt="Gradient norm of each part of the model.",
            heading=f"Gradient norm by part, step {record.step:,} (logarithmic)",
        )
    with left:
        for note in model.notes:
            st.caption(lab.plain(note))
        if not data.steps or not model.groups:
            st.caption("No maps are saved.")
            return
        row = st.container(horizontal=True, gap="small")
        c = Controls.draw("layer", into=row, data=data, model=model)
        c = c.draw_more("head", into=row, heads=model.groups[c.layer[0]].heads)
        (at, layer), group = c.layer, model.groups[c.layer[0]]
        frames = lab.head_over_time(data.run, data.steps, at, group.kind, layer, c.head)
        if not frames:
            st.caption("The last saved maps have another size, or hold NaN.")
            return
        shown = np.broadcast_to(frames[-1][1], (len(group.heads), *frames[-1][1].shape))
        mask = np.tri(len(group.rows), dtype=bool)[None] if group.kind == "causal" else None
        maps = AttentionMap(group.kind, 0, shown, group.rows, group.columns, mask)
        lab.attention_view(
            AttentionTrace((maps,), data.run.id),
            key=f"runs:map:{data.run.id}:{at}:{layer}",
            layout="frames",
            head=c.head,
            frames=frames,
            live=data.live,
            title=f"{group.layers[layer]}, head {group.heads[c.head]}",
            height=300,
        )


def _delete() -> None:
    lab.queue.delete_mine()
    select([])


# The list of runs: a row each, with a small curve of its validation loss; a click selects a row.


def run_list(items: Sequence[RunSummary], selected: Sequence[RunSummary], total: int) -> None:
    ids, column = [item.run.id for item in items], st.column_config
    # Another widget for every list: it selects row numbers, which mean other runs in another list.
    key = f"runs:list:{zlib.crc32(','.join(ids).encode()):x}"

    def write_link() -> None:
        rows = lab.SessionValue[Any](None, key).value.selection.rows
        select([ids[row] for row in rows if row < len(ids)])

    frame = pd.DataFrame(
        {
            "name": draw.names_of(items),
            "sequence_accuracy": [
                None if item.last is None else item.last.sequence_accuracy for item in items
            ],
            "loss": [item.loss for item in items],
            "curve": [list(item.curve) for item in items],
            "steps": [item.steps for item in items],
            "train_seconds": [item.train_seconds for item in items],
            "state": [draw.state_text(item) for item in items],
            "created": [
                datetime.fromtimestamp(item.created, UTC) if item.created else None
                for item in items
            ],
            "size": [item.bytes for item in items],
        }
    )
    st.dataframe(
        frame.style.format(
            {
                "sequence_accuracy": lab.percent,
                "loss": lab.number,
                "train_seconds": lab.duration,
                "size": lab.byte_size,
            },
            na_rep="–",
        ),
        key=key,
        on_select=write_link,
        selection_mode="multi-row",
        hide_index=True,
        placeholder="",
        selection_default={
            "selection": {"rows": [row for row, item in enumerate(items) if item in selected]}
        },
        height=38 + 35 * min(len(items), 8),  # of the head, and of at most eight rows
        row_height=35,
        column_config={
            "name": column.TextColumn("run", pinned=True),  # as wide as the longest
            "sequence_accuracy": column.NumberColumn(
                "accuracy", width=66, help="The share of held-out outputs without an error"
            ),
            "loss": column.NumberColumn(
                "loss",
                width=56,
                help="Validation loss in nats per token; of a watched run without one the training loss",
            ),
            "curve": column.LineChartColumn(
                "loss curve",
                width=76,
                y_min=0,
                color=lab.CATEGORIES[lab.theme()][0],
                help="Validation loss over training",
            ),
            "steps": column.NumberColumn("steps", format="localized", width=54),
            "train_seconds": column.NumberColumn(
                "training", width=66, help="Training time without evaluation"
            ),
            "state": column.TextColumn("state", width=92),
            "created": column.DatetimeColumn("created", format="distance", width=96),
            "size": column.NumberColumn("size", width=60),
        },
        alt=f"{total:,} runs, the newest first; the first here is {items[0].name}: {draw.result_text(items[0])}",
    )


# The store of runs, where there is one: what was copied there, and the runs of other servers, to be fetched.


def draw_store() -> None:
    try:
        if (now := copier()) is None:
            return
        rows = now.elsewhere()
    except StoreError as error:
        st.caption(lab.plain(draw.store_text("", 0, 0, str(error))))
        return
    st.caption(lab.plain(draw.store_text(now.place.label, now.waiting, len(rows), now.trouble)))
    if not rows:
        return
    popover = st.popover(
        "Open from the store",
        icon=":material/cloud_download:",
        key="runs:stored",
        on_change="rerun",
        help="Runs that other servers have copied to the store, or that have left this disk.",
    )
    if popover.open:
        texts = {
            row.id: f"{row.name or row.id} · {lab.STATES.get(row.state, row.state)} · {row.server} · "
            f"{lab.byte_size(row.bytes)}"
            for row in rows[:200]
        }

        @_saying_errors
        def fetch(name: str) -> None:
            bring(name)
            select([name])

        with popover:
            name = Controls.draw("stored", into=lab.HERE, rows=texts).stored
            st.button(
                "Fetch",
                icon=":material/download:",
                key="runs:stored:go",
                on_click=fetch,
                args=(name,),
                help="Copy the run to this machine and select it.",
            )
