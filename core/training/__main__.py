"""Train from a shell, in the same folders as the page: `python -m core.training --help`.

    python -m core.training recipe reverse > reverse.json    settings known to learn a task, to change as you like
    python -m core.training recipe own_table --data my.csv --set label=species > mine.json
    python -m core.training train reverse.json               train them; Ctrl-C stops and keeps what was reached
    python -m core.training resume RUN [--steps N]           go on where a run was left, or train it longer
    python -m core.training list                             every run, and how it stands
    python -m core.training pack RUN [FILE]                  a run as one zip; unpack FILE brings one in
    python -m core.training sweep reverse.json --axis score --values dot additive --seeds 0 1 2
                                                             one setting's values × seeds; their means and spreads
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch

from core.attention import ConfigError
from core.tasks import TASKS, TaskConfig, make_task, task_entry
from core.tasks.data_store import put_if_long
from core.tasks.reading import ENCODINGS, decode_text
from core.training import archive, sweep_command
from core.training.config import RunConfig
from core.training.estimate import estimate, in_words
from core.training.machine import line
from core.training.recipes import recommended
from core.training.record import Record
from core.training.runs import Run, create_run, find_run, list_runs
from core.training.worker import work


def main(arguments: list[str] | None = None) -> int:
    chosen = _parser().parse_args(arguments)
    try:
        return chosen.run(chosen)
    except (ConfigError, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1


def recipe(chosen: argparse.Namespace) -> int:
    """Print a task's recipe as a config file."""
    texts = {param.key for param in task_entry(chosen.task).params if isinstance(param.default, str)}
    params: dict[str, Any] = {key: text if key in texts else _value(text)
                             for key, _, text in (pair.partition("=") for pair in chosen.set)}
    if chosen.data is not None:
        if "data" not in {param.key for param in task_entry(chosen.task).params}:
            raise ConfigError(f"task = {chosen.task} makes its data itself; --data goes with own_text, own_pairs and "
                              "own_table.")
        params["data"] = put_if_long(decode_text(chosen.data.read_bytes(), chosen.encoding))
    task = make_task(TaskConfig.of(chosen.task, **params))
    print(*task.notes, sep="\n", end="\n" * bool(task.notes), file=sys.stderr)
    print(json.dumps(recommended(task, chosen.model).to_json(), indent=1, ensure_ascii=False))
    return 0


def train(chosen: argparse.Namespace) -> int:
    """Make a run of a config file, or of another run's run.json, and train it."""
    data = json.loads(chosen.file.read_text(encoding="utf-8"))
    data = data["config"] if isinstance(data, dict) and "config" in data else data
    run = create_run(RunConfig.from_json(data), path=chosen.run_dir)
    where = "" if chosen.run_dir else f"; on the Train page it is ?run={run.id}"
    print(f"Training {run.path}{where}", flush=True)
    if "data" in dict(run.config().task.params):
        config = run.config()
        torch.set_num_threads(1)  # as the run has
        print(in_words(config, estimate(config, make_task(config.task))), flush=True)
    return _work(run)


def resume(chosen: argparse.Namespace) -> int:
    """Go on from the last checkpoint of a run, with more steps or seconds if they are given."""
    run = _named(chosen.name)
    more = {key: value for key, value in (("steps", chosen.steps), ("seconds", chosen.seconds)) if value is not None}
    run.update_metadata(config=RunConfig.from_json({**run.config().to_json(), **more}).to_json())
    run.requeue()
    return _work(run)


def pack(chosen: argparse.Namespace) -> int:
    """Write a run as one zip, which the Runs page and unpack take."""
    run = _named(chosen.name)
    path = chosen.file or Path(f"{run.id}.zip")
    path.write_bytes(archive.pack(run))
    print(path)
    return 0


def unpack(chosen: argparse.Namespace) -> int:
    """Check a zip and bring it in as a run of this machine."""
    with chosen.file.open("rb") as file:
        print(archive.unpack(file).id)
    return 0


def _named(name: str) -> Run:
    """The run of that name, or in that folder."""
    run = find_run(name) or Run(Path(name))
    if not run.exists():
        raise ValueError(f"There is no run {name}; `python -m core.training list` names those there are.")
    return run


def listed(chosen: argparse.Namespace) -> int:
    """One line a run, oldest first."""
    for run in list_runs():
        records = run.records()
        print(run.id, run.status().state, f"step {records[-1].step}" if records else "not begun", run.name, sep="\t")
    return 0


def sweep(chosen: argparse.Namespace) -> int:
    """Train every value of a setting from several seeds; a sweep that is there already is gone on with."""
    changes = {"axis": chosen.axis, "values": chosen.values and [*map(_value, chosen.values)], "seeds": chosen.seeds,
             "equal": chosen.seconds and "seconds", "seconds": chosen.seconds}
    to_train = sweep_command.start(chosen.file, {key: value for key, value in changes.items() if value}, chosen.to)
    print(f"Sweep {to_train.id}: {len(to_train.missing())} runs to train, {chosen.workers} at a time", flush=True)
    done = sweep_command.run_sweep(to_train, chosen.workers, lambda text: print(text + "\n", end="", flush=True))
    print(*sweep_command.summary(to_train), sep="\n")
    return 0 if done else 1


def _work(run: Run) -> int:
    torch.set_num_threads(1)
    config = run.config()
    state = work(run.path, on_record=lambda record: print(progress(record, config), flush=True))
    if where := line(run.metadata().get("machines")):
        print(f"Trained on {where}")
    return 0 if state != "failed" else 1


def progress(record: Record, config: RunConfig) -> str:
    """A record in a line."""
    parts = [f"step {record.step:,}/{config.steps:,}", f"{record.elapsed:.1f} s"]
    for name, value in (("loss", record.loss), ("training", record.train_loss), ("right", record.letters),
                        ("balanced", record.balanced), ("exact", record.exact), ("bleu", record.bleu),
                        ("chrf", record.chrf), ("error", record.error)):
        if value is not None:
            parts.append(f"{name} {value:.3f}")
    if record.known_loss is not None:
        parts.append(f"without the {record.unknown or 0:.1%} unknown: loss {record.known_loss:.3f}")
    if record.capped:
        parts.append(f"ended by the cap of {config.seconds:g} s")
    if record.best is not None:
        parts.append(f"weights of step {record.best:,}")
    if record.cut:
        parts.append(f"cut {record.cut:,}")
    if record.expected:
        parts.append(f"expected position {max(map(max, record.expected)):.2f}")
    return "  ".join(parts)


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m core.training", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    one = commands.add_parser("recipe", help=recipe.__doc__)
    one.add_argument("task", choices=[entry.key for entry in TASKS])
    one.add_argument("model", nargs="?", help="a kind of model that the task names; its best one by default")
    one.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], help="a parameter of the task")
    one.add_argument("--data", metavar="FILE", type=Path, help="your own text, sentence pairs or table")
    one.add_argument("--encoding", choices=ENCODINGS, default="utf-8", help="of that file; cp1252 is Windows-1252")
    one.set_defaults(run=recipe)
    one = commands.add_parser("train", help=train.__doc__)
    one.add_argument("file", type=Path)
    one.add_argument("run_dir", nargs="?", type=Path, help="where to keep the run; among the page's runs by default")
    one.set_defaults(run=train)
    one = commands.add_parser("resume", help=resume.__doc__)
    one.add_argument("name", help="a run's name in the list, or its folder")
    one.add_argument("--steps", type=int)
    one.add_argument("--seconds", type=float)
    one.set_defaults(run=resume)
    one = commands.add_parser("list", help=listed.__doc__)
    one.set_defaults(run=listed)
    one = commands.add_parser("pack", help=pack.__doc__)
    one.add_argument("name", help="a run's name in the list, or its folder")
    one.add_argument("file", nargs="?", type=Path)
    one.set_defaults(run=pack)
    one = commands.add_parser("unpack", help=unpack.__doc__)
    one.add_argument("file", type=Path)
    one.set_defaults(run=unpack)
    _sweep_parser(commands.add_parser("sweep", help=sweep.__doc__))
    return parser


def _sweep_parser(one: argparse.ArgumentParser) -> None:
    one.add_argument("file", help="a sweep's file, or a run's and what to vary in it; or the name of a sweep")
    one.add_argument("--axis", help="score, position, d_model, learning_rate, task.length, …")
    one.add_argument("--values", nargs="+")
    one.add_argument("--seeds", nargs="+", type=int)
    one.add_argument("--seconds", type=float, help="equal seconds of training for each, instead of equal steps")
    one.add_argument("--workers", type=int, default=1, help="runs side by side")
    one.add_argument("--to", type=Path, help="where to keep the sweep; among the page's by default")
    one.set_defaults(run=sweep)


if __name__ == "__main__":
    sys.exit(main())
