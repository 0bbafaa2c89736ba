"""The full model's answer to a question, cached for every session without its model, which has a cache of its own."""

from __future__ import annotations

from dataclasses import replace

from core.pretrained.evidence import Baseline, Question, ask
from dashboard.runtime.cache import shared
from dashboard.widgets.model_picker.models import ModelRef, load_model


def baseline_of(ref: ModelRef, question: Question) -> Baseline:
    """The model's answer, with the model attached for reruns; PretrainedError as in `ask`."""
    return replace(shared(_baseline, ref, question), pretrained=load_model(ref))


def without_model(baseline: Baseline) -> Baseline:
    """The baseline without its model, so that a cached result does not keep the model in memory."""
    return replace(baseline, pretrained=None)  # type: ignore[arg-type]


def _baseline(ref: ModelRef, question: Question) -> Baseline:
    return without_model(ask(load_model(ref), question))
