"""The check of shapes that every other test runs under: a wrong shape fails, also after a call that passed."""

import importlib.util
import os
import sys

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

from core.attention.basics import split_heads
from tests.typecheck import checked


@checked
def first_rows(x: Float[Tensor, "B T"], drop: bool) -> Float[Tensor, "B T"]:
    return x[1:] if drop else x


def test_a_wrong_argument_and_a_wrong_result_fail():
    x = torch.zeros(2, 3)
    assert first_rows(x, False) is x
    with pytest.raises(AssertionError, match="first_rows: return is "):
        first_rows(x, True)
    for wrong in (x[0], x.int()):
        with pytest.raises(AssertionError, match="split_heads: x is "):
            split_heads(wrong, 1)


@pytest.mark.parametrize(
    "run",
    [
        lambda spec: spec.loader.get_code(spec.name),  # as runpy does
        lambda spec: spec.loader.exec_module(importlib.util.module_from_spec(spec)),
    ],
    ids=["run", "import"],
)
def test_checked_code_stays_out_of_the_cache_that_python_reads(run, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    file = tmp_path / "other.py"
    file.write_text("from jaxtyping import Float\ndef f(x): return x\n", encoding="utf-8")
    finder = next(finder for finder in sys.meta_path if hasattr(finder, "should_instrument"))
    run(finder.find_spec("core.other", [str(tmp_path)]))
    kept = os.listdir(tmp_path / "__pycache__")
    assert len(kept) == 1 and not os.path.exists(importlib.util.cache_from_source(str(file)))
