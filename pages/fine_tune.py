"""Fine-tune: train a pretrained model on a reader's rows, and compare its attention before and after."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st

import dashboard.page as lab
from core.entries import ConfigError, Param
from core.interpret.map_transform import HeadChange, changes
from core.interpret.trace import AttentionTrace
from core.pretrained import PretrainedError, reject_if
from core.pretrained.finetune import (
    BOUNDS,
    LAB,
    MAX_HELD_OUT,
    TASKS,
    USUAL,
    FineTuneConfig,
    Rows,
    check_model,
    name_of,
    own_rows,
    parse,
)
from core.pretrained.finetune_run import config_of, make_trainer
from core.runs.machine import line
from core.tasks.own import HEADER
from core.tasks.reading import MAX_SIGNS, read
from core.training import AUTO, Prediction, devices

# One sentence before training and at a step: its maps of one type, and how far each head moved.


@dataclass(frozen=True)
class BeforeAfter:
    """The maps of one type before training and at a step, and the heads, the one that moved most first.

    They are of the `sentence`-th watched one, or, with None, what both models make of the `text`.
    """

    text: str
    sentence: int | None
    step: int
    last: bool
    first: AttentionTrace
    now: AttentionTrace
    heads: list[HeadChange]

    def tiles(self, head: HeadChange) -> list[lab.Tile]:
        first, now = (trace.map(head.layer) for trace in (self.first, self.now))
        return [
            lab.Tile("Before training", "step 0", first.weights[head.head], first.mask, 0),
            lab.Tile(
                "After training" if self.last else "During training",
                f"step {self.step:,}",
                now.weights[head.head],
                now.mask,
                1,
            ),
        ]


# The sentences and tables of the page Fine-tune; makes no st call.


OURS = {
    "classify": "120 messages that are a question, a request, praise or a complaint",
    "pairs": "400 numbers in English words and the same numbers in digits",
}


def gained(both: BeforeAfter, head: HeadChange) -> str:
    """The cell (query, key) of a head that gained most, and how far the head moved."""
    now = both.now.map(head.layer)
    before, weights = (tile.weights for tile in both.tiles(head))
    row, column = map(int, np.unravel_index((weights - before).argmax(), weights.shape))
    return (
        f"In head **{head.name}**, :primary[**{lab.plain(now.queries[row])}**] now puts "
        f"**{lab.share_text(weights[row, column])}** of its weight on **{lab.plain(now.keys[column])}**, "
        f"{lab.number(before[row, column])} before; {lab.number(head.moved)} of the head's weight has moved to other tokens."
    )


def conditions(config: FineTuneConfig, about: dict, rows: Rows, machine: str = "") -> str:
    """The conditions of the numbers; `machine` is where the run trained, if that is known."""
    labels, new, cut = config.task == "classify", about.get("new_words"), about.get("truncated")
    own = (
        "its classification head is new"
        if about.get("new_head")
        else "its own head has the same labels"
    )
    words = ", ".join(map(lab.plain, (new or ())[:10])) + (", …" if len(new or ()) > 10 else "")
    parts = (
        f"{lab.plain(name_of(config.model))}, {about.get('learns', 0):,} of {about.get('weights', 0):,} weights train",
        f"{len(rows.learned):,} training rows, {len(rows.held_out):,} held out",
        f"seed {config.seed}",
        machine and f"trained on {lab.plain(machine)}",
        own if labels and "new_head" in about else "",
        new
        and f"{len(new)} words were not in its vocabulary ({words}); their vectors start near the mean of the others",
        rows.repeated and f"{rows.repeated} repeated rows are used once",
        cut and f"{cut:,} rows are cut at {about.get('max_tokens', 0):,} tokens",
    )
    fixed = "Only the classification head is trained, so no attention changes. "
    forcing = " The decoder reads the correct target (teacher forcing), so the rows of a map stay the same."
    return (
        f"{fixed * (labels and config.layers == 0)}{'; '.join(part for part in parts if part)}."
        f"{forcing * (config.task == 'pairs')} A change is not yet a reason: to test whether a head "
        "matters, switch it off on the page Why this answer."
    )


def table(
    before: Sequence[Prediction], now: Sequence[Prediction], columns: Sequence[str], ink: lab.Ink
) -> str:
    def output(prediction: Prediction) -> str:
        text = escape(" ".join(prediction.predicted)) or "nothing"
        return (
            text
            if prediction.right
            else f'<span style="color:{ink.quiet};text-decoration:line-through">{text}</span>'
        )

    return lab.html_table(
        columns,
        [
            (
                escape(" ".join(last.source)),
                escape(" ".join(last.target)),
                output(first),
                output(last),
            )
            for first, last in zip(before, now, strict=False)
        ],
        ink.hairline,
        ("",) * len(columns),
    )


# The controls of the next run: task, model, rows and settings; the frozen `Controls` is core's FineTuneConfig.


SENTENCE = "fine_tune:sentence"
EXAMPLE = "could you tell me why nobody answers the phone"
USUAL_MODEL = {
    "classify": lab.EMBEDDED,
    "pairs": lab.ModelRef("lab", str(USUAL["pairs"]["model"]).removeprefix(LAB)),
}
READING = ("header", "answers")
LINES = {"classify": "One text and its label", "pairs": "A source and its target"}


def usual(name: str) -> Callable[[lab.Values], Any]:
    return lambda values: USUAL[values.task][name]


def of_task(name: str) -> Callable[[lab.Values], str]:
    return lambda values: f"{name}:{values.task}"


class Controls(lab.Fields, page="fine_tune"):
    task = lab.Select(
        "Task",
        {"classify": "Labels of texts", "pairs": "Pairs of sequences"},
        # the link's run is of another task
        also={"on_change": lambda: st.query_params.pop(lab.TUNED_LINK, None)},
        help="What the model learns from each row.",
    )
    epochs = lab.Number(
        "Epochs",
        usual("epochs"),
        low=int(BOUNDS["epochs"][0]),
        high=int(BOUNDS["epochs"][1]),
        key=of_task("epochs"),
        hidden=True,
        help="Passes over the training rows.",
    )
    layers = lab.Number(
        "Trained layers",
        usual("layers"),
        low=int(BOUNDS["layers"][0]),
        high=int(BOUNDS["layers"][1]),
        key=of_task("layers"),
        hidden=True,
        help="Counted from the last layer. With 0, only the classification head is trained and no attention "
        "changes. Embeddings are not trained. A classifier with the same labels keeps its head; any other "
        "model gets a new one.",
    ).optional(lambda values: values.task == "classify")
    learning_rate = lab.SelectSlider(
        "Learning rate",
        (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2),
        usual("learning_rate"),
        text="{:g}".format,
        key=of_task("learning_rate"),
        hidden=True,
        help="The size of each update of the weights.",
    )
    batch_size = lab.SelectSlider(
        "Batch size",
        (4, 8, 16, 32, 64),
        usual("batch_size"),
        key=of_task("batch_size"),
        hidden=True,
        help="The number of rows in one update.",
    )
    seed = lab.Number(
        "Seed",
        0,
        low=int(BOUNDS["seed"][0]),
        high=int(BOUNDS["seed"][1]),
        key=of_task("seed"),
        hidden=True,
        help="Fixes which rows are held out, the new weights and the order of rows.",
    )
    device = lab.Select(
        "Device",
        devices(),
        key=of_task("device"),
        # more than automatic and the CPU
        hidden=True,
        help=f"{AUTO[0].upper()}{AUTO[1:]}.",
    ).optional(lambda values: len(devices()) > 2)
    header = lab.Select(
        "First line",
        dict(zip(HEADER.choices, HEADER.labels, strict=True)),
        key=of_task("header"),
        hidden=True,
        help="What the first line of your rows holds.",
    )
    answers = lab.Select(
        "Column of the labels or targets",
        {"auto": "automatic", "first": "the first", "second": "the second"},
        key=of_task("answers"),
        hidden=True,
        help="Which column the model learns to answer.",
    )
    source = lab.Select[str](
        "Source",
        lambda values: values.watched,
        key=lambda values: f"source:{values.run}",
        hidden=True,
        help="The held-out source whose attention is shown.",
    )
    step = lab.SelectSlider[int](
        "Training step",
        lambda values: values.steps,
        lambda values: values.steps[-1],
        text="{:,}".format,
        key=lambda values: values.slider,
        hidden=True,
        help="The training step that all figures show.",
    )
    kind = lab.Segmented(
        "Attention",
        lambda values: {kind: name for kind, name in lab.KINDS.items() if kind in values.kinds},
        lambda values: next(kind for kind in ("cross", "self", "causal") if kind in values.kinds),
        hidden=True,
        also={"label_visibility": "collapsed"},
    ).optional(lambda values: len(values.kinds) > 1)


def controls() -> tuple[str, FineTuneConfig | None]:
    """Draw the row of controls; the task, and the config, or None with the reason on the page."""
    lab.link_value(SENTENCE, EXAMPLE, str)
    st.session_state.setdefault(SENTENCE, EXAMPLE)
    row = st.columns([1.15, 1.3, 1, 1], vertical_alignment="bottom")
    task = Controls.draw("task", into=row[0]).task
    name = lab.model_box(row[1], USUAL_MODEL[task])
    with row[2]:
        data, reading = _rows(task)
    panel = row[3].popover(
        "Settings",
        icon=":material/tune:",
        width="stretch",
        on_change="rerun",
        key=f"fine_tune:panel:{task}",
        help="Duration, learning rate and seed of the next run.",
    )
    with panel:  # while it is closed, the settings of the session
        read_fields = partial(Controls.draw, into=lab.HERE) if panel.open else Controls.read
        fields = "epochs layers learning_rate batch_size seed device".split()
        values = read_fields(*fields, task=task)
    settings = {field: values[field] for field in fields if values[field] is not None} | reading
    try:
        model = _model(name, task)
        parse(task, data, settings["seed"], **reading)
        example = str(st.session_state.get(SENTENCE) or "") if task == "classify" else ""
        if model:
            return task, FineTuneConfig(
                task=task,  # type: ignore[arg-type]
                data=data,
                model=model,
                logged_example=example.strip(),
                **settings,
            )
    except PretrainedError as error:
        lab.field_error(error)
        st.button(
            f"Use {USUAL_MODEL[task].name}",
            key="fine_tune:usual",
            on_click=lab.select_model,
            args=(USUAL_MODEL[task].name,),
        )
    except ConfigError as error:
        if not st.session_state.get(
            f"fine_tune:data:{task}:panel"
        ):  # there it stands under the field
            lab.field_error(error)
    return task, None


def _model(name: str, task: str) -> str | None:
    """The model's name in a config; None, with a panel on the page, while it is not here.

    PretrainedError when it cannot learn such rows.
    """
    if name == lab.OTHER:
        lab.other_panel(st)
        return None
    ref = lab.resolve_model(name) if name not in lab.PANELS else lab.ModelRef("array", name)
    if ref is None:
        return None
    reject_if(
        ref.source == "array",
        f"{name} holds attention weights only, so there is no model to train.",
    )
    check_model(lab.config_name(ref), task)
    return lab.config_name(ref)


def _rows(task: str) -> tuple[str, dict[str, Any]]:
    """The rows, and how their first line and columns are read."""
    key, own = f"fine_tune:data:{task}", own_rows(task)
    lab.link_data(key, own)
    # The label stays the same: a popover with another label would be closed.
    panel = st.popover(
        "Rows",
        icon=":material/table_rows:",
        width="stretch",
        on_change="rerun",
        key=f"{key}:panel",
        help="The data that the model learns from.",
    )
    if not panel.open:
        values = Controls.read(*READING, task=task)
        return _text(str(st.session_state.get(key, own))), {name: values[name] for name in READING}
    first, second = TASKS[task]
    with panel:
        st.markdown(f"**{LINES[task]} in each line of a CSV**")
        st.caption(
            f"The first line may name the columns: {first},{second}. For validation, a quarter of "
            f"{'each label’s rows' if task == 'classify' else 'the rows'} is held out, rounded down to a whole number, "
            f"and at most {MAX_HELD_OUT} rows are measured. The lab's rows: {OURS[task]}."
        )
        values = Controls.draw(*READING, task=task, into=lab.HERE)
        reading = {name: values[name] for name in READING}
        rows = _text(
            lab.data_widget(
                Param(
                    "data",
                    "Rows",
                    default=own,
                    meaning=f"CSV with {first} and {second}",
                    longest=MAX_SIGNS,
                    parse=lambda value: parse(task, read(value), **reading),
                ),
                key,
            )
        )
        with suppress(ConfigError):  # which stands under the field
            lab.caption(" ".join(map(lab.plain, parse(task, rows, **reading).notes)))
        if rows != own:
            st.button(
                "Use the lab's rows",
                key=f"{key}:ours",
                type="tertiary",
                on_click=st.session_state.update,
                args=({key: own, f"{key}:trouble": None},),
            )
    return rows, reading


def _text(value: str) -> str:
    """The rows themselves; "" where they are not here, which the field reports."""
    try:
        return read(value)
    except ConfigError:
        return ""


# What the page computes as Python.


def script(data: lab.FineTuneData, both: BeforeAfter | None, head: HeadChange | None) -> lab.Script:
    task = data.config.task if data.config else "classify"
    cell = lab.records_cell(
        data.run,
        "loss train_loss sequence_accuracy",
        "The losses and the validation accuracy of a fine-tuning run at each step that was measured.",
        "fine_tune:loss",
        imports="from core.pretrained.finetune_run import about, config_of\n",
        more=f"config = config_of(run)  # `attention-lab finetune {task} RUN_DIR` trains\n",
    )
    cells = [cell]
    if both is not None and head is not None:
        kind = both.now.kinds[0]
        before, after = (tile.weights for tile in both.tiles(head))
        cells.append(
            lab.Cell(
                "One head before training and after it, and the heads whose attention changed most.",
                _traces(data, both, kind)
                + f"""heads = changes(first, now)  # the largest change first
print([(change.name, round(change.moved, 3)) for change in heads[:5]])
before, after = first.head({head.layer}, {head.head}), now.head({head.layer}, {head.head})  # (T, S)
difference = after - before
""",
                """
from dashboard.show import show_maps

show_maps({"Before training": before, "After training": after}, first.map(0).queries, first.map(0).keys)
""",
                f"fine_tune:maps:{kind}",
                {
                    "before": before,
                    "after": after,
                    "difference": after - before,
                    "[change.moved for change in heads]": [change.moved for change in both.heads],
                },
            )
        )
    return lab.Script(tuple(cells))


def _traces(data: lab.FineTuneData, both: BeforeAfter, kind: str) -> str:
    """The traces `first` and `now`: from the run's folder, or read by both models."""
    if both.sentence is not None:
        return f"""
from core.interpret.map_transform import changes
from core.pretrained.finetune_run import trace_of

sentence = about(run)["sentences"][{both.sentence}]
print(sentence["text"])
first, now = (trace_of(run.frame(step), {both.sentence}, sentence, f"step {{step}}").of({kind!r})
              for step in ({data.steps[0]}, {both.step}))
"""
    assert data.config is not None and data.model is not None
    refs = {
        "model": lab.base_model(data.config.model),
        "tuned": lab.ModelRef("folder", Path(data.model).as_posix()),
    }
    lines = {name: lab.model_lines(ref, name) for name, ref in refs.items()}
    imports = {
        "from core.interpret.map_transform import changes",
        "from core.pretrained import ModelInputs",
        "from core.pretrained import read",
    }
    loads = "\n".join(load for _, load in lines.values())
    return f"""
{lab.import_block(imports.union(*(more for more, _ in lines.values())))}

{loads}
first, now = (read(one, ModelInputs({both.text!r})).trace.of({kind!r}) for one in (model, tuned))
"""


# The page Fine-tune: the controls, two curves, one head before and after with its difference, and held-out rows.


PAGE = "fine_tune"

HIGH = 280
LINK = "fine_tune:pin"
HEAD, SET, PICK = "fine_tune:head", "fine_tune:head-set", "fine_tune:head-picked"


def page() -> None:
    lab.title(
        "Fine-tune", "Fine-tuning trains a pretrained model on your rows and changes its attention."
    )
    lab.read_tuned_link()
    task, config = controls()
    data = lab.load_fine_tune(lab.current_tuned_run(task))
    st.session_state[lab.queue.SPARE] = lab.queue.warm_up(data.live)
    lab.forget_other_runs("fine_tune", data.run.id)
    # Draw the buttons of the run, and its progress; `config` is what Fine-tune would start
    lab.start_run(
        PAGE,
        config,
        lab.queue.fine_tune,
        lambda run: lab.select_tuned_run(run, config_of(run).task),
        ConfigError,
        PretrainedError,
    )
    buttons, column = st.columns([1, 2.4], vertical_alignment="center")
    lab.run_buttons(
        buttons.container(horizontal=True, gap="small"),
        PAGE,
        data,
        config,
        start="Fine-tune",
        start_key="fine_tune:start",
        proceed=partial(lab.continue_run, PAGE),
        restart_help={"paused": "Leave this run and start a new one with these settings"},
    )
    with column:
        lab.poll(lambda: lab.load_fine_tune(data.run), _progress, data.live, "fine_tune:progress")
        if config is not None and config.data != own_rows(config.task):
            rows = config.rows
            st.caption(
                f"The next run trains on {len(rows.learned):,} of your rows and holds out "
                f"{len(rows.held_out):,}. {' '.join(map(lab.plain, rows.notes))}"
            )
        lab.anothers_note(data.run)
        lab.limits_line(steps=False)
        lab.show_flash(PAGE)
    lab.poll(lambda: lab.load_fine_tune(data.run), _figures, data.live, "fine_tune:figures")
    lab.details(
        "Source code and papers",
        partial(
            lab.sources,
            "Hugging Face's [Trainer](https://huggingface.co/docs/transformers/main_classes/trainer) trains "
            "the model. As in [Devlin 2019](https://arxiv.org/abs/1810.04805), a new classification head is "
            "put on the pretrained encoder. [Merchant 2020](https://arxiv.org/abs/2004.14448) and "
            "[Kovaleva 2019](https://arxiv.org/abs/1908.08593) report that later layers change most.",
            make_trainer,
        ),
        "fine_tune:how",
    )


def _figures(data: lab.FineTuneData) -> None:
    lab.warn_of_damage(data.run)
    if data.trouble:
        st.error(lab.plain(data.trouble))
        st.button(
            "Show the example run",
            key="fine_tune:kept-instead",
            on_click=lab.select_tuned_example,
            args=("classify",),
        )
    elif not data.records or data.config is None:
        lab.placeholder(
            "The model is loaded and evaluated before training. The first numbers appear in about five seconds."
            if data.live
            else "This run ended before its first measurement."
        )
    else:
        _draw(data, data.config)


def _draw(data: lab.FineTuneData, config: FineTuneConfig) -> None:
    ink, rows, records = lab.Ink.of(lab.theme()), data.rows(), data.records
    curves, row = st.container(), st.columns([1, 2.4], vertical_alignment="bottom")
    both, head = before_and_after(data, config, row[0])
    step = both.step if both else records[-1].step
    now, start, labels = data.at(step), records[0].sequence_accuracy, config.task == "classify"
    lab.add_script(partial(script, data, both, head))
    name = "accuracy" if labels else "sequence accuracy"
    beaten, word, majority = start or 0.0, "before training", ""
    if labels:
        label, beaten = rows.majority
        word = "majority class"
        majority = (
            f"; the majority class, “{lab.plain(label)}”"
            f"{f' (one of {rows.ties} equally frequent labels)' if rows.ties > 1 else ''}, reaches {lab.percent(beaten)}"
        )
    draw = partial(
        lab.draw_curves,
        last_x=max(int(data.about.get("steps", 0)) if data.live else 0, records[-1].step, 1),
        step=step,
        height=150,
    )
    losses, accuracies = curves.columns(2, gap="medium")
    draw(
        losses,
        "Loss",
        lab.loss_curves(records),
        key="fine_tune:loss",
        alt="Validation and training loss over fine-tuning",
    )
    draw(
        accuracies,
        "Validation accuracy",
        [
            lab.Curve(name, lab.points(records, "sequence_accuracy", 100)),
            lab.Curve("balanced accuracy", lab.balanced_points(records)),
            lab.Curve("token accuracy", lab.points(records, "token_accuracy", 100)),
        ],
        high=100,
        percent=True,
        guess=(100 * beaten, f"{word}: {lab.percent(beaten if labels else start)}"),
        key="fine_tune:right",
        alt="Validation accuracy over fine-tuning",
    )
    # The scores at a step, compared with those before training and of the majority class
    balanced = f". Balanced accuracy is **{lab.percent(now.balanced)}**"
    cut = f" {now.cut or 0:,} outputs were cut at the length of the longest target, before an end token."
    with row[1]:
        lab.fact(
            f"At step {now.step:,}, {name} is **{lab.percent(now.sequence_accuracy)}** on {now.held_out} held-out "
            f"{'texts' if labels else 'sources'}; before training it was {lab.percent(start)}"
            f"{'' if now.balanced is None else balanced}{majority}.{cut if now.cut else ''}"
        )
    left, right = st.columns(2, gap="medium")
    if both is not None and head is not None:
        item, (before, after) = both.now.map(head.layer), both.tiles(head)
        with left:  # what the selected head gained and lost
            lab.difference_map(
                after,
                before,
                item.queries,
                item.keys,
                key=f"fine_tune:apart:{item.kind}",
                link=LINK,
                height=HIGH,
                fact=f"Change of the weights of head {head.name} until step {both.step:,}",
            )
    with right:
        if both and head and head.moved >= 0.005:  # else it did not move
            lab.fact(gained(both, head))
        lab.caption(
            conditions(config, data.about, rows, line(data.run.metadata().get("machines"))),
        )
    lab.chart_title("Held-out rows and predictions")
    st.html(
        table(
            records[0].examples,
            now.examples,
            (*TASKS[config.task], "before", f"step {step:,}"),
            ink,
        )
    )
    counts, names = now.confusion, data.about.get("labels", ())
    if counts and len(counts) == len(names):
        lab.chart_title(f"Confusion matrix at step {step:,}")
        st.html(lab.confusion(counts, names, ink))
    if data.model is not None:
        # Links to the pages that open the fine-tuned model
        with st.container(horizontal=True, gap="small", vertical_alignment="center"):
            st.caption("Open the fine-tuned model:", width="content")
            for page in map(lab.step_of, ("pretrained", "evidence", "use_model")):
                st.page_link(
                    page.page(),
                    label=page.title,
                    icon=page.icon,
                    query_params={lab.MODEL: lab.folder_name(data.model)},
                )


# One head before and after fine-tuning: its sentence, step and index, the maps and their difference.


def before_and_after(
    data: lab.FineTuneData, config: FineTuneConfig, timeline: Any
) -> tuple[BeforeAfter | None, HeadChange | None]:
    """Draw one head of one sentence before training and at the step of the `timeline`; returns both and the head."""
    maps, state = st.container(), st.session_state
    row = st.columns([1.6, 1], vertical_alignment="bottom")
    if config.task == "pairs":
        text = Controls.draw("source", into=row[0], watched=data.watched, run=data.run.id).source
    else:  # any that is typed, too
        text = row[0].selectbox(
            "Sentence (select or type)",
            list(dict.fromkeys([*data.watched, str(state[SENTENCE])])),
            key=SENTENCE,
            accept_new_options=True,
            persist_state="session",
            help="The next run records its attention.",
        )
    both = _readings(data, str(text or ""), maps, timeline)
    if both is None:
        return None, None
    # The list of heads, the one that moved most first, which is selected until a person picks another
    heads = {(item.layer, item.head): item for item in both.heads}
    lab.link_value(PICK, None, lab.one_of(heads), name=HEAD)
    selected = state.get(PICK)
    state[HEAD] = state[SET] = selected if selected in heads else next(iter(heads))
    head = heads[state[HEAD]]

    def pick() -> None:
        if state[HEAD] != state.get(SET):
            state[PICK] = state[HEAD]

    row[1].selectbox(
        "Head (largest change first)",
        list(heads),
        format_func=lambda index: heads[index].name,
        key=HEAD,
        on_change=lab.guarded(HEAD, pick),
        help="Layer and head, both from 0.",
    )
    item, slider, frames = both.now.map(head.layer), _slider(data), None
    if both.sentence is not None and slider in state:
        # the two maps at each step of the slider, which the browser draws at once
        moments = [
            replace(
                both,
                step=step,
                last=_is_last(data, step),
                now=data.trace(step, both.sentence).of(item.kind),
            )
            for step in data.steps
        ]
        frames = lab.Frames(
            slider, data.steps.index(both.step), [moment.tiles(head) for moment in moments]
        )
    with maps:
        lab.multiples(
            both.tiles(head),
            item.queries,
            item.keys,
            key=f"fine_tune:maps:{item.kind}",
            reads=lab.READS[item.kind],
            link=LINK,
            height=HIGH,
            fact=f"Head {head.name} before training and at step {both.step:,}",
            frames=frames,
        )
    return both, head


def _readings(data: lab.FineTuneData, text: str, maps: Any, timeline: Any) -> BeforeAfter | None:
    """The maps of one type at step 0 and at the selected one; of a sentence that was not watched, before and after."""
    watched, steps, index = data.watched, data.steps, None
    if text not in watched and data.model is None and watched:
        st.caption(
            "This run did not record your sentence and its weights are not saved, so the maps are those of "
            f"“{lab.plain(watched[0])}”. The next run records your sentence from its first step."
        )
        text = watched[0]
    if text in watched and steps:
        index, step = watched.index(text), steps[-1]
        # a slider over the saved steps; of a live run the last step until the toggle is off
        follows = data.live and timeline.toggle(
            "Follow the latest step",
            True,
            key=lab.TUNED_FOLLOW,
            help="The maps show the newest step while the run trains.",
        )
        if not follows and len(steps) > 1:
            step = int(
                Controls.draw(
                    "step",
                    into=timeline,
                    steps=steps,
                    slider=_slider(data).removeprefix("fine_tune:"),
                ).step
            )
        first, now = data.trace(steps[0], index), data.trace(step, index)
    else:
        try:
            traces = data.readings(text)
        except PretrainedError as error:
            st.info(lab.plain(str(error)))
            return None
        if traces is None:
            return None
        shares = [
            f"{lab.plain(name)} **{lab.share_text(share)}**"
            for name, share in data.labels(text)[:4]
        ]
        timeline.markdown(f":small[{' · '.join(shares)}]")
        (first, now), step = traces, data.records[-1].step
    kind = Controls.draw("kind", into=maps, kinds=now.kinds).kind or now.kinds[0]
    first, now = first.of(kind), now.of(kind)
    return BeforeAfter(text, index, step, _is_last(data, step), first, now, changes(first, now))


def _slider(data: lab.FineTuneData) -> str:
    return f"fine_tune:step:{data.run.id}:{len(data.steps) if data.live else 'all'}"


def _is_last(data: lab.FineTuneData, step: int) -> bool:
    return not data.live and step == data.records[-1].step


def _progress(data: lab.FineTuneData) -> None:
    if data.is_example:
        st.caption(
            "An example run. Fine-tune starts your own: about 20 s for the lab's rows on one core."
        )
        return
    lab.show_progress(
        data.run,
        data.status,
        ending=lab.plain(data.status.message or data.status.state),
        progress=lambda: lab.steps_done(
            [record for record in data.records if record.step],
            int(data.about.get("steps", 0)) or 1,
            first="The first step takes a few seconds.",
        ),
    )
