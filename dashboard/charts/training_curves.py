"""Curves that several pages draw of a run's records."""

from __future__ import annotations

from collections.abc import Sequence

from core.training.record import Record
from dashboard.charts.curves import Curve, Points

APART = 0.01  # the smallest difference between two shares that a second curve could show


def points(records: Sequence[Record], name: str, scale: float = 1.0) -> Points:
    """(step, value) of a field of the records, times `scale`; None where it was not measured."""
    return [
        (r.step, None if (value := getattr(r, name)) is None else scale * value) for r in records
    ]


def loss_curves(records: Sequence[Record]) -> list[Curve]:
    """The validation loss and the training loss."""
    return [
        Curve("validation", points(records, "loss")),
        Curve("training", points(records, "train_loss")),
    ]


def balanced_points(records: Sequence[Record]) -> Points:
    """Balanced accuracy in percent over the steps; empty where classes are so even that it is the accuracy."""
    accuracy = [r.exact if r.letters is None else r.letters for r in records]
    if all(
        r.balanced is None or share is None or abs(r.balanced - share) < APART
        for r, share in zip(records, accuracy, strict=True)
    ):
        return []
    return points(records, "balanced", 100)
