"""Scoreboard: which mechanism learns which skill, in how many of eight seeds, and at what cost."""

import json
from functools import partial

import streamlit as st

import dashboard.page as lab
from core.attention import ConfigError
from core.entries import refuse_if
from core.scoreboard.base import Cell, differs, plain, read_board
from core.scoreboard.run import measure_cell, seconds_left
from core.studies import scoreboard as study
from dashboard.draw import scoreboard as draw

PAGE = "scoreboard"
BOARD = read_board()
FIRST = BOARD.mechanisms[0].key, BOARD.skills[0].key


def place_of(text: str) -> str:
    """The picked cell of a link: mechanism and skill with a slash between."""
    mechanism, _, skill = text.rpartition("/")
    board = study.with_own(BOARD)
    board.mechanism(mechanism), board.skill(skill)
    return text


class Controls(lab.Fields, page=PAGE):
    sort = lab.Select[str](
        "Sort by",
        {"": "The order of the board", **{one.key: one.name for one in BOARD.skills}},
        help="The mechanisms that learned this skill in most seeds come first.",
    )
    cell = lab.LinkedValue("/".join(FIRST), "cell")
    cost = lab.Select[str](
        "Cost",
        draw.COSTS,
        hidden=True,
        help="What a mechanism costs on the longest source of the skill.",
    )
    attention = lab.Text(
        "Mechanism",
        "kernel=gla projection=short_conv mask=causal",
        help="Attention as text, as Compare and the shell take it; a semicolon stands between the layers of a pattern.",
    )
    skills = lab.MultiSelect[str](
        "Skills",
        {one.key: one.name for one in BOARD.skills},
        [BOARD.skills[0].key],
        help="The skills that it is trained on.",
    )


def page() -> None:
    lab.title("Scoreboard", draw.LEAD)
    Controls.cell.linked(place_of)
    lab.fragment(view)()
    lab.details(
        "Papers and source",
        partial(
            lab.sources, draw.PAPERS, measure_cell, study.front, differs, BOARD.pending, BOARD.score
        ),
        "scoreboard:papers",
    )


def view() -> None:
    matrix = lab.shared(study.read_matrix)
    controls = Controls.draw("sort", into=lab.HERE)
    mechanism, _, skill = Controls.cell.value.rpartition("/")
    names = {one.name: one.key for one in matrix.board.mechanisms}
    columns = {one.name: one.key for one in matrix.board.skills}

    def press() -> None:
        if point := lab.pressed_point("scoreboard:matrix"):
            Controls.cell.set(f"{names[point['layer']]}/{columns[point['head']]}")

    lab.draw_chart(
        st,
        draw.matrix_figure(matrix, controls.sort, (mechanism, skill), lab.theme()),
        key="scoreboard:matrix",
        alt="In how many of eight seeds each mechanism learned each skill.",
        selection_mode=[lab.PICKED],
        on_select=press,
    )
    lab.caption(draw.legend(matrix))
    lab.fact(draw.fact_text(matrix, mechanism, skill))
    lab.paragraph(draw.cell_text(matrix, mechanism, skill))
    score = matrix.scores.get((mechanism, skill))
    left, right = st.columns([1, 1], gap="medium")
    with left:
        if score is not None and score.results:
            lab.chart_title(f"{matrix.board.skill(skill).name} along the steps, a line a seed")
            lab.draw_chart(
                st,
                draw.curves_figure(matrix, mechanism, skill, lab.theme()),
                key="scoreboard:curves",
                alt="The measure of the skill over the steps of each training.",
            )
        _again(matrix, mechanism, skill)
    with right:
        cost = Controls.draw("cost", into=lab.HERE).cost
        costs = {
            one.key: lab.cached(study.costs, matrix, one.key, skill)
            for one in matrix.board.mechanisms
        }
        lab.draw_chart(
            st,
            draw.scatter_figure(matrix, skill, cost, costs, lab.theme()),
            key="scoreboard:scatter",
            alt="The share of seeds that learned the skill against a cost.",
        )
    head, rows = draw.table(matrix, skill)
    lab.table(head, rows, caption=f"{matrix.board.skill(skill).name}, by mechanism", markers=False)
    lab.details(
        "What an expert objects", lambda: st.markdown(draw.OBJECTIONS), "scoreboard:objections"
    )
    lab.details("Your mechanism", partial(_own, matrix), "scoreboard:own")
    st.download_button(
        "All cells, JSON lines",
        lambda: "".join(f"{json.dumps(plain(one))}\n" for one in matrix.cells.values()),
        "scoreboard.jsonl",
        "application/jsonl",
        on_click="ignore",
        key="scoreboard:cells",
        icon=":material/download:",
    )
    lab.as_python(matrix=matrix, draw={"scoreboard:matrix": draw.CHART})


def _again(matrix: study.Matrix, mechanism: str, skill: str) -> None:
    """Train the picked cell as a run, whose attention, weights and curves are then on every page."""
    score = matrix.scores.get((mechanism, skill))
    cell = Cell(
        mechanism, skill, score.rate if score else matrix.board.rates[0], matrix.board.seeds[0]
    )
    seconds = seconds_left(matrix.board.only([mechanism], [skill]), {}) / 11
    if st.button(
        f"Train this model here, about {lab.duration(seconds)}",
        key="scoreboard:again",
        icon=":material/play_arrow:",
        help="Seed 0 of the cell, as a run: its attention is then on Train and on every page that opens a run.",
    ):
        run = lab.queue.start(matrix.board.run(cell), name=f"{mechanism} on {skill}")
        st.switch_page(lab.step_of("train").page(), query_params={"run": run.id})


@lab.input_errors()
def _own(matrix: study.Matrix) -> None:
    lab.paragraph(draw.OWN)
    controls = Controls.draw("attention", "skills", into=lab.HERE)
    refuse_if(not controls.skills, "Choose at least one skill.")
    board = study.own_board(controls.attention, controls.skills)
    workers = lab.queue.max_workers()
    takes = lab.duration(study.seconds(board) / workers)
    if st.button(
        f"Add this row, about {takes}", key="scoreboard:add", icon=":material/play_arrow:"
    ):
        lab.queue.measure_board(board)
        st.rerun()
    for run in study.board_runs():
        status = run.status()
        lab.caption(f"{run.id}: {status.state}. {lab.plain(status.message)}")
    if (file := st.file_uploader("Results of others", "jsonl", key="scoreboard:file")) is not None:
        try:
            study.take_in(file.getvalue())
        except (ConfigError, ValueError) as error:
            lab.field_error(error)
