"""Copies of runs: a run of one's own, or that of another person to which one has the link."""

from __future__ import annotations

from core.training.run_storage import duplicate, size
from core.training.runs import Run
from dashboard.runtime import limits, people


def copy_run(run: Run, name: str) -> Run:
    """A copy among the runs of the person who asks. LimitReached, and ConfigError for a run that cannot be read."""
    limits.make_room(size(run), source=run)
    copied = duplicate(run, name)
    if not people.mine(run):
        copied.update_metadata(parent=None)  # its id would open another run of that person
    return copied
