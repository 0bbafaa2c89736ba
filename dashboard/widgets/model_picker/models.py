"""Models by name, the same in links, cache keys and the picker; each is loaded once for every session."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeVar

from core.interpret.evidence import Baseline, Question, ask
from core.pretrained import (
    ModelInputs,
    Pretrained,
    PretrainedError,
    Reading,
    hub,
    hub as model_storage,
    read,
)
from core.pretrained.base import wrap_errors
from core.pretrained.load import (
    LAB_MODELS,
    MINILM,
    load_folder,
    load_lab_model,
    load_minilm,
    minilm_folder,
    untrained,
)
from dashboard.server.cache import has_model, model, shared
from dashboard.ui.model_folders import folder_of
from dashboard.ui.threads import one_thread
from dashboard.widgets.model_picker import uploads

T = TypeVar("T")
Source = Literal["embedded", "lab", "hub", "folder", "array"]
MODEL, PICKED = (
    "inside:model",
    "inside:picked",
)  # the picker's key, and whether a user or a link has set it

SMALL, SHORT = 1e8, 600  # parameters and characters up to which one thread is the faster


@dataclass(frozen=True)
class ModelRef:
    """A model's source and name; `revision` is a hub branch, tag or commit, or a folder's modification time."""

    source: Source
    name: str
    revision: str = ""

    @property
    def written(self) -> str:
        """The name in the picker and in links; `parse_model` parses it."""
        return (
            f"{self.name}@{self.revision}" if self.source == "hub" and self.revision else self.name
        )


EMBEDDED = ModelRef("embedded", MINILM)


def local_models() -> tuple[ModelRef, ...]:
    """The models that need no download: the embedded one and the lab's own."""
    names = sorted(path.parent.name for path in LAB_MODELS.glob("*/config.json"))
    return (EMBEDDED, *(ModelRef("lab", name) for name in names))


def parse_model(text: str) -> ModelRef:
    """The model that a typed name or a link refers to; PretrainedError when it is none."""
    text = text.strip()
    for ref in local_models():
        if text == ref.name:
            return ref
    if uploads.UPLOAD_NAME.fullmatch(text):
        return ModelRef("array", text)
    if re.match(r"[/\\]{2}", text):  # Windows would log in there because of a link
        raise PretrainedError(
            f"{text[:80]} is on another computer; copy its folder here, and type that path."
        )
    if re.match(r"[/~.\\]|[A-Za-z]:\\", text):
        return ModelRef("folder", text)
    repo, revision = hub.parse(text)
    return ModelRef("hub", repo, "" if revision == "main" else revision)


def stored_bytes(ref: ModelRef) -> int:
    """The bytes of its weights on disk; 0 where there are none."""
    folders = {
        "embedded": minilm_folder,
        "lab": lambda: LAB_MODELS / ref.name,
        "folder": lambda: folder_of(ref.name),
        "hub": lambda: model_storage.model_folder(ref.name, ref.revision),
    }
    if ref.source not in folders:
        return 0
    return sum(file.stat().st_size for file in folders[ref.source]().glob("*.safetensors"))


def load_model(ref: ModelRef) -> Pretrained:
    """The model, cached; PretrainedError when it cannot be loaded."""
    return model(_load, ref)


def study_of(function: Callable[..., T], ref: ModelRef, *args: Hashable) -> T:
    """function(model, *args) with the model of a reference, cached and shared; never change it."""
    return shared(_with_model, function, ref, *args)


def _with_model(function: Callable[..., T], ref: ModelRef, *args: Hashable) -> T:
    pretrained = load_model(ref)
    with one_thread(is_small(pretrained)):
        return function(pretrained, *args)


def is_loaded(ref: ModelRef) -> bool:
    """Whether this server has the model in memory."""
    return has_model(_load, ref)


def _load(ref: ModelRef) -> Pretrained:
    if ref.source == "embedded":
        return load_minilm()
    if ref.source == "lab":
        return load_lab_model(ref.name)
    if ref.source == "array":
        raise PretrainedError(
            "These are arrays without a model; choose a model for what needs one."
        )
    with wrap_errors(f"{ref.name} cannot be loaded"):
        if ref.source == "folder":
            return load_folder(folder_of(ref.name), Path(ref.name).name)
        return hub.load(ref.name, ref.revision)


def is_small(pretrained: Pretrained) -> bool:
    """Whether one thread reads a sentence sooner than two: on busy cores they wait for each other at each layer."""
    return sum(weight.numel() for weight in pretrained.model.parameters()) < SMALL


def _is_quick(pretrained: Pretrained, inputs: ModelInputs) -> bool:
    short = (
        max(len(inputs.text), len(inputs.target or "")) <= SHORT
        and inputs.picture is None
        and inputs.sound is None
    )
    return short and is_small(pretrained)


def reading_of(ref: ModelRef, inputs: ModelInputs) -> Reading:
    """The model's reading of its inputs, shared by all sessions; never change it."""
    return uploads.reading(ref.name) if ref.source == "array" else shared(_read, ref, inputs)


def _read(ref: ModelRef, inputs: ModelInputs) -> Reading:
    pretrained = load_model(ref)
    with wrap_errors(f"{ref.name} cannot read this"), one_thread(_is_quick(pretrained, inputs)):
        return read(pretrained, inputs)


def study_of_reading(
    function: Callable[..., T], ref: ModelRef, inputs: ModelInputs, *args: Hashable
) -> T:
    """function(reading, *args) with the model's reading of its inputs, shared by all sessions; never change it."""
    return shared(_with_reading, function, ref, inputs, *args)


def _with_reading(
    function: Callable[..., T], ref: ModelRef, inputs: ModelInputs, *args: Hashable
) -> T:
    return function(reading_of(ref, inputs), *args)


def untrained_reading_of(ref: ModelRef, seed: int, inputs: ModelInputs) -> Reading:
    """The reading of a copy with random weights, shared by all sessions; never change it."""
    return shared(_read_untrained, ref, seed, inputs)


def _read_untrained(ref: ModelRef, seed: int, inputs: ModelInputs) -> Reading:
    return read(model(_untrained, ref, seed), inputs)


def _untrained(ref: ModelRef, seed: int) -> Pretrained:
    return untrained(load_model(ref), seed)


def baseline_of(ref: ModelRef, question: Question) -> Baseline:
    """The model's answer, with the model attached for reruns; PretrainedError as in `ask`."""
    return replace(shared(_baseline, ref, question), pretrained=load_model(ref))


def without_model(baseline: Baseline) -> Baseline:
    """The baseline without its model, so that a cached result does not keep the model in memory."""
    return replace(baseline, pretrained=None)  # type: ignore[arg-type]


def _baseline(ref: ModelRef, question: Question) -> Baseline:
    pretrained = load_model(ref)
    with one_thread(_is_quick(pretrained, question.inputs)):
        return without_model(ask(pretrained, question))
