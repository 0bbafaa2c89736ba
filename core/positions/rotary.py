"""Position, the base class of all encodings, and rotary positions: q and k rotated by their positions (Su 2021)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from core.eager_cache import eager_cache
from core.entries import Entry, LayerConfig, Param
from core.score_block import ScoreBlock


class Position(nn.Module):
    """No position: x, q and k pass unchanged, nothing is added to scores or output. An encoding overrides its part."""

    table_count = 0  # how many tables `tables` returns

    def add(self, x: Float[Tensor, "B T C"], offset: int = 0) -> Float[Tensor, "B T C"]:
        """x with its positions added; `offset` is the position of x's first token."""
        return x

    def rotate(
        self,
        x: Float[Tensor, "B H T D"],
        offset: int = 0,
        length: int | None = None,
    ) -> Float[Tensor, "B H T D"]:
        """Queries or keys rotated by their positions; `length` is the whole sequence's, offset + T unless given."""
        return x

    def tables(self, block: ScoreBlock) -> tuple[Tensor, ...]:
        """What `bias` reads that is the same for every block; computed once a call and passed in `block.tables`."""
        return ()

    def bias(self, block: ScoreBlock) -> Float[Tensor, ...] | None:
        """What is added to the scores, broadcastable to (B, H, T, S), in their dtype; None for nothing."""
        return None

    def adjust(
        self, scores: Float[Tensor, "B H T S"], block: ScoreBlock
    ) -> Float[Tensor, "B H T S"]:
        """The scores after scale and bias, changed in a way that is no bias (trait "adjusts")."""
        return scores

    def values(
        self, weights: Float[Tensor, "B H T S"], block: ScoreBlock
    ) -> Float[Tensor, "B H T E"] | None:
        """What is added to weights · v (trait "values"); None for nothing."""
        return None


STRIDE = 64  # positions by which tables of angles grow


class Rotary(Position):
    """R_i q and R_i k: pair m of dimensions is rotated by i · base^(−2m/D). Su 2021, section 3.2.

    Of D dimensions the first `share` rotate, in whole pairs; the others see no position (GPT-NeoX, section 2.1).
    """

    amplitude = 1.0

    def __init__(self, head_dim: int, base: float, layout: str, share: float = 1.0) -> None:
        super().__init__()
        self.base, self.layout = base, layout
        self.dims = max(2, 2 * int(head_dim * share / 2))

    def frequencies(self, length: int) -> Float[Tensor, " half"]:
        """Radians per position, for each pair, in a sequence of that length; fp64."""
        return plain_frequencies(self.base, self.dims)

    def rotate(self, x: Tensor, offset: int = 0, length: int | None = None) -> Tensor:
        end = offset + x.shape[-2]
        frequencies = self.frequencies(end if length is None else length)
        kind = (self.amplitude, self.layout, x.dtype, x.device)
        if torch.compiler.is_compiling():  # a graph cannot hold numbers read from a tensor
            cos, sin = cos_sin(frequencies, offset, end, *kind)
        else:
            cos, sin = rows_of_table(tuple(frequencies.tolist()), offset, end, *kind)
        if self.dims == x.shape[-1]:
            return rotate_pairs(x, cos, sin, self.layout)
        rotated, plain = x[..., : self.dims], x[..., self.dims :]
        return torch.cat((rotate_pairs(rotated, cos, sin, self.layout), plain), dim=-1)


@eager_cache(maxsize=32)
def plain_frequencies(base: float, dims: int) -> Float[Tensor, " half"]:
    """base^(−2m/dims) for each pair m; fp64. Cached: never change the result."""
    with torch.inference_mode(False):
        return base ** (-torch.arange(0, dims, 2, dtype=torch.float64) / dims)


def rotate_pairs(
    x: Tensor, cos: Float[Tensor, "T D"], sin: Float[Tensor, "T D"], layout: str
) -> Tensor:
    """Each pair of dimensions of x (…, T, D) rotated by the angle of the `tables_of_pairs` cos and sin.

    The halves layout (Llama) pairs m with m + D/2; the interleaved one (Su, GPT-J) pairs 2m with 2m + 1.
    """
    if layout == "halves":
        partners = x.roll(x.shape[-1] // 2, -1)
    else:
        partners = torch.stack((x[..., 1::2], x[..., 0::2]), dim=-1).flatten(-2)
    return torch.addcmul(x * cos, partners, sin)


def tables_of_pairs(
    cos: Float[Tensor, "*T half"],
    sin: Float[Tensor, "*T half"],
    layout: str,
) -> tuple[Float[Tensor, "*T D"], Float[Tensor, "*T D"]]:
    """What multiplies each dimension and what its partner: cos of the pair, and −sin for the first, sin for the second."""
    if layout == "halves":
        return torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)
    return torch.stack((cos, cos), dim=-1).flatten(-2), torch.stack((-sin, sin), dim=-1).flatten(-2)


def cos_sin(
    frequencies: Float[Tensor, " half"],
    start: int,
    stop: int,
    amplitude: float,
    layout: str,
    dtype: torch.dtype,
    device: torch.device,
) -> tuple[Float[Tensor, "T D"], Float[Tensor, "T D"]]:
    """The `tables_of_pairs` of position · frequency; angles in fp64, which large positions need."""
    angle = torch.arange(start, stop, dtype=torch.float64)[:, None] * frequencies
    cos, sin = ((amplitude * wave).to(device, dtype) for wave in (angle.cos(), angle.sin()))
    return tables_of_pairs(cos, sin, layout)


@lru_cache(maxsize=32)
def rows_of_table(
    frequencies: tuple[float, ...], start: int, stop: int, *kind: Any
) -> tuple[Tensor, Tensor]:
    """`cos_sin`, cached for all layers of a step; it is cut from a table that serves STRIDE steps of decoding."""
    first, last = start - start % STRIDE, stop + -stop % STRIDE
    cos, sin = cached_cos_sin(frequencies, first, last, *kind)
    return cos[start - first : stop - first], sin[start - first : stop - first]


@lru_cache(maxsize=32)
def cached_cos_sin(frequencies: tuple[float, ...], *table: Any) -> tuple[Tensor, Tensor]:
    """`cos_sin`, cached; outside inference mode, whose tensors cannot be used in training."""
    with torch.inference_mode(False):
        return cos_sin(torch.tensor(frequencies, dtype=torch.float64), *table)


def refuse_odd(config: LayerConfig) -> str | None:
    """Pairs need an even number of dimensions; a smaller share of an odd number leaves the rest alone."""
    if config.qk_dim % 2 and (
        config.qk_dim == 1 or config.position.kwargs.get("share", 1.0) == 1.0
    ):
        return (
            f"position = {config.position.key} rotates pairs of dimensions, but d_model = {config.d_model} with "
            f"num_heads = {config.num_heads} and projection = {config.projection.key} gives queries of an odd "
            f"size, {config.qk_dim}; take an even one, or position = alibi."
        )
    return None


ROTARY_PARAMS = (
    Param(
        "base",
        "Base",
        10000.0,
        2.0,
        1e7,
        1.0,
        meaning="ratio of the longest wavelength to the shortest",
    ),
    Param(
        "layout",
        "Layout",
        "halves",
        choices=("halves", "interleaved"),
        meaning="which dimensions form a pair: m with m + D/2, or 2m with 2m + 1",
    ),
    Param(
        "share",
        "Rotary share",
        1.0,
        0.05,
        1.0,
        0.05,
        meaning="share of the dimensions that are rotated, in whole pairs; the others have no position",
    ),
)
ROPE = Entry(
    "rope",
    "RoPE",
    lambda config: Rotary(config.qk_dim, **config.position.kwargs),
    r"(R_i q_i)^\top (R_j k_j) = q_i^\top R_{j-i} k_j",
    "Queries and keys are rotated by angles that grow with their position, so a score depends on the distance.",
    "Su et al.",
    2021,
    "https://arxiv.org/abs/2104.09864",
    ROTARY_PARAMS,
    short="(R[i] q)·(R[j] k)",
    enters="q, k",
    refuse=refuse_odd,
)
