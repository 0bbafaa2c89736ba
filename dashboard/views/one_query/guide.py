"""The questions and the things to try on this page; each answer is computed from what the page shows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from core.attention import AXES, AttentionConfig
from core.sentence import SENTENCE, labels, tokenize
from dashboard.charts.numbers import number
from dashboard.components.step_view import Reading
from dashboard.views.one_query.compute import Scaling
from dashboard.views.one_query.session import key, last_word
from dashboard.widgets.guide import Move, Question
from dashboard.widgets.panels import plain

SMALL, LARGE = 4, 64  # head sizes of the question on √D
MUCH = 0.8  # an entropy below this share of the other's is much lower
TEMPERATURE = key("normalizer:softmax:temperature")
MEANING = {
    1: "Each word starts as a vector x, a row of numbers. Three matrices, which training learns, turn it "
       "into a query (what the word looks for), a key (what it is found by) and a value (what it passes on).",
    2: "The score of a query and a key says how well they fit. A dot product multiplies them number by number and adds "
       "the products.",
    3: "A score adds D products, where D is the count of numbers in a query. Dividing by √D keeps the scores at the "
       "same size for every D. Some models also add a bias here, such as a penalty for distance.",
    4: "The mask sets the score to −∞ for every key that the query may not attend to, so its weight becomes 0.",
    5: "The normalizer turns the scores of the allowed keys into weights. The softmax makes them positive, with sum 1.",
    6: "The output is the sum of the values, each multiplied by its weight. It is the new vector of the word.",
}


def question(reading: Reading) -> Question | None:
    """Which key gets most weight: the query's own or another; None where there is no choice."""
    if reading.queries != reading.keys or reading.sees < 2:
        return None
    i, best = reading.query, reading.best
    name, other = plain(reading.name), plain(reading.keys[best])
    own = number(reading.weights[i, i])
    if best == i:
        result = f"{name} gives itself {own}, more than any other word"
    else:
        result = f"{name} gives {own} to itself and {number(reading.weights[i, best])} to {other}"
    why = "A word's query and key come from different matrices, so its own key need not fit its query best."
    reason = f"{result} (step 5). {why}"
    return Question(f"Each word has a query and a key. Which word gets the largest weight from {name}?",
                    ("the word itself", "another word"), 0 if best == i else 1, (reason, reason))


def root_question(points: Sequence[Scaling]) -> Question:
    """What happens to the weights at a larger head size when scores are not divided by √D."""
    small, large = (next(point for point in points if point.dims == dims) for dims in (SMALL, LARGE))
    ratio = large.entropy / small.entropy
    answer = 0 if ratio < MUCH else 2 if ratio > 1 / MUCH else 1
    reason = (f"The largest weight goes from {number(small.largest)} at D = {SMALL} to {number(large.largest)} at "
              f"D = {LARGE}. A score adds D products, so its variance grows with D: {number(small.variance)} and "
              f"{number(large.variance)}. At D = {LARGE}, divided by √{LARGE}, it is {number(large.scaled_variance)}.")
    return Question(
        f"Scores are not divided by √D, and the size D of queries and keys grows from {SMALL} to {LARGE}. What "
        "happens to the weights?",
        ("a few keys get almost all weight", "they stay about the same", "they become more equal"), answer,
        (reason,) * 3)


def moves(reading: Reading) -> tuple[Move, ...]:
    """What to try: the weights, the causal mask, the score without √D, and a layer of six words and four heads.

    Each sets all that its notice relies on, whatever was tried before.
    """
    first, name = reading.queries[0], plain(reading.name)
    hide = Move("Hide later words", _axes(mask="causal") | {key("query"): first, key("stage"): 4},
                f"Under the causal mask {plain(first)}, the first word, may attend only to itself: the score of every "
                "later word is −∞.")
    return (
        Move("See the weights", {key("stage"): 5},
             f"The scores of {name} became weights. Press Next to see the values multiplied by them."),
        *([hide] if reading.queries == reading.keys else []),
        Move("Do not divide by √D",
             _axes(score="dot") | {key("query"): reading.name, key("stage"): 5}, _without_root(reading)),
        Move("Six words, four heads", _layer(SENTENCE, 16, 4, stage=5),
             "Each head has its own queries and keys. Pick another head: the same word attends to other words."),
    )


def _without_root(reading: Reading) -> str:
    """The largest weight of the picked word without and with the division by √D."""
    row = reading.raw[reading.query].astype(float)
    best, dims = int(row.argmax()), reading.q.shape[1]
    whole, divided = (number(float(weights[best])) for weights in (_softmax(row), _softmax(row / dims**0.5)))
    return (f"{plain(reading.name)} gives {whole} to {plain(reading.keys[best])}; divided by √{dims} it would give "
            f"{divided}. Larger scores make the largest weight larger. “What √D does” below shows it for larger D.")


def _softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max())
    return powers / powers.sum()


def _axes(**axes: str) -> dict[str, object]:
    """Every axis's choice; axes that are not named get their first choice."""
    return {key(axis): axes.get(axis, getattr(AttentionConfig(), axis).key) for axis in AXES} | {TEMPERATURE: 1.0}


def _layer(words: str, d_model: int, heads: int, stage: int, **axes: str) -> dict[str, object]:
    """The controls of a layer; axes that are not named get their first choice."""
    names = labels(tokenize(words).tokens)
    values = {"source": "sentence", "tokens": words, "d_model": d_model, "heads": heads, "head": 0, "stage": stage,
              "query": names[last_word(names)]}
    return _axes(**axes) | {key(name): value for name, value in values.items()}
