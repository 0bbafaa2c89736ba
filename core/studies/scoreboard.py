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
from core.scoreboard.base import (
    Board,
    Cell,
    CellResult,
    Mechanism,
    Score,
    Skill,
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


@dataclass(frozen=True)
class Costs:
    """Of a mechanism's model after the longest source of a skill: bytes of state or cache, and FLOPs of its attention."""

    state: int
    flops: float


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

        def rank(row: Mechanism) -> tuple[float, float]:
            score = self.scores.get((row.key, skill))
            return (-score.passed / len(score.results), -score.median) if score else (1.0, 0.0)

        return sorted(self.board.mechanisms, key=rank) if skill else [*self.board.mechanisms]


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
def costs(skill: str, attentions: Sequence[str]) -> dict[str, Costs]:
    """What each of these attentions, as text, costs on the longest of 50 sources of a skill."""
    board = beside_first(map(own_row, dict.fromkeys(attentions)))
    task = task_of(board.skill(skill).config)
    batch = task.collate([max(task.held_out(50), key=lambda one: len(one.source))])
    length, measured = batch.source.shape[1], dict[str, Costs]()
    for row in board.mechanisms[1:]:
        model = board.run(Cell(row.key, skill, board.rates[0], board.seeds[0])).model
        built = build_model(model, task.shape).eval()
        past = built.encode(batch.source, batch.source_mask).last.past  # type: ignore[operator]
        layers = (
            attention_cost(model.layer_attention(at), length, length) for at in range(model.layers)
        )
        state = NUMBER_BYTES * sum(cache.numbers for cache in past)
        measured[row.attention] = Costs(state, sum(one.flops for one in layers))
    return measured


def left(matrix: Matrix, board: Board) -> list[tuple[Mechanism, Skill, int]]:
    """How many trainings are left of each mechanism and skill of a board: rates to try, and the seeds that judge."""
    counts = []
    for row, skill in product(board.mechanisms, board.skills):
        pending = board.pending(row.key, skill.key, matrix.cells)
        seeds = len(board.seeds) if any(cell.seed in board.rate_seeds for cell in pending) else 0
        counts.append((row, skill, len(pending) + seeds))
    return counts


def seconds_left(matrix: Matrix, board: Board) -> float:
    """Seconds of one core that are left of a board, where nothing is learned before its last step."""
    return sum(
        count * training_seconds(matrix, row, skill)
        for row, skill, count in left(matrix, board)
        if count
    )


def training_seconds(matrix: Matrix, row: Mechanism, skill: Skill) -> float:
    """Seconds of one core that all steps of a training take: by like ones where there are any, else by a few steps."""
    each = matrix.step_seconds(row.key, skill.key)
    return skill.steps * (_step_seconds(row.attention, skill.key) if each is None else each)


@lru_cache(maxsize=256)
def _step_seconds(attention: str, skill: str) -> float:
    board = beside_first([own_row(attention)])
    cell = Cell(board.mechanisms[1].key, skill, board.rates[0], board.seeds[0])
    return time_of(board, cell) / board.skill(skill).steps


def progress(matrix: Matrix, runs: Sequence[Run]) -> tuple[int, int, float]:
    """Of the boards of these runs: how many trainings are done, of how many, and the seconds of one core that are left."""
    boards = list[Board]()
    for board in map(board_of, runs):
        if board not in boards:
            boards.append(board)
    counts = [count for board in boards for *_, count in left(matrix, board)]
    plan = matrix.board
    planned = len(counts) * (len(plan.rates) * len(plan.rate_seeds) + len(plan.seeds))
    return planned - sum(counts), planned, sum(seconds_left(matrix, one) for one in boards)


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
