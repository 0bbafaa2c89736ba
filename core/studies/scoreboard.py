"""The scoreboard as its page shows it: scores by mechanism and skill, what each mechanism costs, and results handed in."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import torch

from core.attention.cost import attention_cost
from core.entries import refuse_if
from core.files import append_line, with_checksum
from core.models import build_model
from core.runs.runs import Run
from core.scoreboard.base import (
    Board,
    Cell,
    CellResult,
    Mechanism,
    Score,
    differs,
    parameters,
    plain,
    read_board,
)
from core.scoreboard.run import CELLS, board_runs, create, results, seconds_left
from core.tasks import task_of

OWN = "own"
NUMBER_BYTES = 4


@dataclass(frozen=True)
class Costs:
    """Of a mechanism's model on a skill: parameters, bytes of state or cache and FLOPs of attention after the longest
    source, and milliseconds of a training step of 32 sources on one core (None before one was measured)."""

    parameters: int
    state: int
    flops: float
    step_ms: float | None


@dataclass(frozen=True, eq=False)
class Matrix:
    """A board, the score of each mechanism (first) and skill, and all cells behind them."""

    board: Board
    scores: Mapping[tuple[str, str], Score]
    cells: Mapping[Cell, CellResult]

    def differ(self, skill: str) -> dict[str, bool]:
        """Of each mechanism that is measured, whether its share differs from the first one's beyond chance."""
        first = self.board.mechanisms[0].key
        column = {
            one: score for (one, of), score in self.scores.items() if of == skill and score.results
        }
        if first not in column:
            return {}
        return {
            one: differs(score, column[first], len(self.board.mechanisms) - 1)
            for one, score in column.items()
        }

    def sorted(self, skill: str) -> list[Mechanism]:
        """The mechanisms, those that learned the skill in most seeds first; as in the file without a skill."""

        def rank(row: Mechanism) -> tuple[float, float]:
            score = self.scores.get((row.key, skill))
            done = score is not None and bool(score.results)
            return (
                (-score.passed / len(score.results), -score.median)
                if done and score
                else (1.0, 0.0)
            )

        return sorted(self.board.mechanisms, key=rank) if skill else [*self.board.mechanisms]


def read_matrix() -> Matrix:
    """What ships with the lab and what was measured here; a reader's own rows after those of the file."""
    board = with_own(read_board())
    cells = results(board)
    scores = {
        (row.key, column.key): score
        for row in board.mechanisms
        for column in board.skills
        if (score := board.score(row.key, column.key, cells)) is not None
    }
    return Matrix(board, scores, cells)


def with_own(board: Board) -> Board:
    """The board with the rows that runs of this machine have added."""
    known = {row.key for row in board.mechanisms}
    own: dict[str, Mechanism] = {}
    for run in board_runs():
        data = run.metadata().get("board")
        for row in data.get("mechanisms", ()) if isinstance(data, dict) else ():
            if isinstance(row, dict) and row.get("key") not in known:
                own[str(row["key"])] = Mechanism(**row)
    return replace(board, mechanisms=(*board.mechanisms, *own.values()))


def own_board(attention: str, skills: Sequence[str]) -> Board:
    """The board of one row of a reader's own, whose parameters are those of the lab's first row, on these skills."""
    board = read_board()
    refuse_if(not attention.strip(), "Write a mechanism, such as kernel=gla mask=causal.")
    row = Mechanism(f"{OWN}: {attention.strip()}", attention.strip(), attention.strip())
    wanted = replace(board, mechanisms=(*board.mechanisms, row)).only([row.key], skills)
    wanted.run(
        Cell(row.key, wanted.skills[0].key, board.rates[0], 0)
    )  # ConfigError where it cannot be built
    return wanted


@torch.no_grad()
def costs(matrix: Matrix, mechanism: str, skill: str) -> Costs:
    """What a mechanism costs on the longest source of a skill."""
    board = matrix.board
    run = board.run(Cell(mechanism, skill, board.rates[0], board.seeds[0]))
    task, model = task_of(run.task), run.model
    longest = max(task.held_out(50), key=lambda one: len(one.source))
    batch = task.collate([longest])
    built = build_model(model, task.shape).eval()
    past = built.encode(batch.source, batch.source_mask).last.past  # type: ignore[operator]
    length = batch.source.shape[1]
    flops = sum(
        attention_cost(model.layer_attention(layer), length, length).flops
        for layer in range(model.layers)
    )
    seconds = [
        one.seconds / one.steps
        for one in matrix.cells.values()
        if one.cell[:2] == (mechanism, skill) and one.steps
    ]
    return Costs(
        parameters(model, task.shape),
        NUMBER_BYTES * sum(cache.numbers for cache in past),
        flops,
        1000 * fmean(seconds) if seconds else None,
    )


def seconds(board: Board) -> float:
    """Seconds of one core that are left of a board, at most."""
    return seconds_left(board, results(board))


def front(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """Of (cost, share) points those that no other beats: none costs less and has as large a share, or as much and more."""
    return [
        name
        for name, (cost, share) in points.items()
        if not any(
            (c <= cost and s > share) or (c < cost and s >= share) for c, s in points.values()
        )
    ]


def take_in(data: bytes) -> Run:
    """Keep the results in a file of lines that somebody measured; ConfigError where one is of another board or changed."""
    board = with_own(read_board())
    lines = data.decode("utf-8", "replace").splitlines()
    read = [CellResult.from_json(json.loads(line)) for line in filter(None, lines)]
    refuse_if(not read, "The file has no results.")
    other = next((one for one in read if one.board != board.hash), None)
    refuse_if(
        other is not None,
        f"The file was measured with other settings ({other and other.board}); this board has {board.hash}.",
    )
    for one in read:
        refuse_if(
            board.id(one.cell) != one.id,
            f"The result of {one.mechanism} on {one.skill} is of another training than this board's.",
        )
    (run,) = create(board)
    for one in read:
        append_line(run.path / CELLS, with_checksum(json.dumps(plain(one))))
    run.set_status("finished", f"Taken from a file: {len(read):,} cells.")
    return run
