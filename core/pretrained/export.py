"""Export a run as a Hugging Face folder, which `transformers` opens: `attention-lab export RUN FOLDER`."""

import datetime
import itertools
import json
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor

from core import command_line
from core.files import seconds_of, zip_of
from core.models import Model
from core.pretrained.forward import tokenizer_of
from core.pretrained.hf_conversion import convert_to_hf
from core.pretrained.load import load_folder
from core.runs.machine import line
from core.runs.runs import Run, open_run
from core.tasks import BOS, PAD, SPECIALS, UNK, Batch, Task, Vocabulary, make_task, task_entry
from core.tasks.grammar import PRONOUNS, SLOT, Judged, Story, judge, story
from core.training.evaluate import Record

# The model card of an exported run: README.md with the Hub's metadata, written from the run's own records.


LICENSE = "unknown"  # the Hub's word for weights that nobody has licensed yet
METRICS = {
    "loss": ("loss", "Validation loss"),
    "token_accuracy": ("accuracy", "Token accuracy"),
    "sequence_accuracy": ("exact_match", "Sequence accuracy"),
    "bleu": ("bleu", "BLEU"),
    "chrf": ("chrf", "chrF"),
}
PIPELINES = {
    "pairs": "text2text-generation",
    "text": "text-generation",
    "marked": "text-generation",  # of one token, the answer
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

    exported = run.metadata().get("reached")  # of an exported folder: the figures in its run.json
    records = [Record.from_json(exported)] if exported else run.records()
    record = next(
        (record for record in reversed(records) if (record.best or record.step) == step), None
    )
    name, pipeline = " ".join(run.name.split()), PIPELINES[task.form]
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
    entry, params = task_entry(task.key), dict(run.config().task.params)
    own = params.pop("data", None) is not None
    given = ", ".join(f"{name} = {value}" for name, value in params.items() if value != "")
    sentences = [
        f"Task: **{entry.name}**.",
        entry.meaning,
        *(
            ["Read the model's next token at each place that asks: it is the answer there."]
            if task.form == "marked"
            else []
        ),
        *(
            ["The data is a person's own; the example below is one of its held-out items."]
            if own
            else []
        ),
        *([f"Parameters of the task: {given}."] if given else []),
    ]
    model = run.config().model
    figures = [(label, f"{value:.4g}") for _, label, value in metrics(record)]
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
    writing = run.metadata().get("writing")
    parts = [
        f"---\n{data.to_yaml()}\n---",
        f"# {name}",
        (
            " ".join(sentences)
            + "\n\nA small model that was trained in Attention Lab so that its attention can be "
            "looked into. It knows this one task and its vocabulary. It was tested on held-out items of the same data "
            "alone."
        ),
        "## How to use it",
        f"```python\n{code}```",
        "## What it reached",
        f"On {record.held_out:,} held-out items (the loss in nats):\n\n{table(figures)}"
        if record is not None and figures
        else "Nothing was measured at this step.",
        *([writing_text(writing)] if writing else []),
        "## How it was trained",
        table(training(run, step, record)),
        "## What it is",
        table(
            rows
            + [
                (axis, getattr(model.attention, axis).key)
                for axis in ("projection", "score", "position", "mask", "normalizer")
            ]
        ),
        "`run.json` holds the whole config. With Attention Lab, `python -m core.training train run.json` trains "
        "it again; "
        + run.metadata().get(
            "note",
            "the same numbers come out with the same version of PyTorch on the same type of CPU.",
        ),
    ]
    return "\n\n".join(parts) + "\n"


def writing_text(figures: dict[str, Any]) -> str:
    """What `measure_writing` counted, for the card."""
    rows = [
        (
            name.replace("_", " "),
            ", ".join(f"{one:.4g}" for one in (value if isinstance(value, list) else [value])),
        )
        for name, value in figures.items()
    ]
    return (
        "The grammar that made the stories knows what is true in them, so what the model writes was checked: it "
        "continued openings of held-out stories, of one sentence and more. Shares of next sentences that the grammar "
        "accepts, of whole continuations in which it accepts every sentence, and of pronouns and indirect objects that "
        "the model ranks first; loss and entropy (the grammar's own, which no model can go below) in nats a token:"
        f"\n\n{table(rows)}"
    )


def metrics(record: Record | None) -> list[tuple[str, str, float]]:
    """Type, name and value of each figure that a record has."""
    return [
        (metric, label, float(value))
        for field, (metric, label) in METRICS.items()
        if record is not None and (value := getattr(record, field)) is not None
    ]


def training(run: Run, step: int, record: Record | None) -> list[tuple[str, Any]]:
    """Steps, time, settings, machine and versions."""
    config, metadata = run.config(), run.metadata()
    rows: list[tuple[str, Any]] = [("steps", f"{step:,} of {config.steps:,}")]
    if record is not None and record.elapsed:  # an exported folder does not state them
        rows += [
            ("seconds of training", f"{record.train_seconds:.1f}"),
            ("seconds with measuring", f"{record.elapsed:.1f}"),
        ]
    if record is not None and record.train_loss is not None:
        rows.append(("training loss", f"{record.train_loss:.4g}"))
    rows += [(name.replace("_", " "), getattr(config, name)) for name in TRAINING]
    at = seconds_of(metadata.get("created"))
    rows += [
        ("seed of the data", config.task.seed),
        ("trained on", line(metadata.get("machines"))),
        (
            "begun",
            datetime.datetime.fromtimestamp(at, datetime.UTC).date().isoformat() if at else "",
        ),
        (
            "card written with",
            f"transformers {version('transformers')}, PyTorch "
            f"{version('torch').partition('+')[0]}, Python {sys.version.split()[0]}",
        ),
    ]
    return [row for row in rows if row[1] != ""]


def code_of(task: Task, hf_model: Any, tokenizer: Any) -> str:
    """Python that loads the exported folder and runs the model on a held-out item, with what it prints."""
    (example,) = task.held_out(1)
    if tokenizer is None:  # the pixels of a picture are in the code
        levels = (pixels_of(task.collate([example]).source, task) * LEVELS).round()
        with torch.no_grad():
            label = int(hf_model(pixel_values=levels / LEVELS).logits.argmax())
        text = " ".join("".join(f"{int(ink):x}" for ink in row) for row in levels[0, 0])
        return IN_PICTURE.format(rows=text, levels=LEVELS, output=hf_model.config.id2label[label])
    tokens_of = example.source if task.form == "text" else task.display_tokens(example)[0]
    words = [word for word in tokens_of if word != tokenizer.bos_token]
    two, count = hf_model.config.is_encoder_decoder, task.max_target + 1
    if task.form == "text":
        if tokenizer.eos_token in words:
            words = words[: words.index(tokenizer.eos_token)]
        words, count = words[: max(1, len(words) // 2)], NEW_TOKENS
    if task.form == "marked":  # up to the last place that asks
        places = [at for at, one in enumerate(example.target) if one != SPECIALS[PAD]]
        words, count = words[: places[-1] + 1], 1
    text = task.text_of(words)
    if task.form == "pairs" and not two:  # the source, then the mark with which the target begins
        text += tokenizer.bos_token
    inputs = tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        tokens: Tensor = hf_model.generate(
            **inputs, do_sample=False, num_beams=1, max_new_tokens=count
        )[0]
    if not two:
        tokens = tokens[inputs["input_ids"].shape[1] :]
    return IN_TEXT.format(
        auto="AutoModelForSeq2SeqLM" if two else "AutoModelForCausalLM",
        text=text,
        count=count,
        after="" if two else ', inputs["input_ids"].shape[1]:',
        output=" ".join(tokenizer.decode(tokens, skip_special_tokens=True).split()),
    )


def table(rows: Sequence[tuple[str, Any]]) -> str:
    """Rows of a name and a value as Markdown."""
    return "\n".join(["| | |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in rows)])


CLOSE = 1e-4  # most that logits may differ; sums taken in another order differ by about 1e-6
CHECK_EXAMPLES = 16
# of the last record
REACHED = "step loss token_accuracy sequence_accuracy bleu chrf cut held_out".split()


def export(run: Run, folder: Path, step: int | None = None, license: str = LICENSE) -> Path:
    """Write a run's model at a checkpoint (by default the one that counts): config, weights, tokenizer, model card.

    PretrainedError where no class of the library computes what the model does; ValueError without checkpoints.
    """
    step = run.default_step() if step is None else step
    model, task = run.model(step)
    vocabulary = Vocabulary(vocabulary_words(task))
    hf_model = convert_to_hf(model, task, vocabulary)
    if task.form in (longest := {"pairs": task.max_target + 1, "marked": 1}):
        # the library's own default cuts at 20 tokens
        hf_model.generation_config.max_new_tokens = longest[task.form]
    check_logits(model, hf_model, task, vocabulary)
    if task.form == "text" and run.config().precision == "bf16":  # as exact as it was trained
        hf_model.half()
    folder.mkdir(parents=True, exist_ok=True)
    records = run.records()
    last = records[-1].to_json() if records else {}
    reached = {name: last[name] for name in REACHED if last.get(name) is not None}
    files: dict[str, Any] = {"run.json": {"config": run.config().to_json(), "reached": reached}}
    tokenizer = None
    if task.shape.input == "patches":
        # The preprocessor file of a model that reads pixels from 0 (paper) to 1 (ink).
        rows, columns = task.shape.grid
        side = int(task.shape.source**0.5)
        files["preprocessor_config.json"] = {
            "image_processor_type": "ViTImageProcessor",
            "do_resize": True,
            "do_rescale": True,
            "do_normalize": False,
            "rescale_factor": 1 / 255,
            "image_mean": [0.0],
            "image_std": [1.0],
            "size": {"height": rows * side, "width": columns * side},
        }
    else:
        tokenizer = hf_tokenizer(task, vocabulary, hf_model.config.max_position_embeddings)
        tokenizer.save_pretrained(folder)
    (folder / "README.md").write_text(
        card_text(run, step, task, hf_model, tokenizer, license), "utf-8"
    )
    hf_model.save_pretrained(folder)
    for name, data in files.items():
        (folder / name).write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return folder


def export_zip(run: Run) -> bytes:
    """The folder of `export` as a zip; raises what that raises."""
    with tempfile.TemporaryDirectory() as folder:
        return zip_of(export(run, Path(folder) / run.id))


def vocabulary_words(task: Task) -> tuple[str, ...]:
    """The words of the source and of the target; none where a picture is read."""
    return (
        ()
        if task.shape.input == "patches"
        else (*task.source_vocab.tokens, *task.target_vocab.tokens)
    )


def check_logits(model: Model, hf_model: Any, task: Task, vocabulary: Vocabulary) -> float:
    """The largest difference of the two models' logits on held-out examples; RuntimeError above CLOSE."""
    held_out, two = task.held_out(CHECK_EXAMPLES), hf_model.config.is_encoder_decoder
    # Lines that hold source and target have no padding: one at a time.
    one_line, difference = not two and task.form == "pairs", 0.0
    for examples in [[example] for example in held_out] if one_line else [held_out]:
        batch = task.collate(examples)
        with torch.no_grad():
            own = model(batch.source, batch.source_mask, batch.target_in).logits
            their = hf_model(**hf_inputs(batch, task, vocabulary, two)).logits
        if task.form != "label":
            # Both logits on the words that the model has, without padding.
            real = batch.source_mask if batch.target_in is None else batch.target_out != 0
            known = their[:, -own.shape[1] :][..., vocabulary.encode(task.target_vocab.tokens)]
            their, own = known[real], own[real]
        difference = max(difference, float((their - own).abs().max()))
    if not difference <= CLOSE:
        raise RuntimeError(
            f"{type(hf_model).__name__} differs from the model: logits by {difference:.2g}."
        )
    return difference


def pixels_of(patches: Tensor, task: Task) -> Tensor:
    """Pictures (B, 1, height, width) of their patches (B, rows · columns, side · side)."""
    side = int(task.shape.source**0.5)
    cells = patches.unflatten(1, task.shape.grid).unflatten(3, (side, side))
    return cells.permute(0, 1, 3, 2, 4).flatten(3).flatten(1, 2)[:, None]


def hf_inputs(
    batch: Batch, task: Task, vocabulary: Vocabulary, two: bool = True
) -> dict[str, Tensor]:
    """The Hugging Face model's inputs; without an encoder (`two` false) source and target form one line."""
    if task.shape.input == "patches":
        return {"pixel_values": pixels_of(batch.source, task)}
    source = torch.tensor(vocabulary.encode(task.source_vocab.tokens))[batch.source]
    read = {"input_ids": source, "attention_mask": batch.source_mask.long()}
    if batch.target_in is None:
        return read
    target = torch.tensor(vocabulary.encode(task.target_vocab.tokens))[batch.target_in]
    return (
        read | {"decoder_input_ids": target}
        if two
        else {"input_ids": torch.cat((source, target), dim=1)}
    )


def hf_tokenizer(task: Task, vocabulary: Vocabulary, longest: int) -> Any:
    """A tokenizer that splits a text as the task does: the task's own, or one of words or letters."""
    from transformers import PreTrainedTokenizerFast

    pad, begin, end, unknown = SPECIALS
    return PreTrainedTokenizerFast(
        tokenizer_object=task.tokenizer() or _word_tokenizer(task, vocabulary),
        pad_token=pad,
        bos_token=begin,
        eos_token=end,
        unk_token=unknown,
        model_max_length=longest,
        model_input_names=["input_ids", "attention_mask"],
    )


def _word_tokenizer(task: Task, vocabulary: Vocabulary) -> Any:
    from tokenizers import (
        Regex,
        Tokenizer,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        processors,
    )

    begin, unknown = SPECIALS[BOS], SPECIALS[UNK]
    tokenizer = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(vocabulary.tokens)}, unk_token=unknown)
    )
    changes: list[Any] = [normalizers.Strip()]
    if all(word == word.lower() for word in vocabulary.tokens):
        changes.append(normalizers.Lowercase())
    if task.separator:
        if "-" not in vocabulary.tokens:
            changes.append(normalizers.Replace("-", " "))
        words = set(vocabulary.tokens) - {*SPECIALS}
        apart = not any(len(word) > 1 and not word.isalnum() for word in words)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.WhitespaceSplit(), *[pre_tokenizers.Punctuation()] * apart]
        )  # type: ignore[assignment]
    else:
        changes.append(normalizers.Replace("\n", "↵"))
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")  # type: ignore[assignment]
        tokenizer.decoder = decoders.Fuse()  # type: ignore[assignment]
    tokenizer.normalizer = normalizers.Sequence(changes)  # type: ignore[assignment]
    if task.tokens("")[:1] == [begin]:
        tokenizer.post_processor = processors.TemplateProcessing(  # type: ignore[assignment]
            single=f"{begin} $A", special_tokens=[(begin, vocabulary.encode([begin])[0])]
        )
    return tokenizer


# How well an exported model writes the stories of core.tasks.grammar, which knows what is true in a story: what its parser
# accepts of continuations, and whether the model's likeliest next piece is right where only one word is.


SEED = 2**33  # of stories that no model was trained on
WRITTEN_TOKENS, MAX_CHARACTERS = 80, 500
TEMPERATURES = 0.5, 1.0


def unseen_stories(count: int) -> list[Story]:
    """So many stories that no model was trained on, short enough for a model that reads 192 pieces."""
    draw = random.Random(SEED)
    stories = (story(draw) for _ in itertools.count())
    return list(itertools.islice((one for one in stories if len(one.text) < MAX_CHARACTERS), count))


def forms_of(text: str) -> Iterator[tuple[int, Judged]]:
    """Where each form begins, and the form; until the first that the parser does not accept."""
    start = 0
    for judged in judge(text):
        yield start, judged
        start = judged.end + 1


def questions(text: str) -> Iterator[tuple[str, int, tuple[str, ...]]]:
    """Where only one word is right: what is right, where the word begins, and the words to choose from.

    A pronoun has one referent; "When Mary and John went …, John gave … to" leaves Mary alone.
    """
    for start, judged in forms_of(text):
        match = judged.form.pattern.match(text, start)
        assert match is not None
        for number, slot in enumerate(SLOT.finditer(judged.form.text)):
            at = match.start(f"s{number}")
            if slot[2] in PRONOUNS:
                he, she = PRONOUNS[slot[2]]
                large = text[at].isupper()
                yield "referents", at, (he.title(), she.title()) if large else (he, she)
        if judged.form.text.startswith("When"):
            at = match.start(f"s{number}")  # the last slot
            yield "indirect_objects", at, (judged.chosen["A"], judged.chosen["B"])


def accepted(text: str, after: int) -> list[bool]:
    """Of each sentence of a text that ends beyond `after`, whether the parser accepts it; up to one that is no form."""
    right = []
    try:
        for _, judged in forms_of(text):
            if judged.end > after:
                right.append(not judged.wrong)
    except ValueError:
        right.append(False)
    return right


@torch.no_grad()
def measure_writing(folder: Path, count: int = 200) -> dict[str, Any]:
    """The figures over that many held-out stories; continuations are drawn from openings of a sentence and more.

    Shares, 0 to 1: of next sentences that the parser accepts, and of whole continuations of which it accepts every
    finished sentence, at each of the temperatures; of referents and indirect objects that are right. Losses in nats a
    piece; `entropy` is the grammar's own.
    """
    pretrained = load_folder(folder, folder.name)
    model, tokenizer = pretrained.model, tokenizer_of(pretrained)
    right: dict[str, list[bool]] = {"referents": [], "indirect_objects": []}
    loss = pieces = nats = 0.0
    written = unseen_stories(count)
    end = torch.tensor([[model.config.eos_token_id]])  # a story follows that of another one
    for one in written:
        encoded = tokenizer(one.text, return_tensors="pt", return_offsets_mapping=True)
        ids, starts = (
            encoded["input_ids"],
            [start for start, _ in encoded["offset_mapping"][0].tolist()],
        )
        scores = model(input_ids=torch.cat((end, ids), 1)).logits[0].log_softmax(-1)
        loss -= float(scores[:-1].gather(1, ids[0, :, None]).sum())
        pieces, nats = pieces + ids.shape[1], nats + one.nats
        for name, at, words in questions(one.text):
            place = max(i for i, start in enumerate(starts) if start <= at)  # its first piece
            first = {word: tokenizer(f" {word}")["input_ids"][0] for word in words}
            best = max(words, key=lambda word: float(scores[place, first[word]]))
            right[name].append(one.text.startswith(best, at))
    drawn = [continued(model, tokenizer, written, temperature) for temperature in TEMPERATURES]
    return {
        "stories": count,
        "temperatures": TEMPERATURES,
        "next_sentences": [
            sum(marks[:1] == [True] for marks in results) / count for results in drawn
        ],
        "whole_continuations": [
            sum(bool(marks) and all(marks) for marks in results) / count for results in drawn
        ],
        **{name: sum(marks) / len(marks) for name, marks in right.items()},
        "loss": loss / pieces,
        "entropy": nats / pieces,
    }


def continued(
    model: Any, tokenizer: Any, written: Sequence[Story], temperature: float
) -> list[list[bool]]:
    """Of each story, continued from an opening at that temperature, which of the new sentences the parser accepts."""
    results, draw = [], random.Random(0)
    longest = model.config.max_position_embeddings
    torch.manual_seed(0)
    for one in written:
        *openings, _ = [judged.end for _, judged in forms_of(one.text)]
        after = draw.choice(openings)
        inputs = tokenizer(one.text[:after], return_tensors="pt")
        tokens = model.generate(
            **inputs,
            do_sample=True,
            temperature=temperature,
            top_k=0,
            max_new_tokens=max(1, min(WRITTEN_TOKENS, longest - inputs["input_ids"].shape[1])),
            pad_token_id=0,
        )[0]
        text = tokenizer.decode(tokens, skip_special_tokens=True)
        if int(tokens[-1]) != model.config.eos_token_id:  # cut: up to the last whole sentence
            text = text[: max(text.rfind(mark) for mark in ".?!") + 1]
        results.append(accepted(text, after))
    return results


app = command_line.new_app(__doc__)


@app.command("export")
def export_run(
    run: Annotated[str, typer.Argument(help="a run's name in the list, or its folder")],
    folder: Path,
    step: Annotated[int | None, typer.Option(help="a saved step; by default the best one")] = None,
    license: Annotated[
        str, typer.Option(help="of the weights, such as mit, for the model card")
    ] = LICENSE,
) -> None:
    """Write a run as a Hugging Face folder with its model card."""
    print(export(open_run(run), folder, step, license))


@app.command("model-card")
def write_cards(
    folders: list[Path],
    license: Annotated[str, typer.Option(help="of the weights, such as mit")] = LICENSE,
) -> None:
    """Write the model cards of exported folders again, from their run.json and their weights."""
    for folder in folders:
        run = Run(folder)
        pretrained, task = load_folder(folder, folder.name), make_task(run.config().task)
        tokenizer = None if task.form == "label" else tokenizer_of(pretrained)
        step = int(run.metadata()["reached"]["step"])
        card = card_text(run, step, task, pretrained.model, tokenizer, license)
        (folder / "README.md").write_text(card, "utf-8")


@app.command("writing")
def print_writing(folder: Path, stories: int = 200, ship: bool = False) -> None:
    """Print what the grammar accepts of an exported model's stories; --ship also writes it into its run.json."""
    figures = measure_writing(folder, stories)
    print(json.dumps(figures, indent=1))
    if ship:
        data = json.loads((folder / "run.json").read_text("utf-8")) | {"writing": figures}
        (folder / "run.json").write_text(
            json.dumps(data, indent=1, ensure_ascii=False) + "\n", "utf-8"
        )
