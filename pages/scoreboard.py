"""Scoreboard: which mechanism learns which skill, in how many of eight seeds, and at what cost."""

from collections.abc import Sequence
from functools import partial

import streamlit as st

import dashboard.page as lab
from core.attention import ConfigError
from core.runs.runs import Run
from core.scoreboard.base import Cell, Mechanism, Skill, best_rate, differs, read_board
from core.scoreboard.run import measure_cell
from core.studies import scoreboard as study
from dashboard.draw import scoreboard as draw

PAGE, OWN, FILE = "scoreboard", "scoreboard:own", "scoreboard:file"
SKILLS = {one.key: one.name for one in read_board().skills}


class Controls(lab.Fields, page=PAGE):
    matrix: study.Matrix
    mechanism = lab.Select[str](
        "Picked mechanism",
        lambda c: {one.key: one.name for one in c.matrix.board.mechanisms},
        span=2,
        help="The row of the picked cell. A press on a cell picks it, too.",
    )
    skill = lab.Select[str](
        "Skill", SKILLS, span=2, help="The column of the picked cell, which the table has, too."
    )
    best_first = lab.Toggle(
        "Best first", help="The mechanisms that learned the picked skill in most seeds come first."
    ).when(lambda c: c.matrix.scores)
    cost = lab.Select[str](
        "Cost", draw.COSTS, help="What a mechanism costs on the longest source of the skill."
    )
    attention = lab.Text(
        "Attention as text",
        "kernel=gla projection=short_conv mask=causal",
        span=3,
        help="As Side by side and the shell take it; a semicolon stands between the layers of a pattern.",
    )
    skills = lab.MultiSelect[str](
        "Trained on", SKILLS, [*SKILLS][:1], span=3, help="The skills of the new row."
    )


def page() -> None:
    lab.title("Scoreboard", draw.LEAD)
    lab.fragment(view)()
    functions = measure_cell, best_rate, differs, study.front
    lab.details(
        "Papers and source", partial(lab.sources, draw.PAPERS, *functions), "scoreboard:papers"
    )


def view() -> None:
    matrix = lab.computed(study.read_matrix)
    controls = Controls.draw("mechanism", "skill", "best_first", matrix=matrix)
    row, skill = matrix.board.mechanism(controls.mechanism), matrix.board.skill(controls.skill)

    sort = skill.key if controls.best_first else ""
    lab.draw_chart(
        st,
        draw.matrix_figure(matrix, sort, (row, skill), lab.theme()),
        key="scoreboard:matrix",
        alt="In how many of eight seeds each mechanism learned each skill",
        selection_mode=[lab.PICKED],
        on_select=_press,
    )
    lab.fact(draw.fact_text(matrix, row, skill))
    lab.caption(draw.legend(matrix))
    for sentence in matrix.refused:
        st.warning(lab.plain(sentence))
    left, right = st.columns(2, gap="large")
    with left:
        _curves(matrix, row, skill)
        if text := draw.cell_text(matrix, row, skill):
            lab.paragraph(text)
        lab.caption(draw.conditions(skill))
        _again(matrix, row, skill)
    with right:
        _scatter(matrix, skill)
    head, rows = draw.table(matrix, skill)
    lab.table(head, rows, caption=f"{skill.name}, by mechanism", markers=False)
    runs = [run for run in study.board_runs() if not run.status().ended]
    lab.details("Your mechanism", partial(_own, matrix, runs), OWN, opened=bool(runs))
    lab.details("Results of others", _others, "scoreboard:others")
    lab.details(
        "Objections, and what is done about them",
        lambda: st.markdown(draw.OBJECTIONS),
        "scoreboard:objections",
    )
    st.download_button(
        "All cells, JSON lines",
        lambda: study.to_lines(matrix),
        "scoreboard.jsonl",
        "application/jsonl",
        on_click="ignore",
        key="scoreboard:cells",
        icon=":material/download:",
    )
    lab.as_python(matrix=matrix, draw={"scoreboard:matrix": draw.CHART})


def _press() -> None:
    if point := lab.pressed_point("scoreboard:matrix"):
        board = study.read_matrix().board
        rows, columns = (
            {one.name: one.key for one in each} for each in (board.mechanisms, board.skills)
        )
        Controls.set(mechanism=rows[point["layer"]], skill=columns[point["head"]])


def _curves(matrix: study.Matrix, row: Mechanism, skill: Skill) -> None:
    if not matrix.trainings(row.key, skill.key):
        lab.placeholder("The curves of each training appear here once it is measured.", draw.HEIGHT)
        return
    lab.draw_chart(
        st,
        draw.curves_figure(matrix, row, skill, lab.Ink.of(lab.theme())),
        key="scoreboard:curves",
        alt=f"{skill.name} along the steps of each training",
        heading=f"{row.name}: a line a seed, dotted a rate that was tried, dashed what is learned",
    )


def _scatter(matrix: study.Matrix, skill: Skill) -> None:
    if not any(measured == skill.key for _, measured in matrix.scores):
        lab.placeholder("No mechanism was measured on this skill yet.", draw.HEIGHT)
        return
    cost = Controls.draw("cost", into=lab.HERE).cost
    attentions = tuple(one.attention for one in matrix.board.mechanisms)
    costs = lab.shared(study.costs, skill.key, attentions)
    lab.draw_chart(
        st,
        draw.scatter_figure(matrix, skill, cost, costs, lab.theme()),
        key="scoreboard:scatter",
        alt="The share of seeds that learned the skill against a cost",
        heading=f"{skill.name}: share of seeds by cost",
    )


def _again(matrix: study.Matrix, row: Mechanism, skill: Skill) -> None:
    """Train the picked cell as a run, whose attention, weights and curves are then on every page."""
    board, score = matrix.board, matrix.scores.get((row.key, skill.key))
    rate = score.rate if score else board.rates[len(board.rates) // 2]
    config = lab.limits.within(board.run(Cell(row.key, skill.key, rate, board.seeds[0])))
    start = partial(lab.queue.start, name=f"{row.name}, {skill.name}")
    lab.start_run(PAGE, config, start, _open_train, ConfigError)
    lab.show_flash(PAGE)
    step = matrix.step_seconds(row.key, skill.key)
    seconds = (
        skill.steps * step if step else lab.shared(study.training_seconds, row.attention, skill.key)
    )
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button(
            "Train this model here",
            key="scoreboard:again",
            icon=":material/play_arrow:",
            on_click=lab.press,
            args=(PAGE,),
            help=f"Seed {board.seeds[0]} at a rate of {rate:g}, as a run.",
        )
        lab.caption(
            f"About {lab.about_duration(seconds)}. Its attention is then on Train and on all pages that open a run."
        )
    lab.limits_line()


def _open_train(run: Run) -> None:
    st.switch_page(lab.step_of("train").page(), query_params={"run": run.id})


def _own(matrix: study.Matrix, runs: list[Run]) -> None:
    """A row of a reader's own: its text, its skills, Start, then how far its runs are, and Stop."""
    lab.paragraph(draw.OWN)
    lab.show_flash(OWN)
    with lab.input_errors():
        controls = Controls.draw("attention", "skills")
        board = study.own_board(controls.attention, controls.skills)
        lab.start_run(
            OWN, board, lab.queue.measure_board, len, ConfigError, run_of=lambda made: made[0]
        )
        own = controls.attention, tuple(controls.skills), len(matrix.cells)
        seconds = lab.shared(study.seconds_left, *own) / lab.queue.max_workers()
        resumes = any(cell.mechanism == board.mechanisms[-1].key for cell in matrix.cells)
        with st.container(horizontal=True, vertical_alignment="center"):
            st.button(
                "Continue" if resumes else "Start",
                key="scoreboard:start",
                icon=":material/play_arrow:",
                on_click=lab.press,
                args=(OWN,),
                disabled=bool(runs) or not seconds,
                help="Workers train it at each rate, then at the best one from each seed.",
            )
            st.caption(draw.own_text(seconds))
    if runs:
        buttons, column = st.columns([1, 3.4], vertical_alignment="center")
        lab.stop_button(buttons, OWN, _stop, runs)
        with column:
            lab.poll(
                study.read_matrix,
                partial(_progress, runs[0]),
                True,
                "scoreboard:progress",
                interval=lab.SLOW_POLL_INTERVAL,
                # a new training changes the pictures of the whole page
                still_live=lambda now: (
                    now is matrix and not any(run.status().ended for run in runs)
                ),
            )
    else:
        for run in study.board_runs()[-1:]:
            if run.status().state == "failed":
                st.error(lab.plain(run.status().message))
        lab.limits_line(steps=False)


def _progress(run: Run, matrix: study.Matrix) -> None:
    done, planned = study.progress(matrix, run)
    now = done / planned, f"{done} of {planned} trainings"
    lab.show_progress(run, run.status(), ending="", progress=lambda: now)


def _others() -> None:
    lab.show_flash(FILE)
    st.file_uploader(
        "A file of cells",
        "jsonl",
        key=FILE,
        max_upload_size=lab.visitors.at_most("upload_megabytes", 20),
        on_change=lab.guarded(FILE, _take),
        help="What All cells, JSON lines gave on another machine. Each line is checked: by its checksum, its board's and "
        "its training's.",
    )


def _take() -> None:
    """Pool the results of a file, once, when it is chosen."""
    if (file := st.session_state.get(FILE)) is None:
        return

    def take() -> None:
        lab.limits.admit_upload(file)
        st.toast(draw.taken_text(*study.take_in(file.getvalue())), duration="long")

    lab.flash_errors(FILE, "The file was not taken. ", take, ConfigError, OSError)


def _stop(runs: Sequence[Run]) -> None:
    for run in runs:
        lab.end_run(run)
