"""A model by name, so that a link, a cache key and a chooser speak of the same one; loaded once for every session."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from core.pretrained import (
    ModelInputs,
    Pretrained,
    PretrainedError,
    Reading,
    hub,
    load_folder,
    load_lab_model,
    load_minilm,
    model_storage,
    read,
)
from core.pretrained.base import wrap_errors
from core.pretrained.load import LAB_MODELS, MINILM, minilm_folder
from dashboard.runtime.cache import model, shared
from dashboard.widgets.model_picker import uploads

Source = Literal["embedded", "lab", "hub", "folder", "array"]
MODEL, PICKED = "inside:model", "inside:picked"  # the key of the chooser, and whether a person or a link has used it


@dataclass(frozen=True)
class ModelRef:
    """Where a model comes from, and its name there.

    `revision` is a hub model's branch, tag or commit, and tells two states of one folder apart.
    """

    source: Source
    name: str
    revision: str = ""

    @property
    def written(self) -> str:
        """As the chooser and a link write it; `named` reads it back."""
        return f"{self.name}@{self.revision}" if self.source == "hub" and self.revision else self.name


EMBEDDED = ModelRef("embedded", MINILM)


def local_models() -> tuple[ModelRef, ...]:
    """The models that are here without a download: the embedded one and the lab's own."""
    kept = sorted(path.parent.name for path in LAB_MODELS.glob("*/config.json"))
    return (EMBEDDED, *(ModelRef("lab", name) for name in kept))


def parse_model(text: str) -> ModelRef:
    """The model that a person or a link means: one that is here, a folder's path, or a name of the hub.

    PretrainedError when it can be none of these.
    """
    text = text.strip()
    for ref in local_models():
        if text == ref.name:
            return ref
    if uploads.UPLOAD_NAME.fullmatch(text):
        return ModelRef("array", text)
    if re.match(r"[/\\]{2}", text):  # Windows would log in there, because a link said so
        raise PretrainedError(f"{text[:80]} lies on another computer; copy the folder here, and name that.")
    if re.match(r"[/~.\\]|[A-Za-z]:\\", text):
        return ModelRef("folder", text)
    repo, revision = hub.parse(text)
    return ModelRef("hub", repo, "" if revision == "main" else revision)


def stored_bytes(ref: ModelRef) -> int:
    """The bytes of its weights on disk; 0 where there are none."""
    folders = {"embedded": minilm_folder, "lab": lambda: LAB_MODELS / ref.name, "folder": lambda: Path(ref.name),
               "hub": lambda: model_storage.model_folder(ref.name, ref.revision)}
    if ref.source not in folders:
        return 0
    return sum(file.stat().st_size for file in folders[ref.source]().glob("*.safetensors"))


def load_model(ref: ModelRef) -> Pretrained:
    """The model, from memory where it is there; PretrainedError says why it cannot be had."""
    return model(_load, ref)


def _load(ref: ModelRef) -> Pretrained:
    if ref.source == "embedded":
        return load_minilm()
    if ref.source == "lab":
        return load_lab_model(ref.name)
    if ref.source == "array":
        raise PretrainedError("These are arrays without a model; choose a model for what needs one.")
    with wrap_errors(f"{ref.name} cannot be loaded"):
        if ref.source == "folder":
            return load_folder(Path(ref.name), Path(ref.name).name)
        return hub.load(ref.name, ref.revision)


def reading_of(ref: ModelRef, given: ModelInputs) -> Reading:
    """The model's reading of what it is given, shared by all sessions; never change it."""
    return uploads.reading(ref.name) if ref.source == "array" else shared(_read, ref, given)


def _read(ref: ModelRef, given: ModelInputs) -> Reading:
    pretrained = load_model(ref)
    with wrap_errors(f"{ref.name} cannot read this"):
        return read(pretrained, given)
