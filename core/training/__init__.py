"""The loop is a generator of records; a config says what it trains, and on what."""

from core.training.config import (
    AUTO,
    BOUNDS,
    DEVICES,
    OPTIMIZERS,
    PRECISIONS,
    SCHEDULES,
    RunConfig,
    devices,
    recommended,
)
from core.training.diagnosis import Finding, diagnose, time_needed
from core.training.evaluate import (
    KINDS,
    Bucket,
    Prediction,
    Record,
    SourceMaps,
    axis_tokens,
    best_head,
    one_a_step,
    source_maps,
    source_weights,
    watched_examples,
)
from core.training.loop import PASS, Session, prepare, train

__all__ = [
    "AUTO",
    "BOUNDS",
    "DEVICES",
    "KINDS",
    "OPTIMIZERS",
    "PASS",
    "PRECISIONS",
    "SCHEDULES",
    "Bucket",
    "Finding",
    "Prediction",
    "Record",
    "RunConfig",
    "Session",
    "SourceMaps",
    "axis_tokens",
    "best_head",
    "devices",
    "diagnose",
    "one_a_step",
    "prepare",
    "recommended",
    "source_maps",
    "source_weights",
    "time_needed",
    "train",
    "watched_examples",
]
