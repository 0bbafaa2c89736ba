"""The page's numbers in words."""

from __future__ import annotations

from core.models.anatomy import Part
from dashboard.numbers import percent
from dashboard.transformer.measure import BATCH, SEEDS, Depth, Measured

COLUMNS = ("output", "parameters", "FLOPs", "kept", "mean ± spread", "gradient")
_ATTENTIONS = {"attention": "self", "causal": "causal", "cross": "cross"}
NARROW = "\u202f"


def is_attention(path: str) -> bool:
    return path.rpartition(".")[2] in _ATTENTIONS


def kind_and_layer(path: str) -> tuple[str, int]:
    """Which kind of map an attention's path stands for, and of which layer; ValueError for another path."""
    above, _, last = path.rpartition(".")
    number = above.rpartition(".")[2]
    if last not in _ATTENTIONS or not number.isdecimal():
        raise ValueError(f"{path!r} is no attention of a layer.")
    return _ATTENTIONS[last], int(number)


def cells(part: Part) -> list[str]:
    """The columns of a part: shape, parameters, FLOPs, memory kept, its numbers, its gradient."""
    shape = "" if part.shape is None else " × ".join(map(str, part.shape))
    spread = "" if part.spread is None else f"{signed(part.mean)} ± {part.spread:.2f}"
    return [shape, counted(part.parameters), scaled(part.flops), size(part.bytes), spread,
            "" if part.gradient is None else small(part.gradient)]


def counted(number: int) -> str:
    """A whole number with thin gaps; nothing for none."""
    return f"{number:,}".replace(",", NARROW) if number else ""


def scaled(number: float) -> str:
    for unit, value in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= value:
            return f"{number / value:.3g} {unit}"
    return f"{number:g}" if number else ""


def size(number: int) -> str:
    return f"{scaled(number)}B" if number >= 1000 else f"{number} B" if number else ""


def small(number: float) -> str:
    return f"{number:.2g}" if number >= 1e-4 or number == 0 else f"{number:.0e}"


def signed(number: float | None) -> str:
    return f"{number:.2f}".replace("-", "−") if number is not None else ""


def of_model(measured: Measured) -> str:
    """The fact under the diagram: where the parameters and the products are."""
    whole = measured.tree
    parts = [part for part in whole.walk() if part.children and is_attention(part.path)]
    forward = [part for part in whole.walk() if part.path.endswith("feed_forward")]
    share = {name: (sum(part.parameters for part in found) / whole.parameters,
                    sum(part.flops for part in found) / whole.flops)
             for name, found in (("attention", parts), ("feed-forward", forward))}
    met = sum(child.flops for part in parts for child in part.children if child.path.endswith("itself"))
    return (f"Attention holds **{percent(share['attention'][0])}** of {counted(whole.parameters)} parameters and takes "
            f"**{percent(share['attention'][1])}** of the products, feed-forward "
            f"{percent(share['feed-forward'][0])} and {percent(share['feed-forward'][1])}; where queries "
            f"meet keys, {percent(met / whole.flops)}.")


def of_memory(measured: Measured) -> str:
    """The caption: what was run, and what training keeps."""
    whole = measured.tree
    return (f"One pass over {BATCH} held-out examples and back, loss {measured.loss:.2f}. FLOPs are those of matrix "
            f"products, forwards; “kept” is what the backward pass needs of this batch, {size(whole.bytes)}. Weights "
            f"take {size(4 * whole.parameters)} in fp32; training with AdamW holds {size(16 * whole.parameters)} with "
            "gradients and two moments. A bar is the part's share of the model.")


def of_depth(after: Depth, before: Depth, layers: int) -> str:
    """What norms do to the gradient of the first layer."""
    return (f"With {layers} layers and the norm after the sum, the first layer gets **{after.ratio:.2g} ×** the last "
            f"layer's gradient; with the norm before, **{before.ratio:.2g} ×**.")


def of_depth_conditions(after: Depth, before: Depth) -> str:
    return (f"Untrained models of this shape, mean of {SEEDS} seeds, the same {BATCH} examples. First layer: "
            f"{small(after.mean[0])} ± {small(after.deviation[0])} after, {small(before.mean[0])} ± "
            f"{small(before.deviation[0])} before.")
