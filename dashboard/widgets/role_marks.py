"""A role's mark: its colour, the line that tells how many heads have each, and the table of the best."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape

import streamlit as st

from core.roles import ROLES
from dashboard.charts.palette import CATEGORIES, Theme
from dashboard.widgets.panels import theme
from dashboard.widgets.role_scores import HeadRoles
from dashboard.widgets.table import STYLE as TABLE

STYLE = ("<style>.role-line{display:flex;flex-wrap:wrap;gap:4px 16px;font-size:14px}"
         ".role-line span{display:flex;gap:6px;align-items:center;white-space:nowrap}"
         ".role-line .quiet{opacity:.62}</style>")


def colour(place: int, which: Theme) -> str:
    """The colour of a role, as the corners of a grid of heads show it."""
    return CATEGORIES[which][place % len(CATEGORIES[which])]


def corner(place: int) -> str:
    """A role's mark in a table: the corner that its heads carry in a grid."""
    return (f'<div style="width:0;height:0;border-left:12px solid transparent;'
            f'border-bottom:12px solid {colour(place, theme())}"></div>')


def role_line(roles: HeadRoles, heads: int) -> None:
    """How many of all heads have each role, with its mark, on a line or two; what a role is stands in its tooltip."""
    count = Counter(roles.values())
    items = [f'<span title="{escape(role.meaning, quote=True)}">{corner(place)}{escape(role.name)} '
             f"{count[place]}</span>"
            for place, role in enumerate(ROLES) if count[place]]
    items.append(f'<span class="quiet">None of these {heads - len(roles)}</span>')
    st.html(f'{STYLE}<div class="role-line">{"".join(items)}</div>')


def best_table(rows: Sequence[Sequence[str]]) -> None:
    """A row a role, in the order of ROLES and with its mark: its name, and what else is told of it."""
    heads = ("role", "heads", "most has", "score", "by chance", "where it is clearest")
    top = "".join(f'<th scope="col"{_side(at)}>{escape(name)}</th>' for at, name in enumerate(heads))
    body = []
    for place, row in enumerate(rows):
        mark = (f'<span style="display:inline-block;width:10px;height:10px;border-radius:2px;'
                f'background:{colour(place, theme())}"></span>')
        cells = "".join(f"<td{_side(at + 1)}>{escape(cell)}</td>" for at, cell in enumerate(row[1:]))
        body.append(f'<tr><th scope="row" class="left">{mark}{escape(row[0])}</th>{cells}</tr>')
    st.html(TABLE)
    st.html(f'<div class="lab-table"><table aria-label="The head that has most of each role"><thead><tr>{top}</tr>'
            f"</thead><tbody>{''.join(body)}</tbody></table></div>")


def _side(at: int) -> str:
    return ' class="left"' if at in (0, 5) else ""
