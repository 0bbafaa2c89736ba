"""Three matrices that can be edited, instead of a sentence; kept in the link."""

from __future__ import annotations

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard.views.one_query import matrices
from dashboard.views.one_query.session import get, put

PARAM = "one:matrices"


def given(widths: DeltaGenerator, place: DeltaGenerator) -> None:
    """Q, K and V as three editors, kept in the session and in the link; why a link's are not shown, said over them."""
    if note := load():
        place.warning(note)
    parts: list[matrices.Rows] = get("base")
    with widths:
        keys, values = width("Columns of Q and K", "d", parts[0]), width("Columns of V", "e", parts[2])
    with place:
        columns = st.columns(3)
    sizes = (keys, keys, values)
    edited = [edit(*each) for each in zip(columns, "QKV", parts, sizes, strict=True)]
    put("is_worked", edited == matrices.parse(matrices.WORKED))
    put("edited", edited)
    remember(edited)


def width(label: str, name: str, rows: matrices.Rows) -> int:
    stored = f"one:width_{name}{get('version')}"
    return int(st.number_input(label, 1, matrices.MAX_COLUMNS, len(rows[0]), 1, key=stored))


def load() -> str:
    """Take the matrices from the link when the page opens, or the worked example; returns why not, when not."""
    if get("base") is not None and not get("reset_matrices"):
        return ""
    text, note = matrices.WORKED, ""
    if not get("reset_matrices") and PARAM in st.query_params:
        text = st.query_params[PARAM]
    put("reset_matrices", False)
    put("version", get("version", 0) + 1)
    try:
        parts = matrices.parse(text)
        matrices.check(parts)
    except matrices.MatrixError as error:
        parts, note = matrices.parse(matrices.WORKED), f"{error} The worked example is shown."
    put("base", parts)
    return note


def edit(place: DeltaGenerator, name: str, rows: matrices.Rows, columns: int) -> matrices.Rows:
    """One matrix: its cells, with rows that can be added and taken away."""
    import pandas as pd  # a quarter of a second that the first page, a sentence, need not wait for

    frame = pd.DataFrame(matrices.widen(rows, columns), columns=[str(c) for c in range(columns)], dtype=float)
    config = {c: st.column_config.NumberColumn(f"{name} {c}", format="%.3g", width="small") for c in frame.columns}
    with place:
        done = st.data_editor(frame, key=f"one:{name}{get('version')}-{columns}", num_rows="dynamic", hide_index=True,
                              column_config=config, alt=f"Matrix {name}, editable")
    return [[float("nan") if value is None else float(value) for value in row] for row in done.to_numpy().tolist()]


def remember(parts: list[matrices.Rows]) -> None:
    """Keep the matrices in the link; the link is touched only where they change."""
    text = matrices.write(parts)
    if st.query_params.get(PARAM) != text:
        st.query_params[PARAM] = text
