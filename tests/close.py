"""How tests compare numbers of two machines, such as stored ones and those computed now.

Another processor adds in another order. What that changes goes with the largest terms of a sum, not with the sum, so a
difference is measured by the largest number of an array: a small number between large ones may be quite another.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

REL, ABS = 1e-4, 1e-5  # fp32 results of a model


def numbers(value: Any) -> np.ndarray | None:
    """An array of it, None for what holds no numbers; rows of unequal lengths are compared one by one."""
    if isinstance(value, torch.Tensor):
        return (
            value.detach()
            .cpu()
            .to(torch.float64 if value.is_floating_point() else value.dtype)
            .numpy()
        )
    if isinstance(value, str | bytes | bool) or value is None:
        return None
    try:
        array = np.asarray(value)
    except ValueError:
        return None
    return array if array.dtype.kind in "biuf" else None


def tolerance(expected: np.ndarray, rel: float = REL, floor: float = ABS) -> float:
    """By how much a number may differ from its place in an array of floats."""
    finite = np.abs(expected[np.isfinite(expected)])
    return max(rel * float(finite.max(initial=0.0)), floor)


def assert_close(
    actual: Any, expected: Any, rel: float = REL, floor: float = ABS, where: str = ""
) -> None:
    """Assert that both have the same form, and floats that differ by at most `rel` of the largest beside them.

    `floor` is allowed whatever the largest is. Arrays of integers and all that is no number must be equal.
    """
    if is_dataclass(expected):
        assert type(actual) is type(expected), where
        for name in [field.name for field in fields(expected)]:
            assert_close(
                getattr(actual, name), getattr(expected, name), rel, floor, f"{where}.{name}"
            )
        return
    if isinstance(expected, Mapping):
        assert actual.keys() == expected.keys(), where
        for key, value in expected.items():
            assert_close(actual[key], value, rel, floor, f"{where}[{key!r}]")
        return
    ours, theirs = numbers(actual), numbers(expected)
    # Counts, places and masks are the same on every machine.
    if ours is not None and theirs is not None and "f" in (ours.dtype.kind, theirs.dtype.kind):
        assert ours.shape == theirs.shape, f"{where}: {ours.shape}, not {theirs.shape}"
        np.testing.assert_allclose(
            ours, theirs, rtol=0, atol=tolerance(theirs, rel, floor), err_msg=where
        )
    elif isinstance(expected, tuple | list):
        assert len(actual) == len(expected), where
        for place, (one, other) in enumerate(zip(actual, expected, strict=True)):
            assert_close(one, other, rel, floor, f"{where}[{place}]")
    elif ours is not None and theirs is not None:
        np.testing.assert_array_equal(ours, theirs, err_msg=where)
    else:
        assert actual == expected, where


# How far a result on the GPU may be from the CPU's: the norm of the difference, in shares of the larger norm.


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
