"""Tokens as readable text, with visible signs for white space."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from unicodedata import category

if TYPE_CHECKING:
    from torch import (
        Tensor,  # at run time it is loaded by `embed`: Start here draws tokens without it
    )

SIGNS = {"\n": "↵", "\t": "⇥"}
SPACE, EMPTY = "␣", "∅"
CONTINUES = "##"  # before a piece that continues a word
BLANK = "".join(filter(str.isspace, map(chr, range(0x3001)))) + SPACE + SIGNS["\t"]
_BYTE = re.compile("<0x([89A-F][0-9A-F])>")
_CODE = re.compile(r"(?:U\+[0-9A-F]{4,6})+")
_PART = re.compile(
    rf"((?:<0x[89A-F][0-9A-F]>)+) [1-4](?:–[1-4])? of [2-4] of (?:{_CODE.pattern}|.)"
)
# Thai and Lao, Burmese, Khmer, kana, Han: their words have no spaces between them.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]"
)


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


# Pieces of words and of characters.


def is_sign(text: str) -> bool:
    """Whether a text is punctuation alone, as BERT's tokenizer counts it: Unicode's P and ASCII signs; and line ends."""
    return bool(text) and all(one in "$+<=>^`|~↵" or category(one)[0] == "P" for one in text)


def bare_piece(token: str) -> str:
    """The token without the ## of a piece that continues a word; a token of # alone stays."""
    return token.removeprefix(CONTINUES) if token.strip("#") else token


def name_bytes(text: str) -> str:
    """The text with each byte that is no whole character, as `surrogateescape` decodes it, named: <0xE7>."""
    return "".join(
        f"<0x{ord(one) - 0xDC00:02X}>" if "\udc80" <= one <= "\udcff" else one for one in text
    )


def join_pieces(tokens: Sequence[str]) -> str:
    """The word that pieces spell: without ## and outer spaces, and with named bytes and code points as characters."""
    data = b""
    for index, token in enumerate(tokens):
        piece = bare_piece(token) if index else token
        if _CODE.fullmatch(piece):
            piece = "".join(chr(int(code, 16)) for code in piece.split("U+")[1:])
        part = _PART.fullmatch(piece)
        for at, one in enumerate(_BYTE.split(part[1] if part else piece)):
            data += bytes([int(one, 16)]) if at % 2 else one.encode("utf-8", "replace")
    text = name_bytes(data.decode("utf-8", "surrogateescape"))
    return text.strip(BLANK) or token_text(text)


def words_in(text: str) -> list[int]:
    """The number of the word of each character; a space counts to what follows it.

    A word is what stands between spaces, without the punctuation at its edges: "can't" is one. A sign at an edge and a
    line end are words of their own, and so is each character (with its marks) of a script that is written without
    spaces: Han, kana, Thai, Lao, Khmer, Burmese.
    """
    words: list[int] = []
    count, spaced = -1, False
    for run in re.findall(r"\n|[^\S\n]+|\S+", text):
        if run.isspace() and run != "\n":
            count, spaced = count + 1, True
            words += [count] * len(run)
            continue
        first = next((at for at, one in enumerate(run) if not is_sign(one)), len(run))
        last = next((at for at in range(len(run), first, -1) if not is_sign(run[at - 1])), first)
        for at, one in enumerate(run):
            apart = _UNSPACED.search(run[max(at - 1, 0) : at + 1]) and category(one)[0] != "M"
            edge = not first < at < last and (at == first or one != run[at - 1])
            count += not spaced if at == 0 else bool(apart or edge)
            words.append(count)
        spaced = False
    return words


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
