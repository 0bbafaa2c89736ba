"""Activation patching: equal to replacing outputs by hand with plain hooks, on scales that the two runs set."""

import numpy as np
import pytest
import torch

from core.interpret.attribution import attribute_logit
from core.interpret.circuits import read_heads, read_vocabularies
from core.interpret.patching import (
    agreement,
    blocks_of,
    estimate_heads,
    pair_of,
    patch,
    patch_source,
    ranked,
)
from core.pretrained import ModelInputs, PretrainedError, load_lab_model, load_minilm, read
from core.pretrained.reading import encode, forward
from core.tasks import TaskConfig, make_task
from core.tasks.text import NAMES
from tests.cases import each
from tests.tiny_models import HEADS, plain, tiny

CLEAN, CORRUPTED = "the animal was tired", "the street was tired"
OUTPUT = {
    "gpt2": "transformer.h.{}.attn.c_proj",
    "llama": "model.layers.{}.self_attn.o_proj",
    "bert_classifier": "bert.encoder.layer.{}.attention.output.dense",
}
FEED_FORWARD = {
    "gpt2": "transformer.h.{}.mlp",
    "llama": "model.layers.{}.mlp",
    "bert_classifier": "bert.encoder.layer.{}.output.dense",
}
LAYER = {
    "gpt2": "transformer.h.{}",
    "llama": "model.layers.{}",
    "bert_classifier": "bert.encoder.layer.{}",
}


def pair(family: str):
    return pair_of(tiny(family), ModelInputs(CLEAN), ModelInputs(CORRUPTED), output=0, contrast=2)


def by_hand(family: str, module: str, change, before: bool) -> float:
    """The difference of logits of the corrupted text with one module's input or output changed, by a plain hook."""
    model, made = plain(family), tiny(family)
    kept = {}

    def keep(module, inputs, output=None):
        kept["clean"] = (
            inputs[0] if before else output[0] if isinstance(output, tuple) else output
        ).clone()

    def replace(module, inputs, output=None):
        states = inputs[0] if before else output[0] if isinstance(output, tuple) else output
        changed = change(states.clone(), kept["clean"])
        return (
            (changed, *(inputs[1:] if before else output[1:] if isinstance(output, tuple) else ()))
            if before or isinstance(output, tuple)
            else changed
        )

    for text, hook in ((CLEAN, keep), (CORRUPTED, replace)):
        place = model.get_submodule(module)
        handle = (
            place.register_forward_pre_hook(hook) if before else place.register_forward_hook(hook)
        )
        with torch.no_grad():
            logits = model(**encode(made, ModelInputs(text))[0]).logits
        handle.remove()
    logits = logits[0] if logits.ndim == 2 else logits[0, -1]
    return float(logits[0] - logits[2])


@each("family", OUTPUT)
def test_every_part_is_what_plain_hooks_give(family):
    texts, effects = pair(family), patch(pair(family))
    kind = next(iter(effects))[0]
    assert texts.recovered(texts.clean.value) == 1 and texts.recovered(texts.corrupted.value) == 0
    for layer in range(2):
        heads = effects[kind, layer].heads
        for head in range(len(heads)):

            def one_head(states, clean, head=head, heads=heads):
                size = states.shape[-1] // len(heads)
                states[..., head * size : (head + 1) * size] = clean[
                    ..., head * size : (head + 1) * size
                ]
                return states

            value = by_hand(family, OUTPUT[family].format(layer), one_head, before=True)
            assert heads[head] == pytest.approx(texts.recovered(value), abs=2e-4)
        value = by_hand(
            family, OUTPUT[family].format(layer), lambda states, clean: clean, before=True
        )
        assert effects[kind, layer].attention == pytest.approx(texts.recovered(value), abs=2e-4)
        value = by_hand(
            family, FEED_FORWARD[family].format(layer), lambda states, clean: clean, before=False
        )
        assert effects[kind, layer].feed_forward == pytest.approx(texts.recovered(value), abs=2e-4)
        for token in range(len(texts.clean.source)):

            def one_token(states, clean, token=token):
                states[:, token] = clean[:, token]
                return states

            value = by_hand(family, LAYER[family].format(layer), one_token, before=False)
            assert effects[kind, layer].residual[token] == pytest.approx(
                texts.recovered(value), abs=2e-4
            )


def test_denoising_all_states_after_the_last_layer_is_the_clean_run_and_noising_them_the_corrupted_one():
    texts = pair("gpt2")
    assert patch(texts)["causal", 1].residual[-1] == pytest.approx(1, abs=1e-4), (
        "the last token alone is read"
    )
    assert patch(texts, "noise")["causal", 1].residual[-1] == pytest.approx(0, abs=1e-4)
    assert np.allclose(patch(texts)["causal", 1].residual[:-1], 0, atol=1e-4)


def test_estimates_are_the_effects_where_the_change_is_small():
    """Texts that are nearly the same to the model: its embeddings of the two words are moved together."""
    texts = pair("gpt2")
    table = texts.pretrained.model.transformer.wte.weight
    first, second = (one.batch["input_ids"] for one in (texts.clean, texts.corrupted))
    ids = [(int(a), int(b)) for a, b in zip(first[0], second[0], strict=True) if a != b]
    before = table.detach().clone()
    try:
        with torch.no_grad():
            for a, b in ids:
                table[b] = table[a] + 1e-2 * (table[b] - table[a])
        near = pair("gpt2")
        effects, estimates = patch(near), estimate_heads(patch_source(near))
        for key, exact in effects.items():
            np.testing.assert_allclose(estimates[key], exact.heads, rtol=0.05, atol=0.02)
        assert agreement(effects, estimates) > 0.99
    finally:
        with torch.no_grad():
            table.copy_(before)


@each("family", ["t5", "bart", "albert", "gpt_oss"])
def test_other_families_are_patched_or_say_why_not(family):
    made = tiny(family)
    target = "nine boats" if made.model.config.is_encoder_decoder else None
    clean, corrupted = (
        ModelInputs(
            text.replace("tired", "[MASK]") if made.head == "masked" else text, target=target
        )
        for text in (CLEAN, CORRUPTED)
    )
    texts = pair_of(made, clean, corrupted, output=5, contrast=9)
    effects = patch(texts)
    assert {len(one.heads) for one in effects.values()} <= {HEADS, 6} and effects
    assert all(
        np.isfinite([*one.heads, one.attention, *one.residual]).all() for one in effects.values()
    )
    alone = family != "albert"  # whose layers are one module
    assert all(
        (len(one.residual) > 0) == (alone and kind != "cross") for (kind, _), one in effects.items()
    )


def test_nothing_is_left_on_the_model():
    texts = pair("gpt2")
    patch(texts)
    assert not any(
        module._forward_hooks or module._forward_pre_hooks
        for module in texts.pretrained.model.modules()
    )
    output, recorder = forward(texts.pretrained, texts.clean.batch, with_qkv=True)
    assert [block.name for block in blocks_of(texts.pretrained.model, recorder.calls)] == [
        "transformer.h.0",
        "transformer.h.1",
    ]


def test_texts_that_cannot_be_compared_are_refused_in_words():
    made = tiny("gpt2")
    with pytest.raises(PretrainedError, match="write texts of equal length"):
        pair_of(made, ModelInputs(CLEAN), ModelInputs("the"), 0, 2)
    with pytest.raises(PretrainedError, match="gives the same answer to both texts"):
        pair_of(made, ModelInputs(CLEAN), ModelInputs(CLEAN))
    with pytest.raises(PretrainedError, match="same difference between the two answers"):
        pair_of(made, ModelInputs(CLEAN), ModelInputs(CLEAN), 0, 2)


def test_minilm_is_patched_by_the_cosine_with_the_clean_text():
    texts = pair_of(
        load_minilm(),
        ModelInputs("The cat sat on the mat."),
        ModelInputs("The dog sat on the mat."),
    )
    effects = patch(texts)
    assert (
        texts.clean.value == pytest.approx(1, abs=1e-5)
        and sum(len(one.heads) for one in effects.values()) == 72
    )
    key, head, value = ranked(effects, "denoise")[0]
    assert value == max(one.heads.max() for one in effects.values()) == effects[key].heads[head]
    key, head, value = ranked(effects, "noise")[0]
    assert value == min(one.heads.min() for one in effects.values())


def test_the_induction_circuit_is_found_by_patching():
    """Layer 0 writes “old” at the token after it; layer 1 finds that token from the last “old” and copies it."""
    texts = pair_of(
        load_lab_model("induction"),
        ModelInputs("the old king saw the old"),
        ModelInputs("the young king saw the old"),
    )
    effects, king = patch(texts), texts.clean.source.tokens.index("king")
    assert texts.clean.word == "king" and texts.corrupted.value < 0 < texts.clean.value
    first, second = effects["causal", 0], effects["causal", 1]
    assert first.attention > 0.9 and second.attention > 0.9
    assert first.residual[king] > 0.9 and np.delete(first.residual, king).max() < 0.1
    assert (
        second.residual[-1] > 0.9 and agreement(effects, estimate_heads(patch_source(texts))) > 0.8
    )


def names_pairs(count):
    """Held-out sentences up to their last word, and the same with the other name acting."""
    for example in make_task(TaskConfig.of("names", sentences="names")).held_out(count):
        *words, answer = example.source[1:]
        acts = [index for index, word in enumerate(words) if word in NAMES][-1]
        yield " ".join(words), " ".join([*words[:acts], answer, *words[acts + 1 :]]), answer


def test_of_two_names_one_head_of_the_last_layer_carries_which_it_is():
    """It attends to the name that acts, and lowers it beside the other one; the heads before it raise both."""
    model, effects, weights, writes = load_lab_model("names"), [], [], []
    for clean, corrupted, answer in names_pairs(12):
        texts = pair_of(model, ModelInputs(clean), ModelInputs(corrupted))
        assert texts.clean.word == answer
        effects.append([patch(texts)["causal", 1].heads, patch(texts, "noise")["causal", 1].heads])
        reading = read(model, ModelInputs(clean))
        acts = max(index for index, token in enumerate(reading.source.tokens) if token in NAMES)
        weights.append(reading.trace.maps[1].weights[:, -1, acts])
        parts = [
            attribute_logit(one, one.id, one.contrast).parts
            for one in (texts.clean, texts.corrupted)
        ]
        writes.append(
            [
                part.value
                for one in parts
                for part in one
                if (part.key, part.head) == (("causal", 1), 0)
            ]
        )
    brought_back, taken_away = np.mean(effects, 0)
    assert brought_back[0] > 0.9 and abs(brought_back[1]) < 0.1
    assert taken_away[0] < 0.1 and taken_away[1] > 0.9
    assert np.mean(weights, 0)[0] > 0.8
    assert np.mean(writes, 0)[0] > 1 and np.mean(writes, 0)[1] < -1
    heads, tables = read_heads(model)[0], read_vocabularies(model)
    ids = model.tokenizer.convert_tokens_to_ids(list(NAMES))
    for head in (0, 1):
        assert np.mean([float(tables.written(heads, head, one)[one]) for one in ids]) > 5


@each(
    ("clean", "corrupted", "subject"),
    [
        ("the dogs near the tree", "the dog near the tree", "dogs"),
        ("the dog near the trees", "the dogs near the trees", "dog"),
        (
            "the tall teachers behind the small red car",
            "the tall teacher behind the small red car",
            "teachers",
        ),
    ],
)
def test_one_head_of_the_first_layer_carries_the_number_of_the_subject(clean, corrupted, subject):
    texts = pair_of(load_lab_model("names"), ModelInputs(clean), ModelInputs(corrupted))
    assert {texts.clean.word, texts.clean.other} == {"is", "are"}
    (key, head, most), *others = ranked(patch(texts), "denoise")
    assert (
        (key, head) == (("causal", 0), 1)
        and most > 0.8
        and max(value for *_, value in others) < 0.2
    )
    reading = read(load_lab_model("names"), ModelInputs(clean))
    assert reading.trace.maps[0].weights[1, -1, reading.source.tokens.index(subject)] > 0.9
