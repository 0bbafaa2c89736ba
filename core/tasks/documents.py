"""Classes of texts: documents of several sentences, a person's sentences, and naive Bayes to compare with."""

from collections import Counter
from collections.abc import Sequence
from random import Random

import torch
from torch import Tensor

from core.entries import Param
from core.models.base import SENTENCE_END, sentence_spans
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
        super().__init__(config, entry)
        self.sentences, self.courts = int(config["sentences"]), COURTS[-int(config["courts"]) :]
        templates = [text for _, texts in RULINGS for text in texts]
        fixed = {
            word
            for text in (*templates, *REMARKS)
            for word in text.split()
            if not word.startswith("{")
        }
        self.source_vocab, self.target_vocab = (
            Vocabulary(fixed | VERDICT_WORDS | set(COURTS)),
            Vocabulary(VERDICTS),
        )
        (self.sentence_end,) = self.source_vocab.encode([SENTENCE_END])
        self.max_source = self.sentences * max(len(text.split()) for text in (*templates, *REMARKS))
        self.max_target = 1
        self.recommended = recipes.DOCUMENTS

    def tokens(self, text: str) -> list[str]:
        return split(text.lower(), "words")

    def draw(self, generator: torch.Generator, held_out: bool) -> Example:
        while True:
            # A number of torch's takes as long as twenty of Python's.
            rng = Random(choose(generator, 2**31))
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


LONGEST = 128  # words; longer texts are cut, with a note


class SentenceTask(LabelledTask):
    """Tell the class of a text."""

    separator = " "
    unit, whole = "row", "rows"

    def __init__(self, config: TaskConfig, entry: TaskEntry, texts: Texts) -> None:
        tokens = list(map(words, texts.texts))
        super().__init__(
            config, entry, [tuple(text[:LONGEST]) for text in tokens], texts.labels, texts.classes
        )
        long = sum(len(text) > LONGEST for text in tokens)
        self.notes = (
            (*texts.notes, f"{long:,} texts are cut after {LONGEST} words.")
            if long
            else texts.notes
        )
        counts = Counter(word for i in self.sides[False] for word in self.sources[i])
        self.source_vocab = Vocabulary(word for word, _ in counts.most_common(MAX_WORDS))
        self.target_vocab = Vocabulary(self.classes)
        (end,) = self.source_vocab.encode([SENTENCE_END])
        several = end != UNK and any(len(sentence_spans(source)) > 1 for source in self.sources)
        self.sentence_end = end if several else 0
        self.recommended = recipes.sentences(len(self.sides[False]), several)

    def tokens(self, text: str) -> list[str]:
        return words(text)

    def select(self, rows: Tensor) -> Batch:
        return cut(self._trained, rows)

    def baseline(self) -> tuple[str, float]:
        return naive_bayes(self, self.trained(), self.held_out(len(self.labels)))


def words(text: str) -> list[str]:
    """The words and punctuation marks of a text in lower case."""
    return split(text.lower(), "words")
