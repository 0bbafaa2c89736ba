"""Classes of texts: the text column of a person's own table, word by word."""

from __future__ import annotations

from collections import Counter

from torch import Tensor

from core.models.base import SENTENCE_END, Shape, sentence_spans
from core.tasks import recipes
from core.tasks.base import UNK, Batch, Example, TaskConfig, TaskEntry, Vocabulary
from core.tasks.labelled import LabelledTask
from core.tasks.naive_bayes import NaiveBayes
from core.tasks.tables import Texts
from core.tasks.text import MOST_WORDS, split
from core.tasks.translation import cut

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
        self.source_vocab = Vocabulary(word for word, _ in counts.most_common(MOST_WORDS))
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
