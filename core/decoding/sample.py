"""Sampling: tokens are drawn, and samples that begin alike are computed once."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from core.decoding.filters import Sampling
from core.decoding.filters import no_repeat as without_repeats
from core.decoding.prefix import (
    EOS,
    Decoder,
    Ends,
    Prompt,
    Rules,
    anything,
    begin,
    ends_of,
    feed,
    judging,
    longest_of,
    pick,
)
from core.decoding.tree import ROOT, Candidate, Tree

MOST, PASSED_OVER = 200, 3


def sample(
    model: Decoder, prompt: Prompt, generator: torch.Generator, *, samples: int = 8, how: Sampling | None = None,
    no_repeat: int = 0, max_length: int | None = None, eos: Ends = EOS, rules: Rules = anything,
) -> Tree:
    """The tree of `samples` independent draws; its outputs are ranked by how often they were drawn.

    Beside each drawn token stand the likeliest that were not. The same for the same generator state (a CPU one).
    `rules` may forbid tokens: −∞ in place of a log-probability. ValueError for what is out of bounds.
    """
    *_, tree = sampling(model, prompt, generator, samples=samples, how=how or Sampling(), no_repeat=no_repeat,
                        max_length=max_length, eos=eos, rules=rules)
    return tree


def sampling(
    model: Decoder, prompt: Prompt, generator: torch.Generator, *, samples: int, how: Sampling, no_repeat: int,
    max_length: int | None, eos: Ends, rules: Rules = anything,
) -> Iterator[Tree]:
    """The same draws step by step: one tree that grows, its outputs ranked at the last step. As `sample` raises."""
    if not 1 <= samples <= MOST:
        raise ValueError(f"samples = {samples}; expected 1 to {MOST}.")
    tree, kept, counts, ends, device = Tree(), [ROOT], [samples], ends_of(eos), prompt.mask.device
    with judging(model):
        memory, state = begin(model, prompt)
        tokens = torch.tensor([prompt.begin], device=device)
        longest = longest_of(max_length, prompt.mask)
        for step in range(longest):
            logits, state = feed(model, memory, state, tokens)
            logp = logits.float().log_softmax(-1).cpu()
            said = [prompt.said + one for one in tree.said(kept)]
            asked = how.reshape(rules(without_repeats(logp, said, no_repeat), said))
            kept, rows = _draw(tree, kept, counts, logp, asked, step, generator, ends, step == longest - 1)
            if not kept:
                break
            yield tree
            counts = [tree.candidates[place].drawn for place in kept]
            state = pick(state, torch.tensor(rows, device=device))
            tokens = torch.tensor([tree.candidates[place].token for place in kept], device=device)
    tree.hypotheses.sort(key=lambda one: (-one.drawn, -one.logp))
    yield tree


def _draw(
    tree: Tree, kept: list[int], counts: list[int], logp: Tensor, asked: Tensor, step: int,
    generator: torch.Generator, ends: frozenset[int], last: bool,
) -> tuple[list[int], list[int]]:
    """Draw for every sample; the candidates to go on with, and the rows of the batch that they continue."""
    found: list[int] = []
    rows: list[int] = []
    for row, (place, count) in enumerate(zip(kept, counts, strict=True)):
        chances = asked[row].softmax(-1)
        drawn = torch.multinomial(chances, count, replacement=True, generator=generator)
        drawn = drawn.bincount(minlength=len(chances))
        before = 0.0 if place == ROOT else tree.candidates[place].total
        for token in _shown(chances, drawn):
            own, times = float(logp[row, token]), int(drawn[token])
            fate = "dropped" if not times else "ended" if token in ends else "cut" if last else "kept"
            index = tree.add(Candidate(token, place, step, own, before + own, fate, times, float(chances[token])))
            if fate == "kept":
                found.append(index)
                rows.append(row)
            elif times:
                tree.finish(index, float(times))
    return found, rows


def _shown(chances: Tensor, drawn: Tensor) -> list[int]:
    """The tokens that were drawn and a few likely ones that were not, the likeliest first."""
    likeliest = chances.masked_fill(drawn > 0, -1.0).topk(min(PASSED_OVER, len(chances))).indices.tolist()
    tokens = drawn.nonzero()[:, 0].tolist() + [token for token in likeliest if not drawn[token] and chances[token] > 0]
    return sorted(tokens, key=lambda token: -float(chances[token]))
