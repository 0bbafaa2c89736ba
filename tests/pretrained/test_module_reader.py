"""Models written by hand, PyTorch's own, and those of packages: their attention is read by what it computes."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from core.pretrained.module_reader import (
    CHANNELS,
    LEARNED,
    NO_MATRIX,
    OWN_KEYS,
    STATE,
    ModuleReading,
    read_module,
)

B, T, C, H = 2, 11, 48, 3
D = C // H


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def heads(x: torch.Tensor) -> torch.Tensor:
    return x.unflatten(-1, (H, D)).transpose(1, 2)


def causal_softmax(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """Causal weights, written once more."""
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    future = torch.ones(scores.shape[-2:]).triu(1).bool()
    return scores.masked_fill(future, -torch.inf).softmax(-1)


def agreed(reading: ModuleReading, calls: int) -> ModuleReading:
    """The reading, once each of its calls gives what the model's own gave, and nothing is unread."""
    assert len(reading.calls) == calls and not reading.unread, reading.unread
    for call in reading.calls:
        assert call.error <= 1e-5 and call.agrees, (call.name, call.error)
    return reading


class NanoAttention(nn.Module):
    """As nanoGPT writes it."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(C, 3 * C), nn.Linear(C, C)
        self.register_buffer("bias", torch.tril(torch.ones(64, 64)).view(1, 1, 64, 64))
        self.attn_dropout, self.fused = nn.Dropout(0.1), fused

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.c_attn(x).split(C, dim=2)
        k = k.view(B, T, H, D).transpose(1, 2)
        q = q.view(B, T, H, D).transpose(1, 2)
        v = v.view(B, T, H, D).transpose(1, 2)
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
            att = self.attn_dropout(F.softmax(att, dim=-1))
            y = att @ v
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("row", range(B))
def test_nano_gpt(fused, row):
    model, x = NanoAttention(fused).train(), numbers(B, T, C)
    call = agreed(read_module(model, x, row=row), 1).calls[0]
    q, k, _ = (heads(one) for one in model.c_attn(x).split(C, 2))
    np.testing.assert_allclose(call.weights, causal_softmax(q, k)[row].detach(), 1e-4, 1e-5)
    assert call.shape == (B, H, T, T) and call.heads == (0, 1, 2) and call.pool == 1
    assert all(module.training for module in model.modules())
    assert not any(one._forward_hooks or one._forward_pre_hooks for one in model.modules())


@pytest.mark.parametrize("first", [True, False])
def test_encoder_of_pytorch(first):
    model = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(C, H, batch_first=first), 2, enable_nested_tensor=False
    ).eval()
    x = numbers(B, T, C)
    reading = agreed(read_module(model, x if first else x.transpose(0, 1)), 2)
    layer: Any = model.layers[0]
    q = x if first else x.transpose(0, 1)
    _, weights = layer.self_attn(q, q, q, average_attn_weights=False)
    np.testing.assert_allclose(reading.calls[0].weights, weights[0].detach(), 1e-4, 1e-5)
    assert reading.calls[1].name == "layers.1.self_attn"


class Flex(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        slopes = torch.tensor([0.1, 0.2, 0.3])
        ahead = create_block_mask(lambda b, h, i, j: i >= j, None, None, T, T, device="cpu")
        return flex_attention(q, k, v, lambda s, b, h, i, j: s - slopes[h] * (i - j), ahead)  # type: ignore[return-value]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_flex(compiled):
    q, k, v = (numbers(B, H, T, D, seed=seed) for seed in range(3))
    model = torch.compile(Flex()) if compiled else Flex()
    call = agreed(read_module(model, (q, k, v)), 1).calls[0]
    distance = (torch.arange(T)[:, None] - torch.arange(T)).float()
    scores = q[0] @ k[0].mT / math.sqrt(D) - torch.tensor([0.1, 0.2, 0.3])[:, None, None] * distance
    expected = scores.masked_fill(distance < 0, -torch.inf).softmax(-1)
    np.testing.assert_allclose(call.weights, expected, 1e-4, 1e-5)


def over_channels(x: torch.Tensor) -> torch.Tensor:
    """As XCiT."""
    q = heads(x).mT
    return ((q @ q.mT).softmax(-1) @ q).mT.transpose(1, 2).reshape(x.shape)


def two_softmaxes(x: torch.Tensor) -> torch.Tensor:
    """As efficient attention, and linear attention in U-Nets."""
    q = heads(x)
    state = torch.einsum("bhnd,bhne->bhde", q.softmax(-2), q) / T
    return torch.einsum("bhnd,bhde->bhne", q.softmax(-1), state)


def one_softmax(x: torch.Tensor) -> torch.Tensor:
    """Linear attention whose queries have no softmax."""
    q = heads(x)
    return q @ (q.softmax(-2).mT @ q)


def landmarks(x: torch.Tensor) -> torch.Tensor:
    """As Nyströmformer, with three landmarks and one step of its inverse."""
    q = heads(x)
    few = q[:, :, ::4]
    first, inner, last = ((a @ b.mT).softmax(-1) for a, b in ((q, few), (few, few), (few, q)))
    inverse = inner.mT @ (2 * torch.eye(3) - inner @ inner.mT)
    return first @ inverse @ (last @ q)


def neighbourhood(x: torch.Tensor) -> torch.Tensor:
    """Each token and the one on either side of it."""
    q = heads(x)
    near = F.pad(q, (0, 0, 1, 1)).unfold(2, 3, 1)  # (B, H, T, D, 3)
    weights = (q[..., None, :] @ near).softmax(-1)  # (B, H, T, 1, 3)
    return (weights @ near.mT).squeeze(-2).transpose(1, 2).flatten(2)


EXPERTS = numbers(4, C, C, seed=9)


def experts(x: torch.Tensor) -> torch.Tensor:
    """A soft mixture of experts, by einsum."""
    router = (x @ EXPERTS[0])[..., :4].softmax(-1)
    return torch.einsum("bte,ebtc->btc", router, torch.stack([x @ one for one in EXPERTS]))


def experts_of_rows(x: torch.Tensor) -> torch.Tensor:
    """The same with tokens in one row, by a sum."""
    rows = x.flatten(0, 1)
    router = (rows @ EXPERTS[0])[:, :4].softmax(-1)
    return (router[..., None] * torch.stack([rows @ one for one in EXPERTS], 1)).sum(1)


def own_kernel(x: torch.Tensor) -> torch.Tensor:
    """A function of its own, which no mode sees."""

    class Attention(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, q: torch.Tensor) -> torch.Tensor:
            return (q @ q.mT).softmax(-1) @ q

    return Attention.apply(x)


class Learned(nn.Module):
    """Attention to vectors of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = nn.Parameter(numbers(5, C))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x @ self.memory.T).softmax(-1) @ self.memory


class Calls(nn.Module):
    """A model of one function."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        return self.function(*tensors)


@pytest.mark.parametrize(
    "model, why",
    [
        (Calls(over_channels), CHANNELS),
        (Calls(two_softmaxes), STATE),
        (Calls(one_softmax), STATE),
        (Calls(landmarks), STATE),
        (Calls(neighbourhood), OWN_KEYS),
        (Calls(experts), OWN_KEYS),
        (Calls(experts_of_rows), OWN_KEYS),
        (Calls(own_kernel), NO_MATRIX),
        (Calls(torch.relu), NO_MATRIX),
        (Learned(), LEARNED),
    ],
    ids=lambda one: getattr(getattr(one, "function", None), "__name__", None),
)
def test_what_is_not_between_tokens_says_why(model, why):
    x = numbers(B, T, C)
    reading = read_module(model, x)
    assert not reading.calls and set(reading.unread.values()) == {why}
    torch.testing.assert_close(reading.output, model(x))


def test_performer_says_why():
    from performer_pytorch import SelfAttention

    reading = read_module(SelfAttention(dim=C, heads=H, causal=False), numbers(B, T, C))
    assert not reading.calls and set(reading.unread.values()) == {NO_MATRIX}


class Own(nn.Module):
    def forward(self, q: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, q, q, is_causal=True)


def test_long_maps_are_pooled_beside_exact_rows():
    q, length = numbers(1, H, 2000, 8), 2000
    call = agreed(read_module(Own(), q, heads=[2, 0], queries=[7, -1]), 1).calls[0]
    whole = causal_softmax(q, q)[0, [2, 0]]
    assert call.pool == 4 and call.heads == (2, 0)
    pooled = whole.unflatten(1, (-1, 4)).mean(2).unflatten(-1, (-1, 4)).sum(-1)
    np.testing.assert_allclose(call.weights, pooled, 1e-4, 1e-5)
    for row in (7, length - 1):
        np.testing.assert_allclose(call.rows[row], whole[:, row], 1e-4, 1e-5)
