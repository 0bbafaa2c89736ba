"""A cell of a picture of maps that a person pins, and several of its queries that are joined: both are in the link."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import streamlit as st

from dashboard.draw.attention_view import Pair, Tile, multiples
from dashboard.draw.components import Cell, Script, add_script
from dashboard.draw.formats import number, numbered, plain
from dashboard.fields.base import HERE, Fields, MultiSelect, Segmented
from dashboard.fields.link import LinkedValue, last_linked, read_linked, write_linked
from dashboard.server.session import SessionValue

if TYPE_CHECKING:
    from core.interpret.trace import AttentionMap


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


JOINED: dict[Literal["mean", "sum"], str] = {"mean": "averaged", "sum": "summed"}


class JoinedQueries(Fields):
    """Several queries whose weights are averaged or summed; `names` are the tokens of the rows."""

    names: tuple[str, ...] = ()
    joined = MultiSelect[str](
        "Queries",
        lambda c: numbered(c.names),
        of=lambda c: c.names,
        help="The rows of these words are averaged or summed, key by key, in each head.",
    )
    how = Segmented[Literal["mean", "sum"]](
        "Join",
        {name: word.capitalize() for name, word in JOINED.items()},
        help="The mean of the queries' weights, or their sum.",
    ).when(lambda c: c.joined)


def joined_map(
    controls: JoinedQueries,
    item: "AttentionMap",
    heads: Sequence[str],
    head: int,
    code: str,
) -> None:
    """Draw what several queries of a map take together, a row a head, with the controls that choose them.

    `heads` are the names of the heads and `head` is the picked one; `code` gives the weights in the page's script.
    """
    from core.interpret.trace import join_queries  # with torch, which Start does not need

    chosen = controls.draw_more("joined", "how", into=HERE, names=item.queries)
    page, word, rows = controls.page_key, JOINED[chosen.how], numbered(chosen.names)
    queries = sorted(map(rows.index, chosen.joined))
    if not queries:
        st.caption("Choose words: their weights become one row of each head.")
        add_script(lambda: Script((), {}), "joined")
        return
    together = join_queries(item.weights, queries, chosen.how)
    visible = item.visible
    evenly = visible / visible.sum(-1, keepdims=True).clip(1)
    words = ", ".join(f"“{rows[at]}”" for at in queries)
    mask = np.any(visible[:, queries], axis=1)
    tile = Tile(f"{words}, {word}", "head (row), key (column)", together, mask, marker=-1)
    multiples([tile], heads, item.keys, key=f"{page}:joined:map", query=head, reads="")
    key = int(np.abs(together[head]).argmax())
    st.markdown(
        f"{plain(words)}, {word}: head {heads[head]} takes most from "
        f"{plain(numbered(item.keys)[key])}, {number(float(together[head, key]))}; uniform attention would take "
        f"{number(float(join_queries(evenly, queries, chosen.how)[head, key]))}."
    )
    cell = Cell(
        f"What several queries take together, {word}, by head and key.",
        f"""
from core.interpret.trace import join_queries

together = join_queries({code}, {queries}, {chosen.how!r})
print(together.round(3))
""",
        results={"together": together},
    )
    add_script(lambda: Script((cell,), {}), "joined")
