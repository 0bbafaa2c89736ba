"""What holds for every test: annotated shapes are checked, nothing is fetched, nothing is random."""

import functools
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest
import torch
from hypothesis import HealthCheck, settings
from streamlit.components.v2 import manifest_scanner

from tests import typecheck

typecheck.install()

# Each AppTest reads the metadata of every installed package (0.2 s); once for all of them is enough.
manifest_scanner.scan_component_manifests = functools.cache(manifest_scanner.scan_component_manifests)

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
