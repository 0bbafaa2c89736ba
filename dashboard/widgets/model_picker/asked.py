"""A question's answer for every session: the answer is remembered, the model is held by the memory of models alone."""

from __future__ import annotations

from dataclasses import replace

from core.pretrained.evidence import Baseline, Question, ask
from dashboard.runtime.cache import shared
from dashboard.widgets.model_picker.models import ModelRef, load_model


def baseline_of(ref: ModelRef, question: Question) -> Baseline:
    """The model's own answer, with the model to ask again; PretrainedError as in `ask`."""
    return replace(shared(_asked, ref, question), pretrained=load_model(ref))


def without_model(asked: Baseline) -> Baseline:
    """What may be remembered: a result that held its model would weigh as much, and keep it when it has to leave."""
    return replace(asked, pretrained=None)  # type: ignore[arg-type]


def _asked(ref: ModelRef, question: Question) -> Baseline:
    return without_model(ask(load_model(ref), question))
