"""attend, the function, and Attention, the layer: one formula made of six choices."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from core.attention.config import AttentionConfig, entry
from core.attention.kernels import KERNELS, Problem, Steps, fused, why_not_fused
from core.attention.normalizers import Softmax
from core.attention.scores import Dot
from core.entries import ConfigError, find
from core.masks import build_mask


def attend(
    q: Float[Tensor, "B H T D"], k: Float[Tensor, "B H S D"], v: Float[Tensor, "B H S E"],
    mask: Bool[Tensor, ...] | None = None, *, scale: float | None = None, temperature: float = 1.0,
    bias: Float[Tensor, ...] | None = None, dropout: float = 0.0, kernel: str = "exact",
) -> Steps:
    """Scaled dot-product attention on ready heads. Vaswani 2017, equation 1.

    q (B, H, T, D), k (B, H, S, D), v (B, H, S, E); mask bool, True = may attend; bias is added to the scores; both
    broadcast to (B, H, T, S). `scale` is 1/√D unless given. A row that sees no key gives zeros.
    ValueError when shapes do not meet or the mask is not bool; ConfigError for an unknown kernel.
    """
    check_shapes(q, k, v, mask)
    score, normalizer = _pieces(q.shape[-1] ** -0.5 if scale is None else scale, temperature)
    run = find(KERNELS, "kernel", kernel).build(None)
    return run(Problem(q, k, v, score, normalizer, bias, mask, dropout=dropout))


def without_broken_padding(keys: Float[Tensor, "B H S D"], key_mask: Bool[Tensor, "B S"]) -> Tensor:
    """Keys or values in which what only fills up a batch holds no NaN or infinity, which 0 · NaN would let through."""
    return keys if bool(keys.sum().isfinite()) else keys.masked_fill(~key_mask[:, None, :, None], 0.0)


@lru_cache(maxsize=64)
def _pieces(scale: float, temperature: float) -> tuple[Dot, Softmax]:
    """Neither holds a weight, so they are made once: making a module takes longer than a short attention."""
    return Dot(scale), Softmax(temperature)


def check_shapes(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> None:
    wrong = None
    if not q.dim() == k.dim() == v.dim() == 4:
        wrong = "q, k and v are (batch, heads, length, head size)"
    elif q.shape[-1] != k.shape[-1]:
        wrong = "q and k need one head size"
    elif k.shape[-2] != v.shape[-2]:
        wrong = "k and v need one number of keys"
    elif not q.shape[:2] == k.shape[:2] == v.shape[:2]:
        wrong = "q, k and v need one batch and one number of heads"
    if wrong:
        raise ValueError(f"{wrong}; got q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}.")
    check_mask(mask)


def check_mask(mask: Tensor | None) -> None:
    if mask is not None and mask.dtype != torch.bool:
        raise ValueError(f"mask is {mask.dtype}; expected torch.bool with True = may attend "
                         "(a float mask would be added).")


class Attention(nn.Module):
    """An attention layer of any AttentionConfig: projections, positions, score, mask, normalizer, kernel."""

    def __init__(self, config: AttentionConfig, add_positions: bool = False) -> None:
        """With `add_positions` the layer itself adds sinusoidal or learned positions to x (a model adds them once)."""
        super().__init__()
        self.config, self.add_positions = config, add_positions
        self.projection, self.score, self.position, self.normalizer, self.kernel = (
            entry(axis, getattr(config, axis).key).build(config)
            for axis in ("projection", "score", "position", "normalizer", "kernel"))
        self.unrecorded = self.kernel if why_not_fused(config) else fused

    def forward(
        self, x: Float[Tensor, "B T C"], context: Float[Tensor, "B S C"] | None = None, *,
        mask: Bool[Tensor, ...] | None = None, key_mask: Bool[Tensor, "B S"] | None = None, offset: int = 0,
        record: bool = True,
    ) -> Steps:
        """Attend from x to context (to x itself when None); `Steps.merged` is the layer's output, (B, T, C).

        The config's mask, `mask` and `key_mask` are joined by and, True = may attend. `offset` is the position of
        x's first token among the keys (keys already decoded). Without `record` nobody looks at the steps between, so
        the fused kernel makes the same output where it can. ValueError when shapes do not meet.
        """
        self.check(x, context, mask, key_mask)
        if self.add_positions:
            x = self.position.add(x, offset)
            context = context if context is None else self.position.add(context)
        context = x if context is None else context
        q, k, v = self.projection(x, context)
        q, k = self.position.rotate(q, offset), self.position.rotate(k)
        allowed, causal = self.allowed(q, k, mask, key_mask, offset)
        if key_mask is not None:
            k, v = without_broken_padding(k, key_mask), without_broken_padding(v, key_mask)
        bias = self.position.bias(q, k, offset)
        dropout = self.config.dropout if self.training else 0.0
        run = self.kernel if record else self.unrecorded
        steps = run(Problem(q, k, v, self.score, self.normalizer, bias, allowed, causal, dropout))
        return replace(steps, merged=self.projection.merge(steps.out))

    def allowed(
        self, q: Tensor, k: Tensor, mask: Tensor | None, key_mask: Tensor | None, offset: int,
    ) -> tuple[Tensor | None, bool]:
        """The joined mask, and whether it is exactly the square causal one, for which kernels have a faster way."""
        config_mask = self.config.mask
        built = build_mask(config_mask, q.shape[2], k.shape[2], key_mask=key_mask, offset=offset, device=q.device)
        plain = mask is None and key_mask is None and offset == 0 and q.shape[2] == k.shape[2]
        if mask is not None:
            built = mask if built is None else built & mask
        return built, plain and config_mask.key == "causal"

    def check(self, x: Tensor, context: Tensor | None, mask: Tensor | None, key_mask: Tensor | None) -> None:
        width = self.config.d_model
        for name, value in (("x", x), ("context", x if context is None else context)):
            if value.dim() != 3 or value.shape[-1] != width:
                raise ValueError(f"{name} is {tuple(value.shape)}; expected (batch, length, d_model = {width}).")
        keys = x if context is None else context
        if key_mask is not None and key_mask.shape != keys.shape[:2]:
            raise ValueError(f"key_mask is {tuple(key_mask.shape)}; expected (batch, keys) = {tuple(keys.shape[:2])}.")
        if self.config.mask.key == "padding" and key_mask is None:
            raise ConfigError("mask = padding needs key_mask, (B, S) with True for real tokens; none was given.")
        check_mask(mask)
        check_mask(key_mask)
