"""Fine-tune from a shell: `attention-lab finetune classify RUN_DIR` on our own rows, or with --data rows.csv."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import torch
import typer

from core import command_line
from core.command_line import Encoding, Pairs, given, settings, text_of
from core.finetune.config import FineTuneConfig, usual
from core.finetune.data import parse
from core.finetune.models import resolve
from core.finetune.run import create
from core.runs.machine import line
from core.runs.worker import work
from core.training.record import Record

app = command_line.new_app(__doc__)


def main(arguments: Sequence[str] | None = None) -> int:
    return command_line.run(app, arguments)


@app.command()
def finetune(
    task: Literal["classify", "pairs"],
    run_dir: Path,
    *,
    set: Pairs,
    encoding: Encoding = "utf-8",
    data: Annotated[Path | None, typer.Option(help="a CSV: text,label or source,target")] = None,
    model: Annotated[
        str | None,
        typer.Option(help="minilm, a model of the lab, a folder, or owner/name of the hub"),
    ] = None,
    watch: Annotated[str | None, typer.Option(help="the sentence whose attention is saved")] = None,
    seed: int | None = None,
    device: Annotated[
        str | None, typer.Option(help="auto (CUDA if available), cpu, cuda or mps")
    ] = None,
) -> None:
    """Fine-tune a pretrained model; --set changes its training, as epochs=3."""
    torch.set_num_threads(1)  # as in a worker, so that the same seed gives the same numbers
    more = {
        **given(watch=watch, seed=seed, device=device, model=model and resolve(model)),
        **settings(set),
    }
    config = FineTuneConfig.from_json(usual(task, **text_of(data, encoding)).to_json() | more)
    run = create(config, path=run_dir)
    state = work(run.path, on_record=_print_record)
    if where := line(run.metadata().get("machines")):
        print(f"Trained on {where}")
    if config.task == "classify":
        label, share = parse(config.task, config.data, config.seed).majority
        print(f"baseline: the majority class, {label!r}, is right for {share:.1%}")
    raise typer.Exit(0 if state == "finished" else 1)


def _print_record(record: Record) -> None:
    loss = "" if record.loss is None else f"loss {record.loss:.3f}"
    balanced = "" if record.balanced is None else f"  balanced {record.balanced:.1%}"
    capped = "  ended by the time limit" if record.capped else ""
    print(
        f"step {record.step:5,}  {loss}  right {record.exact:.1%}{balanced}  {record.elapsed:.1f} s{capped}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
