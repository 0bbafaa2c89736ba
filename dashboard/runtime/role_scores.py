"""The roles of a model's heads, measured once and shared by every page and session."""

from __future__ import annotations

from core.pretrained import Given, Reading
from core.roles import ROLES, Example, Inputs, Measured, clearest, inputs_for, measure, read_all
from core.trace import Kind
from dashboard.runtime.cache import remembered, shared
from dashboard.widgets.model_picker import ModelRef, loaded, reading_of

Found = dict[tuple[int, int], int]


def inputs_of(ref: ModelRef, given: Given, kind: Kind, own: tuple[str, ...] = ()) -> Inputs:
    """What this model is measured on; what it was given alone where there is no set (sound, arrays without a model)."""
    found = Inputs((), "") if ref.source == "array" else shared(_inputs, ref, kind, own)
    return found if found.givens else Inputs((given,), "input above")


def measured(ref: ModelRef, given: Given, kind: Kind, own: tuple[str, ...] = ()) -> Measured:
    """Every role's score in every head, over what `inputs_of` names."""
    return shared(_measured, ref, inputs_of(ref, given, kind, own), kind)


def roles_of(ref: ModelRef, given: Given, kind: Kind) -> Found:
    """The role of each head (layer, head) as its place in ROLES, for the marks on a grid; cross-attention has none."""
    return {} if kind == "cross" else measured(ref, given, kind).found


def at_hand(ref: ModelRef, given: Given, kind: Kind) -> bool:
    """Whether `roles_of` answers at once, without a model reading all its sentences."""
    if kind == "cross" or ref.source == "array":
        return True
    return remembered(_inputs, ref, kind, ()) and remembered(_measured, ref, inputs_of(ref, given, kind), kind)


def readings_of(ref: ModelRef, inputs: Inputs, kind: Kind) -> tuple[Reading, ...]:
    """The readings on which roles were measured."""
    return shared(_readings, ref, inputs, kind)


def examples_of(ref: ModelRef, inputs: Inputs, kind: Kind) -> dict[int, tuple[Reading, Example]]:
    """For each role that can be measured: where its best head shows it most clearly, and the reading of that."""
    return shared(_examples, ref, inputs, kind)


def _examples(ref: ModelRef, inputs: Inputs, kind: Kind) -> dict[int, tuple[Reading, Example]]:
    readings, found = readings_of(ref, inputs, kind), shared(_measured, ref, inputs, kind)
    out = {}
    for place, role in enumerate(ROLES):
        best = found.best(place)
        if best is not None and (example := clearest(readings, kind, role, *best)) is not None:
            out[place] = readings[example.reading], example
    return out


def _inputs(ref: ModelRef, kind: Kind, own: tuple[str, ...]) -> Inputs:
    return inputs_for(loaded(ref), own, kind)


def _readings(ref: ModelRef, inputs: Inputs, kind: Kind) -> tuple[Reading, ...]:
    return (reading_of(ref, inputs.givens[0]),) if ref.source == "array" else read_all(loaded(ref), inputs, kind)


def _measured(ref: ModelRef, inputs: Inputs, kind: Kind) -> Measured:
    return measure(readings_of(ref, inputs, kind), kind)
