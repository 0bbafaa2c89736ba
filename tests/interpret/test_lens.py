"""The logit lens and direct logit attribution, held against plain matrix algebra on the weights."""

from typing import Any

import numpy as np
import pytest
import torch

from core.hooks import hooked as hooked_while
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
    Direction,
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
    position, lens, tokens = asked.answer.position, read_lens(asked), [asked.id, 7]
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
    followed = follow_tokens(asked, lens, position, tokens)
    expected = probabilities[:, position][:, tokens]
    torch.testing.assert_close(followed.probabilities, expected, atol=1e-5, rtol=0)
    ranks = logits[:, position].argsort(-1, descending=True).argsort(-1)[:, tokens] + 1
    assert torch.equal(followed.ranks, ranks)


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
    ("family", "words"),
    {
        "albert": "not one numbered list",
        "vit": "not a token",
        "bert_encoder": "not a token",
    }.items(),
)
def test_what_cannot_be_read_is_said(family, words):
    with pytest.raises(PretrainedError, match=words):
        read_lens(baseline(family))


def test_a_layer_that_is_read_otherwise_is_refused(monkeypatch):
    asked = baseline("gpt2")
    logits = plain("gpt2")(**asked.batch).logits[0].detach()
    other = Stream(0, torch.zeros_like(read_lens(asked).states), logits)
    monkeypatch.setattr("core.interpret.lens.read_stream", lambda *asked: other)
    with pytest.raises(PretrainedError, match="cannot be read in the same way"):
        read_lens(asked)


def test_the_induction_model_decides_in_its_second_layer():
    asked = ask(load_lab_model("induction"), Question(REPEAT))
    assert asked.word == "river" and asked.id is not None
    followed = follow_tokens(asked, read_lens(asked), asked.answer.position, [asked.id])
    assert first_likeliest(followed) == (2, 2)
    assert followed.probabilities[2, 0] > 0.5 > 10 * followed.probabilities[1, 0]


@each(
    ("ranks", "leads"),
    {(9, 1, 2, 1, 1): (1, 3), (1, 1): (0, 0), (1, 2): (0, None), (3, 2): (None, None)}.items(),
)
def test_when_a_token_leads_first_and_for_good(ranks, leads):
    zeros = torch.zeros(len(ranks), 1)
    assert first_likeliest(Trajectories(zeros, torch.tensor(ranks)[:, None])) == leads


def hooked(model) -> bool:
    return any(one._forward_hooks or one._forward_pre_hooks for one in model.modules())


@each("family", WRITERS + MASKED)
def test_the_parts_of_every_family_sum_to_its_logit_or_it_is_refused(family):
    asked = baseline(family)
    if family in NO_SUM:
        with pytest.raises(PretrainedError, match=NO_SUM[family]):
            attribute_logit(asked, asked.id)
        return
    *before, parts = attribute_passes(asked, asked.id)
    assert before == [None] * (PASSES - 1) and not hooked(tiny(family).model)
    assert parts.logit == pytest.approx(float(asked.answer.logits[asked.id]), rel=1e-5)
    assert parts.total == pytest.approx(parts.logit, rel=1e-4)
    roles = [part.role for part in parts.parts]
    assert {"embedding", "head"} < set(roles)
    assert roles.count("feed-forward") == (4 if family == "modernbert" else 2)


def run_and_read(model, batch, names):
    """The input and the output (T, C) of modules in one pass."""
    read: dict[str, Any] = {}

    def hooks():
        for name in names:

            def keep(module, inputs, output, name=name):
                read[name] = inputs[0][0].detach(), output[0].detach()

            yield model.get_submodule(name).register_forward_hook(keep)

    with hooked_while(hooks()):
        model(**batch)
    return read


def through(norm, part, into):
    """A part of a layer norm's input in its output, with the scale of the whole input."""
    return (part - part.mean()) / (into.var(unbiased=False) + norm.eps).sqrt() * norm.weight


def parts_of(asked, *answers) -> dict[tuple, float]:
    """The parts of a logit by role, layer, head and name."""
    parts = attribute_logit(asked, *(answers or (asked.id,))).parts
    return {(part.role, part.key, part.head, part.name): part.value for part in parts}


def test_heads_and_embeddings_are_what_plain_algebra_gives():
    asked = baseline("gpt2")
    model, position = plain("gpt2").transformer, asked.answer.position
    read = run_and_read(model, asked.batch, ("h.1.attn.c_proj", "h.0.mlp", "ln_f"))
    unembedding = plain("gpt2").lm_head.weight[asked.id]
    heads = read["h.1.attn.c_proj"][0][position].split(24 // HEADS)
    matrices = model.h[1].attn.c_proj.weight.split(24 // HEADS)
    token = int(asked.batch["input_ids"][0, position])
    vectors = {
        ("head", ("causal", 1), head, ""): heads[head] @ matrices[head] for head in range(HEADS)
    } | {
        ("feed-forward", ("causal", 0), None, ""): read["h.0.mlp"][1][position],
        ("embedding", None, None, "token"): model.wte.weight[token],
        ("embedding", None, None, "position"): model.wpe.weight[position],
    }
    parts = parts_of(asked)
    for part, vector in vectors.items():
        value = through(model.ln_f, vector, read["ln_f"][0][position]) @ unembedding
        assert parts[part] == pytest.approx(float(value.detach()), abs=1e-5), part
    bias = float((model.ln_f.bias @ unembedding).detach())
    assert parts["norm", None, None, ""] == pytest.approx(bias, abs=1e-5)


def test_in_a_post_norm_model_a_part_passes_every_later_norm():
    asked = ask(load_lab_model("numbers"), Question(ModelInputs("nine hundred"), 1))
    model, place = asked.pretrained.model, "model.decoder.layers.1"
    layer, later = model.model.decoder.layers[1], ("encoder_attn_layer_norm", "final_layer_norm")
    with torch.no_grad():
        read = run_and_read(model, asked.batch, [f"{place}.{name}" for name in later])
        part = layer.encoder_attn.out_proj.bias
        for name in later:
            part = through(layer.get_submodule(name), part, read[f"{place}.{name}"][0][1])
        value = float(part @ model.lm_head.weight[asked.id])
    parts, constant = parts_of(asked), float(model.final_logits_bias[0, asked.id])
    assert parts["bias", ("cross", 1), None, ""] == pytest.approx(value, abs=1e-5)
    assert parts["unembedding", None, None, ""] == pytest.approx(constant, abs=1e-6)


def test_a_difference_is_the_difference_of_two_attributions():
    asked = baseline("bart")
    first, second, both = (parts_of(asked, *ids) for ids in ((asked.id,), (9,), (asked.id, 9)))
    for part in set(both) - {("unembedding", None, None, "")}:
        assert both[part] == pytest.approx(first[part] - second[part], abs=1e-5)


def test_in_a_model_that_fills_masks_the_gate_of_its_last_activation_is_held():
    asked, model = baseline("bert"), plain("bert")
    last, head, position = (
        "bert.encoder.layer.1.output",
        "cls.predictions.transform",
        asked.answer.position,
    )
    names = [f"{last}.dense", f"{last}.LayerNorm", f"{head}.dense", f"{head}.LayerNorm"]
    read = run_and_read(model, asked.batch, names)
    dense, norm, matrix, last_norm = (
        model.get_submodule(name) for name in names[2:] + names[2:0:-1]
    )
    written = read[names[0]][1][position]
    part = through(last_norm, written, read[names[1]][0][position]) @ dense.weight.T
    gates = torch.special.ndtr(read[names[2]][1][position])  # gelu(z) = z Φ(z)
    unembedding, parts = model.cls.predictions.decoder.weight[asked.id], parts_of(asked)
    for key, vector in (
        (("feed-forward", ("self", 1), None, ""), part),
        (("transform", None, None, ""), dense.bias),
    ):
        value = through(norm, vector * gates, read[names[3]][0][position]) @ unembedding
        assert parts[key] == pytest.approx(float(value.detach()), abs=1e-5)


# Activation patching: equal to replacing outputs by hand with plain hooks, on scales that the two runs set.


CLEAN, CORRUPTED = "the animal was tired", "the street was tired"
# By family the modules of a layer's W_O, of its feed-forward network, and the layer itself.
MODULES = {
    "gpt2": ("transformer.h.{}.attn.c_proj", "transformer.h.{}.mlp", "transformer.h.{}"),
    "llama": ("model.layers.{}.self_attn.o_proj", "model.layers.{}.mlp", "model.layers.{}"),
    "bert_classifier": (
        "bert.encoder.layer.{}.attention.output.dense",
        "bert.encoder.layer.{}.output.dense",
        "bert.encoder.layer.{}",
    ),
}


def pair(family: str):
    return pair_of(tiny(family), ModelInputs(CLEAN), ModelInputs(CORRUPTED), output=0, contrast=2)


def by_hand(family: str, module: str, part: Any, before: bool = False) -> float:
    """The difference of logits of the corrupted text with a part of one module's input or output of the clean one."""
    model, kept = plain(family), dict[str, torch.Tensor]()

    def hook(module, inputs, output=None):
        whole = inputs if before else output
        states = (whole[0] if isinstance(whole, tuple) else whole).clone()
        if not kept:
            kept["clean"] = states
            return None
        states[part] = kept["clean"][part]
        return (states, *whole[1:]) if isinstance(whole, tuple) else states

    place = model.get_submodule(module)
    register = place.register_forward_pre_hook if before else place.register_forward_hook
    with hooked_while(iter([register(hook)])), torch.no_grad():
        for text in (CLEAN, CORRUPTED):
            logits = model(**encode(tiny(family), ModelInputs(text))[0]).logits
    logits = logits[0] if logits.ndim == 2 else logits[0, -1]
    return float(logits[0] - logits[2])


@each("family", MODULES)
def test_every_part_is_what_plain_hooks_give(family):
    texts, effects = pair(family), patch(pair(family))
    assert texts.recovered(texts.clean.value) == 1 and texts.recovered(texts.corrupted.value) == 0
    for (_, layer), effect in effects.items():
        output, inner, whole = (module.format(layer) for module in MODULES[family])
        size = plain(family).get_submodule(output).weight.shape[-1] // len(effect.heads)
        expected: dict[str, Any] = {
            "attention": (effect.attention, output, ..., True),
            "feed-forward": (effect.feed_forward, inner, ..., False),
        }
        for head, value in enumerate(effect.heads):
            part = ..., slice(head * size, (head + 1) * size)
            expected[f"head {head}"] = value, output, part, True
        for token, value in enumerate(effect.residual):
            expected[f"token {token}"] = value, whole, (slice(None), token), False
        assert len(expected) == 2 + len(effect.heads) + len(texts.clean.source)
        for name, (value, *how) in expected.items():
            assert value == pytest.approx(texts.recovered(by_hand(family, *how)), abs=2e-4), name


def test_all_states_after_the_last_layer_are_the_other_run_and_nothing_is_left_on_the_model():
    texts = pair("gpt2")
    clean, corrupted = (patch(texts, way)["causal", 1].residual for way in ("denoise", "noise"))
    assert clean == pytest.approx([0] * (len(clean) - 1) + [1], abs=1e-4), "the last is read alone"
    assert corrupted[-1] == pytest.approx(0, abs=1e-4) and not hooked(texts.pretrained.model)
    _, recorder = forward(texts.pretrained, texts.clean.batch, with_qkv=True)
    blocks = blocks_of(texts.pretrained.model, recorder.calls)
    assert [block.name for block in blocks] == ["transformer.h.0", "transformer.h.1"]


def test_estimates_are_the_effects_where_the_change_is_small():
    """Texts that are nearly the same to the model: its embeddings of the two words are moved together."""
    texts = pair("gpt2")
    table = texts.pretrained.model.transformer.wte.weight
    first, second = (one.batch["input_ids"][0] for one in (texts.clean, texts.corrupted))
    before, moved = table.detach().clone(), first != second
    with torch.no_grad():
        table[second[moved]] = table[first[moved]].lerp(table[second[moved]], 1e-2)
        try:
            near = pair("gpt2")
            effects = patch(near)
            with torch.enable_grad():
                estimates = estimate_heads(patch_source(near))
            for key, exact in effects.items():
                np.testing.assert_allclose(estimates[key], exact.heads, rtol=0.05, atol=0.02)
            assert agreement(effects, estimates) > 0.99
        finally:
            table.copy_(before)


@each("family", ["t5", "bart", "albert", "gpt_oss"])
def test_other_families_are_patched_or_say_why_not(family):
    made = tiny(family)
    target = "nine boats" if made.model.config.is_encoder_decoder else None
    mask = "[MASK]" if made.head == "masked" else "tired"
    clean, corrupted = (
        ModelInputs(text.replace("tired", mask), target=target) for text in (CLEAN, CORRUPTED)
    )
    effects = patch(pair_of(made, clean, corrupted, output=5, contrast=9))
    assert {len(one.heads) for one in effects.values()} <= {HEADS, 6} and effects
    for (kind, _), one in effects.items():
        assert np.isfinite([*one.heads, one.attention, *one.residual]).all()
        # The layers of ALBERT are one module.
        assert (len(one.residual) > 0) == (family != "albert" and kind != "cross")


@each(
    ("corrupted", "answers", "words"),
    [
        ("the", (0, 2), "write texts of equal length"),
        (CLEAN, (), "gives the same answer to both texts"),
        (CLEAN, (0, 2), "same difference between the two answers"),
    ],
)
def test_texts_that_cannot_be_compared_are_refused_in_words(corrupted, answers, words):
    with pytest.raises(PretrainedError, match=words):
        pair_of(tiny("gpt2"), ModelInputs(CLEAN), ModelInputs(corrupted), *answers)


def test_minilm_is_patched_by_the_cosine_with_the_clean_text():
    cat, dog = (ModelInputs(f"The {animal} sat on the mat.") for animal in ("cat", "dog"))
    texts = pair_of(load_minilm(), cat, dog)
    effects = patch(texts)
    heads = np.concatenate([one.heads for one in effects.values()])
    assert texts.clean.value == pytest.approx(1, abs=1e-5) and len(heads) == 72
    ways: tuple[Direction, ...] = ("denoise", "noise")
    for way, most in zip(ways, (heads.max(), heads.min()), strict=True):
        key, head, value = ranked(effects, way)[0]
        assert value == most == effects[key].heads[head]


def test_the_induction_circuit_is_found_by_patching():
    """Layer 0 writes “old” at the token after it; layer 1 finds that token from the last “old” and copies it."""
    old, young = (ModelInputs(f"the {word} king saw the old") for word in ("old", "young"))
    texts = pair_of(load_lab_model("induction"), old, young)
    effects, king = patch(texts), texts.clean.source.tokens.index("king")
    assert texts.clean.word == "king" and texts.corrupted.value < 0 < texts.clean.value
    first, second = effects["causal", 0], effects["causal", 1]
    assert first.attention > 0.9 and second.attention > 0.9 and second.residual[-1] > 0.9
    assert first.residual[king] > 0.9 and np.delete(first.residual, king).max() < 0.1
    assert agreement(effects, estimate_heads(patch_source(texts))) > 0.8


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
        effects.append([patch(texts, way)["causal", 1].heads for way in ("denoise", "noise")])
        reading = read(model, ModelInputs(clean))
        acts = max(index for index, token in enumerate(reading.source.tokens) if token in NAMES)
        weights.append(reading.trace.maps[1].weights[0, -1, acts])
        writes.append(
            [
                parts_of(one, one.id, one.contrast)["head", ("causal", 1), 0, ""]
                for one in (texts.clean, texts.corrupted)
            ]
        )
    brought_back, taken_away = np.mean(effects, 0)
    assert brought_back[0] > 0.9 and abs(brought_back[1]) < 0.1
    assert taken_away[0] < 0.1 and taken_away[1] > 0.9 and np.mean(weights) > 0.8
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
    (key, head, most), (_, _, next_most), *_ = ranked(patch(texts), "denoise")
    assert (key, head) == (("causal", 0), 1) and most > 0.8 and next_most < 0.2
    reading = read(load_lab_model("names"), ModelInputs(clean))
    assert reading.trace.maps[0].weights[1, -1, reading.source.tokens.index(subject)] > 0.9
