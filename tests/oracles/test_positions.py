"""Positions against published values and other people's code: sinusoidal, learned, rotary (both layouts), ALiBi."""

import pytest
import torch
from torch import nn
from transformers import LlamaConfig
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.gptj import modeling_gptj as gptj
from transformers.models.llama import modeling_llama as llama
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

from core.attention.positions.absolute import Learned, Sinusoidal, sinusoids
from core.attention.positions.relative import Alibi, alibi_slopes
from core.attention.positions.rotary import Rotary
from core.attention.score_block import ScoreBlock
from tests.cases import each


def cells(q, k, offset=0):
    return ScoreBlock.whole(q.shape[2], k.shape[2], offset=offset, q=q, k=k)


def test_sinusoids_have_the_published_values():
    """The table widely printed for C = 4 and base 100 (four decimals)."""
    published = [
        [0.0000, 1.0000, 0.0000, 1.0000],
        [0.8415, 0.5403, 0.0998, 0.9950],
        [0.9093, -0.4161, 0.1987, 0.9801],
        [0.1411, -0.9900, 0.2955, 0.9553],
    ]
    torch.testing.assert_close(
        sinusoids(torch.arange(4.0), 4, 100.0), torch.tensor(published), rtol=0, atol=5.1e-5
    )


@each("dim", [2, 14, 62])
def test_sinusoids_against_gptj(dim):
    theirs = gptj.create_sinusoidal_positions(31, dim)  # sines first, then cosines
    ours = sinusoids(torch.arange(31.0), dim)
    torch.testing.assert_close(
        torch.cat((ours[:, 0::2], ours[:, 1::2]), dim=1), theirs, rtol=1e-5, atol=5e-6
    )


@each("dim", [1, 3, 7, 63])
def test_an_odd_dimension_ends_on_a_sine_of_the_same_law(dim):
    table = sinusoids(torch.arange(11.0), dim)
    last = torch.sin(torch.arange(11.0) / 10000 ** ((dim - 1) / dim))
    torch.testing.assert_close(table[:, -1], last)
    assert table.shape == (11, dim)


def test_sinusoids_far_out_keep_their_precision():
    """fp32 angles are wrong in the third decimal at 100,000; the reference is in float64."""
    far = sinusoids(torch.tensor([100_003.0]), 6)
    exact = torch.tensor([100_003.0], dtype=torch.float64) / 10000 ** (
        torch.tensor([0, 2, 4], dtype=torch.float64) / 6
    )
    torch.testing.assert_close(far[0, 0::2], exact.sin().float(), rtol=0, atol=1e-6)


def test_a_shift_is_a_rotation_of_the_sinusoids():
    """Vaswani 2017, section 3.5: the encoding of i + k is a linear function of the encoding of i."""
    table = sinusoids(torch.arange(23.0), 2, 10000.0)
    turn = torch.tensor(5.0)
    rotation = torch.stack(
        (torch.stack((turn.cos(), turn.sin())), torch.stack((-turn.sin(), turn.cos())))
    )
    torch.testing.assert_close(table[5:], table[:-5] @ rotation.T, rtol=1e-5, atol=1e-5)


def test_sinusoidal_adds_from_its_offset():
    position, x = Sinusoidal(7, 10000.0), torch.randn(2, 5, 7)
    torch.testing.assert_close(position.add(x, offset=3), x + sinusoids(torch.arange(3.0, 8.0), 7))


def test_learned_is_an_embedding():
    ours, theirs, x = Learned(7, 13), nn.Embedding(13, 7), torch.randn(2, 5, 7)
    theirs.load_state_dict(ours.table.state_dict())
    out, reference = ours.add(x, offset=3), x + theirs(torch.arange(3, 8))
    torch.testing.assert_close(out, reference)
    grad = torch.randn_like(out)
    out.backward(grad)
    reference.backward(grad)
    torch.testing.assert_close(ours.table.weight.grad, theirs.weight.grad)


def test_learned_says_what_its_end_is():
    with pytest.raises(ValueError, match="13.*14|14.*13"):
        Learned(7, 13).add(torch.zeros(1, 5, 7), offset=9)


def _llama(q, k, base, offset):
    config = LlamaConfig(
        hidden_size=q.shape[1] * q.shape[3],
        num_attention_heads=q.shape[1],
        rope_parameters={"rope_type": "default", "rope_theta": base},
    )
    places = torch.arange(offset, offset + q.shape[2])[None]
    cos, sin = llama.LlamaRotaryEmbedding(config)(q, places)
    return llama.apply_rotary_pos_emb(q, k, cos, sin)


@each(("base", "offset"), [(10000.0, 0), (500000.0, 17)])
def test_rope_in_halves_against_llama(base, offset):
    rope = Rotary(14, base, "halves")
    q, k = (torch.randn(2, 3, 11, 14, requires_grad=True) for _ in "qk")
    ours, theirs = (rope.rotate(q, offset), rope.rotate(k, offset)), _llama(q, k, base, offset)
    torch.testing.assert_close(ours, tuple(theirs), rtol=1e-5, atol=1e-5)
    weight = torch.randn_like(q)
    (mine,) = torch.autograd.grad((ours[0] * weight).sum(), q)
    (other,) = torch.autograd.grad((theirs[0] * weight).sum(), q)
    torch.testing.assert_close(mine, other, rtol=1e-5, atol=1.25e-5)


@each("offset", [0, 17])
def test_rope_interleaved_against_gptj(offset):
    q = torch.randn(2, 3, 11, 14)
    sin, cos = gptj.create_sinusoidal_positions(64, 14)[offset : offset + 11].chunk(2, dim=-1)
    theirs = gptj.apply_rotary_pos_emb(q.transpose(1, 2), sin[None], cos[None]).transpose(1, 2)
    torch.testing.assert_close(
        Rotary(14, 10000.0, "interleaved").rotate(q, offset), theirs, rtol=1e-5, atol=1e-5
    )


def test_the_two_layouts_give_different_scores_from_the_same_weights():
    q, k = torch.randn(2, 1, 2, 7, 6)
    score = {}
    for layout in ("halves", "interleaved"):
        rope = Rotary(6, 10000.0, layout)
        score[layout] = rope.rotate(q[None]) @ rope.rotate(k[None]).mT
    assert (score["halves"] - score["interleaved"]).abs().max() > 0.1


def test_the_two_layouts_agree_once_the_dimensions_are_reordered():
    q = torch.randn(2, 3, 7, 6)
    order = torch.tensor([0, 2, 4, 1, 3, 5])
    halves = Rotary(6, 10000.0, "halves").rotate(q[..., order])
    torch.testing.assert_close(halves, Rotary(6, 10000.0, "interleaved").rotate(q)[..., order])


@each("layout", ["halves", "interleaved"])
def test_a_rotary_score_sees_the_distance_alone_and_keeps_lengths(layout):
    rope, q, k = Rotary(10, 10000.0, layout), torch.randn(1, 1, 1, 10), torch.randn(1, 1, 1, 10)
    near = (rope.rotate(q, 5) * rope.rotate(k, 2)).sum()
    far = (rope.rotate(q, 105) * rope.rotate(k, 102)).sum()
    torch.testing.assert_close(near, far, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(rope.rotate(q, 77).norm(), q.norm())


def test_rope_by_hand():
    """One pair turned by one radian: (1, 0) becomes (cos 1, sin 1)."""
    turned = Rotary(2, 10000.0, "halves").rotate(torch.tensor([[[[1.0, 0.0]]]]), offset=1)
    torch.testing.assert_close(turned.flatten(), torch.tensor([0.5403023, 0.8414710]))


@each("heads", [1, 2, 3, 5, 8, 11, 12, 16])
def test_alibi_slopes_against_bloom(heads):
    theirs = build_alibi_tensor(
        torch.ones(1, 2, dtype=torch.long), heads, torch.float32
    )  # slope · j, so j = 1 is it
    torch.testing.assert_close(alibi_slopes(heads), theirs[:, 0, 1])


@each("heads", [2, 4, 8, 16])
def test_alibi_against_mpt(heads):
    """MPT writes the last row, −m (T − 1 − j), which softmax makes the same for every row under a causal mask."""
    q, k = torch.randn(2, 1, heads, 13, 5)
    scores = q @ k.mT
    causal = torch.ones(13, 13, dtype=torch.bool).tril()
    ours = (scores + Alibi(heads).bias(cells(q, k))).masked_fill(~causal, -torch.inf).softmax(-1)
    theirs = (
        (scores + build_mpt_alibi_tensor(heads, 13)[None])
        .masked_fill(~causal, -torch.inf)
        .softmax(-1)
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_alibi_of_a_cached_query_is_the_last_row_of_the_whole():
    q, k = torch.randn(2, 1, 3, 7, 5)
    torch.testing.assert_close(
        Alibi(3).bias(cells(q, k))[:, 5:], Alibi(3).bias(cells(q[:, :, 5:], k, offset=5))
    )


def test_alibi_by_hand():
    """Two heads: slopes 1/16 and 1/256, times the distance."""
    q = torch.zeros(1, 2, 3, 1)
    distance = torch.tensor([[0.0, 1, 2], [1, 0, 1], [2, 1, 0]])
    torch.testing.assert_close(
        Alibi(2).bias(cells(q, q)), -torch.stack((distance / 16, distance / 256))
    )
