"""The check of shapes that every other test runs under: a wrong shape fails, also after a call that passed."""

import importlib.util
import os
import sys
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from jaxtyping import Float
from torch import Tensor

from core.attention.base import split_heads
from tests.close import assert_close
from tests.typecheck import checked


@checked
def first_rows(x: Float[Tensor, "B T"], drop: bool) -> Float[Tensor, "B T"]:
    return x[1:] if drop else x


def test_a_wrong_argument_and_a_wrong_result_fail():
    x = torch.zeros(2, 3)
    assert first_rows(x, False) is x
    pytest.raises(AssertionError, first_rows, x, True).match("first_rows: return is ")
    for wrong in (x[0], x.int()):
        pytest.raises(AssertionError, split_heads, wrong, 1).match("split_heads: x is ")


@pytest.mark.parametrize(
    "run",
    [
        lambda spec: spec.loader.get_code(spec.name),  # as runpy does
        lambda spec: spec.loader.exec_module(importlib.util.module_from_spec(spec)),
    ],
    ids=["run", "import"],
)
def test_checked_code_stays_out_of_cache_that_python_reads(run, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    file = tmp_path / "other.py"
    file.write_text("from jaxtyping import Float\ndef f(x): return x\n", encoding="utf-8")
    finder = next(finder for finder in sys.meta_path if hasattr(finder, "should_instrument"))
    run(finder.find_spec("core.other", [str(tmp_path)]))
    kept = os.listdir(tmp_path / "__pycache__")
    assert len(kept) == 1 and not os.path.exists(importlib.util.cache_from_source(str(file)))


# The comparison of stored with recomputed numbers: what another processor changes passes, a mistake fails.


LARGE = np.array([1000.0, 1e-3, 0.0])


@dataclass(frozen=True)
class Result:
    weights: np.ndarray
    count: int
    name: str


@pytest.mark.parametrize(
    "pair",
    [
        (LARGE + 0.09, LARGE),
        (torch.tensor(LARGE + 0.09), LARGE),
        ([1.0, 2.0001], [1.0, 2.0]),
        ({"a": [1.0], "b": "c"}, {"a": [1.00005], "b": "c"}),
        (9e-6, 0.0),
        (Result(LARGE, 3, "x"), Result(LARGE + 0.01, 3, "x")),
        ([np.nan, np.inf, 1], [np.nan, np.inf, 1]),
        ([[1.0], [1.0, 2.0]], [[1.00005], [1.0, 2.0]]),
        ((None, True, "a"), (None, True, "a")),
    ],
    ids=str,
)
def test_rounding_passes(pair):
    assert_close(*pair)


@pytest.mark.parametrize(
    "pair",
    [
        (LARGE + 0.11, LARGE),
        (LARGE[:2], LARGE),
        (np.float32(1), np.ones((1, 3))),
        (2e-5, 0.0),
        (1.001, 1.0),
        ([1, 2], [1, 3]),
        (np.array([1_000_000]), np.array([1_000_001])),
        ({"a": 1.0}, {"b": 1.0}),
        ("a", "b"),
        (Result(LARGE, 3, "x"), Result(LARGE, 4, "x")),
        ([np.nan], [1.0]),
        ([np.inf], [1.0]),
        ([[1.0], [1.0, 2.0]], [[1.0]]),
        (True, False),
        (None, 0.0),
    ],
    ids=str,
)
def test_mistakes_fail(pair):
    pytest.raises(AssertionError, assert_close, *pair)
