"""The places of a model whose outputs are read and replaced: layers, and their feed-forward networks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from core.hooks import hooked
from core.pretrained.attention_recorder import AttentionCall
from core.pretrained.layers import STACK
from core.trace import Kind

FEED_FORWARD = ("mlp", "feed_forward", "feedforward", "ffn", "ff", "moe", "block_sparse_moe")


@dataclass(frozen=True)
class Block:
    """A layer of a stack by the names of its modules; `kind` and `layer` are those of its self-attention."""

    kind: Kind
    layer: int
    name: str
    feed_forward: str | None


@dataclass(frozen=True, eq=False)
class Replacement:
    """The output of a module at one token (None: at all) in one row of the batch."""

    module: str
    row: int
    token: int | None
    values: Float[Tensor, "T C"]


def blocks_of(model: Any, calls: Sequence[AttentionCall]) -> tuple[Block, ...]:
    """The layers that attended, in their order; empty where their modules are not in a numbered list.

    Cross-attention is in the layer of the decoder's self-attention. A module that runs as several layers (ALBERT) is
    left out, as its outputs cannot be told apart.
    """
    blocks: dict[str, Block] = {}
    repeated = set()
    for call in calls:
        match = STACK.match(call.name)
        if match is None:
            return ()
        name = f"{match['stack']}.{match['number']}"
        if name not in blocks:
            blocks[name] = Block(call.kind, call.layer, name, _feed_forward(model, name, calls))
        elif call.kind == blocks[name].kind:
            repeated.add(name)
    return tuple(block for name, block in blocks.items() if name not in repeated)


def _feed_forward(model: Any, block: str, calls: Sequence[AttentionCall]) -> str | None:
    """The module whose output a layer adds after its attention: one of a usual name, else the last linear map.

    None where it has no weights, as in a model of attention alone.
    """
    module = model.get_submodule(block)
    for name, child in module.named_children():
        if name in FEED_FORWARD:
            return (
                f"{block}.{name}" if any(weight.numel() for weight in child.parameters()) else None
            )
    inside = tuple(
        f"{call.name.rpartition('.')[0] if '.' in call.name[len(block) + 1 :] else call.name}."
        for call in calls
        if call.name.startswith(f"{block}.")
    )
    maps = [
        f"{block}.{name}"
        for name, child in module.named_modules()
        if isinstance(child, nn.Linear) and not f"{block}.{name}".startswith(inside)
    ]
    return maps[-1] if maps else None


def states_of(output: Any) -> Tensor:
    """The states in a module's output: itself, or the first of a tuple."""
    return output[0] if isinstance(output, tuple | list) else output


def with_states(output: Any, states: Tensor) -> Any:
    """A module's output with other states."""
    return type(output)((states, *output[1:])) if type(output) in (tuple, list) else states


@contextmanager
def read_outputs(model: Any, names: Sequence[str], states: dict[str, Tensor]) -> Iterator[None]:
    """Store the outputs (B, T, C) of modules by their names while a pass runs."""

    def keep(name: str) -> Any:
        return lambda module, inputs, output: states.__setitem__(name, states_of(output))

    with hooked(model.get_submodule(name).register_forward_hook(keep(name)) for name in names):
        yield


@contextmanager
def replace_outputs(model: Any, replacements: Sequence[Replacement]) -> Iterator[None]:
    """Replace outputs of modules while a pass runs."""
    by_module: dict[str, list[Replacement]] = {}
    for one in replacements:
        by_module.setdefault(one.module, []).append(one)
    with hooked(
        model.get_submodule(name).register_forward_hook(_replacing(ones))
        for name, ones in by_module.items()
    ):
        yield


def _replacing(replacements: Sequence[Replacement]) -> Any:
    def hook(module: Any, inputs: Any, output: Any) -> Any:
        states = states_of(output).clone()
        for one in replacements:
            which = slice(None) if one.token is None else one.token
            states[one.row, which] = one.values[which].to(states)
        return with_states(output, states)

    return hook
