"""Positions that turn queries and keys each in its own way: lengths and phases (PoPE, Gopalakrishnan 2025)."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from core.attention.positions.rotary import BASE, Position, cos_sin, plain_frequencies
from core.entries import Entry, LayerConfig, Param, refuse_if

# PoPE: what a number says is a length, where it stands is a phase, and neither moves the other.


class Polar(Position):
    """Σ_c softplus(q_c) softplus(k_c) cos((i − j) θ_c − δ_c), θ_c = base^(−c/D). Gopalakrishnan 2025 (PoPE).

    Each of the D numbers of a query or key is the length of a pair whose phase is the position times θ_c, so there are
    2D numbers once they are turned: D cosines, then D sines. δ_c, one a head and number and from −2π to 0, is learned;
    the authors add it to the phases of keys, and here it is taken from those of queries, which heads never share.
    """

    def __init__(self, num_heads: int, head_dim: int, base: float, random: bool) -> None:
        super().__init__()
        self.base = base
        phase = torch.zeros(num_heads, 1, head_dim)
        self.phase = nn.Parameter(phase.uniform_(-2 * math.pi, 0.0) if random else phase)

    def waves(self, x: Tensor, offset: int) -> tuple[Float[Tensor, "T D"], Float[Tensor, "T D"]]:
        """cos and sin of position · θ for each token and number of x."""
        frequencies, dims = plain_frequencies(self.base, 2 * x.shape[-1]), x.shape[-1]
        known = frequencies if torch.compiler.is_compiling() else tuple(frequencies.tolist())
        cos, sin = cos_sin(known, offset, offset + x.shape[-2], 1.0, "halves", x.dtype, x.device)
        return cos[:, :dims], sin[:, dims:]

    def rotate(
        self, x: Float[Tensor, "B H T D"], offset: int = 0, length: int | None = None
    ) -> Float[Tensor, "B H T E"]:
        (cos, sin), phase = self.waves(x, offset), self.phase.clamp(-2 * math.pi, 0.0)
        cos, sin = (
            cos * phase.cos() + sin * phase.sin(),
            sin * phase.cos() - cos * phase.sin(),
        )  # of the angle − δ
        lengths = F.softplus(x)
        return torch.cat((lengths * cos, lengths * sin), dim=-1)

    def rotate_keys(
        self, x: Float[Tensor, "B G S D"], offset: int = 0, length: int | None = None
    ) -> Float[Tensor, "B G S E"]:
        return self.turn(F.softplus(x), offset)

    def turn(self, lengths: Float[Tensor, "B G S D"], offset: int = 0) -> Float[Tensor, "B G S E"]:
        """The pairs of these lengths, turned by their positions: a linear map of the lengths."""
        cos, sin = self.waves(lengths, offset)
        return torch.cat((lengths * cos, lengths * sin), dim=-1)


PRODUCTS = ("dot", "scaled_dot", "qk_norm", "cosine")  # scores without weights for turned numbers


def _refuse(config: LayerConfig) -> None:
    key = config.position.key
    refuse_if(
        config.score.key not in PRODUCTS,
        f"position = {key} makes two numbers of each number of a query, and score = {config.score.key} has weights "
        "for as many as there were",
        axes=("position", "score"),
        score="scaled_dot",
        position="rope",
    )
    refuse_if(
        not config.has("kernel", "same"),
        f"position = {key} makes two numbers of each number of a query, and kernel = {config.kernel.key} counts on as "
        "many as there were",
        axes=("position", "kernel"),
        kernel=("exact", "fused"),
        position="rope",
    )
    refuse_if(
        any(part.key == "local_p" for part in config.mask.walk()),
        f"position = {key} makes two numbers of each number of a query, and mask = local_p has weights for as many "
        "as there were",
        axes=("position", "mask"),
        mask="local_m",
        position="rope",
    )


ENTRIES: tuple[Entry, ...] = (
    Entry(
        "pope",
        "PoPE",
        lambda config: Polar(config.score_heads, config.qk_dim, **config.position.kwargs),
        r"\sum_c \sigma_+(q_{ic})\, \sigma_+(k_{jc}) \cos\big((i - j)\,\theta_c - \delta_c\big),\quad "
        r"\sigma_+(x) = \ln(1 + e^x)",
        "Each number of a query or key becomes the length of an arrow, and its position the arrow's angle. What a token "
        "says and where it stands are apart: with RoPE both change the angle.",
        "Gopalakrishnan et al.",
        2025,
        "https://arxiv.org/abs/2509.10534",
        (
            BASE,
            Param(
                "random",
                "Random phases",
                False,
                meaning="whether the learned phases δ begin at random angles; without, they begin at 0",
            ),
        ),
        short="Σ |q||k| cos",
        enters="q, k",
        traits=frozenset({"doubles"}),
        refuse=_refuse,
    ),
)
