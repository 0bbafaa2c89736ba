"""Names of models and of runs."""

from __future__ import annotations

from core.attention.config import entry
from core.finetune.config import FineTuneConfig
from core.finetune.models import name_of as pretrained_name
from core.models import ModelConfig
from core.tasks import task_entry
from core.training.config import RunConfig

EXAMPLE = " (example)"
STATES = {
    "queued": "waiting",
    "starting": "starting",
    "running": "running",
    "paused": "paused",
    "stopped": "stopped",
    "finished": "finished",
    "failed": "failed",
}
MODEL_NAMES = {
    "transformer": "Transformer, encoder–decoder",
    "decoder": "Transformer, decoder only",
    "classifier": "Transformer, classifier",
    "one_token": "Classifier, row as one token",
    "forecaster": "Transformer, forecaster",
    "recurrent": "Recurrent, encoder–decoder",
    "hybrid": "Hybrid: LSTM and attention",
    "hierarchical": "Hierarchical classifier",
}
SHORT_NAMES = {
    "transformer": "Transformer",
    "decoder": "decoder only",
    "classifier": "classifier",
    "one_token": "one token",
    "forecaster": "forecaster",
    "recurrent": "recurrent",
    "hybrid": "hybrid",
    "hierarchical": "hierarchical",
}


def model_label(config: ModelConfig) -> str:
    """A model in few words: its kind, and what of its attention is not the default, or how many unlike ones it has."""
    attention = config.attention
    if (count := len(set(config.pattern))) > 1:
        return f"{SHORT_NAMES[config.kind]}, {count} attentions in a pattern"
    if attention is None:
        return f"{SHORT_NAMES[config.kind]}, no attention"
    unusual = [
        entry(axis, getattr(attention, axis).key).name
        for axis, usual in (
            ("score", "scaled_dot"),
            ("normalizer", "softmax"),
            ("mask", "none"),
            ("kernel", "exact"),
        )
        if getattr(attention, axis).key != usual
    ]
    return ", ".join(
        [SHORT_NAMES[config.kind], *(name[0].lower() + name[1:] for name in unusual[:2])]
    )


def fine_tune_label(config: FineTuneConfig | None) -> str:
    """What a pretrained model is fine-tuned on."""
    return (
        "–"
        if config is None
        else {"classify": "fine-tuned on labels", "pairs": "fine-tuned on pairs"}[config.task]
    )


def run_label(
    config: RunConfig | None, example: bool, fine_tune: FineTuneConfig | None = None
) -> str:
    """The default name of a run."""
    if fine_tune is not None:
        return f"{pretrained_name(fine_tune.model)}, {fine_tune_label(fine_tune)}"
    if config is None:
        return "unreadable"
    name = f"{task_entry(config.task.key).name}: {model_label(config.model)}"
    return f"{name}{EXAMPLE}" if example else name
