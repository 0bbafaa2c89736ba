"""What a reader predicts and tries on Positions."""

from __future__ import annotations

from collections.abc import Mapping

from dashboard.charts.numbers import number
from dashboard.views.positions.compute import GUIDE_SHIFT
from dashboard.widgets.guide import Move, Question

OPTIONS = {"sinusoidal": "Sinusoidal, added to the input", "learned": "Learned, added to the input",
           "rope": "RoPE, which rotates q and k"}
WHY = {"sinusoidal": "The sinusoids are added to the words before $W_q$ and $W_k$, so the absolute position enters "
                     "each score.",
       "learned": "Each position has its own learned vector, so the absolute position enters each score.",
       "rope": "Query and key are rotated by angles that grow with the position, so only their distance is left in the "
               "score."}


def question(changes: Mapping[str, float]) -> Question:
    """Which encoding keeps the scores of a sentence that comes later; `changes` are the largest changes of a score."""
    keys = list(OPTIONS)
    right = min(keys, key=lambda key: changes[key])
    answer = f" With {OPTIONS[right].partition(',')[0]} it is {number(changes[right])}: {WHY[right]}"
    reasons = tuple(f"Measured on this sentence, the largest change of a score is {number(changes[key])}. {WHY[key]}"
                    f"{answer if key != right else ''}" for key in keys)
    return Question(f"Sinusoidal adds waves of fixed lengths to the words, Learned a vector that training finds for "
                    "each position. RoPE adds nothing: it rotates queries and keys, by an angle that grows with the "
                    f"position. Now {GUIDE_SHIFT} other words stand before the sentence. With which encoding do the "
                    "scores between its own words stay the same?",
                    tuple(OPTIONS.values()), keys.index(right), reasons)


SYMBOLS = {
    "sinusoidal": "i is the position, C the count of numbers in a word's vector, and b the base. m counts the pairs of "
                  "sine and cosine from 0.",
    "learned": "i is the position, x_i the vector of its word, and P_i the learned vector of the position.",
    "rope": "i and j are the positions of query and key. R_i rotates each pair of numbers by i times the pair's angle.",
    "alibi": "i and j are the positions of query and key. m_h is the slope of head h, counted from 0; H is the count "
             "of heads.",
}


MOVES = (
    Move("Remove the positions", {"positions:position": "none", "positions:idea": "shuffle"},
         "Each word keeps its output when the sentence is shuffled. Without positions, attention reads a sentence as a "
         "set of words."),
    Move("Rotate with RoPE", {"positions:position": "rope", "positions:idea": "encoding"},
         "Each pair of dimensions is a hand that rotates by the same angle at each position: the first pair fast, the "
         "last one slowly."),
    Move("Move the sentence", {"positions:position": "rope", "positions:idea": "shift", "positions:shift": 5},
         "The same words have the same scores five positions later. Pick Sinusoidal above and they change."),
    Move("Prefer near words", {"positions:position": "alibi", "positions:idea": "distance"},
         "ALiBi lowers a score in proportion to the distance. Each head has its own slope, so some heads read far and "
         "some near."),
)
