"""What heads can do by their weights alone: the matrices of each head, its OV and QK circuits, and compositions.

Elhage et al. 2021, A Mathematical Framework for Transformer Circuits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from core.hooks import hooked
from core.interpret.evidence import output_matrix
from core.interpret.trace import Kind
from core.pretrained.attention_recorder import (
    STACK,
    AttentionCall,
    numbers_by_layer,
    output_embeddings,
    repeat_kv,
)
from core.pretrained.base import Array, ModelInputs, Pretrained, PretrainedError, reject_if
from core.pretrained.reading import Batch, encode, forward

# W_Q, W_K, W_V and W_O of every head of any family, with the norms' gains folded in.


LINEAR = 1e-3  # how far, as a share, a linear map may be from the sum of its rows
STATES, MEMORY = "hidden_states", ("key_value_states", "encoder_hidden_states")


@dataclass(frozen=True, eq=False)
class HeadMatrices:
    """The matrices of one attention by head, which act from the left: q = x W_Q, out = x W_V W_O. Biases are left out.

    A norm before them is folded in: its gain scales the rows, and a LayerNorm's centering is a projection. So is a norm
    right before or after W_O. Where a gate multiplies the heads' outputs by numbers of the query's token (`gated`), the
    matrices are those of a gate of 1. `w_q` and `w_k` are None where queries or keys are normalized themselves, so that
    no matrix makes them. Query heads that share a key and value head each have a copy; there are `kv_heads` of them.
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

    @property
    def writes(self) -> Kind:
        """The stream that it adds to: the encoder's, named self, or the decoder's, causal."""
        return "self" if self.kind == "self" else "causal"

    @property
    def reads(self) -> Kind:
        """The stream that keys and values come from."""
        return "causal" if self.kind == "causal" else "self"


NormCalls = list[
    tuple[Any, Tensor, Tensor]
]  # each norm of a pass in order, what went in and what came out


def read_heads(pretrained: Pretrained) -> tuple[HeadMatrices, ...]:
    """The matrices of each attention in the order in which they run.

    PretrainedError where a layer's values are no linear map of its input, or its W_O was not found.
    """
    batch = blank_batch(pretrained)
    _, whole = forward(pretrained, batch, with_qkv=True)
    modules = [call.module for call in whole.calls]
    reject_if(
        not modules,
        f"{pretrained.name} has no layer whose matrices can be read. Take a model such as BERT, "
        "GPT-2 or Llama.",
    )
    reject_if(
        any(hasattr(module, "lambda_init") for module in modules),
        f"{pretrained.name} subtracts the weights of one head from those of another, so no head "
        "has a circuit of its own. Take a model such as BERT, GPT-2 or Llama.",
    )
    norms, inputs = NormCalls(), list[_Probe]()
    first = {
        name: values[:, :1] if values.dtype == torch.long else values
        for name, values in batch.items()
    }
    hooks = _probes(pretrained.model, modules, norms, inputs)
    try:
        _, recorder = forward(pretrained, first, with_qkv=True, hooks=hooks)
    except PretrainedError as error:
        raise PretrainedError(
            f"The attention of {pretrained.name} takes more than the state of one token, so its "
            "matrices cannot be read from unit vectors. Take a model such as BERT, GPT-2 or "
            "Llama."
        ) from error
    numbers = numbers_by_layer(pretrained.model, whole.calls)
    heads = []
    for call, one, probe in zip(recorder.calls, whole.calls, inputs, strict=True):
        known = replace(call, kind=one.kind, layer=one.layer)
        heads.append(_matrices(pretrained, known, numbers[one.kind, one.layer], norms, probe))
    return tuple(heads)


def blank_batch(pretrained: Pretrained) -> Batch:
    """A few letters, a blank picture, or silence: something to run the model on, which no result depends on."""
    inputs = ModelInputs(
        "a b c",
        target="a b c",
        picture=Array.of(np.zeros((16, 16), np.float32)),
        sound=Array.of(np.zeros(16_000, np.float32)),
    )
    return encode(pretrained, inputs)[0]


def watch_norms(model: Any, norms: NormCalls) -> AbstractContextManager[None]:
    """Note each norm that runs in a pass."""

    def watch(module: Any, args: tuple[Any, ...], output: Any) -> None:
        if args and isinstance(args[0], Tensor) and isinstance(output, Tensor):
            norms.append((module, args[0], output))

    return hooked(
        module.register_forward_hook(watch)
        for module in model.modules()
        if "norm" in type(module).__name__.lower() and not list(module.children())
    )


@dataclass(eq=False)
class _Probe:
    """What one attention would have read, what its keys and values would have, and its output."""

    states: Tensor
    memory: Tensor
    out: Tensor | None = None


@contextmanager
def _probes(
    model: Any, modules: Sequence[Any], norms: NormCalls, inputs: list[_Probe]
) -> Iterator[None]:
    """While a pass runs, give each attention a row of zeros, the unit vectors, and one more vector.

    What it adds to the model is that of the first row alone, so that all else runs on one row.
    """

    def enter(
        module: Any, args: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        states = args[0] if args else options[STATES]
        other = next((name for name in MEMORY if options.get(name) is not None), None)
        inputs.append(_Probe(states, states if other is None else options[other]))
        rows = 2 + max(inputs[-1].states.shape[-1], inputs[-1].memory.shape[-1])
        changes = {} if other is None else {other: _unit_rows(rows, options[other])}
        if args:
            return (_unit_rows(rows, states), *args[1:]), options | changes
        return args, options | changes | {STATES: _unit_rows(rows, states)}

    def leave(module: Any, args: Any, output: Any) -> Any:
        out, *others = output if isinstance(output, tuple) else (output,)
        inputs[-1].out = out[:1]
        return (out[:1], *others) if isinstance(output, tuple) else out[:1]

    attentions = list(dict.fromkeys(modules))
    with (
        hooked(module.register_forward_pre_hook(enter, with_kwargs=True) for module in attentions),
        hooked(module.register_forward_hook(leave) for module in attentions),
        watch_norms(model, norms),
    ):
        yield


def _unit_rows(rows: int, states: Float[Tensor, "1 T C"]) -> Float[Tensor, "N 1 C"]:
    """Zeros, a unit vector for each dimension, zeros up to the number of rows, and at the end `_mixture`."""
    size = states.shape[-1]
    units = states.new_zeros(rows, 1, size)
    units[1 : size + 1, 0], units[-1, 0] = torch.eye(size), _mixture(size)
    return units


def _mixture(size: int) -> Float[Tensor, " C"]:
    """A vector in which every dimension takes part."""
    return torch.arange(1.0, size + 1).sin()


def _matrices(pretrained: Pretrained, call: AttentionCall, number: int, norms: NormCalls,
              probe: _Probe) -> HeadMatrices:  # fmt: skip
    assert call.q is not None and call.k is not None and call.v is not None
    heads = call.q.shape[1]

    def matrix(values: Tensor, given: Tensor) -> Tensor | None:
        """The matrix whose rows the unit vectors gave; None where it is not what makes the last row."""
        made = repeat_kv(values, heads)[:, :, 0]
        made = (made - made[0]).float()
        rows, last = made[1 : given.shape[-1] + 1], made[-1]
        expected = torch.einsum("c,chd->hd", _mixture(given.shape[-1]), rows)
        if not bool((expected - last).norm() <= LINEAR * last.norm()):
            return None
        before = next((norm for norm, _, out in reversed(norms) if _same(out, given)), None)
        return fold_gain(rows.transpose(0, 1), before)

    w_q, w_k = matrix(call.q, probe.states), matrix(call.k, probe.memory)
    w_v, w_o = matrix(call.v, probe.memory), output_matrix(call)
    if w_v is None or w_o is None:
        raise PretrainedError(
            f"{pretrained.name} makes its values, or its heads' outputs, by more than one matrix, so "
            "its circuits cannot be read from the weights. Take a model such as BERT, GPT-2 or "
            "Llama."
        )
    gated = call.gated
    assert call.out is not None and gated is not None
    given = gated
    for norm, values, out in reversed(norms):  # of all heads together (N, T, H·E), or of each
        if out.data_ptr() == gated.data_ptr() and out.numel() == gated.numel():
            rows = w_o.flatten(0, 1) if values.ndim == 3 else w_o
            w_o, given = fold_gain(rows, norm).reshape(w_o.shape), values
            break
    for norm, values, _ in norms:
        if probe.out is not None and _same(values, probe.out):
            w_o = fold_gain(w_o.mT, norm).mT
            break
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
    )


def fold_gain(matrix: Float[Tensor, "... C D"], norm: Any) -> Float[Tensor, "... C D"]:
    """P diag(γ) W: a norm's gain scales the rows of a matrix after it; a LayerNorm's also have their mean removed."""
    if norm is None:
        return matrix
    gain, centers = norm_gain(norm, matrix.shape[-2])
    matrix = gain[:, None] * matrix
    return matrix - matrix.mean(-2, keepdim=True) if centers else matrix


def norm_gain(norm: Any, size: int) -> tuple[Float[Tensor, " C"], bool]:
    """The gain of a norm by what it makes of ±1000 in turn, and whether it removes the mean.

    Some families store the gain, others the gain less 1.
    """
    values = 1000.0 * (1 - 2 * (torch.arange(size) % 2))
    with torch.no_grad():
        device = next(norm.parameters(), values).device
        plus, minus, moved = (
            norm(torch.stack([values, -values, values + 1000]).to(device)).float().cpu()
        )
    centers = torch.allclose(plus, moved, atol=1e-3)
    unit = (
        (values - values.mean()) / values.std(correction=0)
        if centers
        else values / values.square().mean().sqrt()
    )
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
    unembeddings: dict[
        Kind, Float[Tensor, "W U"]
    ]  # W is 2C where a model reads its two streams together
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
        x = self.embeddings[heads.reads][token]
        return x @ heads.w_v[head] @ heads.w_o[head] @ self.unembeddings[heads.writes]

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
    parts: dict[Kind, Any] = {"self": model, "causal": model}
    if two:
        parts = {"self": model.get_encoder(), "causal": model.get_decoder()}
    embeddings = {
        kind: table if (scale := _scale(pretrained, parts[kind])) == 1 else table * scale
        for kind, part in parts.items()
        if (table := _table(part.get_input_embeddings)) is not None
    }
    unembeddings = {kind: table.T for kind, table in embeddings.items()}
    output = _table(partial(output_embeddings, model))
    if output is not None:
        last = next(
            (norm for norm, _, out in reversed(norms) if out.shape[-1] == output.shape[1]),
            None,
        )
        unembeddings |= dict.fromkeys(("causal",) if two else embeddings, fold_gain(output.T, last))
    by_embedding = {kind for kind in embeddings if output is None or (two and kind == "self")}
    return Vocabularies(embeddings, unembeddings, frozenset(by_embedding))


@dataclass(frozen=True, eq=False)
class HeadWeights:
    """The matrices of all heads, in the order in which they run, and the vocabularies at both ends."""

    heads: tuple[HeadMatrices, ...]
    vocabularies: Vocabularies


def head_weights(pretrained: Pretrained) -> HeadWeights:
    """The weights of a model's heads. PretrainedError as in `read_heads`."""
    with torch.no_grad():
        return HeadWeights(read_heads(pretrained), read_vocabularies(pretrained))


def _table(getter: Callable[[], Any]) -> Float[Tensor, "V C"] | None:
    """The rows of an embedding or of an output layer; None where there is none."""
    try:
        module = getter()
    except (AttributeError, NotImplementedError):  # classes without words
        return None
    return (
        module.weight.detach().cpu().float()
        if isinstance(module, nn.Embedding | nn.Linear)
        else None
    )


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


def effective_rank(singular: Float[Tensor, "... D"]) -> Float[Tensor, ...]:
    """The exponential of the entropy of singular values as shares: D when all are equal, 1 for one alone.

    Roy and Vetterli 2007, equation 3.
    """
    shares = singular / singular.sum(-1, keepdim=True)
    return torch.special.entr(shares).sum(-1).exp()


def copying_scores(heads: HeadMatrices, vocabularies: Vocabularies) -> Float[Tensor, " H"] | None:
    """Σλ/Σ|λ| over the eigenvalues of W_E W_V W_O W_U, from −1 to 1; positive where tokens raise their own logit.

    Elhage et al. 2021, "Summarizing OV/QK matrices". The V × V matrix has the eigenvalues of W_O W_U W_E W_V, which is
    D × D, and zeros. None where there are no tokens.
    """
    if not vocabularies.serves(heads):
        return None
    middle = vocabularies.between(heads.writes, heads.reads)
    values = torch.linalg.eigvals(heads.w_o @ middle @ heads.w_v)
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
        self._writers: dict[int, tuple[Tensor, Tensor]] = {}
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
            reads = (vh.mT if kind == "K" else u) * _unit(size)[:, None]
            for earlier in earlier_ones:
                written, turned = self._writer(earlier)
                level = random_composition(written.shape[-1])
                result.scores[kind, earlier] = _norms(written, reads) - level
                by_chance = _norms(turned, reads) - level
                result.highest[kind] = max(result.highest.get(kind, -level), float(by_chance.max()))
                result.pairs[kind] = result.pairs.get(kind, 0) + by_chance.numel()
        return result

    def _earlier(self, later: int, kind: CompositionKind) -> list[int]:
        """The attentions whose output this one reads in this way, and nothing beside it."""
        reader = self.heads[later]
        matrix = {"Q": reader.w_q, "K": reader.w_k, "V": reader.w_v}[kind]
        stream = reader.writes if kind == "Q" else reader.reads
        return [
            index
            for index, one in enumerate(self.heads[:later])
            if matrix is not None and one.writes == stream and matrix.shape[1] == one.w_o.shape[2]
        ]

    def _writer(self, index: int) -> tuple[Float[Tensor, "H E C"], Float[Tensor, "N E C"]]:
        """What the heads of an attention write, W_V W_O with norm 1, and copies of it in random directions.

        Without the directions that they read, which do not change the norm of a product.
        """
        if index not in self._writers:
            _, singular, vh = ov_factors(self.heads[index])
            written = _unit(singular)[..., None] * vh
            heads, rank, size = written.shape
            copies = max(1, min(self._copies, MAX_NUMBERS // written.numel()))
            chance = torch.Generator().manual_seed(SEED + index)
            drawn = torch.linalg.qr(torch.randn(copies * heads, size, rank, generator=chance)).Q.mT
            turned = written.norm(dim=-1, keepdim=True).repeat(copies, 1, 1) * drawn
            self._writers[index] = written, turned
        return self._writers[index]


def compositions(
    heads: Sequence[HeadMatrices],
) -> dict[tuple[CompositionKind, int, int], Float[Tensor, "H I"]]:
    """Compositions less the random level, by kind and by the indices of the earlier and the later attention."""
    composer = Composer(heads)
    return {
        (kind, earlier, later): score
        for later in range(len(heads))
        for (kind, earlier), score in composer.into(later).scores.items()
    }


def random_composition(size: int) -> float:
    """The composition of matrices that have nothing to do with each other: 1/√C, the root of its mean square.

    It holds for any singular values if the directions of the two are random.
    """
    return size**-0.5


def _unit(singular: Float[Tensor, "H D"]) -> Float[Tensor, "H D"]:
    return singular / singular.norm(dim=-1, keepdim=True).clamp(min=1e-30)


def _norms(written: Float[Tensor, "H E C"], read: Float[Tensor, "I C D"]) -> Float[Tensor, "H I"]:
    products = written.flatten(0, 1) @ read.transpose(0, 1).flatten(1)
    return products.view(*written.shape[:2], read.shape[0], -1).square().sum((1, 3)).sqrt()
