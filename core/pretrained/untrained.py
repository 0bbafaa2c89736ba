"""The same architecture with randomly initialized weights."""

from __future__ import annotations

from copy import deepcopy

from core.pretrained.base import Pretrained
from core.pretrained.load import prepare_model
from core.seeding import seeded_rng


def untrained(pretrained: Pretrained, seed: int = 0) -> Pretrained:
    """A model of the same config, initialized as its family does before training, by the seed.

    The trained model and torch's global generator are left unchanged.
    """
    config = deepcopy(pretrained.model.config)
    config._attn_implementation = "eager"
    with seeded_rng(seed):
        model = type(pretrained.model)(config)
    return prepare_model(model.float(), pretrained.tokenizer, f"{pretrained.name}, untrained")
