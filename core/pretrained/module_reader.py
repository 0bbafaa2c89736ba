"""Reads the attention of any PyTorch model by what it computes: no adapter, and no change of its code.

One forward pass runs under a `TorchFunctionMode`, which sees every call of a PyTorch function. Two kinds hold attention:

- the fused functions (`scaled_dot_product_attention`, `flex_attention`, that of `nn.MultiheadAttention`), whose weights
  are computed again from q and k, in blocks of queries: a map of any length needs memory for one block alone;
- a softmax whose result reaches a product with values, through dropout, casts, masks, sinks and mixing of heads. What
  goes into that product are the weights.

Every reading is held against the model's own: weights × values must be what its call returned.
"""

import inspect
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any
from unittest import mock
from weakref import ref

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from core.interpret.trace import AttentionMap, AttentionTrace, Kind, to_numpy

MAX_WHOLE = 512  # queries or keys: a longer map is pooled to at most as many, beside exact rows
BLOCK = 2**22  # scores that are computed at a time
# of weights × values against the call's result, as shares of the largest value
TOLERANCE, HALF_TOLERANCE = 1e-5, 2e-2
ATTENTION = re.compile(r"attention|attn|mha$|mixer|mamba|retention", re.IGNORECASE)
PRODUCTS = ("matmul", "__matmul__", "__rmatmul__", "bmm", "baddbmm", "einsum")

TWO = "two softmaxes follow one another, as in linear attention or by landmarks: no one matrix is between tokens"
CHANNELS = "its maps are between channels, not tokens"
OWN_KEYS = (
    "each token has keys of its own (a neighbourhood, or experts): no one matrix is between tokens"
)
NO_MATRIX = "no softmax of it reaches a product with values: it calls a kernel of its own, or computes no matrix of weights"


@dataclass(frozen=True, eq=False)
class ModuleCall:
    """One call of attention: the module that made it, the function, and the weights of one sequence of the batch.

    `weights` (len(heads), T', S') are whole where `pool` is 1; else each cell is the weight of a block of `pool` keys,
    mean of `pool` queries, so a row still sums to 1. `rows` are then the exact weights (len(heads), S) of the queries
    that were asked, by their place. `error` is the largest difference between weights × values and what the call
    returned, over all of `heads`, as a share of the largest value; None in a pooled map of queries alone.
    """

    name: str
    function: str
    shape: tuple[int, int, int, int]  # B, H, T, S of the call; windows count as sequences
    heads: tuple[int, ...]
    weights: Float[np.ndarray, "H T S"]
    pool: int
    rows: dict[int, Float[np.ndarray, "H S"]]
    error: float
    tolerance: float

    @property
    def agrees(self) -> bool:
        """Whether weights × values are what the call returned, to the precision of its numbers."""
        return self.error <= self.tolerance


@dataclass(frozen=True, eq=False)
class ModuleReading:
    """The attention of one forward pass: its calls in order, and what the model returned.

    `unread` are the modules that attend, by their name or class, without weights that could be read, with the reason.
    """

    source: str
    calls: tuple[ModuleCall, ...]
    unread: dict[str, str]
    output: Any

    def trace(self, queries: Sequence[str] = (), keys: Sequence[str] = ()) -> AttentionTrace:
        """The maps as every picture draws them.

        `queries` name the tokens of all maps as long as they, and `keys` the columns of cross-attention; others are
        numbered.
        """
        maps: list[AttentionMap] = []
        for call in self.calls:
            square = call.shape[2] == call.shape[3]
            kind: Kind = "self" if square else "cross"
            if square and call.shape[2] > 1 and not np.triu(call.weights, 1).any():
                kind = "causal"
            names = [
                _names(given, size, call.pool, letter)
                for given, size, letter in zip(
                    (queries, queries if square else keys),
                    call.weights.shape[1:],
                    "qk",
                    strict=True,
                )
            ]
            layer = sum(one.kind == kind for one in maps)
            maps.append(AttentionMap(kind, layer, call.weights, *names))
        return AttentionTrace(tuple(maps), self.source)


def _names(given: Sequence[str], size: int, pool: int, letter: str) -> tuple[str, ...]:
    if pool == 1:
        return tuple(given) if len(given) == size else tuple(f"{letter}{i}" for i in range(size))
    return tuple(f"{letter}{i * pool}–{(i + 1) * pool - 1}" for i in range(size))


def read_module(
    model: nn.Module,
    inputs: Tensor | Sequence[Any] | Mapping[str, Any],
    *,
    row: int = 0,
    queries: Sequence[int] = (-1,),
    heads: Sequence[int] | None = None,
) -> ModuleReading:
    """The attention of one forward pass, `model(*inputs)` or `model(**inputs)`, in eval mode and without gradients.

    `row` is the sequence of the batch (of windows: the window) that is read, `heads` are those of each layer (None:
    all), and `queries` those whose exact rows are read where a map is longer than `MAX_WHOLE` and so pooled. Compiled
    parts run uncompiled for this pass. The model's own errors are raised as they are.
    """
    reader = _Reader(model, row, queries, heads)
    with ExitStack() as stack:
        for module in [one for one in model.modules() if one.training]:
            module.training = False
            stack.callback(setattr, module, "training", True)
        stack.enter_context(torch.no_grad())
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.enter_context(reader.hooked())
        stack.enter_context(reader)
        if isinstance(inputs, Mapping):
            output = model(**inputs)
        else:
            output = model(*((inputs,) if isinstance(inputs, Tensor) else inputs))
    return ModuleReading(type(model).__name__, tuple(reader.calls), reader.unread(), output)


@dataclass(eq=False)
class _Running:
    """A module while it runs: the shape of its first tensor, and the results of attention that it computed itself."""

    name: str
    shape: tuple[int, ...]
    results: dict[int, tuple[Tensor, ModuleCall]] = field(default_factory=dict)


class _Reader(TorchFunctionMode):
    """Sees the functions of one pass, in the thread that runs it."""

    def __init__(
        self, model: nn.Module, row: int, queries: Sequence[int], heads: Sequence[int] | None
    ) -> None:
        super().__init__()
        self.model, self.row, self.queries, self.heads = model, row, queries, heads
        self.calls: list[ModuleCall] = []
        self.running: list[_Running] = [_Running("", ())]
        self.ran: dict[str, str] = {}  # the class of each module
        self.reasons: dict[str, str] = {}
        self.weights: dict[int, ref[Tensor]] = {}  # results of a softmax, and what became of them
        self.batch = 0  # of the model's first tensor

    @contextmanager
    def hooked(self) -> Iterator[None]:
        """Follow which module runs."""

        def enter(name: str, module: nn.Module, args: Any, kwargs: Any) -> None:
            first = next(filter(torch.is_tensor, (*args, *kwargs.values())), None)
            shape = () if first is None else tuple(first.shape)
            self.batch = self.batch or (shape or (0,))[0]
            self.ran[name] = type(module).__name__
            self.running.append(_Running(name, shape))

        def leave(module: nn.Module, args: Any, output: Any) -> None:
            self.running.pop()

        handles = [
            handle
            for name, module in self.model.named_modules()
            for handle in (
                module.register_forward_pre_hook(partial(enter, name), with_kwargs=True),
                module.register_forward_hook(leave, always_call=True),
            )
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        options, name = kwargs or {}, getattr(func, "__name__", "")
        if name == "multi_head_attention_forward":
            return self._multi_head(func, args, options)
        result = func(*args, **options)
        if name == "scaled_dot_product_attention":
            self._fused(name, result, *args, **options)
        elif name == "flex_attention":
            self._flex(result[0], *args, **options)
        elif name == "softmax":
            self.weights[id(result)] = ref(result)
        elif name not in ("__get__", "size"):
            self._follow(name, args, options, result)
        return result

    # Attention by hand: what becomes of a softmax.

    def _follow(
        self, name: str, args: tuple[Any, ...], options: Mapping[str, Any], result: Any
    ) -> None:
        """Follow weights from function to function, up to their product with values."""
        given = [
            one
            for many in (*args, *options.values())
            for one in (many if isinstance(many, list | tuple) else (many,))
            if isinstance(one, Tensor)
        ]
        learned = any(isinstance(one, nn.Parameter) for one in given)
        results = self.running[-1].results
        if any(map(self._is_weights, given)):
            if name in PRODUCTS and not learned:
                return self._product(name, args, given[-2:], result)
            for one in result if isinstance(result, list | tuple) else (result,):
                if isinstance(one, Tensor) and one.is_floating_point():
                    self.weights[id(one)] = ref(one)
        elif results and not learned and isinstance(result, Tensor):
            # a view of what attention gave, or of its mean: a further softmax must not take it for values
            call = next((results[id(one)][1] for one in given if id(one) in results), None)
            if call is not None:
                results[id(result)] = result, call
        return None

    def _is_weights(self, values: Tensor) -> bool:
        known = self.weights.get(id(values))
        return known is not None and known() is values

    def _product(
        self, name: str, args: tuple[Any, ...], pair: Sequence[Tensor], out: Tensor
    ) -> None:
        """Read a product of weights (…, T, S) and values (…, S, E)."""
        result, first = out, self._is_weights(pair[0])
        weights, values = pair if first else pair[::-1]
        if (earlier := self.running[-1].results.get(id(values))) is not None:
            self.calls = [call for call in self.calls if call is not earlier[1]]
            return self._refuse(TWO)
        if name == "einsum":
            arranged = _arrange(args[0], first, weights, values, out)
            if arranged is None:
                return self._refuse(f"its einsum {args[0]!r} is no product over keys alone")
            weights, values, out = arranged
        elif not first:
            weights, values, out = weights.mT, values.mT, out.mT
        if min(weights.ndim, values.ndim) < 2:
            return None
        values = values.expand(*weights.shape[:-2], *values.shape[-2:])
        if (why := self._why_not(weights.shape, values.shape[-1])) is not None:
            return self._refuse(why)
        weights, values, out = map(self._by_head, (weights, values, out))
        sequence = self.row % len(weights)
        call = self._read(
            "softmax",
            weights.shape,
            lambda rows, heads: weights[sequence, heads][:, rows],
            values[sequence],
            out[sequence],
        )
        self.running[-1].results[id(result)] = result, call
        return None

    def _why_not(self, shape: Sequence[int], width: int) -> str | None:
        """Why weights (…, T, S) are not between tokens, by the input (B, N, C) or (B, C, N) of the module."""
        rows, inputs = prod(shape[:-1]), self.running[-1].shape
        if len(inputs) < 3:
            return None
        for channels, tokens in (
            (inputs[-1], prod(inputs[1:-1])),
            (inputs[1], prod(inputs[2:])),
        ):
            if rows == inputs[0] * channels and width == tokens != shape[-2]:
                return CHANNELS
            if shape[-2] == 1 < tokens and rows % (inputs[0] * tokens) == 0 and len(shape) > 4:
                return OWN_KEYS
        return None

    def _by_head(self, values: Tensor) -> Float[Tensor, "B H T X"]:
        """Heads apart: one dimension of both is split by the batch of the model's input; windows are sequences."""
        if values.ndim == 2:
            return values[None, None]
        if values.ndim == 3:
            whole = self.batch and len(values) % self.batch == 0
            return values.unflatten(0, (self.batch if whole else 1, -1))
        return values.flatten(0, values.ndim - 4)

    def _refuse(self, why: str) -> None:
        self.reasons[self.running[-1].name] = why

    # Fused attention: the weights are computed again.

    def _fused(
        self,
        function: str,
        out: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> None:
        shape = (*query.shape[:-1], key.shape[-2])
        if (why := self._why_not(shape, value.shape[-1])) is not None:
            return self._refuse(why)
        sequence = self.row % len(self._by_head(query))
        q, k, v, out = (self._by_head(one)[sequence] for one in (query, key, value, out))
        mask = attn_mask
        if mask is not None:
            mask = self._by_head(mask.expand(shape))[sequence]
        scale = q.shape[-1] ** -0.5 if scale is None else scale

        def rows_of(rows: slice, heads: list[int]) -> Tensor:
            scores = _scores(q, k, rows, heads, scale)
            if is_causal:
                places = torch.arange(q.shape[1], device=q.device)[rows]
                scores.masked_fill_(
                    torch.arange(k.shape[1], device=q.device) > places[:, None], -torch.inf
                )
            if mask is not None:
                part = mask[heads][:, rows]
                if part.dtype == torch.bool:
                    scores.masked_fill_(~part, -torch.inf)
                else:
                    scores += part
            return scores.softmax(-1).nan_to_num(0.0)

        self._read(function, (len(self._by_head(query)), len(q), *shape[-2:]), rows_of, v, out)
        return None

    def _flex(
        self, out: Tensor, query: Tensor, key: Tensor, value: Tensor, score_mod: Callable[..., Tensor],
        block_mask: Sequence[Any], scale: float, kernel_options: Any = None,
        score_buffers: Sequence[Tensor] = (), mask_buffers: Sequence[Tensor] = (),
    ) -> None:  # fmt: skip
        """flex_attention: score_mod and mask_mod are called for the rows that are read, as it calls them."""
        sequence = self.row % len(query)
        q, k, mask_mod = query[sequence], key[sequence], block_mask[-1]
        places, columns = (torch.arange(one.shape[1], device=q.device) for one in (q, k))

        def rows_of(rows: slice, heads: list[int]) -> Tensor:
            scores = _scores(q, k, rows, heads, scale)
            index = torch.tensor(sequence), torch.tensor(heads), places[rows], columns
            scores = _by_cell(lambda *cell: score_mod(*cell, *score_buffers), scores, *index)
            seen = _by_cell(lambda _, *cell: mask_mod(*cell, *mask_buffers), scores, *index)
            return scores.masked_fill(~seen, -torch.inf).softmax(-1).nan_to_num(0.0)

        shape = len(query), len(q), q.shape[1], k.shape[1]
        self._read("flex_attention", shape, rows_of, value[sequence], out[sequence])

    def _multi_head(self, func: Any, args: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        """nn.MultiheadAttention: its function calls the fused one inside, where no mode sees it.

        Asked for weights it computes them by hand; it is called once more without.
        """
        fused, thread = F.scaled_dot_product_attention, threading.get_ident()

        def seen(*args: Any, **options: Any) -> Tensor:
            out = fused(*args, **options)
            if threading.get_ident() == thread:
                self._fused("nn.MultiheadAttention", out, *args, **options)
            return out

        bound = inspect.signature(func).bind(*args, **options)
        asked = bound.arguments.get("need_weights", True)
        bound.arguments["need_weights"] = False
        with mock.patch.object(F, "scaled_dot_product_attention", seen):
            result = func(*bound.args, **bound.kwargs)
        return func(*args, **options) if asked else result

    # What is kept.

    def _read(
        self,
        function: str,
        shape: Sequence[int],
        rows_of: Callable[[slice, list[int]], Tensor],
        values: Float[Tensor, "G S E"],
        out: Float[Tensor, "H T E"],
    ) -> ModuleCall:
        batch, heads, length, keys = shape
        which = [head for head in self.heads or range(heads) if head < heads]
        values = values[_groups(which, heads, len(values))].float()
        pool = -(-max(length, keys) // MAX_WHOLE)
        block = max(1, BLOCK // (keys * max(1, len(which)) * pool)) * pool
        parts, error = [], 0.0
        for start in range(0, length, block):
            part = rows_of(slice(start, start + block), which).float()
            difference = part @ values - out[which, start : start + block].float()
            error = max(error, float(difference.abs().max()))
            parts.append(_pooled(part, pool))
        rows = {
            query % length: to_numpy(
                rows_of(slice(query % length, query % length + 1), which)[:, 0]
            )
            for query in self.queries
            if pool > 1 and -length <= query < length
        }
        call = ModuleCall(
            self.running[-1].name,
            function,
            (batch, heads, length, keys),
            tuple(which),
            to_numpy(torch.cat(parts, 1)),
            pool,
            rows,
            error / (float(values.abs().max()) or 1.0),
            TOLERANCE if out.dtype.itemsize >= 4 else HALF_TOLERANCE,
        )
        self.calls.append(call)
        return call

    def unread(self) -> dict[str, str]:
        """The modules that attend but whose weights were not read; of those inside one another, the innermost."""
        read = {call.name for call in self.calls}
        attends = [name for name, kind in self.ran.items() if ATTENTION.search(kind)]
        known = {*read, *self.reasons, *attends}
        silent = {
            name: NO_MATRIX
            for name in attends
            if name not in read
            and not any(other.startswith(f"{name}.") or not name for other in known - {name})
            and not any(name.startswith(f"{other}.") for other in (*read, *self.reasons))
        }
        return {name: why for name, why in {**silent, **self.reasons}.items() if name not in read}


def _groups(heads: Sequence[int], queries: int, keys: int) -> list[int]:
    """The head of the keys that each head of the queries shares."""
    return [head * keys // queries for head in heads]


def _scores(q: Tensor, k: Tensor, rows: slice, heads: list[int], scale: float) -> Tensor:
    """The scaled scores (heads, rows, S) in float32, as fused kernels add them up."""
    k = k[_groups(heads, len(q), len(k))].float()
    return q[heads][:, rows].float() @ k.mT * scale


def _by_cell(function: Callable[..., Tensor], scores: Tensor, batch: Tensor, heads: Tensor,
             queries: Tensor, keys: Tensor) -> Tensor:  # fmt: skip
    """function(score, b, h, i, j) for each cell of (H, T, S)."""
    for dims in ((0, None, None, None, 0), (0, None, None, 0, None), (0, None, 0, None, None)):
        function = torch.vmap(function, dims)
    return function(scores, batch, heads, queries, keys)


def _pooled(part: Float[Tensor, "H T S"], pool: int) -> Float[Tensor, "H T2 S2"]:
    """The sums over blocks of `pool` keys, mean of blocks of `pool` queries."""
    if pool == 1:
        return part
    _, rows, keys = part.shape
    part = F.pad(part, (0, -keys % pool, 0, -rows % pool))
    part = part.unflatten(-1, (-1, pool)).sum(-1).unflatten(1, (-1, pool)).sum(2)
    counts = torch.full((part.shape[1], 1), float(pool), device=part.device)
    counts[-1] -= -rows % pool
    return part / counts


def _arrange(
    equation: str, first: bool, weights: Tensor, values: Tensor, out: Tensor
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Weights (…, T, S), values (…, S, E) and result (…, T, E) of an einsum; None where it has no one sum over keys."""
    left, of_out = equation.replace(" ", "").split("->")
    names = left.split(",") if first else left.split(",")[::-1]
    if len(names) != 2:
        return None
    if "..." in left:
        free = [letter for letter in "ABCDEFGHIJ" if letter not in equation]
        count = max(
            one.ndim - len(name) + 3
            for one, name in zip((weights, values), names, strict=True)
            if "..." in name
        )
        names = [name.replace("...", "".join(free[:count])) for name in names]
        of_out = of_out.replace("...", "".join(free[:count]))
    of_weights, of_values = names
    keys = [one for one in of_weights if one in of_values and one not in of_out]
    rows = [one for one in of_weights if one in of_out and one not in of_values]
    width = [one for one in of_values if one in of_out and one not in of_weights]
    if len(keys) != 1 or len(rows) > 1 or len(width) > 1:
        return None
    shared = [one for one in of_weights if one in of_values and one in of_out]
    rows, width = rows or ["_"], width or ["_"]

    def ordered(one: Tensor, name: str, last: list[str]) -> Tensor:
        order = [*shared, *last]
        one = one.permute([name.index(letter) for letter in order if letter in name])
        for place, letter in enumerate(order):
            one = one if letter in name else one.unsqueeze(place)
        return one

    return (
        ordered(weights, of_weights, [*rows, *keys]),
        ordered(values, of_values, [*keys, *width]),
        ordered(out, of_out, [*rows, *width]),
    )
