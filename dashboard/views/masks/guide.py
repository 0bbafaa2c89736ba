"""What a reader predicts and tries on Masks."""

from __future__ import annotations

import torch

from core.attention import Choice
from core.masks import build_mask
from dashboard.widgets.guide import Move, Question

REGIONS = ("Below the diagonal: earlier words", "The diagonal: the word itself", "Above the diagonal: later words")
FORMULA = "j <= i and i - j < 4 or j == 0"


def question(tokens: int) -> Question:
    """Which cells a causal mask removes, counted on as many tokens as the page has."""
    size = max(tokens, 3)
    allowed = build_mask(Choice("causal"), size, size)
    assert allowed is not None
    removed = ~allowed.reshape(size, size)
    i, j = torch.arange(size)[:, None], torch.arange(size)
    counts = [int((removed & region).sum()) for region in (j < i, j == i, j > i)]
    answer = counts.index(max(counts))
    rule = f"A causal mask removes {counts[answer]} of the {size * size} cells of {size} words, all with j > i"
    reasons = (f"{rule}. The words before stay visible: a word may attend to its past.",
               f"{rule}. Each word may attend to itself, so even the first word has one key.",
               f"{rule}. A model that predicts the next word must not see it, so no word attends to a later one.")
    return Question("Rows are queries and columns are keys. Which cells does a causal mask remove?", REGIONS, answer,
                    reasons)


def _mask(first: str, join: str = "alone", **params: object) -> dict[str, object]:
    return {"masks:first": first, "masks:join": join, **{f"masks:first:{first}:{name}": value
                                                         for name, value in params.items()}}


MOVES = (
    Move("Two words back", _mask("causal_local", lookback=2),
         "Each word attends to itself and the two words before it. Open “How far a stack of layers reaches” below: it "
         "counts how many such layers connect the last word with the first."),
    Move("Hide padding", _mask("padding"),
         "The last two tokens count as padding. Their columns are crossed out: no word attends to them."),
    Move("The opposite of causal", _mask("causal", "not"),
         "Now each word attends only to later words. The last word has no key left, so its output is 0 here."),
    Move("Type a rule", _mask("formula", text=FORMULA),
         "A field appears below the maps. The rule allows the last four words and always the first one; edit it and "
         "watch the cells."),
)
