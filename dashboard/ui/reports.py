"""A report: views that a reader has added from any page, in one small file on the server, found by its secret id.

The id is in the link of the page Report and in a cookie, so that a reload on any page finds the report again.
"""

from __future__ import annotations

import gzip
import json
import re
import secrets
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
import streamlit as st

from core.files import REPORTS, runs_folder, text_of, write_atomically
from core.runs.store import bring_all
from dashboard.draw.formats import byte_size
from dashboard.navigation import STEPS

REPORT = "report"  # its name in the session and in the link
COOKIE = "attention_lab_report"
ID = re.compile(r"[0-9a-f]{16}")
# A drawing with its size, or no drawing
Svg = Annotated[
    str,
    msgspec.Meta(
        pattern=r'^(?:$|<svg [^>]*\bwidth="\d+(\.\d+)?"[^>]*\bheight="\d+(\.\d+)?"[^>]*>)'
    ),
]
MAX_BYTES, MAX_VIEWS = 8_000_000, 50  # of one report
MAX_REPORTS = 200  # in a folder of runs; the oldest go first
MAX_ROWS = 20_000  # of a view's table
PAGES = tuple(step.key for step in STEPS)  # a view of a page that is no more is left out


class ReportFull(ValueError):
    """What is added does not fit."""


@dataclass(frozen=True)
class ReportView:
    """One view: the drawing (SVG, empty for a table), its numbers, what is said of it, and the link that reopens it.

    `part` are folder, root and data of a component that can be drawn again in a file; None where there is none.
    """

    id: str
    title: str
    page: str
    query: Mapping[str, list[str]]
    sentence: str
    note: str
    source: str
    svg: Svg
    head: list[str]
    rows: list[list[Any]]
    part: list[Any] | None = None


@dataclass(frozen=True)
class Report:
    """Views in their order under a title."""

    id: str
    title: str = ""
    views: tuple[ReportView, ...] = field(default=())

    def with_view(self, view: ReportView) -> Report:
        """The report with one more view at its end."""
        return replace(self, views=(*self.views, view))

    def change(self, view: str, **values: Any) -> Report:
        """The report with other values for the view of that id."""
        return replace(
            self,
            views=tuple(replace(one, **values) if one.id == view else one for one in self.views),
        )

    def without(self, view: str) -> Report:
        """The report without the view of that id."""
        return replace(self, views=tuple(one for one in self.views if one.id != view))

    def move(self, view: str, by: int) -> Report:
        """The report with the view of that id so many places later; at an end it stays."""
        order = [one.id for one in self.views]
        at = order.index(view)
        to = min(max(at + by, 0), len(order) - 1)
        views = list(self.views)
        views.insert(to, views.pop(at))
        return replace(self, views=tuple(views))


def new_id() -> str:
    """The id of a report or a view; that of a report is as secret as its link."""
    return secrets.token_hex(8)


def current_report() -> Report | None:
    """The report of this session or of this browser; None before anything was added."""
    name = st.session_state.get(REPORT)
    if name is None:
        name = str(st.context.cookies.get(COOKIE, ""))
        if read_report(name):
            st.session_state[REPORT] = name
    return read_report(name)


def cookie() -> str | None:
    """The browser's cookie for the report of this session, empty after New report; None where it stays as it is."""
    name = st.session_state.get(REPORT)
    return None if name is None else f"{COOKIE}={name}"


def read_report(name: str) -> Report | None:
    """The report of that id; None where there is none, or its file cannot be read."""
    if not ID.fullmatch(name):
        return None
    bring_all([name], REPORTS)
    try:
        data = json.loads(gzip.decompress(_path(name).read_bytes()))
        json.dumps(data["views"], ensure_ascii=False).encode()  # ValueError for half a character
        values = {"id": name, "title": text_of(data["title"]), "views": data["views"]}
        report = msgspec.convert(values, Report)
    except (OSError, EOFError, ValueError, TypeError, KeyError, RecursionError, zlib.error):
        return None
    return replace(report, views=tuple(view for view in report.views if view.page in PAGES))


def size_of(report: Report) -> int:
    """The bytes of a report's file; 0 before it is written."""
    try:
        return _path(report.id).stat().st_size
    except OSError:
        return 0


def save(report: Report) -> None:
    """Write a report, and make it this session's; ReportFull beyond MAX_VIEWS or MAX_BYTES."""
    if len(report.views) > MAX_VIEWS:
        raise ReportFull(
            f"A report holds at most {MAX_VIEWS} views. Remove one on the page Report, or start a new "
            "one."
        )
    text = json.dumps(
        {"title": report.title, "views": [asdict(view) for view in report.views]}, default=str
    )
    data = gzip.compress(text.encode(), 6, mtime=0)
    if len(data) > MAX_BYTES:
        raise ReportFull(
            f"With this view the report would take {byte_size(len(data))}; it holds at most "
            f"{byte_size(MAX_BYTES)}. Remove a view on the page Report, or start a new one."
        )
    from dashboard.server.limits import LimitReached, check_disk

    try:
        check_disk(len(data))
    except LimitReached as error:
        raise ReportFull(str(error)) from error
    if not _path(report.id).exists():
        paths = sorted(
            _folder().glob("*.json.gz"), key=lambda path: path.stat().st_mtime, reverse=True
        )
        for path in paths[MAX_REPORTS - 1 :]:
            path.unlink(missing_ok=True)
    write_atomically(_path(report.id), data)
    st.session_state[REPORT] = report.id


def _folder() -> Path:
    return runs_folder() / REPORTS


def _path(name: str) -> Path:
    return _folder() / f"{name}.json.gz"
