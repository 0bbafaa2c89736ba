"""attend, the function, and Attention, the layer: one formula made of six choices."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from core.attention.config import AttentionConfig, entry
from core.attention.kernels import KERNELS, AttentionInputs, Steps, empty_steps, exact, fused, why_not_fused
from core.attention.normalizers import Normalizer, Softmax
from core.attention.scores import Dot
from core.entries import ConfigError, find
from core.masks import make_mask
from core.score_block import ScoreBlock, dot_product_scale

LARGEST = 1e4  # what fills up a batch may be larger, what a layer reads is not


def attend(
    q: Float[Tensor, "B H T D"], k: Float[Tensor, "B G S D"], v: Float[Tensor, "B G S E"],
    mask: Bool[Tensor, ...] | None = None, *, scale: float | None = None, temperature: float = 1.0,
    bias: Float[Tensor, ...] | None = None, dropout: float = 0.0, kernel: str = "exact",
    normalizer: Normalizer | None = None,
) -> Steps:
    """Scaled dot-product attention on ready heads. Vaswani 2017, equation 1.

    q (B, H, T, D), k (B, G, S, D), v (B, G, S, E), where G divides H: each key head serves H / G queries. mask bool,
    True = may attend; bias is added to the scores; both broadcast to (B, H, T, S). `scale` is 1/√D unless given, and
    `normalizer` the softmax at that temperature. A row that sees no key gives zeros. ValueError when shapes do not meet
    or the mask is not bool; ConfigError for an unknown kernel, or one that cannot do that normalizer.
    """
    mask = check_shapes(q, k, v, mask)
    score, softmax = _pieces(dot_product_scale(q.shape[-1]) if scale is None else scale, temperature)
    if kernel != "exact" and normalizer is not None:
        raise ConfigError(f"kernel = {kernel} computes a softmax alone; take kernel = exact, or no normalizer.")
    run = find(KERNELS, "kernel", kernel).build(None)
    if (real := visible_keys(mask)) is not None:
        k, v = (clear_padding(x, real if real.dim() == 1 else real[:, None]) for x in (k, v))
    k, v = repeat_heads(k, q.shape[1]), repeat_heads(v, q.shape[1])
    block = ScoreBlock.whole(q.shape[2], k.shape[2], num_heads=q.shape[1], device=q.device, q=q, k=k)
    inputs = AttentionInputs(block, v, score, normalizer or softmax, call_mask=mask, call_bias=bias, dropout=dropout,
                             record=kernel == "exact")
    return empty_steps(inputs) if inputs.empty else run(inputs)


def repeat_heads(heads: Float[Tensor, "B G S D"], num_heads: int) -> Float[Tensor, "B H S D"]:
    """Each of G heads repeated for the H / G queries that share it."""
    groups = heads.shape[1]
    return heads if groups == num_heads else heads.repeat_interleave(num_heads // groups, dim=1)


def visible_keys(mask: Tensor | None, key_mask: Bool[Tensor, "B S"] | None = None) -> Tensor | None:
    """Which keys a mask and a key mask leave to any query, (S) or (B, S); None where they do not hide keys as such."""
    if mask is None or mask.shape[-2] != 1:
        return key_mask
    keys = mask[..., 0, :].any(-2) if mask.dim() > 2 else mask[0]
    return keys if key_mask is None else keys & key_mask


def clear_padding(x: Float[Tensor, "*batch S C"], real: Bool[Tensor, ...]) -> Float[Tensor, "*batch S C"]:
    """x with zeros for the tokens that are not real and hold what no layer makes: NaN, ±∞, or numbers from LARGEST.

    A weight of 0 does not keep those out, as 0 · NaN is NaN, forward or backward. Other padding stays as it is.
    """
    holds = real | (x.abs().amax(-1) < LARGEST)  # NaN is the largest of all, and below nothing
    return torch.where(holds[..., None], x, 0.0)


@lru_cache(maxsize=64)
def _pieces(scale: float, temperature: float) -> tuple[Dot, Softmax]:
    """Neither holds a weight, so they are made once: making a module takes longer than a short attention."""
    return Dot(scale), Softmax(temperature)


def check_shapes(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor | None:
    wrong = None
    if not q.dim() == k.dim() == v.dim() == 4:
        wrong = "q, k and v are (batch, heads, length, head size)"
    elif q.shape[-1] != k.shape[-1]:
        wrong = "q and k need one head size"
    elif k.shape[-2] != v.shape[-2]:
        wrong = "k and v need one number of keys"
    elif not q.shape[0] == k.shape[0] == v.shape[0] or q.shape[1] % k.shape[1] or q.shape[1] % v.shape[1]:
        wrong = "q, k and v need one batch, and heads of k and v that divide those of q"
    if wrong:
        raise ValueError(f"{wrong}; got q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}.")
    return check_mask(mask)


def check_mask(mask: Tensor | None) -> Tensor | None:
    """The mask, as (1, S) where it was (S); ValueError unless it is bool."""
    if mask is not None and mask.dtype != torch.bool:
        raise ValueError(f"mask is {mask.dtype}; expected torch.bool with True = may attend "
                         "(a float mask would be added).")
    return mask if mask is None else torch.atleast_2d(mask)


class Attention(nn.Module):
    """An attention layer of any AttentionConfig: projections, positions, score, mask, normalizer, kernel."""

    def __init__(self, config: AttentionConfig, add_positions: bool = False) -> None:
        """With `add_positions` the layer itself adds sinusoidal or learned positions to x (a model adds them once)."""
        super().__init__()
        self.config, self.add_positions = config, add_positions
        self.projection, self.score, self.position, self.normalizer, self.kernel = (
            entry(axis, getattr(config, axis).key).build(config)
            for axis in ("projection", "score", "position", "normalizer", "kernel"))
        self.mask = None if config.mask.key == "none" else make_mask(config.mask, config)
        plain = config.kernel.key == "exact" and why_not_fused(config) is None
        self.fast_kernel = fused if plain else self.kernel
        self.recording_kernel = exact if config.has("kernel", "same") else self.kernel
        self.combine_heads = self.projection.combine_heads if config.has("projection", "folds") else None

    def forward(
        self, x: Float[Tensor, "B T C"], context: Float[Tensor, "B S C"] | None = None, *,
        mask: Bool[Tensor, ...] | None = None, key_mask: Bool[Tensor, "B S"] | None = None, offset: int = 0,
        record: bool = True,
    ) -> Steps:
        """Attend from x to context (to x itself when None); `Steps.merged` is the layer's output, (B, T, C).

        The config's mask, `mask` and `key_mask` are joined by and, True = may attend. `offset` is the position of
        x's first token among the keys (keys already decoded). A recorded call returns every step, by the exact kernel
        where the chosen one has the same weights; without `record` nobody looks at the steps between, so the chosen
        kernel runs, and for exact the fused one where it can. ValueError when shapes do not meet.
        """
        mask = self.check(x, context, mask, key_mask)
        if self.add_positions:
            x = self.position.add(x, offset)
            context = context if context is None else self.position.add(context)
        keys = x if context is None else context
        if (real := visible_keys(mask, key_mask)) is not None:
            keys = clear_padding(keys, real)
        queries, context = keys if context is None else x, keys
        q, k, v = self.projection(queries, context, offset)
        steps = self.attend_heads(q, k, v, queries, context, mask, key_mask, offset, record)
        return replace(steps, merged=self.projection.merge(steps.out, queries))

    def attend_heads(
        self, q: Tensor, k: Tensor, v: Tensor, x: Tensor | None = None, context: Tensor | None = None,
        mask: Tensor | None = None, key_mask: Tensor | None = None, offset: int = 0, record: bool = True,
    ) -> Steps:
        """The layer from ready heads to the output of each, before they are merged."""
        inputs = self.kernel_inputs(q, k, v, x, context, mask, key_mask, offset)
        if inputs.empty:
            return empty_steps(inputs)
        return self.recording_kernel(replace(inputs, record=True)) if record else self.fast_kernel(inputs)

    def kernel_inputs(
        self, q: Float[Tensor, "B Hs T D"], k: Float[Tensor, "B G S D"], v: Float[Tensor, "B Gv S E"],
        x: Tensor | None = None, context: Tensor | None = None, mask: Tensor | None = None,
        key_mask: Tensor | None = None, offset: int = 0,
    ) -> AttentionInputs:
        """From projected heads to what a kernel computes: q and k turned, k and v shared, the cells and their rules."""
        length = max(offset + q.shape[2], k.shape[2])
        q, k = self.score.qk_transform(q, k)
        q, k = self.position.rotate(q, offset, length), self.position.rotate(k, length=length)
        k, v = repeat_heads(k, q.shape[1]), repeat_heads(v, self.config.num_heads)
        block = ScoreBlock.whole(q.shape[2], k.shape[2], num_heads=q.shape[1], offset=offset, key_mask=key_mask,
                            device=q.device, q=q, k=k, x=x, context=context)
        if q.shape[2] and k.shape[2]:
            block = replace(block, tables=self.position.tables(block))
        plain = mask is None and key_mask is None and offset == 0 and q.shape[2] == k.shape[2]
        return AttentionInputs(
            block, v, self.score, self.normalizer, self.position, self.mask, mask,
            combine_heads=self.combine_heads, causal=plain and self.config.mask.key == "causal",
            dropout=self.config.dropout if self.training else 0.0)

    def check(
        self, x: Tensor, context: Tensor | None, mask: Tensor | None, key_mask: Tensor | None,
    ) -> Tensor | None:
        """The mask in at least two dimensions; ValueError when shapes do not meet."""
        width = self.config.d_model
        for name, value in (("x", x), ("context", x if context is None else context)):
            if value.dim() != 3 or value.shape[-1] != width:
                raise ValueError(f"{name} is {tuple(value.shape)}; expected (batch, length, d_model = {width}).")
        keys = x if context is None else context
        if key_mask is not None and key_mask.shape != keys.shape[:2]:
            raise ValueError(f"key_mask is {tuple(key_mask.shape)}; expected (batch, keys) = {tuple(keys.shape[:2])}.")
        check_mask(key_mask)
        return check_mask(mask)
