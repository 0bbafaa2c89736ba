"""Settings measured to learn each task, for every kind of model that makes sense of it, the best first.

`python -m benchmarks tasks` measures them again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from core.models.config import ModelConfig
from core.tasks.base import Recipe

Recipes = dict[str, Recipe]
MOST_STEPS = 5_000  # of a person's own data


def for_data(recipes: Mapping[str, Recipe], examples: int, passes: int) -> Recipes:
    """Recipes with steps for so many passes over the examples, MOST_STEPS at most, and never fewer than they had."""
    return {kind: replace(one, steps=max(one.steps, min(MOST_STEPS, math.ceil(passes * examples / one.batch_size))))
            for kind, one in recipes.items()}


def recipe(model: ModelConfig, steps: int, rate: float) -> Recipe:
    return Recipe(model.to_json(), steps, 64, rate)


def cells(d_model: int) -> ModelConfig:
    """The hybrid: an LSTM that asks, and self-attention over a BiLSTM that is asked."""
    return ModelConfig.recurrent(d_model, kind="hybrid", cell="lstm")


def repeat(length: int) -> Recipes:
    """Copy and reverse: one layer is enough, for the place to look at is known from the place alone."""
    short = length <= 12
    width, rate, steps = (32, 5e-3, 400) if short else (64, 3e-3, 600)
    alone = ModelConfig.transformer(width, 1, kind="decoder", position="learned")
    return {
        "transformer": recipe(ModelConfig.transformer(width, 2, position="sinusoidal"), steps, rate),
        "decoder": recipe(alone, steps, 1e-2 if short else rate),
        "recurrent": recipe(ModelConfig.recurrent(64), 1200, 5e-3),
        "hybrid": recipe(cells(64), 1200, 5e-3),
    }


def sort() -> Recipes:
    """Two layers: which letters are there, and which of them comes next."""
    return {
        "transformer": recipe(ModelConfig.transformer(64, 4, 2, position="learned"), 1000, 3e-3),
        "decoder": recipe(ModelConfig.transformer(64, 4, 2, kind="decoder", position="learned"), 1000, 3e-3),
        "recurrent": recipe(ModelConfig.recurrent(64), 1200, 5e-3),
        "hybrid": recipe(cells(64), 1200, 5e-3),
    }


def recall() -> Recipes:
    """Two layers: a value learns its key, then the key that is asked for finds it. Rotary positions: the one before.

    The encoder looks back only: seeing both sides, it is still guessing after 1,500 steps which neighbour is the key.
    """
    both = ModelConfig.transformer(64, 1, 2, position="rope", mask="causal", norm="pre")
    return {
        "decoder": recipe(ModelConfig.transformer(64, 1, 2, kind="decoder", position="rope"), 1500, 3e-3),
        "transformer": recipe(both, 1500, 3e-3),
        "recurrent": recipe(ModelConfig.recurrent(64), 1000, 5e-3),
        "hybrid": recipe(cells(64), 1000, 5e-3),
    }


def induction() -> Recipes:
    """Two layers, as Olsson 2022 found them: the word before, then the same word's earlier place."""
    both = ModelConfig.transformer(64, 2, 2, position="rope", mask="causal", norm="pre")
    return {
        "decoder": recipe(ModelConfig.transformer(64, 2, 2, kind="decoder", position="rope"), 1000, 3e-3),
        "transformer": recipe(both, 2500, 3e-3),
        "recurrent": recipe(ModelConfig.recurrent(64), 2500, 5e-3),
        "hybrid": recipe(cells(64), 2500, 5e-3),
    }


def addition() -> Recipes:
    return {
        "decoder": recipe(ModelConfig.transformer(64, 4, 2, kind="decoder", position="learned"), 2000, 3e-3),
        "transformer": recipe(ModelConfig.transformer(64, 4, 2, position="learned"), 2000, 3e-3),
        "recurrent": recipe(ModelConfig.recurrent(64), 3000, 5e-3),
        "hybrid": recipe(cells(64), 3000, 5e-3),
    }


def numbers() -> Recipes:
    return {
        "recurrent": recipe(ModelConfig.recurrent(128), 700, 4e-3),
        "transformer": recipe(
            ModelConfig.transformer(64, 4, 2, position="sinusoidal", norm="pre"), 1500, 2e-3),
        "decoder": recipe(ModelConfig.transformer(64, 4, 2, kind="decoder", position="rope", norm="pre"), 1500, 2e-3),
        "hybrid": recipe(cells(128), 600, 4e-3),
    }


def dates() -> Recipes:
    return {
        "recurrent": recipe(ModelConfig.recurrent(64), 900, 5e-3),
        "transformer": recipe(
            ModelConfig.transformer(64, 4, 2, position="sinusoidal", norm="pre"), 1500, 2e-3),
        "decoder": recipe(ModelConfig.transformer(64, 4, 2, kind="decoder", position="rope", norm="pre"), 1500, 2e-3),
        "hybrid": recipe(cells(64), 900, 5e-3),
    }


def language() -> Recipes:
    return {
        "classifier": recipe(ModelConfig.transformer(32, 2, 1, kind="classifier", position="sinusoidal"), 800, 5e-3),
    }
