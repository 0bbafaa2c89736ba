"""The model's own numbers of its attention layers, and what its other layers do instead."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from jaxtyping import Float
from torch import Tensor

from core.pretrained.base import text_config
from core.trace import Kind

if TYPE_CHECKING:
    from core.pretrained.attention_recorder import AttentionCall

# Names of the output projection W_O in the library's families.
OUTPUT_NAMES = (
    "o_proj",
    "out_proj",
    "out_lin",
    "c_proj",
    "dense",
    "o",
    "Wo",
    "wo",
    "proj",
    "projection",
    "projection_layer",
    "linear_out",
    "output",
)
STACK = re.compile(r"(?P<stack>(?:.*?\.)?(?:layers?|h|blocks?))\.(?P<number>\d+)(?:\.|$)")
# By the name of the module's class; the first that matches any module of a layer. Each was looked up in the library.
SUBSTITUTES: tuple[tuple[str, str], ...] = (
    (r"\w*CrossAttention", "cross-attention to a picture or sound that was not given"),
    (r"\w*(MambaMixer|Mamba2Mixer|BambaMixer|H1Mixer|MambaLayer)", "a selective state space (Mamba)"),
    (r"\w*(GatedDeltaNet|DeltaAttention)", "a gated delta rule, which is linear attention"),
    (r"\w*(LightningAttention|LinearAttention)", "linear attention"),
    (r"\w*RecurrentBlock", "a gated linear recurrence"),
    (r"\w*ShortConv", "a short convolution"),
    (r"\w*(MoE|MOE|Moe)", "experts alone"), (r"\w*(MLP|Mlp)", "only a feed-forward layer"),
)  # fmt: skip


MIXERS = SUBSTITUTES[1:-2]


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
    return {
        (kind, call.layer): number
        for kind, ones in of_kind.items()
        for call, number in zip(ones, layer_numbers(model, [one.name for one in ones]), strict=True)
    }


def other_layers(model: Any, names: Sequence[str]) -> str | None:
    """What the stack does beside one attention a layer, in sentences; None where that is all.

    Layers without attention, mixers beside attention, and several attentions in a layer.
    """
    match = STACK.match(names[0]) if names else None
    if match is None:
        return None
    stack, attend = list(model.get_submodule(match["stack"])), layer_numbers(model, names)
    twice = [one["number"] for one in map(STACK.match, names) if one].count(match["number"])
    if twice > 1 and len(set(attend)) == len(names) == twice * len(stack):
        attend = tuple(range(len(stack)))
        several = [
            f"Each of its {len(stack)} layers has {twice} attentions, which are numbered one after another: "
            f"L0 to L{twice - 1} are those of layer 0."
        ]
    else:
        several = []
    if len(stack) <= max(attend):
        return None
    attentions = {model.get_submodule(name) for name in names}
    does, beside = dict[str, list[int]](), dict[str, list[int]]()
    for number, layer in enumerate(stack):
        classes = [type(one).__name__ for one in layer.modules() if one not in attentions]
        rules = MIXERS if number in attend else SUBSTITUTES
        what = next(
            (what for rule, what in rules if any(re.fullmatch(rule, name) for name in classes)),
            None,
        )
        if number not in attend:
            does.setdefault(
                what or " and ".join(dict.fromkeys(type(one).__name__ for one in layer.children())),
                [],
            ).append(number)
        elif what is not None:
            beside.setdefault(what, []).append(number)
    parts = "; ".join(f"{_ranges(numbers)}: {what}" for what, numbers in does.items())
    if rest := sum(map(len, does.values())):
        several.append(
            f"Of its {len(stack)} layers {rest} have no attention between tokens ({parts})."
        )
    several += [
        f"Beside attention there is {what} (layers {_ranges(numbers)})."
        for what, numbers in beside.items()
    ]
    if beside or {what for _, what in MIXERS} & set(does):
        several.append(
            "What these pass between tokens is in no map, and so neither in rollout nor in flow."
        )
    return " ".join(several) or None


def _ranges(numbers: Iterable[int]) -> str:
    """Numbers in words: 0–2, 4."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)


def output_layer(model: Any, attention: str, size: int) -> Any:
    """W_O, the module of a usual name with that many inputs: inside the attention module, or beside it, as in BERT."""
    for room in (attention, attention.rpartition(".")[0]):
        for inside, module in model.get_submodule(room).named_modules():
            if (
                inside.removesuffix(".linear").rpartition(".")[2] in OUTPUT_NAMES
                and _inputs(module) == size
            ):
                return module
    return None


def output_embeddings(model: Any) -> Any:
    """The layer that gives the logits, of the model or of the language model in it; None where there is none."""
    parts = (one for one in (model, model.get_decoder()) if hasattr(one, "get_output_embeddings"))
    return next(
        (layer for one in parts if (layer := one.get_output_embeddings()) is not None), None
    )


def weight_by_head(linear: Any, heads: int) -> Float[Tensor, "H E C"]:
    """The weight of an output projection by head."""
    weight = linear.weight if _is_transposed(linear) else linear.weight.T
    return weight.unflatten(0, (heads, -1)).detach().cpu()


def _is_transposed(linear: Any) -> bool:
    """GPT-2 keeps its matrices as (in, out)."""
    return type(linear).__name__ == "Conv1D"


def _inputs(module: Any) -> int | None:
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor) or weight.ndim != 2:
        return None
    return weight.shape[0 if _is_transposed(module) else 1]
