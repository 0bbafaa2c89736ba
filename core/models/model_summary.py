"""A model taken apart: a tree of parts, each with what it makes, learns, computes, keeps, and how its gradient is.

All of it is counted while the model runs once forwards and backwards on a real batch, so it holds for any mechanism.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry, sdpa_flop_count

from core.models.base import Model, ModelOutput
from core.models.titles import ITSELF, title


@dataclass(frozen=True)
class Part:
    """One part of a model; its parameters, flops and bytes are the sums of its children's.

    `shape` is that of its output on the batch (None where it gives none), `mean` and `spread` its numbers' mean and
    standard deviation, `flops` what its matrix products take forwards (a multiply and an add are two), `bytes` what it
    keeps of the batch for the backward pass, `gradient` the norm of the loss's gradient in its parameters.
    """

    path: str
    title: str
    shape: tuple[int, ...] | None
    parameters: int
    flops: int
    bytes: int
    mean: float | None
    std: float | None
    gradient: float | None
    children: tuple[Part, ...] = ()

    def walk(self) -> Iterator[Part]:
        """This part and all within it, from the top down."""
        yield self
        for child in self.children:
            yield from child.walk()

    def layers(self) -> tuple[Part, ...]:
        """The layers of attention and feed-forward in it, the first one first."""
        return tuple(part for part in self.walk() if part.path.rpartition(".")[2].isdecimal())


@dataclass
class ModuleStats:
    """What was seen of one module while the model ran: its turn, its output and its own share, children left out."""

    turn: int
    parameters: int = 0
    flops: int = 0
    bytes: int = 0
    output: tuple[tuple[int, ...], float, float] | None = None
    gradient: float = 0.0  # squared


@dataclass
class ModuleRecorder(TorchDispatchMode):
    """Counts, for the innermost module that is running, matrix products and the memory kept for gradients.

    The formulas are those of torch.utils.flop_counter, whose FlopCounterMode counts the same (tested).
    """

    model: nn.Module
    seen: dict[str, ModuleStats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()
        self.running = [""]
        self.storages = {place.data_ptr(): place for place in (w.untyped_storage() for w in self.model.parameters())}
        self.of("")

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or torch imports its compiler (2 s, 800 modules), as its own FlopCounterMode does

    def of(self, path: str) -> ModuleStats:
        return self.seen.setdefault(path, ModuleStats(len(self.seen)))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.of(self.running[-1]).flops += flops(func, args, kwargs or {}, out)
        return out

    def keep(self, tensor: Tensor) -> Tensor:
        """A tensor that the backward pass will read, counted once, weights left out."""
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self.storages:
            self.storages[storage.data_ptr()] = storage  # held, or another tensor might be put in its place
            self.of(self.running[-1]).bytes += storage.nbytes()
        return tensor

    def hooks(self, path: str, module: nn.Module) -> list[Any]:
        def enter(*_: Any) -> None:
            self.of(path)
            self.running.append(path)

        def leave(module: nn.Module, inputs: Any, output: Any) -> None:
            self.running.pop()
            made = main_output(output)
            if made is not None and self.of(path).output is None:
                values = made.detach().float()
                self.of(path).output = tuple(made.shape), values.mean().item(), values.std(correction=0).item()

        return [module.register_forward_pre_hook(enter), module.register_forward_hook(leave)]


def flops(func: Any, args: Any, kwargs: Any, out: Any) -> int:
    """What one operation takes, if it is a matrix product or a fused attention."""
    if func._overloadpacket is torch.ops.aten._scaled_dot_product_flash_attention_for_cpu:  # not in torch's own list
        return int(sdpa_flop_count(*(tensor.shape for tensor in args[:3])))
    count = flop_registry.get(func._overloadpacket)
    return 0 if count is None else int(count(*args, **kwargs, out_val=out))


@contextmanager
def record_modules(model: Model) -> Iterator[ModuleRecorder]:
    """A Watch on the model, whose hooks are gone afterwards."""
    watch, handles = ModuleRecorder(model), []
    for path, module in model.named_modules():
        handles += watch.hooks(path, module)
    try:
        with torch.autograd.graph.saved_tensors_hooks(watch.keep, lambda tensor: tensor), watch:
            yield watch
    finally:
        for handle in handles:
            handle.remove()


def summarize(model: Model, inputs: tuple[Tensor | None, ...], loss: Callable[[Tensor], Tensor]) -> Part:
    """The model as a tree of parts, of one pass over `inputs` (source, source_mask, target_in) and back from `loss`.

    The model's gradients are left as they were: none.
    """
    model.zero_grad(set_to_none=True)
    with torch.enable_grad(), record_modules(model) as watch:
        logits = model(*inputs).logits
    with torch.enable_grad():
        loss(logits).backward()
    for name, weight in model.named_parameters():
        owner = watch.of(name.rpartition(".")[0])
        owner.parameters += weight.numel()
        owner.gradient += 0.0 if weight.grad is None else float(weight.grad.square().sum())
    model.zero_grad(set_to_none=True)
    return _tree(model, watch.seen)


def main_output(output: Any) -> Tensor | None:
    """The tensor that a module hands on."""
    if isinstance(output, ModelOutput):
        return output.logits
    if isinstance(output, tuple):
        return main_output(output[0])
    output = getattr(output, "merged", output)  # an attention's Steps
    return output if isinstance(output, Tensor) and output.is_floating_point() else None


def _tree(model: nn.Module, seen: dict[str, ModuleStats]) -> Part:
    inside: dict[str, list[str]] = defaultdict(list)
    for path, module in model.named_modules():
        if path and not isinstance(module, nn.ModuleList):  # a list is no part: its items are
            above = path.rpartition(".")[0]
            listed = above and isinstance(model.get_submodule(above), nn.ModuleList)
            inside[above.rpartition(".")[0] if listed else above].append(path)

    def turn(path: str) -> float:
        return min([seen[path].turn if path in seen else math.inf, *map(turn, inside[path])])

    def part(path: str) -> Part:
        own = seen.get(path, ModuleStats(0))
        children = tuple(child for child in map(part, sorted(inside[path], key=turn)) if _counts(child))
        name, rest = title(path, model), f"{path}.{ITSELF}"
        if children and (own.flops or own.bytes or own.parameters):
            children += (_leaf(rest, title(rest, model), own),)
        return _branch(path, name, own, children) if children else _leaf(path, name, own)

    return part("")


def _counts(part: Part) -> bool:
    """Whether it learns, computes or keeps anything; where order enters is told in any case."""
    return bool(part.parameters or part.flops or part.bytes or part.path.endswith("places"))


def _leaf(path: str, name: str, own: ModuleStats) -> Part:
    shape, mean, spread = (None, None, None) if path.endswith(ITSELF) else own.output or (None, None, None)
    return Part(path, name, shape, own.parameters, own.flops, own.bytes, mean, spread,
                math.sqrt(own.gradient) if own.parameters else None)


def _branch(path: str, name: str, own: ModuleStats, children: tuple[Part, ...]) -> Part:
    """A part of parts; one that only holds another tells of that one's output."""
    shape, mean, spread = own.output or (children[0].shape, children[0].mean, children[0].std)
    felt = [child.gradient for child in children if child.gradient is not None]
    shown = children if len(children) > 1 else ()
    return Part(path, name, shape, sum(child.parameters for child in children), sum(child.flops for child in children),
                sum(child.bytes for child in children), mean, spread, math.hypot(*felt) if felt else None, shown)
