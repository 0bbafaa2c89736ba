"""The model's own numbers of its attention layers, and what its other layers do instead."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from core.pretrained.attention_recorder import AttentionCall
from core.pretrained.base import text_config
from core.trace import Kind

STACK = re.compile(r"(?P<stack>(?:.*?\.)?(?:layers?|h|blocks?))\.(?P<number>\d+)(?:\.|$)")
# By the name of the module's class; the first that matches any module of a layer. Each was looked up in the library.
SUBSTITUTES: tuple[tuple[str, str], ...] = (
    (r"\w*CrossAttention", "cross-attention to a picture or sound that was not given"),
    (r"\w*(MambaMixer|Mamba2Mixer|BambaMixer|MambaLayer)", "a selective state space (Mamba)"),
    (r"\w*(GatedDeltaNet|DeltaAttention)", "a gated delta rule, which is linear attention"),
    (r"\w*(LightningAttention|LinearAttention)", "linear attention"),
    (r"\w*RecurrentBlock", "a gated linear recurrence"),
    (r"\w*ShortConv", "a short convolution"),
    (r"\w*(MoE|MOE|Moe)", "experts alone"), (r"\w*(MLP|Mlp)", "only a feed-forward layer"),
)  # fmt: skip


def layer_numbers(model: Any, names: Sequence[str]) -> tuple[int, ...]:
    """The model's own numbers of the layers that attended, from 0, by the names of their modules, in order.

    Layers that share one module are numbered by the config's `layer_types`; where nothing tells, by their order.
    """
    matches = [STACK.match(name) for name in names]
    numbers = tuple(int(match["number"]) for match in matches if match)
    stacks = {match["stack"] for match in matches if match}
    if len(numbers) == len(names) and len(stacks) == 1 and numbers == tuple(sorted(set(numbers))):
        return numbers
    kinds = getattr(text_config(model), "layer_types", None) or ()
    shared = tuple(match for match, kind in enumerate(kinds) if kind == "hybrid")
    return shared if len(shared) == len(names) else tuple(range(len(names)))


def numbers_by_layer(model: Any, calls: Iterable[AttentionCall]) -> dict[tuple[Kind, int], int]:
    """The model's own number of each recorded layer, by its kind and its index among those of that kind."""
    of_kind: dict[Kind, list[AttentionCall]] = {}
    for call in calls:
        of_kind.setdefault(call.kind, []).append(call)
    return {(kind, call.layer): number for kind, ones in of_kind.items()
            for call, number in zip(ones, layer_numbers(model, [one.name for one in ones]), strict=True)}


def other_layers(model: Any, names: Sequence[str]) -> str | None:
    """A sentence on the layers of the same stack that have no attention; None where all have."""
    match = STACK.match(names[0]) if names else None
    if match is None:
        return None
    stack = list(model.get_submodule(match["stack"]))
    rest = sorted(set(range(len(stack))) - set(layer_numbers(model, names)))
    if not rest or len(stack) <= max(layer_numbers(model, names)):
        return None
    does: dict[str, list[int]] = {}
    for number in rest:
        does.setdefault(_substitute(stack[number]), []).append(number)
    parts = "; ".join(f"{_ranges(numbers)}: {what}" for what, numbers in does.items())
    return f"Of its {len(stack)} layers {len(rest)} have no attention between tokens ({parts})."


def _substitute(layer: Any) -> str:
    classes = [type(module).__name__ for module in layer.modules()]
    for rule, what in SUBSTITUTES:
        if any(re.fullmatch(rule, name) for name in classes):
            return what
    return " and ".join(dict.fromkeys(type(module).__name__ for module in layer.children()))


def _ranges(numbers: Iterable[int]) -> str:
    """Numbers in words: 0–2, 4."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)
