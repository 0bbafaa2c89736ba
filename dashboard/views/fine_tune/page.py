"""The page Fine-tune: the controls, two curves, one head before and after with its difference, and held-out rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.finetune.config import FineTuneConfig
from core.finetune.run import make_trainer
from core.training.machine import line
from dashboard.charts.curves import Curve, legend, step_chart
from dashboard.charts.numbers import percent
from dashboard.charts.palette import Ink
from dashboard.charts.prediction_tables import confusion
from dashboard.charts.training_curves import balanced_points, loss_curves, points
from dashboard.charts.vega import split_data
from dashboard.navigation import STEPS
from dashboard.runtime import jobs
from dashboard.runtime.fine_tune_data import FineTuneData, current_run, load_fine_tune, read_link, select_example
from dashboard.runtime.link_values import forget_other_runs
from dashboard.runtime.model_folders import folder_name
from dashboard.runtime.page_pictures import add_script
from dashboard.runtime.polling import poll
from dashboard.runtime.run_data import damage_of
from dashboard.views.fine_tune import text
from dashboard.views.fine_tune.attention import before_and_after, difference, selected_head
from dashboard.views.fine_tune.controls import controls
from dashboard.views.fine_tune.run_bar import run_bar
from dashboard.views.fine_tune.script import script
from dashboard.widgets.model_picker.models import MODEL
from dashboard.widgets.panels import (
    caption,
    chart_title,
    details,
    fact,
    next_page,
    placeholder,
    plain,
    source_panel,
    theme,
    title,
)
from dashboard.widgets.presentation import draw_chart

HEIGHT = 190
PAGES = ("pretrained", "evidence", "use_model")  # that open the fine-tuned model


def page() -> None:
    title("Fine-tune", "Fine-tune a pretrained model on your rows, and see how its attention changes.")
    jobs.warm_up()
    if trouble := read_link():
        st.warning(trouble)
    task, config = controls()
    data = load_fine_tune(current_run(task))
    forget_other_runs("fine_tune", data.run.id)
    run_bar(data, config)
    poll(lambda: load_fine_tune(data.run), _figures, data.live, "fine_tune:figures")
    details("Source code and papers", _source, "fine_tune:how")
    next_page("fine_tune")


def _source() -> None:
    """Draw the function that trains, and papers."""
    st.markdown("Hugging Face's [Trainer](https://huggingface.co/docs/transformers/main_classes/trainer) trains "
                "the model. As in [Devlin 2019](https://arxiv.org/abs/1810.04805), a new classification head is "
                "put on the pretrained encoder. [Merchant 2020](https://arxiv.org/abs/2004.14448) and "
                "[Kovaleva 2019](https://arxiv.org/abs/1908.08593) report that later layers change most.")
    source_panel(make_trainer)


def _figures(data: FineTuneData) -> None:
    """The figures of a run, or why there are none yet."""
    if damage := damage_of(data.run):
        st.warning(damage)
    if data.trouble:
        st.error(plain(data.trouble))
        st.button("Show the example run", key="fine_tune:kept-instead", on_click=select_example, args=("classify",))
    elif not data.records or data.config is None:
        placeholder("The model is loaded and evaluated before training. The first numbers appear in about five seconds."
                    if data.live else "This run ended before its first measurement.")
    else:
        _draw(data, data.config)


def _draw(data: FineTuneData, config: FineTuneConfig) -> None:
    ink, rows = Ink.of(theme()), data.rows()
    curves = st.columns(2, gap="medium")
    both = before_and_after(data, config)
    step = both.step if both else data.records[-1].step
    add_script(partial(script, data, both, selected_head(both) if both and both.now.maps else None))
    majority = rows.majority if config.task == "classify" else None
    _curves(data, step, majority, curves, ink)
    left, right = st.columns(2, gap="medium")
    sentence = text.fact(config, data.records[0], data.at(step), majority)
    if both is not None and both.now.maps:
        with left:
            difference(both)
        sentence += text.gained(both, selected_head(both))
    with right:
        fact(sentence)
        caption(text.conditions(config, data.about, rows, line(data.run.metadata().get("machines"))))
    columns = (*(("text", "label") if rows.labels else ("source", "target")), "before", f"step {step:,}")
    chart_title("Held-out rows and predictions")
    st.html(text.table(data.records[0].examples, data.at(step).examples, columns, ink.hairline, ink.quiet))
    counts, labels = data.at(step).confusion, data.about.get("labels", ())
    if counts and len(counts) == len(labels):
        chart_title(f"Confusion matrix at step {step:,}")
        st.html(confusion(counts, labels, ink))
    if data.model is not None:
        _links(folder_name(data.model))


def _links(model: str) -> None:
    """Links to the pages that open the fine-tuned model."""
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        st.caption("Open the fine-tuned model:", width="content")
        for step in STEPS:
            if step.key in PAGES:
                st.page_link(step.path, label=step.title, icon=step.icon, query_params={MODEL: model})


def _curves(data: FineTuneData, step: int, majority: tuple[str, float] | None, columns: Sequence[DeltaGenerator],
            ink: Ink) -> None:
    """The losses on the left, the scores on the right."""
    records = data.records
    last = max(int(data.about.get("steps", 0)) if data.live else 0, records[-1].step, 1)
    guess = (100 * (records[0].exact or 0.0), f"before training: {percent(records[0].exact)}") if majority is None \
        else (100 * majority[1], f"majority class: {percent(majority[1])}")
    losses = loss_curves(records)
    chart_title("Loss", columns[0], legend(losses, ink))
    draw_chart(columns[0], *split_data(step_chart(losses, ink=ink, last_x=last, step=step, height=HEIGHT)),
               key="fine_tune:loss", alt="Validation and training loss over fine-tuning")
    scores = [Curve("accuracy" if majority else "sequence accuracy", points(records, "exact", 100)),
              Curve("balanced accuracy", balanced_points(records)),
              Curve("token accuracy", points(records, "letters", 100))]
    chart_title("Validation accuracy", columns[1], legend(scores, ink))
    spec = step_chart(scores, ink=ink, last_x=last, step=step, high=100, percent=True, guess=guess, height=HEIGHT)
    draw_chart(columns[1], *split_data(spec), key="fine_tune:right",
               alt="Validation accuracy over fine-tuning")
