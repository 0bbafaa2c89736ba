"""What the page computes as Python."""

from __future__ import annotations

from dashboard.draw.scripts import Cell, Script, attention_import, source_of
from dashboard.views.mechanisms.compute import BASELINE, D_MODEL, PADDING, SEED, TOKENS, Comparison
from dashboard.views.mechanisms.controls import Controls

TEXT = "The same sentence through two layers with the same seed: the head in which a weight changes most."


def script(controls: Controls, result: Comparison) -> Script:
    """The weights of the baseline and of the picked choice, and their difference."""
    assert controls.config is not None
    made, baseline = source_of(controls.config), source_of(BASELINE)
    hidden = PADDING if "padding" in str(controls.config.mask) else 0
    padding = f"\nkey_mask = (torch.arange({len(TOKENS)}) < {len(TOKENS) - hidden})[None]  # the last are padding"
    key_mask = ", key_mask=key_mask" if hidden else ""
    code = f"""
import torch

{attention_import(made + baseline)}
from core.seeding import seeded_layer
from core.tokens import embed

tokens = {source_of(TOKENS)}
baseline = {baseline}
config = {made}
x = embed(tokens, {D_MODEL}, seed={SEED})  # (1, T, C){padding * bool(hidden)}
with torch.inference_mode():
    first = seeded_layer(baseline, {SEED})(x).weights[0]  # (H, T, T)
    second = seeded_layer(config, {SEED})(x{key_mask}).weights[0]
head = int((first - second).abs().amax((1, 2)).argmax())
before, after = first[head], second[head].float()
print("head", head, "largest change of a weight", float((after - before).abs().max()))
"""
    draw = f"""
from core.show import show_maps

show_maps({{"Scaled dot product": before, {controls.item.name!r}: after, "Difference": after - before}}, tokens, tokens)
"""
    return Script(
        (Cell(TEXT, code, draw, "mechanisms:both"),),
        {
            "before": result.before,
            "after": result.after,
            "after - before": result.after - result.before,
        },
    )
