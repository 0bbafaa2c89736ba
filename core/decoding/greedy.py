"""Greedy decoding of a padded batch: the likeliest token at each step."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn.functional import pad as filled

from core.decoding.prefix import BOS, EOS, PAD, eval_mode, length_cap
from core.models.base import Seq2Seq


@torch.no_grad()
def greedy(
    model: Seq2Seq, source: Tensor, source_mask: Bool[Tensor, ...], max_length: int | None = None, *,
    begin: Int[Tensor, " B"] | None = None, bos: int = BOS, eos: int = EOS, pad: int = PAD,
) -> Int[Tensor, "B L"]:
    """The likeliest token at each step for source (B, S) or (B, S, D) and source_mask (B, S).

    Each row ends on EOS, then PAD fills up; a row without EOS was cut. A row has at most `max_length` tokens; by
    default, where no task says how long a target is, two more than twice its own source. `begin` is fed first instead
    of the start mark. Nothing is dropped out, whatever mode the model is in. A model that reads sources of one length
    is given them length by length. ValueError when sizes do not fit.
    """
    if source_mask.dim() != 2 or source.shape[:2] != source_mask.shape:
        raise ValueError("source and source_mask are both (B, S), and source may have numbers at each place; got "
                         f"{tuple(source.shape)} and {tuple(source_mask.shape)}.")
    longest = length_cap(max_length, source_mask)
    caps = 2 * source_mask.sum(1) + 2
    if max_length is not None:
        caps = torch.full_like(caps, longest)
    begin = torch.full_like(source_mask[:, 0], bos, dtype=torch.long) if begin is None else begin
    with eval_mode(model):
        if not getattr(model, "one_length", False):
            return _greedy(model, source, source_mask, begin, caps, eos, pad)
        lengths, parts = source_mask.sum(1), {}
        for length in lengths.unique().tolist():
            rows = (lengths == length).nonzero()[:, 0]
            parts[length] = rows, _greedy(
                model, source[rows, :length], source_mask[rows, :length], begin[rows], caps[rows], eos, pad)
        width = max(part.shape[1] for _, part in parts.values())
        output = torch.full((len(source), width), pad, device=source.device)
        for rows, part in parts.values():
            output[rows] = filled(part, (0, width - part.shape[1]), value=pad)
        return output


def _greedy(
    model: Seq2Seq, source: Tensor, source_mask: Tensor, begin: Tensor, caps: Int[Tensor, " B"], eos: int, pad: int
) -> Int[Tensor, "B L"]:
    memory = model.encode(source, source_mask)
    state, tokens, output = model.start(memory), begin, []
    done = torch.zeros_like(tokens, dtype=torch.bool)
    for _ in range(int(caps.max())):
        logits, state, _ = model.step(memory, state, tokens)
        tokens = logits.argmax(-1).masked_fill(done, pad)
        output.append(tokens)
        done = done | (tokens == eos) | (len(output) >= caps)
        if bool(done.all()):
            break
    return torch.stack(output, dim=1)
