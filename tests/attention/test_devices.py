"""No step of any mechanism leaves the device of its inputs: run on PyTorch's meta device, which needs no GPU."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from core.attention import AXES, Attention
from core.attention.compatible import config_with, example, needs
from tests.attention.drawing import B, C, T

ENTRIES = [(axis, e.key) for axis, entries in AXES.items() for e in entries]
MOVES = ("_to_copy", "copy_")  # moving from one device to another is their work


class OneDevice(TorchDispatchMode):
    """Raises where one operation is given tensors of two devices; a single number may come from anywhere."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor) and t.dim()]
        devices = {t.device.type for t in tensors}
        assert len(devices) < 2 or any(name in str(func) for name in MOVES), f"{func} is given tensors of {devices}"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("record", [True, False])
@pytest.mark.parametrize(("axis", "key"), ENTRIES)
def test_the_device_is_kept(axis, key, record, monkeypatch):
    # A meta tensor has no values to ask for (is it finite, how far do places reach); any answer stays on the device.
    for name, answer in (("__bool__", True), ("__int__", 0)):
        plain = getattr(torch.Tensor, name)
        monkeypatch.setattr(torch.Tensor, name, lambda t, answer=answer, plain=plain: answer if t.is_meta else plain(t))
    beside = {other: example(other, name) for other, name in needs(axis, key).items()}
    layer = Attention(config_with(beside | {axis: example(axis, key)}, C, 4), add_positions=True).to("meta")
    key_mask = torch.ones(B, T, dtype=torch.bool, device="meta") if key == "padding" else None
    with OneDevice():
        steps = layer(torch.randn(B, T, C, device="meta"), key_mask=key_mask, record=record)
    types = {name: t.device.type for name, t in vars(steps).items() if isinstance(t, torch.Tensor) and t.dim()}
    assert set(types.values()) == {"meta"}, types


def test_a_stray_tensor_is_found_out():
    with OneDevice(), pytest.raises(AssertionError, match="two|cpu"):
        torch.randn(3, device="meta") + torch.randn(3)
