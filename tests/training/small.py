"""Runs small enough for tests, and the commands of a shell without its process."""

import functools
import os
import runpy
import sys

import pytest

from core.models import ModelConfig
from core.tasks import TaskConfig
from core.training import Record, RunConfig, train

# Worker processes compute without the noise of `make weather WEATHER=noise`.
SAME_LAST_BIT = pytest.mark.skipif(
    "ATTENTION_LAB_NOISE" in os.environ, reason="the last bits of processes differ"
)


def small_run(**changes) -> RunConfig:
    """Reverse, six letters, a model of eight numbers: a step takes a millisecond or two."""
    values = dict(
        task=TaskConfig.of("reverse", length=6, vocab=12),
        model=ModelConfig.transformer(
            d_model=8, num_heads=2, layers=1, d_ff=16, position="learned"
        ),
        steps=4,
        batch_size=8,
        record_every=2,
        held_out=11,
        num_examples=2,
    )
    return RunConfig(**{**values, **changes})


def record_numbers(record: Record) -> tuple:
    """What must be the same from the same seed: everything but the clock."""
    scores = (
        record.train_loss,
        record.loss,
        record.token_accuracy,
        record.sequence_accuracy,
        record.bleu,
        record.chrf,
        record.error,
        record.expected,
        record.confusion,
    )
    return (record.step, *scores, record.gradient, record.gradients, record.examples)


def run_command(module: str, *arguments: str) -> object:
    """What `python -m module arguments` ends with, in this process."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as end:
        patch.setattr(sys, "argv", [module, *arguments])
        runpy.run_module(module, run_name="__main__")
    return end.value.code


@functools.cache
def records_of(**changes) -> list[Record]:
    """The records of a small run that nothing interrupts."""
    return list(train(small_run(**changes)))
