"""The fused kernel beside a bare call of F.scaled_dot_product_attention: what the one formula costs on top."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.timing import Row, median_ratio, rounds
from core.attention import Attention, AttentionConfig, attend
from core.attention.cost import CPU

BATCH, HEADS, SIZE = 4, 8, 64


def heads(length: int, grad: bool) -> list[Tensor]:
    return [torch.randn(BATCH, HEADS, length, SIZE, requires_grad=grad) for _ in range(3)]


def with_backward(output: Callable[[], Tensor]) -> Callable[[], None]:
    def work() -> None:
        output().sum().backward()

    return work


def function(length: int, masked: bool, grad: bool) -> dict[str, Callable]:
    q, k, v = heads(length, grad)
    mask = torch.ones(length, length, dtype=torch.bool).tril() if masked else None
    ours = lambda: attend(q, k, v, mask, kernel="fused").out  # noqa: E731
    bare = lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=mask)  # noqa: E731
    return (
        {"ours": with_backward(ours), "bare": with_backward(bare)}
        if grad
        else {"ours": ours, "bare": bare}
    )


def layer(length: int, causal: bool) -> dict[str, Callable]:
    """The whole layer against the same four linear maps around a bare call, forward and backward."""
    width = HEADS * SIZE
    config = AttentionConfig(width, HEADS, mask="causal" if causal else "none", kernel="fused")
    attention, x = Attention(config), torch.randn(BATCH, length, width, requires_grad=True)
    maps = attention.projection

    def split(states: Tensor) -> Tensor:
        return states.unflatten(-1, (HEADS, SIZE)).transpose(1, 2)

    def bare() -> Tensor:
        q, k, v = split(maps.query(x)), split(maps.key(x)), split(maps.value(x))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return maps.output(out.transpose(1, 2).flatten(2))

    def ours() -> Tensor:
        return attention(x, record=False).merged

    return {"ours": with_backward(ours), "bare": with_backward(bare)}


def rows(count: int = 15, device: str = CPU) -> list[Row]:
    torch.manual_seed(0)
    with torch.device(device):  # not around the calls, each of whose functions it would slow down
        cases = {
            "fused attend, T 128, forward": function(128, False, False),
            "fused attend, T 512, forward": function(512, False, False),
            "fused attend, T 512, masked, forward": function(512, True, False),
            "fused attend, T 512, forward and backward": function(512, False, True),
            "fused layer, T 256, forward and backward": layer(256, False),
            "fused layer, T 256, causal, forward and backward": layer(256, True),
        }
    medians = []
    for what, contenders in cases.items():
        times = 30 if "T 128" in what else 2  # a short call needs many to be timed
        taken = rounds(contenders, count, times, device=device)
        ours, bare = (f"{1e3 * statistics.median(taken[name]):.2f} ms" for name in ("ours", "bare"))
        medians.append(
            Row(what, "bare SDPA", ours, bare, median_ratio(taken["ours"], taken["bare"]), "≤ 1.05")
        )
    return medians
