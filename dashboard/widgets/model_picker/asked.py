"""A question's answer for every session: the answer is remembered, the model is held by the memory of models alone."""

from __future__ import annotations

from dataclasses import replace

from core.pretrained.evidence import Asked, Question, ask
from dashboard.runtime.cache import shared
from dashboard.widgets.model_picker.models import ModelRef, loaded


def asked_of(ref: ModelRef, question: Question) -> Asked:
    """The model's own answer, with the model to ask again; PretrainedError as in `ask`."""
    return replace(shared(_asked, ref, question), pretrained=loaded(ref))


def without_model(asked: Asked) -> Asked:
    """What may be remembered: a result that held its model would weigh as much, and keep it when it has to leave."""
    return replace(asked, pretrained=None)  # type: ignore[arg-type]


def _asked(ref: ModelRef, question: Question) -> Asked:
    return without_model(ask(loaded(ref), question))
