"""What is read of a text, and what is said when it is not all of it."""

import io
import json
import tracemalloc
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save as save_of_numpy

from core.interpret import trace as analysis
from core.interpret.trace import AttentionTrace
from core.pretrained import (
    ModelInputs,
    PretrainedError,
    layer_qkv,
    load_folder,
    load_lab_model,
    load_minilm,
    read,
    verify,
)
from core.pretrained.answers import Answer, display_names
from core.pretrained.arrays import read_arrays
from core.pretrained.base import text_line
from core.pretrained.generate import token_names
from core.pretrained.load import ImageProcessor, max_tokens_of, positions
from core.pretrained.reading import MAX_CHARACTERS, encode, sampling_rate
from dashboard.draw.picture_files import trace_npz
from tests.cases import each
from tests.tiny_models import BERT, OTHER, SENTENCE, build, save, tiny


def test_sessions_that_cut_and_sessions_that_do_not_share_one_tokenizer():
    minilm = load_minilm()
    texts = ("word " * 900, "word " * 30) * 2

    def lengths(text: str) -> set[int]:
        return {encode(minilm, ModelInputs(text))[0]["input_ids"].shape[1] for _ in range(12)}

    with ThreadPoolExecutor(len(texts)) as threads:
        assert list(threads.map(lengths, texts)) == [{512}, {32}] * 2


@each("family", ["bart", "t5"])
def test_a_target_and_a_sentence_b_that_are_cut_are_said_to_be(family):
    pretrained = tiny(family)
    reading = read(pretrained, ModelInputs(SENTENCE, target=f"{OTHER} " * 200))
    assert len(reading.target) == pretrained.max_tokens and "The target has" in reading.cut
    assert f"at most {pretrained.max_tokens - 1} are read" in reading.cut
    assert read(pretrained, ModelInputs(SENTENCE, target=OTHER)).cut is None
    long = read(tiny("bert"), ModelInputs(SENTENCE, second="a" * (MAX_CHARACTERS + 1)))
    assert f"{MAX_CHARACTERS + 1:,} characters" in long.cut


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
    """The table of T5 and of Qwen is larger than their vocabulary."""
    pretrained, beyond = tiny("gpt2"), len(tiny("gpt2").tokenizer) + 3
    assert token_names(pretrained, [beyond]) == {beyond: f"[{beyond}]"}
    assert display_names(pretrained, Answer("next"), [beyond]) == (f"[{beyond}]",)
    assert text_line(pretrained.tokenizer, [5, beyond]).tokens[1].endswith(f"[{beyond}]")


def test_a_decoder_of_sound_has_the_places_that_its_config_names():
    import transformers

    parts = ("layers", 1), ("attention_heads", 2), ("ffn_dim", 8)
    sizes = {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in parts}
    ids = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1)
    config = transformers.WhisperConfig(
        d_model=8, vocab_size=60, max_target_positions=21, **sizes, **ids
    )
    model = transformers.WhisperForConditionalGeneration(config)
    places = model.model.decoder.embed_positions.num_embeddings
    assert positions(model) == max_tokens_of(model) == places == 21


def test_sound_is_made_at_the_rate_that_the_model_takes():
    from transformers import Wav2Vec2FeatureExtractor

    alone = replace(tiny("whisper"), tokenizer=Wav2Vec2FeatureExtractor(sampling_rate=8_000))
    assert (sampling_rate(alone), sampling_rate(tiny("whisper"))) == (8_000, 16_000)


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


def test_the_trace_is_what_the_model_computed_and_has_the_known_heads(minilm):
    trace = read(minilm, MINILM_SENTENCE).trace
    batch = minilm.tokenizer(MINILM_SENTENCE, return_tensors="pt")
    with torch.no_grad():
        attentions = minilm.model(**batch, output_attentions=True).attentions
    assert trace.shape == (6, 12)
    for item, weights in zip(trace.maps, attentions, strict=True):
        np.testing.assert_array_equal(item.weights, weights[0].numpy())
        np.testing.assert_allclose(item.weights.sum(-1), 1.0, atol=1e-5)
    layer, head, value = analysis.strongest(trace, analysis.previous_token)
    assert (layer, head) == (0, 2) and value > 0.99
    it, animal = map(trace.map(0).keys.index, ("it", "animal"))
    assert trace.head(3, 1)[it, animal] == pytest.approx(0.677, abs=0.002)


@pytest.mark.parametrize("layer", [0, 3, 5])
def test_a_layer_s_own_queries_and_keys_make_its_own_attention(minilm, layer):
    own = minilm.model.encoder.layer[layer].attention
    before = {name: weight.clone() for name, weight in own.state_dict().items()}
    qkv = layer_qkv(minilm, MINILM_SENTENCE, layer)
    assert qkv.q.shape == qkv.k.shape == qkv.v.shape == (1, 12, 16, 32)
    weights = (qkv.q @ qkv.k.mT / 32**0.5).softmax(-1)[0]
    expected = read(minilm, MINILM_SENTENCE).trace.map(layer)
    np.testing.assert_allclose(weights.numpy(), expected.weights, atol=1e-5)
    assert qkv.tokens == expected.queries and qkv.special == (True, *[False] * 14, True)
    with torch.no_grad():  # and its values: mixed and projected they are what the layer gives on
        merged = own.output((weights @ qkv.v[0]).transpose(0, 1).reshape(1, 16, 384), qkv.x)
    torch.testing.assert_close(own(qkv.x)[0], merged, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(dict(own.state_dict()), before, rtol=0, atol=0)
    for missing in (-1, 6):
        with pytest.raises(PretrainedError, match="it has 6 layers"):
            layer_qkv(minilm, MINILM_SENTENCE, missing)


@each("text", ["a", "🙂", "שלום עולם", "…", "<b>x</b>", "a\u0000b", "𝔘𝔫𝔦"])
def test_any_text_gives_a_reading(minilm, text):
    reading = read(minilm, text)
    assert len(reading.special) == len(reading.trace.map(0).keys) >= 3 or text == "a\u0000b"
    assert reading.special[0] and reading.special[-1] and reading.cut is None


def test_nothing_to_read_a_text_too_long_and_a_changed_file_are_said(minilm, tmp_path):
    for text in ("", "   ", "\n\t"):
        with pytest.raises(PretrainedError, match="write a sentence"):
            read(minilm, text)
    long, longest = (read(minilm, text) for text in ("word " * 700, "ab " * 10_000))
    assert len(long.special) == len(longest.special) == 512
    assert "702 tokens" in long.cut and longest.cut
    (tmp_path / "model.safetensors").write_bytes(b"not the model")
    with pytest.raises(PretrainedError, match="sha256"):
        verify(tmp_path / "model.safetensors", "53aa51")


def test_any_local_encoder_is_read(tmp_path, minilm):
    config = BERT | dict(vocab_size=minilm.tokenizer.vocab_size, max_position_embeddings=37)
    build("BertModel", config).save_pretrained(tmp_path)
    minilm.tokenizer.save_pretrained(tmp_path)
    reading = read(load_folder(tmp_path, "small"), "word " * 90)
    assert reading.trace.shape == (2, 3) and len(reading.special) == 37
    assert "small reads at most 37" in reading.cut


# Attention that was computed elsewhere: what is read, what is refused in words, and that nothing else can happen.


def even(*shape: int) -> np.ndarray:
    """Random rows that sum to 1."""
    weights = np.random.default_rng(86).random(shape, dtype=np.float32) + 0.01
    return weights / weights.sum(-1, keepdims=True)


def npz(**arrays: Any) -> bytes:
    out = io.BytesIO()
    np.savez_compressed(out, **arrays)
    return out.getvalue()


def same(trace: AttentionTrace, weights: np.ndarray) -> None:
    assert len(trace.maps) == len(weights)
    for item, expected in zip(trace.maps, weights, strict=True):
        np.testing.assert_allclose(item.weights, expected, atol=2e-3)


@each("shape", [(2, 3, 5, 5), (2, 1, 3, 5, 5), (1, 3, 5, 5), (2, 1, 5, 5)])
def test_one_array_of_all_layers_with_or_without_a_batch(shape):
    weights = even(*shape)
    layers = weights.reshape(-1, *((1, 5, 5) if shape == (2, 1, 5, 5) else (3, 5, 5)))
    arrays = read_arrays(npz(attention=weights), "a.npz")
    same(arrays.trace, layers)
    assert (
        arrays.trace.kinds == ("self",)
        and arrays.source.tokens == tuple("01234")
        and arrays.cut is None
    )


@each("dtype", [np.float16, np.float32, np.float64])
def test_an_array_a_layer_in_the_order_of_their_numbers(dtype):
    layers = even(11, 2, 7, 7).astype(dtype)
    names = {f"encoder.layer.{n}.attention": layers[n] for n in reversed(range(11))}
    same(read_arrays(npz(**names), "a.npz").trace, layers)
    same(read_arrays(save_of_numpy(names), "a.safetensors").trace, layers)
    assert read_arrays(npz(a=layers[0]), "a layer").trace.shape == (1, 2)
    assert read_arrays(npz(a=layers[0, 0]), "a head").trace.shape == (1, 1)


def test_half_precision_of_the_other_kind():
    import torch
    from safetensors.torch import save as save_torch

    weights = torch.from_numpy(even(2, 3, 5, 5)).to(torch.bfloat16)
    arrays = read_arrays(save_torch({"attention": weights}), "a.safetensors")
    np.testing.assert_array_equal(arrays.trace.map(1).weights, weights[1].float().numpy())


def test_tokens_name_rows_and_columns_and_special_ones_are_known():
    words = ("[CLS]", "the", "##m", "cat", "[SEP]")
    line = read_arrays(npz(attention=even(2, 3, 5, 5), tokens=np.array(words)), "a.npz").source
    assert line.tokens == words and line.special == (True, False, False, False, True)
    assert line.word == (None, 0, 0, 1, None)
    names = {"tokens": json.dumps(["Ġthe", "m", "Ġcat", "Ġ", "!"])}
    data = save_of_numpy({"attention": even(2, 3, 5, 5)}, names)
    assert read_arrays(data, "a.safetensors").source.tokens == ("the", "##m", "cat", "␣", "!")
    typed = read_arrays(npz(attention=even(1, 3, 5, 5)), "a.npz", "one two three four five")
    assert typed.trace.map(0).queries == ("one", "two", "three", "four", "five")
    with pytest.raises(PretrainedError, match="2 tokens are typed"):
        read_arrays(npz(a=even(2, 4, 4)), "a.npz", "one two")


def test_kinds_are_named_or_read_off_the_weights():
    causal = np.tril(even(2, 3, 5, 5))
    trace = read_arrays(npz(attention=causal / causal.sum(-1, keepdims=True)), "a.npz").trace
    assert trace.kinds == ("causal",) and trace.map(0).mask is not None
    names = dict(queries=np.array(list("abcd")), keys=np.array(list("vwxyz")))
    across = read_arrays(npz(a=even(2, 3, 4, 5), **names), "a.npz").trace
    assert across.kinds == ("cross",)
    assert (across.map(0).queries, across.map(0).keys) == (tuple("abcd"), tuple("vwxyz"))


@each(
    ("name", "text"),
    [("numbers", "seven hundred and six"), ("induction", "the old king and the old king")],
)
def test_what_the_lab_exports_comes_back_as_it_was(name, text):
    made = read(load_lab_model(name), text)
    back = read_arrays(trace_npz(made.trace), "attention.npz")
    assert back.trace.kinds == made.trace.kinds
    for one, other in zip(back.trace.maps, made.trace.maps, strict=True):
        assert (one.kind, one.layer, one.keys) == (other.kind, other.layer, other.keys)
        np.testing.assert_array_equal(one.weights, other.weights)
    if made.trace.of("cross").maps:
        assert back.lines("cross")[0].tokens == made.lines("cross")[0].tokens


def test_rows_that_do_not_sum_to_one_are_said_and_drawn():
    weights = even(1, 2, 4, 4) * 0.5
    weights[0, 0, 1] = 0
    arrays = read_arrays(npz(attention=weights), "a.npz")
    assert "between 0.50 and 0.50" in arrays.cut
    np.testing.assert_array_equal(arrays.trace.map(0).weights, weights[0])


def lacking(values: object) -> bytes:
    return npz(attention=values)


@each(("data", "why"), [
    (lacking(np.array([[0.5, np.nan], [0, 1]])), "1 numbers that are not finite"),
    (lacking(np.array([[-3.0, 1.0], [0, 1]])), "take their softmax first"),
    (lacking(np.array([[7.0, 1.0], [0, 1]])), "0 to 1"),
    (lacking(np.zeros(5)), "has the shape"), (lacking(np.zeros((2, 0, 3, 3))), "has the shape"),
    (lacking(np.zeros((2, 2, 2, 2, 3, 3))), "has the shape"), (npz(), "holds no weights"),
    (lacking(np.array([object()])), "Python objects"), (lacking(np.array(["a"])), "not numbers"),
    (npz(a=even(2, 4, 4), b=even(2, 5, 5)), "different sizes"), (npz(self_0=even(2, 4, 5)), "square"),
    (npz(self_0=even(2, 4, 4), cross_0=even(2, 3, 5)), "do not fit together"),
    (npz(a=even(2, 4, 4), tokens=np.array(["a", "b"])), "names 2 tokens"),
    (lacking(np.zeros((1, 1, 2049))), "at most 2,048"), (b"PK\x03\x04 broken", "not a readable NPZ"), (b"", "neither"),
    (b"\x93NUMPY", "neither"), (b'\x07\0\0\0\0\0\0\0{"a":1}', "neither"), (b"\xff" * 64, "neither"),
    (save_of_numpy({"a": even(2, 4, 4)}, {"tokens": "the cat"}), "JSON list"),
    (save_of_numpy({"a": even(2, 4, 4)})[:-1], "not a readable safetensors file"),
])  # fmt: skip
def test_what_is_no_attention_is_refused_in_words(data, why):
    with pytest.raises(PretrainedError, match=why):
        read_arrays(data, "a file")


def zipped(name: str, kind: str, shape: tuple[int, ...]) -> bytes:
    """An NPZ with the header of an array of that shape, and no numbers."""
    header, out = io.BytesIO(), io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": kind, "fortran_order": False, "shape": shape}
    )
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{name}.npy", header.getvalue())
    return out.getvalue()


def test_a_bomb_is_refused_by_its_header():
    declared = json.dumps(
        {"a": {"dtype": "F32", "shape": [10**6, 10**6], "data_offsets": [0, 4]}}
    ).encode()
    declared = len(declared).to_bytes(8, "little") + declared + b"\0\0\0\0"
    for data in (zipped("attention", "<f4", (10**6, 10**6)), declared):
        with pytest.raises(PretrainedError, match="1,000,000,000,000 numbers"):
            read_arrays(data, "bomb")


@each("name, kind, count", [("tokens", "<U100000000", 2), ("w", "<f16", 39_000_000)])
def test_a_small_file_that_unpacks_to_gigabytes_is_refused_by_its_header(name, kind, count):
    data = zipped(name, kind, (count,))
    tracemalloc.start()
    try:
        with pytest.raises(PretrainedError, match="letters for a token|numbers; at most"):
            read_arrays(data, "bomb.npz")
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
