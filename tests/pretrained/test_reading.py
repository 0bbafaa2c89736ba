"""What is read of a text, and what is said when it is not all of it."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch

from core.interpret import trace as analysis
from core.pretrained import (
    ModelInputs,
    PretrainedError,
    layer_qkv,
    load_folder,
    load_minilm,
    read,
    verify,
)
from core.pretrained.answers import Answer, display_names
from core.pretrained.base import first_line, text_line
from core.pretrained.generate import token_names
from core.pretrained.load import ImageProcessor, max_tokens_of, positions
from core.pretrained.reading import MAX_CHARACTERS, encode, sampling_rate
from tests.cases import each
from tests.tiny_models import OTHER, SENTENCE, save, tiny


def test_sessions_that_cut_and_sessions_that_do_not_share_one_tokenizer():
    minilm = load_minilm()
    texts = ("word " * 900, "word " * 30) * 2

    def lengths(text: str) -> set[int]:
        return {encode(minilm, ModelInputs(text))[0]["input_ids"].shape[1] for _ in range(40)}

    with ThreadPoolExecutor(len(texts)) as threads:
        assert list(threads.map(lengths, texts)) == [{512}, {32}] * 2


@each("family", ["bart", "t5"])
def test_a_target_that_is_cut_is_said_to_be(family):
    pretrained = tiny(family)
    reading = read(pretrained, ModelInputs(SENTENCE, target=f"{OTHER} " * 200))
    assert len(reading.target) == pretrained.max_tokens
    assert (
        "The target has" in reading.cut
        and f"at most {pretrained.max_tokens - 1} are read" in reading.cut
    )
    assert read(pretrained, ModelInputs(SENTENCE, target=OTHER)).cut is None


def test_sentence_b_is_bounded_as_the_text_is():
    reading = read(tiny("bert"), ModelInputs(SENTENCE, second="a" * (MAX_CHARACTERS + 1)))
    assert f"{MAX_CHARACTERS + 1:,} characters" in reading.cut


def test_a_tokenizer_that_would_leave_out_the_beginning_leaves_out_the_end(tmp_path):
    import transformers

    save("gpt2", tmp_path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path, truncation_side="left")
    tokenizer.save_pretrained(tmp_path)
    assert transformers.AutoTokenizer.from_pretrained(tmp_path).truncation_side == "left"
    pretrained = load_folder(tmp_path, "left")
    cut, whole = (
        encode(pretrained, ModelInputs(text))[1] for text in (f"{SENTENCE} " * 30, SENTENCE)
    )
    assert cut.ids[:5] == whole.ids[:5]


def test_an_answer_beyond_the_vocabulary_is_told_by_its_number():
    pretrained = tiny("gpt2")
    beyond = (
        len(pretrained.tokenizer) + 3
    )  # the table of T5 and of Qwen is larger than their vocabulary
    assert token_names(pretrained, [beyond]) == {beyond: f"[{beyond}]"}
    assert display_names(pretrained, Answer("next"), [beyond]) == (f"[{beyond}]",)
    assert text_line(pretrained.tokenizer, [5, beyond]).tokens[1].endswith(f"[{beyond}]")


def test_a_decoder_of_sound_has_the_places_that_its_config_names():
    import transformers

    config = transformers.WhisperConfig(
        d_model=8,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=8,
        decoder_ffn_dim=8,
        vocab_size=60,
        max_target_positions=21,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    model = transformers.WhisperForConditionalGeneration(config)
    assert (
        positions(model)
        == max_tokens_of(model)
        == model.model.decoder.embed_positions.num_embeddings
        == 21
    )


def test_sound_is_made_at_the_rate_that_the_model_takes():
    from transformers import Wav2Vec2FeatureExtractor

    alone = replace(tiny("whisper"), tokenizer=Wav2Vec2FeatureExtractor(sampling_rate=8_000))
    assert (sampling_rate(alone), sampling_rate(tiny("whisper"))) == (8_000, 16_000)


def test_an_error_that_says_nothing_is_told_by_its_class():
    assert first_line(ValueError("one\ntwo")) == "one"
    assert first_line(ValueError()) == "ValueError()"


def test_a_file_that_asks_for_giant_pictures_is_refused(tmp_path):
    file = tmp_path / "preprocessor_config.json"
    file.write_text('{"size": {"height": 100000, "width": 100000}}', encoding="utf-8")
    with pytest.raises(PretrainedError, match="100,000 × 100,000 pixels"):
        ImageProcessor.of(tmp_path)
    file.write_text('{"size": {"height": 512, "width": 384}}', encoding="utf-8")
    assert ImageProcessor.of(tmp_path).size == (512, 384)


# The embedded model is the official one, and a trace holds its own weights, row by row.


MINILM_SENTENCE = "The animal didn't cross the street because it was too tired."


@pytest.fixture(scope="module")
def minilm():
    return load_minilm()


def test_the_trace_is_what_the_model_computed(minilm):
    trace = read(minilm, MINILM_SENTENCE).trace
    batch = minilm.tokenizer(MINILM_SENTENCE, return_tensors="pt")
    with torch.no_grad():
        attentions = minilm.model(**batch, output_attentions=True).attentions
    assert trace.shape == (6, 12)
    for layer, weights in enumerate(attentions):
        np.testing.assert_array_equal(trace.map(layer).weights, weights[0].numpy())
        np.testing.assert_allclose(trace.map(layer).weights.sum(-1), 1.0, atol=1e-5)


def test_the_known_heads_are_found(minilm):
    trace = read(minilm, MINILM_SENTENCE).trace
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
    qkv = layer_qkv(minilm, MINILM_SENTENCE, layer)
    assert qkv.q.shape == qkv.k.shape == qkv.v.shape == (1, 12, 16, 32)
    weights = (qkv.q @ qkv.k.mT / 32**0.5).softmax(-1)[0]
    expected = read(minilm, MINILM_SENTENCE).trace.map(layer)
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
        layer_qkv(minilm, MINILM_SENTENCE, layer)


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
