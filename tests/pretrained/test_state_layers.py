"""Layers without softmax: their matrices against the outputs of the library's own functions, and what changes them."""

import io
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from inspect import signature
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save
from transformers import DynamicCache

from core.interpret.circuits import read_heads
from core.interpret.corpus import measure_text, text_vectors
from core.interpret.evidence import (
    Question,
    ask,
    gradient_estimates,
    layer_attentions,
    measure_contributions,
    telling_cell,
    token_scores,
)
from core.interpret.head_tests import score_repeats
from core.interpret.lens import attribute_logit
from core.interpret.map_transform import compare
from core.interpret.trace import AttentionMap, AttentionTrace
from core.pretrained import ModelInputs, PretrainedError, layer_qkv, read
from core.pretrained.attention_recorder import numbers_by_layer, record_attention
from core.pretrained.finetune_run import saved_layers, saved_maps, trace_of
from core.pretrained.generate import prepare_generation, score_continuation
from core.pretrained.load import maps_bytes
from core.pretrained.model_inputs import read_arrays
from core.pretrained.state_layers import KERNELS, SCAN, state_matrix
from dashboard.draw.attention_view import is_signed, state_lines
from dashboard.draw.picture_files import trace_npz
from tests.cases import each
from tests.pretrained.test_attention_recorder import built
from tests.tiny_models import uneven

FAMILIES = (
    *("qwen3_next", "qwen3_5_text", "olmo_hybrid", "qwen4_exp_text", "lara_mini", "kimi_linear"),
    *("bailing_hybrid", "glm5_next_text", "bamba", "falcon_h1", "granitemoehybrid", "nemotron_h"),
    *("zamba2", "mamba2", "jamba", "zamba", "mamba", "falcon_mamba", "minimax", "recurrent_gemma"),
    *("rwkv", "xlstm", "lfm2", "lfm2_moe", "lfm3", "qwen3_5_moe_text", "qwen3_5"),
)


CACHES = ("cache", "past_key_values", "cache_params", "state")


@cache
def model_of(family):
    pretrained = built(family)
    torch.manual_seed(1)
    uneven(pretrained.model)
    return pretrained


def error(call):
    """How far matrix × values is from the layer's own output, as a share of its size."""
    out = call.out
    assert call.weights.shape == (len(out), out.shape[2], out.shape[1], call.v.shape[2])
    made = (call.weights @ call.v).transpose(1, 2) + call.options.get("carried", 0)
    return float((made - out).abs().max() / out.abs().max().clamp(min=1e-3))


@pytest.fixture
def by_channel(monkeypatch):
    """Where each channel has a matrix of its own, a map of each, so that it makes the output of the values."""

    def groups_of(kernel, values, calls=1):
        return values.shape[kernel.axes.index("c")] if kernel.by_channel else 1

    monkeypatch.setattr("core.pretrained.attention_recorder.groups_of", groups_of)


def batch_of(rows, time, padding=0):
    ids = torch.randint(5, 100, (rows, time), generator=torch.Generator().manual_seed(time))
    mask = torch.ones_like(ids)
    mask[-1, :padding] = 0
    return {"input_ids": ids, "attention_mask": mask}


@each("family", FAMILIES)
def test_matrix_times_values_is_the_layer_s_output(family, by_channel):
    model, errors = model_of(family).model, list[Any]()
    for batch in (batch_of(1, 7), batch_of(2, 70, padding=3)):
        with record_attention(model, with_qkv=True) as recorder, torch.no_grad():
            model(**batch)
        states = [call for call in recorder.calls if call.state]
        assert states
        errors += map(error, states)
        assert all(not call.weights.triu(1).any() for call in states)
    assert max(errors) < 1e-5


@each("family", FAMILIES)
def test_with_a_cache_the_state_is_carried(family, by_channel):
    errors, model = [], model_of(family).model
    ids, mask = batch_of(2, 12).values()
    cache = {"cache": DynamicCache(config=model.config)} if family == "recurrent_gemma" else {}
    with torch.no_grad():
        past = model(input_ids=ids[:, :9], attention_mask=mask[:, :9], use_cache=True, **cache)
        name = next((key for key in CACHES if key in past), None)
        for stop in (10, 11):
            more = {"input_ids": ids[:, stop - 1 : stop], "attention_mask": mask[:, :stop]}
            cache = {name: past[name]} if name else cache
            with record_attention(model, with_qkv=True) as recorder:
                past = model(**more, **cache, use_cache=True)
            errors += [error(call) for call in recorder.calls if call.state]
    assert errors and max(errors) < 1e-5


@each("family", FAMILIES)
def test_recording_changes_no_bit_and_heads_can_be_replaced(family):
    model, batch = model_of(family).model, batch_of(1, 9)

    def run(**changes):
        with record_attention(model, **changes) as recorder, torch.no_grad():
            return logits(model(**batch, use_cache=False)), recorder

    with torch.no_grad():
        expected = logits(model(**batch, use_cache=False))
    plain, recorder = run(with_qkv=True)
    assert torch.equal(plain, expected) and torch.equal(run()[0], expected)
    call = [one for one in recorder.calls if one.state][-1]
    key, head = (call.kind, call.layer), call.out.shape[2] - 1
    assert torch.equal(run(patches=[(0, *key, head, call.gated[0])])[0], expected)
    # By hand: what W_O gets of this head becomes zero, or another's.
    size = call.gated.shape[-1]
    here = slice(head * size, (head + 1) * size)
    other = torch.randn_like(call.gated[0])

    def by_hand(values, here=here):
        def replaced(module, inputs):
            heads = inputs[0].clone()
            heads[..., here] = values
            return (heads,)

        handle = call.output.register_forward_pre_hook(replaced)
        try:
            return run()[0]
        finally:
            handle.remove()

    without = run(off=frozenset({(*key, head)}))[0]
    torch.testing.assert_close(without, by_hand(0.0), rtol=1e-4, atol=1e-5)
    replaced = run(patches=[(0, *key, head, other)])[0]
    torch.testing.assert_close(replaced, by_hand(other[:, head]), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(without, expected, atol=1e-6)
    # Equal weights of the same sum, and what no value gives.
    uniform, changed = run(uniform=frozenset({(*key, head)}), with_qkv=True)
    now, rows = changed.calls[recorder.calls.index(call)], call.weights[0, head].sum(-1)
    even = torch.ones(9, 9).tril() / torch.arange(1, 10)[:, None] * rows[:, None]
    carried = call.options["carried"][0, :, head] if "carried" in call.options else 0
    made = even @ call.v[0, head] + carried
    torch.testing.assert_close(now.out[0, :, head], made, rtol=1e-4, atol=1e-5)
    # A norm of all heads may follow
    all_heads = by_hand(now.gated[0].flatten(1), slice(None))
    torch.testing.assert_close(uniform, all_heads, rtol=1e-4, atol=1e-5)


def logits(output):
    return output.logits if hasattr(output, "logits") else output.last_hidden_state


def test_two_threads_on_one_model_see_their_own_state_layers():
    for family in ("minimax", "qwen3_next", "zamba"):
        model, meet = model_of(family).model, threading.Barrier(2)
        batches = batch_of(1, 9), batch_of(1, 10)

        def watch(batch, model=model, meet=meet):
            with record_attention(model, with_qkv=True) as alone, torch.no_grad():
                model(**batch)
            with record_attention(model, with_qkv=True) as recorder, torch.no_grad():
                meet.wait()
                for _ in range(5):
                    recorder.calls.clear()
                    model(**batch)
                    for one, other in zip(recorder.calls, alone.calls, strict=True):
                        assert torch.equal(one.weights, other.weights) and one.name == other.name

        with ThreadPoolExecutor(2) as threads:
            list(threads.map(watch, batches))


def test_a_watched_state_model_stays_as_it_was():
    for family in ("jamba", "minimax", "recurrent_gemma", "xlstm"):
        model = model_of(family).model
        inside = {name: set(vars(module)) for name, module in model.named_modules()}
        with record_attention(model, with_qkv=True), torch.no_grad():
            model(**batch_of(1, 5), use_cache=False)
        assert inside == {name: set(vars(module)) for name, module in model.named_modules()}
        hooks = (one._forward_hooks or one._forward_pre_hooks for one in model.modules())
        assert not any(hooks)


def library_function(family, name):
    """PyTorch's, also where a kernel of another package is installed beside it."""
    modeling = __import__(type(model_of(family).model).__module__, fromlist=["x"])
    function = getattr(modeling, name).args[0]
    return function.args[1] if isinstance(function, partial) else function


def test_a_scan_s_mean_matrix_is_the_mean_of_its_channels():
    function = library_function("mamba", SCAN)
    torch.manual_seed(2)
    for time in (1, 5, 40):
        given = signature(function).bind(
            torch.randn(2, 8, time),
            torch.randn(2, 8, time),
            -5 * torch.rand(8, 3),
            torch.randn(2, 3, time),
            torch.randn(2, 3, time),
            D=torch.randn(8),
            delta_bias=torch.randn(8),
            delta_softplus=True,
        )
        each_channel = state_matrix(function, KERNELS[SCAN], given)
        means = state_matrix(function, KERNELS[SCAN], given, 4)
        expected = each_channel.unflatten(1, (4, 2)).mean(2)
        torch.testing.assert_close(means, expected, rtol=1e-4, atol=1e-5)


def test_three_tokens_of_a_delta_rule_and_of_mamba_by_hand():
    # Gated delta rule: S_t = a_t (I − b_t k_t k_tᵀ) S_{t−1} + b_t k_t v_tᵀ; o_t = S_tᵀ q_t. Yang et al. 2024, equation 10.
    function = library_function("qwen3_next", "torch_chunk_gated_delta_rule")
    torch.manual_seed(0)
    q, k, v = torch.nn.functional.normalize(torch.randn(3, 1, 3, 1, 4), dim=-1)
    a, b = torch.tensor([0.9, 0.5, 0.8]), torch.tensor([0.7, 0.6, 0.3])
    given = signature(function).bind(q, k, v, g=a.log()[None, :, None], beta=b[None, :, None])
    matrix = state_matrix(function, KERNELS["torch_chunk_gated_delta_rule"], given)[0, 0]
    (k1, k2, k3), rows = k[0, :, 0], q[0, :, 0] / 2  # the function scales queries by 1/√D
    removed = [torch.eye(4) - b[i] * torch.outer(key, key) for i, key in enumerate((k1, k2, k3))]
    states = [
        [b[0] * k1],
        [a[1] * removed[1] @ (b[0] * k1), b[1] * k2],
        [
            a[2] * removed[2] @ (a[1] * removed[1] @ (b[0] * k1)),
            a[2] * removed[2] @ (b[1] * k2),
            b[2] * k3,
        ],
    ]
    expected = torch.zeros(3, 3)
    for t, keys in enumerate(states):
        expected[t, : t + 1] = torch.stack([rows[t] @ key for key in keys])
    torch.testing.assert_close(matrix, expected, rtol=1e-4, atol=1e-5)
    assert (matrix < 0).any() and not torch.allclose(matrix.sum(-1), torch.ones(3), atol=0.1)
    # Mamba-2: C_t · B_s Δ_s exp(A Σ_{s<i≤t} Δ_i), and D on the diagonal. Dao and Gu 2024, section 3.
    function = library_function("mamba2", "mamba2_chunk_scan")
    x, dt, rate = torch.randn(1, 3, 1, 2), torch.tensor([0.5, 0.2, 1.0]), -0.7
    into, out = torch.randn(2, 1, 3, 1, 4)
    given = signature(function).bind(
        x, dt[None, :, None], torch.tensor([rate]), into, out, chunk_size=2, D=torch.tensor([0.3])
    )
    matrix = state_matrix(function, KERNELS["mamba2_chunk_scan"], given)[0, 0]
    for t in range(3):
        for s in range(t + 1):
            decay = torch.exp(rate * dt[s + 1 : t + 1].sum())
            cell = out[0, t, 0] @ into[0, s, 0] * dt[s] * decay + 0.3 * (s == t)
            torch.testing.assert_close(matrix[t, s], cell, rtol=1e-4, atol=1e-5)


@each("family", ["qwen3_next", "jamba", "mamba2", "mamba", "zamba"])
def test_every_measure_goes_through_layers_without_softmax(family):
    pretrained, inputs = model_of(family), ModelInputs("The animal did cross the street.")
    reading = read(pretrained, inputs)
    states = {(item.kind, item.layer) for item in reading.trace.maps if item.state}
    assert states and all((item.weights < 0).any() for item in reading.trace.maps if item.state)
    layers = len(reading.trace.maps)
    values, roles = measure_text(reading, "causal")
    assert values.shape[1] == layers and np.isfinite(roles.score[:, min(states)[1]]).all()
    assert (values[0, : len(states)] >= 0).any() and np.nanmax(values[0]) <= np.log(40)
    assert score_repeats(pretrained, "causal").score.shape[1] == layers
    baseline = ask(pretrained, Question(inputs))
    contributions = measure_contributions(baseline)
    means = {item.state for item in reading.trace.maps} & {KERNELS[SCAN].name}
    # Where each channel has a matrix, its lengths and gradients are unknown, and so those of the tokens
    for known in (contributions.norms, contributions.gradients):
        assert states <= set(known) if not means else not states & set(known)
    scores = token_scores(baseline, reading.trace, contributions)
    assert {"weights", "rollout"} <= set(scores) and all(map(np.isfinite, scores["rollout"]))
    assert ("gradient" in scores) == ("written" in scores) == (not means)
    assert bool(gradient_estimates(reading.trace.maps, contributions)) == (not means)
    written = {
        part.key for part in attribute_logit(baseline, baseline.id).parts if part.role == "head"
    }
    assert states <= written
    layer, others = telling_cell(reading, "causal").layer, {*range(len(reading.trace.maps))}
    assert (layer in {at for _, at in states}) == (others == {at for _, at in states})
    assert compare(reading, reading, "causal", False, True).heads[0].moved == 0
    start = prepare_generation(pretrained, inputs)
    later = score_continuation(pretrained, start, [7, 8]).trace.maps
    assert [item.state for item in later] == [item.state for item in reading.trace.maps]


@each("family", ["qwen3_next", "jamba", "falcon_h1", "mamba"])
def test_what_needs_queries_and_keys_leaves_state_layers_out(family):
    pretrained, text = model_of(family), "The animal did cross."
    trace = read(pretrained, ModelInputs(text)).trace
    state = next(item.layer for item in trace.maps if item.state)
    attends = [item.layer for item in trace.maps if not item.state]
    with pytest.raises(PretrainedError, match="without softmax, so it has no queries and keys"):
        layer_qkv(pretrained, text, state)
    if not attends:
        for refused in (layer_attentions, read_heads):
            given = (ModelInputs(text),) if refused is layer_attentions else ()
            with pytest.raises(PretrainedError, match="has no (layer|attention) whose"):
                refused(pretrained, *given)
        return
    assert [layer for _, layer in layer_attentions(pretrained, ModelInputs(text))] == attends
    heads = read_heads(pretrained)
    assert [one.layer for one in heads] == attends
    assert [one.number for one in heads] == [trace.numbers[layer] for layer in attends]
    vectors = text_vectors(pretrained, ModelInputs(text), "causal")
    assert vectors.head(attends[-1], 0)[0].shape[0] == len(vectors.tokens)
    with pytest.raises(PretrainedError, match="no softmax"):
        vectors.head(state, 0)


@each("family", FAMILIES)
def test_the_memory_of_maps_counts_layers_without_softmax(family):
    # So that a text that is too long is refused before it is read.
    pretrained = model_of(family)
    with record_attention(pretrained.model) as recorder, torch.no_grad():
        pretrained.model(**batch_of(1, 9), use_cache=False)
    size = sum(4 * call.weights[0].numel() for call in recorder.calls)
    assert size <= maps_bytes(pretrained.model, 9) <= 4 * size


def test_a_fine_tuning_run_keeps_maps_of_layers_with_other_heads():
    reading = read(model_of("jamba"), ModelInputs("The animal did cross."))
    names = [{"tokens": list(line.tokens)} for line in reading.lines("causal")]
    facts = {"kinds": {"causal": names}, "layers": saved_layers(reading)}
    saved = trace_of(saved_maps([reading]), 0, json.loads(json.dumps(facts)), "run")
    for one, other in zip(saved.maps, reading.trace.maps, strict=True):
        np.testing.assert_allclose(one.weights, other.weights, rtol=1e-2, atol=1e-3)
        assert (one.state, one.layer_number) == (other.state, other.layer_number)


def safetensors_of(trace):
    """As another program may write it: the texts are JSON in the metadata."""
    arrays = dict(np.load(io.BytesIO(trace_npz(trace))))
    texts = {key: json.dumps(one.tolist()) for key, one in arrays.items() if one.dtype.kind == "U"}
    return save({key: one for key, one in arrays.items() if key not in texts}, texts)


@each("write", [trace_npz, safetensors_of])
@each("family", ["llama", "qwen3_next", "falcon_mamba", "nemotron_h", "lfm2", "falcon_h1"])
def test_a_file_of_signed_maps_opens_as_it_was_drawn(family, write):
    model = model_of(family).model
    with record_attention(model) as recorder, torch.no_grad():
        model(**batch_of(1, 9))
    tokens, numbers = tuple("abcdefghi"), numbers_by_layer(model, recorder.calls)
    maps = [
        AttentionMap(one.kind, one.layer, np.asarray(one.weights[0]), tokens, tokens,
                     np.tri(9, dtype=bool)[None], numbers[one.kind, one.layer], one.state)
        for one in recorder.calls
    ]  # fmt: skip
    back = read_arrays(write(AttentionTrace(tuple(maps), family)), "maps")
    for one, other in zip(back.trace.maps, maps, strict=True):
        assert (one.kind, one.layer, one.layer_name, one.state, one.keys) == (
            other.kind, other.layer, other.layer_name, other.state, tokens)  # fmt: skip
        np.testing.assert_array_equal(one.weights, other.weights)
        np.testing.assert_array_equal(one.shares, other.shares)
        assert is_signed(one) == is_signed(other) and (one.visible == other.visible).all()
    assert state_lines(back.trace) == state_lines(AttentionTrace(tuple(maps), family))
    assert back.cut is None


@each(
    ("labels", "why"),
    [
        ({}, "runs from -1.*0 to 1.* layer_0_state says what it is"),
        ({"layer_0_state": [""]}, "layer_0_state says what it is"),
        ({"layer_0_state": ["a", "b"]}, "layer_0_state names 2 layers; layer_0 has 1"),
    ],
)
def test_signed_weights_say_which_layer_they_are_of(labels, why):
    np.savez(out := io.BytesIO(), layer_0=-np.eye(3)[None], **labels)
    pytest.raises(PretrainedError, read_arrays, out.getvalue(), "a file").match(why)
    others = save({"layer_0": np.eye(3)[None]}, {"state": "3", "train_state": "{}"})
    assert not read_arrays(others, "another program's").trace.map(0).state
