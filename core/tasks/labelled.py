"""Finite sets of items with one class each: the split, the sampling of both sides and scikit-learn's baselines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from core.entries import ConfigError
from core.tasks.base import Batch, Example, Form, Task, TaskConfig, TaskEntry, choose
from core.tasks.metrics import entropy

HELD_OUT = 0.2


class LabelledTask(Task):
    """Tell the class of an item; a fifth of each class is held out, equal items on one side together."""

    form: Form = "label"
    finite = True
    baseline_name = "logistic regression"

    def __init__(
        self, config: TaskConfig, entry: TaskEntry, items: Sequence[object], labels: Sequence[int]
    ) -> None:
        super().__init__(config, entry)
        self.labels, self.sides = labels, split_sides(items, labels, config.seed)
        self.max_target = 1

    def item(self, i: int) -> Example:
        """Item number i with its class."""
        raise NotImplementedError

    def flat(self, examples: Sequence[Example]) -> Any:
        """Sources as plain numbers, (N, D), for models of scikit-learn."""
        raise NotImplementedError

    @property
    def baseline_loss(self) -> float:
        return entropy([self.labels[i] for i in self.sides[False]])

    @cached_property
    def _trained(self) -> Batch:
        return self.collate(self.trained())

    def batch(self, batch_size: int, generator: torch.Generator) -> Batch:
        return self.select(
            torch.randint(len(self.sides[False]), (batch_size,), generator=generator)
        )

    def select(self, rows: Tensor) -> Batch:
        """A batch of those training items."""
        whole = self._trained
        return Batch(whole.source[rows], whole.source_mask[rows], None, whole.target_out[rows])

    def draw(self, generator: torch.Generator, held_out: bool) -> Example:
        side = self.sides[held_out]
        return self.item(side[choose(generator, len(side))])

    def held_out(self, n: int) -> tuple[Example, ...]:
        return tuple(map(self.item, self.sides[True][:n]))

    def trained(self) -> tuple[Example, ...]:
        return tuple(map(self.item, self.sides[False]))

    def classifier(self) -> Any:
        """The baseline of scikit-learn: logistic regression, unless a task overrides it."""
        from sklearn.linear_model import LogisticRegression

        return LogisticRegression(max_iter=1000)

    def baseline(self) -> tuple[str, float]:
        """The baseline's name and its accuracy on the same split."""
        (train, answers), (test, targets) = (
            (self.flat(side), [example.target[0] for example in side])
            for side in (self.trained(), self.held_out(len(self.labels)))
        )
        return self.baseline_name, float(self.classifier().fit(train, answers).score(test, targets))


def split_sides(
    items: Sequence[object], labels: Sequence[int], seed: int
) -> Mapping[bool, tuple[int, ...]]:
    """Indexes of the training items (False) and of the held-out items (True), a fifth of each class.

    Equal items count as one, of the class of the first, so that they stand on one side. ConfigError when no class has
    three different ones.
    """
    groups: dict[object, list[int]] = {}
    for i, item in enumerate(items):
        groups.setdefault(item, []).append(i)
    by_class: dict[int, list[list[int]]] = {}
    for group in groups.values():
        by_class.setdefault(labels[group[0]], []).append(group)
    generator = torch.Generator().manual_seed(seed)
    split: dict[bool, list[int]] = {False: [], True: []}
    for label in sorted(by_class):
        of_class = by_class[label]
        held_out_count = round(HELD_OUT * len(of_class)) if len(of_class) > 2 else 0
        for rank, j in enumerate(torch.randperm(len(of_class), generator=generator).tolist()):
            split[rank < held_out_count] += of_class[j]
    if not split[True]:
        raise ConfigError(
            "No class has three different rows, so none can be held out; add different rows."
        )
    order = torch.randperm(len(split[True]), generator=generator).tolist()
    return {False: tuple(split[False]), True: tuple(split[True][i] for i in order)}
