"""Claims from a shell: `python -m core.claims list | run NAME | verdict NAME`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from core.claims import replicate
from core.claims import shipped as shipping
from core.claims.base import Claim, ClaimSettings
from core.claims.catalogue import CLAIMS, claim_of
from core.claims.results import Results
from core.claims.run import ClaimConfig, Group, create
from core.claims.verdict import rule_lines, verdict, verdict_line
from core.entries import ConfigError
from core.params import Value
from core.training.machine import machine
from core.training.worker_process import start_worker


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m core.claims", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    listed = commands.add_parser("list", help="every claim with the verdict of its shipped result")
    listed.add_argument("--names", action="store_true", help="only the names, for a script")
    run = commands.add_parser("run", help="measure a claim and print its verdict")
    run.add_argument("name")
    run.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting, such as seeds=3")
    run.add_argument("--seeds", type=int, nargs="+", metavar="N", help="the seeds, such as 5 6 7 8 9; a single number "
                     "is how many")
    run.add_argument("--workers", type=int, default=2, help="processes side by side; 1 for a timed claim")
    run.add_argument("--ship", action="store_true", help="keep the result as the one that pages show first")
    run.add_argument("--to", type=Path, help="keep the result in this folder instead")
    shown = commands.add_parser("verdict", help="the verdict of a kept result")
    shown.add_argument("name")
    shown.add_argument("--of", type=Path, default=shipping.FOLDER, help="the folder of the result")
    chosen = parser.parse_args(arguments)
    try:
        if chosen.command == "list":
            return _list(chosen.names)
        claim = claim_of(chosen.name)
        if chosen.command == "verdict":
            return _verdict(claim, chosen.of)
        return _run(config_of(claim, chosen.set, chosen.seeds or ()), chosen.workers,
                    chosen.to or (shipping.FOLDER if chosen.ship else None))
    except ConfigError as error:
        parser.error(str(error))


def config_of(claim: Claim, written: Sequence[str], seeds: Sequence[int] = ()) -> ClaimConfig:
    """The settings of NAME=VALUE pairs, each read as the type of its default, and seeds or, if it is one, their number.
    """
    params = {param.key: param for param in claim.params}
    values: dict[str, Value] = {"seeds": seeds[0]} if len(seeds) == 1 else {}
    for pair in written:
        name, _, text = pair.partition("=")
        if name not in params:
            raise ConfigError(f"{claim.key} has no setting {name!r}; take one of {', '.join(params)}.")
        kind = type(params[name].default)
        try:
            values[name] = text == "true" if kind is bool else kind(text)
        except ValueError as error:
            raise ConfigError(f"{name} = {text!r} is not a {kind.__name__}.") from error
    return ClaimConfig(claim.key, values, tuple(seeds) if len(seeds) > 1 else ())


def _list(names: bool) -> int:
    for claim in CLAIMS:
        if names:
            print(claim.key)
            continue
        saved = shipping.shipped(claim)
        state = "not measured" if saved is None else verdict(claim, saved.settings, saved.results).state
        print(f"{claim.key:20} {state:22} {claim.statement}")
    return 0


def _verdict(claim: Claim, folder: Path) -> int:
    saved = shipping.shipped(claim, folder)
    if saved is None:
        print(f"{folder} has no result of {claim.key}.", file=sys.stderr)
        return 1
    print("\n".join(report(claim, saved.settings, saved.results)))
    return 0


def report(claim: Claim, settings: ClaimSettings, results: Results) -> list[str]:
    """The verdict, and a line for each part: its statement, quantity, interval and outcome."""
    judged = verdict(claim, settings, results)
    lines = [claim.statement, verdict_line(claim, judged, len(results.seeds)), *rule_lines(claim)]
    for one in judged.effects:
        lines.append(f"  {one.outcome}: {one.part.statement} {one.part.name} = {one.mean:.4g} "
                     f"[{one.low:.4g}, {one.high:.4g}]")
    return lines


def _run(config: ClaimConfig, workers: int, to: Path | None) -> int:
    """Measure a claim in worker processes, print its verdict, and keep the result in the folder `to`."""
    claim, settings = config.entry, config.settings
    with tempfile.TemporaryDirectory() as folder:
        group = create(config, workers, Path(folder))
        if not measure(group):
            return 1
        results = group.results()
    print("\n".join(report(claim, settings, results)))
    if to is not None:
        command = f"{replicate.command(claim, settings, results.seeds)} --ship"
        facts = machine("cpu") | {"threads": 1, "workers": len(group.runs)}  # as each worker has
        shipping.ship(claim, settings, results.cells, facts, command).save(to / f"{claim.key}.json")
    return 0


def measure(group: Group) -> bool:
    """Measure all cells of a group in worker processes; whether all finished."""
    workers = [start_worker(run) for run in group.runs]
    try:
        for worker in workers:
            worker.wait()
    except KeyboardInterrupt:
        for worker in workers:
            worker.terminate()
            worker.wait()
    statuses = [run.status() for run in group.runs]
    print(*(f"{status.state}: {status.message}" for status in statuses), sep="\n")
    return all(status.state == "finished" for status in statuses)


if __name__ == "__main__":
    sys.exit(main())
