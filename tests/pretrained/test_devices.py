"""A model that is not on the CPU: its inputs go there, and what comes of them comes back."""

from dataclasses import replace

import numpy as np
import torch

from core.pretrained import ModelInputs, answer, read
from core.pretrained.attention_recorder import record_attention, to_cpu, to_device
from core.pretrained.reading import encode, forward
from tests.tiny_models import SENTENCE, given, plain, tiny


def elsewhere(family, monkeypatch):
    """The model on torch's meta device, which stands for a GPU: it holds no numbers, and takes no tensor of the CPU.

    What comes back from there is all halves.
    """
    from copy import deepcopy

    model = deepcopy(tiny(family).model).to("meta")
    home = torch.Tensor.cpu
    monkeypatch.setattr(
        torch.Tensor,
        "cpu",
        lambda self: torch.full(self.shape, 0.5) if self.is_meta else home(self),
    )
    return replace(tiny(family), model=model)


def test_a_model_on_another_device_is_read_and_answers(monkeypatch):
    away = elsewhere("gpt2", monkeypatch)
    trace = read(away, ModelInputs(SENTENCE)).trace
    assert trace.shape == read(tiny("gpt2"), ModelInputs(SENTENCE)).trace.shape
    assert all((item.weights == 0.5).all() for item in trace.maps)
    assert answer(away, ModelInputs(SENTENCE)).probabilities.device.type == "cpu"


def test_what_was_watched_comes_back_whole():
    batch, *_ = encode(tiny("bart"), given("bart"))
    output, recorder = forward(tiny("bart"), batch, with_qkv=True)
    with record_attention(tiny("bart").model) as other:
        other.calls = recorder.calls
    back = to_cpu(output, other)
    assert type(back) is type(output) and torch.equal(back.logits, output.logits)
    with torch.no_grad():
        np.testing.assert_array_equal(
            back.logits, plain("bart")(**to_device(plain("bart"), batch)).logits
        )
