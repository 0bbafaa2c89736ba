"""How a language model does on windows longer than those it was trained on (Press 2022)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from core.models import Model
from core.tasks import TaskConfig, make_task
from core.training.evaluate import measure_teacher_forced


def bits_by_length(
    model: Model, config: TaskConfig, lengths: Sequence[int] = (64, 128, 256), windows: int = 100, device: str = "cpu"
) -> dict[int, float]:
    """Bits a token over held-out windows of each length; the vocabulary is the corpus's own, whatever the window.

    ConfigError when the text is too short for a length; a model with a table of positions must reach the longest.
    """
    bits = {}
    for length in lengths:
        task = make_task(TaskConfig.of(config.key, config.seed, **dict(config.params) | {"length": length}))
        bits[length] = measure_teacher_forced(model, task, task.held_out(windows), device).loss / math.log(2)
    return bits
