"""Train from a shell, in the same folders as the page: `attention-lab --help`, or `python -m core.training --help`.

attention-lab recipe reverse > reverse.json    a config that learns a task, to be edited
attention-lab recipe own_table --data my.csv --set label=species > mine.json
attention-lab recipe own_text --nanogpt --data shakespeare.txt > nano.json
attention-lab card gemma3 > gemma3.json        a small model with the layers of a published one
attention-lab train reverse.json               train it; Ctrl-C stops and saves the run
attention-lab resume RUN [--steps N]           continue a run, or train it longer
attention-lab list                             every run and its state
attention-lab pack RUN [FILE]                  a run as one zip; unpack FILE reads one
attention-lab tensorboard RUN FOLDER           a run's curves and maps as event files of TensorBoard
attention-lab wandb RUN FOLDER                 the same for Weights & Biases, offline
attention-lab sweep own_text --data my.txt --axis score --values dot additive --seeds 0 1 2
                                                         one setting's values × seeds, with means and intervals
"""

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from core import command_line
from core.attention.text import to_text
from core.entries import ConfigError, refuse_if
from core.memory import TooMuch
from core.models.cards import CARDS, card as card_of
from core.runs import archive, sweeps
from core.runs.executor import executor
from core.runs.machine import line
from core.runs.ray_queue import address
from core.runs.runs import Run, create_run, list_runs, open_run
from core.runs.store import take_over
from core.runs.worker import work
from core.tasks import METRICS, TASKS, Task, TaskConfig, make_task, task_entry
from core.tasks.reading import put_if_long
from core.training.config import RunConfig, card_recipe, nanogpt, recommended
from core.training.diagnosis import duration, sweep_seconds, time_needed
from core.training.evaluate import Record
from core.training.sweeps import with_settings

app = command_line.new_app(__doc__)
LISTS = ("--values", "--second-values", "--seeds", "--ways")
Name = Annotated[str, typer.Argument(metavar="RUN", help="a run's name in the list, or its folder")]


def main(arguments: Sequence[str] | None = None) -> int:
    return command_line.run(app, arguments, LISTS)


@app.command()
def recipe(
    task: Annotated[str, typer.Argument(help="what is learned, such as reverse")],
    model: Annotated[
        str | None, typer.Argument(help="a type of model that the task supports")
    ] = None,
    *,
    set: command_line.Pairs,
    encoding: command_line.Encoding = "utf-8",
    data: Annotated[
        Path | None, typer.Option(help="your own text, sentence pairs or table")
    ] = None,
    nano: Annotated[
        bool, typer.Option("--nanogpt", help="of a text: nanoGPT's recipe for a CPU")
    ] = False,
) -> None:
    """Print a task's recipe as a config file; --set gives parameters of the task."""
    refuse_if(nano and model is not None, f"--nanogpt is a decoder's recipe; leave out {model}.")
    chosen = task_config(task, set, data, encoding)
    config = nanogpt(chosen) if nano else recommended(make_task(chosen), model)
    say_notes(make_task(config.task))  # nanoGPT reads characters
    print(json.dumps(config.to_json(), indent=1, ensure_ascii=False))


def task_config(task: str, set: list[str], data: Path | None, encoding: str) -> TaskConfig:
    """A task by its key, with a person's own data."""
    known = {param.key: param for param in task_entry(task).params}
    params = command_line.settings(
        set, [key for key, param in known.items() if isinstance(param.default, str)]
    )
    refuse_if(
        data is not None and "data" not in known,
        f"task = {task} generates its data; --data goes with own_text, own_pairs and own_table.",
    )
    params |= {
        name: put_if_long(text) for name, text in command_line.text_of(data, encoding).items()
    }
    return TaskConfig.of(task, **params)


def say_notes(task: Task) -> None:
    """What there is to say of a person's data goes to stderr."""
    print(*task.notes, sep="\n", end="\n" * bool(task.notes), file=sys.stderr)


@app.command()
def card(name: Annotated[str, typer.Argument(help="a published model, such as gemma3")]) -> None:
    """Print the recipe of a small model with a published one's pattern of layers."""
    refuse_if(
        name not in (keys := [one.key for one in CARDS]),
        f"card = {name}; take one of {', '.join(keys)}.",
    )
    print(json.dumps(card_recipe(card_of(name)).to_json(), indent=1))


@app.command()
def train(
    file: Path,
    run_dir: Annotated[
        Path | None, typer.Argument(help="the run's folder; among the page's runs by default")
    ] = None,
    *,
    set: command_line.Pairs,
) -> None:
    """Train the config of a file, or of another run's run.json; --set changes it, as steps=500 or task.length=12."""
    data = json.loads(file.read_text(encoding="utf-8"))
    data = data["config"] if isinstance(data, dict) and "config" in data else data
    config = with_settings(RunConfig.from_json(data), command_line.settings(set))
    run = create_run(config, path=run_dir)
    where = "" if run_dir else f"; on the Train page it is ?run={run.id}"
    print(f"Training {run.path}{where}")
    if sentence := time_needed(config):
        print(sentence)
    _work(run)


@app.command()
def resume(name: Name, steps: int | None = None, seconds: float | None = None) -> None:
    """Continue a run from its last checkpoint, with other steps or seconds if given."""
    run = open_run(name)
    take_over(run)
    more = command_line.given(steps=steps, max_seconds=seconds)
    run.update_metadata(config=RunConfig.from_json({**run.config().to_json(), **more}).to_json())
    run.requeue()
    _work(run)


@app.command("list")
def listed() -> None:
    """One line a run, oldest first: its state, what it learns with which mechanism, rate and seed, and its loss."""
    for run in list_runs():
        records, parts = run.records(), [run.id, run.status().state]
        with suppress(ConfigError):  # one of an older version, or whose plug-in is not loaded
            config = run.config()
            attention = config.model.attention
            parts += [
                config.task.key,
                config.model.kind
                if attention is None
                else to_text(attention, sizes=False) or "plain softmax",
            ]
            parts += [f"rate {config.learning_rate:g}", f"seed {config.seed}"]
        parts.append(f"step {records[-1].step}" if records else "not begun")
        if records and records[-1].loss is not None:
            parts.append(f"loss {records[-1].loss:.3f}")
        print(*parts, *([run.name] if run.name != run.id else []), sep="\t")


@app.command()
def pack(name: Name, file: Annotated[Path | None, typer.Argument()] = None) -> None:
    """Write a run as one zip, for the Runs page or unpack."""
    run = open_run(name)
    path = file or Path(f"{run.id}.zip")
    path.write_bytes(archive.pack(run))
    print(path)


@app.command()
def unpack(file: Path) -> None:
    """Check a zip and add it to the runs of this machine."""
    with file.open("rb") as zipped:
        print(archive.unpack(zipped).id)


@app.command()
def tensorboard(name: Name, folder: Path) -> None:
    """Write a run's curves and attention as event files of TensorBoard."""
    print(archive.write_tensorboard(open_run(name), folder))


@app.command()
def wandb(name: Name, folder: Path) -> None:
    """Write a run's curves as an offline run of Weights & Biases."""
    print(archive.write_wandb(open_run(name), folder))


@app.command()
def sweep(
    file: Annotated[
        str,
        typer.Argument(
            help="a task's name, such as reverse, or a run's file, and what to vary in it; or a sweep's file or name"
        ),
    ],
    axis: Annotated[
        str | None, typer.Option(help="score, d_model, learning_rate, task.length, …")
    ] = None,
    values: list[str] | None = None,
    seeds: list[int] | None = None,
    second: Annotated[
        str | None, typer.Option(help="another setting, such as learning_rate")
    ] = None,
    second_values: Annotated[
        list[str] | None, typer.Option(help="its values, each with each of the first")
    ] = None,
    paired: Annotated[
        bool, typer.Option("--paired", help="or one for each: a rate for each mechanism")
    ] = False,
    early: Annotated[
        bool, typer.Option("--early", help="a run ends where its validation loss no longer falls")
    ] = False,
    seconds: Annotated[
        float | None,
        typer.Option(help="the same seconds of training for each, instead of the same steps"),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="runs at the same time: 1, or the cluster's CPUs")
    ] = None,
    to: Annotated[
        Path | None, typer.Option(help="the sweep's file; among the page's by default")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="with own_text, own_pairs or own_table: your data")
    ] = None,
    encoding: command_line.Encoding = "utf-8",
    *,
    set: command_line.Pairs,
) -> None:
    """Train every value of a setting from several seeds, or continue a sweep; --set changes the run that is varied."""
    recipe_of = None
    if file in [entry.key for entry in TASKS] and not Path(file).exists():
        made = make_task(task_config(file, [], data, encoding))
        recipe_of = recommended(made)
        say_notes(made)
    refuse_if(data and not recipe_of, f"--data goes with a task's name; {file} is none.")
    changes: dict[str, Any] = {
        "axis": axis,
        "values": values and [*map(command_line.value_of, values)],
        "seeds": seeds,
        "second": second,
        "second_values": second_values and [*map(command_line.value_of, second_values)],
        "paired": paired,
        "early": early,
        "equal": seconds and "seconds",
        "seconds": seconds,
    }
    workers = workers or (executor().slots() if address() else 1)
    started = sweeps.start(
        file if recipe_of is None else recipe_of,
        {key: value for key, value in changes.items() if value},
        to,
        command_line.settings(set),
    )
    print(f"Sweep {started.id}: {len(started.missing())} runs to train, {workers} at a time")
    print(f"On the page Sweeps it is /sweeps?sweep={started.id}")
    try:
        print(
            f"All of it takes about {duration(sweep_seconds(started.config(), workers))}, from a few steps here."
        )
    except TooMuch as error:
        print(f"How long it takes is not measured. {error}")
    done = sweeps.run_sweep(started, workers)
    print(*sweeps.summary(started), sep="\n")
    raise typer.Exit(0 if done else 1)


def _work(run: Run) -> None:
    torch.set_num_threads(1)
    config = run.config()
    state = work(run.path, on_record=lambda record: print(progress(record, config)))
    if where := line(run.metadata().get("machines")):
        print(f"Trained on {where}")
    raise typer.Exit(0 if state != "failed" else 1)


def progress(record: Record, config: RunConfig) -> str:
    """A record as one line of text."""
    parts = [f"step {record.step:,}/{config.steps:,}", f"{record.elapsed:.1f} s"]
    for name, value in (
        ("loss", record.loss),
        ("training loss", record.train_loss),
        ("token accuracy", record.token_accuracy),
        ("balanced accuracy", record.balanced),
        ("sequence accuracy", record.sequence_accuracy),
        ("BLEU", record.bleu),
        ("chrF", record.chrf),
        ("error", record.error),
    ):
        if value is not None:
            parts.append(f"{name} {value:.3f}")
    parts += [f"{METRICS[key].name} {value:.3f}" for key, value in record.scores.items()]
    if record.known_loss is not None:
        parts.append(f"without the {record.unknown or 0:.1%} unknown: loss {record.known_loss:.3f}")
    if record.capped:
        parts.append(f"ended by the limit of {config.max_seconds:g} s")
    if record.best is not None:
        parts.append(f"weights of step {record.best:,}")
    if record.cut:
        parts.append(f"{record.cut:,} outputs without an end")
    if record.expected:
        parts.append(f"weight on the expected position {max(map(max, record.expected)):.2f}")
    return "  ".join(parts)


if __name__ == "__main__":
    sys.exit(main())
