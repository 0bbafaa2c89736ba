"""Decoding: from a model and a source to the target's words."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from core.models.base import Seq2Seq

LONGEST = 4096


@torch.no_grad()
def greedy(
    model: Seq2Seq, source: Int[Tensor, ...], source_mask: Bool[Tensor, ...], max_length: int | None = None, *,
    bos: int = 1, eos: int = 2, pad: int = 0,
) -> Int[Tensor, "B L"]:
    """The likeliest token at each step for source and source_mask (B, S): each row ends on EOS, then PAD fills up.

    A row says at most twice its own source and two tokens more, and never more than `max_length`. Nothing is dropped
    out, whatever mode the model is in. ValueError when sizes do not fit.
    """
    if source.dim() != 2 or source.shape != source_mask.shape:
        raise ValueError(f"source and source_mask are both (B, S); got {tuple(source.shape)} and "
                         f"{tuple(source_mask.shape)}.")
    longest = 2 * source.shape[1] + 2 if max_length is None else max_length
    if not 1 <= longest <= LONGEST:
        raise ValueError(f"max_length = {longest}; expected 1 to {LONGEST}.")
    training = model.training
    if training:
        model.eval()
    try:
        return _greedy(model, source, source_mask, longest, bos, eos, pad)
    finally:
        if training:
            model.train()


def _greedy(
    model: Seq2Seq, source: Tensor, source_mask: Tensor, longest: int, bos: int, eos: int, pad: int
) -> Int[Tensor, "B L"]:
    memory = model.encode(source, source_mask)
    state, tokens, said = model.start(memory), torch.full_like(source[:, 0], bos), []
    done, allowed = torch.zeros_like(tokens, dtype=torch.bool), 2 * source_mask.sum(1) + 2
    for _ in range(longest):
        logits, state, _ = model.step(memory, state, tokens)
        tokens = logits.argmax(-1).masked_fill(done, pad)
        said.append(tokens)
        done = done | (tokens == eos) | (len(said) >= allowed)
        if bool(done.all()):
            break
    return torch.stack(said, dim=1)
