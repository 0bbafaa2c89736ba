"""The question of this page; its answer is computed from the trained model's own vectors."""

from __future__ import annotations

from collections.abc import Mapping

from dashboard.charts.numbers import number
from dashboard.widgets.guide import Question

OPTIONS = (("q", "k", "v"), ("k", "v"), ("k",), ("v",))
LABELS = ("q, k and v", "k and v", "only k", "only v")


def question(changes: Mapping[str, float]) -> Question:
    """Which vectors of earlier tokens the next token needs; `changes` is what zeros in their place do to its output."""
    needed = tuple(name for name in ("q", "k", "v") if changes[name] > 0)
    tried = (f"With zeros in place of all earlier q, the new token's output changes by {number(changes['q'])} of its "
             f"size; in place of k by {number(changes['k'])}, in place of v by {number(changes['v'])}.")
    return Question("A decoder writes one token after another. Which vectors of the earlier tokens must it store for "
                    "the next one?", LABELS, OPTIONS.index(needed),
                    (f"{tried} A query is read by its own token alone.", f"{tried} A query is read by its own token "
                     "alone.", f"{tried} The weights come from k, but they are weights of v.",
                     f"{tried} Without k there are no scores for the earlier tokens."))
