"""Between layers: how a sublayer reads the outputs before it, and how its own output is passed on.

A stacked model carries a stream over depth. Plain, it is x, the sum of all outputs so far (B, T, C); with attention over
depth all of them one beside the other (B, T, N, C); with hyper-connections n sums of them (B, T, n, C). It holds nothing of
other tokens, so stepwise decoding stores none of it.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from core.models.config import ModelConfig

EPSILON = 1e-6  # of an RMSNorm
ROUNDS = 20  # of Sinkhorn's normalization


def normalization(config: ModelConfig) -> nn.Module:
    """LayerNorm (Ba 2016), or RMSNorm (Zhang & Sennrich 2019), which neither centres nor shifts."""
    return (
        nn.LayerNorm(config.d_model)
        if config.normalization == "layer"
        else nn.RMSNorm(config.d_model, eps=EPSILON)
    )


def dropout(config: ModelConfig) -> nn.Module | None:
    return nn.Dropout(config.dropout) if config.dropout else None


class Residual(nn.Module):
    """norm(x + f(x)) for post, x + f(norm(x)) for pre."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm, self.pre = normalization(config), config.norm == "pre"
        self.dropout = dropout(config)

    def enter(self, stream: Tensor) -> tuple[Float[Tensor, "B T C"], Any]:
        """The input of the sublayer, and what passes it by."""
        return (self.norm(stream) if self.pre else stream), stream

    def leave(self, passed: Any, change: Float[Tensor, "B T C"]) -> Tensor:
        """The stream after the sublayer, from what passed it by and its output."""
        x = passed + self.dropped(change)
        return x if self.pre else self.norm(x)

    def dropped(self, change: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        return change if self.dropout is None else self.dropout(change)

    def wrap(self, stream: Tensor, sublayer: nn.Module) -> Tensor:
        """The stream after a sublayer that maps x alone."""
        x, passed = self.enter(stream)
        return self.leave(passed, sublayer(x))


class DepthAttention(nn.Module):
    """Attention over depth: Σᵢ αᵢ vᵢ with α = softmaxᵢ(wᵀ RMSNorm(vᵢ)), where w is one learned query.

    Kimi Team 2026, "Attention Residuals", arXiv 2603.15031. With w = 0, as training begins, it is the mean; its norm is
    that of the sum, so the model is then the plain pre-norm one.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.zeros(size))
        self.weight = nn.Parameter(torch.ones(size))  # of the norm

    def forward(
        self, outputs: Float[Tensor, "B T N C"]
    ) -> tuple[Float[Tensor, "B T C"], Float[Tensor, "B T N"]]:
        """What is read of the N outputs so far, and their weights α."""
        # The norm is a factor of the score, so that no normed copy of all outputs is made.
        scores = torch.einsum("btnc,c->btn", outputs, self.query * self.weight)
        weights = (scores * (outputs.square().mean(-1) + EPSILON).rsqrt()).softmax(-1)
        return torch.einsum("btn,btnc->btc", weights, outputs), weights


class AttentionResidual(Residual):
    """f(norm(Σᵢ αᵢ vᵢ)) joins the outputs so far: the embedding v₀ and those of all sublayers before."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.read = DepthAttention(config.d_model)

    def enter(self, stream: Float[Tensor, "B T N C"]) -> tuple[Float[Tensor, "B T C"], Tensor]:
        return self.norm(self.read(stream)[0]), stream

    def leave(self, passed: Tensor, change: Float[Tensor, "B T C"]) -> Float[Tensor, "B T M C"]:
        """M = N + 1 outputs."""
        return torch.cat((passed, self.dropped(change)[..., None, :]), dim=-2)


def sinkhorn(logits: Float[Tensor, "*B n n"]) -> Float[Tensor, "*B n n"]:
    """exp(logits), its columns and then its rows divided by their sums, again and again: after that all of them sum to 1
    (rows exactly, columns nearly). Sinkhorn 1964."""
    for _ in range(ROUNDS):
        logits = logits.log_softmax(-2).log_softmax(-1)
    return logits.exp()


class StreamMixing(nn.Module):
    """The weights of a hyper-connection, which the n streams of each token compute themselves: how the sublayer reads
    them, σ(·), how its output is written to each, 2σ(·), and how they mix on the way past it, a doubly stochastic matrix.

    Xie et al. 2025, "mHC: Manifold-Constrained Hyper-Connections", arXiv 2512.24880, section 4.
    """

    def __init__(self, size: int, streams: int) -> None:
        super().__init__()
        self.sizes = streams, streams, streams * streams
        self.norm = nn.RMSNorm(streams * size, eps=EPSILON, elementwise_affine=False)
        self.map = nn.Linear(streams * size, sum(self.sizes), bias=False)
        nn.init.normal_(self.map.weight, std=0.02)
        self.scale = nn.Parameter(torch.ones(3))
        self.bias = nn.Parameter(torch.zeros(sum(self.sizes)))

    def forward(
        self, streams: Float[Tensor, "B T n C"]
    ) -> tuple[Float[Tensor, "B T n"], Float[Tensor, "B T n"], Float[Tensor, "B T n n"]]:
        """The weights to read, to write, and to mix: row i of the last is what stream i takes of each."""
        parts = self.map(self.norm(streams.flatten(-2))).split(self.sizes, -1)
        read, write, mix = (
            part * scale + bias
            for part, scale, bias in zip(
                parts, self.scale, self.bias.split(self.sizes), strict=True
            )
        )
        side = self.sizes[0]
        return read.sigmoid(), 2 * write.sigmoid(), sinkhorn(mix.unflatten(-1, (side, side)))


class HyperResidual(Residual):
    """X ← M X + w f(norm(rᵀ X))ᵀ for the streams X, with the weights r, w and M of each token."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.mixing = StreamMixing(config.d_model, config.streams)

    def enter(
        self, stream: Float[Tensor, "B T n C"]
    ) -> tuple[Float[Tensor, "B T C"], tuple[Tensor, Tensor]]:
        read, write, mix = self.mixing(stream)
        return self.norm(torch.einsum("btn,btnc->btc", read, stream)), (mix @ stream, write)

    def leave(
        self, passed: tuple[Tensor, Tensor], change: Float[Tensor, "B T C"]
    ) -> Float[Tensor, "B T n C"]:
        mixed, write = passed
        return mixed + write[..., None] * self.dropped(change)[..., None, :]


class LastRead(nn.Module):
    """What a stack gives, from its stream: attention over all outputs, or the mean of the streams; then the last norm."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        attends = config.residual == "attention"
        self.read = DepthAttention(config.d_model) if attends else None
        self.norm = normalization(config)

    def forward(self, stream: Float[Tensor, "B T N C"]) -> Float[Tensor, "B T C"]:
        return self.norm(stream.mean(-2) if self.read is None else self.read(stream)[0])


def residual(config: ModelConfig) -> Residual:
    """What is around a sublayer."""
    kinds = {"plain": Residual, "attention": AttentionResidual, "hyper": HyperResidual}
    return kinds[config.residual](config)


def first_stream(config: ModelConfig, x: Float[Tensor, "B T C"]) -> Tensor:
    """The stream before the first sublayer: x, x as the only output so far, or x in each of n streams."""
    if config.residual == "plain":
        return x
    copies = config.streams if config.residual == "hyper" else 1
    return x[..., None, :].expand(*x.shape[:-1], copies, -1)


def final_norm(config: ModelConfig) -> nn.Module:
    """The end of a stack: where the stream is no single vector it is read; a pre-norm stack ends on a norm."""
    if config.residual != "plain":
        return LastRead(config)
    return normalization(config) if config.norm == "pre" else nn.Identity()
