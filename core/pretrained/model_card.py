"""The model card of an exported run: README.md with the Hub's metadata, written from the run's own records."""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from core.files import seconds_of
from core.pretrained.load import load_folder
from core.pretrained.reading import tokenizer_of
from core.runs.machine import line
from core.runs.runs import Run
from core.tasks import Task, make_task, task_entry
from core.training.record import Record

LICENSE = "unknown"  # the Hub's word for weights that nobody has licensed yet
METRICS = {
    "loss": ("loss", "Validation loss"),
    "letters": ("accuracy", "Token accuracy"),
    "exact": ("exact_match", "Sequence accuracy"),
    "bleu": ("bleu", "BLEU"),
    "chrf": ("chrf", "chrF"),
}
PIPELINES = {
    "pairs": "text2text-generation",
    "text": "text-generation",
    "label": "image-classification",
}
NEW_TOKENS = 8  # that the card's code adds to a text
TRAINING = (
    "batch_size",
    "optimizer",
    "learning_rate",
    "schedule",
    "warmup",
    "weight_decay",
    "clip",
    "precision",
    "seed",
)
LEVELS = 15  # of ink in the card's picture: a hexadecimal digit each

IN_TEXT = """import torch
from transformers import {auto}, AutoTokenizer

path = "."  # this folder, or the name of the model on the Hub
tokenizer, model = AutoTokenizer.from_pretrained(path), {auto}.from_pretrained(path)
inputs = tokenizer({text!r}, return_tensors="pt")
with torch.no_grad():
    tokens = model.generate(**inputs, do_sample=False, num_beams=1, max_new_tokens={count})[0{after}]
print(tokenizer.decode(tokens, skip_special_tokens=True))  # {output}
"""
IN_PICTURE = """import torch
from transformers import AutoModelForImageClassification

model = AutoModelForImageClassification.from_pretrained(".")  # this folder, or the name of the model on the Hub
rows = {rows!r}.split()  # ink, a hexadecimal digit a pixel
pixels = torch.tensor([[int(ink, 16) / {levels} for ink in row] for row in rows])
with torch.no_grad():
    logits = model(pixel_values=pixels[None, None]).logits
print(model.config.id2label[int(logits.argmax())])  # {output}
"""


def card_text(
    run: Run, step: int, task: Task, hf_model: Any, tokenizer: Any, license: str = LICENSE
) -> str:
    """The card of a run's model at a step, with code that loads it and the output that this code prints."""
    from huggingface_hub import EvalResult, ModelCardData

    record, name, pipeline = record_at(run, step), " ".join(run.name.split()), PIPELINES[task.form]
    data = ModelCardData(
        library_name="transformers",
        license=license,
        tags=["attention-lab", "attention", task.key],
        pipeline_tag=pipeline,
        model_name=name,
        eval_results=[
            EvalResult(pipeline, task.key, task.name, metric, value, metric_name=label)
            for metric, label, value in metrics(record)
        ],
    )
    code = code_of(task, hf_model, tokenizer)
    parts = [
        f"---\n{data.to_yaml()}\n---",
        f"# {name}",
        purpose(run, task),
        "## How to use it",
        f"```python\n{code}```",
        "## What it reached",
        reached(record),
        "## How it was trained",
        table(training(run, step, record)),
        "## What it is",
        table(model_rows(run, hf_model)),
        "`run.json` holds the whole config. With Attention Lab, `python -m core.training train run.json` trains "
        "it again; the same numbers come out with the same version of PyTorch on the same type of CPU.",
    ]
    return "\n\n".join(parts) + "\n"


def write_card(folder: Path, license: str = LICENSE) -> None:
    """Write the card of a folder that was exported without one, from its run.json and its weights."""
    run = Run(folder)
    pretrained, task = load_folder(folder, folder.name), make_task(run.config().task)
    tokenizer = None if task.form == "label" else tokenizer_of(pretrained)
    step = int(run.metadata()["reached"]["step"])
    (folder / "README.md").write_text(
        card_text(run, step, task, pretrained.model, tokenizer, license), "utf-8"
    )


def record_at(run: Run, step: int) -> Record | None:
    """The last measurement of the weights of a step; of an exported folder, the figures in its run.json."""
    exported = run.metadata().get("reached")
    records = [Record.from_json(exported)] if exported else run.records()
    return next(
        (record for record in reversed(records) if (record.best or record.step) == step), None
    )


def metrics(record: Record | None) -> list[tuple[str, str, float]]:
    """Type, name and value of each figure that a record has."""
    return [
        (metric, label, float(value))
        for field, (metric, label) in METRICS.items()
        if record is not None and (value := getattr(record, field)) is not None
    ]


def purpose(run: Run, task: Task) -> str:
    """What the model was trained for, and what it is not for."""
    entry, params = task_entry(task.key), dict(run.config().task.params)
    own = params.pop("data", None) is not None
    given = ", ".join(f"{name} = {value}" for name, value in params.items() if value != "")
    sentences = [
        f"Task: **{entry.name}**.",
        entry.meaning,
        *(
            ["The data is a person's own; the example below is one of its held-out items."]
            if own
            else []
        ),
        *([f"Parameters of the task: {given}."] if given else []),
    ]
    return (
        " ".join(sentences)
        + "\n\nA small model that was trained in Attention Lab so that its attention can be "
        "looked into. It knows this one task and its vocabulary. It was tested on held-out items of the same data "
        "alone."
    )


def reached(record: Record | None) -> str:
    """The figures as a table, or that there are none."""
    rows = [(label, f"{value:.4g}") for _, label, value in metrics(record)]
    if record is None or not rows:
        return "Nothing was measured at this step."
    return f"On {record.held_out:,} held-out items (the loss in nats):\n\n{table(rows)}"


def training(run: Run, step: int, record: Record | None) -> list[tuple[str, Any]]:
    """Steps, time, settings, machine and versions."""
    config, metadata = run.config(), run.metadata()
    rows: list[tuple[str, Any]] = [("steps", f"{step:,} of {config.steps:,}")]
    if record is not None and record.elapsed:  # an exported folder does not state them
        rows += [
            ("seconds of training", f"{record.trained:.1f}"),
            ("seconds with measuring", f"{record.elapsed:.1f}"),
        ]
    if record is not None and record.train_loss is not None:
        rows.append(("training loss", f"{record.train_loss:.4g}"))
    rows += [(name.replace("_", " "), getattr(config, name)) for name in TRAINING]
    rows += [
        ("seed of the data", config.task.seed),
        ("trained on", line(metadata.get("machines"))),
        ("begun", _day(metadata.get("created"))),
        (
            "card written with",
            f"transformers {version('transformers')}, PyTorch "
            f"{version('torch').partition('+')[0]}, Python {sys.version.split()[0]}",
        ),
    ]
    return [row for row in rows if row[1] != ""]


def model_rows(run: Run, hf_model: Any) -> list[tuple[str, Any]]:
    """Class, size and the choices of the attention."""
    model = run.config().model
    rows: list[tuple[str, Any]] = [
        ("class", type(hf_model).__name__),
        ("parameters", f"{hf_model.num_parameters():,}"),
        ("layers", model.layers),
        ("heads", model.num_heads),
        ("d_model", model.d_model),
        ("d_ff", model.d_ff),
        ("norm", model.norm),
        ("activation", model.activation),
        ("dropout", model.dropout),
    ]
    return rows + [
        (axis, getattr(model.attention, axis).key)
        for axis in ("projection", "score", "position", "mask", "normalizer")
    ]


def code_of(task: Task, hf_model: Any, tokenizer: Any) -> str:
    """Python that loads the exported folder and runs the model on a held-out item, with what it prints."""
    (example,) = task.held_out(1)
    if tokenizer is None:
        return picture_code(task, example.source, hf_model)
    words = [word for word in task.display_tokens(example)[0] if word != tokenizer.bos_token]
    two, text = hf_model.config.is_encoder_decoder, task.separator.join(words)
    count = NEW_TOKENS if task.form == "text" else task.max_target + 1
    if task.form == "text":
        text = task.separator.join(words[: max(1, len(words) // 2)])
    elif not two:  # the source, then the mark with which the target begins
        text += tokenizer.bos_token
    inputs = tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        tokens: Tensor = hf_model.generate(
            **inputs, do_sample=False, num_beams=1, max_new_tokens=count
        )[0]
    start = 0 if two else inputs["input_ids"].shape[1]
    output = tokenizer.decode(tokens[start:], skip_special_tokens=True)
    after = "" if two else ', inputs["input_ids"].shape[1]:'
    auto = "AutoModelForSeq2SeqLM" if two else "AutoModelForCausalLM"
    return IN_TEXT.format(
        auto=auto, text=text, count=count, after=after, output=" ".join(output.split())
    )


def picture_code(task: Any, source: Sequence[Sequence[float]], hf_model: Any) -> str:
    """The same for a model of pictures: the pixels of one are in the code."""
    rows, columns = task.grid
    side = task.patch
    pixels = (
        torch.tensor(source)
        .reshape(rows, columns, side, side)
        .permute(0, 2, 1, 3)
        .flatten(2)
        .flatten(0, 1)
    )
    levels = (pixels.clamp(0, 1) * LEVELS).round()
    with torch.no_grad():
        label = int(hf_model(pixel_values=(levels / LEVELS)[None, None]).logits.argmax())
    text = " ".join("".join(f"{int(ink):x}" for ink in row) for row in levels)
    return IN_PICTURE.format(rows=text, levels=LEVELS, output=hf_model.config.id2label[label])


def table(rows: Sequence[tuple[str, Any]]) -> str:
    """Rows of a name and a value as Markdown."""
    return "\n".join(["| | |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in rows)])


def _day(seconds: object) -> str:
    at = seconds_of(seconds)
    return datetime.datetime.fromtimestamp(at, datetime.UTC).date().isoformat() if at else ""


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m core.pretrained.model_card", description=write_card.__doc__
    )
    parser.add_argument("folder", type=Path, nargs="+")
    parser.add_argument("--license", default=LICENSE, help="of the weights, such as mit")
    options = parser.parse_args(arguments)
    for folder in options.folder:
        write_card(folder, options.license)


if __name__ == "__main__":
    main()
