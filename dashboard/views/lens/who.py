"""The view Who wrote it: the answer's logit as a sum of what each part wrote."""

from __future__ import annotations

from functools import partial

import streamlit as st

from core.interpret.attribution import PASSES, Attribution
from core.interpret.trace import Kind
from dashboard.draw.formats import signed
from dashboard.draw.grids import effect_grid
from dashboard.draw.vega import PICKED, Spec
from dashboard.runtime.link_values import read_linked, write_pair
from dashboard.runtime.page_pictures import add_script
from dashboard.ui.presentation import draw_chart, pressed_point
from dashboard.ui.progress import UNASKED, measure_with_progress
from dashboard.ui.tables import table
from dashboard.views.lens import charts, compute, heads, text
from dashboard.views.lens.compute import layer_names
from dashboard.views.lens.controls import Controls
from dashboard.views.lens.script import who_script
from dashboard.widgets.model_picker.head_choice import choose_head, current_head, head_field
from dashboard.widgets.panels import caption, details, fact, paragraph, theme

GRID = "lens:parts"
INNER = "FF"  # the column after the heads
Head = tuple[Kind, int, int]


def section(controls: Controls) -> None:
    """Draw the view; PretrainedError where the logit is no such sum."""
    key = compute.attribution_key(controls)
    passes = measure_with_progress(
        compute.ATTRIBUTED, key, range(PASSES), compute.attributor(key), "passes", UNASKED
    )
    attribution = passes.get(PASSES - 1)
    if attribution is None:
        return
    add_script(partial(who_script, controls, attribution))
    parts = compute.named_parts(controls, attribution)
    ids = [token for token in (controls.baseline.id, controls.contrast) if token is not None]
    words = list(compute.words_of(controls.ref, ids).values())
    fact(text.wrote(controls, attribution, parts, words[0], words[1] if len(words) > 1 else None))
    picked = _picked(controls, attribution)
    left, right = st.columns([0.56, 0.44], gap="medium")
    with left:
        has_inner = any(part.role == "feed-forward" for _, part in parts)
        paragraph(
            f"**What each head adds{', and the feed-forward network (FF) of a layer' if has_inner else ''}**"
        )
        _head_field(controls, attribution, picked)
        _grid(controls, attribution, picked)
        caption(text.share_of_heads(parts))
    groups = compute.grouped(controls, attribution)
    with right:
        paragraph("**The sum, in the order of the model**")
        draw_chart(
            st,
            charts.part_bars(groups, theme()),
            key="lens:bars",
            alt="What each kind of part adds to the logit",
        )
    rows = [[name, signed(part.value)] for name, part in parts]
    details(
        f"All {len(rows)} parts, the largest first",
        partial(table, ["part", "adds"], rows, caption="Parts of the logit", markers=False),
        "lens:ranked",
    )
    if picked is not None:
        kind, layer, head = picked
        name = controls.reading.trace.of(kind).map(layer).layer_name
        heads.attention(controls, name, (kind, head))
    st.latex(text.equation(attribution))


def _picked(controls: Controls, attribution: Attribution) -> Head | None:
    """The head of the link, else the one that was picked on another page, else the one with the largest part."""
    values = {
        (*part.key, part.head): part.value
        for part in attribution.parts
        if part.role == "head" and part.key is not None and part.head is not None
    }
    keys = list(layer_names(controls))
    linked = read_linked(
        "lens", "head", (len(keys), max((head for *_, head in values), default=0) + 1), controls.ref
    )
    if linked is not None and (*keys[linked[0]], linked[1]) in values:
        return *keys[linked[0]], linked[1]
    chosen = current_head(controls.ref)
    if chosen is not None and (chosen[0], *chosen[1]) in values:
        return chosen[0], *chosen[1]
    return max(values, key=lambda head: abs(values[head]), default=None)


def _grid(controls: Controls, attribution: Attribution, picked: Head | None) -> None:
    """Draw layers × heads and the feed-forward networks, each cell what it adds."""
    names, rows = layer_names(controls), list[Spec]()
    for part in attribution.parts:
        if part.key is not None and part.role in ("head", "feed-forward"):
            column = str(part.head) if part.role == "head" else INNER
            name = (
                f"{names[part.key]}·H{column}"
                if part.role == "head"
                else f"feed-forward of {names[part.key]}"
            )
            rows.append(
                {
                    "layer": names[part.key],
                    "head": column,
                    "change": part.value,
                    "name": name,
                    "by": signed(part.value),
                }
            )
    most = max((int(row["head"]) for row in rows if row["head"].isdecimal()), default=0) + 1
    outlined = ("", "") if picked is None else (names[picked[:2]], str(picked[2]))
    inner = [INNER] if any(row["head"] == INNER for row in rows) else []
    draw_chart(
        st,
        effect_grid(
            rows,
            list(names.values()),
            [*map(str, range(most)), *inner],
            outlined,
            theme(),
            title="added to the logit",
            tips=(("name", "part"), ("by", "adds")),
        ),
        key=GRID,
        on_select=lambda: _pick(controls),
        selection_mode=[PICKED],
        alt="What each head and feed-forward layer adds to the logit",
    )


def _head_field(controls: Controls, attribution: Attribution, picked: Head | None) -> None:
    names = layer_names(controls)
    heads = {
        f"{names[part.key]}·H{part.head}": (*part.key, part.head)
        for part in attribution.parts
        if part.role == "head" and part.key is not None and part.head is not None
    }
    head_field(
        heads, picked, lambda head: _choose(controls, head), f"lens:head:{controls.ref.name}"
    )


def _pick(controls: Controls) -> None:
    point = pressed_point(GRID)
    if point and str(point["head"]).isdecimal():
        keys = {name: key for key, name in layer_names(controls).items()}
        _choose(controls, (*keys[point["layer"]], int(point["head"])))


def _choose(controls: Controls, head: Head) -> None:
    """The picked head becomes the one whose attention is shown, here and on other pages."""
    kind, layer, index = head
    choose_head(controls.ref, kind, (layer, index))
    write_pair("head", (list(layer_names(controls)).index((kind, layer)), index))
