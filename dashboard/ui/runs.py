"""Runs on pages: what a folder holds, one line on each, and the controls: start, stop, pause, continue, how far it is."""

import hashlib
import json
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import streamlit as st
from safetensors import SafetensorError, safe_open
from streamlit.delta_generator import DeltaGenerator

from core.attention import ConfigError, entry
from core.entries import quote_name, refuse_if
from core.files import CORPORA, folder_bytes, hosted, runs_folder, seconds_of, text_of
from core.interpret.corpus import (
    Measurement as CorpusMeasurement,
    MeasurementConfig,
    corpora_folder,
)
from core.interpret.pairs import Measurement as PairsMeasurement
from core.interpret.trace import Kind
from core.models import ModelConfig
from core.pretrained import PretrainedError
from core.pretrained.finetune import FineTuneConfig, name_of as pretrained_name
from core.pretrained.finetune_run import about, config_of
from core.runs.folder import DAMAGED, Details, Status, open_index, stamp_of
from core.runs.runs import LISTED, LONGEST_NAME, METRICS, Run, duplicate, list_runs
from core.studies import runs as study
from core.studies.runs import EXAMPLE, RunSummary, RunView, score_of
from core.tasks import TaskConfig, task_entry, task_of
from core.training import KINDS, Record, RunConfig
from core.training.watch import WatchedModel
from dashboard.draw.curves import Curve, legend, step_chart
from dashboard.draw.figures import Ink, split_data
from dashboard.draw.formats import STATES, about_duration, plain, plural
from dashboard.fields.link import LinkedValue, by_history
from dashboard.server import limits, queue, visitors
from dashboard.server.cache import computed
from dashboard.server.calls import recorded, recording
from dashboard.server.session import SessionValue
from dashboard.ui.panels import draw_chart, flash_errors, placeholder, pop_flash, theme

# The example runs that come with the lab; `make example` trains them.


EXAMPLE_FOLDER = Path(__file__).parents[1] / "examples"
ROOT = EXAMPLE_FOLDER.parents[1]
EXAMPLE_RUNS = (Run(EXAMPLE_FOLDER / "example_run"), Run(EXAMPLE_FOLDER / "example_recurrent"))
EXAMPLES = {run.id: run for run in EXAMPLE_RUNS}


def find_any_run(name: object) -> Run | None:
    return EXAMPLES.get(str(name)) or limits.find_run(name)


def path_code(path: Path) -> str:
    """A folder as a script names it: one that came with the lab wherever that is, which `Script.text` imports."""
    return f"lab_path({script_path(path)!r})" if is_of_lab(path) else repr(script_path(path))


def run_code(path: Path) -> str:
    """What a script opens a run or a sweep by: its id where it stands among the runs, else its folder."""
    among = not hosted() and path.is_relative_to(runs_folder())
    return repr(path.stem) if among else path_code(path)


def is_of_lab(path: Path) -> bool:
    return path.is_relative_to(ROOT / "core") or path.is_relative_to(ROOT / "dashboard")


def script_path(path: Path) -> str:
    """A folder that came with the lab from the root of the repository, one of a public copy as its download is
    unpacked, another one from ~ where it is there."""
    if is_of_lab(path):
        return path.relative_to(ROOT).as_posix()
    return limits.below_home(path).as_posix()


# Names of models and of runs.


MODEL_NAMES = {
    "transformer": "Transformer, encoder–decoder",
    "decoder": "Transformer, decoder only",
    "classifier": "Transformer, classifier",
    "one_token": "Classifier, row as one token",
    "forecaster": "Transformer, forecaster",
    "recurrent": "Recurrent, encoder–decoder",
    "hybrid": "Hybrid: LSTM and attention",
    "hierarchical": "Hierarchical classifier",
}
SHORT_NAMES = {
    "transformer": "Transformer",
    "decoder": "decoder only",
    "classifier": "classifier",
    "one_token": "one token",
    "forecaster": "forecaster",
    "recurrent": "recurrent",
    "hybrid": "hybrid",
    "hierarchical": "hierarchical",
}


def model_label(config: ModelConfig) -> str:
    """A model in few words: its kind, and what of its attention is not the default, or how many unlike ones it has."""
    attention, kind = config.attention, SHORT_NAMES[config.kind]
    if (count := len(set(config.pattern))) > 1:
        return f"{kind}, {count} attentions in a pattern"
    if attention is None:
        return f"{kind}, no attention"
    usual = {"score": "scaled_dot", "normalizer": "softmax", "mask": "none", "kernel": "exact"}
    choices = {axis: getattr(attention, axis).key for axis in usual}
    unusual = [entry(axis, choices[axis]).name for axis in usual if choices[axis] != usual[axis]]
    return ", ".join([kind, *(name[0].lower() + name[1:] for name in unusual[:2])])


# Copies of runs: a run of one's own, or that of another person to which one has the link.


def copy_run(run: Run, name: str) -> Run:
    """A copy among the runs of the person who asks. LimitReached, and ConfigError for a run that cannot be read."""
    limits.make_room(folder_bytes(run.path), source=run)
    copied = duplicate(run, name)
    if not limits.mine(run):
        copied.update_metadata(parent=None)  # its id would open another run of that person
    return copied


LAST = "train:last"  # the session's key of LAST_RUN
LAST_RUN = SessionValue[str | None](None, LAST)  # of the link that was drawn before
SETTINGS_OF = SessionValue[str | None](None, "train:settings-of")  # the run that was taken last
EXAMPLE_RUN = EXAMPLE_RUNS[0]


@lru_cache(maxsize=8)
def baselines_of(config: TaskConfig, held_out: int) -> tuple[tuple[str, float], ...]:
    """The accuracy of methods without attention, by name: the majority class, and a baseline fitted once."""
    task = task_of(config)
    majority = task.majority(held_out)
    named = majority and (f"the majority class “{majority[0]}”", majority[1])
    return tuple(each for each in (named, task.baseline()) if each)


def is_example(run: Run) -> bool:
    """Whether it came with the lab."""
    return run.path.is_relative_to(EXAMPLE_FOLDER)


def linked_run() -> Run:
    """The link's run, else the session's last, which is put back into the link unless the reader went back, else the
    example; warns of a link to none."""
    run_id, last = st.query_params.get("run"), LAST_RUN.value
    if run_id is None and last is not None and not by_history() and find_any_run(last) is not None:
        st.query_params["run"] = run_id = last
    LAST_RUN.value = run_id
    if run := find_any_run(run_id or EXAMPLE_RUN.id):
        return run
    st.warning(
        "The run in the link is not on this machine, or was deleted. Below is the example run."
    )
    return EXAMPLE_RUN


def select_run(run: Run) -> None:
    st.query_params["run"] = run.id
    SETTINGS_OF.value = run.id


def select_example() -> None:
    st.query_params.pop("run", None)
    LAST_RUN.pop()


def warn_of_damage(run: Run) -> None:
    if count := study.read_records(run, stamp_of(run.path, (METRICS,)))[1]:
        st.warning(
            f"{plural(count, 'line')} of this run's records changed after they were saved; the figures leave them out."
        )


load_run = study.RunData.of


def records_table(run: Run) -> dict[str, np.ndarray]:
    """The run's table of records, recorded for the page's script."""
    return recorded(study.records_table, (run,), study.records_table(run))


DRAW_LOSSES = """
import altair as alt
import pandas as pd

losses = pd.DataFrame({name: table[name] for name in ("step", "loss", "train_loss") if name in table})
alt.Chart(losses).transform_fold(["loss", "train_loss"]).mark_line(point=True).encode(
    x="step:Q", y="value:Q", color="key:N")
"""


# One line on each run, read again only when its folder has changed.


CURVE = 40  # points of a small curve


def summarize(run: Run) -> RunSummary:
    """Summarize a run; cached until its files change."""
    return _read(run, stamp_of(run.path))


@lru_cache(maxsize=512)
def _read(run: Run, _stamp: str) -> RunSummary:
    metadata, records, trouble = run.metadata(), run.records(), ""
    config: RunConfig | None = None
    tuned: FineTuneConfig | None = None
    watched: WatchedModel | None = None
    usual, task, planned = "unreadable", "–", about(run).get("steps")
    planned = max(planned, 0) if isinstance(planned, int) else 0
    try:
        if run.job == "finetune":
            tuned = config_of(run)
            task = {"classify": "fine-tuned on labels", "pairs": "fine-tuned on pairs"}[tuned.task]
            usual = f"{pretrained_name(tuned.model)}, {task}"
        elif run.job == "watched":
            watched, task = WatchedModel.of(run), "watched"
            usual = f"{watched.model}, watched"
        else:
            config = run.config()
            task, planned = task_entry(config.task.key).name, config.steps
            usual = f"{task}: {model_label(config.model)}{EXAMPLE if run in EXAMPLE_RUNS else ''}"
    except (ConfigError, TypeError, ValueError, KeyError) as error:
        trouble = f"Its settings cannot be read: {error}"
    losses = [record.loss for record in records if record.loss is not None]
    if on_training := watched is not None and not losses:
        losses = [record.train_loss for record in records if record.train_loss is not None]
    name = text_of(metadata.get("name"), LONGEST_NAME)
    parent, sweep = (
        {part: quote_name(origin[part]) if part in origin else "unknown" for part in parts}
        if isinstance(origin := metadata.get(key), dict)
        else None
        for key, parts in (("parent", ("run", "step")), ("sweep", ("id",)))
    )
    ran_free = (r for r in records[::-1] if r.sequence_accuracy is not None or r.error is not None)
    return RunSummary(
        run=run,
        name=name or usual,
        named=bool(name),
        config=config,
        task=task,
        status=run.status(),
        tuned=tuned,
        watched=watched,
        loss_name="training loss" if on_training else "validation loss",
        planned_steps=planned,
        example=run in EXAMPLE_RUNS,
        created=seconds_of(metadata.get("created")),
        steps=records[-1].step if records else 0,
        train_seconds=records[-1].train_seconds if records else 0.0,
        loss=losses[-1] if losses and not (watched and watched.diverged) else None,
        curve=tuple(losses[:: -(-len(losses) // CURVE) or 1]),
        last=next(ran_free, None),
        checkpoint_steps=tuple(run.checkpoint_steps()),
        bytes=folder_bytes(run.path),
        trouble=trouble,
        parent=f"{parent['run']} at step {parent['step']}" if parent else "",
        sweep=f"sweep {sweep['id']}" if sweep else "",
    )


def details_of(run: Run) -> Details:
    item = summarize(run)
    words = [item.name, item.task, STATES.get(item.status.state, ""), item.parent, item.sweep]
    if (config := item.config) is None:
        return Details(" ".join(words).casefold(), measured=bool(item.curve))
    words += [model_label(config.model), config.task.key, config.optimizer, f"seed {config.seed}"]
    return Details(
        " ".join(words).casefold(),
        _digest(config.task.to_json()),
        _digest(config.to_json()),
        None if item.last is None else score_of(item),
        item.train_seconds,
        bool(item.curve),
    )


def _digest(data: object) -> str:
    return hashlib.sha1(json.dumps(data, sort_keys=True).encode()).hexdigest()


def list_summaries() -> list[RunSummary]:
    return [summarize(run) for run in (*reversed(list_runs(latest=LISTED)), *EXAMPLE_RUNS)]


# The search in the list of runs.


@dataclass(frozen=True)
class Board:
    """The ids of the runs that match a search, the newest first, examples last; the selected ones among them, or the
    first that has measured something, and what they are compared with; how many linked runs are missing; and of all
    own runs the number, the bytes, how many the search does not know yet, and whether one has not ended."""

    ids: tuple[str, ...]
    selected: tuple[RunSummary, ...]
    others: tuple[RunSummary, ...]
    missing: int
    own: int
    bytes: int
    unread: int
    live: bool


def load_board(query: str, linked: Sequence[str]) -> Board:
    words = query.casefold().split()
    with open_index(runs_folder()) as index:
        unread = index.fill(lambda name: details_of(Run(index.root / name)))
        texts = {run.id: details_of(run).text for run in EXAMPLE_RUNS}
        examples = [
            name
            for name, text in texts.items()
            if all(word in text or word == name for word in words)
        ]
        ids = (*index.search(words), *examples)
        first = index.first_measured(words) or next(iter(examples or ids), None)
        linked_ids = [name for name in ids if name in set(linked)]
        items = tuple(map(summary_of, linked_ids or [first] if first else ()))
        # the best own run of the first one's task with other settings
        details = details_of(items[0].run) if items else Details("")
        best = index.best(details.task or "", details.config or "")
        return Board(
            ids,
            items,
            tuple(map(summary_of, [best, *texts] if best else texts)),
            len(set(linked) - {*index.rows, *texts}),
            len(index.rows),
            sum(index.sizes().values()),
            unread,
            bool(unread or index.unfinished()),
        )


def summary_of(run_id: str) -> RunSummary:
    return summarize(EXAMPLES.get(run_id) or Run(runs_folder() / run_id))


# The attention maps that a run saved, one head of one example at a time, and their tokens.


KIND_NAMES = {
    "cross": "Cross-attention",
    "causal": "Decoder self-attention",
    "self": "Encoder self-attention",
    "sentences": "Sentences of the document",
    "words": "Words of each sentence",
}
MAX_CELLS = 600_000  # of all frames sent at once: about a megabyte
MIN_FRAMES = 8


def head_counts(run: Run, step: int) -> list[dict[Kind, tuple[int, int]]]:
    """Layers and heads of the maps at a step by kind, of each example; none where the file cannot be read."""
    try:
        with safe_open(run.frame_path(step), "numpy") as file:
            shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError):
        return []
    return [
        {
            kind: (shape[0], shape[1])
            for kind in KINDS
            if len(shape := shapes.get(f"{example}:{kind}", [])) == 4
        }
        for example in range(len({name.partition(":")[0] for name in shapes}))
    ]


def head_over_time(
    run: Run,
    steps: Sequence[int],
    example: int,
    kind: str,
    layer: int,
    head: int,
    must: int | None = None,
) -> list[tuple[int, np.ndarray]]:
    """(step, weights (T, S)) of one head, oldest first; of large maps only some, with `must` and the last."""
    last = _head(run, steps[-1], example, kind, layer, head)
    if last is None:
        return []
    stride = -(-len(steps) // max(MIN_FRAMES, MAX_CELLS // last.size))
    chosen = {*steps[::stride], must, steps[-1]}
    return [
        (step, weights)
        for step, weights in {
            step: _head(run, step, example, kind, layer, head) for step in steps if step in chosen
        }.items()
        if weights is not None and weights.shape == last.shape
    ]


def _head(run: Run, step: int, example: int, kind: str, layer: int, head: int) -> np.ndarray | None:
    try:
        with safe_open(run.frame_path(step), "numpy") as file:
            weights = file.get_slice(f"{example}:{kind}")[layer, head].astype(np.float32)
    except (OSError, SafetensorError, IndexError):
        return None
    return weights if weights.ndim == 2 and weights.size and np.isfinite(weights).all() else None


# The controls of a run, and what went wrong.


RunState = Literal["live", "paused", "ended"]
T = TypeVar("T")
U = TypeVar("U")
# seconds between two reads; slow where many folders are read
POLL_INTERVAL, SLOW_POLL_INTERVAL, IDLE_POLL_INTERVAL = 0.5, 1.0, 5.0
PATIENCE = 0.6  # seconds


def run_buttons(
    row: DeltaGenerator,
    page: str,
    data: RunView[Any],
    config: object,
    *,
    start: str,
    start_key: str,
    proceed: Callable[[Run], object],
    restart_help: Mapping[RunState, str],
) -> RunState:
    """Draw Start, Stop or Continue by the run's state, with Pause, and Restart in the states of `restart_help`.

    One that failed, as on a full disk, has Continue beside Start. Start and Restart mark a press (see `start_run`) of
    a run with `config`, None where the settings do not fit; `proceed` is what Continue calls. Returns the state; a run
    of another person, and one that is watched, count as ended.
    """
    run, status = data.run, data.status
    state: RunState = "paused" if status.state == "paused" else "ended" if status.ended else "live"
    state = state if may_end(run) else "ended"
    if state == "live":
        stop_button(row, page, end_run, run)
        row.button(
            "",
            icon=":material/pause:",
            key=f"{page}:pause",
            help="Pause; Continue resumes from the same step",
            on_click=end_run,
            args=(run, "pause"),
        )
    elif state == "paused":
        continue_button(row, page, proceed, run)
    else:
        start_button(
            row, start, key=start_key, disabled=config is None, on_click=press, args=(page,)
        )
        if limits.mine(run) and (status.state == "failed" or status.message == DAMAGED):
            continue_button(row, page, proceed, run, primary=False)
    if state in restart_help:
        row.button(
            "",
            icon=":material/replay:",
            key=f"{page}:again",
            help=restart_help[state],
            disabled=config is None or _goes_on(page, config),
            on_click=press,
            args=(page,),
        )
    return state


def figures_place(page: str) -> DeltaGenerator:
    """A place for the figures of a page with runs, without the toolbars of charts: Export has each picture."""
    place = st.container(key=f"{page}:now")
    place.html(
        f"<style>.st-key-{page}-now [data-testid=stFullScreenFrame]:has([data-testid=stVegaLiteChart]) "
        "[data-testid=stElementToolbar] { display: none }</style>"
    )
    return place


def note_other_settings(
    page: str,
    place: DeltaGenerator,
    figures: str,
    runs: Collection[Run],
    configs: Sequence[Any],
    start: str,
) -> None:
    """Dim the container `figures` where the shown one of two `configs` is not what the controls ask for, and say so.

    `place` gets the sentence: which settings differ, and that the button `start` trains with those in sight. A run of
    `runs` that was started with the controls as they are has their settings, whatever it stored of their data.
    """
    if None in configs or any((configs[1], run) == _started(page).value for run in runs):
        return
    if not (apart := study.differing(configs)):
        return
    names, texts = [*map(plain, apart)], next(iter(apart.values()))
    which = f"**{', '.join(names[:3])}**" + (f" and {len(names) - 3} more" if names[3:] else "")
    if study.MISSING not in texts and max(map(len, texts)) < 24:
        more = f", and {len(names) - 1} more" if names[1:] else ""
        which = f"**{names[0]} {plain(texts[0])}**, not {plain(texts[1])}{more}"
    with place:
        st.markdown(f"Trained with other settings: {which}. Press **{start}**.")
        # of each element: on a phone, Train's container has no box of its own
        elements = f".st-key-{figures.replace(':', '-')} [data-testid=stElementContainer]"
        st.html(f"<style>{elements} {{ opacity: .4 }}</style>")


def anothers_note(run: Run) -> bool:
    """Say of a run of another person what one may do with it; whether it is one."""
    another = bool(limits.owner(run)) and not limits.mine(run)
    if another:
        st.caption(
            "This run belongs to another person. You can look at it and export it, but not change it."
        )
    return another


def press(page: str) -> None:
    """Mark a press of the page's start button: its next run starts the run, with the current controls."""
    SessionValue(False, f"{page}:pressed").value = True


def _started(page: str) -> SessionValue[tuple[object, Run | None]]:
    """The settings of the last run that was started on the page, and the run."""
    return SessionValue((None, None), f"{page}:started")


def _goes_on(page: str, config: object) -> bool:
    """Whether the last run that was started on the page has these settings and has not ended."""
    last, run = _started(page).value
    return config == last and run is not None and not run.status().ended


def start_button(
    container: Any, label: str, *, type: str = "primary", width: str = "stretch", **options: Any
) -> None:
    container.button(label, icon=":material/play_arrow:", type=type, width=width, **options)


def stop_button(container: Any, page: str, stop: Callable[..., object], *args: Any) -> None:
    container.button(
        "Stop",
        icon=":material/stop:",
        type="primary",
        width="stretch",
        key=f"{page}:stop",
        on_click=stop,
        args=args,
    )


def continue_button(
    container: Any,
    page: str,
    proceed: Callable[..., object],
    *args: Any,
    label: str = "Continue",
    primary: bool = True,
) -> None:
    container.button(
        label,
        icon=":material/resume:",
        type="primary" if primary else "secondary",
        width="stretch",
        key=f"{page}:continue",
        on_click=proceed,
        args=args,
    )


def start_run(
    page: str,
    config: T | None,
    start: Callable[[T], U],
    show: Callable[[U], object],
    *errors: type[Exception],
    run_of: Callable[[U], Run] = lambda run: run,  # type: ignore[assignment,return-value]
    ends: Run | None = None,
) -> None:
    """Where Start was pressed: `start` what these settings say, `show` it, and run the page again.

    A full queue and these errors become the page's message. `run_of` gives a run of what was started, by default
    itself; the run `ends` is stopped before.
    """
    # A press counts once, and not while the run that it started goes on
    if config is None or not SessionValue(False, f"{page}:pressed").pop() or _goes_on(page, config):
        return
    if ends is not None:
        end_run(ends)
    started: list[U] = []
    if flash_errors(
        page,
        "The run could not be started: ",
        lambda: started.append(start(config)),
        limits.QueueFull,
        OSError,
        *errors,
    ):
        run = run_of(started[0])
        _started(page).value = config, run
        show(started[0])
        wait(lambda: run.records() or run.status().state == "queued")
    st.rerun()


def may_end(run: Run) -> bool:
    """Whether the lab may stop a run: not that of another person, nor one that is watched in a loop of its own."""
    return limits.mine(run) and run.job != "watched"


def end_run(run: Run, how: str = "stop") -> None:
    """Stop or pause a run, and wait a moment for its end, where it may be ended."""
    if may_end(run):
        queue.stop(run, how)
        wait(lambda: run.status().ended)


def longer(config: RunConfig, steps: int, more_seconds: float) -> dict[str, Any]:
    """The changes with which a run goes on to `steps`, and without an early end, which it may have passed already."""
    seconds = min(limits.max_run_seconds(), config.max_seconds + more_seconds)
    return {"steps": int(steps), "max_seconds": float(seconds), "finish_early": False}


def continue_run(page: str, run: Run, **changes: Any) -> bool:
    """Continue an ended run, with changes to its config; whether that was possible."""
    done = flash_errors(
        page,
        "The run could not continue: ",
        lambda: queue.resume(run, **changes),
        limits.QueueFull,
        ConfigError,
        OSError,
    )
    if done:
        wait(lambda: run.status().state == "running" and run.alive())
    return done


def limits_line(steps: bool = True) -> None:
    """On a public copy: what a run may take, before it is started; one without `steps` continues in a next turn."""
    if hosted():
        now = visitors.limits()
        limit = (
            f"a run may take {now['steps']:,} steps and {now['seconds']} s"
            if steps
            else f"a run stops after {now['seconds']} s, and Continue gives it as many again"
        )
        st.caption(
            f"This is a public copy. Here {limit}, and you may have {now['under_way']} runs at once. Nobody else "
            "sees yours without its link."
        )


def show_flash(page: str) -> None:
    if message := pop_flash(page):
        st.warning(plain(message))


def steps_done(
    records: Sequence[Record], steps: int, seconds: float = math.inf, first: str = "Setting up…"
) -> tuple[float, str]:
    """How far a run is, 0 to 1, and a line with the time left; the line `first` before its first record."""
    if not records:
        return 0.0, first
    last = records[-1]
    text = f"Step {last.step:,} of {steps:,}"
    if last.final:
        return 1.0, text
    if last.step and last.elapsed:
        left = min(last.elapsed * (steps - last.step) / last.step, seconds - last.elapsed)
        text += f", about {max(1, round(left))} s left"
    return min(1.0, max(last.step / steps, last.elapsed / seconds)), text


def show_progress(
    run: Run,
    status: Status,
    *,
    ending: str,
    progress: Callable[[], tuple[float, str]],
    name: str = "Waiting for a free worker",
) -> None:
    """How far a run is: `ending` in Markdown once it has ended, its place in the queue, or a progress bar."""
    if status.ended:
        (st.error if status.state == "failed" else st.caption)(ending)
    elif place := queue.place(run):
        seconds = (
            "" if place.seconds is None else f", starts in about {about_duration(place.seconds)}"
        )
        st.progress(0.0, f"{name}: number {place.number} in the queue{seconds}")
    else:
        st.progress(*progress())
    if not status.ended and (where := status.message or queue.node_text(run.metadata())):
        st.caption(plain(f"{where[:1].upper()}{where[1:].rstrip('.')}."))


def draw_curves(
    place: Any,
    title: str,
    curves: Sequence[Curve],
    *,
    key: str,
    alt: str,
    cut: str = "",
    **chart: Any,
) -> None:
    """Draw the `step_chart` of some curves of runs under its title, whose legend leaves out the ending `cut`."""
    ink = Ink.of(theme())
    draw_chart(
        place,
        *split_data(step_chart(curves, ink=ink, **chart)),
        key=key,
        alt=alt,
        heading=title,
        legend=legend([replace(curve, name=curve.name.removesuffix(cut)) for curve in curves], ink),
    )


def poll(
    load: Callable[[], T],
    render: Callable[[T], object],
    live: bool,
    key: str,
    *,
    interval: float = POLL_INTERVAL,
    idle: float | None = None,
    still_live: Callable[[T], bool] = lambda data: data.live,  # type: ignore[attr-defined]
) -> None:
    """Render what `load` returns, every `interval` seconds while the work is live; then the whole page runs again.

    Every `idle` seconds while it is not, where others may begin some.
    """

    def refresh() -> None:
        if live:
            queue.tick(fresh=POLL_INTERVAL / 2)
        with recording():
            data = load()
            if (live or idle) and live != still_live(data):
                st.rerun()
            render(data)

    st.fragment(refresh, run_every=interval if live else idle, key=key)()


def wait(done: Callable[[], object]) -> None:
    """Wait up to PATIENCE seconds for `done`, so that the next run of the page shows the result."""
    end = time.monotonic() + PATIENCE
    while not done() and time.monotonic() < end:
        time.sleep(0.01)


# A measurement of a model, by a worker: of a corpus, or of pairs.


M = TypeVar("M", CorpusMeasurement, PairsMeasurement)


def find_measurement(config: MeasurementConfig, run_id: object, saved: Path) -> Run | None:
    """The measurement of this config: that of the link, else one that came with the lab, else a finished one."""
    ended = [
        run for run in reversed(list_runs(corpora_folder())) if run.status().state == "finished"
    ]
    runs = [limits.find_run(run_id, CORPORA), *map(Run, sorted(saved.iterdir())), *ended]
    return next((run for run in runs if run is not None and config.fits(run)), None)


def measurement(
    page: str,
    link: LinkedValue[str],
    config: MeasurementConfig | None,
    saved: Path,
    load: Callable[[Run], M],
    show: Callable[[M], object],
    progress: Callable[[M], tuple[float, str]],
    unmeasured: str,
    help: str,
    waits: tuple[str, int],
) -> None:
    """Draw the measurement of a config: Measure, or Stop, Continue and how far it is; then what `show` draws.

    Before there is one, `unmeasured` beside the button and what `waits` says in a space of that height.
    """

    def run_id(text: str) -> str:
        refuse_if(
            limits.find_run(text, CORPORA) is None,
            f"{text[:40]!r} is no measurement on this machine",
        )
        return text

    link.linked(run_id)
    start_run(
        page, config, queue.measure, lambda run: link.set(run.id), ConfigError, PretrainedError
    )
    run = None if config is None else find_measurement(config, link.value, saved)
    show_flash(page)
    if run is None:
        # The button that measures what was not measured yet
        with st.container(horizontal=True, vertical_alignment="center"):
            st.button(
                "Measure",
                icon=":material/play_arrow:",
                type="primary",
                key=f"{page}:start",
                on_click=press,
                args=(page,),
                disabled=config is None,
                help=help,
            )
            st.caption(unmeasured)
        limits_line(steps=False)
        placeholder(*waits)
        return
    now = computed(load, run)
    if now.status.state != "finished":
        # Stop or Continue, and how far the measurement is
        buttons, column = st.columns([1, 3.4], vertical_alignment="center")
        if not limits.mine(run):
            anothers_note(run)
        elif now.live:
            stop_button(buttons, page, end_run, run)
        elif now.done < now.count:
            continue_button(buttons, page, partial(continue_run, page), run)
        with column:
            poll(
                partial(load, run),
                lambda now: show_progress(
                    run,
                    now.status,
                    ending=plain(now.status.message),
                    progress=lambda: progress(now),
                ),
                now.live,
                f"{page}:progress",
            )
    if now.live:
        read = partial(computed, load, run)
        poll(read, show, True, f"{page}:live", interval=SLOW_POLL_INTERVAL)
    else:
        show(now)
