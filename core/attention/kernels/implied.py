"""What the kernels without a score matrix share: scaled q and k, real keys, chunks, and their Steps."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from math import log
from typing import Any, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from core.attention.base import Product, ScoreBlock, Steps, split_heads, to_float32
from core.attention.kernels.costs import (
    cost_in_chunks,
    features_cost,
    power_of_two,
    retention_cost,
)
from core.attention.kernels.exact import (
    AttentionInputs,
    Clash,
    and_parts,
    combines_heads,
    multiplies_weights,
    not_product,
    not_softmax,
    refuse_when,
    spans,
)
from core.attention.positions import enters
from core.entries import ConfigError, Entry, LayerConfig, Param, Trait, refuse_if

STATE_TRAITS: frozenset[Trait] = frozenset({"implied", "state", "own positions", "layer only"})


def plain_rows(*masks: str, normalizer: Clash = not_softmax) -> tuple[Clash, ...]:
    """What a kernel that replaces the softmax over dot products does not go with; it computes these masks alone."""
    return (
        not_product,
        normalizer,
        Clash(
            "position",
            "computes no scores that position = {} could change",
            {"position": "rope"},
            lambda config: "scores" in enters(config.position),
        ),
        multiplies_weights,
        combines_heads,
        Clash(
            "dropout",
            "computes no weights for dropout = {:g}",
            {"dropout": "0"},
            lambda config: config.dropout > 0,
        ),
        Clash(  # a mask other than these and their conjunctions
            "mask",
            "computes no scores that mask = {} could hide",
            {"mask": masks[0]},
            lambda config: not {part.key for part in and_parts(config.mask)} <= {*masks},
        ),
    )


PADDED_ROWS, CAUSAL_ROWS = plain_rows("none", "padding"), plain_rows("none", "causal", "padding")


Result = TypeVar("Result")


def full_precision(
    kernel: Callable[[Any, AttentionInputs], Result],
) -> Callable[[Any, AttentionInputs], Result]:
    """A kernel whose products autocast leaves in fp32: fp16 overflows where exponentials meet, bf16 loses ranks."""

    @wraps(kernel)
    def run(self: Any, inputs: AttentionInputs) -> Result:
        device = inputs.q.device.type
        if not (torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)):
            return kernel(self, inputs)
        with torch.autocast(device, enabled=False):
            return kernel(self, inputs)

    return run


def scaled_qk(inputs: AttentionInputs) -> tuple[Tensor, Tensor, float | Tensor]:
    """q and k in at least fp32, and the scale of their dot product, over the temperature."""
    q, k = cast(Product, inputs.score).prepare(inputs.q, inputs.k)
    return to_float32(q), to_float32(k), inputs.score.scale / inputs.normalizer.temperature


def split_scale(inputs: AttentionInputs) -> tuple[Tensor, Tensor]:
    """q and k whose dot product is the score: the scale is split evenly between them."""
    q, k, scale = scaled_qk(inputs)
    if isinstance(scale, float) and scale == 1.0:
        return q, k
    root = scale.abs().sqrt() if isinstance(scale, Tensor) else abs(scale) ** 0.5
    return q * (scale / root), k * root


def real_keys(inputs: AttentionInputs, kernel: str) -> Tensor | None:
    """Which keys are real, (B, 1, 1, S); ConfigError for a bias, or a mask that differs between queries or heads."""
    refuse_if(
        inputs.call_bias is not None,
        f"kernel = {kernel} computes no scores that a bias could be added to",
        kernel="exact",
    )
    mask, real = inputs.call_mask, inputs.block.key_mask
    if mask is not None:
        if mask.dim() > 1 and mask.shape[-2] > 1 or mask.dim() > 2 and mask.shape[-3] > 1:
            raise ConfigError(
                f"kernel = {kernel} computes no scores that a mask of {tuple(mask.shape)} could hide",
                "a mask of keys alone, (B, 1, 1, S)",
                kernel="exact",
            )
        mask = mask.reshape(-1, 1, 1, mask.shape[-1])
        real = mask if real is None else real & mask
    return real


Rule = Callable[..., tuple[Tensor, Tensor | None]]


def in_chunks(
    q: Tensor, k: Tensor, v: Tensor, chunk: int, offset: int
) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v in chunks, (B, H, n, chunk, D), with zeros before the first query (at `offset`) and at the end."""
    queries, keys = q.shape[2], k.shape[2]
    length = -(-max(offset + queries, keys) // chunk) * chunk
    q = pad_tokens(q, offset, length - offset - queries).unflatten(2, (-1, chunk))
    k, v = (pad_tokens(x, 0, length - keys).unflatten(2, (-1, chunk)) for x in (k, v))
    return q, k, v


def by_chunks(
    rule: Rule,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gates: Sequence[Tensor],
    chunk: int,
    offset: int = 0,
    past: Tensor | None = None,
    query_gates: Sequence[Tensor] = (),
    segment: int = 0,
) -> tuple[Tensor, Tensor | None]:
    """The output of a `rule` of a state, (B, H, T, E), and the state after the last key.

    gates are (B, H, S, 1) or (B, H, S, D), those of queries (B, H, T, L); 0 for what fills the last chunk, which leaves the
    state as it is. Queries begin at position `offset`; `past` is the state before the first key. A `segment`
    is the number of tokens that are computed at once, where there are more and all are queries and keys.
    """
    queries, keys = q.shape[2], k.shape[2]
    if segment and queries == keys > segment and not (offset or torch.compiler.is_compiling()):
        outs = []
        for some in spans(keys, segment):
            query, key, value, *own = (x[:, :, some] for x in (q, k, v, *gates))
            out, past = by_chunks(rule, query, key, value, own, chunk, past=past)
            outs.append(out)
        return torch.cat(outs, 2), past
    q, k, v = in_chunks(q, k, v, chunk, offset)
    length = q.shape[2] * chunk
    parts = [pad_tokens(gate, 0, length - keys) for gate in gates]
    parts += [pad_tokens(gate, offset, length - offset - queries) for gate in query_gates]
    out, state = rule(q, k, v, *(part.unflatten(2, (-1, chunk)) for part in parts), past)
    return out.flatten(2, 3)[:, :, offset : offset + queries], state


def pad_tokens(x: Tensor, before: int, after: int) -> Tensor:
    """x (…, T, D) with rows of zeros before and after; x itself, of which F.pad would make a copy, for none."""
    if not torch.compiler.is_compiling() and before == after == 0:  # in a graph any length may come
        return x
    return F.pad(x, (0, 0, before, after))


def chunk_length(inputs: AttentionInputs, chunk: int) -> int:
    """The length of a chunk; a step of few tokens takes no longer ones than it fills, in powers of two."""
    return min(chunk, power_of_two(inputs.k.shape[2])) if inputs.carries else chunk


def states_before(
    updates: Tensor, decays: Tensor, past: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The state before each chunk, (B, H, n, D, E), and after the last: it decays over a chunk, which adds its update.

    updates (B, H, n, D, E); decays (B, H, n, D or 1, 1), that of each whole chunk; `past` is the first state.
    """
    state, states = torch.zeros_like(updates[:, :, 0]) if past is None else past, []
    for update, decay in zip(updates.unbind(2), decays.unbind(2), strict=True):
        states.append(state)
        state = torch.addcmul(update, state, decay)
    return torch.stack(states, 2), state


def steps(
    inputs: AttentionInputs,
    out: Tensor,
    weights: Callable[[], Tensor],
    state: Tensor | None = None,
) -> Steps:
    """The Steps of an output and of the state after it; with `inputs.record` the mask and the weights that it implies."""
    mask, implied = (
        (inputs.joined_mask(), weights().to(inputs.q.dtype)) if inputs.record else (None, None)
    )
    return Steps(
        inputs.q,
        inputs.k,
        inputs.v,
        inputs.score.scale,
        None,
        mask,
        out.to(inputs.v.dtype),
        weights=implied,
        state=state if inputs.carries else None,
        implied=True,
    )


# What the kernels with learned gates share: gates from the keys' own x, and the sizes at which they start.


RATES, STEPS = (1.0, 16.0), (1e-3, 0.1)  # between which A and softplus(b) start, as in Mamba-2


class StateKernel(nn.Module):
    """A kernel whose state is changed from token to token, by gates that are computed from the keys' own x.

    A subclass computes its `gates`, and has a `rule` that computes from prepared q and k, v and the gates,
    all in n chunks of c tokens, (B, H, n, c, D), and from the state before these: the output, (B, H, n, c, E), linear in
    v where there is no state before, and the state after the last key, if there is one alone.
    """

    rule: Rule
    segment = 0  # tokens that are computed at once; 0 for all

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        self.key, self.heads = config.kernel.key, config.score_heads
        self.chunk = int(config.kernel["chunk"])

    def gates(self, context: Tensor) -> tuple[Tensor, ...]:
        """The gates of every key, (B, H, S, 1) or (B, H, S, D) each, of which 0 leaves the state as it is."""
        raise NotImplementedError

    def query_gates(self, block: ScoreBlock) -> tuple[Tensor, ...]:
        """Further gates of every query, from its own x; none for most kernels."""
        return ()

    def prepare(self, q: Tensor, k: Tensor, scale: float | Tensor = 1.0) -> tuple[Tensor, Tensor]:
        """q times the score's scale, and k, as the rule takes them."""
        return q * scale, k

    def values(self, v: Tensor, context: Tensor) -> Tensor:
        """What the rule takes in place of v, (B, H, S, E), and what its weights then sum up; v itself for most kernels."""
        return v

    @full_precision
    def forward(self, inputs: AttentionInputs) -> Steps:
        # autocast may give x in half
        block, dtype = inputs.block, next((x.dtype for x in self.parameters()), inputs.q.dtype)
        context = block.require("context", f"kernel = {self.key}", kernel="retention").to(dtype)
        real = real_keys(inputs, self.key)
        q, k, scale = scaled_qk(inputs)
        q, k = self.prepare(q, k if real is None else k.masked_fill(~real.mT, 0.0), scale)
        context = context if real is None else context.masked_fill(~real[:, 0].mT, 0.0)
        gates, v = self.gates(context), self.values(to_float32(inputs.v), context)
        del context  # a copy, where some keys are not real
        if real is not None:  # 0 for the keys that are not real
            gates = tuple(gate * real.mT for gate in gates)
        chunk, of_queries = chunk_length(inputs, self.chunk), self.query_gates(block)

        def run(v: Tensor, past: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
            size = max(chunk, self.segment // chunk * chunk) if self.segment else 0
            return by_chunks(self.rule, q, k, v, gates, chunk, block.offset, past, of_queries, size)

        out, state = run(v, inputs.past)
        inputs = replace(inputs, v=v.to(inputs.v.dtype))

        def weights() -> Tensor:
            """The output is linear in v, so that the identity for v gives the weights."""
            identity = torch.eye(k.shape[2], dtype=k.dtype, device=k.device)
            return run(identity.expand(*k.shape[:2], -1, -1))[0]

        return steps(inputs, out, weights, state)


def initial_rates(heads: int) -> nn.Parameter:
    """log A of each head, the rate of decay in α = e^(−A·step)."""
    return nn.Parameter(torch.empty(heads).uniform_(*RATES).log())


def initial_steps(layer: nn.Module) -> None:
    """Fill the bias of a gate, its last parameter, so that its softplus, the step, lies between 0.001 and 0.1."""
    *_, bias = layer.parameters()
    with torch.no_grad():
        bias.uniform_(*map(log, STEPS)).exp_().expm1_().log_()  # then the inverse of softplus


def head_gates(layer: nn.Module, x: Tensor, num_heads: int) -> Tensor:
    """What a map of x gives to each head, one number or one a channel, (B, H, S, 1 or D), in at least fp32."""
    return to_float32(split_heads(layer(x), num_heads))


def softplus_decay(log_rate: Tensor, gate: Tensor) -> Tensor:
    """log α = −e^A softplus(gate), for A of each head and a gate (B, H, S, 1) or (B, H, S, D)."""
    return F.softplus(gate).mul_(-to_float32(log_rate).exp()[:, None, None])


def low_rank(config: LayerConfig, rank: int) -> nn.Sequential:
    """A linear map of x to every channel of every head, (B, S, H · D), through `rank` numbers."""
    down = nn.Linear(config.d_model, rank, bias=False)
    up = nn.Linear(rank, config.score_heads * config.qk_dim)
    return nn.Sequential(OrderedDict(down=down, up=up))


# Attention without a score matrix: φ(q)ᵀφ(k) in place of e^(qᵀk), so that keys and values are summed once.


CHUNK = Param(
    "chunk",
    "Chunk",
    default=64,
    low=1,
    high=1024,
    step=1,
    meaning="tokens in a block under a causal mask",
)


def elu_features(x: Tensor) -> Tensor:
    """φ(x) = elu(x) + 1, above zero everywhere. Katharopoulos 2020, equation 7."""
    return F.elu(x).add_(1.0)


def divided(sums: Tensor) -> Tensor:
    """The weighted sum of v over the sum of the weights, from sums of v with a column of ones; zeros where nothing is
    visible."""
    total = sums[..., -1:]
    unseen = total <= torch.finfo(sums.dtype).tiny
    return (sums[..., :-1] / total.masked_fill(unseen, 1.0)).masked_fill(unseen, 0.0)


def linear_attention(features_q: Tensor, features_k: Tensor, v: Tensor) -> Tensor:
    """Every query sees every key. features (B, H, T, R) and (B, H, S, R), v (B, H, S, E): O(T·R·E) time."""
    total = features_q @ features_k.sum(2).unsqueeze(-1)
    total = total.masked_fill(total <= torch.finfo(total.dtype).tiny, 1.0)  # nothing visible: 0 / 1
    return (features_q @ (features_k.mT @ v)).div_(total)


def causal_linear_attention(
    features_q: Tensor,
    features_k: Tensor,
    v: Tensor,
    chunk: int,
    offset: int = 0,
    past: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The output, where query i, at position offset + i, sees keys j ≤ offset + i, and the state after the last key.

    O(T·(chunk + R)·E) time: within a chunk weights are computed, chunk × chunk; earlier chunks enter through one state
    of R × (E + 1), the sum over their keys and those of `past`. A running sum of T such states would be far slower than
    the quadratic form.
    """
    queries = features_q.shape[2]
    # (B, H, n, chunk, R or E + 1)
    q, k, v = in_chunks(features_q, features_k, F.pad(v, (0, 1), value=1.0), chunk, offset)
    inside = (q @ k.mT).tril() @ v
    start = k.new_zeros(*k.shape[:2], k.shape[-1], v.shape[-1]) if past is None else past
    # before each chunk, and after the last
    states = torch.cat((start[:, :, None], k.mT @ v), 2).cumsum(2)
    sums = inside.add_(q @ states[:, :, :-1]).flatten(2, 3)[:, :, offset : offset + queries]
    return divided(sums), states[:, :, -1].clone()


def implied_weights(features_q: Tensor, features_k: Tensor, allowed: Tensor | None) -> Tensor:
    """The weights, (B, H, T, S), that the sums imply; the output does not need them."""
    weights = features_q @ features_k.mT
    weights = weights if allowed is None else weights.masked_fill(~allowed, 0.0)
    return divided(torch.cat((weights, weights.sum(-1, keepdim=True)), -1))


class Features:
    """A kernel of feature maps φ(q) and φ(k); causal sums are computed in chunks."""

    def __init__(self, config: LayerConfig) -> None:
        self.causal = any(part.key == "causal" for part in and_parts(config.mask))
        self.chunk = int(config.kernel["chunk"])

    @full_precision
    def __call__(self, inputs: AttentionInputs) -> Steps:
        real = real_keys(inputs, "linear")
        q, k = split_scale(inputs)
        return self.summed(inputs, elu_features(q), elu_features(k), real)

    def summed(
        self, inputs: AttentionInputs, features_q: Tensor, features_k: Tensor, real: Tensor | None
    ) -> Steps:
        if real is not None:
            features_k = features_k.masked_fill(~real.mT, 0.0)
        v, state = to_float32(inputs.v), None
        if self.causal:
            out, state = causal_linear_attention(
                features_q,
                features_k,
                v,
                chunk_length(inputs, self.chunk),
                inputs.block.offset,
                inputs.past,
            )
        else:
            out = linear_attention(features_q, features_k, v)
        return steps(
            inputs,
            out,
            lambda: implied_weights(features_q, features_k, inputs.joined_mask()),
            state,
        )


# Retention: scores that decay with distance are the weights, unnormalised, so that one state sums up all keys before.


def retnet_slopes(num_heads: int) -> Tensor:
    """−log γ with γ_h = 1 − 2^(−5−h), h from 0. Sun 2023, section 2.2."""
    return -torch.log1p(-(2.0 ** -(5.0 + torch.arange(num_heads, dtype=torch.float64))))


def lightning_slopes(num_heads: int) -> Tensor:
    """2^(−8h/H), h from 1. MiniMax-01, section 2.2.1."""
    return 2.0 ** (-8.0 * torch.arange(1, num_heads + 1, dtype=torch.float64) / num_heads)


SLOPES = {"retnet": retnet_slopes, "lightning": lightning_slopes}


def retain(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    slopes: Tensor,
    chunk: int,
    offset: int = 0,
    past: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Σ_{j ≤ i} e^(−slope·(i−j)) (q_i·k_j) v_j in chunks, and the state at the last query or key, if that is later: the sum
    with k_jᵀ for q_i·k_j.

    slopes (H, 1, 1); queries begin at position `offset`; `past` is the state before the first key.
    """
    queries = q.shape[2]
    end = max(offset + queries, k.shape[2])  # a state decays by distance, past the last key too
    q, k, v = in_chunks(q, k, v, chunk, offset)
    position = torch.arange(chunk, dtype=slopes.dtype, device=q.device)  # within a chunk
    rate = slopes.unsqueeze(1)  # (H, 1, 1, 1), beside n, chunk, chunk
    out = ((q @ k.mT) * decay(rate, position[:, None] - position)) @ v
    starts = chunk * torch.arange(k.shape[2], dtype=slopes.dtype, device=q.device)
    filled = (end - starts).clamp(0, chunk)[:, None, None]  # the tokens of each chunk
    until = torch.exp(-rate * (filled - 1 - position[:, None]).clamp(min=0))
    states, state = states_before((k * until).mT @ v, torch.exp(-rate * filled)[None], past)
    out = out + (q * torch.exp(-rate * (position + 1)[:, None])) @ states
    return out.flatten(2, 3)[:, :, offset : offset + queries], state


def decay(slopes: Tensor, distance: Tensor) -> Tensor:
    """e^(−slope·distance) where distance ≥ 0, else 0."""
    return torch.exp(-slopes * distance.clamp(min=0)) * (distance >= 0)


class Retention:
    def __init__(self, config: LayerConfig) -> None:
        self.chunk = int(config.kernel["chunk"])
        self.slopes = SLOPES[str(config.kernel["decay"])](config.score_heads)  # in fp64

    @full_precision
    def __call__(self, inputs: AttentionInputs) -> Steps:
        real = real_keys(inputs, "retention")
        q, k, scale = scaled_qk(inputs)
        k, v = k * scale, to_float32(inputs.v)
        slopes = self.slopes.to(q.device, q.dtype)[:, None, None]
        if real is not None:
            k = k.masked_fill(~real.mT, 0.0)
        out, state = retain(
            q, k, v, slopes, chunk_length(inputs, self.chunk), inputs.block.offset, inputs.past
        )
        return steps(
            inputs,
            out,
            lambda: (q @ k.mT) * decay(slopes, (inputs.block.i - inputs.block.j).to(q.dtype)),
            state,
        )


ENTRIES: tuple[Entry, ...] = (
    Entry(
        "linear",
        "Linear",
        build=Features,
        latex=r"\frac{\phi(q_i)^\top \sum_j \phi(k_j) v_j^\top}{\phi(q_i)^\top \sum_j \phi(k_j)},"
        r"\quad \phi(x) = \text{elu}(x) + 1",
        meaning="A feature map replaces the exponential, so keys and values are summed once for all queries. The weights "
        "differ from those of softmax.",
        paper="Katharopoulos et al.",
        year=2020,
        url="https://arxiv.org/abs/2006.16236",
        params=(CHUNK,),
        short="elu + 1",
        traits=frozenset({"implied", "state"}),
        cost=features_cost,
        refuse=refuse_when("linear", *CAUSAL_ROWS),
    ),
    Entry(
        "retention",
        "Retention",
        build=Retention,
        latex=r"\sum_{j \le i} \gamma_h^{\,i-j}\, s_{ij}\, v_j",
        meaning="Scores decay with distance and are the weights without a normalizer, so weights may be negative and rows "
        "may have any sum. A query attends only to itself and earlier tokens, which a state sums up.",
        paper="Sun et al.",
        year=2023,
        url="https://arxiv.org/abs/2307.08621",
        params=(
            Param(
                "decay",
                "Decay",
                default="retnet",
                choices=("retnet", "lightning"),
                labels=("RetNet", "Lightning"),
                meaning="decay γ of each head: 1 − 2^(−5−h), or e to the power of ALiBi's slope",
            ),
            CHUNK,
        ),
        short="γ^(i−j)·s",
        traits=STATE_TRAITS,
        cost=cost_in_chunks(retention_cost),
        refuse=refuse_when("retention", *CAUSAL_ROWS),
    ),
)
