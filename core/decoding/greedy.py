"""Greedy decoding of a padded batch: the likeliest token at each step."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from core.decoding.prefix import BOS, EOS, PAD, eval_mode, length_cap
from core.models.base import Seq2Seq


@torch.no_grad()
def greedy(
    model: Seq2Seq,
    source: Tensor,
    source_mask: Bool[Tensor, ...],
    max_length: int | None = None,
    *,
    begin: Int[Tensor, " B"] | None = None,
    bos: int = BOS,
    eos: int = EOS,
    pad: int = PAD,
) -> Int[Tensor, "B L"]:
    """The likeliest token at each step for source (B, S) or (B, S, D) and source_mask (B, S).

    Each row ends on `eos`, then is padded; a row without `eos` was cut at `max_length` tokens, by default two more than
    twice its own source. `begin` is fed first instead of `bos`. The model is in evaluation mode; one that reads sources
    of one length decodes them length by length. ValueError when sizes do not fit.
    """
    if source_mask.dim() != 2 or source.shape[:2] != source_mask.shape:
        raise ValueError(
            "source and source_mask are both (B, S), and source may have numbers at each place; got "
            f"{tuple(source.shape)} and {tuple(source_mask.shape)}."
        )
    longest, lengths = length_cap(max_length, source_mask), source_mask.sum(1)
    caps = 2 * lengths + 2 if max_length is None else torch.full_like(lengths, longest)
    begin = torch.full_like(source_mask[:, 0], bos, dtype=torch.long) if begin is None else begin
    with eval_mode(model):
        if not getattr(model, "one_length", False):
            return _greedy(
                model, source, source_mask, begin, caps, eos, pad
            ).clone()  # no tensor of inference mode
        outputs: dict[int, Tensor] = {}
        for length in lengths.unique().tolist():
            rows = (lengths == length).nonzero()[:, 0]
            part = _greedy(
                model,
                source[rows, :length],
                source_mask[rows, :length],
                begin[rows],
                caps[rows],
                eos,
                pad,
            )
            outputs.update(zip(rows.tolist(), part, strict=True))
        return pad_sequence(
            [outputs[row] for row in range(len(source))], batch_first=True, padding_value=pad
        )


@torch.inference_mode()  # each operation of a step costs less than with torch.no_grad alone
def _greedy(
    model: Seq2Seq,
    source: Tensor,
    source_mask: Tensor,
    begin: Tensor,
    caps: Int[Tensor, " B"],
    eos: int,
    pad: int,
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
