"""The inputs on which roles are measured: the example sentences where the model knows their words, else others."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from core.interpret.trace import Kind, to_numpy
from core.pretrained.base import Array, ModelInputs, Pretrained, Reading
from core.pretrained.reading import read, tokenized, tokenizer_of
from core.roles.sentences import NUMBERS, SENTENCES

MOST_UNKNOWN = 0.2  # of a sentence's tokens
FEWEST = 5  # sentences that a model must know
LINES, LENGTH = 16, 8
PICTURES = 30
DECODED = 10  # sentences for which a decoder writes its own text, about: each takes seconds
SEED = 86


@dataclass(frozen=True)
class RoleInputs:
    """The inputs, and what they are: "example sentences", "example lines of numbers", …"""

    givens: tuple[ModelInputs, ...]
    what: str


def role_inputs(
    pretrained: Pretrained, own_sentences: Sequence[str] = (), kind: Kind = "self"
) -> RoleInputs:
    """Inputs for this model: `own_sentences`, else the example ones, else lines of numbers or of its own words.

    Of each list only sentences of which the model knows four words in five, and the first list with at least five of
    them (of own sentences: one). A decoder that generates its text gets every third of a long list. A model of pictures
    gets handwritten digits; one of sounds gets none.
    """
    if pretrained.reads == "picture":
        return RoleInputs(_digits(), "handwritten digits")
    if pretrained.reads == "sound":
        return RoleInputs((), "")
    lists = (
        ("sentences of your own", own_sentences, 1),
        ("example sentences", SENTENCES, FEWEST),
        ("example lines of numbers", NUMBERS, FEWEST),
        ("lines of random words of the model's vocabulary", own_lines(tokenizer_of(pretrained)), 1),
    )
    for what, sentences, fewest in lists:
        known = tuple(
            ModelInputs(text)
            for text in sentences
            if unknown_share(pretrained, text) <= MOST_UNKNOWN
        )
        if len(known) >= fewest:
            step = (
                len(known) // DECODED or 1 if pretrained.reads == "pair" and kind == "causal" else 1
            )
            return RoleInputs(known[::step], what)
    return RoleInputs((), "")


def unknown_share(pretrained: Pretrained, text: str) -> float:
    """The share of a text's tokens that are unknown to the model; 1 where there is no token."""
    unknown = tokenizer_of(pretrained).unk_token_id
    ids = tokenized(pretrained, text, add_special_tokens=False)["input_ids"]
    return sum(token == unknown for token in ids) / len(ids) if ids else 1.0


def own_lines(tokenizer: Any) -> tuple[str, ...]:
    """Lines of random words of the model's vocabulary, by a fixed seed; every second line repeats its words."""
    special = set(tokenizer.all_special_ids)
    pieces = sorted(index for index in tokenizer.get_vocab().values() if index not in special)
    draw = random.Random(SEED)
    draw.shuffle(pieces)
    words = [
        word
        for index in pieces[: 20 * LENGTH]
        if (word := str(tokenizer.decode([index])).strip()).isalnum()
    ]
    lines = [[draw.choice(words) for _ in range(LENGTH)] for _ in range(LINES)] if words else []
    return tuple(" ".join(line * (1 + index % 2)) for index, line in enumerate(lines))


def _digits() -> tuple[ModelInputs, ...]:
    from core.tasks.images import digits

    pictures, _ = digits()
    return tuple(
        ModelInputs(picture=Array.of(to_numpy(picture))) for picture in pictures[:PICTURES]
    )


def read_all(
    pretrained: Pretrained, inputs: RoleInputs, kind: Kind = "self"
) -> tuple[Reading, ...]:
    """The model's reading of each input; PretrainedError when it cannot read one.

    For an encoder alone the decoder gets the input as its text, so that it need not generate one.
    """
    givens = inputs.givens
    if pretrained.reads == "pair" and kind == "self":
        givens = tuple(replace(item, target=item.text) for item in givens)
    return tuple(read(pretrained, item) for item in givens)
