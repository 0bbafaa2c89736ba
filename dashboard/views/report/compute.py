"""The files of a report, and the view of an example run that an empty report shows."""

from __future__ import annotations

import datetime
from html import escape
from urllib.parse import urlencode

from core.tokens import token_text
from core.training.evaluate import best_head
from dashboard.draw.attention_view import READS
from dashboard.draw.html_file import Part, cell_text, page_html, scrolled, table_html
from dashboard.draw.maps import PictureMap
from dashboard.draw.picture_files import PICTURE_FONT as FONT
from dashboard.draw.picture_files import Entry, report_pdf
from dashboard.draw.pictures import MapsPicture, size_of, with_own_ids
from dashboard.navigation import step_of
from dashboard.runtime.attention_frames import head_over_time, steps_with_maps, tokens
from dashboard.runtime.reports import Report, ReportView
from dashboard.runtime.run_data import EXAMPLE_RUNS, load_run
from dashboard.views.report import text

MARGIN = 12  # pixels of paper around a drawing


def address(view: ReportView, base: str) -> str:
    """The link that opens a view again."""
    step = step_of(view.page)
    query = urlencode(view.query, doseq=True)
    return f"{base.rstrip('/')}/{'' if step.default else step.key}{'?' if query else ''}{query}"


def heading(report: Report) -> str:
    """The title of a report's files."""
    return report.title or text.TITLE


def line() -> str:
    """What stands under the title, or at the end."""
    return f"Attention Lab · {datetime.date.today().isoformat()}"


def html_file(report: Report, base: str) -> bytes:
    """The report as one HTML file that needs no network: components alive, drawings, tables, and links to the pages."""
    parts = []
    for at, view in enumerate(report.views):
        below = _below(view, address(view, base))
        if view.part is not None:
            name, root, data = view.part
            parts.append(Part(view.title, name, root, data, below=below))
        else:
            shown = (
                scrolled(on_paper(view.svg, f"v{at}-"))
                if view.svg
                else table_html(view.head, view.rows)
            )
            parts.append(Part(view.title, html=shown, below=below))
    return page_html(parts, title=heading(report), source=line()).encode()


def _below(view: ReportView, link: str) -> str:
    """What stands below a view in the HTML file."""
    texts = [
        f'<p style="font:400 19px/28px var(--st-heading-font)">{escape(view.sentence)}</p>'
    ] * bool(view.sentence)
    texts += [f"<p>{escape(part)}</p>" for part in view.note.splitlines() if part.strip()]
    return "".join(
        [
            *texts,
            f'<p style="font-size:13px;opacity:.72">{escape(view.source)} · '
            f'<a style="color:inherit" href="{escape(link)}">Open this view live</a></p>',
        ]
    )


def pdf_file(report: Report, base: str) -> bytes:
    """The report as a PDF of A4 sheets."""
    return report_pdf(
        heading(report),
        line(),
        [
            Entry(
                view.title,
                view.svg,
                view.head,
                [list(map(cell_text, row)) for row in view.rows],
                view.sentence,
                view.note,
                view.source,
                address(view, base),
            )
            for view in report.views
        ],
    )


def on_paper(svg: str, start: str = "") -> str:
    """A drawing on white with a margin; `start` before its ids makes them differ from those of other drawings."""
    width, height = size_of(svg)
    inner = with_own_ids(svg, start).replace(
        "<svg", f'<svg x="{MARGIN}" y="{MARGIN}" overflow="visible"', 1
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width + 2 * MARGIN:g}" height="{height + 2 * MARGIN:g}" '
        f'style="background:#FFFFFF" font-family="{FONT}">{inner}</svg>'
    )


def example() -> ReportView:
    """The attention of an example run before and after its training, from its saved frames."""
    data = load_run(EXAMPLE_RUNS[0])
    steps = steps_with_maps(data)
    first, last = (
        next(record for record in data.records if record.step == step)
        for step in (steps[0], steps[-1])
    )
    layer, head = best_head(last)
    frames = dict(head_over_time(data.run, [steps[0], steps[-1]], 0, "cross", layer, head))
    names = [tuple(map(token_text, line)) for line in tokens(data, 0, "cross")]
    maps = tuple(
        PictureMap(f"Step {step:,}", frames[step], names[0], names[1], noun="weight")
        for step in frames
    )
    picture = MapsPicture(
        f"Attention of L{layer}·H{head} before and after training", maps, reads=READS["cross"]
    )
    before, after = (record.expected[layer][head] for record in (first, last) if record.expected)
    head_row, rows = picture.table()
    return ReportView(
        "example",
        picture.title,
        "train",
        {"run": [data.run.id]},
        text.example_sentence(before, after, last.even or 0.0, last.step),
        text.EXAMPLE_NOTE,
        f"Attention Lab · Train and watch · {data.run.id}",
        picture.svg(),
        head_row,
        rows,
    )
