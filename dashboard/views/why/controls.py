"""The controls, and the two runs that they start: the same model without attention and with it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import streamlit as st

from core.attention import ConfigError
from core.attention.config import entry
from core.models import ModelConfig
from core.runs.runs import Run
from core.tasks import TaskConfig
from core.training import RunConfig
from core.training.config import BOUNDS
from dashboard.runtime import jobs
from dashboard.server import people
from dashboard.server.limits import most_seconds
from dashboard.ui.progress import flash_errors
from dashboard.widgets.params import BOUND
from dashboard.widgets.run_controls import start_button, stop_button

PAGE, RUNS, LAST = "why", "runs", "why:last"
Pair = tuple[Run, Run]
SIZES = (16, 32, 64, 96, 128, 192, 256)
LONGEST = (20, 30, 40, 50, 60, 70, 80)
FEW_STEPS = 0  # the option of SECONDS that trains for FEW steps instead, the same on a slow machine
SECONDS = (FEW_STEPS, 5, 10, 20, 45, 90, 180)
SCORES = ("dot", "general", "additive", "concat", "scaled_dot", "cosine")
EVERY, DECODE_EVERY = (
    25,
    2,
)  # steps between two records, and records between two translations of held-out sentences
FEW = EVERY * DECODE_EVERY  # steps: up to the first translation, before attention has a clear lead
MEASURING = 3.0  # limit of a run's seconds, with measuring, as a multiple of its training: the machine may be busy


class Model(NamedTuple):
    """The score of a model's attention (None: no attention), and the size of its state."""

    score: str | None
    d_model: int

    @classmethod
    def of(cls, config: RunConfig) -> Model:
        attention = config.model.attention
        return cls(None if attention is None else attention.score.key, config.model.d_model)

    def name(self, with_size: bool = False) -> str:
        """The name beside its line."""
        name = "one vector" if self.score is None else "attention"
        if self.score not in (None, "dot"):
            name += f", {entry('score', self.score).name.lower()}"
        return f"{name}, {self.d_model}" if with_size else name


@dataclass(frozen=True)
class Controls:
    """The vector's size, the longest source in words, the score, the seconds of training each, and the seed."""

    d_model: int = 128
    longest: int = 60
    score: str = "dot"
    seconds: float = 45.0
    seed: int = 0

    @property
    def planned(self) -> str:
        """How long each model trains: 45 s, or 50 steps."""
        return training_label(self.seconds)

    @property
    def pair(self) -> tuple[Model, Model]:
        return Model(None, self.d_model), Model(self.score, self.d_model)

    def config(self, model: Model) -> RunConfig:
        """Number words from English to German, with equal seconds of training for all models, or a few steps.

        The rate falls as 1/√step, which needs no known last step, and no run ends early.
        """
        if self.seconds == FEW_STEPS:
            return replace(
                replace(self, seconds=SECONDS[-1]).config(model),
                steps=FEW,
                seconds=BOUNDS["seconds"][1],
                trained=BOUNDS["trained"][1],
            )
        return RunConfig(
            TaskConfig.of("numbers", max_source=self.longest),
            ModelConfig.recurrent(model.d_model, model.score),
            steps=int(BOUNDS["steps"][1]),
            batch_size=64,
            learning_rate=4e-3,
            warmup=50,
            schedule="inverse_sqrt",
            seed=self.seed,
            seconds=min(BOUNDS["seconds"][1], 60 + MEASURING * self.seconds),
            trained=self.seconds,
            record_every=EVERY,
            decode_every=DECODE_EVERY,
            held_out=120,
            watch=8,
            finish_early=False,
        )

    def counted(self, model: Model, steps: int) -> RunConfig:
        """The same for a number of steps, which gives the same numbers on any machine; the rate falls as a cosine."""
        return replace(
            self.config(model),
            steps=steps,
            trained=BOUNDS["trained"][1],
            seconds=BOUNDS["seconds"][1],
            record_every=max(1, steps // 18),
            decode_every=1,
            schedule="cosine",
        )

    @classmethod
    def of(cls, config: RunConfig) -> Controls:
        """The setting of the run with attention."""
        model, seconds = Model.of(config), FEW_STEPS if config.steps == FEW else config.trained
        return cls(
            model.d_model,
            int(config.task["max_source"]),
            model.score or cls.score,
            seconds,
            config.seed,
        )


def training_label(seconds: float) -> str:
    """An option of SECONDS in words."""
    return f"{FEW} steps" if seconds == FEW_STEPS else f"{seconds:g} s"


def controls(live_pair: Pair | None) -> Controls:
    """Draw one row: the settings of the next two runs, and the button that starts or stops them."""
    offered = [seconds for seconds in SECONDS if seconds <= most_seconds()]
    usual = offered.index(min(int(Controls.seconds), offered[-1]))
    if st.session_state.get("why:seconds") not in (None, *offered):
        del st.session_state["why:seconds"]
    grid = st.grid(6, min_column_width=120, vertical_alignment="bottom")
    with grid:
        values = Controls(
            d_model=st.selectbox(
                "Size of the vector",
                SIZES,
                SIZES.index(Controls.d_model),
                key="why:d_model",
                **BOUND,
                help="How many numbers the encoder has for the sentence",
                format_func=lambda size: f"{size} numbers",
            ),
            longest=st.selectbox(
                "Longest source",
                LONGEST,
                LONGEST.index(Controls.longest),
                key="why:longest",
                **BOUND,
                help="The longest English sentence of the training data",
                format_func=lambda length: f"{length} words",
            ),
            score=st.selectbox(
                "Score",
                SCORES,
                key="why:score",
                **BOUND,
                help="How the model with attention compares a query with a key",
                format_func=lambda score: entry("score", score).name,
            ),
            seconds=st.selectbox(
                "Training each",
                offered,
                usual,
                key="why:seconds",
                **BOUND,
                help="Seconds of training for each of the two models, or a few steps",
                format_func=training_label,
            ),
            seed=st.number_input(
                "Seed",
                0,
                2**31 - 1,
                0,
                key="why:seed",
                **BOUND,
                help="Another seed gives other random parameters and sentences",
            ),
        )
        if live_pair and people.mine(live_pair[0]):
            stop_button(st, PAGE, _stop, live_pair)
        else:
            start_button(
                st,
                "Run it",
                key="why:run",
                on_click=_start,
                args=(values,),
                help="Trains two models on this machine at the same time: one without attention, one with it.",
            )
    return values


def _start(values: Controls) -> None:
    """Start both runs, and put them into the link."""
    configs = [
        (
            values.config(model),
            {"name": f"Why attention: {'with ' * bool(model.score)}{model.name()}"},
        )
        for model in values.pair
    ]

    def start() -> None:
        st.query_params[RUNS] = ".".join(run.id for run in jobs.start_all(configs))

    flash_errors(PAGE, "The runs could not be started: ", start, jobs.QueueFull, OSError)


def _stop(pair: Pair) -> None:
    for run in filter(people.mine, pair):
        jobs.stop(run)


def linked_pair() -> tuple[Pair | None, str]:
    """The runs of the link, else of the session; and a warning when the link's are not here."""
    ids, last = st.query_params.get(RUNS), st.session_state.get(LAST)
    if ids is None and last is not None and _pair(last) is not None:
        st.query_params[RUNS] = ids = last
    st.session_state[LAST] = ids
    pair = None if ids is None else _pair(ids)
    if ids is None or pair is not None:
        return pair, ""
    return None, (
        "The link names runs that are not on this machine, or are no such pair. Below is the saved "
        "measurement."
    )


def _pair(text: str) -> Pair | None:
    runs = [run for name in text.split(".") if (run := people.find_run(name)) is not None]
    if len(runs) != 2 or text.count(".") != 1:
        return None
    try:
        configs = [run.config() for run in runs]
    except (ConfigError, TypeError, ValueError, KeyError):
        return None
    kinds = [
        (config.task.key, config.model.kind, config.model.attention is None) for config in configs
    ]
    return (
        (runs[0], runs[1])
        if kinds == [("numbers", "recurrent", True), ("numbers", "recurrent", False)]
        else None
    )


def forget_pair() -> None:
    """Back to the saved measurement."""
    st.query_params.pop(RUNS, None)
    st.session_state.pop(LAST, None)
