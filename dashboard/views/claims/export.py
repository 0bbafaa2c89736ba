"""A claim as a folder that a paper or a lesson can carry: config, numbers, figures, table, command and citations."""

from __future__ import annotations

import io
import re
import time
import zipfile

from core.claims import shipped
from core.claims.shipped import Shipped, versions
from core.runs.machine import machine
from dashboard.draw.pictures import figure_files
from dashboard.views.claims.charts import results_figure
from dashboard.views.claims.compute import ClaimResult, OwnRun


def as_shipped(own: OwnRun) -> Shipped:
    """A reader's own run with what a shipped result says of its measurement."""
    run, measured = own.group.runs[0], own.measured
    machines, created = (
        run.metadata().get("machines") or [machine("cpu")],
        float(run.metadata().get("created", 0)),
    )
    return Shipped(
        measured.settings,
        measured.results,
        time.strftime("%Y-%m-%d", time.gmtime(created)),
        machines[-1],
        versions(),
        shipped.command(measured.claim, measured.settings, measured.seeds),
        sum(cell.seconds for cell in measured.results.cells),
    )


def archive(result: Shipped, measured: ClaimResult) -> bytes:
    """The files of a result in a ZIP, in a folder with the claim's key."""
    claim, out = measured.claim, io.BytesIO()
    figures = {
        f"figure-{at}-{_slug(figure.measure)}": results_figure(
            figure, {"": measured}, "light", named=True
        )
        for at, figure in enumerate(claim.figures, 1)
    }
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in (shipped.text_files(claim, result) | figure_files(figures)).items():
            file.writestr(f"claim-{claim.key}/{name}", data)
    return out.getvalue()


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
