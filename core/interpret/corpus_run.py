"""Measure a corpus from a shell: `attention-lab corpus FOLDER`, by default MiniLM on the lab's sentences.

A corpus is a run: the texts of a config, and the folder that a worker fills.
"""

import csv
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import islice
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from core import command_line
from core.entries import ConfigError, refuse_if
from core.files import CORPORA, read_object, runs_folder, write_atomically
from core.interpret.corpus import (
    BY_KEY,
    DEFAULT_TEXTS,
    MEASURES,
    Corpus,
    CorpusConfig,
    MarkedRow,
    Measure,
    Source,
    Split,
    decile_texts,
    first_texts,
    marked_row,
    measure_texts,
    ranked,
    shorten,
)
from core.interpret.roles import (
    ROLES,
    SENTENCES,
    RoleScores,
    RoleSums,
    ranked_heads,
    read_text,
)
from core.interpret.trace import Head, to_numpy
from core.pretrained.base import Array, ModelInputs, Pretrained
from core.pretrained.finetune import LAB, MINILM, folder_of, name_of, own_rows, resolve
from core.pretrained.load import LAB_MODELS, load_folder
from core.runs.folder import Status
from core.runs.runs import Run, new_id
from core.runs.worker import work as work_on
from core.seeding import seeded_generator
from core.tasks import TaskConfig, make_task, reading
from core.tasks.pictures import Digits, digits

# The texts of a corpus: the lab's own sentences, the training data of its models, or a person's lines.


LONGEST = 1_000  # characters of a text


@cache
def own_texts() -> tuple[str, ...]:
    """The lab's 300 English texts: 150 sentences, the 30 on which roles are measured, and 120 messages."""
    sentences = Path(__file__).with_name("sentences.txt").read_text("utf-8").splitlines()
    messages = [row[0] for row in csv.reader(own_rows("classify").splitlines()[1:])]
    return tuple(dict.fromkeys((*SENTENCES, *sentences, *messages)))


def split_texts(data: str, split: Split) -> tuple[list[str], list[str]]:
    """The different texts in a file, one a line or a paragraph, and sentences about those that were cut or left out.

    ConfigError when there is none.
    """
    parts = re.split(
        r"\n\s*\n" if split == "paragraphs" else r"\n", reading.validate_text(data, "text")
    )
    texts = [text for part in parts if (text := " ".join(part.split()))]
    different = list(dict.fromkeys(text[:LONGEST] for text in texts))
    return different, [
        f"{count:,} of the texts {'is' if count == 1 else 'are'} {why}"
        for count, why in (
            (
                sum(len(text) > LONGEST for text in texts),
                f"longer than {LONGEST:,} characters; the rest of them is left out.",
            ),
            (len(texts) - len(different), "there already and left out."),
        )
        if count
    ]


def inputs_of(config: CorpusConfig) -> tuple[tuple[ModelInputs, ...], tuple[str, ...]]:
    """The inputs of a corpus, at most `config.count`, and sentences about what is left out.

    ConfigError when there is none.
    """
    if config.source == "training":
        return tuple(islice(_training(config.model), config.count)), ()
    texts, notes = (
        (list(own_texts()), [])
        if config.source == "own"
        else split_texts(reading.read(config.data), config.split)
    )
    if config.source == "texts" and len(texts) > config.count:
        notes.append(f"There are {len(texts):,} texts; the first {config.count:,} are measured.")
    return tuple(map(ModelInputs, texts[: config.count])), tuple(notes)


def has_training_data(model: str) -> bool:
    """Whether the training data of a model can be made again."""
    return model.startswith(LAB) and (LAB_MODELS / model.removeprefix(LAB) / "run.json").is_file()


def _training(model: str) -> Iterator[ModelInputs]:
    """Training examples of one of the lab's models, from its own task, by a fixed seed."""
    refuse_if(
        not has_training_data(model),
        f"The training data of {model} is not here; take the lab's sentences or texts of your own.",
    )
    trained = read_object(LAB_MODELS / model.removeprefix(LAB) / "run.json")["config"]
    task = make_task(TaskConfig.from_json(trained["task"]))
    if isinstance(task, Digits):
        yield from (
            ModelInputs(picture=Array.of(to_numpy(digits()[0][index])))
            for index in task.sides[False]
        )
        return
    generator, separator = seeded_generator(0, "corpus"), task.separator
    while True:
        example = task.draw(generator, held_out=False)
        source = task.text_of([token for token in example.source if not token.startswith("<")])
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
    if picture := values.get("picture"):
        values["picture"] = Array.of(np.asarray(picture, dtype=np.float32))
    return ModelInputs(**values)


SAVE_SECONDS = 0.25
STATISTICS, VALUES, INPUTS = "statistics.safetensors", "values.f32", "inputs.jsonl"
SUMS = "roles."  # before the names of their arrays


def corpora_folder() -> Path:
    """The folder of measurements, within that of runs, whose list they stay out of."""
    return runs_folder() / CORPORA


def create(config: CorpusConfig, path: Path | None = None) -> Run:
    """A new measurement under a fresh id, or exactly at `path`.

    ConfigError without texts, PretrainedError without the model.
    """
    inputs, notes = inputs_of(config)
    folder_of(config.model)
    run = Run(path or corpora_folder() / new_id())
    write_atomically(run.path / INPUTS, "".join(f"{to_json(item)}\n" for item in inputs).encode())
    run.create(
        corpus=config.to_json(),
        texts=len(inputs),
        notes=notes,
        measures=[one.key for one in MEASURES],
        roles=[one.key for one in ROLES],
    )
    return run


def config_of(run: Run) -> CorpusConfig:
    """The measurement's config; ConfigError when the file does not describe one."""
    return CorpusConfig.from_json(run.metadata().get("corpus"))


def load_inputs(run: Run) -> tuple[ModelInputs, ...]:
    """The texts of a measurement, in order."""
    return tuple(map(from_json, (run.path / INPUTS).read_text("utf-8").split("\n")[:-1]))


def work(
    run: Run, stop: Callable[[], bool], on_text: Callable[[Corpus], None] = lambda corpus: None
) -> tuple[str, str]:
    """Measure the texts that are left; returns the final state and its message."""
    config, inputs, corpus = config_of(run), load_inputs(run), load(run)
    keys = [one.key for one in MEASURES]
    if run.metadata()["measures"] != keys:  # by an older version
        corpus = Corpus()
        run.update_metadata(measures=keys, roles=[one.key for one in ROLES])
    pretrained = load_folder(folder_of(config.model), name_of(config.model))
    saved, before, began = 0.0, corpus.texts, time.monotonic()
    with open(run.path / VALUES, "ab") as file:
        # The texts after the last saved statistics are measured again.
        file.truncate(sum(4 * values.size for values in corpus.values))
        corpus.values.clear()  # of which the file holds all
        for _ in measure_texts(pretrained, inputs[before:], config.kind, config.ablation, corpus):
            corpus.seconds = (time.monotonic() - began) / (corpus.texts - before)
            if corpus.values:
                file.write(corpus.values.pop().astype("<f4").tobytes())
            on_text(corpus)
            if time.monotonic() - saved > SAVE_SECONDS:
                file.flush()
                save_statistics(run, corpus)
                saved = time.monotonic()
            if stop():
                break
    save_statistics(run, corpus)
    if not corpus.read and corpus.texts:
        return "failed", f"No text could be read. {corpus.error}"
    if corpus.texts < len(inputs):
        return (
            "stopped",
            f"Stopped after {corpus.texts:,} of {len(inputs):,} texts, which are saved.",
        )
    return "finished", f"Measured {corpus.texts:,} texts."


def save_statistics(run: Run, corpus: Corpus) -> None:
    """Replace the statistics by those of the texts so far."""
    run.require()
    held = {"roles", "values", "measures"}
    facts = {name: value for name, value in vars(corpus).items() if name not in held}
    arrays = {
        f"{SUMS}{name}": value
        for name, value in (vars(corpus.roles) if corpus.roles else {}).items()
    }
    write_atomically(run.path / STATISTICS, save(arrays, {"facts": json.dumps(facts)}))


def load(run: Run) -> Corpus:
    """The statistics so far; empty before the first text, and where the files cannot be read.

    Measures and roles that were added since are unmeasured in it.
    """
    try:
        keys, measures = (run.metadata()[name] for name in ("roles", "measures"))
        with safe_open(run.path / STATISTICS, "np") as file:
            corpus = Corpus(**json.loads(file.metadata()["facts"]), measures=measures)
            sums = {
                name.removeprefix(SUMS): file.get_tensor(name)
                for name in file.keys()  # noqa: SIM118
                if name.startswith(SUMS)
            }
        corpus.numbers = tuple(corpus.numbers)
        if sums:
            # In the order of today, zero for what is new
            at = [keys.index(role.key) if role.key in keys else len(keys) for role in ROLES]
            corpus.roles = RoleSums(
                **{name: np.concatenate([one, 0 * one[:1]])[at] for name, one in sums.items()}
            )
            shape = corpus.read, len(measures), *corpus.roles.score.shape[1:]
            corpus.values = list(np.memmap(run.path / VALUES, "<f4", "r", shape=shape))
        return corpus
    except (OSError, SafetensorError, ValueError, KeyError, TypeError):
        return Corpus()


# A measurement as it was read: the measures of its heads, and the texts that show one head.


SAVED = Path(__file__).parents[1] / "studies" / "data" / "corpora"  # made by `make corpus`
EXAMPLES = 5
MAP_TEXTS, MAP_TOKENS = 40, 480  # of the joint map of queries and keys


@dataclass(frozen=True, eq=False)
class Measurement:
    """A measurement's folder as it was read: its config, how far it is, and the statistics so far."""

    run: Run
    config: CorpusConfig
    status: Status
    corpus: Corpus
    count: int

    @property
    def live(self) -> bool:
        return not self.status.ended

    @cached_property
    def scores(self) -> RoleScores:
        assert self.corpus.roles is not None
        return self.corpus.roles.scores(self.config.kind, self.corpus.numbers)

    @cached_property
    def measures(self) -> tuple[Measure, ...]:
        """The measures that some text shows."""
        return tuple(one for one in MEASURES if self.corpus.texts_of(one.key).any())

    @cached_property
    def heads(self) -> dict[str, Head]:
        """The heads by name, in the order of the model."""
        return {
            self.scores.name(head): head
            for head in sorted(ranked_heads(self.corpus.mean(MEASURES[0].key)))
        }

    @cached_property
    def default_head(self) -> Head:
        """The head whose own role, one that acts, differs most from text to text; the first one where none acts."""
        spread = [self.corpus.each(role.key).var(0, ddof=1).filled(0) for role in ROLES]
        acting = {
            head: spread[role][head]
            for head, role in self.scores.head_roles.items()
            if ROLES[role].acts
        }
        return max(acting, key=acting.__getitem__, default=next(iter(self.heads.values())))

    def role_measure(self, head: Head) -> Measure:
        """The measure of the head's role; of a head without a role the first measure."""
        index = self.scores.head_roles.get(head)
        return MEASURES[0] if index is None else BY_KEY[ROLES[index].key]


@dataclass(frozen=True, eq=False)
class Axis:
    """One measure of every head (L, H): the means over texts, and half of their 95 % intervals (0 where exact)."""

    measure: Measure
    mean: np.ndarray
    half: np.ndarray


@dataclass(frozen=True, eq=False)
class TextExample:
    """One text with one marked row: the text's place in the corpus, its value, and the decile that it stands for."""

    text: int
    value: float
    row: MarkedRow
    decile: float | None = None


def read_measurement(run: Run) -> Measurement:
    """Read a measurement's folder; ConfigError when it describes none."""
    # The status before the statistics, so that those of an ended one are all
    return Measurement(
        run, config_of(run), run.status(), load(run), int(run.metadata().get("texts", 0))
    )


def fits(run: Run, config: CorpusConfig) -> bool:
    """Whether a measurement is of this config, or of the same with the ablation."""
    try:
        other = config_of(run)
    except (ConfigError, TypeError):
        return False
    return replace(other, ablation=config.ablation) == config and other.ablation >= config.ablation


def text_examples(
    pretrained: Pretrained, folder: str, measure: str, head: Head, view: str, texts: int
) -> list[TextExample]:
    """Of the first `texts` of the measurement in a folder those that show a measure of a head, with one row each.

    The five with the largest values and their largest rows ("strongest"), those with the smallest ("weakest"), or one
    text at each decile, with the row nearest to its value ("typical").
    """
    measurement, short = read_measurement(Run(Path(folder))), shorten(pretrained)
    kind, inputs = measurement.config.kind, load_inputs(measurement.run)
    values = measurement.corpus.values_of(measure, head)[:texts]
    order = ranked(values)[:: -1 if view == "weakest" else 1]
    examples = []
    for decile, text in (
        decile_texts(values)
        if view == "typical"
        else [(None, int(one)) for one in order[:EXAMPLES]]
    ):
        value, one = float(values[text]), read_text(short, inputs[text], kind)
        near = {"strongest": np.inf, "weakest": -np.inf}.get(view, value)
        if (row := marked_row(one, kind, BY_KEY[measure], head, near)) is not None:
            examples.append(TextExample(text, value, row, decile))
    return examples


def texts_of_map(pretrained: Pretrained, folder: str) -> list[ModelInputs]:
    """The first texts of a measurement, which the joint map of queries and keys shows."""
    return first_texts(shorten(pretrained), load_inputs(Run(Path(folder)))[:MAP_TEXTS], MAP_TOKENS)


# Measure a corpus from a shell: `attention-lab corpus FOLDER`, by default MiniLM on the lab's sentences.


app = command_line.new_app(__doc__)


def main(arguments: Sequence[str] | None = None) -> int:
    return command_line.run(app, arguments)


@app.command()
def corpus(
    folder: Path,
    model: Annotated[
        str, typer.Option(help="minilm, a model of the lab, a folder, or a hub name")
    ] = MINILM,
    source: Source = "own",
    data: Annotated[Path | None, typer.Option(help="a text file, for --source texts")] = None,
    split: Split = "lines",
    kind: Annotated[
        str, typer.Option(help="attention of an encoder (self), or of a decoder (causal)")
    ] = "self",
    count: int = DEFAULT_TEXTS,
    ablation: Annotated[
        bool, typer.Option("--ablation", help="switch off every head on every text")
    ] = False,
    *,
    set: command_line.Pairs,
) -> None:
    """Measure every head of a model on a corpus; --set changes a setting, as count=50."""
    torch.set_num_threads(1)
    create(
        CorpusConfig.from_json(
            {
                "model": resolve(model),
                "source": source,
                "split": split,
                "kind": kind,
                "count": count,
                "ablation": ablation,
                **command_line.text_of(data),
                **command_line.settings(set),
            }
        ),
        folder,
    )
    raise typer.Exit(0 if work_on(folder) == "finished" else 1)


if __name__ == "__main__":
    sys.exit(main())
