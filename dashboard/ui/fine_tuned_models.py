"""The models before and after a fine-tuning run, and what they make of a sentence."""

from __future__ import annotations

from pathlib import Path

from core.interpret.trace import AttentionTrace
from core.pretrained import ModelInputs, hub
from core.pretrained.finetune import LAB, MINILM
from dashboard.runtime.fine_tune_data import FineTuneData
from dashboard.runtime.model_folders import folder_name, folder_of
from dashboard.widgets.model_picker.models import EMBEDDED, ModelRef, load_model, reading_of


def before(model: str) -> ModelRef:
    """The model that a run started from."""
    if model == MINILM:
        return EMBEDDED
    if model.startswith(LAB):
        return ModelRef("lab", model.removeprefix(LAB))
    return ModelRef("folder", folder_name(Path(model)))


def config_name(ref: ModelRef) -> str:
    """A model's name in a run's config, which `before` reads."""
    if ref.source == "hub":
        return str(hub.model_folder(ref.name, ref.revision))
    if ref.source == "folder":
        return str(folder_of(ref.name))
    return {"embedded": MINILM, "lab": f"{LAB}{ref.name}"}.get(ref.source, ref.name)


def after(data: FineTuneData) -> ModelRef | None:
    """The fine-tuned model of a run; None where none is saved."""
    folder = data.model
    if folder is None:
        return None
    changed = (folder / "model.safetensors").stat().st_mtime_ns
    return ModelRef("folder", folder_name(folder), str(changed))


def readings(data: FineTuneData, text: str) -> tuple[AttentionTrace, AttentionTrace] | None:
    """Both models' attention on the text; None without a second model. PretrainedError for an empty text."""
    ref = after(data)
    if ref is None or data.config is None:
        return None
    return reading_of(before(data.config.model), ModelInputs(text)).trace, reading_of(
        ref, ModelInputs(text)
    ).trace


def labels(data: FineTuneData, text: str) -> list[tuple[str, float]]:
    """The labels of the text by the fine-tuned model, with their probabilities, the likeliest first."""
    from core.pretrained import answer

    ref = after(data)
    if ref is None:
        return []
    tuned = load_model(ref)
    probabilities = answer(tuned, ModelInputs(text)).probabilities
    if probabilities is None:
        return []
    names = tuned.model.config.id2label
    labels = [(str(names[index]), float(share)) for index, share in enumerate(probabilities)]
    return sorted(labels, key=lambda label: -label[1])
