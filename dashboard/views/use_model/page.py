"""The page Use a model: its job, what it answers, the head that the answer hangs on, and models for other jobs."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from core.pretrained import Pretrained, PretrainedError
from core.pretrained.answers import answer_of
from core.pretrained.evidence import ablate_heads
from core.pretrained.model_tasks import MODEL_TASKS, ModelTask, task_of
from dashboard.charts.numbers import byte_size
from dashboard.views.use_model import jobs, text
from dashboard.widgets.model_picker import ModelChoice, choose_model
from dashboard.widgets.model_picker.resolve import select_model
from dashboard.widgets.panels import next_page, plain, source_panel, title

PAGE = "use_model"
SECTIONS: dict[str, Callable[[ModelChoice, Pretrained], None]] = {
    "embed": jobs.embed, "fill": jobs.fill, "classify": jobs.probabilities,
    "next": jobs.probabilities, "translate": jobs.translate, "picture": jobs.probabilities,
}


def page() -> None:
    title("Use a model", "The ordinary job of a model, beside the head that its answer hangs on most.")
    chosen = choose_model(PAGE, needs=("model",))
    if chosen is not None and chosen.pretrained is not None:
        try:
            job = task_of(chosen.pretrained)
            st.markdown(text.own_job(job, chosen.pretrained.name))
            SECTIONS[job.key](chosen, chosen.pretrained)
            others(job, chosen.pretrained.name)
        except PretrainedError as error:
            st.info(plain(str(error)), icon=":material/edit:")
            others(None, chosen.pretrained.name)
    next_page(PAGE)


def others(own: ModelTask | None, name: str) -> None:
    """What this model is not made for, each with models that are; and what just ran."""
    shown = st.expander("Other jobs, and where these numbers come from", on_change="rerun", key="use_model:others")
    if not shown.open:
        return
    with shown:
        if own is not None:
            st.markdown(text.other_jobs(own, name))
        for job in MODEL_TASKS:
            if own is None or job.name != own.name:
                _other(job)
        source_panel(answer_of)
        source_panel(ablate_heads)


def _other(job: ModelTask) -> None:
    description, buttons = st.columns([1.2, 1], vertical_alignment="center")
    description.markdown(f"**{job.name}**: {job.does}. It takes {job.needs}.")
    with buttons.container(horizontal=True):
        if job.lab_model:
            st.button(job.lab_model, key=f"use_model:use:{job.key}", on_click=select_model, args=(job.lab_model,),
                      help="Here, offline.")
        label = f"{job.hub.partition('/')[2]}, {byte_size(1e6 * job.megabytes)}"
        st.button(label, key=f"use_model:hub:{job.key}", on_click=select_model,
                  args=(job.hub,), help=f"{job.hub} of the Hugging Face hub: looked up, and then loaded if you say so.")
