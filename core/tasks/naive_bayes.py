"""Multinomial naive Bayes over words: what counts of words alone tell of a class (Wang & Manning 2012, section 2.1)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

Words = Sequence[int]


class NaiveBayes:
    """The log probability of each class, and of each word in it with one added to its count, as scikit-learn's
    MultinomialNB."""

    def __init__(self, texts: Sequence[Words], classes: Sequence[int], vocabulary: int) -> None:
        self.classes = sorted(set(classes))
        counts = torch.ones(len(self.classes), vocabulary, dtype=torch.float64)
        for words, of_text in zip(texts, classes, strict=True):
            ids = torch.tensor(words, dtype=torch.int64)
            counts[self.classes.index(of_text)].index_add_(
                0, ids, torch.ones(len(ids), dtype=torch.float64)
            )
        self.log_words = (counts / counts.sum(1, keepdim=True)).log()
        self.log_classes = (
            torch.tensor([classes.count(one) / len(classes) for one in self.classes]).double().log()
        )

    def predict(self, words: Words) -> int:
        """The most probable class of a text."""
        return self.classes[int(self.log_probabilities(words).argmax())]

    def log_probabilities(self, words: Words) -> Tensor:
        """Of each of `classes` for a text, (C,)."""
        joint = self.log_classes + self.log_words[:, torch.tensor(words, dtype=torch.int64)].sum(1)
        return joint - joint.logsumexp(0)

    def accuracy(self, texts: Sequence[Words], classes: Sequence[int]) -> float:
        """The share of texts whose class it predicts."""
        return sum(
            self.predict(words) == one for words, one in zip(texts, classes, strict=True)
        ) / len(texts)
