"""The target keys of each role: for each query of a line, from its tokens alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from jaxtyping import Bool

from core.pretrained.base import Line

Targets = Bool[np.ndarray, "T T"]
Rule = Callable[["Text"], Targets]

NOT_READ = ("unk", "pad")
LETTERS = 3  # a shorter piece, such as the t of "didn't", is not a word


@dataclass(frozen=True, eq=False)
class Text:
    """A line with its ordinary tokens, the word of each token, and distances."""

    line: Line

    def __len__(self) -> int:
        return len(self.line)

    @cached_property
    def ordinary(self) -> Bool[np.ndarray, " T"]:
        """The known tokens of the text itself: the rows on which roles are measured."""
        return ~np.asarray(
            [
                hidden or _is_unknown(piece)
                for hidden, piece in zip(self.line.special, self.pieces, strict=True)
            ],
            dtype=bool,
        )

    @cached_property
    def pieces(self) -> tuple[str, ...]:
        return tuple(token.lower() for token in self.line.tokens)

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The word of each token, in lower case and without outer punctuation; "" for a sign."""
        by_word: dict[int, str] = {}
        for index, piece in zip(self.line.word, self.pieces, strict=True):
            if index is not None:
                by_word[index] = by_word.get(index, "") + piece.removeprefix("##")
        return tuple(
            ""
            if index is None or _is_sign(piece) or _is_unknown(piece)
            else _between_signs(by_word[index])
            for index, piece in zip(self.line.word, self.pieces, strict=True)
        )

    @cached_property
    def distance(self) -> np.ndarray:
        """j − i for each query i and key j."""
        positions = np.arange(len(self))
        return positions[None, :] - positions[:, None]


def previous(text: Text) -> Targets:
    """The token before, unless it is the first or special, which heads attend to for other reasons."""
    return (text.distance == -1) & _plain_key(text)


def following(text: Text) -> Targets:
    """The token after, unless it is special."""
    return (text.distance == 1) & _plain_key(text)


def own(text: Text) -> Targets:
    """The token itself, except for the first."""
    return (text.distance == 0) & _plain_key(text)


def first(text: Text) -> Targets:
    """The first token, special or not, from the third token on: for the second it is also the one before."""
    return np.broadcast_to(np.arange(len(text)) == 0, text.distance.shape) & (text.distance < -1)


def delimiter(text: Text) -> Targets:
    """Punctuation and end marks, except for the first token."""
    keys = [
        _delimits(piece, special)
        for piece, special in zip(text.pieces, text.line.special, strict=True)
    ]
    keys[:1] = [False] * len(keys[:1])
    return (
        np.asarray(keys, dtype=bool)[None, :]
        & (text.distance != 0)
        & ~np.asarray(keys, dtype=bool)[:, None]
    )


def same_word(text: Text) -> Targets:
    """The same word elsewhere, unless adjacent."""
    words = np.asarray(text.words, dtype=object)
    word_index = np.asarray([-1 if index is None else index for index in text.line.word])
    other = (
        (words[:, None] == words[None, :])
        & (words[:, None] != "")
        & (word_index[:, None] != word_index[None, :])
    )
    return other & text.ordinary[None, :] & (np.abs(text.distance) > 1)


def rare_word(text: Text) -> Targets:
    """The rarest word of the sentence, for all its other words; none where two are equally rare."""
    ranks = np.asarray(
        [rank(word) if word.isalpha() and len(word) >= LETTERS else -1 for word in text.words]
    )
    rarest = {
        text.words[index]
        for index in np.flatnonzero((ranks == ranks.max(initial=-1)) & (ranks >= 0))
    }
    words = np.asarray([word in rarest and len(rarest) == 1 for word in text.words], dtype=bool)
    return words[None, :] & ~words[:, None]


def induction(text: Text) -> Targets:
    """The token after an earlier (without a mask: any other) occurrence of this token, if the continuation matches.

    Elhage et al. 2021; Olsson et al. 2022: "… A B … A" attends to B. The last token has no continuation and counts too.
    """
    pieces = np.asarray(text.pieces, dtype=object)
    size = len(text)
    follows_earlier = np.zeros((size, size), dtype=bool)
    follows_earlier[:, 1:] = (
        (pieces[:, None] == pieces[None, :-1]) & text.ordinary[:, None] & text.ordinary[None, :-1]
    )
    continues = np.ones((size, size), dtype=bool)
    continues[:-1] = pieces[1:, None] == pieces[None, :]
    return follows_earlier & continues & text.ordinary[None, :] & (np.abs(text.distance) > 1)


@cache
def _ranks() -> dict[str, int]:
    """The order of BERT's vocabulary, the commonest words first (Devlin et al. 2019: Wikipedia and BooksCorpus)."""
    from core.pretrained.load import minilm_folder

    lines = (minilm_folder() / "vocab.txt").read_text("utf-8").splitlines()
    return {word: index for index, word in enumerate(lines) if word.isalpha() and len(word) > 1} | {
        "a": 0,
        "i": 0,
    }


def rank(word: str) -> int:
    """The word's rank by frequency in English, 0 the commonest; a word outside BERT's 30,000 comes last."""
    return _ranks().get(word.lower(), 30_522)


def _plain_key(text: Text) -> Targets:
    keys = text.ordinary.copy()
    keys[:1] = False
    return np.broadcast_to(keys, text.distance.shape)


def _delimits(piece: str, special: bool) -> bool:
    return piece.strip("<[|]>") not in NOT_READ if special else _is_sign(piece)


def _is_unknown(piece: str) -> bool:
    return piece in ("<unk>", "[unk]")


def _is_sign(piece: str) -> bool:
    text = piece.removeprefix("##")
    return bool(text) and not any(letter.isalnum() for letter in text)


def _between_signs(word: str) -> str:
    """The word without signs before and after it."""
    inside = [index for index, letter in enumerate(word) if letter.isalnum()]
    return word[inside[0] : inside[-1] + 1] if inside else ""
