"""Models in which not every layer attends: the maps keep the model's own numbers, and the rest is named."""

import numpy as np
import torch
import transformers

from core.pretrained import Array, ModelInputs, read
from core.pretrained.load import prepare_model
from core.pretrained.maps import unblocked
from tests.cases import each
from tests.tiny_architectures import CONFIG_MAPPING, class_of, reader_of, shrunk
from tests.tiny_models import OTHER, SENTENCE, tokenizer

HYBRIDS = {  # the layers that attend, and a word for what the others do
    "jamba": ((1, 4), "Mamba"), "bamba": ((2, 4), "Mamba"), "zamba2": ((1, 4), "Mamba"), "zamba": ((1, 4), "Mamba"),
    "lfm2": ((2, 4), "convolution"), "qwen3_next": ((2, 4), "delta rule"),
    "recurrent_gemma": ((2, 5), "linear recurrence"), "minimax": ((2, 4), "linear attention"),
}  # fmt: skip


def tiny(family):
    config = shrunk(CONFIG_MAPPING[family])
    config._attn_implementation = "eager"
    return prepare_model(class_of(family)(config), tokenizer("wordpiece"), family)


@each("family", HYBRIDS)
def test_a_hybrid_keeps_its_own_numbers_of_layers(family):
    numbers, does = HYBRIDS[family]
    reading = read(tiny(family), ModelInputs(SENTENCE))
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
    reading = read(tiny(family), ModelInputs(SENTENCE))
    assert words in reading.note and "no attention between" not in reading.note


def test_where_all_layers_attend_nothing_is_said():
    reading = read(tiny("qwen2"), ModelInputs(SENTENCE))
    assert reading.note is None and [item.number for item in reading.trace.maps] == [0, 1]


@each("family", ["bigbird_pegasus", "longt5"])
def test_an_encoder_that_cannot_be_watched_is_drawn_all_the_same(family):
    reading = read(tiny(family), ModelInputs(SENTENCE, target=OTHER))
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
    reading = read(tiny("pegasus_x"), ModelInputs(SENTENCE, target=OTHER))
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
