"""Tasks: fresh training batches by a seed, and held-out examples that never occur among them."""

from core.entries import ConfigError, quote
from core.tasks.addition import ADDITION
from core.tasks.base import (
    BOS,
    EOS,
    PAD,
    UNK,
    Batch,
    Example,
    Task,
    TaskConfig,
    TaskEntry,
    Vocabulary,
)
from core.tasks.documents import DOCUMENTS
from core.tasks.images import DIGITS
from core.tasks.language import LANGUAGE
from core.tasks.lookup import INDUCTION, RECALL
from core.tasks.names import SENTENCES
from core.tasks.own import OWN_PAIRS, OWN_TABLE, OWN_TEXT
from core.tasks.pictures import PICTURES
from core.tasks.recipes import Recipe
from core.tasks.repeats import REPEATS
from core.tasks.sequences import COPY, REVERSE, SORT
from core.tasks.series import SERIES
from core.tasks.tabular import IRIS
from core.tasks.text import TOPICS
from core.tasks.translation import DATES, NUMBERS

TASKS: tuple[TaskEntry, ...] = (
    REVERSE,
    COPY,
    SORT,
    RECALL,
    INDUCTION,
    REPEATS,
    SENTENCES,
    ADDITION,
    NUMBERS,
    DATES,
    LANGUAGE,
    DOCUMENTS,
    TOPICS,
    IRIS,
    DIGITS,
    PICTURES,
    SERIES,
    OWN_TEXT,
    OWN_PAIRS,
    OWN_TABLE,
)


def task_entry(key: str) -> TaskEntry:
    """The task of that key; ConfigError lists the keys there are."""
    for entry in TASKS:
        if entry.key == key:
            return entry
    raise ConfigError(
        f"task = {quote(key)}; expected one of {', '.join(entry.key for entry in TASKS)}."
    )


def make_task(config: TaskConfig) -> Task:
    """The task of a config."""
    return task_entry(config.key).build(config)


__all__ = [
    "BOS",
    "EOS",
    "PAD",
    "TASKS",
    "UNK",
    "Batch",
    "Example",
    "Recipe",
    "Task",
    "TaskConfig",
    "TaskEntry",
    "Vocabulary",
    "make_task",
    "task_entry",
]
