"""Records the attention of a Hugging Face model and switches heads off, without changing the model.

Hugging Face models look their attention function up in a table, by name, and some branch by that name: an indexer's
mask is applied under "eager" and "sdpa" alone. So our entry is called "eager". It calls the eager function that the
family's own code names and, inside `with record_attention(…)`, records the call. The active recorder is a context
variable, so sessions that share one model do not see each other's calls. Some families put a gate or a norm
between this function and W_O; what a head writes is read, and replaced, at the input of W_O, by a hook for one call.

Older families multiply queries, keys and values in their own code. While a module named in `OWN_CODE` runs, its products
are watched: one whose result goes into the softmax is queries by keys, the one of what comes out is weights by values.

A function that a person registered with `AttentionInterface`, and that the config names, runs in place of the family's;
its weights are read from what it calls (`module_reader`).

Layers without softmax call a function that is linear in their values; its matrix is recorded as weights (`state_layers`).
"""

import inspect
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import groupby
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

from core.attention import Absent
from core.attention.base import repeat_heads
from core.interpret.trace import Kind
from core.pretrained.base import reject_if, text_config
from core.pretrained.module_reader import STACK, read_function, stack_numbers
from core.pretrained.state_layers import (
    CONVOLUTION,
    KERNELS,
    LIGHTNING,
    Kernel,
    as_given,
    by_heads,
    carried,
    decayed_products,
    first,
    groups_of,
    state_matrix,
)

EAGER = "eager"
HeadSet = frozenset[tuple[str, int, int | None]]
# a row of the batch; kind, layer, head (None: all); out (T, H, E)
Patch = tuple[int, str, int, int | None, Tensor]
# the index of a call, q, k, v → the q, k and v that it gets
ChangeQKV = Callable[..., Sequence[Tensor]]
NO_HEADS: HeadSet = frozenset()
CROSS = (
    *("crossattention", "cross_attention", "encoder_attn", "encdecattention", "cross_attn"),
    "encoder_decoder_attention",
)


@dataclass(eq=False)
class AttentionCall:
    """One call of attention: q (B, H, T, D), k and v (B, G, S, D) after rotation, the weights, and the heads' outputs.

    `out` is what the weights make of v, `gated` what W_O gets of it: the same, but for families with a gate or a norm
    in between. `output` is W_O's module. Both are None where W_O was not found.

    `mask` is what the family's function adds to the scores, None where nothing is masked. `options` holds that
    function's other arguments: scaling, position_bias, softcap, … `probe` is a zero added to the weights, for
    gradients. `rotations` are what was rotated for this call, before and after, in the family's own shapes.

    A layer without softmax says in `state` what it is. It has no q and k, and its weights, which may be negative, are
    computed when they are first read. `mean` says that each channel has a matrix of its own, and that the weights are
    means of a head's channels, so they do not make `out` of v.
    """

    kind: Kind
    layer: int
    module: Any
    name: str
    given: Tensor | Callable[[], Tensor]  # the weights, or what computes them
    q: Float[Tensor, "B H T D"] | Absent = None  # this and the next three: with_qkv alone
    k: Float[Tensor, "B G S D"] | Absent = None
    v: Float[Tensor, "B G S E"] | Absent = None
    out: Float[Tensor, "B T H E"] | Absent = None
    gated: Float[Tensor, "N T H E"] | None = None
    output: Any = None
    mask: Tensor | None = None
    options: dict[str, Any] = field(default_factory=dict)
    probe: Tensor | None = None
    rotations: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    state: str = ""
    mean: bool = False

    @property
    def weights(self) -> Float[Tensor, "B H T S"]:
        if not isinstance(self.given, Tensor):
            self.given = self.given().cpu()
        return self.given

    @property
    def replaceable(self) -> Float[Tensor, "B T H E"]:
        """The heads' outputs as patches replace them: at the input of W_O where it was found."""
        return self.out if self.gated is None else self.gated


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
    change_qkv: ChangeQKV | None = None
    calls: list[AttentionCall] = field(default_factory=list)
    hooks: list[Any] = field(default_factory=list)
    rotations: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # since the last call
    # The module with own code or of a state layer that runs, what it was given, what is followed, and its calls so far
    running: Any = None
    entered: tuple[Any, dict[str, Any]] = ((), {})
    followed: dict[int, "Scores"] = field(default_factory=dict)
    parts: tuple[tuple[Any, ...], ...] = ()

    def record(self, module: Any, q: Any, k: Any, v: Tensor, mask: Tensor | None, out: Tensor,
               weights: Tensor | Callable[[], Tensor], options: dict[str, Any], state: str = "",
               mean: bool = False) -> tuple[Tensor, Any]:  # fmt: skip
        """Record one call; returns the output and the weights that the model continues with."""
        name, seen, values, kind = self.names.get(id(module), ""), weights, v, cast(Kind, "causal")
        if isinstance(weights, Tensor):
            values = repeat_heads(v, weights.shape[1])
            seen = _less_sink(module, values, out, weights)
            kind = kind_of(name, module, seen, mask)
        # Differential attention calls twice a layer, once for each half of the values.
        twice = hasattr(module, "lambda_init")
        repeated = twice and bool(self.calls) and self.calls[-1].module is module
        if not repeated:
            layer, probe = sum(call.kind == kind for call in self.calls), None
            if self.probe and not mean:
                sizes = (len(out), out.shape[2], out.shape[1], values.shape[2])
                probe = values.new_zeros(sizes, requires_grad=True)
            self.calls.append(
                AttentionCall(
                    kind,
                    layer,
                    module,
                    name,
                    seen,
                    mask=mask,
                    probe=probe,
                    state=state,
                    mean=mean,
                )
            )
        call = self.calls[-1]
        call.rotations, self.rotations = [*call.rotations, *self.rotations], []
        if call.probe is not None:
            out = out + (call.probe @ values).transpose(1, 2)
        key = (call.kind, call.layer)
        if heads := [head for *layer, head in self.uniform if tuple(layer) == key]:
            rows = weights if isinstance(weights, Tensor) else call.weights.to(values)
            even = (_make_uniform(rows, mask, call.kind) @ values).transpose(1, 2)
            out = out + (even + options.get("carried", 0) - out) * _head_mask(out, heads)
        changes = any(one[:2] == key for one in self.off) or any(
            one[1:3] == key for one in self.patches
        )
        if (self.with_qkv or changes) and not twice:
            call.output = output_layer(self.model, call.name, out.shape[2] * out.shape[3])
        if call.output is not None:
            self.hooks.append(
                call.output.register_forward_pre_hook(
                    partial(self._enter, call, out, len(self.hooks))
                )
            )
        elif changes:
            out = self._changed(key, out, out.shape[-1] if repeated else 0)
        if self.with_qkv and hasattr(module, "r_r_bias"):  # XLNet, whose W_O is no module
            call.gated = out
        if self.with_qkv and call.v is not None and call.out is not None:
            call.v, call.out = torch.cat([call.v, v], -1), torch.cat([call.out, out], -1)
        elif self.with_qkv:
            call.q, call.k, call.v, call.out, call.options = q, k, v, out, options
        return out, weights

    def _enter(
        self,
        call: AttentionCall,
        out: Float[Tensor, "B T H E"],
        hook: int,
        module: Any,
        inputs: tuple[Any, ...],
    ) -> Any:
        """Record and change what W_O gets, once."""
        if _RECORDER.get() is not self:
            return None
        self.hooks[hook].remove()
        heads, turned = inputs[0], out.transpose(0, 1)
        # MLCD gives W_O the rows of each token, not the tokens of each row.
        if heads.shape[:2] == turned.shape[:2] and torch.equal(heads, turned.reshape(heads.shape)):
            call.gated = self._changed((call.kind, call.layer), out)
            return (call.gated.transpose(0, 1).reshape(heads.shape), *inputs[1:])
        # A short convolution with a cache gives more rows than the layer keeps.
        shape = (heads.shape[1], *out.shape[2:]) if call.state else out.shape[1:]
        call.gated = self._changed((call.kind, call.layer), heads.reshape(-1, *shape))
        return (call.gated.reshape(heads.shape), *inputs[1:])

    def _changed(self, key: tuple[str, int], out: Float[Tensor, "B T H E"],
                 start: int = 0) -> Float[Tensor, "B T H E"]:  # fmt: skip
        """Heads' outputs with those of `off` zero and those of `patches` replaced, from dimension `start` on."""
        if heads := [head for *layer, head in self.off if tuple(layer) == key]:
            out = out * (1 - _head_mask(out, heads))
        if patches := [patch for patch in self.patches if patch[1:3] == key]:
            out = out.clone()
            for row, _, _, head, values in patches:
                which = slice(None) if head is None else head
                part = values[:, which]  # one number stands for all dimensions
                wide = part.shape[-1] > 1
                out[row, :, which] = part[..., start : start + out.shape[-1]] if wide else part
        return out


_RECORDER: ContextVar[AttentionRecorder | None] = ContextVar("recorder", default=None)


@contextmanager
def record_attention(model: Any, with_qkv: bool = False, off: HeadSet = NO_HEADS, probe: bool = False,
                     uniform: HeadSet = NO_HEADS, patches: Sequence[Patch] = (),
                     change_qkv: ChangeQKV | None = None) -> Iterator[AttentionRecorder]:  # fmt: skip
    """Record the attention of one forward pass in this thread: weights, and with `with_qkv` also q, k, v and outputs.

    `off` are (kind, layer, head) whose output becomes zero, as if W_O had no columns for them; head None is every head
    of the layer. `uniform` are heads whose weights become equal on all visible keys, `patches` heads whose outputs are
    replaced in one row of the batch. `change_qkv` may change the q, k and v of each call, but for families that compute
    attention in their own code. Layers are numbered from the beginning of the `with` block.
    """
    recorder = AttentionRecorder(
        model,
        {id(module): name for name, module in model.named_modules()},
        with_qkv,
        off,
        probe,
        uniform,
        patches,
        change_qkv,
    )
    own_code = False
    for module in model.modules():
        own = type(module).__name__ in OWN_CODE and has_own_code(type(module))
        own_code |= own
        if own or state_kernels(module.__class__):
            recorder.hooks += [
                module.register_forward_pre_hook(partial(_enter, recorder), with_kwargs=True),
                module.register_forward_hook(partial(_leave, recorder)),
            ]
        if type(module).__name__.endswith(OWN_STATE):
            enter = partial(_enter_norm, recorder, module)
            recorder.hooks.append(module.norm.register_forward_pre_hook(enter))
    token = _RECORDER.set(recorder)
    try:
        with Products(recorder) if own_code else nullcontext():
            yield recorder
    finally:
        _RECORDER.reset(token)
        for hook in recorder.hooks:
            hook.remove()


def _enter(recorder: AttentionRecorder, module: Any, args: Any, options: Any) -> None:
    if _RECORDER.get() is recorder:
        recorder.running, recorder.entered, recorder.parts = module, (args, options), ()


def _leave(recorder: AttentionRecorder, module: Any, args: Any, output: Any) -> None:
    if _RECORDER.get() is recorder:
        recorder.running = None
        recorder.followed.clear()


# By the name of the class: its code has one softmax of scores between tokens, and a product of it and the values.
OWN_CODE = frozenset(
    """
    Attention BigBirdPegasusSelfAttention BigBirdSelfAttention BlipAttention BloomAttention
    ClvpSelfAttention ConvBertSelfAttention Data2VecVisionSelfAttention DisentangledSelfAttention FalconAttention
    FlavaSelfAttention GPTNeoSelfAttention GPTNeoXJapaneseAttention GitSelfAttention GroupViTAttention
    ImageGPTAttention LukeSelfAttention MPNetSelfAttention MegatronBertSelfAttention MgpstrAttention MptAttention
    MultiHeadAttention MvpAttention RemBertSelfAttention RoFormerSelfAttention TapasSelfAttention TrOCRAttention
    VisualBertSelfAttention VitDetAttention XGLMAttention XLNetRelativeAttention
    """.split()
)
# Of encoders of pictures and proteins, which a model that reads text is not given.
NO_TEXT = frozenset(
    """
    DeepseekOcr2SamVisionAttention EvollaSequenceAlignerCrossAttention EvollaSequenceCompressorAttention
    GotOcr2VisionAttention SamVisionAttention UnlimitedOcrSamVisionAttention
    """.split()
)
# By the name of the module's class, what a model does whose attention is not recorded. Each was looked up in the library.
NOT_RECORDED: tuple[tuple[str, str], ...] = (
    (r"(Longformer|LEDEncoder)SelfAttention|PegasusXGlobalLocalAttention|LongT5(Local|TransientGlobal)Attention",
     "attends within windows, in chunks of tokens, so no one product of queries and keys gives its scores"),
    (r"\w*BlockSparseAttention",
     "attends within blocks of tokens, some of them at random, so no one product of queries and keys gives its scores"),
    (r"(LSH|Local)SelfAttention", "attends within chunks, and among tokens with the same hash"),
    (r"NystromformerSelfAttention", "attends by way of landmarks, and adds a convolution to what its heads give"),
    (r"LiltSelfAttention", "weighs the values of text and those of layout by one sum of their scores"),
    (r"IBertSelfAttention", "passes each tensor with its scale, for whole numbers"),
    (r"CpmAntAttention", "puts learned tokens before the text, and leaves them out of its maps"),
    (r"WavLMAttention", "calls PyTorch's own attention, which gives the mean of its heads' weights alone"),
    (r"VitsAttention", "adds a vector of the distance to each value, so its heads give more than weights times values"),
    (r"BlipTextSelfAttention", "has the decoder of text of a model of pictures, which runs beside their encoder"),
)  # fmt: skip
SOFTMAXES = ("softmax", "Softmax", "logsumexp")  # in its code
PRODUCTS = ("matmul", "__matmul__", "bmm", "baddbmm")
TIME_FIRST = ("ibnd,jbnd->bnij", "bnij,jbnd->ibnd")  # the products of XLNet
FACTORS = ("mul", "__mul__", "__rmul__", "mul_", "__imul__")
DIVISORS = ("div", "__truediv__", "div_", "__itruediv__", "true_divide")
HEAD_COUNTS = ("num_heads", "n_heads", "num_attention_heads", "n_head")
MASKED = -5000.0  # a score below is a masked one; the mildest mask of a family is -10,000
ROUNDING = 1e-5  # of the largest score: what is less is no further term


@dataclass(frozen=True, eq=False)
class Scores:
    """A product of queries and keys, times `scale` since; `before` is what went into the softmax, None before it."""

    q: Tensor
    k: Tensor
    scale: float
    values: Tensor  # what it has become: with an id of its own for as long as it is followed
    before: Tensor | None = None


class Products(TorchFunctionMode):
    """Follows the products of queries and keys, while a module with own code runs, to that of weights and values."""

    def __init__(self, recorder: AttentionRecorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result, options, name = func(*args, **(kwargs or {})), kwargs or {}, func.__name__
        if self.recorder.running is None or not isinstance(result, Tensor):
            return result
        given = [one for one in (*args, *options.values()) if isinstance(one, Tensor)]
        scores = next(filter(None, (self.recorder.followed.get(id(one)) for one in given)), None)
        time_first = name == "einsum" and args[0] in TIME_FIRST
        if time_first or name in PRODUCTS and given[-1].ndim > 2:  # else it is a projection
            left, right = given[-2:]
            if scores is not None and scores.before is not None:
                if time_first:
                    v, out = (one.permute(1, 2, 0, 3) for one in (right, result))
                    return self._record(scores, scores.before, left, v, out).permute(2, 0, 1, 3)
                return self._record(scores, scores.before, left, right, result)
            if time_first:
                left, right = left.permute(1, 2, 0, 3), right.permute(1, 2, 3, 0)
            scores = Scores(left, right.mT, options.get("alpha", 1.0), result)
        if scores is None:
            return result
        number = next((float(one) for one in args[1:] if _is_number(one)), 1.0)
        if name in FACTORS + DIVISORS:
            number = 1 / number if name in DIVISORS else number
            scores = replace(scores, scale=scores.scale * number)
        elif name == "softmax":
            scores = replace(scores, before=given[0])
        self.recorder.followed[id(result)] = replace(scores, values=result)
        return result

    def _record(
        self, scores: Scores, before: Tensor, weights: Tensor, v: Tensor, out: Tensor
    ) -> Tensor:
        """Give one attention to the recorder; what the model continues with, in the shape of `out`."""
        heads = next(
            value
            for name in HEAD_COUNTS
            if (value := getattr(self.recorder.running, name, None)) is not None
        )
        q, k, v, weights, before, by_head = (
            one if one.ndim == 4 else one.unflatten(0, (-1, heads))
            for one in (scores.q, scores.k, v, weights, before, out)
        )
        seen, options = before > MASKED, dict[str, Any]()
        if self.recorder.with_qkv:
            before = before.masked_fill(~seen, 0)
            more = before - (scores.scale * q @ repeat_heads(k, heads).mT) * seen
            small = more.abs().max() <= ROUNDING * before.abs().max()
            options = {"scaling": scores.scale, "position_bias": None if small else more}
        mask = seen.any(1, keepdim=True)
        changed, _ = self.recorder.record(
            self.recorder.running, q, k, v, mask, by_head.transpose(1, 2), weights, options
        )
        return changed.transpose(1, 2).reshape(out.shape)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) or isinstance(value, Tensor) and value.numel() == 1


def kind_of(name: str, module: Any, weights: Float[Tensor, "B H T S"], mask: Tensor | None) -> Kind:
    """The kind of a call by the module's name, or by what its tokens see.

    `is_causal` tells where that does not, of one token and on torch's meta device. The encoders of Phi-4 have it and
    see all.
    """
    if any(sign in name.lower() for sign in CROSS):
        return "cross"
    causal, (rows, columns) = getattr(module, "is_causal", None), weights.shape[-2:]
    masked = mask is not None and mask.ndim == 4
    if not rows == columns > 1 or weights.is_meta or causal is False and not masked:
        return "causal" if causal is True else "self"
    seen = bool_mask(mask[..., :columns]) if mask is not None and masked else weights
    return "causal" if is_lower_triangular(seen) else "self"


def bool_mask(mask: Tensor) -> Tensor:
    """A mask as bool, True = may attend; one that is added to the scores is converted."""
    return mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2


def is_lower_triangular(cells: Tensor) -> bool:
    """Whether weights or a mask are square and zero above the diagonal."""
    rows, columns = cells.shape[-2:]
    return rows == columns > 1 and not bool(cells.triu(1).any())


def _less_sink(
    module: Any, values: Float[Tensor, "B H S E"], out: Tensor, weights: Float[Tensor, "B H T S"]
) -> Float[Tensor, "B H T S"]:
    """The weights that make the output of v, where a family takes the share of a learned sink off the output."""
    if not hasattr(module, "sinks") or bool((weights.sum(-1) < 0.999).any()):
        return weights
    mean = (weights @ values).transpose(1, 2)
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
    recorder = _RECORDER.get()
    if recorder is not None and recorder.change_qkv is not None:
        query, key, value = recorder.change_qkv(len(recorder.calls), query, key, value)
    out, weights = names[name](module, query, key, value, attention_mask, **options)
    # between depths, not tokens
    if recorder is None or "AttentionResidual" in type(module).__name__:
        return out, weights
    return recorder.record(module, query, key, value, attention_mask, out, weights, options)


def registered_attention(config: Any) -> Callable[..., Any] | None:
    """The function that a person registered under the name in a model's config; None where it is the library's own."""
    from transformers import AttentionInterface

    function = AttentionInterface().get(config._attn_implementation)
    library = getattr(function, "__module__", "").startswith("transformers.")
    return None if library or function is recorded_attention else function


def attention_name(kind: Any, config: Any) -> str:
    """The attention that a model of this class and config is loaded with: a person's own, else the family's eager one.

    A class that computes attention in its own code never calls another.
    """
    own = registered_attention(config) is not None and kind._can_set_attn_implementation()
    return str(config._attn_implementation) if own else EAGER


def run_registered(function: Callable[..., Any], name: str, module: Any, query: Tensor, key: Tensor, value: Tensor,
                   attention_mask: Any, **options: Any) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """A person's own attention function, recorded where a recorder is active.

    PretrainedError where its weights cannot be read. What its scores have beside the scaled products of q and k is
    recorded as `position_bias`.
    """
    given, recorder = (module, query, key, value, attention_mask), _RECORDER.get()
    if recorder is None:
        return function(*given, **options)
    (out, returned), weights, why = read_function(function, *given, **options)
    weights = returned if weights is None else weights
    what = f"The attention function {name} that the model's config names ran, and"
    reject_if(weights is None, f"{what} its weights cannot be read: {why}.")
    assert weights is not None
    mask = attention_mask if isinstance(attention_mask, Tensor) else None
    seen = weights > 0
    if mask is None and not bool(seen.all()):
        mask = seen.any(1, keepdim=True)
    if recorder.with_qkv:
        reject_if(
            bool(((weights.sum(-1) - 1).abs() > 1e-3).any()),
            f"{what} the rows of its weights do not sum to 1, so no scores of q and k explain them. Its maps can be drawn.",
        )
        scale = options.get("scaling") or query.shape[-1] ** -0.5
        scores = scale * query @ repeat_heads(key, weights.shape[1]).mT
        more = (weights.clamp(min=torch.finfo(weights.dtype).tiny).log() - scores) * seen
        more = (more - more.sum(-1, keepdim=True) / seen.sum(-1, keepdim=True)) * seen
        small = (
            more.abs().max() <= 1e-4 * scores.abs().max()
        )  # what rounding leaves of the logarithm
        options = {"scaling": scale, "position_bias": None if small else more}
    return recorder.record(module, query, key, value, mask, out, weights, options)


def recorded_rotation(function: Callable[..., Any], *values: Any, **options: Any) -> Any:
    """What a family's rotation gives, recorded where a recorder wants q and k."""
    rotated, recorder = function(*values, **options), _RECORDER.get()
    if recorder is not None and recorder.with_qkv:
        after = rotated if isinstance(rotated, tuple) else (rotated,)
        pairs = [
            both for both in zip(values, after, strict=False) if all(map(torch.is_tensor, both))
        ]
        if getattr(function, "__name__", "").endswith("interleave"):
            # Its result has the even dimensions first, then the odd ones
            pairs = [(x.unflatten(-1, (-1, 2)).mT.flatten(-2), y) for x, y in pairs]
        recorder.rotations += pairs
    return rotated


# Layers without softmax: their functions are wrapped when a model is loaded, as rotations are.


OWN_STATE = "LightningAttention"  # its code is no function: `_enter_norm`


@cache
def state_kernels(kind: type) -> frozenset[str]:
    """The names of `KERNELS` in the code of a class. A convolution before another function is no layer."""
    name = kind.__name__
    called = {
        one
        for method in _methods(kind)
        for one in method.__code__.co_names
        if one in KERNELS and (name.endswith("ShortConv") or KERNELS[one].name != CONVOLUTION.name)
    }
    return frozenset(called | {OWN_STATE} if name.endswith(OWN_STATE) else called)


def recorded_state(
    function: Callable[..., Any], kernel: Kernel, *values: Any, **options: Any
) -> Any:
    """What a state layer's function gives, recorded where a recorder is active; a gate is applied after that."""
    recorder = _RECORDER.get()
    mixer = None if recorder is None else recorder.running
    # A convolution before another function is no matrix of the layer's own
    if (
        recorder is None
        or mixer is None
        or (kernel.name == CONVOLUTION.name and not type(mixer).__name__.endswith("ShortConv"))
    ):
        return function(*values, **options)
    # PyTorch's, where a kernel of another package runs beside it on a GPU
    plain = function.args[1] if isinstance(function, partial) else function
    given = inspect.signature(plain).bind(*values, **options)
    state = given.arguments.get(name := kernel.state.partition(":")[0])
    # The layer changes it in place, before the weights are read; these need the first one's shape alone
    if isinstance(state, tuple | list):
        given.arguments[name] = [*map(Tensor.clone, state)]
    gate, entered = given.arguments.pop(kernel.gate, None), given.arguments[kernel.values]
    calls = getattr(mixer, "n_mamba_heads", 1) if kernel.by_channel else 1  # one for each, in Zamba
    heads = partial(by_heads, axes=kernel.axes, groups=groups_of(kernel, entered, calls))
    before, adds = torch.zeros_like(entered), (state, given.arguments.get(kernel.constant))
    if (recorder.with_qkv or recorder.uniform) and any(one is not None for one in adds):
        before = carried(plain, kernel, given)
    options.pop(kernel.gate, None)
    result = function(*values, **options)

    def gated(out: Tensor) -> Tensor:
        changed = as_given(out, kernel.axes)
        return changed if gate is None else changed * torch.nn.functional.silu(gate)

    out, changed = heads(first(result)), gated(heads(first(result)))
    weights = partial(state_matrix, plain, kernel, given, out.shape[2])
    part = (heads(entered).transpose(1, 2), out, heads(before), weights, gated, changed)
    recorder.parts = (*recorder.parts, part)
    if len(recorder.parts) == calls:
        v, outs, carries, matrices, finish, results = zip(*recorder.parts, strict=True)
        out, _ = recorder.record(
            mixer,
            None,
            None,
            torch.cat(v, 1),
            None,
            torch.cat(outs, 2),
            lambda: torch.cat([one() for one in matrices], 1),
            {"carried": torch.cat(carries, 2)},
            kernel.name,
            kernel.by_channel,
        )
        *earlier, last = out.chunk(calls, 2)
        changed = gated(last)
        for one, of, part_of in zip(results, finish, earlier, strict=False):  # the layer has these
            one.copy_(of(part_of))
    return (changed, *result[1:]) if isinstance(result, tuple) else changed


def _enter_norm(
    recorder: AttentionRecorder, module: Any, norm: Any, inputs: tuple[Tensor, ...]
) -> Any:
    """Record lightning attention, whose code is no function, at what its norm gets."""
    if _RECORDER.get() is not recorder:
        return None
    args, options = recorder.entered
    mask, cache, more = options.get("attention_mask"), options.get("cache"), dict[str, Tensor]()
    qkv = module.act_fn(module.qkv_proj.forward(args[0] if args else options["hidden_states"]))
    qkv = qkv if mask is None or mask.ndim != 2 else qkv * mask[:, :, None]
    sizes = (module.num_attention_heads, -1)
    q, k, v = qkv.unflatten(-1, sizes).transpose(1, 2).chunk(3, -1)
    past = None if cache is None else cache.get_linear_cache(module.layer_idx)
    if past is not None:
        ages = torch.arange(1, q.shape[2] + 1, device=q.device)[:, None]
        more["carried"] = ((q * torch.exp(-module.slope_rate * ages)) @ past).transpose(1, 2)
    weights = partial(decayed_products, q, k, module.slope_rate)
    out = inputs[0].unflatten(-1, sizes)
    out, _ = recorder.record(module, None, None, v, None, out, weights, more, LIGHTNING)
    return (out.flatten(-2),)


@cache
def _eager_name(kind: type) -> tuple[dict[str, Any], str]:
    """The eager attention that a module's code names as its default: the names of its file, and which one."""
    return next(
        (method.__globals__, name)
        for method in _methods(kind)
        for name in method.__code__.co_names
        if name.endswith("eager_attention_forward") and name in method.__globals__
    )


def make_recordable(model: Any, reads: str) -> str:
    """Let a newly loaded model call our entry; what it does instead, empty where all its attention is recorded."""
    from transformers import AttentionInterface

    AttentionInterface.register(EAGER, recorded_attention)
    function, name = registered_attention(model.config), model.config._attn_implementation
    shared = model._can_set_attn_implementation()
    if function is None and shared:  # others are loaded with it
        model.set_attn_implementation(EAGER)
    elif function is not None and getattr(function, "func", None) is not run_registered:
        AttentionInterface.register(name, partial(run_registered, function, name))
    for module in model.modules():
        # GPT-2's order of operations for fp16, in its own code, and BLOOM's for several devices, without its W_O
        for name in ("reorder_and_upcast_attn", "slow_but_exact"):
            if getattr(module, name, False):
                setattr(module, name, False)
        if type(module).__name__ == "FalconAttention":
            module.register_forward_pre_hook(_add_alibi_once, with_kwargs=True)
        for key, name in (("RecurrentGemmaRglru", "_rnn_scan"), ("xLSTMBackend", "forward")):
            method: Any = getattr(module, name, None)
            if type(module).__name__ == key and not isinstance(method, partial):
                kernel = KERNELS[key if name == "forward" else name]
                setattr(module, name, partial(recorded_state, method, kernel))
    for name in {kind.__module__ for part in model.modules() for kind in type(part).__mro__}:
        home = vars(sys.modules[name])
        for key, function in list(home.items()):
            rotates = key.startswith("apply_") and ("rotary" in key or "rope" in key)
            if rotates and not isinstance(function, partial):
                home[key] = partial(recorded_rotation, function)
            elif key in KERNELS and getattr(function, "func", None) is not recorded_state:
                home[key] = partial(recorded_state, function, KERNELS[key])
    kinds = set(map(type, model.modules()))
    own = {kind.__name__ for kind in kinds if has_own_code(kind)}
    shared |= any("get_interface" in _names(kind) or state_kernels(kind) for kind in kinds)
    if any(getattr(module, "talking_head", False) for module in model.modules()):
        return "mixes the scores of its heads, and their weights"
    if (own or shared) and own <= OWN_CODE | (NO_TEXT if reads == "text" else frozenset()):
        return ""
    names = [kind.__name__ for kind in kinds]
    reasons = (why for rule, why in NOT_RECORDED if any(re.fullmatch(rule, one) for one in names))
    return next(reasons, "computes attention in its own code")


def _add_alibi_once(
    module: Any, args: Any, options: dict[str, Any]
) -> tuple[Any, dict[str, Any]] | None:
    """Falcon's eager code adds ALiBi that the mask has already; its default code, as in training, does not."""
    alibi = options.get("alibi")
    return None if alibi is None else (args, {**options, "alibi": torch.zeros_like(alibi)})


def has_own_code(kind: type) -> bool:
    """Whether a class of a model's attention computes it in its own code."""
    return not _names(kind).isdisjoint(SOFTMAXES) and "get_interface" not in _names(kind)


@cache
def _names(kind: type) -> frozenset[str]:
    """The names in the code of a class of attention."""
    # Of compiled code: Python 3.11 cannot read a class's source in two threads at once.
    methods = _methods(kind) if "ttention" in kind.__name__ else ()
    return frozenset(name for method in methods for name in method.__code__.co_names)


def _methods(kind: type) -> Iterator[Any]:
    """The functions of a class and those that it inherits, without their decorators."""
    for one in kind.__mro__[: kind.__mro__.index(torch.nn.Module)]:
        yield from (
            inspect.unwrap(value) for value in vars(one).values() if inspect.isfunction(value)
        )


# The model's own numbers of its attention layers, and what its other layers do instead.


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
# By the name of the module's class; the first that matches any module of a layer. Each was looked up in the library.
SUBSTITUTES: tuple[tuple[str, str], ...] = (
    (r"\w*CrossAttention", "cross-attention to a picture or sound that was not given"),
    (r"\w*(MoE|MOE|Moe)", "experts alone"), (r"\w*(MLP|Mlp)", "only a feed-forward layer"),
)  # fmt: skip


def layer_numbers(model: Any, names: Sequence[str]) -> tuple[int, ...]:
    """The model's own numbers of the layers that attended, from 0, by the names of their modules, in order.

    Layers that share one module are numbered by the config's `layer_types`; where nothing tells, by their order.
    """
    if (numbers := stack_numbers(names)) is not None:
        return numbers
    kinds = getattr(text_config(model), "layer_types", None) or ()
    shared = tuple(match for match, kind in enumerate(kinds) if kind == "hybrid")
    return shared if len(shared) == len(names) else tuple(range(len(names)))


def numbers_by_layer(model: Any, calls: Sequence[AttentionCall]) -> dict[tuple[Kind, int], int]:
    """The model's own number of each recorded layer, by its kind and its index among those of that kind."""
    kinds = dict.fromkeys(call.kind for call in calls)
    return {
        (kind, call.layer): number
        for kind, ones in ((kind, [call for call in calls if call.kind == kind]) for kind in kinds)
        for call, number in zip(ones, layer_numbers(model, [one.name for one in ones]), strict=True)
    }


def other_layers(model: Any, calls: Sequence[AttentionCall]) -> str | None:
    """What the stack does beside one map a layer, in sentences: layers without a map, and with several; None otherwise."""
    names = [call.name for call in calls]
    match = STACK.match(names[0]) if names else None
    if match is None:
        return None
    stack, drawn = list(model.get_submodule(match["stack"])), layer_numbers(model, names)
    sentences = list[str]()
    if len(set(names)) < len(names) and drawn == tuple(range(len(names))):
        return _passes(names)
    others = [one for one in map(STACK.match, names) if one and one["stack"] == match["stack"]]
    of_layer = [int(one["number"]) for one in others]
    counts = Counter(of_layer)
    if len(counts) < len(of_layer) == len(names):
        drawn, several = tuple(counts), [layer for layer, count in counts.items() if count > 1]
        start, count = of_layer.index(several[0]), counts[several[0]]
        kinds = [call.state or "attention" for call in calls[start : start + count]]
        sentences.append(
            f"Layers {_ranges(several)} have {count} maps each ({', then '.join(kinds)}), which are numbered one after "
            f"another: L{start} to L{start + count - 1} are those of layer {several[0]}."
        )
    if len(stack) <= max(drawn):
        return None
    does = dict[str, list[int]]()
    for number, layer in enumerate(stack):
        if number not in drawn:
            classes = [type(one).__name__ for one in layer.modules()]
            rules = (
                what
                for rule, what in SUBSTITUTES
                if any(re.fullmatch(rule, name) for name in classes)
            )
            parts = dict.fromkeys(type(one).__name__ for one in layer.children())
            does.setdefault(next(rules, " and ".join(parts)), []).append(number)
    if rest := sum(map(len, does.values())):
        without = "; ".join(f"{_ranges(numbers)}: {what}" for what, numbers in does.items())
        sentences.append(f"Of its {len(stack)} layers {rest} have no map ({without}).")
    return " ".join(sentences) or None


def state_note(model: Any, calls: Sequence[AttentionCall]) -> str | None:
    """Which maps are those of layers without softmax, of which kind, and what their weights are."""
    numbers = layer_numbers(model, [call.name for call in calls])
    of = {
        what: [number for number, call in zip(numbers, calls, strict=True) if call.state == what]
        for what in dict.fromkeys(call.state for call in calls if call.state)
    }
    if not of:
        return None
    which = "; ".join(f"L{_ranges(ones)}: {what}" for what, ones in of.items())
    means = (
        " Each of their channels has a matrix of its own, and a map is the mean of a group of channels."
        if any(call.mean for call in calls)
        else ""
    )
    return (
        f"State layers, without softmax ({which}), have weights that may be negative, in rows that do not sum to 1: roles, "
        "rollout, flow and similar heads count them by size, |w| / Σ|w|. Their gates and norms come after these "
        f"weights.{means}"
    )


def _passes(names: Sequence[str]) -> str:
    """Which pass of which layer each number is, where layers run several times."""
    runs = [
        (match["stack"], names[:place].count(names[place]) + 1, place, match["number"])
        for place, match in enumerate(filter(None, map(STACK.match, names)))
    ]
    several = len({stack for stack, *_ in runs}) > 1
    parts = []
    for (stack, number), group in groupby(runs, key=lambda one: one[:2]):
        places, layers = zip(*((place, int(layer)) for _, _, place, layer in group), strict=True)
        of = f" of {stack.rpartition('.')[0].rpartition('.')[2]}" if several else ""
        parts.append(f"L{_ranges(places)}: layer {_ranges(layers)}{of}, pass {number}")
    return f"Some of its layers run several times, and each pass has a number ({'; '.join(parts)})."


def _ranges(numbers: Iterable[int]) -> str:
    """Numbers in words: 0–2, 4."""
    runs = groupby(enumerate(numbers), lambda place: place[1] - place[0])
    ends = ([number for _, number in run] for _, run in runs)
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in ends)


def output_layer(model: Any, attention: str, size: int) -> Any:
    """W_O, the module of a usual name with that many inputs: inside the attention module, or beside it, as in BERT."""
    for room in (attention, attention.rpartition(".")[0]):
        for inside, module in model.get_submodule(room).named_modules():
            weight = getattr(module, "weight", None)
            if (
                inside.removesuffix(".linear").rpartition(".")[2] in OUTPUT_NAMES
                and isinstance(weight, Tensor)
                and weight.ndim == 2
                and weight.shape[0 if is_transposed(module) else 1] == size
            ):
                return module
    return None


def output_embeddings(model: Any) -> Any:
    """The layer that gives the logits, of the model or of the language model in it; None where there is none."""
    parts = (one for one in (model, model.get_decoder()) if hasattr(one, "get_output_embeddings"))
    return next(
        (layer for one in parts if (layer := one.get_output_embeddings()) is not None), None
    )


def is_transposed(linear: Any) -> bool:
    """GPT-2 keeps its matrices as (in, out)."""
    return type(linear).__name__ == "Conv1D"


# Moving inputs to a model's device, and its outputs back to the CPU, where everything else is computed.


def to_device(model: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
    """Move the inputs to the model's device, also inside tuples and lists."""
    return dict(tree_map_only(Tensor, lambda values: values.to(model.device), dict(batch)))


def to_cpu(output: Any, recorder: AttentionRecorder) -> Any:
    """Move a model's output and the recorded calls to the CPU, with their gradients."""
    if recorder.model.device.type == "cpu":
        return output
    for call in recorder.calls:
        moved = {name: value for name, value in vars(call).items() if name != "probe"}
        vars(call).update(tree_map_only(Tensor, Tensor.cpu, moved))
    return tree_map_only(Tensor, Tensor.cpu, output)
