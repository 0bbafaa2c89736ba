"""Tokens as readable text, with visible signs for white space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import (
        Tensor,  # at run time it is loaded by `embed`: Start here draws tokens without it
    )

SIGNS = {"\n": "↵", "\t": "⇥"}
SPACE, EMPTY = "␣", "∅"


def token_text(token: str) -> str:
    """The token with signs for line ends, tabs and outer spaces; spaces between words stay.

    A token of unprintable characters alone is written as code points.
    """
    if not token:
        return EMPTY
    if not any(sign.isprintable() or sign.isspace() for sign in token):
        return "".join(f"U+{ord(sign):04X}" for sign in token)
    first = len(token) - len(token.lstrip())
    last = len(token.rstrip())
    return "".join(
        SIGNS.get(sign, SPACE if sign.isspace() and not first <= index < last else sign)
        for index, sign in enumerate(token)
    )


# A sentence as tokens, and each token as a vector that depends on the token and the seed alone.


SENTENCE = "The animal was too tired ."  # with which the pages about one layer open
MAX_CHARACTERS = 20_000
MAX_TOKENS = 512
LONGEST_LABEL = 24
_OPENING, _CLOSING = "\"'([¿¡«“‘", ".,;:!?…\"')]»”’"


@dataclass(frozen=True)
class Cut:
    """The tokens of a text, and a sentence for each part that was left out."""

    tokens: tuple[str, ...]
    notes: tuple[str, ...] = ()


def tokenize(text: str, max_tokens: int = MAX_TOKENS) -> Cut:
    """Split at spaces and at punctuation at a word's edges; at most 20,000 characters and so many tokens."""
    notes = []
    if len(text) > MAX_CHARACTERS:
        notes.append(
            f"The text has {len(text):,} characters; the first {MAX_CHARACTERS:,} are used."
        )
        text = text[:MAX_CHARACTERS]
    tokens: list[str] = []
    for word in text.split():  # the punctuation before it, the word, and the punctuation after it
        rest = word.lstrip(_OPENING)
        body = rest.rstrip(_CLOSING)
        before, after = word[: len(word) - len(rest)], rest[len(body) :]
        tokens += [*before, *([body] if body else []), *after]
    if len(tokens) > max_tokens:
        notes.append(f"The text has {len(tokens):,} tokens; the first {max_tokens} are used.")
    return Cut(tuple(tokens[:max_tokens]), tuple(notes))


def labels(tokens: tuple[str, ...]) -> tuple[str, ...]:
    """A name for each position: long tokens are cut, repeated ones numbered."""
    names: list[str] = []
    counts: dict[str, int] = {}
    for token in tokens:
        name = token if len(token) <= LONGEST_LABEL else token[: LONGEST_LABEL - 1] + "…"
        counts[name] = counts.get(name, 0) + 1
        names.append(name if counts[name] == 1 else f"{name} ({counts[name]})")
    return tuple(names)


def embed(tokens: tuple[str, ...], d_model: int, seed: int) -> Tensor:
    """Standard normal vectors (1, T, C): the same word has the same vector, and another seed gives other ones."""
    import torch

    vectors = {token: vector(token, d_model, seed) for token in set(tokens)}
    return torch.stack([vectors[token] for token in tokens])[None]


def vector(token: str, d_model: int, seed: int) -> Tensor:
    from core.seeding import seeded_normal

    return seeded_normal(d_model, seed=seed, name=token)
