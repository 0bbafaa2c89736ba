"""Save what each page computes of pretrained models at its first settings: python -m dashboard.first_sights."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from streamlit.testing.v1 import AppTest

from dashboard.navigation import step_of
from dashboard.runtime import saved_results
from dashboard.runtime.cache import forget_results
from dashboard.runtime.saved_results import FOLDER, Key, Recorder
from dashboard.widgets import progress
from dashboard.widgets.model_picker import models

PAGES = (
    "compare",
    "pretrained",
    "inside_weight",
    "evidence",
    "two_models",
    "lens",
    "circuits",
    "generate",
    "use_model",
    "head_roles",
    "corpus",
)
APP = Path(__file__).with_name("app.py")


def record(page: str) -> dict[Key, object]:
    """The results that a page computes of pretrained models in the first run of a new session and server."""
    _forget()
    with _recording() as recorder:
        app = AppTest.from_file(str(APP), default_timeout=120)
        app.switch_page(str(step_of(page).path)).run()
    if app.exception:
        raise RuntimeError(f"{page}: {app.exception[0].value}")
    _forget()
    return {
        key: value
        for key, value in recorder.results.items()
        if not isinstance(value, dict) or value
    }


@contextmanager
def _recording() -> Iterator[Recorder]:
    saved_results.recorder, at_once = Recorder(), progress.AT_ONCE
    progress.AT_ONCE = math.inf  # however slow this computer is
    try:
        yield saved_results.recorder
    finally:
        saved_results.recorder, progress.AT_ONCE = None, at_once


def _forget() -> None:
    forget_results()
    models._lazy.cache_clear()


def main(pages: Sequence[str] = PAGES) -> None:
    """Write one file a page, with what no page before it has."""
    for file in FOLDER.glob("*.safetensors"):
        file.unlink()
    FOLDER.mkdir(exist_ok=True)
    before: set[Key] = set()
    for page in pages:
        results = {key: value for key, value in record(page).items() if key not in before}
        before |= results.keys()
        saved_results.save(FOLDER / f"{page}.safetensors", results)


if __name__ == "__main__":
    main()
