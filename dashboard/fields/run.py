"""Which runs a page shows: their ids are in the link."""

from collections.abc import Iterable

import streamlit as st

from dashboard.fields.link import write_link
from dashboard.server.session import SessionValue


class RunsField(SessionValue[str]):
    """The ids of several runs, of which the link has all under one name; beside it the page's last ones.

    It has no widget of its own: the page writes it when a list or a table changes.
    """

    def __init__(self, link: str) -> None:
        super().__init__("")
        self.link = link

    @property
    def ids(self) -> list[str]:
        """Those of the link, each once; without any, what `value` remembers of the last visit."""
        text = st.query_params.get(self.link) or self.value
        return list(dict.fromkeys(filter(None, text.split(","))))

    def write(self, ids: Iterable[str]) -> str:
        """Put these into the link, or none; returns their text."""
        text = ",".join(dict.fromkeys(ids))
        write_link(self.link, text or None)
        return text
