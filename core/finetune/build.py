"""Prepare a pretrained model for fine-tuning: a new head for labels, new words for pairs, frozen layers."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from core.entries import ConfigError
from core.finetune.config import FineTuneConfig
from core.finetune.data import Pair, Rows
from core.finetune.models import folder_of, load_tokenizer, name_of
from core.pretrained.attention_recorder import make_recordable
from core.pretrained.base import Pretrained, PretrainedError, first_line
from core.pretrained.load import SAFE, refuse_missing
from core.training.config import resolve_device

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

WRITING_HEAD = ("lm_head", "final_logits_bias")
MOST_NEW_WORDS = 2_000
LONGEST_TOKENS = 128
TUNED = "-tuned"


@dataclass(eq=False)
class Learner:
    """A model in training and its tokenizer.

    `labels` are in the order of the model's outputs, empty for pairs. `new_words` were added to the vocabulary.
    `watched` is whether its attention can be recorded, `new_head` whether the classification head was initialized anew.
    """

    name: str
    model: Any
    tokenizer: Any
    labels: tuple[str, ...]
    new_words: tuple[str, ...]
    watched: bool
    max_tokens: int
    new_head: bool

    @property
    def device(self) -> torch.device:
        return self.model.device

    def save(self, folder: Path) -> None:
        """Write the model into the subfolder NAME-tuned."""
        path = folder / f"{self.name.rsplit('/', 1)[-1]}{TUNED}"
        self.model.save_pretrained(path)
        self.tokenizer.save_pretrained(path)

    def pretrained(self) -> Pretrained:
        """The model for reading; put it into eval mode first."""
        pairs = not self.labels
        return Pretrained(
            self.name,
            self.model,
            self.tokenizer,
            self.max_tokens,
            "seq2seq" if pairs else "classify",
            "pair" if pairs else "text",
            self.watched,
        )


def build(config: FineTuneConfig, rows: Rows) -> Learner:
    """The model of a config, ready to train on these rows; seeds torch, so call it in a worker process.

    PretrainedError when the model does not load, ConfigError when it cannot be trained on such rows.
    """
    import transformers

    torch.manual_seed(config.seed)
    folder, tokenizer = folder_of(config.model), load_tokenizer(config.model, config.task)
    labels, new_head = rows.labels, False
    try:
        if config.task == "classify":
            model, labels, new_head = _classifier(folder, rows.labels)
        else:
            model, loading = transformers.AutoModelForSeq2SeqLM.from_pretrained(
                folder, output_loading_info=True, **_load_options()
            )
            missing = [
                key for key in loading["missing_keys"] if key.split(".")[0] not in WRITING_HEAD
            ]
            refuse_missing(missing, folder.name)
    except PretrainedError:
        raise
    except Exception as error:  # whatever the files of a foreign model make the library raise
        what = "labels" if config.task == "classify" else "pairs"
        raise PretrainedError(
            f"{name_of(config.model)} cannot learn {what}: {first_line(error)}"
        ) from error
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token  # decoders are trained without padding
    model.config.pad_token_id = tokenizer.pad_token_id
    new = (
        add_words(model, tokenizer, (*rows.learned, *rows.held_out))
        if config.task == "pairs"
        else ()
    )
    freeze(model, config)
    model.to(resolve_device(config.device))
    limit = min(
        getattr(model.config, "max_position_embeddings", None) or LONGEST_TOKENS, LONGEST_TOKENS
    )
    return Learner(
        name_of(config.model),
        model,
        tokenizer,
        labels,
        new,
        make_recordable(model),
        limit,
        new_head,
    )


def _load_options() -> dict[str, Any]:
    return {"attn_implementation": "eager", "dtype": torch.float32, "use_safetensors": True, **SAFE}


def _classifier(folder: Path, labels: tuple[str, ...]) -> tuple[Any, tuple[str, ...], bool]:
    """A classifier, its labels in the order of its outputs, and whether its head is new.

    A classifier of exactly these labels keeps its head and their order; any other model gets a new head.
    """
    import transformers

    order = own_order(transformers.AutoConfig.from_pretrained(folder, **SAFE), labels)
    names = dict(enumerate(order or labels))
    # The config may say regression or multi-label; these rows have one label each.
    model, loading = transformers.AutoModelForSequenceClassification.from_pretrained(
        folder,
        num_labels=len(names),
        id2label=names,
        label2id={name: i for i, name in names.items()},
        problem_type="single_label_classification",
        ignore_mismatched_sizes=True,
        output_loading_info=True,
        **_load_options(),
    )
    prefix = f"{model.base_model_prefix}."
    missing = [
        key for key in loading["missing_keys"] if key.startswith(prefix) and "pooler" not in key
    ]
    refuse_missing(missing, folder.name)
    initialised = {*loading["missing_keys"], *(key for key, *_ in loading["mismatched_keys"])}
    head = [name for name, _ in model.named_parameters() if not name.startswith(prefix)]
    if order is None:
        reset_head(model, initialised)
    return model, tuple(names.values()), order is None or initialised >= set(head)


def own_order(config: PreTrainedConfig, labels: tuple[str, ...]) -> tuple[str, ...] | None:
    """The labels in the order of a classifier's config if it has exactly these; else None."""
    classifies = any(
        name.endswith("ForSequenceClassification") for name in config.architectures or ()
    )
    own = tuple(str(name) for _, name in sorted((config.id2label or {}).items()))
    return own if classifies and len(own) == len(labels) and set(own) == set(labels) else None


def reset_head(model: Any, initialised: Set[str]) -> None:
    """Initialize the weights outside the base model as the model's family does, unless they are in `initialised`.

    A head of other labels, or of another task, may have the same name and the same shape.
    """
    for name, module in model.named_modules():
        own = {f"{name}.{key}": weight for key, weight in module.named_parameters(recurse=False)}
        if (
            module is model
            or name.split(".")[0] == model.base_model_prefix
            or not set(own) - initialised
        ):
            continue
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
    if len(new) > MOST_NEW_WORDS:
        raise ConfigError(
            f"{len(new):,} words are new to the model; at most {MOST_NEW_WORDS:,} can be added. Take a "
            "model that was trained on such text."
        )
    if new:
        tokenizer.add_tokens(list(new))
        model.resize_token_embeddings(len(tokenizer))
        if getattr(model.config, "share_encoder_decoder_embeddings", True) is False:
            model.resize_decoder_token_embeddings(len(tokenizer))
    return new


def freeze(model: Any, config: FineTuneConfig) -> None:
    """For labels, train the head and the last `layers` layers alone; pairs train every weight."""
    if config.task == "pairs":
        return
    base = model.base_model
    base.requires_grad_(False)
    stacks = [
        module for module in base.modules() if isinstance(module, nn.ModuleList) and len(module)
    ]
    layers = max(
        stacks, key=lambda stack: sum(weight.numel() for weight in stack.parameters()), default=()
    )
    for layer in list(layers)[max(0, len(layers) - config.layers) :]:
        layer.requires_grad_(True)
    if getattr(base, "pooler", None) is not None:
        base.pooler.requires_grad_(True)


def count(model: Any) -> tuple[int, int]:
    """The numbers of trainable and of all weights."""
    weights = list(model.parameters())
    return sum(w.numel() for w in weights if w.requires_grad), sum(w.numel() for w in weights)
