"""Kernels with exact's own weights: fused, block by block (chunked), and only what the mask shows (local, block-sparse)."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from core.attention.base import ALL, Product, ScoreBlock, Steps, to_float32
from core.attention.kernels.costs import (
    FLOAT,
    exact_bytes,
    flops,
    fused_bytes,
    fused_cost,
    kernel_cost,
    mask_cost,
    output_bytes,
    score_bytes,
    scoring_steps,
    widened,
)
from core.attention.kernels.exact import (
    AttentionInputs,
    Clash,
    adds_values,
    combines_heads,
    compute_scores,
    exact,
    multiplies_weights,
    not_product,
    not_softmax,
    ranks_keys,
    refuse_when,
    slice_inputs,
    spans,
    whole_rows,
)
from core.attention.masks import make_mask
from core.entries import Area, Choice, Cost, Entry, LayerConfig, Param

# PyTorch's fused attention.


def fused(inputs: AttentionInputs) -> Steps:
    """F.scaled_dot_product_attention: exact's output in O(T) memory, without the intermediate steps.

    A NaN or infinity in k or v reaches rows whose mask hides it; the layer clears padding before.
    """
    q, k, v, bias = inputs.q, inputs.k, inputs.v, inputs.bias()
    scale, temperature = inputs.score.scale, inputs.normalizer.temperature
    square = inputs.block.offset == 0 and q.shape[2] == k.shape[2]
    is_causal = inputs.causal and square and bias is None
    sees_all = inputs.causal and inputs.block.low >= 0  # as the last token does
    attn_mask = mask = None if is_causal or sees_all else inputs.joined_mask()
    if bias is not None:
        attn_mask = bias / temperature
        if mask is not None:
            attn_mask = attn_mask.masked_fill(~mask, float("-inf"))
        attn_mask = attn_mask.to(q.dtype)
        # PyTorch expands one of three dimensions
        attn_mask = attn_mask if attn_mask.dim() == 4 else attn_mask[None]
    ready_q, ready_k = cast(Product, inputs.score).prepare(q, k)
    if isinstance(scale, Tensor):  # one number a head, which the function below does not take
        ready_q, scale = ready_q * scale, 1.0
    # PyTorch's CPU kernel takes values of the keys' size alone
    narrower = max(0, ready_k.shape[-1] - v.shape[-1])
    out = F.scaled_dot_product_attention(
        ready_q,
        ready_k,
        F.pad(v, (0, narrower)) if narrower else v,
        attn_mask=attn_mask,
        dropout_p=inputs.dropout,
        is_causal=is_causal,
        scale=scale / temperature,
    )[..., : v.shape[-1]]
    # only PyTorch's CPU kernels are known to give zeros here
    if mask is not None and q.device.type != "cpu":
        out = out.masked_fill(~mask.any(-1, keepdim=True), 0.0)
    return Steps(q, k, v, inputs.score.scale, bias, mask, out)


def fused_token(
    q: Float[Tensor, "B H 1 D"],
    k: Float[Tensor, "B G S D"],
    v: Float[Tensor, "B G S E"],
    scale: float,
) -> Float[Tensor, "B H 1 E"]:
    """One token of causal attention by scaled dot products: it sees all S keys, so a step of decoding needs no mask.

    The H / G heads that share a head of keys are computed as so many queries of it, which repeats no key.
    """
    batch, heads, _, size = q.shape
    groups = q.reshape(batch, k.shape[1], heads // k.shape[1], size)
    out = F.scaled_dot_product_attention(groups, k, v, scale=scale)
    return out.reshape(batch, heads, 1, v.shape[-1])


# Why F.scaled_dot_product_attention cannot compute some choices, or None when it can.
why_not_fused = refuse_when(
    "fused",
    not_product,
    not_softmax,
    Clash(
        "position",
        "supports only positions that add a bias, and position = {} does more",
        {"position": "alibi"},
        lambda config: config.has("position", "adjusts"),
    ),
    adds_values,
    multiplies_weights,
    combines_heads,
)


# Plans: the stretches of keys that each block of queries can see; the mask hides all others.


# how many keys before and after its own position a query may see at most
Reach = tuple[float, float]


def reach(mask: Choice) -> Reach:
    """A bound on how far a query sees: that of the narrowest part of an `and`, of the widest of an `or`."""
    if mask.key in ("and", "or"):
        pick = min if mask.key == "and" else max
        before, after = zip(*map(reach, mask.parts), strict=True)
        return pick(before), pick(after)
    return BANDS[mask.key](**mask.kwargs) if mask.key in BANDS else (math.inf, math.inf)


BANDS: dict[str, Callable[..., Reach]] = {
    "causal": lambda: (math.inf, 0),
    "local": lambda window: (window, window),
    "causal_local": lambda lookback: (lookback, 0),
    "dilated": lambda window, dilation: (window * dilation, window * dilation),
    "block": lambda size: (size - 1, size - 1),
    "chunked": lambda size: (size - 1, 0),
}


Stretch = tuple[slice, ...]
# for queries that see no key: one, which the mask hides, so that they give zeros
NOTHING: Stretch = (slice(0, 1),)


def band(reach: Reach, queries: int, keys: int, size: int, offset: int = 0) -> list[Stretch]:
    """Of each block of queries the keys within reach: so many before its first and after its last."""
    plan: list[Stretch] = []
    for rows in spans(queries, size):
        start = max(0, offset + rows.start - reach[0])
        stop = min(keys, offset + rows.stop + reach[1])
        plan.append((slice(int(start), int(stop)),) if start < stop else NOTHING)
    return plan


def touched_blocks(
    queries: int, keys: int, size: int, allowed: Callable[[slice], Tensor | None]
) -> list[Stretch]:
    """For each block of queries, the whole blocks of keys of which a query may see one, neighbours as one stretch.

    `allowed` is the mask on some rows and all columns.
    """
    plan: list[Stretch] = []
    for rows in spans(queries, size):
        mask = allowed(rows)
        if mask is None:
            plan.append((slice(0, keys),))
            continue
        visible = mask.expand(*mask.shape[:-1], keys).flatten(0, -2).any(0)
        blocks = F.pad(visible, (0, -keys % size)).unflatten(0, (-1, size)).any(1)
        edges = F.pad(blocks.int(), (1, 1)).diff().nonzero().flatten() * size
        ends = edges.clamp(max=keys).tolist()
        plan.append(tuple(map(slice, ends[::2], ends[1::2])) or NOTHING)
    return plan


# masks that show every key within their reach
GAPLESS = ("none", "causal", "local", "causal_local")


def blocks_seen(config: LayerConfig, area: Area) -> list[Stretch]:
    """`touched_blocks` of a mask of positions alone, in closed form where possible; keys from `area.real` on are
    padding."""
    size, real = int(config.kernel["block"]), area.keys if area.real is None else area.real
    if config.mask.key in GAPLESS:
        return [
            keys
            if keys is NOTHING
            else (
                slice(
                    keys[0].start // size * size, min(-(-keys[0].stop // size) * size, area.keys)
                ),
            )
            for keys in band(reach(config.mask), area.queries, real, size)
        ]
    padded = torch.arange(area.keys)[None] < real
    whole = ScoreBlock.whole(area.queries, area.keys, num_heads=config.score_heads, key_mask=padded)
    mask = make_mask(config.mask, config)
    return touched_blocks(
        area.queries, area.keys, size, lambda rows: mask(whole.part(rows)) & whole.key_mask
    )


# The cost of the kernels that compute blocks of the score matrix, in closed form; costs.py says what is counted.


@lru_cache(maxsize=256)
def planned_cost(config: LayerConfig, area: Area) -> Cost:
    """The cost where each block of queries and the keys that it may see are computed at once, exact or fused.

    A mask that reads content may show block-sparse anything, so every block counts; one that multiplies weights, too,
    is computed for the plan and once more.
    """
    size, content = int(config.kernel["block"]), config.has("mask", "reads content")
    if config.kernel.key == "local":
        plan, mask_reads = band(reach(config.mask), area.queries, area.keys, size), 1
    else:
        every: list[Stretch] = [(slice(0, area.keys),)] * -(-area.queries // size)
        plan = every if content else blocks_seen(config, area)
        mask_reads = 1 + (content and config.has("mask", "reweighs"))
    widths = [sum(part.stop - part.start for part in keys) for keys in plan]
    areas = Counter(
        rectangle(area, rows, keys[0].start, keys[-1].stop - 1, width)
        for rows, keys, width in zip(spans(area.queries, size), plan, widths, strict=True)
    )
    fuses = why_not_fused(config) is None
    peak = max(fused_bytes(config, each) if fuses else exact_bytes(config, each) for each in areas)
    copied = max(
        (width for width, keys in zip(widths, plan, strict=True) if len(keys) > 1), default=0
    )
    of_key = config.score_heads * config.scored_dim + config.num_heads * config.v_dim
    out, last = output_bytes(config, area.queries), output_bytes(config, min(size, area.queries))
    held = out * (len(plan) - 1) / len(plan) + last * fuses + peak + FLOAT * of_key * copied
    made = total_flops(config, areas, mask_reads)
    if fuses:  # which pads values to the size of keys
        cells = sum(count * each.cells for each, count in areas.items())
        made += 2.0 * cells * config.num_heads * widened(config)
    return kernel_cost(config, area, made, max(2 * out, held))


@lru_cache(maxsize=256)
def chunked_cost(config: LayerConfig, area: Area) -> Cost:
    """The output, the logarithm of each row's sum, and one block; blocks that the mask hides are skipped."""
    size, rows = int(config.kernel["block"]), min(int(config.kernel["block"]), area.queries)
    areas = block_areas(area, size, blocks_seen(config, area))
    out, block_out = output_bytes(config, area.queries), output_bytes(config, rows)
    logarithms = FLOAT * config.num_heads * (area.queries + 4 * rows)
    # the last step of a block holds the masked scores and their exponentials
    steps = [
        max(
            *scoring_steps(config, each),
            2 * score_bytes(config, each) + 2 * mask_cost(config, each).output,
        )
        for each in areas
    ]
    held = out + logarithms + block_out + max([*steps, block_out])
    return kernel_cost(config, area, total_flops(config, areas), held)


def total_flops(config: LayerConfig, areas: Counter[Area], mask_reads: int = 1) -> float:
    return sum(count * flops(config, area, mask_reads) for area, count in areas.items())


def rectangle(area: Area, rows: slice, first_key: int, last_key: int, keys: int) -> Area:
    """The area of some queries and of so many keys, between the first and the last."""
    return Area(
        rows.stop - rows.start,
        keys,
        rows.start - last_key,
        rows.stop - 1 - first_key,
        area.masked,
        area.real,
    )


def block_areas(area: Area, size: int, plan: list[Stretch]) -> Counter[Area]:
    """How often each area occurs among the square blocks of the plan.

    Whole blocks differ only by their distance from the diagonal. Those of one row and stretch lie on consecutive
    diagonals, so `change` counts +1 where they begin and −1 after their end, and its running sum is the number of
    blocks on each diagonal. Blocks at the ends, which may be smaller, are counted one by one.
    """
    counts: Counter[Area] = Counter()
    change: Counter[int] = Counter()
    for index, (rows, keys) in enumerate(zip(spans(area.queries, size), plan, strict=True)):
        for stretch in () if keys is NOTHING else keys:
            first, last = stretch.start // size, stretch.stop // size
            if rows.stop - rows.start == size:
                change[index - last + 1] += 1
                change[index - first + 1] -= 1
                first = last
            for start in range(first * size, stretch.stop, size):
                stop = min(start + size, stretch.stop)
                counts[rectangle(area, rows, start, stop - 1, stop - start)] += 1
    blocks = 0
    for diagonal in range(min(change), max(change)) if change else ():
        blocks += change[diagonal]
        if blocks:
            rows = slice(diagonal * size, (diagonal + 1) * size)
            counts[rectangle(area, rows, 0, size - 1, size)] += blocks
    return counts


# Softmax attention block by block, forward and backward, without ever holding a matrix of T × S.


BLOCK = Param(
    "block", "Block", default=256, low=1, high=4096, step=1, meaning="queries and keys in a block"
)


@dataclass(frozen=True)
class Blocks:
    """The inputs in blocks of `size` queries and keys; `seed` drops the same weights forward and backward."""

    inputs: AttentionInputs
    size: int
    seed: int = 0

    def scores(self, q: Tensor, k: Tensor, v: Tensor, rows: slice, columns: slice) -> Tensor | None:
        """The masked scores of a block, (B, H, t, s), over the temperature; None where all of it is masked."""
        part = slice_inputs(self.inputs, rows, columns, q, k, v)
        allowed = part.joined_mask()
        if allowed is not None and not torch.compiler.is_compiling() and not bool(allowed.any()):
            return None  # one graph for all masks cannot leave out a block
        scores = to_float32(compute_scores(part)[-1]) / part.normalizer.temperature
        return scores if allowed is None else scores.masked_fill(~allowed, -math.inf)

    def dropout_factor(self, weights: Tensor, rows: slice, columns: slice) -> Tensor:
        """1 / (1 − dropout) where a weight stays, 0 where it is dropped."""
        generator = torch.Generator(weights.device).manual_seed(
            hash((self.seed, rows.start, columns.start))
        )
        uniform = torch.rand(
            weights.shape, generator=generator, device=weights.device, dtype=weights.dtype
        )
        return (uniform >= self.inputs.dropout).to(weights.dtype) / (1.0 - self.inputs.dropout)


class _Chunked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, blocks: Blocks, q: Tensor, k: Tensor, v: Tensor, *read: Tensor) -> Tensor:
        """`read` are the position's tables, then the learned tensors."""
        out = q.new_empty(*q.shape[:3], v.shape[-1])
        # log of each row's sum: weights = e^(scores − norm)
        norm = to_float32(q.new_empty(*q.shape[:3], 1))
        for rows in spans(q.shape[2], blocks.size):
            out[:, :, rows], norm[:, :, rows] = _rows(blocks, q[:, :, rows], k, v, rows)
        ctx.blocks = blocks
        ctx.save_for_backward(q, k, v, out, norm, *read)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, norm, *read = ctx.saved_tensors
        inputs = ctx.blocks.inputs
        own, form = tree_flatten(inputs.block.tables)
        # a block's gradient ends there
        tables, learned = (
            [one.detach().requires_grad_() for one in read[: len(own)]],
            read[len(own) :],
        )
        block = replace(inputs.block, tables=tree_unflatten(tables, form))
        blocks = replace(ctx.blocks, inputs=replace(inputs, block=block))
        inner = (q, k, v, *tables, *learned)
        grads = [torch.zeros_like(x, dtype=to_float32(x).dtype) for x in inner]
        # Σ_j w_ij ∂w_ij, of softmax's gradient
        delta = (to_float32(grad) * out).sum(-1, keepdim=True)
        for rows in spans(q.shape[2], blocks.size):
            of_rows = to_float32(grad[:, :, rows])
            for columns in spans(k.shape[2], blocks.size):
                values = v[:, :, columns]
                leaves = [x.detach().requires_grad_() for x in (q[:, :, rows], k[:, :, columns])]
                with torch.enable_grad():
                    scores = blocks.scores(*leaves, values, rows, columns)
                if scores is None:
                    continue
                weights = (scores.detach() - norm[:, :, rows]).exp_()
                weights_grad, dropped = of_rows @ to_float32(values).mT, weights
                if inputs.dropout:
                    factor = blocks.dropout_factor(weights, rows, columns)
                    weights_grad, dropped = weights_grad * factor, weights * factor
                grads[2][:, :, columns] += dropped.mT @ of_rows
                parts = torch.autograd.grad(
                    scores,
                    [*leaves, *tables, *learned],
                    weights * (weights_grad - delta[:, :, rows]),
                    allow_unused=True,
                )
                totals = (grads[0][:, :, rows], grads[1][:, :, columns], *grads[3:])
                for total, part in zip(totals, parts, strict=True):
                    if part is not None:
                        total += part
        return None, *(total.to(x.dtype) for total, x in zip(grads, inner, strict=True))


def _rows(blocks: Blocks, q: Tensor, k: Tensor, v: Tensor, rows: slice) -> tuple[Tensor, Tensor]:
    """The output of some queries, and the logarithm of each one's sum (+∞ for a row that sees no key)."""
    top = to_float32(q.new_full((*q.shape[:3], 1), -math.inf))
    total, out = torch.zeros_like(top), to_float32(q.new_zeros(*q.shape[:3], v.shape[-1]))
    for columns in spans(k.shape[2], blocks.size):
        values = v[:, :, columns]
        scores = blocks.scores(q, k[:, :, columns], values, rows, columns)
        if scores is None:
            continue
        highest = torch.maximum(top, scores.amax(-1, keepdim=True))
        safe = highest.masked_fill(highest == -math.inf, 0.0)  # −∞ − (−∞) would be NaN
        weights, fade = (scores - safe).exp_(), (top - safe).exp_()
        total = total * fade + weights.sum(-1, keepdim=True)
        if blocks.inputs.dropout:
            weights = weights * blocks.dropout_factor(weights, rows, columns)
        added = weights @ to_float32(values)
        out = out * fade + added if torch.is_grad_enabled() else out.mul_(fade).add_(added)
        top = highest
        del scores, weights  # free their memory before the next block
    unseen = total == 0
    return out / total.masked_fill(unseen, 1.0), (top + total.log()).masked_fill(unseen, math.inf)


def chunked(inputs: AttentionInputs, size: int) -> Steps:
    """Exact's output in memory that does not grow with T · S, backward too; time is still O(T·S·D).

    A compiled graph has the same blocks, and saves them for its backward; an exported one computes the whole matrix.
    """
    if torch.compiler.is_exporting():
        return exact(inputs)
    q, k, v = inputs.q, inputs.k, inputs.v
    seed = int(torch.randint(2**31, ())) if inputs.dropout else 0
    blocks, block = Blocks(inputs, size, seed), inputs.block
    if torch.compiler.is_compiling() and not inputs.dropout:
        outs = [_rows(blocks, q[:, :, rows], k, v, rows)[0] for rows in spans(q.shape[2], size)]
        out = torch.cat(outs, dim=2).to(q.dtype)
    else:
        # what the scores read beside q and k, and requires gradients; once, as the context may be x
        modules = (inputs.score, inputs.position, inputs.mask)
        weights = [weight for one in modules if one is not None for weight in one.parameters()]
        read = (*weights, inputs.call_bias, block.x, block.context)
        learned = {id(x): x for x in read if x is not None and x.requires_grad}.values()
        out = _Chunked.apply(blocks, q, k, v, *tree_leaves(block.tables), *learned)
    return Steps(q, k, v, inputs.score.scale, None, None, out)


SPARSE_BLOCK = Param(
    "block", "Block", default=64, low=1, high=1024, step=1, meaning="queries in a block"
)


class Stretches:
    """Keys or values by stretch; split once, so that the backward pass of a stretch does not make whole gradients."""

    def __init__(self, x: Tensor, size: int) -> None:
        self.x, self.size = x, size
        self.blocks = x.split(size, dim=2) if x.requires_grad else ()

    def __getitem__(self, columns: slice) -> Tensor:
        if not self.blocks:
            return self.x[:, :, columns]
        first, last = columns.start // self.size, -(-columns.stop // self.size)
        start = columns.start - first * self.size
        return torch.cat(self.blocks[first:last], dim=2)[
            :, :, start : start + columns.stop - columns.start
        ]


class Local:
    """Exact's output from the planned keys alone: those in reach, as the mask hides all others.

    A mask that reads content is computed once, for the plan and for the attention.
    """

    def __init__(self, config: LayerConfig) -> None:
        self.size, self.reach = int(config.kernel["block"]), reach(config.mask)
        self.solve = exact if why_not_fused(config) else fused
        self.reads_content = config.has("mask", "reads content")
        self.mask_once = self.reads_content and not config.has("mask", "reweighs")

    def plan(self, inputs: AttentionInputs) -> list[Stretch]:
        """The stretches of keys of each block of queries."""
        queries, keys = inputs.q.shape[2], inputs.k.shape[2]
        return band(self.reach, queries, keys, self.size, inputs.block.offset)

    def __call__(self, inputs: AttentionInputs) -> Steps:
        """An exported graph is for any length and any mask, so it computes the whole matrix."""
        if self.mask_once:
            block = replace(inputs.block, key_mask=None)
            inputs = replace(inputs, block=block, mask=None, call_mask=inputs.joined_mask())
        if torch.compiler.is_exporting():
            return self.solve(inputs)
        q, k, v = inputs.q, inputs.k, inputs.v
        keys, values = Stretches(k, self.size), Stretches(v, self.size)

        def solved(rows: slice, part: Tensor, seen: Stretch) -> Tensor:
            """The output of some queries; what it copies is freed before the next."""
            columns: slice | Tensor = seen[0]
            if len(seen) > 1:
                columns = torch.cat(
                    [torch.arange(one.start, one.stop, device=q.device) for one in seen]
                )
            some = [
                x[seen[0]] if len(seen) == 1 else torch.cat([x[one] for one in seen], 2)
                for x in (keys, values)
            ]
            return self.solve(slice_inputs(inputs, rows, columns, part, *some)).out

        blocks = zip(
            spans(q.shape[2], self.size), q.split(self.size, dim=2), self.plan(inputs), strict=True
        )
        out = torch.cat([solved(*block) for block in blocks], dim=2)
        return Steps(q, k, v, inputs.score.scale, None, None, out)


class BlockSparse(Local):
    """The same, of the blocks in which the mask shows a cell; plans of the last lengths are kept, since computing one
    reads every cell."""

    CACHE_SIZE = 8

    def __init__(self, config: LayerConfig) -> None:
        super().__init__(config)
        self.plans: dict[tuple[int, ...], list[Stretch]] = {}

    def plan(self, inputs: AttentionInputs) -> list[Stretch]:
        q, k, v = inputs.q, inputs.k, inputs.v
        given = inputs.call_mask is not None or inputs.block.key_mask is not None
        fixed = not (given or self.reads_content)
        lengths = (q.shape[2], k.shape[2], inputs.block.offset)
        if fixed and lengths in self.plans:
            return self.plans[lengths]
        plan = touched_blocks(
            q.shape[2],
            k.shape[2],
            self.size,
            lambda rows: slice_inputs(inputs, rows, ALL, q[:, :, rows], k, v).joined_mask(),
        )
        if fixed:
            if len(self.plans) >= self.CACHE_SIZE:
                self.plans.pop(next(iter(self.plans)))
            self.plans[lengths] = plan
        return plan


ENTRIES: tuple[Entry, ...] = (
    Entry(
        "fused",
        "Fused",
        build=lambda config: fused,
        latex=r"O(T S D)\ \text{time},\ O(T + S)\ \text{memory}",
        meaning="The same output, computed block by block without storing the weights.",
        paper="Dao et al.",
        year=2022,
        url="https://arxiv.org/abs/2205.14135",
        short="tile by tile",
        traits=frozenset({"same"}),
        cost=fused_cost,
        refuse=why_not_fused,
    ),
    Entry(
        "chunked",
        "Chunked",
        build=lambda config: partial(chunked, size=int(config.kernel["block"])),
        latex=r"m' = \max(m, s_{ij}),\quad l' = e^{m-m'} l + \sum_j e^{s_{ij}-m'},"
        r"\quad o' = e^{m-m'} o + \sum_j e^{s_{ij}-m'} v_j",
        meaning="The same output, computed one block of keys at a time. A running maximum and a running sum replace all "
        "earlier blocks, so memory does not grow with T.",
        paper="Rabe & Staats",
        year=2021,
        url="https://arxiv.org/abs/2112.05682",
        params=(BLOCK,),
        short="{block} keys at a time",
        traits=frozenset({"same"}),
        cost=chunked_cost,
        refuse=refuse_when(
            "chunked",
            not_softmax,
            adds_values,
            whole_rows,
            ranks_keys,
            multiplies_weights,
            combines_heads,
        ),
    ),
    Entry(
        "local",
        "Local band",
        build=Local,
        latex=r"O(T w D)\ \text{time},\ O(T w)\ \text{memory}",
        meaning="Only the band that the mask allows is computed: each block of queries is compared with the keys around it.",
        paper="Beltagy et al.",
        year=2020,
        url="https://arxiv.org/abs/2004.05150",
        params=(SPARSE_BLOCK,),
        short="only the band",
        traits=frozenset({"same"}),
        cost=planned_cost,
        refuse=refuse_when("local", whole_rows, ranks_keys),
    ),
    Entry(
        "block_sparse",
        "Block-sparse",
        build=BlockSparse,
        latex=r"O(n_{\text{touched}}\, b^2 D)\ \text{time}",
        meaning="Only the blocks of the score matrix that have an allowed cell are computed.",
        paper="Child et al.",
        year=2019,
        url="https://arxiv.org/abs/1904.10509",
        params=(SPARSE_BLOCK,),
        short="only blocks with allowed cells",
        traits=frozenset({"same", "reads mask"}),
        cost=planned_cost,
        refuse=refuse_when("block_sparse", whole_rows),
    ),
)
