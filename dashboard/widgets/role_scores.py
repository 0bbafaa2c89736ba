"""The roles of a model's heads, measured once and shared by every page and session."""

from __future__ import annotations

from core.pretrained import ModelInputs, Reading
from core.roles import (
    ROLES,
    Example,
    RoleInputs,
    RoleScores,
    clearest_example,
    read_all,
    role_inputs,
    score_roles,
)
from core.trace import Kind
from dashboard.runtime.threads import one_thread
from dashboard.server.cache import remembered, shared
from dashboard.widgets.model_picker import ModelRef, load_model, reading_of
from dashboard.widgets.model_picker.models import is_small

HeadRoles = dict[tuple[int, int], int]


def inputs_of(
    ref: ModelRef, page_inputs: ModelInputs, kind: Kind, own: tuple[str, ...] = ()
) -> RoleInputs:
    """The inputs on which roles are measured; the page's own alone where there is no set (sound, arrays)."""
    inputs = RoleInputs((), "") if ref.source == "array" else shared(_inputs, ref, kind, own)
    return inputs if inputs.givens else RoleInputs((page_inputs,), "input above")


def role_scores_of(
    ref: ModelRef, page_inputs: ModelInputs, kind: Kind, own: tuple[str, ...] = ()
) -> RoleScores:
    """Every role's score in every head, over what `inputs_of` names."""
    return shared(_role_scores, ref, inputs_of(ref, page_inputs, kind, own), kind)


def roles_of(ref: ModelRef, page_inputs: ModelInputs, kind: Kind) -> HeadRoles:
    """The role (an index of ROLES) of each head (layer, head), for a grid's marks; none for cross-attention."""
    return {} if kind == "cross" else role_scores_of(ref, page_inputs, kind).head_roles


def roles_are_cached(ref: ModelRef, page_inputs: ModelInputs, kind: Kind) -> bool:
    """Whether `roles_of` takes no time."""
    if kind == "cross" or ref.source == "array":
        return True
    return remembered(_inputs, ref, kind, ()) and remembered(
        _role_scores, ref, inputs_of(ref, page_inputs, kind), kind
    )


def readings_of(ref: ModelRef, inputs: RoleInputs, kind: Kind) -> tuple[Reading, ...]:
    """The readings on which roles were measured."""
    return shared(_readings, ref, inputs, kind)


def examples_of(
    ref: ModelRef, inputs: RoleInputs, kind: Kind
) -> dict[int, tuple[Reading, Example]]:
    """For each role that can be measured: the clearest example of its best head, and its reading."""
    return shared(_examples, ref, inputs, kind)


def _examples(ref: ModelRef, inputs: RoleInputs, kind: Kind) -> dict[int, tuple[Reading, Example]]:
    readings, scores = readings_of(ref, inputs, kind), shared(_role_scores, ref, inputs, kind)
    out = {}
    for index, role in enumerate(ROLES):
        best = scores.best(index)
        if (
            best is not None
            and (example := clearest_example(readings, kind, role, *best)) is not None
        ):
            out[index] = readings[example.reading], example
    return out


def _inputs(ref: ModelRef, kind: Kind, own: tuple[str, ...]) -> RoleInputs:
    return role_inputs(load_model(ref), own, kind)


def _readings(ref: ModelRef, inputs: RoleInputs, kind: Kind) -> tuple[Reading, ...]:
    if ref.source == "array":
        return (reading_of(ref, inputs.givens[0]),)
    pretrained = load_model(ref)
    with one_thread(is_small(pretrained)):
        return read_all(pretrained, inputs, kind)


def _role_scores(ref: ModelRef, inputs: RoleInputs, kind: Kind) -> RoleScores:
    return score_roles(readings_of(ref, inputs, kind), kind)
