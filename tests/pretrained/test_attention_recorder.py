"""The seam: who watches sees its own pass alone, and the model stays as it was."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from core.pretrained import Array, ModelInputs, answer, encode, forward, read
from core.pretrained.attention_recorder import record_attention, to_cpu, to_device
from core.pretrained.load import prepare_model
from core.pretrained.maps import unblocked
from tests.cases import each
from tests.tiny_architectures import CONFIG_MAPPING, class_of, reader_of, shrunk
from tests.tiny_models import OTHER, SENTENCE, given, plain, tiny, tokenizer


def test_two_threads_on_one_model_never_see_each_other():
    model, meet = tiny("bert").model, threading.Barrier(2)
    results: dict[str, list[tuple[Any, Any]]] = {}
    batches = {text: encode(tiny("bert"), given("bert", text))[0] for text in (SENTENCE, OTHER)}

    def watch_one(text):
        with record_attention(
            model, off=frozenset({("self", 0, 1)}) if text == OTHER else frozenset()
        ) as recorder:
            meet.wait()
            for _ in range(20):
                recorder.calls.clear()
                with torch.no_grad():
                    output = model(**batches[text])
                results.setdefault(text, []).append((recorder.calls.copy(), output.logits))

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(watch_one, batches))
    for text, off in ((SENTENCE, frozenset()), (OTHER, frozenset({("self", 0, 1)}))):
        output, recorder = forward(tiny("bert"), batches[text], off=off)
        for seen, logits in results[text]:
            assert [one.layer for one in seen] == [0, 1]
            assert all(
                torch.equal(a.weights, b.weights) for a, b in zip(seen, recorder.calls, strict=True)
            )
            torch.testing.assert_close(logits, output.logits)


@each("family", ["bert", "llama", "t5", "diffllama"])
def test_a_watched_model_stays_as_it_was(family):
    pretrained = tiny(family)
    batch, *_ = encode(pretrained, given(family))
    expected = plain(family)(**batch)[0]
    before = {name: value.clone() for name, value in pretrained.model.state_dict().items()}
    inside = {name: set(vars(module)) for name, module in pretrained.model.named_modules()}
    first = "causal" if family in ("llama", "diffllama") else "self"
    for more in ({"whole": True}, {"off": frozenset({(first, 0, None)})}, {"probe": True}):
        output, recorder = forward(pretrained, batch, **more)
        assert recorder.calls
        if "off" in more:
            assert not torch.allclose(output[0], expected, atol=1e-3)
    assert all(
        torch.equal(value, before[name]) for name, value in pretrained.model.state_dict().items()
    )
    assert inside == {name: set(vars(module)) for name, module in pretrained.model.named_modules()}
    hooks = [
        module
        for module in pretrained.model.modules()
        if module._forward_hooks or module._forward_pre_hooks
    ]
    assert not hooks
    torch.testing.assert_close(pretrained.model(**batch)[0], expected, rtol=0, atol=0)


@each("family", ["bert", "llama", "gpt_oss", "diffllama"])
def test_a_head_that_is_off_is_a_head_whose_columns_of_w_o_are_zero(family):
    """The same as the library's model with those columns set to zero; DiffLlama folds two heads before W_O."""
    batch, *_ = encode(tiny(family), given(family))
    kind = "self" if family == "bert" else "causal"
    output, recorder = forward(tiny(family), batch, off=frozenset({(kind, 1, 2)}))
    if family == "diffllama":
        whole, _ = forward(tiny(family), batch)
        assert (
            not torch.allclose(output.logits, whole.logits, atol=1e-3) and len(recorder.calls) == 2
        )
        return
    model = deepcopy(plain(family))
    own = (
        model.bert.encoder.layer[1].attention.output.dense
        if family == "bert"
        else (model.model.layers[1].self_attn.o_proj)
    )
    with torch.no_grad():
        own.weight[:, 16:24] = 0
        expected = model(**batch).logits
    torch.testing.assert_close(output.logits, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", ["bert", "gpt_oss", "t5"])
def test_a_probe_s_gradient_is_what_a_little_more_weight_does(family, monkeypatch):
    """Held against a difference: one weight of the second layer a little larger and smaller."""
    batch, *_ = encode(tiny(family), given(family))

    def answer(output):
        return output.logits[0, -1].log_softmax(-1)[7]

    output, recorder = forward(tiny(family), batch, probe=True)
    seen = recorder.calls[1]
    (grad,) = torch.autograd.grad(answer(output), seen.probe)
    home = sys.modules[type(seen.module).__module__]
    eager, head, row, key = home.eager_attention_forward, 1, 4, 2

    def nudged(by):
        calls = iter(range(99))

        def more(module, q, k, v, mask, **options):
            out, weights = eager(module, q, k, v, mask, **options)
            if next(calls) == 1:
                out = out.clone()
                out[0, row, head] += by * v[0, head // (weights.shape[1] // v.shape[1]), key]
            return out, weights

        monkeypatch.setattr(home, "eager_attention_forward", more)
        return float(answer(forward(tiny(family), batch)[0]))

    assert float(grad[0, head, row, key]) == pytest.approx(
        (nudged(0.01) - nudged(-0.01)) / 0.02, rel=0.02, abs=2e-4
    )
    assert bool(grad.any()) and not any(
        weight.requires_grad for weight in tiny(family).model.parameters()
    )


# Models in which not every layer attends: the maps keep the model's own numbers, and the rest is named.


HYBRIDS = {  # the layers that attend, and a word for what the others do
    "jamba": ((1, 4), "Mamba"), "bamba": ((2, 4), "Mamba"), "zamba2": ((1, 4), "Mamba"), "zamba": ((1, 4), "Mamba"),
    "lfm2": ((2, 4), "convolution"), "qwen3_next": ((2, 4), "delta rule"),
    "recurrent_gemma": ((2, 5), "linear recurrence"), "minimax": ((2, 4), "linear attention"),
}  # fmt: skip


def tiny_of(family):
    config = shrunk(CONFIG_MAPPING[family])
    config._attn_implementation = "eager"
    return prepare_model(class_of(family)(config), tokenizer("wordpiece"), family)


@each("family", HYBRIDS)
def test_a_hybrid_keeps_its_own_numbers_of_layers(family):
    numbers, does = HYBRIDS[family]
    reading = read(tiny_of(family), ModelInputs(SENTENCE))
    assert tuple(item.number for item in reading.trace.maps) == numbers
    assert [item.layer for item in reading.trace.maps] == [0, 1]
    assert reading.trace.label(1, 3) == f"L{numbers[1]}·H3"
    assert does in reading.note and "have no attention" in reading.note
    assert "neither in rollout nor in flow" in reading.note


@each(
    ("family", "words"),
    [
        ("falcon_h1", "Beside attention there is a selective state space (Mamba) (layers 0–1)."),
        ("longcat_flash", "has 2 attentions, which are numbered one after another: L0 to L1"),
    ],
)
def test_what_stands_beside_an_attention_is_named(family, words):
    reading = read(tiny_of(family), ModelInputs(SENTENCE))
    assert words in reading.note and "no attention between" not in reading.note


def test_where_all_layers_attend_nothing_is_said():
    reading = read(tiny_of("qwen2"), ModelInputs(SENTENCE))
    assert reading.note is None and [item.number for item in reading.trace.maps] == [0, 1]


@each("family", ["bigbird_pegasus", "longt5"])
def test_an_encoder_that_cannot_be_watched_is_drawn_all_the_same(family):
    reading = read(tiny_of(family), ModelInputs(SENTENCE, target=OTHER))
    assert reading.trace.kinds == ("self", "causal", "cross") and reading.note is None
    for item in reading.trace.of("self").maps:
        torch.testing.assert_close(
            torch.tensor(item.weights.sum(-1)), torch.ones(item.weights.shape[:2])
        )


PICTURES = {"BlipForConditionalGeneration": ("[class]", "3,3"),
            "YolosForObjectDetection": ("[class]", "[detection 99]"),
            "Aimv2VisionModel": ("0,0", "3,3"), "PixioModel": ("[class 0]", "3,3")}  # fmt: skip


@each("name", PICTURES)
def test_the_places_of_a_picture_are_called_what_they_are(name):
    kind = getattr(transformers, name)
    config = shrunk(kind.config_class)
    config._attn_implementation = "eager"
    model = kind(config)
    picture = Array.of(np.random.default_rng(1).random((9, 11, 3), dtype=np.float32))
    reading = read(prepare_model(model, reader_of(model), name), ModelInputs(picture=picture))
    assert (reading.source.tokens[0], reading.source.tokens[-1]) == PICTURES[name]
    assert reading.trace.kinds == ("self",) and reading.trace.shape == (2, 4)


def test_an_encoder_without_a_matrix_is_named():
    reading = read(tiny_of("pegasus_x"), ModelInputs(SENTENCE, target=OTHER))
    assert (
        reading.trace.kinds == ("causal", "cross")
        and "maps of the encoder are not drawn" in reading.note
    )


def test_blocks_are_the_matrix_that_they_stand_for():
    whole = torch.rand(2, 11, 11)
    inside = (torch.arange(11)[:, None] - torch.arange(11)).abs() < 4
    whole = whole * inside
    blocks = torch.zeros(3, 2, 4, 12)
    for row in range(11):
        for column in range(11):
            if inside[row, column]:
                blocks[row // 4, :, row % 4, column - 4 * (row // 4) + 4] = whole[:, row, column]
    weights, mask = unblocked(blocks, 11)
    assert torch.equal(weights[0], whole) and torch.equal(mask[0, 0], inside)


# A model that is not on the CPU: its inputs go there, and what comes of them comes back.


def elsewhere(family, monkeypatch):
    """The model on torch's meta device, which stands for a GPU: it holds no numbers, and takes no tensor of the CPU.

    What comes back from there is all halves.
    """
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
