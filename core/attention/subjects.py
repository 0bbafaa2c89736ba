"""What `check` is given, as one call of tensors: a function of ready heads, or a module of tokens.

What a thing takes is read from the names of its arguments; each kind has one adapter. Attention is linear in its values,
so identity values give the very weights of any function of heads, without a look into its code.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from core.attention.config import by_cell
from core.attention.layer import Attention
from core.entries import ConfigError, quote, refuse_if
from core.plugins import describe

B, T, D, SEED = 2, 9, 16, 86  # of the inputs
EXPECTED = (
    "f(q, k, v, …) to (B, H, T, D), an nn.Module of x (B, T, C), score_mod(score, b, h, q_idx, kv_idx), "
    "mask_mod(b, h, q_idx, kv_idx), f(module, query, key, value, attention_mask, …) as AttentionInterface takes it, or "
    "a layer, a config or a registered Entry of this lab"
)

Mask = Bool[Tensor, "T S"] | None
Form = Callable[[Tensor, int], Tensor]


def _of_keys(mask: Tensor, batch: int) -> Tensor:
    return mask[:1].expand(batch, -1)


def _added(mask: Tensor, batch: int) -> Tensor:
    """As transformers adds it to the scores, (B, 1, T, S)."""
    least = torch.finfo(torch.float32).min
    return torch.zeros(mask.shape).masked_fill(~mask, least).expand(batch, 1, -1, -1)


# What a mask of a name may be, made of one of cells (T, S), True = may attend, for so many sequences.
HIDDEN_KEYS: tuple[Form, ...] = (
    lambda mask, batch: ~_of_keys(mask, batch),
    lambda mask, batch: ~mask,
)
CELLS: tuple[Form, ...] = (
    lambda mask, batch: mask,
    _of_keys,
    _added,
    lambda mask, batch: mask.float(),
)
FORMS: dict[str, tuple[Form, ...]] = {
    **dict.fromkeys(("key_padding_mask", "src_key_padding_mask", "padding_mask"), HIDDEN_KEYS),
    "key_mask": (_of_keys,),
    **dict.fromkeys(("mask", "attn_mask", "attention_mask", "src_mask"), CELLS),
}


@dataclass(frozen=True, eq=False, kw_only=True)
class _Call:
    """One signature for all that is checked: call(*inputs, mask=…, causal=…), with the mask in one of its `forms`."""

    kind: str
    call: Callable[..., Any]
    forms: tuple[Form, ...] = ()  # of its mask; none where it takes none
    needs_mask: bool = False  # whether it cannot be called without one
    causal: bool = False  # whether it takes a flag for it
    meant: bool | None = None  # whether no later token may be felt; None: either
    fixed: str = ""  # why other sizes and lengths are not tried

    def __call__(self, *given: Tensor, mask: Mask = None, causal: bool = False) -> Any:
        if mask is None and self.needs_mask:
            mask = torch.ones(given[0].shape[-2], given[-1].shape[-2], dtype=torch.bool)
        formed = None if mask is None else self.forms[0](mask, len(given[0]))
        return self.call(*given, mask=formed, causal=causal)


@dataclass(frozen=True, eq=False, kw_only=True)
class Heads(_Call):
    """A function of q, k and v to (B, H, T, E)."""

    heads: tuple[int, int, int]  # of q, k and v
    sizes: tuple[int, int] = (D, D)  # of q and k, and of v

    def draw(self, seed: int = 0, queries: int = T, size: int = 0, batch: int = B) -> list[Tensor]:
        """Seeded normal q, k and v."""
        random = torch.Generator().manual_seed(seed)
        widths = (size or self.sizes[0], size or self.sizes[0], size or self.sizes[1])
        shapes = zip(self.heads, (queries, T, T), widths, strict=True)
        return [torch.randn(batch, *shape, generator=random) for shape in shapes]

    def __call__(self, *given: Tensor, mask: Mask = None, causal: bool = False) -> Tensor:
        out = super().__call__(*given, mask=mask, causal=causal)
        q, _, v = given
        expected = (len(q), max(self.heads[0], self.heads[2]), q.shape[2], v.shape[3])
        refuse_if(
            not isinstance(out, Tensor) or out.shape[:1] + out.shape[2:] != (len(q), *expected[2:]),
            f"It returned {_shape(out)}; expected (B, H, T, D) = {expected}.",
        )
        return out

    def weights(
        self, q: Tensor, k: Tensor, mask: Mask = None, causal: bool = False, size: int = 0
    ) -> Float[Tensor, "B H T S"]:
        """What multiplies the values, by identity values in chunks of a head's size."""
        keys, width = k.shape[2], size or self.sizes[1]
        eye = F.pad(torch.eye(keys, dtype=k.dtype), (0, -keys % width))
        zero = torch.zeros(len(k), self.heads[2], keys, width, dtype=k.dtype)
        values = (zero, *(one.expand_as(zero) for one in eye.split(width, 1)))
        added, *parts = (self(q, k, v, mask=mask, causal=causal) for v in values)
        # relative values add something of their own
        return torch.cat([part - added for part in parts], -1)[..., :keys]

    def map(self, mask: Mask = None, causal: bool = False) -> Float[Tensor, "B H T S"]:
        q, k, _ = self.draw()
        return self.weights(q, k, mask, causal)


@dataclass(frozen=True, eq=False, kw_only=True)
class Tokens(_Call):
    """A module of x (B, T, C), with an example of it."""

    x: Float[Tensor, "B T C"]

    def draw(self, seed: int = 0) -> list[Tensor]:
        return [self.x]

    def map(self, mask: Mask = None, causal: bool = False) -> Float[Tensor, "1 1 T T"]:
        """How much the output at i changes with token j, of one sequence."""
        each = torch.arange(T)
        x = self.x[:1].repeat(T + 1, 1, 1)
        x[each, each] += self.x[-1].roll(1, 0)
        out = self(x, mask=mask)
        return (out[:-1] - out[-1:]).abs().amax(-1).mT[None, None]


Subject = Heads | Tokens
SubjectT = TypeVar("SubjectT", Heads, Tokens)


@contextmanager
def undisturbed(thing: Any, seed: int) -> Iterator[None]:
    """A seed of its own, no gradients and, of a module, eval mode; afterwards all is as it was."""
    with torch.random.fork_rng(devices=[]), torch.no_grad(), ExitStack() as stack:
        torch.default_generator.manual_seed(seed)
        modules = thing.modules() if isinstance(thing, nn.Module) else ()
        for module in [one for one in modules if one.training]:
            module.training = False
            stack.callback(setattr, module, "training", True)
        yield


def tried(thing: Any, subject: SubjectT) -> SubjectT:
    """The subject, once it has run; ConfigError where it cannot."""
    inputs = subject.draw()
    try:
        subject(*inputs)
    except Exception as error:
        names = "x" if len(inputs) == 1 else "q, k and v"
        raise ConfigError(
            f"{name_of(thing)} cannot run on {names} {_shape(inputs[0])}. {why_failed(error)}"
        ) from error
    return subject


def name_of(thing: Any) -> str:
    function = getattr(thing, "func", thing)
    return getattr(function, "__name__", type(function).__name__)


def why_failed(error: Exception) -> str:
    return str(error) if type(error) is ConfigError else describe(error)


def _shape(out: Any) -> str:
    return str(tuple(out.shape)) if isinstance(out, Tensor) else quote(out)


def _parameters(thing: Any) -> tuple[list[str], str, str, list[str]]:
    """The names that a function takes, their first letters, its mask, and those without a default."""
    if thing is F.scaled_dot_product_attention:  # a function of C, which tells no signature
        names = ["query", "key", "value", "attn_mask", "is_causal"]
        return names, "qkvai", "attn_mask", names[:3]
    taken = inspect.signature(thing.forward if isinstance(thing, nn.Module) else thing).parameters
    letters = "".join(name.lower().lstrip("x_")[:1] or "x" for name in taken)
    needed = [
        name
        for name, one in taken.items()
        if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD
    ]
    return list(taken), letters, next((name for name in FORMS if name in taken), ""), needed


def of_heads(thing: Any, heads: int) -> Heads:
    """The thing as a function of heads; ConfigError for what is none, as a module of x."""
    if isinstance(thing, Attention):
        return _of_layer(thing)
    refuse_if(
        not callable(thing) or isinstance(thing, type),
        f"check takes {EXPECTED}; got {quote(thing)}.",
    )
    names, letters, mask_name, needed = _parameters(thing)
    if letters[1:4] == "qkv" and len(names) > 4:
        return Heads(
            kind="a function of AttentionInterface",
            call=partial(_call_interface, thing),
            heads=(heads,) * 3,
            forms=(_added,),
        )
    if letters.startswith("qkv"):
        flag = next((name for name in ("is_causal", "causal") if name in names), "")
        return Heads(
            kind="a function of q, k and v",
            call=partial(_call_by_name, thing, mask_name, flag),
            heads=(heads,) * 3,
            forms=FORMS.get(mask_name, ()),
            needs_mask=mask_name in needed,
            causal=bool(flag),
        )
    if len(needed) in (4, 5) and letters[len(needed) - 2 : len(needed)] in ("qk", "ij"):
        masks = len(needed) == 4
        return Heads(
            kind="a mask_mod" if masks else "a score_mod",
            call=partial(_call_modified, thing, masks),
            heads=(heads,) * 3,
        )
    raise ConfigError(f"{name_of(thing)} takes ({', '.join(names)}); check takes {EXPECTED}.")


def _call_by_name(
    thing: Any, mask_name: str, flag: str, *given: Tensor, mask: Any, causal: bool
) -> Any:
    """Attention of PyTorch and of this lab, or as it: what it returns first is its output."""
    options = {mask_name: mask, flag: causal or None}
    out = thing(*given, **{name: one for name, one in options.items() if one is not None})
    return out[0] if isinstance(out, tuple) else getattr(out, "merged", out)


def _call_interface(
    function: Any, q: Tensor, k: Tensor, v: Tensor, *, mask: Any, causal: bool
) -> Tensor:
    module: Any = nn.Identity().eval()
    module.num_key_value_groups, module.is_causal = q.shape[1] // k.shape[1], False
    mask = mask if mask is None else mask.to(q.dtype).clamp(min=torch.finfo(q.dtype).min)
    out, _ = function(module, q, k, v, mask, scaling=q.shape[-1] ** -0.5, dropout=0.0)
    refuse_if(
        out.shape[1:3] == q.shape[1:3],
        f"It returned {_shape(out)}; AttentionInterface expects (B, T, H, D): out.transpose(1, 2).",
    )
    return out.transpose(1, 2)


def _call_modified(
    function: Any, masks: bool, q: Tensor, k: Tensor, v: Tensor, *, mask: Any, causal: bool
) -> Tensor:
    """Attention with scores as flex_attention changes them, cell by cell."""
    cell: Callable[..., Tensor]
    cell = (lambda score, *at: torch.where(function(*at), score, -torch.inf)) if masks else function
    scores = q @ k.mT * q.shape[-1] ** -0.5
    changed = by_cell(cell, scores, *map(torch.arange, scores.shape))
    return changed.to(scores.dtype).softmax(-1).nan_to_num(0.0) @ v


def _pads(module: nn.Module) -> bool:
    return isinstance(module, Attention) and any(
        one.key == "padding" for one in module.config.mask.walk()
    )


def _of_layer(layer: Attention) -> Heads:
    """The lab's own layer from heads on, with tokens of its own where a choice reads them."""
    config, sizes = layer.config, layer.config.sizes
    random = torch.Generator().manual_seed(5)

    @cache
    def sized(size: int) -> tuple[Attention, Tensor]:
        """The layer with heads of another size, and tokens for what reads them."""
        other = config.with_(d_model=size * config.num_heads)
        made = layer if size == sizes.qk_dim else Attention(other).eval()
        return made, torch.randn(1, T, made.config.d_model, generator=random)

    def call(q: Tensor, k: Tensor, v: Tensor, *, mask: Any, causal: bool) -> Tensor:
        used, x = sized(q.shape[-1])
        queries, keys = (x[:, : one.shape[2]].expand(len(q), -1, -1) for one in (q, k))
        own = keys if q.shape[2] == k.shape[2] else queries
        return used.attend_heads(q, k, v, own, keys, None, mask, record=False).out

    return Heads(
        kind="a layer of this lab",
        call=call,
        heads=(sizes.score_heads, sizes.kv_heads, min(sizes.kv_heads, config.num_heads)),
        sizes=(sizes.qk_dim, sizes.v_dim),
        forms=(_of_keys,),
        needs_mask=_pads(layer),
        fixed="its sizes are those of its config",
    )


def of_tokens(module: nn.Module, x: Tensor | None) -> Tokens:
    """A module as a function of tokens, on an example input."""
    _, letters, mask_name, needed = _parameters(module)
    orders = [one.batch_first for one in module.modules() if hasattr(one, "batch_first")]
    # a forward that is not PyTorch's own takes (B, T, C)
    first = all(orders) or not type(module).__module__.startswith("torch.nn")
    copies = 3 if letters.startswith("qkv") else 1  # of x, as q, k and v
    sizes = (
        *(getattr(module, name, None) for name in ("embed_dim", "d_model", "hidden_size")),
        getattr(getattr(module, "config", None), "d_model", None),
        *(one.in_features for one in module.modules() if isinstance(one, nn.Linear)),
    )
    width = next((size for size in sizes if isinstance(size, int)), 0)
    refuse_if(
        x is None and not width,
        f"The width of {name_of(module)} cannot be seen; give check(…, x=…), an input (B, T, C).",
    )
    example = torch.randn(B, T, width, generator=torch.Generator().manual_seed(1))
    x = example if x is None else x[:B, :T]
    refuse_if(
        x.dim() != 3 or x.shape[:2] != (B, T),
        f"x is {_shape(x)}; expected (B, T, C) of at least {B} sequences of {T} tokens.",
    )

    def call(x: Tensor, *, mask: Any, causal: bool) -> Tensor:
        inputs = (x if first else x.transpose(0, 1),) * copies
        out = _call_by_name(module, mask_name, "", *inputs, mask=mask, causal=causal)
        fits = isinstance(out, Tensor) and out.shape[:2] == inputs[0].shape[:2]
        refuse_if(not fits, f"It returned {_shape(out)}; expected (B, T, C).")
        return out if first else out.transpose(0, 1)

    return tried(
        module,
        Tokens(
            kind="a module of x",
            call=call,
            x=x,
            forms=FORMS.get(mask_name, ()),
            needs_mask=mask_name in needed or _pads(module),
            fixed="a module has its own sizes",
        ),
    )


class Recorder(TorchFunctionMode):
    """Collects the results of PyTorch functions by name, in order; those of single cells, as under vmap, left out."""

    def __init__(self) -> None:
        super().__init__()
        self.results: list[tuple[str, Tensor]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **kwargs or {})
        for one in result if isinstance(result, tuple | list) else (result,):
            if isinstance(one, Tensor) and one.dim() > 2 and one.is_floating_point():
                # as it is now: it may be changed in place
                self.results.append((getattr(func, "__name__", ""), one.detach().clone()))
        return result
