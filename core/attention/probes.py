"""check: whether a function or a layer is the attention that its author means, found by probes from outside.

Attention is linear in its values, so identity values give the very weights of any function of q, k and v, without a look
into its code. The probes ask what the usual faults change: a masked key that is felt, a later token that is felt, scores
that spread with the head size, a rotation that depends on the place itself, a bias with the wrong sign.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from core.attention.base import Steps, repeat_heads
from core.attention.config import AXES, AttentionConfig, example_config
from core.attention.decoding import Cache
from core.attention.layer import Attention
from core.entries import Choice, ConfigError, Entry, quote, refuse_if
from core.plugins import describe

B, T, D = 2, 9, 16  # of the inputs
SIZES = 16, 256  # of heads, between which the spread of scores is compared
HIDDEN = [1, 4, 5]  # keys that a mask hides
SMALL = 1e-6  # of a weight: what is less is none
PARTS = 4, 1, 1, 3  # of T tokens, one after another with a cache
MASKS = (
    *("key_padding_mask", "src_key_padding_mask", "padding_mask", "key_mask"),
    *("mask", "attn_mask", "attention_mask", "src_mask"),
)
CAUSAL = ("is_causal", "causal")
NO_MASK = f"it takes no mask by a name that is known: {', '.join(MASKS)}"
EXPECTED = (
    "f(q, k, v, …) to (B, H, T, D), an nn.Module of x (B, T, C), score_mod(score, b, h, q_idx, kv_idx), "
    "mask_mod(b, h, q_idx, kv_idx), f(module, query, key, value, attention_mask, …) as AttentionInterface takes it, or "
    "a layer, a config or a registered Entry of this lab"
)

MIXED = (
    "Another sequence of the batch changes the output, by up to {:.2g}: sequences are mixed, as by a view where a "
    "transpose belongs."
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

    def __repr__(self) -> str:
        lines = [f"{one.level}: {one.text}" for one in self.all]
        for why in dict.fromkeys(self.untried.values()):
            names = ", ".join(name for name, reason in self.untried.items() if reason == why)
            lines.append(f"not tried: {names} ({why.rstrip('.')})")
        return "\n".join(
            [f"{self.kind}: {len(self.faults) or 'no'} fault{'s'[: len(self.faults) != 1]}", *lines]
        )


@dataclass(frozen=True, eq=False)
class Subject:
    """A function of ready heads, whatever it was: call(q, k, v, mask, causal) to (B, H, T, E).

    `forms` make of a mask (T, S), True = may attend, what the function may take; none where it takes none.
    """

    kind: str
    call: Callable[[Tensor, Tensor, Tensor, Any, bool], Tensor]
    heads: tuple[int, int, int]  # of q, k and v
    sizes: tuple[int, int] = (D, D)  # of q and k, and of v
    forms: tuple[Form, ...] = ()
    causal: bool = False  # whether it takes a flag for it
    needs_mask: bool = False  # whether it cannot be called without one
    fixed: str = ""  # why other sizes and lengths are not tried

    def draw(
        self, seed: int, queries: int = T, keys: int = T, size: int = 0, batch: int = B
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Seeded normal q, k and v."""
        random = torch.Generator().manual_seed(seed)
        shapes = zip(
            self.heads,
            (queries, keys, keys),
            (size or self.sizes[0], size or self.sizes[0], size or self.sizes[1]),
            strict=True,
        )
        q, k, v = (torch.randn(batch, *shape, generator=random) for shape in shapes)
        return q, k, v

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Mask = None, causal: bool = False
    ) -> Tensor:
        if mask is None and self.needs_mask:
            mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
        out = self.call(q, k, v, None if mask is None else self.forms[0](mask), causal)
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
            added = self(q, k, zero, mask, causal)  # as relative values are
            parts = [
                self(q, k, part.expand_as(zero), mask, causal) - added
                for part in eye.split(width, 1)
            ]
        return torch.cat(parts, -1)[..., :keys]


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
        axis = next((axis for axis, entries in AXES.items() if thing in entries), None)
        if axis is None:
            raise ConfigError(f"{thing.key} is on no axis yet; register it, which checks it.")
        thing = example_config(axis, thing.key, 24, 3)
    if isinstance(thing, AttentionConfig):
        thing = Attention(thing, add_positions=True)
    training = (
        [one for one in thing.modules() if one.training] if isinstance(thing, nn.Module) else []
    )
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(86)
        try:
            for module in training:
                module.training = False
            return _checked(thing, causal, heads, x)
        finally:
            for module in training:
                module.training = True


def _checked(thing: Any, causal: bool | None, heads: int, x: Tensor | None) -> Findings:
    subject, tokens = _recognize(thing, heads), None
    try:
        if subject is not None:
            subject(*subject.draw(0))
    except Exception as error:
        if not isinstance(thing, nn.Module) or isinstance(thing, Attention):
            raise ConfigError(f"{_name(thing)} cannot run. {describe(error)}") from error
        subject = None  # its q, k and v are tokens, as those of nn.MultiheadAttention
    if subject is None or isinstance(thing, Attention):
        tokens = Tokens.of(thing, x)
    probes: list[tuple[str, Callable[[], Iterator[Finding]]]] = []
    if subject is not None:
        subject = replace(subject, forms=_fitting(subject))
        probes += [(name, partial(probe, subject, causal)) for name, probe in OF_HEADS.items()]
    if tokens is not None:
        probes += [(name, partial(probe, tokens, causal)) for name, probe in OF_TOKENS.items()]
    if isinstance(thing, Attention):
        probes.append(("parts", partial(_parts, thing)))
    findings: dict[str, Finding] = {}
    untried: dict[str, str] = {}
    for name, probe in probes:
        try:
            for finding in probe():
                findings.setdefault(finding.probe, finding)
        except Exception as error:
            untried.setdefault(name, str(error) if type(error) is ConfigError else describe(error))
        if (
            any(one.probe == "values" or one.level == "fault" for one in findings.values())
            and name in STOPS
        ):
            break  # what follows would be measured on noise
    kind = subject.kind if subject else "a module of x"
    return Findings(f"{_name(thing)}, {kind}", tuple(findings.values()), untried)


# What a thing is, by its signature.


def _name(thing: Any) -> str:
    function = getattr(thing, "func", thing)
    return getattr(function, "__name__", type(function).__name__)


def _letters(names: Sequence[str]) -> str:
    return "".join(name.lower().lstrip("x_")[:1] or "x" for name in names)


def _shape(out: Any) -> str:
    return str(tuple(out.shape)) if isinstance(out, Tensor) else quote(out)


def _recognize(thing: Any, heads: int) -> Subject | None:
    """The thing as a function of heads; None for a module of x."""
    if isinstance(thing, Attention):
        return _of_layer(thing)
    if thing is F.scaled_dot_product_attention:  # a function of C, which tells no signature
        names, signature = ["query", "key", "value", "attn_mask", "is_causal"], None
    else:
        refuse_if(
            not callable(thing) or isinstance(thing, type),
            f"check takes {EXPECTED}; got {quote(thing)}.",
        )
        signature = inspect.signature(thing.forward if isinstance(thing, nn.Module) else thing)
        names = list(signature.parameters)
    letters = _letters(names)
    hides = [name for name in MASKS if name in names]
    flag = next((name for name in CAUSAL if name in names), None)
    size = (heads, heads, heads)
    if letters[1:4] == "qkv" and len(names) > 4:
        return Subject("a function of AttentionInterface", _interface(thing), size, forms=(_added,))
    if letters.startswith("qkv"):

        def call(q: Tensor, k: Tensor, v: Tensor, mask: Any, causal: bool) -> Tensor:
            given = {flag: True} if flag and causal else {}
            result = thing(q, k, v, **given if mask is None else given | {hides[0]: mask})
            return result[0] if isinstance(result, tuple) else result

        needs = (
            hides
            and signature
            and signature.parameters[hides[0]].default is inspect.Parameter.empty
        )
        return Subject(
            "a function of q, k and v",
            call,
            size,
            forms=FORMS[hides[0]] if hides else (),
            causal=bool(flag),
            needs_mask=bool(needs),
        )
    assert signature is not None
    needed = sum(
        one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD
        for one in signature.parameters.values()
    )
    if needed in (4, 5) and letters[needed - 2 : needed] in ("qk", "ij"):
        kind = "a mask_mod" if needed == 4 else "a score_mod"
        return Subject(kind, _modified(thing, needed == 4), size)
    refuse_if(
        not isinstance(thing, nn.Module) or not names,
        f"{_name(thing)} takes ({', '.join(names)}); check takes {EXPECTED}.",
    )
    return None


def _added(mask: Tensor) -> Tensor:
    """As transformers adds it to the scores, (B, 1, T, S)."""
    return (
        torch.zeros(mask.shape)
        .masked_fill(~mask, torch.finfo(torch.float32).min)
        .expand(B, 1, -1, -1)
    )


def _of_keys(mask: Tensor) -> Tensor:
    return mask[:1].expand(B, -1)


FORMS: dict[str, tuple[Form, ...]] = {
    **dict.fromkeys(MASKS[:3], (lambda mask: ~_of_keys(mask), torch.logical_not)),
    "key_mask": (_of_keys,),
    **dict.fromkeys(MASKS[4:], (torch.Tensor.bool, _of_keys, _added, torch.Tensor.float)),
}


def _interface(function: Any) -> Callable[..., Tensor]:
    def call(q: Tensor, k: Tensor, v: Tensor, mask: Any, causal: bool) -> Tensor:
        module = nn.Identity().eval()
        module.num_key_value_groups, module.is_causal = q.shape[1] // k.shape[1], False
        mask = mask if mask is None else mask.to(q.dtype).clamp(min=torch.finfo(q.dtype).min)
        out, _ = function(module, q, k, v, mask, scaling=q.shape[-1] ** -0.5, dropout=0.0)
        if out.shape[1:3] == q.shape[1:3]:
            raise ConfigError(
                f"It returned {tuple(out.shape)}; AttentionInterface expects (B, T, H, D): "
                "out.transpose(1, 2)."
            )
        return out.transpose(1, 2)

    return call


def _modified(function: Any, masks: bool) -> Callable[..., Tensor]:
    """Attention with scores as flex_attention changes them, cell by cell."""
    cell = (lambda score, *at: torch.where(function(*at), score, -torch.inf)) if masks else function
    for place in (4, 3, 2, 1):  # keys, queries, heads, sequences
        cell = torch.vmap(cell, tuple(0 if at in (0, place) else None for at in range(5)))

    def call(q: Tensor, k: Tensor, v: Tensor, mask: Any, causal: bool) -> Tensor:
        scores = q @ k.mT * q.shape[-1] ** -0.5
        changed = cell(scores, *map(torch.arange, scores.shape))
        return changed.to(scores.dtype).softmax(-1).nan_to_num(0.0) @ v

    return call


def _of_layer(layer: Attention) -> Subject:
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

    return Subject(
        "a layer of this lab",
        call,
        (sizes.score_heads, sizes.kv_heads, min(sizes.kv_heads, config.num_heads)),
        (sizes.qk_dim, sizes.v_dim),
        (_of_keys,),
        needs_mask=any(one.key == "padding" for one in config.mask.walk()),
        fixed="its sizes are those of its config",
    )


@dataclass(frozen=True, eq=False)
class Tokens:
    """A module of tokens: call(x, mask) to (B, T, C), an example x, and the forms of its mask."""

    call: Callable[[Tensor, Any], Tensor]
    x: Float[Tensor, "B T C"]
    forms: tuple[Form, ...]
    needs_mask: bool = False

    def __call__(self, x: Tensor, mask: Mask = None, form: Form | None = None) -> Tensor:
        if mask is None and self.needs_mask:
            mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool)
        value = None if mask is None else (form or self.forms[0])(mask)
        if value is not None and len(value) == B:
            value = value[:1].expand(len(x), *value.shape[1:])
        return self.call(x, value)

    def influence(self, mask: Mask = None, form: Form | None = None) -> Float[Tensor, "T T"]:
        """How much the output at i changes with token j, of one sequence."""
        length = self.x.shape[1]
        x = self.x[:1].repeat(length + 1, 1, 1)
        each = torch.arange(length)
        with torch.no_grad():
            x[each, each] += self.x[1, each] if len(self.x) > 1 else 1.0
            out = self(x, mask, form)
        return (out[:-1] - out[-1:]).abs().amax(-1).mT

    @classmethod
    def of(cls, module: nn.Module, x: Tensor | None) -> Tokens:
        signature = inspect.signature(module.forward)
        names = list(signature.parameters)
        hides = next((name for name in MASKS if name in names), "")
        plain = type(module).__module__.startswith("torch.nn")  # else its forward takes (B, T, C)
        orders = [one.batch_first for one in module.modules() if hasattr(one, "batch_first")]
        first = all(orders) or not plain
        sizes = (
            *(getattr(module, name, None) for name in ("embed_dim", "d_model", "hidden_size")),
            getattr(getattr(module, "config", None), "d_model", None),
            *(one.in_features for one in module.modules() if isinstance(one, nn.Linear)),
        )
        width = next((size for size in sizes if isinstance(size, int)), None)
        if x is None and width is None:
            raise ConfigError(
                f"The width of {_name(module)} cannot be seen; give check(…, x=…), an input (B, T, C)."
            )
        if x is None:
            x = torch.randn(B, T, width, generator=torch.Generator().manual_seed(1))
        copies = 3 if _letters(names).startswith("qkv") else 1

        def call(x: Tensor, mask: Any) -> Tensor:
            given = {} if mask is None else {hides: mask}
            out: Any = module(*(x if first else x.transpose(0, 1),) * copies, **given)
            out = (
                out.merged if isinstance(out, Steps) else out[0] if isinstance(out, tuple) else out
            )
            return out if first else out.transpose(0, 1)

        made, shape = cls(call, x, FORMS[hides] if hides else ()), tuple(x.shape)
        needed = signature.parameters[hides].default is inspect.Parameter.empty if hides else False
        if isinstance(module, Attention):
            needed = any(one.key == "padding" for one in module.config.mask.walk())
        made = replace(made, needs_mask=needed)
        try:
            out = made(x)
        except Exception as error:
            raise ConfigError(
                f"{_name(module)} cannot run on x {shape}. {describe(error)}"
            ) from error
        refuse_if(
            not isinstance(out, Tensor) or out.shape[:2] != x.shape[:2],
            f"{_name(module)} gives {_shape(out)} for x {shape}; expected (B, T, C).",
        )
        return made


# The probes. Each yields what it found; an error that it meets is why it could not be tried.


def _map(weights: Tensor) -> Tensor:
    """That of the first head of the first sequence."""
    return weights[0, 0].detach()


def _plain(q: Tensor, k: Tensor, seen: Tensor | None = None) -> Tensor:
    """The map of softmax(q kᵀ / √D), of the cells that are seen."""
    scores = _map(q @ k.mT) * q.shape[-1] ** -0.5
    scores = scores if seen is None else scores.masked_fill(~seen, -torch.inf)
    return scores.softmax(-1).nan_to_num(0.0)


def _same(one: Tensor, other: Tensor, tolerance: float = 1e-4) -> bool:
    return torch.allclose(one, other, tolerance, tolerance * float(other.abs().amax()))


def _repeatable(subject: Subject | Tokens, causal: bool | None) -> Iterator[Finding]:
    given = subject.draw(0) if isinstance(subject, Subject) else (subject.x,)
    with torch.no_grad():
        one, other = (subject(*given) for _ in range(2))
    if not _same(one, other):
        yield Finding(
            "repeatable",
            "fault",
            f"Two calls on the same numbers differ by up to {float((one - other).abs().max()):.2g}: dropout is on in "
            "eval mode, or something else draws random numbers.",
        )


def _values(subject: Subject, causal: bool | None) -> Iterator[Finding]:
    """The output is weights · v, which all maps below rely on."""
    q, k, v = subject.draw(0)
    one = torch.zeros_like(v)
    one[..., 0] = 1
    with torch.no_grad():
        added, out = subject(q, k, 0 * v), subject(q, k, v)
        channels = subject(q, k, one) - added
    weights = subject.weights(q, k)
    if bool(added.abs().max() > 1e-4):
        text = "Something is added to weights · v, as relative values are."
        yield Finding("added", "property", text)
    if _same(out - added, weights @ repeat_heads(v, weights.shape[1]), 1e-3):
        return
    turned = F.normalize(channels, dim=-1)
    leaks = float((turned - turned[:, :, -1:])[..., 1:].abs().max())
    if leaks > 1e-2:
        yield Finding(
            "values",
            "fault",
            f"A value that is the same at all keys comes out in another direction at each query (by up to {leaks:.2f}): "
            "values are rotated, or moved between heads and tokens by a view without a transpose; rotate q and k alone.",
        )
    else:
        text = "The output is not weights · v of one weight a key: values, or the output, are changed on their way."
        yield Finding("values", "property", f"{text} No map can be read.")


def _rows(subject: Subject, causal: bool | None) -> Iterator[Finding]:
    q, k, _ = subject.draw(0)
    weights = subject.weights(q, k)
    sums = weights.sum(-1)
    if bool(((sums - 1).abs().minimum(sums.abs()) < 1e-3).all()):
        return
    low, high = float(sums.min()), float(sums.max())
    for dim, name in ((-2, "queries"), (1, "heads"), (0, "sequences")):
        if bool(((weights.sum(dim) - 1).abs() < 1e-3).all()):
            yield Finding(
                "rows",
                "fault",
                f"The weights of a query sum to {low:.2f} … {high:.2f}; over {name} they sum to 1: the softmax is over "
                "the wrong dimension; take dim=-1, the keys.",
                _map(weights),
                _plain(q, k, _map(weights) != 0),
            )
            return


def _sums(subject: Subject, causal: bool | None) -> Iterator[Finding]:
    q, k, _ = subject.draw(0)
    sums = subject.weights(q, k).sum(-1)
    if bool(((sums - 1).abs().minimum(sums.abs()) > 1e-3).any()):
        low, high = float(sums.min()), float(sums.max())
        text = f"The weights of a query sum to {low:.2f} … {high:.2f}, not to 1."
        yield Finding("sums", "property", text)


def _order(
    felt: Float[Tensor, "T T"], level: Level, causal: bool | None, what: str
) -> Iterator[Finding]:
    """What is felt of later tokens, by a map of weights or of influence."""
    length, big = len(felt), float(felt.max())
    seen = felt > SMALL * big
    places = torch.arange(length)
    ahead = places - places[:, None]  # j − i
    later, earlier = felt[ahead > 0], felt[ahead < 0]
    right = felt.tril()
    if what == "weight":
        right = right / right.sum(-1, keepdim=True).clamp(min=1e-30)
    reach = int(ahead[seen].max()) if seen.any() else 0
    band = torch.equal(seen, ahead <= reach)
    text = ""
    if not seen[ahead != 0].any():
        yield Finding("later tokens", "warning", "No other token is felt.", felt)
    elif not seen[1:][ahead[1:] >= 0].any():  # the first query then sees none, or all alike
        text = "No query sees its own token, only earlier ones: the diagonal of the causal mask is −1; take 0."
        yield Finding("itself", level, text, felt, right)
        return
    elif not seen[ahead > 0].any():
        if causal is False:
            text = "No later token is felt, though causal = False."
            yield Finding("later tokens", "warning", text, felt)
        elif causal is None:
            yield Finding("later tokens", "property", "It is causal: no later token is felt.")
        return
    elif not seen[ahead < 0].any():
        text = "Only later tokens are felt, no earlier one: the causal mask is inverted."
    elif band and reach < length - 1:
        text = (
            f"A query feels the next {'token' if reach == 1 else f'{reach} tokens'}, with {what} up to "
            f"{float(later.max()):.2g}: the diagonal of the causal mask is {reach}; take 0."
        )
    elif causal and float(later.max()) < 1e-2 * float(earlier.mean()):
        text = (
            f"Later tokens are felt with {what} up to {float(later.max()):.2g}, though causal: what hides them is too "
            "small a number; take −∞."
        )
    elif causal:
        text = f"Later tokens are felt, up to {reach} places ahead, with {what} up to {float(later.max()):.2g}, though causal"
        text += (
            ": no causal mask is applied."
            if band
            else ": heads or tokens are mixed, as by a view without a transpose."
        )
    if text:
        yield Finding("later tokens", level, text, felt, right)


def _later(subject: Subject, causal: bool | None) -> Iterator[Finding]:
    q, k, _ = subject.draw(0)
    for flag in (False, True)[: 1 + subject.causal]:
        expected = flag or (causal if not subject.causal else None)
        weights = subject.weights(q, k, causal=flag)
        level: Level = "fault" if expected else "warning"
        if flag or not subject.causal or causal is None:
            yield from _order(weights.abs().amax((0, 1)), level, expected, "weight")


def _later_of_tokens(tokens: Tokens, causal: bool | None) -> Iterator[Finding]:
    yield from _order(
        tokens.influence(), "fault" if causal else "warning", causal, "a change of the output"
    )


def _visible() -> Tensor:
    mask = torch.ones(T, T, dtype=torch.bool)
    mask[:, HIDDEN] = False
    return mask


def _hidden_share(subject: Subject, form: Form) -> float:
    """The largest weight of a hidden key, with a mask of this form; ∞ where it does not run, or hides what is visible."""
    q, k, _ = subject.draw(0)
    try:
        weights = replace(subject, forms=(form,)).weights(q, k, _visible())
    except Exception:
        return torch.inf
    share = float(weights[..., HIDDEN].abs().max())
    return share if share < torch.inf and bool(weights[..., 0].any()) else torch.inf


def _fitting(subject: Subject) -> tuple[Form, ...]:
    """The form of a mask that the function takes: the first that hides, else the first that it runs with."""
    shares = {form: _hidden_share(subject, form) for form in subject.forms}
    return tuple(
        [form for form, share in shares.items() if share < SMALL]
        or [form for form, share in shares.items() if share < torch.inf]
        or subject.forms
    )


def _mask(subject: Subject, causal: bool | None) -> Iterator[Finding]:
    refuse_if(not subject.forms, f"it takes no mask by a name that is known ({', '.join(MASKS)})")
    q, k, _ = subject.draw(0)
    seen = _visible()
    before, after = subject.weights(q, k), subject.weights(q, k, seen)
    hidden, visible = after[..., HIDDEN].abs(), after[:, :, :, seen[0]]
    largest, total, text = float(hidden.max()), float(after.sum(-1).min()), ""
    if _same(before, after):
        text = "A mask that hides three keys changes no weight: it is ignored."
    elif not after.isfinite().all():
        text = "With a mask that hides three keys, weights are not finite."
    elif largest > SMALL and float(visible.abs().max()) < SMALL:
        text = "A mask hides the visible keys and shows the hidden ones: it is inverted; True = may attend."
    elif largest > SMALL and _same(hidden.amax(-1), hidden.amin(-1), 1e-3):
        text = (
            f"Hidden keys all get one weight, up to {largest:.2g}: the mask makes their score 0, and e⁰ = 1; fill it "
            "with −∞."
        )
    elif largest > SMALL:
        text = (
            f"Hidden keys still get weight, up to {largest:.2g}: what the mask adds to their scores is too small a "
            "number; take −∞."
        )
    elif _same(visible, before[:, :, :, seen[0]]) and _same(before.sum(-1), torch.ones(1), 1e-3):
        text = (
            f"Hidden keys get no weight, but the others keep theirs, and a row sums to {total:.2g}: the mask is applied "
            "after the softmax."
        )
    if text:
        right = seen & (_map(before) != 0)
        yield Finding("mask", "fault", text, _map(after), _plain(q, k, right))


def _dead(subject: Subject | Tokens, causal: bool | None) -> Iterator[Finding]:
    refuse_if(not subject.forms, NO_MASK)
    given = subject.draw(0) if isinstance(subject, Subject) else (subject.x,)
    with torch.no_grad():
        out = subject(*given, mask=torch.zeros(T, T, dtype=torch.bool))
    if not out.isfinite().all():
        text = "A query that sees no key gives NaN, which reaches the loss of its whole batch; 0 would be right."
        yield Finding("dead row", "warning", text)


def _mask_of_tokens(tokens: Tokens, causal: bool | None) -> Iterator[Finding]:
    refuse_if(not tokens.forms, NO_MASK)
    seen = _visible()
    rows, problem = seen[0], ConfigError("")
    off = ~torch.eye(T, dtype=torch.bool)
    for form in tokens.forms:
        try:
            before, after = tokens.influence(), tokens.influence(seen, form)
        except Exception as error:
            problem = problem if str(problem) else ConfigError(describe(error))
            continue
        big, text = float(before.max()), ""
        hidden, visible = after[rows][:, ~rows], (after * off)[rows][:, rows]
        if float(hidden.max()) <= 1e-5 * big and visible.any():
            return
        if _same(before, after):
            text = "A mask that hides three tokens changes nothing: it is ignored."
        elif float(visible.max()) <= 1e-5 * big:
            text = (
                "A mask hides the visible tokens and shows the hidden ones: it is inverted; True = may attend, but in a "
                "key_padding_mask."
            )
        else:
            text = (
                f"Hidden tokens still change the output of others, by up to {float(hidden.max()):.2g} (visible ones by "
                f"{float(visible.max()):.2g})."
            )
        yield Finding("mask", "fault", text, after, after * seen)
        return
    raise problem


def _log_rows(subject: Subject, q: Tensor, k: Tensor) -> Tensor:
    """log weights of the visible keys of the last query, less their mean: its scores, where weights are a softmax."""
    rows = subject.weights(q, k, size=q.shape[-1])[:, :, -1].flatten(0, 1)
    seen = rows[0] > 0
    refuse_if(
        not torch.equal(rows > 0, seen.expand_as(rows)) or seen.sum() < 2,
        "the weights of the last query are 0 at keys that change with its content, which tell no scores",
    )
    log = rows[:, seen].log()
    return log - log.mean(-1, keepdim=True)


def _spread(subject: Subject, causal: bool | None) -> Iterator[Finding]:
    sums = subject.weights(*subject.draw(0)[:2]).sum(-1)
    refuse_if(
        not _same(sums[..., -1], torch.ones(1)), "weights that do not sum to 1 tell no scores"
    )
    spreads = []
    for size in SIZES:
        q, k, _ = subject.draw(2, size=size, batch=8)
        q, k = 0.3 * q, 0.3 * k
        biases = _log_rows(subject, 0 * q, k)
        scored, twice = (_log_rows(subject, by * q, k) - biases for by in (1, 2))
        spreads.append(float(scored.std()) / 0.09)
        slope = float((twice * scored).sum() / scored.square().sum().clamp(min=1e-12))
        text = ""
        if float(scored.abs().max()) < 1e-5:
            text = "Weights do not depend on the queries."
        elif abs(slope - 1) < 0.05:
            text = "Weights do not change with the length of queries, as by cosine scores."
        elif abs(slope - 2) > 0.1:
            text = f"Scores are no dot products: twice a query gives {slope:.2f} times its score."
        if text:
            yield Finding("scale", "property", text)
            return
    small, large = spreads
    ratio, text = large / small, ""
    at = f"At head sizes {SIZES[0]} and {SIZES[1]} scores spread by {small:.2g} and {large:.2g}"
    if ratio > 2:
        text = (
            f"{at}: they are not divided by √D, or by one number for all D."
            if small > 2
            else f"{at}: they are divided by one number for all D; take √D."
        )
    elif ratio > 0.5 and max(abs(math.log(spread)) for spread in spreads) > 0.7:
        text = f"{at}, where q·k / √D spreads by 1: a temperature of its own."
        yield Finding("scale", "property", text)
        return
    elif ratio < 0.5:
        text = f"{at}: they are divided by D, or by √D twice; divide by √D once."
    if text:
        yield Finding(
            "scale", "warning", text, subject.weights(q, k, size=SIZES[1])[0, 0], _plain(q, k)
        )


def _scores(subject: Subject, q: Tensor, k: Tensor) -> Float[Tensor, "B H T S"]:
    """The scores beside that of the first key, whose k is 0: log w_ij − log w_i0; NaN where either is hidden."""
    log = subject.weights(q, k).log()
    scores = log - log[..., :1]
    return scores.masked_fill(~scores.isfinite(), torch.nan)


def _varies(cells: Tensor, along: Tensor) -> float:
    """The largest spread of a cell (…, T, N) among those of one number in `along`, NaN left out."""
    spreads = [
        (
            cells[..., along == number].nan_to_num(-torch.inf).amax(-1)
            - cells[..., along == number].nan_to_num(torch.inf).amin(-1)
        )
        for number in along.unique()
    ]
    return float(torch.stack(spreads).clamp(min=0).max())


def _places(subject: Subject, causal: bool | None) -> Iterator[Finding]:
    """Equal queries and equal keys: what of their scores the places change, alone and where the two meet."""
    q, k, _ = subject.draw(3)
    a, b = (x[:, :, :1].expand_as(x).clone() for x in (q, k))
    b[:, :, 0] = 0
    neither, of_keys, of_queries, both, twice = (
        _scores(subject, *pair)
        for pair in ((0 * a, 0 * b), (0 * a, b), (a, 0 * b), (a, b), (2 * a, b))
    )
    met = (both - of_keys - of_queries + neither)[..., 1:]
    double = (twice - of_keys - 2 * (of_queries - neither))[..., 1:]
    linear = _same(2 * met.nan_to_num(0.0), double.nan_to_num(0.0), 0.02)
    refuse_if(not met.isfinite().any(), "too many weights are 0, which tell no scores")
    back = torch.arange(T)[:, None] - torch.arange(1, T)  # i − j
    steps = [(x[..., :-1] - x[..., 1:])[..., 1:] for x in (neither, of_keys, of_queries)]
    rises = steps[0].where(steps[0].isfinite() & (back[:, :-1] > 0), torch.inf).amin((0, 2, 3))
    absolute = max(_varies(step, back[:, :-1]) for step in steps) > 1e-2
    if (
        not absolute
        and bool(rises.min() > -1e-5)
        and bool(((rises > 1e-4) & rises.isfinite()).any())
    ):
        map = _map(subject.weights(0 * a, 0 * b))
        yield Finding(
            "bias",
            "fault",
            f"Without content, each place further back adds {float(rises.min()):.2g} or more to a score: the bias grows "
            "with distance, so its sign is wrong; nearer keys should score more.",
            map,
            F.normalize(1 / map.clamp(min=1e-9) * (map > 0), 1, -1),
        )
    own = met[:, :, range(1, T), range(T - 1)]  # i = j
    own = own[..., own.isfinite().all(0).all(0)].flatten(0, 1)
    singular = torch.linalg.svdvals(own) if own.shape[-1] > 2 else torch.ones(1)
    alike, text = float(met.nan_to_num(0.0).abs().max()) < 1e-3, ""
    if (
        not alike
        and linear
        and len(singular) > 1
        and float(singular[1]) > 0.05 * float(singular[0])
    ):
        columns, rows = (
            torch.arange(T - 1).expand(T, -1),
            torch.arange(T)[:, None].expand(-1, T - 1),
        )
        apart = _varies(met, back)
        text = f"Equal queries and keys at one place score differently from place to place, by up to {apart:.2g}: "
        if _varies(met, columns) < 0.02 * apart:
            text += "keys are rotated, queries are not."
        elif _varies(met, rows) < 0.02 * apart:
            text += "queries are rotated, keys are not."
        else:
            text += "the rotation depends on the place itself, not on i − j; rotate q and k by one rule, each by its place."
        got = met[0, 0].nan_to_num(0.0)
        yield Finding("positions", "fault", text, got, _by_distance(got, back))
        return
    if (
        absolute
        or not alike
        and _varies(met, back) > 0.02 * float(met.nan_to_num(0.0).abs().max()) + 1e-3
    ):
        text = "Scores depend on the places of query and key themselves, as by absolute positions, not on i − j alone."
    elif not alike and _varies(met, torch.zeros_like(back)) > 1e-3:
        text = "Scores depend on the distance i − j, by a rotation."
    elif max(float(step.nan_to_num(0.0).abs().max()) for step in steps) > 1e-3:
        text = "Scores depend on the distance i − j, by a bias."
    else:
        text = "The order of keys is not felt: it has no positions of its own."
    yield Finding("positions", "property", text)


def _by_distance(cells: Tensor, back: Tensor) -> Tensor:
    """Each cell as the mean of its diagonal."""
    result = torch.zeros_like(cells)
    for number in back.unique():
        result[back == number] = cells[back == number].mean()
    return result


def _independent(subject: Subject, causal: bool | None) -> Iterator[Finding]:
    q, k, v = subject.draw(0)
    other = q.clone()
    other[0, 0, 2] += 1
    with torch.no_grad():
        before = subject(q, k, v)
        changed = (subject(other, k, v) - before).abs().amax(-1)
        last = [torch.cat((x[:1], x[1:] + 1)) for x in (q, k, v)]
        mixed = max(float((subject(*last) - before)[0].abs().max()), float(changed[1:].max()))
    others = changed[0].clone()
    others[:, 2] = 0
    if mixed > 1e-4:
        yield Finding("sequences", "fault", MIXED.format(mixed))
    elif float(others.max()) > 1e-4 and float(changed[0, :, 2].max()) < 1e-4:
        yield Finding(
            "sequences",
            "fault",
            f"A query changes not its own output but that of others, by up to {float(others.max()):.2g}: heads and tokens "
            "are mixed, as by a view where a transpose belongs.",
        )
    elif float(others.max()) > 1e-4:
        yield Finding(
            "sequences",
            "property",
            "A query changes the rows of others, as a convolution over queries does.",
        )
    elif float(changed[0, 1:].max()) > 1e-4:
        yield Finding(
            "heads",
            "property",
            "A head's query changes other heads: their scores or weights are mixed.",
        )


def _sequences(tokens: Tokens, causal: bool | None) -> Iterator[Finding]:
    x = tokens.x.clone()
    x[1:] += 1
    with torch.no_grad():
        mixed = float((tokens(x) - tokens(tokens.x)).abs()[0].max())
    if mixed > 1e-4:
        yield Finding("sequences", "fault", MIXED.format(mixed))


def _lengths(subject: Subject, causal: bool | None) -> Iterator[Finding]:
    q, k, v = subject.draw(0, queries=5)
    try:
        weights = subject.weights(q, k, causal=subject.causal)
    except Exception as error:
        yield Finding(
            "lengths",
            "warning",
            f"5 queries beside {T} keys fail, as a cache or cross-attention needs them. {describe(error)}",
        )
        return
    square = subject.weights(*subject.draw(0)[:2], causal=subject.causal)
    if float(square.triu(1).abs().max()) > SMALL:
        return
    first = int((weights[:, :, 0].abs().amax((0, 1)) > SMALL).sum())
    where = {1: "top left; a cache needs bottom right", T - 4: "bottom right, as a cache needs"}
    if first in where:
        text = f"Of 5 queries beside {T} keys the first sees {first}: the causal rule is aligned {where[first]}."
        yield Finding("alignment", "property", text)


def _grouped(subject: Subject, causal: bool | None) -> Iterator[Finding]:
    refuse_if(subject.fixed, subject.fixed)
    q, k, v = replace(subject, heads=(4, 2, 2)).draw(0)
    with torch.no_grad():
        try:
            out = subject.call(q, k, v, None, False)
        except Exception:
            refuse_if(True, "it takes as many heads of k and v as of q")
        right, repeated = (
            subject.call(q, *pair, None, False)
            for pair in (
                (k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)),
                (k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1)),
            )
        )
    if out.shape == right.shape and _same(out, right):
        yield Finding(
            "grouped heads", "property", "It takes grouped heads: two heads in a row share k and v."
        )
    elif out.shape == repeated.shape and _same(out, repeated):
        yield Finding(
            "grouped heads",
            "fault",
            "Of 4 heads and 2 of k and v, heads 0 and 2 share, and 1 and 3: repeat stands where repeat_interleave belongs.",
        )


def _gradients(subject: Subject | Tokens, causal: bool | None) -> Iterator[Finding]:
    """Along one random direction of each input, beside the difference of two outputs."""
    of_heads = isinstance(subject, Subject)
    given = [
        x.double() if of_heads and not subject.fixed else x
        for x in (subject.draw(4) if of_heads else (subject.x,))
    ]
    random = torch.Generator().manual_seed(6)
    given = [x.clone().requires_grad_() for x in given]
    out = subject(*given)
    weight = torch.randn(out.shape, generator=random).to(out)
    gradients = torch.autograd.grad((out * weight).sum(), given, allow_unused=True)
    for index, name in enumerate("qkv" if of_heads else "x"):
        step = torch.randn(given[index].shape, generator=random).to(given[index])
        step = 1e-3 * step / step.norm()
        with torch.no_grad():
            ends = [
                (subject(*given[:index], given[index] + s * step, *given[index + 1 :]) * weight)
                .double()
                .sum()
                for s in (1, -1)
            ]
        number = float(ends[0] - ends[1]) / 2e-3
        own = gradients[index]
        taken = 0.0 if own is None else float((own * step).sum()) / 1e-3
        if abs(taken - number) > 0.03 * max(abs(number), abs(taken)) + 0.02:
            none = own is None or not own.any()
            why = (
                "no gradient reaches it, as behind detach() or .data"
                if none
                else "its backward is wrong"
            )
            level: Level = "property" if abs(number) < 1e-3 else "fault"
            yield Finding(
                "gradients",
                level,
                f"Along a step of {name} the output changes by {number:.3g}, its gradient says {taken:.3g}: {why}.",
            )
            return


def _large(subject: Subject, causal: bool | None) -> Iterator[Finding]:
    q, k, v = subject.draw(0)
    with torch.no_grad():
        if not subject(20 * q, 20 * k, v).isfinite().all():
            yield Finding(
                "large scores",
                "fault",
                "Scores of some hundreds give NaN or ∞ in float32: e^x overflows; subtract the largest score of each row "
                "first, as softmax does.",
            )
            return
        refuse_if(subject.fixed, subject.fixed)
        for dtype in (torch.bfloat16, torch.float16):
            half = [x.to(dtype) for x in (4 * q, 4 * k, v)]
            try:
                out = subject(*half, mask=_visible() if subject.forms else None)
            except Exception as error:
                yield Finding(
                    "half precision",
                    "warning",
                    f"In {str(dtype)[6:]} it does not run. {describe(error)}",
                )
                return
            if not out.isfinite().all():
                yield Finding(
                    "half precision",
                    "fault",
                    f"In {str(dtype)[6:]} the output is NaN or ∞ for scores of some tens: a number overflows.",
                )
                return


def _parts(layer: Attention) -> Iterator[Finding]:
    """Cached steps, and chunks of another size, against the whole."""
    x = torch.randn(B, T, layer.config.d_model, generator=torch.Generator().manual_seed(7))
    felt, others = Tokens.of(layer, None).influence(), dict[str, Tensor]()
    with torch.no_grad():
        whole = layer(x, record=False).merged
        if float(felt.triu(1).max()) <= SMALL * float(felt.max()):
            cache, outs = Cache(), []
            for part in x.split(PARTS, 1):
                steps, cache = layer.step(part, cache)
                outs.append(steps.merged)
            others["Token by token, with a cache,"] = torch.cat(outs, 1)
        if "chunk" in (params := layer.config.kernel.kwargs):
            kernel = Choice.of(layer.config.kernel.key, **params | {"chunk": 2})
            short = Attention(layer.config.with_(kernel=kernel), layer.add_positions).eval()
            short.load_state_dict(layer.state_dict())
            others["In chunks of 2 tokens"] = short(x, record=False).merged
    for how, out in others.items():
        if not _same(out, whole, 1e-3):
            yield Finding(
                "parts",
                "fault",
                f"{how} the output differs from that of the whole text by up to {float((out - whole).abs().max()):.2g}.",
            )


OF_HEADS: dict[str, Callable[[Subject, bool | None], Iterator[Finding]]] = {
    "repeatable": _repeatable,
    "rows": _rows,
    "sequences": _independent,
    "values": _values,
    "sums": _sums,
    "later tokens": _later,
    "mask": _mask,
    "scale": _spread,
    "positions": _places,
    "dead row": _dead,
    "lengths": _lengths,
    "grouped heads": _grouped,
    "gradients": _gradients,
    "large scores": _large,
}
OF_TOKENS: dict[str, Callable[[Tokens, bool | None], Iterator[Finding]]] = {
    "repeatable": _repeatable,
    "sequences": _sequences,
    "later tokens": _later_of_tokens,
    "mask": _mask_of_tokens,
    "dead row": _dead,
    "gradients": _gradients,
}
STOPS = "repeatable", "rows", "sequences", "values"
