"""Three matrices to edit, instead of a sentence; saved in the link."""

from __future__ import annotations

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard.views.one_query import matrices
from dashboard.views.one_query.session import get, put

PARAM = "one:matrices"


def draw_matrices(widths: DeltaGenerator, container: DeltaGenerator) -> None:
    """Draw Q, K and V as three editors, saved in the session and the link; warn if the link's are not used."""
    if note := load():
        container.warning(note)
    parts: list[matrices.Rows] = get("base")
    with widths:
        keys, values = width("Columns of Q and K", "d", parts[0]), width("Columns of V", "e", parts[2])
    with container:
        columns = st.columns(3)
    sizes = (keys, keys, values)
    edited = [edit(*each) for each in zip(columns, "QKV", parts, sizes, strict=True)]
    put("is_worked", edited == matrices.parse(matrices.WORKED))
    put("edited", edited)
    write_link(edited)


def width(label: str, name: str, rows: matrices.Rows) -> int:
    stored = f"one:width_{name}{get('version')}"
    return int(st.number_input(label, 1, matrices.MAX_COLUMNS, len(rows[0]), 1, key=stored))


def load() -> str:
    """Load the matrices of the link when the page opens, or the worked example; returns why the link's are not used."""
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


def edit(container: DeltaGenerator, name: str, rows: matrices.Rows, columns: int) -> matrices.Rows:
    """Draw one matrix: its cells, with rows that can be added and removed."""
    import pandas as pd  # a quarter of a second that the first page, a sentence, need not wait for

    frame = pd.DataFrame(matrices.widen(rows, columns), columns=[str(c) for c in range(columns)], dtype=float)
    config = {c: st.column_config.NumberColumn(f"{name} {c}", format="%.3g", width="small") for c in frame.columns}
    with container:
        edited = st.data_editor(frame, key=f"one:{name}{get('version')}-{columns}", num_rows="dynamic", hide_index=True,
                              column_config=config, alt=f"Matrix {name}, editable")
    return [[float("nan") if value is None else float(value) for value in row] for row in edited.to_numpy().tolist()]


def write_link(parts: list[matrices.Rows]) -> None:
    """Write the matrices to the link where they changed."""
    text = matrices.write(parts)
    if st.query_params.get(PARAM) != text:
        st.query_params[PARAM] = text
