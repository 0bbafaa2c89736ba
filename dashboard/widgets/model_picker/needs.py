"""The features that pages require of a model, and which models have them."""

from __future__ import annotations

from core.pretrained import Pretrained, PretrainedError
from dashboard.widgets.model_picker.models import EMBEDDED, ModelRef, load_model, local_models

MISSING = {
    "model": "has attention weights only; this page needs a model.",
    "qkv": "does not expose its queries, keys and values, which this page needs.",
    "head": "outputs an embedding; this page needs a model that outputs words or classes.",
    "tokens": "gives no probabilities to tokens; this page needs a model that fills masks or writes text.",
    "generate": "generates no text; this page needs a model that does.",
}


def missing_feature(pretrained: Pretrained | None, needs: tuple[str, ...]) -> str:
    """The first missing feature of a model (None for arrays), as the end of a sentence; empty where none is missing."""
    for need in needs:
        if pretrained is None:
            return MISSING["model"]
        has = {"model": True, "qkv": pretrained.recordable, "head": pretrained.head != "none",
               "tokens": pretrained.head in ("masked", "next", "seq2seq"),
               "generate": pretrained.head in ("next", "seq2seq")}
        if not has[need]:
            return MISSING[need]
    return ""


def suitable_models(needs: tuple[str, ...], among: tuple[ModelRef, ...] | None = None) -> list[ModelRef]:
    """The local models that have all features, those that read text first."""
    text: list[ModelRef] = []
    others: list[ModelRef] = []
    for ref in local_models() if among is None else among:
        try:
            pretrained = load_model(ref)
        except PretrainedError:
            continue
        if not missing_feature(pretrained, needs):
            (text if pretrained.reads == "text" else others).append(ref)
    return text + others


def default_model(needs: tuple[str, ...]) -> ModelRef:
    """The model that a page shows first: the embedded one, or the first of the lab's own that fits."""
    if set(needs) <= {"model", "qkv"}:
        return EMBEDDED
    own = tuple(ref for ref in local_models() if ref.source == "lab")  # small, so that loading each is quick
    return next(iter(suitable_models(needs, own)), EMBEDDED)
