"""How rare a word is in English, by its place in a vocabulary that was written down in order of frequency."""

from __future__ import annotations

from functools import cache


@cache
def _ranks() -> dict[str, int]:
    """BERT's vocabulary, the commonest words first (Devlin et al. 2019: English Wikipedia and BooksCorpus)."""
    from core.pretrained.load import minilm_folder

    lines = (minilm_folder() / "vocab.txt").read_text("utf-8").splitlines()
    return {word: index for index, word in enumerate(lines) if word.isalpha() and len(word) > 1} | {"a": 0, "i": 0}


def rank(word: str) -> int:
    """The word's rank by frequency, 0 the commonest; a word that is not among those 30,000 is rarer than them all."""
    return _ranks().get(word.lower(), 30_522)
