"""Train from a shell, in the same folders as the page: `python -m core.training --help`.

    python -m core.training recipe reverse > reverse.json    a config that learns a task, to be edited
    python -m core.training recipe own_table --data my.csv --set label=species > mine.json
    python -m core.training card gemma3 > gemma3.json        a small model with the layers of a published one
    python -m core.training train reverse.json               train it; Ctrl-C stops and saves the run
    python -m core.training resume RUN [--steps N]           continue a run, or train it longer
    python -m core.training list                             every run and its state
    python -m core.training pack RUN [FILE]                  a run as one zip; unpack FILE reads one
    python -m core.training tensorboard RUN FOLDER           a run's curves and maps as event files of TensorBoard
    python -m core.training wandb RUN FOLDER                 the same for Weights & Biases, offline
    python -m core.training sweep reverse.json --axis score --values dot additive --seeds 0 1 2
                                                             one setting's values × seeds, with means and intervals
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from core import stored_runs
from core.attention import ConfigError
from core.cards import CARDS, card
from core.cluster.settings import address
from core.tasks import TASKS, TaskConfig, make_task, task_entry
from core.tasks.data_store import put_if_long
from core.tasks.reading import ENCODINGS, decode_text
from core.training import archive, sweep_command
from core.training.backend import backend
from core.training.cards import card_recipe
from core.training.config import RunConfig, recommended
from core.training.estimate import estimate, in_words
from core.training.machine import line
from core.training.record import Record
from core.training.runs import Run, create_run, list_runs, open_run
from core.training.tensorboard import write_tensorboard, write_wandb
from core.training.worker import work


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        return options.run(options)
    except (ConfigError, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        if trouble := stored_runs.copy_now():
            print(trouble, file=sys.stderr)


def recipe(options: argparse.Namespace) -> int:
    """Print a task's recipe as a config file."""
    texts = {param.key for param in task_entry(options.task).params if isinstance(param.default, str)}
    params: dict[str, Any] = {key: text if key in texts else _value(text)
                             for key, _, text in (pair.partition("=") for pair in options.set)}
    if options.data is not None:
        if "data" not in {param.key for param in task_entry(options.task).params}:
            raise ConfigError(f"task = {options.task} generates its data; --data goes with own_text, own_pairs and "
                              "own_table.")
        params["data"] = put_if_long(decode_text(options.data.read_bytes(), options.encoding))
    task = make_task(TaskConfig.of(options.task, **params))
    print(*task.notes, sep="\n", end="\n" * bool(task.notes), file=sys.stderr)
    print(json.dumps(recommended(task, options.model).to_json(), indent=1, ensure_ascii=False))
    return 0


def small_card(options: argparse.Namespace) -> int:
    """Print the recipe of a small model with a published one's pattern of layers."""
    print(json.dumps(card_recipe(card(options.card)).to_json(), indent=1, ensure_ascii=False))
    return 0


def train(options: argparse.Namespace) -> int:
    """Train the config of a file, or of another run's run.json."""
    data = json.loads(options.file.read_text(encoding="utf-8"))
    data = data["config"] if isinstance(data, dict) and "config" in data else data
    run = create_run(RunConfig.from_json(data), path=options.run_dir)
    where = "" if options.run_dir else f"; on the Train page it is ?run={run.id}"
    print(f"Training {run.path}{where}", flush=True)
    if "data" in dict(run.config().task.params):
        config = run.config()
        torch.set_num_threads(1)  # as in the run
        print(in_words(config, estimate(config, make_task(config.task))), flush=True)
    return _work(run)


def resume(options: argparse.Namespace) -> int:
    """Continue a run from its last checkpoint, with other steps or seconds if given."""
    run = open_run(options.name)
    stored_runs.take_over(run)
    more = {key: value for key, value in (("steps", options.steps), ("seconds", options.seconds)) if value is not None}
    run.update_metadata(config=RunConfig.from_json({**run.config().to_json(), **more}).to_json())
    run.requeue()
    return _work(run)


def pack(options: argparse.Namespace) -> int:
    """Write a run as one zip, for the Runs page or unpack."""
    run = open_run(options.name)
    path = options.file or Path(f"{run.id}.zip")
    path.write_bytes(archive.pack(run))
    print(path)
    return 0


def unpack(options: argparse.Namespace) -> int:
    """Check a zip and add it to the runs of this machine."""
    with options.file.open("rb") as file:
        print(archive.unpack(file).id)
    return 0


def tensorboard(options: argparse.Namespace) -> int:
    """Write a run's curves and attention as event files of TensorBoard."""
    print(write_tensorboard(open_run(options.name), options.folder))
    return 0


def wandb(options: argparse.Namespace) -> int:
    """Write a run's curves as an offline run of Weights & Biases."""
    print(write_wandb(open_run(options.name), options.folder))
    return 0


def listed(options: argparse.Namespace) -> int:
    """One line a run, oldest first."""
    for run in list_runs():
        records = run.records()
        print(run.id, run.status().state, f"step {records[-1].step}" if records else "not begun", run.name, sep="\t")
    return 0


def sweep(options: argparse.Namespace) -> int:
    """Train every value of a setting from several seeds, or continue a sweep."""
    changes = {"axis": options.axis, "values": options.values and [*map(_value, options.values)],
               "seeds": options.seeds, "equal": options.seconds and "seconds", "seconds": options.seconds}
    workers = options.workers or (backend().slots() if address() else 1)
    started = sweep_command.start(options.file, {key: value for key, value in changes.items() if value}, options.to)
    print(f"Sweep {started.id}: {len(started.missing())} runs to train, {workers} at a time", flush=True)
    done = sweep_command.run_sweep(started, workers)
    print(*sweep_command.summary(started), sep="\n")
    return 0 if done else 1


def _work(run: Run) -> int:
    torch.set_num_threads(1)
    config = run.config()
    state = work(run.path, on_record=lambda record: print(progress(record, config), flush=True))
    if where := line(run.metadata().get("machines")):
        print(f"Trained on {where}")
    return 0 if state != "failed" else 1


def progress(record: Record, config: RunConfig) -> str:
    """A record as one line of text."""
    parts = [f"step {record.step:,}/{config.steps:,}", f"{record.elapsed:.1f} s"]
    for name, value in (("loss", record.loss), ("training", record.train_loss), ("right", record.letters),
                        ("balanced", record.balanced), ("exact", record.exact), ("bleu", record.bleu),
                        ("chrf", record.chrf), ("error", record.error)):
        if value is not None:
            parts.append(f"{name} {value:.3f}")
    if record.known_loss is not None:
        parts.append(f"without the {record.unknown or 0:.1%} unknown: loss {record.known_loss:.3f}")
    if record.capped:
        parts.append(f"ended by the limit of {config.seconds:g} s")
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

    def add(name: str, run: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=run.__doc__)
        command.set_defaults(run=run)
        return command

    one = add("recipe", recipe)
    one.add_argument("task", choices=[entry.key for entry in TASKS])
    one.add_argument("model", nargs="?", help="a type of model that the task supports; the recommended one by default")
    one.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], help="a parameter of the task")
    one.add_argument("--data", metavar="FILE", type=Path, help="your own text, sentence pairs or table")
    one.add_argument("--encoding", choices=ENCODINGS, default="utf-8", help="encoding of that file; cp1252 is "
                                                                            "Windows-1252")
    add("card", small_card).add_argument("card", choices=[one.key for one in CARDS], help="a model card")
    one = add("train", train)
    one.add_argument("file", type=Path)
    one.add_argument("run_dir", nargs="?", type=Path, help="the run's folder; among the page's runs by default")
    one = add("resume", resume)
    one.add_argument("name", help="a run's name in the list, or its folder")
    one.add_argument("--steps", type=int)
    one.add_argument("--seconds", type=float)
    add("list", listed)
    one = add("pack", pack)
    one.add_argument("name", help="a run's name in the list, or its folder")
    one.add_argument("file", nargs="?", type=Path)
    for name, command in (("tensorboard", tensorboard), ("wandb", wandb)):
        one = add(name, command)
        one.add_argument("name", help="a run's name in the list, or its folder")
        one.add_argument("folder", type=Path)
    add("unpack", unpack).add_argument("file", type=Path)
    one = add("sweep", sweep)
    one.add_argument("file", help="a sweep's file, or a run's and what to vary in it; or the name of a sweep")
    one.add_argument("--axis", help="score, position, d_model, learning_rate, task.length, …")
    one.add_argument("--values", nargs="+")
    one.add_argument("--seeds", nargs="+", type=int)
    one.add_argument("--seconds", type=float, help="the same seconds of training for each, instead of the same steps")
    one.add_argument("--workers", type=int, help="runs at the same time: 1, or the cluster's CPUs")
    one.add_argument("--to", type=Path, help="the sweep's file; among the page's by default")
    return parser


if __name__ == "__main__":
    sys.exit(main())
