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
    """Corpus BLEU, 0 to 100, on words as they are (Papineni 2002, by sacrebleu); ValueError as exact_match. Orders
    longer than every target are left out, so that short targets can reach 100."""
    import sacrebleu

    check(predictions, targets)
    longest = max(1, min(4, max(map(len, targets))))
    metric = sacrebleu.BLEU(tokenize="none", max_ngram_order=longest, force=True)
    # Numbers stand for tokens, which may be empty or have spaces.
    ids: dict[str, str] = {}
    lines = [[" ".join(ids.setdefault(token, str(len(ids))) for token in row) for row in rows]
             for rows in (predictions, targets)]
    return float(metric.corpus_score(lines[0], [lines[1]]).score)


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
    majority = Counter(train).most_common(1)[0][0]
    return majority, sum(item == majority for item in test) / len(test)


def entropy(classes: Sequence[Hashable]) -> float:
    """The entropy of the classes' frequencies, in nats: the loss of predicting these frequencies for every item."""
    return -sum(count / len(classes) * math.log(count / len(classes)) for count in Counter(classes).values())


def chrf(predictions: Sequence[str], targets: Sequence[str]) -> float:
    """chrF, 0 to 100: F2 of character n-grams up to 6 (Popović 2015, by sacrebleu); ValueError as exact_match."""
    import sacrebleu

    check(predictions, targets)
    return float(sacrebleu.CHRF().corpus_score(list(predictions), [list(targets)]).score)


def score(task: Task, predictions: Sequence[Tokens], targets: Sequence[Tokens]) -> dict[str, float]:
    """The task's metrics by name: "exact" of its tokens, "bleu" of its words, "chrf" of its text."""
    scores = {"exact": exact_match(predictions, targets)}
    if "bleu" in task.metrics:
        scores["bleu"] = bleu(*([task.words_of(row) for row in rows] for rows in (predictions, targets)))
    if "chrf" in task.metrics:
        scores["chrf"] = chrf(*([task.separator.join(row) for row in rows] for rows in (predictions, targets)))
    return scores


def by_length(
    sources: Sequence[Tokens], predictions: Sequence[Tokens], targets: Sequence[Tokens],
    metric: Callable[[Sequence[Tokens], Sequence[Tokens]], Score],
) -> dict[str, tuple[Score, int]]:
    """The metric and the number of examples for sources of 1–10 tokens, 11–20, …; empty buckets are left out."""
    buckets: dict[int, list[int]] = {}
    for i, source in enumerate(sources):
        buckets.setdefault(max(0, len(source) - 1) // BUCKET, []).append(i)
    return {f"{BUCKET * b + 1}–{BUCKET * (b + 1)}":
            (metric([predictions[i] for i in rows], [targets[i] for i in rows]), len(rows))
            for b, rows in sorted(buckets.items())}


def check(predictions: Sequence[Tokens], targets: Sequence[Tokens]) -> None:
    if len(predictions) != len(targets) or not targets:
        raise ValueError(f"Predictions and targets are compared one by one; got {len(predictions)} and {len(targets)}.")
