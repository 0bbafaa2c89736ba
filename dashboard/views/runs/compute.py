"""The search in the list of runs, and what the page shows of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.files import runs_folder
from core.runs.index import RunIndex, open_index
from core.runs.runs import Run, size
from dashboard.runtime.run_data import EXAMPLE_RUNS, RunSummary, describe, summarize

ROWS = 50  # of the list at once


@dataclass(frozen=True)
class Board:
    """The ids of the runs that match a search, the newest first, examples last; the selected ones among them, or the
    first that has measured something, and what they are compared with; how many linked runs are missing; and of all
    own runs the number, the bytes, how many the search does not know yet, and whether one has not ended."""

    ids: tuple[str, ...]
    selected: tuple[RunSummary, ...]
    others: tuple[RunSummary, ...]
    missing: int
    own: int
    bytes: int
    unread: int
    live: bool

    @property
    def pages(self) -> int:
        return -(-len(self.ids) // ROWS)

    def rows(self, page: int) -> list[RunSummary]:
        """The runs on a page of the list, from 1."""
        return [summarize(_run(name)) for name in self.ids[(page - 1) * ROWS : page * ROWS]]


def load_board(query: str, linked: Sequence[str]) -> Board:
    """The runs that match the query, and those of the link."""
    words = query.casefold().split()
    with open_index(runs_folder()) as index:
        unread = index.fill(lambda name: describe(Run(index.root / name)))
        examples = [run.id for run in EXAMPLE_RUNS if _matches(run, words)]
        ids = (*index.search(words), *examples)
        here = {*index.ids(), *(run.id for run in EXAMPLE_RUNS)}
        measured = index.first_measured(words)
        selected = [name for name in ids if name in set(linked)] or [
            measured or name for name in ids[:1]
        ]
        if measured is None and examples and not set(linked) & set(ids):
            selected = examples[:1]
        items = tuple(summarize(_run(name)) for name in selected)
        return Board(
            ids,
            items,
            tuple(_others(index, items)),
            len(set(linked) - here),
            index.count(),
            sum(index.sizes(lambda path: size(Run(path))).values()),
            unread,
            bool(unread or index.unfinished()),
        )


def _run(name: str) -> Run:
    return next((run for run in EXAMPLE_RUNS if run.id == name), None) or Run(runs_folder() / name)


def _matches(run: Run, words: Sequence[str]) -> bool:
    text = describe(run).text
    return all(word in text or word == run.id for word in words)


def _others(index: RunIndex, items: Sequence[RunSummary]) -> list[RunSummary]:
    """The best own run of the first one's task with other settings, and the examples."""
    details = describe(items[0].run) if items else None
    best = (
        index.best(details.task, details.config)
        if details and details.task and details.config
        else None
    )
    return [summarize(run) for run in (*([Run(index.root / best)] if best else []), *EXAMPLE_RUNS)]
