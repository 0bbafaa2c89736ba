"""A run is a folder, the loop is a generator of records, and a worker process joins the two."""

from core.training.config import DEVICES, RunConfig, devices, recommended
from core.training.loop import train
from core.training.record import Prediction, Record
from core.training.runs import Run, Status, create_run, find_run, list_runs, runs_folder
from core.training.session import Session, prepare

__all__ = [
    "DEVICES",
    "Prediction",
    "Record",
    "Run",
    "RunConfig",
    "Session",
    "Status",
    "create_run",
    "devices",
    "find_run",
    "list_runs",
    "prepare",
    "recommended",
    "runs_folder",
    "train",
]
