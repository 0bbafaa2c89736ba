"""Every family: its maps are the model's own, row by row, kinds and tokens are right, and a picture comes of them."""

import base64
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from core.pretrained import (
    Array,
    ModelInputs,
    PretrainedError,
    encode,
    forward,
    load_folder,
    load_lab_model,
    load_minilm,
    read,
)
from core.pretrained.load import max_tokens_of, untrained
from core.pretrained.maps import SINK, with_sink
from dashboard.draw import attention_view
from tests.cases import each
from tests.tiny_models import (
    BERT,
    FAMILIES,
    OTHER,
    READABLE,
    SENTENCE,
    WITHOUT,
    Family,
    build,
    given,
    plain,
    save,
    tiny,
)

CAUSAL = (
    "bert_decoder",
    "gpt2",
    "gpt_neox",
    "bloom",
    "llama",
    "mistral",
    "qwen3",
    "gemma2",
    "gemma3",
    "gpt_oss",
    "deepseek_v3",
    "diffllama",
)
PAIRS = ("t5", "bart", "marian", "whisper")
WINDOWS = {"mistral": (0, 1), "gemma3": (0,), "gemma2": (0,), "gpt_oss": (0,), "modernbert": (1, 2)}
BANDED = ("longformer", "longformer_classifier")
DENSE = tuple(name for name in READABLE if name not in BANDED)
OWN_CODE = ("bloom", "deberta_v2", "big_bird", *BANDED)


def own(family):
    """What the library itself returns for the same inputs, by kind: the model loaded a second time, without us."""
    batch, *_ = encode(tiny(family), given(family))
    with torch.no_grad():
        output = plain(family)(**batch, output_attentions=True)
    alone = "causal" if family in CAUSAL else "self"
    if family not in PAIRS:
        return {alone: output.attentions}
    return {
        "self": output.encoder_attentions,
        "causal": output.decoder_attentions,
        "cross": output.cross_attentions,
    }


@each("family", DENSE)
def test_every_map_is_the_model_s_own_row_by_row(family):
    trace = read(tiny(family), given(family)).trace
    expected = own(family)
    assert trace.kinds == tuple(expected)
    for kind, layers in expected.items():
        assert len(trace.of(kind).maps) == len(layers) > 0
        for item, weights in zip(trace.of(kind).maps, layers, strict=True):
            np.testing.assert_array_equal(item.weights, weights[0].numpy())
            assert (
                1.2 / item.weights.shape[-1] < item.weights.max(-1).mean() < 0.9
            )  # no even map, no certain one


@each("family", READABLE)
def test_the_model_answers_as_if_nobody_watched(family):
    batch, *_ = encode(tiny(family), given(family))
    output, recorder = forward(tiny(family), batch)
    with torch.no_grad():
        expected = plain(family)(**batch)
    torch.testing.assert_close(output[0], expected[0], rtol=0, atol=0)
    assert bool(recorder.calls) == tiny(family).recordable == (family not in OWN_CODE)


def dense(layer, x, window, everywhere):
    """One Longformer layer's weights, worked out over all pairs: a band, and tokens that all see and that see all."""
    heads, length = layer.num_heads, x.shape[1]
    place = torch.arange(length)
    may = (place[:, None] - place[None]).abs() <= window
    may[:, :everywhere] = True

    def scores(query, key):
        q, k = (make(x)[0].unflatten(-1, (heads, -1)).transpose(0, 1) for make in (query, key))
        return q @ k.mT / q.shape[-1] ** 0.5

    weights = scores(layer.query, layer.key).masked_fill(~may, -torch.inf).softmax(-1)
    weights[:, :everywhere] = scores(layer.query_global, layer.key_global).softmax(-1)[
        :, :everywhere
    ]
    return weights


@each("family", BANDED)
@each("text", [SENTENCE, "a wait a", "it"])  # 15 tokens, 5 (as many as a band is wide), 3
def test_a_band_is_unpacked_to_the_matrix_it_stands_for(family, text):
    trace = read(tiny(family), text).trace
    batch, *_ = encode(tiny(family), ModelInputs(text))
    with torch.no_grad():
        states = plain(family)(**batch, output_hidden_states=True).hidden_states
        for item, layer in zip(trace.maps, plain(family).longformer.encoder.layer, strict=True):
            expected = dense(
                layer.attention.self,
                states[item.layer],
                (2, 4)[item.layer],
                int(family != "longformer"),
            )
            np.testing.assert_allclose(item.weights, expected.numpy(), atol=1e-6)
            np.testing.assert_allclose(item.weights.sum(-1), 1, atol=1e-5)


@each("family", BANDED)
def test_a_band_s_own_numbers_are_what_is_drawn(family):
    for item, band in zip(
        read(tiny(family), SENTENCE).trace.maps, own(family)["self"], strict=True
    ):
        for drawn, given_back in zip(item.weights[1, 1:], band[0, 1, 1:].numpy(), strict=True):
            np.testing.assert_array_equal(
                np.sort(drawn[drawn > 0]), np.sort(given_back[given_back > 0])
            )


@each("family", READABLE)
def test_what_is_masked_is_zero_and_what_is_seen_is_not(family):
    for item in read(tiny(family), given(family)).trace.maps:
        np.testing.assert_array_equal(item.weights > 0, item.visible)
        assert item.kind != "causal" or not item.visible[:, 0, 1:].any()


@each("family", WINDOWS)
def test_a_window_is_masked_beyond_its_edge(family):
    maps = read(tiny(family), given(family)).trace.maps
    for item in maps:
        far = item.mask is not None and not item.mask[0, -1, 0]
        assert far == (item.layer in WINDOWS[family])


@each("family", [name for name in READABLE if FAMILIES[name].reader not in ("picture", "sound")])
def test_tokens_say_what_was_read(family):
    reading = read(tiny(family), given(family))
    line = reading.source
    assert "".join(
        token.removeprefix("##").lower()
        for token, special in zip(line.tokens, line.special, strict=True)
        if not special
    ) == SENTENCE.lower().replace(" ", "")
    words = [one for one in line.word if one is not None]
    assert (
        words == sorted(words)
        and len(set(words)) < len(words)
        or FAMILIES[family].reader.startswith("bytes")
    )
    for item in reading.trace.maps:
        rows, columns = reading.lines(item.kind)
        assert (item.queries, item.keys) == (rows.tokens, columns.tokens)


@each("family", PAIRS)
def test_a_decoder_reads_one_place_behind_what_it_answers(family):
    reading = read(tiny(family), given(family))
    assert reading.target.ids[1:] == reading.produced.ids[:-1]
    assert reading.target.special[0] and reading.produced.special[-1]
    spoken = [
        token.removeprefix("##").lower()
        for token, special in zip(reading.produced.tokens, reading.produced.special, strict=True)
        if not special
    ]
    assert "".join(spoken) == OTHER.lower().replace(" ", "")


@each("family", [name for name in PAIRS if name != "whisper"])
def test_without_a_target_the_model_decodes_it_itself_greedily(family):
    reading = read(tiny(family), given(family, target=None))
    batch, *_ = encode(tiny(family), given(family))
    del batch["decoder_input_ids"]
    expected = (
        plain(family).generate(**batch, max_new_tokens=64, do_sample=False, num_beams=1)[0].tolist()
    )
    assert (
        list(reading.target.ids) == expected[: len(reading.target.ids)]
        and len(reading.target.ids) > 1
    )


@each("family", ["bert", "gpt2", "llama", "t5"])
def test_a_text_of_one_token_keeps_its_kind(family):
    kinds = read(tiny(family), given(family, text="a", target="a")).trace.kinds
    assert kinds == {"bert": ("self",), "t5": ("self", "causal", "cross")}.get(family, ("causal",))


@each("family", READABLE)
def test_a_picture_comes_of_it(family):
    trace = read(tiny(family), given(family)).trace
    grid = attention_view.grid(trace)
    assert (
        grid["shapes"] == [list(item.weights.shape) for item in trace.maps] and not grid["pooled"]
    )
    cells = np.frombuffer(base64.b64decode(grid["bytes"]), np.uint8)
    drawn = np.concatenate(
        [
            np.where(item.visible, np.rint(item.weights * 254), attention_view.MASKED).ravel()
            for item in trace.maps
        ]
    )
    assert np.abs(cells.astype(int) - drawn).max() <= 1
    for item in trace.maps:
        sent = attention_view.one_map(item, 1)["values"]
        np.testing.assert_array_equal(
            np.frombuffer(base64.b64decode(sent["bytes"]), "<f4"), item.weights.ravel()
        )
        assert attention_view.labels(item, None) == {
            "queries": list(item.queries),
            "keys": list(item.keys),
        }


@each("family", WITHOUT)
def test_what_has_no_map_says_why_and_what_to_do(family):
    with pytest.raises(PretrainedError, match="to draw") as error:
        tiny(family)
    assert {"mamba": "Take a Transformer", "big_bird_sparse": "original_full"}[family] in str(
        error.value
    )


def test_a_sink_is_one_column_more():
    reading = read(tiny("gpt_oss"), given("gpt_oss"))
    assert reading.sinks and SINK in reading.note
    batch, *_ = encode(tiny("gpt_oss"), given("gpt_oss"))
    _, recorder = forward(tiny("gpt_oss"), batch, with_qkv=True)
    drawn = with_sink(reading.trace)
    for seen, item, before in zip(recorder.calls, drawn.maps, reading.trace.maps, strict=True):
        scores = seen.q @ seen.k.repeat_interleave(3, 1).mT * seen.options["scaling"] + seen.mask
        sinks = seen.module.sinks.reshape(1, -1, 1, 1).expand(*scores.shape[:-1], 1)
        expected = torch.cat([scores, sinks], -1).softmax(-1)[0]
        np.testing.assert_allclose(item.weights, expected.numpy(), atol=1e-6)
        assert item.keys == (*before.keys, SINK) and (item.mask[..., -1]).all()
        assert 0.02 < item.weights[..., -1].mean() < 0.9 and (before.weights.sum(-1) < 1).all()


def test_paired_heads_are_one_layer_and_said():
    reading = read(tiny("diffllama"), given("diffllama"))
    assert reading.trace.shape == (2, 4) and "head h + 2" in reading.note
    batch, *_ = encode(tiny("diffllama"), given("diffllama"))
    _, recorder = forward(tiny("diffllama"), batch, with_qkv=True)
    for seen in recorder.calls:
        torch.testing.assert_close(
            seen.out, (seen.weights @ seen.v.repeat_interleave(2, 1)).transpose(1, 2)
        )


@each("family", [name for name in READABLE if name not in OWN_CODE])
def test_what_is_seen_makes_the_weights_and_the_output(family):
    batch, *_ = encode(tiny(family), given(family))
    _, recorder = forward(tiny(family), batch, with_qkv=True)
    for seen in recorder.calls:
        heads, size = seen.q.shape[1], seen.q.shape[-1]
        assert seen.weights.shape == (1, heads, seen.q.shape[2], seen.k.shape[2])
        values = seen.v.repeat_interleave(heads // seen.v.shape[1], 1)
        torch.testing.assert_close(
            seen.out, (seen.weights @ values).transpose(1, 2), atol=1e-6, rtol=1e-5
        )
        assert seen.k.shape[-1] == size


@each("family", OWN_CODE)
def test_a_family_with_code_of_its_own_can_be_drawn_but_not_opened(family):
    batch, *_ = encode(tiny(family), given(family))
    for more in ({"with_qkv": True}, {"probe": True}, {"off": frozenset({("self", 0, 1)})}):
        with pytest.raises(PretrainedError, match="not opened or switched off"):
            forward(tiny(family), batch, **more)


@each("family", ["roberta", "longformer"])
def test_places_are_counted_from_after_padding(family):
    assert tiny(family).max_tokens == 68
    reading = read(tiny(family), "too " * 90)
    assert len(reading.source) == 68 and "reads at most 68" in reading.cut


# Families that nobody listed, how long a text may be, and how pictures and sound are prepared.


@each(
    ("layers", "heads", "places", "most"),
    [
        (12, 12, 1024, 682),
        (12, 12, 512, 512),
        (24, 16, 2048, 512),
        (48, 25, 1024, 512),
        (2, 3, 2048, 1024),
    ],
)
def test_a_text_is_as_long_as_its_maps_have_room_for(layers, heads, places, most):
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        n_embd=2 * heads, n_layer=layers, n_head=heads, n_positions=places, vocab_size=5
    )
    with torch.device("meta"):
        assert max_tokens_of(GPT2LMHeadModel(config)) == most
    assert most == 512 or 4 * layers * heads * most**2 <= 256 * 2**20


# Families that nobody listed: what is drawn of them, or the words that say why nothing is.
LED = {
    "d_model": 24,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 3,
    "encoder_ffn_dim": 20,
    "decoder_ffn_dim": 16,
    "attention_window": [4, 4],
    "max_encoder_position_embeddings": 70,
    "max_decoder_position_embeddings": 70,
}
PATCHES = {**BERT, "image_size": 12, "patch_size": 4}
UNLISTED = {
    "gptj": (Family("GPTJForCausalLM", "bytes", {"n_embd": 24, "n_layer": 2, "n_head": 3, "rotary_dim": 4,
                                                 "n_positions": 70}), ("causal", 13, 13)),
    "falcon": (Family("FalconForCausalLM", "bytes", {"hidden_size": 24, "num_hidden_layers": 2,
                                                     "num_attention_heads": 3}), ("causal", 13, 13)),
    "xlnet": (Family("XLNetLMHeadModel", "unigram", {"d_model": 24, "n_layer": 2, "n_head": 3, "d_inner": 20}),
              ("self", 17, 17)),
    "led": (Family("LEDForConditionalGeneration", "bytes-pair", LED), ("self", 15, 15)),
    "clip_text": (Family("CLIPTextModel", "bytes", BERT), ("causal", 13, 13)),
    "registers": (Family("Dinov2WithRegistersModel", "picture", PATCHES), ("self", 14, 14)),
    "deit": (Family("DeiTModel", "picture", PATCHES), ("self", 11, 11)),
    "siglip": (Family("SiglipVisionModel", "picture", PATCHES), ("self", 9, 9)),
    "squeezebert": (Family("SqueezeBertForMaskedLM", "wordpiece", {**BERT, "embedding_size": 24}), "not weights"),
    "funnel": (Family("FunnelModel", "wordpiece", {"d_model": 24, "n_head": 3, "d_head": 8, "d_inner": 20,
                                                   "block_sizes": [1, 1]}), "10 × 20 for 20 × 20 tokens: it pools"),
    "swin": (Family("SwinForImageClassification", "picture", {"image_size": 12, "patch_size": 1, "embed_dim": 8,
                                                              "depths": [1, 1], "num_heads": [2, 2],
                                                              "window_size": 3}), "attend within separate windows"),
    "clip": (Family("CLIPModel", "bytes", {"text_config": BERT, "vision_config": PATCHES}),
             "cannot read a text alone: it also reads pictures"),
    "yoso": (Family("YosoForMaskedLM", "wordpiece", BERT), "approximates attention by hashing"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNLISTED)
def test_a_family_that_nobody_listed_is_drawn_or_says_why_not(name, tmp_path, monkeypatch):
    family, shown = UNLISTED[name]
    monkeypatch.setitem(FAMILIES, name, family)
    pretrained = load_folder(save(name, tmp_path), name)
    if isinstance(shown, str):
        with pytest.raises(PretrainedError, match=shown):
            read(pretrained, given(name))
        return
    item = read(pretrained, given(name)).trace.map(0)
    assert (item.kind, *item.weights.shape[1:]) == shown
    np.testing.assert_allclose(item.weights.sum(-1), 1, atol=1e-5)
    np.testing.assert_array_equal(item.weights > 0, item.visible)


def test_a_wave_is_cut_into_the_stretches_of_its_model(tmp_path):
    from transformers import Wav2Vec2FeatureExtractor

    build(
        "Wav2Vec2Model",
        {
            **BERT,
            "conv_dim": [8, 8],
            "conv_stride": [40, 8],
            "conv_kernel": [50, 8],
            "num_feat_extract_layers": 2,
            "num_conv_pos_embeddings": 4,
            "num_conv_pos_embedding_groups": 2,
        },
    ).save_pretrained(tmp_path)
    Wav2Vec2FeatureExtractor().save_pretrained(tmp_path)
    sound = Array.of(np.random.default_rng(1).normal(size=16_000).astype(np.float32))
    reading = read(load_folder(tmp_path, "waves"), ModelInputs(sound=sound))
    assert reading.source.tokens[:3] == ("0.00 s", "0.02 s", "0.04 s") and len(reading.source) == 49


def test_sound_that_lasts_too_long_is_cut_and_said():
    numbers = np.random.default_rng(3).normal(size=40_000).astype(np.float32)
    reading = read(tiny("whisper"), ModelInputs(sound=Array.of(numbers), target=OTHER))
    assert (
        reading.cut == "The sound lasts 2.5 s; the first 1 s are read."
        and len(reading.source) == 50
    )


def test_a_picture_is_prepared_as_the_model_s_own_processor_does():
    image = pytest.importorskip("PIL.Image")
    from transformers import ViTImageProcessorPil

    numbers = np.random.default_rng(3).integers(0, 255, (31, 17, 3)).astype(np.uint8)
    batch, line, *_ = encode(tiny("vit"), ModelInputs(picture=Array.of(numbers)))
    processor = ViTImageProcessorPil(
        size={"height": 12, "width": 12}, image_mean=[0.4, 0.5, 0.6], image_std=[0.2, 0.3, 0.4]
    )
    expected = processor(image.fromarray(numbers), return_tensors="pt")["pixel_values"]
    torch.testing.assert_close(batch["pixel_values"], expected, atol=1e-5, rtol=1e-5)
    assert line.tokens[:3] == ("[class]", "0,0", "0,1") and line.grid == (3, 3)


# A model before it learned: the same shape, other weights, by its seed, and nothing around it changed.


@each("name", ["bert_encoder", "numbers", "induction"])
def test_same_shape_other_weights_by_the_seed(name):
    trained = tiny(name) if name == "bert_encoder" else load_lab_model(name)
    before = {key: value.clone() for key, value in trained.model.state_dict().items()}
    state = torch.get_rng_state()
    first, again, other = (untrained(trained, seed) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state), "torch's generator is left as it was"
    assert all(torch.equal(value, before[key]) for key, value in trained.model.state_dict().items())
    same = {
        key: torch.equal(value, again.model.state_dict()[key])
        for key, value in first.model.state_dict().items()
    }
    assert all(same.values()), "the seed alone decides"
    queries = [
        key for key in before if key.endswith(("query.weight", "q_proj.weight", "c_attn.weight"))
    ]
    assert queries
    for key in queries:
        assert not torch.equal(first.model.state_dict()[key], before[key])
        assert not torch.equal(first.model.state_dict()[key], other.model.state_dict()[key])
    assert (first.head, first.reads, first.recordable) == (
        trained.head,
        trained.reads,
        trained.recordable,
    )


def test_untrained_bert_attends_almost_evenly():
    trace = read(untrained(load_minilm()), "The animal didn't cross the street.").trace
    tokens = len(trace.map(0).keys)
    assert abs(trace.map(0).weights - 1 / tokens).max() < 0.05


def test_sessions_that_draw_at_the_same_time_get_what_their_seeds_say():
    def drawn(at: int) -> dict[str, torch.Tensor]:
        return untrained((tiny("bert"), tiny("llama"))[at % 2], 3).model.state_dict()

    alone = [drawn(0), drawn(1)]
    with ThreadPoolExecutor(2) as threads:
        for at, state in enumerate(threads.map(drawn, range(24))):
            assert all(torch.equal(value, alone[at % 2][key]) for key, value in state.items())
