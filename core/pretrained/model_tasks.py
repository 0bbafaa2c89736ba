"""The task a pretrained model was built for, by its head and its input type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from core.pretrained.answers import answer
from core.pretrained.base import ModelInputs, Pretrained, PretrainedError

TaskKey = Literal["embed", "fill", "classify", "next", "translate", "picture"]


@dataclass(frozen=True)
class ModelTask:
    """A task, what a model needs for it, the lab's own model for it ("" where there is none), and one of the hub."""

    key: TaskKey
    name: str
    does: str
    needs: str
    lab_model: str
    hub: str
    megabytes: int


MODEL_TASKS = (
    ModelTask(
        "embed",
        "Compare sentences",
        "gives each text one vector, so that texts can be compared",
        "an encoder without a last layer",
        "all-MiniLM-L6-v2",
        "sentence-transformers/all-mpnet-base-v2",
        438,
    ),
    ModelTask(
        "fill",
        "Fill a mask",
        "predicts the missing word",
        "a last layer for masked words",
        "",
        "google-bert/bert-base-uncased",
        440,
    ),
    ModelTask(
        "classify",
        "Classify a text",
        "assigns a text to a class",
        "a last layer for classes",
        "",
        "distilbert/distilbert-base-uncased-finetuned-sst-2-english",
        268,
    ),
    ModelTask(
        "next",
        "Continue a text",
        "predicts the next token",
        "a last layer for next tokens",
        "induction",
        "distilbert/distilgpt2",
        353,
    ),
    ModelTask(
        "translate",
        "Translate",
        "reads one sequence and writes another",
        "an encoder and a decoder",
        "numbers",
        "google-t5/t5-small",
        242,
    ),
    ModelTask(
        "picture",
        "Classify a picture",
        "assigns a picture to a class",
        "patches and a last layer for classes",
        "digits",
        "google/vit-base-patch16-224",
        346,
    ),
)


def task_of(pretrained: Pretrained) -> ModelTask:
    """The model's task; PretrainedError where its head gives no answer that is shown here."""
    head, reads = pretrained.head, pretrained.reads
    key: TaskKey | None = None
    if head == "seq2seq":
        key = "translate"
    elif head == "classify" and reads != "sound":
        key = "picture" if reads == "picture" else "classify"
    elif head == "none" and reads in ("text", "picture"):
        key = "embed"
    elif head in ("masked", "next"):
        key = "fill" if head == "masked" else "next"
    for job in MODEL_TASKS:
        if job.key == key:
            heard = replace(job, name="Transcribe speech", does="writes the text of a sound")
            return heard if reads == "sound" else job
    raise PretrainedError(
        f"{pretrained.name} gives the states of a {reads} and has no last layer; choose a model "
        "with one, such as numbers, induction or digits."
    )


def similarities(
    pretrained: Pretrained, inputs_list: Sequence[ModelInputs]
) -> Float[Tensor, "N N"]:
    """The cosine of each two of N inputs' embeddings, −1 to 1; PretrainedError for a model that gives none."""
    return cosines([embedding(pretrained, inputs) for inputs in inputs_list])


def embedding(pretrained: Pretrained, inputs: ModelInputs) -> Float[Tensor, " C"]:
    """The embedding of an input, of length 1; PretrainedError for a model that gives none."""
    vector = answer(pretrained, inputs).vector
    if vector is None:
        raise PretrainedError(f"{pretrained.name} gives no embedding; all-MiniLM-L6-v2 does.")
    return vector


def cosines(vectors: Sequence[Float[Tensor, " C"]]) -> Float[Tensor, "N N"]:
    """The cosine of each two of N vectors of length 1."""
    both = torch.stack(list(vectors))
    return both @ both.T


def most_similar(table: Float[Tensor, "N N"], one: int | None = None) -> tuple[int, int]:
    """The indices of the most similar pair, or of `one` and its most similar other; ValueError for fewer than two."""
    if len(table) < 2:
        raise ValueError("There is nothing to compare with; give two or more.")
    others = table.masked_fill(torch.eye(len(table), dtype=torch.bool), -2.0)
    if one is not None:
        return one, int(others[one].argmax())
    first, second = divmod(int(others.argmax()), len(table))
    return min(first, second), max(
        first, second
    )  # rounding makes the two halves differ in the last bit
