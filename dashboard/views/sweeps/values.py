"""The settings of a run that can be swept, and the values on offer: only those with which the run can be built."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from core.attention import AXES, PRESETS, ConfigError
from core.entries import quote
from core.models.cards import CARDS
from core.models.config import RECURRENT, STACKED
from core.tasks import make_task, task_entry
from core.training.config import OPTIMIZERS, SCHEDULES, RunConfig
from core.training.sweeps import FIELDS, SAME, buildable, value_text, vary
from dashboard.runtime.mechanism_codec import choice_from_text, choice_text

USUAL: dict[str, tuple[Any, ...]] = {
    "pattern": (SAME, *(card.key for card in CARDS if card.pattern > 1)),
    "d_model": (8, 16, 32, 64, 128),
    "num_heads": (1, 2, 4, 8, 16),
    "layers": (1, 2, 3, 4, 6),
    "d_ff": (16, 32, 64, 128, 256),
    "norm": ("post", "pre"),
    "normalization": ("layer", "rms"),
    "activation": ("relu", "gelu", "swiglu"),
    "dropout": (0.0, 0.1, 0.2, 0.3, 0.5),
    "tied": (False, True),
    "output_bias": (True, False),
    "pool": ("first", "mean"),
    "cell": ("gru", "lstm"),
    "bidirectional": (True, False),
    "feeding": ("none", "input", "bahdanau"),
    "learning_rate": (3e-4, 1e-3, 3e-3, 1e-2, 3e-2),
    "optimizer": OPTIMIZERS,
    "schedule": SCHEDULES,
    "warmup": (0, 20, 50, 100, 200),
    "batch_size": (8, 16, 32, 64, 128),
    "weight_decay": (0.0, 0.01, 0.1, 0.3),
    "label_smoothing": (0.0, 0.05, 0.1, 0.2),
    "clip": (0.1, 0.3, 1.0, 3.0, 10.0),
}
ONLY = {
    "pattern": ("decoder",),
    "norm": STACKED,
    "normalization": STACKED,
    "activation": STACKED,
    "d_ff": STACKED,
    "num_heads": STACKED,
    "cell": RECURRENT,
    "bidirectional": RECURRENT,
    "feeding": RECURRENT,
    "pool": ("classifier",),
}
FIRST = {
    "score": ("scaled_dot", "dot", "general", "cosine", "qk_norm", "additive"),
    "position": ("none", "sinusoidal", "learned", "rope", "alibi"),
}
MOST_FIRST = 4  # default values


@lru_cache(maxsize=256)
def offered(base: RunConfig, axis: str) -> dict[str, Any]:
    """Every value that this run can have on the axis, by its name; the published ones, and the usual numbers."""
    return {
        value_text(axis, value): value
        for value in _candidates(base, axis)
        if _possible(lambda value: buildable(vary(base, axis, value)), value)
    }


def _possible(make: Callable[[Any], object], value: Any) -> bool:
    """Whether `make` accepts a value without a ConfigError."""
    try:
        make(value)
    except ConfigError:
        return False
    return True


def _candidates(base: RunConfig, axis: str) -> list[Any]:
    model = base.model
    if axis in AXES:
        current = [getattr(model.attention, axis)] if model.attention is not None else []
        # A choice that is made of others has no parts yet, and cannot be read by its name alone.
        choices = [
            choice_from_text(item.key, axis)
            for item in AXES[axis]
            if _possible(lambda key: choice_from_text(key, axis), item.key)
        ]
        return [*current, *(choice for choice in choices if choice not in current)]
    if axis == "attention":
        presets = [
            item.config(model.d_model, model.num_heads)
            for item in PRESETS
            if _possible(lambda item: item.config(model.d_model, model.num_heads), item)
        ]
        return [*[model.attention] * (model.attention not in (None, *presets)), None, *presets]
    if axis == "kind":
        return list(make_task(base.task).recommended)
    if axis.startswith("task."):
        return _task_candidates(base, axis.removeprefix("task."))
    if model.kind not in ONLY.get(axis, (model.kind,)):
        return []
    current = getattr(model if hasattr(model, axis) else base, axis)
    return sorted({*USUAL[axis], current}) if _numbers(USUAL[axis]) else list(USUAL[axis])


def _task_candidates(base: RunConfig, name: str) -> list[Any]:
    param = next(param for param in task_entry(base.task.key).params if param.key == name)
    if param.choices:
        return list(param.choices)
    if isinstance(param.default, bool):
        return [False, True]
    if isinstance(param.default, str):
        return []
    current, whole = float(base.task[name]), isinstance(param.default, int)
    low, high = (current if bound is None else bound for bound in (param.low, param.high))
    values = (factor * current for factor in (0.5, 1, 1.5, 2, 3))
    return sorted({round(value) if whole else value for value in values if low <= value <= high})


def _numbers(values: tuple[Any, ...]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


@lru_cache(maxsize=64)
def axes(base: RunConfig) -> tuple[str, ...]:
    """The settings of which this run can have at least two values."""
    task = [f"task.{param.key}" for param in task_entry(base.task.key).params]
    names = [
        axis
        for axis in (*FIELDS, *task)
        if sum(_possible(partial(vary, base, axis), value) for value in _candidates(base, axis)) > 1
    ]
    return tuple(sorted(names, key=lambda axis: axis != "score"))  # the score is the default


def first(base: RunConfig, axis: str) -> list[str]:
    """The names of the default values."""
    names = offered(base, axis)
    usual = [value_text(axis, choice_from_text(key, axis)) for key in FIRST.get(axis, ())]
    return [name for name in usual if name in names] or list(names)[:MOST_FIRST]


def read(base: RunConfig, axis: str, text: str) -> Any:
    """A value by its name on offer, or as typed: a number, or a choice such as local(window=3). Raises ConfigError."""
    if text in (names := offered(base, axis)):
        return names[text]
    if axis in AXES:
        return choice_from_text(text, axis)
    try:
        number = float(text)
    except ValueError:
        raise ConfigError(
            f"{quote(text)} is neither a value of this setting nor a number."
        ) from None
    return (
        int(number)
        if number.is_integer() and not isinstance(next(iter(names.values())), float)
        else number
    )


def example(axis: str, base: RunConfig) -> str:
    """How another value is typed; "" where none can be."""
    if axis in AXES:
        return f"You can type another value, such as {choice_text(getattr(base.model.attention, axis), axis)}."
    return "You can type another number." if axis in USUAL and _numbers(USUAL[axis]) else ""
