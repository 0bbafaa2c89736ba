"""Where the heads of a layer look from the position that answers."""

from __future__ import annotations

from core.interpret.trace import AttentionMap
from dashboard.draw.formats import number
from dashboard.ui.heads import weight_link
from dashboard.ui.tables import table
from dashboard.views.lens.compute import layer_names, maps_of_layer
from dashboard.views.lens.controls import Controls
from dashboard.widgets.model_picker.head_choice import KINDS
from dashboard.widgets.panels import caption, paragraph, plain


def attention(controls: Controls, state: str, only: tuple[str, int] | None = None) -> None:
    """Draw what each head of a layer attends to most; `only` is one head, as (kind, head)."""
    maps = [item for item in maps_of_layer(controls, state) if only is None or item.kind == only[0]]
    if not maps:
        caption(f"{plain(state)} has no attention.")
        return
    token = plain(controls.line.tokens[controls.position])
    name = (
        state
        if only is None
        else f"{layer_names(controls)[maps[0].kind, maps[0].layer]}·H{only[1]}"
    )
    paragraph(f"**Where {plain(name)} attends to from {token}**")
    rows = [
        (item, head)
        for item in maps
        for head in range(len(item.weights))
        if only is None or head == only[1]
    ]
    rows.sort(key=lambda row: -float(_weights(controls, *row).max()))
    several = len({item.kind for item in maps}) > 1
    table(
        ["head", *(["attention"] if several else []), "attends most to", "weight"],
        [_row(controls, item, head, several) for item, head in rows],
        caption=f"The heads of {state}",
        left=3 if several else 2,
        markers=False,
    )
    item, head = rows[0]
    weight_link(
        controls.choice,
        item.kind,
        (item.layer, head),
        (controls.position, int(_weights(controls, item, head).argmax())),
    )


def _weights(controls: Controls, item: AttentionMap, head: int):
    return item.weights[head, controls.position]


def _row(controls: Controls, item: AttentionMap, head: int, several: bool) -> list[str]:
    weights = _weights(controls, item, head)
    key = int(weights.argmax())
    return [
        f"{item.layer_name}·H{head}",
        *([KINDS[item.kind].lower()] if several else []),
        f"{item.keys[key]} ({key})",
        number(float(weights[key])),
    ]
