"""Any mechanism goes into a model: every choice of every axis, and every preset, trains and decodes."""

from typing import Any

import torch

from core.attention import AXES, PRESETS, AttentionConfig, ConfigError
from core.attention.config import example, example_config
from core.models import ModelConfig, Shape, build_model
from core.models.blocks import exact_fallbacks
from tests.cases import each

VOCAB, LENGTHS, T, C, H = 17, (7, 4), 6, 24, 2
SHAPE = Shape(VOCAB, VOCAB, 12)
FEEDINGS: list[Any] = ["none", "input", "bahdanau"]
ENTRIES = [(axis, e.key) for axis, entries in AXES.items() for e in entries]


def batch():
    """No word comes twice in a row: its keys would score the same, and rounding would choose what top-k takes."""
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    words = torch.stack([4 + torch.randperm(VOCAB - 4) for _ in LENGTHS])
    return words[:, :-T].masked_fill(~mask, 0), mask, words[:, -T:]


def learns(model, words=T):
    """Its gradients are finite, and word by word it decodes what it makes of all words at once."""
    torch.manual_seed(0)
    model = build_model(model, SHAPE)
    source, mask, target = batch()
    target = target[:, :words]
    loss = torch.nn.functional.cross_entropy(
        model(source, mask, target).logits.flatten(0, 1), target.flatten()
    )
    loss.backward()
    gradients = {
        name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None
    }
    assert (
        loss.isfinite() and gradients and all(grad.isfinite().all() for grad in gradients.values())
    )
    embedding = "source.weight" if "source.weight" in gradients else "source.token.weight"
    assert gradients[embedding].any(), "no word is looked at"
    forced = model.eval()(source, mask, target, record=True)
    assert all(
        steps.weights.isfinite().all() for history in forced.maps.values() for steps in history
    )
    decodes_the_same(model, source, mask, target, forced.logits)


def decodes_the_same(model, source, mask, target, forced, tolerance=1e-4):
    """Word by word the model gives the logits that it gives of all words at once."""
    memory = model.encode(source, mask)
    state = model.start(memory)
    for t in range(target.shape[1]):
        logits, state, _ = model.step(memory, state, target[:, t])
        torch.testing.assert_close(logits, forced[:, t], rtol=10 * tolerance, atol=tolerance)


def transformer(config: AttentionConfig) -> ModelConfig:
    return ModelConfig("transformer", config.d_model, config.num_heads, config, layers=1, d_ff=16)


PRESET_CHOICES = [("preset", item.key) for item in PRESETS]
ALL_CHOICES = [*ENTRIES, *PRESET_CHOICES]
BY_KEY = {item.key: item for item in PRESETS}


def attention_of(axis, key) -> AttentionConfig:
    if axis == "preset":
        return BY_KEY[key].config(
            C, 1 if BY_KEY[key].config(C, 1).projection.key == "identity" else H
        )
    return example_config(axis, key, C, 1 if key == "identity" else H)


@each(("axis", "key"), ENTRIES)
def test_every_choice_trains_in_a_transformer(axis, key):
    learns(transformer(attention_of(axis, key)))


@each(("axis", "key"), PRESET_CHOICES)
def test_every_preset_trains_in_the_model_that_it_was_made_for(axis, key):
    config = attention_of(axis, key)
    learns(
        ModelConfig("recurrent", C, 1, config)
        if config.projection.key == "identity"
        else transformer(config)
    )


def beside_each(values, choices=ALL_CHOICES):
    """Each choice with one of the values, in turn: what the two have to do with each other is the choice's axis."""
    return [(*choice, values[place % len(values)]) for place, choice in enumerate(choices)]


STACKS = [
    *beside_each(["decoder"], ENTRIES),
    *beside_each(["classifier", "forecaster"], ENTRIES),
    *beside_each(["decoder", "classifier", "forecaster"], PRESET_CHOICES),
]


@each(("axis", "key", "kind"), STACKS)
def test_every_choice_trains_in_a_stack(axis, key, kind):
    """Its gradients are finite, recording changes nothing, and neither does padding."""
    attention = attention_of(axis, key)
    shape = {
        "decoder": Shape(VOCAB, VOCAB, 12, one_vocabulary=True),
        "classifier": Shape(VOCAB, 3, 12, output="label"),
        "forecaster": Shape(1, 4, 12, "series", "values"),
    }[kind]
    torch.manual_seed(0)
    pool: Any = (
        "mean" if kind == "classifier" else "first"
    )  # a causal mask would keep the first from seeing any other
    model = build_model(
        ModelConfig(kind, C, attention.num_heads, attention, d_ff=16, pool=pool), shape
    )
    source, mask, target = batch()
    source = torch.randn(*mask.shape, 1) if kind == "forecaster" else source
    target = target if kind == "decoder" else None
    model(source, mask, target).logits.square().sum().backward()
    felt = [weight.grad for weight in model.parameters() if weight.grad is not None]
    assert felt and all(grad.isfinite().all() for grad in felt) and any(grad.any() for grad in felt)
    plain = model.eval()(source, mask, target).logits
    torch.testing.assert_close(
        model(source, mask, target, record=True).logits, plain, rtol=1e-3, atol=1e-4
    )
    if "bigbird" in key and kind != "decoder":
        return  # its last block follows from the length, so it is another mask in a longer batch, as it says
    alone = model(
        source[1:, : LENGTHS[1]], mask[1:, : LENGTHS[1]], None if target is None else target[1:]
    ).logits
    torch.testing.assert_close(alone, plain[1:], rtol=1e-3, atol=1e-4)


@each(("axis", "key"), ALL_CHOICES)
def test_a_decoder_says_word_by_word_what_it_says_at_once(axis, key):
    attention = attention_of(axis, key)
    torch.manual_seed(0)
    model = build_model(
        ModelConfig("decoder", C, attention.num_heads, attention, d_ff=16), SHAPE
    ).eval()
    source, mask, target = (tensor[:1] for tensor in batch())
    decodes_the_same(model, source, mask, target, model(source, mask, target).logits)


@each(("axis", "key", "trained"), beside_each(FEEDINGS, ENTRIES))
def test_a_recurrent_model_takes_a_choice_or_says_why_not(axis, key, trained):
    """Every feeding is built or refused, and one of them is trained."""
    for feeding in FEEDINGS:
        try:
            config = AttentionConfig(C, 1, "identity").with_(**{axis: example(axis, key)})
            model = ModelConfig("recurrent", C, 1, config, feeding=feeding)
        except ConfigError as refusal:
            assert key in str(refusal) and "take" in str(refusal)
        else:
            if feeding == trained:
                learns(model)


@each(("axis", "key", "feeding"), beside_each(["none", "bahdanau"]))
def test_every_choice_trains_in_the_hybrid(axis, key, feeding):
    config = attention_of(axis, key)
    learns(
        ModelConfig("hybrid", C, config.num_heads, config, cell="lstm", feeding=feeding), words=3
    )  # its cell's own


@each("mask", ["local_m", "local_p"])
def test_luongs_window_moves_with_the_word_that_is_decoded(mask):
    """A step at a time the window stands where it stands when all words are known."""
    torch.manual_seed(0)
    model = build_model(
        ModelConfig(
            "recurrent",
            C,
            1,
            AttentionConfig(C, 1, "identity", mask=example("mask", mask, window=1)),
        ),
        SHAPE,
    ).eval()
    source, real, target = batch()
    forced = model(source, real, target, record=True)
    decodes_the_same(model, source, real, target, forced.logits, tolerance=1e-5)
    places = (forced.maps["cross"][0].weights[0, 0] > 0).sum(-1)
    assert (places <= 3).all() and places.any()


def test_a_kernel_that_cannot_be_causal_gives_way_and_says_where():
    linformer = AttentionConfig(C, H, kernel="linformer")
    assert exact_fallbacks(linformer) == ("the decoder's self-attention",)
    assert exact_fallbacks(AttentionConfig(C, H, kernel="chunked")) == ()
    model: Any = build_model(transformer(linformer), SHAPE)
    assert model.encoder.layers[0].attention.config.kernel.key == "linformer"
    assert model.layers[0].causal.config.kernel.key == "exact"
