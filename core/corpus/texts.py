"""The texts of a corpus: the lab's own sentences, the training data of its models, or a person's lines."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path

import numpy as np

from core.corpus.config import CorpusConfig, Split
from core.entries import ConfigError
from core.files import read_object
from core.interpret.trace import to_numpy
from core.pretrained.base import Array, ModelInputs
from core.pretrained.finetune import LAB, own_rows
from core.pretrained.load import LAB_MODELS
from core.roles.sentences import SENTENCES
from core.seeding import seeded_generator
from core.tasks import TaskConfig, data_store, make_task
from core.tasks.images import Digits, digits
from core.tasks.reading import validate_text

LONGEST = 1_000  # characters of a text
SENTENCES_FILE = Path(__file__).with_name("sentences.txt")


@cache
def own_texts() -> tuple[str, ...]:
    """The lab's 300 English texts: 150 sentences, the 30 on which roles are measured, and 120 messages."""
    messages = [row[0] for row in csv.reader(own_rows("classify").splitlines()[1:])]
    lines = SENTENCES_FILE.read_text("utf-8").splitlines()
    return tuple(dict.fromkeys((*SENTENCES, *lines, *messages)))


def split_texts(data: str, split: Split) -> tuple[list[str], list[str]]:
    """The different texts in a file, one a line or a paragraph, and sentences about those that were cut or left out.

    ConfigError when there is none.
    """
    parts = re.split(r"\n\s*\n" if split == "paragraphs" else r"\n", validate_text(data, "text"))
    texts = [text for part in parts if (text := " ".join(part.split()))]
    different = list(dict.fromkeys(text[:LONGEST] for text in texts))
    notes = []
    if long := sum(len(text) > LONGEST for text in texts):
        notes.append(
            f"{long:,} of the texts {'is' if long == 1 else 'are'} longer than {LONGEST:,} characters; the "
            "rest of them is left out."
        )
    if twice := len(texts) - len(different):
        notes.append(
            f"{twice:,} of the texts {'is' if twice == 1 else 'are'} there already and left out."
        )
    return different, notes


def inputs_of(config: CorpusConfig) -> tuple[tuple[ModelInputs, ...], tuple[str, ...]]:
    """The inputs of a corpus, at most `config.count`, and sentences about what is left out.

    ConfigError when there is none.
    """
    if config.source == "training":
        return tuple(islice(_training(config.model), config.count)), ()
    texts, notes = (
        (list(own_texts()), [])
        if config.source == "own"
        else split_texts(data_store.read(config.data), config.split)
    )
    if config.source == "texts" and len(texts) > config.count:
        notes.append(f"There are {len(texts):,} texts; the first {config.count:,} are measured.")
    return tuple(map(ModelInputs, texts[: config.count])), tuple(notes)


def has_training_data(model: str) -> bool:
    """Whether the training data of a model can be made again."""
    return model.startswith(LAB) and (LAB_MODELS / model.removeprefix(LAB) / "run.json").is_file()


def _training(model: str) -> Iterator[ModelInputs]:
    """Training examples of one of the lab's models, from its own task, by a fixed seed."""
    if not has_training_data(model):
        raise ConfigError(
            f"The training data of {model} is not here; take the lab's sentences or texts of your own."
        )
    run = read_object(LAB_MODELS / model.removeprefix(LAB) / "run.json")
    task = make_task(TaskConfig.from_json(run["config"]["task"]))
    if isinstance(task, Digits):
        pictures = digits()[0]
        yield from (
            ModelInputs(picture=Array.of(to_numpy(pictures[index]))) for index in task.sides[False]
        )
        return
    generator, separator = seeded_generator(0, "corpus"), task.separator
    while True:
        example = task.draw(generator, held_out=False)
        source = separator.join(token for token in example.source if not token.startswith("<"))
        yield ModelInputs(
            source, target=separator.join(example.target) if task.form == "pairs" else None
        )


def to_json(inputs: ModelInputs) -> str:
    """One input as a line of JSON; a picture as its pixels."""
    picture = inputs.picture and inputs.picture.numpy().round(4).tolist()
    values = {"text": inputs.text, "target": inputs.target, "picture": picture}
    return json.dumps({name: value for name, value in values.items() if value}, ensure_ascii=False)


def from_json(line: str) -> ModelInputs:
    """The input in a line of `to_json`."""
    values = json.loads(line)
    picture = values.get("picture")
    return ModelInputs(
        values.get("text", ""),
        target=values.get("target"),
        picture=None if picture is None else Array.of(np.asarray(picture, dtype=np.float32)),
    )
