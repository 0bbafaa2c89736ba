import pytest

from dashboard.runtime import jobs


@pytest.fixture(autouse=True)
def _no_workers_and_no_models(monkeypatch, tmp_path):
    """No worker is started, and nothing is in the cache of the Hub."""
    monkeypatch.setattr(jobs, "warm_up", lambda: None)
    monkeypatch.setattr(jobs, "_give", lambda run: None)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
