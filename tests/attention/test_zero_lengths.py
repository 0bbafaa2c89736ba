"""No queries, no keys, no texts: zeros of the right shape, and zero gradients, from every choice."""

import torch

from core.attention import AXES, Attention, attend
from core.attention.config import config_with, example, needs
from tests.attention.drawing import C
from tests.cases import each

ENTRIES = [(axis, item.key) for axis in AXES for item in AXES[axis]]
SIZES = each(("batch", "queries", "keys"), [(2, 0, 5), (2, 3, 0), (0, 3, 5), (2, 0, 0)])


@SIZES
@each(("axis", "key"), ENTRIES)
def test_zero_lengths_give_zeros(axis, key, batch, queries, keys):
    beside = {other: example(other, name) for other, name in needs(axis, key).items()}
    layer = Attention(config_with(beside | {axis: example(axis, key)}, C), add_positions=True)
    x, context = (torch.randn(batch, n, C, requires_grad=True) for n in (queries, keys))
    for real in (None, torch.ones(batch, keys, dtype=torch.bool)):
        for record in (True, False):
            if real is None and key == "padding":
                continue
            steps = layer(x, context, key_mask=real, record=record)
            assert steps.merged.shape == x.shape
            assert keys or not steps.out.any()
            steps.merged.sum().backward()
            assert all(grad is None or grad.isfinite().all() for grad in (x.grad, context.grad))


@SIZES
@each("kernel", ["exact", "fused", "chunked", "local", "block_sparse", "linear", "nystrom"])
def test_attend_on_nothing(kernel, batch, queries, keys):
    q, k, v = (torch.randn(batch, 2, n, 4) for n in (queries, keys, keys))
    mask = None if kernel in ("linear", "nystrom") else torch.ones(queries, keys, dtype=torch.bool)
    out = attend(q, k, v, mask, kernel=kernel).out
    assert out.shape == q.shape and (keys or not out.any())
