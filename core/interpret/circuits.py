"""What heads can do by their weights alone: the matrices of each head, its OV and QK circuits, and compositions.

Elhage et al. 2021, A Mathematical Framework for Transformer Circuits.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import Any, Literal, get_args

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import normalize

from core.attention.base import repeat_heads
from core.interpret.evidence import output_matrix
from core.interpret.lens import attribute_logit
from core.interpret.patching import (
    adds_residual,
    pair_of,
    patch,
    ranked,
    states_of,
    with_states,
)
from core.interpret.trace import Head, Kind, layer_names, to_numpy
from core.models.base import hooked
from core.pretrained import (
    STACK,
    Array,
    AttentionCall,
    Batch,
    ModelInputs,
    Pretrained,
    PretrainedError,
    display_tokens,
    encode,
    forward,
    numbers_by_layer,
    output_embeddings,
    read,
    reject_if,
    tokenized,
    tokenizer_of,
)

# W_Q, W_K, W_V and W_O of every head of any family, with the norms' gains folded in.


LINEAR = 1e-3  # how far, as a share, a linear map may be from the sum of its rows
PER_ROW = ("attention_mask", "alibi")
STATES, MEMORY = "hidden_states", ("key_value_states", "encoder_hidden_states")


@dataclass(frozen=True, eq=False)
class HeadMatrices:
    """The matrices of one attention by head, which act from the left: q = x W_Q, out = x W_V W_O. Biases are left out.

    A norm before them is folded in: its gain scales the rows, and a LayerNorm's centering is a projection. So is a norm
    right before or after W_O. Where a gate multiplies the heads' outputs by numbers of the query's token (`gated`), the
    matrices are those of a gate of 1. Where a norm follows a matrix, as in Qwen3 (`normalized`), its gain and centering are
    folded in, and the matrices make queries, keys or values up to one positive scale a token. `w_q` and `w_k` are None
    where no matrix makes queries or keys up to such a scale, as in DeepSeek, which normalizes a part of each key.
    Query heads that share a key and value head each have a copy; there are `kv_heads` of them.
    `layer` is its index among the layers of its kind, `number` the model's own number of the layer. Scores are
    `scale` q·k, by default 1/√D.
    """

    kind: Kind
    layer: int
    w_q: Float[Tensor, "H C D"] | None
    w_k: Float[Tensor, "H X D"] | None
    w_v: Float[Tensor, "H X E"]
    w_o: Float[Tensor, "H E Y"]
    kv_heads: int
    number: int
    scale: float | None = None
    gated: bool = False
    normalized: bool = False

    @property
    def writes(self) -> Kind:
        """The stream that it adds to: the encoder's, named self, or the decoder's, causal."""
        return "self" if self.kind == "self" else "causal"

    @property
    def reads(self) -> Kind:
        """The stream that keys and values come from."""
        return "causal" if self.kind == "causal" else "self"


# each norm of a pass in order, what went in and what came out
NormCalls = list[tuple[Any, Tensor, Tensor]]


def read_heads(pretrained: Pretrained) -> tuple[HeadMatrices, ...]:
    """The matrices of each attention in the order in which they run; layers without softmax have none such.

    PretrainedError where a layer's values are no linear map of its input, or its W_O was not found.
    """
    batch = blank_batch(pretrained)
    _, recorder = forward(pretrained, batch, with_qkv=True)
    whole = [call for call in recorder.calls if not call.state]
    modules = [call.module for call in whole]
    numbers = numbers_by_layer(pretrained.model, recorder.calls)
    reject_if(
        not modules,
        f"{pretrained.name} has no attention whose matrices can be read. Take a model such as BERT, "
        "GPT-2 or Llama.",
    )
    reject_if(
        any(hasattr(module, "lambda_init") for module in modules),
        f"{pretrained.name} subtracts the weights of one head from those of another, so no head "
        "has a circuit of its own. Take a model such as BERT, GPT-2 or Llama.",
    )
    norms, inputs, outputs = NormCalls(), list[tuple[Tensor, Tensor]](), list[Tensor]()
    first = {
        name: values[:, :1] if values.dtype == torch.long else values
        for name, values in batch.items()
    }
    try:
        _, recorder = forward(
            pretrained,
            first,
            with_qkv=True,
            hooks=_probes(pretrained.model, modules, norms, inputs, outputs),
        )
        # XLNet's and FSMT's states have the tokens before the rows of the batch; Inkling 2 has other states for keys
        calls = [call for call in recorder.calls if not call.state]
        single = [call for call in calls if 1 in map(len, (call.q, call.k, call.v))]
        reject_if(single, "not a row for each state")
    except PretrainedError as error:
        raise PretrainedError(
            f"The attention of {pretrained.name} takes more than the state of one token, or its tokens "
            "before the rows of a batch, so its matrices cannot be read from unit vectors. Take a "
            "model such as BERT, GPT-2 or Llama."
        ) from error
    return tuple(
        _matrices(
            pretrained,
            replace(call, kind=one.kind, layer=one.layer),
            numbers[one.kind, one.layer],
            norms,
            states,
            output,
        )
        for call, one, states, output in zip(calls, whole, inputs, outputs, strict=True)
    )


def blank_batch(pretrained: Pretrained) -> Batch:
    """A few letters, a blank picture, or silence: something to run the model on, which no result depends on."""
    return encode(
        pretrained,
        ModelInputs(
            "a b c",
            target="a b c",
            picture=Array.of(np.zeros((16, 16), np.float32)),
            sound=Array.of(np.zeros(16_000, np.float32)),
        ),
    )[0]


def watch_norms(model: Any, norms: NormCalls) -> AbstractContextManager[None]:
    """Note each norm that runs in a pass; not those of batches, which scale a token by nothing of its own."""

    def watch(module: Any, args: tuple[Any, ...], output: Any) -> None:
        if args and isinstance(args[0], Tensor) and isinstance(output, Tensor):
            norms.append((module, args[0], output))

    return hooked(module.register_forward_hook(watch) for module in norms_of(model))


def norms_of(model: Any) -> Iterator[Any]:
    for module in model.modules():
        name = type(module).__name__.lower()
        if "norm" in name and "batch" not in name and not list(module.children()):
            yield module


@contextmanager
def _probes(model: Any, modules: Sequence[Any], norms: NormCalls, inputs: list[tuple[Tensor, Tensor]],
            outputs: list[Tensor]) -> Iterator[None]:  # fmt: skip
    """While a pass runs, give each attention a row of zeros, the unit vectors, and one more vector twice.

    A norm inside an attention multiplies all rows but the last by its gain alone, which is linear. What it adds to the
    model is that of the first row alone, so that all else runs on one row. `inputs` become what each attention would
    have read, and what its keys and values would have; `outputs` that first row.
    """

    def enter(
        module: Any, args: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        states = args[0] if args else options[STATES]
        other = next((name for name in MEMORY if options.get(name) is not None), None)
        inputs.append((states, states if other is None else options[other]))
        rows = 3 + max(one.shape[-1] for one in inputs[-1])
        changes = {name: _repeated(options.get(name), rows) for name in PER_ROW if name in options}
        if isinstance(angles := options.get("position_embeddings"), tuple):  # of one token
            changes["position_embeddings"] = tuple(one[..., :1, :] for one in angles)
        if other is not None:
            changes[other] = _unit_rows(rows, options[other])
        if args:
            more = (_repeated(one, rows) for one in args[1:])
            return (_unit_rows(rows, states), *more), options | changes
        return args, options | changes | {STATES: _unit_rows(rows, states)}

    def leave(module: Any, args: Any, output: Any) -> Any:
        outputs.append(states_of(output)[:1])
        return with_states(output, outputs[-1])

    def linear(norm: Any, args: tuple[Any, ...], output: Any) -> Any:
        if len(args) != 1 or not isinstance(output, Tensor):
            return None
        gain, centers = norm_gain(norm, args[0].shape[1:])
        given = args[0] - args[0].mean(-1, keepdim=True) if centers else args[0]
        return torch.cat([(gain.to(given) * given)[:-1], output[-1:]]).to(output.dtype)

    attentions = list(dict.fromkeys(modules))
    inner = list(dict.fromkeys(norm for module in attentions for norm in norms_of(module)))
    with (
        hooked(norm.register_forward_hook(linear) for norm in inner),
        hooked(module.register_forward_pre_hook(enter, with_kwargs=True) for module in attentions),
        hooked(module.register_forward_hook(leave) for module in attentions),
        watch_norms(model, norms),
    ):
        yield


def _unit_rows(rows: int, states: Float[Tensor, "1 T C"]) -> Float[Tensor, "N 1 C"]:
    """Zeros, a unit vector for each dimension, zeros up to the number of rows, and at the end `_mixture` twice."""
    size = states.shape[-1]
    units = states.new_zeros(rows, 1, size)
    units[1 : size + 1, 0], units[-2:, 0] = torch.eye(size), _mixture(size)
    return units


def _repeated(values: Any, rows: int) -> Any:
    """What a layer gets for one row of a batch, and BLOOM for each head of it, for so many rows."""
    many = isinstance(values, Tensor) and values.ndim > 1
    return values.repeat(rows, *[1] * (values.ndim - 1)) if many else values


def _mixture(size: int) -> Float[Tensor, " C"]:
    """A vector in which every dimension takes part."""
    return torch.arange(1.0, size + 1).sin()


def _matrices(pretrained: Pretrained, call: AttentionCall, number: int, norms: NormCalls,
              inputs: tuple[Tensor, Tensor], output: Tensor) -> HeadMatrices:  # fmt: skip
    normalized = False

    def matrix(values: Tensor, given: Tensor) -> Tensor | None:
        """The matrix whose rows the unit vectors gave; None where it does not make the last row up to a scale a head."""
        nonlocal normalized
        made = repeat_heads(values, call.weights.shape[1])[:, :, 0].float()
        zero, rows, mixed, last = made[0], made[1 : given.shape[-1] + 1] - made[0], *made[-2:]
        expected = zero + torch.einsum("c,chd->hd", _mixture(given.shape[-1]), rows)
        scale = (last * mixed).sum(-1, keepdim=True) / mixed.square().sum(-1, keepdim=True)
        if not bool((expected - mixed).norm() <= LINEAR * (mixed - zero).norm()) or not bool(
            (scale * mixed - last).norm() <= LINEAR * last.norm()
        ):
            return None
        normalized |= bool((scale - 1).abs().max() > LINEAR)
        before = next((norm for norm, _, out in reversed(norms) if _same(out, given)), None)
        return fold_gain(rows.transpose(0, 1), before)

    states, memory = inputs
    w_q, w_k = matrix(call.q, states), matrix(call.k, memory)
    w_v, w_o = matrix(call.v, memory), output_matrix(call)
    if w_v is None or w_o is None:
        raise PretrainedError(
            f"{pretrained.name} makes its values, or its heads' outputs, by more than one matrix, so "
            "its circuits cannot be read from the weights. Take a model such as BERT, GPT-2 or "
            "Llama."
        )
    gated = call.gated
    assert gated is not None
    # A norm of all heads together (N, T, H·E) or of each before W_O, and one after it
    before, given = next(
        (
            (norm, values)
            for norm, values, out in reversed(norms)
            if out.data_ptr() == gated.data_ptr() and out.numel() == gated.numel()
        ),
        (None, gated),
    )
    # A norm of the stream is none of what the heads write
    alone = [] if adds_residual(call.module) else norms
    after = next((norm for norm, values, _ in alone if _same(values, output)), None)
    rows = w_o.flatten(0, 1) if given.ndim == 3 else w_o
    w_o = fold_gain(fold_gain(rows, before).reshape(w_o.shape).mT, after).mT
    scale = call.options.get("scaling")
    linear = w_q is not None and w_k is not None
    return HeadMatrices(
        call.kind,
        call.layer,
        w_q if linear else None,
        w_k if linear else None,
        w_v,
        w_o.float(),
        call.k.shape[1],
        number,
        None if scale is None else float(scale),
        not torch.equal(call.out[: len(given)], given.reshape(-1, *call.out.shape[1:])),
        normalized,
    )


def fold_gain(matrix: Float[Tensor, "... C D"], norm: Any) -> Float[Tensor, "... C D"]:
    """P diag(γ) W: a norm's gain scales the rows of a matrix after it; a LayerNorm's also have their mean removed."""
    if norm is None:
        return matrix
    gain, centers = norm_gain(norm, matrix.shape[-2:-1])
    matrix = gain[:, None] * matrix
    return matrix - matrix.mean(-2, keepdim=True) if centers else matrix


def norm_gain(norm: Any, shape: Sequence[int]) -> tuple[Float[Tensor, "... C"], bool]:
    """The gain of a norm over vectors (..., C) by what it makes of ±1000 in turn, and whether it removes the mean.

    Some families store the gain, others the gain less 1; some have one for each head.
    """
    values = (1000.0 * (1 - 2 * (torch.arange(shape[-1]) % 2))).expand(shape)
    given = torch.stack([values, -values, values + 1000])
    with torch.no_grad():
        parameter = next(norm.parameters(), given)
        plus, minus, moved = norm.forward(given.to(parameter.device)).float().cpu()
    centers = torch.allclose(plus, moved, atol=1e-3)
    center = values.mean(-1, keepdim=True) if centers else 0
    unit = (values - center) / (values - center).square().mean(-1, keepdim=True).sqrt()
    return (plus - minus) / (2 * unit), centers


def _same(one: Tensor, other: Tensor) -> bool:
    return one.data_ptr() == other.data_ptr() and one.shape == other.shape


# Tokens at both ends of a head: what its circuits make of the embedding of one token for all others.


@dataclass(frozen=True, eq=False)
class Vocabularies:
    """The embedding of each stream that heads read, and the unembedding of each that they write.

    The gain of the norm before the unembedding is folded in. A stream in `by_embedding` has no unembedding and is read
    through its embedding, transposed.
    """

    embeddings: dict[Kind, Float[Tensor, "V C"]]
    # W is 2C where a model reads its two streams together
    unembeddings: dict[Kind, Float[Tensor, "W U"]]
    by_embedding: frozenset[Kind]
    _between: dict[tuple[Kind, Kind], Float[Tensor, "C X"]] = field(
        default_factory=dict, repr=False
    )

    def serves(self, heads: HeadMatrices) -> bool:
        """Whether tokens can be put in and read out; pictures and sound have none."""
        source, target = self.embeddings.get(heads.reads), self.unembeddings.get(heads.writes)
        return (
            source is not None
            and target is not None
            and source.shape[1] == heads.w_v.shape[1]
            and target.shape[0] == heads.w_o.shape[2]
            and len(source) == target.shape[1]
        )

    def between(self, writes: Kind, reads: Kind) -> Float[Tensor, "C X"]:
        """W_U W_E, from the stream that a head writes to the one that it reads; the same for all layers."""
        if (writes, reads) not in self._between:
            self._between[writes, reads] = self.unembeddings[writes] @ self.embeddings[reads]
        return self._between[writes, reads]

    def written(self, heads: HeadMatrices, head: int, token: int) -> Float[Tensor, " V"]:
        """What the head adds to the logit of each token where it attends to this one: x W_V W_O W_U."""
        read = self.embeddings[heads.reads][token] @ heads.w_v[head]
        return read @ heads.w_o[head] @ self.unembeddings[heads.writes]

    def attended(self, heads: HeadMatrices, head: int, token: int) -> Float[Tensor, " V"] | None:
        """The scaled score of this query with each key by content: x W_Q W_Kᵀ W_Eᵀ/√D; None without these matrices."""
        queries = self.embeddings.get(heads.writes)
        if heads.w_q is None or heads.w_k is None or queries is None:
            return None
        key = heads.w_k[head] @ (queries[token] @ heads.w_q[head])
        scale = heads.w_q.shape[-1] ** -0.5 if heads.scale is None else heads.scale
        return self.embeddings[heads.reads] @ key * scale


def read_vocabularies(pretrained: Pretrained) -> Vocabularies:
    """The vocabularies of a model's streams. PretrainedError as in `forward`.

    An embedding is multiplied by the number by which the model multiplies it, as √C in Gemma.
    """
    model, norms = pretrained.model, NormCalls()
    forward(pretrained, blank_batch(pretrained), hooks=watch_norms(model, norms))
    two = model.config.is_encoder_decoder
    source = _embedding(pretrained, model.get_encoder() if two else model)
    target = _embedding(pretrained, model.get_decoder()) if two else source
    tables: dict[Kind, Tensor | None] = {"self": source, "causal": target}
    embeddings = {kind: table for kind, table in tables.items() if table is not None}
    unembeddings = {kind: table.T for kind, table in embeddings.items()}
    output = _table(partial(output_embeddings, model), nn.Embedding, nn.Linear)
    if output is not None:
        last = next(
            (norm for norm, _, out in reversed(norms) if out.shape[-1] == output.shape[1]),
            None,
        )
        unembeddings |= dict.fromkeys(("causal",) if two else embeddings, fold_gain(output.T, last))
    return Vocabularies(
        embeddings,
        unembeddings,
        frozenset(kind for kind in embeddings if output is None or (two and kind == "self")),
    )


@dataclass(frozen=True, eq=False)
class HeadWeights:
    """The matrices of all heads, in the order in which they run, and the vocabularies at both ends."""

    heads: tuple[HeadMatrices, ...]
    vocabularies: Vocabularies


def head_weights(pretrained: Pretrained) -> HeadWeights:
    """The matrices of every head, with the norms' gains folded in. PretrainedError as in `read_heads`."""
    with torch.no_grad():
        return HeadWeights(read_heads(pretrained), read_vocabularies(pretrained))


def _table(getter: Callable[[], Any], *kinds: type) -> Float[Tensor, "V C"] | None:
    """The rows of an embedding or of an output layer; None where there is none of these kinds."""
    try:
        module = getter()
    except (AttributeError, NotImplementedError):  # classes without words
        return None
    fits: Any = module if isinstance(module, kinds) else None
    return None if fits is None else fits.weight.detach().cpu().float()


def _embedding(pretrained: Pretrained, part: Any) -> Tensor | None:
    """The rows that the first layer of a part of the model gets, one a token; None for a part without them."""
    table = _table(part.get_input_embeddings, nn.Embedding)
    if table is None or (scale := _scale(pretrained, part)) == 1:
        return table
    return table * scale


def _scale(pretrained: Pretrained, part: Any) -> float:
    """By what an embedding is multiplied before the first layer: how the layer's input moves as it is doubled.

    1 where it moves in another direction, as where a norm comes first.
    """
    embedding, batch = part.get_input_embeddings(), blank_batch(pretrained)
    rows: list[Tensor] = []
    inputs: list[dict[Any, Tensor]] = []  # of each first layer, by the embedding and by twice it

    def doubled(module: Any, args: tuple[Any, ...], output: Tensor) -> Tensor:
        rows.extend(module.weight[one] for one in args[:1])
        return output * len(inputs)

    def enter(module: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        states = args[0] if args else options.get("hidden_states")
        if isinstance(states, Tensor):
            inputs[-1].setdefault(module, states)

    def hooks() -> Iterator[Any]:
        yield embedding.register_forward_hook(doubled)
        for name, module in part.named_modules():
            if (match := STACK.fullmatch(name)) is not None and match["number"] == "0":
                yield module.register_forward_pre_hook(enter, with_kwargs=True)

    for _ in range(2):
        inputs.append({})
        forward(pretrained, batch, hooks=hooked(hooks()))
    for first, before in inputs[0].items():
        moved = inputs[1][first] - before
        row = next((one for one in rows if one.shape == moved.shape), None)
        if row is not None and bool(moved.any()):
            scale = float((moved * row).sum() / row.square().sum())
            linear = (moved - scale * row).norm() <= LINEAR * moved.norm()
            return scale if linear and abs(scale - 1) > LINEAR else 1.0
    return 1.0


# Measures of heads from their weights: singular values, effective rank, and copying.


Factors = tuple[Tensor, Tensor, Tensor]  # U (H, C, D), S (H, D) and Vᵀ (H, D, C)


def thin_svd(left: Float[Tensor, "H C D"], right: Float[Tensor, "H D X"]) -> Factors:
    """U, S and Vᵀ of left · right, with D singular values, largest first."""
    (q_left, r_left), (q_right, r_right) = torch.linalg.qr(left), torch.linalg.qr(right.mT)
    u, s, vh = torch.linalg.svd(r_left @ r_right.mT, full_matrices=False)
    return q_left @ u, s, vh @ q_right.mT


def ov_factors(heads: HeadMatrices) -> Factors:
    """The singular value decomposition of W_V W_O: what is read of a key's state, how much, and what is written."""
    return thin_svd(heads.w_v, heads.w_o)


def qk_factors(heads: HeadMatrices) -> Factors | None:
    """That of W_Q W_Kᵀ: what is read of a query's state, how much, and of a key's; None without these matrices."""
    return None if heads.w_q is None or heads.w_k is None else thin_svd(heads.w_q, heads.w_k.mT)


def effective_rank(singular: Float[Tensor, "... D"]) -> Float[Tensor, "..."]:
    """The exponential of the entropy of singular values as shares: D when all are equal, 1 for one alone.

    Roy and Vetterli 2007, equation 3.
    """
    return torch.special.entr(singular / singular.sum(-1, keepdim=True)).sum(-1).exp()


def copying_scores(heads: HeadMatrices, vocabularies: Vocabularies) -> Float[Tensor, " H"] | None:
    """Σλ/Σ|λ| over the eigenvalues of W_E W_V W_O W_U, from −1 to 1; positive where tokens raise their own logit.

    Elhage et al. 2021, "Summarizing OV/QK matrices". The V × V matrix has the eigenvalues of W_O W_U W_E W_V, which is
    D × D, and zeros. None where there are no tokens.
    """
    if not vocabularies.serves(heads):
        return None
    values = torch.linalg.eigvals(
        heads.w_o @ vocabularies.between(heads.writes, heads.reads) @ heads.w_v
    )
    return values.real.sum(-1) / values.abs().sum(-1).clamp(min=1e-30)


# Composition of heads: how much a later head reads of what an earlier one writes, and how much it would at random.


CompositionKind = Literal["Q", "K", "V"]
KINDS: tuple[CompositionKind, ...] = get_args(CompositionKind)
MIN_PAIRS = 1000  # at random, so that one pair in a thousand is above all of them
MAX_NUMBERS = 2**24  # in the random matrices of an attention: 67 MB
SEED = 86


@dataclass(frozen=True, eq=False)
class Compositions:
    """Those of the heads (I) of one attention with the heads (H) of earlier ones, less the random level 1/√C.

    A composition is ‖A B‖/(‖A‖ ‖B‖) (Frobenius) of the earlier head's A = W_V W_O with B, what the later head reads it
    by: W_Q W_Kᵀ for Q, its transpose for K, and W_V W_O for V.

    `scores` are by kind and by the index of the earlier attention. `highest` is the most that chance gives, on the same
    scale: of `pairs` pairs in which the earlier head keeps its singular values and gets random directions.
    """

    scores: dict[tuple[CompositionKind, int], Float[Tensor, "H I"]]
    highest: dict[CompositionKind, float]
    pairs: dict[CompositionKind, int]


class Composer:
    """The compositions of a model's heads, one attention after another; what earlier heads write is computed once."""

    def __init__(self, heads: Sequence[HeadMatrices]) -> None:
        self.heads = heads
        self._writer = cache(self._write)
        counts = [
            sum(
                len(heads[earlier].w_v) * len(one.w_v)
                for later, one in enumerate(heads)
                for earlier in self._earlier(later, kind)
            )
            for kind in KINDS
        ]
        self._copies = math.ceil(MIN_PAIRS / min(filter(None, counts), default=MIN_PAIRS))

    def into(self, later: int) -> Compositions:
        """The compositions of the attention of this index with those before it."""
        result, reader = Compositions({}, {}, {}), self.heads[later]
        for kind in KINDS:
            if not (earlier_ones := self._earlier(later, kind)):
                continue
            # What a head reads by with norm 1, without the directions that it goes to
            factors = ov_factors(reader) if kind == "V" else qk_factors(reader)
            assert factors is not None
            u, size, vh = factors
            reads = (vh.mT if kind == "K" else u) * normalize(size, dim=-1)[:, None]
            level, by_chance = random_composition(reads.shape[1]), list[Tensor]()
            for earlier in earlier_ones:
                written, turned = self._writer(earlier)
                result.scores[kind, earlier] = _norms(written, reads) - level
                by_chance.append(_norms(turned, reads).flatten() - level)
            result.highest[kind] = float(torch.cat(by_chance).max())
            result.pairs[kind] = sum(map(len, by_chance))
        return result

    def _earlier(self, later: int, kind: CompositionKind) -> list[int]:
        """The attentions whose output this one reads in this way, and nothing beside it."""
        reader = self.heads[later]
        matrix = {"Q": reader.w_q, "K": reader.w_k, "V": reader.w_v}[kind]
        return [
            index
            for index, one in enumerate(self.heads[:later])
            if one.writes == (reader.writes if kind == "Q" else reader.reads)
            and matrix is not None
            and matrix.shape[1] == one.w_o.shape[2]
        ]

    def _write(self, index: int) -> tuple[Float[Tensor, "H E C"], Float[Tensor, "N E C"]]:
        """What the heads of an attention write, W_V W_O with norm 1, and copies of it in random directions.

        Without the directions that they read, which do not change the norm of a product.
        """
        _, singular, vh = ov_factors(self.heads[index])
        written = normalize(singular, dim=-1)[..., None] * vh
        heads, rank, size = written.shape
        copies = max(1, min(self._copies, MAX_NUMBERS // written.numel()))
        chance = torch.Generator().manual_seed(SEED + index)
        drawn = torch.linalg.qr(torch.randn(copies * heads, size, rank, generator=chance)).Q.mT
        return written, written.norm(dim=-1, keepdim=True).repeat(copies, 1, 1) * drawn


def random_composition(size: int) -> float:
    """The composition of matrices that have nothing to do with each other: 1/√C, the root of its mean square.

    It holds for any singular values if the directions of the two are random.
    """
    return size**-0.5


def _norms(written: Float[Tensor, "H E C"], read: Float[Tensor, "I C D"]) -> Float[Tensor, "H I"]:
    products = written.flatten(0, 1) @ read.transpose(0, 1).flatten(1)
    return products.view(*written.shape[:2], read.shape[0], -1).square().sum((1, 3)).sqrt()


# What a page says of a model: its strongest compositions, and what its heads make of tokens. A head is here the index of
# its attention in the order in which they run, and its own.


# The first that a head raises most is its default, else the first that its stream reads as one token.
WORDS = ("river", "cold", "king", "house", "seven", "sieben", "the")
TOP, DIRECTIONS, ENDS = 8, 4, 3
# Which word stood before which is all that differs, so a head that tells it and one that looks for it must do it.
PAIR = (
    ModelInputs("the dark river and the cold house . we saw the dark"),
    ModelInputs("the cold river and the dark house . we saw the dark"),
)
PAIRED_MODELS = ("only-attention", "induction")
# Only who gives differs, and only the number of the subject.
NAME_PAIRS = (
    (
        "when ann and ben went to the shop , ben gave the book to",
        "when ann and ben went to the shop , ann gave the book to",
    ),
    ("the dogs near the tree", "the dog near the tree"),
)


@dataclass(frozen=True)
class Edge:
    """A composition of two heads, less the mean of random matrices."""

    kind: CompositionKind
    source: Head
    target: Head
    score: float


@dataclass(frozen=True, eq=False)
class AttentionMeasures:
    """The measures of the heads of one attention: copying (None without tokens) and effective rank, arrays (H,)."""

    copying: np.ndarray | None
    ranks: np.ndarray
    compositions: Compositions


@dataclass(frozen=True, eq=False)
class Circuits(HeadWeights):
    """The matrices of all heads and the measures of each attention."""

    measures: tuple[AttentionMeasures, ...]

    def all(self) -> Iterator[Head]:
        return ((row, head) for row, one in enumerate(self.heads) for head in range(len(one.w_v)))

    @cached_property
    def layer_names(self) -> list[str]:
        return list(layer_names({(one.kind, one.layer): one.number for one in self.heads}).values())

    @cached_property
    def head_names(self) -> list[str]:
        return [str(head) for head in range(max(len(one.w_v) for one in self.heads))]

    @cached_property
    def names(self) -> dict[str, Head]:
        return {self.name(head): head for head in self.all()}

    def name(self, head: Head) -> str:
        return f"{self.layer_names[head[0]]}·H{head[1]}"

    def has_tokens(self, row: int) -> bool:
        return self.vocabularies.serves(self.heads[row])

    @property
    def random_level(self) -> float:
        return random_composition(self.heads[0].w_o.shape[-1])

    def chance(self, kind: CompositionKind) -> tuple[float, int]:
        """The most that random matrices reach, and in how many pairs."""
        parts = [one.compositions for one in self.measures if kind in one.compositions.highest]
        return max(one.highest[kind] for one in parts), sum(one.pairs[kind] for one in parts)

    @cached_property
    def pairs(self) -> dict[CompositionKind, list[Edge]]:
        """All compositions by kind, K first, the strongest first."""
        edges: dict[CompositionKind, list[Edge]] = {"K": [], "Q": [], "V": []}
        for later, one in enumerate(self.measures):
            for (kind, earlier), scores in one.compositions.scores.items():
                edges[kind] += [
                    Edge(kind, (earlier, a), (later, b), float(score))
                    for (a, b), score in np.ndenumerate(to_numpy(scores))
                ]
        return {kind: sorted(of, key=lambda edge: -edge.score) for kind, of in edges.items() if of}

    def edges(self, kind: CompositionKind) -> list[Edge]:
        """Those that are above all random ones."""
        most, _ = self.chance(kind)
        return [edge for edge in self.pairs[kind] if edge.score > most]

    def best_into(self, head: Head) -> dict[CompositionKind, Edge]:
        """Of each kind the strongest composition of a head with an earlier one."""
        best: dict[CompositionKind, Edge] = {}
        for (kind, earlier), scores in self.measures[head[0]].compositions.scores.items():
            source = int(scores[:, head[1]].argmax())
            edge = Edge(kind, (earlier, source), head, float(scores[source, head[1]]))
            best[kind] = max(best.get(kind, edge), edge, key=lambda one: one.score)
        return best


def measure_attention(weights: HeadWeights, composer: Composer, row: int) -> AttentionMeasures:
    """Measure one attention, by its index; the composer keeps what the next ones need of it."""
    one = weights.heads[row]
    with torch.no_grad():
        score = copying_scores(one, weights.vocabularies)
        return AttentionMeasures(
            None if score is None else to_numpy(score),
            to_numpy(effective_rank(ov_factors(one)[1])),
            composer.into(row),
        )


def measure_circuits(weights: HeadWeights) -> Circuits:
    """The copying, the effective rank and the compositions of every head, one attention after another."""
    composer = Composer(weights.heads)
    measures = [measure_attention(weights, composer, row) for row in range(len(weights.heads))]
    return Circuits(weights.heads, weights.vocabularies, tuple(measures))


def default_head(circuits: Circuits) -> Head:
    """The head that copies most; of heads without tokens the later one of the strongest composition, else the first."""
    copying = {
        (row, head): float(score)
        for row, one in enumerate(circuits.measures)
        if one.copying is not None
        for head, score in enumerate(one.copying)
    }
    if copying:
        return max(copying, key=copying.__getitem__)
    return next((edges[0].target for edges in circuits.pairs.values()), (0, 0))


def singular_values(model: Pretrained, weights: HeadWeights, head: Head) -> dict[str, np.ndarray]:
    """The singular values of a head's W_V W_O, and of its W_Q W_Kᵀ where there is one, arrays (D,)."""
    one = weights.heads[head[0]]
    factors = {"OV": ov_factors(one), "QK": qk_factors(one)}
    return {name: to_numpy(each[1][head[1]]) for name, each in factors.items() if each}


@dataclass(frozen=True, eq=False)
class Extremes:
    """The tokens with the largest and with the smallest of all `values`, and the rank of one token among `count`."""

    most: list[tuple[str, float]]
    least: list[tuple[str, float]]
    values: Float[np.ndarray, " V"]
    rank: int
    count: int


def token_of(model: Pretrained, typed: str) -> tuple[int, int]:
    """The id of the first token of a typed word, and of how many it consists. PretrainedError for an unknown one."""
    tokenizer = tokenizer_of(model)
    ids = tokenized(model, f" {typed.strip()}", add_special_tokens=False)["input_ids"]
    # SentencePiece spells a space before some words as a token of its own, without any letters.
    ids = [one for one in ids if display_tokens(tokenizer, [one])[0].strip("▁␣ ")]
    reject_if(
        not ids or ids[0] == tokenizer.unk_token_id,
        f"{model.name} has no token for “{typed.strip()[:40]}”. Type another word.",
    )
    return ids[0], len(ids)


def default_token(model: Pretrained, weights: HeadWeights, head: Head) -> tuple[int, str]:
    """The first of WORDS that the head copies: attending to it raises it most.

    Without one the first that is one token which its stream embeds, else a token in the middle of the vocabulary.
    """
    read: list[tuple[int, str]] = []
    for word in WORDS:
        with suppress(PretrainedError):
            token, pieces = token_of(model, word)
            if pieces == 1 and (shown := extremes(model, weights, head, "OV", token)):
                if shown.rank == 1:
                    return token, word
                read.append((token, word))
    token = len(tokenizer_of(model)) // 2
    return read[0] if read else (token, display_tokens(tokenizer_of(model), [token])[0])


def extremes(
    model: Pretrained, weights: HeadWeights, head: Head, circuit: str, token: int
) -> Extremes | None:
    """What a circuit of a head makes of one token: the logits that it adds (OV), or its query's scores (QK).

    None where the token has no embedding.
    """
    tables = weights.vocabularies
    effect = tables.written if circuit == "OV" else tables.attended
    values = effect(weights.heads[head[0]], head[1], token)
    if values is None or not values.any():
        return None
    least = [(name, -value) for name, value in top_tokens(model, -values)]
    most, rank = top_tokens(model, values), rank_of(model, values, token)
    return Extremes(most, least, to_numpy(values), *rank)


def top_tokens(model: Pretrained, values: Tensor, count: int = TOP) -> list[tuple[str, float]]:
    """The tokens with the largest values, without special ones."""
    ids = _ordinary(model, len(values))
    best = values[ids].topk(min(count, len(ids)))
    names = display_tokens(tokenizer_of(model), ids[best.indices.cpu()].tolist())
    return list(zip(names, best.values.tolist(), strict=True))


def rank_of(model: Pretrained, values: Tensor, token: int) -> tuple[int, int]:
    """The rank of a token's value, 1 for the largest, and of how many tokens, without special ones."""
    ids = _ordinary(model, len(values))
    return 1 + int((values[ids] > values[token]).sum()), len(ids)


def _ordinary(model: Pretrained, size: int) -> Tensor:
    """The ids of all tokens with a value that are not special."""
    tokenizer = tokenizer_of(model)
    ids = torch.arange(min(size, len(tokenizer)))
    return ids[~torch.isin(ids, torch.tensor(tokenizer.all_special_ids, dtype=torch.long))]


def directions(
    model: Pretrained, weights: HeadWeights, head: Head, circuit: str
) -> list[tuple[float, list[str], list[str]]]:
    """The largest singular values of a circuit (OV, QK) with the tokens furthest along their directions at both ends.

    They are of the key and the output, or of query and key. A direction and its opposite are the same, so each is
    turned to where its first end is longest.
    """
    one, tables = weights.heads[head[0]], weights.vocabularies
    factors, ends = (
        (ov_factors(one), (tables.embeddings[one.reads], tables.unembeddings[one.writes].T))
        if circuit == "OV"
        else (qk_factors(one), (tables.embeddings[one.writes], tables.embeddings[one.reads]))
    )
    assert factors is not None, "a circuit that the head does not have is not offered"
    u, values, vh = (each[head[1]] for each in factors)
    rows = []
    for value, left, right in zip(values[:DIRECTIONS].tolist(), u.T, vh, strict=False):
        first, second = ends[0] @ left, ends[1] @ right
        turn = 1 if float(first.max()) >= -float(first.min()) else -1
        words, others = (
            [name for name, _ in top_tokens(model, turn * side, ENDS)] for side in (first, second)
        )
        rows.append((value, words, others))
    return rows


@dataclass(frozen=True, eq=False)
class InductionCircuit:
    """The two heads of a circuit by patching, with what each recovers, and where they attend.

    `previous` is the mean weight of the first head on the token before, `answer` the weight of the second one's last
    row on the token that the model then predicts.
    """

    patched: tuple[Head, Head]
    effects: tuple[float, float]
    previous: float
    answer: float
    word: str


def induction_circuit(model: Pretrained) -> InductionCircuit:
    """The induction circuit of one of PAIRED_MODELS by patching."""
    pair, reading = pair_of(model, *PAIR), read(model, PAIR[0])
    best = ranked(patch(pair), "denoise")
    (first, gained), (second, regained) = (
        next(((layer, head), value) for (_, layer), head, value in best if layer == number)
        for number in (0, 1)
    )
    earlier, later = (item.weights for item in reading.trace.maps)
    word = str(pair.clean.word)
    return InductionCircuit(
        (first, second),
        (gained, regained),
        float(earlier[first[1]].diagonal(-1).mean()),
        float(later[second[1], -1, reading.source.tokens.index(word)]),
        word,
    )


@dataclass(frozen=True)
class Carrier:
    """The head that brings back most of the difference between two texts, with the answers to both.

    `weight` is that of its last query in the first text on `key`, where it attends most; `adds` what it writes directly
    to the logit of the answer minus that of the other one, in both texts.
    """

    texts: tuple[str, str]
    answer: str
    other: str
    head: Head
    effect: float
    key: str
    weight: float
    adds: tuple[float, float]


def carriers(model: Pretrained) -> tuple[Carrier, ...]:
    """The head that carries each of NAME_PAIRS in the lab's model of names."""
    carried = []
    for texts in NAME_PAIRS:
        clean, corrupted = map(ModelInputs, texts)
        pair, reading = pair_of(model, clean, corrupted), read(model, clean)
        layer, head, effect = ranked(patch(pair), "denoise")[0]
        weights = reading.trace.maps[layer[1]].weights[head, -1]
        key = int(weights.argmax())
        # What the head writes directly to the difference of the two answers' logits, in both texts
        first, second = (
            next(
                part.value
                for part in attribute_logit(one, one.id, one.contrast).parts  # type: ignore[arg-type]
                if (part.role, part.key, part.head) == ("head", layer, head)
            )
            for one in (pair.clean, pair.corrupted)
        )
        carried.append(
            Carrier(
                texts,
                str(pair.clean.word),
                str(pair.clean.other),
                (layer[1], head),
                effect,
                reading.source.tokens[key],
                float(weights[key]),
                (first, second),
            )
        )
    return tuple(carried)
