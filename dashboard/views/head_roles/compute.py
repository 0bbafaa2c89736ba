"""The scores of every head in every role, and the reading in which one head shows a role; cached in role_scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from core.interpret.roles import ROLES, Example, RoleInputs, RoleScores, clearest_example
from core.interpret.trace import Head, Kind
from core.pretrained import ModelInputs, Reading
from dashboard.server.cache import shared
from dashboard.ui.heads import inputs_of, readings_of, role_scores_of
from dashboard.ui.model_picker import ModelChoice
from dashboard.ui.models import ModelRef


@dataclass(frozen=True, eq=False)
class Measurements:
    """The inputs on which the roles were measured, and the scores of every head."""

    inputs: RoleInputs
    scores: RoleScores

    def left_out(self, sentences: tuple[str, ...]) -> int:
        """The number of these sentences that were not measured, as the model knows too few of their words."""
        texts = {inputs.text for inputs in self.inputs.givens}
        return sum(sentence not in texts for sentence in sentences)


@dataclass(frozen=True, eq=False)
class HeadReading:
    """The inputs of a head's map, the model's reading of them, and the head's clearest example of a role there."""

    inputs: ModelInputs
    reading: Reading
    example: Example | None


def measure_roles(choice: ModelChoice, kind: Kind, sentences: tuple[str, ...]) -> Measurements:
    """Score every head in every role, on these sentences or else on the example sentences."""
    return Measurements(
        inputs_of(choice.ref, choice.inputs, kind, sentences),
        role_scores_of(choice.ref, choice.inputs, kind, sentences),
    )


def default_role(scores: RoleScores) -> int:
    """The index of the role with the largest share above chance, of the active roles that some head has; else of all."""
    best = np.nanmax(np.where(np.isnan(scores.share), -1.0, scores.share), (1, 2))
    acts = np.asarray([role.acts for role in ROLES])
    return int((best + np.where(acts & scores.counts.any((1, 2)), 2.0, 0.0)).argmax())


def best_reading(
    choice: ModelChoice, measurements: Measurements, role: int, head: Head
) -> HeadReading | None:
    """The measured input on which the head shows the role most clearly; None if none can show it."""
    return shared(
        _best_reading, choice.ref, measurements.inputs, measurements.scores.kind, role, head
    )


def _best_reading(
    ref: ModelRef, inputs: RoleInputs, kind: Kind, role: int, head: Head
) -> HeadReading | None:
    readings = readings_of(ref, inputs, kind)
    example = clearest_example(readings, kind, ROLES[role], *head)
    return (
        None
        if example is None
        else HeadReading(inputs.givens[example.reading], readings[example.reading], example)
    )


def own_reading(choice: ModelChoice, kind: Kind, role: int, head: Head) -> HeadReading:
    """The user's own input, with the head's clearest example of the role in it."""
    return HeadReading(
        choice.inputs, choice.reading, clearest_example([choice.reading], kind, ROLES[role], *head)
    )
