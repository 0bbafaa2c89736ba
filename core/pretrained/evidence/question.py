"""What is asked of a model, and the one number of its answer that is followed while parts of it are taken away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from core.pretrained.answers import Answer, answer_of, display_names
from core.pretrained.attention_recorder import NO_HEADS, HeadSet
from core.pretrained.base import Line, ModelInputs, Pretrained, PretrainedError
from core.pretrained.evidence.outputs import check_output
from core.pretrained.reading import Batch, encode, forward

Quantity = Literal["probability", "logit", "difference"]
CONFIDENT = 0.95  # a probability above which the softmax is so flat that it hardly moves


@dataclass(frozen=True)
class Question:
    """What a model is given, and what of its answer is followed.

    `place` is the place that answers (the last or the masked one with None). `output` is the class or token that is
    followed, the likeliest with None; `quantity` its probability, its logit, or its logit minus that of `contrast`,
    which with None is the likeliest other one. With None it is the probability, or the logit where the likeliest has
    more than 0.95. An embedding has none of these: its cosine with that of the sentence `against` is followed; with
    none, with itself as it was.
    """

    given: ModelInputs
    place: int | None = None
    against: str = ""
    output: int | None = None
    quantity: Quantity | None = None
    contrast: int | None = None


@dataclass(frozen=True, eq=False)
class Baseline:
    """A question with the model's own answer: what is run again, with parts gone, and held against it.

    `id` is the token or class that is followed, in which `quantity`, and against which `contrast` (None but for a
    difference); `reference` is the vector that an embedding is held against.
    """

    pretrained: Pretrained
    question: Question
    batch: Batch
    source: Line
    target: Line | None
    answer: Answer
    id: int | None
    reference: Tensor | None
    quantity: Quantity = "probability"
    contrast: int | None = None

    def again(self, batch: Batch | None = None, off: HeadSet = NO_HEADS, even: HeadSet = NO_HEADS) -> Answer:
        """The answer once more, to another batch, or with heads that are off or look evenly."""
        batch = self.batch if batch is None else batch
        with torch.no_grad():
            output, _ = forward(self.pretrained, batch, off=off, even=even)
        return self.answer_in(batch, output)

    def answer_in(self, batch: Batch, output: Any) -> Answer:
        """The answer at the place that was asked; it keeps its gradients."""
        return answer_of(self.pretrained, batch, output, self.question.place)

    def followed(self, found: Answer) -> Tensor:
        """The number that is followed: a probability, a logit, a difference of two, or a cosine."""
        if found.logits is not None:
            assert self.id is not None
            values = quantity_values(found, self.quantity)
            return values[self.id] if self.contrast is None else values[self.id] - values[self.contrast]
        assert found.vector is not None and self.reference is not None
        return found.vector @ self.reference

    @property
    def value(self) -> float:
        """The followed number of the whole model."""
        return float(self.followed(self.answer))

    @property
    def word(self) -> str | None:
        """The token or class that is followed; None for an embedding."""
        return None if self.id is None else display_names(self.pretrained, self.answer, [self.id])[0]

    @property
    def other(self) -> str | None:
        """The token or class whose logit is subtracted; None where none is."""
        return None if self.contrast is None else display_names(self.pretrained, self.answer, [self.contrast])[0]

    @property
    def likeliest(self) -> bool:
        """Whether the token or class that is followed is the one that the whole model answers."""
        return self.answer.logits is not None and self.id == int(self.answer.logits.argmax())

    @property
    def sloped(self) -> bool:
        """Whether the followed number has a gradient: an embedding held against itself stands on its own summit."""
        return self.pretrained.watched and (self.answer.vector is None or bool(self.question.against.strip()))


def ask(pretrained: Pretrained, question: Question) -> Baseline:
    """The model's own answer, with everything that is needed to ask again.

    PretrainedError as in `encode` and `answer`, and when the place is not one of the answering sequence, or the output
    is none of the answer's.
    """
    batch, source, target, _ = encode(pretrained, question.given)
    length = len(target or source)
    if question.place is not None and not -length <= question.place < length:
        raise PretrainedError(f"The place {question.place} does not answer: the sequence has {length}, 0 to "
                              f"{length - 1}.")
    with torch.no_grad():
        output, _ = forward(pretrained, batch)
    found = answer_of(pretrained, batch, output, question.place)
    if found.logits is not None:
        followed = _followed(pretrained, question, found)
        return Baseline(pretrained, question, batch, source, target, found, followed[0], None, *followed[1:])
    if (question.output, question.quantity, question.contrast) != (None, None, None):
        raise PretrainedError(f"{pretrained.name} answers with an embedding, of which the cosine alone is followed; it "
                              "has no output, quantity or contrast.")
    against = question.against.strip()
    reference = found.vector if not against else _embedded(pretrained, against)
    return Baseline(pretrained, question, batch, source, target, found, None, reference)


def quantity_values(found: Answer, quantity: Quantity) -> Tensor:
    """Every class or token of an answer on the scale of a quantity (V,): probabilities, or logits."""
    values = found.probabilities if quantity == "probability" else found.logits
    assert values is not None
    return values


def default_quantity(found: Answer) -> Quantity:
    """The probability, or the logit where the likeliest has more than 0.95."""
    assert found.probabilities is not None
    return "logit" if float(found.probabilities.max()) > CONFIDENT else "probability"


def _followed(pretrained: Pretrained, question: Question, found: Answer) -> tuple[int, Quantity, int | None]:
    """The output, the quantity and the contrast of a question, with what it leaves open filled in."""
    assert found.logits is not None
    best = found.logits.topk(min(2, len(found.logits))).indices.tolist()
    output = best[0] if question.output is None else check_output(pretrained, found, question.output)
    quantity = question.quantity or default_quantity(found)
    if quantity != "difference":
        return output, quantity, None
    rest = [one for one in best if one != output]
    if not rest:
        raise PretrainedError(f"{pretrained.name} has one output alone, so its logit has none to differ from; follow "
                              "the logit.")
    contrast = rest[0] if question.contrast is None else check_output(pretrained, found, question.contrast)
    if contrast == output:
        raise PretrainedError("The difference of a logit and itself is always 0; take two different ones.")
    return output, quantity, contrast


def _embedded(pretrained: Pretrained, text: str) -> Tensor:
    batch, *_ = encode(pretrained, ModelInputs(text))
    with torch.no_grad():
        output, _ = forward(pretrained, batch)
    vector = answer_of(pretrained, batch, output).vector
    assert vector is not None
    return vector
