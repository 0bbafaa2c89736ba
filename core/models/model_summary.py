"""A model as a tree of parts, each with its output, parameters, flops, stored bytes and gradient.

All of it is measured in one forward and backward pass on a real batch, so it holds for any mechanism.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry, sdpa_flop_count

from core.attention.base import Position
from core.models.base import (
    FeatureEmbedding,
    Model,
    ModelOutput,
    Positions,
    TokenEmbedding,
    hooked,
)

ITSELF = "itself"  # the share of a part that is in none of its children
NAMES = {
    "": "Model",
    "source_places": "Positions of the source",
    "target_places": "Positions of the target",
    "places": "Positions",
    "target": "Target embedding",
    "encoder": "Encoder",
    "attention": "Self-attention",
    "causal": "Causal self-attention",
    "cross": "Cross-attention",
    "around_attention": "Add and norm",
    "around_causal": "Add and norm",
    "around_cross": "Add and norm",
    "around_feed_forward": "Add and norm",
    "feed_forward": "Feed-forward",
    "read": "Attention over depth",
    "mixing": "Weights of the streams",
    "inner": "Inner map",
    "outer": "Outer map",
    "gate": "Gate",
    "output": "Output",
    "projection": "Projections",
    "query": "W_q",
    "key": "W_k",
    "value": "W_v",
    "norm": "Norm",
    "token": "Words",
    "position": "Position",
    "score": "Score",
    "normalizer": "Normalizer",
    "kernel": "Kernel",
    "mask": "Mask",
    "words": "Words of each sentence",
    "sentences": "Sentences of the document",
}
SOURCES = {TokenEmbedding: "Word embedding", FeatureEmbedding: "Column embedding"}
OWN_SHARE = {
    "attention": "Scores, softmax, weights · v",
    "causal": "Scores, softmax, weights · v",
    "cross": "Scores, softmax, weights · v",
    "feed_forward": "Activation",
    "": "How they are combined",
}


def title(path: str, model: nn.Module) -> str:
    """The name of the part at that path."""
    above, _, last = path.rpartition(".")
    if last == ITSELF:
        return OWN_SHARE.get(above.rpartition(".")[2], "Sums and scales")
    if last.isdecimal():
        if not above.endswith("layers"):
            return f"Column {last}"
        names = getattr(getattr(model, "config", None), "layer_names", ())  # of our own models
        return layer_title(above, int(last), names)
    if path == "target" and getattr(model, "source", None) is getattr(model, "target", None):
        return "Word embedding"  # of one sequence, input and output
    if last == "source":
        return SOURCES.get(type(model.get_submodule(path)), "Linear map of the input")
    if last == "norm" and above in ("", "encoder"):
        return "Last norm"
    if last == "output" and above:
        return "W_o"
    return NAMES.get(last, last.replace("_", " ").capitalize())


def layer_title(stack: str, layer: int, names: tuple[str, ...]) -> str:
    """A layer's number, with what its attention has unlike those of the other layers: its name, if layers have any."""
    number = f"{'Layer' if stack.startswith('encoder') else 'Decoder layer'} {layer}"
    return f"{number}: {names[layer]}" if names and names[layer] else number


@dataclass(frozen=True)
class Part:
    """One part of a model; its parameters, flops and bytes are the sums of its children's.

    `shape` is that of its output on the batch (None where it has none), `mean` and `std` those of the output, `flops`
    count its matrix products forwards (a multiply and an add are two), `bytes` is what it stores for the backward pass,
    `gradient` the norm of the loss's gradient in its parameters.
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
        """This part and all parts within it, from the top down."""
        yield self
        for child in self.children:
            yield from child.walk()

    def layers(self) -> tuple[Part, ...]:
        """The layers of attention and feed-forward, in their order."""
        return tuple(part for part in self.walk() if part.path.rpartition(".")[2].isdecimal())


@dataclass
class ModuleStats:
    """Measurements of one module, its children left out; `turn` is its rank in the order of execution."""

    turn: int
    parameters: int = 0
    flops: int = 0
    bytes: int = 0
    output: tuple[tuple[int, ...], float, float] | None = None
    gradient: float = 0.0  # squared


class ModuleRecorder(TorchDispatchMode):
    """Counts flops and bytes stored for the backward pass, for the innermost running module. The formulas are those of
    torch.utils.flop_counter; the counts equal FlopCounterMode's (tested)."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.stats, self.running = {"": ModuleStats(0)}, [""]
        self.embedded: dict[str, Tensor] = {}
        self.storages = {
            s.data_ptr(): s for s in (weight.untyped_storage() for weight in model.parameters())
        }

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or torch imports its compiler (2 s, 800 modules), as its own FlopCounterMode does

    def of(self, path: str) -> ModuleStats:
        return self.stats.setdefault(path, ModuleStats(len(self.stats)))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.of(self.running[-1]).flops += flops(func, args, kwargs or {}, out)
        return out

    def keep(self, tensor: Tensor) -> Tensor:
        """Count a tensor that is stored for the backward pass, once, weights left out."""
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self.storages:
            # referenced, so that its address is not used again
            self.storages[storage.data_ptr()] = storage
            self.of(self.running[-1]).bytes += storage.nbytes()
        return tensor

    def hooks(self, path: str, module: nn.Module) -> list[Any]:
        def enter(*_: Any) -> None:
            self.of(path)
            self.running.append(path)

        def leave(module: nn.Module, inputs: Any, output: Any) -> None:
            self.running.pop()
            tensor = main_output(output)
            if tensor is not None and isinstance(module, TokenEmbedding):
                tensor = self.embedded[path] = joined(self.embedded.get(path), tensor.detach())
            if tensor is not None and (self.of(path).output is None or path in self.embedded):
                values = tensor.detach().float()
                self.of(path).output = (
                    tuple(tensor.shape),
                    values.mean().item(),
                    values.std(correction=0).item(),
                )

        return [module.register_forward_pre_hook(enter), module.register_forward_hook(leave)]


def flops(func: Any, args: Any, kwargs: Any, out: Any) -> int:
    """The flops of one operation, 0 unless it is a matrix product or a fused attention."""
    # not in torch's own list
    if func._overloadpacket is torch.ops.aten._scaled_dot_product_flash_attention_for_cpu:
        return int(sdpa_flop_count(*(tensor.shape for tensor in args[:3])))
    count = flop_registry.get(func._overloadpacket)
    return 0 if count is None else int(count(*args, **kwargs, out_val=out))


def summarize(
    model: Model, inputs: tuple[Tensor | None, ...], loss: Callable[[Tensor], Tensor]
) -> Part:
    """The model as a tree of parts, by one pass over `inputs` (source, source_mask, target_in) and back from `loss`;
    the model's gradients are reset."""
    model.zero_grad(set_to_none=True)
    recorder = ModuleRecorder(model)
    hooks = (
        handle for path, module in model.named_modules() for handle in recorder.hooks(path, module)
    )
    with (
        hooked(hooks),
        torch.enable_grad(),
        recorder,
        torch.autograd.graph.saved_tensors_hooks(recorder.keep, lambda tensor: tensor),
    ):
        logits = model(*inputs).logits
    with torch.enable_grad():
        loss(logits).backward()
    for name, weight in model.named_parameters():
        owner = recorder.of(name.rpartition(".")[0])
        owner.parameters += weight.numel()
        owner.gradient += 0.0 if weight.grad is None else float(weight.grad.square().sum())
    model.zero_grad(set_to_none=True)
    return _tree(model, recorder.stats)


def joined(before: Tensor | None, tensor: Tensor) -> Tensor:
    """All that an embedding has put out, (B, T, C): of the source, then of the target where it reads both."""
    return tensor if before is None else torch.cat((before, tensor), 1)


def main_output(output: Any) -> Tensor | None:
    """The tensor of a module's output that the next module reads."""
    if isinstance(output, ModelOutput):
        return output.logits
    if isinstance(output, tuple):
        return main_output(output[0])
    output = getattr(output, "merged", output)  # an attention's Steps
    return output if isinstance(output, Tensor) and output.is_floating_point() else None


def _tree(model: nn.Module, stats: dict[str, ModuleStats]) -> Part:
    children_of: dict[str, list[str]] = defaultdict(list)
    for path, module in model.named_modules():
        if path and not isinstance(module, nn.ModuleList):  # a list is no part: its items are
            above = path.rpartition(".")[0]
            listed = above and isinstance(model.get_submodule(above), nn.ModuleList)
            children_of[above.rpartition(".")[0] if listed else above].append(path)

    adds_positions = {
        path
        for path, module in model.named_modules()
        if isinstance(module, Positions) and type(module.position).add is not Position.add
    }

    def turn(path: str) -> float:
        return min([stats[path].turn if path in stats else math.inf, *map(turn, children_of[path])])

    def part(path: str) -> Part:
        own = stats.get(path, ModuleStats(0))
        parts = map(part, sorted(children_of[path], key=turn))
        # Positions that are added are shown, other parts where they have parameters, flops or bytes.
        children = tuple(
            one
            for one in parts
            if one.parameters or one.flops or one.bytes or one.path in adds_positions
        )
        if children and (own.flops or own.bytes or own.parameters):
            rest = f"{path}.{ITSELF}"
            children += (_part(rest, title(rest, model), replace(own, output=None)),)
        return _part(path, title(path, model), own, children)

    return part("")


def _part(path: str, name: str, own: ModuleStats, children: tuple[Part, ...] = ()) -> Part:
    """A part, with the sums of its children where it has any. One without an output of its own has its first child's, and
    an only child is left out, unless it is a layer."""
    shape, mean, std = own.output or (None, None, None)
    if children and own.output is None:
        shape, mean, std = children[0].shape, children[0].mean, children[0].std
    own_gradient = math.sqrt(own.gradient) if own.parameters else None
    gradients = [one.gradient for one in children] if children else [own_gradient]
    known = [gradient for gradient in gradients if gradient is not None]
    alone = len(children) == 1 and not children[0].path.rpartition(".")[2].isdecimal()
    return Part(
        path,
        name,
        shape,
        sum(one.parameters for one in children or (own,)),
        sum(one.flops for one in children or (own,)),
        sum(one.bytes for one in children or (own,)),
        mean,
        std,
        math.hypot(*known) if known else None,
        () if alone else children,
    )


def with_layers(tree: Part, layers: int, names: tuple[str, ...] = ()) -> Part:
    """The tree of a model of `layers` layers, from that of one whose layers are the whole pattern, which repeats.

    `names` are the `layer_names` of the deep model's config. Shapes, parameters and flops are those of the deep
    model; what only a pass through it tells (mean, std and gradient, and the bytes that layers store) is None or 0.
    """
    children = tuple(_repeated(tree, layers, names))
    part = replace(tree, mean=None, std=None, gradient=None, bytes=0, children=children)
    return (
        part
        if not children
        else replace(
            part,
            parameters=sum(child.parameters for child in children),
            flops=sum(child.flops for child in children),
        )
    )


def _repeated(tree: Part, layers: int, names: tuple[str, ...]) -> Iterator[Part]:
    """The children of a part; where they are layers, as many as the deep model has."""
    pattern = [with_layers(part, layers, names) for part in tree.children if _is_layer(part)]
    for child in tree.children:
        if not _is_layer(child):
            yield with_layers(child, layers, names)
        elif child.path == pattern[0].path:
            stack = child.path.rpartition(".")[0]
            for index in range(layers):
                like = pattern[index % len(pattern)]
                yield replace(
                    _moved(like, f"{stack}.{index}", len(like.path)),
                    title=layer_title(stack, index, names),
                )


def _is_layer(part: Part) -> bool:
    stack, _, last = part.path.rpartition(".")
    return stack.endswith("layers") and last.isdecimal()


def _moved(part: Part, path: str, cut: int) -> Part:
    return replace(
        part,
        path=path + part.path[cut:],
        children=tuple(_moved(child, path, cut) for child in part.children),
    )


@contextmanager
def record_outputs(model: Model) -> Iterator[dict[str, Tensor]]:
    """The main output of every module by its path, as the module last ran; the hooks are removed at the end.

    An embedding that reads the source and then the target has both, one after the other.
    """
    outputs: dict[str, Tensor] = {}

    def record(path: str, module: object, inputs: object, output: object) -> None:
        tensor = main_output(output)
        if tensor is not None:
            before = outputs.get(path) if isinstance(module, TokenEmbedding) else None
            outputs[path] = joined(before, tensor.detach())

    with hooked(
        module.register_forward_hook(partial(record, path))
        for path, module in model.named_modules()
        if path
    ):
        yield outputs
