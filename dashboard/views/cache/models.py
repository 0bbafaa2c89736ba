"""The two decoders that this page runs: the lab's own trained one, and a larger one with seeded weights."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

import core.pretrained
from core.models import ModelConfig, Seq2Seq, build_model
from core.seeding import seeded_rng
from core.tasks import Task, make_task
from core.training.config import RunConfig

FOLDER = Path(core.pretrained.__file__).with_name("lab_models") / "induction"
TRAINED, SEEDED = "trained", "seeded"
SEED = 126
LARGER = ModelConfig.transformer(512, 8, 4, 1024, kind="decoder", norm="pre", position="rope")
# The folder is in Hugging Face's format: its names, and those of the lab's decoder.
NAMES = {"model.layers": "layers", "model.norm": "norm", "lm_head": "output",
         "self_attn.q_proj": "causal.projection.query", "self_attn.k_proj": "causal.projection.key",
         "self_attn.v_proj": "causal.projection.value",
         "self_attn.o_proj": "causal.projection.output", "mlp.gate_proj": "feed_forward.inner",
         "mlp.up_proj": "feed_forward.gate", "mlp.down_proj": "feed_forward.outer",
         "input_layernorm": "around_causal.norm", "post_attention_layernorm": "around_feed_forward.norm"}


def load(name: str) -> tuple[Seq2Seq, Task]:
    """The decoder in evaluation mode, and the task whose words it reads and writes."""
    config = RunConfig.from_json(json.loads((FOLDER / "run.json").read_text("utf-8"))["config"])
    task = make_task(config.task)
    with seeded_rng(SEED):
        model = build_model(LARGER if name == SEEDED else config.model, task.shape)
    assert isinstance(model, Seq2Seq)
    if name == TRAINED:
        model.load_state_dict(trained_weights())
    return model.eval().requires_grad_(False), task


def trained_weights() -> dict[str, Tensor]:
    """The folder's weights under the lab's names; an embedding there is already multiplied by √C."""
    weights = load_file(FOLDER / "model.safetensors")
    table = weights.pop("model.embed_tokens.weight")
    table = table / table.shape[1] ** 0.5
    return {_own_name(name): weight for name, weight in weights.items()} | {
        "target.token.weight": table, "source.token.weight": table}


def _own_name(name: str) -> str:
    for theirs, own in NAMES.items():
        name = name.replace(theirs, own)
    return name


def encode(task: Task, text: str, most: int) -> tuple[list[str], Tensor, tuple[str, ...]]:
    """The tokens of a text and their ids (1, T), at most so many, and the words that the model does not know."""
    tokens = task.tokens(text)[:most]
    known = set(task.source_vocab.tokens)
    unknown = tuple(dict.fromkeys(token for token in tokens[1:] if token not in known))
    return tokens, torch.tensor([task.source_vocab.encode(tokens)]), unknown
