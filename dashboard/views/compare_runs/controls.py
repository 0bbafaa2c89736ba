"""Which runs are compared: those that the link names, or the two that come with the lab."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import streamlit as st

from core.training.record import Record
from dashboard.runtime.example_runs import EXAMPLE_RUNS
from dashboard.runtime.run_data import RunData, load_run
from dashboard.runtime.run_summary import RunSummary, rival

LINK, LAST = "runs", "compare_runs:last"
MOST = 4
LONGEST = 30  # characters of a name beside a curve


@dataclass(frozen=True)
class ComparedRun:
    """One of the runs: its place, which is its colour and its marker, and all that was read of it."""

    place: int
    item: RunSummary
    shown: RunData
    name: str

    @property
    def records(self) -> tuple[Record, ...]:
        return self.shown.records


def linked_ids() -> list[str]:
    """The names in the link; without any, those that this session compared last."""
    given = st.query_params.get(LINK) or st.session_state.get(LAST) or ""
    return list(dict.fromkeys(name for name in given.split(",") if name))


def choose(names: Sequence[str]) -> None:
    """Put the compared runs into the link."""
    st.query_params[LINK] = st.session_state[LAST] = ",".join(names)


def runs_to_compare(every: Sequence[RunSummary]) -> tuple[list[RunSummary], str]:
    """Two to four runs to compare, and words about what the link names and cannot have."""
    there = {item.run.id: item for item in every}
    ids = linked_ids()
    chosen = [there[name] for name in ids if name in there and there[name].config is not None]
    messages = []
    if missing := len(ids) - len(chosen):
        messages.append(f"{missing} of the runs in the link {'is' if missing == 1 else 'are'} not on this machine, or "
                    "cannot be read.")
    if len(chosen) > MOST:
        messages.append(f"At most {MOST} runs stand side by side; these are the first {MOST}.")
    examples = [there[run.id] for run in EXAMPLE_RUNS]
    while len(chosen) < 2:
        other = rival(chosen[0], every) if ids and chosen else None
        chosen.append(other or next(item for item in examples if item not in chosen))
    return chosen[:MOST], " ".join(messages)


def sides(chosen: Sequence[RunSummary]) -> list[ComparedRun]:
    return [ComparedRun(place, item, load_run(item.run), name)
            for place, (item, name) in enumerate(zip(chosen, names(chosen), strict=True))]


def names(chosen: Sequence[RunSummary]) -> list[str]:
    """Names short enough to stand beside a curve, all different; a task that all of them learn needs no saying."""
    same = len({item.task for item in chosen}) == 1
    names: list[str] = []
    for item in chosen:
        name = item.plain_name
        if same and not item.named:
            name = name.removeprefix(f"{item.task}: ")
            name = name[:1].upper() + name[1:]
        name = name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"
        names.append(name if name not in names else f"{name} ({len(names) + 1})")
    return names


Value = Callable[[Record], float | None]


def expected(record: Record) -> float | None:
    """The weight on the expected place in the head that puts most there."""
    return max(map(max, record.expected)) if record.expected else None


def latest(records: Sequence[Record], value: Value, until: Callable[[Record], bool]) -> float | None:
    """The last value measured while `until` held."""
    values = (value(record) for record in reversed(records) if until(record))
    return next((each for each in values if each is not None), None)
