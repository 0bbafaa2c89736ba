"""What runs on a GPU. It needs core alone: `pytest --confcutdir tests/cuda tests/cuda` leaves tests/conftest.py out."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _on_a_gpu(monkeypatch, tmp_path):
    """Skips where there is none. float32 is not rounded to TF32, there is one seed, and a run ends after 20 items."""
    from core.attention.cost import CUDA, devices  # which must not come before the check of shapes

    if CUDA not in devices():
        pytest.skip("no CUDA device")
    torch.manual_seed(86)
    torch.set_num_threads(1)
    monkeypatch.setattr("core.training.loop.FINAL", 20)
    monkeypatch.setenv("ATTENTION_LAB_RUNS", str(tmp_path / "runs"))
    with torch.backends.cudnn.flags(allow_tf32=False):
        yield
