"""A model by name, so that a link, a cache key and a chooser speak of the same one; loaded once for every session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from core.pretrained import Given, Pretrained, Reading, load_kept, load_minilm, read
from core.pretrained.load import KEPT, MINILM
from dashboard.cache import model, shared

Source = Literal["embedded", "lab", "hub", "folder", "array"]


@dataclass(frozen=True)
class ModelRef:
    """Where a model comes from, and its name there; `revision` is the commit of a hub model."""

    source: Source
    name: str
    revision: str = ""


EMBEDDED = ModelRef("embedded", MINILM)


def readable_models() -> tuple[ModelRef, ...]:
    """The models that are here without a download: the embedded one and the lab's own."""
    kept = sorted(path.parent.name for path in KEPT.glob("*/config.json"))
    return (EMBEDDED, *(ModelRef("lab", name) for name in kept))


def loaded(ref: ModelRef) -> Pretrained:
    """The model, from memory where it is there; PretrainedError says why it cannot be had."""
    return model(_load, ref)


def _load(ref: ModelRef) -> Pretrained:
    return load_minilm() if ref.source == "embedded" else load_kept(ref.name)


def reading_of(ref: ModelRef, given: Given) -> Reading:
    """The model's reading of what it is given, shared by all sessions; never change it."""
    return shared(_read, ref, given)


def _read(ref: ModelRef, given: Given) -> Reading:
    return read(loaded(ref), given)
