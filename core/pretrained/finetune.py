"""Prepare a pretrained model for fine-tuning: a new head for labels, new words for pairs, frozen layers."""

import os
import random
from collections import Counter, defaultdict
from collections.abc import Sequence, Set
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import torch
from msgspec import Meta
from torch import nn

from core.entries import ConfigError, Cost, quote, refuse_if
from core.pretrained import hub
from core.pretrained.attention_recorder import attention_name, make_recordable
from core.pretrained.base import Pretrained, refuse_too_much, reject_if, wrap_errors
from core.pretrained.load import (
    LAB_MODELS,
    MINILM as MINILM_NAME,
    SAFE,
    avoid_kernels,
    folder_weights,
    lab_models,
    merge_adapter,
    minilm_folder,
    model_class,
    read_config,
    refuse_missing,
    refuse_not_finite,
)
from core.serialization import bounds, check_types, read, renamed
from core.tasks.base import majority_class
from core.tasks.own import NAMES
from core.tasks.reading import Row, line_numbers, names_columns, read_rows, row_notes
from core.training.config import resolve_device

TASKS = {"classify": ("text", "label"), "pairs": ("source", "target")}
MINILM = "minilm"
LAB = "lab:"

# The defaults of each task; a run on our own rows takes ten to twenty seconds on one core.
USUAL: dict[str, dict[str, Any]] = {
    "classify": {
        "model": MINILM,
        "layers": 6,
        "epochs": 8,
        "batch_size": 16,
        "learning_rate": 2e-4,
    },
    "pairs": {"model": f"{LAB}numbers", "epochs": 30, "batch_size": 16, "learning_rate": 2e-3},
}
# Names of the column of answers, where a file has them.
ANSWERS = {
    "classify": frozenset("label labels class category sentiment intent tag y".split()),
    "pairs": frozenset("target output tgt answer translation to".split()),
}
OWN = {"classify": "messages", "pairs": "numbers"}
RECORDS = 16  # of a run, about
MAX_EXAMPLE_LENGTH = 200  # characters


@dataclass(frozen=True)
class FineTuneConfig:
    """A pretrained model, labelled rows and training settings; ConfigError for values that cannot run.

    `task` is "classify" (text, label) or "pairs" (source, target); `data` is the text of the CSV. `model` is "minilm",
    "lab:" with the name of one of the lab's own, or a folder. Labels train the head and the last `layers` layers, never
    the embeddings; pairs train every weight. The attention on the sentence `logged_example` is recorded. `device` is
    "auto" (CUDA if available, else the CPU) or a device's name. `header` says whether the first line names the columns,
    `answers` which of the two holds the label or target; "auto" decides both by the rows, and `Rows.notes` says how.
    """

    task: Literal["classify", "pairs"]
    data: str
    model: str = MINILM
    logged_example: Annotated[str, Meta(max_length=MAX_EXAMPLE_LENGTH)] = ""
    layers: Annotated[int, Meta(ge=0, le=48)] = 6
    epochs: Annotated[int, Meta(ge=1, le=100)] = 8
    batch_size: Annotated[int, Meta(ge=2, le=64)] = 16
    learning_rate: Annotated[float, Meta(ge=1e-6, le=1e-2)] = 2e-4
    max_seconds: Annotated[float, Meta(ge=1, le=900)] = 120.0
    seed: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    header: Literal["auto", "yes", "no"] = "auto"
    answers: Literal["auto", "first", "second"] = "auto"

    def __post_init__(self) -> None:
        check_types(self)

    @property
    def rows(self) -> "Rows":
        """Its data as training and held-out rows; ConfigError as `parse`."""
        return parse(self.task, self.data, self.seed, self.header, self.answers)

    def to_json(self) -> dict[str, Any]:
        """The config as plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: object) -> Self:
        """The config in a dict; ConfigError for a missing or unknown name or an invalid value."""
        data = renamed(data, "finetune") if isinstance(data, dict) else data
        return read(data, cls, "A fine-tuning run")


BOUNDS = bounds(FineTuneConfig)


def own_rows(task: str) -> str:
    """The lab's own CSV: messages to label, or number words to write in figures."""
    return (Path(__file__).parent / f"{OWN[task]}.csv").read_text("utf-8")


def usual(task: str, **changes: Any) -> FineTuneConfig:
    """A task's default rows, model and settings, with changes."""
    return FineTuneConfig(**{"task": task, "data": own_rows(task), **USUAL[task], **changes})


LONGEST = 1_000  # characters of a cell
MAX_ROWS = 3_000
MAX_LABELS = 20
MIN_ROWS = 8
HELD_OUT = 4  # one row in so many
MAX_HELD_OUT = 100  # so that measuring stays a small part of a run


@dataclass(frozen=True)
class Pair:
    """One row: a text with its label, or a source with its target."""

    text: str
    answer: str


@dataclass(frozen=True)
class Rows:
    """The training rows, the held-out rows, and the labels in alphabetical order (none for pairs)."""

    learned: tuple[Pair, ...]
    held_out: tuple[Pair, ...]
    labels: tuple[str, ...] = ()
    repeated: int = 0
    notes: tuple[str, ...] = ()

    @property
    def majority(self) -> tuple[str, float]:
        """The majority class of the training rows, and its share of the held-out rows."""
        return majority_class(
            [pair.answer for pair in self.learned], [pair.answer for pair in self.held_out]
        )

    @property
    def ties(self) -> int:
        """How many labels are as frequent among the training rows as the majority class, which is one of them."""
        counts = [*Counter(pair.answer for pair in self.learned).values()]
        return counts.count(max(counts))


@lru_cache(maxsize=8)
def parse(task: str, data: str, seed: int = 0, header: str = "auto", answers: str = "auto") -> Rows:
    """Split a CSV with the columns text and label, or source and target; a quarter of each label is held out.

    `header` and `answers` are those of FineTuneConfig. By itself the column of the labels is the one that is called so,
    else the first where it has at most half as many different cells as the second, else the second; and the first line
    names the columns where `names_columns` says so.

    ConfigError names the lines with cells that are empty or too long, a text with two answers, or a label of a single
    row. Repeated rows count once.
    """
    columns, labelled = TASKS[task], task == "classify"
    rows, _ = read_rows(data, "file")
    refuse_if(
        len(rows[0].cells) != 2,
        f"Line {rows[0].line} has {len(rows[0].cells)} columns; two are needed: {columns[0]} and "
        f"{columns[1]}. Put a text with a comma into quotation marks.",
    )
    names, notes = [cell.casefold() for cell in rows[0].cells], row_notes(data, rows)
    different = [len({row.cells[i] for row in rows}) for i in range(2)]
    swapped = answers == "first"
    if answers == "auto":
        by_name = [name in ANSWERS[task] for name in names]
        swapped = by_name[0] if any(by_name) else labelled and 2 * different[0] <= different[1]
    if named := names_columns(rows, header, {*NAMES, *columns}, 1 - swapped if labelled else -1):
        rows = rows[1:]
    places = ("second", "first") if swapped else ("first", "second")
    notes.append(
        f"The first line {'names the columns' if named else 'is a row itself'}; the {columns[0]} is in the "
        f"{places[0]} column, the {columns[1]} in the {places[1]}."
    )
    if swapped:
        rows = [Row(row.line, row.cells[::-1]) for row in rows]
    refuse_if(
        len(rows) > MAX_ROWS,
        f"The file has {len(rows):,} rows; at most {MAX_ROWS:,} are allowed.",
    )
    for column, name in enumerate(columns):
        refuse_if(
            (empty := [row.line for row in rows if not row.cells[column]]),
            f"There is no {name} in {line_numbers(empty)}.",
        )
        refuse_if(
            (long := [row.line for row in rows if len(row.cells[column]) > LONGEST]),
            f"The {name} is longer than {LONGEST:,} characters in {line_numbers(long)}.",
        )
    once: dict[str, Row] = {}  # each text, so that no training row is held out, too
    groups: dict[str, list[Row]] = defaultdict(list)  # the rows of each label, or of all pairs
    for row in rows:
        text, answer = row.cells
        if (other := once.setdefault(text, row)) is row:
            groups[answer if labelled else ""].append(row)
        refuse_if(
            other.cells[1] != answer,
            f"Lines {other.line} and {row.line} have the same text, {text!r:.60}, but different "
            f"labels: {other.cells[1]!r:.40} and {answer!r:.40}. Keep one of them.",
        )
    refuse_if(
        len(once) < MIN_ROWS,
        f"The file has {len(once)} different rows; at least {MIN_ROWS} are needed, so that some "
        "can be held out.",
    )
    refuse_if(
        labelled and len(groups) < 2,
        f"Every row has the label {quote(next(iter(groups)))}; at least two labels are needed.",
    )
    refuse_if(
        labelled and len(groups) > MAX_LABELS,
        f"There are {len(groups):,} different labels; at most {MAX_LABELS} are allowed. Is the "
        "label in the second column?",
    )
    if labelled and (single := [rows[0].line for rows in groups.values() if len(rows) == 1]):
        raise ConfigError(
            f"A label occurs only once in the file: {line_numbers(single)}. Each label needs two rows, "
            "one for training and one held out."
        )
    chance = random.Random(seed)
    learned: list[Pair] = []
    held_out: list[Pair] = []
    for _, group in sorted(groups.items()):
        pairs = [Pair(*row.cells) for row in group]
        chance.shuffle(pairs)
        count = max(1, len(pairs) // HELD_OUT)
        held_out += pairs[:count]
        learned += pairs[count:]
    chance.shuffle(learned)
    chance.shuffle(held_out)
    return Rows(
        tuple(learned),
        tuple(held_out[:MAX_HELD_OUT]),
        tuple(sorted(groups)) if labelled else (),
        repeated=len(rows) - len(once),
        notes=tuple(notes),
    )


MAX_UNKNOWN = 0.5  # share of the rows' tokens
# memory of training in bytes of weights, with gradients and their moments
WEIGHTS = {"classify": 2, "pairs": 5}
HELP = {
    "classify": "Labels need a model that reads text, such as BERT, RoBERTa, ModernBERT, GPT-2 or Llama.",
    "pairs": "Pairs need an encoder–decoder that reads and writes text, such as T5, BART or Marian.",
}


def folder_of(model: str) -> Path:
    """The folder of a config's model; PretrainedError when there is none."""
    if model == MINILM:
        return minilm_folder()
    folder = LAB_MODELS / model.removeprefix(LAB) if model.startswith(LAB) else Path(model)
    reject_if(
        not (folder / "config.json").is_file(),
        f"There is no model at {model}; take {MINILM} or a model of the lab.",
    )
    return folder


def name_of(model: str) -> str:
    """The name of a config's model; a download's folder is named by its commit, within one of its name."""
    if model == MINILM:
        return MINILM_NAME
    path = Path(model.removeprefix(LAB))
    return hub.repo_of(path) if hub.COMMIT.fullmatch(path.name) else path.name


def resolve(name: str) -> str:
    """`FineTuneConfig.model` from "minilm", the name of one of the lab's own, a folder, or a name on the hub.

    A hub model that is not on this computer is downloaded, after its size was printed. PretrainedError when there is no
    such model.
    """
    if name in (MINILM, MINILM_NAME):
        return MINILM
    if name.startswith(LAB) or name in lab_models():
        return f"{LAB}{name.removeprefix(LAB)}"
    if name.startswith((".", "/", "~")) or Path(name).is_dir():
        return str(hub.check_folder(name, hub.max_bytes() * 4))
    (repo, revision), token = hub.parse(name), os.environ.get("HF_TOKEN")
    here = hub.downloaded_commits(repo)
    if here and revision in (*here, "main"):
        return str(hub.model_folder(repo, revision if revision in here else here[0]))
    plan = hub.plan(repo, revision, token=token)
    check_family(plan.family, repo, "")
    print(
        f"{repo} is a {plan.family} model: {hub.format_bytes(plan.size)} to download, commit {plan.commit[:7]}."
    )
    return str(hub.download(plan, token=token))


def check_model(model: str, task: str) -> Path:
    """The folder of a model; PretrainedError when its config or its size rules out training on such rows."""
    folder, name = folder_of(model), name_of(model)
    if model == USUAL[task]["model"]:
        return folder  # needs no check, so that no page waits for transformers
    check_family(read_config(folder / "config.json", name)["model_type"], name, task)
    needed = WEIGHTS[task] * sum(file.stat().st_size for file in folder_weights(folder, name))
    refuse_too_much(Cost(bytes=needed), f"Training {name}", "Take a smaller model.")
    return folder


def check_family(family: str, name: str, task: str) -> None:
    """PretrainedError unless transformers has a head of this family for the task, or with task "" for any task."""
    from transformers.models.auto import modeling_auto as auto

    heads = {
        "classify": auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
        "pairs": auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    }
    what = {"classify": "labels of texts", "pairs": "pairs of texts"}
    reject_if(
        not any(family in heads[one] for one in ([task] if task else heads)),
        f"{name} is of the family {family}, which cannot learn {what.get(task, 'labels or pairs of texts')}: "
        f"transformers has no head of it for them. {HELP.get(task, ' '.join(HELP.values()))}",
    )


def load_tokenizer(model: str, task: str) -> Any:
    """The tokenizer beside a model's weights; PretrainedError when none can be read."""
    # as in core.pretrained.load: threads import it at once
    transformers = import_module("transformers")
    none = f"{name_of(model)} has no readable tokenizer, so it cannot read the rows"
    with wrap_errors(none):
        tokenizer = transformers.AutoTokenizer.from_pretrained(check_model(model, task), **SAFE)
    # One without ordinary words was made from the config alone.
    reject_if(
        len(tokenizer) <= len(tokenizer.all_special_tokens), f"{none}. Take a complete model."
    )
    return tokenizer


def check_words(tokenizer: Any, model: str, rows: Rows) -> None:
    """ConfigError where more than half of the tokens of texts to label are unknown. `add_words` adds those of pairs."""
    unknown = tokenizer.unk_token_id
    if unknown is None or not rows.labels:
        return
    texts = [pair.text for pair in rows.learned]
    ids = [i for row in tokenizer(texts, add_special_tokens=False)["input_ids"] for i in row]
    share = ids.count(unknown) / max(1, len(ids))
    refuse_if(
        share > MAX_UNKNOWN,
        f"{name_of(model)} does not know {share:.0%} of the words in these rows. {HELP['classify']}",
    )


MAX_NEW_WORDS = 2_000
LONGEST_TOKENS = 128
TUNED = "-tuned"


@dataclass(frozen=True, eq=False)
class Learner(Pretrained):
    """A model in training: for reading, put it into eval mode first.

    `labels` are in the order of the model's outputs, empty for pairs. `new_words` were added to the vocabulary.
    `new_head` is whether the classification head was initialized anew.
    """

    labels: tuple[str, ...] = ()
    new_words: tuple[str, ...] = ()
    new_head: bool = False

    @property
    def device(self) -> torch.device:
        return self.model.device

    def save(self, folder: Path) -> None:
        """Write the model into the subfolder NAME-tuned."""
        path = folder / f"{self.name.rpartition('/')[2]}{TUNED}"
        self.model.save_pretrained(path)
        self.tokenizer.save_pretrained(path)


def build(config: FineTuneConfig, rows: Rows) -> Learner:
    """The model of a config, ready to train on these rows; seeds torch, so call it in a worker process.

    PretrainedError when the model does not load, ConfigError when it cannot be trained on such rows.
    """
    import transformers

    torch.manual_seed(config.seed)
    folder, tokenizer = folder_of(config.model), load_tokenizer(config.model, config.task)
    pairs = config.task == "pairs"
    labels, new_head, new = rows.labels, False, tuple[str, ...]()
    with wrap_errors(f"{name_of(config.model)} cannot learn {'pairs' if pairs else 'labels'}"):
        if pairs:
            own = transformers.AutoConfig.from_pretrained(folder, **SAFE)
            model, loading = transformers.AutoModelForSeq2SeqLM.from_pretrained(
                folder, attn_implementation=attention_name(model_class(own), own), **OPTIONS
            )
            writes = ("lm_head", "final_logits_bias")
            missing = [key for key in loading["missing_keys"] if key.split(".")[0] not in writes]
            refuse_missing(missing, folder.name)
        else:
            model, labels, new_head = _classifier(folder, rows.labels)
    merge_adapter(model, folder, folder.name)
    refuse_not_finite(model, folder.name)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token  # decoders are trained without padding
    model.config.pad_token_id = tokenizer.pad_token_id
    if pairs:
        new = add_words(model, tokenizer, (*rows.learned, *rows.held_out))
    else:
        freeze(model, config.layers)
    model.to(resolve_device(config.device))
    longest = getattr(model.config, "max_position_embeddings", None) or LONGEST_TOKENS
    return Learner(
        name_of(config.model),
        model,
        tokenizer,
        min(longest, LONGEST_TOKENS),
        "seq2seq" if pairs else "classify",
        "pair" if pairs else "text",
        make_recordable(model, "text"),
        avoid_kernels(model),
        labels=labels,
        new_words=new,
        new_head=new_head,
    )


OPTIONS: dict[str, Any] = {
    "dtype": torch.float32,
    "use_safetensors": True,
    "output_loading_info": True,
    **SAFE,
}


def _classifier(folder: Path, labels: tuple[str, ...]) -> tuple[Any, tuple[str, ...], bool]:
    """A classifier, its labels in the order of its outputs, and whether its head is new.

    A classifier of exactly these labels keeps its head and their order; any other model gets a new head.
    """
    import transformers

    config = transformers.AutoConfig.from_pretrained(folder, **SAFE)
    classifies = any(
        name.endswith("ForSequenceClassification") for name in config.architectures or ()
    )
    own = tuple(str(name) for _, name in sorted((config.id2label or {}).items()))
    keeps = classifies and sorted(own) == sorted(labels)
    names = dict(enumerate(own if keeps else labels))
    # The config may say regression or multi-label; these rows have one label each.
    model, loading = transformers.AutoModelForSequenceClassification.from_pretrained(
        folder,
        num_labels=len(names),
        id2label=names,
        label2id={name: i for i, name in names.items()},
        problem_type="single_label_classification",
        ignore_mismatched_sizes=True,
        attn_implementation=attention_name(model_class(config), config),
        **OPTIONS,
    )
    prefix, absent = f"{model.base_model_prefix}.", loading["missing_keys"]
    refuse_missing(
        [key for key in absent if key.startswith(prefix) and "pooler" not in key], folder.name
    )
    initialised = {*absent, *(key for key, *_ in loading["mismatched_keys"])}
    head = {name for name, _ in model.named_parameters() if not name.startswith(prefix)}
    if not keeps:
        reset_head(model, initialised)
    return model, tuple(names.values()), not keeps or initialised >= head


def reset_head(model: Any, initialised: Set[str]) -> None:
    """Initialize the weights outside the base model as the model's family does, unless they are in `initialised`.

    A head of other labels, or of another task, may have the same name and the same shape.
    """
    for name, module in model.named_modules():
        own = {f"{name}.{key}": weight for key, weight in module.named_parameters(recurse=False)}
        outside = module is not model and name.split(".")[0] != model.base_model_prefix
        if outside and set(own) - initialised:
            for weight in own.values():
                weight._is_hf_initialized = False  # how the library marks what was loaded
            model._init_weights(module)


def add_words(model: Any, tokenizer: Any, pairs: Sequence[Pair]) -> tuple[str, ...]:
    """Add every word that the tokenizer cannot spell to the vocabulary, in order of first use.

    The new embeddings are sampled around the mean of the existing ones.
    """
    words = dict.fromkeys(word for pair in pairs for word in f"{pair.text} {pair.answer}".split())
    unknown = tokenizer.unk_token_id
    new = tuple(
        word for word in words if unknown in tokenizer(word, add_special_tokens=False)["input_ids"]
    )
    refuse_if(
        len(new) > MAX_NEW_WORDS,
        f"{len(new):,} words are new to the model; at most {MAX_NEW_WORDS:,} can be added. Take a "
        "model that was trained on such text.",
    )
    if new:
        tokenizer.add_tokens(list(new))
        model.resize_token_embeddings(len(tokenizer))
        if getattr(model.config, "share_encoder_decoder_embeddings", True) is False:
            model.resize_decoder_token_embeddings(len(tokenizer))
    return new


def freeze(model: Any, count: int) -> None:
    """Train the head and the last `count` layers alone."""
    base = model.base_model
    base.requires_grad_(False)
    layers = max(
        [module for module in base.modules() if isinstance(module, nn.ModuleList) and len(module)],
        key=lambda stack: sum(weight.numel() for weight in stack.parameters()),
        default=(),
    )
    for layer in [*layers][max(0, len(layers) - count) :] + [getattr(base, "pooler", None)]:
        if layer is not None:
            layer.requires_grad_(True)
