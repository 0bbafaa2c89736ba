"""Every setting of the lab that the environment has, typed: `settings()`. docs/install.md lists the variables.

A variable is read when it is asked for, so that a test, a secret of Streamlit or a worker may set it. What is no number or
has another name raises ValueError with the variable's name; the server asks once when it starts.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields

PREFIX = "ATTENTION_LAB_"
OFF = ("", "0", "false", "no")


@dataclass(frozen=True)
class Limits:
    """ATTENTION_LAB_LIMITS: what runs and models may take of this machine; None is worked out from its memory."""

    max_runs: float = 200  # that are stored; the oldest without a name go first
    disk_mb: float = 2_000  # of all runs
    server_mb: float | None = None  # memory of the server and its workers together
    memory_mb: float | None = None  # memory of a run
    gpu_mb: float = 8_000  # of a GPU, of a run
    model_mb: float = 600  # of one model of the hub
    models_mb: float = 3_000  # of all downloaded models


@dataclass(frozen=True)
class RayWorker:
    """ATTENTION_LAB_RAY_WORKER: what a cluster sets aside for a run; `gpu` is a share of one."""

    cpus: float = 1.0
    gpu: float = 0.25
    memory_mb: float = 1_000.0


@dataclass(frozen=True)
class LabSettings:
    """The variables ATTENTION_LAB_RUNS and so on; empty where one is not set."""

    runs: str  # the folder of runs
    plugins: str  # the folder of plug-ins
    log: str  # json or text
    store: str  # the address of a shared store of runs
    store_name: str  # this server's name there
    folders: str  # 1 or 0: whether local folders of models may be opened
    frames: str  # who may show the lab in a frame
    metrics_token: str
    hosted: bool  # whether this is a public copy
    hosted_limits: Mapping[str, str]  # of dashboard.server.visitors.LIMITS
    hosted_models: tuple[str, ...]  # of the hub, which a public copy opens
    limits: Limits
    ray: str  # the address of a cluster
    ray_worker: RayWorker


def settings() -> LabSettings:
    """What the environment sets now; ValueError names a variable that cannot be read."""
    return LabSettings(
        runs=_text("runs"),
        plugins=_text("plugins"),
        log=_text("log"),
        store=_text("store"),
        store_name=_text("store_name"),
        folders=_text("folders"),
        frames=_text("frames"),
        metrics_token=_text("metrics_token"),
        hosted=hosted(),
        hosted_limits=_pairs("hosted_limits"),
        hosted_models=tuple(filter(None, map(str.strip, _text("hosted_models").split(",")))),
        limits=limits(),
        ray=_text("ray"),
        ray_worker=RayWorker(**_numbers("ray_worker", RayWorker)),
    )


def hosted() -> bool:
    """Whether this is a public copy, which is asked often."""
    return _text("hosted").lower() not in OFF


def limits() -> Limits:
    """The limits of this machine alone."""
    return Limits(**_numbers("limits", Limits))


def check_names() -> None:
    """ValueError for a variable of the lab that an earlier version had, and this one would not obey."""
    # key: what is dropped, and where it stands
    moved = {field.name: ("", "LIMITS") for field in fields(Limits)}
    moved |= dict.fromkeys(("ray_cpus", "ray_gpu", "ray_memory_mb"), ("ray_", "RAY_WORKER"))
    for name in sorted(os.environ):
        key = name.removeprefix(PREFIX).lower()
        if key.startswith("hosted_") and key not in ("hosted_limits", "hosted_models"):
            moved[key] = ("hosted_", "HOSTED_LIMITS")
        if name == PREFIX + key.upper() and key in moved:
            prefix, place = moved[key]
            raise ValueError(
                f"{name} is now {key.removeprefix(prefix)}=… in {PREFIX}{place}; docs/install.md lists "
                "the variables."
            )


def _text(key: str) -> str:
    return os.environ.get(PREFIX + key.upper(), "").strip()


def _pairs(key: str) -> dict[str, str]:
    pairs = {}
    for word in _text(key).replace(",", " ").split():
        name, equals, value = word.partition("=")
        if not (name and equals and value):
            raise ValueError(
                f"{PREFIX}{key.upper()} takes name=value with spaces between, but has {word!r:.60}."
            )
        pairs[name] = value
    return pairs


def _numbers(key: str, kind: type) -> dict[str, float]:
    names = [field.name for field in fields(kind)]
    numbers = {}
    for name, value in _pairs(key).items():
        if name not in names:
            raise ValueError(f"{PREFIX}{key.upper()} has {', '.join(names)}, but no {name!r:.60}.")
        try:
            numbers[name] = float(value)
        except ValueError:
            numbers[name] = float("nan")
        if not 0 < numbers[name] < float("inf"):
            raise ValueError(f"{PREFIX}{key.upper()}: {name} = {value!r:.60} is no number above 0.")
    return numbers
