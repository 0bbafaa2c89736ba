"""Export: every picture of the page in every format, from one dialog that is the same on all pages."""

import datetime
import gzip
import json
import re
import secrets
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache, partial
from html import escape
from pathlib import Path
from typing import Any

import msgspec
import streamlit as st

from core.files import REPORTS, runs_folder, sentence_of, text_of, write_atomically
from core.runs.store import bring_all
from dashboard.draw.components import Script, begin, copy_buttons, join, notes
from dashboard.draw.formats import byte_size, plain, plural
from dashboard.draw.picture_files import (
    FORMATS,
    IMAGES,
    MIME,
    NUMBERS,
    WIDTHS,
    NotForPaper,
    ReportView,
    Source,
    csv_file,
    latex_of,
    latex_table,
    live_part,
    page_file,
    paper_file,
    paper_parts,
    paper_words,
    picture_file,
    table_html,
)
from dashboard.draw.pictures import Picture
from dashboard.navigation import STEPS, step_of
from dashboard.server.calls import NotRecorded
from dashboard.server.session import CURRENT, SessionValue

# A report: views that a reader has added from any page, in one small file on the server, found by its secret id.


REPORT = "report"  # its name in the link
NAME = SessionValue[str | None](None, REPORT)  # its id
COOKIE = "attention_lab_report"
ID = re.compile(r"[0-9a-f]{16}")
MAX_BYTES, MAX_VIEWS = 8_000_000, 50  # of one report
MAX_REPORTS = 200  # in a folder of runs; the oldest go first
MAX_ROWS = 20_000  # of a view's table
PAGES = tuple(step.key for step in STEPS)  # a view of a page that is no more is left out


@dataclass(frozen=True)
class Report:
    id: str
    title: str = ""
    views: tuple[ReportView, ...] = field(default=())

    def change(self, view: str, **values: Any) -> "Report":
        return replace(
            self,
            views=tuple(replace(one, **values) if one.id == view else one for one in self.views),
        )

    def without(self, view: str) -> "Report":
        return replace(self, views=tuple(one for one in self.views if one.id != view))

    def move(self, view: str, by: int) -> "Report":
        """The report with the view of that id so many places later; at an end it stays."""
        views = list(self.views)
        at = [one.id for one in views].index(view)
        views.insert(min(max(at + by, 0), len(views) - 1), views.pop(at))
        return replace(self, views=tuple(views))


new_id = partial(secrets.token_hex, 8)


def current_report() -> Report | None:
    """The report of this session or of this browser; None before anything was added."""
    name = NAME.value
    report = read_report(str(st.context.cookies.get(COOKIE, "")) if name is None else name)
    if report and name is None:
        NAME.value = report.id
    return report


def report_has_views() -> bool:
    """Whether something is in the report of this session or browser; its file is read again where it changed."""
    name = (NAME.value if NAME.is_set else getattr(current_report(), "id", "")) or ""
    with suppress(OSError):
        return bool(ID.fullmatch(name)) and _count(name, _path(name).stat().st_mtime_ns) > 0
    return False


@lru_cache(maxsize=MAX_REPORTS)
def _count(name: str, changed: int) -> int:
    report = read_report(name)
    return len(report.views) if report else 0


def report_cookie() -> list[str]:
    """The browser's cookie for the report of this session, empty after New report; none where it stays as it is."""
    name = NAME.value
    return [] if name is None else [f"{COOKIE}={name}"]


def read_report(name: str) -> Report | None:
    """The report of that id; None where there is none, or its file cannot be read."""
    if not ID.fullmatch(name):
        return None
    bring_all([name], REPORTS)
    try:
        data = json.loads(gzip.decompress(_path(name).read_bytes()))
        json.dumps(data["views"], ensure_ascii=False).encode()  # ValueError for half a character
        report = msgspec.convert({**data, "id": name, "title": text_of(data["title"])}, Report)
    except (OSError, EOFError, ValueError, TypeError, KeyError, RecursionError, zlib.error):
        return None
    return replace(report, views=tuple(view for view in report.views if view.page in PAGES))


def size_of(report: Report) -> int:
    with suppress(OSError):
        return _path(report.id).stat().st_size
    return 0


def save(report: Report) -> None:
    """Write a report, and make it this session's; ValueError beyond MAX_VIEWS, MAX_BYTES and what a public copy allows."""
    if len(report.views) > MAX_VIEWS:
        raise ValueError(
            f"A report holds at most {MAX_VIEWS} views. Remove one on the page Report, or start a new "
            "one."
        )
    data = gzip.compress(json.dumps(asdict(report), default=str).encode(), 6, mtime=0)
    if len(data) > MAX_BYTES:
        raise ValueError(
            f"With this view the report would take {byte_size(len(data))}; it holds at most "
            f"{byte_size(MAX_BYTES)}. Remove a view on the page Report, or start a new one."
        )
    from dashboard.server.limits import check_disk  # with torch, which Start does not need

    check_disk(len(data))
    if not _path(report.id).exists():
        for path in sorted(
            _path(report.id).parent.glob("*.json.gz"), key=lambda path: path.stat().st_mtime
        )[: 1 - MAX_REPORTS]:
            path.unlink(missing_ok=True)
    write_atomically(_path(report.id), data)
    NAME.value = report.id


def _path(name: str) -> Path:
    return runs_folder() / REPORTS / f"{name}.json.gz"


# The part of Export that gives the page as Python: to copy, as a script, and as a notebook with its pictures.


HEIGHT = 300  # pixels of the code; more of it scrolls


def code_section(source: Source, pictures: Mapping[str, Picture]) -> None:
    """Draw the script of the page, a button that copies it, and its two files; nothing where it computes nothing."""
    makes = notes().scripts.values()
    if not makes:
        return
    try:
        script = join(make() for make in makes)
    except NotRecorded as error:  # of a page that is not done
        st.error(plain(str(error)))
        return
    text = script.text(source.line)
    st.caption("What the page shows, computed again")
    st.code(text, language="python", height=HEIGHT)
    copy_buttons({"Copy as Python": ("text", text.encode)}, key="export:copy-python")
    with st.container(horizontal=True):
        for name, data, suffix, mime, about in (
            ("Python", text, "py", "text/x-python", "The script above as a file"),
            (
                "Notebook",
                partial(notebook_file, script, source, pictures),
                "ipynb",
                "application/x-ipynb+json",
                "The same cells for Jupyter, with the page's pictures",
            ),
        ):
            st.download_button(
                name,
                data,
                source.file_name("", suffix),
                mime,
                on_click="ignore",
                key=f"export:{name.lower()}",
                help=about,
            )


def notebook_file(script: Script, source: Source, pictures: Mapping[str, Picture]) -> bytes:
    used = [cell.picture for cell in script.cells if cell.picture in pictures]
    return script.notebook(
        source.line, {key: pictures[key].svg() for key in used if pictures[key].drawn}
    ).encode()


# Add a view to the report, from the Export dialog of any page: the picture, the page's sentence, a note, the link.


NOTE = SessionValue("", "export:note")  # that is typed
ADDED = SessionValue("", "export:added")  # what to say of it in the next run


def report_section(key: str, pictures: Mapping[str, Picture], source: Source) -> None:
    """Draw the field for a note and the button that adds the picked picture, or says why it does not fit."""
    report, fact = current_report(), notes().fact
    st.caption("To your report, beside what you add from other pages")
    note = st.text_area(
        "Your note",
        key=NOTE.key,
        max_chars=1_000,
        height=80,
        help="Stands below the picture and the page's sentence. You can change it in the report.",
    )
    if fact:
        st.caption(f"The page's sentence goes with it: {plain(fact)}")
    with st.container(horizontal=True, vertical_alignment="center"):
        pressed = st.button(
            "Add to report",
            icon=":material/playlist_add:",
            key="export:report",
            help="The picture, its numbers, the sentence, your note, and a link that opens this view again.",
        )
        st.page_link(
            step_of(REPORT).page(),
            label="Open the report",
            icon=step_of(REPORT).icon,
            query_params={REPORT: report.id} if report else None,
        )
    views, taken = (report.views, size_of(report)) if report else ((), 0)
    st.caption(
        f"The report has {len(views)} of at most {MAX_VIEWS} views and takes {byte_size(taken)} of at most "
        f"{byte_size(MAX_BYTES)}."
    )
    if not pressed:
        return
    view = view_of(key, pictures, source, note or "")
    try:
        save(replace(report or Report(new_id()), views=(*views, view)))
    except (ValueError, OSError) as error:
        st.error(plain(sentence_of(error)))
        return
    ADDED.value = f"Added to your report, which has {plural(len(views) + 1, 'view')}."
    NOTE.pop()
    st.rerun()


def tell_added() -> None:
    """Say what was added to the report, after the page: styles that it draws later would take the place of a toast."""
    if message := ADDED.pop():
        st.toast(message, icon=":material/playlist_add:")


def view_of(key: str, pictures: Mapping[str, Picture], source: Source, note: str) -> ReportView:
    picture = pictures[key]
    head, rows = picture.table()
    part = live_part(key, pictures, notes().drawn)
    live = None if part is None else [part.name, part.root, dict(part.data)]
    return ReportView(
        new_id(),
        picture.title,
        str(CURRENT.value),
        {name: st.query_params.get_all(name) for name in st.query_params},
        notes().fact,
        note,
        source.line,
        picture.svg() if picture.drawn else "",
        head,
        rows if len(rows) <= MAX_ROWS else [],
        # of a larger component, a report has the drawing alone
        live if len(json.dumps(live, default=str)) <= 3_000_000 else None,
    )


# The numbers of a picture as a table on the page: to be read, heard, or walked through by keyboard.


SHOWN_ROWS = 200  # that are shown; a file has all
STYLE = """<style>
.numbers { overflow: auto; max-height: 320px }
.numbers table { border-collapse: collapse; font-size: 14px; line-height: 20px; font-variant-numeric: tabular-nums }
.numbers :is(th, td) { padding: 4px 10px; text-align: left; font-weight: 400;
  border-bottom: 1px solid color-mix(in srgb, currentColor 10%, transparent) }
</style>"""


REQUESTED = SessionValue(False, "export:requested")


def request() -> None:
    REQUESTED.value = True


def begin_before_title() -> None:
    """Forget the pictures of the run before, on a page that draws before its title, where the dialog opens.

    Where the dialog was asked for they stay, since it also lists what is drawn below the title.
    """
    if not REQUESTED.value:
        begin()


def show_where_requested(page: str) -> None:
    if REQUESTED.pop():
        _dialog(page)


@st.dialog("Export", width="medium")
def _dialog(page: str) -> None:
    pictures = {name: make() for name, make in notes().pictures.items()}
    if not pictures:
        st.markdown("This page shows no picture yet.")
        code_section(source_of(page), pictures)
        return
    key = st.selectbox(
        "Picture",
        sorted(pictures, key=lambda key: not pictures[key].drawn),  # tables come last
        format_func=lambda key: pictures[key].title,
        key="export:picture",
        help="Every map, chart, drawing and table that the page shows now.",
    )
    picture = pictures[key]
    source = source_of(page, picture)
    sections: dict[str, Callable[[], object]] = {"Picture": partial(_files, picture, source)}
    if CURRENT.value != REPORT:
        sections["Report"] = partial(report_section, key, pictures, source)
    if notes().scripts:
        sections["Python"] = partial(code_section, source_of(page), pictures)
    sections["Whole page"] = partial(
        _whole_page, replace(source, about=notes().about, controls={}), pictures
    )
    for tab, draw in zip(st.tabs(list(sections)), sections.values(), strict=True):
        with tab:
            draw()
    st.caption(source.line.replace("$", r"\$"))


def _whole_page(source: Source, pictures: Mapping[str, Picture]) -> None:
    st.caption("Every picture of the page in one file, alive without a network")
    st.download_button(
        "HTML",
        partial(page_file, source, pictures, notes().drawn),
        f"{source.page}.html",
        "text/html",
        on_click="ignore",
        help="Opens in any browser, in both themes.",
    )


def _files(picture: Picture, source: Source) -> None:
    images = {name: kind for name, (kind, _) in IMAGES.items()} if picture.drawn else {}
    copied: dict[str, tuple[str, Callable[[], bytes]]] = {}
    for label, formats in (("With its title and source", images), ("Its numbers", NUMBERS)):
        if not formats:
            continue
        st.caption(label)
        with st.container(horizontal=True):
            for name, suffix in formats.items():
                st.download_button(
                    name,
                    partial(picture_file, picture, name, source),
                    source.file_name(picture.title, suffix),
                    MIME[suffix],
                    on_click="ignore",
                    key=f"export:{CURRENT.value}:{name}",
                )
    if picture.drawn:
        copied["Picture"] = "png", partial(picture_file, picture, "PNG, 2 ×", source)
        width = st.selectbox(
            "For a paper",
            list(WIDTHS),
            key="export:paper",
            help="As wide as a column or a page of a paper and no taller than its page, with titles of the axes; "
            "no title and no source, which are for your caption. The SVG has its text as outlines.",
        )
        try:
            parts = paper_parts(picture, WIDTHS[width])
            st.caption(paper_words(parts, WIDTHS[width]))
        except NotForPaper as error:
            parts = []
            st.caption(str(error))
        with st.container(horizontal=True):
            for label, suffix in FORMATS.items() if parts else ():
                kind = suffix if len(parts) == 1 else "zip"
                st.download_button(
                    label,
                    partial(paper_file, picture, WIDTHS[width], suffix),
                    source.file_name(f"{WIDTHS[width]:g} mm {picture.title}", kind),
                    MIME[kind],
                    on_click="ignore",
                    key=f"export:paper:{suffix}",
                )
    if st.toggle("Show them as a table", key="export:table", help="Arrow keys scroll it."):
        head, rows = picture.table()
        if len(rows) > SHOWN_ROWS:
            st.caption(f"The first {SHOWN_ROWS} of {len(rows):,} rows; a file has all.")
        st.html(
            f'{STYLE}<div class="numbers" tabindex="0" role="region" aria-label="{escape(picture.title)}, its numbers">'
            f"{table_html(head, rows[:SHOWN_ROWS])}</div>"
        )
    st.caption("To the clipboard")
    copied["Table"] = "text", lambda: csv_file(*picture.table(), dialect="excel-tab")
    copied["LaTeX table"] = "text", partial(latex_of, picture, source)
    if rest := latex_table(picture)[2]:
        st.caption(f"Of the LaTeX table a page has {rest}.")
    copy_buttons(copied, key="export:copy")


def source_of(page: str, picture: Picture | None = None) -> Source:
    return Source(
        page,
        datetime.date.today().isoformat(),
        {**notes().about, **(picture.about if picture else {})},
        dict(st.query_params),
    )
