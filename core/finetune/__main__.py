"""Fine-tune from a shell: `python -m core.finetune classify RUN_DIR` on our own rows, or with --data rows.csv."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

from core.entries import ConfigError
from core.finetune.config import TASKS, usual
from core.finetune.data import parse
from core.finetune.models import resolve
from core.finetune.run import create
from core.pretrained.base import PretrainedError
from core.tasks.reading import ENCODINGS, decode_text
from core.training.machine import line
from core.training.record import Record
from core.training.worker import work


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m core.finetune", description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=list(TASKS))
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--data", type=Path, help="a CSV: text,label or source,target")
    parser.add_argument("--encoding", choices=ENCODINGS, default="utf-8", help="encoding of the CSV; cp1252 is "
                                                                               "Windows-1252")
    parser.add_argument("--model", help="minilm, a model of the lab, a folder, or owner/name of the hub")
    parser.add_argument("--watch", help="the sentence whose attention is saved")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--device", help="auto (CUDA if available), cpu, cuda or mps")
    arguments = vars(parser.parse_args())
    task, path, data, encoding = (arguments.pop(name) for name in ("task", "run_dir", "data", "encoding"))
    torch.set_num_threads(1)  # as in a worker, so that the same seed gives the same numbers
    try:
        more = {name: value for name, value in arguments.items() if value is not None}
        if "model" in more:
            more["model"] = resolve(more["model"])
        config = usual(task, **more, **({"data": decode_text(data.read_bytes(), encoding)} if data else {}))
        run = create(config, path=path)
    except (ConfigError, PretrainedError, OSError) as error:
        parser.error(str(error))
    state = work(run.path, on_record=_print_record)
    if where := line(run.metadata().get("machines")):
        print(f"Trained on {where}")
    if config.task == "classify":
        label, share = parse(config.task, config.data, config.seed).majority
        print(f"baseline: the majority class, {label!r}, is right for {share:.1%}")
    return 0 if state == "finished" else 1


def _print_record(record: Record) -> None:
    loss = "" if record.loss is None else f"loss {record.loss:.3f}"
    balanced = "" if record.balanced is None else f"  balanced {record.balanced:.1%}"
    capped = "  ended by the time limit" if record.capped else ""
    print(f"step {record.step:5,}  {loss}  right {record.exact:.1%}{balanced}  {record.elapsed:.1f} s{capped}",
          flush=True)


if __name__ == "__main__":
    sys.exit(main())
