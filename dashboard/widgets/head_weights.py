"""The matrices of a model's heads, which several pages read; cached by the model."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from core.pretrained.circuits import HeadMatrices, Vocabularies, read_heads, read_vocabularies
from dashboard.runtime.threads import one_thread
from dashboard.server.cache import shared
from dashboard.widgets.model_picker import ModelRef, load_model
from dashboard.widgets.model_picker.models import is_small


@dataclass(frozen=True, eq=False)
class HeadWeights:
    """The matrices of all heads, in the order in which they run, and the vocabularies at both ends."""

    heads: tuple[HeadMatrices, ...]
    vocabularies: Vocabularies


def weights_of(ref: ModelRef) -> HeadWeights:
    """The matrices of a model's heads. PretrainedError as in `read_heads`."""
    return shared(_read, ref)


def _read(ref: ModelRef) -> HeadWeights:
    model = load_model(ref)
    with one_thread(is_small(model)), torch.no_grad():
        return HeadWeights(read_heads(model), read_vocabularies(model))
