"""Classes of texts: documents of several sentences, a person's sentences, and naive Bayes to compare with."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from random import Random

import torch
from torch import Tensor

from core.entries import Param
from core.models.base import SENTENCE_END, Shape, sentence_spans
from core.tasks import recipes
from core.tasks.base import (
    UNK,
    Batch,
    Example,
    Form,
    LabelledTask,
    Task,
    TaskConfig,
    TaskEntry,
    Vocabulary,
    choose,
    is_held_out,
)
from core.tasks.tables import Texts
from core.tasks.text import MAX_WORDS, split
from core.tasks.translation import cut

# Multinomial naive Bayes over words: what counts of words alone tell of a class (Wang & Manning 2012, section 2.1).


Words = Sequence[int]


class NaiveBayes:
    """The log probability of each class, and of each word in it with one added to its count, as scikit-learn's
    MultinomialNB."""

    def __init__(self, texts: Sequence[Words], classes: Sequence[int], vocabulary: int) -> None:
        self.classes = sorted(set(classes))
        counts = torch.ones(len(self.classes), vocabulary, dtype=torch.float64)
        for words, of_text in zip(texts, classes, strict=True):
            ids = torch.tensor(words, dtype=torch.int64)
            counts[self.classes.index(of_text)].index_add_(
                0, ids, torch.ones(len(ids), dtype=torch.float64)
            )
        self.log_words = (counts / counts.sum(1, keepdim=True)).log()
        self.log_classes = (
            torch.tensor([classes.count(one) / len(classes) for one in self.classes]).double().log()
        )

    def predict(self, words: Words) -> int:
        """The most probable class of a text."""
        return self.classes[int(self.log_probabilities(words).argmax())]

    def log_probabilities(self, words: Words) -> Tensor:
        """Of each of `classes` for a text, (C,)."""
        joint = self.log_classes + self.log_words[:, torch.tensor(words, dtype=torch.int64)].sum(1)
        return joint - joint.logsumexp(0)

    def accuracy(self, texts: Sequence[Words], classes: Sequence[int]) -> float:
        """The share of texts whose class it predicts."""
        return sum(
            self.predict(words) == one for words, one in zip(texts, classes, strict=True)
        ) / len(texts)


COURTS = ("village", "town", "county", "state", "high", "supreme")  # the lowest first
VERDICTS = ("guilty", "innocent")
ADJECTIVES = (("guilty", "culpable", "liable"), ("innocent", "blameless", "faultless"))
VERBS = (("convicted", "condemned", "sentenced"), ("acquitted", "cleared", "released"))
RULINGS = (
    (
        ADJECTIVES,
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
REMARKS = (
    "it rained all week .",
    "his wife wrote a long letter .",
    "the papers wrote about him once more .",
    "he was at home that week .",
)
FEWEST = 2  # rulings, and so sentences
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
    baseline_name = "naive Bayes on word counts"

    def __init__(self, config: TaskConfig, entry: TaskEntry) -> None:
        super().__init__(config, entry)
        self.sentences, self.courts = int(config["sentences"]), COURTS[-int(config["courts"]) :]
        templates = [text for _, texts in RULINGS for text in texts]
        fixed = {
            word
            for text in (*templates, *REMARKS)
            for word in text.split()
            if not word.startswith("{")
        }
        verdicts = {word for words, _ in RULINGS for of_class in words for word in of_class}
        self.source_vocab, self.target_vocab = (
            Vocabulary(fixed | verdicts | set(COURTS)),
            Vocabulary(VERDICTS),
        )
        self.max_source = self.sentences * max(len(text.split()) for text in (*templates, *REMARKS))
        self.max_target = 1
        self.recommended = recipes.documents()

    @property
    def shape(self) -> Shape:
        (end,) = self.source_vocab.encode([SENTENCE_END])
        return Shape(
            len(self.source_vocab),
            len(VERDICTS),
            self.max_source + 1,
            output="label",
            sentence_end=end,
        )

    @property
    def baseline_loss(self) -> float:
        return math.log(len(VERDICTS))

    def tokens(self, text: str) -> list[str]:
        return split(text.lower(), "words")

    def draw(self, generator: torch.Generator, held_out: bool) -> Example:
        while True:
            rng = Random(
                choose(generator, 2**31)
            )  # a number of torch's takes as long as twenty of Python's
            verdict, rulings = self._rulings(rng)
            lines = [_ruling(self.courts[court], ruled, rng) for court, ruled in rulings]
            lines += rng.choices(REMARKS, k=rng.randint(0, self.sentences - len(lines)))
            rng.shuffle(lines)
            text = " ".join(lines)
            if is_held_out(text) == held_out:
                return Example(tuple(text.split()), (VERDICTS[verdict],))

    def _rulings(self, rng: Random) -> tuple[int, list[tuple[int, int]]]:
        """The highest court's verdict, and (court, verdict) of all; how many are of each verdict is drawn without
        regard to it."""
        verdict, count = (
            rng.randrange(len(VERDICTS)),
            rng.randint(FEWEST, min(self.sentences, len(self.courts))),
        )
        innocent = rng.randint(1, count - 1)
        others = [1] * (innocent - verdict) + [0] * (count - 1 - innocent + verdict)
        rng.shuffle(others)
        courts = sorted(rng.sample(range(len(self.courts)), count), reverse=True)
        return verdict, list(zip(courts, [verdict, *others], strict=True))

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
            verdicts = [
                i for i, word in zip(span, words, strict=True) if verdict_of(word) is not None
            ]
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
        return self.baseline_name, self._fitted.accuracy(*self._read(self.held_out(1_000)))

    @cached_property
    def _fitted(self) -> NaiveBayes:
        generator = torch.Generator().manual_seed(self.config.seed)
        trained = [self.draw(generator, held_out=False) for _ in range(TRAINED)]
        return NaiveBayes(*self._read(trained), len(self.source_vocab))

    def _read(self, examples: Sequence[Example]) -> tuple[list[list[int]], list[int]]:
        """The numbers of their words, and their classes."""
        return [self.source_vocab.encode(example.source) for example in examples], list(
            map(self.label, examples)
        )


def verdict_of(word: str) -> int | None:
    """The class that a word gives as a verdict; None for another word."""
    return next(
        (
            verdict
            for words, _ in RULINGS
            for verdict, of_class in enumerate(words)
            if word in of_class
        ),
        None,
    )


def _ruling(court: str, verdict: int, rng: Random) -> str:
    words, templates = rng.choice(RULINGS)
    return rng.choice(templates).format(court=court, verdict=rng.choice(words[verdict]))


DOCUMENTS: TaskEntry = TaskEntry(
    "documents",
    "Deciding sentence",
    "A document reports what several courts ruled, and other things. The verdict of the highest court counts.",
    "Most weight is on the sentence about the highest court and, within it, on the court or its verdict. Recurrent "
    "cells carry the verdict to other sentences, too, so that a model can also read it there.",
    lambda config: Documents(config, DOCUMENTS),
    (
        Param(
            "sentences",
            "Most sentences",
            6,
            3,
            12,
            1,
            meaning="largest number of sentences in a document",
        ),
        Param(
            "courts",
            "Courts",
            5,
            3,
            len(COURTS),
            1,
            meaning="number of courts that may rule, the highest of " + ", ".join(COURTS),
        ),
    ),
)


# Classes of texts: the text column of a person's own table, word by word.


LONGEST = 128  # words; longer texts are cut, with a note


class SentenceTask(LabelledTask):
    """Tell the class of a text."""

    separator = " "
    unit, whole = "row", "rows"
    baseline_name = "naive Bayes on word counts"

    def __init__(self, config: TaskConfig, entry: TaskEntry, texts: Texts) -> None:
        tokens = list(map(words, texts.texts))
        self.sources = [tuple(text[:LONGEST]) for text in tokens]
        super().__init__(config, entry, self.sources, texts.labels)
        long = sum(len(text) > LONGEST for text in tokens)
        self.notes = (
            (*texts.notes, f"{long:,} texts are cut after {LONGEST} words.")
            if long
            else texts.notes
        )
        self.classes = texts.classes
        counts = Counter(word for i in self.sides[False] for word in self.sources[i])
        self.source_vocab = Vocabulary(word for word, _ in counts.most_common(MAX_WORDS))
        self.target_vocab = Vocabulary(self.classes)
        self.max_source = max(map(len, self.sources))
        (end,) = self.source_vocab.encode([SENTENCE_END])
        several = end != UNK and any(len(sentence_spans(source)) > 1 for source in self.sources)
        self.sentence_end = end if several else 0
        self.recommended = recipes.sentences(len(self.sides[False]), several)

    @property
    def shape(self) -> Shape:
        return Shape(
            len(self.source_vocab),
            len(self.classes),
            self.max_source + 1,
            output="label",
            sentence_end=self.sentence_end,
        )

    def item(self, i: int) -> Example:
        return Example(self.sources[i], (self.labels[i],))

    def tokens(self, text: str) -> list[str]:
        return words(text)

    def select(self, rows: Tensor) -> Batch:
        return cut(self._trained, rows)

    def display_tokens(self, example: Example) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return example.source, tuple(self.classes[i] for i in example.target)

    def baseline(self) -> tuple[str, float]:
        """Naive Bayes on the words."""
        (train, classes), (test, targets) = (
            (
                [self.source_vocab.encode(example.source) for example in side],
                [example.target[0] for example in side],
            )
            for side in (self.trained(), self.held_out(len(self.labels)))
        )
        return self.baseline_name, NaiveBayes(train, classes, len(self.source_vocab)).accuracy(
            test, targets
        )


def words(text: str) -> list[str]:
    """The words and punctuation marks of a text in lower case, at least one."""
    return split(text.lower(), "words") or [text]
