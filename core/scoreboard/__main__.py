"""The scoreboard from a shell: `attention-lab scoreboard [--skills …] [--mechanisms …]` measures what is left of it."""

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from core import command_line, plugins
from core.attention import AXES
from core.entries import refuse_if
from core.runs.executor import start_process
from core.scoreboard import run as runs
from core.scoreboard.base import SETTINGS, Board, Cell, Mechanism, read_board

app = command_line.new_app(__doc__)
LISTS = ("--skills", "--mechanisms")
POLL_SECONDS = 2.0


def main(arguments: Sequence[str] | None = None) -> int:
    return command_line.run(app, arguments, LISTS)


@app.command("scoreboard")
def scoreboard(
    skills: Annotated[list[str] | None, typer.Option(help="columns; all without it")] = None,
    mechanisms: Annotated[
        list[str] | None, typer.Option(help="rows, or a file that registers some; all without it")
    ] = None,
    *,
    settings: Annotated[Path, typer.Option(help="another file of settings")] = SETTINGS,
    workers: Annotated[int, typer.Option(help="processes side by side, one core each")] = 2,
    estimate: Annotated[bool, typer.Option("--estimate", help="say the time and end")] = False,
    ship: Annotated[
        bool, typer.Option("--ship", help="write what was measured as what ships, and end")
    ] = False,
) -> None:
    """Measure what is left of the scoreboard. It may be stopped or killed at any time, and goes on when run again."""
    board = read_board(settings)
    files = [Path(one) for one in mechanisms or () if one.endswith(".py")]
    rows = own_rows(files) if files else ()
    named = [one for one in mechanisms or () if not one.endswith(".py")]
    board = replace(board, mechanisms=(*board.mechanisms, *rows))
    board = board.only([*named, *(row.key for row in rows)], skills or ())
    measured = runs.results(board)
    if ship:
        runs.ship(measured)
        print(f"{len(measured):,} cells ship.")
        return
    seconds = runs.seconds_left(board, measured)
    print(
        f"{len(board.mechanisms)} mechanisms × {len(board.skills)} skills; {len(measured):,} cells are measured. What is "
        f"left takes about {seconds / workers / 60:,.0f} min on {workers} cores, less where a skill is learned early."
    )
    if not estimate and seconds and not measure(board, workers):
        raise typer.Exit(1)
    report(board)


def own_rows(files: Sequence[Path]) -> tuple[Mechanism, ...]:
    """A row for each choice that the files register, with softmax's mask and position where it is neither."""
    for file in files:
        refuse_if(not file.is_file(), f"There is no file {file}.")
        plugins.load_folder(file.resolve().parent)
    names, usual = {str(file.resolve()) for file in files}, {"mask": "causal", "position": "rope"}
    rows = [
        Mechanism(one.key, one.name, " ".join(f"{a}={key}" for a, key in choices.items()))
        for axis, entries in AXES.items()
        for one in entries
        if one.source in names and (choices := usual | {axis: one.key})
    ]
    refuse_if(not rows, f"{', '.join(map(str, files))} registers no choice of an axis.")
    return tuple(rows)


def measure(board: Board, workers: int) -> bool:
    """Measure what is left in worker processes, and print each cell as it comes; whether all finished."""
    made = runs.create(board, workers)
    processes = [start_process(one) for one in made]
    shown: set[Cell] = set(runs.results(board))
    try:
        while any(one.poll() is None for one in processes):
            time.sleep(POLL_SECONDS)
            for cell, one in runs.results(board, shipped=False).items():
                if cell not in shown:
                    passes = board.skill(cell.skill).passes
                    word = "learned" if one.value >= passes else "not learned"
                    print(
                        f"{cell.skill} {cell.mechanism} rate {cell.rate:g} seed {cell.seed}: {word}, {one.value:.3f} "
                        f"after {one.steps:,} steps, {one.seconds:.0f} s",
                        flush=True,
                    )
                    shown.add(cell)
    except KeyboardInterrupt:
        for process in processes:
            process.terminate()
            process.wait()
    states = [one.status() for one in made]
    print(*(f"{one.state}: {one.message}" for one in states), sep="\n")
    return all(one.state == "finished" for one in states)


def report(board: Board) -> None:
    """Print the matrix: in how many seeds each mechanism learned each skill, · where it is not measured."""
    measured = runs.results(board)
    width = max(len(one.name) for one in board.mechanisms)
    print(f"{'':{width}} ", *(f"{one.key:>10}" for one in board.skills))
    for row in board.mechanisms:
        scores = [board.score(row.key, one.key, measured) for one in board.skills]
        words = [f"{one.passed}/{len(one.results)}" if one else "·" for one in scores]
        print(f"{row.name:{width}} ", *(f"{word:>10}" for word in words))


if __name__ == "__main__":
    sys.exit(main())
