"""Typed Q, K and V: three editors, checked, and written into the link."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import streamlit as st
import torch
from streamlit.delta_generator import DeltaGenerator

from core.entries import quote
from dashboard.views.one_query.session import get, key, put

WORKED = "1,2|1,0;0,1;1,1|0.5,0.3;0.8,0.2;0.1,0.9"
MAX_ROWS, MAX_COLUMNS = 32, 16
Rows = list[list[float]]


class MatrixError(ValueError):
    """The matrices cannot be multiplied; the message says which, and what would fit."""


@dataclass(frozen=True)
class Matrices:
    """Three matrices that fit: Q (T, D), K (S, D), V (S, E)."""

    q: Rows
    k: Rows
    v: Rows

    def tensors(self) -> tuple[torch.Tensor, ...]:
        """Each as (1, 1, rows, columns): one batch, one head."""
        return tuple(
            torch.tensor(part, dtype=torch.float32)[None, None] for part in (self.q, self.k, self.v)
        )


def parse(text: str) -> list[Rows]:
    """`1,2|1,0;0,1|…` → three lists of rows; MatrixError when there are not three, or a cell is not a number."""
    parts = text.split("|")
    if len(parts) != 3:
        raise MatrixError(
            "The link holds no Q, K and V: three matrices are written as 1,2|1,0;0,1|3;4."
        )
    return [
        [[_cell(c) for c in row.split(",")] for row in re.split("[;\n]", part) if row.strip()]
        for part in parts
    ]


def _cell(text: str) -> float:
    try:
        return float(text.replace("−", "-"))
    except ValueError as error:
        raise MatrixError(f"{quote(text.strip())} in the link's matrix is not a number.") from error


def write(parts: list[Rows]) -> str:
    return "|".join(
        ";".join(",".join(f"{value:.9g}" for value in row) for row in part) for part in parts
    )


def check(parts: list[Rows]) -> Matrices:
    """The three together; MatrixError names the first thing that does not fit, counting rows from 0."""
    for name, rows in zip("QKV", parts, strict=True):
        if not rows or not rows[0]:
            raise MatrixError(f"{name} has no rows; give it at least one.")
        if len(rows) > MAX_ROWS or max(map(len, rows)) > MAX_COLUMNS:
            raise MatrixError(
                f"{name} is larger than {MAX_ROWS} × {MAX_COLUMNS}; take fewer rows or columns."
            )
        if len({len(row) for row in rows}) > 1:
            raise MatrixError(
                f"{name}'s rows have {' and '.join(map(str, sorted({len(r) for r in rows})))} numbers; "
                "every row needs the same."
            )
        for i, row in enumerate(rows):
            for j, value in enumerate(row):
                if not abs(value) <= 1e6:
                    raise MatrixError(
                        f"{name} row {i}, column {j} is {_describe(value)}; "
                        "every cell needs a number between −1,000,000 and 1,000,000."
                    )
    q, k, v = parts
    if len(q[0]) != len(k[0]):
        raise MatrixError(
            f"Q has {len(q[0])} columns and K has {len(k[0])}; a query and a key are multiplied number "
            "by number, so give both the same."
        )
    if len(k) != len(v):
        raise MatrixError(
            f"K has {len(k)} rows and V has {len(v)}; each key has one value, so give both the same."
        )
    return Matrices(q, k, v)


def _describe(value: float) -> str:
    if math.isnan(value):
        return "empty or not a number (NaN)"
    return "infinite" if math.isinf(value) else f"{value:g}"


def draw_matrices(grid: DeltaGenerator, container: DeltaGenerator) -> None:
    """Draw Q, K and V as three editors, saved in the session and the link; warn if the link's are not used."""
    if note := _load():
        container.warning(note)
    parts: list[Rows] = get("base")
    with grid:
        keys, values = (
            _draw_width("Columns of Q and K", "d", parts[0]),
            _draw_width("Columns of V", "e", parts[2]),
        )
    columns = container.columns(3)
    edited = [
        _draw_editor(*each)
        for each in zip(columns, "QKV", parts, (keys, keys, values), strict=True)
    ]
    put("is_worked", edited == parse(WORKED))
    put("edited", edited)
    text = write(edited)
    if st.query_params.get(key("matrices")) != text:
        st.query_params[key("matrices")] = text


def _load() -> str:
    """Load the link's matrices when the page opens, or the worked example; returns why the link's are not used."""
    reset = get("reset_matrices")
    if get("base") is not None and not reset:
        return ""
    text = WORKED if reset else st.query_params.get(key("matrices"), WORKED)
    put("reset_matrices", False)
    put("version", get("version", 0) + 1)
    try:
        parts, note = parse(text), ""
        check(parts)
    except MatrixError as error:
        parts, note = parse(WORKED), f"{error} The worked example is shown."
    put("base", parts)
    return note


def _draw_width(label: str, name: str, rows: Rows) -> int:
    return int(
        st.number_input(
            label,
            1,
            MAX_COLUMNS,
            len(rows[0]),
            1,
            key=key(f"width_{name}{get('version')}"),
            help="A column is added with zeros, or the last one is removed",
        )
    )


def _draw_editor(container: DeltaGenerator, name: str, rows: Rows, columns: int) -> Rows:
    """Draw one matrix, cut or filled with 0 to `columns`; rows can be added and removed."""
    import pandas as pd  # a quarter of a second that the first page, a sentence, need not wait for

    wide = [(row + [0.0] * columns)[:columns] for row in rows]
    frame = pd.DataFrame(wide, columns=[str(c) for c in range(columns)], dtype=float)
    config = {
        c: st.column_config.NumberColumn(f"{name} {c}", format="%.3g", width="small")
        for c in frame.columns
    }
    edited = container.data_editor(
        frame,
        key=key(f"{name}{get('version')}-{columns}"),
        num_rows="dynamic",
        hide_index=True,
        column_config=config,
        alt=f"Matrix {name}, editable",
    )
    return [
        [float("nan") if value is None else float(value) for value in row]
        for row in edited.to_numpy().tolist()
    ]
