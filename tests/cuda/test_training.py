"""Training on a GPU: each task with each of its models, a run that was stopped, the worker, and the memory it holds."""

import dataclasses
import subprocess
import sys
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from core.attention import AXES, PRESETS, Attention, AttentionConfig, Choice, ConfigError
from core.attention.config import example_config
from core.attention.cost import CUDA, Limits, attention_cost, peak_bytes, race, seconds, workload
from core.interpret.circuits import read_heads, read_vocabularies
from core.interpret.evidence import (
    Question,
    ask,
    break_down_weight,
    layer_attentions,
    measure_contributions,
)
from core.interpret.head_tests import score_repeats
from core.interpret.interventions import BY_KEY, head_effects, mean_outputs
from core.interpret.lens import attribute_logit, read_lens
from core.interpret.patching import estimate_heads, pair_of, patch, patch_source
from core.interpret.paths import find_paths
from core.interpret.score_sources import explain_score
from core.models import ModelConfig
from core.models.decoding import Prompt, Sampling, SearchSettings, beam, greedy, sample
from core.pretrained import LAB_MODELS, ModelInputs, PretrainedError, answer, load_lab_model, read
from core.pretrained.finetune import FineTuneConfig
from core.pretrained.finetune_run import create, fine_tune
from core.pretrained.generate import generate
from core.runs.machine import machine
from core.runs.runs import Run, create_run
from core.runs.worker import train_run
from core.studies.efficient import Conditions, machine as machine_text, start_race
from core.tasks import TASKS, TaskConfig, make_task
from core.training import prepare, recommended, train
from core.training.diagnosis import pace
from tests.attention import drawing
from tests.attention.drawing import ENTRIES, read_in_parts
from tests.attention.test_register import listed
from tests.cases import each
from tests.close import differences
from tests.tiny_models import READABLE, given, tiny
from tests.training.small import record_numbers, small_run

TRAINED = (
    [
        (entry.key, kind)
        for entry in TASKS
        for kind in make_task(TaskConfig.of(entry.key)).recommended
    ]
    if torch.cuda.is_available()
    else []
)
SHORT = dict(steps=2, batch_size=8, record_every=1, decode_every=2, held_out=6, num_examples=1)


@each(("task", "kind"), TRAINED)
def test_every_task_trains_as_on_the_cpu(task, kind):
    # Before the first step the models are the same; three steps later each is a trained one.
    config = recommended(make_task(TaskConfig.of(task)), kind, **SHORT)
    first = next(train(dataclasses.replace(config, device="cpu")))
    records = list(train(dataclasses.replace(config, device="cuda")))
    assert records[0].loss == pytest.approx(first.loss, rel=1e-3)
    assert [record.step for record in records] == [0, 1, 2, 2] and records[-1].final
    assert all(0 < record.train_loss < float("inf") for record in records[1:])
    for name, weights in first.maps.items():
        assert records[0].maps[name] == pytest.approx(weights, abs=1e-2), name


@each("precision", ["fp32", "bf16"])
@each("checkpointing", [False, True])
def test_options_train(precision, checkpointing):
    config = small_run(
        device="cuda", precision=precision, checkpointing=checkpointing, steps=60, record_every=30
    )
    records = list(train(config))
    assert records[-1].loss < records[0].loss


DROPPED = {
    "transformer": ModelConfig.transformer(8, 2, dropout=0.2),
    "recurrent": ModelConfig.recurrent(8, layers=2, dropout=0.2, cell="lstm"),
}


@each("optimizer", ["adamw", "adam", "rmsprop", "sgd"])
@each("kind", DROPPED)
def test_stopped_and_continued_is_as_never_stopped(tmp_path, kind, optimizer):
    config = small_run(steps=8, optimizer=optimizer, model=DROPPED[kind], device="cuda")
    whole, broken = (
        create_run(config, path=tmp_path / f"{kind}-{optimizer}-{name}")
        for name in ("whole", "broken")
    )
    train_run(whole, lambda: False, lambda record: None)
    assert train_run(broken, lambda: len(broken.records()) > 2, lambda record: None)[0] == "stopped"
    assert train_run(broken, lambda: False, lambda record: None)[0] == "finished"
    ours, theirs = broken.model()[0].state_dict(), whole.model()[0].state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert [*map(record_numbers, broken.records())] == [*map(record_numbers, whole.records())]


@pytest.mark.parametrize("spare", [False, True])
def test_the_worker_trains_on_the_gpu(tmp_path, spare):
    run = create_run(small_run(device="auto"), path=tmp_path / "run")
    command = [
        sys.executable,
        "-m",
        "core.runs.worker",
        *(["--spare"] if spare else [str(run.path)]),
    ]
    ended = subprocess.run(
        command, input=f"{run.path}\n" if spare else None, capture_output=True, encoding="utf-8"
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert run.status().state == "finished"
    assert run.metadata()["machines"][0]["device"] == torch.cuda.get_device_name()
    assert all(torch.isfinite(weight).all() for weight in Run(run.path).model()[0].parameters())


def test_a_run_is_estimated_and_its_step_stays_on_the_gpu():
    config = small_run(device="cuda")
    seconds = pace(config, make_task(config.task))
    assert 0 < seconds.step < 1 and seconds.free_running > 0
    assert {weight.device.type for weight in prepare(config).model.parameters()} == {"cuda"}


KINDS = {
    "transformer": ModelConfig.transformer(12, 3, 2, position="rope"),
    "input feeding": ModelConfig.recurrent(10, "general", 2, cell="lstm", feeding="input"),
    "hybrid": ModelConfig.recurrent(
        12, "scaled_dot", kind="hybrid", num_heads=3, projection="multi_head"
    ),
}


@each("kind", KINDS)
def test_decoding_is_as_on_the_cpu(kind):
    session = prepare(small_run(model=KINDS[kind], device="cpu"))
    model: Any = session.model
    found = []
    torch.nn.init.normal_(model.output.weight, std=1.0)
    batch = session.task.collate(session.held_out)
    for device in ("cpu", "cuda"):
        model, moved = model.to(device), batch.to(device)
        prompt = Prompt(moved.source[:1], moved.source_mask[:1])
        trees = (
            beam(model, prompt, width=4),
            sample(
                model,
                prompt,
                torch.Generator().manual_seed(1),
                samples=9,
                sampling=Sampling(1.3, 8, 0.95),
            ),
        )
        tokens = [[[each_one.token for each_one in tree.candidates]] for tree in trees]
        found.append((greedy(model, moved.source, moved.source_mask).tolist(), tokens))
    assert found[0] == found[1]


# A pretrained model that lies on a GPU is read, questioned, patched and tuned as it is on the CPU.


REPEAT = ModelInputs("the old king walked to the dark river . the old king walked to the dark")
OTHER = ModelInputs("the old king walked to the dark river . the old queen walked to the dark")


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
    try:
        return numbers(compute(pretrained))
    except PretrainedError as refusal:
        return str(refusal)


def check(pretrained, compute):
    on_gpu = replace(pretrained, model=deepcopy(pretrained.model).cuda())
    theirs, ours = results(pretrained, compute), results(on_gpu, compute)
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


def head_effect_list(way, model, inputs):
    baseline = ask(model, Question(inputs, quantity="log-probability"))
    means, other = mean_outputs(model, [inputs]), ask(model, Question(OTHER))
    return list(head_effects(baseline, way, means=means, other=other).values())


QUESTIONS: dict[str, Any] = {
    "breakdown": lambda model, inputs: break_down_weight(
        next(iter(layer_attentions(model, inputs).values())), 0, 3, 1
    ),
    "contributions": lambda model, inputs: measure_contributions(ask(model, Question(inputs))),
    "lens": lambda model, inputs: read_lens(ask(model, Question(inputs))),
    "attribution": lambda model, inputs: attribute_logit(ask(model, Question(inputs)), 3),
    "sources": lambda model, inputs: explain_score(model, inputs, 0, 0, 3, 1),
    "patching": lambda model, inputs: patch(pair_of(model, inputs, OTHER)),
    "estimate": lambda model, inputs: estimate_heads(patch_source(pair_of(model, inputs, OTHER))),
    "paths": lambda model, inputs: sorted(find_paths(model, inputs, OTHER).exact.tolist()),
    **{f"heads, {way}": partial(head_effect_list, way) for way in BY_KEY},
    "heads": lambda model, inputs: read_heads(model),
    "vocabularies": lambda model, inputs: read_vocabularies(model),
    "repeats": lambda model, inputs: score_repeats(model, "causal"),
    "generation": lambda model, inputs: generate(model, inputs, SearchSettings()),
}


@each("what", QUESTIONS)
@each("name", ["induction", "only-attention"])
def test_a_lab_model_is_questioned(name, what):
    check(load_lab_model(name), lambda model: QUESTIONS[what](model, REPEAT))


@each("what", ["contributions", "lens", "attribution", "sources", "heads", "generation"])
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
    run = create(
        FineTuneConfig(
            "pairs", pairs, str(LAB_MODELS / "numbers"), epochs=3, batch_size=4, device="cuda"
        ),
        tmp_path,
    )
    assert fine_tune(run, lambda: False)[0] == "finished"
    records = run.records()
    assert records[-1].loss < records[0].loss and run.metadata()["machines"] == [machine("cuda")]


# Every choice of every axis computes on a GPU what it computes on the CPU: outputs, gradients, steps, graphs.


B, T, C, H = 2, 67, 64, 4  # more tokens than a chunk of 64, and no power of two
NARROW = 24  # heads of 6 numbers, which no kernel of the GPU takes as they are


def config_of(axis, key, width=C):
    return example_config(axis, key, width, H)


def inputs(width, length=T) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.randn(B, length, width), torch.rand(B, length) < 0.7, torch.randn(B, length, width)


def outcome(layer, x, key_mask, felt, record):
    x = x.detach().clone().requires_grad_()
    merged = layer(x, key_mask=key_mask, record=record).merged
    merged.backward(felt)
    return {"merged": merged, "x": x.grad} | {
        n: p.grad for n, p in layer.named_parameters() if p.grad is not None
    }


def check_entry(config, record, length=T):
    layer, given = Attention(config, add_positions=True), inputs(config.d_model, length)
    x, key_mask, felt = given
    ours = outcome(deepcopy(layer).cuda(), x.cuda(), key_mask.cuda(), felt.cuda(), record)
    wrong = differences(ours, outcome(layer, x, key_mask, felt, record))
    assert not wrong, wrong


@each("record", [True, False])
@each("width", [C, NARROW])
@each(("axis", "key"), ENTRIES)
def test_every_entry_is_as_on_the_cpu(axis, key, width, record):
    check_entry(config_of(axis, key, width), record)


@each("record", [True, False])
@each("preset", PRESETS)
def test_every_preset_is_as_on_the_cpu(preset, record):
    check_entry(
        preset.config(C, 1 if preset.config(C, 1).projection.key == "identity" else H), record
    )


@each("record", [True, False])
@each("row", drawing.rows() if torch.cuda.is_available() else [])
def test_every_pair_is_as_on_the_cpu(row, record):
    check_entry(drawing.build(row), record)


@each(("axis", "key"), ENTRIES)
def test_every_entry_steps_as_on_the_cpu(axis, key):
    layer, (x, *_) = Attention(config_of(axis, key)).eval(), inputs(C, 9)
    results, refusals = [], []
    for device in ("cuda", "cpu"):
        try:
            merged = read_in_parts(deepcopy(layer).to(device), x.to(device), (5, 1, 3))[0]
        except (ConfigError, ValueError) as refusal:
            refusals.append(str(refusal))
            continue
        results.append({"merged": merged})
    if refusals:
        assert refusals[0] == refusals[-1] and not results
    else:
        assert not (wrong := differences(results[0], results[1])), wrong


@each("record", [True, False])
@each(("axis", "key"), ENTRIES)
def test_bfloat16_is_finite(axis, key, record):
    layer = Attention(config_of(axis, key), add_positions=True).cuda()
    x, key_mask, felt = (tensor.cuda() for tensor in inputs(C))
    with torch.autocast("cuda", torch.bfloat16):
        merged = layer(x.requires_grad_(), key_mask=key_mask, record=record).merged
    merged.float().backward(felt)
    assert merged.isfinite().all() and x.grad.isfinite().all()
    assert all(p.grad.isfinite().all() for p in layer.parameters() if p.grad is not None)


COMPILED = (
    [
        (axis, key)
        for axis, key in ENTRIES
        if listed().get(f"{axis}-{key}", {}).get("fullgraph", True)
    ]
    if torch.cuda.is_available()
    else []
)


@pytest.mark.skipif(
    torch.__version__ < "2.13", reason="docs/compile.md is about the PyTorch of requirements.txt"
)
@pytest.mark.parametrize(("axis", "key"), COMPILED)
def test_a_compiled_entry_is_as_eager(axis, key):
    # By Triton's own code, where docs/compile.md claims one graph.
    layer = Attention(config_of(axis, key), add_positions=True).eval().cuda()
    x, key_mask, _ = (tensor.cuda() for tensor in inputs(C))
    torch._dynamo.reset()
    with torch.no_grad():
        runs: tuple[Any, Any] = torch.compile(layer, fullgraph=True), layer
        ours, theirs = (
            {"merged": run(x, key_mask=key_mask, record=False).merged.cpu()} for run in runs
        )
    assert not (wrong := differences(ours, theirs)), wrong


# What is measured on a GPU: seconds to the end of the work, and bytes that agree with the closed form.


LENGTH = 512


def kernel_config(key):
    params = {"max_len": LENGTH} if key == "linformer" else {}
    mask = Choice.of("local", window=16) if key in ("local", "block_sparse") else Choice("none")
    return AttentionConfig(256, 4, mask=mask, kernel=Choice.of(key, **params))


@pytest.mark.parametrize("backward", [False, True])
def test_every_kernel_races(backward):
    configs = {item.key: kernel_config(item.key) for item in AXES["kernel"]}
    *_, last = race(
        configs, [128, LENGTH], backward=backward, rounds=2, limits=Limits(20.0, 4e9), device=CUDA
    )
    assert {point.name for point in last.points} == configs.keys()
    wrong = [
        point
        for point in last.points
        if point.skipped or not (point.seconds > 0 and point.bytes > 0)
    ]
    assert not wrong


def test_memory_is_that_of_the_closed_form():
    config = kernel_config("exact")
    measured = peak_bytes(workload(config, 2048, device=CUDA), CUDA)
    assert measured == pytest.approx(attention_cost(config, 2048, 2048).bytes, rel=0.2)


def test_a_call_is_timed_to_the_end_of_its_work():
    matrix = torch.randn(8192, 8192, device=CUDA)
    work = lambda: [matrix @ matrix for _ in range(4)]  # noqa: E731
    work()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    taken = seconds(work, device=CUDA)
    end.record()
    end.synchronize()
    assert taken == pytest.approx(start.elapsed_time(end) / 1e3, rel=0.3)


def test_a_race_measures_on_the_card():
    conditions = Conditions.of(["fused"], 256, False, False, 32, CUDA)
    points = [point for report in start_race(conditions) for point in report.points]
    assert [point.length for point in points] == [128, 256]
    assert machine_text(CUDA).startswith(torch.cuda.get_device_name())
