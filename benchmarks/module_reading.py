"""What it costs to read any module (`read_module`) beside its plain forward pass: time, and memory for long texts.

Time is that of the processor, on one thread, of a model of 12 layers (d 256, 8 heads) on 256 tokens. Memory is the most
that a process of its own holds (on Linux), for one layer of 4 heads of 32 on 8,192 and 65,536 tokens: beside that of the pass
alone, what reading one head adds, with its exact last row and its map pooled to 512 × 512.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.timing import Row, median_ratio, rounds
from core.pretrained.module_reader import read_module

LENGTHS = (8_192, 65_536)


class Attention(nn.Module):
    """Causal self-attention, by PyTorch's fused function or by hand."""

    def __init__(self, width: int, heads: int, fused: bool) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads, self.fused = heads, fused

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            one.unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in self.qkv(x).chunk(3, -1)
        )
        if self.fused:
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.mT * q.shape[-1] ** -0.5
            future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
            out = scores.masked_fill(future, -torch.inf).softmax(-1) @ v
        return self.out(out.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, fused: bool) -> None:
        super().__init__()
        self.attention, self.norms = (
            Attention(width, heads, fused),
            nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)]),
        )
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norms[0](x))
        return x + self.feed(self.norms[1](x))


def rows() -> Iterator[Row]:
    """Two rows of time, one a length of memory."""
    torch.set_num_threads(1)
    for fused in (True, False):
        model = nn.Sequential(*(Block(256, 8, fused) for _ in range(12))).eval()
        x = torch.randn(1, 256, 256)

        def forward(model: nn.Module = model, x: Tensor = x) -> None:
            with torch.no_grad():
                model(x)

        def reading(model: nn.Module = model, x: Tensor = x) -> None:
            assert len(read_module(model, x).calls) == 12

        both: dict[str, Callable[[], object]] = {"read": reading, "forward": forward}
        taken = rounds(both, 11, 1, process_time)
        ours, plain = (f"{1000 * statistics.median(taken[name]):.0f} ms" for name in both)
        way = "the fused function" if fused else "attention by hand"
        yield Row(
            f"12 layers, d 256, 256 tokens, {way}", "its forward", ours, plain,
            median_ratio(taken["read"], taken["forward"]), "–",
        )  # fmt: skip
    for length in LENGTHS:
        read, alone = (_peak(what, length) for what in ("read", "forward"))
        yield Row(
            f"memory, {length:,} tokens, one head of 4", "its forward",
            f"{read:.0f} MB", f"{alone:.0f} MB", read / alone, "–",
        )  # fmt: skip


def _peak(what: str, length: int) -> float:
    """The megabytes that a process of its own holds at most."""
    command = [sys.executable, "-m", __spec__.name, what, str(length)]
    return float(subprocess.run(command, check=True, capture_output=True, encoding="utf-8").stdout)


def main(what: str, length: str) -> None:
    torch.set_num_threads(1)
    model, x = Attention(128, 4, fused=True).eval(), torch.randn(1, int(length), 128)
    with torch.no_grad():
        if what == "read":
            assert read_module(model, x, heads=[0]).calls[0].agrees
        else:
            model(x)
    # Not getrusage, which begins with the most that the parent held.
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    print(int(status.partition("VmHWM:")[2].split()[0]) / 1024)


if __name__ == "__main__":
    main(*sys.argv[1:])
