"""Find a pretrained model by name, and check that it can be fine-tuned on labels or pairs."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

from core.entries import ConfigError
from core.finetune.config import LAB, MINILM, USUAL
from core.finetune.data import Rows
from core.pretrained import hub, model_storage
from core.pretrained.base import PretrainedError, first_line
from core.pretrained.hub import COMMIT
from core.pretrained.load import LAB_MODELS, SAFE, minilm_folder
from core.pretrained.load import MINILM as MINILM_NAME
from core.pretrained.model_files import folder_weights, read_config, refuse_config
from core.pretrained.model_storage import check_folder, format_bytes, repo_of

MOST_UNKNOWN = 0.5  # share of the rows' tokens
WEIGHTS = {
    "classify": 2,
    "pairs": 5,
}  # memory of training in bytes of weights, with gradients and their moments
HELP = {
    "classify": "Labels need a model that reads text, such as BERT, RoBERTa, ModernBERT, GPT-2 or Llama.",
    "pairs": "Pairs need an encoder–decoder that reads and writes text, such as T5, BART or Marian.",
}


def folder_of(model: str) -> Path:
    """The folder of a config's model; PretrainedError when there is none."""
    if model == MINILM:
        return minilm_folder()
    folder = LAB_MODELS / model.removeprefix(LAB) if model.startswith(LAB) else Path(model)
    if not (folder / "config.json").is_file():
        raise PretrainedError(f"There is no model at {model}; take {MINILM} or a model of the lab.")
    return folder


def name_of(model: str) -> str:
    """The name of a config's model; a download's folder is named by its commit, within one of its name."""
    if model == MINILM:
        return MINILM_NAME
    path = Path(model.removeprefix(LAB))
    return repo_of(path) if COMMIT.fullmatch(path.name) else path.name


def resolve(name: str) -> str:
    """`FineTuneConfig.model` from "minilm", the name of one of the lab's own, a folder, or a name on the hub.

    A hub model that is not on this computer is downloaded, after its size was printed. PretrainedError when there is no
    such model.
    """
    if name in (MINILM, MINILM_NAME):
        return MINILM
    if name.startswith(LAB) or name in {
        path.parent.name for path in LAB_MODELS.glob("*/config.json")
    }:
        return f"{LAB}{name.removeprefix(LAB)}"
    if name.startswith((".", "/", "~")) or Path(name).is_dir():
        return str(check_folder(name, hub.most_bytes() * 4))
    repo, revision = hub.parse(name)
    here = model_storage.downloaded_commits(repo)
    if here and revision in (*here, "main"):
        return str(model_storage.model_folder(repo, revision if revision in here else here[0]))
    plan = hub.plan(repo, revision, token=os.environ.get("HF_TOKEN"))
    check_family(plan.family, repo, "")
    print(
        f"{repo} is a {plan.family} model: {format_bytes(plan.size)} to download, commit {plan.commit[:7]}."
    )
    return str(hub.download(plan, token=os.environ.get("HF_TOKEN")))


def check_model(model: str, task: str) -> Path:
    """The folder of a model; PretrainedError when its config or its size rules out training on such rows."""
    folder, name = folder_of(model), name_of(model)
    if model == USUAL[task]["model"]:
        return folder  # needs no check, so that no page waits for transformers
    config = read_config(folder / "config.json", name)
    refuse_config(config, name)
    check_family(str(config["model_type"]), name, task)
    needed = WEIGHTS[task] * sum(file.stat().st_size for file in folder_weights(folder, name))
    free = model_storage.free_memory()
    if free is not None and needed > free:
        raise PretrainedError(
            f"{name} needs about {format_bytes(needed)} of memory for training, and "
            f"{format_bytes(free)} is free. Take a smaller model."
        )
    return folder


def check_family(family: str, name: str, task: str) -> None:
    """PretrainedError unless transformers has a head of this family for the task, or with task "" for any task."""
    from transformers.models.auto import modeling_auto as auto

    heads = {
        "classify": auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
        "pairs": auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    }
    if not any(family in heads[one] for one in ([task] if task else heads)):
        what = {"classify": "labels of texts", "pairs": "pairs of texts"}.get(
            task, "labels or pairs of texts"
        )
        raise PretrainedError(
            f"{name} is of the family {family}, which cannot learn {what}. "
            f"{HELP.get(task, ' '.join(HELP.values()))}"
        )


def load_tokenizer(model: str, task: str) -> Any:
    """The tokenizer beside a model's weights; PretrainedError when none can be read."""
    transformers = import_module(
        "transformers"
    )  # as in core.pretrained.load: threads import it at once
    none = f"{name_of(model)} has no readable tokenizer, so it cannot read the rows"
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(check_model(model, task), **SAFE)
    except (OSError, ValueError, KeyError, TypeError, ImportError) as error:
        raise PretrainedError(f"{none}: {first_line(error)}") from error
    if len(tokenizer) <= len(tokenizer.all_special_tokens):  # made from the config alone
        raise PretrainedError(f"{none}. Take a complete model.")
    return tokenizer


def check_words(tokenizer: Any, model: str, rows: Rows) -> None:
    """ConfigError where more than half of the tokens of texts to label are unknown. `add_words` adds those of pairs."""
    unknown = tokenizer.unk_token_id
    if unknown is None or not rows.labels:
        return
    ids = [
        i
        for row in tokenizer([pair.text for pair in rows.learned], add_special_tokens=False)[
            "input_ids"
        ]
        for i in row
    ]
    if ids and (share := ids.count(unknown) / len(ids)) > MOST_UNKNOWN:
        raise ConfigError(
            f"{name_of(model)} does not know {share:.0%} of the words in these rows. {HELP['classify']}"
        )
