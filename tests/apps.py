"""Streamlit's AppTest, without what each app and each run would do again."""

import functools

from streamlit.components.v2 import manifest_scanner
from streamlit.runtime.scriptrunner.script_cache import ScriptCache
from streamlit.testing.v1 import app_test, local_script_runner
from streamlit.testing.v1.local_script_runner import LocalScriptRunner

from tests.cases import PATIENCE

_poll = local_script_runner.require_widgets_deltas


def _join(runner: LocalScriptRunner, timeout: float = 3) -> None:
    """Wait for a page's run without a look every millisecond, each of which stops the run for a moment.

    A busy machine takes longer than a test's own timeout.
    """
    assert runner._script_thread is not None
    runner._script_thread.join(PATIENCE)
    _poll(runner, timeout)  # ends at once, or raises


def install() -> None:
    """Each app reads the metadata of every installed package (0.2 s), and each run compiles its script (10 ms): once
    for all of them is enough."""
    manifest_scanner.scan_component_manifests = functools.cache(
        manifest_scanner.scan_component_manifests
    )
    app_test.ScriptCache = local_script_runner.ScriptCache = functools.cache(ScriptCache)  # type: ignore[misc,assignment]
    local_script_runner.require_widgets_deltas = _join
