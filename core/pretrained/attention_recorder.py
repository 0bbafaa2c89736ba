"""The seam through which attention is seen and switched off, without a hook on the model and without changing it.

Hugging Face models call their attention by a name that is looked up in a table. Ours stands in that table as
`attention_lab`: it calls the family's own eager function and, inside `with watching(…)`, keeps what went through. Who
watches is a context variable, so sessions that share one model never see each other.
"""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float
from torch import Tensor

from core.trace import Kind

NAME = "attention_lab"
EAGER = "eager_attention_forward"
HeadSet = frozenset[tuple[str, int, int | None]]
NO_HEADS: HeadSet = frozenset()
CROSS = ("crossattention", "cross_attention", "encoder_attn", "encdecattention", "cross_attn")


@dataclass(eq=False)
class AttentionCall:
    """One call of attention: q (B, H, T, D) and k, v (B, G, S, D) as they meet, the weights, and the heads' outputs.

    `mask` is what the family's function adds to the scores, None where every key may be seen. `extra` holds what else
    that function was told: scaling, position_bias, softcap, … `probe` is a zero that was added to the weights, for
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
    mask: Tensor | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    probe: Tensor | None = None


@dataclass(eq=False)
class AttentionRecorder:
    """What is kept of each call, which heads are off or look evenly, and the calls so far, in order."""

    place: Callable[[Any], str]
    whole: bool
    off: HeadSet
    probe: bool
    even: HeadSet = NO_HEADS
    seen: list[AttentionCall] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)

    def call(self, module: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, out: Tensor, weights: Tensor,
             extra: dict[str, Any]) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Keep one call; the output and the weights that go on."""
        before = self.seen[-1] if self.seen else None
        again = before if before is not None and before.module is module and hasattr(module, "lambda_init") else None
        seen = again or self._new(module, weights, mask)
        if seen.probe is not None:
            out = out + (seen.probe @ repeat_kv(v, weights.shape[1])).transpose(1, 2)
        here = (seen.kind, seen.layer)
        if level := [head for *at, head in self.even if tuple(at) == here]:
            meant = (_evened(weights, mask, seen.kind) @ repeat_kv(v, weights.shape[1])).transpose(1, 2)
            out = out + (meant - out) * _of(out, level)
        if gone := [head for *at, head in self.off if tuple(at) == here]:
            out = _switched_off(out, gone)
        if self.whole and seen.v is not None and seen.out is not None:
            seen.v, seen.out = torch.cat([seen.v, v], -1), torch.cat([seen.out, out], -1)
        elif self.whole:
            seen.q, seen.k, seen.v, seen.out, seen.extra = q, k, v, out, extra
        return out, weights

    def _new(self, module: Any, weights: Tensor, mask: Tensor | None) -> AttentionCall:
        """The next layer of its kind. Differential attention asks twice a layer, once for each half of the values."""
        name = self.place(module)
        kind = kind_of(name, module, weights, mask)
        seen = AttentionCall(kind, self.calls[kind], module, name, weights, mask=mask)
        if self.probe:
            seen.probe = torch.zeros_like(weights, requires_grad=True)
        self.calls[kind] += 1
        self.seen.append(seen)
        return seen


_RECORDER: ContextVar[AttentionRecorder | None] = ContextVar("watch", default=None)
_NAMES: WeakKeyDictionary[Any, dict[int, str]] = WeakKeyDictionary()


@contextmanager
def record_attention(model: Any, whole: bool = False, off: HeadSet = NO_HEADS, probe: bool = False,
             even: HeadSet = NO_HEADS) -> Iterator[AttentionRecorder]:  # fmt: skip
    """Watch the forward passes of this thread: `whole` keeps q, k, v and more beside the weights.

    `off` are (kind, layer, head) whose output is zero, as if W_O had no columns for them; head None is every head of
    the layer. `even` are those that weigh alike all keys that they may see, whatever their scores. One `with` is one
    forward pass: layers are counted from its beginning.
    """
    if (names := _NAMES.get(model)) is None:
        names = _NAMES[model] = {id(module): name for name, module in model.named_modules()}
    token = _RECORDER.set(AttentionRecorder(lambda module: names.get(id(module), ""), whole, off, probe, even))
    try:
        watch = _RECORDER.get()
        assert watch is not None
        yield watch
    finally:
        _RECORDER.reset(token)


def kind_of(name: str, module: Any, weights: Float[Tensor, "B H T S"], mask: Tensor | None) -> Kind:
    """Whether a call is self-, causal or cross-attention, by the module's name, what it says of itself, its mask."""
    if any(sign in name.lower() for sign in CROSS):
        return "cross"
    causal = getattr(module, "is_causal", None)
    if causal is True:
        return "causal"
    if mask is None or mask.ndim != 4:
        return "causal" if causal is None and _looks_back(weights) else "self"
    seen = mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2
    return "causal" if _looks_back(seen) else "self"


def _looks_back(cells: Tensor) -> bool:
    """Whether nothing stands above the diagonal of these weights, or of these cells that may be seen."""
    rows, columns = cells.shape[-2:]
    return rows == columns > 1 and not bool(cells.triu(1).any())


def repeat_kv(values: Float[Tensor, "B G S E"], heads: int) -> Float[Tensor, "B H S E"]:
    """Key or value heads repeated so that each of the query heads has its own (grouped-query attention)."""
    return values.repeat_interleave(heads // values.shape[1], dim=1)


def _switched_off(out: Float[Tensor, "B T H E"], heads: list[int | None]) -> Float[Tensor, "B T H E"]:
    return out * (1 - _of(out, heads))


def _of(out: Float[Tensor, "B T H E"], heads: list[int | None]) -> Float[Tensor, "H 1"]:
    """One for the heads that are named, zero for the others; None names them all."""
    named = torch.zeros(out.shape[2], 1, dtype=out.dtype, device=out.device)
    named[slice(None) if None in heads else [head for head in heads if head is not None]] = 1
    return named


def _evened(weights: Float[Tensor, "B H T S"], mask: Tensor | None, kind: Kind) -> Float[Tensor, "B H T S"]:
    """Weights of the same sum that are alike on every key that may be seen."""
    allowed = torch.ones_like(weights)
    if mask is not None:
        mask = mask[..., :weights.shape[-1]]
        allowed = allowed * (mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2)
    elif kind == "causal":
        allowed = allowed.tril()
    return allowed * (weights.sum(-1, keepdim=True) / allowed.sum(-1, keepdim=True).clamp(min=1))


def recorded_attention(module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None,
                      **extra: Any) -> tuple[Tensor, Tensor]:  # fmt: skip
    """What stands in Hugging Face's table: the family's own eager attention, and a word to whoever watches."""
    home = vars(sys.modules[type(module).__module__])
    eager = home.get(EAGER) or next(one for name, one in home.items() if name.endswith(EAGER))
    out, weights = eager(module, query, key, value, attention_mask, **extra)
    watch = _RECORDER.get()
    if watch is None:
        return out, weights
    return watch.call(module, query, key, value, attention_mask, out, weights, extra)


def register() -> None:
    """Put our name into Hugging Face's tables, beside a mask of the kind that eager attention takes."""
    from transformers import AttentionInterface
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask

    AttentionInterface.register(NAME, recorded_attention)
    ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, eager_mask)


def make_recordable(model: Any) -> bool:
    """Let a freshly loaded model call its attention by our name; False unless all its attention is called so."""
    register()
    if not model._can_set_attn_implementation():
        return False
    model.set_attn_implementation(NAME)
    return not any(_own_code(kind) for kind in {type(module) for module in model.modules()})


def _own_code(kind: type) -> bool:
    """Whether a class of modules makes weights of attention by itself, where nobody can watch."""
    if "ttention" not in kind.__name__:
        return False
    methods = [inspect.unwrap(value) for value in vars(kind).values() if inspect.isfunction(value)]
    # Names of compiled code: Python 3.11 cannot read a class's source in two threads at once.
    names = {name for method in methods for name in method.__code__.co_names}
    return "softmax" in names and "get_interface" not in names
