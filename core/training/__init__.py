"""A run is a folder, the loop is a generator of records, and a worker process joins the two."""

from core.training.config import DEVICES, RunConfig, devices
from core.training.loop import prepare, train
from core.training.record import Prediction, Record
from core.training.runs import Run, Status, create_run, find_run, list_runs, runs_folder

__all__ = ["DEVICES", "Prediction", "Record", "Run", "RunConfig", "Status", "create_run", "devices", "find_run",
           "list_runs", "prepare", "runs_folder", "train"]
