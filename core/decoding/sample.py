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

MOST, PASSED_OVER = 200, 3


def sample(
    model: Decoder, prompt: Prompt, generator: torch.Generator, *, samples: int = 8, sampling: Sampling | None = None,
    no_repeat: int = 0, max_length: int | None = None, eos: EndTokens = EOS, rules: Rules = allow_all,
) -> Tree:
    """The tree of `samples` independent draws; its outputs are ranked by how often they were drawn.

    Beside each drawn token stand the likeliest that were not. The same for the same generator state (a CPU one).
    `rules` may forbid tokens: −∞ in place of a log-probability. ValueError for what is out of bounds.
    """
    *_, tree = sample_steps(model, prompt, generator, samples=samples, sampling=sampling or Sampling(),
                            no_repeat=no_repeat, max_length=max_length, eos=eos, rules=rules)
    return tree


def sample_steps(
    model: Decoder, prompt: Prompt, generator: torch.Generator, *, samples: int, sampling: Sampling, no_repeat: int,
    max_length: int | None, eos: EndTokens, rules: Rules = allow_all,
) -> Iterator[Tree]:
    """The same draws step by step: one tree that grows, its outputs ranked at the last step. As `sample` raises."""
    if not 1 <= samples <= MOST:
        raise ValueError(f"samples = {samples}; expected 1 to {MOST}.")
    tree, active, counts, ends, device = Tree(), [ROOT], [samples], end_tokens(eos), prompt.mask.device
    with eval_mode(model):
        memory, state = encode_prompt(model, prompt)
        tokens = torch.tensor([prompt.first_token], device=device)
        longest = length_cap(max_length, prompt.mask)
        for step in range(longest):
            logits, state = decode_step(model, memory, state, tokens)
            logp = logits.float().log_softmax(-1).cpu()
            prefixes = [prompt.prefix_tokens + one for one in tree.prefixes(active)]
            reshaped = sampling.reshape(rules(without_repeats(logp, prefixes, no_repeat), prefixes))
            active, rows = _draw(tree, active, counts, logp, reshaped, step, generator, ends, step == longest - 1)
            if not active:
                break
            yield tree
            counts = [tree.candidates[place].samples for place in active]
            state = select_rows(state, torch.tensor(rows, device=device))
            tokens = torch.tensor([tree.candidates[place].token for place in active], device=device)
    tree.hypotheses.sort(key=lambda one: (-one.samples, -one.logp))
    yield tree


def _draw(
    tree: Tree, active: list[int], counts: list[int], logp: Tensor, reshaped: Tensor, step: int,
    generator: torch.Generator, ends: frozenset[int], last: bool,
) -> tuple[list[int], list[int]]:
    """Draw for every sample; the candidates to go on with, and the rows of the batch that they continue."""
    next_active: list[int] = []
    rows: list[int] = []
    for row, (place, count) in enumerate(zip(active, counts, strict=True)):
        chances = reshaped[row].softmax(-1)
        draws = torch.multinomial(chances, count, replacement=True, generator=generator)
        draws = draws.bincount(minlength=len(chances))
        before = 0.0 if place == ROOT else tree.candidates[place].total
        for token in _candidate_tokens(chances, draws):
            own, times = float(logp[row, token]), int(draws[token])
            fate = "dropped" if not times else "ended" if token in ends else "cut" if last else "kept"
            index = tree.add(Candidate(token, place, step, own, before + own, fate, times, float(chances[token])))
            if fate == "kept":
                next_active.append(index)
                rows.append(row)
            elif times:
                tree.finish(index, float(times))
    return next_active, rows


def _candidate_tokens(chances: Tensor, draws: Tensor) -> list[int]:
    """The tokens that were drawn and a few likely ones that were not, the likeliest first."""
    likeliest = chances.masked_fill(draws > 0, -1.0).topk(min(PASSED_OVER, len(chances))).indices.tolist()
    tokens = draws.nonzero()[:, 0].tolist() + [token for token in likeliest if not draws[token] and chances[token] > 0]
    return sorted(tokens, key=lambda token: -float(chances[token]))
