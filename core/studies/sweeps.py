"""What a sweep of a run can vary: its settings, and of each the values with which the run can be built."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any

from core.attention import AXES, PRESETS, ConfigError
from core.attention.text import choice_from_text
from core.entries import Param, quote
from core.models.base import STACKED
from core.models.cards import CARDS
from core.tasks import make_task, task_entry
from core.training import RunConfig
from core.training.settings import KINDS_WITH, SETTINGS
from core.training.sweeps import FIELDS, SAME, buildable, value_text, vary

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
}
PATTERNS = (SAME, *(card.key for card in CARDS if card.pattern > 1 and not card.untrained))
FIRST = {  # with which a sweep of an axis begins
    "score": ("scaled_dot", "dot", "general", "cosine", "qk_norm", "additive"),
    "position": ("none", "sinusoidal", "learned", "rope", "alibi"),
}
ONLY = {"pattern": ("decoder",), "num_heads": STACKED, **KINDS_WITH}  # kinds of models


@lru_cache(maxsize=64)
def axes(base: RunConfig) -> tuple[str, ...]:
    """The settings of which this run can have several values, the score first."""
    names = [*FIELDS, *(f"task.{param.key}" for param in task_entry(base.task.key).params)]
    several = [
        axis
        for axis in names
        if len(_fitting(partial(vary, base, axis), _candidates(base, axis))) > 1
    ]
    return tuple(sorted(several, key=lambda axis: axis != "score"))


@lru_cache(maxsize=256)
def offered(base: RunConfig, axis: str) -> dict[str, Any]:
    """Every value that this run can have on the axis, by its name: the published ones, and the usual numbers."""
    values = _fitting(lambda value: buildable(vary(base, axis, value)), _candidates(base, axis))
    return {value_text(axis, value): value for value in values}


def first(base: RunConfig, axis: str) -> list[str]:
    """The names of the values with which a sweep of the axis begins."""
    names = offered(base, axis)
    named = [value_text(axis, choice_from_text(key, axis)) for key in FIRST.get(axis, ())]
    return [name for name in named if name in names] or list(names)[:4]


def read(base: RunConfig, axis: str, text: str) -> Any:
    """A value by its name on offer, or as typed: a number, or a choice such as local(window=3). Raises ConfigError."""
    names = offered(base, axis)
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
        return list(PATTERNS)
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
