"""The fine-tuning run that the page shows, and the models that were fine-tuned."""

from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st

from core.interpret.trace import AttentionTrace
from core.pretrained import ModelInputs, answer, hub
from core.pretrained.finetune import LAB, MINILM, TASKS, FineTuneConfig, Rows, parse
from core.pretrained.finetune_run import about, config_of, result, trace_of
from core.runs.runs import Run
from dashboard.server.people import find_run
from dashboard.ui.models import EMBEDDED, ModelRef, folder_name, folder_of, load_model, reading_of
from dashboard.ui.run_data import HERE, RunView

# The fine-tuning run that the page shows: the link's, the session's last of that task, or an example.


EXAMPLE_RUNS = {
    "classify": Run(HERE / "fine_tune" / "messages"),
    "pairs": Run(HERE / "fine_tune" / "numbers"),
}
TASK, LAST, FOLLOW = "fine_tune:task", "fine_tune:last", "fine_tune:follow"
LINK = "run"  # the link's word


class FineTuneData(RunView[FineTuneConfig]):
    @cached_property
    def about(self) -> dict[str, Any]:
        return about(self.run)

    @property
    def sentences(self) -> list[dict[str, Any]]:
        return list(self.about.get("sentences", ()))

    @property
    def watched(self) -> list[str]:
        return [str(sentence["text"]) for sentence in self.sentences]

    @property
    def model(self) -> Path | None:
        return None if self.live else result(self.run)

    def rows(self) -> Rows:
        config = self.required_config
        return parse(config.task, config.data, config.seed)

    def trace(self, step: int, sentence: int) -> AttentionTrace:
        maps = _frame(self.run, step, self.run.frame_path(step).stat().st_mtime_ns)
        return trace_of(maps, sentence, self.sentences[sentence], f"step {step:,}")


@lru_cache(maxsize=64)
def _frame(run: Run, step: int, _changed: int) -> dict[str, np.ndarray]:
    return run.frame(step)


def load_fine_tune(run: Run) -> FineTuneData:
    """Read a run's folder; an unreadable config, or one with unusable rows, becomes `trouble`."""

    def config(run: Run) -> FineTuneConfig:
        config = config_of(run)
        parse(config.task, config.data, config.seed)
        return config

    return FineTuneData.read(run, config)


def read_link() -> None:
    """Select the task of the link's run, before its control is drawn; warns where the run is missing."""
    state, run_id = st.session_state, st.query_params.get(LINK)
    run = find_run(run_id) if run_id else None
    task = run.metadata().get("finetune", {}).get("task") if run is not None else None
    if run is not None and task in TASKS:
        if state.setdefault(LAST, {}).get(task) != run.id or TASK not in state:
            state[TASK] = task
        state[LAST][task] = run.id
    elif run_id:
        st.warning(
            "The fine-tuned run in the link is not on this machine, or was deleted. Below is the example run."
        )


def current_run(task: str) -> Run:
    return find_run(st.session_state.get(LAST, {}).get(task)) or EXAMPLE_RUNS[task]


def select_run(run: Run, task: str) -> None:
    st.query_params[LINK] = run.id
    st.session_state.setdefault(LAST, {})[task] = run.id
    st.session_state.pop(FOLLOW, None)


def select_example(task: str) -> None:
    st.query_params.pop(LINK, None)
    st.session_state.get(LAST, {}).pop(task, None)


def before(model: str) -> ModelRef:
    if model == MINILM:
        return EMBEDDED
    if model.startswith(LAB):
        return ModelRef("lab", model.removeprefix(LAB))
    return ModelRef("folder", folder_name(Path(model)))


def config_name(ref: ModelRef) -> str:
    """A model's name in a run's config, which `before` reads."""
    if ref.source == "hub":
        return str(hub.model_folder(ref.name, ref.revision))
    if ref.source == "folder":
        return str(folder_of(ref.name))
    return {"embedded": MINILM, "lab": f"{LAB}{ref.name}"}.get(ref.source, ref.name)


def after(data: FineTuneData) -> ModelRef | None:
    folder = data.model
    if folder is None:
        return None
    return ModelRef(
        "folder", folder_name(folder), str((folder / "model.safetensors").stat().st_mtime_ns)
    )


def readings(data: FineTuneData, text: str) -> tuple[AttentionTrace, AttentionTrace] | None:
    """Both models' attention on the text; None without a second model. PretrainedError for an empty text."""
    ref = after(data)
    if ref is None or data.config is None:
        return None
    inputs = ModelInputs(text)
    return reading_of(before(data.config.model), inputs).trace, reading_of(ref, inputs).trace


def labels(data: FineTuneData, text: str) -> list[tuple[str, float]]:
    """The labels of the text by the fine-tuned model, with their probabilities, the likeliest first."""
    if (ref := after(data)) is None:
        return []
    tuned = load_model(ref)
    shares, names = answer(tuned, ModelInputs(text)).probabilities, tuned.model.config.id2label
    return sorted(
        (
            (str(names[index]), float(share))
            for index, share in enumerate(() if shares is None else shares)
        ),
        key=lambda label: -label[1],
    )
