"""The lab's trained decoder with its steps and its cache, and a larger decoder with seeded weights."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from core.models import ModelConfig, build_model
from core.models.transformer import Decoder
from core.pretrained.hf_conversion import from_llama
from core.seeding import seeded_rng
from core.tasks import Task, make_task
from core.training.config import RunConfig

FOLDER = Path(__file__).with_name("lab_models") / "induction"
TRAINED, SEEDED = "trained", "seeded"
SEED = 126
LARGER = ModelConfig.transformer(512, 8, 4, 1024, kind="decoder", norm="pre", position="rope")


def load_lab_decoder(name: str) -> tuple[Decoder, Task]:
    """The decoder of that name (TRAINED or SEEDED) in evaluation mode, and the task whose words it reads and writes."""
    config = RunConfig.from_json(json.loads((FOLDER / "run.json").read_text("utf-8"))["config"])
    task = make_task(config.task)
    with seeded_rng(SEED):
        model = build_model(LARGER if name == SEEDED else config.model, task.shape)
    assert isinstance(model, Decoder)
    if name == TRAINED:
        model.load_state_dict(
            from_llama(load_file(FOLDER / "model.safetensors"), config.model.layers)
        )
    return model.eval().requires_grad_(False), task


def encode(task: Task, text: str, most: int) -> tuple[list[str], Tensor, tuple[str, ...]]:
    """The tokens of a text and their ids (1, T), at most so many, and the words that the model does not know."""
    tokens = task.tokens(text)[:most]
    known = set(task.source_vocab.tokens)
    unknown = tuple(dict.fromkeys(token for token in tokens[1:] if token not in known))
    return tokens, torch.tensor([task.source_vocab.encode(tokens)]), unknown
