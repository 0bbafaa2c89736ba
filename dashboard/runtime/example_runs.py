"""The example runs that come with the lab; `make example` trains them."""

from __future__ import annotations

from pathlib import Path

from core.files import hosted
from core.training.runs import Run, Status
from dashboard.runtime.people import find_run, folders

HERE = Path(__file__).with_name("examples")
ROOT = HERE.parents[2]
EXAMPLE_RUNS = (Run(HERE / "example_run"), Run(HERE / "example_recurrent"))


def find_any_run(name: object) -> Run | None:
    """A run by its id: an example, or one of this machine."""
    return next((run for run in EXAMPLE_RUNS if run.id == name), None) or find_run(name)


def status_of(run: Run) -> Status:
    """The status of a run; an example is always ended."""
    status = run.status()
    return (
        Status("finished", status.message) if run in EXAMPLE_RUNS and not status.ended else status
    )


def path_code(path: Path) -> str:
    """A folder as a script names it: one that came with the lab wherever that is, which `Script.text` imports."""
    return (
        f"lab_path({script_path(path)!r})"
        if path.is_relative_to(HERE.parents[1])
        else repr(script_path(path))
    )


def script_path(path: Path) -> str:
    """A folder that came with the lab from the root of the repository, one of a public copy as its download is
    unpacked, another one whole."""
    if path.is_relative_to(HERE.parents[1]):
        return path.relative_to(ROOT).as_posix()
    home = next((home for home in folders() if hosted() and path.is_relative_to(home)), None)
    return (path if home is None else path.relative_to(home)).as_posix()
