"""The loop is a generator of records; a config says what it trains, and on what."""

from core.training.config import DEVICES, RunConfig, devices, recommended
from core.training.loop import Session, prepare, train
from core.training.record import Prediction, Record

__all__ = [
    "DEVICES",
    "Prediction",
    "Record",
    "RunConfig",
    "Session",
    "devices",
    "prepare",
    "recommended",
    "train",
]
