"""Beam search: the few best beginnings are kept at each step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from core.decoding.filters import no_repeat as without_repeats
from core.decoding.prefix import (
    EOS,
    Decoder,
    EndTokens,
    Prompt,
    Rules,
    allow_all,
    decode_step,
    encode_prompt,
    end_tokens,
    eval_mode,
    length_cap,
    select_rows,
)
from core.decoding.tree import ROOT, Candidate, Tree

WIDEST = 64

Penalty = Callable[[int, float], float]  # the length of an output and α → what its log-probability is divided by


def penalty(length: int, alpha: float) -> float:
    """((5 + length) / 6)^α."""
    return ((5 + length) / 6) ** alpha


def beam(
    model: Decoder, prompt: Prompt, *, width: int = 4, length_penalty: float = 0.0, no_repeat: int = 0,
    max_length: int | None = None, eos: EndTokens = EOS, lp: Penalty = penalty, rules: Rules = allow_all,
) -> Tree:
    """The tree of a beam search; its outputs, at most `width`, are ranked by log-probability / lp(length, α).

    lp is that of Wu 2016, section 7, equation 14, unless told; an α of 0 ranks by log-probability alone, which favours
    the short. `rules` may forbid tokens: −∞ in place of a log-probability. Each step weighs the 2 · width best ways to
    go on: an end mark among the first `width` of them is an output, the first `width` others are kept. It ends once no
    kept beginning can reach the worst of `width` outputs. A width of 1 without a penalty is greedy decoding. ValueError
    for what is out of bounds.
    """
    *_, tree = beam_steps(model, prompt, width=width, length_penalty=length_penalty, no_repeat=no_repeat,
                       max_length=max_length, eos=eos, lp=lp, rules=rules)
    return tree


def beam_steps(
    model: Decoder, prompt: Prompt, *, width: int, length_penalty: float, no_repeat: int, max_length: int | None,
    eos: EndTokens, lp: Penalty = penalty, rules: Rules = allow_all,
) -> Iterator[Tree]:
    """The same search step by step: one tree that grows, and has its outputs at the last step. As `beam` raises."""
    if not 1 <= width <= WIDEST:
        raise ValueError(f"width = {width}; expected 1 to {WIDEST}.")
    if not 0 <= length_penalty <= 5:
        raise ValueError(f"length_penalty = {length_penalty}; expected 0 to 5.")
    longest, tree, active, ends = length_cap(max_length, prompt.mask), Tree(), [ROOT], end_tokens(eos)
    with eval_mode(model):
        memory, state = encode_prompt(model, prompt)
        tokens = torch.tensor([prompt.first_token], device=prompt.mask.device)
        for step in range(longest):
            logits, state = decode_step(model, memory, state, tokens)
            logp = logits.float().log_softmax(-1)
            prefixes = [prompt.prefix_tokens + one for one in tree.prefixes(active)]
            allowed = rules(without_repeats(logp, prefixes, no_repeat), prefixes)
            active, rows = expand_beam(tree, active, logp, allowed, step, width, lp(step + 1, length_penalty), ends)
            if not active or _decided(tree, active, width, lp(longest, length_penalty)):
                break
            yield tree
            state = select_rows(state, torch.tensor(rows, device=tokens.device))
            tokens = torch.tensor([tree.candidates[place].token for place in active], device=tokens.device)
        else:
            for place in active:
                tree.candidates[place].fate = "cut"
                tree.finish(place, tree.candidates[place].total / lp(longest, length_penalty))
    tree.hypotheses = _best(tree, width)
    yield tree


def expand_beam(
    tree: Tree, active: list[int], logp: Tensor, allowed: Tensor, step: int, width: int, over: float,
    ends: frozenset[int],
) -> tuple[list[int], list[int]]:
    """Put the best candidates into the tree; those that are kept, and the rows of the batch that they continue."""
    before = [0.0 if place == ROOT else tree.candidates[place].total for place in active]
    totals = torch.tensor(before, device=logp.device)[:, None] + allowed
    best, places = totals.flatten().topk(min(max(2, 1 + len(ends)) * width, totals.numel()))
    next_active: list[int] = []
    rows: list[int] = []
    for rank, (total, place) in enumerate(zip(best.tolist(), places.tolist(), strict=True)):
        if not math.isfinite(total):
            break
        row, token = divmod(place, logp.shape[1])
        one = Candidate(token, active[row], step, float(logp[row, token]), total)
        index = tree.add(one)
        if token in ends and rank < width:
            one.fate = "ended"
            tree.finish(index, total / over)
        elif token not in ends and len(next_active) < width:
            one.fate = "kept"
            next_active.append(index)
            rows.append(row)
    return next_active, rows


def _best(tree: Tree, width: int) -> list:
    return sorted(tree.hypotheses, key=lambda one: -one.score)[:width]


def _decided(tree: Tree, active: list[int], width: int, largest: float) -> bool:
    """Whether no kept beginning can reach the worst of `width` outputs, even if all it still says were certain."""
    if len(tree.hypotheses) < width:
        return False
    return _best(tree, width)[-1].score >= max(tree.candidates[place].total for place in active) / largest
