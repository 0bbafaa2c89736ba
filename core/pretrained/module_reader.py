"""Reads the attention of any PyTorch model by what it computes: no adapter, and no change of its code.

One forward pass runs under a `TorchFunctionMode`, which sees every call of a PyTorch function. Two kinds hold attention:

- the fused functions (`scaled_dot_product_attention`, `flex_attention`, that of `nn.MultiheadAttention`), whose weights
  are computed again from q and k, in blocks of queries: a map of any length needs memory for one block alone;
- a softmax whose result reaches a product with values, through dropout, casts, masks, sinks and mixing of heads. What
  goes into that product are the weights. So are scores, products of two tensors, made into rows that sum to 1 otherwise.

Every reading is held against the model's own: weights × values must be what its call returned.
"""

import inspect
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle
from torch.utils.weak import WeakTensorKeyDictionary

from core.interpret.trace import AttentionMap, AttentionTrace, Kind, to_numpy
from core.models.base import hooked
from core.pretrained.base import first_line

# A map of more queries or keys is pooled to at most as many, beside exact rows; a long side beside a short one to more.
MAX_WHOLE, MAX_LONG = 512, 2048
BLOCK = 2**20  # scores that are computed at a time
# of weights × values against the call's result, as shares of the largest value
TOLERANCE, HALF_TOLERANCE = 1e-5, 2e-2
ATTENTION = re.compile(
    r"attention|attn|mha$|mixer|mamba|retention|rwkv|hyena|deltanet|ssm", re.IGNORECASE
)
STACK = re.compile(r"(?P<stack>(?:.*?\.)?(?:layers?|h|blocks?))\.(?P<number>\d+)(?:\.|$)")
COMPILERS = {"torch._dynamo", "torch.nn.attention.flex_attention"}
FUSED = "scaled_dot_product_attention"
MATMUL, DIGITS = "...ij,...jk->...ik", "0123456789"  # dimensions before those named are digits
PRODUCTS = ("matmul", "__matmul__", "linalg_matmul", "mm", "bmm", "baddbmm", "einsum")
LEARNED_PRODUCTS = (*PRODUCTS, "linear")
MIXED = (*LEARNED_PRODUCTS, "conv1d", "conv2d")
TIMES = ("mul", "__mul__", "__rmul__", "multiply")
JOINED = ("cat", "concat", "concatenate", "stack")
WRITTEN = ("__setitem__", "copy_")
REDUCED = ("sum", "mean", "amax", "max")

STATE = (
    "what its softmax gives is multiplied once more before anything learned, as in linear attention or by landmarks: "
    "no one matrix is between tokens"
)
CHANNELS = "its maps are between channels, not tokens"
OWN_KEYS = (
    "each token has keys of its own (a neighbourhood, or experts): no one matrix is between tokens"
)
LEARNED = "its keys are learned vectors, not tokens"
NO_PRODUCT = "what its softmax gives reaches no product over keys alone"
NO_MATRIX = (
    "no softmax, nor other rows that sum to 1, reaches a product with values: it calls a kernel of its own, or computes "
    "no matrix of weights. For reading, put scaled_dot_product_attention in the place of a kernel"
)


@dataclass(frozen=True, eq=False)
class ModuleCall:
    """One call of attention: the module that made it, the function, and the weights of one sequence of the batch.

    `weights` (len(heads), T', S') are whole where `pool` is (1, 1); else each cell is the mean of so many queries of the
    weight of a block of so many keys, so a row still sums to 1. `rows` are then the exact weights (len(heads), S) of the
    queries that were asked, by their place. `error` is the largest difference between weights × values and what the call
    returned, over all queries and all of `heads`, as a share of the largest value.
    """

    name: str
    function: str
    shape: tuple[int, int, int, int]  # B, H, T, S of the call; windows count as sequences
    heads: tuple[int, ...]
    weights: Float[np.ndarray, "H T S"] = field(repr=False)
    pool: tuple[int, int]
    rows: dict[int, Float[np.ndarray, "H keys"]] = field(repr=False)
    error: float
    tolerance: float

    @property
    def agrees(self) -> bool:
        """Whether weights × values are what the call returned, to the precision of its numbers."""
        return self.error <= self.tolerance


@dataclass(frozen=True, eq=False)
class ModuleReading:
    """The attention of one forward pass: its calls in order, and what the model returned.

    `unread` are the modules with attention whose weights could not be read, by their name (the model itself: by its
    class), with the reason; also those of `calls` whose results are NaN for some queries.
    """

    source: str
    calls: tuple[ModuleCall, ...]
    unread: dict[str, str]
    output: Any = field(repr=False)

    def trace(self, queries: Sequence[str] = (), keys: Sequence[str] = ()) -> AttentionTrace:
        """The maps as every picture draws them; heads are numbered by their place in `heads`.

        `queries` name the tokens of all maps as long as they, and `keys` the columns of cross-attention; others are
        numbered.
        """
        maps: list[AttentionMap] = []
        for call in self.calls:
            square = call.shape[2] == call.shape[3]
            kind: Kind = "self" if square else "cross"
            if square and call.shape[2] > 1 and not np.triu(call.weights, 1).any():
                kind = "causal"
            names = (
                _names(queries, call.shape[2], call.pool[0], "q"),
                _names(queries if square else keys, call.shape[3], call.pool[1], "k"),
            )
            layer = sum(one.kind == kind for one in maps)
            mask = np.tri(len(names[0]), dtype=bool)[None] if kind == "causal" else None
            maps.append(AttentionMap(kind, layer, call.weights, *names, mask))
        return numbered(AttentionTrace(tuple(maps), self.source), [one.name for one in self.calls])


def stack_numbers(names: Sequence[str]) -> tuple[int, ...] | None:
    """The numbers of layers in the names of their modules, as 2 of blocks.2.attn; None where not all are of one stack."""
    matches = [STACK.match(name) for name in names]
    numbers = tuple(int(match["number"]) for match in matches if match)
    one_stack = len(numbers) == len(names) and len({one["stack"] for one in matches if one}) == 1
    return numbers if one_stack and numbers == tuple(sorted(set(numbers))) else None


def numbered(trace: AttentionTrace, modules: Sequence[str]) -> AttentionTrace:
    """The trace with the model's own numbers of its layers, where the names of their modules tell them, else from 0."""
    maps = list(trace.maps)
    for kind in trace.kinds:
        places = [at for at, item in enumerate(maps) if item.kind == kind]
        numbers = stack_numbers([modules[at] for at in places]) or range(len(places))
        for at, number in zip(places, numbers, strict=True):
            maps[at] = replace(maps[at], number=number)
    return replace(trace, maps=tuple(maps))


def _names(tokens: Sequence[str], size: int, pool: int, letter: str) -> tuple[str, ...]:
    if len(tokens) != size:
        tokens = [f"{letter}{place}" for place in range(size)]
    return block_names(tokens, pool)


def block_names(tokens: Sequence[str], pool: int) -> tuple[str, ...]:
    """Blocks of so many tokens by their first and last, such as q0–q3."""
    blocks = (tokens[start : start + pool] for start in range(0, len(tokens), pool))
    return tuple(one[0] if len(one) == 1 else f"{one[0]}–{one[-1]}" for one in blocks)


def _pool(length: int, keys: int) -> tuple[int, int]:
    """How many queries and how many keys a cell stands for: powers of two, which divide the rows of a picture."""
    most = min(MAX_LONG, MAX_WHOLE**2 // min(length, keys, MAX_WHOLE))
    return 1 << ((length - 1) // most).bit_length(), 1 << ((keys - 1) // most).bit_length()


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
    parts run uncompiled for this pass. The model's own errors are raised as they are; ValueError for inputs that are
    text, for a head that no layer has, and for a query beyond all maps.
    """
    if isinstance(inputs, str):
        raise ValueError("The inputs are text; expected a tensor, a tuple of arguments, or a dict.")
    reader = _Reader(row, queries, heads)
    with ExitStack() as stack:
        for module in [one for one in model.modules() if one.training]:
            module.training = False
            stack.callback(setattr, module, "training", True)
        stack.enter_context(torch.no_grad())
        stack.enter_context(_uncompiled())
        stack.enter_context(hooked(reader.follow_modules(model)))
        stack.enter_context(reader)
        if isinstance(inputs, Mapping):
            output = model(**inputs)
        else:
            output = model(*((inputs,) if isinstance(inputs, Tensor) else inputs))
    most, longest = reader.most
    for what, places, count, least in (
        ("head", heads or (), most, 0),
        ("query", queries, longest, -longest),
    ):
        if count and (wrong := [one for one in places if not least <= one < count]):
            raise ValueError(f"No layer has a {what} {wrong[0]}; expected {least} to {count - 1}.")
    return ModuleReading(
        type(model).__name__, tuple(reader.calls), reader.unread(type(model).__name__), output
    )


def read_function(
    function: Callable[..., Any], *args: Any, **options: Any
) -> tuple[Any, Float[Tensor, "B H T S"] | None, str]:
    """What a function that attends returns, its weights, and why they could not be read; of several calls the last."""
    reader = _WholeReader()
    with _uncompiled(), reader:
        result = function(*args, **options)
    return result, reader.whole, next(iter(reader.reasons.values()), NO_MATRIX)


def _uncompiled() -> AbstractContextManager[Any]:
    """Compiled parts run uncompiled: a mode sees nothing of what is compiled."""
    # Else nothing is compiled, and the compiler takes a second to import.
    compiled = COMPILERS & sys.modules.keys()
    return torch.compiler.set_stance("force_eager") if compiled else nullcontext()


@dataclass(frozen=True)
class _Running:
    """A module while it runs: the shapes of its tensors, and whether the first holds numbers, not ids."""

    name: str
    shapes: tuple[tuple[int, ...], ...] = ((),)
    floats: bool = False

    @property
    def tokens(self) -> set[int]:
        """What may be the number of tokens of an input: (B, N, C), (B, C, N), pictures, (B, N), and q of (B, H, N, D)."""
        return {
            count
            for shape in self.shapes
            for count in (prod(shape[1:-1]), prod(shape[2:]), *shape[-2:-1], *shape[1:2])
        }

    def why_not(self, shape: Sequence[int], width: int) -> str | None:
        """Why weights (…, T, S) and values (…, S, width) are not between tokens, by the first input; None if they are."""
        *lead, length, keys = shape
        first = self.shapes[0]
        sequences = prod(lead)
        if first[:-1] == (*lead, length):  # q itself
            return None
        if len(first) == 2 and self.floats and length == 1:  # (B · N, C), as experts are given
            known = any(keys in other for other in self.shapes)
            return OWN_KEYS if (sequences, width) == first and not known else None
        views = [(first[-1], prod(first[1:-1]))] if len(first) > 2 else []
        if len(first) > 3 and min(first[2:]) > 1:  # a picture
            views.append((first[1], prod(first[2:])))
        for channels, tokens in views:
            if sequences * length == first[0] * channels and width == tokens != length:
                return CHANNELS
            by_token = sequences % (first[0] * tokens) == 0 and (
                len(lead) > 2 or tokens in lead[1:] or lead[0] % (first[0] * tokens) == 0
            )
            if length == 1 < tokens and by_token and (keys < tokens or width == first[-1]):
                return OWN_KEYS
        return None


# The weights (heads, rows, S) of some rows, or of the first keys alone, where the others are not seen
Rows = Callable[[slice], Tensor]
WeightsOf = Callable[[int, list[int]], Rows]  # by sequence and heads
_PATCHED = threading.Lock()  # PyTorch's fused function is replaced for one call


class _Reader(TorchFunctionMode):
    """Sees the functions of one pass, in the thread that runs it."""

    def __init__(
        self,
        row: int = 0,
        queries: Sequence[int] = (),
        heads: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        self.row, self.queries, self.heads = row, queries, heads
        self.thread = threading.get_ident()
        self.calls: list[ModuleCall] = []
        self.running: list[_Running] = [_Running("")]
        self.ran: dict[str, str] = {}  # the class of each module
        self.reasons: dict[str, str] = {}
        self.batch, self.most = 0, (0, 0)  # of the model's first tensor; the most heads and queries
        # Of tensors, for as long as they live: scores (False), results of a softmax (True), and what became of both;
        # products of these and values, before their sum; what a call returned; what is made of parameters alone.
        self.weights, self.weighted, self.results, self.learned = (
            WeakTensorKeyDictionary() for _ in range(4)
        )

    def follow_modules(self, model: nn.Module) -> Iterator[RemovableHandle]:
        """The hooks by which it follows which module runs."""

        # Another thread may run the model before its hook is known to take kwargs.
        def enter(name: str, module: nn.Module, args: Any, kwargs: Any = None) -> None:
            if threading.get_ident() == self.thread:  # not another reader of the same model
                self.ran[name] = type(module).__name__
                self.running.append(_Running(name))
                self._guarded(self._enter, name, (*args, *(kwargs or {}).values()))

        def leave(module: nn.Module, args: Any, output: Any) -> None:
            if threading.get_ident() == self.thread:
                self.running.pop()

        for path, module in model.named_modules():
            name = path.removeprefix("_orig_mod").removeprefix(".")  # of a compiled model
            if isinstance(module, torch.jit.ScriptModule):  # takes no hooks, and shows no function
                self.ran[name] = module.original_name
            else:
                yield module.register_forward_pre_hook(partial(enter, name), with_kwargs=True)
                yield module.register_forward_hook(leave, always_call=True)

    def _enter(self, name: str, given: Sequence[Any]) -> None:
        tensors = [one for one in given if isinstance(one, Tensor)]
        shapes = tuple(tuple(one.shape) for one in tensors) or ((),)  # a nested tensor has none
        self.batch = self.batch or next((shape[0] for shape in shapes if shape), 0)
        floats = bool(tensors) and tensors[0].is_floating_point()
        self.running[-1] = _Running(name, shapes, floats)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        options, name = kwargs or {}, getattr(func, "__name__", "").partition(".")[0]
        if name == "multi_head_attention_forward":
            return self._multi_head(func, args, options)
        result = func(*args, **options)
        if name == FUSED:
            self._guarded(self._fused, name, result, *args, **options)
        elif name == "flex_attention":
            self._guarded(self._flex, result[0], *args, **options)
        elif name == "softmax":
            self.weights[result] = True
        elif isinstance(result, Tensor | list | tuple) or name == "__setitem__":
            self._guarded(self._follow, name, args, options, result)
        return result

    def _guarded(self, see: Callable[..., None], *args: Any, **options: Any) -> None:
        """The one place where reading is called from a model's pass, which no fault of ours may end."""
        try:
            see(*args, **options)
        except Exception as error:
            self._refuse(f"reading it failed: {type(error).__name__}, {first_line(error)}")

    def _refuse(self, why: str) -> None:
        self.reasons[self.running[-1].name] = why

    # Attention by hand: what becomes of a softmax.

    def _follow(
        self, name: str, args: tuple[Any, ...], options: Mapping[str, Any], result: Any
    ) -> None:
        """Follow weights from function to function, up to their product with values."""
        given = _tensors((*args, *(one for key, one in options.items() if key != "out")))
        changed = given[:1] if name == "__setitem__" else _tensors((result,))
        made = [one for one in changed if one.is_floating_point()]
        if not (given and made):
            return None
        learned = [one for one in given if isinstance(one, nn.Parameter) or one in self.learned]
        followed = [one for one in given if one in self.weights]
        large = [one for one in given if one.numel() > 1]
        if len(learned) == len(given):
            self.learned.update((one, True) for one in made)
        elif name in PRODUCTS and not learned:
            pair = given if name == "einsum" else given[-2:]
            terms = _terms(args[0] if name == "einsum" else MATMUL, (*pair, result))
            summed = {
                id(one): [
                    -1 - at for at, letter in enumerate(term[::-1]) if letter not in terms[-1]
                ]
                for one, term in zip(pair[::-1], terms[-2::-1], strict=True)
            }
            for one, call in [(one, self.results[one]) for one in pair if one in self.results]:
                if call.shape[2] in [one.shape[dim] for dim in summed[id(one)]]:
                    self.calls = [one for one in self.calls if one is not call]
                    return self._refuse(STATE)
            certain = [one for one in followed if self.weights[one]] or [
                one for one in followed if _sums_to_one(one, summed.get(id(one), ()))
            ]
            if len(certain) == 1:
                return self._product(certain[0], pair, terms, result)
            self.weights[result] = bool(certain)  # of two, or scores
        elif name == "sum" and given[0] in self.weighted:
            self._weighted_sum(args, options, given[0], result)
        elif followed:
            first, shape = max(followed, key=self.weights.__getitem__), made[0].shape
            softmaxed = self.weights[first]
            grown = len(given) > 1 and name not in JOINED and shape.numel() > first.numel()
            # a gate of features, which are no mask of weights
            gated = (
                softmaxed
                and name not in (*JOINED, *WRITTEN)
                and any(
                    not (one.min() >= 0 and one.max() <= 1)
                    for one in given
                    if one.numel() >= first.numel()
                    and not (one in self.weights or one in self.learned)
                )
            )
            if grown and name in TIMES:
                self.weighted[result] = first, next(one for one in given if one is not first)
            elif softmaxed and learned and name in LEARNED_PRODUCTS and shape != first.shape:
                self._refuse(LEARNED)
            # What is learned mixes heads, or the score of a router; a sum is over heads, or ends the weights.
            elif not (
                grown
                or gated
                or learned
                and (shape != first.shape or name in MIXED and first.ndim < 4)
                or name in REDUCED
                and shape[-2:] != first.shape[-2:]
            ):
                self.weights.update((one, softmaxed) for one in made)
        elif len(large) == 1 and large[0] in self.results:
            # a view of what attention gave: a further product must not take it for values
            self.results.update((one, self.results[large[0]]) for one in made)
        return None

    def _product(
        self, known: Tensor, pair: Sequence[Tensor], terms: Sequence[str], out: Tensor
    ) -> None:
        """A product of weights, which are `known`, and values; of both and of the result by the letters of an einsum."""
        *given, of_out = terms
        if len(pair) != 2 or min(one.ndim for one in pair) < 2:
            return self._refuse(NO_PRODUCT)
        first = pair[0] is known
        weights, values = pair if first else pair[::-1]
        of_weights, of_values = given if first else given[::-1]
        keys = [one for one in of_weights if one in of_values and one not in of_out]
        rows = [one for one in of_weights if one in of_out and one not in of_values]
        width = [one for one in of_values if one in of_out and one not in of_weights]
        shared = [one for one in of_weights if one in of_values and one in of_out]
        if (
            len(rows) > 1 and "".join((rows[-1], *keys)) in of_weights
        ):  # heads that share their values
            shared, rows = [one for one in of_weights if one in {*shared, *rows[:-1]}], rows[-1:]
        if len(keys) != 1 or len(rows) > 1 or len(width) > 1:
            return self._refuse(NO_PRODUCT)
        rows, width = rows or ["_"], width or ["_"]

        def ordered(one: Tensor, term: str, last: Sequence[str]) -> Tensor:
            order = [*shared, *last]
            one = one.permute([term.index(letter) for letter in order if letter in term])
            return one[tuple(slice(None) if letter in term else None for letter in order)]

        return self._by_hand(
            ordered(weights, of_weights, (*rows, *keys)),
            ordered(values, of_values, (*keys, *width)),
            ordered(out, of_out, (*rows, *width)),
            out,
        )

    def _weighted_sum(
        self, args: tuple[Any, ...], options: Mapping[str, Any], product: Tensor, result: Tensor
    ) -> None:
        """The sum over keys of weights (…, S, 1) times values (…, S, E), as additive attention is often written."""
        weights, values = self.weighted[product]
        dim = options.get("dim", args[1] if len(args) > 1 else None)
        over_keys = dim in (-2, product.ndim - 2) and weights.shape[-1:] == (1,)
        if not over_keys or not _sums_to_one(weights, [-2]):
            return None
        weights = weights.expand(*product.shape[:-1], 1)
        out = result.squeeze(-2) if result.ndim == product.ndim else result  # keepdim
        if values.ndim == product.ndim > 3 and values.shape[-3] == 1 < product.shape[-3]:
            return self._by_hand(weights[..., 0], values.squeeze(-3), out, result)
        return self._by_hand(weights.mT, values.expand_as(product), out[..., None, :], result)

    def _by_hand(self, weights: Tensor, values: Tensor, out: Tensor, result: Tensor) -> None:
        """Read weights (…, T, S), values (…, S, E) and their product (…, T, E); `result` is its tensor of the pass."""
        values = values.expand(*weights.shape[:-2], *values.shape[-2:])
        if (why := self.running[-1].why_not(weights.shape, values.shape[-1])) is not None:
            return self._refuse(why)
        order = self._by_head(weights.shape, values.shape[-1])
        weights, values, out = map(order, (weights, values, out))
        call = self._read(
            "softmax",
            weights.shape,
            lambda sequence, which: (
                lambda rows: _of_heads(weights[sequence][:, rows], which, weights.shape[1])
            ),
            values,
            out,
        )
        if call is not None:
            self.results[result] = call
        return None

    def _by_head(self, shape: Sequence[int], width: int) -> Callable[[Tensor], Tensor]:
        """How what belongs to weights (…, T, S) becomes (sequences, heads, …): windows count as sequences."""
        *lead, length, keys = shape
        running = self.running[-1]
        first = running.shapes[0]
        # fairseq's inputs are (T, B, C)
        batch = first[1] if len(first) == 3 and first[0] == length else self.batch or 1
        counts = set[int]()  # of windows, where these hold all tokens
        if length not in {*running.tokens, *first[:1]} and prod(shape[:-1]) * width >= prod(first):
            counts = {one // length for one in running.tokens if one % length == 0 and one >= keys}
        sequences = batch * min(counts, default=1)
        split: tuple[int, ...] = sequences if prod(lead) % sequences == 0 else 1, -1
        # windows come after heads, in (B · H, windows, …) or (B, H, windows, …), or before them
        last = len(lead) > 1 and lead[-1] in counts
        if last and prod(lead[:-1]) not in {batch * one for one in counts}:
            split = batch, -1, lead[-1]

        def order(one: Tensor) -> Tensor:
            if len(lead) > 1 and len(split) < 3:
                return one.flatten(0, -4)
            one = one.reshape(*split, *one.shape[len(lead) :])
            return one.transpose(1, 2).flatten(0, 1) if len(lead) > 1 else one

        return order

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
        if (why := self.running[-1].why_not(shape, value.shape[-1])) is not None:
            return self._refuse(why)
        order = self._by_head(shape, value.shape[-1])
        k, v = (order(one.expand(*query.shape[:-3], *one.shape[-3:])) for one in (key, value))
        q, out = order(query), order(out)
        mask = None if attn_mask is None else order(attn_mask.expand(shape))
        scale = q.shape[-1] ** -0.5 if scale is None else scale

        def weights_from(scores: Tensor, sequence: int, heads: list[int], rows: slice) -> Tensor:
            if is_causal:
                ahead = scores[..., rows.start :]
                future = torch.ones_like(ahead[0], dtype=torch.bool).triu(1)
                ahead.masked_fill_(future, -torch.inf)
            if mask is None:
                return torch.softmax(scores, -1, out=scores)
            part = _of_heads(mask[sequence][:, rows], heads, q.shape[1])
            if part.dtype == torch.bool:
                scores.masked_fill_(~part, -torch.inf)
            else:
                scores += part
            return torch.softmax(scores, -1, out=scores).nan_to_num_(0.0)

        self._again(function, (q, k, v, out), scale, weights_from, is_causal)
        return None

    def _flex(
        self, out: Tensor, query: Tensor, key: Tensor, value: Tensor, score_mod: Callable[..., Tensor],
        block_mask: Sequence[Any], scale: float, kernel_options: Any = None,
        score_buffers: Sequence[Tensor] = (), mask_buffers: Sequence[Tensor] = (),
    ) -> None:  # fmt: skip
        """flex_attention: score_mod and mask_mod are called for the rows that are read, as it calls them."""
        key, value = (one.expand(len(query), *one.shape[1:]) for one in (key, value))

        def weights_from(scores: Tensor, sequence: int, heads: list[int], rows: slice) -> Tensor:
            given, places = (
                [torch.tensor(one, device=scores.device) for one in (sequence, heads)],
                [torch.arange(one.shape[2], device=scores.device) for one in (query, key)],
            )
            index = (*given, places[0][rows], places[1])
            scores = _by_cell(lambda *cell: score_mod(*cell, *score_buffers), scores, *index)
            seen = _by_cell(lambda _, *cell: block_mask[-1](*cell, *mask_buffers), scores, *index)
            return scores.masked_fill(~seen, -torch.inf).softmax(-1).nan_to_num(0.0)

        self._again("flex_attention", (query, key, value, out), scale, weights_from)

    def _again(
        self,
        function: str,
        tensors: tuple[Tensor, Tensor, Tensor, Tensor],
        scale: float,
        weights_from: Callable[[Tensor, int, list[int], slice], Tensor],
        is_causal: bool = False,
    ) -> None:
        """Read a fused call of q, k, v and what it returned: `weights_from` makes weights of the scores of some rows."""
        q, k, values, out = tensors

        def weights_of(sequence: int, heads: list[int]) -> Rows:
            own, other = (_of_heads(one[sequence], heads, q.shape[1]).float() for one in (q, k))

            def rows_of(rows: slice) -> Tensor:
                # what a causal call does not see is not computed
                seen = other[:, : rows.stop] if is_causal else other
                return weights_from(own[:, rows] * scale @ seen.mT, sequence, heads, rows)

            return rows_of

        self._read(function, (*q.shape[:3], k.shape[2]), weights_of, values, out)

    def _multi_head(self, func: Any, args: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        """nn.MultiheadAttention: its function calls the fused one inside, where no mode sees it.

        Asked for weights it computes them by hand; it is called once more without.
        """

        def seen(*args: Any, **options: Any) -> Tensor:
            out = fused(*args, **options)
            if threading.get_ident() == self.thread:
                self._guarded(self._fused, "nn.MultiheadAttention", out, *args, **options)
            return out

        bound = inspect.signature(func).bind(*args, **options)
        weighs = bound.arguments.get("need_weights", True)
        result = func(*args, **options) if weighs else None
        bound.arguments["need_weights"] = False
        with _PATCHED:
            fused = getattr(F, FUSED)
            setattr(F, FUSED, seen)
            try:
                plain = func(*bound.args, **bound.kwargs)
            finally:
                setattr(F, FUSED, fused)
        return result if weighs else plain

    @torch.no_grad()
    def _read(
        self,
        function: str,
        shape: Sequence[int],
        weights_of: WeightsOf,
        values: Float[Tensor, "B G S E"],
        out: Float[Tensor, "B H T E"],
    ) -> ModuleCall | None:
        """Take the weights of the asked sequence and heads, in blocks of queries."""
        batch, heads, length, keys = shape
        self.most = max(self.most[0], heads), max(self.most[1], length)
        if not -batch <= self.row < batch:
            self._refuse(
                f"its batch has {batch} sequence{'s' * (batch > 1)}, and no row {self.row}"
            )
            return None
        which = [head for head in self.heads or range(heads) if head < heads]
        if not which:
            self._refuse(f"it has {heads} heads, and none of those that were asked")
            return None
        rows_of = weights_of(self.row, which)
        v, theirs = (_of_heads(one[self.row], which, heads).float() for one in (values, out))
        v = v.nan_to_num(0, 0, 0)  # where a key has no weight, no kernel reads its value
        pool, width = _pool(length, keys)
        total = v.new_zeros(len(which), -(-length // pool), -(-keys // width))
        error, wrong, block = 0.0, list[int](), max(1, BLOCK // (keys * len(which)))
        with torch.autocast(v.device.type, enabled=False):
            for start in range(0, length, block):
                rows = slice(start, min(start + block, length))
                part = rows_of(rows).float()
                seen = part.shape[2]
                finite = part.isfinite().all(-1) & theirs[:, rows].isfinite().all(-1)
                part = part.nan_to_num(0, 0, 0)
                difference = (part @ v[:, :seen] - theirs[:, rows]).abs_()
                error = max(error, float(difference.masked_fill_(~finite[..., None], 0).max()))
                wrong += ((~finite).any(0).nonzero()[:, 0] + start).tolist()
                if width > 1:
                    part = F.pad(part, (0, -seen % width)) if seen % width else part
                    part = part.unflatten(-1, (-1, width)).sum(-1)
                places = torch.arange(rows.start, rows.stop, device=part.device) // pool
                total[..., : part.shape[2]].index_add_(1, places, part)
            exact = {
                place: to_numpy(
                    F.pad(one, (0, keys - one.shape[2]))[:, 0].float().nan_to_num(0, 0, 0)
                )
                for place in [query % length for query in self.queries if -length <= query < length]
                if pool * width > 1
                for one in [rows_of(slice(place, place + 1))]
            }
        total /= (torch.arange(length, device=total.device) // pool).bincount()[:, None]
        if wrong:
            self._refuse(f"its result is NaN or infinite, first in query {wrong[0]}")
            if len(wrong) == length:
                return None
        call = ModuleCall(
            self.running[-1].name,
            function,
            (batch, heads, length, keys),
            tuple(which),
            to_numpy(total),
            (pool, width),
            exact,
            error / (float(v.abs().max()) or 1.0),
            TOLERANCE if out.dtype.itemsize >= 4 else HALF_TOLERANCE,
        )
        self.calls.append(call)
        return call

    def unread(self, source: str) -> dict[str, str]:
        """The modules whose attention was not read; of those that attend inside one another, the innermost."""
        read = {call.name for call in self.calls}
        attends = {name for name, kind in self.ran.items() if ATTENTION.search(kind)}
        known = {*read, *self.reasons, *attends}
        silent = {
            name: NO_MATRIX
            for name in attends or ({""} - known)
            if name not in read | self.reasons.keys()
            and not any(other.startswith(f"{name}.") or not name for other in known - {name})
            and not any(name.startswith(f"{other}.") for other in (*read, *self.reasons))
        }
        # Beside weights that are read, learned values of positions are a term, as in Shaw's.
        beside = {name for name in read if self.reasons.get(name) == LEARNED}
        reasons = {name: why for name, why in (silent | self.reasons).items() if name not in beside}
        return {name or source: reasons[name] for name in sorted(reasons)}


class _WholeReader(_Reader):
    """Reads all sequences and heads of one function, for who needs them as a tensor."""

    whole: Tensor | None = None

    def _read(self, function: str, shape: Sequence[int], weights_of: WeightsOf, *_: Tensor) -> None:  # fmt: skip
        batch, heads, length = shape[:3]
        with torch.no_grad():
            rows = (weights_of(one, [*range(heads)]) for one in range(batch))
            self.whole = torch.stack([rows_of(slice(0, length)) for rows_of in rows])


def _of_heads(one: Tensor, heads: list[int], count: int) -> Tensor:
    """What belongs to these of `count` heads of queries, each of which may share that of others; a view of all."""
    places = [head * len(one) // count for head in heads]
    return one if places == [*range(len(one))] else one[places]


def _by_cell(function: Callable[..., Tensor], scores: Tensor, batch: Tensor, heads: Tensor,
             queries: Tensor, keys: Tensor) -> Tensor:  # fmt: skip
    """function(score, b, h, i, j) for each cell of (H, T, S)."""
    for dims in ((0, None, None, None, 0), (0, None, None, 0, None), (0, None, 0, None, None)):
        function = torch.vmap(function, dims)
    return function(scores, batch, heads, queries, keys)


def _tensors(values: Iterable[Any]) -> list[Tensor]:
    """The tensors among these, and those in lists among them."""
    many = (one if isinstance(one, list | tuple) else (one,) for one in values)
    return [one for some in many for one in some if isinstance(one, Tensor)]


def _terms(equation: str, tensors: Sequence[Tensor]) -> list[str]:
    """A letter, or a digit, for each dimension of what an einsum is given, and of its result."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    if not arrow:  # as torch reads it: the letters that stand once, in their order
        once = sorted(one for one in left if one.isalpha() and left.count(one) == 1)
        right = "".join(("..." * ("..." in left), *once))
    return [
        term.replace("...", DIGITS[len(DIGITS) + len(term) - 3 - one.ndim :])
        for term, one in zip([*left.split(","), right], tensors, strict=True)
    ]


def _sums_to_one(weights: Tensor, dims: Sequence[int]) -> bool:
    """Whether these are weights over one dimension, as a softmax that is written by hand makes them."""
    if len(dims) != 1 or weights.ndim < -dims[0] or bool((weights < 0).any()):
        return False
    mixes = (
        (weights > 0) & (weights < 1)
    ).any()  # else it is a choice, or the identity of a recurrence
    return bool(mixes and ((weights.float().sum(dims[0]) - 1).abs() < 1e-3).all())
