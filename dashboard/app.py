"""The entry of the dashboard: put the root on the path, then run the page of the URL."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:] = [str(ROOT), *(path for path in sys.path if path != str(ROOT))]

import streamlit as st  # noqa: E402

from dashboard.server.hosting import begin_hosting  # noqa: E402

begin_hosting()  # before an import of core, which loads plug-ins

from dashboard.server import health  # noqa: E402

health.begin()

from core import memory  # noqa: E402
from core.entries import Cost  # noqa: E402
from core.event_log import log  # noqa: E402
from dashboard.draw.components import draw, sent, ship_code  # noqa: E402
from dashboard.fields.link import (  # noqa: E402
    ARRIVED,
    drop_infinite_numbers,
    note_arrival,
    refusals,
    remember_visit,
    restore_bound_values,
)
from dashboard.fields.reset import is_pending, reset_page  # noqa: E402
from dashboard.navigation import GROUPS, STEPS, Step, sections, step_of  # noqa: E402
from dashboard.search import PICKED, open_picked  # noqa: E402
from dashboard.server import queue  # noqa: E402
from dashboard.server.calls import recording  # noqa: E402
from dashboard.server.session import SessionValue  # noqa: E402
from dashboard.server.visitors import note_visit  # noqa: E402
from dashboard.ui import bars, export, guide, panels  # noqa: E402

PAGE_LIST = "page_list"
PRESSED = SessionValue[str | None](None, "page_list:request")
REFUSED = SessionValue(False, "page:refused")  # whether the page waits for memory
PAGE, NEW_PAGE = 15_000_000, 60_000_000  # bytes of a page, and of the first to open it; measured


def page_list(current: Step) -> None:
    """Draw the search and the groups of pages in the sidebar, `current` marked; opens the page that was pressed first.

    The path is open, and the group of the current page; the others fold, so that few entries are seen at first.

    Streamlit's own list is drawn again by React with every batch of elements that arrives: for many pages that takes
    longer than the elements. This one is a single element, with which the code of all components comes.
    """
    if page := PRESSED.pop():
        st.switch_page(step_of(page).page(), query_params={})
    groups = [
        {
            "name": group,
            "pages": [
                {
                    "key": step.key,
                    "path": step.path,
                    "title": step.place or step.title,
                    "icon": step.icon.split("/")[-1].strip(":"),
                }
                for step in steps
                if (step.listed or export.report_has_views()) and sections(step.key)[0] == step
            ],
        }
        for group, steps in GROUPS.items()
    ]
    open_picked(current.key)
    with st.sidebar:
        ship_code()
        draw(
            "page_list",
            "pl",
            {"groups": groups, "current": sections(current.key)[0].key},
            key=PAGE_LIST,
            on_page_change=open_pressed,
            on_hit_change=note_picked,
        )


def section_row(current: Step) -> None:
    """Links to the pages of the same place, above the page."""
    if len(steps := sections(current.key)) > 1:
        row = st.container(gap=None)
        row.space("xxsmall")  # the header covers what stands higher
        with row.container(horizontal=True, gap="small"):
            for step in steps:
                st.page_link(step.page(), label=step.section, help=step.invite)


def open_pressed() -> None:
    page = sent(PAGE_LIST, "page")
    if page in [step.key for step in STEPS]:
        PRESSED.value = page


def note_picked() -> None:
    PICKED.value = sent(PAGE_LIST, "hit") or ""


def is_admitted(step: Step) -> bool:
    """Whether there is memory to open the page; says so where there is none. One that is open runs on."""
    if ARRIVED.value or REFUSED.value:
        new = f"pages.{step.key}" not in sys.modules
        remedy = "The pages that are open go on: try again in a minute."
        why = memory.why_too_much(Cost(bytes=NEW_PAGE if new else PAGE), "This page", remedy)
        REFUSED.value = bool(why)
        if why:
            log("page_refused", page=step.key)
            st.title(step.title)
            st.error(why)
            st.button("Try again", key="page:again")
    return not REFUSED.value


def load_first_model() -> None:
    from dashboard.ui.models import EMBEDDED, load_model  # Start here needs no models

    load_model(EMBEDDED)


# Streamlit serves the first page at / alone, and says of its name that there is no such page
by_name = st.Page(STEPS[0].run, title=STEPS[0].title, url_path=STEPS[0].key, visibility="hidden")
page = st.navigation([*(step.page() for step in STEPS), by_name], position="hidden")
step = next(step for step in STEPS if step.title == page.title)
st.set_page_config(
    page_title=f"{step.title} · Attention Lab",  # what a tab is called, and heard first
    # a material icon would be fetched from another host
    page_icon=str(ROOT / "dashboard" / "static" / "icon.svg"),
    layout="wide",
    initial_sidebar_state="collapsed" if bars.in_lesson(step.key) else 248,
)
drop_infinite_numbers(step.page())
restore_bound_values()
note_arrival(step.key)
note_visit()
if ARRIVED.value:
    guide.TRIED.forget()
    st.session_state.pop(queue.SPARE, None)
remember_visit(step.key)
panels.apply_look()
if not st.context.is_embedded:
    page_list(step)
bars.tour_bar(step.key)
if not st.context.is_embedded:
    section_row(step)
if is_pending():
    guide.TRIED.forget()
    reset_page(step.page(), bars.begin_again(step.key))
else:
    with health.page_run(step.key), panels.plugin_problems(), bars.lesson_around(step.key):
        if is_admitted(step):
            with recording(), refusals():
                page.run()
            if step.key != "quiz":  # which ends with its own, after its last question
                bars.next_page(step.key)
            export.tell_added()
    if st.runtime.exists():
        health.after_a_visit(load_first_model)
