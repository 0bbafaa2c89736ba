"""What a reader predicts and tries on Why attention."""

from __future__ import annotations

from collections.abc import Sequence

from dashboard.charts.numbers import percent, score
from dashboard.views.why.controls import FEW, FEW_STEPS, Controls
from dashboard.views.why.trained_models import TrainedModel, by_length, over_time
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


def moves(learned: Sequence[TrainedModel]) -> tuple[Move, ...]:
    """Runs to try; `learned` are the models of the saved measurement, with which a run is compared."""
    return (
        Move("A smaller vector", {"why:d_model": 32, "why:longest": 60, "why:seconds": 45},
             "**Run it** trains with a vector of 32 numbers. Compare the two lines at short sentences: how long may a "
             "sentence be before the vector fails?"),
        Move("Short sentences", {"why:d_model": 128, "why:longest": 20, "why:seconds": 20}, _short_sentences(learned)),
        Move("Too little training", {"why:d_model": 128, "why:longest": 60, "why:seconds": FEW_STEPS},
             f"**Run it** trains each model for {FEW} steps: attention must first learn which words belong together, "
             "so its lead is small or does not show yet. Then press **Back to the saved measurement**, whose models "
             "were trained longer, and compare."),
    )


def _short_sentences(learned: Sequence[TrainedModel]) -> str:
    """The lead of attention at the shortest and the longest sentences, and how far both are half-way; all as saved."""
    pair = Controls().pair
    without, attention = (list(by_length(learned, model, "exact").items()) for model in pair)
    ends = (f"{percent(attention[at][1].mean / 100)} against {percent(without[at][1].mean / 100)} of sentences of "
            f"{attention[at][0]} words" for at in (0, -1))
    slow, fast = (over_time(learned, model, "bleu", "step") for model in pair)
    step, half = slow[len(slow) // 2]
    return (f"In the saved measurement attention translates {' and '.join(ends)} without a mistake. **Run it** trains "
            "on sentences of at most 20 words: compare the two lines there. After few steps the lead can be larger, "
            f"because the model with one vector learns more slowly: at step {step:,.0f} of the saved measurement "
            f"its BLEU is {score(half.mean)}, with attention {score(dict(fast)[step].mean)}.")
