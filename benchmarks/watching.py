"""A training that is watched beside itself: what a step costs more at the default of one record in 100 steps."""

from __future__ import annotations

import statistics
import tempfile
import time

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.timing import Row
from core.training.watch import watch

WIDTH, LAYERS, HEADS, BATCH, LENGTH, VOCAB = 256, 6, 8, 16, 128, 65
EVERY = 100


class Block(nn.Module):
    """A layer as people write it by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            one.unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for one in self.qkv(self.first(x)).chunk(3, -1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.second(x))


def rows(records: int = 10, between: int = 3) -> list[Row]:
    """Each record after `between` steps: what a record takes then counts as the hundredth part of it."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Embedding(VOCAB, WIDTH), *[Block() for _ in range(LAYERS)], nn.Linear(WIDTH, VOCAB)
    )
    optimizer = torch.optim.AdamW(model.parameters())
    steps, watched = list[float](), dict[bool, list[float]]({False: [], True: []})
    with tempfile.TemporaryDirectory() as folder, watch(model, EVERY, folder) as watcher:
        for number in range(1 + records * between):
            started = time.perf_counter()
            ids = torch.randint(VOCAB, (BATCH, LENGTH + 1))
            loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            trained = time.perf_counter()
            due = number % between == 0
            if due and number:  # the steps between two records are left out
                watcher.steps = EVERY * (number // between) - 1
            watcher.step(loss)
            steps.append(trained - started)
            watched[due].append(time.perf_counter() - trained)
    step, other, record = map(statistics.median, (steps, watched[False], watched[True]))
    ratio = 1 + (record / EVERY + other) / step
    return [
        Row(
            f"watch: a step of {LAYERS} layers, width {WIDTH}, {BATCH} × {LENGTH} tokens",
            f"not watched; a record takes {record * 1e3:.0f} ms",
            f"{step * ratio * 1e3:.1f} ms",
            f"{step * 1e3:.1f} ms",
            ratio,
            "≤ 1.02",
        )
    ]
