"""Metrics against counts made by hand and against sacrebleu's own reading."""

import math

import pytest
import sacrebleu
import torch
from hypothesis import given, strategies as st

from core.tasks.metrics import (
    balanced_accuracy,
    bleu,
    by_length,
    chrf,
    entropy,
    exact_match,
    majority_class,
)
from core.training import evaluate
from tests.cases import each

TARGETS = [tuple("abcd"), tuple("ab"), tuple("abc")]
PREDICTED = [list("abcd"), list("b"), list("abx")]


def words(*lines):
    return [line.split() for line in lines]


def test_exact_match_by_hand():
    assert exact_match(PREDICTED, TARGETS) == pytest.approx(1 / 3)


def test_bleu_is_sacrebleus_and_100_when_all_is_right():
    targets = words("drei und zwanzig ; sieben hundert vier", "ein hundert zwei und vier zig")
    guesses = words("drei und zwanzig ; sieben vier", "ein hundert zwei und fünf zig")
    theirs = sacrebleu.corpus_bleu(
        [" ".join(g) for g in guesses], [[" ".join(t) for t in targets]], tokenize="none"
    )
    assert bleu(guesses, targets) == pytest.approx(theirs.score)
    assert bleu(targets, targets) == pytest.approx(100)
    assert bleu([["zehn"]], [["zehn"]]) == pytest.approx(100), "a target of one word can be right"
    assert bleu([[]], [["zehn"]]) == 0


TEXT = st.lists(st.text(alphabet="abc de", max_size=14), min_size=1, max_size=5)


@given(
    TEXT.flatmap(
        lambda targets: st.tuples(
            st.lists(
                st.text(alphabet="abc de", max_size=14),
                min_size=len(targets),
                max_size=len(targets),
            ),
            st.just(targets),
        )
    )
)
def test_scores_of_any_texts_are_sacrebleus(pair):
    guesses, targets = pair
    assert chrf(guesses, targets) == pytest.approx(
        sacrebleu.CHRF().corpus_score(guesses, [targets]).score
    )
    rows, wanted = ([line.split() for line in lines] for lines in pair)
    orders = max(1, min(4, max(map(len, wanted))))
    metric = sacrebleu.BLEU(tokenize="none", max_ngram_order=orders, force=True)
    assert bleu(rows, wanted) == pytest.approx(metric.corpus_score(guesses, [targets]).score)


def test_bleu_by_hand_halves_what_is_missing_again_and_again():
    """Words 3 of 4, pairs 1 of 3, triples 0 of 2, fours 0 of 1: what is missing counts 1/2, then 1/4."""
    expected = 100 * (3 / 4 * 1 / 3 * (1 / 2) / 2 * (1 / 4) / 1) ** 0.25
    assert bleu(words("a b x d"), words("a b c d")) == pytest.approx(expected)
    assert chrf(["ab"], ["ab"]) == pytest.approx(100) and chrf(["x"], ["ab"]) == 0


def test_buckets_by_source_length():
    sources = [["x"] * n for n in (1, 10, 11, 60)]
    output, targets = [["a"], ["b"], ["b"], ["a"]], [["a"]] * 4
    assert by_length(sources, output, targets, exact_match) == {
        "1–10": (0.5, 2),
        "11–20": (0.0, 1),
        "51–60": (1.0, 1),
    }


@each("metric", [exact_match, bleu])
def test_counts_must_agree(metric):
    with pytest.raises(ValueError, match="one by one"):
        metric([["a"]], [])
    with pytest.raises(ValueError, match="one by one"):
        metric([], [])


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=40))
def test_confusion_and_balanced_accuracy_are_those_of_scikit_learn(pairs):
    from sklearn.metrics import confusion_matrix, recall_score

    right, predicted = map(list, zip(*pairs, strict=True))
    counts = evaluate.confusion_matrix(
        torch.nn.functional.one_hot(torch.tensor(predicted), 5).float(), torch.tensor(right)
    ).tolist()
    assert counts == confusion_matrix(right, predicted, labels=range(5)).tolist()
    there = sorted(
        set(right)
    )  # balanced_accuracy_score is this mean, but warns of classes that are only predicted
    assert balanced_accuracy(counts) == pytest.approx(
        recall_score(right, predicted, labels=there, average="macro")
    )


def test_the_majority_is_of_what_is_trained_on_and_its_share_of_what_is_tested():
    assert majority_class("aabaa", "abbb") == ("a", 0.25)
    assert entropy("aab") == pytest.approx(-(2 / 3 * math.log(2 / 3) + 1 / 3 * math.log(1 / 3)))
    assert entropy("abcd") == pytest.approx(math.log(4)) and entropy("aa") == 0
    with pytest.raises(ValueError, match="empty confusion matrix"):
        balanced_accuracy([[0, 0], [0, 0]])
