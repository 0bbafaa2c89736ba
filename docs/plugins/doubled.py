"""A task: write each letter twice, trained on short sources and tested on longer ones."""

import torch

from core.entries import Param
from core.tasks import (
    Example,
    Metric,
    Task,
    TaskEntry,
    Vocabulary,
    is_held_out,
    recipes,
    register_task,
)

LETTERS = "abcdefghijklmnopqrstuvwxyz"
SHORTEST = 4


class Doubled(Task):
    unit, whole = "letter", "sequences"

    def __init__(self, config, entry):
        self.longest_trained, tested = config["trained"], config["tested"]
        models = recipes.repeat(2 * tested)
        super().__init__(config, entry, models, (tested, 2 * tested), Vocabulary(LETTERS))

    def draw(self, generator, held_out):
        """Training has sources of 4 letters up to `trained`, the held-out side up to `tested`."""
        longest = self.max_source if held_out else self.longest_trained
        while True:
            length = int(torch.randint(SHORTEST, longest + 1, (), generator=generator))
            at = torch.randint(len(LETTERS), (length,), generator=generator).tolist()
            source = tuple(LETTERS[i] for i in at)
            if is_held_out("".join(source)) == held_out:
                return Example(source, tuple(letter for letter in source for _ in range(2)))

    def places(self, example):
        """Where each output should look: at its letter."""
        return tuple((i // 2,) for i in range(len(example.target)))


def right_letters(source, target, predicted):
    """The share of the target's places at which the output has the right letter."""
    return sum(a == b for a, b in zip(target, predicted, strict=False)) / len(target)


ENTRY = TaskEntry(
    "doubled",
    "Double",
    meaning="Write each letter twice.",
    look="Two outputs attend to each letter: a diagonal of steps.",
    build=lambda config: Doubled(config, ENTRY),
    params=(
        Param(
            "trained",
            "Trained length",
            default=8,
            low=SHORTEST,
            high=20,
            step=1,
            meaning="most letters of a source in training",
        ),
        Param(
            "tested",
            "Tested length",
            default=12,
            low=SHORTEST + 1,
            high=40,
            step=1,
            meaning="most letters of a held-out source",
        ),
    ),
    metrics=(Metric("right_letters", "right letters", right_letters),),
)
register_task(ENTRY)
