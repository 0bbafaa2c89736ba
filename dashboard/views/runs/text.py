"""The sentences of the page Runs; makes no st call."""

from __future__ import annotations

from collections.abc import Sequence

from core.files import hosted
from core.runs.machine import line
from core.runs.ray_queue import ClusterState
from core.runs.runs import GRACE, MAX_RUNS, most_bytes
from core.runs.store import StoredRun
from dashboard.draw.formats import byte_size, duration, number, percent
from dashboard.runtime.jobs import node_text
from dashboard.runtime.run_data import STATES, RunSummary, rival
from dashboard.server.limits import MB, at_most, limits
from dashboard.widgets.panels import plain


def lead() -> str:
    """Whose runs the page lists."""
    whose = "every run of yours" if hosted() else "every run of this machine"
    return f"You will find {whose} here: rename it, continue it, compare it or download it."


def forgetting(known: bool) -> str:
    """What a public copy stores of a person, and for how long; `known` is whether a cookie tells them again."""
    now = limits()
    cookie = (
        "A cookie with a random number knows this browser again"
        if known
        else "This browser sends no cookie, so that a reload makes you another person, without these runs"
    )
    return (
        "This is a public copy of the lab. Nobody else sees your runs, except where you give them a link: then "
        f"they can look at that run and copy it. You have {byte_size(now.megabytes * MB)} for runs, reports and "
        f"data, and {now.uploads} uploads an hour of at most {byte_size(now.upload_megabytes * MB)}. "
        f"All is deleted {now.hours} h after your last visit and your last run: download what you want to keep. "
        f"{cookie}."
    )


def room(own: int, used: int) -> str:
    """The number and bytes of a person's runs, and which runs are deleted when the disk space is full."""
    most = at_most("megabytes", most_bytes() // MB) * MB
    count = (
        f"{own:,} run{'s' if own != 1 else ''} of your own" if own else "No runs of your own yet"
    )
    number = at_most("runs", MAX_RUNS)
    return (
        f"{count}, {byte_size(used)} of {byte_size(most)}. At most {number:,} are stored; at the limit, "
        f"the oldest unnamed runs are deleted. A deleted run can be restored for {GRACE / 3600:.0f} hour."
    )


def missing(count: int) -> str:
    """A warning about selected runs that are not here."""
    if not count:
        return ""
    runs = "A run in the link is" if count == 1 else f"{count} runs in the link are"
    return f"{runs} not on this machine, or {'was' if count == 1 else 'were'} deleted."


def store(label: str, waiting: int, elsewhere: int, trouble: str) -> str:
    """Where runs are copied to, and what is not copied yet."""
    if trouble:
        return f"{trouble} Training goes on here, and what is new is copied once the store answers."
    late = (
        f"{waiting} wait{'s' if waiting == 1 else ''} to be copied" if waiting else "all are copied"
    )
    more = (
        f" {elsewhere:,} more run{' is' if elsewhere == 1 else 's are'} only there."
        if elsewhere
        else ""
    )
    return f"Runs, measurements, sweeps and reports are copied to the store {label}; {late}.{more}"


def stored(row: StoredRun) -> str:
    """A run of the store in a menu."""
    return f"{row.name or row.id} · {STATES.get(row.state, row.state)} · {row.server} · {byte_size(row.bytes)}"


def unread(count: int) -> str:
    """That the search does not know all runs yet."""
    return (
        f"The list is being read again: a search does not find {count:,} of the older runs yet."
        if count
        else ""
    )


def result(item: RunSummary) -> str:
    """The result of a run in a few words."""
    if item.last is None or (item.last.exact is None and item.last.error is None):
        return (
            f"a validation loss of {number(item.loss)}"
            if item.loss is not None
            else "no measurement yet"
        )
    if item.last.error is not None:
        return f"{percent(item.last.error)} of the error of repeating the last season"
    share = f"{percent(item.last.exact or 0.0)} accuracy"
    scores = (("BLEU", item.last.bleu), ("chrF", item.last.chrf))
    return ", ".join(
        [share, *(f"{name} {value:.0f}" for name, value in scores if value is not None)]
    )


def fact(selected: Sequence[RunSummary], items: Sequence[RunSummary]) -> str:
    """The result of the selected run, compared with the best other one of the same task."""
    first = selected[0]
    text = (
        f":primary[**{plain(first.name)}**] reaches **{plain(result(first))}** after {first.steps:,} steps, "
        f"{duration(first.trained)} of training"
    )
    other = rival(first, selected[1:] or items)
    if other is None:
        return text + "."
    return (
        f"{text}; **{plain(other.name)}** reaches {plain(result(other))} after {other.steps:,} steps, "
        f"{duration(other.trained)}."
    )


def state(item: RunSummary) -> str:
    """The state of a run, and its share of the planned steps."""
    name = STATES.get(item.status.state, item.status.state)
    if item.live and item.planned_steps and item.steps:
        return f"{name}, {percent(item.steps / item.planned_steps)}"
    return name


def cluster(state: ClusterState) -> str:
    """What the cluster has and has free, in Markdown."""
    if not state.reachable:
        return plain(state.message)
    free = [f"{state.free_cpus:g} of {state.cpus:g} CPUs"]
    if state.gpus:
        free.append(f"{state.free_gpus:g} of {state.gpus:g} GPUs")
    free.append(f"{byte_size(state.free_memory)} of {byte_size(state.memory)} of memory")
    count = f"{len(state.nodes)} machine{'s' if len(state.nodes) != 1 else ''}"
    nodes = f"node{'s' if len(state.nodes) != 1 else ''} {plain(', '.join(state.nodes))}"
    return f"Runs train on a Ray cluster of {count} ({nodes}). Free: {', '.join(free)}."


def about(item: RunSummary) -> str:
    """State, saved weights, origin, machine and size of a run."""
    parts = [item.status.message or state(item)]
    if count := len(item.checkpoint_steps):
        parts.append(f"weights saved at {count} step{'s' if count != 1 else ''}")
    if item.parent:
        parts.append(f"forked from {item.parent}")
    if machine := line(item.run.metadata().get("machines")):
        parts.append(f"trained on {machine}")
    if nodes := node_text(item.run.metadata()):
        parts.append(nodes)
    parts.append(byte_size(item.bytes))
    return " · ".join(part.rstrip(".") for part in parts) + "."
