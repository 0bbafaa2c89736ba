"""What can be swept of a run, and the values that are offered of it: only those with which it can be built."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from core.attention import AXES, PRESETS, ConfigError
from core.entries import quote
from core.models.config import RECURRENT, STACKED
from core.tasks import make_task, task_entry
from core.training.config import OPTIMIZERS, SCHEDULES, RunConfig
from core.training.sweeps import FIELDS, buildable, value_text, vary
from dashboard.runtime.mechanism_codec import choice_from_text, choice_text

USUAL: dict[str, tuple[Any, ...]] = {
    "d_model": (8, 16, 32, 64, 128), "num_heads": (1, 2, 4, 8, 16), "layers": (1, 2, 3, 4, 6),
    "d_ff": (16, 32, 64, 128, 256), "norm": ("post", "pre"), "normalization": ("layer", "rms"),
    "activation": ("relu", "gelu", "swiglu"), "dropout": (0.0, 0.1, 0.2, 0.3, 0.5), "tied": (False, True),
    "output_bias": (True, False), "pool": ("first", "mean"), "cell": ("gru", "lstm"), "bidirectional": (True, False),
    "feeding": ("none", "input", "bahdanau"), "learning_rate": (3e-4, 1e-3, 3e-3, 1e-2, 3e-2), "optimizer": OPTIMIZERS,
    "schedule": SCHEDULES, "warmup": (0, 20, 50, 100, 200), "batch_size": (8, 16, 32, 64, 128),
    "weight_decay": (0.0, 0.01, 0.1, 0.3), "label_smoothing": (0.0, 0.05, 0.1, 0.2), "clip": (0.1, 0.3, 1.0, 3.0, 10.0),
}
ONLY = {"norm": STACKED, "normalization": STACKED, "activation": STACKED, "d_ff": STACKED, "num_heads": STACKED,
        "cell": RECURRENT, "bidirectional": RECURRENT, "feeding": RECURRENT, "pool": ("classifier",)}
FIRST = {"score": ("scaled_dot", "dot", "general", "cosine", "qk_norm", "additive"),
         "position": ("none", "sinusoidal", "learned", "rope", "alibi")}
MOST_FIRST = 4  # values that are chosen before anybody chose


@lru_cache(maxsize=256)
def offered(base: RunConfig, axis: str) -> dict[str, Any]:
    """Every value that this run can have there, by its name; the published ones, and the usual numbers."""
    return {value_text(axis, value): value for value in _candidates(base, axis) if _fits(base, axis, value)}


def _fits(base: RunConfig, axis: str, value: Any, built: bool = True) -> bool:
    try:
        run = vary(base, axis, value)
        if built:
            buildable(run)
    except ConfigError:
        return False
    return True


def _candidates(base: RunConfig, axis: str) -> list[Any]:
    if axis in AXES:
        own = [getattr(base.model.attention, axis)] if base.model.attention is not None else []
        choices = [choice_from_text(item.key, axis) for item in AXES[axis] if _plain(axis, item.key)]
        return [*own, *(choice for choice in choices if choice not in own)]
    if axis == "attention":
        return _mechanisms(base)
    if axis == "kind":
        return list(make_task(base.task).recommended)
    if axis.startswith("task."):
        return _of_task(base, axis.removeprefix("task."))
    if base.model.kind not in ONLY.get(axis, (base.model.kind,)):
        return []
    own_value = getattr(base.model, axis, None) if hasattr(base.model, axis) else getattr(base, axis)
    return sorted({*USUAL[axis], own_value}) if _numbers(USUAL[axis]) else list(USUAL[axis])


def _plain(axis: str, key: str) -> bool:
    """Whether a choice stands alone: one made of others has no parts yet."""
    try:
        choice_from_text(key, axis)
    except ConfigError:
        return False
    return True


def _mechanisms(base: RunConfig) -> list[Any]:
    """The mechanism as it is, every preset at its size, and none where the model can do without."""
    model, mechanisms = base.model, []
    for item in PRESETS:
        try:
            mechanisms.append(item.config(model.d_model, model.num_heads))
        except ConfigError:
            continue
    own = [model.attention] if model.attention not in mechanisms and model.attention is not None else []
    return [*own, None, *mechanisms]


def _of_task(base: RunConfig, name: str) -> list[Any]:
    param = next(param for param in task_entry(base.task.key).params if param.key == name)
    if param.choices:
        return list(param.choices)
    if isinstance(param.default, bool):
        return [False, True]
    if isinstance(param.default, str):
        return []
    own, whole = float(base.task[name]), isinstance(param.default, int)
    near = {own * share for share in (0.5, 1, 1.5, 2, 3)}
    low, high = (own if bound is None else bound for bound in (param.low, param.high))
    return sorted({round(value) if whole else value for value in near if low <= value <= high})


def _numbers(values: tuple[Any, ...]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


@lru_cache(maxsize=64)
def axes(base: RunConfig) -> tuple[str, ...]:
    """The settings of which this run can have at least two values."""
    task = [f"task.{param.key}" for param in task_entry(base.task.key).params]
    names = [axis for axis in (*FIELDS, *task)
             if sum(_fits(base, axis, value, built=False) for value in _candidates(base, axis)) > 1]
    return tuple(sorted(names, key=lambda axis: axis != "score"))  # the first that comes to mind


def first(base: RunConfig, axis: str) -> list[str]:
    """The names that are chosen before anybody chose."""
    names = offered(base, axis)
    usual = [value_text(axis, choice_from_text(key, axis)) for key in FIRST.get(axis, ())]
    return [name for name in usual if name in names] or list(names)[:MOST_FIRST]


def read(base: RunConfig, axis: str, text: str) -> Any:
    """A value by the name it is offered with, or as it was typed: a number, or a choice such as local(window=3).

    ConfigError when it cannot be read.
    """
    if text in (names := offered(base, axis)):
        return names[text]
    if axis in AXES:
        return choice_from_text(text, axis)
    try:
        number = float(text)
    except ValueError:
        raise ConfigError(f"{quote(text)} is none of the values of this setting, and no number.") from None
    return int(number) if number.is_integer() and not isinstance(next(iter(names.values())), float) else number


def example(axis: str, base: RunConfig) -> str:
    """How a value of one's own is typed, or nothing where there is none."""
    if axis in AXES:
        own = getattr(base.model.attention, axis)
        return f"Type another as in a link, such as {choice_text(own, axis)}."
    return "Type another number, if you like." if axis in USUAL and _numbers(USUAL[axis]) else ""
