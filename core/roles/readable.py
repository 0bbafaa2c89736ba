"""Which sentences a model can be measured on: the kept ones where it knows their words, else lines of its own words."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from core.pretrained.base import Given, Pretrained, PretrainedError, Reading
from core.pretrained.reading import read
from core.roles.sentences import SENTENCES

MOST_UNKNOWN = 0.2  # of a sentence's tokens
FEWEST = 5  # sentences that a model must know
LINES, LENGTH = 16, 8
SEED = 86


def sentences_for(pretrained: Pretrained, asked: Sequence[str] = SENTENCES) -> tuple[str, ...]:
    """Of these sentences those whose words the model knows; when they are too few, lines of words that it does know.

    The lines are drawn with a fixed seed; every second one says its words twice. A model without a vocabulary of text
    (pictures, sound) has none.
    """
    if pretrained.reads not in ("text", "pair"):
        return ()
    tokenizer = getattr(pretrained.tokenizer, "tokenizer", pretrained.tokenizer)
    known = tuple(text for text in asked if unknown_share(tokenizer, text) <= MOST_UNKNOWN)
    return known if len(known) >= min(FEWEST, len(asked)) else own_lines(tokenizer)


def unknown_share(tokenizer: Any, text: str) -> float:
    """The share of a text's tokens that the model has no word for; 1 where there is no token."""
    ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    return sum(one == tokenizer.unk_token_id for one in ids) / len(ids) if ids else 1.0


def own_lines(tokenizer: Any) -> tuple[str, ...]:
    """Lines of the model's own words in random order, every second one twice over."""
    special = set(tokenizer.all_special_ids)
    pieces = sorted(place for place in tokenizer.get_vocab().values() if place not in special)
    words = [word for place in pieces if (word := str(tokenizer.decode([place])).strip())
             and any(sign.isalnum() for sign in word)]
    draw = random.Random(SEED)
    lines = [[draw.choice(words) for _ in range(LENGTH)] for _ in range(LINES)] if words else []
    return tuple(" ".join(line * (1 + place % 2)) for place, line in enumerate(lines))


def read_all(pretrained: Pretrained, sentences: Sequence[str]) -> tuple[Reading, ...]:
    """The model's reading of each sentence; PretrainedError when it cannot read one of them."""
    if not sentences:
        raise PretrainedError(f"{pretrained.name} reads no text, so there are no sentences to measure it on.")
    return tuple(read(pretrained, Given(sentence)) for sentence in sentences)
