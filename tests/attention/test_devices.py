"""No step of any mechanism leaves the device of its inputs: run on PyTorch's meta device, which needs no GPU."""

from functools import cache

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from core.attention import AXES, Attention
from core.attention.config import config_with, example, needs
from tests.attention.drawing import B, C
from tests.cases import each

T = 67  # more than the rows that are sorted on the CPU
ENTRIES = [(axis, e.key) for axis, entries in AXES.items() for e in entries]
# A formula is checked for numbers that are not finite, entmax is solved to a tolerance, and the gates of gla and kda
# are computed another way where one is strong. For each such answer a GPU ends its work, and then waits for more.
ASKING = {
    ("position", "formula"),
    ("position", "and"),
    ("mask", "formula"),
    ("normalizer", "entmax"),
    ("kernel", "gla"),
    ("kernel", "kda"),
}
MOVES = ("_to_copy", "copy_")  # moving from one device to another is their work


class OneDevice(TorchDispatchMode):
    """Raises where one operation is given tensors of two devices; a single number may come from anywhere."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        tensors = [
            t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor) and t.dim()
        ]
        devices = {t.device.type for t in tensors}
        assert len(devices) < 2 or any(name in str(func) for name in MOVES), (
            f"{func} is given tensors of {devices}"
        )
        return func(*args, **(kwargs or {}))


@cache
def config_of(axis, key):
    beside = {other: example(other, name) for other, name in needs(axis, key).items()}
    return config_with(beside | {axis: example(axis, key)}, C, 4)


def answers(monkeypatch):
    """A meta tensor has no values to ask for (is it finite, how far do places reach): answers, and a list of them."""
    asked = []
    for name, answer in (("__bool__", True), ("__int__", 0)):
        plain = getattr(torch.Tensor, name)

        def ask(t, answer=answer, plain=plain):
            if not t.is_meta:
                return plain(t)
            asked.append(answer)
            return answer

        monkeypatch.setattr(torch.Tensor, name, ask)
    return asked


@each("record", [True, False])
@each(("axis", "key"), ENTRIES)
def test_the_device_is_kept_and_few_choices_wait_for_a_value(axis, key, record, monkeypatch):
    layer = Attention(config_of(axis, key), add_positions=True).to("meta")
    key_mask = torch.ones(B, T, dtype=torch.bool, device="meta") if key == "padding" else None
    with monkeypatch.context() as patch, OneDevice():
        asked = answers(patch)
        steps = layer(torch.randn(B, T, C, device="meta"), key_mask=key_mask, record=record)
    types = {
        name: t.device.type
        for name, t in vars(steps).items()
        if isinstance(t, torch.Tensor) and t.dim()
    }
    assert set(types.values()) == {"meta"}, types
    assert bool(asked) == ((axis, key) in ASKING)


def test_a_stray_tensor_is_found_out():
    with OneDevice(), pytest.raises(AssertionError, match="two|cpu"):
        torch.randn(3, device="meta") + torch.randn(3)
