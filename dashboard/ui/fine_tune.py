"""Fine-tuning on pages: the controls of the next run, the example runs, and what a run's folder holds."""

from collections.abc import Callable
from contextlib import suppress
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st

from core.entries import ConfigError, Param
from core.interpret.trace import AttentionTrace
from core.pretrained import (
    ModelInputs,
    PretrainedError,
    answer,
    finetune,
    hub,
    reject_if,
    top_candidates,
)
from core.pretrained.finetune import LAB, FineTuneConfig, parse
from core.pretrained.finetune_run import about, config_of, result, trace_of
from core.pretrained.generate import Candidate
from core.runs.runs import LISTED, Run, list_runs
from core.studies.runs import RunView
from core.tasks import reading
from core.tasks.own import HEADER
from core.training import AUTO, devices
from dashboard.draw.formats import plain
from dashboard.fields.base import HERE, Fields, Number, Select, SelectSlider, field_error
from dashboard.fields.data import clear_data, data_widget, link_data
from dashboard.fields.model import (
    OTHER,
    PANELS,
    model_box,
    other_panel,
    resolve_model,
    select_model,
)
from dashboard.server.session import SessionValue
from dashboard.ui.models import (
    EMBEDDED,
    EXAMPLES,
    ModelRef,
    folder_name,
    folder_of,
    load_model,
    reading_of,
)
from dashboard.ui.panels import caption

# The controls of the next run: task, model, rows and settings.


EXAMPLE = "could you tell me why nobody answers the phone"
USUAL_MODEL = {
    "classify": EMBEDDED,
    "pairs": ModelRef("lab", str(finetune.USUAL["pairs"]["model"]).removeprefix(LAB)),
}
SETTINGS = ("epochs", "layers", "learning_rate", "batch_size", "seed", "device")
READING = ("header", "answers")
LINES = {"classify": "One text and its label", "pairs": "A source and its target"}
OURS = {
    "classify": "120 messages that are a question, a request, praise or a complaint",
    "pairs": "400 numbers in English words and the same numbers in digits",
}


def _usual(name: str) -> Callable[[Any], Any]:
    return lambda c: finetune.USUAL[c.task][name]


def _of_task(name: str) -> Callable[[Any], str]:
    return lambda c: f"{name}:{c.task}"


class FineTuneSetup(Fields):
    task = Select(
        "Task",
        {"classify": "Labels of texts", "pairs": "Pairs of sequences"},
        # the link's run is of another task
        also={"on_change": lambda: st.query_params.pop("run", None)},
        help="What the model learns from each row.",
    )
    epochs = Number(
        "Epochs",
        _usual("epochs"),
        low=int(finetune.BOUNDS["epochs"][0]),
        high=int(finetune.BOUNDS["epochs"][1]),
        key=_of_task("epochs"),
        hidden=True,
        help="Passes over the training rows.",
    )
    layers = Number(
        "Trained layers",
        _usual("layers"),
        low=int(finetune.BOUNDS["layers"][0]),
        high=int(finetune.BOUNDS["layers"][1]),
        key=_of_task("layers"),
        hidden=True,
        help="Counted from the last layer. With 0, only the classification head is trained and no attention "
        "changes. Embeddings are not trained. A classifier with the same labels keeps its head; any other "
        "model gets a new one.",
    ).optional(lambda c: c.task == "classify")
    learning_rate = SelectSlider(
        "Learning rate",
        (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2),
        _usual("learning_rate"),
        text="{:g}".format,
        key=_of_task("learning_rate"),
        hidden=True,
        help="The size of each update of the weights.",
    )
    batch_size = SelectSlider(
        "Batch size",
        (4, 8, 16, 32, 64),
        _usual("batch_size"),
        key=_of_task("batch_size"),
        hidden=True,
        help="The number of rows in one update.",
    )
    seed = Number(
        "Seed",
        0,
        low=int(finetune.BOUNDS["seed"][0]),
        high=int(finetune.BOUNDS["seed"][1]),
        key=_of_task("seed"),
        hidden=True,
        help="Fixes which rows are held out, the new weights and the order of rows.",
    )
    device = Select(
        "Device",
        devices(),
        key=_of_task("device"),
        # more than automatic and the CPU
        hidden=True,
        help=f"{AUTO[0].upper()}{AUTO[1:]}.",
    ).optional(lambda c: len(devices()) > 2)
    header = Select(
        "First line",
        dict(zip(HEADER.choices, HEADER.labels, strict=True)),
        key=_of_task("header"),
        hidden=True,
        help="What the first line of your rows holds.",
    )
    answers = Select(
        "Column of the labels or targets",
        {"auto": "automatic", "first": "the first", "second": "the second"},
        key=_of_task("answers"),
        hidden=True,
        help="Which column the model learns to answer.",
    )
    sentence = Select[str](
        "Sentence (select or type)",
        lambda c: list(dict.fromkeys([*c.watched, c.typed_before])),
        EXAMPLE,
        typed=True,
        hidden=True,
        help="The next run records its attention.",
    )

    @classmethod
    def typed_sentence(cls) -> str:
        return cls.read("sentence", watched=[], typed_before=EXAMPLE).sentence

    @classmethod
    def adopt(cls, config: FineTuneConfig) -> None:
        """Set all controls to the settings of a run."""
        settings = {name: getattr(config, name) for name in (*SETTINGS, *READING)}
        cls.set(**settings, task=config.task)
        SessionValue("", f"fine_tune:data:{config.task}").value = config.data
        if (name := base_model(config.model).name) != USUAL_MODEL[config.task].name:
            select_model(name)

    @classmethod
    def draw_setup(cls) -> tuple[str, FineTuneConfig | None]:
        """Draw the row of controls; the task, and the config, or None with the reason on the page."""
        sentence = cls.typed_sentence()
        row = st.columns([1.15, 1.3, 1, 1], vertical_alignment="bottom")
        task = cls.draw("task", into=row[0]).task
        name = model_box(row[1], USUAL_MODEL[task])
        with row[2]:
            data, ways, opened = cls._rows(task)
        panel = row[3].popover(
            "Settings",
            icon=":material/tune:",
            width="stretch",
            on_change="rerun",
            key=f"fine_tune:panel:{task}",
            help="Duration, learning rate and seed of the next run.",
        )
        with panel:  # while it is closed, the settings of the session
            values = cls(task=task).draw_or_read(*SETTINGS, opened=panel.open)
        settings = {name: values[name] for name in SETTINGS if values[name] is not None} | ways
        try:
            model = _model(name, task)
            parse(task, data, settings["seed"], **ways)
            example = sentence if task == "classify" else ""
            if model:
                return task, FineTuneConfig(
                    task=task,  # type: ignore[arg-type]
                    data=data,
                    model=model,
                    logged_example=example.strip(),
                    **settings,
                )
        except PretrainedError as error:
            field_error(error)
            st.button(
                f"Use {USUAL_MODEL[task].name}",
                key="fine_tune:usual",
                on_click=select_model,
                args=(USUAL_MODEL[task].name,),
            )
        except ConfigError as error:
            if not opened:  # there it stands under the field
                field_error(error)
        return task, None

    @classmethod
    def _rows(cls, task: str) -> tuple[str, dict[str, str], bool]:
        """The rows, how their first line and columns are read, and whether their panel is open."""
        key, own = f"fine_tune:data:{task}", finetune.own_rows(task)
        link_data(key, own)
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
            values = cls.read(*READING, task=task)
            rows = SessionValue(own, key).value
            return _text(rows), {name: values[name] for name in READING}, False
        first, second = finetune.TASKS[task]
        with panel:
            st.markdown(f"**{LINES[task]} in each line of a CSV**")
            st.caption(
                f"The first line may name the columns: {first},{second}. For validation, a quarter of "
                f"{'each label’s rows' if task == 'classify' else 'the rows'} is held out, rounded down to a whole number, "
                f"and at most {finetune.MAX_HELD_OUT} rows are measured. The lab's rows: {OURS[task]}."
            )
            values = cls.draw(*READING, into=HERE, task=task)
            ways = {name: values[name] for name in READING}
            rows = _text(
                data_widget(
                    Param(
                        "data",
                        "Rows",
                        default=own,
                        meaning=f"CSV with {first} and {second}",
                        longest=reading.MAX_SIGNS,
                        parse=lambda value: parse(task, reading.read(value), **ways),
                    ),
                    key,
                )
            )
            with suppress(ConfigError):  # which stands under the field
                caption(" ".join(map(plain, parse(task, rows, **ways).notes)))
            if rows != own:
                st.button(
                    "Use the lab's rows",
                    key=f"{key}:ours",
                    type="tertiary",
                    on_click=clear_data,
                    args=(key, own),
                )
        return rows, ways, True


def _model(name: str, task: str) -> str | None:
    """The model's name in a config; None, with a panel on the page, while it is not here.

    PretrainedError when it cannot learn such rows.
    """
    if name == OTHER:
        other_panel(st)
        return None
    ref = resolve_model(name) if name not in PANELS else ModelRef("array", name)
    if ref is None:
        return None
    reject_if(
        ref.source == "array",
        f"{name} gives attention weights only; this page trains a model of the list, of the hub or of a folder.",
    )
    finetune.check_model(config_name(ref), task)
    return config_name(ref)


def _text(value: str) -> str:
    """The rows themselves; "" where they are not here, which the field reports."""
    try:
        return reading.read(value)
    except ConfigError:
        return ""


# The runs: the examples, and what the folder of one holds.


FINE_TUNED = {
    "classify": Run(EXAMPLES / "examples" / "fine_tune" / "messages"),
    "pairs": Run(EXAMPLES / "examples" / "fine_tune" / "numbers"),
}


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

    def rows(self) -> finetune.Rows:
        config = self.required_config
        return parse(config.task, config.data, config.seed)

    def trace(self, step: int, sentence: int) -> AttentionTrace:
        return trace_of(
            _frame(self.run, step, self.run.frame_path(step).stat().st_mtime_ns),
            sentence,
            self.sentences[sentence],
            f"step {step:,}",
        )

    @property
    def tuned(self) -> ModelRef | None:
        """The fine-tuned model; None until it is stored."""
        if self.model is None:
            return None
        return ModelRef(
            "folder",
            folder_name(self.model),
            str((self.model / "model.safetensors").stat().st_mtime_ns),
        )

    def readings(self, text: str) -> tuple[AttentionTrace, AttentionTrace] | None:
        """Both models' attention on the text; None without a second model. PretrainedError for an empty text."""
        if (tuned := self.tuned) is None or self.config is None:
            return None
        base, inputs = base_model(self.config.model), ModelInputs(text)
        return reading_of(base, inputs).trace, reading_of(tuned, inputs).trace

    def labels(self, text: str) -> tuple[Candidate, ...]:
        """The four likeliest labels of the text by the fine-tuned model, the likeliest first."""
        if self.tuned is None:
            return ()
        model = load_model(self.tuned)
        return top_candidates(model, answer(model, ModelInputs(text)), 4)


@lru_cache(maxsize=64)
def _frame(run: Run, step: int, _changed: int) -> dict[str, np.ndarray]:
    return run.frame(step)


def load_fine_tune(run: Run) -> FineTuneData:
    """Read a run's folder; an unreadable config, or one with unusable rows, becomes `trouble`."""
    return FineTuneData.read(
        run, config_of, lambda config: parse(config.task, config.data, config.seed)
    )


def base_model(model: str) -> ModelRef:
    if model == finetune.MINILM:
        return EMBEDDED
    return (
        ModelRef("lab", model.removeprefix(LAB))
        if model.startswith(LAB)
        else ModelRef("folder", folder_name(Path(model)))
    )


def config_name(ref: ModelRef) -> str:
    """A model's name in a run's config, which `base_model` reads."""
    if ref.source == "hub":
        return str(hub.model_folder(ref.name, ref.revision))
    return (
        str(folder_of(ref.name))
        if ref.source == "folder"
        else {"embedded": finetune.MINILM, "lab": f"{LAB}{ref.name}"}.get(ref.source, ref.name)
    )


def tuned_models() -> list[tuple[ModelRef, str, ModelRef]]:
    """The base model, the name and the reference of the last fine-tuned models, and of the examples."""
    runs = [
        run for run in reversed(list_runs(latest=LISTED)) if run.job == "finetune" and result(run)
    ]
    models = []
    for run in (*runs[:5], *FINE_TUNED.values()):
        with suppress(ConfigError):
            if ref := load_fine_tune(run).tuned:
                base = config_of(run).model
                name = run.name if run.metadata().get("name") else f"{run.id[9:11]}:{run.id[11:13]}"
                shown = "example" if run in FINE_TUNED.values() else name
                models.append((base_model(base), f"{finetune.name_of(base)}, {shown}", ref))
    return models
