"""Models written by hand, PyTorch's own, and those of packages: their attention is read by what it computes."""

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from transformers import AutoModelForCausalLM, LlamaConfig

from core.attention import PRESETS, Attention
from core.pretrained.module_reader import (
    CHANNELS,
    LEARNED,
    NO_MATRIX,
    OWN_KEYS,
    STATE,
    ModuleReading,
    _Reader,
    read_module,
)
from tests.tiny_models import library_attention

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

    bias: torch.Tensor

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
    assert call.shape == (B, H, T, T) and call.heads == (0, 1, 2) and call.pool == (1, 1)
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
    model: Any = torch.compile(Flex()) if compiled else Flex()
    call = agreed(read_module(model, (q, k, v)), 1).calls[0]
    distance = (torch.arange(T)[:, None] - torch.arange(T)).float()
    scores = q[0] @ k[0].mT / math.sqrt(D) - torch.tensor([0.1, 0.2, 0.3])[:, None, None] * distance
    expected = scores.masked_fill(distance < 0, -torch.inf).softmax(-1)
    np.testing.assert_allclose(call.weights, expected, 1e-4, 1e-5)


def over_channels(x: torch.Tensor) -> torch.Tensor:
    """As XCiT."""
    q = heads(x).mT
    return ((q @ q.mT).softmax(-1) @ q).mT.transpose(1, 2).reshape(x.shape)


def over_channels_of_a_picture(x: torch.Tensor) -> torch.Tensor:
    """As DANet's second module."""
    q = x.flatten(2)
    return (q @ q.mT).softmax(-1) @ q


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


@torch.library.custom_op("attention_lab_tests::attend", mutates_args=())
def own_kernel(x: torch.Tensor) -> torch.Tensor:
    """A kernel of its own, whose inside nothing sees."""
    return (x @ x.mT).softmax(-1) @ x


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
        (Calls(lambda x: own_kernel(x)), NO_MATRIX),
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


def test_channels_of_a_picture_say_why():
    reading = read_module(Calls(over_channels_of_a_picture), numbers(B, 6, 8, T))
    assert not reading.calls and set(reading.unread.values()) == {CHANNELS}


def test_performer_says_why():
    from performer_pytorch import SelfAttention

    reading = read_module(SelfAttention(dim=C, heads=H, causal=False), numbers(B, T, C))
    assert not reading.calls and set(reading.unread.values()) == {NO_MATRIX}


# What is read, whatever way it is written: a function of (q, k, v), each (B, H, T, D), and the scores of its softmax.


def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return (q @ k.mT).softmax(-1) @ v


def in_place(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    scores = q @ k.mT
    scores[:] = F.softmax(scores, -1)
    scores *= 1.0
    out = scores @ v
    scores.zero_()  # its memory is used again
    return out


def into_out(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    scores = q @ k.mT
    torch.softmax(scores, -1, out=scores)
    return torch.bmm(scores.flatten(0, 1), v.flatten(0, 1)).view(q.shape)


def by_einsum(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    weights = torch.einsum("b h i d, b h j d -> b h i j", q, k).softmax(dim=-1)
    return torch.einsum("b h i j, b h j d -> b i h d", weights, v)


def values_first(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """As non-local blocks, with channels before tokens."""
    weights = (q @ k.mT).softmax(-1)
    return v.mT @ weights.transpose(-1, -2)


def short_einsum(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    weights = torch.einsum("...id,...jd", q, k).softmax(-1).to(torch.float64).float()
    return torch.einsum("...jd,...ij->...id", v, weights)


def heads_in_a_list(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    weights = torch.stack([(q[:, h] @ k[:, h].mT).softmax(-1) for h in range(H)], 1)
    return torch.matmul(weights, v)


def with_a_sink(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    scores = q @ k.mT
    return torch.cat([scores, torch.full_like(scores[..., :1], -1e9)], -1).softmax(-1)[..., :-1] @ v


def autograd_function(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    class Attention(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return plain(q, k, v)

    return Attention.apply(q, k, v)


def exponentials(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """A softmax written by hand."""
    scores = torch.matmul(q, k.mT)
    weights = (scores - scores.amax(-1, keepdim=True)).exp()
    return weights / weights.sum(-1, keepdim=True) @ v


def logarithms(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.einsum(
        "bhij,bhjd->bhid", F.log_softmax(torch.einsum("bhid,bhjd->bhij", q, k), -1).exp(), v
    )


def fused(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, scale=1.0)


def by_its_operator(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten.scaled_dot_product_attention(q, k, v, scale=1.0)


WRITTEN = (plain, in_place, into_out, by_einsum, values_first, short_einsum, heads_in_a_list, with_a_sink,
           autograd_function, exponentials, logarithms, fused, by_its_operator)  # fmt: skip


@pytest.mark.parametrize("function", WRITTEN, ids=lambda one: one.__name__)
def test_ways_to_write_attention(function):
    q, k, v = numbers(B, H, T, D), numbers(B, H, 7, D, seed=1), numbers(B, H, 7, D, seed=2)
    call = agreed(read_module(Calls(function), (q, k, v), row=1), 1).calls[0]
    assert call.shape == (B, H, T, 7)
    np.testing.assert_allclose(call.weights, (q @ k.mT).softmax(-1)[1], 1e-4, 1e-5)


def mixed_heads(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Talking heads, whose mixture is what values get."""
    return torch.einsum("bhij,hg->bgij", (q @ k.mT).softmax(-1), MIX) @ v


def sparsemax(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    from entmax import sparsemax

    return sparsemax(q @ k.mT, dim=-1) @ v


def differential(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return ((q @ k.mT).softmax(-1) - 0.3 * (k @ q.mT).softmax(-1)) @ v


MIX = nn.Parameter(numbers(H, H, seed=8))


def test_mixed_weights_are_read_as_values_get_them():
    q, k, v = (numbers(B, H, T, D, seed=seed) for seed in range(3))
    weights, other = (q @ k.mT).softmax(-1), (k @ q.mT).softmax(-1)
    from entmax import sparsemax as projected

    for function, expected in (
        (sparsemax, projected(q @ k.mT, dim=-1)),
        (mixed_heads, torch.einsum("bhij,hg->bgij", weights, MIX)),
        (differential, weights - 0.3 * other),
    ):
        call = agreed(read_module(Calls(function), (q, k, v)), 1).calls[0]
        np.testing.assert_allclose(call.weights, expected[0].detach(), 1e-4, 1e-5)


def test_head_mixing_by_a_linear_layer_as_in_cait():
    mix = nn.Linear(H, H)

    def cait(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        weights = mix((q @ k.mT).permute(0, 2, 3, 1)).permute(0, 3, 1, 2).softmax(-1)
        return mix(weights.permute(0, 2, 3, 1)).permute(0, 3, 1, 2) @ v

    q, k, v = (numbers(B, H, T, D, seed=seed) for seed in range(3))
    agreed(read_module(Calls(cait), (q, k, v)), 1)


class Additive(nn.Module):
    """Bahdanau's attention of one query, as PyTorch's tutorial of translation writes it, or by a sum."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.query, self.key, self.score = nn.Linear(C, C), nn.Linear(C, C), nn.Linear(C, 1)
        self.way = way

    def forward(self, query: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        weights = self.score(torch.tanh(self.query(query)[:, None] + self.key(states))).softmax(1)
        if self.way == "bmm":
            return torch.bmm(weights.squeeze(2).unsqueeze(1), states).squeeze(1)
        return (weights * states).sum(1, keepdim=self.way == "keepdim")


@pytest.mark.parametrize("way", ["bmm", "sum", "keepdim"])
def test_additive_attention(way):
    model, query, states = Additive(way), numbers(B, C), numbers(B, T, C, seed=1)
    call = agreed(read_module(model, (query, states), row=1), 1).calls[0]
    scores = model.score(torch.tanh(model.query(query)[:, None] + model.key(states)))
    assert call.shape == (B, 1, 1, T)
    np.testing.assert_allclose(call.weights[0, 0], scores.softmax(1)[1, :, 0].detach(), 1e-4, 1e-5)


def test_additive_attention_of_many_queries():
    q, k, v = numbers(B, 5, 1, C), numbers(B, 1, T, C, seed=1), numbers(B, 1, T, C, seed=2)

    def additive(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return (torch.tanh(q + k).sum(-1, keepdim=True).softmax(2) * v).sum(dim=-2)

    call = agreed(read_module(Calls(additive), (q, k, v)), 1).calls[0]
    expected = torch.tanh(q + k).sum(-1).softmax(-1)
    assert call.shape == (B, 1, 5, T)
    np.testing.assert_allclose(call.weights[0], expected[0], 1e-4, 1e-5)


class Pool(nn.Module):
    """One learned query over all tokens, with as many heads as there are tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(C, 4, batch_first=True)
        self.query = nn.Parameter(numbers(1, 1, C))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attn(self.query.expand(len(x), -1, -1), x, x, need_weights=False)[0]


@pytest.mark.parametrize("length", [4, 8, T])
def test_pooling_by_attention_is_read(length):
    call = agreed(read_module(Pool(), numbers(B, length, C)), 1).calls[0]
    assert call.shape == (B, 4, 1, length)


class Twice(nn.Module):
    """Self-attention and cross-attention in one module, and a gate by a softmax before them."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.qkv = nn.Linear(C, C), nn.Linear(C, 3 * C)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = x * self.gate(x).softmax(-1)[..., :1] + x
        q, k, v = self.qkv(x).chunk(3, -1)
        x = x + (q @ k.mT).softmax(-1) @ v
        (q, _, _), (_, k, v) = self.qkv(x).chunk(3, -1), self.qkv(y).chunk(3, -1)
        return x + (q @ k.mT).softmax(-1) @ v


def test_two_attentions_of_one_module():
    reading = agreed(read_module(Twice(), (numbers(B, T, C), numbers(B, 5, C))), 2)
    assert [call.shape for call in reading.calls] == [(B, 1, T, T), (B, 1, T, 5)]


class Gated(nn.Module):
    """Features times a softmax, added to what they were: none of it is a weight of the attention that follows."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.gate, self.query, self.way = nn.Linear(C, C), nn.Linear(C, C), way

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate = self.gate(x).softmax(-1)
        x = {
            "times": x * gate,
            "plus": x + gate,
            "product": self.query(gate),
            "first": gate[..., :1] * x,
        }[self.way]
        return (self.query(x) @ x.mT).softmax(-1) @ x


@pytest.mark.parametrize("way", ["times", "plus", "product", "first"])
def test_gates_are_no_weights(way):
    reading = agreed(read_module(Gated(way), numbers(B, T, C)), 1)
    assert reading.calls[0].shape == (B, 1, T, T)


class Stacked(nn.Module):
    """Layers in one parameter, and no module inside."""

    def __init__(self) -> None:
        super().__init__()
        self.matrices = nn.Parameter(0.1 * numbers(3, 4, C, C))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.matrices:
            q, k, v = (x @ one for one in layer[:3])
            x = x + (q @ k.mT).softmax(-1) @ v @ layer[3]
        return x


def slots(x: torch.Tensor) -> torch.Tensor:
    """Slot attention of two steps: what the first gives are the queries of the second."""
    q = numbers(B, 4, C)
    for _ in range(2):
        weights = torch.einsum("bid,bjd->bij", q, x).softmax(1) + 1e-8
        q = torch.einsum("bjd,bij->bid", x, weights / weights.sum(-1, keepdim=True))
    return q


def test_layers_without_modules_and_steps_of_slots():
    x = numbers(B, T, C)
    assert {call.shape for call in agreed(read_module(Stacked(), x), 3).calls} == {(B, 1, T, T)}
    assert {call.shape for call in agreed(read_module(Calls(slots), x), 2).calls} == {(B, 1, 4, T)}


def test_one_query_beside_a_cache():
    inputs = numbers(B, H, 1, D), numbers(B, H, 9, D), numbers(B, H, 9, D)
    model = Calls(lambda q, k, v: F.scaled_dot_product_attention(q, k, v))
    assert agreed(read_module(model, inputs), 1).calls[0].shape == (B, H, 1, 9)


@pytest.mark.parametrize("length", [T, 12])
def test_time_before_batch_as_in_fairseq(length):
    def attend(x: torch.Tensor) -> torch.Tensor:
        q = x.contiguous().view(length, B * H, D).transpose(0, 1)
        return torch.bmm(torch.bmm(q, q.transpose(1, 2)).softmax(-1), q)

    x = numbers(length, B, C)
    q = x.view(length, B, H, D).permute(1, 2, 0, 3)
    call = agreed(read_module(Calls(attend), x, row=1), 1).calls[0]
    np.testing.assert_allclose(call.weights, (q @ q.mT).softmax(-1)[1], 1e-4, 1e-5)


class ScriptedAttention(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x @ x.transpose(1, 2), -1) @ x


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_scripted_modules_are_listed():
    model = nn.Sequential(NanoAttention(True), torch.jit.script(ScriptedAttention()))
    reading = read_module(model, numbers(B, T, C))
    assert len(reading.calls) == 1 and reading.unread == {"1": NO_MATRIX}


def windows(layout: str) -> Any:
    """Windows of 4 of 20 tokens, 3 heads; the order of batch, windows and heads, with the first of them in one."""

    def attend(x: torch.Tensor) -> torch.Tensor:
        q = x.view(B, 5, 4, H, D).permute(0, *((3, 1) if "h w" in layout else (1, 3)), 2, 4)
        q = q.flatten(0, 2 if layout == "(b w h)" else 1) if "(" in layout else q
        return (q @ q.mT).softmax(-1) @ q

    return attend


@pytest.mark.parametrize("layout", ["b w h", "(b w) h", "b h w", "(b h) w", "(b w h)"])
def test_windows_count_as_sequences(layout):
    x = numbers(B, 20, C)
    q = x.view(B, 5, 4, H, D).transpose(2, 3).flatten(0, 1)
    for row in (0, 6):
        call = agreed(read_module(Calls(windows(layout)), x, row=row), 1).calls[0]
        assert call.shape == (B * 5, H, 4, 4)
        np.testing.assert_allclose(call.weights, (q @ q.mT).softmax(-1)[row], 1e-4, 1e-5)


class Own(nn.Module):
    def forward(self, q: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, q, q, is_causal=True)


def test_what_is_printed_fits_on_a_screen():
    reading = read_module(nn.TransformerEncoderLayer(8, 2, batch_first=True), torch.ones(1, 40, 8))
    assert len(repr(reading)) < 300 and len(repr(reading.trace())) < 200
    assert "AttentionMap(self L0, (2, 40, 40))" in repr(reading.trace())


def test_long_maps_are_pooled_beside_exact_rows():
    q, length = numbers(1, H, 2000, 8), 2000
    call = agreed(read_module(Own(), q, heads=[2, 0], queries=[7, -1]), 1).calls[0]
    whole = causal_softmax(q, q)[0, [2, 0]]
    assert call.pool == (4, 4) and call.heads == (2, 0)
    pooled = whole.unflatten(1, (-1, 4)).mean(2).unflatten(-1, (-1, 4)).sum(-1)
    np.testing.assert_allclose(call.weights, pooled, 1e-4, 1e-5)
    for row in (7, length - 1):
        np.testing.assert_allclose(call.rows[row], whole[:, row], 1e-4, 1e-5)


@pytest.mark.parametrize("keys", [5, 40, 600])
@pytest.mark.parametrize("block", [2**7, 2**20])
def test_causal_calls_of_fewer_and_of_more_keys(keys, block, monkeypatch):
    monkeypatch.setattr("core.pretrained.module_reader.BLOCK", block)
    q, k = numbers(B, H, 20, D), numbers(B, H, keys, D, seed=1)
    model = Calls(lambda q, k: F.scaled_dot_product_attention(q, k, k, is_causal=True))
    call = agreed(read_module(model, (q, k), row=1), 1).calls[0]
    future = torch.ones(20, keys).triu(1).bool()
    expected = (q @ k.mT / math.sqrt(D)).masked_fill(future, -torch.inf).softmax(-1)[1]
    np.testing.assert_allclose(call.weights, expected, 1e-4, 1e-5)


@pytest.mark.parametrize(
    ("shape", "pool"), [((4096, 77), (2, 1)), ((3, 5000), (1, 4)), ((2048, 3), (1, 1))]
)
def test_the_long_side_alone_is_pooled(shape, pool):
    q, k = (numbers(1, 1, size, 4, seed=size) for size in shape)
    model = Calls(lambda q, k: F.scaled_dot_product_attention(q, k, k))
    call = agreed(read_module(model, (q, k), queries=[1]), 1).calls[0]
    whole = (q @ k.mT / 2).softmax(-1)[0]
    pooled = F.pad(whole, (0, -shape[1] % pool[1])).unflatten(2, (-1, pool[1])).sum(-1)
    assert call.pool == pool
    np.testing.assert_allclose(call.weights, pooled.unflatten(1, (-1, pool[0])).mean(2), 1e-4, 1e-5)
    if pool != (1, 1):
        np.testing.assert_allclose(call.rows[1], whole[:, 1], 1e-4, 1e-5)


def test_values_that_all_heads_share():
    weights, v = numbers(B, H, T, T).softmax(-1), numbers(T, D)
    call = agreed(read_module(Calls(lambda s, v: s.softmax(-1) @ v), (weights.log(), v)), 1).calls[
        0
    ]
    np.testing.assert_allclose(call.weights, weights[0], 1e-4, 1e-5)


# PyTorch's own modules.


@pytest.mark.parametrize("weighs", [True, False])
@pytest.mark.parametrize("mask", ["none", "bool", "float", "padding", "causal"])
def test_multi_head_attention_of_pytorch(weighs, mask):
    layer = nn.MultiheadAttention(C, H, batch_first=True).eval()
    x = numbers(B, T, C)
    future = torch.ones(T, T).triu(1).bool()
    padded = torch.zeros(B, T, dtype=torch.bool)
    padded[1, 7:] = True
    masks: dict[str, dict[str, Any]] = {
        "none": {},
        "bool": {"attn_mask": future},
        "float": {"attn_mask": numbers(T, T)},
        "padding": {"key_padding_mask": padded},
        "causal": {"attn_mask": future, "is_causal": True},
    }
    options = masks[mask]
    inputs = {"query": x, "key": x, "value": x, "need_weights": weighs, **options}
    reading = agreed(read_module(layer, inputs, row=1), 1)
    out, weights = layer(x, x, x, average_attn_weights=False, **options)
    np.testing.assert_allclose(reading.calls[0].weights, weights[1].detach(), 1e-4, 1e-5)
    assert (reading.output[1] is not None) == weighs
    torch.testing.assert_close(reading.output[0], out, rtol=1e-4, atol=1e-5)


def test_encoder_and_decoder_of_pytorch():
    model = nn.Transformer(C, H, 2, 2, 96, batch_first=True).eval()
    reading = agreed(read_module(model, (numbers(B, T, C), numbers(B, 7, C))), 6)
    assert [call.shape[2:] for call in reading.calls] == [(T, T)] * 2 + [(7, 7), (7, T)] * 2
    trace = reading.trace(tuple("abcdefg"), [f"w{i}" for i in range(T)])
    assert [one.kind for one in trace.maps] == ["self", "self", *["self", "cross"] * 2]
    assert trace.maps[3].queries == tuple("abcdefg") and trace.maps[3].keys[-1] == "w10"


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_fast_path_of_padded_sentences():
    layer = nn.TransformerEncoderLayer(C, 4, batch_first=True)
    model, x = nn.TransformerEncoder(layer, 2).eval(), numbers(B, T, C)
    padded = torch.zeros(B, T, dtype=torch.bool)
    padded[1, 7:] = True
    inputs = {"src": x, "src_key_padding_mask": padded}
    call = agreed(read_module(model, inputs, row=1), 2).calls[0]
    assert not call.weights[:, :, 7:].any() and call.weights[:, :, :7].all()


def test_patched_function_of_pytorch_stands_again():
    before = F.scaled_dot_product_attention
    read_module(nn.MultiheadAttention(C, H), (numbers(T, B, C),) * 3)
    with pytest.raises(AssertionError):
        read_module(nn.MultiheadAttention(C, H), (numbers(T, B, C + 1),) * 3)
    assert F.scaled_dot_product_attention is before


# Grouped heads, masks and precision of the fused function.


def test_shared_keys_masks_and_scale():
    q, k, v = numbers(B, 6, T, D), numbers(B, 2, T, D, seed=1), numbers(B, 2, T, D, seed=2)
    near = (torch.arange(T)[:, None] - torch.arange(T)).abs() < 3
    keys = k.repeat_interleave(3, 1)
    for mask, bias in (
        (near, torch.zeros(T, T).masked_fill(~near, -torch.inf)),
        (numbers(B, 1, T, T),) * 2,
    ):
        model = Calls(
            lambda q, k, v, mask=mask: F.scaled_dot_product_attention(
                q, k, v, mask, scale=0.1, enable_gqa=True
            )
        )
        call = agreed(read_module(model, (q, k, v), row=1, heads=[5, 0]), 1).calls[0]
        expected = (q @ keys.mT * 0.1 + bias).softmax(-1)[1, [5, 0]]
        np.testing.assert_allclose(call.weights, expected, 1e-4, 1e-5)


def test_dead_rows_are_zeros():
    q, mask = numbers(B, H, T, D), torch.ones(T, T, dtype=torch.bool)
    mask[3] = False
    model = Calls(lambda q: F.scaled_dot_product_attention(q, q, q, mask))
    assert not agreed(read_module(model, q), 1).calls[0].weights[:, 3].any()


@pytest.mark.parametrize("way", ["bfloat16", "autocast"])
@pytest.mark.parametrize("fused", [True, False])
def test_half_precision(way, fused):
    model, x = NanoAttention(fused), numbers(B, T, C)
    if way == "bfloat16":
        reading = read_module(model.bfloat16(), x.bfloat16())
    else:
        with torch.autocast("cpu", torch.bfloat16):
            reading = read_module(model, x)
    call = reading.calls[0]
    assert call.agrees and 0 <= call.error <= 2e-2 and call.weights.dtype == np.float32
    np.testing.assert_allclose(call.weights.sum(-1), 1, atol=2e-2)


def test_weights_that_are_not_the_calls_own_disagree():
    model = Calls(lambda q: torch.baddbmm(torch.ones_like(q), (q @ q.mT).softmax(-1), q))
    call = read_module(model, numbers(B, T, D)).calls[0]
    assert not call.agrees and call.error > 0.1


# What is asked, and what cannot be.


@pytest.mark.parametrize(
    "asked, why",
    [({"heads": [3]}, "head 3; expected 0 to 2"), ({"heads": [-1]}, "head -1; expected 0 to 2"),
     ({"queries": [11]}, "query 11; expected -11 to 10")],
)  # fmt: skip
def test_what_no_layer_has_is_refused(asked, why):
    with pytest.raises(ValueError, match=f"No layer has a {why}"):
        read_module(NanoAttention(True), numbers(B, T, C), **asked)


def test_a_row_beyond_the_batch_is_told():
    reading = read_module(NanoAttention(True), numbers(B, T, C), row=B)
    assert not reading.calls and reading.unread == {
        "NanoAttention": "its batch has 2 sequences, and no row 2"
    }


class Raises(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = NanoAttention(False), nn.Linear(C + 1, C)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.outer(self.inner(x))


def test_errors_of_the_model_are_its_own_and_hooks_are_gone():
    model = Raises()
    model.inner.eval()
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        read_module(model, numbers(B, T, C))
    assert model.training and not model.inner.training
    assert not any(one._forward_hooks or one._forward_pre_hooks for one in model.modules())
    assert torch.is_grad_enabled() and not torch.overrides._get_current_function_mode_stack()


@pytest.mark.parametrize(
    "model", [NanoAttention(True), NanoAttention(False), nn.MultiheadAttention(C, H)]
)
def test_a_fault_of_ours_ends_no_pass(model, monkeypatch):
    monkeypatch.setattr(_Reader, "_by_head", lambda *given: 1 / 0)
    inputs = (numbers(B, T, C),) * (3 if isinstance(model, nn.MultiheadAttention) else 1)
    reading = read_module(model, inputs)
    assert not reading.calls and reading.output is not None
    assert set(reading.unread.values()) == {
        "reading it failed: ZeroDivisionError, division by zero"
    }


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_inputs_without_a_shape_end_no_pass():
    ragged = torch.nested.nested_tensor([numbers(3, C), numbers(5, C)])
    reading = read_module(nn.Sequential(nn.Linear(C, C)), (ragged,))
    assert reading.output.is_nested and not reading.calls
    assert all(why.startswith("reading it failed") for why in reading.unread.values())


# Other libraries that the environment has.


def llama(way: str) -> Any:
    config = LlamaConfig(vocab_size=99, hidden_size=C, intermediate_size=64, num_hidden_layers=2, num_attention_heads=6,
                         num_key_value_heads=2)  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(config, attn_implementation=way).eval()


@pytest.mark.parametrize("way", ["eager", "sdpa", "flex_attention"])
@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_transformers(way):
    ids = torch.arange(24).view(2, 12)
    mask = torch.ones(2, 12, dtype=torch.long)
    mask[1, :3] = 0
    with library_attention():
        model, plain = llama(way), llama("eager")
        reading = agreed(read_module(model, {"input_ids": ids, "attention_mask": mask}, row=1), 2)
        theirs = plain(ids, attention_mask=mask, output_attentions=True).attentions
    for call, weights in zip(reading.calls, theirs, strict=True):
        assert call.name.endswith("self_attn")
        np.testing.assert_allclose(call.weights[:, 3:], weights[1, :, 3:].detach(), 1e-4, 1e-5)
    assert {one.kind for one in reading.trace().maps} <= {"causal", "self"}


@pytest.mark.parametrize(
    "options, calls",
    [({"causal": True, "rotary_pos_emb": True}, 2), ({"attn_flash": True}, 2), ({"causal": True, "attn_kv_heads": 1}, 2),
     ({"attn_pre_talking_heads": True, "attn_post_talking_heads": True}, 2), ({"cross_attend": True}, 4),
     ({"attn_num_mem_kv": 2}, 2), ({"attn_sparse_topk": 3}, 2), ({"alibi_pos_bias": True}, 2)],
    ids=str,
)  # fmt: skip
def test_x_transformers(options, calls):
    from x_transformers import TransformerWrapper
    from x_transformers.x_transformers import AttentionLayers

    layers = AttentionLayers(dim=C, depth=2, heads=H, **options)
    model = TransformerWrapper(num_tokens=50, max_seq_len=32, attn_layers=layers)
    inputs: dict[str, Any] = {"x": torch.arange(26).view(2, 13)}
    if "cross_attend" in options:
        inputs["context"] = numbers(2, 9, C)
    agreed(read_module(model, inputs), calls)


# Every mechanism of the lab, beside the weights that it records itself.

# Their rows do not sum to 1, or something of their own comes between scores and weights.
UNREAD = frozenset("gpt_oss inkling2 sigmoid softpick stick_breaking".split())


@pytest.mark.parametrize("one", PRESETS, ids=lambda one: one.key)
def test_mechanisms_of_the_lab_are_read_or_refused(one):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layer, x = Attention(one.config(C)).eval(), torch.randn(B, 12, C)
        with torch.no_grad():
            steps = layer(x, record=True)
    reading = read_module(layer, x)
    if one.key in ("nsa", "linformer"):  # several branches, and mixtures of keys
        return
    if one.key in UNREAD or steps.implied and not reading.calls:
        assert not reading.calls and reading.unread
        return
    agreed(reading, 1)
    np.testing.assert_allclose(reading.calls[0].weights, steps.weights[0], 1e-4, 1e-5)


class NanoLike(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return plain(*(heads(x),) * 3).transpose(1, 2).flatten(2)


def test_threads_that_read_at_once_see_their_own_calls():
    model = nn.Sequential(nn.TransformerEncoderLayer(C, H, batch_first=True), NanoLike()).eval()
    before = F.scaled_dot_product_attention
    texts = [numbers(1, 4 + length, C) for length in range(8)]
    with ThreadPoolExecutor(4) as pool:
        readings = [*pool.map(lambda inputs: read_module(model, inputs), texts)]
    for x, reading in zip(texts, readings, strict=True):
        names = [(call.name, call.shape[2:]) for call in agreed(reading, 2).calls]
        assert names == [("0.self_attn", (x.shape[1],) * 2), ("1", (x.shape[1],) * 2)]
    assert F.scaled_dot_product_attention is before


def test_a_hook_that_is_not_whole_ends_no_pass_of_another_thread():
    model = nn.Linear(C, C)
    handles = [*_Reader().follow_modules(model)]
    model._forward_pre_hooks_with_kwargs.clear()  # as between the two steps in which PyTorch adds it
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(model, numbers(B, C)).result().shape == (B, C)
    for handle in handles:
        handle.remove()


def test_a_pooled_map_names_its_blocks():
    (one,) = read_module(Own(), numbers(1, 1, 1030, 8)).trace().maps
    assert one.kind == "causal" and one.weights.shape == (1, 258, 258)
    assert (one.queries[0], one.keys[-1]) == ("q0–q3", "k1028–k1029")
