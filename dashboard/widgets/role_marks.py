"""The marks of roles in tables, and the line with the number of heads that have each role."""

from __future__ import annotations

from collections import Counter
from html import escape

import streamlit as st

from core.roles import ROLES
from dashboard.draw.palette import CATEGORIES
from dashboard.widgets.panels import theme
from dashboard.widgets.role_scores import HeadRoles

STYLE = (
    "<style>.role-line{display:flex;flex-wrap:wrap;gap:4px 16px;font-size:14px}"
    ".role-line span{display:flex;gap:6px;align-items:center;white-space:nowrap}"
    ".role-line .quiet{opacity:.62}</style>"
)


def swatch(index: int) -> str:
    """A role's mark in a table of roles."""
    return (
        f'<span style="display:inline-block;width:10px;height:10px;border-radius:2px;'
        f'background:{CATEGORIES[theme()][index]}"></span>'
    )


def role_line(roles: HeadRoles, heads: int) -> None:
    """How many of all heads have each role, after the corner that these carry in a grid; tooltips explain the roles."""
    count = Counter(roles.values())
    items = []
    for index, role in enumerate(ROLES):
        corner = (
            f'<div style="width:0;height:0;border-left:12px solid transparent;'
            f'border-bottom:12px solid {CATEGORIES[theme()][index]}"></div>'
        )
        if count[index]:
            items.append(
                f'<span title="{escape(role.meaning, quote=True)}">{corner}{escape(role.name)} '
                f"{count[index]}</span>"
            )
    items.append(f'<span class="quiet">No role {heads - len(roles)}</span>')
    st.html(f'{STYLE}<div class="role-line">{"".join(items)}</div>')
