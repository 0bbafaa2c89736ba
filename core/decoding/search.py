"""One search by its settings."""

from __future__ import annotations

import torch

from core.decoding.beam import beam
from core.decoding.filters import SearchSettings
from core.decoding.prefix import Decoder, Prompt
from core.decoding.sample import sample
from core.decoding.tree import Tree


def search(model: Decoder, prompt: Prompt, settings: SearchSettings, longest: int) -> Tree:
    """The tree of a search for at most `longest` tokens; ValueError for settings out of bounds."""
    if settings.strategy == "sampling":
        return sample(
            model,
            prompt,
            torch.Generator().manual_seed(settings.seed),
            samples=settings.samples,
            sampling=settings.sampling,
            no_repeat=settings.no_repeat,
            max_length=longest,
        )
    width, penalty = (
        (settings.width, settings.length_penalty) if settings.strategy == "beam" else (1, 0.0)
    )
    return beam(
        model,
        prompt,
        width=width,
        length_penalty=penalty,
        no_repeat=settings.no_repeat,
        max_length=longest,
    )
