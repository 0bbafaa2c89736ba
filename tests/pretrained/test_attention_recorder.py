"""The seam: who watches sees its own pass alone, and the model stays as it was."""

import inspect
import json
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers.initialization import no_init_weights

from core.pretrained import Array, ModelInputs, PretrainedError, answer, encode, forward, read
from core.pretrained.attention_recorder import record_attention
from core.pretrained.base import first_line, text_config
from core.pretrained.generate import (
    WRONG_CACHES,
    DecoderAdapter,
    prepare_generation,
    score_continuation,
)
from core.pretrained.load import load_folder, prepare_model, refuse_config
from core.pretrained.reading import unblocked
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
from tests.tiny_models import OTHER, SENTENCE, given, library_attention, plain, tiny, tokenizer


def test_two_threads_on_one_model_never_see_each_other():
    model, meet = tiny("bert").model, threading.Barrier(2)
    offs = {SENTENCE: frozenset(), OTHER: frozenset({("self", 0, 1)})}
    batches = {text: encode(tiny("bert"), given("bert", text))[0] for text in offs}
    results: dict[str, list[tuple[Any, Any]]] = {text: [] for text in offs}

    def watch_one(text):
        with record_attention(model, off=offs[text]) as recorder, torch.no_grad():
            meet.wait()
            for _ in range(20):
                recorder.calls.clear()
                results[text].append((model(**batches[text]).logits, recorder.calls.copy()))

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(watch_one, batches))
    for text, off in offs.items():
        output, recorder = forward(tiny("bert"), batches[text], off=off)
        for logits, seen in results[text]:
            assert [one.layer for one in seen] == [0, 1]
            for one, other in zip(seen, recorder.calls, strict=True):
                assert torch.equal(one.weights, other.weights)
            torch.testing.assert_close(logits, output.logits)


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


@each("family", ["bert", "llama", "gpt_oss", "diffllama"])
def test_a_head_that_is_off_is_a_head_whose_columns_of_w_o_are_zero(family):
    """The same as the library's model with those columns set to zero; DiffLlama folds two heads before W_O."""
    batch, *_ = encode(tiny(family), given(family))
    kind, model = "self" if family == "bert" else "causal", deepcopy(plain(family))
    output, recorder = forward(tiny(family), batch, off=frozenset({(kind, 1, 2)}))
    with torch.no_grad():
        if family == "diffllama":
            assert not torch.allclose(output.logits, model(**batch).logits, atol=1e-3)
            assert len(recorder.calls) == 2
            return
        own = "bert.encoder.layer.1.attention.output.dense"
        name = own if family == "bert" else "model.layers.1.self_attn.o_proj"
        model.get_submodule(name).weight[:, 16:24] = 0
        torch.testing.assert_close(output.logits, model(**batch).logits, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", ["bert", "gpt_oss", "t5"])
def test_a_probe_s_gradient_is_what_a_little_more_weight_does(family, monkeypatch):
    """Held against a difference: one weight of the second layer a little larger and smaller."""
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


HYBRIDS = {  # the layers that attend, and a word for what the others do
    "jamba": ((1, 4), "Mamba"), "bamba": ((2, 4), "Mamba"), "zamba2": ((1, 4), "Mamba"), "zamba": ((1, 4), "Mamba"),
    "lfm2": ((2, 4), "convolution"), "qwen3_next": ((2, 4), "delta rule"),
    "recurrent_gemma": ((2, 5), "linear recurrence"), "minimax": ((2, 4), "linear attention"),
}  # fmt: skip


def tiny_of(family):
    config = shrunk(CONFIG_MAPPING[family])
    config._attn_implementation = "eager"
    return prepare_model(class_of(family)(config), tokenizer("wordpiece"), family)


@each("family", HYBRIDS)
def test_a_hybrid_keeps_its_own_numbers_of_layers(family):
    numbers, does = HYBRIDS[family]
    reading = read(tiny_of(family), ModelInputs(SENTENCE))
    assert tuple(item.number for item in reading.trace.maps) == numbers
    assert [item.layer for item in reading.trace.maps] == [0, 1]
    assert reading.trace.label(1, 3) == f"L{numbers[1]}·H3"
    assert does in reading.note and "have no attention" in reading.note
    assert "neither in rollout nor in flow" in reading.note


@each(
    ("family", "words", "kinds"),
    [
        (
            "falcon_h1",
            "Beside attention there is a selective state space (Mamba) (layers 0–1).",
            ("causal",),
        ),
        (
            "longcat_flash",
            "has 2 attentions, which are numbered one after another: L0 to L1",
            ("causal",),
        ),
        ("pegasus_x", "maps of the encoder are not drawn", ("causal", "cross")),
        ("qwen2", None, ("causal",)),
        # An encoder that cannot be watched is drawn all the same.
        ("bigbird_pegasus", None, ("self", "causal", "cross")),
        ("longt5", None, ("self", "causal", "cross")),
    ],
)
def test_what_stands_beside_an_attention_is_named_and_nothing_else(family, words, kinds):
    reading = read(tiny_of(family), ModelInputs(SENTENCE, target=OTHER))
    assert reading.trace.kinds == kinds and (reading.note is None) == (words is None)
    assert words is None or words in reading.note and "no attention between" not in reading.note
    for item in reading.trace.of("self").maps:
        np.testing.assert_allclose(item.weights.sum(-1), 1, atol=1e-5)
    if family == "qwen2":
        assert [item.number for item in reading.trace.maps] == [0, 1]


PICTURES = {"BlipForConditionalGeneration": ("[class]", "3,3"),
            "YolosForObjectDetection": ("[class]", "[detection 99]"),
            "Aimv2VisionModel": ("0,0", "3,3"), "PixioModel": ("[class 0]", "3,3")}  # fmt: skip


@each("name", PICTURES)
def test_the_places_of_a_picture_are_called_what_they_are(name):
    kind = getattr(transformers, name)
    config = shrunk(kind.config_class)
    config._attn_implementation = "eager"
    model = kind(config)
    reading = read(prepare_model(model, reader_of(model), name), GIVEN)
    assert (reading.source.tokens[0], reading.source.tokens[-1]) == PICTURES[name]
    assert reading.trace.kinds == ("self",) and reading.trace.shape == (2, 4)


def test_blocks_are_the_matrix_that_they_stand_for():
    inside = (torch.arange(11)[:, None] - torch.arange(11)).abs() < 4
    whole, blocks = torch.rand(2, 11, 11) * inside, torch.zeros(3, 2, 4, 12)
    for row, column in inside.nonzero().tolist():
        blocks[row // 4, :, row % 4, column - 4 * (row // 4) + 4] = whole[:, row, column]
    weights, mask = unblocked(blocks, 11)
    assert torch.equal(weights[0], whole) and torch.equal(mask[0, 0], inside)


# A model that is not on the CPU: its inputs go there, and what comes of them comes back.


def test_a_model_on_another_device_is_read_and_answers(monkeypatch):
    """On torch's meta device, which stands for a GPU: it holds no numbers, and takes no tensor of the CPU.

    What comes back from there is all halves.
    """
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
PACKED = (
    "longformer",
    "led",
    "longt5",
)  # their own maps are bands and blocks: tests/pretrained/test_reading.py
SINK_AFTER = (
    "granite_swa",
    "granitemoe_swa",
)  # return the weights before a sink takes its share of the output
SILENT = (
    "blt_patcher",
    "tipsv2",
    "shieldgemma2",
)  # return none by themselves; their layers are watched all the same
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
    sees = [item.weights[:, -1 if item.kind == "causal" else slice(None)] for item in maps]
    limited = is_limited(pretrained.model.config.to_dict()) and model_type not in UNLIMITED
    assert not limited or any((weights == 0).any() for weights in sees)
    assert maps and all(np.isfinite(item.weights).all() for item in maps)
    plain, expected = own(pretrained, batch)
    for name in ("logits", "last_hidden_state"):
        if isinstance(found := getattr(plain, name, None), torch.Tensor):
            torch.testing.assert_close(getattr(output, name), found, rtol=0, atol=0, equal_nan=True)
    if model_type in SILENT:
        assert all(np.abs(item.weights.sum(-1) - 1).max() < 1e-5 for item in maps)
    elif model_type not in PACKED:
        expected = [one for one in expected if one.ndim == 4]
        if reading.note and "have no attention" in reading.note and len(expected) > len(maps):
            expected = [
                expected[item.number] for item in maps
            ]  # a linear layer's product stands there as well
        assert len(maps) == len(expected)
        for item, weights in zip(maps, expected, strict=True):
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
    if (
        pretrained.head in ("next", "seq2seq") and model_type != "vibevoice"
    ):  # its generate needs another package
        check_generation(pretrained, model_type)
    return "drawn"


def enlarge(model):
    """Weights larger than usual, so that what is wrong shows. An indexer takes all keys: equal scores have no order."""
    torch.manual_seed(1)
    for module in model.modules():
        if hasattr(module, "index_topk"):
            module.index_topk = WORDS
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.copy_(torch.randn(weight.shape) / max(weight.shape[-1], 1) ** 0.5)


def check_generation(pretrained, model_type):
    """Each step's logits by the cache, by one pass over the whole, and by the library's own generate are the same."""
    model, start = pretrained.model, prepare_generation(pretrained, replace(GIVEN, target=None))
    enlarge(model)
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
    for found in (torch.cat(steps), score_continuation(pretrained, start, tokens).logits):
        torch.testing.assert_close(
            found, expected, rtol=0, atol=1e-5 + 1e-4 * float(expected.abs().max())
        )


def test_a_cache_that_is_not_used_is_one_that_gives_another_text():
    """Each family of WRONG_CACHES differs with its cache, so that a mended one leaves the list."""
    for model_type in WRONG_CACHES:
        model = built(model_type).model
        enlarge(model)
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


def test_the_table_has_every_architecture_and_no_other_reason():
    assert set(EXPECTED) == set(ARCHITECTURES)
    reasons = {one for one in EXPECTED.values() if not one.startswith("not built")}
    assert reasons == {"drawn", *REASONS}


@each("model_type", [name for name, how in EXPECTED.items() if how == "drawn"][::12])
def test_what_is_drawn_is_opened_from_its_folder_as_what_it_is(model_type, tmp_path_factory):
    """From the folder as the library writes it, which names its class, and what prepares its inputs beside it."""
    pretrained, folder = built(model_type), tmp_path_factory.mktemp("opened")
    reader = pretrained.tokenizer
    pretrained.model.save_pretrained(folder)
    if pretrained.reads == "picture":
        size = json.dumps({"size": reader.size})
        (folder / "preprocessor_config.json").write_text(size, encoding="utf-8")
    part = "feature_extractor" if pretrained.reads == "sound" else "tokenizer"
    getattr(reader, part, reader).save_pretrained(folder)
    found = load_folder(folder, model_type)
    for name in ("head", "reads", "recordable"):
        assert getattr(found, name) == getattr(pretrained, name), name
    assert type(found.model) is type(pretrained.model)


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
