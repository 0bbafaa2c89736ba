"""Number words from 0 to 9999 as tokens, by num2words."""

from __future__ import annotations

import re
from functools import lru_cache

from core.entries import quote

LARGEST = 9999

# Morphemes of German number words: a prefix of another ("ein" of "eins") stands after it.
_MORPHEMES = (
    "tausend",
    "hundert",
    "zwanzig",
    "zehn",
    "zig",
    "ßig",
    "und",
    "null",
    "eins",
    "ein",
    "zwei",
    "drei",
    "vier",
    "fünf",
    "sechs",
    "sech",
    "sieben",
    "sieb",
    "acht",
    "neun",
    "elf",
    "zwölf",
)
_GERMAN = re.compile("|".join(_MORPHEMES))


def spell(number: int, language: str) -> str:
    """A number in words."""
    from num2words import num2words  # 20 ms, which most pages do not need

    return str(num2words(number, lang=language))


@lru_cache(maxsize=4)
def number_words(language: str) -> tuple[tuple[str, ...], ...]:
    """The tokens of every number from 0 to 9999, in "en", "de", "fr" or "es".

    The numbers below a thousand are spelled once and joined to the thousands, as num2words joins them.
    """
    below = [split_words(spell(n, language), language) for n in range(1000)]
    thousands = [split_words(spell(1000 * n, language), language) for n in range(1, 10)]
    words = list(below)
    for thousand in thousands:
        for n, tokens in enumerate(below):
            joined = ("and",) if language == "en" and 0 < n < 100 else ()
            words.append(thousand + joined + tokens if n else thousand)
    return tuple(words)


def split_words(text: str, language: str) -> tuple[str, ...]:
    """A text split at spaces, hyphens and commas, German compounds into morphemes; ValueError for unknown letters."""
    if language != "de":
        return tuple(re.split(r"[ ,-]+", text))
    morphemes = _GERMAN.findall(text)
    if "".join(morphemes) != text:
        raise ValueError(
            f"The German number word {quote(text)} has letters that belong to no known morpheme."
        )
    return tuple(morphemes)
