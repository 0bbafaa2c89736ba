"""Softmax attention block by block, forward and backward, without ever holding a matrix of T × S.

Rabe & Staats 2021, algorithm 1; Dao et al. 2022, algorithms 1 and 4. Each row has a running maximum m, sum l and
output o, which each new block of keys rescales by e^(m − m'). Backward recomputes a block's weights from m + log l.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from core.attention.kernels.base import SAME, slice_inputs, spans, to_float32
from core.attention.kernels.exact import AttentionInputs, Steps, compute_scores, exact
from core.attention.kernels.planned_costs import chunked_cost
from core.attention.kernels.refusals import (
    adds_values,
    combines_heads,
    multiplies_weights,
    not_softmax,
    ranks_keys,
    refuse_when,
    whole_rows,
)
from core.entries import Entry, LayerConfig, Param

INFINITY = float("inf")
BLOCK = Param("block", "Block", 256, 1, 4096, 1, meaning="queries and keys in a block")


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
        return scores if allowed is None else scores.masked_fill(~allowed, -INFINITY)

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
        norm = to_float32(
            q.new_empty(*q.shape[:3], 1)
        )  # log of each row's sum: weights = e^(scores − norm)
        for rows in spans(q.shape[2], blocks.size):
            out[:, :, rows], norm[:, :, rows] = _rows(blocks, q[:, :, rows], k, v, rows)
        ctx.blocks = blocks
        ctx.save_for_backward(q, k, v, out, norm, *read)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, norm, *read = ctx.saved_tensors
        blocks, learned = with_leaves(ctx.blocks, read)
        grads = [torch.zeros_like(x, dtype=to_float32(x).dtype) for x in (q, k, v, *learned)]
        delta = (to_float32(grad) * out).sum(
            -1, keepdim=True
        )  # Σ_j w_ij ∂w_ij, of the softmax's gradient
        for rows in spans(q.shape[2], blocks.size):
            row = (to_float32(grad[:, :, rows]), norm[:, :, rows], delta[:, :, rows])
            for columns in spans(k.shape[2], blocks.size):
                _add_block(blocks, (q, k, v), learned, grads, row, rows, columns)
        return None, *(
            total.to(x.dtype) for total, x in zip(grads, (q, k, v, *learned), strict=True)
        )


def with_leaves(blocks: Blocks, read: list[Tensor]) -> tuple[Blocks, list[Tensor]]:
    """The blocks with detached tables, at which the gradient of a block ends, and all learned tensors."""
    inputs, count = blocks.inputs, len(blocks.inputs.block.tables)
    tables = [table.detach().requires_grad_() for table in read[:count]]
    block = replace(inputs.block, tables=tuple(tables))
    return replace(blocks, inputs=replace(inputs, block=block)), [*tables, *read[count:]]


def _rows(blocks: Blocks, q: Tensor, k: Tensor, v: Tensor, rows: slice) -> tuple[Tensor, Tensor]:
    """The output of some queries, and the logarithm of each one's sum (+∞ for a row that sees no key)."""
    top = to_float32(q.new_full((*q.shape[:3], 1), -INFINITY))
    total, out = torch.zeros_like(top), to_float32(q.new_zeros(*q.shape[:3], v.shape[-1]))
    for columns in spans(k.shape[2], blocks.size):
        values = v[:, :, columns]
        scores = blocks.scores(q, k[:, :, columns], values, rows, columns)
        if scores is None:
            continue
        highest = torch.maximum(top, scores.amax(-1, keepdim=True))
        safe = highest.masked_fill(highest == -INFINITY, 0.0)  # −∞ − (−∞) would be NaN
        weights, fade = (scores - safe).exp_(), (top - safe).exp_()
        total = total * fade + weights.sum(-1, keepdim=True)
        if blocks.inputs.dropout:
            weights = weights * blocks.dropout_factor(weights, rows, columns)
        added = weights @ to_float32(values)
        out = out * fade + added if torch.is_grad_enabled() else out.mul_(fade).add_(added)
        top = highest
        del scores, weights  # free their memory before the next block
    unseen = total == 0
    norm = (top + total.log()).masked_fill(unseen, INFINITY)
    return out / total.masked_fill(unseen, 1.0), norm


def _add_block(
    blocks: Blocks,
    qkv: tuple[Tensor, Tensor, Tensor],
    learned: list[Tensor],
    grads: list[Tensor],
    row: tuple[Tensor, Tensor, Tensor],
    rows: slice,
    columns: slice,
) -> None:
    """Add the gradients of one block to those of q, k, v and the learned tensors."""
    values, (grad, norm, delta) = qkv[2][:, :, columns], row
    q, k = (x.detach().requires_grad_() for x in (qkv[0][:, :, rows], qkv[1][:, :, columns]))
    with torch.enable_grad():
        scores = blocks.scores(q, k, values, rows, columns)
    if scores is None:
        return
    weights = (scores.detach() - norm).exp_()
    weights_grad, dropped = grad @ to_float32(values).mT, weights
    if blocks.inputs.dropout:
        factor = blocks.dropout_factor(weights, rows, columns)
        weights_grad, dropped = weights_grad * factor, weights * factor
    grads[2][:, :, columns] += dropped.mT @ grad
    parts = torch.autograd.grad(
        scores, [q, k, *learned], weights * (weights_grad - delta), allow_unused=True
    )
    for total, part in zip(
        (grads[0][:, :, rows], grads[1][:, :, columns], *grads[3:]), parts, strict=True
    ):
        if part is not None:
            total += part


def learned_tensors(inputs: AttentionInputs) -> list[Tensor]:
    """The tensors beside q and k that the scores read and that require gradients: weights, the bias, x and context."""
    modules = [
        module for module in (inputs.score, inputs.position, inputs.mask) if module is not None
    ]
    weights = [weight for module in modules for weight in module.parameters()]
    tensors = (*weights, inputs.call_bias, inputs.block.x, inputs.block.context)
    unique = {
        id(x): x for x in tensors if x is not None and x.requires_grad
    }  # the context may be x
    return list(unique.values())


def chunked(inputs: AttentionInputs, size: int) -> Steps:
    """Exact's output in memory that does not grow with T · S, backward too; time is still O(T·S·D).

    A compiled graph has the same blocks, and saves them for its backward; an exported one computes the whole matrix.
    """
    if torch.compiler.is_exporting():
        return exact(inputs)
    q, k, v = inputs.q, inputs.k, inputs.v
    seed = int(torch.randint(2**31, ())) if inputs.dropout else 0
    blocks = Blocks(inputs, size, seed)
    if torch.compiler.is_compiling() and not inputs.dropout:
        outs = [_rows(blocks, q[:, :, rows], k, v, rows)[0] for rows in spans(q.shape[2], size)]
        out = torch.cat(outs, dim=2).to(q.dtype)
    else:
        out = _Chunked.apply(blocks, q, k, v, *inputs.block.tables, *learned_tensors(inputs))
    return Steps(q, k, v, inputs.score.scale, None, None, out)


def _build(config: LayerConfig) -> Callable[[AttentionInputs], Steps]:
    return partial(chunked, size=int(config.kernel["block"] if config else BLOCK.default))


CHUNKED = Entry(
    "chunked",
    "Chunked",
    _build,
    r"m' = \max(m, s_{ij}),\quad l' = e^{m-m'} l + \sum_j e^{s_{ij}-m'},"
    r"\quad o' = e^{m-m'} o + \sum_j e^{s_{ij}-m'} v_j",
    "The same output, computed one block of keys at a time. A running maximum and a running sum replace all earlier "
    "blocks, so memory does not grow with T.",
    "Rabe & Staats",
    2021,
    "https://arxiv.org/abs/2112.05682",
    (BLOCK,),
    short="{block} keys at a time",
    traits=SAME,
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
)
