"""Each normalizer beside the best peer: the entmax package where it has the same, else torch's softmax.

Rows follow from the NORMALIZERS entries; the scores are those of 8 heads, forward and forward with backward.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial

import entmax
import torch
from torch import Tensor

from benchmarks.timing import Row, median_ratio, rounds
from core.attention import AttentionConfig
from core.attention.cost import CPU
from core.attention.normalizers import NORMALIZERS

HEADS, LENGTHS = 8, (128, 512)
Normalize = Callable[[Tensor], Tensor]
ALPHA = next(
    param.default
    for entry in NORMALIZERS
    if entry.key == "entmax"
    for param in entry.params
    if param.key == "alpha"
)
PEERS: dict[str, tuple[str, Normalize]] = {
    "sparsemax": ("entmax.sparsemax", entmax.sparsemax),
    "entmax15": ("entmax.entmax15", entmax.entmax15),
    "entmax": ("entmax.entmax_bisect", lambda scores: entmax.entmax_bisect(scores, alpha=ALPHA)),
}


def softmax(scores: Tensor) -> Tensor:
    return scores.softmax(-1)


def work(run: Normalize, scores: Tensor, felt: Tensor, backward: bool) -> Callable[[], object]:
    def forward() -> Tensor:
        with torch.no_grad():
            return run(scores)

    return (lambda: torch.autograd.grad(run(scores), scores, felt)) if backward else forward


def rows(count: int = 15, device: str = CPU) -> list[Row]:
    torch.manual_seed(0)
    times = []
    for entry in NORMALIZERS:
        module = entry.build(AttentionConfig(64 * HEADS, HEADS, normalizer=entry.key)).to(device)
        peer, theirs = PEERS.get(entry.key, ("torch softmax", softmax))
        for length in LENGTHS:
            scores = torch.randn(1, HEADS, length, length, device=device, requires_grad=True)
            felt = torch.randn_like(scores)
            for backward in (False, True):
                runs: dict[str, Normalize] = {"ours": partial(module, mask=None), "theirs": theirs}
                contenders = {name: work(run, scores, felt, backward) for name, run in runs.items()}
                taken = rounds(
                    contenders, count, times=10 if length == LENGTHS[0] else 1, device=device
                )
                ours, other = (
                    f"{1e3 * statistics.median(taken[name]):.2f} ms" for name in contenders
                )
                way = "forward and backward" if backward else "forward"
                times.append(
                    Row(
                        f"{entry.key}, T {length}, {way}",
                        peer,
                        ours,
                        other,
                        median_ratio(taken["ours"], taken["theirs"]),
                        "≤ 1.00" if entry.key in PEERS else "–",
                    )
                )
    return times
