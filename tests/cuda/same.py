"""How far a result on the GPU may be from the CPU's: the norm of the difference, in shares of the larger norm."""

from collections.abc import Mapping

import torch
from torch import Tensor

FLOAT32 = 2e-4
SMALL = 0.01  # of the largest norm: a gradient that cancels out, as of a bias that softmax ignores, is rounding alone


def differences(
    ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor], most: float = FLOAT32
) -> dict[str, float]:
    """The names whose tensors differ by more than `most`, or are not finite."""
    assert ours.keys() == theirs.keys()
    pairs = {
        name: (ours[name].detach().cpu().double(), theirs[name].detach().double()) for name in ours
    }
    least = SMALL * max(
        float(torch.maximum(one.norm(), other.norm())) for one, other in pairs.values()
    )
    apart = {name: distance(*pair, least) for name, pair in pairs.items()}
    return {name: value for name, value in apart.items() if not value <= most}  # NaN, too


def distance(one: Tensor, other: Tensor, least: float) -> float:
    """‖one − other‖ in shares of the larger norm, or of `least`; NaN where a number is not finite."""
    assert one.shape == other.shape, f"{tuple(one.shape)} and {tuple(other.shape)}"
    return float((one - other).norm() / max(float(one.norm()), float(other.norm()), least, 1e-12))
