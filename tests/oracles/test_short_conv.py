"""Layers with short convolutions, norms and gates, each whole, against its papers' equations token by token in fp64."""

import torch
import torch.nn.functional as F

from core.attention import Attention, AttentionConfig, Choice, preset
from tests.attention.drawing import perturbed
from tests.attention.test_cache import read_in_parts
from tests.cases import each
from tests.oracles.agreement import same_result

B, T, C, H = 2, 13, 24, 3
D = C // H
PRESETS = ("gla", "mamba2", "deltanet", "gated_deltanet", "kimi_linear")
GATES = {"deltanet": None, "kimi_linear": torch.sigmoid}


def layer_of(key, **changes):
    config = preset(key).config(C, H)
    config = config.with_(
        projection=Choice.of("short_conv", **{**config.projection.kwargs, **changes})
    )
    return perturbed(Attention(config).double().eval())


def convolved(layer, x, weight):
    """One map of x, each channel over four tokens by torch's own convolution, then SiLU; (B, H, T, D)."""
    part = ["query", "key", "value"].index(weight)
    taps = layer.projection.taps.chunk(3, dim=1)[part]
    rows = getattr(layer.projection, weight)(x).mT
    mixed = F.conv1d(F.pad(rows, (len(taps) - 1, 0)), taps.mT.unsqueeze(1), groups=C)
    return F.silu(mixed).mT.unflatten(2, (H, D)).transpose(1, 2)


def recurrence(key, layer, q, k, v, x):
    """S ← α S, then what is written; out = Sᵀ q: one token at a time."""
    gates, state, outs = layer.kernel.gates(x), torch.zeros(B, H, D, D, dtype=x.dtype), []
    for t in range(T):
        decay = gates[0][:, :, t].exp()
        state = state * (decay[..., None] if decay.dim() == 3 else decay[..., None, None])
        row, value = k[:, :, t], v[:, :, t]
        if key == "mamba2":
            value = value * gates[1][:, :, t, None]
        if key in ("deltanet", "gated_deltanet", "kimi_linear"):
            row = F.normalize(row, dim=-1, eps=1e-12)
            value = gates[1][:, :, t, None] * (value - torch.einsum("bhd,bhde->bhe", row, state))
        state = state + row[..., None] * value[..., None, :]
        outs.append(torch.einsum("bhd,bhde->bhe", q[:, :, t], state))
    return torch.stack(outs, 2)


@each("key", PRESETS)
def test_a_whole_layer_is_the_papers(key):
    layer, x = (
        layer_of(key, bias=True),
        torch.randn(B, T, C, dtype=torch.float64, requires_grad=True),
    )
    q, k, v = (convolved(layer, x, name) for name in ("query", "key", "value"))
    if key in ("deltanet", "gated_deltanet", "kimi_linear"):
        q = F.normalize(q, dim=-1)
    scale = 1.0 if key == "mamba2" else D**-0.5
    out = recurrence(key, layer, q * scale, k, v, x)
    out = out * torch.rsqrt(out.square().mean(-1, keepdim=True) + 1e-5) * layer.projection.gain
    out = out.transpose(1, 2).flatten(2)
    if gate := GATES.get(key, F.silu):
        out = out * gate(layer.projection.gate(x))
    theirs = layer.projection.output(out)
    ours = layer(x, record=False).merged
    # unit length: with ε beside the square, or not
    same_result(ours, theirs, (x,), gradient=(1e-3, 1e-4))


@each("key", PRESETS)
@each("bias", [False, True])
def test_steps_give_what_the_whole_text_gives_and_store_three_rows(key, bias):
    layer, x = layer_of(key, bias=bias), torch.randn(B, T, C, dtype=torch.float64)
    whole = layer(x, record=False).merged
    for parts in ((T,), (1,) * T, (2, 1, 7, 3), (1, 12)):
        out, cache = read_in_parts(layer, x, parts)
        torch.testing.assert_close(out, whole)
        assert cache.numbers == H * D * D + 3 * 3 * C
    first, cache = layer.step(x[:, :6], record=True)
    later, _ = layer.step(x[:, 6:], cache, record=True)
    torch.testing.assert_close(torch.cat((first.merged, later.merged), 1), whole)


@each("kernel", ["exact", "gated_delta"])
@each("side", ["left", "right"])
def test_padding_is_not_convolved(kernel, side):
    """A bias makes rows of padding that are not zero; the text's own rows are those of the text alone."""
    config = AttentionConfig(
        C, H, projection=Choice.of("short_conv", bias=True), mask="causal", kernel=kernel
    )
    layer, x = (
        perturbed(Attention(config).double().eval()),
        torch.randn(B, T, C, dtype=torch.float64),
    )
    padding, real = torch.randn(B, 5, C, dtype=torch.float64), torch.ones(B, T, dtype=torch.bool)
    parts = [(padding, ~real[:, :5]), (x, real)][:: 1 if side == "left" else -1]
    padded, key_mask = (torch.cat(one, 1) for one in zip(*parts, strict=True))
    for record in (True, False):
        out = layer(padded, key_mask=key_mask, record=record).merged
        torch.testing.assert_close(out[key_mask].view_as(x), layer(x, record=record).merged)
