"""The logit lens and direct logit attribution, held against plain matrix algebra on the weights."""

from typing import Any

import numpy as np
import pytest
import torch

from core.interpret.circuits import read_heads, read_vocabularies
from core.interpret.evidence import Question, ask
from core.interpret.lens import (
    PASSES,
    Stream,
    Trajectories,
    attribute_logit,
    attribute_passes,
    count_parts,
    first_likeliest,
    follow_tokens,
    read_lens,
    read_stream,
)
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
from tests.tiny_models import FAMILIES, HEADS, asking, plain, tiny

REPEAT = ModelInputs("the old king walked to the dark river . the old king walked to the dark")
WRITERS = [
    name
    for name, family in FAMILIES.items()
    if name != "mamba"
    and family.kind.endswith(("CausalLM", "LMHeadModel", "Generation", "MTModel"))
]
MASKED = [
    name
    for name, family in FAMILIES.items()
    if family.kind.endswith("MaskedLM") and "sparse" not in name
]
NO_SUM = {"gemma2": "no sum", "bloom": "own code", "diffllama": "was not found"} | dict.fromkeys(
    ("deberta_v2", "longformer", "big_bird"), "own code"
)


def baseline(family: str, **question: Any):
    """A question to the tiny model of a family."""
    return ask(tiny(family), Question(asking(family), **question))


def layer_norm(x, norm, eps):
    centred = x - x.mean(-1, keepdim=True)
    return centred / ((centred**2).mean(-1, keepdim=True) + eps).sqrt() * norm.weight + norm.bias


def rms_norm(x, norm, eps):
    return x / ((x**2).mean(-1, keepdim=True) + eps).sqrt() * norm.weight


def bert_head(model, x):
    head = model.cls.predictions
    x = torch.nn.functional.gelu(x @ head.transform.dense.weight.T + head.transform.dense.bias)
    return (
        layer_norm(x, head.transform.LayerNorm, model.config.layer_norm_eps) @ head.decoder.weight.T
        + head.bias
    )


def t5_head(model, x):
    normed = rms_norm(x, model.decoder.final_layer_norm, model.config.layer_norm_epsilon)
    return normed * model.config.d_model**-0.5 @ model.shared.weight.T


BY_HAND = {
    "gpt2": lambda model, x: (
        layer_norm(x, model.transformer.ln_f, 1e-5) @ model.transformer.wte.weight.T
    ),
    "llama": lambda model, x: (
        rms_norm(x, model.model.norm, model.config.rms_norm_eps) @ model.lm_head.weight.T
    ),
    "bert": bert_head,
    "t5": t5_head,
}


@each("family", BY_HAND)
@torch.no_grad()
def test_every_state_is_read_as_plain_algebra_reads_it(family):
    asked = baseline(family)
    position, lens = asked.answer.position, read_lens(asked)
    output = plain(family)(**asked.batch, output_hidden_states=True)
    hidden = output.decoder_hidden_states if family == "t5" else output.hidden_states
    before = torch.stack([BY_HAND[family](plain(family), one[0]) for one in hidden[:-1]])
    logits = torch.cat([before, output.logits])  # the last hidden state has its norm already
    probabilities = logits.softmax(-1)
    best = probabilities.topk(5)
    assert torch.equal(lens.top, best.indices)
    torch.testing.assert_close(lens.probabilities, best.values, atol=1e-5, rtol=0)
    bits = -(probabilities * probabilities.log2()).sum(-1)
    torch.testing.assert_close(lens.entropy, bits, atol=1e-5, rtol=1e-5)
    followed = follow_tokens(asked, lens, position, (asked.id or 0, 7))
    torch.testing.assert_close(
        followed.probabilities, probabilities[:, position][:, [asked.id, 7]], atol=1e-5, rtol=0
    )
    order = logits[:, position].argsort(-1, descending=True).numpy()
    assert [
        [int(np.flatnonzero(row == token)[0]) + 1 for token in (asked.id or 0, 7)] for row in order
    ] == (followed.ranks.tolist())


@each("family", [name for name in WRITERS + MASKED if name != "albert"])
def test_the_last_layer_of_every_family_is_its_own_answer(family):
    asked = baseline(family)
    lens = read_lens(asked)
    assert int(lens.top[-1, asked.answer.position, 0]) == asked.id
    last = follow_tokens(asked, lens, asked.answer.position, [asked.id])
    assert float(last.probabilities[-1]) == pytest.approx(
        float(asked.answer.probabilities[asked.id]), abs=1e-5
    )
    assert int(last.ranks[-1]) == 1 and len(lens.states) == 1 + (4 if family == "modernbert" else 2)


def test_long_inputs_are_read_in_parts(monkeypatch):
    asked = baseline("gpt2")
    whole, stream = read_lens(asked), read_stream(asked)
    assert count_parts(asked, stream) == 1
    monkeypatch.setattr("core.interpret.lens.CELLS", 1)
    assert count_parts(asked, stream) == len(stream.states) == 3
    parts = read_lens(asked)
    assert torch.equal(whole.top, parts.top)
    torch.testing.assert_close(whole.probabilities, parts.probabilities)
    window = read_lens(asked, 3, 8)
    assert torch.equal(window.top, whole.top[:, 3:8])
    assert torch.equal(*(follow_tokens(asked, lens, 5, [7]).ranks for lens in (window, whole)))


@each(
    "family",
    {
        "albert": "not one numbered list",
        "vit": "not a token",
        "bert_encoder": "not a token",
    }.items(),
)
def test_what_cannot_be_read_is_said(family):
    name, words = family
    with pytest.raises(PretrainedError, match=words):
        read_lens(baseline(name))


def test_a_layer_that_is_read_otherwise_is_refused(monkeypatch):
    asked = baseline("gpt2")
    logits = plain("gpt2")(**asked.batch).logits[0].detach()
    other = Stream(0, torch.zeros_like(read_lens(asked).states), logits)
    monkeypatch.setattr("core.interpret.lens.read_stream", lambda *asked: other)
    with pytest.raises(PretrainedError, match="cannot be read in the same way"):
        read_lens(asked)


def test_the_parts_of_a_logit_come_with_the_last_of_the_passes():
    asked = baseline("llama")
    *before, last = attribute_passes(asked, asked.id)
    assert before == [None] * (PASSES - 1) and last == attribute_logit(asked, asked.id)


def test_the_induction_model_decides_in_its_second_layer():
    asked = ask(load_lab_model("induction"), Question(REPEAT))
    assert asked.word == "river" and asked.id is not None
    followed = follow_tokens(asked, read_lens(asked), asked.answer.position, [asked.id])
    assert first_likeliest(followed) == (2, 2)
    assert followed.probabilities[2, 0] > 0.5 > 10 * followed.probabilities[1, 0]


@each(
    "ranks",
    {(9, 1, 2, 1, 1): (1, 3), (1, 1): (0, 0), (1, 2): (0, None), (3, 2): (None, None)}.items(),
)
def test_when_a_token_leads_first_and_for_good(ranks):
    values, leads = ranks
    assert (
        first_likeliest(Trajectories(torch.zeros(len(values), 1), torch.tensor(values)[:, None]))
        == leads
    )


@each("family", WRITERS + MASKED)
def test_the_parts_of_every_family_sum_to_its_logit_or_it_is_refused(family):
    asked = baseline(family)
    if family in NO_SUM:
        with pytest.raises(PretrainedError, match=NO_SUM[family]):
            attribute_logit(asked, asked.id)
        return
    parts = attribute_logit(asked, asked.id)
    assert not any(
        module._forward_hooks or module._forward_pre_hooks
        for module in tiny(family).model.modules()
    )
    assert parts.logit == pytest.approx(float(asked.answer.logits[asked.id]), rel=1e-5)
    assert parts.total == pytest.approx(parts.logit, rel=1e-4)
    roles = [part.role for part in parts.parts]
    layers = 4 if family == "modernbert" else 2
    assert {"embedding", "head", "feed-forward"} <= set(roles) and roles.count(
        "feed-forward"
    ) == layers


def run_and_read(model, batch, names):
    """The input and the output (T, C) of modules in one pass."""
    read = {}
    handles = [
        model.get_submodule(name).register_forward_hook(
            lambda module, inputs, output, name=name: read.update(
                {name: (inputs[0][0].detach(), output[0].detach())}
            )
        )
        for name in names
    ]
    model(**batch)
    for handle in handles:
        handle.remove()
    return read


def through(norm, part, into):
    """A part of a layer norm's input in its output, with the scale of the whole input."""
    return (part - part.mean()) / (into.var(unbiased=False) + norm.eps).sqrt() * norm.weight


def test_heads_and_embeddings_are_what_plain_algebra_gives():
    asked = baseline("gpt2")
    model, position = plain("gpt2").transformer, asked.answer.position
    read = run_and_read(model, asked.batch, ("h.1.attn.c_proj", "h.0.mlp", "ln_f"))
    unembedding = plain("gpt2").lm_head.weight[asked.id]

    def towards(vector):
        part = through(model.ln_f, vector, read["ln_f"][0][position]) @ unembedding
        return pytest.approx(float(part.detach()), abs=1e-5)

    parts = {
        (part.role, part.key, part.head, part.name): part.value
        for part in attribute_logit(asked, asked.id).parts
    }
    heads = read["h.1.attn.c_proj"][0][position].split(24 // HEADS)
    matrices = model.h[1].attn.c_proj.weight.split(24 // HEADS)
    for head in range(HEADS):
        assert parts["head", ("causal", 1), head, ""] == towards(heads[head] @ matrices[head])
    assert parts["feed-forward", ("causal", 0), None, ""] == towards(read["h.0.mlp"][1][position])
    token = int(asked.batch["input_ids"][0, position])
    assert parts["embedding", None, None, "token"] == towards(model.wte.weight[token])
    assert parts["embedding", None, None, "position"] == towards(model.wpe.weight[position])
    bias = float((model.ln_f.bias @ unembedding).detach())
    assert parts["norm", None, None, ""] == pytest.approx(bias, abs=1e-5)


def test_in_a_post_norm_model_a_part_passes_every_later_norm():
    asked = ask(load_lab_model("numbers"), Question(ModelInputs("nine hundred"), 1))
    model = asked.pretrained.model
    layer, later = model.model.decoder.layers[1], ("encoder_attn_layer_norm", "final_layer_norm")
    with torch.no_grad():
        read = run_and_read(
            model, asked.batch, [f"model.decoder.layers.1.{name}" for name in later]
        )
        part = layer.encoder_attn.out_proj.bias
        for name in later:
            part = through(
                layer.get_submodule(name), part, read[f"model.decoder.layers.1.{name}"][0][1]
            )
        value = float(part @ model.lm_head.weight[asked.id])
    parts = attribute_logit(asked, asked.id).parts
    bias = next(one.value for one in parts if one.role == "bias" and one.key == ("cross", 1))
    assert bias == pytest.approx(value, abs=1e-5)
    constant = float(model.final_logits_bias[0, asked.id])
    assert next(one.value for one in parts if one.role == "unembedding") == pytest.approx(
        constant, abs=1e-6
    )


def test_a_difference_is_the_difference_of_two_attributions():
    asked = baseline("bart")
    first, second, both = (
        attribute_logit(asked, *answers) for answers in ((asked.id,), (9,), (asked.id, 9))
    )
    values = [
        [part.value for part in one.parts if part.role != "unembedding"]
        for one in (first, second, both)
    ]
    np.testing.assert_allclose(values[2], np.array(values[0]) - values[1], atol=1e-5)


def test_in_a_model_that_fills_masks_the_gate_of_its_last_activation_is_held():
    asked = baseline("bert")
    model, position = plain("bert"), asked.answer.position
    last, dense, norm = (
        "bert.encoder.layer.1.output",
        "cls.predictions.transform.dense",
        "cls.predictions.transform",
    )
    read = run_and_read(
        model, asked.batch, [f"{last}.dense", f"{last}.LayerNorm", dense, f"{norm}.LayerNorm"]
    )
    matrix, into = model.get_submodule(dense), read[f"{last}.LayerNorm"][0][position]
    part = (
        through(model.get_submodule(f"{last}.LayerNorm"), read[f"{last}.dense"][1][position], into)
        @ matrix.weight.T
    )
    gates = torch.special.ndtr(read[dense][1][position])  # gelu(z) = z Φ(z)
    unembedding = model.cls.predictions.decoder.weight[asked.id]

    def towards(vector):
        into = read[f"{norm}.LayerNorm"][0][position]
        value = (
            through(model.get_submodule(f"{norm}.LayerNorm"), vector * gates, into) @ unembedding
        )
        return pytest.approx(float(value.detach()), abs=1e-5)

    parts = attribute_logit(asked, asked.id).parts
    assert next(
        one.value for one in parts if one.role == "feed-forward" and one.key == ("self", 1)
    ) == towards(part)
    assert next(one.value for one in parts if one.role == "transform") == towards(matrix.bias)


# Activation patching: equal to replacing outputs by hand with plain hooks, on scales that the two runs set.


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
