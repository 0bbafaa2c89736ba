"""Checks of the files of an uploaded run; each raises a ValueError that names the file and the mistake."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import torch
from safetensors import SafetensorError, safe_open

from core.checksum import read_checked
from core.entries import ConfigError, quote, quote_name
from core.models import build_model, map_tokens
from core.tasks import Example, Task, make_task
from core.trace import Kind
from core.training.config import BOUNDS, OPTIMIZERS, RunConfig
from core.training.fields import FIELDS
from core.training.record import Record
from core.training.runs import Run
from core.training.session import Interval, Progress
from core.training.source_maps import axis_tokens

LONGEST_HEADER = 1_000_000  # bytes of a safetensors header; ours have some thousands
LONGEST_LINE = 2_000_000
CUDA_GENERATOR = 16  # bytes: a seed and an offset
MOST_RECORDS = int(BOUNDS["steps"][1]) + 2

TensorShapes = dict[str, tuple[str, tuple[int, ...]]]  # a tensor's name -> its type and shape


def config(path: Path) -> tuple[RunConfig, dict[str, Any]]:
    """The config in a run.json, and the whole object."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(data, dict):
            raise ValueError("it is not an object")
        return RunConfig.from_json(data.get("config")), data
    except (ConfigError, ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise ValueError(f"run.json does not describe a run: {error}") from error


def records(path: Path) -> list[Record]:
    """Every record of a metrics.jsonl."""
    result: list[Record] = []
    with path.open("rb") as file:
        for number in range(1, MOST_RECORDS + 1):
            line = file.readline(LONGEST_LINE)
            if not line:
                return result
            result.append(_record(line, number))
            if len(result) > 1 and result[-1].step < result[-2].step:
                raise ValueError(
                    f"metrics.jsonl, line {number}: step {result[-1].step} comes after {result[-2].step}."
                )
    raise ValueError(f"metrics.jsonl has more than {MOST_RECORDS:,} lines.")


def _record(line: bytes, number: int) -> Record:
    try:
        data = read_checked(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"metrics.jsonl, line {number} cannot be read: {error}") from error
    if "step" not in data:
        raise ValueError(f"metrics.jsonl, line {number} is not a record of a step.")
    for name, value in data.items():
        if name not in FIELDS:
            raise ValueError(f"metrics.jsonl, line {number}: a record has no {quote_name(name)}.")
        if not FIELDS[name](value):
            raise ValueError(
                f"metrics.jsonl, line {number}: {name} = {quote(value)} is not possible."
            )
    return Record.from_json(data)


def frames(run: Run, config: RunConfig) -> None:
    """Check that frames hold maps of the watched examples' lengths, with the same layers and heads throughout."""
    if not run.frame_steps():
        return
    task = make_task(config.task)
    examples = task.held_out(config.watch)[: config.watch]
    heads: dict[str, tuple[int, ...]] = {}
    for step in run.frame_steps():
        where = f"frames/{step:06d}.safetensors"
        for name, (kind, shape) in tensors(run.frame_path(step), where)[0].items():
            size = _map_size(name, config, task, examples)
            if kind != "F16" or size is None or shape[2:] != size:
                raise ValueError(
                    f"{where}: {name[:40]} is {kind} {shape}; expected F16 (layers, heads, "
                    f"{', '.join(map(str, size or ('rows', 'columns')))}) of a watched example."
                )
            if (
                heads.setdefault(name, shape[:2]) != shape[:2]
                or not 0 < shape[0] * shape[1] <= 12 * 64
            ):
                raise ValueError(
                    f"{where}: {name} has {shape[:2]} layers and heads; other frames {heads[name]}."
                )


def _map_size(
    name: str, config: RunConfig, task: Task, examples: Sequence[Example]
) -> tuple[int, int] | None:
    index, _, kind = name.partition(":")
    if kind not in get_args(Kind) or not index.isdecimal() or not int(index) < len(examples):
        return None
    rows, columns = map_tokens(config.model, kind, *axis_tokens(task, examples[int(index)]))
    return len(rows), len(columns)


def checkpoints(run: Run, config: RunConfig) -> None:
    """Check that checkpoints hold what `Session.restore` takes: weights, optimizer state, two generators."""
    if not run.checkpoint_steps():
        return
    task = make_task(config.task)
    with torch.device("meta"):  # takes no memory
        model = build_model(config.model, task.shape)
    weights = {f"model.{name}": tuple(value.shape) for name, value in model.state_dict().items()}
    shapes = [tuple(value.shape) for value in model.parameters()]
    generator = tuple(torch.get_rng_state().shape)
    for step in run.checkpoint_steps():
        where = f"checkpoints/{step:06d}.safetensors"
        saved, text = tensors(run.checkpoint_path(step), where)
        if missing := sorted(weights.keys() - saved.keys()):
            raise ValueError(f"{where} has no {missing[0]}, which this model needs.")
        for name, (_, shape) in saved.items():
            fits = (weights[name],) if name in weights else _beside(name, shapes, generator)
            if shape not in fits:
                raise ValueError(
                    f"{where}: {name[:80]} is {shape}; expected "
                    f"{' or '.join(map(str, fits)) or 'no such tensor'}."
                )
        if not {"generator.data", "generator.torch"} <= saved.keys():
            raise ValueError(f"{where} lacks the state of the random generators.")
        _progress(text, step, where)


def _beside(
    name: str, shapes: list[tuple[int, ...]], generator: tuple[int, ...]
) -> tuple[tuple[int, ...], ...]:
    """The shapes allowed for a tensor beside the weights; none when there is no such tensor."""
    kind, _, rest = name.partition(".")
    index, _, part = rest.partition(".")
    numbered = index.isdecimal() and len(index) < 6 and int(index) < len(shapes)
    if kind == "optimizer" and numbered and part.isidentifier():
        return shapes[int(index)], ()
    if name == "generator.cuda":
        return ((CUDA_GENERATOR,),)
    return (generator,) if name in ("generator.data", "generator.torch") else ()


def _progress(text: dict[str, str], step: int, where: str) -> None:
    try:
        now = {name: type(value)(text[name]) for name, value in vars(Progress()).items()}
        for name, value in vars(Interval()).items():
            type(value)(text.get(f"interval.{name}", value))
    except (KeyError, ValueError) as error:
        raise ValueError(f"{where} does not state the step of the run: {error}") from error
    if now["step"] != step or text.get("optimizer") not in OPTIMIZERS:
        raise ValueError(
            f"{where} is of step {now['step']}, optimizer {text.get('optimizer', 'unknown')[:40]}."
        )


def tensors(path: Path, where: str) -> tuple[TensorShapes, dict[str, str]]:
    """The type and shape of every tensor in a safetensors file, and its metadata, from the header alone."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
    if not 0 < length <= min(LONGEST_HEADER, path.stat().st_size):
        raise ValueError(
            f"{where} is not a safetensors file: its header would have {length:,} bytes."
        )
    try:
        with safe_open(path, "pt") as file:
            names = file.keys()
            slices = {name: file.get_slice(name) for name in names}
            return (
                {
                    name: (part.get_dtype(), tuple(part.get_shape()))
                    for name, part in slices.items()
                },
                dict(file.metadata() or {}),
            )
    except (SafetensorError, OSError, ValueError) as error:
        raise ValueError(f"{where} is not a safetensors file: {error}") from error
