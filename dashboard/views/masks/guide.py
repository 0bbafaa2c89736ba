"""What a reader predicts and tries on Masks."""

from __future__ import annotations

import torch

from core.attention import Choice
from core.masks import build_mask
from dashboard.widgets.guide import Move, Question

OPTIONS = ("Their rows", "Their columns", "Both")
PADDED = 2  # tokens of the question
FORMULA = "j <= i and i - j < 2 or j == 0"


def question(tokens: int) -> Question:
    """Which cells a padding mask removes, counted on as many tokens as the page has."""
    size = max(tokens, PADDED + 1)
    words = torch.arange(size) < size - PADDED
    allowed = build_mask(Choice("padding"), size, size, key_mask=words[None])
    assert allowed is not None
    removed = ~allowed.expand(1, 1, size, size)[0, 0]
    rows, columns = bool(removed[~words].all()), bool(removed[:, ~words].all())
    rule = (f"A padding mask removes {int(removed.sum())} of {size * size} cells here: the last {PADDED} columns. No "
            "word attends to padding.")
    row = "A row of padding is still computed, but nothing reads its output."
    return Question(f"The last {PADDED} tokens are now padding: empty, to fill a batch. Which cells must be hidden, so "
                    "that no word takes anything from them?", OPTIONS,
                    {(True, False): 0, (False, True): 1, (True, True): 2}[rows, columns],
                    (f"{rule} A row holds what its own query takes.", f"{rule} {row}", f"{rule} {row}"))


def _mask(first: str, join: str = "alone", **params: object) -> dict[str, object]:
    return {"masks:first": first, "masks:join": join, **{f"masks:first:{first}:{name}": value
                                                         for name, value in params.items()}}


MOVES = (
    Move("Two words back", _mask("causal_local", lookback=2),
         "Each word attends to itself and the two words before it. “How far a stack of layers reaches” counts how many "
         "such layers connect the last word with the first."),
    Move("Hide padding", _mask("padding"),
         "The last two tokens count as padding. Their columns are crossed out; their rows are not."),
    Move("The opposite of causal", _mask("causal", "not"),
         "Now each word attends only to later words. The last word has no key left, so its output is 0 here."),
    Move("Type a rule", _mask("formula", text=FORMULA),
         "A field appears below the maps. The rule allows a word, the one before it, and always the first one; edit it "
         "and watch the cells."),
)
