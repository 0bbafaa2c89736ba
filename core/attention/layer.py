"""attend, the function, and Attention, the layer: one formula made of six choices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from core.attention.base import (
    Normalizer,
    Projection,
    ScoreBlock,
    Steps,
    dot_product_scale,
    repeat_heads,
)
from core.attention.checks import (
    check_broadcast,
    check_heads,
    check_inputs,
    check_step,
    clear_padding,
    visible_keys,
)
from core.attention.config import AttentionConfig, Piece, adapt_given, entry
from core.attention.decoding import Cache, append
from core.attention.kernels.compressed import Compressed
from core.attention.kernels.exact import (
    AttentionInputs,
    compute_scores,
    empty_steps,
    exact,
    last_rows,
    why_no_state,
)
from core.attention.kernels.softmax import fused, fused_token, why_not_fused
from core.attention.masks import make_mask
from core.attention.masks.content import Indexer
from core.attention.normalizers import Softmax
from core.attention.positions import enters
from core.attention.scores import Dot
from core.entries import refuse_if, refuse_type

# The loss that trains an indexer beside the model: its choice of keys has no gradient of its own.


def loss_of_indexer(inputs: AttentionInputs, indexer: Indexer | Compressed) -> Float[Tensor, ""]:
    """The KL divergence of the indexer's softmax from the weights of full attention, over all keys up to each query that
    the other masks leave visible; averaged over the queries that are real and see a key.

    The dense form of DeepSeek-V3.2, section 2.1. Its gradient reaches the indexer alone: x, the context and the weights
    are constants here.
    """
    block = inputs.block
    context = block.context.detach()
    x = context if block.x is block.context else block.x.detach()  # one sequence stays one
    constant = replace(block, x=x, context=context)
    if isinstance(indexer, Compressed):
        return indexer.indexer_loss(replace(inputs, block=constant))
    visible = inputs.joined_mask(chosen=False)
    assert visible is not None  # an indexer is a mask
    with torch.no_grad():
        scores = compute_scores(replace(inputs, record=False))[-1]
        weights = inputs.normalizer.at(block)(scores, visible)
    return indexer.loss(constant, weights, visible)


def has_indexer(part: nn.Module) -> TypeGuard[Indexer | Compressed]:
    """Whether a mask or a kernel chooses by an indexer, which a loss of its own trains."""
    return isinstance(part, Indexer) or isinstance(part, Compressed) and part.indexer is not None


class Attention(nn.Module):
    """An attention layer of any AttentionConfig: projections, positions, score, mask, normalizer, kernel.

    By default MultiHead (projections/multi_head.py), Dot with 1/√D (scores.py), Softmax (normalizers.py) and `exact`
    (kernels/exact.py); position "rope" is Rotary (positions/rotary.py) and mask "causal" a Rule around `causal`
    (masks/patterns.py).
    """

    def __init__(
        self,
        config: AttentionConfig = None,  # type: ignore[assignment]  # without one it says the right call
        add_positions: bool = False,
        takes_kv: bool = False,
        layer: int = 0,
        **given: Piece,
    ) -> None:
        """With `add_positions` the layer itself adds sinusoidal or learned positions to x (a model adds them once).

        With `takes_kv` it has no maps for keys and values: each `step` is given those of another layer. `layer` is its
        index in a stack. `given` are modules or functions in place of the config's choices, which are then the default
        ones: score(q, k), position(i, j) (a bias), mask(i, j) (bool), normalizer(scores, mask), or a Projection.
        ConfigError repeats what does not fit.
        """
        super().__init__()
        refuse_type(config, AttentionConfig, "Attention(AttentionConfig(d_model=64, num_heads=4))")
        self.config, self.add_positions = config, add_positions
        pieces = adapt_given(config, given)
        self.projection, self.score, self.position, self.normalizer, self.kernel = (
            pieces[axis] if axis in pieces else entry(axis, getattr(config, axis).key).build(config)
            for axis in ("projection", "score", "position", "normalizer", "kernel")
        )
        self.projection.layer = layer
        self.maps_queries = config.has("projection", "shares keys") and "projection" not in pieces
        if takes_kv:
            del self.projection.key, self.projection.value
            self.score.drop_keys()
        self.mask = pieces.get("mask") or (
            None if config.mask.key == "none" else make_mask(config.mask, config)
        )
        self.indexer = next((part for part in self.modules() if has_indexer(part)), None)
        plain = not pieces and config.kernel.key == "exact" and why_not_fused(config) is None
        self.fast_kernel = fused if plain else self.kernel
        self.recording_kernel = (
            exact if config.has("kernel", "same") and "kernel" not in pieces else self.kernel
        )
        self.carries_state = not pieces and why_no_state(config) is None
        self.rotates_once = (
            not pieces
            and type(self.projection).extend is Projection.extend
            and not config.has("position", "reads length")
            and not config.has("position", "doubles")
        )
        self.fuses_tokens = (
            plain
            and isinstance(self.score, Dot)
            and config.mask.key == "causal"
            and "scores" not in enters(config.position)
        )
        # of earlier queries, which no cache holds
        self.reads_rows = config.has("position", "other rows")
        self.reads_inputs = (
            self.reads_rows
            or config.has("position", "reads x")
            or config.has("mask", "learned")
            or isinstance(self.kernel, nn.Module)
            or bool({"position", "mask"} & pieces.keys())
        )
        self.combine_heads = (
            self.projection.combine_heads
            if config.has("projection", "folds") or "projection" in pieces
            else None
        )

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        context: Float[Tensor, "B S C"] | None = None,
        *,
        mask: Bool[Tensor, ...] | None = None,
        key_mask: Bool[Tensor, "B S"] | None = None,
        offset: int = 0,
        record: bool = True,
        cache: Cache | None = None,
        kv: tuple[Tensor, ...] | None = None,
        shared: dict[str, Tensor] | None = None,
    ) -> Steps:
        """Attend from x to context (to x itself when None); `Steps.merged` is the layer's output, (B, T, C).

        The config's mask, `mask` and `key_mask` are joined by and, True = may attend. `offset` is the position of
        x's first token among the keys (those of the cache come first). A recorded call returns every step, by the exact
        kernel where the chosen one has the same weights; without `record` the chosen kernel runs, and for exact the
        fused one where it can. With a `cache`, x is only what comes after its tokens (see `step`), without another
        mask, context or offset, and `key_mask` speaks of x alone. `kv` are the context's `keys_values`, where they are
        computed already; `shared` is the dict of a stack's forward pass, for a projection that `shares`. ValueError
        when shapes do not meet, or for an argument that is not used.
        """
        if cache is not None:
            check_step(cache.length, offset, context=context, mask=mask)
            offset = cache.length
        context = None if context is x else context
        mask = check_inputs(self.config, x, context, mask, key_mask)
        if self.add_positions:
            x = self.position.add(x, offset)
            context = context if context is None else self.position.add(context)
        if cache is not None:
            return self._extend(x, cache, record, kv, key_mask, shared)
        visible = visible_keys(mask, key_mask)
        keys = clear_padding(x if context is None else context, visible)
        queries = keys if context is None else x
        if kv is None:
            q, k, v = self.projection(queries, keys, offset, **self._given(visible, shared))
        else:
            q, (k, v) = self._queries(queries, offset), kv
        steps = self.attend_heads(q, k, v, queries, keys, mask, key_mask, offset, record)
        return replace(steps, merged=self.projection.merge(steps.out, queries))

    if TYPE_CHECKING:
        __call__ = forward  # nn.Module's own returns Any

    def keys_values(
        self,
        context: Float[Tensor, "B S C"],
        key_mask: Bool[Tensor, "B S"] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """k and v of a context before rotation, the same for all x that attend to it."""
        keys = clear_padding(
            self.position.add(context) if self.add_positions else context, key_mask
        )
        _, k, v = self.projection(keys[:, :0], keys, **self._given(key_mask, None))
        return k, v

    def _queries(self, x: Tensor, offset: int) -> Tensor:
        """q alone: by the projection's own map, or beside no keys."""
        if self.maps_queries:
            return self.projection.queries(x)
        return self.projection(x, x[:, :0], offset, **self._given(None, None))[0]

    def _given(self, key_mask: Tensor | None, shared: dict[str, Tensor] | None) -> dict[str, Any]:
        """What the projection asks for beside x and context."""
        given: dict[str, Any] = {"key_mask": key_mask} if self.projection.reads_key_mask else {}
        return (
            given | {"shared": {} if shared is None else shared}
            if self.projection.shares
            else given
        )

    def step(
        self,
        x: Float[Tensor, "B T C"],
        cache: Cache | None = None,
        record: bool = False,
        kv: tuple[Tensor, ...] | None = None,
        shared: dict[str, Tensor] | None = None,
        key_mask: Bool[Tensor, "B T"] | None = None,
    ) -> tuple[Steps, Cache]:
        """Attend from T new tokens to those of the cache and to themselves; returns the Steps and the longer cache.

        The first call (prefill) has many tokens, each later one (decode) usually one. All steps together are one causal
        call on the whole text, to rounding, where the choices read no later token; a position whose angles depend on
        the length (ntk) takes the length so far. A kernel that sums all tokens up in one state stores it alone, unless
        `record`, whose weights are of every key; `why_no_state` has the reason of each that does not. A layer with
        `takes_kv` stores nothing and reads `kv`, the k and v of all tokens in another layer's cache (`Cache.heads`).
        `key_mask` says which of the new tokens are real; the cache keeps it, so that padding to the left of a batch's
        texts, given with them, is hidden from every later step.
        ValueError when shapes do not meet, or to record after steps that stored a state alone.
        """
        steps = self(
            x, cache=cache or Cache(), record=record, kv=kv, shared=shared, key_mask=key_mask
        )
        return steps, steps.cache

    def _extend(
        self,
        x: Tensor,
        cache: Cache,
        record: bool,
        kv: tuple[Tensor, ...] | None,
        key_mask: Tensor | None,
        shared: dict[str, Tensor] | None,
    ) -> Steps:
        if kv is not None and (self.carries_state or self.reads_rows):
            raise ValueError(
                f"kv is not used by kernel = {self.config.kernel.key} with position = "
                f"{self.config.position.key}, which reads the tokens themselves; leave it out."
            )
        real, x, offset = cache.real_with(x, key_mask), clear_padding(x, key_mask), cache.length
        given, length, seen = self._given(key_mask, shared), offset + x.shape[1], None
        heads: tuple[Tensor, ...] = ()
        if self.carries_state and not record and (cache.state is not None or not offset):
            # the kernel sees the new tokens alone, and a state in place of those before
            q, k, v, heads = self.projection.carry(x, cache.heads, offset, **given)
            inputs = self.kernel_inputs(q, k, v, x, x, None, key_mask, offset, offset)
            inputs = replace(inputs, carries=True, past=cache.state)
            steps = empty_steps(inputs) if inputs.empty else self.kernel(inputs)
            state = cache.state if inputs.empty else steps.state
            return replace(
                steps,
                state=state,
                merged=self.projection.merge(steps.out, x),
                cache=Cache(length, heads, state=state, real=real),
            )
        if cache.state is not None:
            raise ValueError(
                "This cache holds a state and no keys to draw weights on; record from the first token on."
            )
        if self.reads_inputs:
            seen = x if cache.inputs is None else torch.cat((cache.inputs, x), dim=1)
        if self.reads_rows:  # all rows are computed again, so no heads are stored
            assert seen is not None
            steps = last_rows(self(seen, key_mask=real, record=record, shared=shared), x.shape[1])
            return replace(steps, cache=Cache(length, (), seen, real=real))
        # What is stored are keys as they are once rotated, or what the projection chooses, from which keys are
        # computed and rotated again at each step.
        if kv is not None:
            q, (k, v) = self._queries(x, offset), kv
        elif self.rotates_once:
            q, k, v = self.projection(x, x, offset, **given)
        else:
            q, k, v, heads = self.projection.extend(x, cache.heads, offset, **given)
        if not self.rotates_once:
            q, k = self._rotate(q, k, offset, 0)
        elif kv is not None:
            q, _ = self._rotate(q, k[:, :, :0], offset, 0)
        else:
            q, k = self._rotate(q, k, offset, offset)
            k, v = heads = append(cache.heads, (k, v))
        drops = self.training and self.config.dropout
        if self.fuses_tokens and real is None and x.shape[1] == 1 and not record and not drops:
            scale = self.score.scale
            out = fused_token(q, k, v, scale / self.normalizer.temperature)
            steps = Steps(q, k, v, scale, None, None, out)
        else:
            inputs = self.kernel_inputs(q, k, v, x, seen, None, real, offset, rotated=True)
            steps = self._compute(inputs, record)
        return replace(
            steps,
            merged=self.projection.merge(self.projection.expand(steps.out), x),
            cache=Cache(length, heads, seen, real=real),
        )

    def attend_heads(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        x: Tensor | None = None,
        context: Tensor | None = None,
        mask: Tensor | None = None,
        key_mask: Tensor | None = None,
        offset: int = 0,
        record: bool = True,
    ) -> Steps:
        """The layer from projected heads to the output of each, before they are merged."""
        return self._compute(
            self.kernel_inputs(q, k, v, x, context, mask, key_mask, offset), record
        )

    def _compute(self, inputs: AttentionInputs, record: bool) -> Steps:
        if inputs.empty:
            return empty_steps(inputs)
        steps = (
            self.recording_kernel(replace(inputs, record=True))
            if record
            else self.fast_kernel(inputs)
        )
        if self.indexer is None or not (self.training and torch.is_grad_enabled()):
            return steps
        return replace(steps, indexer_loss=loss_of_indexer(inputs, self.indexer))

    def _rotate(self, q: Tensor, k: Tensor, offset: int, first_key: int) -> tuple[Tensor, Tensor]:
        """q and k as the score meets them: transformed by the score, then rotated by their positions."""
        length = max(offset + q.shape[2], first_key + k.shape[2])
        q, k = self.score.qk_transform(q, k)
        return self.position.rotate(q, offset, length), self.position.rotate_keys(
            k, first_key, length
        )

    def kernel_inputs(
        self,
        q: Float[Tensor, "B Hs T D"],
        k: Float[Tensor, "B G S D"],
        v: Float[Tensor, "B Gv S E"],
        x: Tensor | None = None,
        context: Tensor | None = None,
        mask: Tensor | None = None,
        key_mask: Tensor | None = None,
        offset: int = 0,
        first_key: int = 0,
        rotated: bool = False,
    ) -> AttentionInputs:
        """The inputs of a kernel from projected heads: q and k are rotated, unless they are `rotated` already, and k and
        v repeated for the heads that share.

        The first query has position `offset`, the first key `first_key`: above 0 if a state stands for those before.
        """
        if not rotated:
            q, k = self._rotate(q, k, offset, first_key)
        k, v = repeat_heads(k, q.shape[1]), repeat_heads(v, self.config.num_heads)
        block = ScoreBlock.whole(
            q.shape[2],
            k.shape[2],
            num_heads=q.shape[1],
            offset=offset - first_key,
            key_mask=key_mask,
            device=q.device,
            q=q,
            k=k,
            x=x,
            context=context,
        )
        if q.shape[2] and k.shape[2] and (tables := self.position.tables(block)):
            block = replace(block, tables=tables)
        return AttentionInputs(
            block,
            v,
            self.score,
            self.normalizer,
            self.position,
            self.mask,
            mask,
            combine_heads=self.combine_heads,
            causal=self.config.mask.key == "causal" and mask is None and key_mask is None,
            dropout=self.config.dropout if self.training else 0.0,
        )


def attend(
    q: Float[Tensor, "B H T D"],
    k: Float[Tensor, "B G S D"],
    v: Float[Tensor, "B G S E"],
    mask: Bool[Tensor, ...] | None = None,
    *,
    scale: float | None = None,
    temperature: float = 1.0,
    bias: Float[Tensor, ...] | None = None,
    dropout: float = 0.0,
    kernel: str = "exact",
    normalizer: Normalizer | None = None,
) -> Steps:
    """Scaled dot-product attention of given heads. Vaswani 2017, equation 1.

    q (B, H, T, D), k (B, G, S, D), v (B, G, S, E), where G divides H: each key head serves H / G queries. mask bool,
    True = may attend; bias is added to the scores; both broadcast to (B, H, T, S). `scale` is 1/√D unless given, and
    `normalizer` the softmax at that temperature. A row that sees no key gives zeros. ValueError when shapes do not meet
    or the mask is not bool; ConfigError for an unknown kernel, or one that cannot do that normalizer.
    """
    mask = check_heads(q, k, v, mask)
    if bias is not None:
        check_broadcast("bias", bias, (q.shape[0], q.shape[1], q.shape[2], k.shape[2]))
    scale = dot_product_scale(q.shape[-1]) if scale is None else scale
    run, score, softmax = _pieces(kernel, dropout, scale, temperature)
    refuse_if(
        normalizer is not None and kernel != "exact",
        f"kernel = {kernel} computes only softmax",
        "no normalizer",
        kernel="exact",
    )
    refuse_if(
        normalizer is not None and temperature != 1.0,
        f"temperature = {temperature:g} is that of the softmax; give it to the normalizer instead.",
    )
    real = visible_keys(mask)
    real = real if real is None or real.dim() == 1 else real[:, None]
    k, v = (repeat_heads(clear_padding(x, real), q.shape[1]) for x in (k, v))
    block = ScoreBlock.whole(
        q.shape[2], k.shape[2], num_heads=q.shape[1], device=q.device, q=q, k=k
    )
    inputs = AttentionInputs(
        block,
        v,
        score,
        normalizer or softmax,
        call_mask=mask,
        call_bias=bias,
        dropout=dropout,
        record=kernel == "exact",
    )
    return empty_steps(inputs) if inputs.empty else run(inputs)


@lru_cache(maxsize=64)
def _pieces(
    kernel: str, dropout: float, scale: float, temperature: float
) -> tuple[Callable[[AttentionInputs], Steps], Dot, Softmax]:
    """The kernel of the default config, the score and the softmax; ConfigError for a kernel that a layer alone can have.

    Cached, as none has weights and making a module takes longer than a short attention.
    """
    config = AttentionConfig(kernel=kernel, dropout=dropout)
    refuse_if(
        config.has("kernel", "layer only"),
        f"kernel = {kernel} has weights or sizes of its own",
        "Attention(config)",
        kernel="linear",
    )
    return entry("kernel", kernel).build(config), Dot(scale), Softmax(temperature)
