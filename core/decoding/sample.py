"""Sampling: tokens are drawn, and samples with the same prefix are computed once."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from core.decoding.filters import Sampling
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
from core.decoding.tree import ROOT, Candidate, Tree

MOST, PASSED_OVER = 200, 3


def sample_steps(
    model: Decoder,
    prompt: Prompt,
    generator: torch.Generator,
    *,
    samples: int = 8,
    sampling: Sampling | None = None,
    no_repeat: int = 0,
    max_length: int | None = None,
    eos: EndTokens = EOS,
    rules: Rules = allow_all,
) -> Iterator[Tree]:
    """The tree of `samples` independent draws after each step; the last one has the outputs, ranked by their counts.

    Beside the drawn tokens stand the likeliest others. The same state of the generator (a CPU one) gives the same tree.
    `rules` may forbid tokens by −∞. ValueError for a setting out of bounds.
    """
    if not 1 <= samples <= MOST:
        raise ValueError(f"samples = {samples}; expected 1 to {MOST}.")
    sampling, ends = sampling or Sampling(), end_tokens(eos)
    with eval_mode(model):
        search = Search(model, prompt, no_repeat, rules)
        tree, counts, longest = search.tree, [samples], length_cap(max_length, prompt.mask)
        for step in range(longest):
            logp, allowed = (tensor.cpu() for tensor in search.next_logp())
            active = _draw(
                tree,
                search.active,
                counts,
                logp,
                sampling.reshape(allowed),
                step,
                generator,
                ends,
                step == longest - 1,
            )
            if not active:
                break
            yield tree
            counts = [tree.candidates[index].samples for index in active]
            search.advance(active)
    tree.hypotheses.sort(key=lambda hypothesis: (-hypothesis.samples, -hypothesis.logp))
    yield tree


sample = last_tree(sample_steps)


def _draw(
    tree: Tree,
    active: list[int],
    counts: list[int],
    logp: Tensor,
    reshaped: Tensor,
    step: int,
    generator: torch.Generator,
    ends: frozenset[int],
    last: bool,
) -> list[int]:
    """Draw a token for every sample; the candidates to continue."""
    next_active: list[int] = []
    for row, (parent, count) in enumerate(zip(active, counts, strict=True)):
        chances = reshaped[row].softmax(-1)
        draws = torch.multinomial(chances, count, replacement=True, generator=generator)
        draws = draws.bincount(minlength=len(chances))
        before = 0.0 if parent == ROOT else tree.candidates[parent].total
        for token in _candidate_tokens(chances, draws):
            score, times = float(logp[row, token]), int(draws[token])
            fate = (
                "dropped" if not times else "ended" if token in ends else "cut" if last else "kept"
            )
            index = tree.add(
                Candidate(
                    token, parent, step, score, before + score, fate, times, float(chances[token])
                )
            )
            if fate == "kept":
                next_active.append(index)
            elif times:
                tree.finish(index, float(times))
    return next_active


def _candidate_tokens(chances: Tensor, draws: Tensor) -> list[int]:
    """The drawn tokens and PASSED_OVER likely others, the likeliest first."""
    likeliest = (
        chances.masked_fill(draws > 0, -1.0).topk(min(PASSED_OVER, len(chances))).indices.tolist()
    )
    tokens = draws.nonzero()[:, 0].tolist() + [
        token for token in likeliest if not draws[token] and chances[token] > 0
    ]
    return sorted(tokens, key=lambda token: -float(chances[token]))
