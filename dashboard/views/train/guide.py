"""What Train offers a learner: a question that its run answers, and runs to try."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from core.attention import Choice
from core.tasks import TaskConfig, make_task
from core.training import recommended
from dashboard.runtime.run_data import RunData
from dashboard.widgets.guide import Move, Question
from dashboard.widgets.train_with import attention_key

HALF = 0.5
TASK = "train:task"
WEIGHT_PANEL = "Weight on the expected position, gradients and learning rate"
AFTER = ("questions", "lessons")  # pages for those who have walked the path
MEANING = ("Nobody programs where a model attends. The loss rewards correct outputs; its gradient changes $W_q$ and "
           "$W_k$ until the query of an output matches the key of the input that helps. The map above therefore starts "
           "nearly uniform and becomes sharp while the loss falls.")


def question(data: RunData) -> Question | None:
    """Whether accuracy or the weight on the correct position reaches one half first; None where the run says neither,
    and for a class, of which guessing may reach one half.

    The curve of that weight is one click away on the page, so that it does not tell the answer.
    """
    unit = data.task().unit
    values = {f"{unit.capitalize()} accuracy": [(r.step, r.letters) for r in data.records],
              "The weight on the correct position": [(r.step, _best(r.expected)) for r in data.records]}
    steps = {name: next((step for step, value in points if value is not None and value >= HALF), None)
             for name, points in values.items()}
    if data.task().form == "label" or None in steps.values() or len(set(steps.values())) == 1:
        return None
    order = sorted(steps, key=lambda name: steps[name] or 0)
    first, second = (f"{name[0].lower()}{name[1:]} at step {steps[name]:,}" for name in order)
    options = tuple(steps)
    return Question("Which reaches one half first while this model trains?", options, options.index(order[0]),
                    (f"In this run: {first}, {second}. The weight has its curve in “{WEIGHT_PANEL}”.",) * len(options))


def _best(expected: Sequence[Sequence[float]] | None) -> float | None:
    """The largest weight on the expected position among all heads."""
    return max(map(max, expected)) if expected else None


@lru_cache(maxsize=1)
def moves() -> tuple[Move, ...]:
    """Runs to try on the first task; each sets the controls, and Train starts it."""
    task = make_task(TaskConfig.of("reverse"))
    base = recommended(task, "transformer")
    name = "train:reverse:transformer"
    start = {TASK: "reverse", "train:reverse:kind": "transformer", f"{name}:rate": base.learning_rate,
             attention_key(name): base.model.attention}
    assert base.model.attention is not None
    longer = recommended(task, "recurrent").steps
    unordered = base.model.attention.with_(position=Choice.of("none"))
    return (
        Move("Remove the positions", {**start, attention_key(name): unordered},
             "The encoder no longer knows the order of the letters. Press **Train**. When it has ended, open **Compare "
             "with the example run** below the button: compare sequence accuracy and the sharpness of the map."),
        Move("Remove the attention", {TASK: "reverse", "train:reverse:kind": "recurrent",
                                      attention_key("train:reverse:recurrent"): None},
             "A Transformer cannot compute without attention, so the model is now a recurrent one, whose decoder reads "
             f"only the last state of the encoder. It may take {longer:,} steps instead of {base.steps:,}. Press "
             "**Train**. When it has ended, open **Compare with the example run** and compare how many each needs."),
        Move("Increase the learning rate tenfold", {**start, f"{name}:rate": 10 * base.learning_rate},
             "Every update is ten times as large. Press **Train**, then watch the loss and the gradient norm."),
        Move("Translate number words", {TASK: "numbers"},
             "A task with real words, which takes longer. Press **Train**, then compare the map with the sentence "
             "under the task, which says what its attention should look like."),
    )
