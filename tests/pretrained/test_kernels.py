"""A model on the CPU runs PyTorch's functions, whatever packages of kernels can be imported."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers.integrations import use_kernel_func_from_hub_with_fallback

from core.pretrained.load import avoid_kernels

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("causal_conv1d", "fla", "mamba_ssm")
# Every path in such a package leads to a kernel, and no kernel runs.
PACKAGE = """
def kernel(*values, **options):
    raise RuntimeError("0 active drivers")

class Path:
    def __getattr__(self, name):
        return None if name.startswith("__") else kernel

def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return Path() if name == "ops" else kernel
"""


@pytest.mark.first
def test_every_family_runs_on_the_cpu_beside_kernels(tmp_path):
    for name in PACKAGES:
        (tmp_path / f"{name}.py").write_text(PACKAGE, encoding="utf-8")
    program = [sys.executable, "-m", "tests.pretrained.with_kernels"]
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    ended = subprocess.run(
        program, env={**os.environ, "PYTHONPATH": path}, capture_output=True, check=True, cwd=ROOT
    )
    answers = json.loads(ended.stdout)
    some = {
        "jamba",
        "bamba",
        "mamba",
        "mamba2",
        "falcon_mamba",
        "zamba",
        "qwen3_next",
        "kimi_linear",
    }
    assert some <= set(answers)
    assert not {name: one for name, one in answers.items() if not set(one.split()) < set(PACKAGES)}


ANSWER: Any = None  # the module's function, as a family's code has it


class Layer(torch.nn.Module):
    def forward(self, values):
        return ANSWER(values)


class OfKernels(torch.nn.Module):
    """A function as the package kernels wraps it."""

    def __init__(self, func):
        super().__init__()
        type(self).forward = lambda self, *values: func(*values)


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_kernel_runs_on_a_gpu_alone(wrapped, monkeypatch):
    monkeypatch.setitem(sys.modules, "fla", SimpleNamespace(answer=lambda values: "kernel"))
    function = use_kernel_func_from_hub_with_fallback("answer", "fla")(lambda values: values - 1)
    monkeypatch.setattr(
        sys.modules[__name__], "ANSWER", OfKernels(function) if wrapped else function
    )
    layer = Layer()
    for _ in range(2):  # the second model of the process finds what the first put there
        assert avoid_kernels(layer) == ("fla",)
    assert layer(torch.ones(2)).tolist() == [0, 0]
    with FakeTensorMode():  # a GPU that no machine needs
        assert layer(torch.empty(2, device="cuda")) == "kernel"


def test_a_function_without_a_kernel_stays(monkeypatch):
    monkeypatch.setitem(sys.modules, "fla", None)
    function = use_kernel_func_from_hub_with_fallback("answer", "fla")(lambda values: values - 1)
    monkeypatch.setattr(sys.modules[__name__], "ANSWER", function)
    assert avoid_kernels(Layer()) == () and ANSWER is function
