"""What a reader predicts and tries on Why attention."""

from __future__ import annotations

from collections.abc import Sequence

from dashboard.charts.numbers import percent
from dashboard.views.why.controls import FEW, FEW_STEPS, Controls
from dashboard.views.why.trained_models import TrainedModel, by_length
from dashboard.widgets.guide import Move, Question

OPTIONS = ("The model with one vector", "The model with attention", "Both lose the same")
EQUAL = 5.0  # percentage points; losses closer than this are the same


def question(learned: Sequence[TrainedModel]) -> Question:
    """Which model loses more from the shortest to the longest sentences, by the saved measurement."""
    ends = {model: list(by_length(learned, model, "exact").items()) for model in Controls().pair}
    without, attention = ends.values()
    losses = [points[0][1].mean - points[-1][1].mean for points in ends.values()]
    gap = losses[0] - losses[1]
    answer = 2 if abs(gap) < EQUAL else 0 if gap > 0 else 1
    (short, _), (long, _) = attention[0], attention[-1]
    counts = "; ".join(f"{name} translates {percent(points[0][1].mean / 100)} of sentences of {short} words without a "
                       f"mistake and {percent(points[-1][1].mean / 100)} of those of {long} words"
                       for name, points in (("one vector", without), ("attention", attention)))
    reason = (f"Measured: {counts}. A vector has the same size for every sentence, while attention has one vector for "
              "each word.")
    return Question("Sentences grow from 10 to 60 words. Which model loses more exact translations?", OPTIONS, answer,
                    (reason,) * len(OPTIONS))


MOVES = (
    Move("A smaller vector", {"why:d_model": 32, "why:longest": 60, "why:seconds": 45},
         "The vector of the next run has 32 numbers. Press **Run it**, then compare the two lines at short sentences: "
         "how long may a sentence be before the vector fails?"),
    Move("Short sentences", {"why:d_model": 128, "why:longest": 20, "why:seconds": 20},
         "In the next run no sentence is longer than 20 words. Press **Run it**, then see how much smaller the "
         "advantage of attention is."),
    Move("Too little training", {"why:d_model": 128, "why:longest": 60, "why:seconds": FEW_STEPS},
         f"In the next run each model trains for {FEW} steps. Press **Run it**: attention must first learn which words "
         "belong together, so its lead is small or does not show yet. Then press **Back to the saved measurement**, "
         "whose models were trained longer, and compare."),
)
