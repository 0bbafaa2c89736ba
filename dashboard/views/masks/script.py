"""What the page computes as Python."""

from __future__ import annotations

from dashboard.draw.scripts import Cell, Script, source_of
from dashboard.views.masks.compute import D_MODEL, HEADS, SEED, MaskEffect
from dashboard.views.masks.controls import Controls

TEXT = (
    "A layer with seeded weights reads one sentence, without the mask and with it.",
    "The cells that the mask allows, and how many layers of it connect each pair of tokens.",
)


def script(controls: Controls, effect: MaskEffect) -> Script:
    """The weights of the picked head without the mask and with it, what it allows, and how far layers reach."""
    padding = (
        ""
        if controls.real is None
        else f"\nkey_mask = (torch.arange(len(tokens)) < {controls.real})[None]"
    )
    key_mask = "" if controls.real is None else ", key_mask=key_mask"
    layer = f"""
import torch

from core.attention import AttentionConfig, Choice
from core.attention.masks import layers_needed
from core.seeding import seeded_layer
from core.tokens import embed, labels

tokens = {source_of(controls.tokens)}
mask = {source_of(controls.mask)}
head = {controls.head}
x = embed(tokens, {D_MODEL}, seed={SEED})  # (1, T, C){padding}
unmasked = seeded_layer(AttentionConfig({D_MODEL}, {HEADS}), {SEED})(x)
masked = seeded_layer(AttentionConfig({D_MODEL}, {HEADS}, mask=mask), {SEED})(x{key_mask})
before, after = unmasked.weights[0, head], masked.weights[0, head]  # (T, T)
"""
    reach = """
allowed = torch.ones_like(after, dtype=torch.bool) if masked.mask is None else (
    masked.mask.expand(masked.weights.shape)[0, head])
needed = layers_needed(allowed)
print(int(allowed.sum()), "of", allowed.numel(), "cells are allowed;", int(needed.max()), "layers connect them")
"""
    draw = """
from core.show import show_maps

show_maps({"Weights with the mask": after, "Weights without the mask": before}, labels(tokens), labels(tokens))
"""
    return Script(
        (Cell(TEXT[0], layer, draw, "masks:maps"), Cell(TEXT[1], reach)),
        {
            "before": effect.before,
            "after": effect.after,
            "allowed": effect.allowed,
            "needed": effect.needed,
        },
    )
