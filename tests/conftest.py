"""The environment of the tests. What holds for every test is in tests/every_test.py.

That imports PyTorch and Streamlit: four seconds, which the process that hands the tests out to workers does without.
"""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["PYTHONIOENCODING"] = "utf-8"  # what they print, as these tests read it
# tests run side by side, and so do their subprocesses
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_configure(config):
    if (
        hasattr(config, "workerinput")
        or not config.getoption("numprocesses", None)
        or config.option.collectonly
    ):
        config.pluginmanager.import_plugin("tests.every_test")
