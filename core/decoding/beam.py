"""Beam search: at each step only the best prefixes are kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from core.decoding.prefix import (
    EOS,
    Decoder,
    EndTokens,
    Prompt,
    Rules,
    Search,
    allow_all,
    end_tokens,
    eval_mode,
    last_tree,
    length_cap,
)
from core.decoding.tree import ROOT, Candidate, Hypothesis, Tree

WIDEST = 64

Penalty = Callable[
    [int, float], float
]  # the length of an output and α → the divisor of its log-probability


def penalty(length: int, alpha: float) -> float:
    """((5 + length) / 6)^α."""
    return ((5 + length) / 6) ** alpha


def beam_steps(
    model: Decoder,
    prompt: Prompt,
    *,
    width: int = 4,
    length_penalty: float = 0.0,
    no_repeat: int = 0,
    max_length: int | None = None,
    eos: EndTokens = EOS,
    lp: Penalty = penalty,
    rules: Rules = allow_all,
) -> Iterator[Tree]:
    """The tree of a beam search after each step; the last one has the outputs, at most `width`, ranked by
    log-probability / lp(length, α).

    By default lp is that of Wu 2016, section 7, equation 14; an α of 0 ranks by log-probability alone, which favours
    short outputs. `rules` may forbid tokens by −∞. Each step considers the 2 · width best candidates: an end mark among
    the first `width` of them is an output, the first `width` others are kept. The search ends once no kept candidate
    can reach the worst of `width` outputs. A width of 1 without a penalty is greedy decoding. ValueError for a setting
    out of bounds.
    """
    if not 1 <= width <= WIDEST:
        raise ValueError(f"width = {width}; expected 1 to {WIDEST}.")
    if not 0 <= length_penalty <= 5:
        raise ValueError(f"length_penalty = {length_penalty}; expected 0 to 5.")
    longest, ends = length_cap(max_length, prompt.mask), end_tokens(eos)
    with eval_mode(model):
        search = Search(model, prompt, no_repeat, rules)
        tree = search.tree
        for step in range(longest):
            logp, allowed = search.next_logp()
            active = expand_beam(
                tree, search.active, logp, allowed, step, width, lp(step + 1, length_penalty), ends
            )
            if not active or _decided(tree, active, width, lp(longest, length_penalty)):
                break
            yield tree
            search.advance(active)
        else:
            for index in search.active:
                tree.candidates[index].fate = "cut"
                tree.finish(index, tree.candidates[index].total / lp(longest, length_penalty))
    tree.hypotheses = _best(tree, width)
    yield tree


beam = last_tree(beam_steps)


def expand_beam(
    tree: Tree,
    active: list[int],
    logp: Tensor,
    allowed: Tensor,
    step: int,
    width: int,
    divisor: float,
    ends: frozenset[int],
) -> list[int]:
    """Add the best candidates to the tree; the kept ones."""
    before = [0.0 if index == ROOT else tree.candidates[index].total for index in active]
    totals = torch.tensor(before, device=logp.device)[:, None] + allowed
    best, cells = totals.flatten().topk(min(max(2, 1 + len(ends)) * width, totals.numel()))
    next_active: list[int] = []
    for rank, (total, cell) in enumerate(zip(best.tolist(), cells.tolist(), strict=True)):
        if not math.isfinite(total):
            break
        row, token = divmod(cell, logp.shape[1])
        candidate = Candidate(token, active[row], step, float(logp[row, token]), total)
        index = tree.add(candidate)
        if token in ends and rank < width:
            candidate.fate = "ended"
            tree.finish(index, total / divisor)
        elif token not in ends and len(next_active) < width:
            candidate.fate = "kept"
            next_active.append(index)
    return next_active


def _best(tree: Tree, width: int) -> list[Hypothesis]:
    return sorted(tree.hypotheses, key=lambda hypothesis: -hypothesis.score)[:width]


def _decided(tree: Tree, active: list[int], width: int, largest: float) -> bool:
    """Whether no kept candidate can reach the worst of `width` outputs, even with certain tokens only."""
    if len(tree.hypotheses) < width:
        return False
    return (
        _best(tree, width)[-1].score
        >= max(tree.candidates[index].total for index in active) / largest
    )
