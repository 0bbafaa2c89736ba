"""A question to a model, and its baseline: the full model's answer, with which ablations are compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from core.pretrained.answers import Answer, answer, answer_of, display_names
from core.pretrained.attention_recorder import NO_HEADS, HeadSet
from core.pretrained.base import Line, ModelInputs, Pretrained, PretrainedError
from core.pretrained.evidence.outputs import check_output
from core.pretrained.reading import Batch, encode, forward

Quantity = Literal["probability", "logit", "difference"]
CONFIDENT = 0.95  # a probability above which the softmax is so flat that it hardly moves


@dataclass(frozen=True)
class Question:
    """The inputs of a model, and the target value in its answer.

    `position` answers (None: the last or the masked one). `output` is the target class or token (None: the likeliest).
    `quantity` is its probability, its logit, or its logit minus that of `contrast` (None: the likeliest other one);
    with None it is the probability, or the logit where the likeliest has more than 0.95. An embedding has none of
    these: its target value is the cosine with the embedding of `against`, or with its own baseline where that is empty.
    """

    inputs: ModelInputs
    position: int | None = None
    against: str = ""
    output: int | None = None
    quantity: Quantity | None = None
    contrast: int | None = None


@dataclass(frozen=True, eq=False)
class Baseline:
    """A question with the full model's answer, to be rerun with parts ablated and compared.

    `id` is the target token or class, `contrast` the one whose logit is subtracted (None unless `quantity` is
    "difference"); `reference` is the vector that an embedding is compared with.
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

    def rerun(
        self, batch: Batch | None = None, off: HeadSet = NO_HEADS, uniform: HeadSet = NO_HEADS
    ) -> Answer:
        """The answer to another batch, or with heads off or with uniform weights."""
        batch = self.batch if batch is None else batch
        output, _ = forward(self.pretrained, batch, off=off, uniform=uniform)
        return self.answer_in(batch, output)

    def answer_in(self, batch: Batch, output: Any) -> Answer:
        """The answer at the question's position; it keeps its gradients."""
        return answer_of(self.pretrained, batch, output, self.question.position)

    def target_value(self, answer: Answer) -> Tensor:
        """The target value of an answer: a probability, a logit, a difference of two logits, or a cosine."""
        if answer.logits is not None:
            assert self.id is not None
            values = quantity_values(answer, self.quantity)
            return (
                values[self.id]
                if self.contrast is None
                else values[self.id] - values[self.contrast]
            )
        assert answer.vector is not None and self.reference is not None
        return answer.vector @ self.reference

    @property
    def value(self) -> float:
        """The target value of the full model."""
        return float(self.target_value(self.answer))

    @property
    def word(self) -> str | None:
        """The name of the target token or class; None for an embedding."""
        return (
            None if self.id is None else display_names(self.pretrained, self.answer, [self.id])[0]
        )

    @property
    def other(self) -> str | None:
        """The name of the contrast token or class; None where there is none."""
        return (
            None
            if self.contrast is None
            else display_names(self.pretrained, self.answer, [self.contrast])[0]
        )

    @property
    def is_top(self) -> bool:
        """Whether the target is the full model's likeliest token or class."""
        return self.answer.logits is not None and self.id == int(self.answer.logits.argmax())

    @property
    def has_gradient(self) -> bool:
        """Whether the target value has a gradient: an embedding's cosine with itself has none."""
        return self.pretrained.recordable and (
            self.answer.vector is None or bool(self.question.against.strip())
        )


def ask(pretrained: Pretrained, question: Question) -> Baseline:
    """Answer a question with the full model.

    PretrainedError as in `encode` and `answer`, and when the position or the output does not exist.
    """
    batch, source, target, _ = encode(pretrained, question.inputs)
    length = len(target or source)
    if question.position is not None and not -length <= question.position < length:
        raise PretrainedError(
            f"The sequence has no position {question.position}; its {length} positions are 0 to "
            f"{length - 1}."
        )
    output, _ = forward(pretrained, batch)
    full = answer_of(pretrained, batch, output, question.position)
    if full.logits is not None:
        defaults = _target(pretrained, question, full)
        return Baseline(
            pretrained, question, batch, source, target, full, defaults[0], None, *defaults[1:]
        )
    if (question.output, question.quantity, question.contrast) != (None, None, None):
        raise PretrainedError(
            f"{pretrained.name} gives an embedding; only its cosine can be measured, and there is "
            "no output, quantity or contrast."
        )
    against = question.against.strip()
    reference = answer(pretrained, ModelInputs(against)).vector if against else full.vector
    return Baseline(pretrained, question, batch, source, target, full, None, reference)


def quantity_values(answer: Answer, quantity: Quantity) -> Tensor:
    """The probabilities, or the logits, of every class or token (V,)."""
    values = answer.probabilities if quantity == "probability" else answer.logits
    assert values is not None
    return values


def default_quantity(answer: Answer) -> Quantity:
    """The probability, or the logit where the likeliest has more than 0.95."""
    assert answer.probabilities is not None
    return "logit" if float(answer.probabilities.max()) > CONFIDENT else "probability"


def _target(
    pretrained: Pretrained, question: Question, answer: Answer
) -> tuple[int, Quantity, int | None]:
    """The output, quantity and contrast of a question, with defaults filled in."""
    assert answer.logits is not None
    best = answer.logits.topk(min(2, len(answer.logits))).indices.tolist()
    output = (
        best[0] if question.output is None else check_output(pretrained, answer, question.output)
    )
    quantity = question.quantity or default_quantity(answer)
    if quantity != "difference":
        return output, quantity, None
    rest = [one for one in best if one != output]
    if not rest:
        raise PretrainedError(
            f"{pretrained.name} has only one output, so there is no difference of logits; choose "
            "the logit."
        )
    contrast = (
        rest[0]
        if question.contrast is None
        else check_output(pretrained, answer, question.contrast)
    )
    if contrast == output:
        raise PretrainedError(
            "The difference of a logit and itself is always 0; choose two different outputs."
        )
    return output, quantity, contrast
