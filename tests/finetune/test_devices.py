"""On which device a fine-tuning run computes; no GPU is needed: what is there is feigned, and "meta" stands for one."""

from dataclasses import replace

import pytest
import torch

from core.entries import ConfigError
from core.pretrained import finetune_run as running
from core.pretrained.finetune import FineTuneConfig, build, parse
from core.pretrained.finetune_run import Course, about, classes, create, fine_tune, inputs, targets
from core.runs.machine import line, machine
from core.training.config import resolve_device
from dashboard.runtime.run_data import summarize
from dashboard.widgets.panels import plain
from pages.fine_tune import conditions
from pages.runs import about_text as about_run


@pytest.fixture
def config(encoder, colours) -> FineTuneConfig:
    return FineTuneConfig("classify", colours, str(encoder), epochs=1, batch_size=32)


def test_auto_is_cuda_where_it_is_there_and_a_missing_device_is_refused(
    config, monkeypatch, tmp_path
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device(config.device) == "cpu"
    with pytest.raises(ConfigError, match="device = cuda is not on this machine"):
        create(replace(config, device="cuda"), tmp_path)
    with pytest.raises(ConfigError, match="'tpu' is not known"):
        replace(config, device="tpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert resolve_device("auto") == "cuda" and resolve_device("cpu") == "cpu"


def test_what_the_model_reads_and_must_say_lies_where_it_lies(config, translator, monkeypatch):
    rows = parse("classify", config.data)
    monkeypatch.setattr("core.pretrained.finetune.resolve_device", lambda name: "meta")
    learner = build(config, rows)
    assert learner.device.type == "meta" == classes(learner, rows.held_out).device.type
    assert {value.device.type for value in inputs(learner, ["the sun"]).values()} == {"meta"}
    pairs = FineTuneConfig(
        "pairs", "\n".join(f"one {i},two {i}" for i in range(9)), str(translator)
    )
    rows = parse("pairs", pairs.data)
    assert targets(build(pairs, rows), rows.held_out).device.type == "meta"


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_the_trainer_is_kept_from_a_gpu_only_where_the_model_is_on_the_cpu(
    config, monkeypatch, tmp_path, kind
):
    rows = parse("classify", config.data)
    learner = build(config, rows)
    course = Course(create(config, tmp_path), config, rows, learner, lambda: False, print)
    monkeypatch.setattr(type(learner), "device", torch.device(kind))
    assert running.make_trainer(course).args.use_cpu == (kind == "cpu")


def test_the_machine_is_written_down_and_told(config, tmp_path):
    run = create(replace(config, device="cpu"), tmp_path)
    assert fine_tune(run, lambda: False)[0] == "finished" and run.metadata()["machines"] == [
        machine("cpu")
    ]
    where = line(run.metadata()["machines"])
    assert where in about_run(summarize(run)) and plain(where) in conditions(
        config, about(run), parse("classify", config.data), where
    )
