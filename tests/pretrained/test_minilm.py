"""The embedded model is the official one, and a trace holds its own weights, row by row."""

import numpy as np
import pytest
import torch

from core.interpret import trace as analysis
from core.pretrained import PretrainedError, layer_qkv, load_folder, load_minilm, read, verify

SENTENCE = "The animal didn't cross the street because it was too tired."


@pytest.fixture(scope="module")
def minilm():
    return load_minilm()


def test_the_trace_is_what_the_model_computed(minilm):
    trace = read(minilm, SENTENCE).trace
    batch = minilm.tokenizer(SENTENCE, return_tensors="pt")
    with torch.no_grad():
        attentions = minilm.model(**batch, output_attentions=True).attentions
    assert trace.shape == (6, 12)
    for layer, weights in enumerate(attentions):
        np.testing.assert_array_equal(trace.map(layer).weights, weights[0].numpy())
        np.testing.assert_allclose(trace.map(layer).weights.sum(-1), 1.0, atol=1e-5)


def test_the_known_heads_are_found(minilm):
    trace = read(minilm, SENTENCE).trace
    layer, head, value = analysis.strongest(trace, analysis.previous_token)
    assert (layer, head) == (0, 2) and value > 0.99
    tokens = trace.map(0).keys
    assert trace.head(3, 1)[tokens.index("it"), tokens.index("animal")] == pytest.approx(
        0.677, abs=0.002
    )


@pytest.mark.parametrize("layer", [0, 3, 5])
def test_a_layer_s_own_queries_and_keys_make_its_own_attention(minilm, layer):
    before = {
        name: weight.clone()
        for name, weight in minilm.model.named_parameters()
        if f"layer.{layer}." in name
    }
    qkv = layer_qkv(minilm, SENTENCE, layer)
    assert qkv.q.shape == qkv.k.shape == qkv.v.shape == (1, 12, 16, 32)
    weights = (qkv.q @ qkv.k.mT / 32**0.5).softmax(-1)[0]
    expected = read(minilm, SENTENCE).trace.map(layer)
    np.testing.assert_allclose(weights.numpy(), expected.weights, atol=1e-5)
    assert qkv.tokens == expected.queries and qkv.special == (True, *[False] * 14, True)
    own = minilm.model.encoder.layer[layer].attention
    with torch.no_grad():  # and its values: mixed and projected they are what the layer gives on
        merged = own.output((weights @ qkv.v[0]).transpose(0, 1).reshape(1, 16, 384), qkv.x)
    torch.testing.assert_close(own(qkv.x)[0], merged, atol=1e-5, rtol=1e-5)
    assert all(
        torch.equal(dict(minilm.model.named_parameters())[name], weight)
        for name, weight in before.items()
    )


@pytest.mark.parametrize("layer", [-1, 6])
def test_a_layer_that_is_not_there_is_said(minilm, layer):
    with pytest.raises(PretrainedError, match="it has 6 layers"):
        layer_qkv(minilm, SENTENCE, layer)


@pytest.mark.parametrize("text", ["a", "🙂", "שלום עולם", "…", "<b>x</b>", "a\u0000b", "𝔘𝔫𝔦"])
def test_any_text_gives_a_reading(minilm, text):
    reading = read(minilm, text)
    assert len(reading.special) == len(reading.trace.map(0).keys) >= 3 or text == "a\u0000b"
    assert reading.special[0] and reading.special[-1] and reading.cut is None


@pytest.mark.parametrize("text", ["", "   ", "\n\t"])
def test_nothing_to_read_is_said(minilm, text):
    with pytest.raises(PretrainedError, match="write a sentence"):
        read(minilm, text)


def test_what_is_too_long_is_cut_and_said(minilm):
    long = read(minilm, "word " * 700)
    assert len(long.special) == 512 and "702 tokens" in long.cut
    longest = read(minilm, "ab " * 10_000)
    assert len(longest.special) == 512 and longest.cut


def test_a_changed_file_is_refused(tmp_path):
    broken = tmp_path / "model.safetensors"
    broken.write_bytes(b"not the model")
    with pytest.raises(PretrainedError, match="sha256"):
        verify(broken, "53aa51")


def test_any_local_encoder_is_read(tmp_path, minilm):
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    size = minilm.tokenizer.vocab_size
    config = BertConfig(
        vocab_size=size,
        hidden_size=12,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=20,
        max_position_embeddings=37,
    )
    BertModel(config).save_pretrained(tmp_path)
    minilm.tokenizer.save_pretrained(tmp_path)
    small = load_folder(tmp_path, "small")
    reading = read(small, "word " * 90)
    assert (
        reading.trace.shape == (2, 3)
        and len(reading.special) == 37
        and "small reads at most 37" in reading.cut
    )
