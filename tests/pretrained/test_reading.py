"""What is read of an input by every family and said by it, row by row the model's own, against Hugging Face's generate."""

import copy
import io
import json
import re
import struct
import tracemalloc
import wave
import zipfile
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image, ImageOps
from safetensors.numpy import save as save_of_numpy
from safetensors.torch import load_file, save as save_of_torch

from core import tokens
from core.entries import ConfigError, refuse_if
from core.interpret import corpus, head_tests
from core.interpret.evidence import Question, ask
from core.interpret.trace import AttentionMap, AttentionTrace
from core.models.decoding import Sampling, SearchSettings
from core.pretrained import (
    Array,
    ModelInputs,
    PretrainedError,
    attention_recorder as seam,
    base,
    cards,
    encode,
    finetune,
    finetune_run as running,
    forward,
    generate as generation,
    hf_conversion as conversion,
    hub,
    layer_qkv,
    load,
    load_folder,
    load_lab_model,
    load_minilm,
    model_inputs as examples,
    read,
    verify,
)
from core.pretrained.base import picture_line, text_line
from core.pretrained.forward import end_tokens, not_taken, sampling_rate, start_token
from core.pretrained.generate import (
    MODEL_TASKS,
    Answer,
    answer_of,
    cosines,
    decode_text,
    display_names,
    generate,
    generate_steps,
    mask_word,
    most_similar,
    prepare_generation,
    score_continuation,
    step_probabilities,
    task_of,
    token_names,
    top_candidates,
)
from core.pretrained.load import ImageProcessor, max_tokens_of, untrained
from core.pretrained.maps import SINK, sink_line, with_sink
from core.pretrained.model_inputs import read_arrays
from core.pretrained.reading import answer, embedding, read_ids
from core.studies import heads, use_model
from core.tasks import TaskConfig, make_task, own as own_data, reading as table_reading, tables
from dashboard.draw.picture_files import trace_npz
from tests.cases import each, memory_is
from tests.pretrained.test_attention_recorder import built
from tests.tiny_models import (
    BERT,
    FAMILIES,
    OTHER,
    READABLE,
    SENTENCE,
    WITHOUT,
    asking,
    build,
    given,
    plain,
    save,
    tiny,
)

# Every family: kinds and tokens are right, and a picture comes of the maps.


PAIRS = ("t5", "bart", "marian", "whisper")
WINDOWS = {
    "mistral": (0, 1),
    "gemma3": (0,),
    "gemma2": (0,),
    "gpt_oss": (0,),
    "modernbert": (1, 2),
    "gpt_neo": (1,),
}
BANDED = ("longformer", "longformer_classifier")


@each("family", READABLE)
def test_a_family_is_read_and_drawn_as_it_is(family):
    # That its maps are the model's own, row by row, is shown of every architecture.
    batch, *_ = encode(tiny(family), given(family))
    _, recorder = forward(tiny(family), batch, with_qkv=family not in BANDED)
    assert bool(recorder.calls) == tiny(family).recordable == (family not in BANDED)
    for seen in recorder.calls:  # what is seen makes the weights and the output
        heads, (_, groups, keys, size) = seen.q.shape[1], seen.k.shape
        assert seen.weights.shape == (1, heads, seen.q.shape[2], keys) and seen.q.shape[-1] == size
        out = (seen.weights @ seen.v.repeat_interleave(heads // groups, 1)).transpose(1, 2)
        torch.testing.assert_close(seen.out, out, atol=1e-6, rtol=1e-5)
    trace = read(tiny(family), given(family)).trace
    two = tiny(family).model.config.is_encoder_decoder
    assert trace.kinds == (
        ("self", "causal", "cross")
        if two
        else ("causal",)
        if tiny(family).head == "next"
        else ("self",)
    )
    for item in trace.maps:
        np.testing.assert_array_equal(item.weights > 0, item.visible)
        assert item.kind != "causal" or not item.visible[:, 0, 1:].any()
        # a window is masked beyond its edge
        far = item.mask is not None and not item.mask[0, -1, 0]
        assert family not in WINDOWS or far == (item.layer in WINDOWS[family])


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


def spoken(line):
    """The ordinary tokens of a line as one word in small letters."""
    return "".join(
        token.removeprefix("##").lower()
        for token, special in zip(line.tokens, line.special, strict=True)
        if not special
    )


@each("family", [name for name in READABLE if FAMILIES[name].reader not in ("picture", "sound")])
def test_tokens_say_what_was_read(family):
    reading = read(tiny(family), given(family))
    assert spoken(reading.source) == SENTENCE.lower().replace(" ", "")
    words = [one for one in reading.source.word if one is not None]
    assert words == sorted(words)
    assert len(set(words)) < len(words) or FAMILIES[family].reader.startswith("bytes")
    for item in reading.trace.maps:
        rows, columns = reading.lines(item.kind)
        assert (item.queries, item.keys) == (rows.tokens, columns.tokens)
    if family in PAIRS:  # a decoder reads one place behind what it answers
        assert reading.target.ids[1:] == reading.produced.ids[:-1]
        assert reading.target.special[0] and reading.produced.special[-1]
        assert spoken(reading.produced) == OTHER.lower().replace(" ", "")


@each("family", ["bert", "gpt2", "llama", "t5"])
def test_a_text_of_one_token_keeps_its_kind(family):
    kinds = read(tiny(family), given(family, text="a", target="a")).trace.kinds
    assert kinds == {"bert": ("self",), "t5": ("self", "causal", "cross")}.get(family, ("causal",))


@each("family", WITHOUT)
def test_what_has_no_map_says_why_and_what_to_do(family):
    with pytest.raises(PretrainedError, match="(?s)(?=.*to draw).*original_full"):
        read(tiny(family), given(family))


def test_a_sink_is_one_column_more():
    reading = read(tiny("gpt_oss"), given("gpt_oss"))
    assert reading.sinks and SINK in reading.note
    batch, *_ = encode(tiny("gpt_oss"), given("gpt_oss"))
    _, recorder = forward(tiny("gpt_oss"), batch, with_qkv=True)
    for seen, item, before in zip(
        recorder.calls, with_sink(reading.trace).maps, reading.trace.maps, strict=True
    ):
        scores = seen.q @ seen.k.repeat_interleave(3, 1).mT * seen.options["scaling"] + seen.mask
        sinks = seen.module.sinks.reshape(1, -1, 1, 1).expand(*scores.shape[:-1], 1)
        np.testing.assert_allclose(
            item.weights, torch.cat([scores, sinks], -1).softmax(-1)[0].numpy(), atol=1e-6
        )
        assert item.keys == (*before.keys, SINK) and (item.mask[..., -1]).all()
        assert 0.02 < item.weights[..., -1].mean() < 0.9 and (before.weights.sum(-1) < 1).all()


@each("family", BANDED)
def test_a_banded_family_can_be_drawn_but_not_opened(family):
    batch, *_ = encode(tiny(family), given(family))
    for more in ({"with_qkv": True}, {"probe": True}, {"off": frozenset({("self", 0, 1)})}):
        pytest.raises(PretrainedError, forward, tiny(family), batch, **more).match(
            "not opened or switched off"
        )


@each("family", ["roberta", "longformer"])
def test_places_are_counted_from_after_padding(family):
    assert tiny(family).max_tokens == 68
    reading = read(tiny(family), "too " * 90)
    assert len(reading.source) == 68 and "reads at most 68" in reading.cut


# How long a text may be, and how pictures and sound are prepared.


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
    config = transformers.GPT2Config(
        n_embd=2 * heads, n_layer=layers, n_head=heads, n_positions=places, vocab_size=5
    )
    with torch.device("meta"):
        assert max_tokens_of(transformers.GPT2LMHeadModel(config)) == most
    assert most == 512 or 4 * layers * heads * most**2 <= 256 * 2**20


def test_a_wave_is_cut_into_the_stretches_of_its_model(tmp_path):
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
    transformers.Wav2Vec2FeatureExtractor().save_pretrained(tmp_path)
    sound = Array.of(np.random.default_rng(1).normal(size=16_000).astype(np.float32))
    reading = read(load_folder(tmp_path, "waves"), ModelInputs(sound=sound))
    assert reading.source.tokens[:3] == ("0.00 s", "0.02 s", "0.04 s") and len(reading.source) == 49
    for samples in (1, 60, 300):  # shorter than a stretch
        short = ModelInputs(sound=Array.of(sound.numpy()[:samples]))
        assert f"A sound of {samples} samples is too short for waves" in refusal(
            lambda short=short: read(load_folder(tmp_path, "waves"), short)
        )


@each("numbers", [
    np.full((4, 4), np.nan), np.full((4, 4, 3), 200.0), np.full((4, 4), -0.1), np.full((4, 4), 300),
    np.zeros((4, 4, 4)), np.zeros((0, 4, 3), np.uint8), np.zeros((1, 3, 4, 4), np.uint8), np.zeros(4, np.uint8),
])  # fmt: skip
def test_an_array_that_is_no_picture_is_refused(numbers):
    said = refusal(lambda: read(tiny("vit"), ModelInputs(picture=Array.of(numbers))))
    assert f"the shape {numbers.shape} and the type {numbers.dtype}" in said


@each("numbers", [
    np.full(9_000, np.nan), np.zeros((2, 9_000)), np.zeros((9_000, 1)), np.full(9_000, 300, np.int16),
])  # fmt: skip
def test_an_array_that_is_no_sound_is_refused(numbers):
    inputs = ModelInputs(sound=Array.of(numbers), target="a")
    said = refusal(lambda: read(tiny("whisper"), inputs))
    assert f"the shape {numbers.shape} and the type {numbers.dtype}" in said


def test_picture_is_prepared_as_model_s_own_processor_does():
    numbers = np.random.default_rng(3).integers(0, 255, (31, 17, 3)).astype(np.uint8)
    batch, line, *_ = encode(tiny("vit"), ModelInputs(picture=Array.of(numbers)))
    expected = transformers.ViTImageProcessorPil(
        size={"height": 12, "width": 12}, image_mean=[0.4, 0.5, 0.6], image_std=[0.2, 0.3, 0.4]
    )(Image.fromarray(numbers), return_tensors="pt")["pixel_values"]
    torch.testing.assert_close(batch["pixel_values"], expected, atol=1e-5, rtol=1e-5)
    assert line.tokens[:3] == ("[class]", "0,0", "0,1") and line.grid == (3, 3)
    assert len(picture_line(tiny("vit").model, (4 * 50, 4 * 100))) == 5001
    pytest.raises(PretrainedError, picture_line, tiny("vit").model, (4 * 50, 4 * 101)).match(
        "50 × 101 patches; at most 5,000 are drawn"
    )


# A model before it learned: the same shape, other weights, by its seed, and nothing around it changed.


@each("name", ["bert_encoder", "numbers", "induction"])
def test_same_shape_other_weights_by_the_seed(name):
    trained = tiny(name) if name == "bert_encoder" else load_lab_model(name)
    before = {key: value.clone() for key, value in trained.model.state_dict().items()}
    state = torch.get_rng_state()
    made = [untrained(trained, seed) for seed in (0, 0, 1)]
    first, again, other = (one.model.state_dict() for one in made)
    assert torch.equal(torch.get_rng_state(), state), "torch's generator is left as it was"
    torch.testing.assert_close(dict(trained.model.state_dict()), before, rtol=0, atol=0)
    torch.testing.assert_close(dict(first), dict(again), rtol=0, atol=0)  # the seed alone decides
    ends = ("query.weight", "q_proj.weight", "c_attn.weight")
    assert (queries := [key for key in before if key.endswith(ends)])
    for key in queries:
        assert not torch.equal(first[key], before[key]) and not torch.equal(first[key], other[key])
    for part in ("head", "reads", "recordable"):
        assert getattr(made[0], part) == getattr(trained, part)


def test_sessions_that_draw_at_once_keep_their_seeds():
    def drawn(at: int) -> dict[str, torch.Tensor]:
        return untrained((tiny("bert"), tiny("llama"))[at % 2], 3).model.state_dict()

    alone = [drawn(0), drawn(1)]
    with ThreadPoolExecutor(2) as threads:
        for at, state in enumerate(threads.map(drawn, range(24))):
            assert all(torch.equal(value, alone[at % 2][key]) for key, value in state.items())


# Texts, pictures and sounds that are cut or prepared.


def test_sessions_that_cut_share_one_tokenizer():
    minilm = load_minilm()
    texts = ("word " * 900, "word " * 30) * 2

    def lengths(text: str) -> set[int]:
        return {encode(minilm, ModelInputs(text))[0]["input_ids"].shape[1] for _ in range(12)}

    with ThreadPoolExecutor(len(texts)) as threads:
        assert list(threads.map(lengths, texts)) == [{512}, {32}] * 2


def test_every_tokenizer_leaves_out_the_end(tmp_path):
    save("gpt2", tmp_path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path, truncation_side="left")
    tokenizer.save_pretrained(tmp_path)
    assert transformers.AutoTokenizer.from_pretrained(tmp_path).truncation_side == "left"
    pretrained = load_folder(tmp_path, "left")
    cut, whole = (
        encode(pretrained, ModelInputs(text))[1] for text in (f"{SENTENCE} " * 30, SENTENCE)
    )
    assert cut.ids[:5] == whole.ids[:5]


@each(
    ("text", "expected"),
    [
        ("not JSON", ImageProcessor()),
        (
            '{"size": 64, "resample": 0, "do_normalize": null}',
            ImageProcessor((64, 64), (0.0,) * 3, (1.0,) * 3, 0),
        ),
        ('{"size": 64, "rescale_factor": 0.5}', ImageProcessor((64, 64), scale=0.5)),
        ('{"size": 64, "do_rescale": false}', ImageProcessor((64, 64), scale=1.0)),
        ('{"size": 64, "crop_size": 32, "do_center_crop": false}', ImageProcessor((64, 64))),
        ('{"size": {"longest_edge": 48}}', ImageProcessor((48, 48))),
        ('{"size": 64}', ImageProcessor((64, 64))),
        ('{"size": {"shortest_edge": 32}, "resample": 3}', ImageProcessor((32, 32), resample=3)),
        ('{"crop_size": {"height": 512, "width": 384}, "size": 3}', ImageProcessor((512, 384))),
        (
            '{"size": [2000, 2000], "do_normalize": false}',
            ImageProcessor((2000, 2000), (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
        ),
        ('{"size": [2000, 2001]}', "2,000 × 2,001 pixels; at most 4 million"),
        ('{"image_mean": [1, 2]}', "not one or three numbers each"),
        ('{"image_std": [0, 1, 1]}', "in which a deviation is 0"),
        ('{"image_std": [NaN, 1, 1]}', "not one or three numbers each"),
        ('{"size": [-4, -4]}', "-4 × -4 pixels"),
        ("[1]", "preprocessor_config.json that cannot be read"),
    ],
)
def test_how_a_picture_is_prepared_stands_in_its_file(text, expected, tmp_path):
    (tmp_path / "preprocessor_config.json").write_text(text, encoding="utf-8")
    if isinstance(expected, str):
        pytest.raises(PretrainedError, ImageProcessor.of, tmp_path).match(expected)
    else:
        assert ImageProcessor.of(tmp_path) == expected


@each("name", ["processor_config.json", "preprocessor_config.json"])
def test_a_processor_of_any_file_prepares_as_the_library_s(name, tmp_path):
    """transformers 5 saves a processor of pictures and text, such as TrOCR's, as one processor_config.json."""
    own = transformers.ViTImageProcessorPil(
        size={"height": 10, "width": 14},
        image_mean=[0.1, 0.2, 0.3],
        resample=0,
        rescale_factor=1 / 127,
    )
    text = {"image_processor": own.to_dict(), "processor_class": "TrOCRProcessor"}
    if name.startswith("pre"):
        text = own.to_dict()
    (tmp_path / name).write_text(json.dumps(text), encoding="utf-8")
    numbers = np.random.default_rng(3).integers(0, 255, (31, 17, 3)).astype(np.uint8)
    expected = own(Image.fromarray(numbers), return_tensors="pt")["pixel_values"]
    torch.testing.assert_close(
        ImageProcessor.of(tmp_path).prepare(numbers, 3), expected, atol=1e-5, rtol=1e-5
    )


def test_a_token_past_the_embedding_is_named():
    pretrained = replace(tiny("bert"), model=copy.deepcopy(tiny("bert").model))
    rows = len(pretrained.tokenizer) - 3
    pretrained.model.resize_token_embeddings(rows)
    beyond = str(pretrained.tokenizer.convert_ids_to_tokens(rows))
    said = f"the token '{beyond}', number {rows:,}, and the model embeds only {rows:,}"
    for act in (
        lambda: read(pretrained, ModelInputs(beyond)),
        lambda: encode(pretrained, ModelInputs("the", second=beyond)),
        lambda: mask_word(pretrained, beyond, 0),
    ):
        pytest.raises(PretrainedError, act).match(re.escape(said))


def test_long_name_in_config_is_cut_in_what_is_said_of_it():
    config = {"model_type": "bert", f"num_{'x' * 5_000}": 10**30}
    said = str(pytest.raises(PretrainedError, load.refuse_values, config, "m").value)
    assert "more than any model has" in said and len(said) < 300


def test_advice_on_pickles_is_the_hub_s_alone():
    files = ["config.json", "pytorch_model.bin"]
    assert "refs/pr" not in str(pytest.raises(PretrainedError, load.weight_files, files, "m").value)


# A picture as a person sees it, and a sound as a person hears it, whatever file it is in.


def saved(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    image.save(out := io.BytesIO(), kind, **options)
    return out.getvalue()


@each("kind", ["JPEG", "PNG", "WEBP"])
@each("orientation", range(1, 9))
def test_a_picture_stands_upright(kind, orientation):
    image = Image.new("RGB", (40, 24), "blue")
    image.paste("red", (0, 0, 20, 12))
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = saved(image, kind, exif=exif)
    expected = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB"))
    pixels = examples.decode_picture(data).numpy()
    np.testing.assert_allclose(pixels.astype(int), expected, atol=3)


SEEN, FIRST_SEEN = "transparent parts are read as white", "the first is read"
CLEAR = Image.new("RGBA", (4, 3), (200, 0, 0, 0))
PALETTE = Image.new("P", (4, 3), 1)
PALETTE.putpalette([0, 0, 0, 200, 0, 0])
FRAMES = [Image.new("RGB", (4, 3), colour) for colour in ("red", "blue")]
ALL = {"save_all": True, "append_images": FRAMES[1:]}


@each(("data", "pixel", "note"), [
    (saved(Image.fromarray(np.full((3, 4), 32_896, np.uint16))), (128,) * 3, "16 bits of gray are read as 8"),
    (saved(Image.fromarray(np.full((3, 4), 255, np.uint16))), (1,) * 3, "16 bits of gray are read as 8"),
    *((saved(CLEAR, kind), (255,) * 3, SEEN) for kind in ("PNG", "WEBP")),
    (saved(CLEAR.convert("LA")), (255,) * 3, SEEN),
    *((saved(PALETTE, kind, transparency=1), (255,) * 3, SEEN) for kind in ("PNG", "GIF")),
    (saved(Image.new("L", (4, 3), 7), transparency=7), (255,) * 3, SEEN),
    (saved(Image.new("RGB", (4, 3), (7, 8, 9)), transparency=(7, 8, 9)), (255,) * 3, SEEN),
    (saved(Image.fromarray(np.full((3, 4), 300, np.uint16)), transparency=300), (255,) * 3, SEEN),
    (saved(Image.new("RGBA", (4, 3), (0, 0, 0, 51))), (204,) * 3, SEEN),
    (saved(Image.new("RGBA", (4, 3), "red")), (255, 0, 0), ""),
    (saved(PALETTE), (200, 0, 0), ""),
    *((saved(Image.new("1", (4, 3), one)), (255 * one,) * 3, "") for one in (0, 1)),
    (saved(Image.new("CMYK", (4, 3), (0, 255, 255, 0)), "JPEG"), (255, 0, 0), ""),
    *((saved(FRAMES[0], kind, **ALL), (255, 0, 0), FIRST_SEEN) for kind in ("GIF", "PNG", "WEBP", "MPO")),
])  # fmt: skip
def test_a_picture_is_what_is_seen(data, pixel, note):
    made = examples.decode_picture(data)
    np.testing.assert_allclose(made.numpy().reshape(-1, 3).astype(int), [pixel] * 12, atol=2)
    assert note in made.note and bool(note) == bool(made.note)
    cut = encode(tiny("vit"), ModelInputs(picture=made))[3]
    assert cut == (made.note or None)  # where it is read


def wav_of(samples: np.ndarray, rate: int, bits: int, kind: int = 1, extensible: bool = False,
           size: int | None = None) -> bytes:  # fmt: skip
    # A WAV written by hand, of samples (frames, channels) from -1 to 1.
    if kind == 3:
        body = samples.astype(f"<f{bits // 8}").tobytes()
    else:
        whole = np.round(samples * (2 ** (bits - 1) - 1)).astype("<i8") + 128 * (bits == 8)
        body = whole.reshape(-1, 1).view("u1")[:, : bits // 8].tobytes()
    channels = samples.shape[1]
    form = struct.pack("<HHIIHH", 0xFFFE if extensible else kind, channels, rate,
                       rate * channels * bits // 8, channels * bits // 8, bits)  # fmt: skip
    if extensible:
        form += struct.pack("<HHIH14s", 22, bits, 3, kind, bytes(14))
    chunks = b"".join(
        (
            b"LIST",
            struct.pack("<I", 3),
            b"odd\0",
            b"fmt ",
            struct.pack("<I", len(form)),
            form,
            b"data",
        )
    )
    return (
        b"RIFF\0\0\0\0WAVE" + chunks + struct.pack("<I", len(body) if size is None else size) + body
    )


@each("channels", [1, 2, 6])
@each("extensible", [False, True])
@each(("kind", "bits"), [(1, 8), (1, 16), (1, 24), (1, 32), (3, 32), (3, 64)])
def test_a_wave_of_any_width_is_the_same_sound(kind, bits, extensible, channels):
    wave = np.linspace(-1, 1, 41)
    shares = np.linspace(0.5, 1, channels)  # of each channel; one alone does not tell their mean
    data = wav_of(wave[:, None] * shares, 16_000, bits, kind, extensible)
    heard = examples.decode_wav(data, 16_000)
    np.testing.assert_allclose(
        heard.numpy(), wave * shares.mean(), atol=0.02 if bits == 8 else 1e-4
    )
    assert not heard.note


@each("rate", [8_000, 11_025, 22_050, 44_100, 44_101, 48_000, 96_000])
@each("tone", [440, 3_000, 7_000, 10_000, 15_000])
def test_a_tone_keeps_its_pitch_or_is_gone(rate, tone):
    if tone >= rate / 2:
        pytest.skip("no file of that rate has this tone")
    seconds = np.arange(rate) / rate
    data = wav_of(0.5 * np.sin(2 * np.pi * tone * seconds)[:, None], rate, 32, 3)
    heard = examples.decode_wav(data, 16_000).numpy()
    assert len(heard) == 16_000
    expected = 0.5 * np.sin(2 * np.pi * tone * np.arange(16_000) / 16_000) * (tone < 8_000)
    np.testing.assert_allclose(heard[800:-800], expected[800:-800], atol=0.01)


def test_a_long_sound_says_what_is_read_of_it():
    data = wav_of(np.zeros((75 * 100, 1)), 100, 16)
    heard = examples.decode_wav(data, 100)
    assert (
        heard.shape == (3_000,) and heard.note == "The file lasts 75.0 s; its first 30 s are read."
    )
    cut = encode(tiny("whisper"), ModelInputs(sound=heard, target="a"))[3]
    assert cut == heard.note  # 3,000 samples are 0.2 s at the model's rate
    streamed = examples.decode_wav(wav_of(np.zeros((9, 1)), 100, 16, size=0xFFFFFFFF), 100)
    assert streamed.shape == (9,)  # as programs write it that do not know the length yet


@each(("data", "why"), [
    (b"ID3\x04" + bytes(40), "The file is MP3, not WAV; save the sound as a 16-bit WAV."),
    (b"fLaC" + bytes(40), "is FLAC, not WAV"), (b"OggS" + bytes(40), "is Ogg, not WAV"),
    (b"\0\0\0 ftypM4A " + bytes(40), "is MP4 or M4A, not WAV"), (b"FORM\0\0\0\0AIFF", "is AIFF, not WAV"),
    (b"", "not a readable WAV"), (b"RIFF\0\0\0\0AVI LIST", "not a readable WAV"), (b"hello", "not a readable WAV"),
    (wav_of(np.zeros((4, 1)), 8_000, 8, 7), "samples of format 7 with 8 bits; save the sound as a 16-bit WAV"),
    (wav_of(np.zeros((4, 1)), 8_000, 16, 3), "format 3 with 16 bits"),
    (wav_of(np.full((4, 1), np.nan), 8_000, 32, 3), "samples that are not numbers"),
    (wav_of(np.full((4, 1), 1e300), 8_000, 64, 3), "samples that are not numbers"),
    (wav_of(np.zeros((4, 1)), 0, 16), "1 channels of 0 samples"), (wav_of(np.zeros((0, 1)), 8_000, 16), "no samples"),
    (wav_of(np.zeros((5, 1)), 96_000, 16), "no samples"),  # less than one at the model's rate
])  # fmt: skip
def test_what_is_no_sound_says_what_it_is(data, why):
    assert why in refusal(lambda: examples.decode_wav(data, 16_000))


# The embedded model is the official one, and a trace holds its own weights, row by row.


@pytest.fixture(scope="module")
def minilm():
    return load_minilm()


def test_what_does_not_fit_into_memory_is_refused(minilm, monkeypatch):
    memory_is(monkeypatch, 200_000)
    pytest.raises(PretrainedError, read, minilm, SENTENCE).match(
        "The attention of all heads on 16 tokens needs about 221 kB of memory, and 200 kB is free. Take a shorter"
    )
    pytest.raises(PretrainedError, load_lab_model, "writer").match(
        "cannot be loaded: The model needs about .* MB"
    )
    pytest.raises(PretrainedError, load.untrained, minilm).match(
        "untrained cannot be made: The model needs about 9. MB"
    )
    memory_is(monkeypatch, 300_000)
    assert len(read(minilm, SENTENCE).trace.maps) == 6


@pytest.mark.parametrize("layer", [0, 3, 5])
def test_a_layers_queries_and_keys_make_its_attention(minilm, layer):
    own = minilm.model.encoder.layer[layer].attention
    qkv = layer_qkv(minilm, SENTENCE, layer)
    assert qkv.q.shape == qkv.k.shape == qkv.v.shape == (1, 12, 16, 32)
    weights = (qkv.q @ qkv.k.mT / 32**0.5).softmax(-1)[0]
    expected = read(minilm, SENTENCE).trace.map(layer)
    np.testing.assert_allclose(weights.numpy(), expected.weights, atol=1e-5)
    assert qkv.tokens == expected.queries and qkv.special == (True, *[False] * 14, True)
    with torch.no_grad():  # and its values: mixed and projected they are what the layer gives on
        merged = own.output((weights @ qkv.v[0]).transpose(0, 1).reshape(1, 16, 384), qkv.x)
    torch.testing.assert_close(own(qkv.x)[0], merged, atol=1e-5, rtol=1e-5)
    for missing in (-1, 6):
        pytest.raises(PretrainedError, layer_qkv, minilm, SENTENCE, missing).match(
            "it has 6 layers"
        )


@each("text", ["a", "🙂", "שלום עולם", "…", "<b>x</b>", "a\u0000b", "𝔘𝔫𝔦"])
def test_any_text_gives_a_reading(minilm, text):
    reading = read(minilm, text)
    assert len(reading.source) == len(reading.trace.map(0).keys) >= 3 or text == "a\u0000b"
    assert reading.source.special[0] and reading.source.special[-1] and reading.cut is None


@each(
    "inputs",
    [ModelInputs("a \ud83d b"), ModelInputs("a", "\udc4d"), ModelInputs("a", target="\ud83d")],
)
def test_half_a_character_is_named(inputs):
    family = "t5" if inputs.target else "bert"
    assert "half of a character; write the whole one" in refusal(lambda: read(tiny(family), inputs))


# Attention that was computed elsewhere: what is read, what is refused in words, and that nothing else can happen.


def even(*shape: int) -> np.ndarray:
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


def lacking(values: object) -> bytes:
    return npz(attention=values)


def zipped(name: str, kind: str, shape: tuple[int, ...]) -> bytes:
    """An NPZ with the header of an array of that shape, and no numbers."""
    header, out = io.BytesIO(), io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": kind, "fortran_order": False, "shape": shape}
    )
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{name}.npy", header.getvalue())
    return out.getvalue()


def declaring(count: int) -> bytes:
    header = {"a": {"dtype": "F32", "shape": [count, count], "data_offsets": [0, 4]}}
    written = json.dumps(header).encode()
    return len(written).to_bytes(8, "little") + written + bytes(4)


@each(("data", "why"), [
    (lacking(np.array([[0.5, np.nan], [0, 1]])), "1 number that is not finite"),
    (lacking(np.array([[-3.0, 1.0], [0, 1]])), "take their softmax first"),
    (lacking(np.array([[7.0, 1.0], [0, 1]])), "0 to 1"),
    (lacking(np.zeros(5)), "has the shape"), (lacking(np.zeros((2, 0, 3, 3))), "has the shape"),
    (lacking(np.zeros((2, 2, 2, 2, 3, 3))), "has the shape"), (npz(), "holds no weights"),
    (lacking(np.array([object()])), "Python objects"), (lacking(np.array(["a"])), "not numbers"),
    (npz(a=even(2, 4, 4), b=even(2, 5, 5)), "different sizes"), (npz(self_0=even(2, 4, 5)), "square"),
    (npz(self_0=even(2, 4, 4), cross_0=even(2, 3, 5)), "do not fit together"),
    (npz(a=even(2, 4, 4), tokens=np.array(["a", "b"])), "names 2 tokens"),
    (lacking(np.zeros((1, 1, 2049))), "at most 2,048"), (b"PK\x03\x04 broken", "not a readable NPZ"), (b"", "neither"),
    (npz(**{"1" * 5_000: even(2, 4, 4)}), "a name of 5,000 letters"),
    (b"\x93NUMPY", "neither"), (b'\x07\0\0\0\0\0\0\0{"a":1}', "neither"), (b"\xff" * 64, "neither"),
    (save_of_numpy({"a": even(2, 4, 4)}, {"tokens": "the cat"}), "JSON list"),
    (save_of_numpy({"a": even(2, 4, 4)})[:-1], "not a readable safetensors file"),
    # Small files that would unpack to gigabytes, by their headers.
    (zipped("attention", "<f4", (10**6, 10**6)), "1,000,000,000,000 numbers"),
    (declaring(10**6), "1,000,000,000,000 numbers"),
    (zipped("tokens", "<U100000000", (2,)), "letters for a token"),
    (zipped("w", "<f16", (39_000_000,)), "numbers; at most"),
])  # fmt: skip
def test_what_is_no_attention_is_refused_in_words(data, why):
    tracemalloc.start()
    try:
        pytest.raises(PretrainedError, read_arrays, data, "a file").match(why)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


# Generation against Hugging Face's own generate, with the same settings, over families with a cache and without.


LAST = (
    "gpt2",
    "gpt_neox",
    "bloom",
    "llama",
    "mistral",
    "qwen3",
    "gemma3",
    "gemma2",
    "gpt_oss",
    "deepseek_v3",
    "bert_decoder",
)
LONG = 9


def theirs(family, started, **more):
    """Hugging Face's generate on the same ids, by a copy of the model that was loaded without us."""
    # What makes ours and theirs the same search: a bound on the end of beams that is exact, and no search of its own.
    options = {
        "max_new_tokens": LONG,
        "early_stopping": "never",
        "num_beams": 1,
        "do_sample": False,
        "return_dict_in_generate": True,
        **more,
    }
    if options["num_beams"] == 1:
        del options["early_stopping"]
    # its own generate cuts the sound into pieces; this is the one that all others have
    if family == "whisper":
        return transformers.GenerationMixin.generate(plain(family), **started.batch, **options)
    # its cache is made for as many layers as the encoder has, which here are fewer
    if family == "t5":
        options["use_cache"] = False
    if started.batch is not None:
        return plain(family).generate(**started.batch, **options)
    ids = torch.tensor([started.read.ids])
    return plain(family).generate(ids, attention_mask=torch.ones_like(ids), **options)


def generated_tokens(family, started, row):
    tokens = row[len(started.prompt.prefix_tokens) :].tolist()
    stops = [place for place, token in enumerate(tokens) if token in end_tokens(tiny(family))]
    return tuple(tokens[: stops[0] + 1] if stops else tokens)


def best_of(family: str, what: ModelInputs | None = None, **settings):
    inputs = given(family, target=None) if what is None else what
    return generate(tiny(family), inputs, SearchSettings(**settings)).hypotheses[0]


def prepared(family: str, **more):
    return prepare_generation(tiny(family), given(family, **{"target": None} | more))


@each("repeats", [0, 2])
@each("family", LAST + PAIRS)
def test_greedy_says_what_hugging_face_says(family, repeats):
    started = prepared(family)
    expected = theirs(family, started, no_repeat_ngram_size=repeats).sequences[0]
    assert best_of(family, no_repeat=repeats, longest=LONG).tokens == generated_tokens(
        family, started, expected
    )


@each(("width", "alpha", "repeats"), [(2, 0.0, 0), (3, 1.0, 2), (5, 2.0, 0)])
@each("family", ["gpt2", "bloom", "mistral", "t5", "marian", "bart"])
def test_beams_are_those_of_hugging_face(family, width, alpha, repeats):
    model, what, started = tiny(family), given(family, target=None), prepared(family)
    ours = generate(
        model,
        what,
        SearchSettings("beam", width=width, length_penalty=alpha, no_repeat=repeats, longest=LONG),
    ).hypotheses
    expected = theirs(
        family,
        started,
        num_beams=width,
        num_return_sequences=width,
        length_penalty=alpha,
        no_repeat_ngram_size=repeats,
        output_scores=True,
    )
    assert [one.tokens for one in ours] == [
        generated_tokens(family, started, row) for row in expected.sequences
    ]
    assert [one.score for one in ours] == pytest.approx(
        expected.sequences_scores.tolist(), rel=1e-4, abs=1e-4
    )


@each("family", ["gpt2", "gemma3", "t5"])
def test_each_sampled_step_has_distribution_of_hugging_face(family):
    # Temperature, top-k, top-p and forbidden repeats together, at every step of what generate drew; to 1e-5.
    model, started = tiny(family), prepared(family)
    filters = {"temperature": 1.4, "top_k": 17, "top_p": 0.8}
    settings = SearchSettings("sampling", no_repeat=2, longest=LONG, **filters)  # type: ignore[arg-type]
    with torch.random.fork_rng():
        torch.manual_seed(3)
        more = {"do_sample": True, "no_repeat_ngram_size": 2, "output_scores": True}
        expected = theirs(family, started, **filters, **more)
    tokens = generated_tokens(family, started, expected.sequences[0])
    path = score_continuation(model, started, tokens)
    assert len(tokens) > 2
    for step, scores in enumerate(expected.scores[: len(tokens)]):
        ours = step_probabilities(model, started, settings, tokens[:step], path.logits[step])
        torch.testing.assert_close(ours, scores[0].softmax(-1), rtol=1e-4, atol=1e-5)


def test_what_a_model_forces_is_obeyed():
    free, started = best_of("marian", longest=6).tokens, prepared("marian")
    options = {
        "bad_words_ids": [[free[0]], [free[1]]],
        "forced_bos_token_id": 7,
        "forced_eos_token_id": 1,
        "begin_suppress_tokens": [9],
        "suppress_tokens": [11],
    }
    other = copy.deepcopy(tiny("marian").model)
    vars(other.generation_config).update(options)
    model, what = replace(tiny("marian"), model=other), given("marian", target=None)
    tokens = generate(model, what, SearchSettings(longest=6)).hypotheses[0].tokens
    expected = theirs("marian", started, max_new_tokens=6, **options).sequences[0]
    assert tokens == generated_tokens("marian", started, expected) and tokens[0] == 7
    assert tokens[-1] == 1 and not {free[0], free[1]} & set(tokens[1:])


@each("family", ["gpt2", "mistral", "gemma3", "bert_decoder", "bloom", "marian", "t5", "whisper"])
def test_what_is_followed_is_what_was_said(family):
    # Every candidate's probability again, by one pass without a cache, and rows that see only what stood before.
    tree = generate(
        tiny(family), given(family, target=None), SearchSettings("beam", width=3, longest=7)
    )
    best = tree.hypotheses[-1]
    path = score_continuation(tiny(family), prepared(family), best.tokens)
    logp = path.logits.log_softmax(-1)[range(len(best)), best.tokens]
    candidates = [tree.candidates[place].logp for place in tree.path(best.leaf)]
    assert logp.tolist() == pytest.approx(candidates, abs=1e-4)
    assert path.trace.kinds == (("cross", "causal") if family in PAIRS else ("causal",))
    for one in path.trace.maps:
        assert len(one.queries) == len(best) and not one.weights[~one.visible].any()
        assert one.weights.sum(-1) == pytest.approx(1, abs=1e-5)


def test_the_attention_of_a_new_token_is_the_models_own_row():
    # Against the rows of the whole text, read by the same weights without us, to 1e-6.
    started, tokens = prepared("llama"), best_of("llama", longest=5).tokens
    path = score_continuation(tiny("llama"), started, tokens)
    ids = torch.tensor([[*started.read.ids, *tokens[:-1]]])
    with torch.no_grad():
        rows = plain("llama")(ids, output_attentions=True).attentions
    for own, one in zip(rows, path.trace.maps, strict=True):
        new = own[0, :, len(started.read) - 1 :]
        torch.testing.assert_close(torch.from_numpy(one.weights), new, atol=1e-6, rtol=0)


def test_the_same_seed_draws_the_same_beside_other_sessions():
    settings = SearchSettings("sampling", samples=6, longest=12)

    def drawn(seed: int) -> list[tuple[int, ...]]:
        hypotheses = generate(tiny("gpt2"), given("gpt2"), replace(settings, seed=seed)).hypotheses
        return [one.tokens for one in hypotheses]

    state, alone = torch.get_rng_state(), drawn(11)
    with ThreadPoolExecutor(4) as sessions:
        first, other, again, third = sessions.map(drawn, (11, 12, 11, 13))
    assert first == again == alone and len({str(one) for one in (first, other, third)}) == 3
    assert torch.equal(state, torch.get_rng_state())


def test_a_search_can_be_left_after_any_step():
    model = tiny("gpt2")
    steps = generate_steps(model, prepared("gpt2"), SearchSettings(longest=12))
    *_, tree = islice(steps, 3)
    assert max(one.step for one in tree.candidates) == 2 and not tree.hypotheses
    assert isinstance(steps, Generator)
    steps.close()
    assert model.lock.acquire(timeout=1)
    model.lock.release()


@each("strategy", ["greedy", "beam"])
def test_an_answer_can_be_begun_for_the_model(strategy):
    # Against generate with decoder_input_ids; the attention is that of the new tokens alone.
    what = given("marian", target="nine small")
    started = prepare_generation(tiny("marian"), what)
    prefix = started.prompt.prefix_tokens
    assert len(prefix) > 2 and started.room == 70 - len(prefix)
    more = {
        "decoder_input_ids": torch.tensor([prefix]),
        "num_beams": 3 if strategy == "beam" else 1,
    }
    expected = theirs("marian", started, **more).sequences[0]
    tokens = best_of("marian", what, strategy=strategy, width=3, longest=LONG).tokens
    assert tokens == generated_tokens("marian", started, expected)
    path, new = score_continuation(tiny("marian"), started, tokens), len(tokens)
    shapes = {one.kind: one.weights.shape[1:] for one in path.trace.maps}
    assert shapes == {"cross": (new, len(started.read)), "causal": (new, new + len(prefix) - 1)}


@each(
    ("words", "do"),
    {
        "does not generate text": lambda: prepared("bert"),
        "fills all 70 tokens": lambda: prepare_generation(
            tiny("gpt2"), given("gpt2", "street " * 200)
        ),
        "temperature": lambda: best_of("gpt2", strategy="sampling", temperature=0),
        "no token": lambda: score_continuation(tiny("gpt2"), prepared("gpt2"), []),
        "gives no embedding": lambda: embedding(tiny("gpt2"), ModelInputs("The animal")),
        "two or more": lambda: most_similar(torch.ones(1, 1)),
        r"write \[MASK\]": lambda: ask(tiny("bert"), Question(ModelInputs(SENTENCE))),
        "no word 99": lambda: mask_word(tiny("bert"), SENTENCE, 99),
        "cannot fill masks": lambda: mask_word(tiny("gpt2"), SENTENCE, 1),
        "take a model whose last layer gives tokens, classes or an embedding": lambda: answer_of(
            tiny("bert_encoder"), {}, SimpleNamespace(logits=torch.zeros(1, 3, 2))
        ),
    }.items(),
)
def test_what_cannot_say_anything_says_why(words, do):
    pytest.raises((PretrainedError, ValueError), do).match(words)


# Answers as a person reads them: the likeliest words, a word masked in its place, and what is said when none is.


@each("family", ["bert", "gpt2", "bert_classifier", "t5"])
def test_the_likeliest_words_of_an_answer(family):
    baseline = ask(tiny(family), Question(asking(family)))
    best = top_candidates(baseline.pretrained, baseline.answer, 3)
    probabilities = answer(baseline.pretrained, baseline.question.inputs).probabilities
    assert [one.id for one in best] == probabilities.topk(3).indices.tolist()
    assert best[0].probability == pytest.approx(baseline.value) and best[0].word == baseline.word
    assert all(one.word.strip() for one in best)


@each("family", ["bert", "roberta"])
def test_a_word_is_masked_where_it_stands(family):
    model, text = tiny(family), "The animal, tired, saw the street."
    masked = mask_word(model, text, 3)
    assert masked == text.replace("tired", model.tokenizer.mask_token)
    place = ask(model, Question(ModelInputs(masked))).answer.position
    assert encode(model, ModelInputs(masked))[1].ids[place] == model.tokenizer.mask_token_id


# Which job each family of models does, and how alike two embeddings are.


@each("model_type", "led mpt roberta esm opt xglm kosmos-2.5 fsmt mpnet lilt bart biogpt".split())
def test_the_longest_text_has_places_for_all_its_tokens(model_type):
    model, long = built(model_type), " ".join(SENTENCE.split() * 60)
    assert len(read(model, ModelInputs(long, target=long)).source) == model.max_tokens


@each(
    ("model_type", "head"),
    [
        ("xlnet", "none"),
        ("bert", "masked"),
        ("roberta", "masked"),
        ("xlm", "masked"),
        ("cpmant", "none"),
        ("gpt2", "next"),
        ("qwen2_vl", "next"),
        ("qwen2_audio", "next"),
        ("t5gemma", "seq2seq"),
    ],
)
def test_what_sees_tokens_that_follow_does_not_predict_them(model_type, head):
    model = built(model_type)
    assert model.head == head
    if head in ("none", "masked"):
        with pytest.raises(PretrainedError, match="sees the tokens that follow"):
            prepare_generation(model, ModelInputs("A dog."))
    if head == "none":
        with pytest.raises(PretrainedError, match="sees the tokens that follow"):
            ask(model, Question(ModelInputs("A dog.")))


def test_every_job_names_models_that_do_it():
    assert len({job.key for job in MODEL_TASKS}) == len(MODEL_TASKS)
    for job in MODEL_TASKS:
        assert job.hub.count("/") == 1
        if job.lab_model:
            model = load_minilm() if job.key == "embed" else load_lab_model(job.lab_model)
            assert task_of(model) == job


def test_likeness_is_the_cosine_of_the_mean_states():
    model = tiny("bert_encoder")
    texts = ["The animal was tired.", "Nine green boats wait.", "The animal was tired."]
    table = cosines([embedding(model, ModelInputs(text)) for text in texts])
    with torch.no_grad():
        batches = (model.tokenizer(text, return_tensors="pt") for text in texts)
        means = [model.model(**batch).last_hidden_state[0].mean(0) for batch in batches]
    states = torch.nn.functional.normalize(torch.stack(means), dim=-1)
    torch.testing.assert_close(table, states @ states.T, atol=1e-5, rtol=1e-5)
    assert most_similar(table) == (0, 2) and most_similar(table, 1)[0] == 1


# What small functions give, to the last number, and each limit at its edge.


ROWS = finetune.Rows(
    (finetune.Pair("a", "1"), finetune.Pair("b", "2")),
    (finetune.Pair("c", "3"), finetune.Pair("d", "4"), finetune.Pair("e", "5")),
)
SQUARE, LOWER = even(2, 4, 4), np.tril(even(1, 3, 3)) / np.tril(even(1, 3, 3)).sum(-1)[..., None]


def lines_of(typed: str = "", **arrays: Any) -> list[Any]:
    # The kinds of an NPZ, and the tokens of each of its lines, in a word each.
    made = read_arrays(npz(**arrays), "a", typed)
    every = (made.source, made.target, made.produced)
    return [" ".join(made.trace.kinds), *(" ".join(one.tokens) for one in every if one)]


@each(("found", "expected"), [
    (lambda: lines_of(a=LOWER), ["causal", "0 1 2"]),
    (lambda: read_arrays(npz(a=LOWER), "a").trace.map(0).mask.tolist(), np.tri(3, dtype=bool)[None].tolist()),
    (lambda: read_arrays(save_of_numpy({"a": even(2, 3, 5, 5)}, {"tokens": json.dumps(["Ġthe", "m", "Ġcat", "Ġ", "!"])}),
                         "a").source.tokens, ("the", "##m", "cat", "␣", "!")),
    (lambda: (lambda line: (line.special, line.word))(
        read_arrays(npz(a=even(2, 4, 4), tokens=np.array("[CLS] the ##m cat".split())), "a").source),
     ((True, False, False, False), (None, 0, 0, 1))),
    (lambda: refusal(lambda: read_arrays(npz(a=even(2, 4, 4)), "a", "one two")),
     "2 tokens are typed and a has 4 columns; type one token for each column."),
    (lambda: read_arrays(save_of_torch({"a": torch.tensor([[[0.25, 0.75], [0.5, 0.5]]], dtype=torch.bfloat16)}), "a")
     .trace.map(0).weights.tolist(), [[[0.25, 0.75], [0.5, 0.5]]]),
    *((lambda factor=factor: bool(read_arrays(npz(a=SQUARE * factor), "a").cut), cut)
      for factor, cut in ((0.98, True), (0.995, False), (1.005, False), (1.02, True))),
    (lambda: read_arrays(npz(a=even(1, 1, 2048)), "a").trace.map(0).weights.shape, (1, 1, 2048)),
    (lambda: lines_of(a=[[[1.0]]]), ["self", "0"]),
    (lambda: lines_of(a=[[[1.0, 0.0], [0.5, 0.5]]]), ["causal", "0 1"]),
    (lambda: lines_of(a=[[[0.5, 0.5, 0], [0.5, 0, 0.5], [0.5, 0, 0.5]]]), ["self", "0 1 2"]),
    (lambda: lines_of(self_0=SQUARE, causal_0=LOWER), ["self causal", "0 1 2 3", "0 1 2", "0 1 2"]),
    (lambda: lines_of(self_0=SQUARE, causal_0=SQUARE), ["self causal"] + ["0 1 2 3"] * 3),
    (lambda: lines_of(self_0=SQUARE, cross_0=even(2, 3, 4), causal_0=LOWER),
     ["self causal cross", "0 1 2 3", "0 1 2", "0 1 2"]),
    (lambda: lines_of("a b c d e", cross_0=even(2, 4, 5), cross_0_queries=np.array("w x y z".split())),
     ["cross", "a b c d e", "w x y z", "w x y z"]),
    (lambda: lines_of(cross_0=even(2, 4, 5), tokens=np.array("a b c d e".split())),
     ["cross", "a b c d e", "0 1 2 3", "0 1 2 3"]),
    (lambda: lines_of(cross_0=even(2, 4, 5), tokens=np.array("w x y z".split())),
     ["cross", "0 1 2 3 4", "w x y z", "w x y z"]),
    (lambda: lines_of(causal_0=LOWER, cross_0=even(2, 3, 4), causal_0_queries=np.array("a b c".split()),
                      cross_0_queries=np.array("u v w".split()), cross_0_keys=np.array("k l m n".split())),
     ["causal cross", "k l m n", "a b c", "u v w"]),
    (lambda: lines_of(a=even(1, 1, 1, 2, 3, 3)), ["self", "0 1 2"]),
    (lambda: lines_of(a=even(1, 7, 7), tokens=np.array("[CLS] the Ġcat s . [SEP] x".split())),
     ["self", "[CLS] the cat ##s . [SEP] x"]),
    (lambda: lines_of(a=even(1, 3, 3), tokens=np.array("the Ġ ▁cat".split())), ["self", "the ␣ cat"]),
    (lambda: read_arrays(npz(a=np.array([[[1.0005, -0.00005], [0, 1]]])), "a").trace.map(0).weights.tolist(),
     [[[1, 0], [0, 1]]]),
    *((lambda share=share: read_arrays(npz(a=np.full((1, 1), share)), "a").cut, cut) for share, cut in (
        (0.99, "The rows of these weights sum to between 0.99 and 0.99, not to 1; they are drawn unchanged."),
        (0.991, None), (0, None))),
    (lambda: read_arrays(npz(a=np.array([[0, 0.6, 0.6], [0, 0, 0], [0.4, 0.6, 0]])), "a").cut,
     "The rows of these weights sum to between 1.00 and 1.20, not to 1; they are drawn unchanged."),
    # Lines of tokens. The table of T5 and of Qwen is larger than their vocabulary.
    (lambda: (token_names(tiny("gpt2"), [999]), display_names(tiny("gpt2"), Answer("next"), [999]),
              text_line(tiny("gpt2").tokenizer, [5, 999]).tokens[1]), ({999: "[999]"}, ("[999]",), "[999]")),
    (lambda: (lambda ids: ("".join(token_names(tiny("gpt2"), ids).values()), decode_text(tiny("gpt2"), [*ids, 0])))(
        tiny("gpt2").tokenizer(" the street.")["input_ids"]), ("thestreet.", "the street.")),
    (lambda: SearchSettings(temperature=0.5, top_k=3, top_p=0.9).sampling, Sampling(0.5, 3, 0.9)),
    (lambda: base.words_of(("Ġa", "b", "<s>", "c", "Ġd", "e"), tuple(map(bool, (0, 0, 1, 0, 0, 0)))), (0, 0, None, 1, 2, 2)),
    (lambda: base.words_of(("<s>", "a", "##b", "c", "##d"), tuple(map(bool, (1, 0, 0, 0, 0)))), (None, 0, 0, 1, 1)),
    (lambda: base.words_of(("##a", "<s>", "##b", "c"), tuple(map(bool, (0, 1, 0, 0)))), (0, None, 1, 2)),
    (lambda: [base.readable(tiny("gpt2").tokenizer, *one)
              for one in (("Ġ", True), ("Ġcat", True), ("cat", False), ("##", False), (".", False), ("Ċ", True))],
     ["␣", "cat", "##cat", "##", ".", "↵"]),
    (lambda: base.text_line(tiny("gpt2").tokenizer, [tiny("gpt2").tokenizer.eos_token_id]).unknown, (False,)),
    (lambda: encode(tiny("bert"), ModelInputs("tired animal", second="☃ boat"))[1],
     base.Line((2, 110, 90, 91, 3, 1, 94, 3), ("[CLS]", "tired", "ani", "##mal", "[SEP]", "[UNK]", "boat", "[SEP]"),
               (True, False, False, False, True, True, False, True), (None, 0, 1, 1, None, None, 2, None),
               (0, 0, 0, 0, 0, 1, 1, 0), unknown=(False,) * 5 + (True, False, False))),
    (lambda: encode(tiny("gpt2"), ModelInputs(" the<|end|> the"))[1].word, (0, None, 1)),
    (lambda: text_line(tiny("bert").tokenizer, [2, 94, 3], SimpleNamespace(
        is_fast=True, sequence_ids=lambda row: [None, 1, None],
        encodings=[SimpleNamespace(offsets=[(0, 0), (0, 4), (0, 0)])]), ("", "boat")).word, (None, 0, None)),
    *((lambda at=at: base.marks_words(type("Fake", (), {
        "__len__": lambda self: 3000, "convert_ids_to_tokens": lambda self, ids: [
        "Ġ" if one == at else "a" for one in ids]})()), at < 2048) for at in (399, 2047, 2048)),
    (lambda: text_line(type("Fake", (SimpleNamespace,), {"__len__": lambda self: 2, "get_added_vocab": dict})(
        all_special_tokens=["</s>"], unk_token="</s>", eos_token="</s>", convert_tokens_to_string="".join,
        convert_ids_to_tokens=lambda ids: ["</s>", "a"]), [0, 1]).unknown, (False, False)),
    (lambda: base.Line((0,) * 5, ("",) * 5, (True, True, True, False, False), (None,) * 5, (0,) * 5,
                       unknown=(False, False, True, False, False)).count, "5 tokens (2 special, 1 unknown)"),
    (lambda: base.Line((0,), ("a",), (False,), (0,), (0,)).count, "1 token"),
    (lambda: base.sound_line(4, 3.0),
     base.Line((0,) * 4, ("0.00 s", "0.75 s", "1.50 s", "2.25 s"), (False,) * 4, (0, 1, 2, 3), (0,) * 4)),
    (lambda: sink_line(base.Line((5, 6), ("a", "b"), (True, False), (None, 0), (0, 1))),
     base.Line((5, 6, -1), ("a", "b", "sink"), (True, False, True), (None, 0, None), (0, 1, 1))),
    (lambda: [base.format_count(one) for one in (10**18, 10**18 + 1, -(10**18))],
     ["1,000,000,000,000,000,000", "more than 10^18", "-1,000,000,000,000,000,000"]),
    # Pictures and sounds.
    (lambda: base.picture_line(vision((2, 3), {
        "embeddings.distillation_token": (1, 1, 8), "embeddings.cls_token": (1, 2, 8), "embed.register_tokens": (1, 3, 8),
        "embeddings.detection_tokens": (1, 2, 8), "head.cls_token": (1, 9, 8), "cls_token": (1, 9, 8),
        "embeddings.class_embedding": (1, 1, 1, 8)}), (5, 6)),
     base.Line((0,) * 12, ("[class 0]", "[class 1]", "[distilled]", "[register 0]", "[register 1]", "[register 2]",
                           "0,0", "0,1", "1,0", "1,1", "[detection 0]", "[detection 1]"),
               (True,) * 6 + (False,) * 4 + (True,) * 2, (None,) * 6 + (0, 1, 2, 3) + (None,) * 2, (0,) * 12, (2, 2))),
    (lambda: [base.picture_line(vision(patch, {"embeddings.class_embedding": shape}), (3, 4)).tokens[:2]
              for patch, shape in ((1, (8,)), ([3, 4], (1, 8)))], [("[class]", "0,0")] * 2),
    *((lambda patch=patch: refusal(lambda: picture_line(vision(patch, {}), (6, 6)))[:41],
       "A vit has no single patch size in its con") for patch in ([1, 2, 3], 0, "2", (2, 0), 2.0)),
    (lambda: [float(examples.picture(f"Digit {one}").numpy().sum()) for one in (3, 4)], [19.5625, 16.1875]),
    (lambda: (examples.pictures(1)[0], examples.pictures(1)[-3:], examples.pictures(3)[:3]),
     ("Digit 3", ("Digit 0", "Digit 1", "Digit 2"), ("Flower", "Temple", "Digit 0"))),
    (lambda: (examples.picture("Digit 4").shape, examples.picture("Temple").shape), ((8, 8), (342, 512, 3))),
    (lambda: [examples.sound(name, 8000).shape for name in examples.SOUNDS], [(24_000,)] * 2),
    (lambda: [*map(sampling_rate, (tiny("whisper"), replace(
        tiny("whisper"), tokenizer=transformers.Wav2Vec2FeatureExtractor(sampling_rate=8_000))))], [16_000, 8_000]),
    (lambda: encode(tiny("whisper"), ModelInputs(sound=Array.of(np.zeros(40_000, np.float32)), target="a"))[1::2],
     (base.sound_line(50, 1), "The sound lasts 2.5 s; the first 1 s are read.")),
    *((lambda name=name: examples.sound(name, 8000).numpy()[[3, 1001, 6000, 8803, 17_005]], pytest.approx(heard, abs=1e-4))
      for name, heard in zip(examples.SOUNDS, (np.array([0.1362, 0.2142, 0.2121, -0.2846, -0.2222]),
                                               np.array([0.2582, 0.1016, 0, 0.2582, 0.2963])), strict=True)),
    (lambda: wav(np.array([0, 16384, -16384], "<i2"), 1, rate=2)[::2], pytest.approx([0.0, 0.5, -0.5], abs=1e-6)),
    (lambda: wav(np.array([8192, 16384, 0, 16384], "<i2"), 2, rate=1), [0.375, 0.25]),
    (lambda: wav(np.array([16384], "<i2"), 1, rate=1), [0.5]),
    (lambda: len(wav(np.zeros(31, "<i2"), 1, rate=1)), 30),
    (lambda: wav(np.array([0, 128, 192], "u1"), 1, rate=1, width=1), [-1, 0, 0.5]),
    (lambda: load.ImageProcessor((2, 3), (0.5,), (0.25,)).prepare(
        np.array([[0, 51, 255], [102, 204, 153]], np.uint8), 1).numpy(),
     pytest.approx(np.array([[[[-2, -1.2, 2], [-0.4, 1.2, 0.4]]]]), abs=1e-6)),
    (lambda: load.ImageProcessor((1, 2), (0.0,) * 3, (1.0,) * 3).prepare(
        np.array([[[1.0, 0, 0.2], [0, 1, 0.6]]]), 3)[0, :, 0].numpy(),
     pytest.approx(np.array([[1, 0], [0, 1], [0.2, 0.6]]), abs=1e-6)),
    # Answers.
    *((lambda head=head, reads=reads: generation.task_of(replace(tiny("gpt2"), name="m", head=head, reads=reads)).name, name)
      for head, reads, name in (
        ("next", "text", "Continue a text"), ("next", "sound", "Transcribe speech"), ("masked", "text", "Fill a mask"),
        ("seq2seq", "pair", "Translate"), ("seq2seq", "sound", "Transcribe speech"),
        ("classify", "sound", "Classify a sound"), ("label", "text", "Label tokens"), ("span", "text", "Answer a question"),
        ("classify", "text", "Classify a text"), ("classify", "picture", "Classify a picture"),
        ("none", "text", "Compare sentences"), ("none", "picture", "Compare sentences"))),
    *((lambda head=head: refusal(lambda: generation.task_of(replace(tiny("gpt2"), name="m", head=head, reads="sound"))),
       "m gives no answer to a sound that is shown here; choose another model, such as numbers, induction or digits.")
      for head in ("none", "label")),
    *((lambda more=more: answered("gpt2", torch.arange(30.0).reshape(2, 3, 5), row=1, **more), expected)
      for more, expected in (({}, ("next", 2, [25, 26, 27, 28, 29])), ({"position": 1}, ("next", 1, [20, 21, 22, 23, 24])))),
    (lambda: answered("bert", torch.arange(12.0).reshape(1, 3, 4), position=1), ("mask", 1, [4, 5, 6, 7])),
    (lambda: answered("bert_classifier", torch.arange(6.0).reshape(2, 3), row=1), ("class", 0, [3, 4, 5])),
    (lambda: generation.top_candidates(tiny("bert_encoder"), Answer("embedding", vector=torch.ones(3))), ()),
    (lambda: (lambda one: (one.trace.shape, "head h + 2" in one.note))(read(tiny("diffllama"), SENTENCE)), ((2, 4), True)),
    (lambda: refusal(lambda: mask_word(tiny("bert_classifier"), "the street", 0)),
     "bert_classifier cannot fill masks; take a model of masked words, such as BERT."),
    *((lambda text=text: generation.output_id(tiny("mistral"), Answer("next", torch.zeros(99)), text), one)
      for text, one in (("##a", 21), ("a", 47))),
    (lambda: [replace(tiny("gpt2"), reads=one).reads_text for one in ("text", "pair", "picture", "sound")],  # type: ignore
     [True, True, False, False]),
    *((lambda batch=batch: meant({one: torch.tensor([[1, 1, 1], [1, 1, 0]]) for one in batch}), expected)
      for batch, expected in ((["attention_mask"], [1, 0]), ([], [0.8, 0.6]),
                              (["attention_mask", "decoder_input_ids"], [0.8, 0.6]))),
    (lambda: generation.mask_position(tiny("bert"), torch.tensor([[2, 4, 9, 4]])), 1),
    (lambda: generation.maskable_words(encode(tiny("bert"), ModelInputs("tired animal", second="late boat"))[1]),
     {0: "tired", 1: "animal"}),
    (lambda: generation.most_similar(torch.tensor([[1, -0.5], [-0.5, 1]])), (0, 1)),
    (lambda: generation.most_similar(torch.tensor([[1, 0.9, 0.1], [0.9, 1, 0.2], [0.1, 0.2, 1]]), 2), (2, 1)),
    *((lambda text=text, size=size: generation.output_id(tiny("bert"), Answer("mask", torch.zeros(size)), text), one)
      for text, size, one in (("the", 110, 109), ("The", 110, 109), (" a ", 99, 21), ("##t", 99, 82), ("#0", 99, 0),
                              ("x #98", 99, 98))),
    *((lambda text=text: generation.output_id(tiny("gpt2"), generation.Answer("next", torch.zeros(328)), text), one)
      for text, one in (("the", 271), ("##t", 85), (".", 15), ("##.", 15))),
    *((lambda names=names, text=text: generation.output_id(*classes(names), text), one) for names, text, one in (
        ("A a b", "A", 0), ("A a b", "B", 2), ("A a b", "a #1", 1))),
    (lambda: [generation.output_name(*classes("A a b"), one) for one in range(3)], ["A", "a #1", "b"]),
    (lambda: [(one.id, one.word) for one in generation.top_candidates(*classes("A a b"), 2)], [(2, "b"), (1, "a")]),
    (lambda: [one.id for one in generation.top_candidates(*classes("A a b"), 9)], [2, 1, 0]),
    *((lambda names=names: refusal(lambda: generation.output_id(*classes(names), "z")), sentence) for names, sentence in (
        ("a b c d e f g h", "m has no class “z”. Its 8 are a, b, c, d, e, f, g, h; a number such as #0 also names one."),
        ("a b c d e f g h i", "m has no class “z”. Its 9 are a, b, c, d, e, f, g, h, …; a number such as #0 also names "
         "one."))),
    (lambda: refusal(lambda: generation.output_id(*classes("a a"), "#2")), "m has no class #2; the numbers are 0 to 1."),
    *((lambda text=text, size=size: refusal(
        lambda: generation.output_id(tiny("bert"), generation.Answer("mask", torch.zeros(size)), text)), sentence)
      for text, size, sentence in (
        ("#109", 109, "bert has no token #109; the numbers are 0 to 108."),
        ("the", 109, "“the” is no token of bert: its tokenizer cuts it into 1 (the). Type one token, or its number, such "
         "as #17."),
        ("oooooooo", 99, "“oooooooo” is no token of bert: its tokenizer cuts it into 8 (o, ##o, ##o, ##o, ##o, ##o, ##o, "
         "##o). Type one token, or its number, such as #17."),
        ("ooooooooo", 99, "“ooooooooo” is no token of bert: its tokenizer cuts it into 9 (o, ##o, ##o, ##o, ##o, ##o, ##o, "
         "##o, …). Type one token, or its number, such as #17."),
        ("☃", 99, "“☃” is not in the vocabulary of bert. Type another token, or its number, such as #17."))),
    # What a model is given, and where it begins and ends.
    (lambda: [sorted(end_tokens(settings(eos_token_id=one))) for one in (None, 3, [4, 3])], [[], [3], [3, 4]]),
    (lambda: refusal(lambda: end_tokens(settings(eos_token_id=[3, "x"]))), "m has eos_token_id = [3, 'x'] in its "
     "generation settings; expected a number or a list of numbers."),
    (lambda: [start_token(settings(decoder_start_token_id=one, bos_token_id=5)) for one in (0, -1, True, None, 3)],
     [0, 5, 5, 5, 3]),
    (lambda: [read_ids(tiny(name), [7, 8]).source.ids for name in ("bert", "gpt2", "t5")],
     [(2, 7, 8, 3), (7, 8), (7, 8, 1)]),
    (lambda: (len(read_ids(tiny("bert"), [7] * 68).source), refusal(lambda: read_ids(tiny("bert"), [7] * 69))),
     (70, "bert reads at most 70 tokens; these are 71.")),
    *((lambda text=text: encode(tiny("bert"), ModelInputs(text))[3], cut) for text, cut in (
        ("tired " * 68, None),
        ("tired " * 69, "The text has 71 tokens; bert reads at most 70 tokens, so the rest is left out."),
        ("a" * 20_000, None), ("a" * 20_001, "The text has 20,001 characters; the first 20,000 are read."),
        ("a b " * 5_001, "The text has 20,004 characters; bert reads at most 70 tokens, so the rest is left out."))),
    (lambda: encode(tiny("bert"), ModelInputs("a", second="a" * 20_001))[3],
     "The text has 20,001 characters; the first 20,000 are read."),
    (lambda: [load.positions(tiny(name).model) for name in ("whisper", "bert", "roberta")], [70, 70, 68]),
    (lambda: encode(tiny("bart"), given("bart", target=None))[2].ids[1:5] == best_of("bart", longest=4).tokens, True),
    (lambda: len(best_of("gpt2", ModelInputs(" the" * 60), longest=500)), 10),
    (lambda: prepared("bert_decoder").read.tokens[-1], "."),
    (lambda: encode(tiny("bert"), ModelInputs("a", second=" "))[1].ids, (2, 21, 3)),
    (lambda: encode(tiny("bart"), ModelInputs(" ☃" * 99, target="☃" * 99))[3],
     "The text has 398 tokens; bart reads at most 70 tokens, so the rest is left out. The target has 298 tokens; at most 69 "
     "are read, so the rest is left out."),
    *((lambda count=count: encode(tiny("marian"), ModelInputs("a", target=" a" * count))[3], cut) for count, cut in (
        (69, None), (70, "The target has 70 tokens; at most 69 are read, so the rest is left out."))),
    (lambda: encode(tiny("whisper"), ModelInputs(sound=Array.of(np.zeros(16_000, np.float32)), target="a"))[3], None),
    *((lambda text=text: generation.prepare_generation(tiny("gpt2"), ModelInputs(text)).read.ids, ids)
      for text, ids in (("<|end|>", (0,)), (" the<|end|>", (271,)))),
    (lambda: generation.prepare_generation(tiny("gpt2"), ModelInputs(" the" * 69)).room, 1),
    (lambda: refusal(lambda: generation.prepare_generation(tiny("gpt2"), ModelInputs(" the" * 70))),
     "The text fills all 70 tokens "
     "that gpt2 reads, so it cannot continue; shorten it."),
    *((lambda case=case: refused(*case), sentence) for case, sentence in (
    (("text", lambda pixel_values: 0, "x"),
     "m does not read a text: it takes pictures (pixel_values), which this page does not have. Take a model that reads a "
     "text, such as BERT or GPT-2."),
    (("pair", lambda input_ids, bbox, odd, even, *, input_values, **more: 0, "x"),
     "m does not read a text and its target alone: it also needs the position of each word on a page (bbox), odd, even, "
     "sound (input_values), which this page does not have. Take a model that reads a text and its target, such as T5 or "
     "BART."),
    (("picture", lambda input_ids=0, pixel_values=0, inputs_embeds=0, actions=0: 0, "actions is None"),
     "m cannot read one picture alone: it also reads pictures (pixel_values), actions of a robot (actions), which this "
     "page does not have. Take a model that reads one picture, such as ViT or DINOv2."),
    (("text", lambda input_ids=0, inputs_embeds=0: 0, "specify `inputs_embeds`"),
     "m cannot read a text alone: it also reads the states of another model (inputs_embeds), which this page does not "
     "have. Take a model that reads a text, such as BERT or GPT-2."),
    (("text", lambda input_ids=0, grid_thw=0: 0, "x"),
     "m cannot read a text alone: it also reads the number of patches of each picture (grid_thw), which this page does "
     "not have. Take a model that reads a text, such as BERT or GPT-2."),
    (("text", lambda input_ids=0, pixel_values=0: 0, "odd shapes"),
     "m does not take a text: it fails with 'odd shapes'. Take a model that reads a text, such as BERT or GPT-2."),
    (("sound", lambda input_ids=0, inputs_embeds=0: 0, "missing"),
     "m does not take a sound: it fails with 'missing'. Take a model that reads a sound, such as Whisper."),
    (("text", lambda input_ids: 0, "x", 4),
     "m does not read a text: it takes the codes of 4 codebooks at each step (input_ids), which this page does not have. "
     "Take a model that reads a text, such as BERT or GPT-2."),
    (("text", lambda input_ids: 0, "x", 1),
     "m does not take a text: it fails with 'x'. Take a model that reads a text, such as BERT or GPT-2."))),
    (lambda: seam.bool_mask(torch.tensor([0, 0.4, 0.6, 1]) * torch.finfo(torch.float32).min).tolist(),
     [True, True, False, False]),
    (lambda: [seam.is_lower_triangular(torch.tensor(cells)) for cells in (
        [[1]], [[1, 0], [1, 1]], [[1, 1], [1, 1]], [[1, 0, 0], [1, 1, 0]], [[1, 0, 0], [1, 1, 1], [1, 1, 1]])],
     [False, True, False, False, False]),
    (lambda: [seam.kind_of("layer", SimpleNamespace(**more), torch.ones(1, 1, 2, 2).tril(), mask) for more, mask in (
        ({}, None), ({"is_causal": False}, None), ({"is_causal": True}, None), ({}, torch.zeros(1, 1, 2, 2)),
        ({}, torch.zeros(2, 2)), ({"is_causal": False}, torch.ones(1, 1, 2, 2).tril().bool()))],
     ["causal", "self", "causal", "self", "causal", "causal"]),
    (lambda: bool(np.allclose(first_logits(uniform=frozenset({("causal", 0, None), ("causal", 1, 2)})), first_logits(),
                              rtol=0, atol=1e-5)), True),
    (lambda: [item.weights[0].tolist() for item in with_sink(AttentionTrace((AttentionMap(
        "self", 0, np.array([[[0.25, 0.5], [1.0625, 0]]]), ("a", "b"), ("a", "b")),), "m")).maps],
     [[[0.25, 0.5, 0.25], [1.0625, 0, 0]]]),
    # Rows that are learned, and what is recorded of them.
    (lambda: running.recorded_inputs(finetune.FineTuneConfig("classify", "", logged_example=" x "), ROWS),
     (ModelInputs("x"), ModelInputs("c"))),
    (lambda: running.recorded_inputs(finetune.FineTuneConfig("pairs", "", logged_example="b"), ROWS),
     (ModelInputs("b", target="2"), ModelInputs("c", target="3"), ModelInputs("d", target="4"))),
    (lambda: running.recorded_inputs(finetune.FineTuneConfig("pairs", "", logged_example="d"), ROWS),
     (ModelInputs("d", target="4"), ModelInputs("c", target="3"))),
    (lambda: refusal(lambda: running.recorded_inputs(finetune.FineTuneConfig("pairs", "", logged_example="z"), ROWS)),
     "'z' is not one of the sources, so its target is not known; choose one of them."),
    (lambda: running.trace_of({}, 0, {"kinds": {"self": [{"tokens": ["a"]}] * 2}}, "m").maps, ()),
    (lambda: refusal(lambda: finetune.check_words(tiny("bert").tokenizer, "m", unknown("tired ☃ ☃"))),
     "m does not know 67% of the words in these rows. Labels need a model that reads text, such as BERT, RoBERTa, "
     "ModernBERT, GPT-2 or Llama."),
    (lambda: finetune.check_words(tiny("bert").tokenizer, "m", replace(unknown("☃"), labels=())), None),
    (lambda: finetune.parse("classify", "\n".join(f"{i},{'abb'[i % 3]}" for i in range(12))).majority, ("b", 2 / 3)),
    (lambda: [len(part) for part in (lambda rows: (rows.learned, rows.held_out))(
        finetune.parse("pairs", "\n".join(f"{i},x" for i in range(11))))], [9, 2]),
    (lambda: conversion.max_tokens((task := make_task(TaskConfig.of("copy", length=7))).shape, task), 16),
    (lambda: any(one.requires_grad for one in conversion.load_lab_decoder("trained")[0].parameters()), False),
    (lambda: conversion.encode(
        make_task(TaskConfig.of("repeats", length=48, passage=8, gap=4)), "zzz the q zzz q the", 5)[::2],
     ("<bos> zzz the q zzz".split(), ("zzz", "q"))),
    # Names, sizes and configs.
    *((lambda error=error: base.first_line(error), words) for error, words in (
        (ValueError("one\ntwo"), "one"), (ValueError("x" * 160), "x" * 160), (ValueError("x" * 161), "x" * 159 + "…"),
        (ValueError(), "ValueError()"),
        (ValueError("Expected one of:\n(1) a,\n(2) b."), "Expected one of: (1) a, (2) b."))),
    (lambda: refusal(lambda: verify(load.LAB_MODELS / "names" / "README.md", "53aa51"))[-76:],
     "the file is not the official model, so it is not loaded. Reinstall the package."[-76:]),
    *((lambda text=text: refusal(lambda: read(tiny("bert"), text)),
       "There is nothing to read yet: write a sentence of one word or more.") for text in ("", "   ", "\n\t")),
    (lambda: [hub.format_bytes(one) for one in (999_999, 10**6, 10**7, 10**9 - 1, 10**9, 10**10)],
     ["1,000 kB", "1.0 MB", "10 MB", "1,000 MB", "1.0 GB", "10 GB"]),
    (lambda: hub.parse("hf.co/a/b/tree/x/blob/y"), ("a/b", "x/blob/y")),
    *((lambda text=text: hub.parse(text), named) for text, named in (
        (" gpt2 ", ("gpt2", "main")), ("gpt2@", ("gpt2", "main")), ("google/vit@refs/pr/1", ("google/vit", "refs/pr/1")),
        ("https://huggingface.co/google/vit/tree/refs%2Fpr%2F1", ("google/vit", "refs/pr/1")),
        ("huggingface.co/google/vit/", ("google/vit", "main")))),
    *((lambda text=text: refusal(lambda: hub.parse(text)).partition("; write ")[2], "a branch, a tag or a commit."
       if "@" in text else "owner/name, such as distilbert/distilgpt2, or name@revision.")
      for text in ("  ", "two words", "a/b/c", "../up", "a/..", "/root", "a//b", "é/é", "Oé", "a\0b", "gpt2@../x")),
    *((lambda name=name: refusal(lambda: hub.parse(name)), sentence) for name, sentence in (
        (" a--b ", "“a--b” is not the name of a model on the hub; write owner/name, such as distilbert/distilgpt2, or "
         "name@revision."),
        ("", "No model is named yet; write owner/name, such as distilbert/distilgpt2, or name@revision."),
        ("a/b@x y", "“x y” is not the name of a revision; write a branch, a tag or a commit."))),
    (lambda: [*load.counts({
        "num_heads": 3, "layers": [4, {"depths": (5, True, "6")}], "id2label": {"layers": 7}, "size": 8})],
     [("num_heads", 3, 0), ("layers", 4, 0), ("depths", 5, 0)]),
    *((lambda names=names: load.weight_files(names.split(), "m"), files) for names, files in (
        ("config.json model.safetensors model-00001-of-00002.safetensors", ("model.safetensors",)),
        ("model-00002-of-00002.safetensors config.json model-00001-of-00002.safetensors a.bin",
         ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")))),
    *((lambda names=names: refusal(lambda: load.weight_files(names.split(), "m")), sentence) for names, sentence in (
        ("a.bin", "m has no config.json, so it is not a model of the library transformers. Take a model whose page says "
         "Transformers."),
        ("config.json", "m has no weights; this page opens only model.safetensors. Take a model that has it."),
        ("config.json b.onnx a.gguf", "m has only a.gguf; this page opens only model.safetensors. Take a model that has "
         "it."))),
])  # fmt: skip
def test_a_value_is_exact(found, expected):
    assert found() == expected


LABELS = np.array(["a", "b", "c", "nine char"])
LABELLED, FIRST = npz(a=SQUARE, tokens=LABELS), npz(tokens=LABELS, a=SQUARE)
WIDE, TWO, LAB = (
    npz(a=SQUARE.astype(np.longdouble), b=SQUARE.astype(np.longdouble)),
    save_of_numpy({"a": SQUARE, "b": SQUARE}),
    load.LAB_MODELS / "induction",
)


NINE = "\n".join(f"text {at}.,label {at % 3}" for at in range(9)).replace("label ", "l")
FORTY = "\n".join(f"{at} {at}\t{'ab'[at % 2]}" for at in range(40))
CONLLU = "1\ta\t_\tDET\t_\t_\t2\tdet\t_\t_\n2\tdog\t_\tNOUN\t_\t_\t0\troot\t_\t_\n"
LLAMA = json.dumps(
    {"model_type": "llama", "num_hidden_layers": 34, "hidden_size": 8, "num_attention_heads": 2}
)


@each(("where", "most", "do"), [
    ("pretrained.model_inputs.MAX_BYTES", len(LABELLED), lambda: read_arrays(LABELLED, "a")),
    ("pretrained.model_inputs.MAX_NUMBERS", 2 * 4 * 4 + 4 * 5, lambda: read_arrays(LABELLED, "a")),  # 2 letters: 1 number
    ("pretrained.model_inputs.MAX_NUMBERS", 2 * 4 * 4 + 4 * 5, lambda: read_arrays(FIRST, "a")),
    ("pretrained.model_inputs.MAX_NUMBERS", 2 * 2 * 4 * 4 * 2, lambda: read_arrays(WIDE, "a")),
    ("pretrained.model_inputs.MAX_NUMBERS", 2 * 2 * 4 * 4, lambda: read_arrays(TWO, "a")),
    ("pretrained.model_inputs.MAX_TOKENS", 4, lambda: read_arrays(LABELLED, "a")),
    ("pretrained.model_inputs.MAX_TOKENS", 5,
     lambda: read_arrays(npz(a=SQUARE, x_tokens=np.array("a b c d e".split())), "a")),
    ("pretrained.model_inputs.MAX_HEADER", int.from_bytes(TWO[:8], "little"), lambda: read_arrays(TWO, "a")),
    ("pretrained.model_inputs.MAX_LETTERS", 9, lambda: read_arrays(LABELLED, "a")),
    ("pretrained.base.MAX_PATCHES", 4, lambda: base.picture_line(vision((2, 3), {}), (5, 6))),
    ("pretrained.model_inputs.MAX_PIXELS", 35, lambda: examples.decode_picture(
        [out := io.BytesIO(), Image.new("RGB", (7, 5)).save(out, "PNG")] and out.getvalue())),  # type: ignore
    ("pretrained.model_inputs.MAX_DECODED", 4 * 7 * 5, lambda: examples.decode_picture(
        [out := io.BytesIO(), Image.new("RGB", (7, 5)).save(out, "PNG")] and out.getvalue())),  # type: ignore
    ("pretrained.model_inputs.MAX_RATE", 1, lambda: wav(np.zeros(4, "<i2"), 2, 1)),
    ("pretrained.model_inputs.MAX_CHANNELS", 2, lambda: wav(np.zeros(4, "<i2"), 2, 1)),
    ("pretrained.load.MAX_SIZE", 262_208, lambda: load.refuse_values({"vocab_size": 262_208}, "m")),
    ("pretrained.load.MAX_COUNT", 34, lambda: load.refuse_values({"num_hidden_layers": 34}, "m")),
    ("pretrained.load.MAX_CONFIG", (LAB / "config.json").stat().st_size, lambda: load.read_config(LAB / "config.json", "m")),
    ("pretrained.load.MAX_AUXILIARY", max(file.stat().st_size for file in LAB.glob("*.json")),
     lambda: load.folder_weights(LAB, "m")),
    ("pretrained.load.SPARE", 16 - 107_584, lambda: load.load_lab_model("induction")),  # buffers of 16
    ("pretrained.load.MAX_KEY", max(map(len, load_file(LAB / "model.safetensors"))), lambda: load.load_folder(LAB, "m")),
    ("pretrained.finetune.MAX_UNKNOWN", 0.5, lambda: finetune.check_words(tiny("bert").tokenizer, "m", unknown("tired ☃"))),
    ("pretrained.finetune.MAX_ROWS", 9, lambda: finetune.parse.__wrapped__("classify", NINE)),
    ("pretrained.finetune.MIN_ROWS", 9, lambda: finetune.parse.__wrapped__("classify", NINE)),
    ("pretrained.finetune.LONGEST", 7, lambda: finetune.parse.__wrapped__("classify", NINE)),
    ("pretrained.finetune.MAX_LABELS", 3, lambda: finetune.parse.__wrapped__("classify", NINE)),
    ("pretrained.cards.MAX_CONFIG", len(LLAMA), lambda: cards.parse_card(LLAMA, "m")),
    ("pretrained.cards.MAX_PARTS", 17, lambda: cards.parse_card(LLAMA, "m")),  # 34 layers, and as many by default
    ("interpret.head_tests.MAX_CHARACTERS", len(CONLLU), lambda: head_tests.parse_conllu(CONLLU)),
    ("interpret.head_tests.MAX_WORDS", 2, lambda: head_tests.parse_conllu(CONLLU)),
    ("interpret.head_tests.MIN_TOKENS", head_tests.LENGTH, lambda: head_tests.random_lines(tiny("gpt2"))),
    ("interpret.corpus.LONGEST", 5, lambda: refuse_if(corpus.split_texts("a bcd\nb", "lines")[1], "cut")),
    ("studies.use_model.MAX_SENTENCES", 3, lambda: use_model.sentences("a", "b\nc")),
    ("studies.heads.MAX_ROWS", 3, lambda: heads.check([[[1.0, 2.0]] * 3] * 3)),
    ("studies.heads.MAX_COLUMNS", 2, lambda: heads.check([[[1.0, 2.0]] * 3] * 3)),
    ("tokens.MAX_CHARACTERS", 5, lambda: refuse_if(tokens.tokenize("a bcd").notes, "cut")),
    ("tokens.LONGEST_LABEL", 5, lambda: refuse_if([one for one in tokens.labels(("abcde",)) if "…" in one], "cut")),
    ("tasks.own.MIN_PAIRS", 40, lambda: own_data.parse_pairs.__wrapped__(FORTY, "no", "words")),
    ("tasks.own.MAX_TOKENS", 2, lambda: own_data.parse_pairs.__wrapped__(FORTY, "no", "words")),
    ("tasks.reading.MAX_SIGNS", 5, lambda: table_reading.validate_text("a bcd")),
    ("tasks.reading.MAX_SIGNS", 2, lambda: table_reading.decode_text(b"a bcd...")),
    ("tasks.reading.MAX_LINES", 3, lambda: refuse_if("more" in table_reading.line_numbers([1, 2, 4]), "cut")),
    ("tasks.reading.MAX_COLUMNS", 2, lambda: table_reading.read_rows(FORTY)),
    ("tasks.tables.MIN_ROWS", 40, lambda: tables.parse_table.__wrapped__(FORTY, "no", "", "")),
    ("tasks.tables.MAX_CLASSES", 2, lambda: tables.parse_table.__wrapped__(FORTY, "no", "", "")),
])  # fmt: skip
def test_a_limit_is_the_most_or_least_that_is_taken(where, most, do):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"core.{where}", most)
        do()
        patch.setattr(f"core.{where}", most + (1 if "MIN_" in where else -1))
        assert refusal(do)


def unknown(text: str) -> finetune.Rows:
    return finetune.Rows((finetune.Pair(text, "a"),), (), ("a", "b"))


def vision(patch: Any, weights: dict[str, tuple[int, ...]]) -> Any:
    # A model of pictures that has no more than these learned tokens.
    named = [(name, torch.zeros(shape)) for name, shape in weights.items()]
    return SimpleNamespace(
        config=SimpleNamespace(model_type="vit", patch_size=patch), named_parameters=lambda: named
    )


def wav(samples: np.ndarray, channels: int, rate: int, width: int = 2) -> list[float]:
    # Samples at one a second as an upload, and what is read of them.
    with wave.open(out := io.BytesIO(), "wb") as file:
        file.setparams((channels, width, 1, 0, "NONE", ""))
        file.writeframes(samples.tobytes())
    return examples.decode_wav(out.getvalue(), rate).numpy().tolist()


def refusal(do: Any) -> str:
    # The sentence with which something is refused.
    with pytest.raises((PretrainedError, ConfigError)) as error:
        do()
    return str(error.value)


def answered(family: str, logits: torch.Tensor, **more: int) -> tuple[str, int, list[float]]:
    made = generation.answer_of(tiny(family), {}, SimpleNamespace(logits=logits), **more)
    return made.kind, made.position, made.logits.tolist()


def meant(batch: dict[str, torch.Tensor]) -> Any:
    # The embedding of the second of two texts, whose last token is padding by the mask.
    states = torch.tensor([[[1.0, 2]] * 3, [[3, 0], [0, 0], [9, 9]]])
    made = generation.answer_of(
        tiny("bert_encoder"), batch, SimpleNamespace(last_hidden_state=states), row=1
    )
    return pytest.approx(made.vector.tolist(), abs=1e-6)


def classes(names: str) -> tuple[Any, generation.Answer]:
    # A model of these classes and its answer, of which the last class is the likeliest.
    labels = dict(enumerate(names.split()))
    return SimpleNamespace(
        name="m", model=SimpleNamespace(config=SimpleNamespace(id2label=labels))
    ), generation.Answer("class", torch.arange(float(len(labels))))


def settings(**values: Any) -> Any:
    return SimpleNamespace(
        name="m",
        model=SimpleNamespace(
            generation_config=SimpleNamespace(**values), config=SimpleNamespace()
        ),
    )


def first_logits(**more: Any) -> np.ndarray:
    # What a decoder answers to its first token, which sees itself alone.
    batch = encode(tiny("gpt2"), ModelInputs(SENTENCE))[0]
    return forward(tiny("gpt2"), batch, **more)[0].logits[0, 0].numpy()


def refused(reads: str, forward: Any, error: str, books: int | None = None) -> str:
    # Why a model that is given `input_ids` alone does not take them.
    config = SimpleNamespace(get_text_config=lambda: SimpleNamespace(num_codebooks=books))
    made: Any = SimpleNamespace(
        name="m", reads=reads, model=SimpleNamespace(forward=forward, config=config)
    )
    return not_taken(made, {"input_ids": 0}, ValueError(error))
