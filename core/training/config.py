"""The config of a training run: a task, a model and the training settings."""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import torch
from msgspec import Meta

from core.attention.presets import LayerPattern
from core.entries import check_fields, refuse_if
from core.models import RECURRENT, ModelConfig
from core.models.cards.base import ModelCard
from core.serialization import bounds, check_types, renamed
from core.tasks import Task, TaskConfig, make_task, reading
from core.tasks.recipes import PATIENCE

Device = Literal["auto", "cpu", "cuda", "mps"]
Optimizer = Literal["adamw", "adam", "rmsprop", "sgd"]
Schedule = Literal["constant", "cosine", "inverse_sqrt"]
Precision = Literal["fp32", "bf16"]
Decayed = Literal["all", "matrices"]
Initialization = Literal["own", "gpt2"]
OPTIMIZERS, SCHEDULES = get_args(Optimizer), get_args(Schedule)
Seed = Annotated[int, Meta(ge=0, le=2**31 - 1)]
FRAMES = 50  # records along a recommended run
LONG = 24  # tokens; decoding longer outputs takes longer than the steps between two records
# written only where they differ from their defaults, as older versions do not know them
NEW_FIELDS = {"beta1", "beta2", "decayed", "min_rate", "initialization"}


@dataclass(frozen=True)
class RunConfig:
    """A task, a model and training settings; ConfigError for values that cannot run.

    `record_every` counts steps between records, `decode_every` records between free-running decodes. `max_seconds` caps
    the whole run, `max_train_seconds` the training alone. `finish_early` ends it after two records in a row with a
    sequence accuracy of 99 %, `patience` after that many records without a smaller validation loss (0: never). With
    `keep_best` the final figures, and every page by default, use the weights of the smallest validation loss.
    `checkpointing` recomputes layers in the backward pass; precision bf16 runs the forward pass in bfloat16.
    `num_examples` held-out examples are logged with each record, with their attention.
    `beta1` and `beta2` are Adam's decays of its two means; `decayed` is what weight decay pulls at, all weights or the
    matrices alone, without biases and norms; a cosine ends at `min_rate` of the learning rate. `initialization` gpt2
    begins as GPT-2 does (core.training.loop.start_as_gpt2), own as each part of the model does.
    """

    task: TaskConfig
    model: ModelConfig
    steps: Annotated[int, Meta(ge=1, le=100_000)] = 1000
    batch_size: Annotated[int, Meta(ge=1, le=512)] = 64
    learning_rate: Annotated[float, Meta(ge=1e-6, le=1)] = 3e-3
    optimizer: Optimizer = "adamw"
    warmup: Annotated[int, Meta(ge=0, le=5_000)] = 0
    schedule: Schedule = "cosine"
    seed: Seed = 0
    device: Device = "auto"
    max_seconds: Annotated[float, Meta(ge=1, le=86_400)] = 900.0
    max_train_seconds: Annotated[float, Meta(ge=0.5, le=86_400)] = 3_600.0
    clip: Annotated[float, Meta(ge=0.01, le=1e9)] = 1.0
    weight_decay: Annotated[float, Meta(ge=0, le=1)] = 0.01
    label_smoothing: Annotated[float, Meta(ge=0, le=0.5)] = 0.0
    patience: Annotated[int, Meta(ge=0, le=1_000)] = 0
    keep_best: bool = False
    precision: Precision = "fp32"
    checkpointing: bool = False
    record_every: Annotated[int, Meta(ge=1, le=5_000)] = 20
    decode_every: Annotated[int, Meta(ge=1, le=1_000)] = 1
    held_out: Annotated[int, Meta(ge=1, le=1_000)] = 200
    num_examples: Annotated[int, Meta(ge=1, le=8)] = 5
    finish_early: bool = True
    beta1: Annotated[float, Meta(ge=0, le=0.999)] = 0.9
    beta2: Annotated[float, Meta(ge=0, le=0.9999)] = 0.999
    decayed: Decayed = "all"
    min_rate: Annotated[float, Meta(ge=0, le=1)] = 0.1
    initialization: Initialization = "own"

    def __post_init__(self) -> None:
        check_types(self)
        for reads, names, what in (
            (
                self.optimizer in ("adamw", "adam"),
                ("beta1", "beta2"),
                f"optimizer = {self.optimizer}",
            ),
            (self.schedule == "cosine", ("min_rate",), f"schedule = {self.schedule}"),
            (self.model.kind not in RECURRENT, ("initialization",), f"kind = {self.model.kind}"),
        ):
            for name in () if reads else names:
                usual = getattr(type(self), name)
                refuse_if(
                    getattr(self, name) != usual,
                    f"{what} does not read {name}; leave it at {usual}.",
                )
        refuse_if(
            self.checkpointing and self.model.kind in RECURRENT,
            f"checkpointing works layer by layer, and kind = {self.model.kind} has no layers; take "
            "checkpointing = false.",
        )

    def with_stored_data(self, folder: Path) -> "RunConfig":
        """The config with long data moved into a run's folder and replaced by a reference."""
        params = dict(self.task.params)
        if not isinstance(data := params.get("data"), str):
            return self
        if not reading.is_reference(reference := reading.put_if_long(data)):
            return self
        reading.link(reference, folder)
        return replace(
            self, task=TaskConfig.of(self.task.key, self.task.seed, **{**params, "data": reference})
        )

    def to_json(self) -> dict:
        plain = {
            field.name: value
            for field in fields(self)
            if (value := getattr(self, field.name)) != field.default or field.name not in NEW_FIELDS
        }
        return plain | {"task": self.task.to_json(), "model": self.model.to_json()}

    @classmethod
    def from_json(cls, data: object) -> "RunConfig":
        """The config in a dict; ConfigError for a missing or unknown name or an invalid value."""
        data = renamed(data, "config") if isinstance(data, dict) else data
        values = check_fields(cls, data, "A run", ("task", "model"))
        parts = {
            "task": TaskConfig.from_json(values["task"]),
            "model": ModelConfig.from_json(values["model"]),
        }
        return cls(**{**values, **parts})


BOUNDS = bounds(RunConfig)
# Of each run where several are compared: no comparison takes longer, or has another schedule, than those that are shipped.
COMPARED_STEPS, COMPARED_SECONDS = 20_000, 3_600.0


def devices() -> tuple[str, ...]:
    """The devices of this machine, `auto` and `cpu` first."""
    gpus = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    return ("auto", "cpu", *(name for name, available in gpus.items() if available))


AUTO = "automatic is CUDA where there is such a GPU, else the CPU; MPS, on which the lab is not tested, only if chosen"


def resolve_device(name: str) -> str:
    """The device to train on: `auto` as AUTO says; ConfigError for a missing one."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    refuse_if(
        name not in devices(),
        f"device = {name} is not on this machine; take one of {', '.join(devices())}.",
    )
    return name


def recommended(task: Task, kind: str | None = None, **changes: Any) -> RunConfig:
    """The task's recipe for a kind of model (its best one by default), with changes; ConfigError for an unknown one."""
    kind = next(iter(task.recommended)) if kind is None else kind
    refuse_if(
        kind not in task.recommended,
        f"task = {task.key} does not go with model = {kind}; take one of "
        f"{', '.join(task.recommended)}.",
    )
    recipe = task.recommended[kind]
    # no text can be wholly right, which ends other tasks
    endless = task.form == "text"
    settings: dict[str, Any] = (
        dict(
            steps=recipe.steps,
            batch_size=recipe.batch_size,
            learning_rate=recipe.learning_rate,
            optimizer=recipe.optimizer,
            warmup=recipe.warmup,
            schedule=recipe.schedule,
            weight_decay=recipe.weight_decay,
            patience=recipe.patience or PATIENCE * endless,
            keep_best=recipe.keep_best or endless,
            finish_early=not task.finite,  # a small held-out set would flatter the result
            decode_every=1 if task.form != "pairs" or task.max_target <= LONG else 5,
        )
        | changes
    )
    settings.setdefault("record_every", max(1, settings["steps"] // FRAMES))
    model = settings.pop("model", None) or ModelConfig.from_json(recipe.model)
    return RunConfig(task.config, model, **settings)


def nanogpt(task: TaskConfig) -> RunConfig:
    """nanoGPT's recipe for Shakespeare by characters on a CPU (Karpathy 2023, its README and config/
    train_shakespeare_char.py), on a text: windows of 64 characters. ConfigError for another task than a text."""
    params = {"length": 64, "unit": "characters"}
    refuse_if(
        not params.keys() <= dict(task.params).keys(),
        f"task = {task.key} is no text that can be read by characters; take own_text or topics.",
    )
    model = ModelConfig.transformer(
        128,
        num_heads=4,
        layers=4,
        d_ff=512,
        kind="decoder",
        norm="pre",
        activation="gelu",
        position="learned",
        tied=True,
        output_bias=False,
        scaled_embedding=False,
    )
    settings: dict[str, Any] = {**dict(task.params), **params}
    text = TaskConfig.of(task.key, task.seed, **settings)
    return recommended(
        make_task(text),
        "decoder",
        model=model,
        steps=2000,
        batch_size=12,
        learning_rate=1e-3,
        warmup=100,
        weight_decay=0.1,
        beta2=0.99,
        decayed="matrices",
        initialization="gpt2",
        patience=0,
    )


HEADS = 4  # of a small model with the pattern of layers of a published one


def card_recipe(card: ModelCard) -> RunConfig:
    """A run in which every attention of the card's pattern occurs: with few heads, short windows, and pre-norm.

    An encoder classifies sentences by language, an encoder–decoder reverses letters, a decoder recalls pairs.
    """
    task, kind = (
        ("reverse", "transformer")
        if card.encoder_blocks
        else (("recall", "decoder") if card.stores else ("language", "classifier"))
    )
    base = recommended(make_task(TaskConfig.of(task)), kind)
    model = replace(
        base.model,
        num_heads=HEADS,
        norm="pre",
        # A class token sees nothing through a window.
        pool="mean" if kind == "classifier" else base.model.pool,
        layers=max(base.model.layers, card.pattern),
        **pattern_of(card, base.model, HEADS),
    )
    return replace(base, model=model)


def pattern_of(card: ModelCard | LayerPattern, model: ModelConfig, heads: int) -> dict[str, Any]:
    """The attentions of a published model's pattern, or of one of presets, at the size of this model."""
    first, *following = (
        config.with_(dropout=model.dropout) for config in card.small(model.d_model, heads)
    )
    return {"attention": first, "following": tuple(following)}
