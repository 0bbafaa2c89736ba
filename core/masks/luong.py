"""Luong's local attention (2015, section 3.2): a window around a position p, with a Gaussian on its weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from core.entries import Area, ConfigError, Cost, Entry, LayerConfig, Param
from core.masks.patterns import Mask
from core.score_block import ScoreBlock


class Window(Mask):
    """|j − p| ≤ D, with the weights times exp(−(j − p)² / 2σ²), σ = D / 2: rows then sum to less than 1."""

    def __init__(self, window: int, gaussian: bool) -> None:
        super().__init__()
        self.window, self.gaussian = window, gaussian

    def centre(self, block: ScoreBlock) -> Tensor:
        """The position p of each query, broadcastable to (B, H, T, 1)."""
        raise NotImplementedError

    def forward(self, block: ScoreBlock) -> Tensor:
        centre = self.centre(block)
        return (block.j >= centre - self.window) & (block.j <= centre + self.window)

    def weight_factor(self, block: ScoreBlock) -> Tensor | None:
        if not self.gaussian:
            return None
        deviations = (block.j - self.centre(block)) / (self.window / 2)
        return torch.exp(-deviations.square() / 2).to(block.dtype)


class Monotonic(Window):
    """p = i: input and output are assumed to be aligned (local-m)."""

    def centre(self, block: ScoreBlock) -> Tensor:
        return block.i


class Predictive(Window):
    """p = S · σ(vᵀ tanh(W q)), predicted from each query (local-p); W (H, D, D) and v (H, D) are learned.

    S is the end of the real keys, so that padding does not move p. The window has no gradient; W and v learn through
    the Gaussian.
    """

    reads_content = True

    def __init__(self, window: int, num_heads: int, dim: int) -> None:
        super().__init__(window, gaussian=True)
        bound = dim**-0.5
        self.weight = nn.Parameter(torch.empty(num_heads, dim, dim).uniform_(-bound, bound))
        self.vector = nn.Parameter(torch.empty(num_heads, dim).uniform_(-bound, bound))

    def centre(self, block: ScoreBlock) -> Tensor:
        if block.q is None:
            raise ConfigError(
                "mask = local_p is computed from the queries; take Attention(config), or mask = local_m."
            )
        precise = torch.promote_types(
            block.q.dtype, torch.float32
        )  # S times a share in half precision is off by keys
        hidden = torch.tanh(block.q.to(precise) @ self.weight.mT.to(precise))  # (B, H, T, D)
        share = torch.sigmoid(
            (hidden * self.vector[:, None].to(precise)).sum(-1, keepdim=True)
        )  # (B, H, T, 1)
        ends = block.ends if isinstance(block.ends, int) else block.ends[:, None]
        return ends * share


def local_p(config: LayerConfig, parts: tuple[Mask, ...], window: int) -> Mask:
    if config is None:
        raise ConfigError(
            "mask = local_p has weights, whose sizes come from an AttentionConfig; take "
            "Attention(config), or mask = local_m."
        )
    return Predictive(window, config.score_heads, config.qk_dim)


def _cost(config: LayerConfig, area: Area) -> Cost:
    """A small network, and a window for each head."""
    heads, dim, cells = config.score_heads, config.qk_dim, config.score_heads * area.cells
    return Cost(
        2.0 * heads * area.queries * dim**2, max(8 * heads * area.queries * dim, 3 * cells), cells
    )


_PAPER = ("Luong et al.", 2015, "https://arxiv.org/abs/1508.04025")
_WINDOW = Param(
    "window",
    "Window D",
    2,
    1,
    512,
    1,
    meaning="number of keys on each side of the position p; σ of the Gaussian is half of it",
)

LUONG: tuple[Entry, ...] = (
    Entry(
        "local_m",
        "Luong local-m",
        lambda config, parts, **params: Monotonic(**params),
        r"|j - p_i| \le D,\quad p_i = i",
        "A query attends to a window of ±D around its own position, as if input and output had the same order.",
        *_PAPER,
        (
            _WINDOW,
            Param(
                "gaussian",
                "Gaussian",
                False,
                meaning="whether weights are multiplied by exp(−(j − p)² / 2σ²), as in local-p; in the "
                "paper they are not",
            ),
        ),
        "|j − i| ≤ {window}",
        traits=frozenset({"reweighs"}),
    ),
    Entry(
        "local_p",
        "Luong local-p",
        local_p,
        r"|j - p_i| \le D,\quad p_i = S\,\sigma(v^\top \tanh(W q_i)),\quad "
        r"w_{ij} \leftarrow w_{ij}\, e^{-(j - p_i)^2 / 2\sigma^2},\ \sigma = D / 2",
        "A learned function of the query predicts a position p. The query attends to a window around p, in which "
        "weights are multiplied by a Gaussian.",
        *_PAPER,
        (_WINDOW,),
        "|j − p| ≤ {window}",
        traits=frozenset({"reweighs", "learned", "reads content", "reads length"}),
        cost=_cost,
    ),
)
