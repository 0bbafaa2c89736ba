"""Evidence on what the answer depends on: contributions, gradients, the effect of ablations, and one weight broken down."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from core.attention import Absent
from core.attention.base import repeat_heads
from core.interpret.trace import (
    COREFERENCE,
    AttentionMap,
    AttentionTrace,
    Head,
    Kind,
    LayerKey,
    flow,
    graph,
    rollout,
    to_numpy,
)
from core.memory import room_bytes
from core.pretrained import (
    MINILM,
    NO_HEADS,
    Answer,
    AttentionCall,
    Batch,
    HeadSet,
    Line,
    ModelInputs,
    Pretrained,
    PretrainedError,
    Reading,
    allowed_of,
    answer,
    answer_of,
    bool_mask,
    check_output,
    display_names,
    encode,
    forward,
    is_transposed,
    maps_bytes,
    reject_if,
    top_candidates,
)
from core.ranks import spearman
from core.tokens import CONTINUES

# A question to a model, and its baseline: the full model's answer, with which ablations are compared.


Quantity = Literal["probability", "logit", "difference", "log-probability", "kl"]
CONFIDENT = 0.95  # a probability above which the softmax is so flat that it hardly moves


@dataclass(frozen=True)
class Question:
    """The inputs of a model, and the target value in its answer.

    `position` answers (None: the last or the masked one). `output` is the target class or token (None: the likeliest).
    `quantity` is its probability, the natural logarithm of that, its logit, or its logit minus that of `contrast` (None:
    the likeliest other one); "kl" is minus the KL divergence of the changed answer from the full model's, in nats. None
    is the probability, or the logit where the likeliest has more than 0.95. An embedding has none of these: its target
    value is the cosine with the embedding of `against`, or with its own baseline where that is empty.
    """

    inputs: ModelInputs
    position: int | None = None
    against: str = ""
    output: int | None = None
    quantity: Quantity | None = None
    contrast: int | None = None


@dataclass(frozen=True, eq=False)
class Baseline:
    """A question with the full model's answer, to be rerun with parts ablated and compared.

    `id` is the target token or class, `contrast` the one whose logit is subtracted (None unless `quantity` is
    "difference"); `reference` is the vector that an embedding is compared with.
    """

    pretrained: Pretrained
    question: Question
    batch: Batch
    source: Line
    target: Line | None
    answer: Answer
    id: int | Absent
    reference: Tensor | Absent
    quantity: Quantity = "probability"
    contrast: int | None = None

    def rerun(
        self, batch: Batch | None = None, off: HeadSet = NO_HEADS, uniform: HeadSet = NO_HEADS
    ) -> Answer:
        """The answer to another batch, or with heads off or with uniform weights."""
        batch = self.batch if batch is None else batch
        output, _ = forward(self.pretrained, batch, off=off, uniform=uniform)
        return self.answer_in(batch, output)

    def answer_in(self, batch: Batch, output: Any) -> Answer:
        """The answer at the question's position; it keeps its gradients."""
        return answer_of(self.pretrained, batch, output, self.question.position)

    def target_value(self, answer: Answer) -> Tensor:
        """The target value of an answer: a number by the question's quantity, or a cosine."""
        if answer.logits is not None and self.quantity == "kl":
            full, changed = (one.logits.log_softmax(-1) for one in (self.answer, answer))
            return -(full.exp() * (full - changed))[full > -torch.inf].sum()
        if answer.logits is not None:
            values = quantity_values(answer, self.quantity)
            return (
                values[self.id]
                if self.contrast is None
                else values[self.id] - values[self.contrast]
            )
        return answer.vector @ self.reference

    @property
    def value(self) -> float:
        return float(self.target_value(self.answer))

    @property
    def word(self) -> str | Absent:
        """The name of the target token or class; None for an embedding."""
        return (
            None if self.id is None else display_names(self.pretrained, self.answer, [self.id])[0]
        )

    @property
    def other(self) -> str | Absent:
        """The name of the contrast token or class; None where there is none."""
        return (
            None
            if self.contrast is None
            else display_names(self.pretrained, self.answer, [self.contrast])[0]
        )

    @property
    def is_top(self) -> bool:
        """Whether the target is the full model's likeliest token or class."""
        return self.answer.logits is not None and self.id == int(self.answer.logits.argmax())

    @property
    def has_gradient(self) -> bool:
        """Whether the target value has a gradient: an embedding's cosine with itself, or a KL divergence, has none."""
        return (
            self.pretrained.recordable
            and self.quantity != "kl"
            and (self.answer.vector is None or bool(self.question.against.strip()))
        )


def ask(pretrained: Pretrained, question: Question) -> Baseline:
    """Answer a question with the full model.

    PretrainedError as in `encode` and `answer`, and when the position or the output does not exist.
    """
    batch, source, target, _ = encode(pretrained, question.inputs)
    length, named = len(target or source), (question.output, question.contrast)
    reject_if(
        question.quantity not in (None, *get_args(Quantity)),
        f"There is no quantity {question.quantity!r}; take one of {', '.join(get_args(Quantity))}.",
    )
    reject_if(
        question.position is not None and not -length <= question.position < length,
        f"The sequence has no position {question.position}; its {length} positions are 0 to "
        f"{length - 1}.",
    )
    full = answer_of(pretrained, batch, forward(pretrained, batch)[0], question.position)
    baseline = Baseline(pretrained, question, batch, source, target, full, None, None)
    if full.logits is None:
        reject_if(
            (question.quantity, *named) != (None, None, None),
            f"{pretrained.name} gives an embedding; only its cosine can be measured, and there is "
            "no output, quantity or contrast.",
        )
        against = question.against.strip()
        other = answer(pretrained, ModelInputs(against)) if against else full
        return replace(baseline, reference=other.vector)
    best = full.logits.topk(min(2, len(full.logits))).indices.tolist()
    output, contrast = (
        None if one is None else check_output(pretrained, full, one) for one in named
    )
    output = best[0] if output is None else output
    quantity = question.quantity or default_quantity(full)
    if quantity != "difference":
        return replace(baseline, id=output, quantity=quantity)
    reject_if(
        len(best) < 2,
        f"{pretrained.name} has only one output, so there is no difference of logits; choose "
        "the logit.",
    )
    contrast = next(one for one in best if one != output) if contrast is None else contrast
    reject_if(
        contrast == output,
        "The difference of a logit and itself is always 0; choose two different outputs.",
    )
    return replace(baseline, id=output, quantity=quantity, contrast=contrast)


def quantity_values(answer: Answer, quantity: Quantity) -> Tensor:
    """The probabilities, their logarithms, or the logits, of every class or token (V,)."""
    if quantity == "log-probability":
        return answer.logits.log_softmax(-1)
    return answer.probabilities if quantity in ("probability", "kl") else answer.logits


def default_quantity(answer: Answer) -> Quantity:
    """The probability, or the logit where the likeliest has more than 0.95."""
    return "logit" if float(answer.probabilities.max()) > CONFIDENT else "probability"


# The effect on the answer of ablating heads or hiding a token, measured by running the model again.


@dataclass(frozen=True)
class Effect:
    """The target value under an ablation, how far that is below the full model's, and the id of the new answer.

    A `drop` above 0 says that what was taken away helps the answer.
    """

    value: float
    drop: float
    id: int | None


def ablate_heads(baseline: Baseline, off: HeadSet) -> Effect:
    """The effect of heads whose output is zero, as if W_O had no columns for them. Michel et al. 2019, section 3.

    PretrainedError when the model's attention cannot be reached.
    """
    reject_if(
        not baseline.pretrained.recordable,
        f"{baseline.pretrained.name} {baseline.pretrained.not_recorded}. So its heads cannot be "
        "switched off here. Its weights, rollout and flow can be shown.",
    )
    return _effect(baseline, baseline.rerun(off=off))


def make_heads_uniform(baseline: Baseline, heads: HeadSet) -> Effect:
    """The effect of giving heads equal weights on all visible keys.

    The uniform weights of Wiegreffe & Pinter 2019, section 3.2. PretrainedError as in `forward`.
    """
    return _effect(baseline, baseline.rerun(uniform=heads))


def hide_token(baseline: Baseline, token: int) -> Effect:
    """The effect of masking a source token everywhere, or of painting an image patch with the mean colour.

    Jain & Wallace 2019 leave words out in the same way (section 4.1). PretrainedError for sound.
    """
    batch, grid = dict(baseline.batch), baseline.source.grid
    if baseline.pretrained.reads_text:
        mask = batch.get("attention_mask", torch.ones_like(batch["input_ids"])).clone()
        mask[0, token] = 0
        batch["attention_mask"] = mask
        read = baseline.target
        if read is not None and read.ids[1:] == baseline.source.ids[:-1]:  # a classifier's decoder
            batch["decoder_attention_mask"] = nn.functional.pad(mask[:, :-1], (1, 0), value=1)
    elif "flattened_patches" in batch:
        patches = batch["flattened_patches"] = batch["flattened_patches"].clone()
        patches[0, token, 2:] = 0.0  # the mean of the picture, after the patch's row and column
    elif "pixel_values" not in batch or grid is None:
        raise PretrainedError(
            "Parts of a sound are not masked here: neighbouring parts contain the same sounds."
        )
    elif (patch := token - (len(baseline.source) - grid[0] * grid[1])) >= 0:
        pixels = batch["pixel_values"] = batch["pixel_values"].clone()
        high, wide = pixels.shape[-2] // grid[0], pixels.shape[-1] // grid[1]
        row, column = patch // grid[1] * high, patch % grid[1] * wide
        pixels[..., row : row + high, column : column + wide] = pixels.mean((-2, -1), keepdim=True)
    return _effect(baseline, baseline.rerun(batch))


def _effect(baseline: Baseline, answer: Answer) -> Effect:
    value, probable = float(baseline.target_value(answer)), answer.probabilities
    return Effect(
        value, baseline.value - value, None if probable is None else int(probable.argmax())
    )


def head_sets(trace: AttentionTrace) -> tuple[HeadSet, ...]:
    """Each head of a trace alone, then each whole layer that has more than one head."""
    return (
        *(
            frozenset({(item.kind, item.layer, head)})
            for item in trace.maps
            for head in range(len(item.weights))
        ),
        *(
            frozenset({(item.kind, item.layer, None)})
            for item in trace.maps
            if len(item.weights) > 1
        ),
    )


def single_heads(effects: Mapping[HeadSet, Effect]) -> dict[tuple[str, int, int], Effect]:
    """The effects of one head alone, by (kind, layer, head)."""
    return {
        (kind, layer, head): effect
        for off, effect in effects.items()
        for kind, layer, head in off
        if len(off) == 1 and head is not None
    }


# The contribution of each weight: the norm of what it adds (Kobayashi et al. 2020), and its gradient × weight.


GRADIENT_MEMORY = 9  # times the memory of the maps: measured with GPT-2's 144 heads on 512 tokens


@dataclass(frozen=True, eq=False)
class Contributions:
    """By (kind, layer): `norms` (H, T, S) are ‖v·W_O‖ of keys, `gradients` (H, T, S) are α·∂answer/∂α of weights.

    Norms differ between rows (else T is 1) where a gate or a norm with the row's scale stands before W_O. There are
    none for a layer whose heads have no rows of W_O of their own. `gradients` is empty where there is no gradient, and
    with `out_of_memory` because computing it takes more memory than is free. A layer without softmax whose channels have
    a matrix each has neither: a map is a mean of such matrices.
    """

    norms: dict[LayerKey, np.ndarray]
    gradients: dict[LayerKey, np.ndarray]
    out_of_memory: bool = False

    def all_gradients(self, maps: Iterable[AttentionMap]) -> bool:
        """Whether there are gradients, and of every layer without softmax."""
        known = ((item.kind, item.layer) in self.gradients for item in maps if item.state)
        return bool(self.gradients) and all(known)

    def written(self, item: AttentionMap) -> Float[np.ndarray, "H T S"] | None:
        """‖α·v·W_O‖, the length of the vector that a head adds at a row for a key, as a share of the row.

        None where it is unknown.
        """
        norms = self.norms.get((item.kind, item.layer))
        if norms is None or len(norms) != len(item.weights):
            return None
        # A sink's column has no value and no token
        wide = np.pad(norms, ((0, 0), (0, 0), (0, item.weights.shape[-1] - norms.shape[-1])))
        lengths = np.abs(item.weights) * wide
        return lengths / np.maximum(lengths.sum(-1, keepdims=True), 1e-12)


def measure_contributions(baseline: Baseline) -> Contributions:
    """Contributions from one forward pass and, where the answer has a gradient, one backward pass.

    A head's gradients sum to the first-order estimate of the effect of ablating it (Michel et al. 2019, section 4).
    """
    if not baseline.pretrained.recordable:
        return Contributions({}, {})
    maps = maps_bytes(baseline.pretrained.model, len(baseline.source))
    out_of_memory = baseline.has_gradient and GRADIENT_MEMORY * maps > room_bytes()
    with_gradients = baseline.has_gradient and not out_of_memory
    output, recorder = forward(
        baseline.pretrained, baseline.batch, with_qkv=True, probe=with_gradients
    )
    norms = {
        (call.kind, call.layer): lengths
        for call in recorder.calls
        if (lengths := value_norms(call)) is not None
    }
    gradients: dict[LayerKey, np.ndarray] = {}
    if with_gradients:
        calls = [call for call in recorder.calls if call.probe is not None]
        slopes = (
            torch.autograd.grad(
                baseline.target_value(baseline.answer_in(baseline.batch, output)),
                [call.probe for call in calls if call.probe is not None],
                allow_unused=True,
            )
            if calls
            else ()
        )
        gradients = {
            (call.kind, call.layer): to_numpy((call.weights.detach() * slope.cpu())[0])
            for call, slope in zip(calls, slopes, strict=True)
            if slope is not None
        }
    return Contributions(norms, gradients, out_of_memory)


def value_norms(call: AttentionCall) -> Float[np.ndarray, "H T S"] | None:
    """‖v·W_O‖ of each head and key. Kobayashi et al. 2020, equation 6. None where W_O is unknown.

    What stands between the heads and W_O multiplies each dimension of a row: a gate by its value, a norm by its gain
    and the scale that it has there. v is multiplied by the same. None where it mixes dimensions, and for a layer without
    softmax whose channels have a matrix each. The skip (D) of a state layer is in its weights.
    """
    matrix = output_matrix(call)
    if call.mean or matrix is None or call.v is None or call.out is None or call.gated is None:
        return None
    values = repeat_heads(call.v, len(matrix))[0].detach()
    out, gated = call.out[0].detach(), call.gated[0].detach()
    if torch.equal(out, gated):
        return to_numpy(torch.einsum("hse,hec->hsc", values, matrix).norm(dim=-1)[:, None])
    # Exclusive self-attention takes the part along v out of a head's output
    if any(
        isinstance(one, nn.LayerNorm)
        or type(one).__name__.endswith(("ExclusiveSelfAttention", "MultiHeadLayerNorm"))
        for one in call.module.children()
    ):
        return None
    factors = output_gates(call).transpose(0, 1)
    root = torch.linalg.qr(matrix.mT).R.mT  # (H, E, E), which keeps the lengths of x W_O
    rows = [((factor[:, None] * values) @ root).norm(dim=-1) for factor in factors.unbind(1)]
    return to_numpy(torch.stack(rows, 1))


def output_gates(call: AttentionCall) -> Float[Tensor, "T H E"]:
    """What multiplies each number of the heads' outputs before W_O: 1 but for a gate or a norm."""
    assert call.out is not None and call.gated is not None
    out, gated = call.out[0].detach(), call.gated[0].detach()
    return torch.where(out == 0, 0.0, gated / out)


def output_matrix(call: AttentionCall) -> Float[Tensor, "H E C"] | None:
    """W_O by head; None where it was not found, or does not get the heads side by side."""
    if call.gated is None:
        return None
    if call.output is None:  # XLNet's (C, H, E)
        return call.module.o.permute(1, 2, 0).detach().cpu()
    weight = call.output.weight if is_transposed(call.output) else call.output.weight.T
    return weight.unflatten(0, (call.gated.shape[2], -1)).detach().cpu()


# One score a token from each measure of importance, to be compared with the effect of hiding it.


MAX_FLOW = 10**8  # edges × rows × tokens: about 3 s on one core


def answering_rows(baseline: Baseline, kind: Kind) -> Float[np.ndarray, " T"]:
    """The weight of each row of a map in the answer, summing to 1.

    The answering position alone; for an embedding all tokens that are not padding; for a class the class token, or the
    last token of a causal model; for a part of the text its first and its last token.
    """
    line = baseline.target if baseline.target is not None and kind != "self" else baseline.source
    rows, answer = np.zeros(len(line)), baseline.answer
    if answer.kind == "embedding":
        mask = baseline.batch.get("attention_mask")  # of the source
        rows[:] = 1.0 if mask is None or line is baseline.target else to_numpy(mask[0])
    elif answer.kind == "span":
        rows[list(answer.span(baseline.id))] = 1.0
    else:
        whole = baseline.pretrained.head == "classify"
        rows[(0 if kind == "self" else -1) if whole else answer.position] = 1.0
    return rows / rows.sum()


def token_scores(
    baseline: Baseline, trace: AttentionTrace, contributions: Contributions
) -> dict[str, Float[np.ndarray, " S"]]:
    """The score of each source token by each measure, not normalized.

    "weights" (of signed ones their shares by size) and "written" are means over the layers and heads at the rows that
    answer, "gradient" sums α·∂answer/∂α over all rows that attend to the token, "rollout" and "flow" use the whole graph.
    A measure that is not known of every layer is left out.
    """
    kind = trace.kinds[-1]
    maps, size, rows = trace.of(kind).maps, len(baseline.source), answering_rows(baseline, kind)
    layers = {"weights": [item.shares[:, :, :size] for item in maps]}
    written = [
        one[:, :, :size] for item in maps if (one := contributions.written(item)) is not None
    ]
    if len(written) == len(maps):
        layers["written"] = written
    scores = {name: np.mean([(rows @ one).mean(0) for one in of], 0) for name, of in layers.items()}
    if contributions.all_gradients(trace.maps):
        scores["gradient"] = np.abs(
            sum(
                one.sum((0, 1))[:size]
                for (kind, _), one in contributions.gradients.items()
                if baseline.target is None or kind != "causal"
            )
        )
    through, answering = graph(trace, kind, maps[-1].layer), np.flatnonzero(rows).tolist()
    scores["rollout"] = rows @ rollout(through)[:, :size]
    if sum(map(np.count_nonzero, through)) * len(answering) * size <= MAX_FLOW:
        scores["flow"] = np.sum([rows[row] * flow(through, row) for row in answering], 0)[:size]
    return scores


# The queries, keys and values of a layer, and one weight broken down: products, score, row and contribution.


Vector = Float[np.ndarray, " D"]
Row = Float[np.ndarray, " S"]


@dataclass(frozen=True, eq=False)
class LayerAttention:
    """The inputs of one layer's attention by head; H query heads share G key and value heads.

    `unrotated_q` and `unrotated_k` are None where the layer does not rotate, or changes q and k otherwise after it;
    `softcap` and `sinks` where it has none.
    `rotated_q` and `rotated_k` are None but where a norm or a factor follows the rotation.
    `bias` is added to the scaled scores; `sinks` are the scores of a sink at each row, or at all.
    """

    q: Float[Tensor, "H T D"]
    k: Float[Tensor, "G S D"]
    v: Float[Tensor, "G S E"]
    scale: float
    unrotated_q: Float[Tensor, "H T D"] | None = None
    unrotated_k: Float[Tensor, "G S D"] | None = None
    bias: Float[Tensor, "#H T S"] | None = None
    softcap: float | None = None
    allowed: Bool[Tensor, "#H #T S"] | None = None
    sinks: Float[Tensor, " H #T"] | None = None
    rotated_q: Float[Tensor, "H T D"] | None = None
    rotated_k: Float[Tensor, "G S D"] | None = None

    def kv_group(self, head: int) -> tuple[int, list[int]]:
        """The key and value head of a query head, and all query heads that share it."""
        each = len(self.q) // len(self.k)
        group = head // each
        return group, list(range(group * each, (group + 1) * each))


@dataclass(frozen=True, eq=False)
class WeightBreakdown:
    """Every intermediate value of one weight; rows run over all keys.

    `products` are q·k by dimension, `dot` their sum. `scores` are the input of the softmax, −inf where masked;
    `weights`, computed from them, equal the model's to 1e-6; `weight` is that of the key. `value` is the key's v,
    `contribution` what the weight adds to the head's output, α·v, and `out` that output.
    """

    q: Vector
    k: Vector
    products: Vector
    dot: float
    scale: float
    bias: float | None
    capped: float | None
    score: float
    allowed: bool
    scores: Row
    weights: Row
    weight: float
    sink: float | None
    value: Float[np.ndarray, " E"]
    contribution: Float[np.ndarray, " E"]
    out: Float[np.ndarray, " E"]
    unrotated_q: Vector | None
    unrotated_k: Vector | None
    rotated_q: Vector | None
    rotated_k: Vector | None
    key: int


def layer_attentions(pretrained: Pretrained, inputs: ModelInputs) -> dict[LayerKey, LayerAttention]:
    """The q, k, v, scale, bias and mask of each layer with a softmax by (kind, layer), in map order.

    PretrainedError where there is none.
    """
    batch, *_ = encode(pretrained, inputs)
    _, recorder = forward(pretrained, batch, with_qkv=True)
    reject_if(
        all(call.state for call in recorder.calls),
        f"{pretrained.name} has no layer whose queries and keys can be read.",
    )
    with torch.no_grad():
        return {
            (call.kind, call.layer): layer_attention(call)
            for call in recorder.calls
            if not call.state
        }


def break_down_weight(layer: LayerAttention, head: int, query: int, key: int) -> WeightBreakdown:
    """Break one weight of a layer down. ValueError when there is no such head, query or key."""
    heads, rows, columns = len(layer.q), layer.q.shape[1], layer.k.shape[1]
    if not (0 <= head < heads and 0 <= query < rows and 0 <= key < columns):
        raise ValueError(
            f"head {head}, query {query}, key {key} is not in this layer; it has {heads} heads, {rows} "
            f"queries and {columns} keys."
        )
    group, _ = layer.kv_group(head)
    q, keys, values = layer.q[head, query], layer.k[group], layer.v[group]
    biased = q @ keys.mT * layer.scale
    bias = None if layer.bias is None else layer.bias.expand(heads, -1, -1)[head, query]
    if bias is not None:
        biased = biased + bias
    scores = biased if layer.softcap is None else layer.softcap * torch.tanh(biased / layer.softcap)
    allowed = torch.ones(columns, dtype=torch.bool)
    if layer.allowed is not None:
        allowed = layer.allowed.expand(heads, rows, columns)[head, query]
    scores = scores.masked_fill(~allowed, -torch.inf)
    sink = None if layer.sinks is None else layer.sinks.expand(-1, rows)[head, query]
    weights = (scores if sink is None else torch.cat([scores, sink[None]])).softmax(-1)[:columns]
    products = q * keys[key]
    before_q, before_k, after_q, after_k = (
        None if of is None else to_numpy(of[one, at])
        for of, one, at in (
            (layer.unrotated_q, head, query),
            (layer.unrotated_k, group, key),
            (layer.rotated_q, head, query),
            (layer.rotated_k, group, key),
        )
    )
    return WeightBreakdown(
        to_numpy(q), to_numpy(keys[key]), to_numpy(products), float(products.sum()), layer.scale,
        None if bias is None else float(bias[key]),
        None if layer.softcap is None else float(layer.softcap * torch.tanh(biased[key] / layer.softcap)),
        float(scores[key]), bool(allowed[key]), to_numpy(scores), to_numpy(weights), float(weights[key]),
        None if sink is None else float(sink), to_numpy(values[key]), to_numpy(values[key] * weights[key]),
        to_numpy(weights @ values),
        before_q, before_k, after_q, after_k, key)  # fmt: skip


def layer_attention(call: AttentionCall) -> LayerAttention:
    options, keys, bias = call.options, call.k.shape[2], call.options.get("position_bias")
    if call.mask is not None and call.mask.dtype != torch.bool:
        # What a mask adds to the scores that it lets through, as Doge's does
        mask = call.mask[..., :keys]
        added = mask.masked_fill(~bool_mask(mask), 0)
        bias = added if bias is None else bias + added
    scale = options.get("scaling")
    # One of each head, or of each row (B, H, T, 1)
    sinks = options.get("sinks", getattr(call.module, "sinks", None))
    (before_q, rotated_q), (before_k, rotated_k) = (
        _unrotated(values, call.rotations[::order]) for values, order in ((call.q, 1), (call.k, -1))
    )
    both = before_q is not None and before_k is not None
    return LayerAttention(
        call.q[0],
        call.k[0],
        call.v[0],
        call.q.shape[-1] ** -0.5 if scale is None else float(scale),
        before_q if both else None,
        before_k if both else None,
        None if bias is None or not bool(bias[0].any()) else bias[0],
        options.get("softcap"),
        allowed_of(call.mask, keys),
        None if sinks is None else sinks.detach().cpu().reshape(call.q.shape[1], -1),
        rotated_q if both else None,
        rotated_k if both else None,
    )


def _unrotated(
    values: Float[Tensor, "1 H T D"], rotations: Sequence[tuple[Tensor, Tensor]]
) -> tuple[Float[Tensor, "H T D"] | None, Float[Tensor, "H T D"] | None]:
    """q or k before its rotation, and after it where a norm or a factor follows; None where that is not known.

    Some families rotate a part of the dimensions, one key for all heads, or tensors with the tokens before the heads.
    """
    pairs = [
        (before, after)
        for given in rotations
        for before, after in (given, [one.transpose(-3, -2) for one in given])
    ]
    for before, after in pairs:
        whole, size = values.clone(), after.shape[-1]
        for part in (whole[..., :size], whole[..., -size:]):
            if _fits(after, part) and bool((part == after).all()):
                part.copy_(before)
                return whole[0], None
    for before, after in pairs:
        if _fits(values, after):
            # A norm's gain is the same for every token, and its scale for every dimension
            ratio = (values / after)[0]
            gain = ratio / ratio[..., :1]
            if torch.allclose(gain, gain[:, :1].expand_as(gain), rtol=1e-3):
                return before.expand_as(values)[0], after.expand_as(values)[0]
    return None, None


def _fits(values: Tensor, into: Tensor) -> bool:
    sizes = zip(values.shape[::-1], into.shape[::-1], strict=False)
    return values.ndim <= into.ndim and all(one in (1, size) for one, size in sizes)


# A cell of a map, and the one whose weight is worth taking apart first.


TARGET_WEIGHT = 2 / 3
MIN_DISTANCE = 3  # words; large weights between neighbours are common and say little


@dataclass(frozen=True)
class Cell:
    """A cell of a head: layers, heads and tokens counted from 0."""

    layer: int
    head: int
    query: int
    key: int

    @property
    def at(self) -> tuple[Head, tuple[int, int]]:
        """The head, and the query and the key."""
        return (self.layer, self.head), (self.query, self.key)


def telling_cell(reading: Reading, kind: Kind, head: Head | None = None) -> Cell:
    """The largest weight of the row with the one nearest to 2/3, between two words that are not neighbours where some are.

    A weight of 2/3 is the largest of its row and leaves some for other keys. Only `head` is searched; without one all
    heads are, except in the embedded model, where it is the head that links a pronoun to its noun.
    """
    trace, (rows, columns) = reading.trace.of(kind), reading.lines(kind)
    # Words of two letters or more, or patches of a picture
    down, across = (
        np.array(
            [
                not special and (line.grid is not None or len(token) > 1 and token[:2] != CONTINUES)
                for token, special in zip(line.tokens, line.special, strict=True)
            ]
        )
        for line in (rows, columns)
    )
    eligible = down[:, None] & across
    if kind != "cross":
        words = np.array([-1 if word is None else word for word in rows.word])
        eligible &= np.abs(words[:, None] - words) >= MIN_DISTANCE
    if not eligible.any():
        eligible = np.ones_like(eligible)
    if head is None and trace.source == MINILM:
        head = COREFERENCE
    distances = {
        # a layer without softmax has no queries and keys
        layer: np.where(eligible, np.abs(item.shares - TARGET_WEIGHT), 1.0) + bool(item.state)
        for layer, item in enumerate(trace.maps)
        if head is None or layer == head[0]
    }
    if head is None:
        layer = min(distances, key=lambda layer: distances[layer].min())
        head = layer, int(np.argmin(distances[layer].min((1, 2))))
    query, _ = np.unravel_index(int(distances[head[0]][head[1]].argmin()), eligible.shape)
    return Cell(*head, int(query), int(trace.maps[head[0]].shares[head[1], query].argmax()))


# Measures of heads, cells and tokens, how they agree, and the answer without heads. A head is here the index of its
# layer among the maps of all kinds, and its own in the layer.


MAX_ANSWERS, MAX_OTHERS = 4, 2  # likeliest answers of the whole model, and without some heads
STATES = ("on", "uniform", "off")  # of heads
Flow = tuple[np.ndarray, np.ndarray | None]


@dataclass(frozen=True, eq=False)
class HeadMaps:
    """One head's map (T, S) by each measure that is available.

    `lengths` (T, S) are ‖v·W_O‖; `known` (T, S) are the cells of the flow that were computed (None: all).
    """

    maps: dict[str, np.ndarray]
    lengths: np.ndarray | None
    known: np.ndarray | None


def flow_map(trace: AttentionTrace, row: int, query: int | None = None) -> Flow:
    """The maximum flow (T, S) up to and with a layer, to every query or to one, and which cells that computed.

    These are None where they are all.
    """
    item = trace.maps[row]
    layer_graph, rows = graph(trace, item.kind, item.layer), np.arange(len(item.queries))
    known = np.ones_like(rows, bool) if query is None else rows == query
    values = np.zeros((len(rows), len(item.keys)))
    for row in rows[known]:
        values[row] = flow(layer_graph, row)
    return values, None if query is None else np.broadcast_to(known[:, None], values.shape)


def head_maps(
    trace: AttentionTrace,
    item: AttentionMap,
    head: int,
    contributions: Contributions,
    flowing: Flow | None,
) -> HeadMaps:
    """Every measure of one head; rollout and flow are of all heads, up to and with its layer.

    `item` is the layer's map, with a column more than that of `trace` where there is a learned sink.
    """
    at, lengths = (item.kind, item.layer), None
    written, gradients = contributions.written(item), contributions.gradients.get(at)
    if written is not None:
        lengths = contributions.norms[at][head]
        lengths = np.broadcast_to(lengths, (len(item.queries), lengths.shape[-1]))
    flows_to, known = flowing or (None, None)
    maps = {
        "weights": item.weights[head],
        "written": None if written is None else written[head],
        "gradient": None if gradients is None else gradients[head],
        "rollout": rollout(graph(trace, *at)),
        "flow": flows_to,
    }
    wide = {
        name: np.pad(values, ((0, 0), (0, item.weights.shape[-1] - values.shape[1])))
        for name, values in maps.items()
        if values is not None
    }
    return HeadMaps(wide, lengths, known)


def default_cell(
    item: AttentionMap, head: int, contributions: Contributions, baseline: Baseline | None
) -> tuple[int, int]:
    """The largest weight of the row that answers; of several such rows, the cell whose weight differs most from what
    is written."""
    weights = item.shares[head]
    if baseline is not None and (item.kind != "self" or baseline.target is None):
        rows = answering_rows(baseline, item.kind)
        if rows.max() == 1:
            return int(rows.argmax()), int(weights[rows.argmax()].argmax())
    written = contributions.written(item)
    apart = weights if written is None else np.abs(weights - written[head])
    row, column = np.unravel_index(int(apart.argmax()), apart.shape)
    return int(row), int(column)


def key_agreement(measures: HeadMaps, first: str, second: str) -> float | None:
    """Spearman's ρ of two measures in the order of the keys, the mean over the rows; None where no row has an order."""
    known = (
        slice(None)
        if measures.known is None or "flow" not in (first, second)
        else measures.known.any(-1)
    )
    rows = zip(
        *(np.abs(measures.maps[name][known]) for name in (first, second)),
        strict=True,
    )
    # A key that no measure sees (a masked one) would agree with itself.
    agree = [spearman(a[seen], b[seen]) for a, b in rows for seen in [(a > 0) | (b > 0)]]
    values = [rho for rho in agree if rho is not None]
    return float(np.mean(values)) if values else None


def sharpness(maps: Sequence[AttentionMap]) -> dict[Head, float]:
    """The largest weight of each head's rows, the mean over the rows. Voita et al. 2019 call it confidence."""
    # The first row of a causal head has a single key.
    return {
        (row, head): float(
            weights[1 if item.kind == "causal" and len(weights) > 1 else 0 :].max(-1).mean()
        )
        for row, item in enumerate(maps)
        for head, weights in enumerate(item.shares)
    }


def gradient_estimates(
    maps: Sequence[AttentionMap], contributions: Contributions
) -> dict[Head, float]:
    """What the answer loses without a head, to first order; empty where a layer has no gradient."""
    if not contributions.all_gradients(maps):
        return {}
    return {
        (row, head): float(gradients[head].sum())
        for row, item in enumerate(maps)
        if (gradients := contributions.gradients.get((item.kind, item.layer))) is not None
        for head in range(len(item.weights))
    }


def rank_agreement(
    effects: Mapping[Head, Effect], sharp: Mapping[Head, float], estimates: Mapping[Head, float]
) -> tuple[float | None, float | None]:
    """Spearman's ρ of the sizes of the effects with the heads' sharpness, and with the gradient's estimates."""
    sizes = np.array([abs(effect.drop) for effect in effects.values()])
    return (
        spearman(np.array([sharp[head] for head in effects]), sizes),
        spearman(np.array([abs(estimates[head]) for head in effects]), sizes)
        if estimates
        else None,
    )


def answers_without(baseline: Baseline, off: HeadSet) -> dict[int | None, dict[str, float]]:
    """The value of each of the likeliest answers, by their ids, with all heads on, some uniform, and these off.

    Of an embedding (None), its similarity.
    """
    answers = dict(
        zip(
            STATES,
            (baseline.answer, baseline.rerun(uniform=off), baseline.rerun(off=off)),
            strict=True,
        )
    )
    if baseline.id is None:
        return {None: {way: float(baseline.target_value(one)) for way, one in answers.items()}}
    whole = top_candidates(baseline.pretrained, baseline.answer, MAX_ANSWERS)
    others = top_candidates(baseline.pretrained, answers["off"], MAX_OTHERS)
    ids = [*(one.id for one in (*whole, *others)), baseline.id, baseline.contrast]
    values = {way: quantity_values(answer, baseline.quantity) for way, answer in answers.items()}
    return {
        id: {way: float(of_way[id]) for way, of_way in values.items()}
        for id in dict.fromkeys(ids)
        if id is not None
    }
