"""Sentences with a word that earlier words decide: a name that comes again, or a verb that agrees with its subject.

Of two names the last is the one that does not act (indirect object identification: Wang et al. 2023). A verb agrees in
number with its subject, not with the noun before it (Linzen et al. 2016).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from core.entries import Param
from core.tasks import recipes
from core.tasks.base import (
    Example,
    Form,
    Task,
    TaskConfig,
    TaskEntry,
    Vocabulary,
    choose,
    is_held_out,
)
from core.tasks.repeats import BEGIN
from core.tasks.text import split

NAMES = tuple(
    """ann ben carl dora emma fred gina hugo ida jack kate leo mary nick olga paul rosa sam tina victor anton
bella clara david""".split()
)
WHEN, MOVES = ("when", "after", "while"), ("went to", "came to", "stayed at")
PLACES = tuple(
    "shop park school station office market library garden beach lake hotel museum".split()
)
GIVES = tuple("gave handed showed sent sold brought".split())
THINGS = tuple("book letter ball ring drink apple hat map key cake picture coat".split())
NOUNS = tuple(
    "dog cat horse teacher farmer doctor king tree house car boat river table chair tower door".split()
)
BESIDE = tuple("near behind beside above below with".split())
ADJECTIVES = tuple("old new big small red blue white dark tall quiet".split())
NUMBER = ("is", "are")
LONGEST = 20  # words of a sentence, with the start mark


class Names(Task):
    """Predict each next word of sentences in which a name comes again, or a verb agrees with its subject. A sentence
    begins with the start mark, to which a word that needs no other can attend."""

    form: Form = "text"
    metrics = ()
    separator = " "
    whole = "continuations"

    def __init__(self, config: TaskConfig, entry: TaskEntry) -> None:
        super().__init__(config, entry)
        kind = config["sentences"]
        self.kinds = tuple(
            make
            for name, make in (("names", _giving), ("agreement", _being))
            if kind in (name, "both")
        )
        words = (
            *NAMES,
            *WHEN,
            *PLACES,
            *GIVES,
            *THINGS,
            *NOUNS,
            *map(_plural, NOUNS),
            *BESIDE,
            *ADJECTIVES,
            *NUMBER,
        )
        self.source_vocab = self.target_vocab = Vocabulary(
            (*words, *" ".join(MOVES).split(), *"and the , .".split())
        )
        self.max_source = self.max_target = LONGEST
        self.recommended = recipes.names()

    def tokens(self, text: str) -> list[str]:
        return [BEGIN, *split(text.lower(), "words")]

    def draw(self, generator: torch.Generator, held_out: bool) -> Example:
        while True:
            words = self.kinds[choose(generator, len(self.kinds))](generator)
            if is_held_out(" ".join(words)) == held_out:
                return Example((BEGIN, *words[:-1]), tuple(words))

    def places(self, example: Example) -> tuple[tuple[int, ...], ...]:
        """Of the last name its first occurrence, and of the verb its subject."""
        source = example.source
        subject = next(
            (
                i
                for i, word in enumerate(source)
                if word in NOUNS or word.removesuffix("s") in NOUNS
            ),
            -1,
        )
        return tuple(
            (source.index(word),)
            if word in NAMES and word in source and source[index] == "to"
            else (subject,)
            if word in NUMBER and subject >= 0
            else ()
            for index, word in enumerate(example.target)
        )


def _giving(generator: torch.Generator) -> list[str]:
    """When ann and ben went to the shop, ben gave the book to ann: either name may act."""
    first = choose(generator, len(NAMES))
    names = NAMES[first], NAMES[(first + 1 + choose(generator, len(NAMES) - 1)) % len(NAMES)]
    acts = choose(generator, 2)
    return [
        _one(WHEN, generator),
        names[0],
        "and",
        names[1],
        *_one(MOVES, generator).split(),
        *_phrase(PLACES, generator),
        ",",
        names[acts],
        _one(GIVES, generator),
        *_phrase(THINGS, generator),
        "to",
        names[1 - acts],
        ".",
    ]


def _being(generator: torch.Generator) -> list[str]:
    """The old dogs near the tree are big: the number of the second noun is drawn by itself."""
    several, others = choose(generator, 2), choose(generator, 2)
    nouns = [tuple(map(_plural, NOUNS)) if many else NOUNS for many in (several, others)]
    return [
        *_phrase(nouns[0], generator),
        _one(BESIDE, generator),
        *_phrase(nouns[1], generator),
        NUMBER[several],
        _one(ADJECTIVES, generator),
        ".",
    ]


def _phrase(nouns: Sequence[str], generator: torch.Generator) -> list[str]:
    """A noun after its article, with none to two adjectives between, so that distances vary."""
    adjectives = [_one(ADJECTIVES, generator) for _ in range(choose(generator, 3))]
    return ["the", *adjectives, _one(nouns, generator)]


def _one(words: Sequence[str], generator: torch.Generator) -> str:
    return words[choose(generator, len(words))]


def _plural(noun: str) -> str:
    return f"{noun}s"


SENTENCES: TaskEntry = TaskEntry(
    "names",
    "Names and number",
    "Predict each next word of sentences in which a name comes again, or a verb agrees "
    "with its subject.",
    "The word before the last name attends to that name’s first occurrence and passes over the other name, which acts. "
    "The word before a verb attends to the subject, not to the noun in between.",
    lambda config: Names(config, SENTENCES),
    (
        Param(
            "sentences",
            "Sentences",
            "both",
            choices=("both", "names", "agreement"),
            meaning="those with two names, those in which a verb agrees with its subject, or both",
        ),
    ),
)
