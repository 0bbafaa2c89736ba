"""Why this key: the score of one query and one key as a sum over what the model wrote at both tokens before.

A score is bilinear in q and k. With the scale of each norm held at its value, q is a linear map of what was added to the
residual stream at its token: the embedding, each earlier head, each feed-forward network, and biases. So is k. One
backward pass a dimension gives that map for rotation, grouped heads, norms of q and k, and low-rank projections alike.
After Elhage et al. 2021, A Mathematical Framework for Transformer Circuits.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from core.interpret.circuits import norm_gain, norms_of
from core.interpret.evidence import layer_attention
from core.interpret.patching import blocks_of, states_of, with_states
from core.interpret.trace import Kind, head_name, to_numpy
from core.models.base import hooked
from core.pretrained import (
    AttentionCall,
    ModelInputs,
    Pretrained,
    encode,
    forward,
    numbers_by_layer,
    reject_if,
)

Part = Literal["embedding", "position", "segment", "head", "feed-forward", "biases"]
ROUNDING = 1e-4  # of the largest part: how far the parts may be from the whole


@dataclass(frozen=True)
class Source:
    """What wrote a part of a query or a key: a layer's head or feed-forward network, an embedding, or all biases."""

    part: Part
    layer: int | None = None
    head: int | None = None

    @property
    def name(self) -> str:
        if self.layer is None:
            return self.part
        if self.head is not None:
            return head_name(self.layer, self.head)
        return f"L{self.layer} {self.part}"


@dataclass(frozen=True, eq=False)
class ScoreSources:
    """One score, split: `parts` (A, B) is scale · q_a·k_b of each source at the query and at the key.

    `q_parts` (A, D) add up to the query and `k_parts` (B, D) to the key, after rotation. `bias` is what is added to the
    scaled product: a position bias, a mask's. `score` is their sum with all parts, before a softcap.
    """

    q_sources: tuple[Source, ...]
    k_sources: tuple[Source, ...]
    q_parts: Float[np.ndarray, "A D"]
    k_parts: Float[np.ndarray, "B D"]
    scale: float
    bias: float

    @property
    def parts(self) -> Float[np.ndarray, "A B"]:
        return self.scale * self.q_parts @ self.k_parts.T

    @property
    def score(self) -> float:
        return float(self.parts.sum()) + self.bias


@dataclass(eq=False)
class Writes:
    """What modules add to the residual stream at two tokens while a pass runs, as leaves of its graph."""

    rows: tuple[int, int]  # the query's and the key's
    leaves: list[Tensor]
    modules: list[tuple[str, Any]]  # what wrote each: "head", "feed-forward", …, and its module

    def leaf(self, states: Tensor, part: str, module: Any) -> Tensor:
        """The states with a leaf at the two tokens, cut off from what made them."""
        at = [min(row, states.shape[-2] - 1) for row in self.rows]
        leaf = states.detach()[..., at, :].requires_grad_()
        self.leaves.append(leaf)
        self.modules.append((part, module))
        first = states.detach().index_copy(-2, torch.tensor(at[:1], device=states.device), leaf[..., :1, :])
        if at[0] == at[1]:
            return first
        return first.index_copy(-2, torch.tensor(at[1:], device=states.device), leaf[..., 1:, :])


def _linear_norm(norm: Any, args: tuple[Any, ...], output: Any) -> Any:
    """A norm's output as a linear map of its input: its scale is that of this pass."""
    if len(args) != 1 or not isinstance(output, Tensor) or output.shape != args[0].shape:
        return None
    _, centers = norm_gain(norm, args[0].shape[1:])
    given = args[0] - args[0].mean(-1, keepdim=True) if centers else args[0]
    bias = getattr(norm, "bias", None)
    made = output.detach() if bias is None else output.detach() - bias.detach()
    safe = torch.where(given.detach() == 0, 1.0, given.detach())
    factor = torch.where(given.detach() == 0, 0.0, made / safe)
    return output.detach() + factor * (given - given.detach())


@contextmanager
def _record_writes(model: Any, calls: Sequence[AttentionCall], writes: Writes) -> Iterator[None]:
    names = {call.output: "head" for call in calls if call.output is not None}
    inner = [name for _, name in blocks_of(model, calls).values() if name]

    def heads(module: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return (writes.leaf(inputs[0], "head", module), *inputs[1:])

    def output(part: str, module: Any, inputs: Any, output: Any) -> Any:
        return with_states(output, writes.leaf(states_of(output), part, module))

    embeddings = [
        (module, "position" if "pos" in name else "segment" if "type" in name else "embedding")
        for name, module in model.named_modules()
        if isinstance(module, nn.Embedding) and "relative" not in name
    ]
    with (
        hooked(module.register_forward_pre_hook(heads) for module in names),
        hooked(
            model.get_submodule(name).register_forward_hook(partial(output, "feed-forward"))
            for name in inner
        ),
        hooked(module.register_forward_hook(partial(output, part)) for module, part in embeddings),
        hooked(norm.register_forward_hook(_linear_norm) for norm in norms_of(model)),
    ):
        yield


def explain_score(
    pretrained: Pretrained,
    inputs: ModelInputs,
    layer: int,
    head: int,
    query: int,
    key: int,
    kind: Kind | None = None,
) -> ScoreSources:
    """Split the score of one query and one key of a head by what wrote them. `layer` is its index among those of its kind.

    PretrainedError where there is no such head or token, or where a state is no sum of the parts that can be found.
    """
    batch, *_ = encode(pretrained, inputs)
    _, plain = forward(pretrained, batch, with_qkv=True)
    kinds = [call.kind for call in plain.calls]
    kind = kind or kinds[-1]
    place = next(i for i, call in enumerate(plain.calls) if (call.kind, call.layer) == (kind, layer))
    numbers = numbers_by_layer(pretrained.model, plain.calls)
    writes = Writes((query, key), [], [])
    _, recorder = forward(
        pretrained,
        batch,
        with_qkv=True,
        probe=True,
        hooks=_record_writes(pretrained.model, plain.calls, writes),
    )
    call = recorder.calls[place]
    group = head * call.k.shape[1] // call.q.shape[1]
    attention = layer_attention(call)
    ends = []
    for vector, row in ((call.q[0, head, query], 0), (call.k[0, group, key], 1)):
        ends.append(_split(vector, row, writes, plain.calls, numbers, pretrained))
    (q_sources, q_parts), (k_sources, k_parts) = ends
    bias = 0.0
    if attention.bias is not None:
        bias = float(attention.bias.expand(len(attention.q), -1, -1)[head, query, key])
    return ScoreSources(q_sources, k_sources, q_parts, k_parts, attention.scale, bias)


def _split(vector: Float[Tensor, " D"], row: int, writes: Writes, calls: Sequence[AttentionCall],
           numbers: Any, pretrained: Pretrained) -> tuple[tuple[Source, ...], np.ndarray]:  # fmt: skip
    """The parts (A, D) of a query or a key, which add up to it, and what wrote each."""
    slopes = torch.autograd.grad(
        vector,
        writes.leaves,
        torch.eye(len(vector), dtype=vector.dtype, device=vector.device),
        retain_graph=True,
        is_grads_batched=True,
        allow_unused=True,
    )
    passes = dict[Any, int]()
    sources, parts = list[Source](), list[Tensor]()
    blocks = {name: key for key, (_, name) in blocks_of(pretrained.model, calls).items()}
    module_names = {module: name for name, module in pretrained.model.named_modules()}
    for (part, module), leaf, slope in zip(writes.modules, writes.leaves, slopes, strict=True):
        times = passes[module] = passes.get(module, -1) + 1
        if slope is None:
            continue
        at = (slope * leaf.detach())[..., row, :].flatten(1, -2).sum(1)  # (D, C)
        if part == "head":
            call = [one for one in calls if one.output is module][times]
            layer, heads = numbers[call.kind, call.layer], call.gated.shape[2]
            by_head = at.unflatten(-1, (heads, -1)).sum(-1).T
            sources += [Source("head", layer, one) for one in range(heads)]
            parts += [*by_head]
        else:
            layer = None
            if part == "feed-forward":
                layer = numbers[blocks[module_names[module]]]
            sources.append(Source(part, layer))
            parts.append(at.sum(-1))
    used = torch.stack(parts)
    rest = vector.detach() - used.sum(0)
    return (*sources, Source("biases")), to_numpy(torch.cat([used, rest[None]]))
