"""How well predictions meet their targets: exact match, token accuracy, BLEU, and each by the source's length."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Tokens = Sequence[str]
Metric = Callable[[Sequence[Tokens], Sequence[Tokens]], float]

BUCKET = 10


def exact_match(predictions: Sequence[Tokens], targets: Sequence[Tokens]) -> float:
    """The share, 0 to 1, of predictions equal to their target; ValueError when counts differ or are 0."""
    check(predictions, targets)
    return sum(list(p) == list(t) for p, t in zip(predictions, targets, strict=True)) / len(targets)


def token_accuracy(predictions: Sequence[Tokens], targets: Sequence[Tokens]) -> float:
    """The share, 0 to 1, of places that agree, out of the longer of both; ValueError as exact_match."""
    check(predictions, targets)
    right = sum(a == b for p, t in zip(predictions, targets, strict=True) for a, b in zip(p, t, strict=False))
    return right / max(1, sum(max(len(p), len(t)) for p, t in zip(predictions, targets, strict=True)))


def bleu(predictions: Sequence[Tokens], targets: Sequence[Tokens]) -> float:
    """Corpus BLEU, 0 to 100, on the tokens as they are (Papineni 2002, by sacrebleu); ValueError as exact_match.

    Orders that no target is long enough for are left out, so that short targets can reach 100.
    """
    import sacrebleu

    check(predictions, targets)
    longest = max(1, min(4, max(map(len, targets))))
    metric = sacrebleu.BLEU(tokenize="none", max_ngram_order=longest, force=True)
    # A token with a space in it, or none at all, would be cut or lost: number them instead.
    ids: dict[str, str] = {}
    lines = [[" ".join(ids.setdefault(token, str(len(ids))) for token in row) for row in rows]
             for rows in (predictions, targets)]
    return float(metric.corpus_score(lines[0], [lines[1]]).score)


def by_length(
    sources: Sequence[Tokens], predictions: Sequence[Tokens], targets: Sequence[Tokens], metric: Metric
) -> dict[str, tuple[float, int]]:
    """The metric and how many examples, for sources of 1–10 tokens, 11–20, …; empty buckets are left out."""
    buckets: dict[int, list[int]] = {}
    for i, source in enumerate(sources):
        buckets.setdefault(max(0, len(source) - 1) // BUCKET, []).append(i)
    return {f"{BUCKET * b + 1}–{BUCKET * (b + 1)}":
            (metric([predictions[i] for i in rows], [targets[i] for i in rows]), len(rows))
            for b, rows in sorted(buckets.items())}


def check(predictions: Sequence[Tokens], targets: Sequence[Tokens]) -> None:
    if len(predictions) != len(targets) or not targets:
        raise ValueError(f"Predictions and targets are compared one by one; got {len(predictions)} and {len(targets)}.")
