"""Runs: the names and numbers of its list, and its sentences."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from core.attention import AXES, entry
from core.runs.ray_queue import ClusterState
from core.studies.runs import MISSING, RunSummary, differing, rival
from dashboard.draw.figures import Ink, Spec
from dashboard.draw.formats import STATES, byte_size, cut, duration, number, percent, plain, plural
from dashboard.draw.train import parts_chart


def names_of(items: Sequence[RunSummary], names: Sequence[str] = ()) -> list[str]:
    """The name of each run, or the one that `names` has for it; of several with one name, with the settings in which
    they differ, else the time of each."""
    result, groups = list(names or [item.name for item in items]), defaultdict[str, list[int]](list)
    for at, name in enumerate(result):
        groups[name].append(at)
    for same in (places for places in groups.values() if len(places) > 1):
        configs = {at: each for at in same if (each := items[at].config or items[at].tuned)}
        apart = list(differing([*configs.values()]).items())[:3]
        for index, at in enumerate(configs):
            words = (setting_text(name, texts[index]) for name, texts in apart)
            result[at] = " · ".join([result[at], *filter(None, words)])
        labels = [result[at] for at in same]
        for at, label in zip(same, labels, strict=True):
            if labels.count(label) > 1:
                result[at] += f" · {'example' if items[at].example else items[at].run.id[9:]}"
    return result


def setting_text(name: str, text: str) -> str:
    """What a setting of a run says in its name: without positions, 4 heads, RoPE, learning rate 0.05."""
    if text == "none":
        return f"without {'positions' if name == 'position' else name}"
    if name in AXES:
        return entry(name, text).name
    if text.isdecimal() and name.endswith("s"):
        return plural(int(text), name.removesuffix("s"))
    return "" if text == MISSING else f"{name} {cut(text, 20)}"


def result_text(item: RunSummary) -> str:
    if item.watched is not None and item.watched.diverged is not None:
        first, last = item.watched.diverged
        return f"a loss that is NaN or infinite from between steps {first:,} and {last:,}"
    if item.last is None:
        return (
            "no measurement yet"
            if item.loss is None
            else f"a {item.loss_name} of {number(item.loss)}"
        )
    if item.last.error is not None:
        return f"{percent(item.last.error)} of the error of repeating the last season"
    scores = {"BLEU": item.last.bleu, "chrF": item.last.chrf}
    measured = (f"{name} {value:.0f}" for name, value in scores.items() if value is not None)
    return ", ".join([f"{percent(item.last.sequence_accuracy or 0.0)} accuracy", *measured])


def fact_text(selected: Sequence[RunSummary], items: Sequence[RunSummary]) -> str:
    first = selected[0]
    text = (
        f":primary[**{plain(first.name)}**] has **{plain(result_text(first))}** after {plural(first.steps, 'step')}, "
        f"{duration(first.train_seconds)} of training"
    )
    if other := rival(first, selected[1:] or items):
        text += (
            f"; **{plain(other.name)}** has {plain(result_text(other))} after {plural(other.steps, 'step')}, "
            f"{duration(other.train_seconds)}"
        )
    return f"{text}."


def norms_chart(gradients: Mapping[str, float], ink: Ink) -> Spec:
    """The gradient norm of each part of a model that is not ours, by the part's own name."""
    return parts_chart(gradients, ink, str)


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
