"""A pretrained model made ready to learn: a new head for labels, or new words for pairs; and what of it learns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from core.entries import ConfigError
from core.finetune.config import LAB, MINILM, FineTuneConfig
from core.finetune.data import Pair, Rows
from core.pretrained.base import Pretrained, PretrainedError, first_line
from core.pretrained.hub import COMMIT
from core.pretrained.load import KEPT, minilm_folder
from core.pretrained.load import MINILM as MINILM_NAME
from core.pretrained.places import repo_of
from core.pretrained.watch import watch_model

MOST_NEW_WORDS = 2_000
LONGEST_TOKENS = 128
TUNED = "-tuned"


@dataclass(eq=False)
class Learner:
    """A model in the middle of learning, with its tokenizer and the words that were added for its pairs."""

    name: str
    model: Any
    tokenizer: Any
    labels: tuple[str, ...]
    new_words: tuple[str, ...]
    watched: bool
    max_tokens: int

    def save(self, folder: Path) -> None:
        """Write the model into a folder of its own, whose name other pages show."""
        place = folder / f"{self.name.rsplit('/', 1)[-1]}{TUNED}"
        self.model.save_pretrained(place)
        self.tokenizer.save_pretrained(place)

    def pretrained(self) -> Pretrained:
        """The model as it is now, for reading; put it into eval mode first."""
        pairs = not self.labels
        return Pretrained(self.name, self.model, self.tokenizer, self.max_tokens, "seq2seq" if pairs else "classify",
                          "pair" if pairs else "text", self.watched)


def folder_of(model: str) -> Path:
    """Where a config's model lies; PretrainedError when there is nothing."""
    if model == MINILM:
        return minilm_folder()
    folder = KEPT / model.removeprefix(LAB) if model.startswith(LAB) else Path(model)
    if not (folder / "config.json").is_file():
        raise PretrainedError(f"There is no model at {model}; take {MINILM} or one of the lab's own.")
    return folder


def name_of(model: str) -> str:
    """What a config's model is called; a folder of the hub's shelf is named by its commit, within one of its name."""
    if model == MINILM:
        return MINILM_NAME
    path = Path(model.removeprefix(LAB))
    return repo_of(path) if COMMIT.fullmatch(path.name) else path.name


def build(config: FineTuneConfig, rows: Rows) -> Learner:
    """The model of a config, ready to learn these rows; seeds torch, so call it in a process of its own.

    PretrainedError when the model does not load, ConfigError when it cannot learn such rows.
    """
    import transformers

    torch.manual_seed(config.seed)
    folder = folder_of(config.model)
    safe: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    asked: dict[str, Any] = {"attn_implementation": "eager", "dtype": torch.float32, "use_safetensors": True, **safe}
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **safe)
        if config.task == "classify":
            named = dict(enumerate(rows.labels))
            asked |= {"num_labels": len(named), "id2label": named, "label2id": {v: k for k, v in named.items()},
                      "ignore_mismatched_sizes": True}
            model = transformers.AutoModelForSequenceClassification.from_pretrained(folder, **asked)
        else:
            model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, **asked)
    except (OSError, ValueError, KeyError) as error:
        what = "labels" if config.task == "classify" else "pairs"
        raise PretrainedError(f"{config.model} cannot learn {what}: {first_line(error)}") from error
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token  # of decoders, whose training knew no padding
    model.config.pad_token_id = tokenizer.pad_token_id
    new = add_words(model, tokenizer, (*rows.learned, *rows.held_out)) if config.task == "pairs" else ()
    freeze(model, config)
    limit = min(getattr(model.config, "max_position_embeddings", None) or LONGEST_TOKENS, LONGEST_TOKENS)
    return Learner(name_of(config.model), model, tokenizer, rows.labels, new, watch_model(model), limit)


def add_words(model: Any, tokenizer: Any, pairs: Sequence[Pair]) -> tuple[str, ...]:
    """Give every word that the tokenizer cannot spell an entry and a vector of its own, in order of first use.

    The new vectors are drawn around the mean of those that are there.
    """
    words = dict.fromkeys(word for pair in pairs for word in f"{pair.text} {pair.answer}".split())
    unknown = tokenizer.unk_token_id
    new = tuple(word for word in words if unknown in tokenizer(word, add_special_tokens=False)["input_ids"])
    if len(new) > MOST_NEW_WORDS:
        raise ConfigError(f"{len(new):,} words are new to the model; at most {MOST_NEW_WORDS:,} can be added. Take a "
                          "model that was trained on such text.")
    if new:
        tokenizer.add_tokens(list(new))
        model.resize_token_embeddings(len(tokenizer))
        if getattr(model.config, "share_encoder_decoder_embeddings", True) is False:
            model.resize_decoder_token_embeddings(len(tokenizer))
    return new


def freeze(model: Any, config: FineTuneConfig) -> None:
    """For labels, let the head and the last `layers` layers learn, and nothing else; pairs teach every weight."""
    if config.task == "pairs":
        return
    base = model.base_model
    base.requires_grad_(False)
    stacks = [module for module in base.modules() if isinstance(module, nn.ModuleList) and len(module)]
    layers = max(stacks, key=lambda stack: sum(weight.numel() for weight in stack.parameters()), default=())
    for layer in list(layers)[max(0, len(layers) - config.layers):]:
        layer.requires_grad_(True)
    if getattr(base, "pooler", None) is not None:
        base.pooler.requires_grad_(True)


def count(model: Any) -> tuple[int, int]:
    """How many weights learn, and how many there are."""
    sizes = [(weight.numel(), weight.requires_grad) for weight in model.parameters()]
    return sum(size for size, learns in sizes if learns), sum(size for size, _ in sizes)
