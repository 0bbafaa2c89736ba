"""The scores of a model's heads in the standard tests; cached."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from core.interpret.head_tests import (
    RepeatLine,
    RepeatScores,
    SuccessorScores,
    join_lines,
    line_scores,
    ordered_tokens,
    random_lines,
    rank_successors,
    read_line,
)
from core.interpret.trace import Kind
from core.studies.circuits import head_weights
from dashboard.server.cache import shared
from dashboard.ui.models import ModelRef, is_small, load_model, study_of
from dashboard.ui.threads import one_thread

LINES = "head_roles:lines"  # the lines of random tokens that were scored, by their index, for all sessions
LEAST = 2  # of which there is an interval


def lines_of(ref: ModelRef) -> list[list[int]]:
    """The random tokens of each line. PretrainedError as in `random_lines`."""
    return shared(_tokens, ref)


def _tokens(ref: ModelRef) -> list[list[int]]:
    return random_lines(load_model(ref))


def score_line(ref: ModelRef, kind: Kind, index: int) -> np.ndarray:
    """The scores of every head on one line, by its index."""
    return line_scores(example_line(ref, kind) if index == 0 else _line(ref, kind, index), kind)


def example_line(ref: ModelRef, kind: Kind) -> RepeatLine:
    """The first line, which the page shows."""
    return shared(_line, ref, kind, 0)


def _line(ref: ModelRef, kind: Kind, index: int) -> RepeatLine:
    pretrained = load_model(ref)
    with one_thread(is_small(pretrained)):
        return read_line(pretrained, kind, lines_of(ref)[index])


def join_scores(ref: ModelRef, kind: Kind, scores: Sequence[np.ndarray]) -> RepeatScores:
    """The scores over the lines that were read so far."""
    return join_lines(kind, example_line(ref, kind), scores)


def measure_successors(ref: ModelRef, kind: Kind) -> SuccessorScores:
    """Rank the successors of numbers, days and letters by every head's matrices; computed once."""
    return shared(_successors, ref, kind)


def _successors(ref: ModelRef, kind: Kind) -> SuccessorScores:
    orders, weights = ordered_tokens(load_model(ref)), study_of(head_weights, ref)
    return rank_successors(orders, weights.heads, weights.vocabularies, kind)


def default_test(scores: RepeatScores) -> int:
    """The first test in which a head has half of its weight on the keys of the test, else that of the top score."""
    best = [
        float(scores.score[index][scores.ranked(index)[0]]) for index in range(len(scores.score))
    ]
    return next((index for index, score in enumerate(best) if score >= 0.5), best.index(max(best)))
