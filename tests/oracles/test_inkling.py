"""What Inkling 1 and 2 choose in attention, against their modules in transformers and by hand."""

import math

import torch
from transformers.models.inkling import modeling_inkling as first
from transformers.models.inkling2 import modeling_inkling2 as second

from core.attention import Attention, AttentionConfig
from core.attention.positions.relative import RelativeLogits
from tests.attention.drawing import perturbed
from tests.cases import each
from tests.close import assert_close
from tests.oracles.agreement import agree, cells, put

B, T, S, C, H, R = 2, 7, 11, 24, 3, 5


# Relative logits: a bias from the query's token and the distance.


@each("distance", [1, 4, 64])
@each("offset", [0, 4])
@each("clip", [0.0, 1.5])
def test_relative_logits_are_inklings(clip, offset, distance):
    # Keys after their queries, in reach, and too far; a clip that shortens some of the mixing vectors and not others.
    position = perturbed(RelativeLogits(C, H, R, distance, clip)).double()
    x, memory = (torch.randn(B, n, C, dtype=torch.float64, requires_grad=True) for n in (T, S))
    q, k = torch.zeros(B, H, T, 1, dtype=torch.float64), torch.zeros(B, H, S, 1)
    i, j = torch.arange(offset, offset + T), torch.arange(S)
    if clip:
        config = second.Inkling2TextConfig(
            hidden_size=C, d_rel=R, rel_l2_clip_threshold=clip * math.sqrt(R)
        )
        peer = second.Inkling2RelativePositionBias(config, H, distance, log_scaling=False).double()
        names = {
            "linear.weight": position.mix.weight,
            "proj": position.profiles,
            "norm.scale": position.gain[:, 0],
        }
        given = (x, i[:, None] - j, i[None])
        lengths = (position.mix(x).unflatten(-1, (H, R)) * position.gain[:, 0]).norm(dim=-1)
        assert (lengths > clip * math.sqrt(R)).any() and (lengths < clip * math.sqrt(R)).any()
    else:
        peer = first.InklingRelativeLogits(R, distance).double()
        names = {"proj": position.profiles}
        given = (position.mix(x).unflatten(-1, (H, R)), i, j)
    theirs = torch.func.functional_call(peer, names, given)
    ours = position.bias(cells(q, k, offset, x=x, context=memory))
    agree(ours, theirs, (x, *position.parameters()), rel=1e-6)  # theirs clips in fp32


def test_relative_logits_by_hand():
    # Profiles (1, 2, 3) and (10, 20, 30) over the distances 0, 1, 2; token i mixes them as (i, 1); 0 from
    # distance 3 on. Clipped to 1, (3, 4) of length 5 becomes (3, 4) · √2 / 5.
    position = RelativeLogits(2, 1, 2, 3, 0.0)
    put((position.mix.weight, torch.eye(2)), (position.profiles, [[1.0, 2, 3], [10, 20, 30]]))
    x = torch.tensor([[[i, 1.0] for i in range(4)]])
    q = torch.zeros(1, 1, 4, 1)
    expected = torch.tensor([[10.0, 0, 0, 0], [22, 11, 0, 0], [36, 24, 12, 0], [0, 39, 26, 13]])
    assert_close(position.bias(cells(q, q, x=x, context=x))[0, 0], expected)
    clipped = RelativeLogits(2, 1, 2, 1, 1.0)
    put((clipped.mix.weight, torch.eye(2)), (clipped.profiles, [[1.0], [0.0]]))
    (states,) = clipped.tables(cells(q, q, x=torch.tensor([[[3.0, 4.0], [0.6, 0.8]]])))
    assert_close(
        states[0, 0], torch.tensor([[3.0, 4.0], [3.0, 4.0]]) * torch.tensor([[2**0.5 / 5], [0.2]])
    )


def test_relative_logits_store_no_token():
    # Only the query's own token is read, which a step is given: the cache is that of keys and values.
    layer = Attention(AttentionConfig(C, H, position="relative_logits", mask="causal"))
    _, cache = layer.step(torch.randn(B, T, C))
    assert cache.inputs is None and cache.numbers == T * 2 * C
