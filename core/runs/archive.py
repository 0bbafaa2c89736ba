"""A run for others: as one zip, and its records as event files of TensorBoard or an offline run of Weights & Biases.

The zip holds run.json, status.json, metrics.jsonl, frames/, checkpoints/ and data/, alone or within one folder. Names
and sizes are checked before unpacking, unpacking stops at the declared size, and every file is checked in a draft
folder before it becomes a run. Nothing in it is executed or unpickled.
"""

import io
import json
import os
import re
import shutil
import tempfile
import time
import zipfile
import zlib
from pathlib import Path
from typing import Any, BinaryIO, get_args

import numpy as np
import torch
from safetensors import SafetensorError, safe_open

from core.entries import ConfigError, quote, refuse_if
from core.files import (
    disk_refused,
    read_checked,
    runs_folder,
    seconds_of,
    sentence_of,
    text_of,
    zip_files,
    zip_of,
)
from core.interpret.trace import Kind
from core.models import build_model, map_tokens
from core.runs.machine import line, valid
from core.runs.runs import LONGEST_NAME, Run, draft_folder, new_run
from core.tasks import make_task, reading
from core.training import BOUNDS, OPTIMIZERS, Record, RunConfig, axis_tokens, read_counters
from core.training.watch import WatchedModel

# Checks of an uploaded run's files raise a ValueError that names the file and the mistake.
LONGEST_HEADER = 1_000_000  # bytes of a safetensors header; ours have some thousands
LONGEST_LINE = 2_000_000
OPTIMIZER_STATE = re.compile(r"optimizer\.([0-9]{1,5})\.[^\W\d]\w*")
MAX_RECORDS = int(BOUNDS["steps"][1]) + 2


def read_config(path: Path) -> tuple[RunConfig | WatchedModel, dict[str, Any]]:
    """The config in a run.json, or the model of a watched run, and the whole object."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        refuse_if(not isinstance(data, dict), "it is not an object")
        if "watched" in data:
            refuse_if(
                path.stat().st_size > LONGEST_LINE, f"it has more than {LONGEST_LINE:,} bytes"
            )
            return WatchedModel.of(Run(path.parent)), data
        return RunConfig.from_json(data.get("config")), data
    except (ConfigError, ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise ValueError(f"run.json does not describe a run: {error}") from error


def read_records(path: Path) -> list[Record]:
    result: list[Record] = []
    with path.open("rb") as file:
        for number in range(1, MAX_RECORDS + 1):
            where, line = f"metrics.jsonl, line {number}", file.readline(LONGEST_LINE)
            if not line:
                return result
            try:
                result.append(Record.from_json(read_checked(line), finite=True))
            except ConfigError as error:
                raise ValueError(f"{where}: {error}") from error
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{where} cannot be read: {error}") from error
            before, now = result[-2:][0].step, result[-1].step
            refuse_if(now < before, f"{where}: step {now} comes after {before}.")
    raise ValueError(f"metrics.jsonl has more than {MAX_RECORDS:,} lines.")


def frames(run: Run, config: RunConfig) -> None:
    """Check that frames hold maps of the watched examples' lengths, with the same layers and heads throughout."""
    if not run.frame_steps():
        return
    task = make_task(config.task)
    examples = task.held_out(config.num_examples)[: config.num_examples]
    heads: dict[str, tuple[int, ...]] = {}
    for step in run.frame_steps():
        where = f"frames/{step:06d}.safetensors"
        for name, (kind, shape) in tensors(run.frame_path(step), where)[0].items():
            index, _, map_kind = name.partition(":")
            size = None
            if map_kind in get_args(Kind) and index.isdecimal() and int(index) < len(examples):
                axes = axis_tokens(task, examples[int(index)])
                size = tuple(map(len, map_tokens(config.model, map_kind, *axes)))
            refuse_if(
                kind != "F16" or size is None or shape[2:] != size,
                f"{where}: {name[:40]} is {kind} {shape}; expected F16 (layers, heads, "
                f"{', '.join(map(str, size or ('rows', 'columns')))}) of a watched example.",
            )
            usual = heads.setdefault(name, shape[:2])
            refuse_if(
                usual != shape[:2] or not 0 < shape[0] * shape[1] <= 12 * 64,
                f"{where}: {name} has {shape[:2]} layers and heads; other frames {usual}.",
            )


def watched_frames(run: Run, model: WatchedModel) -> None:
    """Check that frames hold the maps that run.json describes, and that there are no weights."""
    refuse_if(run.checkpoint_steps(), "A watched run has no weights; the zip holds checkpoints.")
    sizes = {
        f"{at}:{group.kind}": tuple(
            map(len, (group.layers, group.heads, group.rows, group.columns))
        )
        for at, group in enumerate(model.groups)
    }
    for step in run.frame_steps():
        where = f"frames/{step:06d}.safetensors"
        for name, (kind, shape) in tensors(run.frame_path(step), where)[0].items():
            refuse_if(
                kind != "F16" or shape != sizes.get(name),
                f"{where}: {name[:40]} is {kind} {shape}; expected F16 {sizes.get(name, '')} by run.json.",
            )


def checkpoints(run: Run, config: RunConfig) -> None:
    """Check that checkpoints hold what `Session.restore` takes: weights, optimizer state, two generators."""
    if not run.checkpoint_steps():
        return
    task = make_task(config.task)
    with torch.device("meta"):  # takes no memory
        model = build_model(config.model, task.shape)
    shapes = [tuple(value.shape) for value in model.parameters()]
    weights = {f"model.{name}": tuple(value.shape) for name, value in model.state_dict().items()}
    generators = dict.fromkeys(
        ("generator.data", "generator.torch"), tuple(torch.get_rng_state().shape)
    )
    known = {**weights, **generators, "generator.cuda": (16,)}  # bytes: a seed and an offset
    for step in run.checkpoint_steps():
        where = f"checkpoints/{step:06d}.safetensors"
        saved, text = tensors(run.checkpoint_path(step), where)
        missing = min(weights.keys() - saved.keys(), default="")
        refuse_if(missing, f"{where} has no {missing}, which this model needs.")
        for name, (_, shape) in saved.items():
            fits: tuple[tuple[int, ...], ...] = (known[name],) if name in known else ()
            if (state := OPTIMIZER_STATE.fullmatch(name)) and int(state[1]) < len(shapes):
                fits = shapes[int(state[1])], ()
            refuse_if(
                shape not in fits,
                f"{where}: {name[:80]} is {shape}; expected "
                f"{' or '.join(map(str, fits)) or 'no such tensor'}.",
            )
        refuse_if(
            not generators.keys() <= saved.keys(),
            f"{where} lacks the state of the random generators.",
        )
        try:
            now, *_ = read_counters(text)
        except (KeyError, ValueError) as error:
            raise ValueError(f"{where} does not state the step of the run: {error}") from error
        refuse_if(
            now.step != step or text.get("optimizer") not in OPTIMIZERS,
            f"{where} is of step {now.step}, optimizer {text.get('optimizer', 'unknown')[:40]}.",
        )


def tensors(
    path: Path, where: str
) -> tuple[dict[str, tuple[str, tuple[int, ...]]], dict[str, str]]:
    """The type and shape of every tensor in a safetensors file, and its metadata, from the header alone."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
    refuse_if(
        not 0 < length <= min(LONGEST_HEADER, path.stat().st_size),
        f"{where} is not a safetensors file: its header would have {length:,} bytes.",
    )
    try:
        with safe_open(path, "pt") as file:
            names = file.keys()
            parts = zip(names, map(file.get_slice, names), strict=True)
            shapes = {name: (part.get_dtype(), tuple(part.get_shape())) for name, part in parts}
            return shapes, dict(file.metadata() or {})
    except (SafetensorError, OSError, ValueError) as error:
        raise ValueError(f"{where} is not a safetensors file: {error}") from error


MAX_ZIPPED = 100_000_000  # bytes
MAX_UNPACKED = 256_000_000
MAX_FILES = 5_000
MAX_TEXT = 500  # characters of a status message
NAMES = re.compile(
    r"(?:[^/\\\0]{1,100}/)?((?:run|status)\.json|metrics\.jsonl"
    r"|(?:frames|checkpoints)/(?:[0-9]{6}|[1-9][0-9]{6,8})\.safetensors|data/[0-9a-f]{64}\.txt)"
)
FOLDERS = re.compile(r"(?:[^/\\\0]{1,100}/)?(?:frames/|checkpoints/|data/)?")
FLAT = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def pack(run: Run) -> bytes:
    """The run as a zip, with its last checkpoint, the one that counts, and as many others as fit.

    ValueError when its config cannot be read, or the rest alone is larger than `unpack` accepts.
    """
    carried, status = ("name", "created", "parent", "machines", "watched"), run.status()
    metadata = {} if run.job == "watched" else {"config": run.config().to_json()}
    metadata |= {key: value for key, value in run.metadata().items() if key in carried}
    texts = {
        "run.json": json.dumps(metadata, indent=1).encode(),
        "status.json": json.dumps({"state": status.state, "message": status.message}).encode(),
        "metrics.jsonl": b"".join(
            json.dumps(r.to_json(), ensure_ascii=False).encode() + b"\n" for r in run.records()
        ),
    }
    steps = run.checkpoint_steps()[::-1]
    first = {*steps[:1], *([run.default_step()] if steps else [])}
    files = [
        *map(run.checkpoint_path, first),
        *map(run.frame_path, run.frame_steps()),
        *(run.path / reading.IN_RUN).glob("*.txt"),
    ]
    room = MAX_UNPACKED - sum(map(len, texts.values())) - sum(path.stat().st_size for path in files)
    refuse_if(
        room < 0 or len(files) + len(texts) > MAX_FILES,
        f"This run is larger than {MAX_UNPACKED // 1_000_000} MB or {MAX_FILES:,} files, the limit "
        "of a zip.",
    )
    for path in (run.checkpoint_path(step) for step in steps if step not in first):
        room -= path.stat().st_size
        if room >= 0:
            files.append(path)
    return zip_files(run.id, texts | {f"{path.parent.name}/{path.name}": path for path in files})


def unpack(data: bytes | BinaryIO, root: Path | None = None, max_bytes: int | None = None) -> Run:
    """A new run from a zip, of at most `max_bytes` bytes unpacked; ValueError for anything that is not a run."""
    stream = io.BytesIO(data) if isinstance(data, bytes) else data
    refuse_if(
        stream.seek(0, io.SEEK_END) > MAX_ZIPPED,
        f"The file is larger than {MAX_ZIPPED // 1_000_000} MB.",
    )
    with draft_folder(root) as folder:
        try:
            with zipfile.ZipFile(stream) as file:
                for info, name in members(file, max_bytes):
                    (folder / name).parent.mkdir(exist_ok=True)
                    # zipfile reads no more than the declared size, and checks what it has read.
                    with file.open(info) as packed, (folder / name).open("wb") as out:
                        shutil.copyfileobj(packed, out)
        except (
            zipfile.BadZipFile,
            zlib.error,
            RuntimeError,
            NotImplementedError,
            EOFError,
            OSError,
        ) as error:
            trouble = "" if disk_refused(error) else "The zip cannot be read: "
            raise ValueError(f"{trouble}{sentence_of(error)}") from error
        # Check every file of the draft and copy the valid data into a new run.
        draft = Run(folder)
        reading.note(folder, verify=True)
        config, metadata = read_config(folder / "run.json")
        records = read_records(folder / "metrics.jsonl")
        if isinstance(config, WatchedModel):
            watched_frames(draft, config)
        else:
            frames(draft, config)
            checkpoints(draft, config)
        status, parent = draft.status(), None
        match metadata.get("parent"):
            case {"run": str(name), "step": int(step)} if type(step) is int and 0 <= step <= 10**9:
                parent = {"run": name[:LONGEST_NAME], "step": step}
        with new_run(
            config if isinstance(config, RunConfig) else None,
            root,
            uploaded=time.time(),
            watched=metadata.get("watched"),
            name=text_of(metadata.get("name"), LONGEST_NAME) or None,
            parent=parent,
            machines=valid(metadata.get("machines")) or None,
        ) as run:
            for path in draft.saved_at_steps():
                path.rename(run.path / path.parent.name / path.name)
            for record in records:
                run.append(record)
            left = ("stopped", "It was still training when it was copied.")
            run.set_status(*(status.state, status.message[:MAX_TEXT]) if status.ended else left)
        return Run((root or runs_folder()) / run.id)


def members(
    file: zipfile.ZipFile, max_bytes: int | None = None
) -> list[tuple[zipfile.ZipInfo, str]]:
    """The members of a zip with their names in the run's folder; ValueError for a name that no run has."""
    infos: dict[str, zipfile.ZipInfo] = {}
    tops = set()
    for info in file.infolist():
        if FOLDERS.fullmatch(info.filename):
            continue
        if (match := NAMES.fullmatch(info.filename)) is None:
            raise ValueError(f"The zip holds {quote(info.filename)}, which is not a file of a run.")
        name = match[1]
        tops.add(info.filename.removesuffix(name))
        refuse_if(
            name in infos or len(tops) > 1,
            f"The zip holds {name} more than once; a zip holds one run.",
        )
        refuse_if(
            bool(info.flag_bits & 1) or info.compress_type not in FLAT,
            f"{name} is encrypted, or packed in a way other than deflate.",
        )
        infos[name] = info
    refuse_if(
        len(infos) > MAX_FILES,
        f"The zip holds {len(infos):,} files; at most {MAX_FILES:,} are allowed.",
    )
    total, max_bytes = (
        sum(one.file_size for one in infos.values()),
        MAX_UNPACKED if max_bytes is None else max_bytes,
    )
    refuse_if(
        total > max_bytes,
        f"Unpacked it would have {total / 1e6:,.0f} MB; at most {max_bytes // 1_000_000} MB are allowed.",
    )
    missing = min({"run.json", "metrics.jsonl"} - infos.keys(), default="")
    refuse_if(missing, f"The zip has no {missing}, so it is not a run.")
    return [(info, name) for name, info in infos.items()]


TAGS = {
    "loss/training": "train_loss",
    "loss/validation": "loss",
    "loss/validation_known_words": "known_loss",
    "loss/indexer": "indexer_loss",
    "accuracy/token": "token_accuracy",
    "accuracy/sequence": "sequence_accuracy",
    "accuracy/balanced": "balanced",
    "quality/bleu": "bleu",
    "quality/chrf": "chrf",
    "quality/relative_error": "error",
    "quality/cut_outputs": "cut",
    "gradient/norm": "gradient",
    "optimizer/learning_rate": "rate",
    "speed/tokens_per_second": "tokens_per_second",
    "speed/share_of_making_data": "data_share",
    "attention/uniform": "even",
}
LONGEST = 200  # characters of a setting; a longer one is data
SIDE = 64  # px, which a map of few tokens is enlarged to about


def scalars(record: Record) -> dict[str, float]:
    """The measurements of a record by tag; those of the final record, often of other weights, under final/."""
    values = {tag: getattr(record, name) for tag, name in TAGS.items()}
    values |= {f"gradient/{part}": norm for part, norm in record.gradients.items()}
    values |= {f"quality/{key}": value for key, value in record.scores.items()}
    values |= {
        f"attention/expected_L{layer}.H{head}": weight
        for layer, heads in enumerate(record.expected or ())
        for head, weight in enumerate(heads)
    }
    start = "final/" if record.final else ""
    return {start + tag: float(value) for tag, value in values.items() if value is not None}


def write_tensorboard(run: Run, folder: Path) -> Path:
    """Write scalars, the attention of the first watched example as images, and the config into a folder.

    ValueError for a run without records, or for a folder with event files.
    """
    from tensorboardX import SummaryWriter

    records = _records(run)
    refuse_if(
        any(folder.glob("events.out.tfevents.*")),
        f"{folder} has event files already, which TensorBoard would mix; take another folder.",
    )
    start, frames = seconds_of(run.metadata().get("created")), set(run.frame_steps())
    config = json.dumps(settings_of(run), indent=1, ensure_ascii=False)
    machine = line(run.metadata().get("machines"))
    words = [run.name, machine and f"Trained on {machine}", f"```json\n{config}\n```"]
    with SummaryWriter(str(folder)) as writer:
        writer.add_text("run", "\n\n".join(filter(None, words)), walltime=start)
        for record in records:
            at = {"global_step": record.step, "walltime": start + record.elapsed}
            for tag, value in scalars(record).items():
                writer.add_scalar(tag, value, **at)
            if record.step in frames and not record.final:
                for kind, pixels in heads_images(run.frame(record.step)).items():
                    writer.add_image(f"attention/{kind}", pixels, dataformats="HW", **at)
    return folder


def tensorboard_zip(run: Run) -> bytes:
    """The event files as a zip; ValueError as `write_tensorboard`."""
    with tempfile.TemporaryDirectory() as folder:
        return zip_of(write_tensorboard(run, Path(folder) / run.id))


def heads_images(frame: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The maps of the first example by type, as grey pixels: a line of maps a layer, black for a weight of 1."""
    images = {}
    for key, maps in frame.items():
        example, _, kind = key.partition(":")
        if example == "0":
            times = max(1, SIDE // max(maps.shape[2:]))
            cells = np.rint(255 * (1 - np.clip(np.nan_to_num(maps), 0, 1))).astype(np.uint8)
            cells = np.pad(
                cells.repeat(times, 2).repeat(times, 3),
                ((0, 0), (0, 0), (2, 2), (2, 2)),
                constant_values=200,
            )
            layers, heads, rows, columns = cells.shape
            images[kind] = cells.transpose(0, 2, 1, 3).reshape(layers * rows, heads * columns)
    return images


def write_wandb(run: Run, folder: Path) -> Path:
    """Write an offline run of Weights & Biases into a folder; ValueError where that is not installed."""
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # else threads of it outlive the run
    try:
        import wandb
    except ImportError as error:
        raise ValueError(
            "Weights & Biases is not installed; install it with: pip install wandb"
        ) from error
    records = _records(run)
    folder.mkdir(parents=True, exist_ok=True)
    target = wandb.init(
        project="attention-lab",
        name=run.name,
        dir=str(folder),
        mode="offline",
        settings=wandb.Settings(console="off", silent=True, x_disable_stats=True),
        config=settings_of(run),
    )
    for record in records:
        target.log(scalars(record), step=record.step)
    target.finish()
    wandb.teardown()  # only then is the file whole
    return folder


def settings_of(run: Run) -> dict[str, Any]:
    """The settings of a run, also of a fine-tuned one, without the data in them."""
    metadata = run.metadata()
    settings = metadata.get("config") or metadata.get("finetune") or metadata.get("watched")
    return _without_data(settings) if isinstance(settings, dict) else {}


def _without_data(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_data(part) for name, part in value.items()}
    return (
        f"{len(value):,} characters" if isinstance(value, str) and len(value) > LONGEST else value
    )


def _records(run: Run) -> list[Record]:
    records = run.records()
    refuse_if(not records, "This run has no measurements yet.")
    return records
