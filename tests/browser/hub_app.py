"""The dashboard, allowed to ask the hub that HF_ENDPOINT names (other browser tests run without one)."""

import os
import runpy
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "0"
runpy.run_path(
    str(Path(__file__).resolve().parents[2] / "dashboard" / "app.py"), run_name="__main__"
)
