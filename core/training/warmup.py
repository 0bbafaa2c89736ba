"""The smallest real run, which a spare worker takes two steps of so that the first real one pays for no import."""

from __future__ import annotations

from core.models import ModelConfig
from core.tasks import TaskConfig
from core.training.config import RunConfig


def smallest() -> RunConfig:
    """A run of a few numbers that still goes through every part: task, model, decode, optimizer."""
    task = TaskConfig.of("reverse", length=6, vocab=12)
    model = ModelConfig.transformer(d_model=8, num_heads=1, layers=1, d_ff=8, position="learned")
    return RunConfig(task, model, steps=2, batch_size=4, record_every=1, held_out=4, watch=1)
