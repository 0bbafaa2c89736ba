"""The roles of a model's heads, measured once and shared by every page and session."""

from __future__ import annotations

from core.pretrained import Given
from core.roles import SENTENCES, Measured, measure, read_all, sentences_for
from core.trace import Kind
from dashboard.cache import cached, shared
from dashboard.inside import ModelRef, loaded, reading_of

Found = dict[tuple[int, int], int]


def sentences_of(ref: ModelRef, asked: tuple[str, ...] = SENTENCES) -> tuple[str, ...]:
    """The sentences on which this model is measured; none where it reads no text, or is an array without a model."""
    return () if ref.source == "array" else cached(_sentences, ref, asked)


def measured(ref: ModelRef, given: Given, kind: Kind, asked: tuple[str, ...] = SENTENCES) -> Measured:
    """Every role's score in every head: over the sentences, or over what was given where there can be none."""
    sentences = sentences_of(ref, asked)
    return shared(_over_sentences, ref, sentences, kind) if sentences else measure([reading_of(ref, given)], kind)


def roles_of(ref: ModelRef, given: Given, kind: Kind) -> Found:
    """The role of each head (layer, head) as its place in ROLES, for the marks on a grid; cross-attention has none."""
    return {} if kind == "cross" else measured(ref, given, kind).found


def _sentences(ref: ModelRef, asked: tuple[str, ...]) -> tuple[str, ...]:
    return sentences_for(loaded(ref), asked)


def _over_sentences(ref: ModelRef, sentences: tuple[str, ...], kind: Kind) -> Measured:
    return measure(read_all(loaded(ref), sentences), kind)
