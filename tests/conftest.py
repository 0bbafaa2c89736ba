"""What holds for every test: annotated shapes are checked, nothing is fetched, nothing is random."""

import functools
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests run side by side, and so do their subprocesses

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
    torch.default_generator.manual_seed(86)  # torch.manual_seed would note the call for a GPU, with its whole stack
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _few_final_items(monkeypatch):
    """The last record of a run measures 20 held-out items: 1,000 take a second, and hardly a test is about them."""
    monkeypatch.setattr("core.training.loop.FINAL", 20)


@pytest.fixture(autouse=True)
def _runs_elsewhere(tmp_path, monkeypatch):
    """Runs made by a test land in its own folder, never among a person's."""
    monkeypatch.setenv("ATTENTION_LAB_RUNS", str(tmp_path / "runs"))
