"""Absolute positions, added to the input: none, sinusoidal (Vaswani 2017) and learned (Gehring 2017)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from core.attention.positions.rotary import Position
from core.entries import ConfigError, Entry, Param


def sinusoids(
    positions: Float[Tensor, " T"], dim: int, base: float = 10000.0
) -> Float[Tensor, "T dim"]:
    """sin and cos of position / base^(2i/dim), interleaved; an odd dim ends on a sine. Vaswani 2017, section 3.5.

    Angles are in fp64, which large positions need; the table has the dtype of the positions.
    """
    frequency = base ** (
        -torch.arange(0, dim, 2, dtype=torch.float64, device=positions.device) / dim
    )
    angle = positions.double()[:, None] * frequency  # (T, ceil(dim / 2))
    table = torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)
    return table[:, :dim].to(positions.dtype)


class Sinusoidal(Position):
    """x + sinusoids, with wavelengths from 2π to 2π · base. Vaswani 2017, section 3.5."""

    def __init__(self, dim: int, base: float) -> None:
        super().__init__()
        self.dim, self.base = dim, base

    def add(self, x: Tensor, offset: int = 0) -> Tensor:
        positions = torch.arange(
            offset, offset + x.shape[1], dtype=torch.float64
        )  # not every device has float64
        return x + sinusoids(positions, self.dim, self.base).to(x)


class Learned(Position):
    """x + one learned vector a position. Gehring 2017, section 3.1."""

    def __init__(self, dim: int, max_len: int) -> None:
        super().__init__()
        self.table = nn.Embedding(max_len, dim)
        nn.init.normal_(self.table.weight, std=0.02)

    def add(self, x: Tensor, offset: int = 0) -> Tensor:
        end, max_len = offset + x.shape[1], self.table.num_embeddings
        if end > max_len:
            raise ConfigError(
                f"position = learned has max_len = {max_len}, but the sequence reaches {end}; "
                f"take max_len ≥ {end}, or a position without a table (sinusoidal, rope, alibi)."
            )
        return x + self.table.weight[offset:end]


ENTRIES: tuple[Entry, ...] = (
    Entry(
        "none",
        "None",
        lambda config: Position(),
        r"x_i",
        "Attention does not see the order: if the inputs are permuted, "
        "the outputs are permuted in the same way.",
        "Bahdanau et al.",
        2014,
        "https://arxiv.org/abs/1409.0473",
        short="x",
    ),
    Entry(
        "sinusoidal",
        "Sinusoidal",
        lambda config: Sinusoidal(config.d_model, **config.position.kwargs),
        r"x_i + \left[\sin\tfrac{i}{b^{2m/C}},\ \cos\tfrac{i}{b^{2m/C}}\right]_m",
        "Sine and cosine waves of growing wavelength are added to the input.",
        "Vaswani et al.",
        2017,
        "https://arxiv.org/abs/1706.03762",
        (
            Param(
                "base",
                "Base",
                10000.0,
                2.0,
                1e6,
                1.0,
                meaning="ratio of the longest wavelength to the shortest",
            ),
        ),
        short="x + waves",
        enters="x",
    ),
    Entry(
        "learned",
        "Learned",
        lambda config: Learned(config.d_model, **config.position.kwargs),
        r"x_i + P_i",
        "A learned vector for each position, up to a largest length, is added to the input.",
        "Gehring et al.",
        2017,
        "https://arxiv.org/abs/1705.03122",
        (
            Param(
                "max_len",
                "Longest length",
                512,
                1,
                8192,
                1,
                meaning="number of positions in the table",
            ),
        ),
        short="x + P[i]",
        enters="x",
        traits=frozenset({"longest"}),
    ),
)
