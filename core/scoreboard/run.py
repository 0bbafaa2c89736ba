"""A board is measured by runs in worker processes, each with a part of it; a cell is a line of a run's file.

    run.json       the board and this worker's part under "board"
    cells.jsonl    one training a line
    status.json, stop, lock  as in core.runs.runs

A worker skips what any run of the same settings has measured, or what ships with the lab: it can be killed at any time.
"""

import gzip
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from itertools import product
from pathlib import Path

from core.files import BOARDS, append_line, read_lines, runs_folder, with_checksum, write_atomically
from core.runs.machine import record_machine
from core.runs.runs import Run, list_runs, new_id
from core.scoreboard.base import Board, Cell, CellResult, plain
from core.serialization import read
from core.threads import num_threads
from core.training import prepare, train
from core.training.evaluate import Stopped, never_stop
from core.training.loop import measure, one_step

CELLS = "cells.jsonl"
SHIPPED = Path(__file__).with_name("shipped")
TIMED = 3  # steps, by which a training's time is estimated
DIVERGED = 0.0  # the value of a training whose loss is no number


@num_threads(1)
def measure_cell(
    board: Board, cell: Cell, stop: Callable[[], bool] = never_stop
) -> CellResult | None:
    """Train one cell, until two records in a row have learned it and 1,000 held-out sources confirm; None where it was
    stopped."""
    config, skill, started = board.run(cell), board.skill(cell.skill), time.process_time()
    session, curve, note = prepare(config), list[tuple[int, float]](), ""
    value, within, learned = DIVERGED, None, 0
    try:
        for record in train(config, session, stop):
            value = float(getattr(record, skill.measure) or 0.0)
            within = record.buckets[0].sequence_accuracy if record.buckets else None
            if not record.final:
                curve.append((record.step, value))
            learned = learned + 1 if value >= skill.passes else 0
            if learned == 2 and record.step < config.steps:
                last = measure(session, stop, final=True)
                if (confirmed := float(getattr(last, skill.measure))) >= skill.passes:
                    value = confirmed
                    within = last.buckets[0].sequence_accuracy if last.buckets else None
                    break
                learned = 0
    except FloatingPointError as error:
        value, note = DIVERGED, str(error)
    except Stopped:
        return None
    if stop():
        return None
    return CellResult(
        *cell,
        board.id(cell),
        board.hash,
        value,
        session.progress.step,
        time.process_time() - started,
        tuple(curve),
        within,
        note,
    )


def work(
    run: Run,
    stop: Callable[[], bool],
    on_cell: Callable[[CellResult], object] = lambda cell: None,
) -> tuple[str, str]:
    """Measure this worker's part of a board; returns the final state and its message."""
    data = run.metadata()
    board, count = board_of(run), 0
    record_machine(run, "cpu")
    pairs = [*product(board.skills, board.mechanisms)][data["part"] :: data["parts"]]
    for skill, mechanism in pairs:
        measured = results(board)  # others may have measured some meanwhile
        while left := board.pending(mechanism.key, skill.key, measured):
            result = measure_cell(board, left[0], stop)
            if result is None:
                return "stopped", f"Stopped after {count:,} cells, which are saved."
            run.require()
            line = plain(result)
            append_line(run.path / CELLS, with_checksum(json.dumps(line)))
            # rounded as in the file: another worker that goes on chooses the same rate
            measured[result.cell] = CellResult.from_json(line)
            count += 1
            on_cell(result)
    return "finished", f"Measured {count:,} cells."


def board_of(run: Run) -> Board:
    """The board of a run; ConfigError where the file describes none."""
    return read(run.metadata().get("board"), Board, "A board's run")


def create(board: Board, workers: int = 1) -> list[Run]:
    """New runs that share a board, one a worker."""
    runs = [Run(runs_folder() / BOARDS / new_id()) for _ in range(workers)]
    for part, run in enumerate(runs):
        run.create(board=asdict(board), part=part, parts=workers)
    return runs


def board_runs() -> list[Run]:
    """Every run of a board, oldest first."""
    return [run for run in list_runs(runs_folder() / BOARDS) if run.job == "board"]


def results(board: Board, shipped: bool = True) -> dict[Cell, CellResult]:
    """All that was measured of a board, here and by those who ship it; a cell of other settings is none of it."""
    files = [run.path / CELLS for run in board_runs()]
    measured = [one for path in files for _, one in read_lines(path, CellResult.from_json)]
    every = [*(read_shipped() if shipped else ()), *filter(None, measured)]
    rows, columns = ({one.key for one in each} for each in (board.mechanisms, board.skills))
    known = [
        one
        for one in every
        if one.board == board.hash and one.mechanism in rows and one.skill in columns
    ]
    return {one.cell: one for one in known if one.id == board.id(one.cell)}


def read_shipped(folder: Path = SHIPPED) -> Iterator[CellResult]:
    """The results that ship with the lab, a compressed file of lines for each skill."""
    for path in sorted(folder.glob("*.jsonl.gz")):
        for line in gzip.decompress(path.read_bytes()).decode().splitlines():
            yield CellResult.from_json(json.loads(line))


def ship(measured: Mapping[Cell, CellResult], folder: Path = SHIPPED) -> None:
    """Write the results that ship, in the order of their cells, so that the same results are the same bytes."""
    folder.mkdir(exist_ok=True)
    for skill in {one.skill for one in measured}:
        lines = [
            json.dumps(plain(measured[cell])) for cell in sorted(measured) if cell.skill == skill
        ]
        data = gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0)
        write_atomically(folder / f"{skill}.jsonl.gz", data)


def seconds_left(board: Board, measured: Mapping[Cell, CellResult]) -> float:
    """Seconds of one core that are left, at most: by like cells where there are any, else by a few steps."""
    total = 0.0
    for skill, mechanism in product(board.skills, board.mechanisms):
        done = [one for one in measured.values() if one.cell[:2] == (mechanism.key, skill.key)]
        needed = len(board.rates) * len(board.rate_seeds) + len(board.seeds) - len(done)
        if needed > 0:
            cell = Cell(mechanism.key, skill.key, board.rates[0], board.seeds[0])
            known = [one.seconds for one in done]
            total += needed * (sum(known) / len(known) if known else time_of(board, cell))
    return total


@num_threads(1)
def time_of(board: Board, cell: Cell) -> float:
    """Seconds of one core that a cell takes, if it is not learned before its last step."""
    session = prepare(board.run(cell))
    one_step(session, 1)
    started = time.process_time()
    for step in range(TIMED):
        one_step(session, 2 + step)
    return (time.process_time() - started) / TIMED * session.config.steps
