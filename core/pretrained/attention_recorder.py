"""Records the attention of a Hugging Face model and switches heads off, without changing the model.

Hugging Face models look their attention function up in a table, by name, and some branch by that name: an indexer's
mask is applied under "eager" and "sdpa" alone. So our entry is called "eager". It calls the eager function that the
family's own code names and, inside `with record_attention(…)`, records the call. The active recorder is a context
variable, so sessions that share one model do not see each other's calls. Some families put a gate or a norm
between this function and W_O; what a head writes is read, and replaced, at the input of W_O, by a hook for one call.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float
from torch import Tensor

from core.pretrained.layers import output_layer
from core.trace import Kind

EAGER = "eager"
HeadSet = frozenset[tuple[str, int, int | None]]
Patch = tuple[
    int, str, int, int | None, Tensor
]  # a row of the batch; kind, layer, head (None: all); out (T, H, E)
NO_HEADS: HeadSet = frozenset()
CROSS = ("crossattention", "cross_attention", "encoder_attn", "encdecattention", "cross_attn")


@dataclass(eq=False)
class AttentionCall:
    """One call of attention: q (B, H, T, D), k and v (B, G, S, D) after rotation, the weights, and the heads' outputs.

    `out` is what the weights make of v, `gated` what W_O gets of it: the same, but for families with a gate or a norm
    in between. `output` is W_O's module. Both are None where W_O was not found.

    `mask` is what the family's function adds to the scores, None where nothing is masked. `options` holds that
    function's other arguments: scaling, position_bias, softcap, … `probe` is a zero added to the weights, for
    gradients.
    """

    kind: Kind
    layer: int
    module: Any
    name: str
    weights: Float[Tensor, "B H T S"]
    q: Float[Tensor, "B H T D"] | None = None
    k: Float[Tensor, "B G S D"] | None = None
    v: Float[Tensor, "B G S E"] | None = None
    out: Float[Tensor, "B T H E"] | None = None
    gated: Float[Tensor, "N T H E"] | None = None
    output: Any = None
    mask: Tensor | None = None
    options: dict[str, Any] = field(default_factory=dict)
    probe: Tensor | None = None

    @property
    def replaceable(self) -> Float[Tensor, "B T H E"]:
        """The heads' outputs as patches replace them: at the input of W_O where it was found."""
        outputs = self.out if self.gated is None else self.gated
        assert outputs is not None
        return outputs


@dataclass(eq=False)
class AttentionRecorder:
    """Records the calls of one forward pass in order, and changes the heads in `off` and `uniform`."""

    model: Any
    names: dict[int, str]
    with_qkv: bool
    off: HeadSet
    probe: bool
    uniform: HeadSet = NO_HEADS
    patches: Sequence[Patch] = ()
    calls: list[AttentionCall] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    hooks: list[Any] = field(default_factory=list)

    def record(self, module: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, out: Tensor, weights: Tensor,
               options: dict[str, Any]) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Record one call; returns the output and the weights that the model continues with."""
        last = self.calls[-1] if self.calls else None
        # Differential attention calls twice a layer, once for each half of the values.
        repeated = (
            last
            if last is not None and last.module is module and hasattr(module, "lambda_init")
            else None
        )
        call = repeated or self._new_call(module, _less_sink(module, v, out, weights), mask)
        if call.probe is not None:
            out = out + (call.probe @ repeat_kv(v, weights.shape[1])).transpose(1, 2)
        key = (call.kind, call.layer)
        if heads := [head for *layer, head in self.uniform if tuple(layer) == key]:
            mean = (
                _make_uniform(weights, mask, call.kind) @ repeat_kv(v, weights.shape[1])
            ).transpose(1, 2)
            out = out + (mean - out) * _head_mask(out, heads)
        changes = any(one[:2] == key for one in self.off) or any(
            one[1:3] == key for one in self.patches
        )
        if (self.with_qkv or changes) and not hasattr(module, "lambda_init"):
            call.output = output_layer(self.model, call.name, out.shape[2] * out.shape[3])
        if call.output is not None:
            enter = partial(self._enter, call, out.shape, len(self.hooks))
            self.hooks.append(call.output.register_forward_pre_hook(enter))
        elif changes:
            out = self._changed(key, out, 0 if repeated is None else out.shape[-1])
        if self.with_qkv and call.v is not None and call.out is not None:
            call.v, call.out = torch.cat([call.v, v], -1), torch.cat([call.out, out], -1)
        elif self.with_qkv:
            call.q, call.k, call.v, call.out, call.options = q, k, v, out, options
        return out, weights

    def _enter(
        self,
        call: AttentionCall,
        shape: torch.Size,
        hook: int,
        module: Any,
        inputs: tuple[Any, ...],
    ) -> Any:
        """Record and change what W_O gets, once."""
        if _RECORDER.get() is not self:
            return None
        self.hooks[hook].remove()
        call.gated = self._changed((call.kind, call.layer), inputs[0].reshape(-1, *shape[1:]))
        return (call.gated.reshape(inputs[0].shape), *inputs[1:])

    def _changed(self, key: tuple[str, int], out: Float[Tensor, "B T H E"],
                 start: int = 0) -> Float[Tensor, "B T H E"]:  # fmt: skip
        """Heads' outputs with those of `off` zero and those of `patches` replaced, from dimension `start` on."""
        if heads := [head for *layer, head in self.off if tuple(layer) == key]:
            out = out * (1 - _head_mask(out, heads))
        if patches := [patch for patch in self.patches if patch[1:3] == key]:
            out = out.clone()
            for row, _, _, head, values in patches:
                which = slice(None) if head is None else head
                out[row, :, which] = values[:, which, start : start + out.shape[-1]]
        return out

    def _new_call(self, module: Any, weights: Tensor, mask: Tensor | None) -> AttentionCall:
        """Add the next layer of its kind."""
        name = self.names.get(id(module), "")
        kind = kind_of(name, module, weights, mask)
        call = AttentionCall(kind, self.counts[kind], module, name, weights, mask=mask)
        if self.probe:
            call.probe = torch.zeros_like(weights, requires_grad=True)
        self.counts[kind] += 1
        self.calls.append(call)
        return call


_RECORDER: ContextVar[AttentionRecorder | None] = ContextVar("recorder", default=None)
_NAMES: WeakKeyDictionary[Any, dict[int, str]] = WeakKeyDictionary()


@contextmanager
def record_attention(model: Any, with_qkv: bool = False, off: HeadSet = NO_HEADS, probe: bool = False,
                     uniform: HeadSet = NO_HEADS,
                     patches: Sequence[Patch] = ()) -> Iterator[AttentionRecorder]:  # fmt: skip
    """Record the attention of one forward pass in this thread: weights, and with `with_qkv` also q, k, v and outputs.

    `off` are (kind, layer, head) whose output becomes zero, as if W_O had no columns for them; head None is every head
    of the layer. `uniform` are heads whose weights become equal on all visible keys, `patches` heads whose outputs are
    replaced in one row of the batch. Layers are numbered from the beginning of the `with` block.
    """
    if (names := _NAMES.get(model)) is None:
        names = _NAMES[model] = {id(module): name for name, module in model.named_modules()}
    recorder = AttentionRecorder(model, names, with_qkv, off, probe, uniform, patches)
    token = _RECORDER.set(recorder)
    try:
        yield recorder
    finally:
        _RECORDER.reset(token)
        for hook in recorder.hooks:
            hook.remove()


def kind_of(name: str, module: Any, weights: Float[Tensor, "B H T S"], mask: Tensor | None) -> Kind:
    """The kind of a call by the module's name, its `is_causal`, or its mask."""
    if any(sign in name.lower() for sign in CROSS):
        return "cross"
    causal = getattr(module, "is_causal", None)
    if causal is True:
        return "causal"
    if mask is None or mask.ndim != 4:
        return "causal" if causal is None and is_lower_triangular(weights) else "self"
    return "causal" if is_lower_triangular(bool_mask(mask)) else "self"


def bool_mask(mask: Tensor) -> Tensor:
    """A mask as bool, True = may attend; one that is added to the scores is converted."""
    return mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2


def is_lower_triangular(cells: Tensor) -> bool:
    """Whether weights or a mask are square and zero above the diagonal."""
    rows, columns = cells.shape[-2:]
    return rows == columns > 1 and not bool(cells.triu(1).any())


def repeat_kv(values: Float[Tensor, "B G S E"], heads: int) -> Float[Tensor, "B H S E"]:
    """Repeat key or value heads so that each query head has its own (grouped-query attention)."""
    return values.repeat_interleave(heads // values.shape[1], dim=1)


def _less_sink(
    module: Any, v: Tensor, out: Tensor, weights: Float[Tensor, "B H T S"]
) -> Float[Tensor, "B H T S"]:
    """The weights that make the output of v, where a family takes the share of a learned sink off the output."""
    if not hasattr(module, "sinks") or bool((weights.sum(-1) < 0.999).any()):
        return weights
    mean = (weights @ repeat_kv(v, weights.shape[1])).transpose(1, 2)
    share = (out * mean).sum(-1) / mean.square().sum(-1).clamp(min=1e-30)  # (B, T, H)
    return weights * share.transpose(1, 2)[..., None]


def _head_mask(out: Float[Tensor, "B T H E"], heads: list[int | None]) -> Float[Tensor, "H 1"]:
    """1 for the listed heads, 0 for the others; None means all heads."""
    named = torch.zeros(out.shape[2], 1, dtype=out.dtype, device=out.device)
    named[slice(None) if None in heads else [head for head in heads if head is not None]] = 1
    return named


def _make_uniform(
    weights: Float[Tensor, "B H T S"], mask: Tensor | None, kind: Kind
) -> Float[Tensor, "B H T S"]:
    """Weights with the same row sums, equal on every visible key."""
    allowed = torch.ones_like(weights)
    if mask is not None:
        allowed = allowed * bool_mask(mask[..., : weights.shape[-1]])
    elif kind == "causal":
        allowed = allowed.tril()
    return allowed * (weights.sum(-1, keepdim=True) / allowed.sum(-1, keepdim=True).clamp(min=1))


def recorded_attention(module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None,
                      **options: Any) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Our entry in Hugging Face's table: the family's own eager attention, recorded where a recorder is active."""
    names, name = _eager_name(module.__class__)
    out, weights = names[name](module, query, key, value, attention_mask, **options)
    recorder = _RECORDER.get()
    if recorder is None:
        return out, weights
    return recorder.record(module, query, key, value, attention_mask, out, weights, options)


@cache
def _eager_name(kind: type) -> tuple[dict[str, Any], str]:
    """The eager attention that a module's code names as its default: the names of its file, and which one."""
    return next(
        (method.__globals__, name)
        for method in _methods(kind)
        for name in method.__code__.co_names
        if name.endswith("eager_attention_forward") and name in method.__globals__
    )


def make_recordable(model: Any) -> bool:
    """Let a newly loaded model call our entry; False unless all its attention goes through it."""
    from transformers import AttentionInterface

    AttentionInterface.register(EAGER, recorded_attention)
    if not model._can_set_attn_implementation():
        return False
    model.set_attn_implementation(EAGER)
    for module in model.modules():
        if getattr(
            module, "reorder_and_upcast_attn", False
        ):  # GPT-2's order of operations for fp16, in its own code
            module.reorder_and_upcast_attn = False
    return not any(_own_code(kind) for kind in {type(module) for module in model.modules()})


def _own_code(kind: type) -> bool:
    """Whether a module class computes attention weights itself, where they cannot be recorded."""
    if "ttention" not in kind.__name__:
        return False
    # Names of compiled code: Python 3.11 cannot read a class's source in two threads at once.
    names = {name for method in _methods(kind) for name in method.__code__.co_names}
    return "softmax" in names and "get_interface" not in names


def _methods(kind: type) -> Iterator[Any]:
    """The functions of a class and those that it inherits, without their decorators."""
    for one in kind.__mro__[: kind.__mro__.index(torch.nn.Module)]:
        yield from (
            inspect.unwrap(value) for value in vars(one).values() if inspect.isfunction(value)
        )
