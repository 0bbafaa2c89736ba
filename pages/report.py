"""Report: views from any page, in order, as one HTML or PDF file."""

import datetime
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import urlencode

import streamlit as st

import dashboard.page as lab
from core.files import hosted
from core.tokens import token_text
from core.training.evaluate import best_head

TITLE = "A report from Attention Lab"
SOURCE = "Attention Lab · {}"  # what stands under the title, or at the end, with the date
MARGIN = 12  # pixels of paper around a drawing
MAX_TITLE, MAX_TEXT = 200, 1_000  # letters
MAX_SHOWN = 50  # rows of a table
key = "report:{}".format  # of a widget
Edit = Callable[[lab.export.Report], lab.export.Report]


def take_title() -> None:
    change(lambda now: replace(now, title=Controls.read("title", report=now)["title"].strip()))


class Controls(lab.Fields, page="report"):
    report: lab.export.Report
    title = lab.Text(
        "Title of the report",
        lambda c: c.report.title,
        help="Stands above the views in the file.",
        also=lab.UNBOUND | {"max_chars": MAX_TITLE, "placeholder": TITLE, "on_change": take_title},
    )


def taken(name: str, **more: Any) -> Callable[["ViewFields"], dict[str, Any]]:
    """The arguments of a widget whose text becomes that of the view."""

    def also(controls: "ViewFields") -> dict[str, Any]:
        def change_view(now: lab.export.Report) -> lab.export.Report:
            typed = ViewFields.read(name, view=controls.view)[name].strip()
            return now.change(controls.view.id, **{name: typed})

        return lab.UNBOUND | {"on_change": lambda: change(change_view), **more}

    return also


class ViewFields(lab.Fields, page="report"):
    """The texts of one view."""

    view: lab.picture_files.ReportView
    title = lab.Text(
        "Heading",
        lambda c: c.view.title,
        key=lambda c: f"{c.view.id}:title",
        help="Stands above the picture.",
        also=taken("title", max_chars=MAX_TITLE),
    )
    sentence = lab.Text(
        "Sentence",
        lambda c: c.view.sentence,
        key=lambda c: f"{c.view.id}:sentence",
        lines=True,
        help="The page's own sentence. You can shorten it.",
        also=taken("sentence", max_chars=MAX_TEXT, height=104),
    )
    note = lab.Text(
        "Note",
        lambda c: c.view.note,
        key=lambda c: f"{c.view.id}:note",
        lines=True,
        help="What you want to say about this view.",
        also=taken("note", max_chars=MAX_TEXT, height=104),
    )


def address(view: lab.picture_files.ReportView, base: str) -> str:
    step = lab.step_of(view.page)
    query, link = urlencode(view.query, doseq=True), f"{base.rstrip('/')}/{step.path}"
    return f"{link}?{query}" if query else link


def html_file(report: lab.export.Report, base: str) -> bytes:
    """The report as one HTML file that needs no network: components alive, drawings, tables, and links to the pages."""
    parts = []
    for at, view in enumerate(report.views):
        below = lab.html("report", "below", view, address(view, base))
        if view.part is not None:
            name, root, data = view.part
            parts.append(lab.picture_files.Part(view.title, name, root, data, below=below))
            continue
        drawing = lab.picture_files.scrolled(on_paper(view.svg, f"v{at}-")) if view.svg else ""
        html = drawing or lab.picture_files.table_html(view.head, view.rows)
        parts.append(lab.picture_files.Part(view.title, html=html, below=below))
    return lab.picture_files.page_html(
        parts, title=report.title or TITLE, source=SOURCE.format(datetime.date.today())
    ).encode()


def on_paper(svg: str, start: str = "") -> str:
    width, height = lab.size_of(svg)
    inner = lab.with_own_ids(svg, start).replace(
        "<svg", f'<svg x="{MARGIN}" y="{MARGIN}" overflow="visible"', 1
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width + 2 * MARGIN:g}" height="{height + 2 * MARGIN:g}" '
        f'style="background:#FFFFFF" font-family="{lab.picture_files.PICTURE_FONT}">{inner}</svg>'
    )


def example() -> lab.picture_files.ReportView:
    data = lab.load_run(lab.EXAMPLE_RUNS[0])
    ends = [data.steps[0], data.steps[-1]]
    first, last = (next(one for one in data.records if one.step == step) for step in ends)
    layer, head = best_head(last)
    frames = dict(lab.head_over_time(data.run, ends, 0, "cross", layer, head))
    names = [tuple(map(token_text, line)) for line in data.tokens(0, "cross")]
    maps = tuple(
        lab.PictureMap(f"Step {step:,}", frames[step], names[0], names[1], noun="weight")
        for step in frames
    )
    picture = lab.MapsPicture(
        f"Attention of L{layer}·H{head} before and after training", maps, reads=lab.READS["cross"]
    )
    before, after = (record.expected[layer][head] for record in (first, last) if record.expected)
    head_row, rows = picture.table()
    return lab.picture_files.ReportView(
        "example",
        picture.title,
        "train",
        {"run": [data.run.id]},
        f"After {last.step:,} steps this head takes {lab.number(after)} from the letter that the output "
        f"copies; before, {lab.number(before)}. Uniform attention would take {lab.number(last.even or 0.0)}.",
        "Your own note stands here.",
        f"Attention Lab · Train and watch · {data.run.id}",
        picture.svg(),
        head_row,
        rows,
    )


def page() -> None:
    lab.title(
        "Report",
        "Views from any page, with your notes, in one HTML or PDF file.",
    )
    linked = st.query_params.get(lab.export.REPORT)
    lost = linked is not None and lab.export.read_report(linked) is None
    if linked and not lost:
        lab.export.NAME.value = linked
    report = lab.export.current_report()
    lab.write_link(lab.export.REPORT, None if report is None else report.id)
    if message := lab.pop_flash(lab.export.REPORT):
        st.error(lab.plain(message))
    if lost:
        st.warning("The report of this link is not on this server, or was deleted.")
    if report is None or not report.views:
        st.info(
            "Your report is empty. Press **Export** on any page, then **Add to report**. "
            "This example is not in it.",
            icon=":material/playlist_add:",
        )
        _draw_view(example(), 1)
    else:
        base = (st.context.url or "").partition("?")[0].rpartition("/")[0]
        left, right = st.columns([0.5, 0.5], gap="medium", vertical_alignment="bottom")
        with left:
            Controls.draw(into=lab.HERE, report=report)
        with right, st.container(horizontal=True, gap="small", vertical_alignment="center"):
            st.download_button(
                "HTML",
                partial(html_file, report, base),
                "report.html",
                "text/html",
                icon=":material/download:",
                key=key("html"),
                on_click="ignore",
                help="One file with its pictures alive, which needs no network.",
            )
            st.download_button(
                "PDF",
                lambda: lab.picture_files.report_pdf(
                    report.title or TITLE,
                    SOURCE.format(datetime.date.today()),
                    report.views,
                    partial(address, base=base),
                ),
                "report.pdf",
                "application/pdf",
                icon=":material/download:",
                key=key("pdf"),
                on_click="ignore",
                help="Vector pictures and text on A4 sheets; each view has a link that opens it live.",
            )
            st.button(
                "New report",
                icon=":material/note_add:",
                key=key("new"),
                on_click=_forget,
                help="Begin with an empty one. This one stays under the link of this page: copy it first.",
            )
        count = len(report.views)
        whose = (
            "only you can open and change it"
            if hosted()
            else "this browser and whoever has the link of this page can open and change it"
        )
        lab.caption(
            f"{count} of at most {lab.export.MAX_VIEWS} views, "
            f"{lab.byte_size(lab.export.size_of(report))} of at most "
            f"{lab.byte_size(lab.export.MAX_BYTES)}. The report is stored on the server: {whose}. The server holds at most "
            f"{lab.export.MAX_REPORTS} reports and deletes the oldest, so take the file, too."
        )
        for at, view in enumerate(report.views):
            _draw_view(view, at + 1, len(report.views))


def _draw_view(view: lab.picture_files.ReportView, number: int, count: int = 0) -> None:
    """One view beside its texts; the example, without a count, has no fields."""
    step = lab.step_of(view.page)
    shown, texts = st.columns([0.58, 0.42], gap="medium")
    with shown:
        lab.paragraph(f"**{f'{number}.' if count else 'Example:'} {lab.plain(view.title)}**")
        # The drawing on white, or the table; Export takes either as files.
        if view.svg:
            paper = on_paper(view.svg)
            st.image(paper, width=round(lab.size_of(paper)[0]), alt=view.title)
            drawn = lab.DrawnPicture(
                view.title, tuple(view.head), tuple(map(tuple, view.rows)), view.svg
            )
            lab.add(key(view.id), lambda: drawn)
        else:
            rows = [tuple(map(lab.picture_files.cell_text, row)) for row in view.rows[:MAX_SHOWN]]
            lab.table(view.head, rows, caption=view.title, markers=False)
            if len(view.rows) > MAX_SHOWN:
                st.caption(
                    f"The first {MAX_SHOWN} of {len(view.rows):,} rows; the HTML file has all."
                )
    with texts:
        if count:
            ViewFields.draw(into=lab.HERE, view=view)
            ends = "Show it before the view above.", "Show it after the view below."
            buttons: tuple[tuple[str, str, bool, Edit, str], ...] = (
                ("Up", "arrow_upward", number == 1, lambda now: now.move(view.id, -1), ends[0]),
                (
                    "Down",
                    "arrow_downward",
                    number == count,
                    lambda now: now.move(view.id, 1),
                    ends[1],
                ),
                (
                    "Remove",
                    "delete",
                    False,
                    lambda now: now.without(view.id),
                    "Take it out of the report.",
                ),
            )
            with st.container(horizontal=True, gap="small", vertical_alignment="center"):
                for label, icon, disabled, edit, meaning in buttons:
                    st.button(
                        label,
                        icon=f":material/{icon}:",
                        key=key(f"{view.id}:{label.lower()}"),
                        disabled=disabled,
                        on_click=change,
                        args=(edit,),
                        help=meaning,
                    )
        else:
            lab.fact(lab.plain(view.sentence))
            st.markdown(lab.plain(view.note))
        st.page_link(
            step.page(),
            label=f"Open it live on {step.title}",
            icon=step.icon,
            query_params=dict(view.query),
        )
        st.caption(lab.plain(view.source.removeprefix("Attention Lab · ")))


def change(edit: Edit) -> None:
    if (report := lab.export.current_report()) is not None:
        lab.flash_errors(
            lab.export.REPORT, "", lambda: lab.export.save(edit(report)), ValueError, OSError
        )


def _forget() -> None:
    lab.export.NAME.value = ""
    lab.write_link(lab.export.REPORT, None)
