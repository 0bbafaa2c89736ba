"""What several pages read of a model's heads: their matrices, their roles, and the link to one weight."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

import streamlit as st

from core.interpret.roles import (
    ROLES,
    Example,
    RoleInputs,
    RoleScores,
    clearest_example,
    read_all,
    role_inputs,
    score_roles,
)
from core.interpret.trace import Kind
from core.pretrained import ModelInputs, Reading
from dashboard.draw.figures import CATEGORIES, PICKED, Spec
from dashboard.draw.formats import plain
from dashboard.draw.grids import effect_grid
from dashboard.navigation import step_of
from dashboard.server.cache import remembered, shared
from dashboard.ui.links import Pair, read_pair, write_pair
from dashboard.ui.model_picker import KINDS, ModelChoice, choose_head, current_head
from dashboard.ui.models import ModelRef, load_model, reading_of, study_of
from dashboard.ui.panels import draw_chart, pressed_point, theme

# The roles of a model's heads, measured once and shared by every page and session.

HeadRoles = dict[tuple[int, int], int]


def inputs_of(
    ref: ModelRef, page_inputs: ModelInputs, kind: Kind, own: tuple[str, ...] = ()
) -> RoleInputs:
    """The inputs on which roles are measured; the page's own alone where there is no set (sound, arrays)."""
    inputs = RoleInputs((), "") if ref.source == "array" else shared(_inputs, ref, kind, own)
    return inputs if inputs.givens else RoleInputs((page_inputs,), "input above")


def role_scores_of(
    ref: ModelRef, page_inputs: ModelInputs, kind: Kind, own: tuple[str, ...] = ()
) -> RoleScores:
    return shared(_role_scores, ref, inputs_of(ref, page_inputs, kind, own), kind)


def roles_of(ref: ModelRef, page_inputs: ModelInputs, kind: Kind) -> HeadRoles:
    """The role (an index of ROLES) of each head (layer, head), for a grid's marks; none for cross-attention."""
    return {} if kind == "cross" else role_scores_of(ref, page_inputs, kind).head_roles


def roles_are_cached(ref: ModelRef, page_inputs: ModelInputs, kind: Kind) -> bool:
    return (
        kind == "cross"
        or ref.source == "array"
        or remembered(_inputs, ref, kind, ())
        and remembered(_role_scores, ref, inputs_of(ref, page_inputs, kind), kind)
    )


def readings_of(ref: ModelRef, inputs: RoleInputs, kind: Kind) -> tuple[Reading, ...]:
    return (
        (reading_of(ref, inputs.givens[0]),)
        if ref.source == "array"
        else study_of(read_all, ref, inputs, kind)
    )


def examples_of(
    ref: ModelRef, inputs: RoleInputs, kind: Kind
) -> dict[int, tuple[Reading, Example]]:
    """For each role that can be measured: the clearest example of its best head, and its reading."""
    return shared(_examples, ref, inputs, kind)


def _examples(ref: ModelRef, inputs: RoleInputs, kind: Kind) -> dict[int, tuple[Reading, Example]]:
    readings, scores = readings_of(ref, inputs, kind), shared(_role_scores, ref, inputs, kind)
    clearest = {
        index: clearest_example(readings, kind, role, *best)
        for index, role in enumerate(ROLES)
        if (best := scores.best(index)) is not None
    }
    return {index: (readings[one.reading], one) for index, one in clearest.items() if one}


def _inputs(ref: ModelRef, kind: Kind, own: tuple[str, ...]) -> RoleInputs:
    return role_inputs(load_model(ref), own, kind)


def _role_scores(ref: ModelRef, inputs: RoleInputs, kind: Kind) -> RoleScores:
    return score_roles(readings_of(ref, inputs, kind), kind)


# The marks of roles in tables, and the line with the number of heads that have each role.


STYLE = (
    "<style>.role-line{display:flex;flex-wrap:wrap;gap:4px 16px;font-size:14px}"
    ".role-line span{display:flex;gap:6px;align-items:center;white-space:nowrap}"
    ".role-line .quiet{opacity:.62}</style>"
)


def swatch(index: int) -> str:
    return (
        f'<span style="display:inline-block;width:10px;height:10px;border-radius:2px;'
        f'background:{CATEGORIES[theme()][index]}"></span>'
    )


def role_line(roles: HeadRoles, heads: int) -> None:
    """How many of all heads have each role, after the corner that these carry in a grid; tooltips explain the roles."""
    count = Counter(roles.values())
    items = [
        f'<span title="{escape(role.meaning, quote=True)}"><div style="width:0;height:0;'
        "border-left:12px solid transparent;border-bottom:12px solid "
        f'{CATEGORIES[theme()][index]}"></div>{escape(role.name)} {count[index]}</span>'
        for index, role in enumerate(ROLES)
        if count[index]
    ]
    items.append(f'<span class="quiet">No role {heads - len(roles)}</span>')
    st.html(f'{STYLE}<div class="role-line">{"".join(items)}</div>')


# The head that a page shows: that of its link, else the one that was picked on another page.


Named = Mapping[Pair, tuple[Kind, Pair]]  # the pair in the link → the kind, and (layer, head) in it


def link_head(page: str, of: object, ref: ModelRef, heads: Named, default: Pair) -> Pair:
    """The pair of the link's head, else of the one picked on another page, else the default.

    The link's is forgotten once `of`, what the heads belong to, has changed. To pick a head is to write its pair.
    """
    if st.session_state.setdefault(f"{page}:of", of) != of:
        st.session_state[f"{page}:of"] = of
        write_pair("head", None)
    first, second = (1 + max(part) for part in zip(*heads, strict=True))
    linked, error = read_pair("head", (first, second))
    if error:
        st.warning(error)
    if linked is not None and linked in heads:
        choose_head(ref, *heads[linked])
        return linked
    elsewhere = next((pair for pair, head in heads.items() if head == current_head(ref)), None)
    if elsewhere is not None:
        write_pair("head", elsewhere)
    return elsewhere or default


def effect_chart(
    key: str,
    alt: str,
    pick: Callable[[str, int], object] | None,
    rows: Sequence[Spec],
    layers: Sequence[str],
    columns: Sequence[str],
    picked: tuple[str, str],
    **options: Any,
) -> None:
    """Draw layers × columns as `effect_grid`; a press of a head's cell calls `pick` with its layer's name and number."""

    def press() -> None:
        point = pressed_point(key)
        if pick and point and point["head"].isdecimal():
            pick(point["layer"], int(point["head"]))

    selects: Any = {"selection_mode": [PICKED], "on_select": press} if pick else {}
    draw_chart(
        st,
        effect_grid(rows, layers, columns, picked, theme(), **options),
        key=key,
        alt=alt,
        **selects,
    )


STEP = step_of("inside_weight")


def weight_link(
    chosen: ModelChoice, kind: Kind, head: tuple[int, int], cell: tuple[int, int]
) -> None:
    """Draw a link to this weight; none for a sink, for arrays, and for families that cannot be recorded."""
    rows, columns = chosen.reading.lines(kind)
    if chosen.pretrained is None or not chosen.pretrained.recordable or cell[1] >= len(columns):
        return
    st.page_link(
        STEP.page(),
        label=f"{STEP.title}: {plain(rows.tokens[cell[0]])} → {plain(columns.tokens[cell[1]])}",
        icon=STEP.icon,
        query_params={
            "head": f"{head[0]}.{head[1]}",
            "cell": f"{cell[0]}.{cell[1]}",
            "inside_weight:kind": KINDS[kind],
        },
    )
