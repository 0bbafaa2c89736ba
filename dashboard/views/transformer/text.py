"""Sentences of the page The Transformer."""

from __future__ import annotations

from dashboard.charts.numbers import byte_size, number, percent
from dashboard.components.model_diagram.cells import is_attention
from dashboard.views.transformer.compute import BATCH, SEEDS, Depth, Measurements


def of_model(result: Measurements) -> str:
    """The shares of attention and feed-forward in the parameters and the products."""
    whole = result.tree
    parts = [part for part in whole.walk() if part.children and is_attention(part.path)]
    forward = [part for part in whole.walk() if part.path.endswith("feed_forward")]
    share = {name: (sum(part.parameters for part in group) / whole.parameters,
                    sum(part.flops for part in group) / whole.flops)
             for name, group in (("attention", parts), ("feed-forward", forward))}
    products = sum(child.flops for part in parts for child in part.children if child.path.endswith("itself"))
    return (f"Attention holds **{percent(share['attention'][0])}** of {whole.parameters:,} parameters and takes "
            f"**{percent(share['attention'][1])}** of the products, feed-forward "
            f"{percent(share['feed-forward'][0])} and {percent(share['feed-forward'][1])}; where queries "
            f"meet keys, {percent(products / whole.flops)}.")


def of_memory(result: Measurements) -> str:
    """The conditions, and the memory that training takes."""
    whole = result.tree
    return (f"One pass over {BATCH} held-out examples and back, loss {number(result.loss)}. FLOPs are those of "
            f"matrix products, forwards; “kept” is what the backward pass needs of this batch, "
            f"{byte_size(whole.bytes)}. Weights take {byte_size(4 * whole.parameters)} in fp32; training with AdamW "
            f"holds {byte_size(16 * whole.parameters)} with gradients and two moments. "
            "A bar is the part's share of the model.")


def of_depth(after: Depth, before: Depth, layers: int) -> str:
    """The effect of the norms on the first layer's gradient."""
    return (f"With {layers} layers and the norm after the sum, the first layer gets **{number(after.ratio)} ×** the "
            f"last layer's gradient; with the norm before, **{number(before.ratio)} ×**.")


def of_depth_conditions(after: Depth, before: Depth) -> str:
    return (f"Untrained models of this shape, mean of {SEEDS} seeds, the same {BATCH} examples. First layer: "
            f"{number(after.mean[0])} ± {number(after.std[0])} after, {number(before.mean[0])} ± "
            f"{number(before.std[0])} before.")
