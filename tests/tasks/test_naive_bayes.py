"""Naive Bayes against scikit-learn's, and once by hand."""

import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from sklearn.naive_bayes import MultinomialNB

from core.tasks.documents import NaiveBayes

VOCABULARY = 7
TEXTS = st.lists(
    st.tuples(st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=9), st.integers(2, 5)),
    min_size=1,
    max_size=23,
)


@settings(deadline=None)
@given(TEXTS, TEXTS)
def test_the_log_probabilities_are_those_of_scikit_learn(trained, others):
    texts, classes = map(list, zip(*trained, strict=True))
    counts = [[text.count(word) for word in range(VOCABULARY)] for text in texts]
    theirs, ours = MultinomialNB().fit(counts, classes), NaiveBayes(texts, classes, VOCABULARY)
    assert ours.classes == theirs.classes_.tolist()
    for text, _ in others:
        expected = theirs.predict_log_proba([[text.count(word) for word in range(VOCABULARY)]])
        torch.testing.assert_close(ours.log_probabilities(text), torch.tensor(expected[0]))


def test_two_classes_by_hand():
    bayes = NaiveBayes(
        [[0, 0, 1], [1], [2]], [0, 0, 1], 3
    )  # with one added: 3, 3, 1 of 7, and 1, 1, 2 of 4
    first, second = 2 / 3 * 3 / 7, 1 / 3 * 1 / 4
    assert bayes.log_probabilities([0]).tolist() == pytest.approx(
        [math.log(first / (first + second)), math.log(second / (first + second))]
    )
    assert bayes.predict([0]) == 0 and bayes.predict([2, 2]) == 1
    assert bayes.accuracy([[0], [2, 2], [2, 2]], [0, 1, 0]) == pytest.approx(2 / 3)
