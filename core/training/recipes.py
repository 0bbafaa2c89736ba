"""From a task's recipe to a run: settings known to learn it, the same for the page, the shell and the benchmarks."""

from __future__ import annotations

from typing import Any

from core.entries import ConfigError
from core.models import ModelConfig
from core.tasks import Task
from core.training.config import RunConfig

FRAMES = 50  # records along a run
LONG = 24  # tokens; free-running decodes of longer outputs cost more than the steps between them


def recommended(task: Task, kind: str | None = None, **changes: Any) -> RunConfig:
    """The task's recipe for that kind of model (its best one by default) as a run, with changes to its settings.

    ConfigError when the task does not name that kind.
    """
    kind = next(iter(task.recommended)) if kind is None else kind
    if kind not in task.recommended:
        raise ConfigError(f"task = {task.key} does not go with model = {kind}; take one of "
                          f"{', '.join(task.recommended)}.")
    recipe = task.recommended[kind]
    settings: dict[str, Any] = dict(
        steps=recipe.steps, batch_size=recipe.batch_size, learning_rate=recipe.learning_rate,
        optimizer=recipe.optimizer, warmup=recipe.warmup, schedule=recipe.schedule, weight_decay=recipe.weight_decay,
        patience=recipe.patience, keep_best=recipe.keep_best,
        finish_early=not task.finite,  # stopping where a small held-out set is best would flatter the result
        decode_every=1 if task.form != "pairs" or task.max_target <= LONG else 5) | changes
    settings.setdefault("record_every", max(1, settings["steps"] // FRAMES))
    model = settings.pop("model", None) or ModelConfig.from_json(recipe.model)
    return RunConfig(task.config, model, **settings)
