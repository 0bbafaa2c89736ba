"""A run's records for other programs: event files of TensorBoard, and an offline run of Weights & Biases.

python -m core.training tensorboard RUN FOLDER    then: tensorboard --logdir FOLDER
python -m core.training wandb RUN FOLDER          then: wandb sync FOLDER/wandb/offline-run-*
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from core.files import seconds_of, zip_of
from core.runs.machine import line
from core.runs.runs import Run
from core.training.record import Record

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
WANDB_MISSING = 'Weights & Biases is not installed; install it with: pip install -r requirements.txt -e ".[wandb]"'


def scalars(record: Record) -> dict[str, float]:
    """The measurements of a record by tag; those of the final record, often of other weights, under final/."""
    values = {tag: getattr(record, name) for tag, name in TAGS.items()}
    values |= {f"gradient/{part}": norm for part, norm in record.gradients.items()}
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
    if any(folder.glob("events.out.tfevents.*")):
        raise ValueError(
            f"{folder} has event files already, which TensorBoard would mix; take another folder."
        )
    start, frames = seconds_of(run.metadata().get("created")), set(run.frame_steps())
    with SummaryWriter(str(folder)) as writer:
        config = json.dumps(settings_of(run), indent=1, ensure_ascii=False)
        machine = line(run.metadata().get("machines"))
        writer.add_text(
            "run",
            "\n\n".join(
                [
                    run.name,
                    *([f"Trained on {machine}"] if machine else []),
                    f"```json\n{config}\n```",
                ]
            ),
            walltime=start,
        )
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
    try:
        import wandb
    except ImportError as error:
        raise ValueError(WANDB_MISSING) from error
    records = _records(run)
    folder.mkdir(parents=True, exist_ok=True)
    settings = wandb.Settings(console="off", silent=True, x_disable_stats=True)
    target = wandb.init(
        project="attention-lab",
        name=run.name,
        dir=str(folder),
        mode="offline",
        settings=settings,
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
    settings = metadata.get("config") or metadata.get("finetune")
    return _without_data(settings) if isinstance(settings, dict) else {}


def _without_data(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_data(part) for name, part in value.items()}
    return (
        f"{len(value):,} characters" if isinstance(value, str) and len(value) > LONGEST else value
    )


def _records(run: Run) -> list[Record]:
    records = run.records()
    if not records:
        raise ValueError("This run has no measurements yet.")
    return records
