"""Fine-tune: train a pretrained model on a reader's rows, and compare its attention before and after."""

from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import streamlit as st

import dashboard.page as lab
from core.entries import ConfigError
from core.interpret.map_transform import HeadChange, changes
from core.interpret.trace import Head, Kind
from core.pretrained import PretrainedError
from core.pretrained.finetune import TASKS, FineTuneConfig, own_rows
from core.pretrained.finetune_run import config_of, make_trainer
from core.runs.machine import line
from core.runs.runs import Run
from dashboard.draw import fine_tune as draw

LINK = "run"  # the link's word for the run


class Controls(lab.FineTuneSetup, page="fine_tune"):
    data: lab.FineTuneData
    kinds: tuple[Kind, ...]
    heads: list[HeadChange]

    last = lab.SessionValue[dict[str, str]]({})  # by task, the id of the run that was shown last
    source = lab.Select[str](
        "Source",
        lambda c: c.data.watched,
        key=lambda c: f"source:{c.data.run.id}",
        hidden=True,
        help="The held-out source whose attention is shown.",
    )
    step = lab.SelectSlider[int](
        "Training step",
        lambda c: c.data.steps,
        lambda c: c.data.steps[-1],
        text="{:,}".format,
        key=lambda c: f"step:{c.data.run.id}:{len(c.data.steps) if c.data.live else 'all'}",
        hidden=True,
        help="The training step that all figures show.",
    )
    kind = lab.Segmented(
        "Attention",
        lambda c: {kind: name for kind, name in lab.KINDS.items() if kind in c.kinds},
        lambda c: next(kind for kind in ("cross", "self", "causal") if kind in c.kinds),
        hidden=True,
        also={"label_visibility": "collapsed"},
    ).optional(lambda c: len(c.kinds) > 1)
    follow = lab.Toggle(
        "Follow the latest step",
        True,
        also={"bind": None, "persist_state": None},
        help="The maps show the newest step while the run trains.",
    )
    picked = lab.SessionValue[Head | None](None)  # the head that a person has picked
    drawn_head = lab.SessionValue[Head | None](None)  # the one that the page has selected
    head = lab.Select[Head](
        "Head (largest change first)",
        lambda c: {(one.layer, one.head): one.name for one in c.heads},
        also=lambda c: {
            "bind": None,
            "persist_state": None,
            "on_change": pick_head,
            "args": (c.heads,),
        },
        help="Layer and head, both from 0.",
    )


def pick_head(heads: list[HeadChange]) -> None:
    picked = Controls.read("head", heads=heads).head
    if picked != Controls.drawn_head.value:
        Controls.picked.value = picked


# The fine-tuning run that the page shows: the link's, the session's last of that task, or an example.


def read_link() -> None:
    """Select the task of the link's run, before its control is drawn; warns where the run is missing."""
    run_id = st.query_params.get(LINK)
    run = lab.limits.find_run(run_id) if run_id else None
    task = run.metadata().get("finetune", {}).get("task") if run is not None else None
    if run is not None and task in TASKS:
        if Controls.last.value.get(task) != run.id:
            Controls.set(task=task)
            with suppress(ConfigError):  # which the page tells
                Controls.adopt(config_of(run))
        Controls.last.value = {**Controls.last.value, task: run.id}
    elif run_id:
        st.warning(
            "The fine-tuned run in the link is not on this machine, or was deleted. Below is the example run."
        )


def select_run(run: Run) -> None:
    st.query_params[LINK] = run.id
    Controls.last.value = {**Controls.last.value, config_of(run).task: run.id}
    Controls.set(follow=True)


def select_example(task: str) -> None:
    st.query_params.pop(LINK, None)
    Controls.last.value = {key: one for key, one in Controls.last.value.items() if key != task}


# What the page computes as Python.


def maps_cell(data: lab.FineTuneData, both: draw.BeforeAfter, head: HeadChange) -> lab.Cell:
    kind = both.now.kinds[0]
    before, after = (tile.weights for tile in both.tiles(head))
    return lab.Cell(
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


def _traces(data: lab.FineTuneData, both: draw.BeforeAfter, kind: str) -> str:
    """The traces `first` and `now`: from the run's folder, or read by both models."""
    if both.sentence is not None:
        return f"""
from core.interpret.map_transform import changes
from core.pretrained.finetune_run import about, trace_of
from core.runs.runs import open_run

run = open_run({lab.run_code(data.run.path)})
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
PIN = "fine_tune:pin"


def page() -> None:
    lab.title(
        "Fine-tune",
        "Fine-tuning trains a pretrained model further, on your rows: how accurate does it become, and how does its "
        "attention change?",
    )
    read_link()
    task, config = Controls.draw_setup()
    run = lab.limits.find_run(Controls.last.value.get(task)) or lab.FINE_TUNED[task]
    data = lab.load_fine_tune(run)
    lab.SessionValue[object](None, lab.queue.SPARE).value = lab.queue.warm_up(data.live)
    lab.forget_other_runs("fine_tune", data.run.id)
    # Draw the buttons of the run, and its progress; `config` is what Fine-tune would start
    lab.start_run(
        PAGE,
        config,
        lab.queue.fine_tune,
        select_run,
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
    note, configs = st.container(gap="small"), [data.config, config]
    start = "Stop**, then **Fine-tune" if data.live and lab.limits.mine(run) else "Fine-tune"
    lab.note_other_settings(PAGE, note, "fine_tune:now", [run], configs, start)
    with lab.figures_place(PAGE):
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
            on_click=select_example,
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
    lab.as_python(
        table=lab.records_table(data.run),  # `attention-lab finetune TASK RUN_DIR` trains one
        draw={"fine_tune:loss": lab.DRAW_LOSSES},
        also=[maps_cell(data, both, head)] if both and head else [],
    )
    beaten, word = (rows.majority[1], "majority class") if labels else (start, "before training")
    draw_curves = partial(
        lab.draw_curves,
        last_x=max(int(data.about.get("steps", 0)) if data.live else 0, records[-1].step, 1),
        step=step,
        height=150,
    )
    pair = curves.grid(2, min_column_width=150)  # side by side on a phone, too
    losses, accuracies = pair.cell(), pair.cell()
    draw_curves(
        losses,
        "Loss",
        lab.loss_curves(records),
        key="fine_tune:loss",
        alt="Validation and training loss over fine-tuning",
    )
    draw_curves(
        accuracies,
        "Validation accuracy",
        draw.accuracies(records, config.task),
        high=100,
        percent=True,
        guess=(100 * (beaten or 0.0), f"{word}: {lab.percent(beaten)}"),
        key="fine_tune:right",
        alt="Validation accuracy over fine-tuning",
    )
    with row[1]:
        lab.fact(draw.score_text(now, start, rows, config.task))
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
                link=PIN,
                height=HIGH,
                fact=f"Change of the weights of head {head.name} until step {both.step:,}",
            )
    with right:
        if both and head and head.moved >= 0.005:  # else it did not move
            lab.fact(draw.gained(both, head))
        lab.caption(
            draw.conditions(config, data.about, rows, line(data.run.metadata().get("machines"))),
        )
    lab.chart_title("Held-out rows and predictions")
    st.html(
        draw.table(
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
    data: lab.FineTuneData, config: FineTuneConfig, timeline: lab.Place
) -> tuple[draw.BeforeAfter | None, HeadChange | None]:
    """Draw one head of one sentence before training and at the step of the `timeline`; returns both and the head."""
    maps = st.container()
    row = st.columns([1.6, 1], vertical_alignment="bottom")
    if config.task == "pairs":
        text = Controls.draw("source", into=row[0], data=data).source
    else:  # any that is typed, too
        given = {"watched": data.watched, "typed_before": Controls.typed_sentence()}
        text = Controls.draw("sentence", into=row[0], **given).sentence
    both = _readings(data, text or "", maps, timeline)
    if both is None:
        return None, None
    # The list of heads, the one that moved most first, which is selected until a person picks another
    heads = {(item.layer, item.head): item for item in both.heads}
    lab.link_value(Controls.picked.key, None, lab.one_of(heads), name="fine_tune:head")
    picked = Controls.picked.value
    Controls.drawn_head.value = shown = picked if picked in heads else next(iter(heads))
    Controls.set(head=shown, heads=both.heads)
    head = heads[Controls.draw("head", into=row[1], heads=both.heads).head]
    item, frames = both.now.map(head.layer), None
    slider = lab.SessionValue(0, Controls.step.key_of(Controls(data=data)))
    if both.sentence is not None and slider.is_set:
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
            slider.key, data.steps.index(both.step), [moment.tiles(head) for moment in moments]
        )
    with maps:
        lab.multiples(
            both.tiles(head),
            item.queries,
            item.keys,
            key=f"fine_tune:maps:{item.kind}",
            reads=lab.READS[item.kind],
            link=PIN,
            height=HIGH,
            fact=f"Head {head.name} before training and at step {both.step:,}",
            frames=frames,
        )
    return both, head


def _readings(
    data: lab.FineTuneData, text: str, maps: lab.Place, timeline: lab.Place
) -> draw.BeforeAfter | None:
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
        follows = data.live and Controls.draw("follow", into=timeline).follow
        if not follows and len(steps) > 1:
            step = Controls.draw("step", into=timeline, data=data).step
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
            f"{lab.plain(one.word)} **{lab.share_text(one.probability)}**"
            for one in data.labels(text)
        ]
        timeline.markdown(f":small[{' · '.join(shares)}]")
        (first, now), step = traces, data.records[-1].step
    kind = Controls.draw("kind", into=maps, kinds=now.kinds).kind or now.kinds[0]
    first, now = first.of(kind), now.of(kind)
    return draw.BeforeAfter(
        text, index, step, _is_last(data, step), first, now, changes(first, now)
    )


def _is_last(data: lab.FineTuneData, step: int) -> bool:
    return not data.live and step == data.records[-1].step


def _progress(data: lab.FineTuneData) -> None:
    if lab.is_example(data.run):
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
