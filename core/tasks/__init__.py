"""Tasks: fresh training batches by a seed, and held-out examples that never occur among them."""

from core.tasks.base import (
    BOS,
    EOS,
    PAD,
    SPECIALS,
    UNK,
    Batch,
    Example,
    Task,
    Vocabulary,
    balanced_accuracy,
    bleu,
    exact_match,
    is_held_out,
    make_task,
    score,
    task_of,
)
from core.tasks.config import METRICS, TASKS, Metric, TaskConfig, TaskEntry, task_entry
from core.tasks.own import OWN_PAIRS, OWN_TABLE, OWN_TEXT, column_choice, column_names
from core.tasks.recipes import Recipe
from core.tasks.register import register_task
from core.tasks.sequences import ADDITION, COPY, INDUCTION, RECALL, REVERSE, SERIES, SORT
from core.tasks.skills import SKILLS
from core.tasks.tables import ALL, IRIS
from core.tasks.text import DOCUMENTS, REPEATS, SENTENCES, STORIES, TOPICS, TextTask
from core.tasks.translation import DATES, DIGITS, LANGUAGE, NUMBERS, PICTURES, digits

TASKS.extend(
    (
        REVERSE,
        COPY,
        SORT,
        RECALL,
        INDUCTION,
        REPEATS,
        SENTENCES,
        STORIES,
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
        *SKILLS,
        OWN_TEXT,
        OWN_PAIRS,
        OWN_TABLE,
    )
)


__all__ = [
    "ALL",
    "BOS",
    "EOS",
    "METRICS",
    "Metric",
    "PAD",
    "SPECIALS",
    "TASKS",
    "UNK",
    "Batch",
    "Example",
    "Recipe",
    "Task",
    "TaskConfig",
    "TaskEntry",
    "TextTask",
    "Vocabulary",
    "balanced_accuracy",
    "bleu",
    "column_choice",
    "column_names",
    "digits",
    "exact_match",
    "is_held_out",
    "make_task",
    "register_task",
    "score",
    "task_entry",
    "task_of",
]
