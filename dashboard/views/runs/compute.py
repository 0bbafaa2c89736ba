"""The search in the list of runs."""

from __future__ import annotations

from collections.abc import Sequence

from dashboard.runtime.run_labels import model_label
from dashboard.runtime.run_summary import RunSummary
from dashboard.views.runs.text import STATES


def search(items: Sequence[RunSummary], query: str) -> list[RunSummary]:
    """The runs that match the query."""
    return [item for item in items if _matches(item, query)]


def _matches(item: RunSummary, query: str) -> bool:
    """Whether each word of the query is in the run's name, task, state, origin or config, or is its id."""
    known = [item.name, item.task, STATES.get(item.status.state, ""), item.parent, item.sweep]
    if item.config is not None:
        config = item.config
        known += [model_label(config.model), config.task.key, config.optimizer, f"seed {config.seed}"]
    text = " ".join(known).casefold()
    return all(word in text or word == item.run.id for word in query.casefold().split())
