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
from core.pretrained.reading import SINK, with_sink
from dashboard.draw import attention_view
from tests.cases import each
from tests.tiny_models import (
    BERT,
    FAMILIES,
    OTHER,
    READABLE,
    SENTENCE,
    WITHOUT,
    build,
    given,
    plain,
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


def own(family, batch):
    """What the library itself returns, its attentions by kind too: the model loaded a second time, without us."""
    with torch.no_grad():
        output = plain(family)(**batch, output_attentions=True)
    if family not in PAIRS:
        return output, {"causal" if family in CAUSAL else "self": output.attentions}
    names = {"self": "encoder", "causal": "decoder", "cross": "cross"}
    return output, {kind: getattr(output, f"{name}_attentions") for kind, name in names.items()}


@each("family", READABLE)
def test_a_family_is_read_and_drawn_as_it_is(family):
    """It answers as if nobody watched, every map is the model's own row by row, and a picture comes of it."""
    batch, *_ = encode(tiny(family), given(family))
    output, recorder = forward(tiny(family), batch, with_qkv=family not in OWN_CODE)
    theirs, expected = own(family, batch)
    torch.testing.assert_close(output[0], theirs[0], rtol=0, atol=0)
    assert bool(recorder.calls) == tiny(family).recordable == (family not in OWN_CODE)
    for seen in recorder.calls:  # what is seen makes the weights and the output
        heads, (_, groups, keys, size) = seen.q.shape[1], seen.k.shape
        assert seen.weights.shape == (1, heads, seen.q.shape[2], keys) and seen.q.shape[-1] == size
        out = (seen.weights @ seen.v.repeat_interleave(heads // groups, 1)).transpose(1, 2)
        torch.testing.assert_close(seen.out, out, atol=1e-6, rtol=1e-5)
    trace = read(tiny(family), given(family)).trace
    for kind, layers in expected.items() if family in DENSE else ():
        assert trace.kinds == tuple(expected) and len(trace.of(kind).maps) == len(layers) > 0
        for item, weights in zip(trace.of(kind).maps, layers, strict=True):
            np.testing.assert_array_equal(item.weights, weights[0].numpy())
            # no even map, no certain one
            assert 1.2 / item.weights.shape[-1] < item.weights.max(-1).mean() < 0.9
    grid, drawn = attention_view.grid(trace), []
    for item in trace.maps:
        np.testing.assert_array_equal(item.weights > 0, item.visible)
        assert item.kind != "causal" or not item.visible[:, 0, 1:].any()
        far = (
            item.mask is not None and not item.mask[0, -1, 0]
        )  # a window is masked beyond its edge
        assert family not in WINDOWS or far == (item.layer in WINDOWS[family])
        cells = np.where(item.visible, np.rint(item.weights * 254), attention_view.MASKED)
        drawn.append(cells.ravel())
        sent = base64.b64decode(attention_view.one_map(item, 1)["values"]["bytes"])
        np.testing.assert_array_equal(np.frombuffer(sent, "<f4"), item.weights.ravel())
        names = {"queries": list(item.queries), "keys": list(item.keys)}
        assert attention_view.labels(item, None) == names
    assert grid["shapes"] == [list(item.weights.shape) for item in trace.maps]
    cells = np.frombuffer(base64.b64decode(grid["bytes"]), np.uint8)
    assert np.abs(cells.astype(int) - np.concatenate(drawn)).max() <= 1 and not grid["pooled"]


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
    bands = own(family, encode(tiny(family), given(family))[0])[1]["self"]
    for item, band in zip(read(tiny(family), SENTENCE).trace.maps, bands, strict=True):
        for drawn, theirs in zip(item.weights[1, 1:], band[0, 1, 1:].numpy(), strict=True):
            np.testing.assert_array_equal(np.sort(drawn[drawn > 0]), np.sort(theirs[theirs > 0]))


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


@each("family", [name for name in PAIRS if name != "whisper"])
def test_without_a_target_the_model_decodes_it_itself_greedily(family):
    ids = list(read(tiny(family), given(family, target=None)).target.ids)
    batch, *_ = encode(tiny(family), given(family))
    del batch["decoder_input_ids"]
    made = plain(family).generate(**batch, max_new_tokens=64, do_sample=False, num_beams=1)
    assert ids == made[0].tolist()[: len(ids)] and len(ids) > 1


@each("family", ["bert", "gpt2", "llama", "t5"])
def test_a_text_of_one_token_keeps_its_kind(family):
    kinds = read(tiny(family), given(family, text="a", target="a")).trace.kinds
    assert kinds == {"bert": ("self",), "t5": ("self", "causal", "cross")}.get(family, ("causal",))


@each("family", WITHOUT)
def test_what_has_no_map_says_why_and_what_to_do(family):
    words = {"mamba": "Take a Transformer", "big_bird_sparse": "original_full"}[family]
    with pytest.raises(PretrainedError, match=f"(?s)(?=.*to draw).*{words}"):
        tiny(family)


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
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        n_embd=2 * heads, n_layer=layers, n_head=heads, n_positions=places, vocab_size=5
    )
    with torch.device("meta"):
        assert max_tokens_of(GPT2LMHeadModel(config)) == most
    assert most == 512 or 4 * layers * heads * most**2 <= 256 * 2**20


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
