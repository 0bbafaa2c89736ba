"""A cell of a picture of maps that a person pins: it is in the link, and stays while the page has such a cell."""

from collections.abc import Sequence
from typing import Any

import streamlit as st

from dashboard.draw.attention_view import Pair, Tile, multiples
from dashboard.fields.link import LinkedValue, last_linked, read_linked, write_linked
from dashboard.server.session import SessionValue


class CellField(LinkedValue[Pair | None]):
    """A pinned cell: `pinned` before its picture is drawn, `pin` after. It has no widget.

    `link` is its name in the link, by default the page's and the field's.
    """

    def __init__(self, link: str = "") -> None:
        super().__init__(None, link)

    @property
    def now(self) -> SessionValue[Pair | None]:
        """The cell in the session, which something to try may set: a picture may have the field's own key."""
        return SessionValue(None, f"{self.key}:now")

    def pinned(self, shape: Pair, of: object = None) -> Pair | None:
        """The cell that something to try has set, else the link's, else the page's last one.

        None once `of`, what it is a cell of, has changed.
        """
        page, name = self.owner.page_key, self.link or self.key
        if self.now.is_set and self.now.value != last_linked(page, name):
            st.session_state[f"{page}:{name}-of"] = (
                of,
                None,
            )  # set together with what it is a cell of
            write_linked(page, name, self.now.value)
        self.now.value = read_linked(page, name, shape, of)
        return self.now.value

    def pin(self, cell: Pair | None) -> Pair | None:
        """Put a cell into the link, or none; returns it."""
        self.now.value = write_linked(self.owner.page_key, self.link or self.key, cell)
        return cell


def linked_maps(
    field: CellField,
    name: str,
    tiles: Sequence[Tile],
    *lines: Any,
    of: object = None,
    **options: Any,
) -> Pair | None:
    """Draw maps between the tokens of `lines` (rows, and columns where these differ), with the pinned cell; returns it."""
    shape = tiles[0].weights.shape
    pinned = field.pinned((shape[0], shape[1]), of)
    key = f"{field.owner.page_key}:{name}"
    return field.pin(multiples(tiles, *lines, key=key, pin=pinned, **options))
