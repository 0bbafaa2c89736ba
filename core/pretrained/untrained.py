"""The same model before it learned anything: its config, and weights drawn anew."""

from __future__ import annotations

from copy import deepcopy

from core.pretrained.base import Pretrained
from core.pretrained.load import prepare_model
from core.seeding import seeded_rng


def untrained(pretrained: Pretrained, seed: int = 0) -> Pretrained:
    """A model of the same config whose weights are drawn as its family draws them before training, by the seed.

    The trained model is only read; torch's generator comes out as it went in.
    """
    config = deepcopy(pretrained.model.config)
    config._attn_implementation = "eager"
    with seeded_rng(seed):
        model = type(pretrained.model)(config)
    return prepare_model(model.float(), pretrained.tokenizer, f"{pretrained.name}, untrained")
