"""A run goes on where it was left, to the same numbers; and what cannot go on says so."""

import dataclasses

import pytest
import torch

from core.models import ModelConfig
from core.runs.runs import create_run
from core.runs.worker import _train
from core.training import prepare, train
from core.training.loop import parts_of
from tests.training.small import record_numbers, small_run


def numbers(run):
    return [record_numbers(record) for record in run.records()]


def trained(run, stop=lambda: False):
    state, message = _train(run, stop, lambda record: None)
    return state


@pytest.mark.parametrize(
    ("optimizer", "kind"),
    [
        ("adamw", "transformer"),
        ("adam", "recurrent"),
        ("rmsprop", "transformer"),
        ("sgd", "recurrent"),
    ],
)
def test_stopped_and_gone_on_is_as_never_stopped(tmp_path, optimizer, kind):
    dropped = {
        "transformer": ModelConfig.transformer(8, 2, dropout=0.2),
        "recurrent": ModelConfig.recurrent(8, layers=2, dropout=0.2, cell="lstm"),
    }
    config = small_run(steps=8, optimizer=optimizer, model=dropped[kind])
    whole, broken = (
        create_run(config, path=tmp_path / "whole"),
        create_run(config, path=tmp_path / "broken"),
    )
    trained(whole)
    assert (
        trained(broken, stop=lambda: len(broken.records()) > 2) == "stopped"
    )  # after the record of step 4
    assert broken.checkpoint_steps()[-1] in (4, 5)
    broken.save_checkpoint(_at_step_four(config), config)
    broken.truncate(4)  # as a killed worker leaves it: the last checkpoint stands at a record
    assert trained(broken) == "finished"
    assert numbers(broken) == numbers(whole)
    ours, theirs = broken.model()[0].state_dict(), whole.model()[0].state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def _at_step_four(config):
    session = prepare(config)
    for record in train(config, session):
        if record.step == 4:
            return session
    raise AssertionError


def test_longer_is_more_steps_of_the_same_run(tmp_path):
    config = small_run(steps=4, schedule="constant")
    run = create_run(config, path=tmp_path / "run")
    trained(run)
    run.update_metadata(config=dataclasses.replace(config, steps=8).to_json())
    assert trained(run) == "finished"
    whole = [record_numbers(r) for r in train(dataclasses.replace(config, steps=8))]
    assert [record_numbers(r) for r in run.records() if not r.final][:3] == whole[:3]
    assert run.records()[-1].step == 8 and record_numbers(run.records()[-1]) == whole[-1]


def test_checkpoints_are_few_and_the_last_is_there(tmp_path):
    config = small_run(steps=60, record_every=1, held_out=2, watch=1)
    run = create_run(config, path=tmp_path / "run")
    trained(run)
    steps = run.checkpoint_steps()
    assert steps[-1] == 60 and 8 <= len(steps) <= 12
    model, task = run.model(steps[3])
    assert model.training is False and task.key == "reverse"


def test_weights_of_another_model_are_refused_in_words(tmp_path):
    run = create_run(small_run(), path=tmp_path / "run")
    trained(run)
    wider = small_run(model=ModelConfig.transformer(16, 2))
    run.update_metadata(config=wider.to_json())
    with pytest.raises(ValueError, match="do not fit"):
        run.model()
    with pytest.raises(ValueError, match="do not fit"):
        trained(run)


def test_a_broken_checkpoint_is_told_in_words(tmp_path):
    run = create_run(small_run(), path=tmp_path / "run")
    with pytest.raises(ValueError, match="saved no weights"):
        run.model()
    run.checkpoint_path(4).write_bytes(b"nothing of the kind")
    with pytest.raises(ValueError, match="step 4 cannot be read"):
        run.checkpoint(4)


def test_every_parameter_belongs_to_one_part():
    session = prepare(small_run())
    parts = parts_of(session.model)
    before, after = (
        ["source", "source_places", "encoder.layers.0"],
        ["target", "target_places", "layers.0", "output"],
    )
    assert list(parts) == before + after
    assert sum(len(weights) for weights in parts.values()) == len(list(session.model.parameters()))
