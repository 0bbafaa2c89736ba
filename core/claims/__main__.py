"""Claims from a shell: `attention-lab claims list | run NAME | verdict NAME`."""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from core import command_line
from core.claims import run as runs
from core.claims.base import Claim, ClaimResult, rule_lines, verdict_line
from core.claims.catalogue import CLAIMS, claim_of
from core.claims.run import ClaimConfig, Group, create
from core.entries import ConfigError
from core.runs.executor import start_process
from core.runs.machine import machine

app = command_line.new_app(__doc__)


def main(arguments: Sequence[str] | None = None) -> int:
    return command_line.run(app, arguments, lists=("--seeds",))


def config_of(claim: Claim, written: Sequence[str], seeds: Sequence[int] = ()) -> ClaimConfig:
    """The settings of NAME=VALUE pairs, and seeds or, if it is one, their number."""
    texts = [param.key for param in claim.params if isinstance(param.default, str)]
    one = {"seeds": seeds[0]} if len(seeds) == 1 else {}
    return ClaimConfig(
        claim.key,
        one | command_line.settings(written, texts),
        tuple(seeds) if len(seeds) > 1 else (),
    )


@app.command("list")
def listed(
    names: Annotated[bool, typer.Option("--names", help="only the names, for a script")] = False,
) -> None:
    """Every claim with the verdict of its shipped result."""
    for claim in CLAIMS:
        if names:
            print(claim.key)
            continue
        saved = runs.shipped(claim)
        state = "not measured" if saved is None else saved.verdict.state
        print(f"{claim.key:20} {state:22} {claim.statement}")


@app.command("verdict")
def shown(
    name: str, of: Annotated[Path, typer.Option(help="the folder of the result")] = runs.FOLDER
) -> None:
    """The verdict of a kept result."""
    claim = claim_of(name)
    saved = runs.shipped(claim, of)
    if saved is None:
        raise ConfigError(f"{of} has no result of {claim.key}.")
    report(saved)


def report(result: ClaimResult) -> None:
    """Print the verdict, and a line for each part: its statement, quantity, interval and outcome."""
    claim, judged = result.claim, result.verdict
    print(claim.statement)
    print(verdict_line(claim, judged, len(result.results.seeds)), *rule_lines(claim), sep="\n")
    for one in judged.effects:
        print(
            f"  {one.outcome}: {one.part.statement} {one.part.name} = {one.mean:.4g} "
            f"[{one.low:.4g}, {one.high:.4g}]"
        )


@app.command("run")
def measured(
    name: str,
    *,
    set: command_line.Pairs,
    seeds: Annotated[
        list[int] | None,
        typer.Option(help="the seeds, such as 5 6 7 8 9; a single number is how many"),
    ] = None,
    workers: Annotated[int, typer.Option(help="processes side by side; 1 for a timed claim")] = 2,
    ship: Annotated[
        bool, typer.Option("--ship", help="keep the result as the one pages show first")
    ] = False,
    to: Annotated[Path | None, typer.Option(help="keep the result in this folder instead")] = None,
) -> None:
    """Measure a claim in worker processes and print its verdict; --set changes a setting, as steps=50."""
    claim = claim_of(name)
    config = config_of(claim, set, seeds or ())
    with tempfile.TemporaryDirectory() as folder:
        group = create(config, workers, Path(folder))
        if not measure(group):
            raise typer.Exit(1)
        results = group.measured.results
    report(group.measured)
    if to := to or (runs.FOLDER if ship else None):
        command = f"{runs.command(claim, config.settings, results.seeds)} --ship"
        facts = machine("cpu") | {"threads": 1, "workers": len(group.runs)}  # as each worker has
        runs.ship(claim, config.settings, results.cells, facts, command).save(
            to / f"{claim.key}.json"
        )


def measure(group: Group) -> bool:
    """Measure all cells of a group in worker processes; whether all finished."""
    workers = [start_process(run) for run in group.runs]
    try:
        for worker in workers:
            worker.wait()
    except KeyboardInterrupt:
        for worker in workers:
            worker.terminate()
            worker.wait()
    print(*(f"{status.state}: {status.message}" for status in group.statuses), sep="\n")
    return all(status.state == "finished" for status in group.statuses)


if __name__ == "__main__":
    sys.exit(main())
