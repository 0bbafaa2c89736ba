"""What is asked of a model, and the one number of its answer that is followed while parts of it are taken away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from core.pretrained.answers import Answer, answer_of, words
from core.pretrained.base import Given, Line, Pretrained, PretrainedError
from core.pretrained.reading import Batch, encode, forward
from core.pretrained.watch import NOTHING, Off


@dataclass(frozen=True)
class Question:
    """What a model is given, and what of its answer is followed.

    `place` is the place that answers (the last or the masked one with None). An embedding is held against that of the
    sentence `against`; with none, against itself as it was.
    """

    given: Given
    place: int | None = None
    against: str = ""


@dataclass(frozen=True, eq=False)
class Asked:
    """A question with the model's own answer: what is run again, with parts gone, and held against it.

    `id` is the token or class that the model answers; `reference` the vector that an embedding is held against.
    """

    pretrained: Pretrained
    question: Question
    batch: Batch
    source: Line
    target: Line | None
    answer: Answer
    id: int | None
    reference: Tensor | None

    def again(self, batch: Batch | None = None, off: Off = NOTHING, even: Off = NOTHING) -> Answer:
        """The answer once more, to another batch, or with heads that are off or look evenly."""
        batch = self.batch if batch is None else batch
        with torch.no_grad():
            output, _ = forward(self.pretrained, batch, off=off, even=even)
        return self.answer_in(batch, output)

    def answer_in(self, batch: Batch, output: Any) -> Answer:
        """The answer at the place that was asked; it keeps its gradients."""
        return answer_of(self.pretrained, batch, output, self.question.place)

    def followed(self, found: Answer) -> Tensor:
        """The number that is followed, 0 to 1 or a cosine: the probability of what was answered, or the similarity."""
        if found.probabilities is not None:
            assert self.id is not None
            return found.probabilities[self.id]
        assert found.vector is not None and self.reference is not None
        return found.vector @ self.reference

    @property
    def value(self) -> float:
        """The followed number of the whole model."""
        return float(self.followed(self.answer))

    @property
    def word(self) -> str | None:
        """The token or class that is followed; None for an embedding."""
        return None if self.id is None else words(self.pretrained, self.answer, [self.id])[0]

    @property
    def sloped(self) -> bool:
        """Whether the followed number has a gradient: an embedding held against itself stands on its own summit."""
        return self.pretrained.watched and (self.answer.vector is None or bool(self.question.against.strip()))


def ask(pretrained: Pretrained, question: Question) -> Asked:
    """The model's own answer, with everything that is needed to ask again.

    PretrainedError as in `encode` and `answer`, and when the place is not one of the answering sequence.
    """
    batch, source, target, _ = encode(pretrained, question.given)
    length = len(target or source)
    if question.place is not None and not -length <= question.place < length:
        raise PretrainedError(f"The place {question.place} does not answer: the sequence has {length}, 0 to "
                              f"{length - 1}.")
    with torch.no_grad():
        output, _ = forward(pretrained, batch)
    found = answer_of(pretrained, batch, output, question.place)
    if found.probabilities is not None:
        return Asked(pretrained, question, batch, source, target, found, int(found.probabilities.argmax()), None)
    against = question.against.strip()
    reference = found.vector if not against else _embedded(pretrained, against)
    return Asked(pretrained, question, batch, source, target, found, None, reference)


def _embedded(pretrained: Pretrained, text: str) -> Tensor:
    batch, *_ = encode(pretrained, Given(text))
    with torch.no_grad():
        output, _ = forward(pretrained, batch)
    vector = answer_of(pretrained, batch, output).vector
    assert vector is not None
    return vector
