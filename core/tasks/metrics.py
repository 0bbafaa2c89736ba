"""Metrics of predictions: exact match, BLEU, chrF, also by length; balanced accuracy, majority class and entropy."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from core.tasks.base import Task

Score = TypeVar("Score")
Tokens = Sequence[str]

BUCKET = 10


def exact_match(predictions: Sequence[Tokens], targets: Sequence[Tokens]) -> float:
    """The share, 0 to 1, of predictions equal to their target; ValueError when counts differ or are 0."""
    check(predictions, targets)
    return sum(list(p) == list(t) for p, t in zip(predictions, targets, strict=True)) / len(targets)


def bleu(predictions: Sequence[Tokens], targets: Sequence[Tokens]) -> float:
    """Corpus BLEU, 0 to 100, on words as they are (Papineni 2002; with the exponential smoothing of sacrebleu).

    Orders longer than every target are left out, so that short targets can reach 100. ValueError as exact_match.
    """
    check(predictions, targets)
    counts = [
        _matches(predictions, targets, n)
        for n in range(1, max(1, min(4, max(map(len, targets)))) + 1)
    ]
    if not any(match for _, _, match in counts) or not all(length for length, _, _ in counts):
        return 0.0
    smooth, logs = 1.0, 0.0
    for length, _, match in counts:
        smooth *= 1 if match else 2
        logs += math.log((match or 1 / smooth) / length)
    (length, of_targets, _), orders = counts[0], len(counts)
    return 100 * math.exp(min(0.0, 1 - of_targets / length) + logs / orders)


def _matches(
    predictions: Sequence[Tokens], targets: Sequence[Tokens], n: int
) -> tuple[int, int, int]:
    """How many n-grams the predictions have, the targets, and both, each counted as often as it is in both."""
    pairs = [
        [Counter(zip(*(row[i:] for i in range(n)), strict=False)) for row in pair]
        for pair in zip(predictions, targets, strict=True)
    ]
    return (
        sum(one.total() for one, _ in pairs),
        sum(other.total() for _, other in pairs),
        sum((one & other).total() for one, other in pairs),
    )


def balanced_accuracy(confusion: Sequence[Sequence[int]]) -> float:
    """The mean recall of the classes, 0 to 1 (Brodersen 2010), as sklearn.metrics.balanced_accuracy_score.

    `confusion` counts items by class (row) and prediction (column); classes without items are left out. ValueError when
    it counts none.
    """
    recalls = [row[i] / sum(row) for i, row in enumerate(confusion) if sum(row)]
    if not recalls:
        raise ValueError("An empty confusion matrix has no accuracy.")
    return sum(recalls) / len(recalls)


def majority_class(train: Sequence[Any], test: Sequence[Any]) -> tuple[Any, float]:
    """The most frequent class of the training items, and its share of the test items."""
    majority = Counter(train).most_common()[0][0]
    return majority, sum(item == majority for item in test) / len(test)


def entropy(classes: Sequence[Hashable]) -> float:
    """The entropy of the classes' frequencies, in nats: the loss of predicting these frequencies for every item."""
    return -sum(
        count / len(classes) * math.log(count / len(classes)) for count in Counter(classes).values()
    )


def chrf(predictions: Sequence[str], targets: Sequence[str]) -> float:
    """chrF, 0 to 100: F2 of character n-grams up to 6 (Popović 2015, as sacrebleu); ValueError as exact_match."""
    check(predictions, targets)
    guesses, answers = (["".join(text.split()) for text in side] for side in (predictions, targets))
    shares = [
        (match / length, match / of_targets)
        for n in range(1, 7)
        # A prediction whose target is shorter than n counts nothing.
        for length, of_targets, match in [
            _matches(
                [
                    guess if len(answer) >= n else ""
                    for guess, answer in zip(guesses, answers, strict=True)
                ],
                answers,
                n,
            )
        ]
        if length and of_targets
    ]
    precision, recall = (
        (sum(part) / len(shares) for part in zip(*shares, strict=True)) if shares else (0.0, 0.0)
    )
    return 500 * precision * recall / (4 * precision + recall) if precision + recall else 0.0


def score(task: Task, predictions: Sequence[Tokens], targets: Sequence[Tokens]) -> dict[str, float]:
    """The task's metrics by name: "sequence_accuracy" of its tokens, "bleu" of its words, "chrf" of its text."""
    scores = {"sequence_accuracy": exact_match(predictions, targets)}
    if "bleu" in task.metrics:
        scores["bleu"] = bleu(
            *([task.words_of(row) for row in rows] for rows in (predictions, targets))
        )
    if "chrf" in task.metrics:
        scores["chrf"] = chrf(
            *([task.separator.join(row) for row in rows] for rows in (predictions, targets))
        )
    return scores


def by_length(
    sources: Sequence[Tokens],
    predictions: Sequence[Tokens],
    targets: Sequence[Tokens],
    metric: Callable[[Sequence[Tokens], Sequence[Tokens]], Score],
) -> dict[str, tuple[Score, int]]:
    """The metric and the number of examples for sources of 1–10 tokens, 11–20, …; empty buckets are left out."""
    buckets: dict[int, list[int]] = {}
    for i, source in enumerate(sources):
        buckets.setdefault((len(source) - 1) // BUCKET, []).append(i)
    return {
        f"{BUCKET * b + 1}–{BUCKET * (b + 1)}": (
            metric([predictions[i] for i in rows], [targets[i] for i in rows]),
            len(rows),
        )
        for b, rows in sorted(buckets.items())
    }


def check(predictions: Sequence[Tokens], targets: Sequence[Tokens]) -> None:
    if len(predictions) != len(targets) or not targets:
        raise ValueError(
            f"Predictions and targets are compared one by one; got {len(predictions)} and {len(targets)}."
        )
