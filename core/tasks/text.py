"""Tasks of the next token: texts by topic, repeated words, sentences with names, stories; and classes of texts: documents of
several sentences, a person's sentences, with naive Bayes to compare with."""

import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int

from core.entries import Param, refuse_if
from core.models.base import SENTENCE_END, sentence_spans
from core.tasks import recipes
from core.tasks.base import (
    BOS,
    EOS,
    SPECIALS,
    UNK,
    Batch,
    Example,
    Form,
    LabelledTask,
    RowTask,
    Task,
    Vocabulary,
    choose,
    is_held_out,
)
from core.tasks.config import TaskConfig, TaskEntry
from core.tasks.grammar import story
from core.tasks.tables import Texts, read_pinned
from core.tasks.translation import cut

NEWLINE = "↵"  # the token of a line end
MAX_WORDS = 5_000
MAX_LENGTH = 256  # tokens of a window
# of a text that is read in words; in a shorter one most words occur once or twice
MIN_WORDS = 20_000
UNIT = Param(
    "unit",
    "Tokens",
    default="characters",
    choices=("characters", "words"),
    meaning="what one token is",
)


def split(text: str, unit: str) -> list[str]:
    """The tokens of a text: its characters, or its words and punctuation marks; line ends are tokens too."""
    text = text.replace("\n", NEWLINE)
    return (
        list(text) if unit == "characters" else re.findall(rf"\w+|[^\w\s{NEWLINE}]|{NEWLINE}", text)
    )


@dataclass(frozen=True, eq=False)  # equal to itself alone: to compare texts takes long
class Corpus:
    """The tokens of a training text and of a held-out text."""

    unit: str
    trained: tuple[str, ...]
    held_out: tuple[str, ...]
    vocab: Vocabulary

    @classmethod
    def of(cls, trained: str, held_out: str, unit: str) -> "Corpus":
        """The vocabulary is the MAX_WORDS most frequent tokens of the training text."""
        first, second = split(trained, unit), split(held_out, unit)
        known = [token for token, _ in Counter(first).most_common(MAX_WORDS)]
        return cls(unit, tuple(first), tuple(second), Vocabulary(known))

    @property
    def between(self) -> str:
        """What joins its tokens to a text."""
        return "" if self.unit == "characters" else " "

    @cached_property
    def ids(self) -> Int[torch.Tensor, " N"]:
        """The training text by the vocabulary; never change them: all tasks of the corpus read them."""
        return torch.tensor(self.vocab.encode(self.trained))

    @property
    def unknown(self) -> float:
        """The share of held-out tokens that are not in the vocabulary."""
        return self.vocab.encode(self.held_out).count(UNK) / max(1, len(self.held_out))


def unseen(corpus: Corpus, length: int, seed: int) -> Iterator[int]:
    """Starts of windows of the held-out text, shuffled by the seed, without those that occur in the training text."""
    tokens, between = corpus.held_out, corpus.between
    trained, places = between.join(corpus.trained), _places(corpus, max(length, MAX_LENGTH))
    starts = torch.randperm(
        len(tokens) - length, generator=torch.Generator().manual_seed(seed | 2**31)
    ).tolist()
    return (
        start
        for start in starts
        if not any(
            trained.startswith(between.join(tokens[start : start + length]), place)
            for place in places[start]
        )
    )


@lru_cache(maxsize=2)
def _places(corpus: Corpus, length: int) -> Int[np.ndarray, "N 2"]:
    """For each held-out token the two places of the training text before and after which the text from there on comes
    in the order of the alphabet: a window of at most `length` tokens occurs at one of them, or nowhere."""
    trained, held_out = (corpus.between.join(text) for text in (corpus.trained, corpus.held_out))
    starts = np.cumsum([0, *(len(token) + len(corpus.between) for token in corpus.held_out)])
    longest = (starts[length:] - starts[:-length]).max(initial=0) or len(held_out)
    ranks = suffix_ranks(f"{trained}\0{held_out}", int(longest))
    order = np.argsort(ranks[: len(trained)])
    after = np.searchsorted(ranks[order], ranks[len(trained) + 1 + starts[:-1]])
    return order[np.stack([after - 1, np.minimum(after, len(order) - 1)], axis=1)]


def suffix_ranks(text: str, depth: int) -> Int[np.ndarray, " N"]:
    """The place of each suffix in the order of the alphabet, from 1; those that begin with the same `depth` signs may
    share theirs.

    The order by some signs gives that by twice as many (Manber & Myers 1993); a suffix that is alone at its place is
    done (Larsson & Sadakane 2007). It takes time N log N log `depth`, and about 30 bytes a sign.
    """
    count, signs = len(text), np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    alphabet = np.cumsum(np.bincount(signs) > 0, dtype=np.int32)  # from 1; 0 comes after the end
    bits = int(alphabet[-1]).bit_length()
    width = 62 // bits  # as many signs as one number holds
    signs, key = np.append(alphabet[signs], np.zeros(width, np.int32)), np.zeros(count, np.int64)
    for at in range(width):
        key = key << bits | signs[at : at + count]
    del signs
    ranks, left = np.ones(count + 1, np.int32), np.arange(count, dtype=np.int32)
    ranks[count] = 0
    while True:
        left = left[np.argsort(key)]
        key.sort()
        old = ranks[left]
        is_new, is_first = (np.append(True, one[1:] != one[:-1]) for one in (key, old))
        del key
        index = np.arange(len(left), dtype=np.int32)
        for begins, sign in ((is_new, 1), (is_first, -1)):
            old += sign * np.maximum.accumulate(np.where(begins, index, 0))
        ranks[left] = old
        left = left[~(is_new & np.append(is_new[1:], True))]
        if width >= depth or not len(left):
            return ranks[:count]
        key = ranks[left].astype(np.int64) << 32 | ranks[np.minimum(left + width, count)]
        width *= 2


class NextToken(Task):
    """A task of the next token of everything read."""

    form: Form = "text"
    metrics = ()
    whole = "continuations"
    ids: Int[torch.Tensor, " N"]
    length: int

    def tokens(self, text: str) -> list[str]:
        return [BEGIN, *words(text)]

    def windows(self, starts: Int[torch.Tensor, "B 1"]) -> Batch:
        """The windows of the training tokens that begin there, and the token after each of theirs."""
        windows = self.ids[starts + torch.arange(self.length + 1)]  # (B, S + 1)
        source, target = windows[:, :-1].contiguous(), windows[:, 1:].contiguous()
        return Batch(source, torch.ones_like(source, dtype=torch.bool), None, target)


class TextTask(NextToken):
    """Windows of `length` tokens; the vocabulary is the corpus's, so a model meets windows of any length."""

    def __init__(self, config: TaskConfig, entry: TaskEntry, corpus: Corpus) -> None:
        self.corpus, self.length = corpus, int(config["length"])
        recommended = recipes.text(self.length, len(corpus.trained))
        super().__init__(config, entry, recommended, (self.length, self.length), corpus.vocab)
        self.unit = corpus.unit.removesuffix("s")
        self.ids = corpus.ids

    def tokens(self, text: str) -> list[str]:
        return split(text, self.corpus.unit)

    def draw(self, generator: torch.Generator, held_out: bool) -> Example:
        tokens = self.corpus.held_out if held_out else self.corpus.trained
        return self._window(tokens, choose(generator, len(tokens) - self.length))

    def batch(self, batch_size: int, generator: torch.Generator) -> Batch:
        last = len(self.ids) - self.length
        return self.windows(torch.randint(last, (batch_size, 1), generator=generator))

    def held_out(self, n: int) -> tuple[Example, ...]:
        """Up to n windows of the held-out text, none of which occurs in the training text."""
        starts = islice(unseen(self.corpus, self.length, self.config.seed), n)
        return tuple(self._window(self.corpus.held_out, start) for start in starts)

    def _window(self, tokens: Sequence[str], start: int) -> Example:
        return Example(
            tuple(tokens[start : start + self.length]),
            tuple(tokens[start + 1 : start + self.length + 1]),
        )


TOPICS_FILE = Path(__file__).parent / "data" / "topics.json"
TOPICS_SHA256 = "35db0d72c025200b8bcdc73ea7374eb35c056d9b955ec41524b3a5068a3095b0"


@lru_cache(maxsize=2)
def topics(unit: str) -> Corpus:
    """CPython 3.11.7's language reference by topic, a tenth of its topics held out.

    Every Python has another text in its pydoc_data, so this one ships (its licence, the PSF's, lies beside it).
    """
    texts = json.loads(read_pinned(TOPICS_FILE, TOPICS_SHA256))
    trained, held_out = (
        "\n\n".join(
            text.strip() for name, text in sorted(texts.items()) if is_held_out(name) == side
        )
        for side in (False, True)
    )
    return Corpus.of(trained, held_out, unit)


LENGTH = Param(
    "length",
    "Window",
    default=64,
    low=16,
    high=MAX_LENGTH,
    step=8,
    meaning="number of tokens that the model reads together",
)
TOPICS: TaskEntry = TaskEntry(
    "topics",
    "Language model",
    meaning="Predict each next character of the language reference of CPython 3.11.",
    look="Each character attends to those just before it, most to the nearest. In a later layer it attends to earlier "
    "occurrences of the same few characters.",
    build=lambda config: TextTask(config, TOPICS, topics(str(config["unit"]))),
    params=(LENGTH, UNIT),
)


BEGIN = "<bos>"
SHORTEST = 4  # words of a passage
RANK = 12  # word number r is drawn with probability proportional to 1 / (r + RANK)

# The commonest first, so that a typed sentence repeats its small words, too.
COMMON = tuple(
    """
the . a and of to in , it was he on that she for with they at his her is had as but we you i not from by be or an my
their one all said there were when out up so what who if then this no into down over him them time now like could than
little old new big small long two good man woman child boy girl king queen friend day night morning year house door
window room street road town city garden tree river sea lake hill mountain forest field sun moon star wind rain snow
fire water stone gold silver red blue green white black dark light warm cold hot cat dog horse cow sheep bird fish
mouse fox bear wolf lion bread milk cheese apple egg cake soup tea book letter word story song name school table chair
bed cup box hat coat shoe ship boat train car hand head eye heart face sat ran saw went came took gave made found lost
told asked knew thought felt heard read wrote ate drank slept woke stood walked fell flew sang played opened closed
loved kept left never always again soon here where before after under near between far away three four mat rug animal
bank paper money music dinner because too very quick brown lazy tired hungry happy sad young slow strong cross jumped
wanted needed looked turned sent bought sold rose lay cut ' t s didn don ? !
""".split()
)


class Repeats(NextToken, RowTask):
    """Predict each next word of lines of random words in which one passage is repeated, with other words in between. A
    line begins with the start mark, to which a word without an earlier occurrence can attend."""

    separator = " "
    unit = "word"

    def __init__(self, config: TaskConfig, entry: TaskEntry) -> None:
        self.length, self.passage, self.gap = (
            int(config[name]) for name in ("length", "passage", "gap")
        )
        longest = self.length, self.length
        super().__init__(config, entry, recipes.REPEATS, longest, Vocabulary(COMMON))
        self.ids = torch.tensor(self.source_vocab.encode(COMMON))
        self.frequencies = 1 / (torch.arange(len(COMMON)) + RANK)

    def rows(
        self, count: int, generator: torch.Generator
    ) -> tuple[Int[torch.Tensor, "N S"], Int[torch.Tensor, "N S"]]:
        """At position p stands word p mod (passage + gap) of the line's passage, or a random word in the gap."""
        draws = torch.multinomial(
            self.frequencies, count * self.length, replacement=True, generator=generator
        )
        random_words = draws.view(count, self.length)
        size = torch.randint(SHORTEST, self.passage + 1, (count, 1), generator=generator)
        between = torch.randint(self.gap + 1, (count, 1), generator=generator)
        start = torch.randint(self.passage + self.gap, (count, 1), generator=generator)
        index = (torch.arange(self.length) + start) % (size + between)
        words = torch.where(index < size, random_words.gather(1, index), random_words)
        line = torch.cat((torch.full((count, 1), BOS), self.ids[words]), 1)
        return line[:, :-1], line[:, 1:]

    def places(self, example: Example) -> tuple[tuple[int, ...], ...]:
        """Earlier positions of the next word after the same word."""
        words = example.source
        return tuple(
            tuple(j for j in range(1, i + 1) if (words[j - 1], words[j]) == (words[i], next_word))
            for i, next_word in enumerate(example.target)
        )


def check_lines(length: int, passage: int, gap: int) -> None:
    """ConfigError when a line has no room to repeat a passage."""
    refuse_if(
        length < 2 * (passage + gap),
        f"length = {length} has no room for a passage of {passage} words and {gap} others, twice; "
        f"take length ≥ {2 * (passage + gap)}, or a shorter passage.",
    )


REPEATS: TaskEntry = TaskEntry(
    "repeats",
    "Repeated passages",
    meaning="Predict each next word of a line in which a passage of random words is repeated.",
    look="When the passage is repeated, each word attends to the word after its earlier occurrence: an induction head. In "
    "the layer before, each word attends to the previous word.",
    build=lambda config: Repeats(config, REPEATS),
    params=(
        Param(
            "length",
            "Line",
            default=64,
            low=16,
            high=128,
            step=8,
            meaning="number of words in a line, with the start mark",
        ),
        Param(
            "passage",
            "Longest passage",
            default=20,
            low=SHORTEST,
            high=32,
            step=1,
            meaning="largest number of words that are repeated",
        ),
        Param(
            "gap",
            "Words between",
            default=8,
            low=0,
            high=16,
            step=1,
            meaning="largest number of random words between the passage and its repetition",
        ),
    ),
    check=check_lines,
)


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
PLURALS = tuple(f"{noun}s" for noun in NOUNS)
BESIDE = tuple("near behind beside above below with".split())
ADJECTIVES = tuple("old new big small red blue white dark tall quiet".split())
NUMBER = ("is", "are")
LONGEST = 20  # words of a sentence, with the start mark


class Names(NextToken):
    """Predict each next word of sentences in which a name comes again, or a verb agrees with its subject. A sentence
    begins with the start mark, to which a word that needs no other can attend."""

    separator = " "

    def __init__(self, config: TaskConfig, entry: TaskEntry) -> None:
        self.kinds = tuple(
            make
            for name, make in (("names", _giving), ("agreement", _being))
            if config["sentences"] in (name, "both")
        )
        words = (
            *NAMES,
            *WHEN,
            *PLACES,
            *GIVES,
            *THINGS,
            *NOUNS,
            *PLURALS,
            *BESIDE,
            *ADJECTIVES,
            *NUMBER,
            *" ".join(MOVES).split(),
            *"and the , .".split(),
        )
        super().__init__(config, entry, recipes.NAMES, (LONGEST, LONGEST), Vocabulary(words))

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
    nouns = [PLURALS if many else NOUNS for many in (several, others)]
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


SENTENCES: TaskEntry = TaskEntry(
    "names",
    "Names and number",
    meaning="Predict each next word of sentences in which a name comes again, or a verb agrees "
    "with its subject.",
    look="The word before the last name attends to that name’s first occurrence and passes over the other name, which acts. "
    "The word before a verb attends to the subject, not to the noun in between.",
    build=lambda config: Names(config, SENTENCES),
    params=(
        Param(
            "sentences",
            "Sentences",
            default="both",
            choices=("both", "names", "agreement"),
            meaning="those with two names, those in which a verb agrees with its subject, or both",
        ),
    ),
)


def naive_bayes(
    task: Task, trained: Sequence[Example], test: Sequence[Example]
) -> tuple[str, float]:
    """Multinomial naive Bayes on counts of words, what these alone tell of a class (Wang & Manning 2012, section 2.1):
    its name, and the share of the test texts whose class it predicts."""
    from sklearn.naive_bayes import MultinomialNB

    (counts, classes), (others, targets) = (
        (
            torch.stack(
                [
                    torch.tensor(task.source_vocab.encode(example.source)).bincount(
                        minlength=len(task.source_vocab)
                    )
                    for example in side
                ]
            ),
            list(map(task.label, side)),
        )
        for side in (trained, test)
    )
    score = MultinomialNB().fit(counts, classes).score(others, targets)
    return "naive Bayes on word counts", float(score)


COURTS = ("village", "town", "county", "state", "high", "supreme")  # the lowest first
VERDICTS = ("guilty", "innocent")
GUILT = (("guilty", "culpable", "liable"), ("innocent", "blameless", "faultless"))
VERBS = (("convicted", "condemned", "sentenced"), ("acquitted", "cleared", "released"))
RULINGS = (
    (
        GUILT,
        (
            "the {court} court found him {verdict} .",
            "in the eyes of the {court} court he was {verdict} .",
            "he was {verdict} , wrote the {court} court in a long report .",
        ),
    ),
    (
        VERBS,
        (
            "the {court} court {verdict} him .",
            "he was {verdict} by the {court} court that week .",
            "after a short trial the {court} court {verdict} him once more .",
        ),
    ),
)
VERDICT_WORDS = {word for words, _ in RULINGS for of_class in words for word in of_class}
REMARKS = (
    "it rained all week .",
    "his wife wrote a long letter .",
    "the papers wrote about him once more .",
    "he was at home that week .",
)
TRAINED = 2_000  # documents for the baseline


class Documents(Task):
    """Is he guilty? Several courts ruled, at least two of them differently, and other sentences report something else.

    A document has 2 to `sentences` sentences in any order. The number of verdicts of each class does not depend on the
    class, nor do the words for them, so no count of words can tell it: it takes the verdict and the court of one
    sentence.
    """

    form: Form = "label"
    separator = " "
    unit, whole = "word", "documents"
    expected_name = "the deciding sentence"
    classes = VERDICTS

    def __init__(self, config: TaskConfig, entry: TaskEntry) -> None:
        self.sentences, self.courts = int(config["sentences"]), COURTS[-int(config["courts"]) :]
        templates = [text for _, texts in RULINGS for text in texts]
        fixed = {
            word
            for text in (*templates, *REMARKS)
            for word in text.split()
            if not word.startswith("{")
        }
        longest = self.sentences * max(len(text.split()) for text in (*templates, *REMARKS)), 1
        known = Vocabulary(fixed | VERDICT_WORDS | set(COURTS)), Vocabulary(VERDICTS)
        super().__init__(config, entry, recipes.DOCUMENTS, longest, *known)
        (self.sentence_end,) = self.source_vocab.encode([SENTENCE_END])

    def tokens(self, text: str) -> list[str]:
        return words(text)

    def draw(self, generator: torch.Generator, held_out: bool) -> Example:
        while True:
            # A number of torch's takes as long as twenty of Python's.
            rng = random.Random(choose(generator, 2**31))
            # How many verdicts are of each class is drawn without regard to that of the highest court.
            verdict = rng.randrange(len(VERDICTS))
            count = rng.randint(2, min(self.sentences, len(self.courts)))
            innocent = rng.randint(1, count - 1)
            others = [1] * (innocent - verdict) + [0] * (count - 1 - innocent + verdict)
            rng.shuffle(others)
            courts = sorted(rng.sample(range(len(self.courts)), count), reverse=True)
            lines = []
            for court, ruled in zip(courts, [verdict, *others], strict=True):
                words, templates = rng.choice(RULINGS)
                line = rng.choice(templates)
                lines.append(
                    line.format(court=self.courts[court], verdict=rng.choice(words[ruled]))
                )
            lines += rng.choices(REMARKS, k=rng.randint(0, self.sentences - len(lines)))
            rng.shuffle(lines)
            text = " ".join(lines)
            if is_held_out(text) == held_out:
                return Example(tuple(text.split()), (VERDICTS[verdict],))

    def deciding(self, example: Example) -> tuple[range, tuple[int, ...]] | None:
        """The positions of the deciding sentence, and of its court and its verdict; None where no sentence has both.

        Of two sentences of the highest court the first counts.
        """
        rulings = []
        for span in sentence_spans(example.source):
            words = example.source[span.start : span.stop]
            courts = [
                (COURTS.index(word), i)
                for i, word in zip(span, words, strict=True)
                if word in COURTS
            ]
            verdicts = [i for i, word in zip(span, words, strict=True) if word in VERDICT_WORDS]
            if courts and verdicts:
                rank, court = max(courts)
                rulings.append((rank, span, tuple(sorted((court, verdicts[0])))))
        highest = max(rulings, key=lambda ruling: ruling[0], default=None)
        return None if highest is None else highest[1:]

    def places(self, example: Example) -> tuple[tuple[int, ...], ...]:
        """All words of the deciding sentence: their weight together is the weight on it."""
        deciding = self.deciding(example)
        return ((() if deciding is None else tuple(deciding[0])),)

    def baseline(self) -> tuple[str, float]:
        """Naive Bayes on texts drawn for it."""
        generator = torch.Generator().manual_seed(self.config.seed)
        trained = [self.draw(generator, held_out=False) for _ in range(TRAINED)]
        return naive_bayes(self, trained, self.held_out(1_000))


DOCUMENTS: TaskEntry = TaskEntry(
    "documents",
    "Deciding sentence",
    meaning="A document reports what several courts ruled, and other things. The verdict of the highest court counts.",
    look="Most weight is on the sentence about the highest court and, within it, on the court or its verdict. Recurrent "
    "cells carry the verdict to other sentences, too, so that a model can also read it there.",
    build=lambda config: Documents(config, DOCUMENTS),
    params=(
        Param(
            "sentences",
            "Most sentences",
            default=6,
            low=3,
            high=12,
            step=1,
            meaning="largest number of sentences in a document",
        ),
        Param(
            "courts",
            "Courts",
            default=5,
            low=3,
            high=len(COURTS),
            step=1,
            meaning="number of courts that may rule, the highest of " + ", ".join(COURTS),
        ),
    ),
)


LONGEST_TEXT = 128  # words; longer texts are cut, with a note


class SentenceTask(LabelledTask):
    """Tell the class of a text."""

    separator = " "
    unit, whole = "row", "rows"

    def __init__(self, config: TaskConfig, entry: TaskEntry, texts: Texts) -> None:
        tokens = list(map(words, texts.texts))
        super().__init__(
            config,
            entry,
            [tuple(text[:LONGEST_TEXT]) for text in tokens],
            texts.labels,
            texts.classes,
        )
        long = sum(len(text) > LONGEST_TEXT for text in tokens)
        self.notes = (
            (*texts.notes, f"{long:,} texts are cut after {LONGEST_TEXT} words.")
            if long
            else texts.notes
        )
        counts = Counter(word for i in self.sides[False] for word in self.sources[i])
        self.source_vocab = Vocabulary(word for word, _ in counts.most_common(MAX_WORDS))
        (end,) = self.source_vocab.encode([SENTENCE_END])
        several = end != UNK and any(len(sentence_spans(source)) > 1 for source in self.sources)
        self.sentence_end = end if several else 0
        self.recommended = recipes.sentences(len(self.sides[False]), several)

    def tokens(self, text: str) -> list[str]:
        return words(text)

    def select(self, rows: torch.Tensor) -> Batch:
        return cut(self._trained, rows)

    def baseline(self) -> tuple[str, float]:
        return naive_bayes(self, self.trained(), self.held_out(len(self.labels)))


def words(text: str) -> list[str]:
    """The words and punctuation marks of a text in lower case."""
    return split(text.lower(), "words")


# The task of the lab's writer: the next piece of short stories, which the grammar makes.


FOR_PIECES = 2_000  # stories from which the pieces are learned
WRITER_TOKENIZER = Path(__file__).parents[1] / "pretrained/lab_models/writer/tokenizer.json"
HELD_OUT_STORIES = 1_500
HELD_OUT_SEED = 2**32


@lru_cache(maxsize=2)
def stories(count: int, seed: int) -> tuple[str, ...]:
    """That many stories, the same for the same seed."""
    draw = random.Random(seed)
    return tuple(story(draw).text for _ in range(count))


@lru_cache(maxsize=2)
def byte_pairs(pieces: int) -> Any:
    """A tokenizer of byte pairs (Sennrich 2016) over bytes (Radford 2019), so that no text is unknown to it.

    That of the lab's writer is read from its folder: to learn it takes seconds.
    """
    from tokenizers import Tokenizer

    shipped = json.loads(WRITER_TOKENIZER.read_text("utf-8")) if WRITER_TOKENIZER.exists() else {}
    if shipped and len(shipped["model"]["vocab"]) == pieces + len(SPECIALS):
        return Tokenizer.from_str(
            json.dumps(shipped | {"added_tokens": [], "post_processor": None})
        )
    return learn_byte_pairs(pieces)


def learn_byte_pairs(pieces: int) -> Any:
    """That many pieces, learned from stories."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    tokenizer.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    trainer = trainers.BpeTrainer(
        vocab_size=pieces,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(stories(FOR_PIECES, 0), trainer)
    return tokenizer


@lru_cache(maxsize=2)
def vocabulary_of(pieces: int) -> Vocabulary:
    return Vocabulary(byte_pairs(pieces).get_vocab())


@lru_cache(maxsize=2)
def ids_of(
    count: int, seed: int, pieces: int, length: int
) -> tuple[Int[torch.Tensor, " N"], Int[torch.Tensor, " M"]]:
    """Stories as ids one after another, each with its end mark; and where each begins that a whole window follows."""
    tokenizer = byte_pairs(pieces)
    order = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    known = torch.tensor(vocabulary_of(pieces).encode(piece for piece, _ in order))
    end, rows = torch.tensor([EOS]), list[torch.Tensor]()
    for text in stories(count, seed):
        rows += known[tokenizer.encode(text).ids], end
    ids, lengths = torch.cat(rows), torch.tensor([0, *map(len, rows)])
    starts = lengths.cumsum(0)[:-1:2]
    return ids, starts[starts + length < len(ids)]


class Stories(NextToken):
    """Predict each next piece of stories; a window begins where a story does."""

    unit, separator = "piece", " "

    def __init__(self, config: TaskConfig, entry: TaskEntry) -> None:
        self.length, self.count, self.pieces = (
            int(config[name]) for name in ("length", "stories", "pieces")
        )
        lengths, known = (self.length, self.length), vocabulary_of(self.pieces)
        super().__init__(config, entry, recipes.stories(), lengths, known)

    def tokens(self, text: str) -> list[str]:
        return byte_pairs(self.pieces).encode(text).tokens

    def text_of(self, tokens: Sequence[str]) -> str:
        return str(byte_pairs(self.pieces).decoder.decode(list(tokens)))  # type: ignore[union-attr]

    def shown(self, token: str) -> str:
        return self.text_of([token]).strip() or token

    def display_tokens(self, example: Example) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The pieces; ## continues a word."""
        begins = [True, *(piece == SPECIALS[EOS] for piece in example.source)]
        return tuple(
            self.shown(piece) if begin or not self.text_of([piece])[0].isalnum() else f"##{piece}"
            for piece, begin in zip(example.source, begins, strict=False)
        ), ()

    def tokenizer(self) -> Any:
        """The tokenizer that an exported model takes: its ids are those of the vocabulary."""
        from tokenizers import Tokenizer

        data = json.loads(byte_pairs(self.pieces).to_str())
        data["model"]["vocab"] = {piece: id for id, piece in enumerate(self.source_vocab.tokens)}
        return Tokenizer.from_str(json.dumps(data))

    def batch(self, batch_size: int, generator: torch.Generator) -> Batch:
        self.ids, starts = ids_of(self.count, self.config.seed, self.pieces, self.length)
        return self.windows(
            starts[torch.randint(len(starts), (batch_size, 1), generator=generator)]
        )

    def draw(self, generator: torch.Generator, held_out: bool) -> Example:
        count, seed = min(self.count, FOR_PIECES), self.config.seed  # those are quickly made
        if held_out:
            count, seed = HELD_OUT_STORIES, seed + HELD_OUT_SEED
        ids, starts = ids_of(count, seed, self.pieces, self.length)
        start = int(starts[choose(generator, len(starts))])
        window = ids[start : start + self.length + 1]
        tokens = [self.source_vocab.tokens[id] for id in window.tolist()]
        return Example(tuple(tokens[:-1]), tuple(tokens[1:]))


STORIES: TaskEntry = TaskEntry(
    "stories",
    "Stories",
    meaning="Predict each next piece of short stories, which a grammar makes without end and can check.",
    look="A name, a thing or a pronoun attends to where it was introduced. The last words of a list attend to the list.",
    build=lambda config: Stories(config, STORIES),
    params=(
        Param(
            "length",
            "Window",
            default=128,
            low=32,
            high=256,
            step=8,
            meaning="number of pieces that the model reads",
        ),
        Param(
            "stories",
            "Stories",
            default=2_000,
            low=200,
            high=200_000,
            step=100,
            meaning="number of training stories",
        ),
        Param(
            "pieces",
            "Pieces",
            default=1_024,
            low=512,
            high=8_192,
            step=256,
            meaning="number of byte pairs",
        ),
    ),
)
