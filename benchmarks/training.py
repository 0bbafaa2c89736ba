"""Training tokens/s of the same encoder three times: ours, nn.TransformerEncoder, and x-transformers.

4 layers, d 128, 4 heads, feed-forward 512 with GELU, pre-norm, no dropout, T 128, batch 32: forward, backward, AdamW.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from x_transformers import Encoder as XEncoder

from benchmarks.timing import Row, median_ratio, rounds
from core.models import Encoder, ModelConfig

LAYERS, WIDTH, HEADS, INNER, LENGTH, BATCH, WORDS = 4, 128, 4, 512, 128, 32, 256


class Ours(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = Encoder(ModelConfig.transformer(WIDTH, HEADS, LAYERS, INNER, norm="pre", activation="gelu"))

    def forward(self, x: Tensor) -> Tensor:
        return self.encoder(x)[0]


def torch_encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, INNER, dropout=0.0, activation="gelu", batch_first=True,
                                       norm_first=True)
    return nn.TransformerEncoder(layer, LAYERS, nn.LayerNorm(WIDTH), enable_nested_tensor=False)


def x_encoder() -> nn.Module:
    return XEncoder(dim=WIDTH, depth=LAYERS, heads=HEADS, attn_dim_head=WIDTH // HEADS, attn_flash=True, ff_mult=4)


def trainer(encoder: nn.Module) -> tuple[Callable[[], None], int]:
    """One training step of encoder, embedding and head, and the number of parameters in the encoder."""
    model = nn.ModuleDict({"embed": nn.Embedding(WORDS, WIDTH), "encoder": encoder, "head": nn.Linear(WIDTH, WORDS)})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(WORDS, (BATCH, LENGTH))

    def step() -> None:
        logits = model["head"](model["encoder"](model["embed"](tokens)))
        loss = F.cross_entropy(logits.flatten(0, 1), tokens.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return step, sum(p.numel() for p in encoder.parameters())


def rows(count: int = 9, times: int = 2) -> list[Row]:
    torch.manual_seed(0)
    makers = {"ours": Ours, "nn.TransformerEncoderLayer": torch_encoder, "x-transformers": x_encoder}
    steps = {name: trainer(make())[0] for name, make in makers.items()}
    taken = rounds(steps, count, times)
    speed = {name: BATCH * LENGTH / statistics.median(found) for name, found in taken.items()}
    return [
        Row("training, tokens/s", peer, f"{speed['ours']:,.0f}", f"{speed[peer]:,.0f}",
            median_ratio(taken[peer], taken["ours"]), "≥ 1.00")
        for peer in makers if peer != "ours"
    ]
