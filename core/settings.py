"""Every setting of the lab that the environment has, by name. docs/install.md lists the variables.

A variable is read when it is asked for, so that a test, a secret of Streamlit or a worker may set it. What is no number or
has another name raises ValueError with the variable's name; the server asks once when it starts.
"""

import os
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


SETTINGS = {  # each variable without its prefix
    "runs": "the folder of runs",
    "plugins": "the folder of plug-ins",
    "log": "json or text",
    "store": "the address of a shared store of runs",
    "store_name": "this server's name there",
    "folders": "1 or 0: whether local folders of models may be opened",
    "frames": "who may show the lab in a frame",
    "metrics_token": "with which metrics are read",
    "hosted": "whether this is a public copy",
    "hosted_limits": "of dashboard.server.visitors.LIMITS",
    "hosted_models": "of the hub, which a public copy opens",
    "limits": "of Limits",
    "ray": "the address of a cluster",
    "ray_worker": "of RayWorker",
}


def setting(name: str) -> str:
    """A variable of SETTINGS as it is now; empty where it is not set."""
    assert name in SETTINGS
    return os.environ.get(PREFIX + name.upper(), "").strip()


def hosted() -> bool:
    """Whether this is a public copy, which is asked often."""
    return setting("hosted").lower() not in OFF


def limits() -> Limits:
    """The limits of this machine alone."""
    return Limits(**_numbers("limits", Limits))


def ray_worker() -> RayWorker:
    """What a cluster sets aside for a run."""
    return RayWorker(**_numbers("ray_worker", RayWorker))


def check_settings() -> None:
    """ValueError for a variable that holds no numbers, or that an earlier version had, and this one would not obey."""
    moved = {
        field.name: ("", "LIMITS") for field in fields(Limits)
    }  # key: what is dropped, and where it stands
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
    limits()  # which raises it, as do the others
    ray_worker()
    pairs("hosted_limits")


def pairs(name: str) -> dict[str, str]:
    """The name=value pairs of a variable; ValueError for anything else."""
    values = {}
    for word in setting(name).replace(",", " ").split():
        key, equals, value = word.partition("=")
        if not (key and equals and value):
            raise ValueError(
                f"{PREFIX}{name.upper()} takes name=value with spaces between, but has {word!r:.60}."
            )
        values[key] = value
    return values


def _numbers(key: str, kind: type) -> dict[str, float]:
    names = [field.name for field in fields(kind)]
    numbers = {}
    for name, value in pairs(key).items():
        if name not in names:
            raise ValueError(f"{PREFIX}{key.upper()} has {', '.join(names)}, but no {name!r:.60}.")
        try:
            numbers[name] = float(value)
        except ValueError:
            numbers[name] = float("nan")
        if not 0 < numbers[name] < float("inf"):
            raise ValueError(f"{PREFIX}{key.upper()}: {name} = {value!r:.60} is no number above 0.")
    return numbers
