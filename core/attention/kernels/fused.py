"""PyTorch's fused attention."""

from __future__ import annotations

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from core.attention.kernels.base import SAME, product_of
from core.attention.kernels.costs import fused_cost
from core.attention.kernels.exact import AttentionInputs, Steps
from core.attention.kernels.refusals import PLAIN, refuse_when
from core.entries import Entry, LayerConfig


def fused(inputs: AttentionInputs) -> Steps:
    """F.scaled_dot_product_attention: exact's output in O(T) memory, without the intermediate steps.

    A NaN or infinity in k or v reaches rows whose mask hides it; the layer clears padding before.
    """
    q, k, v, bias = inputs.q, inputs.k, inputs.v, inputs.bias()
    scale, temperature = inputs.score.scale, inputs.normalizer.temperature
    square = inputs.block.offset == 0 and q.shape[2] == k.shape[2]
    is_causal = inputs.causal and square and bias is None
    sees_all = inputs.causal and inputs.block.low >= 0  # as the last token does
    mask = None if is_causal or sees_all else inputs.joined_mask()
    attn_mask = mask
    if bias is not None:
        attn_mask = (
            bias / temperature
            if mask is None
            else (bias / temperature).masked_fill(~mask, float("-inf"))
        )
        attn_mask = attn_mask.to(q.dtype)
        attn_mask = (
            attn_mask if attn_mask.dim() == 4 else attn_mask[None]
        )  # PyTorch expands one of three dimensions
    ready_q, ready_k = product_of(inputs).prepare(q, k)
    if isinstance(scale, Tensor):  # one number a head, which the function below does not take
        ready_q, scale = ready_q * scale, 1.0
    narrower = max(
        0, ready_k.shape[-1] - v.shape[-1]
    )  # PyTorch's CPU kernel takes values of the keys' size alone
    values = F.pad(v, (0, narrower)) if narrower else v
    out = F.scaled_dot_product_attention(
        ready_q,
        ready_k,
        values,
        attn_mask=attn_mask,
        dropout_p=inputs.dropout,
        is_causal=is_causal,
        scale=scale / temperature,
    )[..., : v.shape[-1]]
    if (
        mask is not None and q.device.type != "cpu"
    ):  # only PyTorch's CPU kernels are known to give zeros here
        out = out.masked_fill(~mask.any(-1, keepdim=True), 0.0)
    return Steps(q, k, v, inputs.score.scale, bias, mask, out)


def fused_token(
    q: Float[Tensor, "B H 1 D"],
    k: Float[Tensor, "B G S D"],
    v: Float[Tensor, "B G S E"],
    scale: float,
) -> Float[Tensor, "B H 1 E"]:
    """One token of causal attention by scaled dot products: it sees all S keys, so a step of decoding needs no mask.

    The H / G heads that share a head of keys are computed as so many queries of it, which repeats no key.
    """
    batch, heads, _, size = q.shape
    groups = q.reshape(batch, k.shape[1], heads // k.shape[1], size)
    return F.scaled_dot_product_attention(groups, k, v, scale=scale).reshape(
        batch, heads, 1, v.shape[-1]
    )


def why_not_fused(config: LayerConfig) -> str | None:
    """The reason why F.scaled_dot_product_attention cannot compute these choices, or None when it can."""
    return refuse_when("fused", *PLAIN)(config)


FUSED = Entry(
    "fused",
    "Fused",
    lambda config: fused,
    r"O(T S D)\ \text{time},\ O(T + S)\ \text{memory}",
    "The same output, computed block by block without storing the weights.",
    "Dao et al.",
    2022,
    "https://arxiv.org/abs/2205.14135",
    short="tile by tile",
    traits=SAME,
    cost=fused_cost,
    refuse=why_not_fused,
)
