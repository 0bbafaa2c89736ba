"""What a mask that reads content has chosen, and the loss by which DeepSeek trains its indexer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor


@dataclass(frozen=True)
class Selection:
    """A mask's choice, averaged over the rows that see a key: keys a query, and how well they were chosen."""

    keys: float  # keys that a query may attend to
    recall: float  # the share of the keys of the largest full weights that are among them, 0 to 1
    weight: float  # the share of full attention's weight that is on them, 0 to 1


def selection(
    allowed: Bool[Tensor, "... T S"], full: Float[Tensor, "B H T S"], count: int
) -> Selection:
    """The mask `allowed` (True = may attend) held against `full`, the weights of the same layer without it.

    Recall is over the `count` keys of each row that have the largest full weights (all above 0 where there are fewer).
    """
    allowed = allowed.expand(full.shape)
    top = top_cells(full, full > 0, count)
    rows = top.any(-1)
    if not rows.any():
        return Selection(0.0, 0.0, 0.0)
    numbers = (
        allowed.sum(-1).float(),
        (top & allowed).sum(-1) / top.sum(-1).clamp(min=1),
        (full * allowed).sum(-1) / full.sum(-1).clamp(min=torch.finfo(full.dtype).tiny),
    )
    keys, recall, weight = (number[rows].mean().item() for number in numbers)
    return Selection(keys, recall, weight)


def top_cells(
    scores: Float[Tensor, "... T S"], candidates: Bool[Tensor, ...], count: int
) -> Bool[Tensor, "... T S"]:
    """In each row the `count` candidates of the highest scores, of equal ones the earlier; all where there are fewer.

    The order is stable, so that every rectangle and every device agree where scores are equal, as zeros of a ReLU are.
    """
    if torch.compiler.is_exporting():  # a graph of any length has no branch on it
        ranked = scores.masked_fill(~candidates, -torch.inf).argsort(
            dim=-1, descending=True, stable=True
        )
        return (ranked.argsort(dim=-1) < count) & candidates
    if count <= 0:
        return torch.zeros_like(scores, dtype=torch.bool) & candidates
    if count >= scores.shape[-1]:
        return torch.ones_like(scores, dtype=torch.bool) & candidates
    scores = scores.masked_fill(~candidates, -torch.inf)
    least = scores.topk(count, sorted=False).values.amin(-1, keepdim=True)  # of the chosen ones
    above, equal = scores > least, scores == least
    free = count - above.sum(-1, keepdim=True)
    return (above | (equal & (equal.cumsum(-1) <= free))) & candidates


def indexer_loss(
    index_scores: Float[Tensor, "B T S"],
    weights: Float[Tensor, "B H T S"],
    allowed: Bool[Tensor, ...],
) -> Float[Tensor, ""]:
    """Σ_s p_ts log(p_ts / softmax(I_t)_s), averaged over queries. DeepSeek-V3.2, section 2.1.

    p is the weight that all heads together give to each key, summing to 1 in a row; it has no gradient. `allowed`,
    broadcastable to (B, T, S), are the keys compared: all visible ones in the warm-up, then the selected ones alone.
    """
    target = weights.detach().sum(1) * allowed
    target = target / target.sum(-1, keepdim=True).clamp(min=torch.finfo(target.dtype).tiny)
    least = torch.finfo(index_scores.dtype).min
    predicted = index_scores.masked_fill(~allowed, least).log_softmax(-1)
    return F.kl_div(predicted, target, reduction="none").sum(-1).mean()
