"""A sweep: one setting takes several values, each trained from several seeds, everything else equal."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import lru_cache, partial
from itertools import product
from typing import Any, Literal, get_args

from core.attention import (
    AXES,
    LAYER_PATTERNS,
    PRESETS,
    AttentionConfig,
    Choice,
    ConfigError,
    LayerPattern,
    attention_name,
    choice_name,
)
from core.attention.cost import ShapesOnly
from core.attention.text import choice_from_text, from_text
from core.entries import LONGEST_QUOTE, Param, check_fields, complete, quote, refuse_if
from core.models import ModelConfig, build_model
from core.models.base import STACKED
from core.models.cards import CARDS, ModelCard
from core.serialization import check_types, convert, renamed
from core.tasks import TaskConfig, make_task, task_entry, task_of
from core.tasks.recipes import PATIENCE
from core.training.config import (
    COMPARED_SECONDS,
    COMPARED_STEPS,
    RunConfig,
    Seed,
    pattern_of,
    recommended,
)
from core.training.settings import KINDS_WITH, SETTINGS

# The settings that can be swept, by name; a parameter of the task is task.NAME.
ATTENTION = {
    "attention": "Whole mechanism",
    "projection": "Projection",
    "score": "Score",
    "position": "Position",
    "mask": "Mask",
    "normalizer": "Normalizer",
    "kernel": "Kernel",
}
PATTERNS: dict[str, ModelCard | LayerPattern] = {one.key: one for one in CARDS}
PATTERNS |= {one.key: one for one in LAYER_PATTERNS}
SAME = "same"  # of the setting "pattern": the first attention in every layer
_OWN = {"kind": "Model", "pattern": "Layer pattern"}  # the other names are those of the settings
MODEL, TRAINING = (
    {key: _OWN.get(key) or SETTINGS[key].name for key in keys.split()}
    for keys in (
        "kind d_model num_heads pattern layers d_ff norm residual streams normalization activation dropout tied "
        "output_bias scaled_embedding pool cell bidirectional feeding",
        "learning_rate optimizer schedule warmup batch_size weight_decay label_smoothing clip min_rate beta1 beta2 "
        "decayed initialization",
    )
)
FIELDS = {**ATTENTION, **MODEL, **TRAINING}
Equal = Literal["steps", "seconds"]
EQUAL = get_args(Equal)
VALUES, SEEDS = (2, 8), (2, 10)  # fewest and most values of an axis, and seeds
RECORD_EVERY = 20  # steps, at least, where seconds are equal

USUAL = AttentionConfig()

Cell = tuple[int, int]  # the index of the value, and the seed


@dataclass(frozen=True)
class SweepConfig:
    """The setting `axis` of `base` takes `values`, each from `seeds`; ConfigError for what cannot run.

    With `second`, another setting, each value is combined with each of `second_values`, or, if `paired`, with the one at
    its place: a learning rate for each mechanism. A cell's index counts these combinations, `names` names them.
    Equal "steps": every run takes base.steps. Equal "seconds": every run trains for `seconds` without measuring, at a
    constant rate after its warm-up, as its number of steps is unknown. A run ends before only with `early`: as its
    base would, or after PATIENCE records without a smaller validation loss.
    """

    base: RunConfig
    axis: str
    values: tuple[Any, ...]
    seeds: tuple[Seed, ...] = (0, 1, 2)
    equal: Equal = "steps"
    seconds: float = 10.0
    second: str = ""
    second_values: tuple[Any, ...] = ()
    paired: bool = False
    early: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "seeds", tuple(self.seeds))
        check_types(self)
        name_of(self.axis, self.base.task)
        values = tuple(_value(self.axis, value) for value in self.values)
        object.__setattr__(self, "values", values)
        sizes = [("values", values, VALUES), ("seeds", self.seeds, SEEDS)]
        refuse_if(
            not self.second and (self.paired or self.second_values),
            "second_values and paired are of a second setting; say which by second.",
        )
        if self.second:
            name_of(self.second, self.base.task)
            others = tuple(_value(self.second, value) for value in self.second_values)
            object.__setattr__(self, "second_values", others)
            refuse_if(self.second == self.axis, "The two settings of a sweep must differ.")
            refuse_if(
                self.paired and len(others) != len(values),
                f"With “One for each value”, {len(values)} values need {len(values)} of {name_of(self.second)}; "
                f"there are {len(others)}.",
            )
            sizes = [("combinations", self.combinations, (2, 64)), sizes[1]]
            if not self.paired:
                sizes += [("values", values, VALUES), ("second values", others, VALUES)]
        for what, items, (few, many) in sizes:
            refuse_if(
                not few <= len(items) <= many,
                f"A sweep has {few} to {many} {what}; this one has {len(items)}.",
            )
            refuse_if(
                any(value in items[:index] for index, value in enumerate(items)),
                f"The {what} of a sweep must differ; one of them occurs twice.",
            )
        for index, name in enumerate(self.names):
            try:
                self.run(index, min(self.seeds))
            except ConfigError as error:
                what = " and ".join(map(name_of, self.axes))
                raise ConfigError(
                    f"{what} = {name:.{LONGEST_QUOTE}} is not possible. {error}"
                ) from error

    @property
    def axes(self) -> tuple[str, ...]:
        """The varied setting, or both."""
        return (self.axis, self.second) if self.second else (self.axis,)

    @property
    def combinations(self) -> tuple[tuple[Any, ...], ...]:
        """The values of the axes, combination by combination; those of one value of the first stand together."""
        if not self.second:
            return tuple((value,) for value in self.values)
        if self.paired:
            return tuple(zip(self.values, self.second_values, strict=True))
        return tuple(product(self.values, self.second_values))

    @property
    def names(self) -> list[str]:
        """Each combination in words."""
        return [
            ", ".join(map(value_text, self.axes, combination)) for combination in self.combinations
        ]

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Every run, seed by seed, so that each value has its first result early."""
        every = range(len(self.combinations))
        return tuple((index, seed) for seed in self.seeds for index in every)

    def run(self, index: int, seed: int) -> RunConfig:
        """The config of one combination and one seed."""
        run = self.base
        values = zip(self.axes, self.combinations[index], strict=True)
        for axis, value in sorted(
            values, key=lambda each: each[0] != "kind"
        ):  # which has its own rate
            run = vary(run, axis, value)
        run = replace(
            run,
            seed=seed,
            finish_early=self.early and run.finish_early,
            patience=(run.patience or PATIENCE) if self.early else 0,
            num_examples=1,
            max_seconds=COMPARED_SECONDS,
        )
        if self.equal == "steps":
            return replace(
                run,
                steps=self.base.steps,
                record_every=self.base.record_every,
                max_train_seconds=COMPARED_SECONDS,
            )
        schedule = run.schedule if "schedule" in self.axes else "constant"
        return replace(
            run,
            steps=COMPARED_STEPS,
            max_train_seconds=self.seconds,
            schedule=schedule,
            min_rate=run.min_rate if schedule == "cosine" else RunConfig.min_rate,
            record_every=max(self.base.record_every, RECORD_EVERY),
        )

    def try_models(self) -> None:
        """ConfigError when a model does not fit the task."""
        for cell in self.cells[: len(self.combinations)]:
            buildable(self.run(*cell))

    def to_json(self) -> dict[str, Any]:
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        for name in ("values", "second_values"):
            plain[name] = [
                value.to_json() if isinstance(value, Choice | AttentionConfig) else value
                for value in plain[name]
            ]
        return plain | {"base": self.base.to_json(), "seeds": list(self.seeds)}

    @classmethod
    def from_json(cls, data: object) -> "SweepConfig":
        """The sweep in a dict; ConfigError for a missing or unknown name or an invalid value."""
        values = check_fields(cls, data, "A sweep", ("base", "axis", "values"))
        values["base"] = RunConfig.from_json(values["base"])
        return cls(**{name: convert(value, cls, name) for name, value in values.items()})


def buildable(run: RunConfig) -> None:
    """ConfigError when the model does not fit the task; computes nothing and uses no random numbers."""
    shape = task_of(run.task).shape
    with ShapesOnly():
        build_model(run.model, shape)


def vary(base: RunConfig, axis: str, value: Any) -> RunConfig:
    """The config with one setting changed, and what depends on it: an attention's sizes, d_ff with d_model.

    Another kind of model takes its own recipe for the task. ConfigError for an invalid value.
    """
    if axis == "kind":
        return recommended(
            make_task(base.task), value, steps=base.steps, record_every=base.record_every
        )
    if axis in TRAINING:
        return replace(base, **{axis: value})
    if axis.startswith("task."):
        params = dict(base.task.params) | {axis.removeprefix("task."): value}
        return replace(base, task=TaskConfig.of(base.task.key, base.task.seed, **params))
    return replace(base, model=_model(base.model, axis, value))


def with_settings(run: RunConfig, settings: Mapping[str, Any]) -> RunConfig:
    """The config with settings changed: a field of the run, what a sweep varies, or a parameter of a choice, such as
    normalizer.temperature; ConfigError for another name."""
    of_run = [one.name for one in fields(run) if one.name not in ("task", "model")]
    for name, value in renamed(settings, "config").items():
        if name in of_run:
            run = replace(run, **{name: value})
        else:
            axis, _, param = name.partition(".")
            if axis in AXES and param and run.model.attention is not None:
                now: Choice = getattr(run.model.attention, axis)
                name, value = axis, Choice.of(now.key, *now.parts, **{**now.kwargs, param: value})
            else:
                name_of(name, run.task, "setting", of_run)
            run = vary(run, name, _value(name, value))
    return run


def _model(model: ModelConfig, axis: str, value: Any) -> ModelConfig:
    """The model with one field, or one choice of all its attentions, changed; a whole mechanism replaces a pattern."""
    sizes = dict(d_model=model.d_model, num_heads=model.num_heads, dropout=model.dropout)
    if axis == "attention":
        return replace(
            model,
            attention=value and value.with_(**sizes),
            following=(),
            decoder_attention=None,
            cross_attention=None,
            kv_shared_layers=0,
        )
    if axis == "pattern":
        return replace(model, **_pattern(model, str(value)), kv_shared_layers=0)
    if axis in AXES:
        refuse_if(model.attention is None, "This model has no attention; take one with attention.")
        return model.with_attentions(lambda attention: attention.with_(**{axis: value}))
    more: dict[str, Any] = {axis: value}
    if axis == "d_model" and isinstance(value, int):
        more["d_ff"] = max(min(1, model.d_ff), model.d_ff * value // model.d_model)
    if axis in ("d_model", "num_heads", "dropout"):
        return model.with_attentions(lambda attention: attention.with_(**{axis: value}), **more)
    return replace(model, **more)


def _pattern(model: ModelConfig, key: str) -> dict[str, Any]:
    if key == SAME:
        return {"following": ()}
    refuse_if(
        key not in PATTERNS,
        f"pattern = {quote(key)}; take {SAME} or one of {', '.join(PATTERNS)}.",
    )
    return pattern_of(PATTERNS[key], model, model.num_heads)


def name_of(
    axis: str, task: TaskConfig | None = None, word: str = "axis", more: Iterable[str] = ()
) -> str:
    """The name of a setting; ConfigError for an unknown one if the task is given, of which there are `more`."""
    if axis in FIELDS:
        return FIELDS[axis]
    key = axis.removeprefix("task.")
    known = {} if task is None else {param.key: param.name for param in task_entry(task.key).params}
    refuse_if(
        task is not None and (key == axis or key not in known),
        f"{word} = {quote(axis)}; take one of "
        f"{', '.join(dict.fromkeys([*more, *FIELDS, *(f'task.{k}' for k in known)]))}.",
    )
    return known.get(key, key)


def _value(axis: str, value: Any) -> Any:
    if axis in AXES:
        return complete(
            value
            if isinstance(value, Choice)
            else choice_from_text(value, axis)
            if isinstance(value, str)
            else Choice.from_json(value),
            AXES[axis],
            axis,
        )
    if axis == "attention" and isinstance(
        value, str
    ):  # a preset, or choices such as normalizer=sparsemax
        known = next((one for one in PRESETS if one.key == value), None)
        return known.config(USUAL.d_model, USUAL.num_heads) if known else from_text(value)
    if axis == "attention" and value is not None and not isinstance(value, AttentionConfig):
        return AttentionConfig.from_json(value)
    refuse_if(
        axis not in ATTENTION and not isinstance(value, bool | int | float | str),
        f"{axis} = {quote(value)}; expected a number, a word, or true or false.",
    )
    return value


def value_text(axis: str, value: Any) -> str:
    """A value as text: an entry's name with its changed parameters, a mechanism's name, or a number."""
    if value is None:
        return "No attention"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if axis == "pattern":
        return "The same in every layer" if value == SAME else PATTERNS[value].name
    if isinstance(value, Choice):
        return choice_name(axis, value)
    if isinstance(value, AttentionConfig):
        return attention_name(value)
    return f"{value:g}" if isinstance(value, float) else str(value).replace("_", " ")


# What can vary: the settings of a run, and of each the values with which it can be built.


NUMBERS: dict[str, tuple[float, ...]] = {  # usual ones, to which that of the run is added
    "d_model": (8, 16, 32, 64, 128),
    "num_heads": (1, 2, 4, 8, 16),
    "layers": (1, 2, 3, 4, 6),
    "d_ff": (16, 32, 64, 128, 256),
    "streams": (1, 2, 3, 4, 8),
    "dropout": (0.0, 0.1, 0.2, 0.3, 0.5),
    "learning_rate": (3e-4, 1e-3, 3e-3, 1e-2, 3e-2),
    "warmup": (0, 20, 50, 100, 200),
    "batch_size": (8, 16, 32, 64, 128),
    "weight_decay": (0.0, 0.01, 0.1, 0.3),
    "label_smoothing": (0.0, 0.05, 0.1, 0.2),
    "clip": (0.1, 0.3, 1.0, 3.0, 10.0),
    "min_rate": (0.0, 0.01, 0.1, 0.3, 1.0),
    "beta1": (0.0, 0.8, 0.9, 0.95),
    "beta2": (0.9, 0.95, 0.98, 0.99, 0.999),
}
CARD_PATTERNS = (SAME, *(card.key for card in CARDS if card.pattern > 1 and not card.untrained))
FIRST = {  # with which a sweep of an axis begins
    "score": ("scaled_dot", "dot", "general", "cosine", "qk_norm", "additive"),
    "position": ("none", "sinusoidal", "learned", "rope", "alibi"),
}
ONLY = {"pattern": ("decoder",), "num_heads": STACKED, **KINDS_WITH}  # kinds of models


@lru_cache(maxsize=64)
def axes_of(base: RunConfig) -> tuple[str, ...]:
    """The settings of which this run can have several values, the score first."""
    names = [*FIELDS, *(f"task.{param.key}" for param in task_entry(base.task.key).params)]
    several = [
        axis
        for axis in names
        if len(_fitting(partial(vary, base, axis), _candidates(base, axis))) > 1
    ]
    return tuple(sorted(several, key=lambda axis: axis != "score"))


@lru_cache(maxsize=256)
def offered(base: RunConfig, axis: str, own: tuple[Any, ...] = ()) -> dict[str, Any]:
    """Every value that this run can have on the axis, by its name: the published ones, the usual numbers, and `own`."""
    candidates = [*_candidates(base, axis), *own]
    values = _fitting(lambda value: buildable(vary(base, axis, value)), candidates)
    return {value_text(axis, value): value for value in values}


def first_values(base: RunConfig, axis: str) -> list[str]:
    """The names of the values with which a sweep of the axis begins."""
    names = offered(base, axis)
    named = [value_text(axis, choice_from_text(key, axis)) for key in FIRST.get(axis, ())]
    return [name for name in named if name in names] or list(names)[:4]


def value_of_text(base: RunConfig, axis: str, text: str, own: tuple[Any, ...] = ()) -> Any:
    """A value by its name on offer, or as typed: a number, or a choice such as local(window=3). Raises ConfigError."""
    names = offered(base, axis, own)
    if text in names or axis in AXES:
        return names[text] if text in names else choice_from_text(text, axis)
    try:
        number = float(text)
    except ValueError:
        raise ConfigError(
            f"{quote(text)} is neither a value of this setting nor a number."
        ) from None
    whole = number.is_integer() and not isinstance(next(iter(names.values())), float)
    return int(number) if whole else number


def _fitting(make: Callable[[Any], object], values: Iterable[Any]) -> list[Any]:
    """The values of which this makes something."""
    fitting = []
    for value in values:
        with suppress(ConfigError):
            make(value)
            fitting.append(value)
    return fitting


def _candidates(base: RunConfig, axis: str) -> list[Any]:
    model = base.model
    if axis in AXES:
        current = [getattr(model.attention, axis)] if model.attention is not None else []
        # A choice that is made of others has no parts yet, and cannot be read by its name alone.
        keys = _fitting(lambda key: choice_from_text(key, axis), (one.key for one in AXES[axis]))
        return list(dict.fromkeys([*current, *(choice_from_text(key, axis) for key in keys)]))
    if axis == "attention":
        sizes = model.d_model, model.num_heads
        makers = _fitting(lambda item: item.config(*sizes), PRESETS)
        return list(
            dict.fromkeys([model.attention, None, *(item.config(*sizes) for item in makers)])
        )
    if axis == "kind":
        return list(make_task(base.task).recommended)
    if model.kind not in ONLY.get(axis, (model.kind,)):
        return []
    if axis == "pattern":
        return list(CARD_PATTERNS)
    if axis in NUMBERS:
        return sorted({*NUMBERS[axis], getattr(model if hasattr(model, axis) else base, axis)})
    task = {f"task.{param.key}": param for param in task_entry(base.task.key).params}
    param: Param = (task | SETTINGS)[axis]
    if isinstance(param.default, bool):
        return [False, True] if axis in task else [param.default, not param.default]
    if isinstance(param.default, str):
        return list(param.choices)
    now = float(base.task[param.key])
    low, high = (now if bound is None else bound for bound in (param.low, param.high))
    values = [value for by in (0.5, 1, 1.5, 2, 3) if low <= (value := by * now) <= high]
    return sorted({*(map(round, values) if isinstance(param.default, int) else values)})
