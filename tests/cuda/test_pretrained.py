"""A pretrained model that lies on a GPU is read, questioned, patched and tuned as it is on the CPU."""

from copy import deepcopy
from dataclasses import replace

import numpy as np
import torch

from core.interpret.circuits import read_heads, read_vocabularies
from core.interpret.evidence import Question, ask, measure_contributions
from core.interpret.head_tests import score_repeats
from core.interpret.lens import attribute_logit, read_lens
from core.interpret.patching import estimate_heads, pair_of, patch, patch_source
from core.interpret.weight_breakdown import break_down_weight, layer_attentions
from core.models.decoding import SearchSettings
from core.pretrained import ModelInputs, PretrainedError, answer, load_lab_model, read
from core.pretrained.finetune import FineTuneConfig
from core.pretrained.finetune_run import create, fine_tune
from core.pretrained.generate import generate
from core.pretrained.load import LAB_MODELS
from core.runs.executor import machine
from tests.cases import each
from tests.tiny_models import READABLE, given, tiny

REPEAT = ModelInputs("the old king walked to the dark river . the old king walked to the dark")
OTHER = ModelInputs("the old king walked to the dark river . the old queen walked to the dark")


def on_gpu(pretrained):
    return replace(pretrained, model=deepcopy(pretrained.model).cuda())


def numbers(value):
    """Every array and number in a result, in order; models and configs hold none."""
    if isinstance(value, torch.Tensor):
        assert value.device.type == "cpu", "results come back to the CPU"
        return [value.detach().float().numpy()] if value.is_floating_point() else []
    if isinstance(value, np.ndarray | float):
        return [np.asarray(value)] if np.asarray(value).dtype.kind == "f" else []
    if isinstance(value, dict):
        return [number for item in value.values() for number in numbers(item)]
    if isinstance(value, list | tuple):
        return [number for item in value for number in numbers(item)]
    if hasattr(value, "__dataclass_fields__"):
        return [
            number
            for name, item in vars(value).items()
            if name not in ("pretrained", "baseline", "pair", "base")
            for number in numbers(item)
        ]
    return []


def results(pretrained, compute):
    """The numbers, or why there are none."""
    try:
        return numbers(compute(pretrained))
    except PretrainedError as refusal:
        return str(refusal)


def check(pretrained, compute):
    theirs, ours = results(pretrained, compute), results(on_gpu(pretrained), compute)
    assert type(ours) is type(theirs) and len(ours) == len(theirs) and len(ours)
    if isinstance(ours, str):
        assert ours == theirs
        return
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-3, atol=2e-4)


@each("family", READABLE)
def test_every_family_is_read_and_answers(family):
    check(tiny(family), lambda model: read(model, given(family)).trace.maps)
    check(tiny(family), lambda model: answer(model, given(family)))


QUESTIONS = {
    "breakdown": lambda model, inputs: break_down_weight(
        layer_attentions(model, inputs)[0], 0, 3, 1
    ),
    "contributions": lambda model, inputs: measure_contributions(ask(model, Question(inputs))),
    "lens": lambda model, inputs: read_lens(ask(model, Question(inputs))),
    "attribution": lambda model, inputs: attribute_logit(ask(model, Question(inputs)), 3),
    "patching": lambda model, inputs: patch(pair_of(model, inputs, OTHER)),
    "estimate": lambda model, inputs: estimate_heads(patch_source(pair_of(model, inputs, OTHER))),
    "heads": lambda model, inputs: read_heads(model),
    "vocabularies": lambda model, inputs: read_vocabularies(model),
    "repeats": lambda model, inputs: score_repeats(model, "causal"),
    "generation": lambda model, inputs: generate(model, inputs, SearchSettings()),
}


@each("what", QUESTIONS)
@each("name", ["induction", "only-attention"])
def test_a_lab_model_is_questioned(name, what):
    check(load_lab_model(name), lambda model: QUESTIONS[what](model, REPEAT))


@each("what", ["contributions", "lens", "attribution", "heads", "generation"])
@each("family", ["bert_classifier", "gpt2", "llama", "bart", "vit"])
def test_a_family_is_questioned(family, what):
    check(tiny(family), lambda model: QUESTIONS[what](model, given(family)))


def test_a_lab_model_is_tuned(tmp_path):
    pairs = "source,target\n" + "\n".join(
        f"{word} hundred,{number}00"
        for word, number in zip(
            "one two three four five six seven eight nine".split(), range(1, 10), strict=True
        )
    )
    config = FineTuneConfig(
        "pairs", pairs, str(LAB_MODELS / "numbers"), epochs=3, batch_size=4, device="cuda"
    )
    run = create(config, tmp_path)
    assert fine_tune(run, lambda: False)[0] == "finished"
    records = run.records()
    assert records[-1].loss < records[0].loss and run.metadata()["machines"] == [machine("cuda")]
