"""The gated delta rule, and KDA in segments, against the paper's recurrence and Qwen3-Next; gradients too."""

import torch
from transformers import Qwen3NextConfig
from transformers.models.qwen3_next.modeling_qwen3_next import (
    Qwen3NextGatedDeltaNet,
    torch_chunk_gated_delta_rule,
    torch_recurrent_gated_delta_rule,
)

from core.attention import Attention, AttentionConfig, Choice
from core.attention.kernels import gla
from core.attention.kernels.delta import delta_rule, unit
from tests.cases import each
from tests.oracles.test_kernels import GRADIENT, B, D, H, S, T, heads, same


def gates(keys=T, dtype=torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    """log α and β, (B, H, S), of a state that keeps all, some or nothing."""
    decay = -torch.rand(B, H, keys, dtype=dtype).pow(4).mul(20)
    return decay.requires_grad_(), torch.rand(B, H, keys, dtype=dtype).requires_grad_()


def delta_recurrence(q, k, v, decay, write):
    """The rule as the paper writes it, one token at a time: S ← α S (I − β k kᵀ) + β v kᵀ, out = S q."""
    state, outs = torch.zeros(B, H, v.shape[-1], D, dtype=v.dtype), []
    for t in range(q.shape[2]):
        if t < k.shape[2]:
            key, share = k[:, :, t, :, None], write[:, :, t, None, None]
            erased = torch.eye(D, dtype=k.dtype) - share * key @ key.mT
            state = (
                decay[:, :, t, None, None].exp() * state @ erased
                + share * v[:, :, t, :, None] @ key.mT
            )
        outs.append((state @ q[:, :, t, :, None]).squeeze(-1))
    return torch.stack(outs, 2)


@each("chunk", [1, 8, 37, 64])
@each("keys", [T, S])
def test_the_gated_delta_rule_in_chunks_is_the_recurrence(chunk, keys):
    """Gradients, too, to both gates; queries past the last key read the last state."""
    (q, k, v), both = heads(T, keys, dtype=torch.float64), gates(keys, torch.float64)
    same(
        delta_rule(q, unit(k), v, *both, chunk)[0],
        delta_recurrence(q, unit(k), v, *both),
        [q, k, v, *both],
    )


@each(("queries", "offset"), [(5, 24), (5, 3), (1, 28), (11, 24)])
def test_the_gated_delta_rule_takes_a_cache(queries, offset):
    (_, k, v), both = heads(1, S, dtype=torch.float64), gates(S, torch.float64)
    q = torch.randn(B, H, offset + queries, D, dtype=torch.float64, requires_grad=True)
    theirs = delta_recurrence(q, unit(k), v, *both)[:, :, offset:]
    same(delta_rule(q[:, :, offset:], unit(k), v, *both, 8, offset)[0], theirs, [q, k, v, *both])


@each("peer", [torch_chunk_gated_delta_rule, torch_recurrent_gated_delta_rule])
def test_the_gated_delta_rule_against_transformers(peer):
    """Theirs divides queries by √D, as the scaled product does."""
    (q, k, v), both = heads(T, T), gates()
    turned = [x.transpose(1, 2) for x in (q, k, v, *both)]
    theirs = peer(
        turned[0], turned[1], turned[2], g=turned[3], beta=turned[4], use_qk_l2norm_in_kernel=True
    )[0]
    same(
        delta_rule(unit(q) * D**-0.5, unit(k), v, *both, 8)[0],
        theirs.transpose(1, 2),
        [q, k, v, *both],
    )


def test_the_gated_delta_layer_against_qwen3_next():
    """Its whole layer, with the convolution, norm and gate around the rule; our kernel has the same gates in it."""
    size, value, width = 6, 5, H * 7
    peer = Qwen3NextGatedDeltaNet(
        Qwen3NextConfig(
            hidden_size=width,
            linear_num_key_heads=H,
            linear_num_value_heads=H,
            linear_key_head_dim=size,
            linear_value_head_dim=value,
            num_hidden_layers=1,
            layer_types=["linear_attention"],
        ),
        layer_idx=0,
    )
    layer = Attention(AttentionConfig(width, H, kernel=Choice.of("gated_delta", chunk=5)))
    with torch.no_grad():
        both = peer.in_proj_ba.weight.unflatten(0, (H, 2))
        layer.kernel.write.weight.copy_(both[:, 0])
        layer.kernel.forget.weight.copy_(both[:, 1])
        layer.kernel.forget.bias.copy_(peer.dt_bias)
        layer.kernel.log_rate.copy_(peer.A_log)
    layer.score.scale = size**-0.5  # of its own sizes, which are not width / H
    x = torch.randn(B, T, width, requires_grad=True)
    *qkv, gate, _, _ = peer.fix_query_key_value_ordering(peer.in_proj_qkvz(x), peer.in_proj_ba(x))
    mixed = torch.cat([part.flatten(2) for part in qkv], -1).mT
    mixed = torch.nn.functional.silu(
        peer.conv1d(mixed)[..., :T]
    ).mT  # each number over the last four tokens
    q, k, v = (
        part.unflatten(2, (H, -1)).transpose(1, 2)
        for part in mixed.split([H * size, H * size, H * value], -1)
    )
    out = layer.kernel(layer.kernel_inputs(q, k, v, x, x)).out.transpose(1, 2)
    ours = peer.out_proj(
        peer.norm(out.flatten(0, 2), gate.flatten(0, 2)).unflatten(0, (B, T, H)).flatten(2)
    )
    same(ours, peer(x), [x])
    mine = torch.autograd.grad(
        ours.square().sum(), [layer.kernel.log_rate, layer.kernel.forget.bias]
    )
    theirs = torch.autograd.grad(peer(x).square().sum(), [peer.A_log, peer.dt_bias])
    torch.testing.assert_close(mine, theirs, **GRADIENT)


def test_kda_in_segments_is_kda_at_once(monkeypatch):
    """37 tokens after a state, in segments of 16: outputs, the last state and all gradients."""
    q, k, v = (
        torch.randn(2, 3, 37, size, dtype=torch.float64, requires_grad=True) for size in (6, 6, 5)
    )
    decay, write = (
        -torch.rand(2, 3, 37, 6, dtype=torch.float64),
        torch.rand(2, 3, 37, dtype=torch.float64),
    )
    past, results = torch.randn(2, 3, 6, 5, dtype=torch.float64), []
    for segment in (64, 16):
        monkeypatch.setattr(gla, "SEGMENT", segment)
        out, state = gla.kimi_delta(q, k, v, decay, write, 8, past=past)
        grads = torch.autograd.grad(out.square().sum() + state.sum(), (q, k, v))
        results.append((out, state, *grads))
    torch.testing.assert_close(*results)
