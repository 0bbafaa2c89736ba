"""What the server says of a run whose worker ended without a word."""

from __future__ import annotations

from core import memory
from core.claims import run as claim_run
from core.corpus import run as corpus_run
from core.training.runs import Run

_kills: dict[Run, float] = {}  # how often memory had run out when each run began here


def note_start(run: Run) -> None:
    """Note the start of a run, by which its end for want of memory is known."""
    _kills[run] = memory.out_of_memory_kills()


def last_words(run: Run) -> str:
    """Whether it was stopped or memory ran out, and how much of it is saved."""
    reached = _reached(run)
    saved = f"everything up to {reached} is saved" if reached else "nothing was measured yet"
    if run.stop_request():
        return f"Stopped; {saved}."
    if memory.out_of_memory_kills() > _kills.pop(run, float("inf")):
        return ("The machine's memory ran out, and the system ended the worker. Take a smaller model or batch, or end "
                f"other runs; {saved}.")
    return f"The worker ended without a message; {saved}."


def _reached(run: Run) -> str:
    """How far a run's folder is; empty before its first result."""
    if corpus_run.is_corpus(run):
        texts = corpus_run.load(run).texts
        return f"text {texts:,}" if texts else ""
    if claim_run.is_claim(run):
        cells = len(claim_run.load_cells(run))
        return f"part {cells:,}" if cells else ""
    records = run.records()
    return f"step {records[-1].step:,}" if records else ""
