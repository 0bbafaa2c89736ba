"""Softmax attention block by block, forward and backward, without ever holding a matrix of T × S.

Rabe & Staats 2021, algorithm 1; Dao et al. 2022, algorithms 1 and 4. A row's running maximum m, sum l and output o
are kept, and each new block of keys rescales them by e^(m − m'). Backward makes a block's weights again from m + log l.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from core.attention.kernels.base import SAME, Problem, Steps, precise, spans
from core.attention.kernels.costs import chunked_cost
from core.attention.kernels.exact import scored
from core.attention.kernels.refusals import adds_values, folded, not_softmax, refused, reweighed, whole_rows
from core.entries import Entry, Param

INFINITY = float("inf")
BLOCK = Param("block", "Block", 256, 1, 4096, 1, meaning="queries and keys that meet at a time")


@dataclass(frozen=True)
class Blocks:
    """A problem cut into blocks of `size` queries and keys; `seed` drops the same weights forward and backward."""

    problem: Problem
    size: int
    seed: int = 0

    def scores(self, q: Tensor, k: Tensor, v: Tensor, rows: slice, columns: slice) -> Tensor | None:
        """What the softmax reads, (B, H, t, s), −∞ where nothing may be seen; None where all of the block is masked."""
        part = self.problem.part(rows, columns, q, k, v)
        allowed = part.allowed()
        if allowed is not None and not bool(allowed.any()):
            return None
        scores = precise(scored(part)[-1]) / part.normalizer.temperature
        return scores if allowed is None else scores.masked_fill(~allowed, -INFINITY)

    def kept(self, weights: Tensor, rows: slice, columns: slice) -> Tensor:
        """1 / (1 − dropout) where a weight is kept, 0 where it is dropped."""
        place = torch.Generator(weights.device).manual_seed(hash((self.seed, rows.start, columns.start)))
        drawn = torch.rand(weights.shape, generator=place, device=weights.device, dtype=weights.dtype)
        return (drawn >= self.problem.dropout).to(weights.dtype) / (1.0 - self.problem.dropout)


class _Chunked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, blocks: Blocks, q: Tensor, k: Tensor, v: Tensor, *read: Tensor) -> Tensor:
        """`read` are the position's tables, and then what is learned."""
        out = q.new_empty(*q.shape[:3], v.shape[-1])
        norm = precise(q.new_empty(*q.shape[:3], 1))  # log of each row's sum: weights = e^(scores − norm)
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
        found = [torch.zeros_like(x, dtype=precise(x).dtype) for x in (q, k, v, *learned)]
        delta = (precise(grad) * out).sum(-1, keepdim=True)  # Σ_j w_ij ∂w_ij: what the softmax takes off each row
        for rows in spans(q.shape[2], blocks.size):
            row = (precise(grad[:, :, rows]), norm[:, :, rows], delta[:, :, rows])
            for columns in spans(k.shape[2], blocks.size):
                _add_block(blocks, (q, k, v), learned, found, row, rows, columns)
        return None, *(total.to(x.dtype) for total, x in zip(found, (q, k, v, *learned), strict=True))


def with_leaves(blocks: Blocks, read: list[Tensor]) -> tuple[Blocks, list[Tensor]]:
    """The blocks with tables of their own, so that a block's gradient ends at them and not at what made them."""
    problem, count = blocks.problem, len(blocks.problem.cells.tables)
    tables = [table.detach().requires_grad_() for table in read[:count]]
    cells = replace(problem.cells, tables=tuple(tables))
    return replace(blocks, problem=replace(problem, cells=cells)), [*tables, *read[count:]]


def _rows(blocks: Blocks, q: Tensor, k: Tensor, v: Tensor, rows: slice) -> tuple[Tensor, Tensor]:
    """The output of some queries, and the logarithm of each one's sum (+∞ for a row that sees no key)."""
    top = precise(q.new_full((*q.shape[:3], 1), -INFINITY))
    total, out = torch.zeros_like(top), precise(q.new_zeros(*q.shape[:3], v.shape[-1]))
    for columns in spans(k.shape[2], blocks.size):
        values = v[:, :, columns]
        scores = blocks.scores(q, k[:, :, columns], values, rows, columns)
        if scores is None:
            continue
        highest = torch.maximum(top, scores.amax(-1, keepdim=True))
        safe = highest.masked_fill(highest == -INFINITY, 0.0)  # −∞ − (−∞) would be NaN
        weights, fade = (scores - safe).exp_(), (top - safe).exp_()
        total = total * fade + weights.sum(-1, keepdim=True)
        if blocks.problem.dropout:
            weights = weights * blocks.kept(weights, rows, columns)
        out.mul_(fade).add_(weights @ precise(values))
        top = highest
        del scores, weights  # else they would stand beside those of the next block
    unseen = total == 0
    norm = (top + total.log()).masked_fill(unseen, INFINITY)
    return out / total.masked_fill(unseen, 1.0), norm


def _add_block(
    blocks: Blocks, qkv: tuple[Tensor, Tensor, Tensor], learned: list[Tensor], found: list[Tensor],
    row: tuple[Tensor, Tensor, Tensor], rows: slice, columns: slice,
) -> None:
    """Add one block's share to the gradients of q, k, v and of what is learned."""
    values, (grad, norm, delta) = qkv[2][:, :, columns], row
    q, k = (x.detach().requires_grad_() for x in (qkv[0][:, :, rows], qkv[1][:, :, columns]))
    with torch.enable_grad():
        scores = blocks.scores(q, k, values, rows, columns)
    if scores is None:
        return
    weights = (scores.detach() - norm).exp_()
    felt, used = grad @ precise(values).mT, weights
    if blocks.problem.dropout:
        kept = blocks.kept(weights, rows, columns)
        felt, used = felt * kept, weights * kept
    found[2][:, :, columns] += used.mT @ grad
    parts = torch.autograd.grad(scores, [q, k, *learned], weights * (felt - delta), allow_unused=True)
    for total, part in zip((found[0][:, :, rows], found[1][:, :, columns], *found[3:]), parts, strict=True):
        if part is not None:
            total += part


def learned_tensors(problem: Problem) -> list[Tensor]:
    """What the scores read beside q and k, where gradients are wanted: weights, a given bias, the layer's inputs."""
    pieces = [piece for piece in (problem.score, problem.position, problem.mask) if piece is not None]
    weights = [weight for piece in pieces for weight in piece.parameters()]
    others = (problem.added, problem.cells.x, problem.cells.context)
    # By identity, since in self-attention the context is x.
    found = {id(x): x for x in (*weights, *others) if x is not None and x.requires_grad}
    return list(found.values())


def chunked(problem: Problem, size: int) -> Steps:
    """Exact's output in memory that does not grow with T · S, backward too; time is still O(T·S·D)."""
    q, k, v = problem.q, problem.k, problem.v
    seed = int(torch.randint(2**31, ())) if problem.dropout else 0
    out = _Chunked.apply(Blocks(problem, size, seed), q, k, v, *problem.cells.tables, *learned_tensors(problem))
    return Steps(q, k, v, problem.score.scale, None, None, out)


def _build(config: Any) -> Callable[[Problem], Steps]:
    return partial(chunked, size=int(config.kernel["block"] if config else BLOCK.default))


CHUNKED = Entry(
    "chunked", "Chunked", _build,
    r"m' = \max(m, s_{ij}),\quad l' = e^{m-m'} l + \sum_j e^{s_{ij}-m'},"
    r"\quad o' = e^{m-m'} o + \sum_j e^{s_{ij}-m'} v_j",
    "The same output from one block of keys at a time: a running maximum and sum stand for all blocks before, so that "
    "memory stays flat while T grows.", "Rabe & Staats", 2021, "https://arxiv.org/abs/2112.05682", (BLOCK,),
    short="{block} keys at a time", traits=SAME, cost=chunked_cost,
    refuse=refused("chunked", not_softmax, adds_values, whole_rows, reweighed, folded))
