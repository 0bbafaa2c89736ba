"""Published mechanisms on this page: the list, the one that the controls make, and its sentences."""

from __future__ import annotations

import streamlit as st

from core.attention import AXES, PRESETS, AttentionConfig, Choice, ConfigError, Preset, preset
from dashboard.views.one_query.controls import Controls, read_controls
from dashboard.views.one_query.session import get, heads_of, key, put, start, uses_matrices, write_choice
from dashboard.widgets.mechanism_editor import preset_of
from dashboard.widgets.panels import plain

WORKED, CUSTOM = "worked", "custom"
PLAIN = ("self_attention", "vaswani")  # which have nothing to compare
ROOMY = (16, 4)  # d_model and heads that nearly every preset fits


def draw_select() -> None:
    """Draw the list of presets, which shows the one that the other controls make, and what this one changes."""
    put("preset", _current())
    st.selectbox("Preset", [CUSTOM, WORKED, *(p.key for p in PRESETS)], key=key("preset"), format_func=_label,
                 on_change=_apply, help="A published mechanism; it sets all six choices below")
    for line in sentences(read_controls()):
        st.caption(plain(line))
    if error := get("preset_refused"):
        st.error(plain(error))
    put("preset_refused", "")


def _label(name: str) -> str:
    if name in (CUSTOM, WORKED):
        return {CUSTOM: "Your own", WORKED: "Worked example"}[name]
    item = preset(name)
    return item.name if str(item.year) in item.name else f"{item.name}, {item.year}"


def _current() -> str:
    controls = read_controls()
    if uses_matrices():
        unchanged = controls.config == AttentionConfig(controls.fields["d_model"], 1, Choice("identity"))
        return WORKED if get("is_worked", True) and unchanged else CUSTOM
    return preset_of(controls.config) or CUSTOM


def _apply() -> None:
    """Set all six axes to a preset, at this page's sizes where these fit."""
    name = get("preset")
    if name == WORKED:
        put("source", "matrices")
        put("reset_matrices", True)
        for axis in AXES:
            write_choice(axis, getattr(AttentionConfig(), axis))
    elif name != CUSTOM:
        put("source", "sentence")
        d_model = get("d_model", start().d_model)
        _apply_preset(preset(name), d_model, heads_of(d_model))


def _apply_preset(item: Preset, d_model: int, heads: int) -> None:
    """Set the first of these sizes that the preset fits, or keep why it does not fit the page's."""
    refused = None
    for sizes in ((d_model, heads), (d_model, item.heads), ROOMY, (ROOMY[0], item.heads)):
        try:
            config = item.config(*sizes)
        except ConfigError as error:
            refused = refused or error
            continue
        put("d_model", config.d_model)
        put("heads", config.num_heads)
        for axis in AXES:
            write_choice(axis, getattr(config, axis))
        return
    put("preset_refused", str(refused))


def sentences(controls: Controls) -> list[str]:
    """The preset's changes against Vaswani 2017, a sentence each; none where there is no preset."""
    config = controls.config
    name = preset_of(config)
    if name is None or name in PLAIN or config is None or controls.source is None or controls.source.matrices:
        return []
    item = preset(name)
    changes = item.changed(config.d_model, config.num_heads) or (item.meaning,)
    name = item.name if str(item.year) in item.name else f"{item.name} ({item.paper} {item.year})"
    return [f"{name} compared with Vaswani 2017" if len(changes) > 1 else name, *changes]
