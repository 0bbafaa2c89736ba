"""What a public copy stores of a person, for how long, and the button that deletes it at once."""

from __future__ import annotations

import streamlit as st

from dashboard.runtime.forgetting import delete_mine
from dashboard.runtime.person import has_cookie
from dashboard.views.runs.controls import select
from dashboard.views.runs.text import forgetting
from dashboard.widgets.panels import paragraph


def draw_delete_mine() -> None:
    """Draw the rule by which things are forgotten, and the button."""
    paragraph(forgetting(has_cookie()))
    with st.popover("Delete everything of mine", icon=":material/delete_forever:", key="runs:everything",
                    help="Your runs, sweeps, measurements, reports and data on this server."):
        st.markdown("Delete all your runs, sweeps, measurements, reports and data? This cannot be undone.")
        st.button("Delete everything", key="runs:everything:go", on_click=_delete,
                  help="What trains for you ends at once.")


def _delete() -> None:
    delete_mine()
    select([])
