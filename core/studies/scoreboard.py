"""The scoreboard as its page shows it: scores by mechanism and skill, what each mechanism costs, a reader's own row, and
results handed in."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from statistics import fmean

import torch

from core.attention.cost import attention_cost
from core.entries import ConfigError, refuse_if
from core.files import append_line, modified, read_checked, sentence_of, with_checksum
from core.models import build_model
from core.runs.runs import Run
from core.scoreboard import run as runs
from core.scoreboard.base import (
    Board,
    Cell,
    CellResult,
    Mechanism,
    Score,
    decoder,
    differs,
    parameters,
    plain,
    read_board,
)
from core.scoreboard.run import (
    CELLS,
    board_of,
    board_runs,
    create,
    read_shipped,
    results,
    time_of,
)
from core.tasks import task_of

OWN = "own: "  # how the key of a row begins that was typed on the page
NUMBER_BYTES = 4
SIZE = 0.01  # by which a row's parameters may differ from those of the first one


@dataclass(frozen=True, eq=False)
class Matrix:
    """A board with a reader's own rows, the scores and all cells behind them, by mechanism and skill.

    `differs`: whether a share differs from the first mechanism's beyond chance. `refused` says which rows of runs are
    left out, and why.
    """

    board: Board
    scores: Mapping[tuple[str, str], Score]
    differs: Mapping[tuple[str, str], bool]
    cells: Mapping[Cell, CellResult]
    refused: tuple[str, ...]

    def trainings(self, mechanism: str, skill: str) -> list[CellResult]:
        return [one for cell, one in self.cells.items() if cell[:2] == (mechanism, skill)]

    def step_seconds(self, mechanism: str, skill: str) -> float | None:
        """Seconds of one core that a training step takes; None before one was measured."""
        every = [one.seconds / one.steps for one in self.trainings(mechanism, skill) if one.steps]
        return fmean(every) if every else None

    def sorted(self, skill: str) -> list[Mechanism]:
        """The mechanisms, those that learned the skill in most seeds first; as in the file without a skill."""
        ranks = {
            row: (-score.passed / len(score.results), -score.median)
            for (row, of), score in self.scores.items()
            if of == skill
        }
        return sorted(self.board.mechanisms, key=lambda row: ranks.get(row.key, (1.0, 0.0)))


def read_matrix() -> Matrix:
    """What ships with the lab and what was measured here; a reader's own rows after those of the file."""
    files = [run.path / CELLS for run in board_runs()]
    return _read(tuple((path, modified(path)) for path in files))


@lru_cache(maxsize=2)
def _read(files: tuple[tuple[Path, float], ...]) -> Matrix:
    board, refused = with_own(read_board())
    # A test holds what ships against the settings: to compute these checksums again takes a second.
    shipped = {one.cell: one for one in read_shipped() if one.board == board.hash}
    cells = shipped | results(board, shipped=False)
    scores = {
        (row.key, column.key): score
        for row, column in product(board.mechanisms, board.skills)
        if (score := board.score(row.key, column.key, cells)) and score.results
    }
    first, others = board.mechanisms[0].key, len(board.mechanisms) - 1
    differ = {
        (row, skill): differs(score, scores[first, skill], others)
        for (row, skill), score in scores.items()
        if row != first and (first, skill) in scores
    }
    return Matrix(board, scores, differ, cells, refused)


def with_own(board: Board) -> tuple[Board, tuple[str, ...]]:
    """The board with the rows that runs of this machine have added, and a sentence for each that cannot be built here."""
    known, names = ({getattr(row, name) for row in board.mechanisms} for name in ("key", "name"))
    own, refused = dict[str, Mechanism](), dict[str, str]()
    for run in board_runs():
        try:
            for row in board_of(run).mechanisms:
                if row.key not in known:
                    decoder(row.attention, board.model)
                    name = f"{row.name} ({row.key})" if row.name in names else row.name
                    own[row.key] = replace(row, name=name)
        except ConfigError as error:
            refused[str(error)] = f"The rows of run {run.id} are left out: {error}"
    return replace(board, mechanisms=(*board.mechanisms, *own.values())), (*refused.values(),)


def own_row(attention: str) -> Mechanism:
    text = " ".join(attention.split())
    refuse_if(not text, "Write a mechanism, such as kernel=gla mask=causal.")
    return Mechanism(f"{OWN}{text}", text, text)


def beside_first(rows: Iterable[Mechanism]) -> Board:
    """The lab's board with its first row alone, by which all others are made as large, and these."""
    board = read_board()
    return replace(board, mechanisms=(board.mechanisms[0], *rows))


def own_board(attention: str, skills: Sequence[str]) -> Board:
    """The board of the first row, which is trained where it was not measured, and of one of a reader's own.

    ConfigError where it cannot be built, or not as large as the others.
    """
    refuse_if(not skills, "Choose at least one skill.")
    board = beside_first([own_row(attention)]).only(skills=skills)
    for skill in board.skills:
        runs = [
            board.run(Cell(row.key, skill.key, board.rates[0], board.seeds[0]))
            for row in board.mechanisms
        ]
        first, own = (parameters(run.model, task_of(run.task).shape) for run in runs)
        refuse_if(
            abs(own / first - 1) > SIZE,
            f"With the narrowest feed-forward network this mechanism has {own:,} parameters; all others have {first:,}. "
            "Choose fewer or smaller parts.",
        )
    return board


@torch.no_grad()
def costs(skill: str, attentions: Sequence[str]) -> dict[str, dict[str, float]]:
    """Of each of these attentions, as text, on the longest of 50 sources of a skill: bytes of state or cache after it, and
    FLOPs of attention."""
    board, measured = beside_first(map(own_row, attentions)), {}
    task = task_of(board.skill(skill).config)
    batch = task.collate([max(task.held_out(50), key=lambda one: len(one.source))])
    length = batch.source.shape[1]
    for row in board.mechanisms[1:]:
        model = board.run(Cell(row.key, skill, board.rates[0], board.seeds[0])).model
        built = build_model(model, task.shape).eval()
        past = built.encode(batch.source, batch.source_mask).last.past  # type: ignore[operator]
        layers = map(model.layer_attention, range(model.layers))
        measured[row.attention] = {
            "state": NUMBER_BYTES * sum(cache.numbers for cache in past),
            "flops": sum(attention_cost(one, length, length).flops for one in layers),
        }
    return measured


def training_seconds(attention: str, skill: str) -> float:
    """Seconds of one core that all steps of a training take, by a few of them."""
    board = beside_first([own_row(attention)])
    return time_of(board, Cell(board.mechanisms[1].key, skill, board.rates[0], board.seeds[0]))


def seconds_left(attention: str, skills: Sequence[str], measured: int) -> float:
    """Seconds of one core, at most, that a reader's own row still takes once so many trainings are `measured`."""
    return runs.seconds_left(own_board(attention, skills), read_matrix().cells)


def progress(matrix: Matrix, run: Run) -> tuple[int, int]:
    """How many trainings of a run's board are done, and of how many."""
    board = board_of(run)
    pairs = {(row.key, one.key) for row, one in product(board.mechanisms, board.skills)}
    each = len(board.rates) * len(board.rate_seeds) + len(board.seeds)
    return sum(cell[:2] in pairs for cell in matrix.cells), each * len(pairs)


def front(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """Of (cost, share) points those that no other beats: none costs less and has as large a share, or as much and more."""
    return [
        name
        for name, (cost, share) in points.items()
        if not any(
            (c <= cost and s > share) or (c < cost and s >= share) for c, s in points.values()
        )
    ]


def to_lines(matrix: Matrix) -> bytes:
    """All cells as JSON lines with checksums, as `take_in` reads them."""
    return b"".join(with_checksum(json.dumps(plain(one))) + b"\n" for one in matrix.cells.values())


def take_in(data: bytes) -> tuple[int, int]:
    """Save the results in a file of lines that somebody measured; how many were new here, and how many were not.

    ConfigError where a line was changed, is of other settings, or of another training than this board's.
    """
    read = list[CellResult]()
    for number, line in enumerate(filter(None, data.split(b"\n")), 1):
        try:
            read.append(CellResult.from_json(read_checked(line)))
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"Line {number} is no result: {sentence_of(error)}") from error
    refuse_if(not read, "The file has no results.")
    matrix = read_matrix()
    typed = {one.mechanism for one in read if one.mechanism.startswith(OWN)}
    own = [own_row(key.removeprefix(OWN)) for key in sorted(typed)]
    rows = {row.key: row for row in (*matrix.board.mechanisms, *own)}
    board = replace(matrix.board, mechanisms=tuple(rows.values()))
    for one in read:
        refuse_if(
            one.board != board.hash,
            f"The file was measured with other settings ({one.board}); this board has {board.hash}.",
        )
        planned = one.rate in board.rates and one.seed in (*board.rate_seeds, *board.seeds)
        refuse_if(
            not planned or board.id(one.cell) != one.id,
            f"The result of {one.mechanism} on {one.skill}, rate {one.rate:g}, seed {one.seed}, is of another training than "
            "this board's.",
        )
    new = {one.cell: one for one in read if one.cell not in matrix.cells}
    if new:
        (run,) = create(board)
        for one in new.values():
            append_line(run.path / CELLS, with_checksum(json.dumps(plain(one))))
        run.set_status("finished", f"Taken from a file: {len(new):,} cells.")
    return len(new), len(read) - len(new)
