"""check: whether a function or a layer is the attention that its author means, found by probes from outside.

Attention is linear in its values, so identity values give the very weights of any function of q, k and v, without a look
into its code. The probes ask what the usual faults change: a masked key that is felt, a later token that is felt, scores
that spread with the head size, a rotation that depends on the place itself, a bias with the wrong sign.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from core.attention.base import repeat_heads
from core.attention.config import AXES, AttentionConfig, example_config
from core.attention.decoding import Cache
from core.attention.layer import Attention
from core.entries import Choice, ConfigError, Entry, quote, refuse_if
from core.plugins import describe

B, T, D = 2, 9, 16  # of the inputs
SIZES = 16, 256  # of heads, between which the spread of scores is compared
HIDDEN = [1, 4, 5]  # keys that a mask hides
SMALL = 1e-5  # of the largest weight: what is less is none
PARTS = 4, 1, 1, 3  # of T tokens, one after another with a cache
KEYS_HIDDEN = "key_padding_mask", "src_key_padding_mask", "padding_mask"  # True = hidden
MASKS = (*KEYS_HIDDEN, "key_mask", "mask", "attn_mask", "attention_mask", "src_mask")
CAUSAL = ("is_causal", "causal")
NO_MASK = f"it takes none of {', '.join(MASKS)}"
EXPECTED = (
    "f(q, k, v, …) to (B, H, T, D), an nn.Module of x (B, T, C), score_mod(score, b, h, q_idx, kv_idx), "
    "mask_mod(b, h, q_idx, kv_idx), f(module, query, key, value, attention_mask, …) as AttentionInterface takes it, or "
    "a layer, a config or a registered Entry of this lab"
)

Level = Literal["fault", "warning", "property"]
Mask = Bool[Tensor, "T S"] | None
Form = Callable[[Tensor], Any]


@dataclass(frozen=True, eq=False)
class Finding:
    """What a probe found: a sentence with cause and numbers, and two maps (T, S), theirs and what would be right.

    A `fault` is wrong whatever the author means; a `warning` is wrong unless it is meant; a `property` is a choice.
    """

    probe: str
    level: Level
    text: str
    got: Float[Tensor, "T S"] | None = None
    expected: Float[Tensor, "T S"] | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Findings:
    """All that a check found, and the probes that could not be tried, each with the reason."""

    kind: str
    all: tuple[Finding, ...]
    untried: dict[str, str]

    @property
    def faults(self) -> tuple[Finding, ...]:
        return tuple(one for one in self.all if one.level == "fault")

    @property
    def alarms(self) -> tuple[Finding, ...]:
        """The faults and the warnings."""
        return tuple(one for one in self.all if one.level != "property")

    def __repr__(self) -> str:
        lines = [f"{one.level}: {one.text}" for one in self.all]
        for why in dict.fromkeys(self.untried.values()):
            names = ", ".join(name for name, reason in self.untried.items() if reason == why)
            lines.append(f"not tried: {names} ({why.rstrip('.')})")
        count = len(self.faults)
        return "\n".join([f"{self.kind}: {count or 'no'} fault{'s'[: count != 1]}", *lines])


@dataclass(frozen=True, eq=False)
class Heads:
    """A function of ready heads, whatever it was: call(q, k, v, mask, causal) to (B, H, T, E).

    `forms` make of a mask (T, S), True = may attend, what the function may take; none where it takes none.
    """

    kind: str
    call: Callable[[Tensor, Tensor, Tensor, Any, bool], Tensor]
    heads: tuple[int, int, int]  # of q, k and v
    sizes: tuple[int, int] = (D, D)  # of q and k, and of v
    forms: tuple[Form, ...] = ()
    needs_mask: bool = False  # whether it cannot be called without one
    causal: bool = False  # whether it takes a flag for it
    fixed: str = ""  # why other sizes and lengths are not tried

    def draw(self, seed: int = 0, queries: int = T, size: int = 0, batch: int = B) -> list[Tensor]:
        """Seeded normal q, k and v."""
        random = torch.Generator().manual_seed(seed)
        widths = (size or self.sizes[0], size or self.sizes[0], size or self.sizes[1])
        shapes = zip(self.heads, (queries, T, T), widths, strict=True)
        return [torch.randn(batch, *shape, generator=random) for shape in shapes]

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, *, mask: Mask = None, causal: bool = False
    ) -> Tensor:
        if mask is None and self.needs_mask:
            mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
        out = self.call(q, k, v, _formed(self, mask, len(q)), causal)
        expected = (len(q), max(self.heads[0], self.heads[2]), q.shape[2], v.shape[3])
        fits = isinstance(out, Tensor) and out.shape[:1] + out.shape[2:] == (len(q), *expected[2:])
        refuse_if(not fits, f"It returned {_shape(out)}; expected (B, H, T, D) = {expected}.")
        return out

    def weights(
        self, q: Tensor, k: Tensor, mask: Mask = None, causal: bool = False, size: int = 0
    ) -> Float[Tensor, "B H T S"]:
        """What multiplies the values, by identity values in chunks of a head's size."""
        keys, width = k.shape[2], size or self.sizes[1]
        eye = F.pad(torch.eye(keys, dtype=k.dtype), (0, -keys % width))
        zero = torch.zeros(len(k), self.heads[2], keys, width, dtype=k.dtype)
        with torch.no_grad():
            parts = [
                self(q, k, one.expand_as(zero), mask=mask, causal=causal)
                for one in eye.split(width, 1)
            ]
            added = self(q, k, zero, mask=mask, causal=causal)  # as relative values are
        return torch.cat([part - added for part in parts], -1)[..., :keys]

    def map(self, mask: Mask = None, causal: bool = False) -> Float[Tensor, "B H T S"]:
        q, k, _ = self.draw()
        return self.weights(q, k, mask, causal)


@dataclass(frozen=True, eq=False)
class Tokens:
    """A module of tokens: call(x, mask) to (B, T, C), an example x, and the forms of its mask."""

    kind: str
    call: Callable[[Tensor, Any], Tensor]
    x: Float[Tensor, "B T C"]
    forms: tuple[Form, ...]
    needs_mask: bool = False
    causal: bool = False
    fixed: str = "a module has its own sizes"

    def draw(self, seed: int = 0) -> list[Tensor]:
        return [self.x]

    def __call__(self, x: Tensor, *, mask: Mask = None) -> Tensor:
        if mask is None and self.needs_mask:
            mask = torch.ones(T, T, dtype=torch.bool)
        return self.call(x, _formed(self, mask, len(x)))

    def map(self, mask: Mask = None, causal: bool = False) -> Float[Tensor, "1 1 T T"]:
        """How much the output at i changes with token j, of one sequence."""
        each = torch.arange(self.x.shape[1])
        x = self.x[:1].repeat(len(each) + 1, 1, 1)
        with torch.no_grad():
            x[each, each] += self.x[-1].roll(1, 0)
            out = self(x, mask=mask)
        return (out[:-1] - out[-1:]).abs().amax(-1).mT[None, None]


Subject = Heads | Tokens


def _formed(subject: Subject, mask: Mask, batch: int) -> Any:
    """A mask in the form that it takes, for so many sequences."""
    value = None if mask is None else subject.forms[0](mask)
    return value if value is None or len(value) != B else value[:1].expand(batch, *value.shape[1:])


def check(
    thing: Any, *, causal: bool | None = None, heads: int = 3, x: Tensor | None = None
) -> Findings:
    """Whether `thing` is attention as its author means it: each usual fault by its cause, with numbers and two maps.

    `thing` is f(q, k, v, …) to (B, H, T, D), an nn.Module of x (B, T, C), a score_mod or mask_mod of flex_attention, a
    function of transformers' AttentionInterface, or a layer, a config or a registered Entry of this lab. `causal` says
    whether no later token may be felt; None: either. `heads` is the H of q, k, v, and `x` an example input of a module
    whose width cannot be seen. Modules are called in eval mode. ConfigError for anything else, or what cannot run.
    """
    if isinstance(thing, Entry):
        axis = next((axis for axis, entries in AXES.items() if thing in entries), "")
        refuse_if(not axis, f"{thing.key} is on no axis yet; register it, which checks it.")
        thing = example_config(axis, thing.key, 24, 3)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(86)
        if isinstance(thing, AttentionConfig):
            thing = Attention(thing, add_positions=True)
        modules = thing.modules() if isinstance(thing, nn.Module) else ()
        training = [module for module in modules if module.training]
        try:
            for module in training:
                module.training = False
            return _checked(thing, _subjects(thing, heads, x), causal)
        finally:
            for module in training:
                module.training = True


def _checked(thing: Any, subjects: list[Subject], causal: bool | None) -> Findings:
    findings: dict[str, Finding] = {}
    untried: dict[str, str] = {}
    for subject in subjects:
        subject = replace(subject, forms=_fitting(subject))
        for name, probe in PROBES.items():
            if isinstance(subject, Tokens) and name not in OF_TOKENS:
                continue
            try:
                for finding in probe(subject, causal):
                    findings.setdefault(finding.probe, finding)
            except Exception as error:
                why = str(error) if type(error) is ConfigError else describe(error)
                untried.setdefault(name, why)
            if name in STOPS and any(
                one.level == "fault" or one.probe == "values" for one in findings.values()
            ):
                break  # what follows would be measured on noise
    if isinstance(thing, Attention):
        findings |= {finding.text: finding for finding in _parts(thing)}
    kind = f"{_name(thing)}, {subjects[0].kind}"
    return Findings(kind, tuple(findings.values()), untried)


# What a thing is, by its signature.


def _name(thing: Any) -> str:
    function = getattr(thing, "func", thing)
    return getattr(function, "__name__", type(function).__name__)


def _shape(out: Any) -> str:
    return str(tuple(out.shape)) if isinstance(out, Tensor) else quote(out)


def _subjects(thing: Any, heads: int, x: Tensor | None) -> list[Subject]:
    """The thing as a function of heads, or as one of tokens; a layer of this lab is both."""
    module = isinstance(thing, nn.Module)
    subjects: list[Subject] = []
    if run := _of_layer(thing) if isinstance(thing, Attention) else of_heads(thing, heads):
        try:
            run(*run.draw())
            subjects.append(run)
        except Exception as error:  # perhaps its q, k and v are tokens, as of nn.MultiheadAttention
            if not module:
                raise ConfigError(f"{_name(thing)} cannot run. {describe(error)}") from error
    if module and (not subjects or isinstance(thing, Attention)):
        subjects.append(of_tokens(thing, x))
    return subjects


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
    return list(taken), letters, next((name for name in MASKS if name in taken), ""), needed


def of_heads(thing: Any, heads: int) -> Heads | None:
    """The thing as a function of heads; None for a module of x."""
    refuse_if(
        not callable(thing) or isinstance(thing, type),
        f"check takes {EXPECTED}; got {quote(thing)}.",
    )
    names, letters, mask_name, needed = _parameters(thing)
    flag = next((name for name in CAUSAL if name in names), "")
    counts = (heads, heads, heads)
    if letters[1:4] == "qkv" and len(names) > 4:
        return Heads("a function of AttentionInterface", _interface(thing), counts, forms=(_added,))
    if letters.startswith("qkv"):

        def call(q: Tensor, k: Tensor, v: Tensor, mask: Any, causal: bool) -> Tensor:
            given = ({flag: True} if flag and causal else {}) | (
                {} if mask is None else {mask_name: mask}
            )
            result = thing(q, k, v, **given)
            return result[0] if isinstance(result, tuple) else result

        return Heads(
            "a function of q, k and v",
            call,
            counts,
            forms=_forms(mask_name),
            needs_mask=mask_name in needed,
            causal=bool(flag),
        )
    if len(needed) in (4, 5) and letters[len(needed) - 2 : len(needed)] in ("qk", "ij"):
        masks = len(needed) == 4
        return Heads("a mask_mod" if masks else "a score_mod", _modified(thing, masks), counts)
    refuse_if(
        not isinstance(thing, nn.Module) or not names,
        f"{_name(thing)} takes ({', '.join(names)}); check takes {EXPECTED}.",
    )
    return None


def _of_keys(mask: Tensor) -> Tensor:
    return mask[:1].expand(B, -1)


def _added(mask: Tensor) -> Tensor:
    """As transformers adds it to the scores, (B, 1, T, S)."""
    least = torch.finfo(torch.float32).min
    return torch.zeros(mask.shape).masked_fill(~mask, least).expand(B, 1, -1, -1)


def _forms(name: str) -> tuple[Form, ...]:
    """What a mask of that name may be: of keys, True = hidden; of keys, or of cells, True = may attend; or added."""
    if name in KEYS_HIDDEN:
        return (lambda mask: ~_of_keys(mask), torch.logical_not)
    cells = (torch.Tensor.bool, _of_keys, _added, torch.Tensor.float)
    return (_of_keys,) if name == "key_mask" else cells if name else ()


def _interface(function: Any) -> Callable[..., Tensor]:
    def call(q: Tensor, k: Tensor, v: Tensor, mask: Any, causal: bool) -> Tensor:
        module: Any = nn.Identity().eval()
        module.num_key_value_groups, module.is_causal = q.shape[1] // k.shape[1], False
        mask = mask if mask is None else mask.to(q.dtype).clamp(min=torch.finfo(q.dtype).min)
        out, _ = function(module, q, k, v, mask, scaling=q.shape[-1] ** -0.5, dropout=0.0)
        refuse_if(
            out.shape[1:3] == q.shape[1:3],
            f"It returned {_shape(out)}; AttentionInterface expects (B, T, H, D): out.transpose(1, 2).",
        )
        return out.transpose(1, 2)

    return call


def _modified(function: Any, masks: bool) -> Callable[..., Tensor]:
    """Attention with scores as flex_attention changes them, cell by cell."""
    cell: Callable[..., Tensor]
    cell = (lambda score, *at: torch.where(function(*at), score, -torch.inf)) if masks else function
    for place in (4, 3, 2, 1):  # keys, queries, heads, sequences
        cell = torch.vmap(cell, tuple(0 if at in (0, place) else None for at in range(5)))

    def call(q: Tensor, k: Tensor, v: Tensor, mask: Any, causal: bool) -> Tensor:
        scores = q @ k.mT * q.shape[-1] ** -0.5
        changed = cell(scores, *map(torch.arange, scores.shape))
        return changed.to(scores.dtype).softmax(-1).nan_to_num(0.0) @ v

    return call


def _pads(layer: nn.Module) -> bool:
    return isinstance(layer, Attention) and any(
        one.key == "padding" for one in layer.config.mask.walk()
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

    def call(q: Tensor, k: Tensor, v: Tensor, mask: Any, causal: bool) -> Tensor:
        used, x = sized(q.shape[-1])
        queries, keys = (x[:, : one.shape[2]].expand(len(q), -1, -1) for one in (q, k))
        own = keys if q.shape[2] == k.shape[2] else queries
        return used.attend_heads(q, k, v, own, keys, None, mask, record=False).out

    return Heads(
        "a layer of this lab",
        call,
        (sizes.score_heads, sizes.kv_heads, min(sizes.kv_heads, config.num_heads)),
        (sizes.qk_dim, sizes.v_dim),
        (_of_keys,),
        needs_mask=_pads(layer),
        fixed="its sizes are those of its config",
    )


def of_tokens(module: nn.Module, x: Tensor | None) -> Tokens:
    """A module as a function of tokens, on an example input."""
    _, letters, mask_name, needed = _parameters(module)
    plain = type(module).__module__.startswith("torch.nn")  # else its forward takes (B, T, C)
    orders = [one.batch_first for one in module.modules() if hasattr(one, "batch_first")]
    first, copies = all(orders) or not plain, 3 if letters.startswith("qkv") else 1
    sizes = (
        *(getattr(module, name, None) for name in ("embed_dim", "d_model", "hidden_size")),
        getattr(getattr(module, "config", None), "d_model", None),
        *(one.in_features for one in module.modules() if isinstance(one, nn.Linear)),
    )
    width = next((size for size in sizes if isinstance(size, int)), 0)
    refuse_if(
        x is None and not width,
        f"The width of {_name(module)} cannot be seen; give check(…, x=…), an input (B, T, C).",
    )
    random = torch.Generator().manual_seed(1)
    x = torch.randn(B, T, width, generator=random) if x is None else x[:B, :T]
    refuse_if(
        x.dim() != 3 or x.shape[:2] != (B, T),
        f"x is {_shape(x)}; expected (B, T, C) of at least {B} sequences of {T} tokens.",
    )

    def call(x: Tensor, mask: Any) -> Tensor:
        given = {} if mask is None else {mask_name: mask}
        out: Any = module(*(x if first else x.transpose(0, 1),) * copies, **given)
        out = out[0] if isinstance(out, tuple) else getattr(out, "merged", out)
        return out if first else out.transpose(0, 1)

    needs = mask_name in needed or _pads(module)
    made = Tokens("a module of x", call, x, _forms(mask_name), needs)
    try:
        out = made(x)
    except Exception as error:
        raise ConfigError(
            f"{_name(module)} cannot run on x {_shape(x)}. {describe(error)}"
        ) from error
    refuse_if(
        not isinstance(out, Tensor) or out.shape[:2] != x.shape[:2],
        f"{_name(module)} gives {_shape(out)} for x {_shape(x)}; expected (B, T, C).",
    )
    return made


# The probes. Each yields what it found; an error that it meets is why it could not be tried.

Case = tuple[object, str, Level, str]


def _first(
    *cases: Case, got: Tensor | None = None, expected: Tensor | None = None
) -> Iterator[Finding]:
    """The first case that applies: probe, level and text."""
    for applies, probe, level, text in cases:
        if applies:
            yield Finding(probe, level, text, got, expected)
            return


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


def _plain(q: Tensor, k: Tensor, seen: Tensor | None = None) -> Tensor:
    """The map of softmax(q kᵀ / √D) of the first head, of the cells that are seen."""
    scores = q[0, 0] @ k[0, 0].mT * q.shape[-1] ** -0.5
    scores = scores if seen is None else scores.masked_fill(~seen, -torch.inf)
    return scores.softmax(-1).nan_to_num(0.0)


def _same(one: Tensor, other: Tensor, tolerance: float = 1e-4) -> bool:
    return torch.allclose(one, other, tolerance, tolerance * float(other.abs().amax()))


def _peak(x: Tensor) -> float:
    """The largest size of a number; 0 of none."""
    return float(x.abs().max()) if x.numel() else 0.0


def _repeatable(subject: Subject, causal: bool | None) -> Iterator[Finding]:
    with torch.no_grad():
        one, other = (subject(*subject.draw()) for _ in range(2))
    text = (
        f"Two calls on the same numbers differ by up to {_peak(one - other):.2g}: dropout is on in eval mode, or something "
        "else draws random numbers."
    )
    return _first((not _same(one, other), "repeatable", "fault", text))


def _rows(subject: Subject, causal: bool | None) -> Iterator[Finding]:
    """Over what weights sum to 1; those of a module are the results of its softmaxes between tokens."""
    if isinstance(subject, Heads):
        weights = subject.map()
        q, k, _ = subject.draw()
        yield from _sums(weights, _plain(q, k, weights[0, 0] != 0))
        return
    with torch.no_grad(), Recorder() as recorder:
        subject(*subject.draw())
    for name, weights in recorder.results:
        if name == "softmax" and weights.shape[-2:] == (T, T):
            yield from _sums(weights[None] if weights.dim() == 3 else weights, None)


def _sums(weights: Float[Tensor, "B H T S"], right: Tensor | None) -> Iterator[Finding]:
    sums = weights.sum(-1)
    wrong = ((sums - 1).abs().minimum(sums.abs()) > 1e-3).any()  # 0 of a query that sees no key
    text = f"The weights of a query sum to {float(sums.min()):.2f} … {float(sums.max()):.2f}"
    cases: list[Case] = [
        (
            wrong and _same(weights.sum(dim), torch.ones(1), 1e-3),
            "rows",
            "fault",
            f"{text}; over {name} they sum to 1: the softmax is over the wrong dimension; take dim=-1, the keys.",
        )
        for dim, name in ((-2, "queries"), (1, "heads"), (0, "sequences"))
    ]
    cases.append((wrong, "rows", "property", f"{text}, not to 1."))
    return _first(*cases, got=weights[0, 0], expected=right)


def _sequences(subject: Subject, causal: bool | None) -> Iterator[Finding]:
    """What one query, or another sequence, changes of the output of others."""
    given = subject.draw()
    with torch.no_grad():
        before = subject(*given)
        mixed = _peak((subject(*(torch.cat((x[:1], x[1:] + 1)) for x in given)) - before)[0])
        own = others = heads = 0.0
        if isinstance(subject, Heads):
            q, k, v = given
            other = q.clone()
            other[0, 0, 2] += 1
            changed = (subject(other, k, v) - before)[0].abs().amax(-1)
            own, heads = _peak(changed[:, 2]), _peak(changed[1:, 2])
            changed[:, 2] = 0
            others = _peak(changed)
    where = "as by a view where a transpose belongs."
    return _first(
        (
            mixed > 1e-4,
            "sequences",
            "fault",
            f"Another sequence of the batch changes the output, by up to {mixed:.2g}: sequences are mixed, {where}",
        ),
        (
            others > 1e-4 > own,
            "sequences",
            "fault",
            f"A query changes not its own output but that of others, by up to {others:.2g}: heads and tokens are mixed, "
            f"{where}",
        ),
        (
            others > 1e-4,
            "sequences",
            "property",
            "A query changes the rows of others, as a convolution over queries does.",
        ),
        (
            heads > 1e-4,
            "sequences",
            "property",
            "A head's query changes other heads: their scores or weights are mixed.",
        ),
    )


def _values(subject: Heads, causal: bool | None) -> Iterator[Finding]:
    """The output is weights · v, which all maps below rely on."""
    q, k, v = subject.draw()
    one = torch.zeros_like(v)
    one[..., 0] = 1
    weights = subject.map()
    with torch.no_grad():
        added, out, channels = (subject(q, k, x) for x in (0 * v, v, one))
    same = _same(out - added, weights @ repeat_heads(v, weights.shape[1]), 1e-3)
    turned = F.normalize(channels - added, dim=-1)
    leaks = _peak((turned - turned[:, :, -1:])[..., 1:])
    return _first(
        (
            not same and leaks > 1e-2,
            "values",
            "fault",
            f"A value that is the same at all keys comes out in another direction at each query (by up to {leaks:.2f}): "
            "values are rotated, or moved between heads and tokens by a view without a transpose; rotate q and k alone.",
        ),
        (
            not same,
            "values",
            "property",
            "The output is not weights · v of one weight a key: values, or the output, are changed on their way. No map "
            "can be read.",
        ),
        (
            _peak(added) > 1e-4,
            "added",
            "property",
            "Something is added to weights · v, as relative values are.",
        ),
    )


def _later(subject: Subject, causal: bool | None) -> Iterator[Finding]:
    """What is felt of later tokens: as the function is, and with its flag for a causal mask."""
    places = torch.arange(T)
    ahead = places - places[:, None]  # j − i
    for flag in (False, True)[: 1 + subject.causal]:
        meant = flag or (None if subject.causal else causal)
        level: Level = "fault" if meant else "warning"
        felt = subject.map(causal=flag).abs().amax((0, 1))
        seen = felt > SMALL * felt.max()
        later, earlier = felt[ahead > 0], felt[ahead < 0]
        reach = int((ahead * seen).max())
        band, number = torch.equal(seen, ahead <= reach), f"{_peak(later):.2g}"
        next_ones = "token" if reach == 1 else f"{reach} tokens"
        though = f"Later tokens are felt, with a {'weight' if isinstance(subject, Heads) else 'change'} up to {number}"
        name = "later tokens"
        yield from _first(
            (not seen[ahead != 0].any(), name, "warning", "No other token is felt."),
            (
                not seen[1:][ahead[1:] >= 0].any(),  # the first query then sees none, or all alike
                "itself",
                level,
                "No query sees its own token, only earlier ones: the diagonal of the causal mask is −1; take 0.",
            ),
            (
                not seen[ahead > 0].any() and meant is False,
                name,
                "warning",
                "No later token is felt, though causal = False.",
            ),
            (
                not seen[ahead > 0].any(),
                name,
                "property",
                f"{'With its flag for it' if flag else 'As it is'} it is causal: no later token is felt.",
            ),
            (
                not seen[ahead < 0].any(),
                name,
                level,
                "Only later tokens are felt, no earlier one: the causal mask is inverted.",
            ),
            (
                band and reach < T - 1,
                name,
                level,
                f"A query feels the next {next_ones}, by up to {number}: the diagonal of the causal mask is {reach}; take 0.",
            ),
            (
                meant and _peak(later) < 1e-2 * float(earlier.mean()),
                name,
                level,
                f"{though}, though causal: what hides them is too small a number; take −∞.",
            ),
            (meant and band, name, level, f"{though}, though causal: no causal mask is applied."),
            (
                meant,
                name,
                level,
                f"{though}, though causal: heads or tokens are mixed, as by a view without a transpose.",
            ),
            got=felt,
            expected=felt.tril(),
        )


def _visible() -> Bool[Tensor, "T T"]:
    mask = torch.ones(T, T, dtype=torch.bool)
    mask[:, HIDDEN] = False
    return mask


def _fitting(subject: Subject) -> tuple[Form, ...]:
    """The form of a mask that it takes: the first that hides and shows, else the first that it runs with."""
    runs: list[tuple[float, Form]] = []
    for form in subject.forms:
        try:
            map = replace(subject, forms=(form,)).map(_visible())[..., _visible()[0], :]
            runs.append((_peak(map[..., HIDDEN]) if map[..., 1:, 0].any() else torch.inf, form))
        except Exception:  # another form may run
            continue
    fitting = [form for share, form in runs if share < SMALL] or [form for _, form in runs]
    return tuple(fitting) or subject.forms


def _mask(subject: Subject, causal: bool | None) -> Iterator[Finding]:
    refuse_if(not subject.forms, NO_MASK)
    seen = _visible()
    rows, off = seen[0], ~torch.eye(T, dtype=torch.bool)
    whole, masked = subject.map(), subject.map(seen)
    before, after = ((map * off)[..., rows, :] for map in (whole, masked))
    hidden, visible = after[..., HIDDEN].abs(), after[..., rows]
    felt, least = _peak(hidden) > SMALL * _peak(before), SMALL * _peak(before)
    refuse_if(
        _peak(before[..., HIDDEN]) <= least, "its own mask hides the keys that would be hidden"
    )
    q, k = subject.draw()[:2] if isinstance(subject, Heads) else 2 * subject.draw()
    right = (
        _plain(q, k, seen & (whole[0, 0] != 0))
        if isinstance(subject, Heads)
        else whole[0, 0] * seen
    )
    texts = (
        (_same(before, after), "A mask that hides three keys changes nothing: it is ignored."),
        (not after.isfinite().all(), "With a mask that hides three keys the output is not finite."),
        (
            felt and _peak(visible) <= least,
            "A mask hides the visible keys and shows the hidden ones: it is inverted; True = may attend, but in a "
            "key_padding_mask.",
        ),
        (
            felt and _same(hidden.amax(-1), hidden.amin(-1), 1e-3),
            f"Hidden keys all get one weight, up to {_peak(hidden):.2g}: the mask makes their score 0, and e⁰ = 1; fill it "
            "with −∞.",
        ),
        (
            felt,
            f"Hidden keys are still felt, by up to {_peak(hidden):.2g}: what the mask adds to their scores is too small a "
            "number; take −∞.",
        ),
        (
            _same(visible, before[..., rows])
            and _same(whole.sum(-1), torch.ones(1), 1e-3)
            and masked.sum(-1).min() < 0.999,
            f"Hidden keys get no weight, but the others keep theirs, and a row sums to {float(masked.sum(-1).min()):.2g}: "
            "the mask is applied after the softmax.",
        ),
    )
    cases: list[Case] = [(wrong, "mask", "fault", text) for wrong, text in texts]
    return _first(*cases, got=masked[0, 0], expected=right)


def _dead(subject: Subject, causal: bool | None) -> Iterator[Finding]:
    refuse_if(not subject.forms, NO_MASK)
    with torch.no_grad():
        out = subject(*subject.draw(), mask=torch.zeros(T, T, dtype=torch.bool))
    text = "A query that sees no key gives NaN, which reaches the loss of its whole batch; 0 would be right."
    return _first((not out.isfinite().all(), "dead row", "warning", text))


def _log_rows(subject: Heads, q: Tensor, k: Tensor) -> Tensor:
    """log weights of the visible keys of the last query, less their mean: its scores, where weights are a softmax."""
    rows = subject.weights(q, k, size=q.shape[-1])[:, :, -1].flatten(0, 1)
    seen = rows[0] > 0
    refuse_if(
        not torch.equal(rows > 0, seen.expand_as(rows))
        or not _same(rows.sum(-1), torch.ones(1), 1e-3),
        "weights that do not sum to 1, or are 0, tell no scores",
    )
    log = rows[:, seen].log()
    return log - log.mean(-1, keepdim=True)


def _scale(subject: Heads, causal: bool | None) -> Iterator[Finding]:
    spreads, slopes, bent = list[float](), list[float](), 0.0
    for size in SIZES:
        q, k, _ = (0.3 * x for x in subject.draw(2, size=size, batch=8))
        biases = _log_rows(subject, 0 * q, k)
        scored, twice = (_log_rows(subject, by * q, k) - biases for by in (1, 2))
        dots = (q[:, :, -1:] @ repeat_heads(k, q.shape[1]).mT).squeeze(2)
        usual = (dots - dots.mean(-1, keepdim=True)).std() * size**-0.5
        spreads.append(float(scored.std() / usual) + 1e-9)
        slopes.append(float((twice * scored).sum() / scored.square().sum().clamp(min=1e-12)))
        bent = max(bent, _peak(twice - slopes[-1] * scored) / (_peak(twice) + 1e-9))
    (small, large), slope = spreads, slopes[0]
    at = f"At head sizes {SIZES[0]} and {SIZES[1]} scores spread {small:.3g} and {large:.3g} times as far as q·k / √D"
    other = max(abs(math.log(small)), abs(math.log(large))) > 0.7
    return _first(
        (small < 1e-4, "scale", "property", "Weights do not depend on the queries."),
        (
            abs(slope - 1) < 0.05,
            "scale",
            "property",
            "Weights do not change with the length of queries, as by cosine scores.",
        ),
        (
            abs(slope - 2) > 0.1 or bent > 0.1,
            "scale",
            "property",
            f"Scores are no dot products: twice a query gives about {slope:.2f} times its score.",
        ),
        (
            large > 2 * small,
            "scale",
            "warning",
            f"{at}: they are not divided by √D, or by one number for all D.",
        ),
        (
            large < small / 2,
            "scale",
            "warning",
            f"{at}: they are divided by D, or by √D twice; divide by √D once.",
        ),
        (other, "scale", "property", f"{at}: they have a temperature of their own."),
        got=subject.weights(3 * q, 3 * k, size=q.shape[-1])[0, 0],
        expected=_plain(3 * q, 3 * k),
    )


def _scores(subject: Heads, q: Tensor, k: Tensor) -> Float[Tensor, "B H T S"]:
    """The scores beside that of the first key, whose k is 0: log w_ij − log w_i0; NaN where either is hidden."""
    log = subject.weights(q, k).log()
    scores = log - log[..., :1]
    return scores.masked_fill(~scores.isfinite(), torch.nan)


def _varies(cells: Tensor, along: Tensor) -> float:
    """The largest spread of a cell (…, T, N) among those of one number in `along`, NaN left out."""
    groups = [cells[..., along == number] for number in along.unique()]
    spreads = [
        one.nan_to_num(-torch.inf).amax(-1) - one.nan_to_num(torch.inf).amin(-1) for one in groups
    ]
    return float(torch.stack(spreads).clamp(min=0).max())


def _places(subject: Heads, causal: bool | None) -> Iterator[Finding]:
    """Equal queries and equal keys: what of their scores the places change, alone and where the two meet."""
    q, k, _ = subject.draw(3)
    a, b = (x[:, :, :1].expand_as(x).clone() for x in (q, k))
    b[:, :, 0] = 0
    pairs = (0 * a, 0 * b), (0 * a, b), (a, 0 * b), (a, b), (2 * a, b)
    neither, of_keys, of_queries, both, twice = (_scores(subject, *pair) for pair in pairs)
    met = (both - of_keys - of_queries + neither)[..., 1:]
    refuse_if(not met.isfinite().any(), "too many weights are 0, which tell no scores")
    double = (twice - of_keys - 2 * (of_queries - neither))[..., 1:].nan_to_num(0.0)
    i, j = torch.arange(T)[:, None].expand(-1, T - 1), torch.arange(1, T).expand(T, -1)
    own = met[:, :, range(1, T), range(T - 1)].flatten(0, 1)  # i = j
    size, apart = _peak(met.nan_to_num(0.0)), _varies(met, i - j)
    singular = torch.linalg.svdvals(own[:, own.isfinite().all(0)])
    # One row of numbers for all contents is a factor of the place, as a temperature by length, and no rotation.
    turns = len(singular) > 1 and float(singular[1]) > 0.05 * float(singular[0]) and size > 1e-3
    turns = turns and _same(2 * met.nan_to_num(0.0), double, 0.02)
    steps = [(x[..., :-1] - x[..., 1:])[..., 1:] for x in (neither, of_keys, of_queries)]
    back = (i - j)[:, :-1]
    absolute = max(_varies(step, back) for step in steps) > 1e-2
    rises = steps[0].where(steps[0].isfinite() & (back > 0), torch.inf).amin((0, 2, 3))
    grows = not absolute and rises.min() > -1e-5 and (rises[rises.isfinite()] > 1e-4).any()
    bias = subject.weights(0 * a, 0 * b)[0, 0]
    yield from _first(
        (
            grows,
            "bias",
            "fault",
            f"Without content, each place further back adds {float(rises.min()):.2g} or more to a score: the bias grows "
            "with distance, so its sign is wrong; nearer keys should score more.",
        ),
        got=bias,
        expected=F.normalize((bias > 0) / bias.clamp(min=1e-9), 1, -1),
    )
    text = f"Equal queries and keys at one place score differently from place to place, by up to {apart:.2g}: "
    got = met[0, 0].nan_to_num(0.0)
    right = torch.stack([got[i - j == n].mean() for n in (i - j).flatten()]).view_as(got)
    name = "positions"
    yield from _first(
        (
            turns and _varies(met, j) < 0.02 * apart,
            name,
            "fault",
            f"{text}keys are rotated, queries are not.",
        ),
        (
            turns and _varies(met, i) < 0.02 * apart,
            name,
            "fault",
            f"{text}queries are rotated, keys are not.",
        ),
        (
            turns,
            name,
            "fault",
            f"{text}the rotation depends on the place itself, not on i − j; rotate q and k by one rule, each by its place.",
        ),
        (
            absolute or apart > 0.02 * size + 1e-3,
            name,
            "property",
            "Scores depend on the places of query and key themselves, as by absolute positions, not on i − j alone.",
        ),
        (
            _varies(met, 0 * i) > 1e-3,
            name,
            "property",
            "Scores depend on the distance i − j, by a rotation.",
        ),
        (
            max(_peak(step.nan_to_num(0.0)) for step in steps) > 1e-3,
            name,
            "property",
            "Scores depend on the distance i − j, by a bias.",
        ),
        (True, name, "property", "The order of keys is not felt: it has no positions of its own."),
        got=got,
        expected=right,
    )


def _lengths(subject: Heads, causal: bool | None) -> Iterator[Finding]:
    q, k, _ = subject.draw(queries=5)
    weights, why = None, ""
    try:
        weights = subject.weights(q, k, causal=subject.causal)
    except Exception as error:
        why = describe(error)
    later = _peak(subject.map(causal=subject.causal).triu(1)) > SMALL
    first = (
        0 if later or weights is None else int((weights[:, :, 0].abs().amax((0, 1)) > SMALL).sum())
    )
    text = f"Of 5 queries beside {T} keys the first sees {first}: the causal rule is aligned"
    return _first(
        (
            why,
            "lengths",
            "warning",
            f"5 queries beside {T} keys fail, as a cache or cross-attention needs them. {why}",
        ),
        (first == 1, "lengths", "property", f"{text} top left; a cache needs bottom right."),
        (first == T - 4, "lengths", "property", f"{text} bottom right, as a cache needs."),
    )


def _grouped(subject: Heads, causal: bool | None) -> Iterator[Finding]:
    refuse_if(subject.fixed, subject.fixed)
    q, k, v = replace(subject, heads=(4, 2, 2)).draw()
    four = replace(subject, heads=(4, 4, 4))
    with torch.no_grad():
        try:
            out = subject(q, k, v)
        except Exception:
            raise ConfigError("it takes as many heads of k and v as of q") from None
        right = four(q, *(x.repeat_interleave(2, 1) for x in (k, v)))
        wrong = four(q, *(x.repeat(1, 2, 1, 1) for x in (k, v)))
    return _first(
        (
            _same(out, right),
            "grouped heads",
            "property",
            "It takes grouped heads: two heads in a row share k and v.",
        ),
        (
            _same(out, wrong),
            "grouped heads",
            "fault",
            "Of 4 heads and 2 of k and v, heads 0 and 2 share, and 1 and 3: repeat stands where repeat_interleave belongs.",
        ),
    )


def _gradients(subject: Subject, causal: bool | None) -> Iterator[Finding]:
    """Along one random direction of each input, beside the difference of two outputs."""
    random = torch.Generator().manual_seed(6)
    given = [x if subject.fixed else x.double() for x in subject.draw(4)]
    given = [x.clone().requires_grad_() for x in given]
    out = subject(*given)
    weight = torch.randn(out.shape, generator=random).to(out)
    gradients = torch.autograd.grad((out * weight).sum(), given, allow_unused=True)
    for at, own in enumerate(gradients):
        step = F.normalize(torch.randn(given[at].shape, generator=random).flatten(), dim=0)
        step = step.view_as(given[at]).to(given[at])
        with torch.no_grad():
            moved = ([*given[:at], given[at] + by * step, *given[at + 1 :]] for by in (1e-3, -1e-3))
            ends = [(subject(*one) * weight).double().sum() for one in moved]
        number = float(ends[0] - ends[1]) / 2e-3
        taken = 0.0 if own is None else float((own * step).sum())
        text = (
            f"Along a step of {'qkv'[at] if len(given) > 1 else 'x'} the output changes by {number:.3g}, its gradient says "
            f"{taken:.3g}"
        )
        wrong = abs(taken - number) > 0.03 * max(abs(number), abs(taken)) + 0.02
        yield from _first(
            (
                wrong and abs(number) < 1e-3,
                "gradients",
                "property",
                f"{text}: it is passed straight through.",
            ),
            (
                wrong and taken == 0,
                "gradients",
                "fault",
                f"{text}: no gradient reaches it, as behind detach() or .data.",
            ),
            (wrong, "gradients", "fault", f"{text}: its backward is wrong."),
        )


def _large(subject: Heads, causal: bool | None) -> Iterator[Finding]:
    q, k, v = subject.draw()
    with torch.no_grad():
        broken = not subject(20 * q, 20 * k, v).isfinite().all()
        yield from _first(
            (
                broken,
                "large scores",
                "fault",
                "Scores of some hundreds give NaN or ∞ in float32: e^x overflows; subtract the largest score of each row "
                "first, as softmax does.",
            )
        )
        refuse_if(subject.fixed, subject.fixed)
        for name in () if broken else ("bfloat16", "float16"):
            why, out = "", q
            try:
                half = [x.to(getattr(torch, name)) for x in (4 * q, 4 * k, v)]
                out = subject(*half, mask=_visible() if subject.forms else None)
            except Exception as error:
                why = describe(error)
            text = f"In {name} the output is NaN or ∞ for scores of some tens: a number overflows."
            yield from _first(
                (why, "half precision", "warning", f"In {name} it does not run. {why}"),
                (not out.isfinite().all(), "half precision", "fault", text),
            )


def _parts(layer: Attention) -> Iterator[Finding]:
    """Cached steps, and chunks of another size, against the whole."""
    tokens = of_tokens(layer, None)
    x, felt = tokens.x, tokens.map()
    outs: dict[str, Tensor] = {}
    with torch.no_grad():
        whole = tokens(x)
        if _peak(felt.triu(1)) <= SMALL * _peak(felt) and not tokens.needs_mask:
            cache, parts = Cache(), []
            for part in x.split(PARTS, 1):
                steps, cache = layer.step(part, cache)
                parts.append(steps.merged)
            outs["Token by token, with a cache,"] = torch.cat(parts, 1)
        if "chunk" in (params := layer.config.kernel.kwargs):
            kernel = Choice.of(layer.config.kernel.key, **params | {"chunk": 2})
            short = Attention(layer.config.with_(kernel=kernel), layer.add_positions).eval()
            short.load_state_dict(layer.state_dict())
            outs["In chunks of 2 tokens"] = short(x, record=False).merged
    for how, out in outs.items():
        text = f"{how} the output differs from that of the whole text by up to {_peak(out - whole):.2g}."
        yield from _first((not _same(out, whole, 1e-3), "parts", "fault", text))


PROBES: dict[str, Callable[[Any, bool | None], Iterator[Finding]]] = {
    "repeatable": _repeatable,
    "rows": _rows,
    "sequences": _sequences,
    "values": _values,
    "later tokens": _later,
    "mask": _mask,
    "scale": _scale,
    "positions": _places,
    "dead row": _dead,
    "lengths": _lengths,
    "grouped heads": _grouped,
    "gradients": _gradients,
    "large scores": _large,
}
OF_TOKENS = "repeatable", "rows", "sequences", "later tokens", "mask", "dead row", "gradients"
STOPS = "repeatable", "rows", "sequences", "values"
