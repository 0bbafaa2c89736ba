"""Sentence pairs of a small grammar: as many, as long and of as many words as the captions of Multi30k."""

import itertools
import random

SYLLABLES = ("ba", "do", "ki", "lu", "me", "no", "ra", "si", "tu", "ve", "wo", "za")
NUMBERS = ("two", "three", "four"), ("zwei", "drei", "vier")
PLACES = (("in", "in"), ("on", "auf"), ("near", "bei"), ("under", "unter"), ("behind", "hinter"))


def words(count: int, end: str, seed: int) -> list[str]:
    chance, result = random.Random(seed), dict[str, None]()
    while len(result) < count:
        result["".join(chance.choices(SYLLABLES, k=chance.randint(2, 4))) + end] = None
    return list(result)


def sentence_pairs(
    count: int, seed: int = 0, nouns: int = 2500, verbs: int = 600, adjectives: int = 900
) -> str:
    """TSV of different pairs: the verb goes to the end, articles and adjectives follow the noun's gender.

    Words are drawn as Zipf's law has them, so that some of the held-out ones are rare or new.
    """
    chance = random.Random(seed)
    lists = [
        (words(size, first, seed + at), words(size, second, seed - at))
        for at, (size, first, second) in enumerate(
            ((nouns, "k", "ng"), (verbs, "s", "t"), (adjectives, "y", "l")), start=1
        )
    ]
    weights = [
        list(itertools.accumulate(1 / (rank + 3) for rank in range(len(english))))
        for english, _ in lists
    ]

    def draw(kind: int) -> tuple[int, str, str]:
        place = chance.choices(range(len(weights[kind])), cum_weights=weights[kind])[0]
        return place, lists[kind][0][place], lists[kind][1][place]

    def phrase() -> tuple[list[str], list[str]]:
        place, noun, other = draw(0)
        gender = "ers"[place % 3]
        source, target = ["the", noun], [f"d{gender}", other]
        if chance.random() < 0.6:
            _, one, two = draw(2)
            source.insert(1, one)
            target.insert(1, two + gender)
        return source, target

    result: dict[str, str] = {}
    while len(result) < count:
        (who, wer), (what, was), (_, does, tut) = phrase(), phrase(), draw(1)
        source, target = [*who, does, *what], [*wer, *was]
        if chance.random() < 0.7:
            (where, wo), (at, bei) = phrase(), chance.choice(PLACES)
            source, target = [*source, at, *where], [*target, bei, *wo]
        result.setdefault(" ".join([*source, "."]), " ".join([*target, tut, "."]))
    return "".join(f"{source}\t{target}\n" for source, target in result.items())
