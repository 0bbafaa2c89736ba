"""What holds for every test: annotated shapes are checked, nothing is fetched, nothing is random."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest
import torch
from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook

import tests.typecheck  # noqa: F401  (the hook below finds it by name)

# Must come before the first import of core: from here on each annotated shape is checked at each call.
_shapes = install_import_hook("core", "tests.typecheck.checked")

settings.register_profile(
    "lab", deadline=None, derandomize=True, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("lab")


@pytest.fixture(autouse=True)
def _seeded():
    """One seed before each test, and one thread, since the tests themselves run side by side."""
    torch.manual_seed(86)
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _runs_elsewhere(tmp_path, monkeypatch):
    """Runs made by a test land in its own folder, never among a person's."""
    if "ATTENTION_LAB_RUNS" not in os.environ:
        monkeypatch.setenv("ATTENTION_LAB_RUNS", str(tmp_path / "runs"))
