"""The seam: who watches sees its own pass alone, and the model stays as it was."""

import gc
import inspect
import json
import re
import sys
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import replace
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers.initialization import no_init_weights
from transformers.models.auto import modeling_auto

from core.attention.base import repeat_heads
from core.interpret.circuits import Composer, copying_scores, read_heads, read_vocabularies
from core.interpret.evidence import (
    Question,
    ablate_heads,
    answering_rows,
    ask,
    break_down_weight,
    hide_token,
    layer_attentions,
    make_heads_uniform,
    measure_contributions,
    output_matrix,
    token_scores,
)
from core.interpret.lens import attribute_logit, follow_tokens, layers_of, read_lens
from core.interpret.patching import (
    blocks_of,
    estimate_heads,
    pair_of,
    patch_source,
    read_outputs,
    states_of,
)
from core.interpret.trace import graph, rollout
from core.models.base import hooked
from core.pretrained import (
    Array,
    ModelInputs,
    PretrainedError,
    answer,
    encode,
    forward,
    load_folder,
    read,
)
from core.pretrained.attention_recorder import kind_of, record_attention
from core.pretrained.base import WITHOUT_WEIGHTS, first_line, text_config
from core.pretrained.generate import (
    WRONG_CACHES,
    Answer,
    DecoderAdapter,
    answer_of,
    output_id,
    output_name,
    prepare_generation,
    score_continuation,
)
from core.pretrained.load import prepare_model, refuse_config
from core.pretrained.maps import unblocked
from core.pretrained.reading import token_labels
from tests.cases import each
from tests.tiny_architectures import (
    ARCHITECTURES,
    CONFIG_MAPPING,
    WORDS,
    class_of,
    is_limited,
    reader_of,
    shrunk,
)
from tests.tiny_models import (
    OTHER,
    SENTENCE,
    given,
    library_attention,
    plain,
    save,
    tiny,
    tokenizer,
    uneven,
)


def test_two_threads_on_one_model_never_see_each_other():
    model, meet = tiny("bert").model, threading.Barrier(2)

    def watch(text, off):
        batch = encode(tiny("bert"), given("bert", text))[0]
        expected, alone = forward(tiny("bert"), batch, off=off)
        with record_attention(model, off=off) as recorder, torch.no_grad():
            meet.wait()
            for _ in range(20):
                recorder.calls.clear()
                torch.testing.assert_close(model(**batch).logits, expected.logits)
                assert [one.layer for one in recorder.calls] == [0, 1]
                for one, other in zip(recorder.calls, alone.calls, strict=True):
                    assert torch.equal(one.weights, other.weights)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(watch, (SENTENCE, OTHER), (frozenset(), frozenset({("self", 0, 1)}))))


@each("family", ["bert", "llama", "t5", "diffllama"])
def test_a_watched_model_stays_as_it_was(family):
    pretrained, model = tiny(family), tiny(family).model
    batch, *_ = encode(pretrained, given(family))
    expected = plain(family)(**batch)[0]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    inside = {name: set(vars(module)) for name, module in model.named_modules()}
    first = "causal" if family in ("llama", "diffllama") else "self"
    for more in ({"with_qkv": True}, {"off": frozenset({(first, 0, None)})}, {"probe": True}):
        output, recorder = forward(pretrained, batch, **more)
        assert recorder.calls
        assert "off" not in more or not torch.allclose(output[0], expected, atol=1e-3)
    torch.testing.assert_close(dict(model.state_dict()), before, rtol=0, atol=0)
    assert inside == {name: set(vars(module)) for name, module in model.named_modules()}
    assert not any(one._forward_hooks or one._forward_pre_hooks for one in model.modules())
    torch.testing.assert_close(model(**batch)[0], expected, rtol=0, atol=0)


@pytest.mark.parametrize("family", ["bert", "gpt_oss", "t5"])
def test_probe_s_gradient_is_what_little_more_weight_does(family, monkeypatch):
    # Held against a difference: one weight of the second layer a little larger and smaller.
    batch, *_ = encode(tiny(family), given(family))

    def answer(output):
        return output.logits[0, -1].log_softmax(-1)[7]

    output, recorder = forward(tiny(family), batch, probe=True)
    seen = recorder.calls[1]
    (grad,) = torch.autograd.grad(answer(output), seen.probe)
    home = sys.modules[type(seen.module).__module__]
    eager, head, row, key = home.eager_attention_forward, 1, 4, 2

    def nudged(by):
        calls = iter(range(99))

        def more(module, q, k, v, mask, **options):
            out, weights = eager(module, q, k, v, mask, **options)
            if next(calls) == 1:
                out = out.clone()
                out[0, row, head] += by * v[0, head // (weights.shape[1] // v.shape[1]), key]
            return out, weights

        monkeypatch.setattr(home, "eager_attention_forward", more)
        return float(answer(forward(tiny(family), batch)[0]))

    assert float(grad[0, head, row, key]) == pytest.approx(
        (nudged(0.01) - nudged(-0.01)) / 0.02, rel=0.02, abs=2e-4
    )
    assert bool(grad.any()) and not any(
        weight.requires_grad for weight in tiny(family).model.parameters()
    )


# Models in which not every layer attends: the maps keep the model's own numbers, and the rest is named.


HYBRIDS = {  # the numbers of their maps, which of them have no softmax, and a word for what these are
    "jamba": (5, "L0, 2–3", "Mamba"), "bamba": (5, "L0–1, 3", "Mamba-2"), "zamba2": (7, "L0, 2–4, 6", "Mamba-2"),
    "zamba": (7, "L0, 2–4, 6", "Mamba"), "lfm2": (5, "L0–1, 3", "convolution"), "qwen3_next": (5, "L0–1, 3", "delta rule"),
    "recurrent_gemma": (6, "L0–1, 3–4", "linear recurrence"), "minimax": (5, "L0–1, 3", "lightning attention"),
    "mamba": (2, "L0–1", "Mamba"), "rwkv": (2, "L0–1", "RWKV"), "falcon_h1": (4, "L0, 2", "Mamba-2"),
}  # fmt: skip


BY_CHANNEL = ("jamba", "zamba", "lfm2", "recurrent_gemma", "mamba", "rwkv")


def small(kind, **changes):
    config = shrunk(kind.config_class, changes)
    config._attn_implementation = "eager"
    model = kind(config)
    return prepare_model(model, reader_of(model), kind.__name__)


@each(
    ("family", "numbers", "words", "kinds"),
    [
        *(
            (
                family,
                tuple(range(count)),
                (f"State layers, without softmax ({which}: ", does, "may be negative"),
                "causal",
            )
            for family, (count, which, does) in HYBRIDS.items()
        ),
        (
            "falcon_h1",
            (0, 1, 2, 3),
            ("Layers 0–1 have 2 maps each (a selective state space (Mamba-2), then attention)",),
            "causal",
        ),
        (
            "zamba",
            tuple(range(7)),
            ("L1 to L2 are those of layer 1.",),
            "causal",
        ),
        (
            "nemotron_h",
            (0, 1, 3),
            ("Of its 4 layers 1 have no map (2: experts alone).", "(L0: a selective"),
            "causal",
        ),
        (
            "longcat_flash",
            (0, 1, 2, 3),
            ("(attention, then attention), which are numbered one after another: L0 to L1",),
            "causal",
        ),
        ("pegasus_x", (0, 1, 0, 1), ("maps of the encoder are not drawn",), "causal cross"),
        ("qwen2", (0, 1), (), "causal"),
        (
            "dory",
            tuple(range(6)),
            ("(L0–2: layer 0–2, pass 1; L3–4: layer 1–2, pass 2; L5: layer 3, pass 1)",),
            "causal",
        ),
        (
            "inkling2_loop",
            tuple(range(6)),
            ("(L0–2: layer 0–2, pass 1; L3–4: layer 1–2, pass 2; L5: layer 3, pass 1)",),
            "causal",
        ),
        (
            "hrm_text",
            tuple(range(16)),
            ("L4–5: layer 0–1 of L_module, pass 3; L6–7: layer 0–1 of H_module, pass 1",),
            "causal",
        ),
        # An encoder that cannot be watched is drawn all the same.
        ("bigbird_pegasus", (0, 1) * 3, (), "self causal cross"),
        ("longt5", (0, 1) * 3, (), "self causal cross"),
    ],
)
def test_layers_keep_the_models_own_numbers(family, numbers, words, kinds):
    reading = read(small(class_of(family)), ModelInputs(SENTENCE, target=OTHER))
    assert " ".join(reading.trace.kinds) == kinds
    assert tuple(item.number for item in reading.trace.maps) == numbers
    assert reading.trace.name((1, 3)) == f"L{numbers[1]}·H3"
    assert (reading.note is None) == (not words) and all(word in reading.note for word in words)
    assert ("Each of their channels" in str(reading.note)) == (family in BY_CHANNEL)
    for item in reading.trace.of("self").maps:
        np.testing.assert_allclose(item.weights.sum(-1), 1, atol=1e-5)


ANSWERING = [  # encoder–decoders that write nothing
    name
    for table in ("SEQUENCE_CLASSIFICATION", "TOKEN_CLASSIFICATION", "QUESTION_ANSWERING")
    for model_type, name in getattr(modeling_auto, f"MODEL_FOR_{table}_MAPPING_NAMES").items()
    if model_type in modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES
    and model_type != "t5gemma2"  # whose maps are refused
]


@each("name", [*ANSWERING, "LEDForQuestionAnswering", "BartModel", "WhisperForAudioClassification"])
def test_a_decoder_without_a_target_reads_its_own(name):
    kind = getattr(transformers, name)
    config = shrunk(kind.config_class, {"eos_token_id": tokenizer("wordpiece").sep_token_id})
    config._attn_implementation = "eager"
    model = uneven(kind(config))
    pretrained = prepare_model(model, reader_of(model), name)
    inputs = replace(GIVEN, target=None)
    reading, (batch, *_) = read(pretrained, inputs), encode(pretrained, inputs)
    batch.pop("decoder_input_ids", None)
    output, expected = own(pretrained, batch)
    if not name.startswith(("LED", "T5Gemma")):  # they return bands, or those of a part alone
        for item, weights in zip(reading.trace.maps, expected, strict=True):
            np.testing.assert_array_equal(item.weights, weights[0].numpy())
    assert (reading.target is None) == ("cross" not in reading.trace.kinds)
    if "SequenceClassification" not in name:
        return
    baseline = ask(pretrained, Question(inputs))
    torch.testing.assert_close(baseline.answer.logits, output.logits[0])
    mask = torch.ones_like(batch["input_ids"])
    mask[0, 4] = 0
    both = {"attention_mask": mask, "decoder_attention_mask": mask.roll(1)}
    both["decoder_attention_mask"][0, 0] = 1
    hidden = baseline.target_value(Answer("class", model(**batch | both).logits[0]))
    close(hide_token(baseline, 4).value, float(hidden))


LABELS = ["BertForTokenClassification", "GPT2ForTokenClassification", "T5ForTokenClassification"]
QUESTIONS = ["BertForQuestionAnswering", "BartForQuestionAnswering", "T5ForQuestionAnswering",
         "XLNetForQuestionAnsweringSimple"]  # fmt: skip


@each("name", LABELS + QUESTIONS)
def test_labels_of_tokens_and_parts_of_a_text_are_answers(name):
    pretrained = small(getattr(transformers, name), eos_token_id=3)
    assert wrong(pretrained) == {}
    inputs = replace(GIVEN, target=None, second="It saw a boat.")
    baseline = ask(pretrained, Question(inputs))
    ids = baseline.batch["input_ids"][0].tolist()
    with library_attention(), torch.no_grad():
        output = pretrained.model(**baseline.batch)
    if name in LABELS:
        shares = output.logits[0].softmax(-1)
        first = len(pretrained.tokenizer("").input_ids) // 2  # of GPT-2 and T5 none stands before
        close(baseline.answer.probabilities, shares[first])
        labels = token_labels(pretrained, inputs)
        close([one.probability for one in labels], shares.max(-1).values)
        assert [one.word for one in labels] == [f"LABEL_{one}" for one in shares.argmax(-1)]
        return
    parts = {
        (i, j): float(output.start_logits[0, i] + output.end_logits[0, j])
        for i in range(len(ids))
        for j in range(i, len(ids))
    }
    best = max(parts, key=parts.__getitem__)
    for number in (0, 5, len(ids), len(parts) - 1, baseline.id):
        start, end = baseline.answer.span(number)
        assert parts[start, end] == pytest.approx(
            float(baseline.answer.logits[number]), rel=1e-4, abs=1e-5
        )
        shown = output_name(pretrained, baseline.answer, number)
        assert output_id(pretrained, baseline.answer, shown) == number
    assert tuple(baseline.answer.span(baseline.id)) == best
    assert baseline.word == pretrained.tokenizer.decode(ids[best[0] : best[1] + 1]).strip()
    rows = answering_rows(baseline, "self")
    assert np.flatnonzero(rows).tolist() == sorted({*best})
    with pytest.raises(PretrainedError, match="not one part of the text"):
        output_id(pretrained, baseline.answer, "the late boat")


def test_a_last_layer_that_is_not_shown_is_told(tmp_path):
    for name, shown in (("BertForNextSentencePrediction", False), ("BertModel", True)):
        model = small(getattr(transformers, name)).model
        model.save_pretrained(tmp_path / name)
        reader_of(model).save_pretrained(tmp_path / name)
        notes = " ".join(load_folder(tmp_path / name, name).notes)
        assert (f"last layer answers, that of a {name}, is not shown" in notes) != shown


PICTURES = {"BlipForConditionalGeneration": ("[class]", "3,3"), "Pix2StructVisionModel": ("0,0", "13,16"),
            "RadioModel": ("[class or register 0]", "3,3"),
            "YolosForObjectDetection": ("[class]", "[detection 99]"),
            "Aimv2VisionModel": ("0,0", "3,3"), "PixioModel": ("[class 0]", "3,3")}  # fmt: skip


@each("name", PICTURES)
def test_the_places_of_a_picture_are_called_what_they_are(name):
    reading = read(small(getattr(transformers, name)), GIVEN)
    assert (reading.source.tokens[0], reading.source.tokens[-1]) == PICTURES[name]
    assert reading.trace.kinds == ("self",) and reading.trace.shape == (2, 4)


def test_a_picture_is_cut_as_the_library_cuts_it():
    # Pix2Struct's patches, padded by its own processor, give what they give without the padding.
    pretrained = built("pix2struct")
    batch, source, _, cut = encode(pretrained, GIVEN)
    picture = np.uint8((GIVEN.picture.numpy() * 255).round())
    processor = transformers.Pix2StructImageProcessorPil(
        max_patches=256, patch_size={"height": 4, "width": 4}
    )
    theirs = processor(picture, return_tensors="pt")
    with library_attention(), torch.no_grad():
        expected = pretrained.model(**theirs, decoder_input_ids=batch["decoder_input_ids"])
        output = pretrained.model(**batch)
    close(output.logits, expected.logits)
    assert source.grid == (14, 17) and "14 × 17 patches" in str(cut)
    baseline, hidden = ask(pretrained, Question(GIVEN)), batch["flattened_patches"].clone()
    hidden[0, 20, 2:] = 0.0
    with library_attention(), torch.no_grad():
        output = pretrained.model(**batch | {"flattened_patches": hidden})
    close(
        hide_token(baseline, 20).value,
        float(baseline.target_value(baseline.answer_in(batch, output))),
    )


def test_blocks_are_the_matrix_that_they_stand_for():
    inside = (torch.arange(11)[:, None] - torch.arange(11)).abs() < 4
    whole, blocks = torch.rand(2, 11, 11) * inside, torch.zeros(3, 2, 4, 12)
    for row, column in inside.nonzero().tolist():
        blocks[row // 4, :, row % 4, column - 4 * (row // 4) + 4] = whole[:, row, column]
    weights, mask = unblocked(blocks, 11)
    assert torch.equal(weights[0], whole) and torch.equal(mask[0, 0], inside)


# A model that is not on the CPU: its inputs go there, and what comes of them comes back.


def test_a_model_on_another_device_is_read_and_answers(monkeypatch):
    # On torch's meta device, which stands for a GPU: it holds no numbers, and takes no tensor of the CPU. What comes
    # back from there is all halves.
    home = torch.Tensor.cpu
    monkeypatch.setattr(
        torch.Tensor,
        "cpu",
        lambda self: torch.full(self.shape, 0.5) if self.is_meta else home(self),
    )
    away = replace(tiny("gpt2"), model=deepcopy(tiny("gpt2").model).to("meta"))
    trace = read(away, ModelInputs(SENTENCE)).trace
    assert trace.shape == read(tiny("gpt2"), ModelInputs(SENTENCE)).trace.shape
    assert all((item.weights == 0.5).all() for item in trace.maps)
    assert answer(away, ModelInputs(SENTENCE)).probabilities.device.type == "cpu"


# Every architecture of the installed transformers that can be built small: drawn as it is, or refused for a reason.


TABLE = Path(__file__).with_name("architectures.json")
EXPECTED = json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.exists() else {}
LARGEST = 8_000_000  # numbers: what the rules have not made small is not built
RETURNED = ("encoder_attentions", "attentions", "decoder_attentions", "cross_attentions")
# their own maps are bands and blocks: tests/pretrained/test_reading.py
PACKED = ("longformer", "led", "longt5")
# return the weights before a sink takes its share of the output
SINK_AFTER = ("granite_swa", "granitemoe_swa")
# return none by themselves; their layers are watched all the same
SILENT = ("blt_patcher", "flava", "tipsv2", "shieldgemma2")
# What limits the keys in their configs limits those of a part that is not drawn, of other layers, or of longer texts.
UNLIMITED = (
    "csm",
    "deepseek_ocr2",
    "moshi",
    "nemo_speechlm",
    "nemotron_h",
    "nemotron_h_omni",
    "qwen3_omni_moe_text",
    "unlimited_ocr",
    "unlimited_ocr_text",
)
# Repeat the heads of k, or scale q and k where only a part of each is rotated: what stood before is not shown.
UNKNOWN_ROTATION = ("jetmoe", "mistral_large4", "mistral_large4_text")
SINE_FIRST = ("codegen", "gptj")
STEPS = 4  # tokens that are generated
NUMBERS = np.random.default_rng(3)
GIVEN = ModelInputs(SENTENCE, target=OTHER, picture=Array.of(NUMBERS.random((9, 11, 3), dtype=np.float32)),
              sound=Array.of(NUMBERS.normal(size=8000).astype(np.float32)))  # fmt: skip


class NotBuilt(Exception):
    """What cannot be built here at this size, and why."""


def built(model_type):
    """A tiny model of that architecture as a page would have it; NotBuilt says why there is none."""
    try:
        if (kind := class_of(model_type)) is None:
            raise NotBuilt("no class of models")
        config = shrunk(CONFIG_MAPPING[model_type])
        config._attn_implementation = "eager"
        if EXPECTED.get(model_type, "not built").startswith("not built"):
            with torch.device("meta"), no_init_weights():
                size = sum(one.numel() for one in kind(deepcopy(config)).parameters())
            if size > LARGEST:
                raise NotBuilt("not small by these rules")
        torch.manual_seed(5)
        model = kind(config)
        refuse_config(config.to_dict(), model_type)
        return prepare_model(model, reader_of(model), model_type)
    except (NotBuilt, PretrainedError):
        raise
    except ImportError as error:
        missing = re.search(r"requires the (\w+) library", str(error))
        raise NotBuilt(f"needs {missing[1] if missing else 'another library'}") from error
    except Exception as error:
        raise NotBuilt("no small config by these rules") from error


def own(pretrained, batch):
    """What the model gives by itself, without us: its output, and its maps in the order in which they are drawn."""
    takes = inspect.signature(pretrained.model.forward).parameters
    more = {"use_cache": False} if "use_cache" in takes else {}
    with library_attention(), torch.no_grad():
        output = pretrained.model(**batch, **more, output_attentions=True)
    every = [getattr(output, name, None) or () for name in RETURNED]
    if every[0]:
        every[1] = ()
    return output, [one for ones in every for one in ones if isinstance(one, torch.Tensor)]


# Every reason for which a model that can be loaded is not drawn, and a part of its sentence that no other has.
REASONS = {
    "inputs": "which this page does not have",
    "videos": "reads videos",
    "size": "returned maps of",
    "none": "has no attention to draw",
    "scores": "returned numbers that are not weights",
    "stages": "has no single patch size",
    "sound": "needs sound in a form",
    "parts": "has no forward pass;",
}


def reason_of(sentence):
    return next((reason for reason, part in REASONS.items() if part in sentence), None)


def outcome(model_type, analyse=lambda pretrained: None):
    """Drawn, a reason of `REASONS`, or why nothing was built; AssertionError where a drawn map is not the model's.

    `analyse` is called with a model that is drawn, whose weights it may change.
    """
    try:
        pretrained = built(model_type)
    except NotBuilt as error:
        return f"not built: {error}"
    except PretrainedError as error:
        return reason_of(str(error))
    try:
        batch, *_ = encode(pretrained, GIVEN)
        reading, (output, _) = read(pretrained, GIVEN), forward(pretrained, batch)
    except PretrainedError as error:
        if (reason := reason_of(str(error))) == "inputs":
            takes = inspect.signature(pretrained.model.forward).parameters
            named = [
                name
                for group in re.findall(r"\(([a-z_, ]+)\)", str(error))
                for name in group.split(", ")
            ]
            assert set(named) <= set(takes) and (named or any(name in str(error) for name in takes))
        return reason or "not built: its pass fails at this size"
    maps = reading.trace.maps
    softmax = [item for item in maps if not item.state]
    sees = [item.weights[:, -1 if item.kind == "causal" else slice(None)] for item in softmax]
    limited = is_limited(pretrained.model.config.to_dict()) and model_type not in UNLIMITED
    assert not limited or any((weights == 0).any() for weights in sees)
    assert maps and all(np.isfinite(item.weights).all() for item in maps)
    assert not any(item.kind == "causal" and np.triu(item.weights, 1).any() for item in maps)
    plain, expected = own(pretrained, batch)
    for name in ("logits", "last_hidden_state"):
        if isinstance(found := getattr(plain, name, None), torch.Tensor):
            torch.testing.assert_close(getattr(output, name), found, rtol=0, atol=0, equal_nan=True)
    if model_type in SILENT:
        assert all(np.abs(item.weights.sum(-1) - 1).max() < 1e-5 for item in softmax)
    elif model_type not in PACKED:
        expected = [one for one in expected if one.ndim == 4]
        if len(expected) > len(softmax) > 0:  # a linear layer's product stands there as well
            expected = [expected[item.number] for item in softmax]
        assert len(softmax) == len(expected) or not softmax
        for item, weights in zip(softmax, expected, strict=bool(softmax)):
            theirs = weights[0].float().numpy()
            if model_type in SINK_AFTER:
                theirs, share = (
                    theirs * item.weights.sum(-1, keepdims=True),
                    float(item.weights.sum(-1).max()),
                )
                np.testing.assert_allclose(item.weights, theirs, rtol=1e-4, atol=1e-6)
                assert share < 0.999
            else:
                np.testing.assert_array_equal(item.weights, theirs)
    analyse(pretrained)
    # its generate needs another package
    if pretrained.head in ("next", "seq2seq") and model_type != "vibevoice":
        check_generation(pretrained, model_type)
    return "drawn"


def check_generation(pretrained, model_type):
    """Each step's logits by the cache, by one pass over the whole, and by the library's own generate are the same."""
    model, start = pretrained.model, prepare_generation(pretrained, replace(GIVEN, target=None))
    uneven(model)
    for module in model.modules():  # an indexer takes all keys: equal scores have no order
        if hasattr(module, "index_topk"):
            module.index_topk = WORDS
    before, ids = start.prompt.prefix_tokens, torch.tensor([start.prompt.prefix_tokens])
    given = start.batch or {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    with library_attention():
        theirs = transformers.GenerationMixin.generate(
            model,
            **given,
            max_new_tokens=STEPS,
            min_new_tokens=STEPS,
            do_sample=False,
            num_beams=1,
            return_dict_in_generate=True,
            output_logits=True,
            use_cache=text_config(model).model_type not in WRONG_CACHES,
        )
    tokens, steps = theirs.sequences[0, -STEPS:].tolist(), []
    decoder = DecoderAdapter(pretrained, before[:-1] if start.batch is not None else ())
    memory = decoder.encode(start.prompt.source, start.prompt.mask)
    state = decoder.start(memory)
    for token in (before[-1], *tokens[:-1]):
        logits, state, _ = decoder.step(memory, state, torch.tensor([token]))
        steps.append(logits)
    expected = torch.cat(theirs.logits)
    # as beams: a row that goes on from another
    both: Any = tuple(torch.cat([one, one]) for one in memory)
    state = decoder.start(memory)
    state = replace(state, ids=torch.cat([state.ids, state.ids]))
    for index, token in enumerate((before[-1], *tokens[:-1])):
        fed = torch.tensor([token ^ (index == 1), token])
        logits, state, _ = decoder.step(both, state, fed)
        state = state.pick(torch.tensor([1, 0])) if index == 1 else state
    torch.testing.assert_close(
        logits[0], expected[-1], rtol=0, atol=1e-5 + 1e-4 * float(expected.abs().max())
    )
    for found in (torch.cat(steps), score_continuation(pretrained, start, tokens).logits):
        torch.testing.assert_close(
            found, expected, rtol=0, atol=1e-5 + 1e-4 * float(expected.abs().max())
        )


def test_an_unused_cache_gives_another_text():
    # Each family of WRONG_CACHES differs with its cache, so that a mended one leaves the list.
    for model_type in WRONG_CACHES:
        model = uneven(built(model_type).model)
        ids = torch.randint(5, 100, (1, 12))
        both = [
            transformers.GenerationMixin.generate(
                model,
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=STEPS,
                min_new_tokens=STEPS,
                do_sample=False,
                return_dict_in_generate=True,
                output_logits=True,
                use_cache=used,
            ).logits
            for used in (True, False)
        ]
        apart = [float((one - other).abs().max()) for one, other in zip(*both, strict=True)]
        assert apart[0] < 1e-4 < max(apart), model_type


BUILT = [name for name in ARCHITECTURES if not EXPECTED.get(name, "").startswith("not built")]


def test_table_has_every_architecture_and_no_other_reason():
    assert set(EXPECTED) == set(ARCHITECTURES)
    reasons = {one for one in EXPECTED.values() if not one.startswith("not built")}
    assert reasons == {"drawn", *REASONS}


DRAWN = [name for name, how in EXPECTED.items() if how == "drawn"]


# NemotronH saves a table of whole numbers.
@each("model_type", [*DRAWN[::25], "nemotron_h_omni", "pix2struct"])
def test_what_is_drawn_is_opened_from_its_folder(model_type, tmp_path_factory):
    # From the folder as the library writes it, which names its class, and what prepares its inputs beside it.
    pretrained, folder = built(model_type), tmp_path_factory.mktemp("opened")
    reader = pretrained.tokenizer
    pretrained.model.save_pretrained(folder)
    if pretrained.reads == "picture":
        (folder / "preprocessor_config.json").write_text(
            json.dumps({"size": reader.size}), encoding="utf-8"
        )
    part = "feature_extractor" if pretrained.reads == "sound" else "tokenizer"
    getattr(reader, part, reader).save_pretrained(folder)
    found = load_folder(folder, model_type)
    for name in ("head", "reads", "recordable"):
        assert getattr(found, name) == getattr(pretrained, name), name
    assert type(found.model) is type(pretrained.model)
    assert found.notes == ()


# Families that multiply queries, keys and values in their own code, against the library alone.


OWN_CODE = (
    *(
        "gpt_neo",
        "bloom",
        "falcon",
        "mpt",
        "deberta",
        "deberta-v2",
        "xlnet",
        "openai-gpt",
        "xglm",
        "big_bird",
    ),
    *(
        "bigbird_pegasus",
        "blip_vision_model",
        "clvp_decoder",
        "clvp_encoder",
        "convbert",
        "data2vec-vision",
    ),
    *("flaubert", "flava_image_model", "flava_text_model", "fsmt", "git", "gpt_neox_japanese"),
    *(
        "groupvit_text_model",
        "imagegpt",
        "luke",
        "megatron-bert",
        "mgp-str",
        "mpnet",
        "mvp",
        "rembert",
    ),
    *("roformer", "tapas", "trocr", "visual_bert", "vitdet", "xlm"),
)


def rows_of(pretrained):
    """Two sentences in one batch, the first of them padded on the right; or two pictures."""
    texts = ("The animal did cross.", "The animal did not cross the street.")
    ids = [encode(pretrained, replace(GIVEN, text=text))[0] for text in texts]
    if "input_ids" not in ids[0]:
        return {name: torch.cat([values, values.flip(-1)]) for name, values in ids[0].items()}
    length = max(one["input_ids"].shape[1] for one in ids)
    batch = {
        name: torch.cat(
            [torch.nn.functional.pad(one[name], (0, length - one[name].shape[1])) for one in ids]
        )
        for name in ids[0]
        if ids[0][name].shape[1] == ids[0]["input_ids"].shape[1]
    }
    return {name: ids[0][name].repeat(2, 1) for name in ids[0]} | batch


def answer_in(output):
    """The logits or states that a model gives."""
    first = output.logits if getattr(output, "logits", None) is not None else output[0]
    return states_of(first)


# What a config changes in such code, and classes whose answer is shown
DISTANCES = {
    "relative_attention": True,
    "pos_att_type": ["c2p", "p2c"],
    "max_relative_positions": 4,
}
VARIANTS = [
    ("BloomForCausalLM", {"hidden_size": 24, "n_head": 3, "apply_residual_connection_post_layernorm": True}),
    ("BloomForCausalLM", {"pretraining_tp": 2, "slow_but_exact": True}),
    ("FalconForCausalLM", {"alibi": True, "multi_query": False, "parallel_attn": False}),
    ("FalconForCausalLM", {"new_decoder_architecture": True, "num_kv_heads": 2}),
    ("MptForCausalLM", {"d_model": 24, "n_heads": 3, "attn_config": {"clip_qkv": 0.5}}),
    ("DebertaForMaskedLM", DISTANCES), ("DebertaV2ForMaskedLM", {**DISTANCES, "position_buckets": 4}),
    ("DebertaV2ForSequenceClassification", {**DISTANCES, "share_att_key": True}),
    ("XLNetModel", {}), ("XLNetForSequenceClassification", {}), ("BigBirdForMaskedLM", {"attention_type": "original_full"}),
    ("RoFormerForMaskedLM", {"rotary_value": True}), ("XLMWithLMHeadModel", {"causal": True}),
    ("ImageGPTForImageClassification", {"scale_attn_by_inverse_layer_idx": True, "reorder_and_upcast_attn": True}),
]  # fmt: skip


@each(("name", "changes"), VARIANTS)
def test_own_code_is_right_in_each_of_its_ways(name, changes, monkeypatch):
    monkeypatch.setattr("core.interpret.evidence.MAX_FLOW", 0)
    pretrained = small(getattr(transformers, name), **changes)
    check_own_code(pretrained)
    assert wrong(pretrained) == {}


@each("model_type", OWN_CODE)
def test_own_code_is_recorded_as_the_library_runs_it(model_type):
    check_own_code(built(model_type))


def check_own_code(pretrained):
    model, batch = uneven(pretrained.model), rows_of(pretrained)
    assert pretrained.recordable
    output, recorder = forward(pretrained, batch, with_qkv=True)
    plain, weights = own(pretrained, batch)
    torch.testing.assert_close(answer_in(output), answer_in(plain), rtol=0, atol=0)
    calls = sorted(recorder.calls, key=lambda call: ("self", "causal", "cross").index(call.kind))
    assert len(calls) == len(weights)
    for call, expected in zip(calls, weights, strict=True):
        torch.testing.assert_close(call.weights, expected, rtol=0, atol=0)
    # Without the columns of W_O, and with one row's part of what goes into it in the other row
    call, heads = calls[-1], call.weights.shape[1]
    gone = forward(pretrained, batch, off=frozenset({(call.kind, call.layer, heads - 1)}))[0]
    other, whole = call.replaceable[1], call.replaceable
    moved = forward(pretrained, batch, patches=[(0, call.kind, call.layer, 1, other)])[0]
    bare, size = deepcopy(model), call.replaceable.shape[-1]

    def replaced(module, inputs):
        values = inputs[0].clone()
        rows = values.transpose(0, 1) if model.config.model_type == "fsmt" else values
        rows[0, ..., size : 2 * size] = rows[1, ..., size : 2 * size]
        return (values,)

    if model.config.model_type == "xlnet":
        bare.get_submodule(call.name).o[:, -1] = 0
        expected = own(replace(pretrained, model=bare), batch)[0]
        torch.testing.assert_close(answer_in(gone), answer_in(expected), rtol=1e-4, atol=1e-5)
    else:
        name = next(name for name, one in model.named_modules() if one is w_o(model, call))
        columns = bare.get_submodule(name).weight
        columns = columns if type(w_o(model, call)).__name__ == "Conv1D" else columns.T
        columns[(heads - 1) * size : heads * size] = 0
        expected = own(replace(pretrained, model=bare), batch)[0]
        torch.testing.assert_close(answer_in(gone), answer_in(expected), rtol=1e-4, atol=1e-5)
        with hooked([w_o(model, call).register_forward_pre_hook(replaced)]):
            expected = own(pretrained, batch)[0]
        torch.testing.assert_close(answer_in(moved), answer_in(expected), rtol=1e-4, atol=1e-5)
    for changed in (gone, moved):
        assert float((answer_in(changed) - answer_in(plain)).abs().max()) > 1e-3
    # A head's slopes sum to how the answer moves as it is turned up
    output, recorder = forward(pretrained, batch, probe=True)
    mixed = torch.arange(answer_in(output)[0].numel()).sin().reshape(answer_in(output)[0].shape)
    call = next(one for one in recorder.calls if (one.kind, one.layer) == (call.kind, call.layer))
    (slopes,) = torch.autograd.grad((answer_in(output)[0] * mixed).sum(), call.probe)
    ends = []
    for more in (0.01, -0.01):
        patch = (0, call.kind, call.layer, 1, whole[0] * (1 + more))
        turned = forward(pretrained, batch, patches=[patch])[0]
        ends.append(float((answer_in(turned)[0] * mixed).sum()))
    total = float((call.weights.detach() * slopes)[0, 1].sum())
    assert total == pytest.approx((ends[0] - ends[1]) / 0.02, rel=0.02, abs=2e-3)


def w_o(model, call):
    """The output projection; ConvBERT's gets a convolution's result beside the heads'."""
    beside = call.name.rpartition(".")[0]
    return call.output or model.get_submodule(f"{beside}.output.dense")


# What is told apart in the scores of such a family, worked out from its matrices.


PROJECTIONS = (
    *(("q_proj", "k_proj", "v_proj"), ("query", "key", "value"), ("q_lin", "k_lin", "v_lin"), ("q", "k", "v")),
    ("query_proj", "key_proj", "value_proj"),
)  # fmt: skip


def separate(module, x, heads):
    """q, k, v (B, H, T, D) by three matrices."""
    names = next(names for names in PROJECTIONS if hasattr(module, names[0]))
    return [getattr(module, name)(x).unflatten(-1, (heads, -1)).transpose(1, 2) for name in names]


def fused(name, *order):
    """The same by one matrix, whose outputs have these axes: 3 for q, k and v, else the heads' and their own."""

    def split(module, x, heads):
        sizes = [3 if axis == 3 else heads if axis == "h" else -1 for axis in order]
        made = getattr(module, name)(x).unflatten(-1, sizes)
        return made.movedim(2 + order.index(3), 0).transpose(2, 3)

    return split


def grouped_kv(groups):
    """Falcon's: of each group its queries, a key and a value."""

    def split(module, x, heads):
        made = module.query_key_value(x).unflatten(-1, (groups, heads // groups + 2, -1))
        parts = made[..., :-2, :], made[..., -2:-1, :], made[..., -1:, :]
        return [repeat_heads(one.flatten(2, 3).transpose(1, 2), heads) for one in parts]

    return split


def in_proj(module, x, heads):
    """DeBERTa's: q, k and v of one head after another, without biases in the matrix."""
    q, k, v = module.in_proj(x).unflatten(-1, (heads, 3, -1)).unbind(3)
    q, v = q + module.q_bias.unflatten(0, (heads, -1)), v + module.v_bias.unflatten(0, (heads, -1))
    return [one.transpose(1, 2) for one in (q, k, v)]


def xlnet(module, x, heads):
    q, k, v = (torch.einsum("tbc,chd->bhtd", x, one) for one in (module.q, module.k, module.v))
    return [q + module.r_w_bias[:, None], k, v]


def alibi(slopes, scale=1.0):
    def bias(module, q, k, x):
        return scale * torch.tensor(slopes)[:, None, None] * torch.arange(k.shape[2])

    return bias


def disentangled(key, query, span):
    """DeBERTa's two terms of content and distance, one cell after another."""

    def bias(module, q, k, x):
        table = SPANS[0]  # (2 · span, C)
        by_head = [
            getattr(module, name)(table).unflatten(-1, (q.shape[1], -1)) for name in (key, query)
        ]
        cells = torch.zeros(*q.shape[:3], k.shape[2])
        for i in range(q.shape[2]):
            for j in range(k.shape[2]):
                far = min(max(i - j + span, 0), 2 * span - 1)
                cells[:, :, i, j] = (q[:, :, i] * by_head[0][far]).sum(-1)
                cells[:, :, i, j] += (k[:, :, j] * by_head[1][far]).sum(-1)
        return cells * (3 * q.shape[-1]) ** -0.5

    return bias


SPANS: list[Any] = []  # the table of a layer's call


def relative(module, q, k, x):
    """XLNet's terms of distance and of segment, which is the same for all tokens here."""
    q, size = q - module.r_w_bias[:, None], module.d_model
    cells = torch.zeros(*q.shape[:3], k.shape[2])
    frequencies = 10_000 ** (-torch.arange(0, size, 2) / size)
    for i in range(q.shape[2]):
        for j in range(k.shape[2]):
            angles = (i - j) * frequencies
            r = torch.einsum("c,chd->hd", torch.cat([angles.sin(), angles.cos()]), module.r)
            cells[:, :, i, j] = ((q[:, :, i] + module.r_r_bias) * r).sum(-1)
            cells[:, :, i, j] += ((q[:, :, i] + module.r_s_bias) * module.seg_embed[0]).sum(-1)
    return cells * q.shape[-1] ** -0.5


def test_falcon_adds_alibi_once_as_it_was_trained():
    # The library's eager code adds it twice; what it runs without a choice of ours is right.
    ours = small(transformers.FalconForCausalLM, alibi=True)
    theirs = transformers.FalconForCausalLM(shrunk(transformers.FalconConfig, {"alibi": True}))
    theirs.load_state_dict(uneven(ours.model).state_dict())
    batch = encode(ours, GIVEN)[0]
    apart = []
    for way in ("sdpa", "eager"):
        theirs.config._attn_implementation = way
        with torch.no_grad():
            expected = theirs.eval()(**batch).logits
        apart.append(float((forward(ours, batch)[0].logits - expected).abs().max()))
    assert apart[0] < 1e-5 < 1e-2 < apart[1]


THIRD = "thirds"  # scaled by 1/√(3D)
# The class, changes of its config, q k v by its matrices, what the scores have beside, and "first" where it rotates
TERMS = [
    *((name, {}, separate, None, "") for name in (
        "GPTNeoForCausalLM", "XGLMForCausalLM", "BigBirdForMaskedLM", "RemBertForMaskedLM", "MegatronBertForMaskedLM",
        "LukeForMaskedLM", "TapasForMaskedLM", "VisualBertModel", "FlavaTextModel", "GitForCausalLM", "ConvBertForMaskedLM",
        "XLMWithLMHeadModel", "FlaubertWithLMHeadModel", "TrOCRForCausalLM", "MvpForConditionalGeneration",
        "GroupViTTextModel", "ClvpDecoder", "BigBirdPegasusForConditionalGeneration")),
    ("RoFormerForMaskedLM", {}, separate, None, "first"),
    ("OpenAIGPTLMHeadModel", {"n_embd": 24, "n_head": 3}, fused("c_attn", 3, "h", 0), None, ""),
    ("ImageGPTForImageClassification", {}, fused("c_attn", 3, "h", 0), None, ""),
    ("BlipVisionModel", {}, fused("qkv", 3, "h", 0), None, ""),
    ("GPTNeoXJapaneseForCausalLM", {}, fused("query_key_value", "h", 3, 0), None, "first"),
    ("BloomForCausalLM", {"hidden_size": 24, "n_head": 3}, fused("query_key_value", "h", 3, 0),
     alibi([2**-4, 2**-8, 2**-2]), ""),
    ("FalconForCausalLM", {"alibi": True}, grouped_kv(1), alibi([2**-2, 2**-4, 2**-6, 2**-8], 8**-0.5), ""),
    ("FalconForCausalLM", {"new_decoder_architecture": True, "num_kv_heads": 2}, grouped_kv(2), None, "first"),
    ("FalconForCausalLM", {"multi_query": False}, fused("query_key_value", "h", 3, 0), None, "first"),
    ("MptForCausalLM", {"d_model": 24, "n_heads": 3}, fused("Wqkv", 3, "h", 0), alibi([2**-4, 2**-8, 2**-2]), ""),
    ("DebertaForMaskedLM", DISTANCES, in_proj, disentangled("pos_proj", "pos_q_proj", 4), THIRD),
    ("DebertaV2ForMaskedLM", DISTANCES, separate, disentangled("pos_key_proj", "pos_query_proj", 4), THIRD),
    ("DebertaV2ForMaskedLM", DISTANCES | {"share_att_key": True}, separate, disentangled("key_proj", "query_proj", 4), THIRD),
    ("XLNetModel", {}, xlnet, relative, ""),
]  # fmt: skip


NO_CIRCUITS = ("XLNetModel", "ConvBertForMaskedLM")
CONV1D = ("OpenAIGPT", "ImageGPT")  # whose matrices are (in, out)


def folded(rows, norm):
    """Matrices (H, C, D) after a LayerNorm, whose gain and centering are folded in."""
    if norm is None:
        return rows
    rows = norm.weight[:, None] * rows
    centers = type(norm).__name__ != "ImageGPTLayerNorm"
    return rows - rows.mean(1, keepdim=True) * centers


@each(("name", "changes", "split", "beside", "how"), TERMS)
def test_scores_of_own_code_are_the_terms_of_its_matrices(name, changes, split, beside, how):
    pretrained = small(getattr(transformers, name), **changes)
    given, weights = {}, dict(pretrained.model.named_parameters())
    sines = {key: weights[key].clone() for key in weights if "encoder.embed_positions" in key}
    uneven(pretrained.model)
    for key, values in sines.items():  # RoFormer's angles
        weights[key].copy_(values)

    def note(module, args, named):
        given[module] = args[0] if args else named["hidden_states"]
        SPANS[:] = [named["rel_embeddings"]] if "rel_embeddings" in named else []

    def note_norm(module, args, output):
        norms.append((module, output))

    batch, norms = rows_of(pretrained), list[Any]()
    calls = forward(pretrained, batch, with_qkv=True)[1].calls
    hooks = [call.module.register_forward_pre_hook(note, with_kwargs=True) for call in calls]
    hooks += [
        one.register_forward_hook(note_norm)
        for one in pretrained.model.modules()
        if type(one).__name__.endswith("LayerNorm")
    ]
    forward(pretrained, batch, hooks=hooked(hooks))
    matrices = () if name in NO_CIRCUITS else read_heads(pretrained)
    of_heads = {(one.kind, one.layer): one for one in matrices}
    for call in [one for one in calls if one.kind != "cross"][:2]:
        heads, x = call.weights.shape[1], given[call.module]
        q, k, v = split(call.module, x, heads)
        places = slice(1 if how == "first" else None)  # the first place turns by an angle of 0
        scale = {THIRD: (3 * q.shape[-1]) ** -0.5}.get(how, q.shape[-1] ** -0.5)
        scale = 1.0 if name == "GPTNeoForCausalLM" else scale
        theirs = (q[..., places, :] @ k[..., places, :].mT) * scale
        ours = call.q[..., places, :] @ repeat_heads(call.k, heads)[..., places, :].mT
        close(ours * call.options["scaling"], theirs)
        close(repeat_heads(call.v, heads)[..., places, :], v[..., places, :])
        if one := of_heads.get((call.kind, call.layer)):
            norm = next((norm for norm, output in norms if output.data_ptr() == x.data_ptr()), None)
            unit = torch.eye(x.shape[-1])[None]
            made = zip(
                split(call.module, unit, heads), split(call.module, 0 * unit, heads), strict=True
            )
            w_q, w_k, w_v = (folded((by_unit - by_zero)[0], norm) for by_unit, by_zero in made)
            factor = q.shape[-1] ** -0.5 if one.scale is None else one.scale
            close(one.w_q @ one.w_k.mT * factor, w_q @ w_k.mT * scale)
            columns = call.output.weight if name.startswith(CONV1D) else call.output.weight.T
            close(one.w_v @ one.w_o, w_v @ columns.unflatten(0, (heads, -1)))
        if name == "XLNetModel":  # its W_O is no module
            norm = call.module.layer_norm
            summed = torch.einsum("bthe,hec->tbc", call.gated, output_matrix(call))
            close(norm(summed + x), next(output for one, output in norms if one is norm))
        bias = call.options["position_bias"]
        if beside is None:
            assert bias is None
            continue
        # Up to one number a row, which no weight depends on
        both = [
            one.double().masked_fill(~call.mask, 0) for one in (bias, beside(call.module, q, k, x))
        ]
        first = [one - one[..., :1] * call.mask for one in both]
        close(*first)
        assert float(first[0].abs().max()) > 1e-3


@each(
    ("name", "norm"),
    [("BloomForCausalLM", "post_attention_layernorm"), ("MptForCausalLM", "norm_2"), ("GPTNeoForCausalLM", "ln_2"),
     ("Pix2StructTextModel", "mlp.layer_norm")],
)  # fmt: skip
def test_a_feed_forward_network_is_what_it_adds(name, norm):
    # A layer's output less the network's is what the norm before the network gets.
    pretrained = small(getattr(transformers, name))
    given: dict[Any, Any] = {}
    states: dict[Any, Any] = {}
    uneven(pretrained.model)
    batch = rows_of(pretrained)
    calls = forward(pretrained, batch, with_qkv=True)[1].calls
    for block, inner in blocks_of(pretrained.model, calls).values():
        module = pretrained.model.get_submodule(f"{block}.{norm}")
        before = module.register_forward_pre_hook(lambda module, args: given.update(x=args[0]))
        with hooked([before]):
            forward(pretrained, batch, hooks=read_outputs(pretrained.model, [block, inner], states))
        close(states[block] - states[inner], given["x"])


@each(("model_type", "norm"), [("dinov3_vit", "norm1"), ("moonshine", "input_layernorm")])
def test_circuits_of_rotated_patches_are_their_matrices(model_type, norm):
    # Their angles are of all positions, and unit vectors are read at one.
    case = Case(built(model_type))
    one, call = read_heads(case.pretrained)[0], case.calls[0]
    before = case.pretrained.model.get_submodule(f"{call.name.rpartition('.')[0]}.{norm}")
    heads = call.q.shape[1]
    w_q, w_k, w_v = (
        folded(
            getattr(call.module, f"{part}_proj").weight.T.unflatten(1, (heads, -1)).movedim(1, 0),
            before,
        )
        for part in "qkv"
    )
    close(one.w_q @ one.w_k.mT, w_q @ w_k.mT)
    close(one.w_v @ one.w_o, w_v @ call.module.o_proj.weight.T.unflatten(0, (heads, -1)))


# Families whose attention is not recorded, and a word of why.
WHY = {
    "blip": "beside their encoder", "cpmant": "learned tokens", "ibert": "whole numbers", "led": "windows",
    "lilt": "layout", "longformer": "windows", "longt5": "windows", "nystromformer": "landmarks", "pegasus_x": "windows",
    "reformer": "hash", "vits": "distance", "wavlm": "mean of its heads",
}  # fmt: skip


@each("model_type", WHY)
def test_what_is_not_recorded_says_why(model_type):
    pretrained = built(model_type)
    assert WHY[model_type] in pretrained.not_recorded
    batch = encode(pretrained, GIVEN)[0]
    for more in ({"with_qkv": True}, {"probe": True}, {"off": frozenset({("self", 0, 1)})}):
        pytest.raises(PretrainedError, forward, pretrained, batch, **more).match(WHY[model_type])
    talking = small(transformers.DebertaForMaskedLM, talking_head=True, relative_attention=True)
    assert "mixes the scores of its heads" in talking.not_recorded


# Each analysis of every architecture: a number that keeps its rule, or a true sentence.


SHORT = "The animal did cross the street."
GROUPS = 12


def close(one, other):
    """Equal to 1e-4 of the largest value."""
    one, other = (torch.as_tensor(np.asarray(values)).double() for values in (one, other))
    assert one.shape == other.shape and one.isfinite().all()
    assert float((one - other).abs().max()) <= 1e-4 * float(other.abs().max()) + 1e-5


class Case:
    """A tiny model with uneven weights, its inputs, and what several analyses share."""

    def __init__(self, pretrained):
        self.pretrained = pretrained
        uneven(pretrained.model)
        text = SHORT.replace("animal", "[MASK]") if self.pretrained.head == "masked" else SHORT
        self.inputs = replace(GIVEN, text=text)
        self.trace = read(self.pretrained, self.inputs).trace

    @cached_property
    def baseline(self):
        against = (
            "Nine boats."
            if self.pretrained.head == "none" and self.pretrained.reads == "text"
            else ""
        )
        return ask(self.pretrained, Question(self.inputs, against=against))

    @cached_property
    def batch(self):
        return encode(self.pretrained, self.inputs)[0]

    @cached_property
    def calls(self):
        return forward(self.pretrained, self.batch, with_qkv=True)[1].calls

    @cached_property
    def attentions(self):
        return [call for call in self.calls if not call.state]

    @cached_property
    def layers(self):
        return layer_attentions(self.pretrained, self.inputs).values()

    @cached_property
    def first_off(self):
        return ablate_heads(self.baseline, self.first()).value

    @cached_property
    def contributions(self):
        return measure_contributions(self.baseline)

    @cached_property
    def vocabularies(self):
        return read_vocabularies(self.pretrained)

    def first(self):
        return frozenset({(self.trace.maps[0].kind, 0, 0)})


def rotation(case):
    # Before rotation are the q and k that the layer makes of the same input with all angles 0; none where that is q.
    inputs: dict[Any, Any] = {}

    def note(module, values, named):
        if isinstance(angles := named.get("position_embeddings"), tuple) and len(angles) == 2:
            inputs.setdefault(module, []).append((values, named))

    model, modules = case.pretrained.model, {call.module for call in case.attentions}
    forward(
        case.pretrained,
        case.batch,
        hooks=hooked(one.register_forward_pre_hook(note, with_kwargs=True) for one in modules),
    )
    for layer, call in zip(case.layers, case.attentions, strict=True):
        if call.module not in inputs or hasattr(call.module, "lambda_init"):
            continue
        values, named = inputs[call.module].pop(0)
        angles = named["position_embeddings"]
        upright = [torch.ones_like(angles[0]), torch.zeros_like(angles[1])]
        if case.pretrained.name in SINE_FIRST:
            upright.reverse()
        still = {**named, "position_embeddings": tuple(upright), "cache": None}
        with record_attention(model, with_qkv=True) as recorder, torch.no_grad():
            call.module(*values, **still)
        for name in "qk":
            whole, before = getattr(call, name)[0], getattr(layer, f"unrotated_{name}")
            at_rest = getattr(recorder.calls[0], name)[0]
            turns = not torch.allclose(at_rest, whole, atol=1e-4)
            if case.pretrained.name in UNKNOWN_ROTATION:
                assert before is None
                continue
            assert turns == (before is not None)
            if before is not None:
                after = getattr(layer, f"rotated_{name}")
                close(at_rest * (whole if after is None else after), whole * before)


def breakdown(case):
    # Scores by q·k, the model's scale, bias, cap and mask give the weights that were recorded.
    for layer, item in zip(case.layers, case.attentions, strict=True):
        if "lambda_init" not in vars(item.module) and item.q.shape[-2:] == layer.q.shape[-2:]:
            head, query = item.weights.shape[1] - 1, item.weights.shape[2] - 1
            close(break_down_weight(layer, head, query, 0).weights, item.weights[0, head, query])


def written(case):
    # The heads' parts sum to what W_O gives, which is the output of the module that it is in.
    given = defaultdict(list)

    def note(module, inputs, output):
        given[module].append(states_of(output).detach().clone())

    modules = {call.module for call in case.calls} | {
        call.output for call in case.calls if call.output is not None
    }
    forward(
        case.pretrained,
        case.batch,
        hooks=hooked(module.register_forward_hook(note) for module in modules),
    )
    measured = case.contributions
    for call in case.calls:
        inside = given[call.module].pop(0)
        if (matrix := output_matrix(call)) is None:
            assert (call.kind, call.layer) not in measured.norms
            continue
        if call.output is not None:
            out, bias = given[call.output].pop(0), getattr(call.output, "bias", None)
            parts = torch.einsum("bthe,hec->btc", call.gated, matrix)
            close((parts + (0 if bias is None else bias.detach())).reshape(out.shape), out)
            adds = ("AlbertAttention", "BloomAttention")  # the residual
            alone = type(call.module).__name__ not in adds
            if alone and call.output in set(call.module.modules()):
                close(out.reshape(inside.shape), inside)
        if (norms := measured.norms.get((call.kind, call.layer))) is not None:
            head, row = len(matrix) - 1, call.weights.shape[2] - 1
            ratio = torch.where(call.out == 0, 0.0, call.gated / call.out)[0, row, head]
            values = repeat_heads(call.v, len(matrix))[0, head] * ratio
            vectors = (call.weights[0, head, row, :, None] * values) @ matrix[head]
            close(vectors.sum(0), call.gated[0, row, head] @ matrix[head])
            at = np.broadcast_to(norms[head], (row + 1, norms.shape[-1]))[row]
            close(at * call.weights[0, head, row].abs().numpy(), vectors.norm(dim=-1))


def tokens(case):
    # Each measure is a finite number a token; rollout's rows are shares of the attention layers.
    scores = token_scores(case.baseline, case.trace, case.contributions)
    assert {"weights", "rollout"} <= set(scores)
    assert all(
        one.shape == (len(case.baseline.source),) and np.isfinite(one).all()
        for one in scores.values()
    )
    last = case.trace.maps[-1]
    shares = rollout(graph(case.trace, last.kind, last.layer)).sum(-1)
    assert (shares <= 1 + 1e-6).all() and (last.kind == "cross" or np.abs(shares - 1).max() < 1e-5)


def off(case):
    # A head off is the model without its part of what goes into W_O.
    call = case.calls[0] if case.pretrained.recordable else None
    value = case.first_off
    if call is None or call.output is None:
        assert np.isfinite(value)
        return
    runs = count()

    def without(module, inputs):
        heads = inputs[0].clone().reshape(-1, *call.gated.shape[1:])
        heads[:, :, 0] *= next(runs) > 0  # of the layers that share the module the first
        return heads.reshape(inputs[0].shape), *inputs[1:]

    output, _ = forward(
        case.pretrained,
        case.baseline.batch,
        hooks=hooked([call.output.register_forward_pre_hook(without)]),
    )
    answer = case.baseline.answer_in(case.baseline.batch, output)
    close(value, float(case.baseline.target_value(answer)))


def even(case):
    assert np.isfinite(make_heads_uniform(case.baseline, case.first()).value)
    assert np.isfinite(hide_token(case.baseline, 1).value)


def patch(case):
    # A head's own output changes nothing, and another's, or none, is what a head off gives.
    baseline = case.baseline
    call = next(one for one in case.calls if (one.kind, one.layer) == (case.trace.maps[0].kind, 0))
    out = call.replaceable[0]
    for values, value in ((out, baseline.value), (torch.zeros_like(out), case.first_off)):
        output, _ = forward(
            case.pretrained, baseline.batch, patches=[(0, call.kind, call.layer, 0, values)]
        )
        close(float(baseline.target_value(baseline.answer_in(baseline.batch, output))), value)


def rows(case):
    # Of a batch a change in one row is what it does alone, also where there are as many rows as tokens.
    call, batch = case.calls[-1], case.baseline.batch
    patch = (call.kind, call.layer, 0, torch.zeros_like(call.replaceable[0]))
    output, _ = forward(case.pretrained, batch, patches=[(0, *patch)])
    alone = case.baseline.answer, case.baseline.answer_in(batch, output)
    for size in {3, call.weights.shape[2] if case.pretrained.reads == "picture" else 3}:
        many = {name: one.expand(size, *one.shape[1:]) for name, one in batch.items()}
        try:
            output, _ = forward(case.pretrained, many, patches=[(1, *patch)])
        except PretrainedError:  # it takes one input at a time
            return
        for row, expected in zip((0, 1, 2), (*alone, alone[0]), strict=True):
            got = answer_of(case.pretrained, many, output, case.baseline.question.position, row)
            close(*(case.baseline.target_value(one) for one in (got, expected)))


def pairs(case):
    # The parts of one text put into another: all of a layer's heads together are its attention, numbers are finite.
    swapped = case.inputs.text.replace("cross the street", "street the cross")  # as many tokens
    other = replace(
        case.inputs,
        text=swapped,
        picture=Array.of(case.inputs.picture.numpy()[::-1]),
        sound=Array.of(case.inputs.sound.numpy()[::-1]),
    )
    answers = () if case.baseline.answer.logits is None else (0, 1)
    source = patch_source(pair_of(case.pretrained, case.inputs, other, *answers))
    effect = source.effect(next(iter(source.calls)))
    assert np.isfinite(
        [
            *effect.heads,
            effect.attention,
            *effect.residual,
            *(() if effect.feed_forward is None else (effect.feed_forward,)),
        ]
    ).all()
    assert all(np.isfinite(one).all() for one in estimate_heads(source).values())


def lens(case):
    # The lens of the last layer is the model's own answer, and its layers are those with the recorded attention.
    if case.pretrained.recordable and case.pretrained.head in ("masked", "next", "seq2seq"):
        attended = [call.name for call in case.calls if call.kind != "cross"]
        inside = layers_of(case.pretrained)  # XLM's are lists of their parts
        inside = tuple(f"{one}.".replace(".layer_norm2.", ".attentions.") for one in inside)
        assert f"{attended[-1]}.".startswith(inside)
    baseline, read_ = case.baseline, read_lens(case.baseline)
    last = follow_tokens(baseline, read_, baseline.answer.position, [baseline.id])
    close(float(last.probabilities[-1, 0]), float(baseline.answer.probabilities[baseline.id]))
    assert int(last.ranks[-1, 0]) == 1


def attribution(case):
    # The parts sum to the logit, to 1e-4 of the largest of them, and some part is a head's or a mixer's.
    parts = attribute_logit(case.baseline, case.baseline.id or 0)
    assert abs(parts.total - parts.logit) <= 1e-4 * max(
        abs(parts.logit), *(abs(one.value) for one in parts.parts)
    )
    assert {"head", "mixer"} & {one.role for one in parts.parts}


def circuits(case):
    # Scores and outputs of one token are its state, with the scale of its norm, through the matrices.
    heads, tables = read_heads(case.pretrained), case.vocabularies
    composed = Composer(heads).into(len(heads) - 1).scores.values()
    assert all(bool(one.isfinite().all()) for one in composed)
    for one, call in zip(heads, case.attentions, strict=True):
        assert (one.kind, one.layer) == (call.kind, call.layer)
        scale = call.options.get("scaling")
        assert one.scale is None or one.scale == pytest.approx(scale)
        scores = copying_scores(one, tables)
        assert scores is None or (
            bool(scores.isfinite().all()) and float(scores.abs().max()) <= 1 + 1e-4
        )
        if tables.serves(one):
            assert tables.written(one, 0, 3).isfinite().all()
            if one.w_q is not None and (attended := tables.attended(one, 0, 3)) is not None:
                x, y = tables.embeddings[one.writes][3], tables.embeddings[one.reads][4]
                factor = call.q.shape[-1] ** -0.5 if scale is None else scale
                close(attended[4], (x @ one.w_q[0]) @ (y @ one.w_k[0]) * factor)


def embeddings(case):
    # Between two tokens the input of the first layer differs as their embeddings do, unless a norm comes first.
    batch = case.batch
    if (
        not case.pretrained.reads_text
        or "input_ids" not in batch
        or case.pretrained.model.config.is_encoder_decoder
        or len((tables := case.vocabularies).embeddings) < 2
    ):
        return
    states, (one, other) = [], (5, 6)
    for token in (one, other):
        ids = batch["input_ids"].clone()
        ids[0, 1] = token
        output, _ = forward(case.pretrained, batch | {"input_ids": ids}, output_hidden_states=True)
        if getattr(output, "hidden_states", None) is None:
            return
        states.append(output.hidden_states[0])
    moved, table = (states[0] - states[1])[0], tables.embeddings["causal"]
    raw = case.pretrained.model.get_input_embeddings().weight.detach()
    row = raw[one] - raw[other]
    if (
        moved.ndim == 2
        and moved.shape[-1] == len(row)
        and float(torch.cosine_similarity(moved[1], row, 0)) > 1 - 1e-5
    ):
        close(table[one] - table[other], moved[1])


ANALYSES = (
    rotation,
    breakdown,
    written,
    tokens,
    off,
    even,
    patch,
    rows,
    pairs,
    lens,
    attribution,
    circuits,
    embeddings,
)
# The model was read before, so a sentence that it does not take its inputs would not be true.
FALSE = ("does not take", "cannot read this", "it fails with", "object has no attribute")


def wrong(pretrained):
    """What is wrong in each analysis of one model: it is right, or refused in a sentence that names the cause."""
    case, found = Case(pretrained), {}
    if bool(pretrained.not_recorded) != (pretrained.name in WHY):
        found["recorded"] = pretrained.not_recorded
    for analysis in ANALYSES:
        try:
            analysis(case)
        except PretrainedError as error:
            if len(str(error)) <= 20 or any(part in str(error) for part in FALSE):
                found[analysis.__name__] = str(error)
        except Exception as error:
            found[analysis.__name__] = f"{type(error).__name__}: {first_line(error)}"
    return found


# What was refused, and can be done: each is held against the library's own states or embedding.
@each(
    "model_type",
    "fsmt xlm flaubert bert roberta electra megatron-bert roformer albert dory".split(),
)
def test_the_lens_reads_the_states_of_the_library(model_type):
    case = Case(built(model_type))
    found = read_lens(case.baseline).states
    with library_attention(), torch.no_grad():
        output = case.pretrained.model(
            **case.baseline.batch, use_cache=False, output_hidden_states=True
        )
    states = getattr(output, "decoder_hidden_states", None) or output.hidden_states
    assert case.pretrained.head == "masked" or model_type in ("fsmt", "dory")
    assert len(found) == len(states) or model_type == "dory"  # of passes theirs are the last
    # the last may come after a norm
    for one, expected in zip(
        found[:-1][: 5 if model_type == "dory" else None], states, strict=False
    ):
        close(one, expected[0])


@each("model_type", ("xlm", "flaubert"))
def test_lists_of_parts_are_the_parts_of_a_logit(model_type):
    case = Case(built(model_type))
    attribution(case)
    parts = attribute_logit(case.baseline, case.baseline.id).parts
    written = [one.key for one in parts if one.role == "feed-forward"]
    assert written == [("self", number) for number in range(len(case.trace.maps))]


@each("model_type", WITHOUT_WEIGHTS)
def test_what_has_no_weights_is_read_by_the_lens_and_writes(model_type):
    pretrained = built(model_type)
    uneven(pretrained.model)
    masked = pretrained.head == "masked"
    text = SHORT.replace("animal", "[MASK]") if masked else SHORT
    baseline = ask(pretrained, Question(ModelInputs(text)))
    found = read_lens(baseline).states
    with torch.no_grad():
        output = pretrained.model(**baseline.batch, output_hidden_states=True)
    assert len(found) == pretrained.model.config.num_hidden_layers + 1
    # Mamba's begin after the first layer; the last comes after a norm.
    states = output.hidden_states[:-1]
    for one, expected in zip(found[:-1] if masked else found[1:], states, strict=True):
        close(one, expected[0])
    parts = attribute_logit(baseline, baseline.id)
    assert abs(parts.total - parts.logit) <= 1e-4 * abs(parts.logit) + 1e-4
    with pytest.raises(PretrainedError, match="no attention weights"):
        read(pretrained, ModelInputs(text))
    if not masked:
        check_generation(pretrained, model_type)


def test_a_layer_of_the_lens_has_the_number_of_its_map():
    case = Case(built("hrm_text"))
    names = read_lens(case.baseline).names
    assert names == ("embedding", "L6", "L7", "L14", "L15")
    assert {case.calls[int(name[1:])].name.split(".")[1] for name in names[1:]} == {"H_module"}


def test_an_encoder_of_questions_gives_its_embedding():
    case = Case(built("dpr"))
    with library_attention(), torch.no_grad():
        expected = case.pretrained.model(**case.baseline.batch).pooler_output[0]
    close(case.baseline.answer.vector, torch.nn.functional.normalize(expected, dim=0))


@each("model_type", ("flava", "tipsv2"))
def test_the_text_of_two_towers_gives_its_embedding(model_type):
    case = Case(built(model_type))
    with library_attention(), torch.no_grad():
        output = case.pretrained.model(**case.baseline.batch)
    text = getattr(output, "text_output", None) or output.text_model_output
    mean = text.last_hidden_state[0].mean(0)
    close(case.baseline.answer.vector, torch.nn.functional.normalize(mean, dim=0))


def test_what_sees_all_is_not_causal():
    # Whatever its module says of itself, as the encoders of Phi-4 do
    module: Any = torch.nn.Module()
    module.is_causal = True
    full, half = torch.ones(1, 2, 4, 4), torch.ones(1, 2, 4, 4).tril()
    assert kind_of("vision", module, full, None) == "self"
    assert kind_of("vision", module, full, torch.zeros(1, 1, 1, 4)) == "self"
    assert kind_of("text", module, half, None) == "causal"
    assert kind_of("text", module, half, half[:, :1].log()) == "causal"
    assert kind_of("text", module, half[..., :1, :1], None) == "causal"


@pytest.mark.first
@pytest.mark.parametrize("part", range(GROUPS))
def test_every_architecture_is_drawn(part, monkeypatch):
    monkeypatch.setattr("core.interpret.evidence.MAX_FLOW", 0)  # flow is of the maps alone

    @each("model_type", BUILT[part::GROUPS])
    def check(model_type):
        found: dict[str, str] = {}
        how = outcome(model_type, lambda pretrained: found.update(wrong(pretrained)))
        assert (how, found) == (EXPECTED[model_type], {})

    check()
    gc.collect()


if __name__ == "__main__":
    transformers.utils.logging.set_verbosity_error()
    groups = dict(EXPECTED)
    EXPECTED.clear()  # the size of each is counted anew
    for name in sys.argv[1:] or ARCHITECTURES:
        try:
            groups[name] = outcome(name)
        except Exception as error:
            groups[name] = f"WRONG {type(error).__name__}: {first_line(error)}"
            print(name, groups[name], file=sys.stderr, flush=True)
    TABLE.write_text(json.dumps(groups, indent=0) + "\n", encoding="utf-8")


# An attention function that a person registered with transformers' AttentionInterface.


def half_scale(
    module: Any,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: Any,
    scaling: float,
    **more: Any,
):
    """Half the scale, and a term for the distance; through PyTorch's fused function."""
    place = torch.arange(q.shape[2], dtype=torch.float32)
    bias = -0.3 * (place[:, None] - place).masked_fill(place > place[:, None], torch.inf)
    out = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, bias, scale=scaling / 2, enable_gqa=True
    )
    return out.transpose(1, 2), None


def by_hand(
    module: Any,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: Any,
    scaling: float,
    **more: Any,
):
    weights = (q @ repeat_heads(k, q.shape[1]).mT * scaling / 2).tril().softmax(-1)
    return (weights @ repeat_heads(v, q.shape[1])).transpose(1, 2), None


def by_flex(
    module: Any,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: Any,
    scaling: float,
    **more: Any,
):
    """The same by flex_attention, compiled."""
    from torch.nn.attention.flex_attention import flex_attention

    compiled = torch.compile(flex_attention, backend="eager")
    gone = float("-inf")
    out = compiled(
        q,
        k,
        v,
        lambda score, b, h, i, j: torch.where(i >= j, score - 0.3 * (i - j), gone),
        scale=scaling / 2,
        enable_gqa=True,
    )
    return out.transpose(1, 2), None


def squared(module: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Any, **more: Any):
    """No softmax: nothing of it says which numbers are weights."""
    weights = (q @ repeat_heads(k, q.shape[1]).mT).square().tril()
    return (weights @ repeat_heads(v, q.shape[1])).transpose(1, 2), None


def sums_to_less(
    module: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Any, **more: Any
):
    weights = (q @ repeat_heads(k, q.shape[1]).mT).softmax(-1).tril()
    return (weights @ repeat_heads(v, q.shape[1])).transpose(1, 2), weights


@pytest.fixture
def registered(tmp_path, monkeypatch):
    """A folder of a model whose config names a function, which is registered for this test."""
    table = transformers.AttentionInterface._global_mapping
    monkeypatch.setattr(transformers.AttentionInterface, "_global_mapping", dict(table))

    def make(function: Any, family: str = "llama", key: str = "attn_implementation") -> Path:
        transformers.AttentionInterface.register(function.__name__, function)
        folder = save(family, tmp_path / family)
        file = folder / "config.json"
        file.write_text(
            json.dumps(json.loads(file.read_text("utf-8")) | {key: function.__name__}), "utf-8"
        )
        return folder

    return make


@pytest.mark.filterwarnings("ignore:flex_attention called without")
@pytest.mark.parametrize("function", [half_scale, by_hand, by_flex])
@pytest.mark.parametrize("key", ["attn_implementation", "_attn_implementation"])
def test_registered_attention_runs_and_is_read(registered, function, key):
    folder = registered(function, key=key)
    kind = transformers.LlamaForCausalLM
    theirs = kind.from_pretrained(folder, attn_implementation=function.__name__).eval()
    ours = load_folder(folder, "mine")
    batch = encode(ours, ModelInputs(SENTENCE))[0]
    with torch.no_grad():
        expected = theirs(**batch).logits
    output, recorder = forward(ours, batch, with_qkv=True)
    torch.testing.assert_close(output.logits, expected, rtol=1e-4, atol=1e-5)
    plain_logits = forward(tiny("llama"), batch)[0].logits
    assert (output.logits - plain_logits).abs().max() > 1e-2
    for call in recorder.calls:
        out = call.weights @ repeat_heads(call.v, call.weights.shape[1])
        torch.testing.assert_close(out.transpose(1, 2), call.out, rtol=1e-4, atol=1e-5)
        assert call.kind == "causal" or function is by_hand
    again = load_folder(folder, "again")  # whose function is wrapped already
    assert torch.equal(forward(again, batch)[0].logits, output.logits)


def test_scores_of_a_registered_attention_give_its_weights(registered):
    ours = load_folder(registered(half_scale), "mine")
    baseline = read(ours, SENTENCE)
    attentions = layer_attentions(ours, ModelInputs(SENTENCE))
    for layer, one in enumerate(
        attentions.values() if isinstance(attentions, dict) else attentions
    ):
        part = break_down_weight(one, 1, 5, 3)
        np.testing.assert_allclose(
            part.weights, baseline.trace.maps[layer].weights[1, 5], 1e-3, 1e-4
        )


@pytest.mark.parametrize(
    "function, why",
    [(squared, "The attention function squared that the model's config names ran, and its weights cannot be read"),
     (sums_to_less, "")],
)  # fmt: skip
def test_registered_attention_that_cannot_be_read_says_so(registered, function, why):
    ours = load_folder(registered(function), "mine")
    if why:
        with pytest.raises(PretrainedError, match=why):
            read(ours, SENTENCE)
        return
    assert read(ours, SENTENCE).trace.maps[0].weights[:, 0, 1:].max() == 0
    batch = encode(ours, ModelInputs(SENTENCE))[0]
    with pytest.raises(PretrainedError, match="do not sum to 1"):
        forward(ours, batch, with_qkv=True)


def test_own_code_that_calls_no_registered_attention_says_so(registered):
    notes = load_folder(registered(half_scale, "gpt_neo"), "mine").notes
    assert any("names the attention half_scale" in note and "never calls" in note for note in notes)
