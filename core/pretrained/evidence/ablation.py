"""The effect on the answer of ablating heads or hiding a token, measured by running the model again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch

from core.pretrained.answers import Answer
from core.pretrained.attention_recorder import HeadSet
from core.pretrained.base import PretrainedError
from core.pretrained.evidence.question import Baseline
from core.pretrained.reading import Batch
from core.trace import AttentionTrace

T = TypeVar("T")


@dataclass(frozen=True)
class Effect:
    """The target value under an ablation, its change from the full model's, and the id of the new answer."""

    value: float
    change: float
    id: int | None


def ablate_heads(baseline: Baseline, off: HeadSet) -> Effect:
    """The effect of heads whose output is zero, as if W_O had no columns for them. Michel et al. 2019, section 3.

    PretrainedError when the model's attention cannot be reached.
    """
    if not baseline.pretrained.recordable:
        raise PretrainedError(
            f"{baseline.pretrained.name} computes attention in its own code, so its heads cannot be "
            "switched off. Its weights, rollout and flow can be shown."
        )
    return _effect(baseline, baseline.rerun(off=off))


def make_heads_uniform(baseline: Baseline, heads: HeadSet) -> Effect:
    """The effect of giving heads equal weights on all visible keys.

    The uniform weights of Wiegreffe & Pinter 2019, section 3.2. PretrainedError as in `forward`.
    """
    return _effect(baseline, baseline.rerun(uniform=heads))


def hide_token(baseline: Baseline, token: int) -> Effect:
    """The effect of masking a source token everywhere, or of painting an image patch with the mean colour.

    Jain & Wallace 2019 leave words out in the same way (section 4.1). PretrainedError for sound.
    """
    return _effect(baseline, baseline.rerun(_without(baseline, token)))


def _without(baseline: Baseline, token: int) -> Batch:
    batch = dict(baseline.batch)
    if baseline.pretrained.reads_text:
        mask = batch.get("attention_mask")
        batch["attention_mask"] = (
            torch.ones_like(batch["input_ids"]) if mask is None else mask.clone()
        )
        batch["attention_mask"][0, token] = 0
        return batch
    grid = baseline.source.grid
    if "pixel_values" not in batch or grid is None:
        raise PretrainedError(
            "Parts of a sound are not masked here: neighbouring parts contain the same sounds."
        )
    patch = token - (len(baseline.source) - grid[0] * grid[1])
    if patch >= 0:
        pixels = batch["pixel_values"] = batch["pixel_values"].clone()
        high, wide = pixels.shape[-2] // grid[0], pixels.shape[-1] // grid[1]
        row, column = divmod(patch, grid[1])
        mean_colour = pixels.mean((-2, -1), keepdim=True)
        pixels[..., row * high : (row + 1) * high, column * wide : (column + 1) * wide] = (
            mean_colour
        )
    return batch


def _effect(baseline: Baseline, answer: Answer) -> Effect:
    value = float(baseline.target_value(answer))
    now = None if answer.probabilities is None else int(answer.probabilities.argmax())
    return Effect(value, value - baseline.value, now)


def head_sets(trace: AttentionTrace) -> tuple[HeadSet, ...]:
    """Each head of a trace alone, then each whole layer that has more than one head."""
    heads = tuple(
        frozenset({(item.kind, item.layer, head)})
        for item in trace.maps
        for head in range(len(item.weights))
    )
    layers = tuple(
        frozenset({(item.kind, item.layer, None)}) for item in trace.maps if len(item.weights) > 1
    )
    return heads + layers


def single_heads(effects: Mapping[HeadSet, Effect]) -> dict[tuple[str, int, int], Effect]:
    """The effects of one head alone, by (kind, layer, head)."""
    alone = {next(iter(off)): effect for off, effect in effects.items() if len(off) == 1}
    return {
        (kind, layer, head): effect
        for (kind, layer, head), effect in alone.items()
        if head is not None
    }


def largest_effects(effects: Mapping[T, Effect], count: int) -> list[tuple[T, Effect]]:
    """The `count` ablations with the largest absolute change, largest first."""
    return sorted(effects.items(), key=lambda item: -abs(item[1].change))[:count]
