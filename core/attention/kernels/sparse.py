"""Kernels that compute only what the mask shows: a band (local), or any blocks (block-sparse).

Each block of queries, with the keys that one of them may see, is a smaller attention, computed by the fused kernel
where PyTorch can, else by the exact one; the outputs are concatenated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor

from core.attention.kernels.base import SAME, slice_inputs, spans
from core.attention.kernels.exact import AttentionInputs, Steps, exact
from core.attention.kernels.fused import fused, why_not_fused
from core.attention.kernels.planned_costs import blocks_seen, gathered_cost
from core.attention.kernels.plans import (
    EVERYTHING,
    Band,
    MaskGeometry,
    Plan,
    Stretch,
    Touched,
    reach,
)
from core.attention.kernels.refusals import ranks_keys, refuse_when, whole_rows
from core.entries import Area, Cost, Entry, LayerConfig, Param

Solve = Callable[[AttentionInputs], Steps]
BLOCK = Param("block", "Block", 64, 1, 1024, 1, meaning="queries in a block")


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


def attend_planned(inputs: AttentionInputs, size: int, plan: Plan, solve: Solve = fused) -> Steps:
    """Exact's output from the planned keys alone; the mask must hide all others.

    An exported graph is for any length and any mask, so it computes the whole matrix.
    """
    if torch.compiler.is_exporting():
        return solve(inputs)
    q, k, v = inputs.q, inputs.k, inputs.v
    keys, values = Stretches(k, size), Stretches(v, size)
    planned = zip(
        spans(q.shape[2], size),
        q.split(size, dim=2),
        plan(MaskGeometry.of(inputs), size),
        strict=True,
    )
    outs = [
        solve(restrict(inputs, rows, part_q, keys, values, seen)).out
        for rows, part_q, seen in planned
    ]
    return Steps(q, k, v, inputs.score.scale, None, None, torch.cat(outs, dim=2))


def restrict(
    inputs: AttentionInputs,
    rows: slice,
    q: Tensor,
    keys: Stretches,
    values: Stretches,
    seen: Stretch,
) -> AttentionInputs:
    """The inputs restricted to some queries and the stretches of keys that they see."""
    if len(seen) == 1:
        return slice_inputs(inputs, rows, seen[0], q, keys[seen[0]], values[seen[0]])
    columns = torch.cat(
        [torch.arange(stretch.start, stretch.stop, device=q.device) for stretch in seen]
    )
    k, v = (torch.cat([x[stretch] for stretch in seen], 2) for x in (keys, values))
    return slice_inputs(inputs, rows, columns, q, k, v)


class PlannedKernel:
    """A kernel that follows a plan. Without a config, as in attend, the fused kernel can do all choices.

    A mask that reads content is computed once, for the plan and for the attention.
    """

    def __init__(self, config: LayerConfig, plan: Plan) -> None:
        self.size, self.plan = int(config.kernel["block"] if config else BLOCK.default), plan
        self.solve: Solve = exact if config and why_not_fused(config) else fused
        self.mask_once = config is not None and computes_mask_once(config)

    def __call__(self, inputs: AttentionInputs) -> Steps:
        if self.mask_once:
            block = replace(inputs.block, key_mask=None)
            inputs = replace(inputs, block=block, mask=None, call_mask=inputs.joined_mask())
        return attend_planned(inputs, self.size, self.plan, self.solve)


def computes_mask_once(config: LayerConfig) -> bool:
    """Whether the mask reads content, and does no more than hide keys."""
    return config.has("mask", "reads content") and not config.has("mask", "reweighs")


def _local(config: LayerConfig) -> PlannedKernel:
    """The whole row is in reach where the mask has no band, and in attend, whose mask is any matrix."""
    before, after = reach(config.mask) if config else EVERYTHING
    return PlannedKernel(config, Band(before, after))


def _block_sparse(config: LayerConfig) -> PlannedKernel:
    return PlannedKernel(config, Touched())


@lru_cache(maxsize=256)
def _local_cost(config: LayerConfig, area: Area) -> Cost:
    geometry = MaskGeometry(area.queries, area.keys, 0, lambda rows: None)
    met = Band(*reach(config.mask))(geometry, int(config.kernel["block"]))
    return gathered_cost(config, area, met, why_not_fused(config) is None)


@lru_cache(maxsize=256)
def _block_sparse_cost(config: LayerConfig, area: Area) -> Cost:
    """A mask that reads content may show anything, so every block counts; one that multiplies weights, too, is computed
    for the plan and once more."""
    every: list[Stretch] = [(slice(0, area.keys),)] * -(
        -area.queries // int(config.kernel["block"])
    )
    content, masks = config.has("mask", "reads content"), 1
    if content and not computes_mask_once(config):
        masks = 2
    met = every if content else blocks_seen(config, area)
    return gathered_cost(config, area, met, why_not_fused(config) is None, masks)


LOCAL = Entry(
    "local",
    "Local band",
    _local,
    r"O(T w D)\ \text{time},\ O(T w)\ \text{memory}",
    "Only the band that the mask allows is computed: each block of queries is compared with the keys around it.",
    "Beltagy et al.",
    2020,
    "https://arxiv.org/abs/2004.05150",
    (BLOCK,),
    short="only the band",
    traits=SAME,
    cost=_local_cost,
    refuse=refuse_when("local", whole_rows, ranks_keys),
)
BLOCK_SPARSE = Entry(
    "block_sparse",
    "Block-sparse",
    _block_sparse,
    r"O(n_{\text{touched}}\, b^2 D)\ \text{time}",
    "Only the blocks of the score matrix that have an allowed cell are computed.",
    "Child et al.",
    2019,
    "https://arxiv.org/abs/1904.10509",
    (BLOCK,),
    short="only blocks with allowed cells",
    traits=SAME | {"reads mask"},
    cost=_block_sparse_cost,
    refuse=refuse_when("block_sparse", whole_rows),
)
