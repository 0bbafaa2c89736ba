"""Sentences of the page Report."""

from __future__ import annotations

from core.files import hosted
from dashboard.draw.formats import byte_size, number
from dashboard.runtime.reports import MOST_BYTES, MOST_REPORTS, MOST_VIEWS, Report

LEAD = "Collect views from any page, with their sentences and your notes, and take them as one HTML or PDF file."
EMPTY = (
    "Your report is empty. Press **Export** beside the title of any page, pick a picture, and press "
    "**Add to report**. A view in a report looks like this:"
)
EXAMPLE_NOTE = "Your own note stands here."
TITLE = "A report from Attention Lab"


def room(report: Report, taken: int) -> str:
    """How full the report is, and where it is stored."""
    count = len(report.views)
    whose = (
        "only you can open and change it"
        if hosted()
        else "this browser and whoever has the link of this page can open and change it"
    )
    return (
        f"{count} of at most {MOST_VIEWS} view{'' if count == 1 else 's'}, {byte_size(taken)} of at most "
        f"{byte_size(MOST_BYTES)}. The report is stored on the server: {whose}. The server holds at most "
        f"{MOST_REPORTS} reports and deletes the oldest, so take the file, too."
    )


def example_sentence(before: float, after: float, uniform: float, steps: int) -> str:
    """What the attention of the example run does after its training."""
    return (
        f"After {steps:,} steps of training, this head puts {number(after)} of its weight on the letter that the "
        f"output copies, and {number(before)} before; even attention would give it {number(uniform)}."
    )
