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
        self, x: Float[Tensor, "B H T D"], offset: int = 0, length: int | None = None,
    ) -> Float[Tensor, "B H T D"]:
        """Queries or keys rotated by their positions; `length` is the whole sequence's, offset + T unless given."""
        return x

    def tables(self, block: ScoreBlock) -> tuple[Tensor, ...]:
        """What `bias` reads that is the same for every block; computed once a call and passed in `block.tables`."""
        return ()

    def bias(self, block: ScoreBlock) -> Float[Tensor, ...] | None:
        """What is added to the scores, broadcastable to (B, H, T, S), in their dtype; None for nothing."""
        return None

    def adjust(self, scores: Float[Tensor, "B H T S"], block: ScoreBlock) -> Float[Tensor, "B H T S"]:
        """The scores after scale and bias, changed in a way that is no bias (trait "adjusts")."""
        return scores

    def values(self, weights: Float[Tensor, "B H T S"], block: ScoreBlock) -> Float[Tensor, "B H T E"] | None:
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
        kind = (self.amplitude, x.dtype, x.device)
        if torch.compiler.is_compiling():  # a graph cannot hold numbers read from a tensor
            cos, sin = cos_sin(frequencies, offset, end, *kind)
        else:  # a table serves STRIDE steps of decoding
            start, stop = offset - offset % STRIDE, end + -end % STRIDE
            table = cached_cos_sin(tuple(frequencies.tolist()), start, stop, *kind)
            cos, sin = (wave[offset - start:end - start] for wave in table)
        if self.dims == x.shape[-1]:
            return rotate_pairs(x, cos, sin, self.layout)
        rotated, plain = x[..., :self.dims], x[..., self.dims:]
        return torch.cat((rotate_pairs(rotated, cos, sin, self.layout), plain), dim=-1)


@eager_cache(maxsize=32)
def plain_frequencies(base: float, dims: int) -> Float[Tensor, " half"]:
    """base^(−2m/dims) for each pair m; fp64. Cached: never change the result."""
    with torch.inference_mode(False):
        return base ** (-torch.arange(0, dims, 2, dtype=torch.float64) / dims)


def rotate_pairs(x: Tensor, cos: Float[Tensor, "T half"], sin: Float[Tensor, "T half"], layout: str) -> Tensor:
    """Each pair of dimensions of x (…, T, D) rotated by the angle of cos and sin (T, D/2).

    The halves layout (Llama) pairs m with m + D/2; the interleaved one (Su, GPT-J) pairs 2m with 2m + 1.
    """
    first, second = x.chunk(2, dim=-1) if layout == "halves" else (x[..., 0::2], x[..., 1::2])
    rotated = torch.addcmul(first * cos, second, sin, value=-1), torch.addcmul(first * sin, second, cos)
    return torch.cat(rotated, dim=-1) if layout == "halves" else torch.stack(rotated, dim=-1).flatten(-2)


def cos_sin(
    frequencies: Float[Tensor, " half"], start: int, stop: int, amplitude: float, dtype: torch.dtype,
    device: torch.device,
) -> tuple[Tensor, Tensor]:
    """cos and sin of position · frequency, (T, D/2) each; angles in fp64, which large positions need."""
    angle = torch.arange(start, stop, dtype=torch.float64)[:, None] * frequencies
    return tuple((amplitude * wave).to(device, dtype) for wave in (angle.cos(), angle.sin()))  # type: ignore


@lru_cache(maxsize=32)
def cached_cos_sin(frequencies: tuple[float, ...], *table: Any) -> tuple[Tensor, Tensor]:
    """`cos_sin`, cached for all layers; outside inference mode, whose tensors cannot be used in training."""
    with torch.inference_mode(False):
        return cos_sin(torch.tensor(frequencies, dtype=torch.float64), *table)


def refuse_odd(config: LayerConfig) -> str | None:
    """Pairs need an even number of dimensions; a smaller share of an odd number leaves the rest alone."""
    if config.qk_dim % 2 and (config.qk_dim == 1 or config.position["share"] == 1.0):
        return (f"position = {config.position.key} rotates pairs of dimensions, but d_model = {config.d_model} with "
                f"num_heads = {config.num_heads} and projection = {config.projection.key} gives queries of an odd "
                f"size, {config.qk_dim}; take an even one, or position = alibi.")
    return None


ROTARY_PARAMS = (
    Param("base", "Base", 10000.0, 2.0, 1e7, 1.0, meaning="ratio of the longest wavelength to the shortest"),
    Param("layout", "Layout", "halves", choices=("halves", "interleaved"),
          meaning="which dimensions form a pair: m with m + D/2, or 2m with 2m + 1"),
    Param("share", "Rotary share", 1.0, 0.05, 1.0, 0.05,
          meaning="share of the dimensions that are rotated, in whole pairs; the others have no position"))
ROPE = Entry(
    "rope", "RoPE", lambda config: Rotary(config.qk_dim, **config.position.kwargs),
    r"(R_i q_i)^\top (R_j k_j) = q_i^\top R_{j-i} k_j",
    "Queries and keys are rotated by angles that grow with their position, so a score depends on the distance.",
    "Su et al.", 2021,
    "https://arxiv.org/abs/2104.09864", ROTARY_PARAMS, short="(R[i] q)·(R[j] k)", enters="q, k", refuse=refuse_odd)
