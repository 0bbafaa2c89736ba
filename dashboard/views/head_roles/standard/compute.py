"""The scores of a model's heads in the standard tests; cached."""

from __future__ import annotations

from core.roles.repeats import RepeatScores, score_repeats
from core.roles.successors import SuccessorScores, score_successors
from core.trace import Kind
from dashboard.runtime.cache import shared
from dashboard.runtime.threads import one_thread
from dashboard.widgets.model_picker import ModelRef, load_model
from dashboard.widgets.model_picker.models import is_small


def measure_repeats(ref: ModelRef, kind: Kind) -> RepeatScores:
    """Score every head on random tokens that repeat; computed once."""
    return shared(_measure, ref, kind)


def _measure(ref: ModelRef, kind: Kind) -> RepeatScores:
    pretrained = load_model(ref)
    with one_thread(is_small(pretrained)):
        return score_repeats(pretrained, kind)


def measure_successors(ref: ModelRef, kind: Kind) -> SuccessorScores:
    """Rank the successors of numbers, days and letters by every head's matrices; computed once."""
    return shared(_successors, ref, kind)


def _successors(ref: ModelRef, kind: Kind) -> SuccessorScores:
    return score_successors(load_model(ref), kind)


def default_test(scores: RepeatScores) -> int:
    """The first test in which a head has half of its weight on the keys of the test, else that of the top score."""
    best = [float(scores.score[index][scores.ranked(index)[0]]) for index in range(len(scores.score))]
    return next((index for index, score in enumerate(best) if score >= 0.5), best.index(max(best)))
