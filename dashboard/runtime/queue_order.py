"""The order of the queue, in which people take turns, and how long a run waits."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from core.attention import ConfigError
from core.files import hosted
from core.training.config import RunConfig
from core.training.runs import Run
from dashboard.runtime import people
from dashboard.runtime.limits import limits, most_seconds
from dashboard.runtime.people import owner

KNOWN_CAP = 300.0  # seconds up to which a run's own limit says how long it takes


class Place(NamedTuple):
    """A run's place in the queue, from 1, and the seconds until it begins; None where nothing tells them."""

    number: int
    seconds: float | None


def queue() -> tuple[list[Run], list[Run]]:
    """The queued runs of everybody in order, and those that workers have."""
    states = [(run, run.status()) for run in people.unfinished_runs()]
    busy = [run for run, status in states if not status.ended and status.state != "queued"]
    return in_turn([(run, status.at) for run, status in states if status.state == "queued"], busy), busy


def in_turn(queued: Sequence[tuple[Run, float]], busy: Iterable[Run]) -> list[Run]:
    """The queued runs, each with when it was queued, in order: people take turns, those who have runs under way later.

    Of one person single runs come before a sweep's, then the earlier ones: the whole order where this is no public
    copy, as all are one person.
    """
    turns: Counter[str] = Counter(owner(run) for run in busy)
    places: list[tuple[int, float, Run]] = []
    for run, at in sorted(queued, key=lambda pair: ("sweep" in pair[0].metadata(), pair[1])):
        places.append((turns[owner(run)], at, run))
        turns[owner(run)] += 1
    return [run for _, _, run in sorted(places, key=lambda place: place[:2])]


def place_of(run: Run, waiting: Sequence[Run], busy: Sequence[Run], workers: int) -> Place | None:
    """The place of a run in the queue; None where it does not wait."""
    if run not in waiting:
        return None
    ahead = waiting[: waiting.index(run)]
    return Place(len(ahead) + 1, seconds_until_free(ahead, busy, workers))


def seconds_until_free(ahead: Sequence[Run], busy: Sequence[Run], workers: int) -> float | None:
    """Seconds until a worker is free for the next run: each run ahead takes the first worker that is free."""
    paces = _paces(busy)
    left = [_seconds_left(run, paces) for run in (*busy, *ahead)]
    known = [seconds for seconds in left if seconds is not None]
    if len(known) < len(left):
        return None
    workers = max(1, workers)
    free = sorted([*known[: len(busy)], *[0.0] * (workers - len(busy))])[-workers:]
    for seconds in known[len(busy) :]:
        heapq.heapreplace(free, free[0] + seconds)
    return free[0]


Kind = tuple[str, str]  # of a run: its task and its type of model


def _paces(busy: Iterable[Run]) -> dict[Kind, float]:
    """Seconds a step, of the runs that train now."""
    paces: dict[Kind, list[float]] = defaultdict(list)
    for run in busy:
        config, records = _config(run), run.records()
        if config is not None and records and records[-1].step:
            paces[_kind(config)].append(records[-1].elapsed / records[-1].step)
    return {kind: sum(values) / len(values) for kind, values in paces.items()}


def _seconds_left(run: Run, paces: dict[Kind, float]) -> float | None:
    """Seconds that a run still takes: by its pace or that of its kind, at most its limit; None where none is known."""
    config = _config(run)
    if config is None:  # of a corpus, a claim or a pretrained model
        return float(limits().seconds) if hosted() else None
    last = next(reversed(run.records()), None)
    cap = min(config.seconds, most_seconds()) - (last.elapsed if last else 0.0)
    pace = last.elapsed / last.step if last and last.step else paces.get(_kind(config))
    if pace is None:
        return max(0.0, cap) if cap <= KNOWN_CAP else None
    return max(0.0, min(cap, (config.steps - (last.step if last else 0)) * pace))


def _config(run: Run) -> RunConfig | None:
    try:
        return run.config()
    except (ConfigError, TypeError, ValueError, KeyError):
        return None


def _kind(config: RunConfig) -> Kind:
    return config.task.key, config.model.kind
