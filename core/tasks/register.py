"""register_task: a task from outside, checked and tried on a few examples before it is added."""

import dataclasses
import math
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from core import plugins
from core.entries import KEY, ConfigError, param_complaints, quote, refuse_if, variants
from core.models import ModelConfig, build_model
from core.tasks.base import PAD, SPECIALS, UNK, Batch, Example, Task, Vocabulary, task_of
from core.tasks.config import MEASURED, METRICS, TASKS, Metric, TaskConfig, TaskEntry

TRIED = 7  # held-out examples
HIGHEST = {"share": 1.0, "score": 100.0, "positive": math.inf}  # by unit


def register_task(entry: TaskEntry, *, replace: bool = False) -> TaskEntry:
    """Add a task from outside, and its metrics: Train, the shell and sweeps then know its key. Returns the entry.

    It is built with its defaults, and with each parameter at its least and at each choice; a few batches are drawn, and
    each model that it recommends reads one. ConfigError, a ValueError, says what is missing or wrong; the lab's own
    tasks cannot be replaced, and an earlier registration only with `replace`.
    """
    source = sys._getframe(1).f_code.co_filename
    before = next((task for task in TASKS if task.key == getattr(entry, "key", None)), None)
    if problem := _problem(entry, before):
        raise ConfigError(problem)
    if before and not replace:
        raise ConfigError(
            f"task = {entry.key} is registered already, by {Path(before.source).name}; take another "
            "key, or register_task(…, replace=True)."
        )
    tasks, metrics = [*TASKS], {**METRICS}

    def take_back() -> None:
        TASKS[:] = tasks
        METRICS.clear()
        METRICS.update(metrics)

    made = dataclasses.replace(entry, source=source, name=f"{entry.name} (plug-in)")
    TASKS[:] = [made if task is before else task for task in TASKS] + [made] * (before is None)
    METRICS.update({metric.key: metric for metric in entry.metrics})
    task_of.cache_clear()
    try:
        _try_out(made)
    except Exception as error:
        take_back()
        reason = (
            str(error) if isinstance(error, ValueError) else plugins.describe(error, Path(source))
        )
        raise ConfigError(f"task = {entry.key} was not added. {reason}") from error
    plugins.undo.append(take_back)
    return made


def _problem(entry: TaskEntry, before: TaskEntry | None) -> str:
    """A sentence about a field that is missing or malformed; "" where none is."""
    if not isinstance(entry, TaskEntry):
        return f"register_task takes a TaskEntry; got {quote(entry)}."
    owner = f"task = {entry.key}"
    earlier = {metric.key for metric in before.metrics} if before else set()
    taken = (MEASURED | METRICS.keys()) - earlier
    checks = [
        (bool(KEY.fullmatch(str(entry.key))), "its key is of lower-case letters, digits and _"),
        (before is None or before.source != "", "it is one of the lab's own; take another key"),
        *(
            (
                isinstance(text, str) and len(text.strip()) >= least,
                f"{name} = {quote(text)}; expected a text",
            )
            for name, text, least in (
                ("name", entry.name, 1),
                ("meaning", entry.meaning, 20),
                ("look", entry.look, 20),
            )
        ),
        (
            callable(entry.build),
            f"build = {quote(entry.build)}; expected a function of a TaskConfig",
        ),
        (all(isinstance(one, Metric) for one in entry.metrics), "metrics is a tuple of Metric"),
        *(
            (
                bool(KEY.fullmatch(one.key)) and callable(one.of) and one.unit in HIGHEST,
                f"{quote(one)} needs a key, a function and a unit: {', '.join(HIGHEST)}",
            )
            for one in entry.metrics
            if isinstance(one, Metric)
        ),
        *(
            (
                one.key not in {*taken, *(other.key for other in entry.metrics[:at])},
                f"the metric {one.key} is measured already; take another key",
            )
            for at, one in enumerate(entry.metrics)
            if isinstance(one, Metric)
        ),
    ]
    problems = (f"{owner}: {text}." for fits, text in checks if not fits)
    return next(chain(problems, param_complaints(entry.params, owner)), "")


def _try_out(entry: TaskEntry) -> None:
    """Build the task in each of its forms and draw from it; ConfigError, or its own error, where it breaks a promise."""
    with torch.random.fork_rng(devices=[]):
        for params in variants(entry.params):
            try:
                config = TaskConfig.of(entry.key, 0, **params)
            except ConfigError:
                if not params:
                    raise
                continue  # its own check refuses the parameter, as a page will say
            task = entry.build(config)
            refuse_if(not isinstance(task, Task), f"It built {quote(task)}; expected a Task.")
            examples = task.held_out(TRIED)
            for example in examples:
                _check_example(task, example)
            seen = {row for seed in range(4) for row in _rows(_batch(task, seed, 64))}
            refuse_if(
                _rows(_batch(task, 1)) != _rows(_batch(task, 1))
                or examples != task.held_out(2 * TRIED)[:TRIED],
                "The same seed gives other examples: draw every random number by the generator, as in "
                "torch.randint(9, (), generator=generator).",
            )
            refuse_if(
                bool(seen & {*_rows(task.collate(examples))}),
                "A held-out source is trained on, too: draw gives one side of a split, which is_held_out makes.",
            )
            _check_models(task)


def _batch(task: Task, seed: int, size: int = 8) -> Batch:
    return task.batch(size, torch.Generator().manual_seed(seed))


def _rows(batch: Batch) -> list[Any]:
    rows = zip(batch.source, batch.source_mask, strict=True)
    return [tuple(source[real].flatten().tolist()) for source, real in rows]


def _check_example(task: Task, example: Example) -> None:
    """ConfigError unless it fits the sizes and the vocabularies, and places and metrics can be computed of it."""
    source, marked = example.source, task.form == "marked"
    target = example.target if task.form in ("pairs", "marked") else ()
    refuse_if(
        len(source) > task.max_source or len(target) > task.max_target,
        f"An example has {len(source)} and {len(target)} tokens; it said at most {task.max_source} of a source "
        f"and {task.max_target} of a target.",
    )
    refuse_if(
        marked and len(target) != len(source),
        f"A marked example has {len(target)} answers for {len(source)} tokens; give one of each place, "
        f"{SPECIALS[PAD]} where nothing is asked.",
    )
    words = source if task.input == "tokens" else ()
    lacking = [*_unknown(task.source_vocab, words), *_unknown(task.target_vocab, target)]
    refuse_if(
        bool(lacking),
        f"The vocabulary lacks {quote(lacking and lacking[0])}, which an example has.",
    )
    places = task.places(example) or ()
    refuse_if(
        not all(0 <= at < len(source) for each in places for at in each),
        f"places gives {quote(places)} for a source of {len(source)} tokens.",
    )
    for metric in task.own_metrics:
        answers = task.display_tokens(example)[1]
        value = metric.of(source, answers, answers)
        refuse_if(
            value is not None and not 0 <= value <= HIGHEST[metric.unit],
            f"The metric {metric.key} of a right answer is {quote(value)}; a {metric.unit} is from 0 to "
            f"{HIGHEST[metric.unit]:g}.",
        )


def _unknown(vocabulary: Vocabulary, tokens: tuple[Any, ...]) -> list[Any]:
    return [token for token in tokens if vocabulary.encode([token]) == [UNK]]


def _check_models(task: Task) -> None:
    """ConfigError unless each model that it recommends reads a batch."""
    refuse_if(not task.recommended, "It recommends no model: give it one of core.tasks.recipes.")
    refuse_if(
        bool(task.own_metrics) and task.form not in ("pairs", "label", "marked"),
        f"A metric is of whole outputs, which form = {task.form} has not.",
    )
    batch = _batch(task, 1, 2)
    for kind, recipe in task.recommended.items():
        model = build_model(ModelConfig.from_json(recipe.model), task.shape)
        logits = model(batch.source, batch.source_mask, batch.target_in).logits
        refuse_if(
            not logits.isfinite().all(), f"The {kind} that it recommends gives no finite numbers."
        )
