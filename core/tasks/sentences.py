"""A class told from a text: the text column of a person's own table, word by word."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import torch

from core.models.base import Shape
from core.tasks.base import PAD, Batch, Example, Form, Recipe, Task, TaskConfig, TaskEntry, Vocabulary, pad
from core.tasks.metrics import entropy
from core.tasks.tables import Texts
from core.tasks.tabular import baseline_accuracy, sides
from core.tasks.text import MOST_WORDS, split

LONGEST = 128  # words; what is longer is cut, and said


class SentenceTask(Task):
    """Tell the class of a text; a fifth of each class is held out, equal texts on one side together."""

    form: Form = "label"
    finite = True
    separator = " "
    unit, whole = "row", "rows"

    def __init__(self, config: TaskConfig, entry: TaskEntry, texts: Texts) -> None:
        super().__init__(config, entry)
        read = list(map(words, texts.texts))
        cut = sum(len(each) > LONGEST for each in read)
        self.notes = (*texts.notes, f"{cut:,} texts are cut after {LONGEST} words.") if cut else texts.notes
        self.classes = texts.classes
        self.examples = [Example(tuple(each[:LONGEST]), (label,))
                         for each, label in zip(read, texts.labels, strict=True)]
        self.sides = sides([example.source for example in self.examples], texts.labels, config.seed)
        counts = Counter(word for i in self.sides[False] for word in self.examples[i].source)
        self.source_vocab = Vocabulary(word for word, _ in counts.most_common(MOST_WORDS))
        self.target_vocab = Vocabulary(self.classes)
        self.max_source, self.max_target = max(len(example.source) for example in self.examples), 1
        self.recommended = recipes(len(self.sides[False]))

    @property
    def shape(self) -> Shape:
        return Shape(len(self.source_vocab), len(self.classes), self.max_source + 1, output="label")

    @property
    def baseline_loss(self) -> float:
        return entropy([self.examples[i].target[0] for i in self.sides[False]])

    def tokens(self, text: str) -> list[str]:
        return words(text)

    def draw(self, generator: torch.Generator, held_out: bool) -> Example:
        side = self.sides[held_out]
        return self.examples[side[int(torch.randint(len(side), (), generator=generator))]]

    def batch(self, batch_size: int, generator: torch.Generator) -> Batch:
        every = self._trained
        picked = torch.randint(len(every.source), (batch_size,), generator=generator)
        mask = every.source_mask[picked]
        longest = int(mask.sum(1).max())
        return Batch(every.source[picked, :longest], mask[:, :longest], None, every.target_out[picked])

    @cached_property
    def _trained(self) -> Batch:
        return self.collate(self.trained())

    def held_out(self, n: int) -> tuple[Example, ...]:
        """All that is held out, or the first n of it."""
        return tuple(self.examples[i] for i in self.sides[True][:n])

    def trained(self) -> tuple[Example, ...]:
        """All that is trained on."""
        return tuple(self.examples[i] for i in self.sides[False])

    def collate(self, examples: Sequence[Example]) -> Batch:
        if not examples or not all(example.source for example in examples):
            raise ValueError("A batch needs at least one text, and every text at least one word.")
        source = pad([self.source_vocab.encode(example.source) for example in examples])
        labels = torch.tensor([example.target[0] if example.target else 0 for example in examples])
        return Batch(source, source != PAD, None, labels)

    def display_tokens(self, example: Example) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return example.source, tuple(self.classes[i] for i in example.target)

    def baseline(self) -> tuple[str, float]:
        """Naive Bayes on how often each word stands in a text (Wang & Manning 2012, section 2.1), same split."""
        from sklearn.naive_bayes import MultinomialNB

        return "naive Bayes on word counts", baseline_accuracy(self, MultinomialNB())

    def flat(self, examples: Sequence[Example]) -> Any:
        """How often each word stands in each text, (N, V) as a sparse matrix of SciPy's."""
        from scipy.sparse import csr_matrix

        ids = [self.source_vocab.encode(example.source) for example in examples]
        rows = [i for i, row in enumerate(ids) for _ in row]
        columns = [place for row in ids for place in row]
        return csr_matrix(([1.0] * len(rows), (rows, columns)), shape=(len(ids), len(self.source_vocab)))


def words(text: str) -> list[str]:
    """The words and punctuation marks of a text in small letters, one at least."""
    return split(text.lower(), "words") or [text]


def recipes(rows: int) -> Mapping[str, Recipe]:
    """Thirty passes over the texts."""
    from core.models.config import ModelConfig

    model = ModelConfig.transformer(32, num_heads=2, kind="classifier", position="sinusoidal", norm="pre", dropout=0.1)
    return {"classifier": Recipe(model.to_json(), max(200, min(1500, 30 * rows // 32)), 32, 3e-3)}
