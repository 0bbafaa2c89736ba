"""Families that nobody listed, how long a text may be, and how pictures and sound are prepared."""

import numpy as np
import pytest
import torch

from core.pretrained import Array, ModelInputs, PretrainedError, encode, load_folder, read
from core.pretrained.load import max_tokens_of
from tests.cases import each
from tests.tiny_models import BERT, FAMILIES, OTHER, Family, build, given, save, tiny


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
