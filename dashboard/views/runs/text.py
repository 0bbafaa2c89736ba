"""What the Runs page says, as text; makes no st call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from core.attention.config import entry
from core.finetune.config import FineTuneConfig
from core.finetune.models import name_of as model_name
from core.models import ModelConfig
from core.tasks import task_entry
from core.training.config import RunConfig
from core.training.machine import line
from core.training.run_storage import GRACE, MAX_RUNS
from dashboard.charts.numbers import byte_size, duration, number, percent
from dashboard.widgets.panels import plain

if TYPE_CHECKING:
    from dashboard.runtime.run_summary import Summary

EXAMPLE = " (example)"
MODELS = {"transformer": "Transformer", "decoder": "decoder only", "classifier": "classifier", "one_token": "one token",
          "forecaster": "forecaster", "recurrent": "recurrent", "hybrid": "hybrid"}
STATES = {"queued": "waiting", "starting": "starting", "running": "running", "paused": "paused", "stopped": "stopped",
          "finished": "finished", "failed": "failed"}


def model(config: ModelConfig) -> str:
    """A model in few words: its kind, and what its attention is where that is not the usual one."""
    attention = config.attention
    if attention is None:
        return f"{MODELS[config.kind]}, no attention"
    unusual = [entry(axis, getattr(attention, axis).key).name for axis, usual in
               (("score", "scaled_dot"), ("normalizer", "softmax"), ("mask", "none"), ("kernel", "exact"))
               if getattr(attention, axis).key != usual]
    return ", ".join([MODELS[config.kind], *(name[0].lower() + name[1:] for name in unusual[:2])])


def tuned_task(tuned: FineTuneConfig | None) -> str:
    """What a pretrained model goes on learning."""
    return "–" if tuned is None else {"classify": "fine-tuned on labels", "pairs": "fine-tuned on pairs"}[tuned.task]


def name_of(config: RunConfig | None, example: bool, tuned: FineTuneConfig | None = None) -> str:
    """What a run is called that nobody named."""
    if tuned is not None:
        return f"{model_name(tuned.model)}, {tuned_task(tuned)}"
    if config is None:
        return "unreadable"
    name = f"{task_entry(config.task.key).name}: {model(config.model)}"
    return f"{name}{EXAMPLE}" if example else name


def matches(item: Summary, asked: str) -> bool:
    """Whether every word that was typed stands somewhere in what is known of a run."""
    known = [item.name, item.task, STATES.get(item.status.state, ""), item.parent, item.sweep]
    if item.config is not None:
        known += [model(item.config.model), item.config.task.key, item.config.optimizer, f"seed {item.config.seed}"]
    text = " ".join(known).casefold()
    return all(word in text or word == item.run.id for word in asked.casefold().split())


def room(items: Sequence[Summary], most: int) -> str:
    """How much room the runs take, and what happens when it is too much."""
    own = [item for item in items if not item.example]
    used = sum(item.bytes for item in own)
    count = f"{len(own)} run{'s' if len(own) != 1 else ''} of yours" if own else "No run of yours yet"
    return (f"{count}, {byte_size(used)} of {byte_size(most)}. At most {MAX_RUNS} are kept; when it gets too much, the "
            f"oldest without a name go first. A deleted run can be brought back for {GRACE / 3600:.0f} hour.")


def result(item: Summary) -> str:
    """What a run reached, in a few words."""
    if item.last is None or (item.last.exact is None and item.last.error is None):
        return f"a loss of {number(item.loss)}" if item.loss is not None else "nothing measured yet"
    if item.last.error is not None:
        return f"{percent(item.last.error)} of the error of repeating the last season"
    said = f"{percent(item.last.exact or 0.0)} exact"
    scores = (("BLEU", item.last.bleu), ("chrF", item.last.chrf))
    return ", ".join([said, *(f"{name} {value:.0f}" for name, value in scores if value is not None)])


def fact(picked: Sequence[Summary], items: Sequence[Summary]) -> str:
    """The measured sentence: what the picked run reached, beside the best other one of the same task."""
    first = picked[0]
    text = (f":primary[**{plain(first.name)}**] reaches **{plain(result(first))}** after {first.steps:,} steps, "
            f"{duration(first.trained)} of training")
    other = rival(first, [*picked[1:]] or items)
    if other is None:
        return text + "."
    return (f"{text}; **{plain(other.name)}** reaches {plain(result(other))} after {other.steps:,} steps, "
            f"{duration(other.trained)}.")


def rival(item: Summary, items: Sequence[Summary]) -> Summary | None:
    """Of the runs of the very same task that were trained in another way, the one that did best."""
    if item.config is None or item.last is None:
        return None
    same = [other for other in items if other.run != item.run and other.config is not None
            and other.config.task == item.config.task and other.config != item.config and other.last is not None]
    return max(same, key=lambda other: (_score(other), -other.trained), default=None)


def _score(item: Summary) -> float:
    assert item.last is not None
    return -item.last.error if item.last.error is not None else item.last.exact or 0.0


def state(item: Summary) -> str:
    """How a run stands, and at which step of how many."""
    said = STATES.get(item.status.state, item.status.state)
    if item.live and item.asked_steps and item.steps:
        return f"{said}, {percent(item.steps / item.asked_steps)}"
    return said


def about(item: Summary) -> str:
    """The line under the name: how it stands, what was kept of it, where it comes from."""
    parts = [item.status.message or state(item)]
    if item.kept:
        parts.append(f"weights kept at {len(item.kept)} step{'s' if len(item.kept) != 1 else ''}")
    if item.parent:
        parts.append(f"forked from {item.parent}")
    if machine := line(item.run.metadata().get("machines")):
        parts.append(f"trained on {machine}")
    parts.append(byte_size(item.bytes))
    return " · ".join(part.rstrip(".") for part in parts) + "."
