"""The question of this page; its answer is computed from the trained model's own vectors."""

from __future__ import annotations

from collections.abc import Mapping

from dashboard.charts.numbers import number
from dashboard.widgets.guide import Question

OPTIONS = ("q", "k", "v")


def question(changes: Mapping[str, float]) -> Question:
    """Which vectors of earlier tokens the next one does not need; `changes` is what zeros in their place change."""
    tried = (f"With zeros in place of all earlier q, the new token's output changes by {number(changes['q'])} of its "
             f"size; in place of k by {number(changes['k'])}, in place of v by {number(changes['v'])}.")
    why = "A query is read by its own token alone, so a decoder need not store it."
    return Question("Zeros replace the q, the k or the v of all earlier tokens. Which replacement leaves the output "
                    "of the next token as it is?", OPTIONS, min(range(3), key=lambda at: changes[OPTIONS[at]]),
                    (f"{tried} {why}", f"{tried} The weights come from q and k: other keys, other weights.",
                     f"{tried} The output is a weighted sum of v."))
