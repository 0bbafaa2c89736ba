"""Runs small enough for tests, and the commands of a shell without its process."""

import functools
import io
import os
import runpy
import sys
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from core.models import ModelConfig
from core.runs import worker
from core.runs.runs import Run, create_run
from core.tasks import TaskConfig
from core.training import Record, RunConfig, prepare, train
from core.training.loop import FINAL as FINAL  # as it is before a test cuts it

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


def small_task(key: str) -> TaskConfig:
    """A task with its defaults, or with less where these take seconds to make."""
    return TaskConfig.of(key, **({"stories": 200, "pieces": 512} if key == "stories" else {}))


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


def forked(run: Run) -> int:
    """The worker as a process, without the seconds of its imports."""
    if child := os.fork():
        return child
    with suppress(BaseException):
        worker.give_way()
        worker.main([str(run.path)])
    os._exit(0)


@functools.cache
def records_of(**changes) -> list[Record]:
    return list(train(small_run(**changes)))


# A small run that has really trained, as a zip, and zips made of its parts.


def trained(root: Path, **changes) -> Run:
    config = small_run(**changes)
    run, session = (
        create_run(config, root, name="tiny", parent={"run": "other", "step": 2}),
        prepare(config),
    )
    # the final one takes a second
    for _, record in zip(range(3), train(config, session), strict=False):
        run.append(record)
        run.save_checkpoint(session, config)
    run.set_status("finished", "Finished.")
    return run


def parts(packed: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(packed)) as file:
        return {name.split("/", 1)[1]: file.read(name) for name in file.namelist()}


def zipped(
    parts: Mapping[str, bytes | None], top: str = "", how: int = zipfile.ZIP_DEFLATED
) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", how) as file:
        for name, data in parts.items():
            if data is not None:
                file.writestr(top + name, data)
    return out.getvalue()
