"""Every kernel with more queries than keys, fewer, a first query in the middle, and holes among the keys: forward and
gradient against loops over single queries and keys in fp64, which share no code with the kernels.

Key j stands at position j and query t at position offset + t, whatever their numbers; a causal query sees the keys up to
its own position, and one after the last key sees all of them.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from core.attention import AXES, Attention, AttentionConfig, Choice
from core.attention.kernels.approximate import inverse
from tests.cases import each
from tests.oracles.agreement import agree, put

B, H, C, D = 2, 2, 12, 6
KERNELS = {
    "chunked": {"block": 4},
    "local": {"block": 4},
    "block_sparse": {"block": 4},
    "performer": {"features": 7, "chunk": 4},
    "linformer": {"rank": 3},
    "nystrom": {"landmarks": 3, "rounds": 30},
    "nsa": {"size": 2, "blocks": 2, "window": 3},
    "hca": {"size": 3, "window": 3},
    "csa": {"size": 2, "window": 3, "blocks": 2},
    "delta_product": {"steps": 2, "chunk": 4},
    "gla": {"tau": 1.0, "chunk": 4},
    "log_linear": {"levels": 3, "chunk": 4},
    "hgrn2": {"least": 0.2, "chunk": 4},
    "rwkv6": {"rank": 3, "chunk": 4},
    "trapezoid": {"share": 0.5, "chunk": 4},
}
LENGTHS = {  # queries, keys, position of the first query
    "more queries": (15, 9, 0),
    "fewer queries": (5, 15, 0),
    "the last queries": (5, 15, 10),
    "queries past the keys": (9, 10, 6),
    "as many": (13, 13, 0),
}


def layer_of(key: str, mask: str = "causal") -> Attention:
    entry = next(item for item in AXES["kernel"] if item.key == key)
    params: Any = KERNELS.get(
        key, {"chunk": 4} if any(p.key == "chunk" for p in entry.params) else {}
    )
    layer = (
        Attention(AttentionConfig(C, H, mask=mask, kernel=Choice.of(key, **params))).double().eval()
    )
    put(*((one, one + 0.5 * torch.randn_like(one)) for one in layer.parameters()))
    return layer


def holes(keys: int) -> Tensor:
    """Which keys are real: holes at the start, in the middle and at the end, and one text that is whole."""
    real = torch.ones(B, keys, dtype=torch.bool)
    real[0, [0, 3, 4, 6, keys - 1]] = False
    return real


def length_one(x: Tensor) -> Tensor:
    return x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt()


def outer(key: Tensor, value: Tensor) -> Tensor:
    return key[..., :, None] * value[..., None, :]


def erased(state: Tensor, key: Tensor) -> Tensor:
    """What a state (H, D, E) returns for a key (H, D)."""
    return (state * key[..., None]).sum(-2)


# What a token does to the state, (H, D, E), with its key, value and gates: log α, β and so on, each (H, 1 or D).


def corrected(state: Tensor, k: Tensor, v: Tensor, write: Tensor) -> Tensor:
    return state + outer(write * k, v - erased(state, k))


def delta_product(state, k, v, decay, write, more):
    state = decay.exp()[..., None] * state
    for n, key in enumerate((length_one(k), more)):
        state = corrected(state, key, v, write[:, n : n + 1])
    return state


def gdn2(state, k, v, decay, erase):
    k, state = length_one(k), decay.exp()[..., None] * state
    return state + outer(k, v - erased(state, erase * k))


def rwkv7(state, k, v, decay, rate, gain, own):
    unit = length_one(k * own.erased[:, 0])
    return (
        decay.exp()[..., None] * state
        - outer(rate * unit, erased(state, unit))
        + outer(gain * k, v)
    )


def comba(state, k, v, decay, write, erase, correct):
    k = length_one(k)
    return decay.exp()[..., None] * state + outer(write * k, v - erased(state, erase * k))


WRITES: dict[str, Callable[..., Tensor]] = {
    "linear": lambda state, k, v: state + outer(F.elu(k) + 1, v),
    "performer": lambda state, k, v: state + outer(k, v),
    "retention": lambda state, k, v: state + outer(k, v),
    "delta": lambda state, k, v, _, write: corrected(state, length_one(k), v, write),
    "gated_delta": lambda state, k, v, decay, write: corrected(
        decay.exp()[..., None] * state, length_one(k), v, write
    ),
    "ssd": lambda state, k, v, decay, step: decay.exp()[..., None] * state + outer(step * k, v),
    "gla": lambda state, k, v, decay: decay.exp()[..., None] * state + outer(k, v),
    "kda": lambda state, k, v, decay, write: corrected(
        decay.exp()[..., None] * state, length_one(k), v, write
    ),
    "hgrn2": lambda state, k, v, share: (
        (1 - share * torch.sigmoid(-k))[..., None] * state + outer(share * torch.sigmoid(-k), v)
    ),
    "rwkv6": lambda state, k, v, decay, _: decay.exp()[..., None] * state + outer(k, v),
    "delta_product": delta_product,
    "gdn2": gdn2,
    "rwkv7": rwkv7,
    "comba": comba,
}
UNIT_QUERIES = ("delta", "gated_delta", "delta_product", "gdn2", "kda", "comba")


def recurrent(layer, q, k, v, x, context, real, offset) -> Tensor:
    """A text alone, token by token; q, k and v (H, T or S, D), with the scale in q."""
    own, key = layer.kernel, layer.config.kernel.key
    gates = [gate[0] for gate in own.gates(context[None])] if hasattr(own, "gates") else []
    sums = key in ("linear", "performer")
    if sums:  # of weights, too, by which the output is divided
        v = F.pad(v, (0, 1), value=1.0)
    if key == "performer":
        q, k = features(own, q * D**0.25, True), features(own, k * D**-0.25, False)
    q = D**-0.5 * length_one(q * D**0.5) if key in UNIT_QUERIES else q
    q = F.elu(q * D**0.25) + 1 if key == "linear" else q
    k = k * D**-0.25 if key == "linear" else k
    state, outs = v.new_zeros(H, q.shape[-1], v.shape[-1]), []
    for t in range(offset + q.shape[1]):
        if key == "retention":  # by distance, whether keys are there or not
            state = state * (1 - 2.0 ** -(5.0 + torch.arange(H).double()))[:, None, None]
        before = state
        if t < k.shape[1] and real[t]:
            if key == "rwkv6":  # is read before it is written
                before = before + outer(gates[1][:, t] * k[:, t], v[:, t])
            more = {"own": own} if key == "rwkv7" else {}
            state = WRITES[key](state, k[:, t], v[:, t], *(gate[:, t] for gate in gates), **more)
        if t >= offset:
            query = q[:, t - offset]
            if key == "comba" and t < k.shape[1] and real[t]:
                query = query - own.correct[:, 0] * D**-0.5 * length_one(k[:, t])
            out = erased(before if key == "rwkv6" else state, query)
            outs.append(out[:, :-1] / out[:, -1:].clamp(min=1e-300) if sums else out)
    return torch.stack(outs, 1)


def features(own, x: Tensor, query: bool) -> Tensor:
    """e^(wᵀx − |x|²/2) and a little, for a query over its largest e^(wᵀx); the factor is divided out."""
    products = x @ own.directions.T
    exponent = products - x.square().sum(-1, keepdim=True) / 2
    return (exponent - products.amax(-1, keepdim=True) * query).exp() + 1e-6


def trapezoid(layer, q, k, v, x, context, real, offset) -> Tensor:
    """Pairs of channels are complex numbers; a token enters by λΔ, and by (1 − λ)Δ of the real one after it."""
    own, scale = layer.kernel, D**-0.5
    decay, now, later, turn, _ = (gate[0] for gate in own.gates(context[None]))
    pairs = turn.shape[-1]

    def numbers(x):
        rest = torch.complex(x[..., 2 * pairs :], torch.zeros_like(x[..., 2 * pairs :]))
        turned = torch.view_as_complex(x[..., : 2 * pairs].unflatten(-1, (pairs, 2)).contiguous())
        return torch.cat((turned, rest), -1)

    q, k = numbers(q + scale * own.query_bias), numbers(k + own.key_bias)
    state, before, outs = torch.zeros(H, q.shape[-1], D, dtype=torch.complex128), 0.0, []
    for t in range(offset + q.shape[1]):
        if t < k.shape[1] and real[t]:
            angle = F.pad(turn[:, t].expand(H, -1), (0, q.shape[-1] - pairs))
            fade = torch.polar(decay[:, t].exp().expand_as(angle), -angle)[..., None]
            new = outer(k[:, t], v[:, t])
            state = fade * (state + later[:, t, :, None] * before) + now[:, t, :, None] * new
            before = new  # type: ignore[assignment]
        if t >= offset:
            outs.append(erased(state, q[:, t - offset].conj()).real)
    return torch.stack(outs, 1)


def log_linear(layer, q, k, v, x, context, real, offset) -> Tensor:
    decay, step = (gate[0] for gate in layer.kernel.gates(context[None]))
    levels = F.softplus(
        layer.kernel.level_rate * layer.kernel.level(x).unflatten(1, (H, 3)).transpose(0, 1)
    )
    outs = []
    for t in range(q.shape[1]):
        i, out = offset + t, 0.0
        for j in range(min(i + 1, k.shape[1])):
            if real[j]:
                between = sum(
                    (decay[:, m] for m in range(j + 1, min(i + 1, k.shape[1])) if real[m]),
                    torch.zeros(H, 1),
                )
                level = levels[:, t, min((i ^ j).bit_length(), 2)][:, None]
                out = (
                    out
                    + level
                    * between.exp()
                    * step[:, j]
                    * (q[:, t] * k[:, j]).sum(-1, keepdim=True)
                    * v[:, j]
                )
        outs.append(torch.zeros(H, D).double() + out)
    return torch.stack(outs, 1)


# Kernels without a state, query by query.


def softmax_of(q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The attention of one query (H, D) to some keys (H, n, D); zeros without any."""
    if not keys.shape[1]:
        return values.new_zeros(H, values.shape[-1])
    return ((keys @ q[..., None]).softmax(1) * values).sum(1)


def plain(layer, q, k, v, x, context, real, offset) -> Tensor:
    outs = []
    for t in range(q.shape[1]):
        seen = [j for j in range(min(offset + t + 1, k.shape[1])) if real[j]]
        outs.append(softmax_of(q[:, t], k[:, seen], v[:, seen]))
    return torch.stack(outs, 1)


def linformer(layer, q, k, v, x, context, real, offset) -> Tensor:
    at = real.nonzero().flatten()
    keys, values = (
        table[at].T @ rows[:, at]
        for table, rows in ((layer.kernel.to_key, k), (layer.kernel.to_value, v))
    )
    return (q @ keys.mT).softmax(-1) @ values


def nystrom(layer, q, k, v, x, context, real, offset) -> Tensor:
    at, count = real.nonzero().flatten(), 3
    k, v = k[:, at], v[:, at]

    def means(rows):
        number = rows.shape[1]
        stretches = [[i for i in range(number) if i * count // number == n] for n in range(count)]
        return torch.stack([rows[:, some].mean(1) for some in stretches], 1)

    few_q, few_k = means(q), means(k)
    left, middle, right = (
        (a @ b.mT).softmax(-1) for a, b in ((q, few_k), (few_q, few_k), (few_q, k))
    )
    return left @ inverse(middle, 30) @ right @ v


def nsa(layer, q, k, v, x, context, real, offset) -> Tensor:
    size, window, keys = 2, 3, k.shape[1]
    gates = layer.kernel.gate(x).sigmoid().unflatten(1, (3, H))  # (T, 3, H)
    blocks = [[j for j in range(b, min(b + size, keys)) if real[j]] for b in range(0, keys, size)]
    outs = []
    for t in range(q.shape[1]):
        i, own = offset + t, (offset + t) // size
        done = [b for b, some in enumerate(blocks) if some and (b + 1) * size - 1 <= i]
        means = [
            torch.stack([rows[:, blocks[b]].mean(1) for b in done], 1) if done else rows[:, :0]
            for rows in (k, v)
        ]
        out = gates[t, 0, :, None] * softmax_of(q[:, t], *means)
        near = [j for j in range(max(0, i - window + 1), min(i + 1, keys)) if real[j]]
        out = out + gates[t, 2, :, None] * softmax_of(q[:, t], k[:, near], v[:, near])
        by_head = []
        for h in range(H):
            scores = {b: (q[h, t] @ means[0][h, n]).item() for n, b in enumerate(done) if b < own}
            best = sorted(scores, key=scores.get)[-1:] + [own] * (own < len(blocks))
            some = [j for b in best for j in blocks[b] if j <= i]
            by_head.append(softmax_of(q[:, t], k[:, some], v[:, some])[h])
        outs.append(out + gates[t, 1, :, None] * torch.stack(by_head))
    return torch.stack(outs, 1)


def compressed(layer, q, k, v, x, context, real, offset) -> Tensor:
    own, tokens = layer.kernel, real.nonzero().flatten().tolist()

    def keys_of(compressor):
        c, z, size = compressor.value(context), compressor.gate(context), own.size
        rows = []
        for b in range(len(tokens) // size):
            some = tokens[b * size : (b + 1) * size]
            value, gate = c[some], z[some] + compressor.bias
            if compressor.overlap:
                before, dim = tokens[(b - 1) * size : b * size] if b else [], compressor.dim
                value = torch.cat((c[before][:, :dim], value[:, dim:]))
                gate = torch.cat(
                    (z[before][:, :dim] + compressor.bias[: len(before), :dim], gate[:, dim:])
                )
            rows.append(compressor.norm((gate.softmax(0) * value).sum(0)))
        return torch.stack(rows)

    table, outs = keys_of(own.compressor), []
    if own.indexer is not None:
        ranked = keys_of(own.indexer.compressor)
        ranked = turned(ranked, torch.tensor([tokens[b * own.size] for b in range(len(ranked))]))
        asks = turned(
            own.indexer.query(x).unflatten(1, (own.indexer.heads, -1)).transpose(0, 1),
            offset + torch.arange(len(x)),
        )
        shares = own.indexer.weight(x)
    for t in range(q.shape[1]):
        i = offset + t
        full = list(range(sum(j <= i for j in tokens) // own.size))
        if own.indexer is not None:
            score = (shares[t] @ (asks[:, t] @ ranked.T).relu()).tolist()
            full = sorted(full, key=lambda b: (-score[b], b))[: own.blocks]
        near = [j for j in tokens if i - own.window < j <= i]
        far = table[full].expand(H, -1, -1)
        outs.append(
            softmax_of(q[:, t], torch.cat((far, k[:, near]), 1), torch.cat((far, v[:, near]), 1))
        )
    return torch.stack(outs, 1)


def turned(x: Tensor, at: Tensor) -> Tensor:
    """The first half of x (…, n, d) turned in neighbouring pairs by its positions."""
    half = x.shape[-1] // 2
    angle = at[:, None] * 10000.0 ** -(torch.arange(0, half, 2).double() / half)
    pairs = torch.view_as_complex(x[..., :half].unflatten(-1, (-1, 2)).contiguous())
    pairs = pairs * torch.polar(torch.ones_like(angle), angle)
    return torch.cat((torch.view_as_real(pairs).flatten(-2), x[..., half:]), -1)


LOOPS = {
    **dict.fromkeys(("exact", "fused", "chunked", "local", "block_sparse"), plain),
    **dict.fromkeys(WRITES, recurrent),
    "trapezoid": trapezoid,
    "log_linear": log_linear,
    "linformer": linformer,
    "nystrom": nystrom,
    "nsa": nsa,
    "hca": compressed,
    "csa": compressed,
}


@each("lengths", LENGTHS)
@each("key", [item.key for item in AXES["kernel"] if not item.source])
def test_any_lengths_and_holes_are_the_loop(key, lengths):
    queries, keys, offset = LENGTHS[lengths]
    layer = layer_of(key, "none" if key in ("linformer", "nystrom") else "causal")
    x, context = (torch.randn(B, n, C).double().requires_grad_() for n in (queries, keys))
    real = holes(keys)
    steps = layer(x, context, key_mask=real, offset=offset)
    rows = zip(steps.q * layer.score.scale, steps.k, steps.v, x, context, real, strict=True)
    theirs = torch.stack([LOOPS[key](layer, *row, offset) for row in rows])  # type: ignore[call-arg]
    agree(layer(x, context, key_mask=real, offset=offset, record=False).out, theirs, [x, context])
    torch.testing.assert_close(steps.out, theirs)
