"""The language of a number in words: a text to one label, by its letters."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import torch

from core.entries import Param
from core.models.base import Shape
from core.tasks import recipes
from core.tasks.base import Example, TaskConfig, TaskEntry, Vocabulary, choose, is_held_out
from core.tasks.translation import PAIRS, PairTask
from core.tasks.words import LARGEST, spell

LANGUAGES = {
    "en": "English",
    "de": "German",
    "fr": "French",
    "es": "Spanish",
    "it": "Italian",
    "nl": "Dutch",
    "pt": "Portuguese",
    "sv": "Swedish",
}
LONGEST = 47  # letters: "eight thousand, eight hundred and seventy-eight"


class WhichLanguage(PairTask):
    """A number up to 9999 in words, letter by letter; a number is held out in all languages."""

    form = "label"
    unit, whole = "letter", "words"

    def __init__(self, config: TaskConfig, entry: TaskEntry) -> None:
        super().__init__(config, entry)
        self.languages = tuple(LANGUAGES)[: int(config["languages"])]
        self.classes = tuple(LANGUAGES[language] for language in self.languages)
        self.source_vocab = Vocabulary(letters(self.languages))
        self.target_vocab = Vocabulary(self.classes)
        self.max_source, self.max_target = LONGEST, 1
        self.recommended = recipes.language()

    @property
    def shape(self) -> Shape:
        return Shape(len(self.source_vocab), len(self.classes), self.max_source, output="label")

    @property
    def baseline_loss(self) -> float:
        return math.log(len(self.classes))

    def tokens(self, text: str) -> list[str]:
        return list(text.strip().lower())

    def draw(self, generator: torch.Generator, held_out: bool) -> Example:
        while True:
            # Half below a thousand: short words are the hard ones.
            number = choose(generator, LARGEST + 1 if choose(generator, 2) else 1000)
            if is_held_out(str(number)) == held_out:
                i = choose(generator, len(self.languages))
                return Example(tuple(spell(number, self.languages[i])), (self.classes[i],))


@lru_cache(maxsize=len(LANGUAGES))
def letters(languages: tuple[str, ...]) -> frozenset[str]:
    """All characters of the number words of these languages."""
    numbers = (*range(100), 100, 101, 200, 1000, 1001, 1200)
    return frozenset(
        letter for language in languages for n in numbers for letter in spell(n, language)
    )


LANGUAGE: TaskEntry = TaskEntry(
    "language",
    "Which language",
    "Classify the language of a number that is spelled letter by letter.",
    "The class attends to pairs of letters that only its language has.",
    lambda config: WhichLanguage(config, LANGUAGE),
    (
        Param(
            "languages",
            "Languages",
            6,
            2,
            len(LANGUAGES),
            1,
            meaning="number of languages, in the order " + ", ".join(LANGUAGES.values()),
        ),
        replace(
            PAIRS,
            name="Training words",
            default=5_000,
            meaning="number of words that are generated before training",
        ),
    ),
)
