"""The seam: who watches sees its own pass alone, and the model stays as it was."""

import sys
import threading
from copy import deepcopy
from typing import Any

import pytest
import torch

from core.pretrained import encode, forward
from core.pretrained.attention_recorder import record_attention
from tests.cases import each
from tests.tiny_models import OTHER, SENTENCE, given, plain, tiny


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
                recorder.counts.clear()
                with torch.no_grad():
                    output = model(**batches[text])
                results.setdefault(text, []).append((recorder.calls.copy(), output.logits))

    threads = [threading.Thread(target=watch_one, args=(text,)) for text in batches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
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
