"""Runs: the names and numbers of its list, and its sentences."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from core.runs.ray_queue import ClusterState
from core.studies.runs import RunSummary, rival
from dashboard.draw.formats import STATES, byte_size, duration, number, percent, plain


def names_of(items: Sequence[RunSummary]) -> list[str]:
    """The name of each run; of several with one name, with the settings in which they differ."""
    settings = [settings_of(item) for item in items]
    values: dict[tuple[str, str], set[float | None]] = defaultdict(set)  # by name and setting
    for item, own in zip(items, settings, strict=True):
        for key in SETTINGS:
            values[item.name, key].add(own.get(key))
    labels = [
        item.name
        + "".join(f" · {key} {own[key]:g}" for key in own if len(values[item.name, key]) > 1)
        for item, own in zip(items, settings, strict=True)
    ]
    counts, numbered = Counter[str](), list[str]()
    for label in reversed(labels):
        counts[label] += 1
        numbered.append(f"{label} ({counts[label]})" if counts[label] > 1 else label)
    return numbered[::-1]  # the oldest has no number


SETTINGS = ("seed", "d_model", "layers", "steps", "learning rate")


def settings_of(item: RunSummary) -> dict[str, float]:
    """The settings that a name may say; none of a run without a config."""
    if not (config := item.config):
        return {}
    model = config.model
    sizes = config.seed, model.d_model, model.layers, config.steps, config.learning_rate
    return dict(zip(SETTINGS, sizes, strict=True))


def result_text(item: RunSummary) -> str:
    if item.last is None:
        return (
            "no measurement yet"
            if item.loss is None
            else f"a validation loss of {number(item.loss)}"
        )
    if item.last.error is not None:
        return f"{percent(item.last.error)} of the error of repeating the last season"
    scores = {"BLEU": item.last.bleu, "chrF": item.last.chrf}
    measured = (f"{name} {value:.0f}" for name, value in scores.items() if value is not None)
    return ", ".join([f"{percent(item.last.sequence_accuracy or 0.0)} accuracy", *measured])


def fact_text(selected: Sequence[RunSummary], items: Sequence[RunSummary]) -> str:
    first = selected[0]
    text = (
        f":primary[**{plain(first.name)}**] has **{plain(result_text(first))}** after {first.steps:,} steps, "
        f"{duration(first.train_seconds)} of training"
    )
    if other := rival(first, selected[1:] or items):
        text += (
            f"; **{plain(other.name)}** has {plain(result_text(other))} after {other.steps:,} steps, "
            f"{duration(other.train_seconds)}"
        )
    return f"{text}."


def state_text(item: RunSummary) -> str:
    name, planned = STATES.get(item.status.state, item.status.state), item.planned_steps
    return (
        f"{name}, {percent(item.steps / planned)}" if item.live and planned and item.steps else name
    )


def cluster_text(state: ClusterState) -> str:
    if not state.reachable:
        return plain(state.message)
    (cpus, gpus, memory), (free_cpus, free_gpus, free_memory) = state.has, state.free
    gpu_text = f", {free_gpus:g} of {gpus:g} GPUs" if gpus else ""
    end = "s" if len(state.nodes) != 1 else ""
    return (
        f"Runs train on a Ray cluster of {len(state.nodes)} machine{end} (node{end} "
        f"{plain(', '.join(state.nodes))}). Free: {free_cpus:g} of {cpus:g} CPUs{gpu_text}, "
        f"{byte_size(free_memory)} of {byte_size(memory)} of memory."
    )


def store_text(label: str, waiting: int, elsewhere: int, trouble: str) -> str:
    """What the store of runs has, and how much waits to be copied there."""
    if trouble:
        return f"{trouble} Training goes on here, and what is new is copied once the store answers."
    copied, more = "all are copied", ""
    if waiting:
        copied = f"{waiting} wait{'s' if waiting == 1 else ''} to be copied"
    if elsewhere:
        more = f" {elsewhere:,} more run{' is' if elsewhere == 1 else 's are'} only there."
    return (
        f"Runs, measurements, sweeps and reports are copied to the store {label}; {copied}.{more}"
    )
