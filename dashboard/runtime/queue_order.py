"""The order of the queue, in which people take turns, and how long a run waits."""

from __future__ import annotations

import heapq
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from core.attention import ConfigError
from core.files import hosted, server_folder
from core.training.config import RunConfig
from core.training.runs import Run
from dashboard.runtime import people
from dashboard.runtime.limits import limits, most_seconds
from dashboard.runtime.people import owner

KNOWN_CAP = 300.0  # seconds up to which a run's own limit says how long it takes
FRESH_SECONDS = 1.0


class Place(NamedTuple):
    """A run's place in the queue, from 1, and the seconds until it begins; None where nothing tells them."""

    number: int
    seconds: float | None


_places: tuple[Path | None, float, dict[Run, Place]] = (
    None,
    0.0,
    {},
)  # the folder, when they were read, and all of them


def queue() -> tuple[list[Run], list[Run]]:
    """The queued runs of everybody in order, and those that workers have."""
    states = [(run, run.status()) for run in people.unfinished_runs()]
    busy = [run for run, status in states if not status.ended and status.state != "queued"]
    return in_turn(
        [(run, status.at) for run, status in states if status.state == "queued"], busy
    ), busy


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


def place(run: Run, workers: int) -> Place | None:
    """The place of a run in the queue; None where it does not wait.

    The queue is read at most once in FRESH_SECONDS, however many sessions poll.
    """
    global _places
    if run.status().state != "queued":
        return None
    folder, at, known = _places
    if folder != server_folder() or run not in known or time.monotonic() - at > FRESH_SECONDS:
        known = places(*queue(), workers)
        _places = server_folder(), time.monotonic(), known
    return known.get(run)


def read_anew() -> None:
    """Read the queue for the next that asks: a run has left it."""
    global _places
    _places = None, 0.0, {}


def places(waiting: Sequence[Run], busy: Sequence[Run], workers: int) -> dict[Run, Place]:
    """The place of each waiting run: each takes the first worker that is free."""
    paces, workers = _paces(busy), max(1, workers)
    left = [_seconds_left(run, paces) for run in busy]
    known = [seconds for seconds in left if seconds is not None]
    free = (
        sorted([*known, *[0.0] * (workers - len(busy))])[-workers:]
        if len(known) == len(left)
        else []
    )
    order = {}
    for number, run in enumerate(waiting, 1):
        order[run] = Place(number, free[0] if free else None)
        seconds = _seconds_left(run, paces) if free else None
        if seconds is None:
            free = []  # nothing tells when those behind it begin
        else:
            heapq.heapreplace(free, free[0] + seconds)
    return order


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
